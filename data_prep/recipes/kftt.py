"""Kyoto Free Translation Task, Japanese-English: its tokenised text, as S2S's 329,882 pairs are.

The Japanese text was tokenised with KyTea by the publisher; BLEU on it is tokenised BLEU. A token
that is an ideographic space is written as ▁, or fairseq would take it for the space between two.
"""

from collections import Counter
from pathlib import Path

from data_prep import archives
from data_prep.acceptance import Presumed
from data_prep.clean import Rows, aligned
from data_prep.download import Source
from data_prep.inflection import SPACE
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

DEFAULTS = {
    "source": "ja",
    "target": "en",
    "tokenizer": "none",
    "operations": 32_000,
    "joint_dictionary": False,
}
ARCHIVE = Source(
    "kftt-data-1.0.tar.gz", "http://www.phontron.com/kftt/download/kftt-data-1.0.tar.gz"
)
# "cln": the publisher's choice of sentences of at most 40 words.
PARTS = {"train": "kyoto-train.cln", "valid": "kyoto-dev", "test": "kyoto-test"}


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    if {spec.source, spec.target} != {"ja", "en"}:
        raise UsageError(f"kftt has ja and en, not {spec.source} and {spec.target}")
    return [ARCHIVE]


def official(spec: DataSpec) -> dict[str, int]:
    # S2S §4.2 has the training pairs.
    return {"train": 329_882, "valid": Presumed(1_166), "test": Presumed(1_160)}


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    members = [
        f"kftt-data-1.0/data/tok/{part}.{language}"
        for part in PARTS.values()
        for language in (spec.source, spec.target)
    ]
    texts = archives.unpack(files[ARCHIVE.name], scratch, members)
    return {
        split: _visible(aligned(left, right))
        for split, left, right in zip(PARTS, texts[::2], texts[1::2], strict=True)
    }


def _visible(rows: Rows) -> Rows:
    space, sign = "\u3000".encode(), SPACE.encode()
    return Rows(
        lambda: (tuple(line.replace(space, sign) for line in row) for row in rows), *rows.counted
    )
