"""What code a file runs, as one number: its own, and that of every file of this project that it
imports, and so on. Comments and docstrings do not count."""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from .paths import ROOT

PACKAGES = ("experiments", "sparse_fairseq", "data_prep")
# Its modules are imported by a name that data has: any of them may be run.
IMPORTED_BY_NAME = Path("data_prep/recipes/__init__.py")


def code_digest(*files: Path) -> str:
    text = "".join(f"{path.relative_to(ROOT)}\n{_code(path)}\n" for path in reached(files))
    return hashlib.sha256(text.encode()).hexdigest()


def report_digest() -> str:
    """Of all that makes a page of runs: analyses, sections, template and style."""
    folders = [ROOT / "experiments" / name for name in ("analysis", "report")]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    code = code_digest(*(path for path in files if path.suffix == ".py"))
    others = [path.read_bytes() for path in files if path.suffix in (".css", ".js", ".jinja")]
    return hashlib.sha256(code.encode() + b"".join(others)).hexdigest()


def reached(files: Iterable[Path]) -> list[Path]:
    """The files and all that they import, those inside of functions included."""
    found, left = set(), [path.resolve() for path in files]
    while left:
        path = left.pop()
        if path not in found and path.is_relative_to(ROOT):
            found.add(path)
            left += _imports(path)
    return sorted(found)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    package = path.relative_to(ROOT).parent.parts
    names: list[tuple[str, ...]] = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = (*above, *(node.module.split(".") if node.module else ()))
            names += [base, *((*base, alias.name) for alias in node.names)]
    ours = {name for name in names if name and name[0] in PACKAGES}
    return tuple(file for name in sorted(ours) for file in _files(name))


def _files(name: tuple[str, ...]) -> Iterator[Path]:
    """The file of a module, and the packages that are imported on the way to it."""
    for end in range(1, len(name) + 1):
        place = ROOT.joinpath(*name[:end])
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                yield path
            if path == ROOT / IMPORTED_BY_NAME:
                yield from sorted(path.parent.glob("*.py"))


@cache
def _code(path: Path) -> str:
    tree = _tree(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return ast.dump(tree)
