"""IWSLT'17 German-English, TED talks: the bilingual training data and the official test set.

S2S does not name its validation and test sets; here they are all earlier sets of the campaign and
its test set of 2017, as sacreBLEU has it.
"""

from collections import Counter
from itertools import chain
from pathlib import Path

from data_prep import archives, formats
from data_prep.clean import aligned, joined
from data_prep.download import Source
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

DEFAULTS = {"source": "de", "target": "en", "operations": 32_000, "joint_dictionary": False}
HUB = "https://huggingface.co/datasets/IWSLT/iwslt2017/resolve/main/data"
WIT3 = "https://raw.githubusercontent.com/hlt-mt/WIT3/master/archive"
# The organisers' own server is gone. WIT3's folders are part of the names: their archives for
# training and for testing are both called de-en.
TRAIN = Source(
    "2017-01-trnted/texts/de/en/de-en.zip",
    f"{HUB}/2017-01-trnted/texts/de/en/de-en.zip",
    also=("2017-01-trnted/texts/de/en/de-en.tgz",),
)
TEST = {
    "de": Source(
        "2017-01-ted-test/texts/de/en/de-en.tgz",
        f"{WIT3}/2017-01-ted-test/texts/de/en/de-en.tgz",
        md5="e3f5b2a075a2da1a395c8b60bf1e9be1",
    ),
    "en": Source(
        "2017-01-ted-test/texts/en/de/en-de.tgz",
        f"{WIT3}/2017-01-ted-test/texts/en/de/en-de.tgz",
        md5="b68e7097b179491f6c466ef41ad72b9b",
    ),
}
VALID = ("dev2010", "tst2010", "tst2011", "tst2012", "tst2013", "tst2014", "tst2015")


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    if {spec.source, spec.target} != {"de", "en"}:
        raise UsageError(f"iwslt17 has de and en, not {spec.source} and {spec.target}")
    return [TRAIN, *TEST.values()]


def official(spec: DataSpec) -> dict[str, int]:
    # The card of IWSLT/iwslt2017, a public copy: 206,112, 888 of dev2010, and 8,079 of the others.
    return {"train": 206_112, "valid": 8_967}


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    languages = (spec.source, spec.target)
    train = [f"de-en/train.tags.de-en.{language}" for language in languages]
    valid = [[f"de-en/IWSLT17.TED.{name}.de-en.{lang}.xml" for lang in languages] for name in VALID]
    archives.unpack(files[TRAIN.name], scratch, chain(train, *valid))
    test = []
    for language in languages:
        # Each direction has its own source text; the other direction's source is its reference.
        pair = "de-en" if language == "de" else "en-de"
        member = f"{pair}/IWSLT17.TED.tst2017.{pair}.{language}.xml"
        test += archives.unpack(files[TEST[language].name], scratch, [member])
    return {
        "train": aligned(scratch / train[0], scratch / train[1], formats.transcripts),
        "valid": joined(
            *(aligned(scratch / left, scratch / right, formats.segments) for left, right in valid)
        ),
        "test": aligned(*test, formats.segments),
    }
