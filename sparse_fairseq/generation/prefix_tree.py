"""All prefixes that the models were asked about, on the host, as a tree."""

import numpy as np

COLUMNS = {
    "parent": np.int64,
    "token": np.int64,
    "total": np.float64,
    "sentence": np.int64,
    "depth": np.int64,
}


class PrefixTree:
    """A node is a prefix: its parent's, and one token more. Parents come before children; a
    sentence's root is the empty prefix, and its parent is -1."""

    def __init__(self):
        self._columns = {name: np.empty(256, dtype) for name, dtype in COLUMNS.items()}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def parent(self) -> np.ndarray:
        return self._columns["parent"][: self._count]

    @property
    def token(self) -> np.ndarray:
        return self._columns["token"][: self._count]

    @property
    def total(self) -> np.ndarray:
        """The sum of log-scores."""
        return self._columns["total"][: self._count]

    @property
    def sentence(self) -> np.ndarray:
        return self._columns["sentence"][: self._count]

    @property
    def depth(self) -> np.ndarray:
        """How many tokens come after the one that starts the sentence."""
        return self._columns["depth"][: self._count]

    def add(self, parents, tokens, totals, sentences) -> int:
        """Returns the number of the first new node; the others follow."""
        parents = np.asarray(parents, np.int64)
        depth = np.zeros_like(parents)
        depth[parents >= 0] = self.depth[parents[parents >= 0]] + 1
        first, self._count = self._count, self._count + len(parents)
        values = (parents, tokens, totals, sentences, depth)
        for (name, column), new in zip(self._columns.items(), values, strict=True):
            if self._count > len(column):
                column = self._columns[name] = np.resize(column, 2 * self._count)
            column[first : self._count] = new
        return first

    def paths(self, nodes: np.ndarray) -> np.ndarray:
        """[nodes, longest]: the nodes from the root to each of these; -1 before the root, where
        others are longer."""
        length = int(self.depth[nodes].max()) + 1
        paths = np.empty((len(nodes), length), np.int64)
        for place in reversed(range(length)):
            paths[:, place] = nodes
            nodes = np.where(nodes >= 0, self.parent[nodes], -1)
        return paths
