"""Search errors and model errors, with proofs (Stahlberg & Byrne 2019; SE Table 2)."""

from collections.abc import Callable, Iterator
from statistics import median

from markupsafe import Markup
from matplotlib.axes import Axes

from ...systems import in_order
from ..comparison import measured_rows
from ..figures import Looks, curves, draw
from ..gather import Material
from ..parts import Figure, Section, Table, system_label, to_csv
from ..section import SectionMaker

COLUMNS = {
    "Proved by the beam, %": (lambda r: r["proved_by_beam"], 1),
    "Proved by exact search, %": (lambda r: r["proved"], 1),
    "Median gap of the others, nats": (lambda r: median(r["gaps"]) if r["gaps"] else None, 2),
    "Best missed by beam 1, %": (lambda r: r["search_errors"]["1"], 1),
    "by beam 5, %": (lambda r: r["search_errors"]["5"], 1),
    "by beam 20, %": (lambda r: r["search_errors"]["20"], 1),
}
QUALITY = {
    "BLEU": ("bleu", 1),
    "chrF": ("chrf", 1),
    "Empty, %": ("empty", 1),
    "Length, % of the references": ("length", 1),
}
MEASURED = {"proved": "proved, %", "time": "time, beam 5 = 1"}


def fill(material: Material, section: Section) -> None:
    results = material.first_results("exact_search")
    if not results:
        return
    any_of_them = next(iter(results.values()))
    section.reading = [
        "A prefix bounds the score of all that can follow it. So an output is proved to be the "
        "best of all as soon as nothing left out can be better. Exact search has a budget: it "
        f"evaluates at most {any_of_them['budget']:,} prefixes for each output, beside those of a "
        "greedy or a beam search. Outputs are ranked by the sum of their log-scores, the empty one "
        "is allowed, and α-ReLU's scores are divided by their sum at each step.",
        "A search error: the beam missed the best output. A model error: the best one is "
        "empty, or too short. BLEU and chrF are of the words as they were divided for training: "
        "compare beam and exact search, not with other tables.",
        "The gap is how far, in nats, the best output may be above the one that was found.",
    ]
    section.blocks = [_proofs(material), _quality(material)]
    if any(result.get("of_proved") for result in results.values()):
        section.blocks.append(_quality_of_proved(material))
        section.reading.append(
            "Of the proved outputs, what is empty or too short is an error of the model: no search "
            "can find anything better. Each system has its own proved outputs, mostly short ones. "
            "So compare beam and exact search of one system."
        )
    section.blocks.append(_gaps(results))
    timed = {system: result for system, result in results.items() if "by_budget" in result}
    if timed:
        section.blocks.append(_by_budget(timed))
        section.reading.append(
            "Time is CPU time, and that of a beam of 5 in the same run is 1: compare budgets and "
            "lengths of a system, not the seconds of two runs."
        )
    section.blocks.append(_by_length(results))


def _proofs(material: Material) -> Table:
    found = {
        title: (material.of_seeds("exact_search", value), digits)
        for title, (value, digits) in COLUMNS.items()
    }
    return Table(
        "exact_search",
        "Proofs and search errors",
        ["System", *found],
        measured_rows(material, "exact_search", found),
    )


def _quality(material: Material) -> Table:
    return _quality_table(
        material, "exact_search_quality", "What the best outputs are worth", lambda r: r
    )


def _quality_of_proved(material: Material) -> Table:
    caption = "What the best outputs are worth: only those that are proved"
    return _quality_table(
        material, "exact_search_quality_of_proved", caption, lambda r: r["of_proved"] or {}
    )


def _quality_table(
    material: Material, name: str, caption: str, part: Callable[[dict], dict]
) -> Table:
    """Of all outputs, or of a part of them, which has the same entries."""
    found = {}
    for title, (key, digits) in QUALITY.items():
        for way, of_whom in (("beam", "beam 5"), ("exact", "exact")):
            value = material.of_seeds("exact_search", lambda r, w=way, k=key: part(r)[w][k])
            found[f"{title}: {of_whom}"] = (value, digits)
    shorter = material.of_seeds("exact_search", lambda r: part(r)["exact"].get("shorter"))
    found["Shorter than the beam's, %: exact"] = (shorter, 1)
    rows = measured_rows(material, "exact_search", found)
    return Table(name, caption, ["System", *found], rows)


