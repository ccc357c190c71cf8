"""Validation accuracy against α of output and attention (S2S Fig. 4)."""

from matplotlib.axes import Axes

from ...config import CONFIGS
from ..figures import INK, SERIES, draw
from ..gather import Material
from ..parts import (
    Figure,
    Section,
    Table,
    number,
    to_csv,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    result = material.result("alpha_sweep")
    if not result:
        section.missing = [material.why("alpha_sweep")]
        return
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


SECTION = SectionMaker(100, "Which α?", fill, ("S2S Figure 4",), ("best_output_alpha",))
