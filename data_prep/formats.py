"""Reads the text formats in which corpora are published; all give lines as bytes, untouched."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data_prep import archives
from data_prep.clean import Row

SEGMENT = re.compile(rb"<seg[^>]*>(.*?)</seg>", re.IGNORECASE)
# &amp; comes last, or &amp;lt; would become <.
ENTITIES = {b"&lt;": b"<", b"&gt;": b">", b"&quot;": b'"', b"&apos;": b"'", b"&amp;": b"&"}


def segments(path: Path) -> Iterator[bytes]:
    """The sentences of a test set in SGML or XML, one <seg> on a line."""
    for line in archives.lines(path):
        found = SEGMENT.search(line)
        if found:
            text = found[1].strip()
            for entity, character in ENTITIES.items():
                text = text.replace(entity, character)
            yield text


def transcripts(path: Path) -> Iterator[bytes]:
    """The sentences of WIT3's train.tags files: lines that begin with a tag describe the talk.

    They need not be parallel: a talk may have translators and reviewers in one language only.
    """
    return (line for line in archives.lines(path) if not line.lstrip().startswith(b"<"))


def columns(path: Path, separator: bytes, dropped: Counter[str]) -> Iterator[Row]:
    """The rows of a file that has both languages in one line."""
    for line in archives.lines(path):
        row = tuple(line.split(separator))
        if len(row) == 2:
            yield row
        else:
            dropped[f"{path.name}: not two columns"] += 1
