"""Reads what fairseq's commands print: the log of training, and generated sentences.

The one place that knows fairseq's lines. What follows from them is in `metrics` and in analyses.
"""

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \| \w+ \| ([\w.]+) \| (.*)")
SAVED = re.compile(r"Saved checkpoint .* @ (\d+) updates")
LOADED = re.compile(r"Loaded checkpoint .* @ (\d+) updates")
FRESH = "No existing checkpoint found"  # what fairseq-train says instead
TAU = re.compile(r"tau = (\S+) \(")
SPEED = re.compile(r"Translated [\d,]+ sentences .* \(([\d.]+) sentences/s")
EXACTNESS = re.compile(
    r"raw=(\w+)\tnormalized=(\w+)\texhaustive=(\w+)\thypotheses=(\d+)\tstatus=(\w+)"
)


@dataclasses.dataclass(frozen=True)
class LogLine:
    """One line of a log: when, which logger, and its text."""

    clock: str
    logger: str  # train, train_inner and valid write numbers; others write prose
    text: str

    @property
    def time(self) -> float:
        return datetime.fromisoformat(self.clock).timestamp()

    @cached_property
    def numbers(self) -> dict[str, float]:
        """What the line holds as JSON, without the logger's name before each key; nothing if a
        kill cut it short, or two processes wrote at once."""
        try:
            record = json.loads(self.text)
        except ValueError:
            return {}
        if not isinstance(record, dict):
            return {}
        found = {key.removeprefix(f"{self.logger}_"): _number(x) for key, x in record.items()}
        return {key: value for key, value in found.items() if value is not None}


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def log_line(text: str) -> LogLine | None:
    match = LINE.match(text)
    return LogLine(*match.groups()) if match else None


def read_log(path: Path) -> Iterator[LogLine]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            if line := log_line(text):
                yield line


def selection(flags: Mapping[str, Any]) -> tuple[str, bool]:
    """The metric by which fairseq selects checkpoint_best.pt, and whether more is better."""
    metric = flags.get("best-checkpoint-metric", "loss")
    return metric, bool(flags.get("maximize-best-checkpoint-metric", False))


def training_summary(path: Path, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Speed and time of a training run, and the validation scores of its best checkpoint."""
    lines = list(read_log(path))
    # A resumed run logs the epoch in which it was interrupted twice: the last one counts.
    epochs = {x.numbers["epoch"]: x.numbers for x in lines if _has(x, "train", "epoch")}
    valid = {x.numbers["num_updates"]: x.numbers for x in lines if _has(x, "valid", "num_updates")}
    summary: dict[str, Any] = {}
    if epochs:
        summary["train_words_per_second"] = statistics.median(e["wps"] for e in epochs.values())
        summary["train_seconds"] = max(epoch["wall"] for epoch in epochs.values())
        summary["epochs"] = max(epochs)
    if (speed := words_per_cpu_second(lines)) is not None:
        summary["train_words_per_cpu_second"] = speed
    metric, maximize = selection(flags)
    scored = [numbers for numbers in valid.values() if metric in numbers]
    if scored:
        # Of equals the last: fairseq replaces its best checkpoint by one that is as good.
        better = max if maximize else min
        best = better(reversed(scored), key=lambda numbers: numbers[metric])
        summary["updates"] = best["num_updates"]
        for key in ("loss", "accuracy", "support", "total_score", "zero_targets", "bleu"):
            if key in best:
                summary[f"valid_{key}"] = best[key]
    return summary


def _has(line: LogLine, logger: str, key: str) -> bool:
    return line.logger == logger and key in line.numbers


def words_per_cpu_second(lines: Iterable[LogLine]) -> float | None:
    """Target words of an update per second that the process itself took for it, whatever ran
    beside it: the median over the intervals between two lines of train_inner.

    None if the task did not log its time: a stock one, a run on GPUs, or an older version.
    """
    speeds, updates, seconds = [], 0.0, 0.0
    for line in lines:
        if FRESH in line.text:
            updates = seconds = 0.0
        elif match := LOADED.search(line.text):  # a new process, whose clock begins anew
            updates, seconds = float(match[1]), 0.0
        elif line.logger == "train_inner" and {"cpu_seconds", "wpb", "num_updates"} <= {
            *(now := line.numbers)
        }:
            if now["num_updates"] > updates and now["cpu_seconds"] > seconds:
                words = now["wpb"] * (now["num_updates"] - updates)
                speeds.append(words / (now["cpu_seconds"] - seconds))
            updates, seconds = now["num_updates"], now["cpu_seconds"]
    return statistics.median(speeds) if speeds else None


def training_ended(path: Path, start: int = 0) -> bool:
    """Whether the last that fairseq-train did was to end; ``start``: where in the log to begin."""
    if not path.is_file():
        return False
    text = path.read_bytes()[start:]
    return text.rfind(b"| done training in ") > text.rfind(b"| Start iterating over samples")


def find_tau(path: Path) -> float | None:
    """τ as resolved at the start of an α-ReLU run."""
    match = TAU.search(path.read_text(encoding="utf-8", errors="replace"))
    return float(match[1]) if match else None


@dataclasses.dataclass
class Generated:
    """The best hypothesis of one sentence, as fairseq-generate printed it."""

    id: int
    source: str = ""
    target: str = ""
    hypothesis: str | None = None  # tokenised
    detokenised: str | None = None
    score: float = math.nan
    exact_raw: bool | None = None
    exact_normalized: bool | None = None
    exhaustive: bool | None = None
    hypotheses: int | None = None
    status: str | None = None


def read_generated(path: Path) -> list[Generated]:
    """All sentences in corpus order; a missing or doubled one is an error."""
    sentences: dict[int, Generated] = {}
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                if match := re.match(r"([STHDE])-(\d+)\t(.*)", line, re.DOTALL):
                    sentence = sentences.setdefault(int(match[2]), Generated(int(match[2])))
                    _take(sentence, match[1], match[3].removesuffix("\n"))
    except ValueError as error:
        raise ValueError(f"{path} is broken: {error}") from error
    found = sorted(sentences)
    if found != list(range(len(found))) or any(s.hypothesis is None for s in sentences.values()):
        raise ValueError(f"{path}: not every sentence from 0 to {max(found, default=0)} is there")
    return [sentences[number] for number in found]


def _take(sentence: Generated, kind: str, text: str) -> None:
    if kind == "S":
        sentence.source = text
    elif kind == "T":
        sentence.target = text
    elif kind == "E" and (match := EXACTNESS.match(text)):
        raw, normalized, exhaustive, hypotheses, sentence.status = match.groups()
        sentence.exact_raw, sentence.exact_normalized = raw == "yes", normalized == "yes"
        sentence.exhaustive, sentence.hypotheses = exhaustive == "yes", int(hypotheses)
    elif kind == "H" and sentence.hypothesis is None:  # the first of --nbest is the best
        score, _, sentence.hypothesis = text.partition("\t")
        sentence.score = float(score)
    elif kind == "D" and sentence.detokenised is None:
        sentence.detokenised = text.partition("\t")[2]


def sentences_per_second(path: Path) -> float | None:
    match = SPEED.search(path.read_text(encoding="utf-8"))
    return float(match[1]) if match else None
