"""The way from a spec to binarised data: get, clean, tokenise, segment, binarise, publish.

Every stage writes below `.work/` and takes its name when it is whole, so that a killed
preparation goes on with the stage it was in. data.json comes last and says "prepared".
"""

import functools
import hashlib
import json
import operator
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from data_prep import recipes, segmentation
from data_prep.acceptance import DAMAGE, USUAL, Read, Tolerance, check_damage, check_size
from data_prep.binarise import binarise
from data_prep.ceiling import ceiling
from data_prep.clean import Row, clean_rows
from data_prep.download import changed, obtain, pin
from data_prep.files import lock, sha256, write_json
from data_prep.parallel import chunks, ordered_map
from data_prep.progress import Progress
from data_prep.records import read_facts
from data_prep.spec import LEARNT, DataSpec
from sparse_fairseq.errors import UsageError

SPLITS = ("train", "valid", "test")
CHUNK = 2_000


def prepare(
    spec: DataSpec,
    out: Path,
    raw: Path | None = None,
    jobs: int | None = None,
    tolerance: Tolerance = USUAL,
) -> dict[str, Any]:
    """Prepares the data if that has not been done, and returns data.json's content."""
    out, raw = Path(out), None if raw is None else Path(raw)
    jobs = len(os.sched_getaffinity(0)) if jobs is None else jobs
    if jobs < 1:
        raise UsageError(f"--jobs must be at least 1, not {jobs}")
    if raw is not None and not raw.is_dir():
        raise UsageError(f"--raw {raw} is not a directory")
    found = prepared(spec, out, raw)
    if found is not None:
        return found
    with lock(out / ".lock", f"the data in {out}") as held:
        found = prepared(spec, out, raw)
        if found is not None:
            return found
        started = time.monotonic()
        work = out / ".work"
        start_work(spec, out, work, raw)
        # Its data.json is the last that is moved, and the first that somebody removes.
        if not (work / "ready" / "data.json").exists():
            shutil.rmtree(work / "ready", ignore_errors=True)
            clean(spec, out, work, raw, jobs, tolerance)
            segment(spec, work, jobs)
            collect(spec, work, jobs, held, started)
        return publish(out, work)


def prepared(spec: DataSpec, out: Path, raw: Path | None = None) -> dict[str, Any] | None:
    """data.json's content if the data is there; UsageError if it was made from something else."""
    if not (out / "data.json").exists():
        return None
    found = read_facts(out, "remove it, text and bin (raw may stay), or give another directory")
    recorded = DataSpec.from_record(found["spec"]).to_mapping()
    remedy = "remove its data.json, text and bin (raw may stay), or give another directory"
    for key, wanted in spec.to_mapping().items():
        if recorded.get(key) != wanted:
            raise UsageError(
                f"{out} holds data with {key} {recorded.get(key)!r}, not {wanted!r}: {remedy}"
            )
    missing = [name for name in found["checksums"] if not (out / name).exists()]
    if missing:
        raise UsageError(f"{out / missing[0]} is missing: remove {out} and prepare the data anew")
    if raw is not None:
        if others := _changed_sources(spec, found.get("sources", []), raw):
            raise UsageError(f"{out} holds data made from another {others[0]} than {raw}: {remedy}")
        print(f"{out} is prepared already: --raw was only compared", file=sys.stderr)
    return found


def _changed_sources(
    spec: DataSpec, used: list[dict[str, Any]], raw: Path | None, *more: Path
) -> list[str]:
    """Names of official files that are not what they were when they were used."""
    sources = recipes.load(spec.recipe).sources(spec, raw)
    return changed(sources, used, [folder for folder in (raw, *more) if folder is not None])


@contextmanager
def _whole_directory(path: Path) -> Iterator[Path]:
    """A directory that takes its name only when all of it has been written."""
    # A new name each time: what a killed run started may still write to the old one.
    temporary = Path(tempfile.mkdtemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent))
    temporary.chmod(0o755)
    yield temporary
    temporary.replace(path)


def _link(path: Path, target: Path) -> None:
    """The same file under a second name, or a copy where the file system has no links."""
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


def start_work(spec: DataSpec, out: Path, work: Path, raw: Path | None = None) -> None:
    """Keeps the stages that a killed preparation of the same spec and files has finished."""
    state = spec.to_mapping()
    record = work / "spec.json"
    if not work.exists():
        for name in ("text", "bin"):
            if (out / name).exists():
                raise UsageError(
                    f"{out / name} exists, but no data.json says what it is: "
                    "remove it, or give another directory"
                )
    facts = work / "clean" / "facts.json"
    used = json.loads(facts.read_text())["sources"] if facts.exists() else []
    other_files = used and _changed_sources(spec, used, raw, out / "raw")
    if other_files or not record.exists() or json.loads(record.read_text()) != state:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True, exist_ok=True)
        write_json(record, state)
    for left_over in work.glob("*.tmp"):
        shutil.rmtree(left_over, ignore_errors=True)


