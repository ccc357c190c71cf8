"""How sparse the models are: support, Σp, exact search, lattices, search trees, attention."""

from collections.abc import Iterator

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from ...systems import describe, in_order
from ..figures import INK, SERIES, Looks, draw, ticks_with_commas
from ..gather import Material
from ..parts import (
    Figure,
    Section,
    Table,
    number,
    number_text,
    system_label,
    text,
    to_csv,
)
from .common import (
    comparison,
    dig,
    finish,
    lacking,
    make_section,
    mean_of,
    nothing,
    of_seeds,
    system_cell,
    triple,
)
from .quality import test_scores

WAYS = {"gold": "forced to the references", "beam": "along the beam’s hypotheses"}


def support(material: Material) -> Section:
    section = make_section(
        material, "support", "Sparsity of output and attention", ["SE Figure 5", "S2S Table 3"]
    )
    results = material.first_results("support")
    if not results:
        section.missing = nothing(material, "support")
        return section
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
    section.missing = lacking(material, "support", results)
    return section


def _support_table(material: Material, where: str, metric: str, what: str) -> Table:
    def why(system: str) -> str:
        return material.why("support", system)

    gold = of_seeds(material, "support", lambda r: r[where]["gold"]["mean"])
    beam = of_seeds(material, "support", lambda r: r[where]["beam"]["mean"])
    more = {"Along the beam": lambda s: number(*mean_of(beam, s, 2), why(s) if s in gold else "")}
    if where == "output":
        zero = of_seeds(material, "support", lambda r: 100 * r[where]["gold"]["zero_share"])
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


def self_normalization(material: Material) -> Section:
    section = make_section(
        material, "self_normalization", "Self-normalisation of α-ReLU", ["SE Figure 7", "SE §4.5"]
    )
    results = material.first_results("self_normalization")
    if not results:
        section.missing = nothing(material, "self_normalization")
        return section
    section.reading = [
        "Σp at each step. Softmax and entmax sum to one by construction; α-ReLU does not, but its "
        "sums concentrate around one value, so that scores of different steps can be compared."
    ]
    section.blocks = [_sum_table(material)]
    relu = {s: r for s, r in results.items() if not describe(s).normalised}
    if relu:
        section.blocks.append(_sum_figure(material, relu))
    section.missing = lacking(material, "self_normalization", results)
    return section


def _sum_table(material: Material) -> Table:
    way = _way(material.first_results("self_normalization"))
    means = of_seeds(material, "self_normalization", lambda r: r[way]["mean"])
    spreads = of_seeds(material, "self_normalization", lambda r: r[way]["std"])

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


RANKED = {"raw": "raw score", "normalized": "length-normalised score"}


def exactness(material: Material) -> Section:
    section = make_section(material, "exactness", "Exact search", ["S2S §4.1"])
    results = material.first_results("exactness")
    if not results:
        section.missing = nothing(material, "exactness")
        return section

    def why(system: str) -> str:
        return material.why("exactness", system)

    def share(key: str):
        return of_seeds(material, "exactness", lambda r: r["valid"][key])

    section.reading = [
        "If no hypothesis with a non-zero score was ever pruned, the beam held all of them, and "
        "its answer is provably the best. Softmax can never give this certificate. Here "
        f"hypotheses were ranked by their {RANKED[material.certificate]}, so that “certified” "
        "elsewhere on this page means by that one."
    ]
    columns = {
        **{
            f"Certified by {score}, %": (share(f"certified_{way}"), 1)
            for way, score in RANKED.items()
        },
        "A single hypothesis, %": (share("single_hypothesis"), 1),
        "Hypotheses found": (share("mean_hypotheses"), 2),
        "Forced": (share("forced"), 1),
    }
    rows = [
        [
            system_cell(system),
            *(
                number(*mean_of(found, system, digits), why(system))
                for found, digits in columns.values()
            ),
        ]
        for system in material.systems
    ]
    section.blocks = [
        Table("exactness", "Validation set", ["System", *columns], rows),
        *_published_exactness(material),
        _hypotheses_figure(results, material.outputs),
    ]
    return section


def _published_exactness(material: Material) -> Iterator[Table]:
    """The paper gives its numbers for its best configuration, so they stand beside ours."""
    papers = {key: material.paper(key) for key in ("certified", "single_hypothesis")}
    scores = test_scores(material, "word_accuracy") or test_scores(material, "bleu")
    if not all(papers.values()) or not scores:
        return
    best = max(scores, key=lambda system: scores[system][0])
    way = f"certified_{material.certificate}"
    keys = {"certified": way, "single_hypothesis": "single_hypothesis"}
    rows = []
    for key, paper in papers.items():
        here = of_seeds(material, "exactness", lambda r, key=key: r["valid"][keys[key]]).get(best)
        title = {"certified": "Certified, %", "single_hypothesis": "A single hypothesis, %"}[key]
        why = material.why("exactness", best)
        rows.append([text(title), *triple(material, paper, here, 1, why)])
    caption = f"Best configuration (here {system_label(best)}), validation set"
    columns = [f"Share of {material.outputs}", "Paper", "Here", "Difference"]
    table = Table("exactness_paper", caption, columns, rows)
    yield finish(material, table, list(papers.values()))


def _hypotheses_figure(results: dict[str, dict], outputs: str) -> Figure:
    counts = {s: r["valid"]["counts"] for s, r in results.items() if "valid" in r}
    looks = Looks(in_order(counts))
    beam = max(r["valid"].get("beam") or 1 for r in results.values() if "valid" in r)

    def plot(axes: Axes) -> None:
        width = 0.8 / max(1, len(counts))
        for place, system in enumerate(in_order(counts)):
            total = sum(times for _, times in counts[system])
            x = [n + width * (place - (len(counts) - 1) / 2) for n, _ in counts[system]]
            y = [100 * times / total for _, times in counts[system]]
            hatch = ("", "///", "...", "xx")[place % 4]
            bars = axes.bar(x, y, width * 0.92, label=system_label(system))
            for bar in bars:
                bar.set(facecolor=looks.colour(system), edgecolor=INK, linewidth=0.4, hatch=hatch)
        axes.set_xticks(sorted({n for pairs in counts.values() for n, _ in pairs}))
        axes.set_xlabel(f"hypotheses found (beam {beam})")
        axes.set_ylabel(f"share of {outputs}, %")
        axes.grid(axis="x", visible=False)

    rows = [[s, n, times] for s, pairs in counts.items() for n, times in pairs]
    svg = draw("hypotheses", "Number of hypotheses found", plot)
    caption = f"How many hypotheses beam search found, validation set, beam {beam}."
    return Figure(
        "exactness_figure", caption, [svg], to_csv(["system", "hypotheses", "sentences"], rows)
    )


def attention(material: Material) -> Section:
    section = make_section(material, "attention", "Attention", ["S2S Figure 5"])
    results = {s: r for s, r in material.first_results("attention").items() if r.get("maps")}
    if not results:
        section.missing = nothing(material, "attention")
        return section
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
    section.missing = lacking(material, "attention", results)
    return section


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
