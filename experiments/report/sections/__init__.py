"""One file per section of the report. A section is on the page because its file is here."""

import pkgutil
from importlib import import_module

from ..gather import Material
from ..parts import Section
from ..section import SectionMaker


def section_makers() -> list[SectionMaker]:
    """Those of all files, in the order of the page."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found = [import_module(f".{name}", __package__).SECTION for name in names]
    return sorted(found, key=lambda maker: (maker.position, maker.name))


def build(material: Material) -> list[Section]:
    makers = [maker for maker in section_makers() if maker.of_words or not material.inflects]
    return [maker.make(material) for maker in makers]
