"""Number of trainable parameters (SE Table 1)."""

from ...systems import in_order
from ..comparison import finish, system_cell, triple
from ..gather import Material
from ..parts import Section, Table, number
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    results = material.first_results("parameters")
    if not results:
        return
    paper = material.paper("parameters")
    rows = []
    for system in in_order(results):
        own = results[system]
        here = (own["parameters"], None, 1)
        cells = triple(material, paper, here, 0, material.why("parameters", system))
        cells += [number(own[key], 0, "not known") for key in ("embeddings", "vocabulary")]
        rows.append([system_cell(system), *cells])
    columns = ["System", "Paper", "Here", "Difference", "Of them embeddings", "Target vocabulary"]
    table = Table("parameters", "Trainable parameters", columns, rows)
    if paper and paper.note:
        table.notes.append(f"{paper.place}: {paper.note}.")
    section.reading = ["The output transform has no parameters: all systems have as many."]
    section.blocks = [finish(material, table, [paper] if paper else [])]
    section.missing = material.lacking("parameters", results)


SECTION = SectionMaker(155, "Number of parameters", fill, ("SE Table 1",), ("parameters",))
