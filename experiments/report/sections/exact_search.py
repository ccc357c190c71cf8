"""Search errors and model errors, with proofs (Stahlberg & Byrne 2019; SE Table 2)."""

from matplotlib.axes import Axes

from ...systems import in_order
from ..comparison import mean_of, system_cell
from ..figures import Looks, draw
from ..gather import Material
from ..parts import Figure, Section, Table, number, system_label, to_csv
from ..section import SectionMaker

COLUMNS = {
    "Proved by the beam, %": (lambda r: r["proved_by_beam"], 1),
    "Proved by exact search, %": (lambda r: r["proved"], 1),
    "Median gap of the others, nats": (lambda r: _median(r["gaps"]), 2),
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


def fill(material: Material, section: Section) -> None:
    results = material.first_results("exact_search")
    if not results:
        return
    any_of_them = next(iter(results.values()))
    section.reading = [
        "A prefix bounds the score of all that can follow it. So an output is proved to be the "
        "best of all as soon as nothing left out can be better. Exact search goes on after the "
        f"beam, with at most {any_of_them['budget']} further prefixes for each output. Outputs are "
        "ranked by the sum of their log-scores, the empty one is "
        "allowed, and α-ReLU's scores are divided by their sum at each step.",
        "A search error: the beam missed the best output. A model error: the best one is "
        "empty, or too short. BLEU and chrF are of the words as they were divided for training: "
        "compare beam and exact search, not with other tables.",
    ]
    section.blocks = [_proofs(material), _quality(material), _figure(results)]


def _median(values: list[float]) -> float | None:
    return values[len(values) // 2] if values else None


def _proofs(material: Material) -> Table:
    found = {
        title: (material.of_seeds("exact_search", value), digits)
        for title, (value, digits) in COLUMNS.items()
    }
    return Table(
        "exact_search", "Proofs and search errors", ["System", *found], _rows(material, found)
    )


def _quality(material: Material) -> Table:
    found = {}
    for title, (key, digits) in QUALITY.items():
        for way, name in (("beam", "beam 5"), ("exact", "exact")):
            value = material.of_seeds("exact_search", lambda r, w=way, k=key: r[w][k])
            found[f"{title}: {name}"] = (value, digits)
    caption = "What the best outputs are worth"
    return Table("exact_search_quality", caption, ["System", *found], _rows(material, found))


def _rows(material: Material, found: dict) -> list:
    return [
        [
            system_cell(system),
            *(
                number(*mean_of(values, system, digits), material.why("exact_search", system))
                for values, digits in found.values()
            ),
        ]
        for system in material.systems
    ]


def _figure(results: dict[str, dict]) -> Figure:
    looks = Looks(in_order(results))
    rows = [
        [system, group["words"] or "more", group["sentences"], group["proved"]]
        for system in in_order(results)
        for group in results[system]["by_length"]
    ]

    def plot(axes: Axes) -> None:
        for system in in_order(results):
            groups = results[system]["by_length"]
            labels = [str(g["words"] or "more") for g in groups]
            axes.plot(
                labels,
                [g["proved"] for g in groups],
                marker="o",
                color=looks.colour(system),
                label=system_label(system),
            )
        axes.set_ylim(0, 103)
        axes.set_xlabel("tokens of the source, at most")
        axes.set_ylabel("proved, %")

    svg = draw("exact_search", "Proved outputs by length", plot)
    header = ["system", "source tokens, at most", "sentences", "proved, %"]
    caption = "Share of outputs that are proved to be the best, by the length of the source."
    return Figure("exact_search_figure", caption, [svg], to_csv(header, rows))


SECTION = SectionMaker(52, "Search errors and model errors", fill)
