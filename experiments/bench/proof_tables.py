"""Tables of what proofs cost, from the results of `exact_search`; `tables` puts them into pages."""

import json
from pathlib import Path

from sparse_fairseq.generation.exact_search import EXACT_BUDGET

RESULTS = Path(__file__).parent / "results"
NAMES = {"relu15": "relu15, scores divided by their sum"}
Cells = list[list[str]]


def proofs(dataset: str) -> tuple[Cells, str]:
    """Of each system, with each budget."""
    known, source = _read(dataset)
    systems, budgets = _axes(known)
    cells = [["proved best, and CPU time (beam 5 = 1)", "beam 5 alone", *map(_title, budgets)]]
    for system in systems:
        found = [_cell(known[system, budget]) for budget in budgets]
        cells.append([NAMES.get(system, system), f"{known[system, 0]['proved']}%", *found])
    return cells, source


def proofs_by_length(dataset: str) -> tuple[Cells, str]:
    """The same of parts of the sentences, by length."""
    known, _ = _read(dataset)
    systems, budgets = _axes(known)
    cells = [["", "words of the source, mean", *map(_title, budgets)]]
    for system in systems:
        for place, group in enumerate(known[system, 0]["by_length"]):
            found = [_cell(known[system, budget]["by_length"][place]) for budget in budgets]
            cells.append([system, str(group["words"]), *found])
    return cells, ""


def _read(dataset: str) -> tuple[dict, str]:
    name = f"exact_search_{dataset}.json"
    made = json.loads((RESULTS / name).read_text("utf-8"))
    commit = made["git_commit"][:9] + "+" * made["git_commit"].endswith("+")
    source = (
        f"Source: `experiments/bench/results/{name}` ({made['date'][:10]}, commit "
        f"{commit}, {made['rows'][0]['sentences']} sentences of {made['split']}, "
        f"batches of {made['batch']}, {made['threads']} thread)."
    )
    return {(row["system"], row["budget"]): row for row in made["rows"]}, source


def _axes(known: dict) -> tuple[list[str], list[int]]:
    systems = list(dict.fromkeys(system for system, _ in known))
    return systems, sorted({budget for _, budget in known} - {0})


def _cell(row: dict) -> str:
    return f"{row['proved']}%, {row['time']:.2f} ×"


def _title(budget: int) -> str:
    return f"budget {budget:,}" + (" (default)" if budget == EXACT_BUDGET else "")
