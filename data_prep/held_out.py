"""Takes validation and test sets out of a training set, in bounded memory.

Near-duplicates stay together: no held-out sentence has a twin in training.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator

import numpy as np

from data_prep.clean import Row

# A bigger group of near-duplicates would make up too much of a small set.
LARGEST_GROUP = 5


def normal_form(text: str) -> str:
    """Equal for near-duplicates: strings that differ in case and in numbers only."""
    return re.sub(r"\d+", "0", text.lower())


def held_out(rows: Iterable[Row], sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """For each set of ``sizes`` the sorted indices of its rows: whole groups, in a random order."""
    group = groups(rows)
    members = np.bincount(group)
    order = np.random.default_rng(seed).permutation(len(members))
    order = order[members[order] <= LARGEST_GROUP]
    taken, begin = {}, 0
    for name, size in sizes.items():
        end = begin + int(np.searchsorted(np.cumsum(members[order[begin:]]), size, side="right"))
        taken[name] = np.flatnonzero(np.isin(group, order[begin:end]))
        begin = end
    return taken


def groups(rows: Iterable[Row]) -> np.ndarray:
    """The number of each row's group. Rows that share the normal form of either side are in one
    group, directly or through others."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    keys = np.fromiter((key for row in rows for key in _keys(row)), np.uint64)
    _, forms = np.unique(keys, return_inverse=True)
    source, target = forms.reshape(-1, 2).T
    count = len(keys) and int(forms.max()) + 1
    links = coo_array((np.ones(len(source), np.int8), (source, target)), shape=(count, count))
    return connected_components(links, directed=False)[1][source]


def _keys(row: Row) -> Iterator[int]:
    """The normal forms of both sides, as numbers that take eight bytes; sides never meet."""
    for side, line in zip(b"st", row, strict=False):
        form = normal_form(line.decode("utf-8", "replace"))
        digest = hashlib.blake2b(form.encode(), digest_size=8, person=bytes([side]))
        yield int.from_bytes(digest.digest())


def split(rows: Iterable[Row], taken: dict[str, np.ndarray], name: str) -> Iterator[Row]:
    """The rows of one set; ``train`` is what nobody has taken."""
    if name in taken:
        chosen = taken[name]
        return (row for row, inside in zip(rows, _marks(chosen), strict=False) if inside)
    others = np.sort(np.concatenate([*taken.values(), np.empty(0, np.int64)]))
    return (row for row, inside in zip(rows, _marks(others), strict=False) if not inside)


def _marks(indices: np.ndarray) -> Iterator[bool]:
    """Whether 0, 1, 2 … are among the sorted ``indices``, without end."""
    position = 0
    for index in indices:
        yield from (False for _ in range(position, int(index)))
        yield True
        position = int(index) + 1
    while True:
        yield False
