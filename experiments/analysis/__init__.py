"""One module per question that a paper asks; each reads runs and writes JSON.

A module is an analysis because it is here and has an ``ANALYSIS``. What analyses share is in
`shared`. The section of the report that shows a result has the same file name.
"""

import pkgutil
from importlib import import_module

from .shared.analysis import Analysis


def analyses() -> dict[str, Analysis]:
    """All of them by name. human_eval is none: it needs people, and has a command of its own."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]
    modules = [import_module(f".{name}", __name__) for name in names if name != "__main__"]
    found = [module.ANALYSIS for module in modules if hasattr(module, "ANALYSIS")]
    return {analysis.name: analysis for analysis in found}
