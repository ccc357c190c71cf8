"""The table Paper | Here | Difference: cells of published and measured numbers, side by side."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..papers import Number
from ..spread import Spread
from ..systems import in_order
from .gather import Material, dataset_label
from .parts import Cell, Table, difference, missing, number, spread_text, system_label

Measured = Spread | None


def system_cell(system: str) -> Cell:
    label = system_label(system)
    return Cell(label, system, note=system if label != system else None)


def published_cell(number: Number | None, digits: int) -> Cell:
    if number is None:
        return missing("not published")
    if number.value is None:
        return missing(f"{number.place}: {number.why}")
    # All digits that are printed, and no more than two that are not.
    own = len(f"{number.value:.10g}".partition(".")[2])
    text = spread_text(number.value, number.deviation, max(own, min(digits, 2)))
    return Cell(("> " if number.bound == "above" else "") + text, number.value, note=number.place)


def measured_cell(measured: Measured, digits: int, why: str) -> Cell:
    if measured is None:
        return missing(why)
    mean, deviation, _ = measured
    return Cell(spread_text(mean, deviation, digits), mean)


def gap_reason(material: Material, paper: Number | None, measured: Measured) -> str:
    if paper is None or paper.value is None:
        return "not published"
    if measured is None:
        return "nothing to compare yet"
    return "" if material.comparable(paper) else "other data"


def triple(
    material: Material, paper: Number | None, here: Measured, digits: int, why: str
) -> list[Cell]:
    """The three cells Paper | Here | Difference."""
    reason = gap_reason(material, paper, here)
    gap = missing(reason) if reason else difference(here[0], paper.value, digits, "")
    return [published_cell(paper, digits), measured_cell(here, digits, why), gap]


def comparison(
    material: Material,
    name: str,
    caption: str,
    metric: str,
    here: Mapping[str, Measured],
    why: Callable[[str], str],
    digits: int = 1,
    more: Mapping[str, Callable[[str], Cell]] | None = None,
    mark_highest: bool = False,
) -> Table:
    """One row for each system that was planned, run or published; ``more`` columns at the end."""
    found = [n for n in material.published(metric) if n.system not in (None, "total")]
    papers = {number.system: number for number in found}
    shown = {*material.systems, *(system for system, value in here.items() if value)}
    shown |= {n.system for n in found if n.dataset == material.dataset}
    found = [number for number in found if number.system in shown]
    rows = []
    for system in in_order(shown):
        cells = triple(material, papers.get(system), here.get(system), digits, why(system))
        cells += [make(system) for make in (more or {}).values()]
        rows.append([system_cell(system), *cells])
    if mark_highest:
        _mark_highest(rows)
    columns = ["System", "Paper", "Here", "Difference", *(more or {})]
    table = Table(name, caption, columns, rows)
    return finish(material, table, found, here.values())


def _mark_highest(rows: Sequence[Sequence[Cell]]) -> None:
    values = [row[2].value for row in rows if row[2].numeric]
    if len(values) > 1:
        for row in rows:
            row[2].strong = row[2].value == max(values)


def finish(
    material: Material, table: Table, papers: Sequence[Number], measured: Iterable[Measured] = ()
) -> Table:
    """Says once what would be the same in all rows: place, other data, seeds, nothing printed."""
    if not papers:
        gone = [table.columns.index(name) for name in ("Paper", "Difference")]
        table.columns = [c for i, c in enumerate(table.columns) if i not in gone]
        table.rows = [[c for i, c in enumerate(row) if i not in gone] for row in table.rows]
        table.notes.append("No number is published to compare with.")
    else:
        place, _ = Counter(number.place for number in papers).most_common(1)[0]
        table.under["Paper"] = place
        for row in table.rows:
            row[1].note = None if row[1].note == place else row[1].note
    other = {n.dataset for n in papers if n.dataset and n.dataset != material.dataset}
    if other:
        table.notes.append(
            f"The paper’s numbers are for {dataset_label(other.pop())}, shown for orientation; "
            "no difference is taken."
        )
    elif papers and material.lacks_languages:
        table.notes.append(
            "The paper’s numbers are of all its languages, those here of "
            f"{material.language_count}; no difference is taken."
        )
    seeds = {value[2] for value in measured if value and value[1] is not None}
    if seeds:
        many = "–".join(map(str, sorted({min(seeds), max(seeds)})))
        table.notes.append(f"Mean ± standard deviation over {many} seeds.")
    return table


def measured_rows(
    material: Material, analysis: str, columns: Mapping[str, tuple[Mapping[str, Measured], int]]
) -> list[list[Cell]]:
    """One row for each system; a column is what was found of each, and its digits."""
    return [
        [
            system_cell(system),
            *(
                number(*mean_of(found, system, digits), material.why(analysis, system))
                for found, digits in columns.values()
            ),
        ]
        for system in material.systems
    ]


def mean_of(found: Mapping[str, Measured], system: str, digits: int) -> tuple[float | None, int]:
    measured = found.get(system)
    return (measured[0] if measured else None), digits
