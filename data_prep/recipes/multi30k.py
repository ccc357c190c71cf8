"""Multi30k, task 1: captions of pictures in English, German, French and Czech, from raw text."""

from collections import Counter
from pathlib import Path

from data_prep.clean import aligned
from data_prep.download import Source
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

DEFAULTS = {"source": "de", "target": "en", "operations": 8_000}
LANGUAGES = ("cs", "de", "en", "fr")
URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
PARTS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    for language in (spec.source, spec.target):
        if language not in LANGUAGES:
            raise UsageError(f"multi30k has {', '.join(LANGUAGES)}, not '{language}'")
    names = [f"{part}.{lang}.gz" for part in PARTS.values() for lang in (spec.source, spec.target)]
    return [Source(name, f"{URL}/{name}") for name in names]


def official(spec: DataSpec) -> dict[str, int]:
    # Counted in the files of the multi30k/dataset repository.
    return {"train": 29_000, "valid": 1_014, "test": 1_000}


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    return {
        split: aligned(files[f"{part}.{spec.source}.gz"], files[f"{part}.{spec.target}.gz"])
        for split, part in PARTS.items()
    }
