"""What sections share: the table Paper | Here | Difference, curves, names of datasets."""

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes

from data_prep.inflection import spelled

from ...analysis.papers import Number, exhibits
from ...systems import in_order
from ..figures import Looks, draw, ticks_with_commas
from ..gather import Material, mean_and_deviation
from ..parts import (
    Cell,
    Section,
    Table,
    difference,
    missing,
    spread_text,
    system_label,
)

END = "</s>"
Measured = tuple[float, float | None, int] | None  # mean, deviation and number of seeds


def dataset_label(name: str) -> str:
    """IWSLT14 De→En for iwslt14_de_en."""
    if name.endswith("_alphas"):
        return f"{dataset_label(name.removesuffix('_alphas'))}, grid of α"
    if match := re.fullmatch(r"(\w+)_([a-z]{2})_([a-z]{2})", name):
        short = match[1].startswith(("iwslt", "wmt", "kftt"))
        family = match[1].upper() if short else match[1].capitalize()
        return f"{family} {match[2].capitalize()}→{match[3].capitalize()}"
    if match := re.fullmatch(r"sigmorphon2018_([a-z]+)(?:_(.+))?", name):
        languages = re.sub(r"(\d+)languages_[0-9a-f]{12}", r"\1 languages", match[2] or "")
        languages = languages.replace("_", ", ")
        return f"SIGMORPHON 2018 ({match[1]}{': ' if languages else ''}{languages})"
    return name


def source_text(material: Material, tokens: list[str]) -> str:
    """What was translated; of an inflection the tags, and the lemma as one word."""
    tokens = [token for token in tokens if token != END]
    if not material.inflects:
        return " ".join(tokens)
    tags = [token for token in tokens if len(token) > 2 and token[0] + token[-1] == "[]"]
    return " ".join([*tags, spelled(" ".join(token for token in tokens if token not in tags))])


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
    _mark_best(rows, higher=metric in HIGHER_IS_BETTER)
    columns = ["System", "Paper", "Here", "Difference", *(more or {})]
    table = Table(name, caption, columns, rows)
    return finish(material, table, found, here.values())


HIGHER_IS_BETTER = {"bleu", "tokenized_bleu", "word_accuracy", "word_accuracy_ensemble"}


def _mark_best(rows: Sequence[Sequence[Cell]], higher: bool) -> None:
    values = [row[2].value for row in rows if row[2].numeric]
    if higher and len(values) > 1:
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


def of_seeds(
    material: Material, analysis: str, value: Callable[[dict], float | None]
) -> dict[str, Measured]:
    """Mean over seeds of something in an analysis's result."""
    found: dict[str, list[float]] = {}
    for run, result in material.results(analysis):
        measured = dig(value, result)
        if measured is not None:
            found.setdefault(run.system, []).append(measured)
    return {system: mean_and_deviation(values) for system, values in found.items()}


def dig(value: Callable[[dict], float | None], result: dict) -> float | None:
    """``value(result)``, or None where the result does not have it."""
    try:
        found = value(result)
    except (KeyError, TypeError, IndexError, statistics.StatisticsError):
        return None
    return found if isinstance(found, int | float) else None


Curve = tuple[str, Sequence[float], Sequence[float], bool]  # system, x, y, whether in the legend


def curves(
    name: str,
    about: str,
    lines: Iterable[Curve],
    xlabel: str,
    ylabel: str,
    adjust: Callable[[Axes], None] | None = None,
    label: Callable[[str], str] = system_label,
) -> Markup:
    """A panel with one line per run: the first of a system with markers, its other seeds thin."""
    lines = list(lines)
    looks = Looks(in_order(system for system, *_ in lines))

    def plot(axes: Axes) -> None:
        for system, x, y, first in lines:
            style = looks.line(system)
            if not first:
                style |= {"linewidth": 0.9, "alpha": 0.7, "marker": ""}
            axes.plot(x, y, label=label(system) if first else None, **style)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        ticks_with_commas(axes)
        if adjust:
            adjust(axes)

    return draw(name, about, plot)


def nothing(material: Material, analysis: str) -> list[str]:
    """The line of a section that has nothing to show."""
    reasons = {material.why(analysis, system) for system in material.systems}
    reasons |= {material.why(analysis)} if not reasons else set()
    return sorted(reasons)


def lacking(material: Material, analysis: str, found: Iterable[str]) -> list[str]:
    """One line for each system without a result of this analysis."""
    return [
        f"{system_label(system)}: {material.why(analysis, system)}"
        for system in material.systems
        if system not in set(found)
    ]


def make_section(material: Material, analysis: str, title: str, places: list[str]) -> Section:
    """An empty section that says what makes it, with the places that are about this dataset."""
    known = {exhibit.place: exhibit.datasets for exhibit in exhibits()}
    names = {material.dataset, material.target}
    own = [place for place in places if names & {*known.get(place, ())}]
    return Section(
        analysis,
        title,
        own or places,
        command=material.command(analysis),
        sources=material.sources(analysis),
    )


def training_speed(material: Material) -> dict[str, Measured]:
    """Words per second, of scores.json; while a run is not finished, of its log."""
    logged = of_seeds(
        material,
        "dynamics",
        lambda result: statistics.median(epoch["wps"] for epoch in result["training"]),
    )
    scored = {s: material.mean(s, "train_words_per_second") for s in material.all_systems}
    return {**logged, **{system: value for system, value in scored.items() if value}}


def mean_of(found: Mapping[str, Measured], system: str, digits: int) -> tuple[float | None, int]:
    measured = found.get(system)
    return (measured[0] if measured else None), digits
