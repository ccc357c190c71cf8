"""Text files of one's own: `train.de` and `train.en`, gzipped or not, or one tab-separated file.

Without a validation or test set of one's own, it is held out from the training data.
"""

import operator
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from data_prep import archives
from data_prep.clean import Row, Rows, aligned
from data_prep.download import Source
from data_prep.held_out import held_out, split
from data_prep.progress import track
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

DEFAULTS = {"operations": 4_000}
SPLITS = ("train", "valid", "test")
# Of each held-out set: this many pairs, or a tenth of a small corpus.
HELD_OUT = 1_000
FEWEST_PAIRS = 20  # with fewer there is nothing to hold out
BAD_SHARE = 0.01  # of lines that are not UTF-8; fewer are dropped and counted
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    paths = [path for name in SPLITS for path in files_of(spec, name)]
    for path in paths:
        check_text(path)
    return [Source(str(path), "", path=path) for path in paths]


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    given = {name: rows_of(spec, name) for name in SPLITS if getattr(spec, name)}
    missing = [name for name in SPLITS if name not in given]
    train = given["train"]
    if not missing:
        return given
    pairs = operator.length_hint(train)
    if pairs < FEWEST_PAIRS:
        sets = " and ".join(missing)
        raise UsageError(f"{spec.train} has {pairs} pairs, too few to hold out {sets}: give them")
    sizes = dict.fromkeys(missing, min(HELD_OUT, pairs // 10))
    taken = held_out(track(train, "hold out", pairs, "pairs"), sizes, spec.seed)
    sizes["train"] = pairs - sum(sizes.values())
    made = {
        name: Rows(partial(split, train, taken, name), *train.counted, share=size / pairs)
        for name, size in sizes.items()
    }
    return {**given, **made}


def files_of(spec: DataSpec, name: str) -> list[Path]:
    """The files of a split: two, one with both languages in it, or none."""
    if getattr(spec, name) is None:
        if name == "train":
            raise UsageError("data: plain_text needs train: path/train for path/train.de and .en")
        return []
    prefix = Path(getattr(spec, name))
    if prefix.is_file():
        return [prefix]
    sides = {language: _side(prefix, language) for language in (spec.source, spec.target)}
    found = [path for path in sides.values() if path]
    if len(found) == 2:
        return found
    there = f"{found[0]} is there, but " if found else ""
    lost = [f"{prefix}.{language}" for language, path in sides.items() if not path]
    raise UsageError(f"{name}: {there}there is no {' and no '.join(lost)} (nor .gz of it)")


def _side(prefix: Path, language: str) -> Path | None:
    names = (f"{prefix}.{language}", f"{prefix}.{language}.gz")
    return next((Path(name) for name in names if Path(name).is_file()), None)


def check_text(path: Path) -> None:
    """One line for a file that is no text in UTF-8."""
    with archives.open_binary(path) as file:
        start = file.read(2)
    if start in UTF16:
        remedy = f"iconv -f UTF-16 -t UTF-8 {path} > {path}.utf8"
        raise UsageError(f"{path} is in UTF-16, not in UTF-8: {remedy}")
    if not start:
        raise UsageError(f"{path} is empty")
    total, bad = 0, []
    for number, line in enumerate(archives.lines(path), start=1):
        if b"\0" in line:
            raise UsageError(f"{path} is not text: line {number} has a zero byte")
        total = number
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            bad.append(number)
    if len(bad) > BAD_SHARE * total:
        remedy = f"iconv -f LATIN1 -t UTF-8 {path} > {path}.utf8, if it is in Latin-1"
        first = f"line {bad[0]} is the first of {len(bad):,} that are not"
        raise UsageError(f"{path} is not in UTF-8 ({first}): {remedy}")


def rows_of(spec: DataSpec, name: str) -> Rows:
    files = files_of(spec, name)
    if len(files) == 2:
        return aligned(*files)
    return Rows(lambda: _columns(files[0]), files[0])


def _columns(path: Path) -> Iterator[Row]:
    """Pairs of a tab-separated file; a line with more or fewer columns is an error."""
    for number, line in enumerate(archives.lines(path), start=1):
        row = tuple(line.split(b"\t"))
        if len(row) != 2:
            remedy = "two are needed, source and target (cut -f1,2 takes the first two)"
            raise UsageError(f"{path}: line {number} has {len(row)} columns: {remedy}")
        yield row
