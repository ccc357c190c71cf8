"""One module per dataset: where its files are, and which pairs of lines they hold. A module that
is here is a recipe.

A recipe has `DEFAULTS` (its values of a DataSpec), `sources(spec, raw)` (the files it needs) and
`read(spec, files, scratch, dropped)`, which gives for each split the raw pairs of lines, as bytes
and in order, and counts in `dropped` by reason what it leaves out itself. It does not clean or
segment them. `LABELS` names the columns after the first two, where there are any. `official(spec)`
says how many pairs the official files have, by split, where that is known.
"""

import importlib
import pkgutil
from types import ModuleType

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> ModuleType:
    return importlib.import_module(f"data_prep.recipes.{name}")
