"""Whether what a recipe has read is what its publisher made; says it loudly, or stops, if not."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sparse_fairseq.errors import UsageError

# Reasons for which a pair is dropped that no publisher intended, as they end in `dropped`.
DAMAGE = ("bad UTF-8", "not two columns")
LOUD = 0.001  # from this share on, damage is said loudly


@dataclass(frozen=True)
class Tolerance:
    """What a preparation puts up with."""

    damaged: float = 0.01  # the share of a split's pairs that may be damaged
    any_size: bool = False  # another number of pairs than the official one

    def __post_init__(self) -> None:
        if not 0 <= self.damaged <= 1:
            raise UsageError(f"--max-damaged must be a share between 0 and 1, not {self.damaged}")


USUAL = Tolerance()


class Presumed(int):
    """A number of pairs that no source was found for: another one is worth a warning."""


@dataclass(frozen=True)
class Read:
    """How a split was read."""

    split: str
    pairs: int  # before cleaning
    kept: int
    damaged: Mapping[str, int]  # by reason


def check_damage(read: Read, tolerance: Tolerance) -> None:
    """A file in another encoding must not pass for a smaller one."""
    count = sum(read.damaged.values())
    if count <= LOUD * read.pairs:
        return
    reasons = ", ".join(f"{reason}: {number:,}" for reason, number in read.damaged.items())
    said = f"{count:,} of {read.pairs:,} pairs of {read.split} are damaged ({reasons})"
    if count <= tolerance.damaged * read.pairs:
        print(f"WARNING: {said} and left out", file=sys.stderr)
        return
    bound = math.ceil(1000 * count / read.pairs) / 1000
    raise UsageError(
        f"{said}; text must be UTF-8: is it Latin-1 or UTF-16? Convert it (iconv), "
        f"or leave these pairs out with --max-damaged {bound:g}"
    )


def check_size(read: Read, official: int | None, tolerance: Tolerance) -> None:
    """Compares training data as they were read, and the others as they will be scored."""
    found = read.pairs if read.split == "train" else read.kept
    if official is None or found == official:
        return
    said = f"{read.split} has {found:,} pairs, but the official files have {official:,}"
    if isinstance(official, Presumed):
        said += ", as far as we know"
    elif not tolerance.any_size:
        raise UsageError(f"{said}: not all of them, or others; --any-size takes them as they are")
    print(f"WARNING: {said}", file=sys.stderr)
