"""How a section of the page is declared. Its file has the name of the analysis that it shows."""

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from ..papers import exhibits
from .gather import Material
from .parts import Section

Text = str | Callable[[Material], str]
Places = tuple[str, ...] | Callable[[Material], tuple[str, ...]]


@dataclass(frozen=True)
class SectionMaker:
    """``SECTION`` of a file in report/sections: what the page needs to know of it.

    ``fill`` gets an empty section and puts tables, figures and sentences into it. If it puts in
    nothing, the page says why there is nothing.
    """

    position: int  # on the page
    title: Text
    fill: Callable[[Material, Section], None]
    places: Places = ()  # tables and figures of the papers that it stands for
    metrics: tuple[str, ...] = ()  # published numbers that it shows; the others are the setting's
    command: Text | None = None  # what makes it, if not the analysis of the same name
    of_words: bool = True  # whether a report on inflected words has it

    @property
    def name(self) -> str:
        return self.fill.__module__.rpartition(".")[2]

    def make(self, material: Material) -> Section:
        """The section; one that cannot be made says so and does not hide the others."""
        section = self._empty(material)
        try:
            self.fill(material, section)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            section = self._empty(material)
            section.missing = [f"could not be shown: {reason}"]
        if section.empty and not section.missing:
            section.missing = material.nothing(self.name)
        return section

    def _empty(self, material: Material) -> Section:
        """With what makes it, and the places that are about this dataset."""
        known = {exhibit.place: exhibit.datasets for exhibit in exhibits()}
        names = {material.dataset, material.target}
        places = self.places(material) if callable(self.places) else self.places
        own = [place for place in places if names & {*known.get(place, ())}]
        return Section(
            self.name,
            self.title(material) if callable(self.title) else self.title,
            own or list(places),
            command=self._command(material),
            sources=material.sources(self.name),
        )

    def _command(self, material: Material) -> str:
        if self.command is None:
            return material.command(self.name)
        return self.command(material) if callable(self.command) else self.command
