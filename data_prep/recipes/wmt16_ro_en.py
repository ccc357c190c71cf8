"""WMT'16 Romanian-English without diacritics: Europarl v8 and SETIMES2; S2S counts 612,422 pairs.

Diacritics are taken off all Romanian text, references included, as S2S does after Sennrich et al.
(2016), whose scripts also normalise the punctuation of all text. S2S reports tokenised BLEU, which
is against references that went the same way.
"""

from collections import Counter
from pathlib import Path

from data_prep import archives, formats
from data_prep.clean import Row, Rows, aligned, joined
from data_prep.download import Source
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

DEFAULTS = {
    "source": "ro",
    "target": "en",
    "normalise": True,
    "operations": 25_000,
    "joint_bpe": False,
    "joint_dictionary": False,
}
EUROPARL = Source(
    "training-parallel-ep-v8.tgz",
    "https://data.statmt.org/wmt16/translation-task/training-parallel-ep-v8.tgz",
)
SETIMES = Source(
    "en-ro.txt.zip",
    "https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-ro.txt.zip",
    also=("SETIMES2.ro-en.txt.zip", "SETIMES2.en-ro.txt.zip"),
)
VALID = Source(
    "dev.tgz",
    "https://data.statmt.org/wmt16/translation-task/dev.tgz",
    md5="4a3dc2760bb077f4308cce96b06e6af6",
)
TEST = Source(
    "test.tgz",
    "https://data.statmt.org/wmt16/translation-task/test.tgz",
    md5="3d809cd0c2c86adb2c67034d15c4e446",
)
# Letters with a comma below and with the older cedilla, then marks that stand alone.
LETTERS = dict(zip("ăâîșşțţĂÂÎȘŞȚŢ", "aaissttAAISSTT", strict=True))
PLAIN = {letter.encode(): plain.encode() for letter, plain in LETTERS.items()}
PLAIN.update(dict.fromkeys((mark.encode() for mark in "\u0302\u0306\u0326\u0327"), b""))


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    if {spec.source, spec.target} != {"ro", "en"}:
        raise UsageError(f"wmt16_ro_en has ro and en, not {spec.source} and {spec.target}")
    return [EUROPARL, SETIMES, VALID, TEST]


def official(spec: DataSpec) -> dict[str, int]:
    # S2S §4.2 has the training pairs: Europarl 399,375, SETIMES2 213,047. The card of wmt/wmt16, a
    # public copy, has the others.
    return {"train": 612_422, "valid": 1_999, "test": 1_999}


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    languages = (spec.source, spec.target)

    def unpack(source: Source, *members: str) -> list[Path]:
        return archives.unpack(files[source.name], scratch, members)

    europarl = [f"training-parallel-ep-v8/europarl-v8.ro-en.{language}" for language in languages]
    # OPUS renamed the corpus within its archive.
    corpus = "SETIMES2" if "SETIMES2.en-ro.en" in archives.names(files[SETIMES.name]) else "SETIMES"
    setimes = [f"{corpus}.en-ro.{language}" for language in languages]
    pair = f"{spec.source}{spec.target}"
    sides = [f"{pair}-src.{spec.source}.sgm", f"{pair}-ref.{spec.target}.sgm"]
    rows = {
        "train": joined(aligned(*unpack(EUROPARL, *europarl)), aligned(*unpack(SETIMES, *setimes))),
        "valid": aligned(
            *unpack(VALID, *(f"dev/newsdev2016-{side}" for side in sides)), formats.segments
        ),
        "test": aligned(
            *unpack(TEST, *(f"test/newstest2016-{side}" for side in sides)), formats.segments
        ),
    }
    column = languages.index("ro")
    return {split: without_diacritics(pairs, column) for split, pairs in rows.items()}


def without_diacritics(rows: Rows, column: int) -> Rows:
    """Rows whose lines in one column have plain letters only."""

    def plain(row: Row) -> Row:
        line = row[column]
        if not line.isascii():
            for letter, replacement in PLAIN.items():
                line = line.replace(letter, replacement)
        return (*row[:column], line, *row[column + 1 :])

    return Rows(lambda: map(plain, rows), *rows.counted)
