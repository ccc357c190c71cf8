"""How many words and source positions have a score above zero (SE Fig. 5, S2S Table 3)."""

import numpy as np
from matplotlib.axes import Axes

from ...systems import in_order
from ..comparison import comparison, mean_of
from ..figures import Looks, draw, ticks_with_commas
from ..gather import Material
from ..parts import (
    Figure,
    Section,
    Table,
    number,
    system_label,
    to_csv,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    results = material.first_results("support")
    if not results:
        return
    vocabulary = max(result["vocabulary"] for result in results.values())
    section.reading = [
        f"How many of the {vocabulary:,} {material.tokens} have a score above zero at a step, and "
        "how many source positions get any attention. Softmax leaves nothing out."
    ]
    section.blocks += [
        _support_table(material, "output", "support", f"{material.tokens} in the output")
    ]
    if any(result.get("attention") for result in results.values()):
        section.blocks += [_support_table(material, "attention", "attended", "attended positions")]
    section.blocks.append(_support_figure(material, results, vocabulary))
    section.missing = material.lacking("support", results)


def _support_table(material: Material, where: str, metric: str, what: str) -> Table:
    def why(system: str) -> str:
        return material.why("support", system)

    gold = material.of_seeds("support", lambda r: r[where]["gold"]["mean"])
    beam = material.of_seeds("support", lambda r: r[where]["beam"]["mean"])
    more = {"Along the beam": lambda s: number(*mean_of(beam, s, 2), why(s) if s in gold else "")}
    if where == "output":
        zero = material.of_seeds("support", lambda r: 100 * r[where]["gold"]["zero_share"])
        more["Zeros, %"] = lambda s: number(*mean_of(zero, s, 3), why(s))
    caption = f"Mean number of non-zero {what}, validation set"
    return comparison(material, f"support_{where}", caption, metric, gold, why, 2, more)


def _support_figure(material: Material, results: dict[str, dict], vocabulary: int) -> Figure:
    panels, rows = [], []
    for where, xlabel in (
        ("output", f"{material.tokens} with a non-zero score (log scale)"),
        ("attention", "source positions with non-zero attention"),
    ):
        counts = {s: r[where]["gold"]["counts"] for s, r in results.items() if r.get(where)}
        if counts:
            panels.append(_distribution(material, where, xlabel, counts, vocabulary))
        for system, pairs in counts.items():
            zeros = (lambda n: vocabulary - n) if where == "output" else (lambda n: "")
            rows += [[where, system, n, zeros(n), times] for n, times in pairs]
    header = ["where", "system", "nonzeros", "zeros", "positions"]
    caption = (
        "Distribution of the number of non-zero components over all steps of the references (left: "
        f"in bins that double); of {vocabulary:,} {material.tokens} the rest are exactly zero."
    )
    return Figure("support_figure", caption, panels, to_csv(header, rows))


def _distribution(material: Material, where: str, xlabel: str, counts: dict, vocabulary: int):
    looks = Looks(in_order(counts))
    metric = {"output": "support", "attention": "attended"}[where]

    def plot(axes: Axes) -> None:
        for system in in_order(counts):
            numbers, times = (
                np.array(column, float) for column in zip(*counts[system], strict=True)
            )
            share = 100 * times / times.sum()
            label = system_label(system)
            if len(numbers) == 1:  # softmax: everything is in one place
                style = {**looks.line(system), "marker": ""}
                axes.axvline(numbers[0], label=label, **style)
                continue
            x, y = _binned(numbers, share, where == "output")
            axes.plot(x, y, label=label, **looks.line(system), markevery=max(1, len(x) // 8))
            axes.fill_between(x, y, color=looks.colour(system), alpha=0.12, linewidth=0)
            paper = material.paper(metric, system)
            if paper and material.comparable(paper):
                axes.axvline(paper.value, color=looks.colour(system), linestyle=":", linewidth=1.4)
        if where == "output":
            axes.set_xscale("log")
            axes.set_xlim(0.9, vocabulary * 1.3)
        ticks_with_commas(axes)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("share of steps, %")

    return draw(f"support_{where}", f"Distribution of {xlabel}", plot)


def _binned(numbers: np.ndarray, share: np.ndarray, logarithmic: bool):
    """Shares of each number, or in bins that double: around 1 (or none), 2, 4, 8 …"""
    if logarithmic:
        numbers = np.round(np.log2(np.maximum(numbers, 1)))
    places = numbers.astype(int)
    first, last = max(0, places.min() - 1), places.max() + 1
    x = np.arange(first, last + 1)
    y = np.bincount(places - first, weights=share, minlength=len(x))
    return (2.0**x if logarithmic else x), y


SECTION = SectionMaker(
    40,
    "Sparsity of output and attention",
    fill,
    ("SE Figure 5", "S2S Table 3"),
    ("support", "attended"),
)