# Get, clean and tokenise, in one pass over the raw lines.


def clean(
    spec: DataSpec,
    out: Path,
    work: Path,
    raw: Path | None,
    jobs: int,
    tolerance: Tolerance = USUAL,
) -> None:
    """Makes `.work/clean`: clean text, tokenised text, word counts, and facts about them."""
    if (work / "clean").exists():
        return
    recipe = recipes.load(spec.recipe)
    files, sources = {}, []
    for source in recipe.sources(spec, raw):
        files[source.name], entry = obtain(source, out / "raw", raw)
        sources.append(entry)
    facts: dict[str, Any] = {"sources": sources, "sizes": {}, "dropped": {}, "repaired": {}}
    with _whole_directory(work / "clean") as folder:
        splits, dropped = _open_recipe(spec, files, sources, work / "unpacked")
        official = recipe.official(spec) if hasattr(recipe, "official") else {}
        words = _word_counts(spec)
        columns = [spec.source, spec.target, *getattr(recipe, "LABELS", ())]
        for split in SPLITS:
            read = _clean_split(spec, folder / split, columns, splits[split], words, facts, jobs)
            _accept(spec, read, dropped, official.get(split), facts, tolerance)
        for language, counted in words.items():
            counted.write(folder / f"words.{language}")
        facts["dropped"] |= dropped
        facts["ceiling"] = {split: ceiling(spec, folder, split) for split in ("valid", "test")}
        write_json(folder / "facts.json", facts)
    pin([entry for entry in sources if "url" in entry], out / "raw")
    shutil.rmtree(work / "unpacked", ignore_errors=True)


def _open_recipe(
    spec: DataSpec, files: dict[str, Path], sources: list[dict[str, Any]], scratch: Path
) -> tuple[dict[str, Iterable[Row]], Counter[str]]:
    """The recipe's splits, and what it will have dropped by itself when they have been read.

    What is unpacked lies under the checksum of all files: other files find nothing of these.
    """
    names = "".join(f"{entry['name']} {entry['sha256']}\n" for entry in sources)
    folder = scratch / hashlib.sha256(names.encode()).hexdigest()[:16]
    for other in scratch.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    dropped: Counter[str] = Counter()
    return recipes.load(spec.recipe).read(spec, files, folder, dropped), dropped


def _word_counts(spec: DataSpec) -> dict[str, segmentation.WordCounts]:
    """Empty ones, one for both languages where they share merges; and tokenisers for workers."""
    words = {language: segmentation.WordCounts() for language in (spec.source, spec.target)}
    if spec.joint_bpe:
        words[spec.target] = words[spec.source]
    for language in words:
        # Made before the workers are, which then share it.
        segmentation.tokenizer(spec, language)
        segmentation.normaliser(spec, language)
        if note := segmentation.tokenizer_note(spec, language):
            print(note, file=sys.stderr)
    return words


def _accept(
    spec: DataSpec,
    read: Read,
    dropped: Counter[str],
    official: int | None,
    facts: dict[str, Any],
    tolerance: Tolerance,
) -> None:
    """Says what was left out of a split, and stops where that cannot be right."""
    for kind in ("dropped", "repaired"):
        for key, number in facts[kind].items():
            if key.startswith(f"{read.split}: "):
                print(f"{kind} {number:,} pairs of {key}", file=sys.stderr)
    if read.split == "train":
        for reason, number in dropped.items():
            print(f"dropped {number:,} entries of the raw files: {reason}", file=sys.stderr)
        by_recipe = {key: n for key, n in dropped.items() if key.endswith(DAMAGE)}
        read = replace(read, damaged={**read.damaged, **by_recipe})
    check_damage(read, tolerance)
    if not read.kept:
        why = {key: n for key, n in facts["dropped"].items() if key.startswith(read.split)}
        raise UsageError(f"{spec.recipe} gives no usable pair for {read.split}; dropped: {why}")
    check_size(read, official, tolerance)


