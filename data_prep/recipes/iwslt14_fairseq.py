"""IWSLT'14 German-English with the split of fairseq's prepare-iwslt14.sh.

Titles and descriptions of talks train, too. Pairs are filtered by their numbers of Moses tokens,
then every 23rd validates; all official development and test sets together are the test set. What
still differs from the script is in docs/differences-to-the-papers.md.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from data_prep import archives, formats
from data_prep.clean import Row, Rows, aligned, joined
from data_prep.download import Source
from data_prep.files import atomic_output
from data_prep.progress import track
from data_prep.recipes import iwslt14
from data_prep.spec import DataSpec

# As the script: lower case; fairseq's example makes a dictionary per language.
DEFAULTS = {
    "source": "de",
    "target": "en",
    "operations": 10_000,
    "joint_dictionary": False,
    "lowercase": True,
}
TEST = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
MOST_TOKENS, HIGHEST_RATIO = 175, 1.5
VALID_EVERY = 23
DESCRIBES = re.compile(rb"<url>|<talkid>|<keywords>")
TEXT_TAG = re.compile(rb"</?(?:title|description)>")


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    return iwslt14.sources(spec, raw)


def official(spec: DataSpec) -> dict[str, int]:
    # fairseq's README shows the test set: "data-bin/iwslt14.tokenized.de-en test 6750 examples".
    # How many train (160,239) and validate (7,283) hangs on the tokeniser's version.
    return {"test": 6_750}


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    train, tests = iwslt14.unpacked(spec, files[iwslt14.ARCHIVE.name], scratch, TEST)
    kept = [scratch / f"kept.{language}" for language in (spec.source, spec.target)]
    _write_kept(spec, train, kept, dropped)
    return {
        "train": _every(kept, valid=False),
        "valid": _every(kept, valid=True),
        "test": joined(*(aligned(*pair, _test_segments) for pair in tests)),
    }


def _talks(path: Path) -> Iterator[bytes]:
    """All lines but those with a talk's address, number and keywords."""
    for line in archives.lines(path):
        if not DESCRIBES.search(line):
            yield formats.unescaped(TEXT_TAG.sub(b"", line.removeprefix(formats.BYTE_ORDER_MARK)))


def _test_segments(path: Path) -> Iterator[bytes]:
    """The script writes typewriter apostrophes, in these sets only."""
    return (line.replace("\u2019".encode(), b"'") for line in formats.segments(path))


def _write_kept(spec: DataSpec, train: list[Path], kept: list[Path], dropped: Counter[str]) -> None:
    """Pairs with 1 to 175 tokens on each side and a ratio of at most 1.5.

    The script counts the tokens of Moses without splitting hyphens; what models see are other ones.
    """
    from sacremoses import MosesTokenizer

    moses = [MosesTokenizer(language) for language in (spec.source, spec.target)]
    pairs = aligned(*train, _talks)
    total = archives.count_lines(train[0])
    with atomic_output(kept[1], "wb") as right, atomic_output(kept[0], "wb") as left:
        for row in track(pairs, "filter by tokens", total, "pairs"):
            texts = [line.decode("utf-8", "replace") for line in row]
            shorter, longer = sorted(len(m.tokenize(x)) for m, x in zip(moses, texts, strict=True))
            if not shorter or longer > MOST_TOKENS or longer > HIGHEST_RATIO * shorter:
                dropped["empty, more than 175 tokens, or a ratio of more than 1.5"] += 1
                continue
            left.write(row[0] + b"\n")
            right.write(row[1] + b"\n")


def _every(kept: list[Path], valid: bool) -> Rows:
    """Every 23rd pair, or the others."""
    pairs = aligned(*kept)

    def chosen() -> Iterator[Row]:
        if valid:
            return islice(pairs, VALID_EVERY - 1, None, VALID_EVERY)
        return (row for number, row in enumerate(pairs, 1) if number % VALID_EVERY)

    share = 1 / VALID_EVERY if valid else 1 - 1 / VALID_EVERY
    return Rows(chosen, *pairs.counted, share=share)
