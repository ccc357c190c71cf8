"""User-interface strings of Home Assistant (Apache-2.0): a parallel corpus that pip can fetch.

Pairs are strings under equal keys of a component's translations. Near-duplicates are kept
together, so that no string of the validation and test sets has a twin in training.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_prep import archives
from data_prep.clean import Row
from data_prep.download import Source
from data_prep.held_out import normal_form
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

DEFAULTS = {"source": "de", "target": "en", "operations": 4000}
ARCHIVE = Source(
    name="homeassistant-2026.10.4.tar.gz",
    url="pip:homeassistant==2026.10.4",
    sha256="8410fecb434ab94b3f7724cd80584050f0ceeb856c16ee70202c24037d62238a",
)
MEMBER = re.compile(r"[^/]+/homeassistant/components/([^/]+)/translations/([^/]+)\.json")
# Placeholders ({name}, %s), addresses, mark-up (<b>, `code`, [text](link), **bold**), identifiers.
NOT_TEXT = re.compile(r"[{}<>\[\]`|_\\\n]|%[a-z(]|\*\*|://|www\.|\S@\S")
# Of the longer side: German writes many terms as one word.
FEWEST_WORDS, MOST_WORDS = 2, 20
HELD_OUT = 1_000
# A bigger group of near-duplicates would make up too much of a set of 1,000.
LARGEST_HELD_OUT_GROUP = 5


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    return [ARCHIVE]


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    pairs = filtered(parallel_strings(files[ARCHIVE.name], spec), dropped)
    return split(pairs, spec.seed)


def parallel_strings(path: Path, spec: DataSpec) -> Iterator[tuple[str, str]]:
    """Strings of both languages under equal keys, in the order of the archive's components."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    languages = Counter()
    for archive, member in archives.tar_members(path, "read"):
        match = MEMBER.fullmatch(member.name)
        if not match or not member.isreg():
            continue
        component, language = match.groups()
        languages[language] += 1
        if language in (spec.source, spec.target):
            strings = flatten(json.load(archive.extractfile(member)))
            found.setdefault(component, {})[language] = dict(strings)
    for language in (spec.source, spec.target):
        if language not in languages:
            there = ", ".join(sorted(languages))
            raise UsageError(f"{path.name} has no language '{language}'; it has {there}")
    for component in sorted(found):
        target = found[component].get(spec.target, {})
        for key, text in sorted(found[component].get(spec.source, {}).items()):
            if key in target:
                yield text, target[key]


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All strings of a JSON value with the paths of their keys."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, f"{path}\0{key}")


def filtered(pairs: Iterable[tuple[str, str]], dropped: Counter[str]) -> list[tuple[str, str]]:
    """Unique pairs of plain text with a fitting number of words."""
    kept: dict[tuple[str, str], None] = {}
    for source, target in pairs:
        pair = (" ".join(source.split()), " ".join(target.split()))
        words = max(len(text.split()) for text in pair)
        if pair in kept:
            dropped["repeated"] += 1
        elif words < FEWEST_WORDS or not all(pair):
            dropped["too short"] += 1
        elif words > MOST_WORDS:
            dropped["too long"] += 1
        elif NOT_TEXT.search(source) or NOT_TEXT.search(target):
            dropped["placeholder, address or mark-up"] += 1
        elif pair[0] == pair[1]:
            dropped["not translated"] += 1
        else:
            kept[pair] = None
    return list(kept)


def groups(pairs: list[tuple[str, str]]) -> list[list[int]]:
    """Indices of pairs that share the normal form of either side, directly or through others."""
    leader = list(range(len(pairs)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    first: dict[str, int] = {}
    for index, pair in enumerate(pairs):
        for text in pair:
            other = first.setdefault(normal_form(text), index)
            low, high = sorted((find(index), find(other)))
            leader[high] = low
    members: dict[int, list[int]] = {}
    for index in range(len(pairs)):
        members.setdefault(find(index), []).append(index)
    return list(members.values())


def split(pairs: list[tuple[str, str]], seed: int) -> dict[str, list[Row]]:
    """Whole groups go to valid and test, in the order of a hash, until each has 1,000 pairs."""

    def draw(group: list[int]) -> str:
        first = min("\t".join(map(normal_form, pairs[index])) for index in group)
        return hashlib.sha256(f"{seed}\t{first}".encode()).hexdigest()

    where = ["train"] * len(pairs)
    room = dict.fromkeys(("valid", "test"), min(HELD_OUT, len(pairs) // 10))
    for group in sorted(groups(pairs), key=draw):
        for name in room:
            if len(group) <= min(room[name], LARGEST_HELD_OUT_GROUP):
                room[name] -= len(group)
                for index in group:
                    where[index] = name
                break
    rows: dict[str, list[Row]] = {"train": [], "valid": [], "test": []}
    for pair, name in zip(pairs, where, strict=True):
        rows[name].append(tuple(text.encode() for text in pair))
    return rows
