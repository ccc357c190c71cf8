"""What training and decoding cost: dynamics, τ, α, time and energy."""

import statistics
from collections.abc import Iterator

from matplotlib.axes import Axes

from ...analysis.papers import published
from ...config import CONFIGS
from ...systems import describe, in_order
from ..figures import INK, SERIES, draw
from ..gather import Material
from ..parts import (
    Cell,
    Figure,
    Section,
    Table,
    duration_text,
    missing,
    number,
    number_text,
    system_label,
    text,
    to_csv,
)
from .common import (
    Curve,
    Measured,
    comparison,
    curves,
    dig,
    finish,
    lacking,
    make_section,
    mean_of,
    nothing,
    of_seeds,
    system_cell,
    training_speed,
    triple,
)

SCORES = {
    "bleu": "validation BLEU",
    "accuracy": "validation accuracy, %",
    "loss": "validation loss",
}


def dynamics(material: Material) -> Section:
    section = make_section(
        material, "dynamics", "Training dynamics", ["SE Figure 2", "SE Figure 3", "S2S Figure 6"]
    )
    runs = [(run, result) for run, result in material.results("dynamics") if result["points"]]
    if not runs:
        section.missing = nothing(material, "dynamics")
        return section
    score = _score([result["points"] for _, result in runs])
    section.reading = [
        "The validation score against updates, and against the time that training took on this "
        "machine."
    ]
    logged = [(run, result) for run, result in runs if score in result["points"][-1]]
    section.blocks = [_dynamics_figure(logged, score), _speed_table(material)]
    for system in dict.fromkeys(run.system for run, _ in runs if (run, _) not in logged):
        section.reading.append(f"The log of {system_label(system)} has no {score}.")
    section.missing = lacking(material, "dynamics", [run.system for run, _ in runs])
    return section


def _score(runs: list[list[dict]]) -> str:
    """BLEU if all runs have it; accuracy if any has it: losses of two kinds cannot be compared."""
    if all("bleu" in points[-1] for points in runs):
        return "bleu"
    return "accuracy" if any("accuracy" in points[-1] for points in runs) else "loss"


def _dynamics_figure(runs: list[tuple], score: str) -> Figure:
    longest = max(result["points"][-1]["seconds"] for _, result in runs)
    unit, size = ("hours", 3600) if longest > 6000 else ("minutes", 60)

    def lines(key: str, scale: float) -> Iterator[Curve]:
        seen = set()
        for run, result in runs:
            points = [p for p in result["points"] if score in p]
            x = [p[key] / scale for p in points]
            yield run.system, x, [p[score] for p in points], run.system not in seen
            seen.add(run.system)

    ylabel = SCORES[score]
    panels = [
        curves(
            "dynamics_updates", f"{ylabel} against updates", lines("updates", 1), "updates", ylabel
        ),
        curves(
            "dynamics_time",
            f"{ylabel} against time",
            lines("seconds", size),
            f"training time, {unit}",
            ylabel,
        ),
    ]
    keys = ("updates", "epoch", "seconds", score)
    rows = [[r.system, r.seed, *(p.get(k) for k in keys)] for r, d in runs for p in d["points"]]
    caption = f"{ylabel[0].upper()}{ylabel[1:]}, against updates (left) and wall time (right)."
    if score == "loss":
        caption += " Each criterion has a loss of its own; only the shapes can be compared."
    if len({run.seed for run, _ in runs}) > 1:
        caption += " Thin lines are other seeds."
    return Figure("dynamics", caption, panels, to_csv(["system", "seed", *keys], rows))


def _speed_table(material: Material) -> Table:
    speed = training_speed(material)
    seconds = of_seeds(material, "dynamics", lambda r: r["seconds"])
    restarts = of_seeds(material, "dynamics", lambda r: r["restarts"])
    base = speed.get(material.baseline)

    def why(system: str) -> str:
        return material.why("dynamics", system)

    def ratio(system: str) -> Cell:
        if not base or not speed.get(system):
            return missing("softmax or this system was not run")
        return number(speed[system][0] / base[0], 2)

    def hours(system: str) -> Cell:
        if system not in seconds:
            return missing(why(system))
        return Cell(duration_text(seconds[system][0]), seconds[system][0])

    more = {
        "To softmax": ratio,
        "Time": hours,
        "Restarts": lambda s: number(*mean_of(restarts, s, 0), why(s)),
    }
    caption = f"Training speed, {material.tokens} per second"
    table = comparison(material, "training_speed", caption, "words_per_second", speed, why, 0, more)
    table.notes.append("Time is of training with validation, without what a restart did again.")
    return table


