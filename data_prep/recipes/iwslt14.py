"""IWSLT'14 German-English, TED talks: the official sets, as SE's 172K training pairs imply.

All of train.tags trains (171,721 pairs), dev2010 validates, tst2010 to tst2012 test. The split that
fairseq's examples make of the same archive is `iwslt14_fairseq`.
"""

from collections import Counter
from itertools import chain
from pathlib import Path

from data_prep import archives, formats
from data_prep.clean import aligned, joined
from data_prep.download import Source
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

DEFAULTS = {"source": "de", "target": "en", "operations": 10_000}
ARCHIVE = Source("de-en.tgz", "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz")
VALID = ("TED.dev2010",)
TEST = ("TED.tst2010", "TED.tst2011", "TED.tst2012")


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    if {spec.source, spec.target} != {"de", "en"}:
        raise UsageError(f"{spec.recipe} has de and en, not {spec.source} and {spec.target}")
    return [ARCHIVE]


def official(spec: DataSpec) -> dict[str, int]:
    # The card of bbaaaa/iwslt14-de-en, a public copy.
    return {"train": 171_721, "valid": 887, "test": 4_698}


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    train, valid, test = unpacked(spec, files[ARCHIVE.name], scratch, VALID, TEST)
    return {
        "train": aligned(*train, formats.transcripts),
        "valid": joined(*(aligned(*pair, formats.segments) for pair in valid)),
        "test": joined(*(aligned(*pair, formats.segments) for pair in test)),
    }


def unpacked(spec: DataSpec, archive: Path, scratch: Path, *parts: tuple[str, ...]) -> list:
    """The pair of training files, and for each part the pairs of files of its sets."""
    languages = (spec.source, spec.target)
    train = [scratch / f"de-en/train.tags.de-en.{language}" for language in languages]
    folder = scratch / "de-en"
    sets = [
        [[folder / f"IWSLT14.{name}.de-en.{lang}.xml" for lang in languages] for name in part]
        for part in parts
    ]
    paths = chain(train, *(pair for part in sets for pair in part))
    archives.unpack(archive, scratch, [str(path.relative_to(scratch)) for path in paths])
    return [train, *sets]
