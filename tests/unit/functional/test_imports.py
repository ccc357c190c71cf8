"""``sparse_fairseq.functional`` stands on torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

import sparse_fairseq.functional

FOLDER = Path(sparse_fairseq.functional.__file__).parent
# What the package may name: what `pip install .` brings, and Python's own modules.
ALLOWED = {"torch", "numpy", *sys.stdlib_module_names}


def test_only_torch_is_imported():
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            assert {name.split(".")[0] for name in names} <= ALLOWED, (path.name, names)


def test_importing_it_loads_nothing_heavy_but_torch():
    """Time cannot be tested on a noisy machine; what is loaded decides it."""
    code = (
        "import sys, torch; before = set(sys.modules); import sparse_fairseq.functional; "
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # Whatever torch itself imports late (its compiler's parts, say) stays under these names.
    assert set(out.stdout.split()) <= {"sparse_fairseq", "torch"} | set(sys.stdlib_module_names)
