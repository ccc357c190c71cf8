"""Reads back the JSON files that a preparation leaves behind."""

import json
from pathlib import Path
from typing import Any

from sparse_fairseq.errors import UsageError

FACTS = ("spec", "sizes", "checksums")  # of data.json, objects all


def read_record(path: Path, remedy: str, *keys: str) -> dict[str, Any]:
    """The object in a file, which must have these keys; else one line that says what to do."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError("no object")
        missing = [key for key in keys if key not in record]
        if missing:
            raise ValueError(f"it has no {missing[0]}")
    except ValueError as error:
        raise UsageError(f"{path} is broken ({error}): {remedy}") from error
    return record


def read_facts(out: Path, remedy: str) -> dict[str, Any]:
    """The content of data.json, which says what has been prepared."""
    path = out / "data.json"
    facts = read_record(path, remedy, *FACTS)
    for key in FACTS:
        if not isinstance(facts[key], dict):
            raise UsageError(f"{path} is broken ({key} is no object): {remedy}")
    return facts