def _gaps(results: dict[str, dict]) -> Figure:
    systems = in_order(results)
    looks = Looks(systems)
    steps = {system: list(_steps(results[system])) for system in systems}
    widest = max(gap for points in steps.values() for gap, _ in points) or 1.0

    def plot(axes: Axes) -> None:
        for system, points in steps.items():
            gaps, shares = zip(*points, (widest, points[-1][1]), strict=True)
            style = {**looks.line(system), "marker": "", "drawstyle": "steps-post"}
            axes.plot(gaps, shares, label=system_label(system), **style)
        axes.set_xlim(left=0)
        axes.set_xlabel("gap, nats, at most")
        axes.set_ylabel("outputs, %")

    svg = draw("exact_search_gaps", "Share of outputs by gap", plot)
    rows = [[system, *point] for system, points in steps.items() for point in points]
    caption = "Share of outputs with at most this gap. At 0 nats: the proved ones."
    header = ["system", "gap, nats, at most", "outputs, %"]
    return Figure("exact_search_gaps", caption, [svg], to_csv(header, rows))


def _steps(result: dict) -> Iterator[tuple[float, float]]:
    """(gap, % of the outputs that have at most this gap), from the proved ones on."""
    yield 0.0, result["proved"]
    for place, gap in enumerate(result["gaps"], 1):
        yield gap, result["proved"] + 100 * place / result["sentences"]


def _by_budget(results: dict[str, dict]) -> Figure:
    def panel(key: str, ylabel: str) -> Markup:
        lines = [
            (system, *([p[k] for p in results[system]["by_budget"]] for k in ("budget", key)), True)
            for system in in_order(results)
        ]

        def adjust(axes: Axes) -> None:
            axes.locator_params(axis="x", nbins=5)
            if key == "time":
                axes.set_ylim(bottom=0)

        name, xlabel = f"exact_search_budget_{key}", "budget, prefixes (0: beam 5)"
        return curves(name, f"{ylabel} against budget", lines, xlabel, ylabel, adjust)

    rows = [
        [system, *(point[key] for key in ("budget", "proved", "time"))]
        for system in in_order(results)
        for point in results[system]["by_budget"]
    ]
    caption = "Share of proved outputs (left) and time (right) against the budget of exact search."
    panels = [panel(key, ylabel) for key, ylabel in MEASURED.items()]
    header = ["system", "budget", *MEASURED.values()]
    return Figure("exact_search_budget", caption, panels, to_csv(header, rows))


def _by_length(results: dict[str, dict]) -> Figure:
    systems = in_order(results)
    groups = {system: results[system]["by_length"] for system in systems}
    looks = Looks(systems)
    # Results of version 0.2 have no times.
    keys = [key for key in MEASURED if all(key in g for found in groups.values() for g in found)]

    def panel(key: str) -> Markup:
        def plot(axes: Axes) -> None:
            for system, found in groups.items():
                labels = [str(g["words"] or "more") for g in found]
                values = [g[key] for g in found]
                axes.plot(labels, values, label=system_label(system), **looks.line(system))
            axes.set_ylim(bottom=0)
            axes.set_xlabel("tokens of the source, at most")
            axes.set_ylabel(MEASURED[key])

        return draw(f"exact_search_{key}", f"{MEASURED[key]} by length", plot)

    rows = [
        [system, g["words"] or "more", g["sentences"], *(g[key] for key in keys)]
        for system, found in groups.items()
        for g in found
    ]
    header = ["system", "source tokens, at most", "sentences", *(MEASURED[key] for key in keys)]
    caption = "Exact search with its full budget, by the length of the source."
    return Figure(
        "exact_search_figure", caption, [panel(key) for key in keys], to_csv(header, rows)
    )


SECTION = SectionMaker(52, "Search errors and model errors", fill)
