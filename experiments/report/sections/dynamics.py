"""Validation scores against updates and time, and the speed of training."""

from collections.abc import Iterator

from ..comparison import comparison, mean_of
from ..figures import Curve, curves
from ..gather import Material
from ..parts import (
    Cell,
    Figure,
    Section,
    Table,
    duration_text,
    missing,
    number,
    system_label,
    to_csv,
)
from ..section import SectionMaker

SCORES = {
    "bleu": "validation BLEU",
    "accuracy": "validation accuracy, %",
    "loss": "validation loss",
}


def fill(material: Material, section: Section) -> None:
    runs = [(run, result) for run, result in material.results("dynamics") if result["points"]]
    if not runs:
        return
    score = common_score([result["points"] for _, result in runs])
    section.reading = [
        "The validation score against updates, and against the time that training took on this "
        "machine."
    ]
    logged = [(run, result) for run, result in runs if score in result["points"][-1]]
    section.blocks = [_dynamics_figure(logged, score), _speed_table(material)]
    for system in dict.fromkeys(run.system for run, _ in runs if (run, _) not in logged):
        section.reading.append(f"The log of {system_label(system)} has no {score}.")
    section.missing = material.lacking("dynamics", [run.system for run, _ in runs])


def common_score(runs: list[list[dict]]) -> str:
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
    timed = material.training_speed
    speed = material.quantity(timed.key) if timed else {}
    seconds = material.of_seeds("dynamics", lambda r: r["seconds"])
    restarts = material.of_seeds("dynamics", lambda r: r["restarts"])
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
    by_cpu = bool(timed) and "cpu" in timed.key
    caption = f"Training speed, {material.tokens} per second{' of CPU time' if by_cpu else ''}"
    table = comparison(material, "training_speed", caption, "words_per_second", speed, why, 0, more)
    table.notes.append("Time is of training with validation, without what a restart did again.")
    return table


SECTION = SectionMaker(
    80,
    "Training dynamics",
    fill,
    ("SE Figure 2", "SE Figure 3", "S2S Figure 6"),
    ("words_per_second",),
)
