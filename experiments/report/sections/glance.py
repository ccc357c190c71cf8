"""The first table: all systems at a glance."""

from collections.abc import Iterable

from ..comparison import Measured, system_cell
from ..gather import Material
from ..parts import (
    Section,
    Table,
    missing,
    number,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    columns = {
        "BLEU": (material.test_scores("bleu"), 1),
        "chrF": (material.test_scores("chrf"), 1),
        "Word accuracy, %": (material.test_scores("word_accuracy"), 2),
        "Edit distance": (material.test_scores("edit_distance"), 3),
        "Prefer empty, %": (percent_empty(material), 2),
        f"Non-zero {material.tokens}": (nonzeros(material), 1),
        "Σp": (total_score(material), 2),
        "Certified, %": (certified(material), 1),
        f"Training, {material.tokens}/s": (material.training_speed(), 0),
        f"Decoding, {material.outputs}/s": (_scores(material, "test", "sentences_per_second"), 1),
    }
    columns = {title: found for title, found in columns.items() if any(found[0].values())}
    if not columns:
        section.missing = [f"No system has been run: {material.make()}"]
        return
    rows = []
    for system in material.all_systems:
        seeds = len(material.runs_of(system))
        cells = [
            number(value[0] if (value := found.get(system)) else None, digits, "not measured")
            for found, digits in columns.values()
        ]
        if not seeds:  # once is enough
            cells = [missing(f"not run: {material.make(system)}"), *[missing("")] * len(cells[1:])]
        rows.append([system_cell(system), number(seeds, 0), *cells])
    caption = "Means over seeds"
    section.blocks = [Table("glance", caption, ["System", "Seeds", *columns], rows)]
    section.reading = [
        f"{_splits(columns)} The headings of all tables sort; every table and figure can be saved "
        "as CSV."
    ]


TESTED = {  # how a heading begins -> what it is in a sentence
    "BLEU": "BLEU",
    "chrF": "chrF",
    "Word accuracy": "word accuracy",
    "Edit distance": "edit distance",
    "Σp": "Σp",
    "Decoding": "decoding speed",
}


def _splits(columns: Iterable[str]) -> str:
    """Which of the columns are of which data."""
    parts, titles = [], [title.partition(",")[0] for title in columns]
    if tested := [TESTED[title] for title in titles if title in TESTED]:
        *names, last = tested
        parts.append(f"{', '.join(names)} and {last} are" if names else f"{last} is")
        parts[0] += " of the test set"
    if "Training" in titles:
        parts.append("training speed is of the training set")
    sentence = ", ".join([*parts, "all else is of the validation set"])
    return f"{sentence[0].upper()}{sentence[1:]}."


def _scores(material: Material, *keys: str) -> dict[str, Measured]:
    return {system: material.mean(system, *keys) for system in material.all_systems}


def percent_empty(material: Material) -> dict[str, Measured]:
    return material.of_seeds("empty_string", lambda r: r["raw"]["percent"])


def nonzeros(material: Material) -> dict[str, Measured]:
    analysed = material.of_seeds("support", lambda r: r["output"]["gold"]["mean"])
    return {**_scores(material, "valid_support"), **analysed}


def total_score(material: Material) -> dict[str, Measured]:
    return material.of_seeds("self_normalization", lambda r: r["gold"]["mean"])


def certified(material: Material) -> dict[str, Measured]:
    way = material.certificate
    analysed = material.of_seeds("exactness", lambda r: r["valid"][f"certified_{way}"])
    return {**_scores(material, "valid", f"exact_{way}"), **analysed}


SECTION = SectionMaker(
    10, "Systems at a glance", fill, command=lambda material: material.make("report")
)
