"""What may follow the prefixes that were evaluated, and how far a search has gone there."""

import math

import numpy as np

REST = -1  # in the place of a token: all tokens that are not listed


class OpenLists:
    """A list has the known continuations of one node of a prefix tree, without EOS, and then, if
    there are others, the total that none of these exceeds. A search takes them in this order."""

    node: np.ndarray
    sentence: np.ndarray
    depth: np.ndarray
    seen: np.ndarray  # tokens after the node that are known
    taken: np.ndarray  # how many of the first ones are not open any more
    totals: np.ndarray  # [lists, width]; −inf behind the last one
    tokens: np.ndarray  # [lists, width]
    child: np.ndarray  # [lists, width] the node of each; -1: none

    def __init__(self, most: int):
        self.width = most + 1  # with the rest
        self._count = 0
        shapes = dict.fromkeys(("node", "sentence", "depth", "seen", "taken"), ())
        shapes |= dict.fromkeys(("totals", "tokens", "child"), (self.width,))
        dtypes = {"totals": np.float64, "tokens": np.int32, "child": np.int32}
        self._columns = {
            name: np.empty((256, *shape), dtypes.get(name, np.int64))
            for name, shape in shapes.items()
        }
        self._show()

    def __len__(self) -> int:
        return self._count

    def _show(self) -> None:
        for name, column in self._columns.items():
            setattr(self, name, column[: self._count])

    def add(self, node: np.ndarray, sentence: np.ndarray, depth: np.ndarray, seen: int) -> int:
        """Empty lists; returns the number of the first, the others follow."""
        first, self._count = self._count, self._count + len(node)
        values = (node, sentence, depth, seen, 0, -math.inf, 0, -1)
        for (name, column), new in zip(self._columns.items(), values, strict=True):
            if self._count > len(column):
                larger = np.empty((2 * self._count, *column.shape[1:]), column.dtype)
                larger[:first] = column[:first]
                column = self._columns[name] = larger
            column[first : self._count] = new
        self._show()
        return first

    @property
    def head(self) -> np.ndarray:
        """The best total of each list that is still open; −inf if none is."""
        return np.where(self.taken < self.width, self._at_head(self.totals), -math.inf)

    @property
    def head_is_rest(self) -> np.ndarray:
        return self._at_head(self.tokens) == REST

    def _at_head(self, column: np.ndarray) -> np.ndarray:
        place = np.minimum(self.taken, self.width - 1)
        return column[np.arange(self._count), place]
