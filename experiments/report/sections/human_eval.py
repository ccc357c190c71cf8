"""What people think of the translations (SE Table 4)."""

from ...systems import in_order
from ..comparison import finish, system_cell, triple
from ..gather import Material
from ..parts import (
    Section,
    Table,
    missing,
    number,
    text,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    result = material.result("human_eval")
    if not result:
        section.missing = [f"needs people, and was not done here: {section.command}"]
        return
    rows = []
    for system in in_order([*result["systems"], "reference"]):
        own = result["systems"].get(system)
        here = (own["mean"], own["std"], 1) if own else None
        paper = material.paper("human_score", system)
        rows.append(
            [
                system_cell(system),
                *triple(material, paper, here, 2, "no marks"),
                number(own and own["refined"]["mean"], 2, "no marks"),
                number(own and own["n"], 0, "no marks"),
            ]
        )
    kappa = (result["kappa"], None, 1) if result["kappa"] is not None else None
    cells = triple(material, material.paper("kappa"), kappa, 2, "cannot be computed: see below")
    rows.append(
        [text("Cohen’s κ"), *cells, missing("not a mark"), number(result["kappa_pairs"], 0)]
    )
    columns = ["Candidate", "Paper", "Here", "Difference", "With + and −", "Marks"]
    section.reading = [
        "How much of the meaning arrives, from 1 (nothing) to 4 (everything): mean ± standard "
        "deviation over all marks of two annotators, and their agreement."
    ]
    table = Table("human_eval", "Marks of the annotators", columns, rows)
    papers = [*material.published("human_score"), *material.published("kappa")]
    section.blocks = [finish(material, table, papers)]
    section.missing = list(result["problems"])


def _command(material: Material) -> str:
    return f"python -m experiments.analysis.human_eval draw runs/{material.dataset}/SYSTEM/seed1 …"


SECTION = SectionMaker(
    140,
    "Human judgement",
    fill,
    ("SE Table 4", "SE §4.7"),
    ("human_score", "kappa"),
    command=_command,
    of_words=False,  # an inflected word is right or wrong
)