def tau(material: Material) -> Section:
    section = make_section(
        material, "tau", "The threshold τ of α-ReLU", ["SE Table 3", "SE Figure 6", "SE §4.4"]
    )
    result = material.result("tau")
    if not result:
        section.missing = [material.why("tau")]
        return section
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
    return section


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
    score = _score([entry["points"] for entry in sweep])
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


def inference_time(material: Material) -> Section:
    section = make_section(material, "inference_time", "Decoding time", ["SE Figure 4", "SE §3.2"])
    result = material.result("inference_time")
    if not result:
        section.missing = [material.why("inference_time")]
        return section
    times = {(t["system"], t["beam"]): t for t in result["times"]}
    beams = sorted({beam for _, beam in times})
    systems = in_order(system for system, _ in times)
    section.reading = [
        f"The same {result['sentences']} {material.outputs} of the {result['split']} set, decoded "
        f"in turns, median of {result['rounds']} rounds after a warm-up, on {result['device']} "
        f"with {result['threads']} thread{'s' if result['threads'] > 1 else ''}."
    ]
    section.blocks = [
        _ratio_table(material, times, beams),
        _beam_table(times, beams, systems, material.outputs),
        _beam_figure(times, beams, systems),
    ]
    section.missing = lacking(material, "inference_time", systems)
    return section


def _ratio_table(material: Material, times: dict, beams: list[int]) -> Table:
    def ratio(system: str):
        pairs = [(times.get((system, b)), times.get((material.baseline, b))) for b in beams]
        ratios = [one["seconds"] / base["seconds"] for one, base in pairs if one and base]
        return (statistics.median(ratios), None, 1) if ratios else None

    here = {system: ratio(system) for system in {name for name, _ in times}}
    caption = "Decoding time as a multiple of softmax’s, median over beam sizes"
    return comparison(
        material,
        "inference_ratio",
        caption,
        "inference_time_ratio",
        here,
        lambda system: material.why("inference_time", system),
        2,
    )


def _beam_table(times: dict, beams: list[int], systems: list[str], outputs: str) -> Table:
    def cell(system: str, beam: int) -> Cell:
        found = times.get((system, beam))
        return number(found and found["sentences_per_second"], 1, "not measured")

    rows = [[system_cell(s), *(cell(s, beam) for beam in beams)] for s in systems]
    columns = ["System", *(f"Beam {beam}" for beam in beams)]
    return Table("decoding_speed", f"{outputs.capitalize()} per second", columns, rows)


def _beam_figure(times: dict, beams: list[int], systems: list[str]) -> Figure:
    def lines() -> Iterator[Curve]:
        for system in systems:
            own = [(b, times[system, b]["normalized"]) for b in beams if (system, b) in times]
            yield system, [b for b, _ in own], [n for _, n in own], True

    def adjust(axes: Axes) -> None:
        axes.set_xticks(beams)
        axes.set_ylim(bottom=0)

    ylabel = "time / shortest time"
    svg = curves("beams", "Decoding time by beam size", lines(), "beam size", ylabel, adjust)
    rows = [
        [s, b, t["seconds"], t["normalized"], t["sentences_per_second"]]
        for (s, b), t in times.items()
    ]
    header = ["system", "beam", "seconds", "normalized", "sentences_per_second"]
    caption = "Decoding time against beam size, divided by the shortest of all (SE Figure 4)."
    return Figure("inference_time", caption, [svg], to_csv(header, rows))


def alpha_sweep(material: Material) -> Section:
    section = make_section(material, "alpha_sweep", "Which α?", ["S2S Figure 4"])
    result = material.result("alpha_sweep")
    if not result:
        section.missing = [material.why("alpha_sweep")]
        return section
    means = result["means"]
    section.reading = [
        "Validation accuracy against the α of the output (1 is softmax, 2 sparsemax) and of the "
        "attention, the other one fixed."
    ]
    panels = [
        panel
        for moving, fixed in (
            ("attention_alpha", "output_alpha"),
            ("output_alpha", "attention_alpha"),
        )
        if (panel := _alpha_panel(material, means, moving, fixed)) is not None
    ]
    rows = [[m["output_alpha"], m["attention_alpha"], m["mean"], m["std"], m["n"]] for m in means]
    header = ["output_alpha", "attention_alpha", "accuracy", "deviation", "seeds"]
    if panels:
        caption = "Validation accuracy against α; bars are deviations over seeds."
        section.blocks.append(Figure("alpha_sweep", caption, panels, to_csv(header, rows)))
    cells = [
        [
            number(m["output_alpha"], 2),
            number(m["attention_alpha"], 2, "the architecture’s own"),
            number(m["mean"], 2),
            number(m["std"], 2, "one seed"),
            number(m["n"], 0),
        ]
        for m in means
    ]
    columns = ["α of the output", "α of the attention", "Accuracy, %", "Deviation", "Seeds"]
    section.blocks.append(Table("alpha", "Validation accuracy", columns, cells))
    if len(panels) < 2:
        section.missing = [_finer_sweep(material)]
    return section


