"""Tables of Markdown pages that a command fills, so that no number in them is typed.

<!-- KIND: what the maker of that kind of tables understands -->
<!-- end of table -->
"""

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from data_prep.files import atomic_output
from sparse_fairseq.errors import UsageError

from .paths import readable

END = "<!-- end of table -->"
Maker = Callable[[str], str]


def blocks(kind: str) -> re.Pattern:
    return re.compile(rf"(<!-- {kind}:(?P<what>[^\n]*?)-->\n)(?P<old>.*?)(?=<!-- )", re.S)


def fill(text: str, kind: str, make: Maker) -> str:
    """The page with its tables of a kind as `make` gives them for what their comments say."""

    def table(match: re.Match) -> str:
        if not text.startswith(END, match.end()):
            raise UsageError(f"the table of {match['what'].strip()} has no {END} after it")
        return f"{match[1]}\n{make(match['what'].strip())}\n\n"

    return blocks(kind).sub(table, text)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; its first row is the head."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "| " + " | ".join(["---"] * len(rows[0])) + " |"
    return "\n".join([head, rule, *body])


def add_arguments(parser: argparse.ArgumentParser, pages: Sequence[Path]) -> None:
    parser.add_argument("--page", type=Path, nargs="+", default=list(pages), dest="pages")
    parser.add_argument("--check", action="store_true", help="say whether it is as it must be")


def write(options: argparse.Namespace, kind: str, make: Maker, source: str, command: str) -> None:
    """Fills the pages; with --check, an error where one is not what the files have."""
    for page in options.pages:
        before = page.read_text(encoding="utf-8")
        after = fill(before, kind, make)
        name = readable(page)
        if options.check and before != after:
            raise UsageError(f"{name} is not what {source} has: {command}")
        if before == after:
            print(f"{name}: nothing has changed")
            continue
        with atomic_output(page) as file:
            file.write(after)
        print(f"{name}: {len(blocks(kind).findall(after))} tables written")
