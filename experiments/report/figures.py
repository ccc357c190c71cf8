"""Figures as SVG whose text is text and whose colours are the page's, light or dark.

matplotlib draws with stand-in colours; they become CSS variables, which the page defines.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager

import matplotlib
from markupsafe import Markup, escape

from ..systems import describe, in_order
from .parts import system_label

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

INK, SOFT, GRID, GROUND = "#010101", "#020202", "#030303", "#040404"
VARIABLES = {INK: "--ink", SOFT: "--soft", GRID: "--grid", GROUND: "--card"}
SERIES = [f"#0{n}0a0{n}" for n in range(8)]
VARIABLES |= {colour: f"--series{n}" for n, colour in enumerate(SERIES)}
MARKERS = "osD^vPX*"
DASHES: list = ["-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5))]
SMALLEST, LARGEST = 0.85, 1.45  # pixels for a point of matplotlib's

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sparse_fairseq",
    "font.family": "DejaVu Sans",  # always there, and wider than most: labels do not collide
    "font.size": 9.5,
    "text.parse_math": False,  # tokens may contain $
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.unicode_minus": True,
}


class Looks:
    """Colour, marker and dashes of each system of one figure."""

    def __init__(self, systems: Sequence[str]):
        colours = {system: describe(system).colour for system in systems}
        self.numbers = {system: n for system, n in colours.items() if n is not None}
        free = [n for n in range(len(SERIES)) if n not in self.numbers.values()]
        extra = [system for system in systems if system not in self.numbers]
        self.numbers |= {system: free[i % len(free)] for i, system in enumerate(extra)}
        self.turns = {system: i // len(free) for i, system in enumerate(extra)}

    def colour(self, system: str) -> str:
        return SERIES[self.numbers[system]]

    def line(self, system: str) -> dict:
        number = self.numbers[system]
        dash = DASHES[(number + self.turns.get(system, 0)) % len(DASHES)]
        return {"color": SERIES[number], "linestyle": dash, **self.point(system)}

    def point(self, system: str) -> dict:
        number = self.numbers[system]
        return {
            "color": SERIES[number],
            "marker": MARKERS[number],
            "markeredgecolor": GROUND,
            "markeredgewidth": 0.7,
        }


@contextmanager
def _style():
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # The page's font, not matplotlib's, has to have the glyphs.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def draw(
    name: str,
    about: str,
    plot: Callable[[Axes], None],
    size: tuple[float, float] = (4.4, 3.0),
    legend: bool = True,
) -> Markup:
    """The SVG of one panel. ``about`` is what a screen reader says; ``plot`` fills the axes."""
    with _style():
        figure, axes = plt.subplots(figsize=size)
        try:
            plot(axes)
            handles, labels = axes.get_legend_handles_labels()
            if legend and handles:
                columns = 1 if max(map(len, labels)) > 26 else 2
                rows = -(-len(labels) // columns)
                figure.set_size_inches(size[0], size[1] + 0.18 * max(0, rows - 2))
                figure.legend(handles, labels, loc="outside upper left", ncols=columns)
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        finally:
            plt.close(figure)
    return _for_page(buffer.getvalue(), name, about)


def _for_page(svg: str, name: str, about: str) -> Markup:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"<[^>]+>", lambda tag: _tag_for_page(tag.group(), name), svg)
    # Scaled to the column, but neither to headlines nor to what nobody can read.
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
    style = f"min-width: {SMALLEST * width:.0f}px; max-width: {LARGEST * width:.0f}px"
    head = f'<svg role="img" aria-label="{escape(about)}" style="{style}" '
    return Markup(svg.replace("<svg ", head, 1))


def _tag_for_page(tag: str, name: str) -> str:
    # Ids must be unique on the page, which has many figures.
    tag = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", tag)
    for colour, variable in VARIABLES.items():
        tag = tag.replace(colour, f"var({variable})")
    return tag.replace("'DejaVu Sans'", "var(--font)")


def ticks_with_commas(axes: Axes, which: str = "x") -> None:
    formatter = matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:,.10g}")
    getattr(axes, f"{which}axis").set_major_formatter(formatter)


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
