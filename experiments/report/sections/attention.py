"""Cross-attention of one sentence, as drawn maps (S2S Fig. 5)."""

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from ...systems import in_order
from ..figures import INK, SERIES, draw
from ..gather import Material
from ..parts import (
    Figure,
    Section,
    number_text,
    system_label,
    to_csv,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    results = {s: r for s, r in material.first_results("attention").items() if r.get("maps")}
    if not results:
        return
    first = next(iter(results.values()))
    section.reading = [
        "Cross-attention of the last layer, mean over its heads. Stronger colour is more weight; "
        "weights that are not exactly zero are outlined."
    ]
    panels, rows = [], []
    for system in in_order(results)[:4]:
        shown = results[system]["maps"][0]
        panels.append(_attention_map(system, shown))
        for target, weights in zip(shown["target"], shown["weights"], strict=True):
            pairs = zip(shown["source"], weights, strict=True)
            rows += [[system, shown["id"], target, source, weight] for source, weight in pairs]
    caption = (
        f"Example {first['maps'][0]['id'] + 1} of the {first['split']} set; target "
        f"{material.tokens} from top to bottom, the source from left to right."
    )
    header = ["system", "sentence", "target", "source", "weight"]
    wide = len(first["maps"][0]["source"]) > 22
    section.blocks = [Figure("attention", caption, panels, to_csv(header, rows), wide)]
    section.missing = material.lacking("attention", results)


def _short(token: str) -> str:
    return token if len(token) <= 14 else token[:13] + "…"


def _attention_map(system: str, shown: dict) -> Markup:
    source, target = shown["source"], shown["target"]

    def plot(axes: Axes) -> None:
        cells, colours = [], []
        for row, weights in enumerate(shown["weights"]):
            for column, weight in enumerate(weights):
                if shown["nonzero"][row][column]:
                    cells.append(Rectangle((column - 0.5, row - 0.5), 1, 1))
                    colours.append((*_rgb(SERIES[0]), min(1.0, weight)))
        axes.add_collection(
            PatchCollection(cells, facecolors=colours, edgecolors=INK, linewidths=0.5)
        )
        axes.set_xticks(range(len(source)), map(_short, source), rotation=60, ha="left", fontsize=8)
        axes.set_yticks(range(len(target)), map(_short, target), fontsize=8)
        axes.set_xlim(-0.5, len(source) - 0.5)
        axes.set_ylim(len(target) - 0.5, -0.5)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.set_aspect("equal")
        axes.set_xlabel(f"{system_label(system)}: {number_text(shown['attended'], 1)} attended")

    size = (1.2 + 0.26 * len(source), 1.1 + 0.26 * len(target))
    about = f"Attention of {system_label(system)}"
    return draw(f"attention_{system}".replace(".", "_"), about, plot, size)


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


SECTION = SectionMaker(120, "Attention", fill, ("S2S Figure 5",))
