"""CoNLL-SIGMORPHON 2018, task 1: inflection, all languages in one model (S2S §4.1).

The source is the language, the tags and the characters of the lemma, the target the characters
of the form. Test and validation sets are those of the languages that have training data.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data_prep import archives
from data_prep.clean import Row, Rows
from data_prep.download import Source
from data_prep.inflection import example
from data_prep.spec import DataSpec, nearest
from sparse_fairseq.errors import UsageError

DEFAULTS = {
    "source": "src",
    "target": "tgt",
    "tokenizer": "none",
    "segmentation": "characters",
    "joint_bpe": False,
    "joint_dictionary": False,
    "setting": "high",
}
LABELS = ("language",)
URL = "https://github.com/sigmorphon/conll2018/archive/refs/heads/master.zip"
ARCHIVE = Source("conll2018-master.zip", URL)
RAW_URL = "https://raw.githubusercontent.com/sigmorphon/conll2018/master"
FOLDERS = ("task1/all", "task1/surprise")


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    """The repository's archive, or its files where the user has them."""
    if raw is None or not (raw / "task1").is_dir():
        if raw is not None and not (raw / ARCHIVE.name).exists():
            raise UsageError(f"{raw} has neither {ARCHIVE.name} nor the directory task1")
        return [ARCHIVE]
    names = [f"{folder}/{path.name}" for folder in FOLDERS for path in (raw / folder).glob("*-*")]
    wanted = chosen(names, spec, str(raw))
    return [Source(name, f"{RAW_URL}/{name}") for parts in wanted.values() for name in parts]


def chosen(names: list[str], spec: DataSpec, where: str) -> dict[str, list[str]]:
    """For each language with training data the names of its train, dev and test files."""
    ends = (f"-train-{spec.setting}", "-dev", "-test")
    known = {name.removesuffix(".gz") for name in names}
    stems = [name.removesuffix(ends[0]) for name in known if name.endswith(ends[0])]
    found = {Path(stem).name: [stem + end for end in ends] for stem in sorted(stems)}
    if not found:
        raise UsageError(f"{where} has no files task1/*/*{ends[0]}")
    for language in spec.languages:
        if language not in found:
            hint = nearest(language, found)
            raise UsageError(f"{where} has no {spec.setting} data for '{language}'{hint}")
    wanted = {lang: found[lang] for lang in sorted(spec.languages or found)}
    for parts in wanted.values():
        for name in parts:
            if name not in known:
                raise UsageError(f"{where} has no {name}")
    return wanted


def official(spec: DataSpec) -> dict[str, int]:
    # Counted in the 86 files of the sigmorphon/conll2018 repository.
    return {"train": 735_610} if spec.setting == "high" and not spec.languages else {}


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    if ARCHIVE.name in files:
        top = "conll2018-master/"
        names = [name.removeprefix(top) for name in archives.names(files[ARCHIVE.name])]
        names = [name for name in names if name.startswith(FOLDERS)]
        wanted = [n for parts in chosen(names, spec, ARCHIVE.name).values() for n in parts]
        paths = archives.unpack(files[ARCHIVE.name], scratch, [top + name for name in wanted])
        files = dict(zip(wanted, paths, strict=True))
    ends = {"train": f"-train-{spec.setting}", "valid": "-dev", "test": "-test"}
    return {split: _split(files, end) for split, end in ends.items()}


def _split(files: dict[str, Path], end: str) -> Rows:
    parts = [(name, files[name]) for name in sorted(files) if name.endswith(end)]
    return Rows(lambda: _examples(parts, end), *(path for _, path in parts))


def _examples(parts: list[tuple[str, Path]], end: str) -> Iterator[Row]:
    """Rows of source, target and language; a line is lemma, form and tags."""
    for name, path in parts:
        language = Path(name).name.removesuffix(end)
        is_empty = True
        for number, line in enumerate(archives.lines(path), 1):
            fields = line.removesuffix(b"\r").split(b"\t")
            if len(fields) != 3:
                if not line.strip():
                    continue
                raise UsageError(f"{path}, line {number}: {len(fields)} columns, not 3")
            lemma, form, tags = (field.decode("utf-8", "surrogateescape") for field in fields)
            is_empty = False
            yield example([language, *tags.split(";")], lemma, form, language)
        if is_empty:  # its language would be missing in the mean over languages
            raise UsageError(f"{path} has no examples")
