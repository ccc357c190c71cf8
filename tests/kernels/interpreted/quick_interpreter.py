"""Triton's interpreter in two thirds of its time.

At every call of every function of a kernel it looks through all names of ``triton.language`` for
builtins to replace, though it has replaced them when the kernel began. Here the names are looked up
once, and what is replaced is left alone. ``python -m pytest -p quick_interpreter`` loads this.
"""

import inspect

import triton.language as tl
from triton.runtime import interpreter

BUILTINS = {
    part: [name for name, member in inspect.getmembers(part) if tl.core.is_builtin(member)]
    for part in (tl, tl.core, tl.tensor, tl.math, tl.core.tensor_descriptor_base)
}


def _patch_builtin(part, builder, scope) -> None:
    """All at once, as Triton does: the first tells whether they are replaced."""
    names = BUILTINS[part]
    if names and tl.core.is_builtin(getattr(part, names[0])):
        for name in names:
            interpreter._patch_attr(part, name, getattr(part, name), builder, scope)


assert hasattr(interpreter, "_patch_builtin"), "Triton has changed: this has no effect"
interpreter._patch_builtin = _patch_builtin