def _clean_split(
    spec: DataSpec,
    prefix: Path,
    columns: list[str],
    rows: Iterable[Row],
    words: dict[str, segmentation.WordCounts],
    facts: dict[str, Any],
    jobs: int,
) -> Read:
    """Writes {split}.{column} and {split}.tokens.{language}; adds to words and facts."""
    split = prefix.name
    names = [f"{split}.{column}" for column in columns]
    names += [f"{split}.tokens.{language}" for language in columns[:2]]
    size = pairs = 0
    work = functools.partial(_clean_chunk, spec, split == "train")
    total = operator.length_hint(rows) or None
    with ExitStack() as stack, Progress(f"clean {split}", total, "pairs") as bar:
        outputs = [stack.enter_context((prefix.parent / name).open("wb")) for name in names]
        for count, cleaned, texts, counted in ordered_map(work, chunks(rows, CHUNK), jobs):
            for output, text in zip(outputs, texts, strict=True):
                output.write(text)
            for language, more in zip(columns, counted, strict=False):
                words[language].update(more)
            for kind in ("dropped", "repaired"):
                for reason, number in getattr(cleaned, kind).items():
                    key = f"{split}: {reason}"
                    facts[kind][key] = facts[kind].get(key, 0) + number
            size += texts[0].count(b"\n")
            pairs += count
            bar.advance(count)
    facts["sizes"][split] = size
    lost = {reason: facts["dropped"].get(f"{split}: {reason}", 0) for reason in DAMAGE}
    return Read(split, pairs, size, {reason: number for reason, number in lost.items() if number})


def _clean_chunk(spec: DataSpec, training: bool, rows: list[Row]):
    """What a worker does: gives back whole columns, which cost less to send than their lines."""
    cleaned = clean_rows(rows, spec, training)
    texts = [list(column) for column in zip(*cleaned.rows, strict=True)] or [[] for _ in rows[0]]
    languages = (spec.source, spec.target)
    if spec.normalise:
        for side, language in enumerate(languages):
            texts[side] = [segmentation.normaliser(spec, language)(text) for text in texts[side]]
    tokens = [
        [segmentation.tokenizer(spec, language)(text) for text in column]
        for language, column in zip(languages, texts, strict=False)
    ]
    counted: list[Counter[str]] = []
    if training and spec.segmentation == "bpe":
        counted = [Counter(word for line in column for word in line.split()) for column in tokens]
    cleaned.rows = []
    columns = ["".join(f"{line}\n" for line in column).encode() for column in texts + tokens]
    return len(rows), cleaned, columns, counted


# Segment and binarise.


def segment(spec: DataSpec, work: Path, jobs: int) -> None:
    """Makes `.work/models` and `.work/segmented`."""
    clean_folder, models = work / "clean", segmentation.model_files(spec)
    sizes = json.loads((clean_folder / "facts.json").read_text())["sizes"]
    if not (work / "models").exists():
        with _whole_directory(work / "models") as folder:
            segmentation.learn(spec, clean_folder, folder, jobs)
    if not (work / "segmented").exists():
        with _whole_directory(work / "segmented") as folder:
            for split in SPLITS:
                for language in (spec.source, spec.target):
                    tokens = clean_folder / f"{split}.tokens.{language}"
                    out = folder / f"{split}.{language}"
                    if spec.segmentation in LEARNT:
                        model = work / "models" / models[language]
                        segmentation.segment(spec, tokens, model, out, sizes[split], jobs)
                    else:
                        _link(tokens, out)


def collect(spec: DataSpec, work: Path, jobs: int, held: IO, started: float) -> None:
    """Makes `.work/ready`: all that will be published, data.json included."""
    facts = json.loads((work / "clean" / "facts.json").read_text())
    with _whole_directory(work / "ready") as ready:
        (ready / "bin").mkdir()
        binarise(spec, work / "segmented", ready / "bin", jobs, held)
        for model in (work / "models").iterdir():
            _link(model, ready / "bin" / model.name)
        segmentation.write_record(spec, ready / "bin")
        (ready / "text").mkdir()
        for text in (work / "clean").glob("*.*"):
            if text.name.startswith(SPLITS) and ".tokens." not in text.name:
                _link(text, ready / "text" / text.name)
        paths = sorted(path for path in ready.rglob("*") if path.is_file())
        record = {
            "recipe": spec.recipe,
            "spec": spec.to_mapping(),
            **{key: facts[key] for key in ("sizes", "dropped", "repaired", "ceiling")},
            "checksums": {str(path.relative_to(ready)): sha256(path) for path in paths},
            "sources": facts["sources"],
            "seconds": round(time.monotonic() - started, 1),
        }
        write_json(ready / "data.json", record)


def publish(out: Path, work: Path) -> dict[str, Any]:
    """Moves what is ready to its place, data.json last; killed in between, it can be repeated."""
    ready = work / "ready"
    for name in ("text", "bin"):
        if (ready / name).exists():
            shutil.rmtree(out / name, ignore_errors=True)
            (ready / name).replace(out / name)
    (ready / "data.json").replace(out / "data.json")
    shutil.rmtree(work, ignore_errors=True)
    return json.loads((out / "data.json").read_text())
