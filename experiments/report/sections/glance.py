"""The first table: all systems at a glance."""

from ...quantities import Quantity
from ..comparison import system_cell
from ..gather import Material
from ..parts import Section, Table, missing, number
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    columns = [quantity for quantity in material.quantities if quantity.heading]
    if not columns:
        section.missing = [f"No system has been run: {material.make()}"]
        return
    found = {quantity.key: material.quantity(quantity.key) for quantity in columns}
    rows = []
    for system in material.all_systems:
        seeds = len(material.runs_of(system))
        values = [(found[q.key].get(system), q.digits) for q in columns]
        cells = [number(value and value.mean, digits, "not measured") for value, digits in values]
        if not seeds:  # once is enough
            cells = [missing(f"not run: {material.make(system)}"), *[missing("")] * len(cells[1:])]
        rows.append([system_cell(system), number(seeds, 0), *cells])
    headings = [material.in_words(quantity.heading) for quantity in columns]
    table = Table("glance", "Means over seeds", ["System", "Seeds", *headings], rows)
    section.blocks = [table]
    section.reading = [
        f"{_splits(columns)} The headings of all tables sort; every table and figure can be saved "
        "as CSV."
    ]
    if any(quantity.key == "train_words_per_cpu_second" for quantity in columns):
        table.notes.append(CPU_TIME)


CPU_TIME = (
    "There is no GPU here: speed is by the CPU time of the process, which other load hardly moves."
)


def _splits(columns: list[Quantity]) -> str:
    """Which of the columns are of which data."""
    parts = []
    if tested := [q.words or q.heading for q in columns if q.split == "test"]:
        *names, last = tested
        parts.append(f"{', '.join(names)} and {last} are" if names else f"{last} is")
        parts[0] += " of the test set"
    if trained := [q.words for q in columns if q.split == "train"]:
        parts.append(f"{trained[0]} is of the training set")
    sentence = ", ".join([*parts, "all else is of the validation set"])
    return f"{sentence[0].upper()}{sentence[1:]}."


SECTION = SectionMaker(
    10, "Systems at a glance", fill, command=lambda material: material.make("report")
)
