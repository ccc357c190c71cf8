"""Registers the package with fairseq, now or as soon as somebody imports fairseq.

`import sparse_fairseq.functional` runs the package's `__init__` too. It must stay as light as
torch, but a later `import fairseq` in the same process must still find our task.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from typing import Any


def register_with_fairseq() -> None:
    if "fairseq" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterFairseq())


def _register() -> None:
    if _is_importing_a_part():
        return  # who imports a part before fairseq gets that part registered, and what it needs
    for module in ("compat", "criterions", "models", "optim", "tasks"):
        importlib.import_module(f"{__package__}.{module}")


def _is_importing_a_part() -> bool:
    parts = [m for name, m in sys.modules.items() if name.startswith(f"{__package__}.")]
    return any(getattr(part.__spec__, "_initializing", False) for part in parts)


class _AfterFairseq(importlib.abc.MetaPathFinder):
    """Finds fairseq as Python would, and registers us once fairseq has been executed."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "fairseq":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("fairseq")
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_then_register(module):
            execute(module)
            _register()

        loader.exec_module = execute_then_register
        return spec
