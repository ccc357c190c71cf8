"""What suggestions of next words save a translator: sparse lists beside softmax's best words."""

from matplotlib.axes import Axes

from ...systems import in_order
from ..comparison import mean_of, system_cell
from ..figures import Looks, draw, ticks_with_commas
from ..gather import Material
from ..parts import Cell, Figure, Section, Table, number, system_label, text, to_csv
from ..section import SectionMaker

LISTS = {"all": "all possible words", "top_k": "the best {k}", "top_p": "{p:.0%} of the scores"}


def fill(material: Material, section: Section) -> None:
    results = material.first_results("keystrokes")
    if not results:
        return
    first = next(iter(results.values()))
    section.reading = [
        "A translator types the reference. The words that can come next are shown, best first; "
        "typed letters narrow the list, and Tab accepts the first word. Where a single word is "
        "possible it is offered ahead, with all that must follow. A sparse output has a list that "
        "ends by itself; softmax excludes nothing, so its list is cut somewhere.",
        f"Simulated on {first['sentences']:,} sentences ({first['words']:,} words) of the "
        f"{ {'valid': 'validation', 'test': 'test'}.get(first['split'], first['split']) } set. "
        "To do it oneself: make explore.",
    ]
    section.blocks = [
        _tab_table(material, results),
        _list_table(material, results),
        _figure(results),
    ]
    section.missing = material.lacking("keystrokes", results)


def _tab_table(material: Material, results: dict[str, dict]) -> Table:
    columns = {
        "Keystrokes saved, %": "saved",
        "First suggestion right, %": "first",
        "Accepted after some letters, too, %": "accepted",
        "Offered ahead, %": "ahead",
    }
    found = {
        key: material.of_seeds("keystrokes", lambda r, k=key: r[k]) for key in columns.values()
    }
    rows = [
        [
            system_cell(system),
            *(
                number(*mean_of(found[key], system, 1), material.why("keystrokes", system))
                for key in columns.values()
            ),
        ]
        for system in in_order({*material.systems, *results})
    ]
    caption = "Typing with Tab: shares of keystrokes and of words"
    return Table("keystrokes", caption, ["System", *columns], rows)


def _list_table(material: Material, results: dict[str, dict]) -> Table:
    """What a list of each kind holds."""
    rows = []
    for system in in_order(results):
        for kind in LISTS:
            if kind not in results[system]["lists"]:
                continue
            columns = {
                key: material.of_seeds("keystrokes", lambda r, k=key, w=kind: r["lists"][w].get(k))
                for key in ("median", "length", "coverage", "listed", "saved", "cut")
            }
            found = {key: mean_of(values, system, 1) for key, values in columns.items()}
            if found["listed"][0] is None:  # lists without beginnings
                found["listed"] = found["coverage"]
            cells = [number(*v) if v[0] is not None else Cell("", None) for v in found.values()]
            rows.append([system_cell(system), text(LISTS[kind].format(**results[system])), *cells])
    caption = "The list that is shown before any letter is typed"
    columns = [
        "System",
        "List",
        "Words in it: median",
        "Mean",
        "Coverage, %",
        "Listed as a word, %",
        "Keystrokes saved, %",
        "With beginnings, %",
    ]
    table = Table("keystroke_lists", caption, columns, rows)
    table.notes.append(
        "Coverage: how often the next word of the reference is in the list, as a word or behind "
        "the beginning of longer words, which counts as one entry. Saved: by going down the list "
        "with the arrow key where that is shorter than typing. With beginnings: lists in which "
        "not all words were followed to their ends."
    )
    return table


def _figure(results: dict[str, dict]) -> Figure:
    looks = Looks(in_order(results))

    def plot(axes: Axes) -> None:
        for system in in_order(results):
            result = results[system]
            x, y = zip(*result["curve"], strict=True)
            style = {**looks.line(system), "marker": ""}
            axes.plot(x, y, linewidth=1.2, **{k: v for k, v in style.items() if "marker" not in k})
            own = result["lists"].get("all") or result["lists"]["top_p"]
            label = system_label(system)
            point = looks.point(system)
            axes.plot([own["length"]], [own["coverage"]], label=label, linestyle="", **point)
        axes.set_xscale("log")
        ticks_with_commas(axes)
        axes.set_xlabel("words in the list (log scale)")
        axes.set_ylabel("next word is in it, %")

    rows = [[s, "best", k, y] for s, r in results.items() for k, y in r["curve"]]
    rows += [
        [s, kind, own["length"], own["coverage"]]
        for s, r in results.items()
        for kind, own in r["lists"].items()
    ]
    caption = (
        "How often the next word of the reference is in a list of the best k words (lines), and in "
        "the system's own list (points): all possible words, or for softmax top-p."
    )
    svg = draw("keystrokes", "Coverage of lists by their length", plot)
    header = ["system", "list", "words", "coverage"]
    return Figure("keystrokes_figure", caption, [svg], to_csv(header, rows))


SECTION = SectionMaker(115, "Predictive translation", fill, ("S2S Figure 2",), of_words=False)