def _finer_sweep(material: Material) -> str:
    grid = f"{material.target}_alphas"
    if (CONFIGS / f"{grid}.yaml").is_file():
        return f"A finer sweep has a dataset of its own: make {grid}, make {grid}/report"
    systems = ("out1.5_att1.25", "out1.33_att1.5", "entmax1.25", "entmax1.33")
    examples = [material.make(system) for system in systems if material.can_run(system)]
    return f"A finer sweep: not run: {', '.join(examples[:2])}, …"


def _alpha_panel(material: Material, means: list[dict], moving: str, fixed: str):
    groups: dict = {}
    for mean in means:
        if mean[moving] is not None:
            groups.setdefault(mean[fixed], []).append(mean)
    groups = {key: own for key, own in groups.items() if len(own) > 1}
    if not groups:
        return None
    names = {"output_alpha": "output", "attention_alpha": "attention"}
    best = material.paper("best_output_alpha") if moving == "output_alpha" else None

    def plot(axes: Axes) -> None:
        for place, (key, own) in enumerate(sorted(groups.items(), key=lambda g: g[0] or 0)):
            own = sorted(own, key=lambda m: m[moving])
            label = f"{names[fixed]} α = {key:g}" if key is not None else "attention as built"
            axes.errorbar(
                [m[moving] for m in own],
                [m["mean"] for m in own],
                yerr=[m["std"] or 0 for m in own],
                color=SERIES[place % 8],
                marker="osD^vPX*"[place % 8],
                linestyle=("-", "--", ":", "-.")[place % 4],
                capsize=2,
                label=label,
            )
        if best and material.comparable(best):
            axes.axvline(best.value, color=INK, linestyle=":", label=f"paper’s best {best.value}")
        axes.set_xlabel(f"α of the {names[moving]}")
        axes.set_ylabel("validation accuracy, %")
        axes.set_ylim(*_accuracy_limits(means))

    return draw(moving, f"Accuracy against α of the {names[moving]}", plot)


def _accuracy_limits(means: list[dict]) -> tuple[float, float]:
    """The same for both panels: which α matters more is what the figure shows."""
    ends = [m["mean"] + sign * (m["std"] or 0.0) for m in means for sign in (-1, 1)]
    margin = 0.05 * (max(ends) - min(ends)) or 0.1
    return min(ends) - margin, max(ends) + margin


def energy(material: Material) -> Section:
    section = make_section(material, "energy", "Training time and energy", ["SE Table 5"])
    hours = of_seeds(material, "energy", lambda r: r["hours"])
    if not hours:
        section.missing = nothing(material, "energy")
        return section
    results = material.first_results("energy")
    kwh = of_seeds(material, "energy", lambda r: r["kwh"])
    sources = {r["source"] for r in results.values() if r.get("source")}

    def why(system: str) -> str:
        return material.why("energy", system)

    def used(system: str) -> Cell:
        reason = (results.get(system) or {}).get("why")
        reason = reason and reason.replace("not measured:", "cannot be measured here:")
        return number(*mean_of(kwh, system, 3), reason or why(system))

    digits = 2 if max(value[0] for value in hours.values()) >= 1 else 3
    section.reading = [
        "Hours of training with validation. Energy is measured while training runs or not at all; "
        "it is never estimated from a nominal power, as the paper does."
    ]
    table = comparison(
        material, "energy", "Hours of training", "training_hours", hours, why, digits, {"kWh": used}
    )
    if sources:
        table.notes.append(f"Energy by {', '.join(sorted(sources))}.")
    section.blocks = [table, _totals(material, hours, kwh)]
    return section


def _totals(material: Material, hours: dict, kwh: dict) -> Table:
    rows, papers = [], []
    for title, metric, found in (("hours", "training_hours", hours), ("kWh", "energy", kwh)):
        paper = material.paper(metric, "total")
        # The paper's total is of its own systems; a dataset may have more.
        printed = {n.system for n in material.published(metric)} if paper else set()
        systems = [s for s in material.systems if s in printed or not printed]
        own = [found[system][0] for system in systems if system in found]
        whole = sum(own) if len(own) == len(systems) else None
        reason = "not all systems are there" if own else "cannot be measured here"
        here = None if whole is None else (whole, None, 1)
        papers += [paper] if paper else []
        rows.append([text(title), *triple(material, paper, here, 2, reason)])
    columns = ["All systems", "Paper", "Here", "Difference"]
    caption = "Totals, one seed of each system" + (" that the paper has" if papers else "")
    table = Table("energy_totals", caption, columns, rows)
    return finish(material, table, papers)
