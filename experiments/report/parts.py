"""What a report is made of: sections with tables, figures and boxes. Nothing is measured here."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from markupsafe import Markup

from ..number_text import number_text, signed_text
from ..systems import describe


def system_label(system: str) -> str:
    """A system as the papers write it."""
    return describe(system).label


def spread_text(mean: float, deviation: float | None, digits: int = 1) -> str:
    text = number_text(mean, digits)
    return text if deviation is None else f"{text} ± {number_text(deviation, max(digits, 1))}"


def duration_text(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


@dataclass
class Cell:
    """``value`` sorts and goes into the CSV, ``text`` is shown; ``why`` says why it is missing."""

    text: str
    value: float | str | None = None
    note: str | None = None
    why: str | None = None
    strong: bool = False

    @property
    def numeric(self) -> bool:
        return isinstance(self.value, int | float)


def number(value: float | None, digits: int = 1, why: str = "not run", **options) -> Cell:
    if value is None:
        return missing(why)
    return Cell(number_text(value, digits), value, **options)


def missing(why: str) -> Cell:
    return Cell("–", None, why=why)


def text(value: str, **options) -> Cell:
    return Cell(value, value, **options)


def difference(here: float | None, paper: float | None, digits: int, why: str) -> Cell:
    if here is None or paper is None:
        return missing(why)
    gap = here - paper
    return Cell(signed_text(gap, digits), gap)


def to_csv(header: Sequence[str], rows: Iterable[Sequence]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


class Download:
    """Something with CSV behind a link."""

    name: str
    csv: str

    @property
    def csv_link(self) -> str:
        # The mark at the start tells spreadsheets that this is UTF-8.
        return "data:text/csv;charset=utf-8," + quote("\ufeff" + self.csv)


@dataclass
class Table(Download):
    name: str  # of the CSV file, unique on the page
    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    under: dict[str, str] = field(default_factory=dict)  # small print below a column's name

    @property
    def csv(self) -> str:
        rows = ([c.value if c.value is not None else c.why or "" for c in r] for r in self.rows)
        return to_csv(self.columns, rows)

    def numeric(self, column: int) -> bool:
        cells = [row[column] for row in self.rows if row[column].value is not None]
        return bool(cells) and all(cell.numeric for cell in cells)


@dataclass
class Figure(Download):
    name: str
    caption: str
    panels: list[Markup]  # SVG, or HTML of ours
    csv: str
    wide: bool = False


@dataclass
class Section:
    """One question of a paper: what is known about it here, and what would make the rest."""

    id: str
    title: str
    places: list[str]
    blocks: list[Table | Figure] = field(default_factory=list)
    reading: list[str] = field(default_factory=list)  # sentences that say what is to be seen
    missing: list[str] = field(default_factory=list)
    command: str | None = None  # what makes or remakes it
    sources: list[str] = field(default_factory=list)  # the JSON files it shows

    @property
    def empty(self) -> bool:
        return not self.blocks
