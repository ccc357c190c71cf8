"""Decoding time against beam size (SE Fig. 4)."""

import statistics
from collections.abc import Iterator

from matplotlib.axes import Axes

from ...systems import in_order
from ..comparison import comparison, system_cell
from ..figures import Curve, curves
from ..gather import Material
from ..parts import (
    Cell,
    Figure,
    Section,
    Table,
    number,
    to_csv,
)
from ..section import SectionMaker

CLOCKS = {
    "cpu": "CPU time, which other load hardly moves",
    "wall": "time on the wall",
}


def fill(material: Material, section: Section) -> None:
    result = material.result("inference_time")
    if not result:
        section.missing = [material.why("inference_time")]
        return
    times = {(t["system"], t["beam"]): t for t in result["times"]}
    beams = sorted({beam for _, beam in times})
    systems = in_order(system for system, _ in times)
    section.reading = [
        f"The same {result['sentences']} {material.outputs} of the {result['split']} set, decoded "
        f"in turns, median of {result['rounds']} rounds after a warm-up, on {result['device']} "
        f"with {result['threads']} thread{'s' if result['threads'] > 1 else ''}; "
        f"{CLOCKS[result.get('clock', 'wall')]}."
    ]
    section.blocks = [
        _ratio_table(material, times, beams),
        _beam_table(times, beams, systems, material.outputs),
        _beam_figure(times, beams, systems),
    ]
    section.missing = material.lacking("inference_time", systems)


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


SECTION = SectionMaker(
    90, "Decoding time", fill, ("SE Figure 4", "SE §3.2"), ("inference_time_ratio",)
)
