"""Reads the text formats in which corpora are published; all give lines as bytes.

What belongs to the format is taken off (tags, entities); the text is not touched.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data_prep import archives
from data_prep.clean import Row
from sparse_fairseq.errors import UsageError

SEGMENT = re.compile(rb"<seg\b[^>]*>(.*?)</seg\s*>", re.IGNORECASE | re.DOTALL)
OPENED = re.compile(rb"<seg\b", re.IGNORECASE)
# The five entities of XML, and characters by number.
ENTITY = re.compile(rb"&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(lt|gt|quot|apos|amp));")
NAMED = {b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'", b"amp": b"&"}
BYTE_ORDER_MARK = "\ufeff".encode()


def unescaped(line: bytes) -> bytes:
    """A line of SGML or XML as text; each entity is read once, so that &amp;lt; is &lt;."""

    def character(entity: re.Match[bytes]) -> bytes:
        if entity[3]:
            return NAMED[entity[3]]
        number = int(entity[1]) if entity[1] else int(entity[2], 16)
        try:
            return chr(number).encode()
        except (ValueError, OverflowError):  # no character has that number
            return entity[0]

    return ENTITY.sub(character, line)


def segments(path: Path) -> Iterator[bytes]:
    """The sentences of a test set in SGML or XML; one that goes over several lines is one."""
    content = b"\n".join(archives.lines(path))
    found = SEGMENT.findall(content)
    opened = len(OPENED.findall(content))
    if opened != len(found):
        raise UsageError(f"{path} has {opened:,} <seg> but {len(found):,} that end; not used")
    return (unescaped(b" ".join(text.split(b"\n")).strip()) for text in found)


def transcripts(path: Path) -> Iterator[bytes]:
    """The sentences of WIT3's train.tags files: lines that begin with a tag describe the talk.

    They need not be parallel: a talk may have translators and reviewers in one language only.
    """
    for line in archives.lines(path):
        # A mark at the start of one file would make a sentence of the tag behind it.
        if not line.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"<"):
            yield unescaped(line)


def columns(path: Path, separator: bytes, dropped: Counter[str]) -> Iterator[Row]:
    """The rows of a file that has both languages in one line."""
    for line in archives.lines(path):
        row = tuple(line.split(separator))
        if len(row) == 2:
            yield row
        else:
            dropped[f"{path.name}: not two columns"] += 1
