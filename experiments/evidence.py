"""Copies the evidence of a dataset's runs, small enough to commit: results.json and the manifests.

Checkpoints, logs and outputs stay where they are. Paths become relative to the place that they were
made in, and a file with a sentence of the data, or of a translation, is not written. Settings and
data of all runs must be the same. With --add other runs that are there stay, which may be those of
another machine.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep.files import write_json
from sparse_fairseq.errors import UsageError

from .paths import ROOT, readable
from .plan import SPLITS
from .quantities import read_answer
from .results import joined, summarise
from .run_folder import Run, find_runs, read_lines

RESULTS = ROOT / "experiments" / "results"
RESULTS_FILE = "results.json"
MANIFEST_END = ".manifest.json"
# Shorter lines of a corpus ("de", "1,000") may stand in a manifest by chance.
SENTENCE = 20
ABSOLUTE = re.compile(r"(?<![\w.:~/-])/(?:[^/\s\"',:;]+/)*[^/\s\"',:;]+")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.evidence", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folder", type=Path, metavar="RUNS/DATASET", help="where the runs are")
    parser.add_argument("--out", type=Path, help="default: experiments/results/<dataset>")
    parser.add_argument("--add", action="store_true", help="keep other runs that are there")
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    for path in copy_evidence(folder, options.out or RESULTS / folder.name, options.add):
        print(f"{readable(path)}: {path.stat().st_size:,} bytes")


def copy_evidence(folder: Path, out: Path, add: bool = False) -> list[Path]:
    """Writes the evidence of the finished runs of ``folder``; returns the files."""
    runs = find_runs(folder.parent, folder.name)
    finished = [run for run in runs if _is_finished(run)]
    for run in runs:
        if run not in finished:
            print(f"left out: {run.problem or f'{run.name} is not finished'}")
    if not finished:
        raise UsageError(f"no finished runs in {readable(folder)}")
    for run in finished:
        _refuse_outdated(run)
    documents = {out / RESULTS_FILE: summarise(folder, finished)}
    for run in finished:
        documents[manifest_path(out, run)] = run.manifest
    relative = _relative_to(finished)
    documents = {path: mapped(relative, document) for path, document in documents.items()}
    _refuse_text(documents, finished)
    _refuse_others(out)
    kept = _read_documents(out) if add and (out / RESULTS_FILE).exists() else {}
    together = _together(kept, documents, out / RESULTS_FILE)
    _refuse_mixed(together)
    for path in sorted({*kept} & {*documents} - {out / RESULTS_FILE}):
        print(f"replaced, with what was compared with it: {readable(path)}")
    for path, document in together.items():
        write_json(path, document)
    for path in {*_own_files(out)} - {*together}:
        path.unlink()  # of runs that are no longer there
    return [*together]


def manifest_path(out: Path, run: Run) -> Path:
    return out / run.system / f"{run.member}{MANIFEST_END}"


def _is_finished(run: Run) -> bool:
    return run.problem is None and "score" in run.manifest["stages"]


def _refuse_outdated(run: Run) -> None:
    """An error if an analysis was made before the model was trained to its end, or translated."""
    stages = [run.manifest["stages"].get(name, {}) for name in ("train", "generate")]
    ended = max(stage.get("finished", "") for stage in stages)
    for path in sorted(run.analysis_dir.glob("*.json")):
        made = read_answer(path).get("made") or {}
        if made.get("date", ended) < ended:
            command = f"python -m experiments.analysis {readable(run.path)} --only {path.stem}"
            raise UsageError(f"{readable(path)} is older than what it is about: {command}")


def mapped(function: Callable[[str], str], value: Any) -> Any:
    """The same JSON value with every string of it, keys too, put through a function."""
    if isinstance(value, dict):
        return {function(key): mapped(function, entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [mapped(function, entry) for entry in value]
    return function(value) if isinstance(value, str) else value


def _relative_to(runs: Sequence[Run]) -> Callable[[str], str]:
    """A function that makes paths relative: those of runs begin with runs/, those of data with
    data/, as `make` has them; of any other the name is left."""
    roots = {}
    for run in runs:
        for path in (run.path, run.path.resolve()):
            roots[str(path.parents[2])] = "runs"
        for path in (run.bin, run.bin.resolve()):
            roots[str(path.parents[1])] = "data"
    roots[str(ROOT)] = "."

    def relative(match: re.Match) -> str:
        path = match[0]
        for root, name in roots.items():
            if path == root or path.startswith(f"{root}/"):
                return name + path.removeprefix(root)
        return f"…/{Path(path).name}"

    return lambda text: ABSOLUTE.sub(relative, text)


def _refuse_text(documents: dict[Path, Any], runs: Sequence[Run]) -> None:
    """An error if a document has a line of the data, or of what was generated."""
    texts = {path: "\n".join(strings(document)) for path, document in documents.items()}
    whole = "\n".join(texts.values())
    sources = dict.fromkeys(path for run in runs for path in _text_files(run))
    for source in sources:
        for line in dict.fromkeys(read_lines(source)):
            if len(line) >= SENTENCE and line in whole:
                path = next(path for path, text in texts.items() if line in text)
                raise UsageError(f"{readable(path)} would have a line of {source.name}: {line!r}")


def _text_files(run: Run) -> list[Path]:
    languages = (run.source_lang, run.target_lang)
    files = [run.text / f"{split}.{language}" for split in SPLITS for language in languages]
    files += [run.path / f"hypotheses-{split}.txt" for split in SPLITS]
    return [path for path in files if path.is_file()]


def strings(value: Any) -> Iterator[str]:
    """Every string of a JSON value, keys too."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield key
            yield from strings(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from strings(entry)
    elif isinstance(value, str):
        yield value


def _read_documents(out: Path) -> dict[Path, Any]:
    results, manifests = read_evidence(out)
    return {**dict(zip(_manifest_paths(out), manifests, strict=True)), out / RESULTS_FILE: results}


def _together(kept: dict[Path, Any], new: dict[Path, Any], results: Path) -> dict[Path, Any]:
    """All documents, with one file of results; a run that both have is the new one."""
    if not kept:
        return new
    return {**kept, **new, results: joined(kept[results], new[results])}


# What decides on a result, other than the system and the seed.
KEYS = ("batch", "train", "generate", "metric", "softmax", "attention_alpha")


def _settings(manifest: dict[str, Any]) -> dict[str, Any]:
    """Of the config, and of what was trained and decoded: a config may have changed since."""
    config = manifest.get("config") or {}
    trained = manifest.get("settings") or config.get("train") or {}
    decoded = manifest.get("stages", {}).get("generate", {}).get("made_from")
    return {
        **{key: config.get(key) for key in KEYS},
        "trained": {key: trained.get(key) for key in config.get("train") or {}},
        "decoded": _without(decoded, "train"),
    }


def _without(values: dict[str, Any] | None, key: str) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if name != key}


