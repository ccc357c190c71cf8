"""Pure functions from what fairseq printed to scores: generated sentences, logs, BLEU and chrF."""

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep import recipes

EXACTNESS = re.compile(
    r"raw=(\w+)\tnormalized=(\w+)\texhaustive=(\w+)\thypotheses=(\d+)\tstatus=(\w+)"
)
SPEED = re.compile(r"Translated [\d,]+ sentences .* \(([\d.]+) sentences/s")
TAU = re.compile(r"tau = (\S+) \(")


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


def exactness(sentences: Sequence[Generated]) -> dict[str, float]:
    """Shares in % of the sentences that have a line about it (S2S §4.1)."""
    known = [s for s in sentences if s.exact_raw is not None]
    if not known:
        return {}

    def share(count: int) -> float:
        return 100 * count / len(known)

    return {
        "exact_raw": share(sum(bool(s.exact_raw) for s in known)),
        "exact_normalized": share(sum(bool(s.exact_normalized) for s in known)),
        "single_hypothesis": share(sum(bool(s.exhaustive) and s.hypotheses == 1 for s in known)),
    }


def is_tokenised(data: Mapping[str, Any]) -> bool:
    """Whether the text of a config's data came with its words divided, as KFTT's does."""
    recipe = data.get("recipe")
    usual = recipes.load(recipe).DEFAULTS if recipe in recipes.NAMES else {}
    spec = {**usual, **{key: value for key, value in data.items() if value is not None}}
    # Sentencepiece takes raw text, and therefore no tokeniser either.
    return spec.get("tokenizer") == "none" and spec.get("segmentation") != "sentencepiece"


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_lang: str,
    tokenised: bool = False,
) -> dict[str, Any]:
    """sacreBLEU and chrF, each with the signature that says how it was made."""
    from sacrebleu.metrics import CHRF

    bleu = bleu_metric(target_lang, tokenised)
    scores: dict[str, Any] = {}
    for name, metric in (("bleu", bleu), ("chrf", CHRF())):
        scores[name] = metric.corpus_score(list(hypotheses), [list(references)]).score
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def bleu_metric(target_lang: str, tokenised: bool = False, **options: Any):
    """sacreBLEU's, with its own tokenisers for languages without spaces."""
    from sacrebleu.metrics import BLEU

    if tokenised:
        return BLEU(tokenize="none", force=True, **options)  # else it warns of tokenised text
    language = target_lang.partition("-")[0]
    tokenize = {"ja": "ja-mecab", "zh": "zh", "ko": "ko-mecab"}.get(language, "13a")
    try:
        return BLEU(tokenize=tokenize, **options)
    except RuntimeError:  # MeCab is not installed; characters need no package
        return BLEU(tokenize="char", **options)


def log_records(path: Path, logger: str) -> Iterator[dict[str, float]]:
    """What fairseq logged as JSON under one logger's name: train, train_inner, valid, test."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            parts = line.rstrip("\n").split(" | ", 3)
            if len(parts) == 4 and parts[2] == logger:
                record = json_record(parts[3])
                if record is not None:
                    yield {key: _number(value) for key, value in record.items()}


def json_record(text: str) -> dict[str, Any] | None:
    """What a line of a log holds; None if a kill cut it short, or two processes wrote at once."""
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def training_summary(path: Path, metric: str, maximize: bool) -> dict[str, Any]:
    """Speed and time of a training run, and the validation scores of its best checkpoint."""
    # A resumed run logs the epoch in which it was interrupted twice: the last one counts.
    epochs = {record["epoch"]: record for record in log_records(path, "train")}
    valid = {record["valid_num_updates"]: record for record in log_records(path, "valid")}
    summary: dict[str, Any] = {}
    if epochs:
        summary["train_words_per_second"] = statistics.median(
            record["train_wps"] for record in epochs.values()
        )
        summary["train_seconds"] = max(record["train_wall"] for record in epochs.values())
        summary["epochs"] = max(epochs)
    scored = [r for r in valid.values() if f"valid_{metric}" in r]
    if scored:
        # Of equals the last: fairseq replaces its best checkpoint by one that is as good.
        better = max if maximize else min
        best = better(reversed(scored), key=lambda r: r[f"valid_{metric}"])
        summary["updates"] = best["valid_num_updates"]
        for key in ("loss", "accuracy", "support", "total_score", "zero_targets", "bleu"):
            if f"valid_{key}" in best:
                summary[f"valid_{key}"] = best[f"valid_{key}"]
    return summary


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
