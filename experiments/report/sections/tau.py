"""The threshold τ before training, and training with other τ (SE Table 3, Fig. 6)."""

from collections.abc import Iterator

from ...number_text import number_text
from ...papers import published
from ...systems import describe
from ..comparison import Measured, finish, system_cell, triple
from ..figures import Curve, curves
from ..gather import Material, dig
from ..parts import Figure, Section, Table, missing, number, system_label, text, to_csv
from ..section import SectionMaker
from .dynamics import SCORES, common_score


def fill(material: Material, section: Section) -> None:
    result = material.result("tau")
    if not result:
        section.missing = [material.why("tau")]
        return
    section.reading = [
        "τ is the mean threshold of 1.5-entmax in an untrained model, measured on a batch or "
        "computed from the model’s σ. It depends on how the output layer starts, so that the "
        "paper’s τ holds only for OpenNMT’s initialisation (xavier)."
    ]
    section.blocks = [_tau_table(material, result)]
    section.blocks += [_tau_runs(result)] if result["runs"] else []
    sweep = [entry for entry in result.get("sweep") or [] if entry["points"]]
    if len({entry["system"] for entry in sweep}) > 1:
        section.blocks.append(_tau_figure(material, sweep))
    else:
        section.missing = [
            "SE Figure 6, training with other τ: not run: "
            f"{material.make('relu15_tau0.1')}, {material.make('relu15_tau5')}, …"
        ]


# Title, published metric, digits, and where it is in what was measured of an untrained model.
UNTRAINED = (
    ("τ, measured on a batch", "tau_batch", 3, lambda start: start["tau_batch"]),
    ("τ, by formula", "tau_formula", 3, lambda start: start["tau_formula"]),
    ("p*, share in the support", "support_share", 4, lambda start: start["support_share"]),
    (
        "p-value of Shapiro-Wilk, median",
        "shapiro_wilk_p",
        2,
        lambda start: start["shapiro_wilk"]["median_p"],
    ),
)


def _tau_table(material: Material, result: dict) -> Table:
    shape, rows, papers = result["architecture"], [], []
    for title, metric, digits, value in UNTRAINED:
        system = "relu15" if metric.startswith("tau") else None
        papers.append(material.paper(metric, system) or _general(metric))
        starts = [result["untrained"][name] for name in ("xavier", "fairseq")]
        here, other = (dig(value, start) for start in starts)
        why = starts[0].get("why") or "not measured"
        cells = triple(material, papers[-1], _one(here), digits, why)
        if papers[-1] and papers[-1].bound:
            cells[2] = missing(f"the paper says only > {papers[-1].value}")
        rows.append([text(title), *cells, number(other, digits, why)])
    for metric in ("d_model", "vocabulary"):
        papers.append(material.paper(metric))
        cells = triple(material, papers[-1], _one(shape[metric]), 0, "not known")
        rows.append([text(metric), *cells, number(shape[metric], 0, "not known")])
    columns = ["Untrained model", "Paper", "Here", "Difference", "Here, fairseq’s start"]
    table = Table("tau", "τ before training", columns, rows)
    if result.get("equation_3") is not None:
        table.notes = [
            f"SE Eq. 3 for d_model = {shape['d_model']} and {shape['vocabulary']:,} "
            f"{material.tokens} gives {number_text(result['equation_3'], 3)}."
        ]
    return finish(material, table, [paper for paper in papers if paper])


def _one(value: float | None) -> Measured:
    return None if value is None else (value, None, 1)


def _general(metric: str):
    return next((n for n in published(metric=metric) if n.dataset is None), None)


def _tau_runs(result: dict) -> Table:
    rows = [
        [
            system_cell(run["system"]),
            number(run["seed"], 0, "none"),
            number(run["tau"], 4, "the log does not say it"),
        ]
        for run in result["runs"]
    ]
    return Table("tau_runs", "τ of the α-ReLU runs", ["System", "Seed", "τ"], rows)


def _tau_figure(material: Material, sweep: list[dict]) -> Figure:
    score = common_score([entry["points"] for entry in sweep])
    values = {entry["system"]: entry["tau"] for entry in sweep}

    def lines() -> Iterator[Curve]:
        seen: set = set()
        for entry in sorted(sweep, key=lambda e: (e["tau"] is None, e["tau"] or 0, e["seed"])):
            x, y = zip(
                *((p["updates"], p[score]) for p in entry["points"] if score in p), strict=True
            )
            yield entry["system"], x, y, entry["system"] not in seen
            seen.add(entry["system"])

    def label(system: str) -> str:
        if values[system] is None:
            return system_label(system)
        chosen = " (from the batch)" if describe(system).tau is None else ""
        return f"τ = {values[system]:.3g}{chosen}"

    svg = curves("tau", "Training with other τ", lines(), "updates", SCORES[score], label=label)
    rows = [
        [e["system"], e["seed"], e["tau"], p["updates"], p.get(score)]
        for e in sweep
        for p in e["points"]
    ]
    caption = f"Impact of τ on training: {SCORES[score]}."
    paper = material.paper("tau_batch", "relu15")
    if paper and material.comparable(paper):
        caption += f" The paper’s choice is τ = {paper.value} ({paper.place})."
    header = ["system", "seed", "tau", "updates", score]
    return Figure("tau_figure", caption, [svg], to_csv(header, rows))


SECTION = SectionMaker(
    70,
    "The threshold τ of α-ReLU",
    fill,
    ("SE Table 3", "SE Figure 6", "SE §4.4"),
    ("tau", "d_model", *(metric for _, metric, _, _ in UNTRAINED)),
)