SAME: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dataset": lambda manifest: manifest.get("dataset"),
    "settings": _settings,
    "data": lambda manifest: (manifest.get("data") or {}).get("checksums"),
}
# Of one system also what its name stands for: the criterion, α, τ.
OF_A_SYSTEM = {"settings": lambda manifest: _without(manifest.get("settings"), "seed")}


def _refuse_mixed(documents: dict[Path, Any]) -> None:
    """An error if runs differ in what they must share to stand in one table."""
    manifests = {path: found for path, found in documents.items() if path.name != RESULTS_FILE}
    _refuse_unlike(manifests, SAME)
    trained = {path: found for path, found in manifests.items() if found.get("settings")}
    for folder in {path.parent for path in trained}:  # an ensemble was not trained
        of_a_system = {path: found for path, found in trained.items() if path.parent == folder}
        _refuse_unlike(of_a_system, OF_A_SYSTEM)
    (results,) = (found for path, found in documents.items() if path.name == RESULTS_FILE)
    tests = [run.get("scores", {}).get("test", {}) for run in results["runs"]]
    for name, key in (("BLEU", "bleu_signature"), ("chrF", "chrf_signature")):
        signatures = {test[key] for test in tests if key in test}
        if len(signatures) > 1:
            raise UsageError(f"{name} was not computed alike: {' and '.join(sorted(signatures))}")


def _refuse_unlike(manifests: dict[Path, Any], same: dict[str, Callable]) -> None:
    (first, one), *others = manifests.items()
    for path, other in others:
        for what, of in same.items():
            if of(one) != of(other):
                names = f"{readable(path)} and {readable(first)}"
                raise UsageError(f"{names} differ in more than system and seed: in {what}")


def _manifest_paths(out: Path) -> list[Path]:
    return sorted(out.glob(f"*/*{MANIFEST_END}"))


def _own_files(out: Path) -> list[Path]:
    return [*out.glob(RESULTS_FILE), *_manifest_paths(out)]


def _refuse_others(out: Path) -> None:
    others = {path for path in out.rglob("*") if path.is_file()} - {*_own_files(out)}
    if others:
        raise UsageError(f"{readable(min(others))} is no evidence of a run: remove it")


def read_evidence(out: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """results.json, and the manifests."""
    try:
        results = json.loads((out / RESULTS_FILE).read_text(encoding="utf-8"))
        paths = _manifest_paths(out)
        return results, [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    except (OSError, ValueError) as error:
        raise UsageError(f"no evidence of {out.name}: {error}") from error


if __name__ == "__main__":
    main()
