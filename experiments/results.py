"""Collects the scores of all runs of a dataset: results.json, and a table for the terminal."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from data_prep.files import lock, write_json

from .manifest import now, provenance
from .runs import Run, find_runs
from .systems import in_order

# (title, key of `measured`, digits)
COLUMNS = (
    ("BLEU", "bleu", 1),
    ("chrF", "chrf", 1),
    ("word acc. %", "word_accuracy", 1),
    ("edit dist.", "edit_distance", 3),
    ("token acc. %", "accuracy", 1),
    ("empty string %", "empty_string", 1),
    ("support", "support", 1),
    ("Σp", "total_score", 3),
    ("exact %", "exact", 1),
    ("single hyp. %", "single_hypothesis", 1),
    ("train words/s", "train_words_per_second", 0),
    ("decode sent./s", "sentences_per_second", 1),
)

# Where an analysis has measured it, this is better than what training logged: the same for all
# systems, softmax included.
ANALYSED = {
    "accuracy": ("support", "accuracy"),
    "support": ("support", "output", "gold", "mean"),
    "total_score": ("self_normalization", "gold", "mean"),
    "empty_string": ("empty_string", "raw", "percent"),
}


def certificate(run: Run) -> str:
    """Which certificate is about the answer that was given: the one by the score that ranked it."""
    options = run.config.get("generate") or {}
    return "raw" if options.get("unnormalized") else "normalized"


def measured(run: Run) -> dict[str, float]:
    """The numbers of one run, whatever measured them; what was not measured is not there."""
    scores = run.scores or {}
    flat = {key: value for key, value in scores.items() if not isinstance(value, dict)}
    for key in ("accuracy", "support", "total_score"):
        if f"valid_{key}" in flat:
            flat[key] = flat[f"valid_{key}"]
    flat |= scores.get("test", {})
    if (exact := f"exact_{certificate(run)}") in flat:
        flat["exact"] = flat[exact]
    flat |= _analysed(run)
    return {key: value for key, value in flat.items() if isinstance(value, (int, float))}


def _analysed(run: Run) -> dict[str, float]:
    """What the analyses found, where they have been run."""
    found = {}
    for key, (module, *way) in ANALYSED.items():
        value: Any = _result(run, module)
        for step in way:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, (int, float)):
            found[key] = value
    return found


def _result(run: Run, module: str) -> Any:
    try:
        file = run.analysis_dir / f"{module}.json"
        return json.loads(file.read_text(encoding="utf-8")).get("result")
    except (OSError, ValueError):
        return None


def collect(runs_root: Path, dataset: str) -> dict[str, Any]:
    runs = find_runs(runs_root, dataset)
    entries = []
    for run in runs:
        entry: dict[str, Any] = {"system": run.system, "seed": run.seed, "problem": run.problem}
        if entry["problem"] is None:
            try:
                entry |= {"tau": run.manifest.get("tau"), "scores": run.scores or {}}
                entry["measured"] = measured(run)
            except ValueError as error:  # a file that somebody broke must not hide the others
                entry["problem"] = str(error)
        entries.append(entry)
    return {
        "dataset": dataset,
        "made": now(),
        **provenance(),
        "signature": _signature(entries),
        "systems": _systems(entries),
        "runs": entries,
    }


def _signature(entries: list[dict]) -> str | None:
    """How BLEU was made; the same for all runs of a dataset."""
    for entry in entries:
        signature = entry.get("scores", {}).get("test", {}).get("bleu_signature")
        if signature:
            return signature
    return None


def _systems(entries: list[dict]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and deviation over the seeds of each system; an ensemble is a system of its own."""
    groups: dict[str, list[dict[str, float]]] = {}
    for entry in entries:
        if entry.get("measured"):
            name = entry["system"] + (" ensemble" if entry["seed"] is None else "")
            groups.setdefault(name, []).append(entry["measured"])
    return {name: _statistics(group) for name, group in groups.items()}


def _statistics(group: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    summary = {}
    for key in sorted(set().union(*group)):
        values = [member[key] for member in group if key in member and math.isfinite(member[key])]
        if values:
            deviation = statistics.stdev(values) if len(values) > 1 else None
            summary[key] = {"mean": statistics.fmean(values), "std": deviation, "n": len(values)}
    return summary


def write_results(runs_root: Path, dataset: str) -> str:
    """Writes results.json and returns the table."""
    folder = runs_root / dataset
    with lock(folder / ".lock", f"runs/{dataset}"):
        results = collect(runs_root, dataset)
        write_json(folder / "results.json", results)
    return table(results)


def table(results: dict[str, Any]) -> str:
    systems = results["systems"]
    columns = [c for c in COLUMNS if any(c[1] in values for values in systems.values())]
    rows = [["system", *(title for title, _, _ in columns)]]
    for name in in_order(systems):
        cells = [_cell(systems[name].get(key), digits) for _, key, digits in columns]
        rows.append([name, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(_aligned(row, widths)) for row in rows]
    lines.insert(1, "-" * len(lines[0]))
    if results["signature"]:
        lines += ["", f"BLEU: {results['signature']}"]
    broken = [entry for entry in results["runs"] if entry["problem"]]
    lines += [f"left out: {entry['problem']}" for entry in broken]
    return "\n".join(["", *lines])


def _cell(values: dict[str, float] | None, digits: int) -> str:
    if values is None:
        return "–"
    text = f"{values['mean']:,.{digits}f}"
    return text if values["std"] is None else f"{text} ± {values['std']:.{digits}f}"


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    return [row[0].ljust(widths[0])] + [
        cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
    ]
