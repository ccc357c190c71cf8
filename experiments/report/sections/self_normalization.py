"""Σp at each step of α-ReLU (SE §4.5, Fig. 7)."""

import numpy as np
from matplotlib.axes import Axes

from ...systems import describe, in_order
from ..comparison import comparison, mean_of
from ..figures import INK, Looks, draw
from ..gather import Material, dig
from ..parts import Figure, Section, Table, number, system_label, to_csv
from ..section import SectionMaker

WAYS = {"gold": "forced to the references", "beam": "along the beam’s hypotheses"}


def fill(material: Material, section: Section) -> None:
    results = material.first_results("self_normalization")
    if not results:
        return
    section.reading = [
        "Σp at each step. Softmax and entmax sum to one by construction; α-ReLU does not, but its "
        "sums concentrate around one value, so that scores of different steps can be compared."
    ]
    section.blocks = [_sum_table(material)]
    relu = {s: r for s, r in results.items() if not describe(s).normalised}
    if relu:
        section.blocks.append(_sum_figure(material, relu))
    section.missing = material.lacking("self_normalization", results)


def _sum_table(material: Material) -> Table:
    way = _way(material.first_results("self_normalization"))
    means = material.of_seeds("self_normalization", lambda r: r[way]["mean"])
    spreads = material.of_seeds("self_normalization", lambda r: r[way]["std"])

    def why(system: str) -> str:
        return material.why("self_normalization", system)

    more = {"Spread over steps": lambda s: number(*mean_of(spreads, s, 3), why(s))}
    caption = f"Mean of Σp, test set, {WAYS[way]}"
    return comparison(material, "total_score", caption, "total_score", means, why, 3, more)


def _way(results: dict[str, dict]) -> str:
    """Decoding steps, as the paper has it; else those of the references."""
    every = all(dig(lambda r: r["beam"]["mean"], result) for result in results.values())
    return "beam" if every else "gold"


def _sum_figure(material: Material, results: dict[str, dict]) -> Figure:
    way = _way(results)
    looks = Looks(in_order(results))
    paper = material.paper("total_score", "relu15")

    def plot(axes: Axes) -> None:
        for system in in_order(results):
            own = results[system][way]
            x, share = _shares(own)
            axes.plot(x, share, label=system_label(system), **{**looks.line(system), "marker": ""})
            axes.fill_between(x, share, color=looks.colour(system), alpha=0.15, linewidth=0)
            axes.axvline(own["mean"], color=looks.colour(system), linewidth=1)
        if paper:
            axes.axvline(paper.value, color=INK, linestyle=":", label=f"paper’s mean {paper.value}")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Σp at one step")
        axes.set_ylabel("share of steps, %")

    svg = draw("total_score", "Distribution of the sum of scores", plot)
    caption = f"Distribution of Σp on the test set, {WAYS[way]}; thin lines are the means here."
    if paper and not material.comparable(paper):
        caption += " The paper’s mean is of other data."
    rows = []
    for system, result in results.items():
        bins = result[way]["histogram"]
        starts = [round(bins["start"] + i * bins["width"], 6) for i in range(len(bins["counts"]))]
        rows += [[system, start, n] for start, n in zip(starts, bins["counts"], strict=True)]
    header = ["system", "from", "steps"]
    return Figure("total_score_figure", caption, [svg], to_csv(header, rows))


def _shares(own: dict, most: int = 45) -> tuple[np.ndarray, np.ndarray]:
    """Centres and shares (%) of at most so many bins, without the last half percent at each end."""
    bins = own["histogram"]
    share = 100 * np.array(bins["counts"], float) / own["positions"]
    inside = np.flatnonzero((share.cumsum() >= 0.5) & (share.cumsum() <= 99.5))
    if len(inside):
        share = share[inside[0] : inside[-1] + 1]
    first = bins["start"] + bins["width"] * (inside[0] if len(inside) else 0)
    together = -(-len(share) // most)
    share = np.pad(share, (0, -len(share) % together)).reshape(-1, together).sum(1)
    return first + bins["width"] * together * (np.arange(len(share)) + 0.5), share


SECTION = SectionMaker(
    60, "Self-normalisation of α-ReLU", fill, ("SE Figure 7", "SE §4.5"), ("total_score",)
)
