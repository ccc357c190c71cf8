"""Collects what is known of all runs of a dataset: results.json, and a table for the terminal.

It stands above stages and analyses, reads what they wrote, and is read by neither.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep.files import lock, write_json

from .provenance import now, provenance
from .quantities import measured, read_answer, shown
from .run_folder import Run, find_runs
from .spread import spread
from .systems import in_order

# What a curve of training has of each validation, beside the number of updates.
CURVE = ("loss", "accuracy", "bleu")


def collect(runs_root: Path, dataset: str) -> dict[str, Any]:
    return summarise(runs_root / dataset, find_runs(runs_root, dataset))


def summarise(folder: Path, runs: Sequence[Run]) -> dict[str, Any]:
    """What is known of these runs of the dataset in ``folder``."""
    compared = read_answer(folder / "analysis" / "bleu.json").get("result") or {}
    pairs = (compared.get("test") or {}).get("pairs") or []
    return _summary(folder.name, [_entry(run) for run in runs], pairs)


def joined(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both summaries in one; a run that both have is the new one, without its old comparisons."""
    added = {(run["system"], run["seed"]): run for run in new["runs"]}
    runs = {(run["system"], run["seed"]): run for run in kept["runs"]} | added
    entries = [runs[key] for key in sorted(runs, key=lambda key: (key[0], key[1] or 0))]
    pairs = [pair for pair in kept["pairs"] if not {*_ends(pair)} & {*added}]
    return _summary(new["dataset"], entries, [*pairs, *new["pairs"]])


def _ends(pair: dict[str, Any]) -> list[tuple[str, int]]:
    """The two runs that were compared."""
    return [(pair[end], pair["seed"]) for end in ("baseline", "system")]


def _summary(dataset: str, entries: list[dict], pairs: list[dict]) -> dict[str, Any]:
    there = {(entry["system"], entry["seed"]) for entry in entries}
    return {
        "dataset": dataset,
        "made": now(),
        **provenance(),
        "signature": _signature(entries),
        "systems": _systems(entries),
        "pairs": [pair for pair in pairs if {*_ends(pair)} <= there],
        "runs": entries,
    }


def _entry(run: Run) -> dict[str, Any]:
    entry: dict[str, Any] = {"system": run.system, "seed": run.seed, "problem": run.problem}
    if entry["problem"] is not None:
        return entry
    try:
        entry |= {"tau": run.manifest.get("tau"), "scores": run.scores or {}}
        entry["measured"] = measured(run)
    except ValueError as error:  # a file that somebody broke must not hide the others
        return {**entry, "problem": str(error)}
    answers = {path.stem: read_answer(path) for path in sorted(run.analysis_dir.glob("*.json"))}
    entry["curve"] = _curve(answers.get("dynamics", {}))
    entry["analyses"] = {
        name: {
            **{key: answer["made"].get(key) for key in ("settings", "date")},
            "signatures": sorted({*_signatures(answer["result"])}),
        }
        for name, answer in answers.items()
        if "result" in answer and "made" in answer
    }
    return entry


def _signatures(result: Any) -> Iterator[str]:
    """How the BLEU of an analysis was made; those of several splits or rules may differ."""
    if isinstance(result, dict):
        for key, value in result.items():
            if key == "bleu_signature":
                yield value
            else:
                yield from _signatures(value)


def _curve(dynamics: dict[str, Any]) -> list[dict[str, float]]:
    points = (dynamics.get("result") or {}).get("points") or ()
    return [{key: p[key] for key in ("updates", *CURVE) if key in p} for p in points]


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
            groups.setdefault(system_of(entry), []).append(entry["measured"])
    return {name: _statistics(group) for name, group in groups.items()}


def system_of(entry: dict[str, Any]) -> str:
    """What a run's row is called; of an ensemble not as the runs it is made of."""
    return entry["system"] + (" ensemble" if entry["seed"] is None else "")


def _statistics(group: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    summary = {}
    for key in sorted(set().union(*group)):
        values = [member[key] for member in group if key in member and math.isfinite(member[key])]
        if values:
            summary[key] = spread(values)._asdict()
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
    columns = shown([{*values} for values in systems.values()])
    rows = [["system", *(quantity.title for quantity in columns)]]
    for name in in_order(systems):
        cells = [_cell(systems[name].get(q.key), q.digits) for q in columns]
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
