"""What fairseq-generate and fairseq-interactive say about exactness: one E- line per sentence.

fairseq has no hook for lines of one's own. Those of a batch are written where the batch is decoded:
to stdout before its S- and H- lines, or, with --results-path, to `exactness-<subset>.txt` beside
fairseq's `generate-<subset>.txt`. The summary comes with the last batch.
"""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path

logger = logging.getLogger(__name__)


def _percent(flags: list[bool]) -> str:
    return f"{100 * sum(flags) / len(flags):.1f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


@dataclass
class ExactnessReport:
    """Collects the hypotheses of all sentences. `path`: None is stdout."""

    path: Path | None = None
    quiet: bool = False
    sentences: list[dict] = field(default_factory=list)
    _iterator: object = None
    _batches: int = 0  # of the iterator that were decoded
    _before: int = 0  # sentences of earlier iterators, each of which is a part of the input

    @classmethod
    def of_command(cls, cfg) -> "ExactnessReport":
        """As the flags of the command want it."""
        path = None
        if cfg.results_path:
            path = Path(cfg.results_path) / f"exactness-{cfg.gen_subset}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")
        return cls(path, cfg.quiet is True)

    def begin(self, iterator) -> None:
        """The batches of this iterator come next: all there are, or those of a few lines that
        fairseq-interactive has read."""
        if self._iterator is not None:
            self._before += len(self._iterator.dataset)
        self._iterator, self._batches = iterator, 0

    def decoded(self, sample: dict, found: list[list[dict]]) -> None:
        """Writes the lines of a batch, and, after the last of a data set, the summary."""
        lines = []
        for number, hypotheses in zip(self._numbers(sample), found, strict=True):
            line = self.add(hypotheses)
            if not self.quiet:
                lines.append(f"E-{number}\t{line}")
        self._batches += 1
        if "id" in sample and self._is_last():
            lines.append(self.summary())
            self._warn()
        self._write(lines)

    def _numbers(self, sample: dict) -> list[int]:
        """fairseq-interactive keeps the numbers to itself, and asks for the batches in order."""
        if "id" in sample:
            return sample["id"].tolist()
        dataset = self._iterator.dataset
        batch = self._iterator.frozen_batches[self._batches]
        ids = dataset.collater([dataset[i] for i in batch])["id"]
        return [self._before + number for number in ids.tolist()]

    def _is_last(self) -> bool:
        iterator = self._iterator
        # A worker with fewer batches than others gets empty ones at the end.
        own = range(iterator.shard_id, len(iterator.frozen_batches), iterator.num_shards)
        return self._batches >= len(own)

    def _write(self, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if self.path is None:
            sys.stdout.write(text)
        else:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)

    def add(self, hypotheses: list[dict]) -> str:
        """Takes note of one sentence; returns what its E- line says."""
        best = hypotheses[0]
        mass = best["mass"]
        by_score = sorted(hypotheses, key=lambda h: -float(h["score"]))
        entry = {
            "raw": best["exact"]["raw"],
            "normalized": best["exact"]["normalized"],
            "exhaustive": best["exhaustive"],
            "hypotheses": sum(h["status"] == "finished" for h in hypotheses),
            "status": best["status"],
            "proved": _leading([h["proved"] for h in by_score]),
            **{f"{kind}_gap": _number(best["gap"][kind]) for kind in ("raw", "normalized")},
            **{f"{kind}_bound": _number(best["bound"][kind]) for kind in ("raw", "normalized")},
            "mass": "-" if mass is None else f"{mass[0]:.4f}..{mass[1]:.4f}",
        }
        if "expected_utility" in best:
            entry["expected_utility"] = f"{best['expected_utility']:.2f}"
            entry["utility_mass"] = f"{best['utility_mass']:.4f}"
        self.sentences.append({**entry, "gaps": best["gap"]})
        shown = {k: ("no", "yes")[v] if isinstance(v, bool) else v for k, v in entry.items()}
        return "\t".join(f"{name}={value}" for name, value in shown.items())

    def summary(self) -> str:
        entries = self.sentences
        mean = sum(s["hypotheses"] for s in entries) / len(entries)
        single = [s["exhaustive"] and s["hypotheses"] == 1 for s in entries]
        return (
            f"Exactness of {len(entries)} sentences: "
            f"certified {_percent([s['raw'] for s in entries])} (raw score), "
            f"{_percent([s['normalized'] for s in entries])} (length-normalized score); "
            f"{self._mean_gap('raw', 'raw')}{self._mean_gap('normalized', 'length-normalized')}"
            f"{_percent(single)} with a single non-zero hypothesis; "
            f"mean number of hypotheses {mean:.2f}; "
            f"forced {self.forced}"
        )

    def _mean_gap(self, kind: str, name: str) -> str:
        gaps = [s["gaps"][kind] for s in self.sentences if s["gaps"][kind] is not None]
        return f"mean gap {sum(gaps) / len(gaps):.4f} nats ({name} score); " if gaps else ""

    @property
    def forced(self) -> int:
        return sum(entry["status"] == "forced" for entry in self.sentences)

    def _warn(self) -> None:
        if self.forced:
            logger.warning(
                f"{self.forced} sentences have no hypothesis with a non-zero score; "
                "their best unfinished one was closed (E- lines: status=forced)"
            )


def _leading(flags: list[bool]) -> int:
    """How many are true before the first that is not."""
    return next((i for i, flag in enumerate(flags) if not flag), len(flags))
