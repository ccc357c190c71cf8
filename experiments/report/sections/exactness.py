"""How often beam search is provably exact (S2S §4.1)."""

from collections.abc import Iterator

from matplotlib.axes import Axes

from ...systems import in_order
from ..comparison import finish, measured_rows, triple
from ..figures import INK, Looks, draw
from ..gather import Material
from ..parts import Figure, Section, Table, system_label, text, to_csv
from ..section import SectionMaker

RANKED = {"raw": "raw score", "normalized": "length-normalised score"}


def fill(material: Material, section: Section) -> None:
    results = material.first_results("exactness")
    if not results:
        return

    def share(key: str):
        return material.of_seeds("exactness", lambda r: r["valid"][key])

    section.reading = [
        "If nothing that the beam dropped can be better, its answer is provably the best. Scores "
        "that are no probabilities have no bound: there, only a beam that held every hypothesis "
        "with a non-zero score certifies, as in the paper; softmax cannot be certified so. Here "
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
    rows = measured_rows(material, "exactness", columns)
    section.blocks = [
        Table("exactness", "Validation set", ["System", *columns], rows),
        *_published_exactness(material),
        _hypotheses_figure(results, material.outputs),
    ]


def _published_exactness(material: Material) -> Iterator[Table]:
    """The paper gives its numbers for its best configuration, so they stand beside ours."""
    papers = {key: material.paper(key) for key in ("certified", "single_hypothesis")}
    scores = material.test_scores("word_accuracy") or material.test_scores("bleu")
    if not all(papers.values()) or not scores:
        return
    best = max(scores, key=lambda system: scores[system][0])
    way = f"certified_{material.certificate}"
    keys = {"certified": way, "single_hypothesis": "single_hypothesis"}
    rows = []
    for key, paper in papers.items():
        here = material.of_seeds("exactness", lambda r, key=key: r["valid"][keys[key]]).get(best)
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


SECTION = SectionMaker(50, "Exact search", fill, ("S2S §4.1",), ("certified", "single_hypothesis"))
