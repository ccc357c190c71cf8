"""Cleans raw lines in pairs, so that what is dropped is dropped on both sides, and counted.

Lines come as bytes that were split at \\n only; nothing here writes files.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from data_prep import archives
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

# What some program takes for the end of a line or of a string: CR, VT, FF, U+0085, U+2028 and
# U+2029 among them. fairseq-preprocess ends lines at CR, Python's splitlines at all of them.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
BYTE_ORDER_MARK = "\ufeff"

Row = tuple[bytes, ...]


@dataclass
class Cleaned:
    """Rows that stay, and how many were dropped or repaired, by reason."""

    rows: list[tuple[str, ...]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)


class Rows:
    """Rows of raw lines; the files whose lines are counted say about how many there will be."""

    def __init__(self, make: Callable[[], Iterable[Row]], *counted: Path, share: float = 1.0):
        self.make, self.counted = make, counted
        self.share = share  # of the counted lines

    def __iter__(self) -> Iterator[Row]:
        return iter(self.make())

    def __length_hint__(self) -> int:
        return round(self.share * sum(map(archives.count_lines, self.counted)))


def joined(*parts: Rows) -> Rows:
    """All rows of one part after the other."""
    return Rows(lambda: chain(*parts), *(path for part in parts for path in part.counted))


def aligned(
    source: Path, target: Path, read: Callable[[Path], Iterator[bytes]] = archives.lines
) -> Rows:
    """Pairs of sentences of two files; UsageError names both if one has more."""
    return Rows(lambda: _aligned(source, target, read), source)


def _aligned(source: Path, target: Path, read: Callable[[Path], Iterator[bytes]]) -> Iterator[Row]:
    left, right = read(source), read(target)
    count = 0
    for line in left:
        other = next(right, None)
        if other is None:
            raise _unequal(source, count + 1 + sum(1 for _ in left), target, count)
        count += 1
        yield line, other
    more = sum(1 for _ in right)
    if more:
        raise _unequal(source, count, target, count + more)


def _unequal(source: Path, lines: int, target: Path, other_lines: int) -> UsageError:
    return UsageError(
        f"{source} has {lines:,} sentences but {target} has {other_lines:,}: "
        "one of them is truncated or belongs to another corpus; not used"
    )


def clean_rows(rows: Iterable[Row], spec: DataSpec, training: bool) -> Cleaned:
    """Decodes, repairs and filters rows of source, target and perhaps a label.

    Rows of validation and test sets stay whatever their length: dropping them would make scores
    incomparable with those of others.
    """
    cleaned = Cleaned()
    for row in rows:
        try:
            texts = [line.decode("utf-8") for line in row]
        except UnicodeDecodeError:
            cleaned.dropped["bad UTF-8"] += 1
            continue
        if any(map(CONTROL.search, texts)):
            inside = any(CONTROL.search(text.removesuffix("\r")) for text in texts)
            cleaned.repaired["control character" if inside else "CR at the end"] += 1
            texts = [CONTROL.sub(" ", text) for text in texts]
        if any(text.startswith(BYTE_ORDER_MARK) for text in texts):
            cleaned.repaired["byte order mark"] += 1
        words = [text.removeprefix(BYTE_ORDER_MARK).split() for text in texts]
        reason = _reason(len(words[0]), len(words[1]), spec, training)
        if reason:
            cleaned.dropped[reason] += 1
            continue
        texts = [" ".join(side) for side in words]
        if spec.lowercase:
            texts[:2] = [text.lower() for text in texts[:2]]
        cleaned.rows.append(tuple(texts))
    return cleaned


def _reason(source: int, target: int, spec: DataSpec, training: bool) -> str | None:
    """Why a pair with so many words is dropped, if it is."""
    shorter, longer = sorted((source, target))
    if not shorter:
        return "empty"
    if not training:
        return None
    if shorter < spec.min_words:
        return "too short"
    if spec.max_words is not None and longer > spec.max_words:
        return "too long"
    if spec.max_ratio is not None and longer > spec.max_ratio * shorter:
        return "length ratio"
    return None
