"""All prefixes that the models were asked about, on the host, as a tree."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class PrefixTree:
    """A node is a prefix: its parent's, and one token more. Parents come before children; a
    sentence's root is the empty prefix."""

    parent: list[int] = field(default_factory=list)
    token: list[int] = field(default_factory=list)
    total: list[float] = field(default_factory=list)  # the sum of log-scores
    sentence: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.parent)

    def add(
        self,
        parents: Iterable[int],
        tokens: Iterable[int],
        totals: Iterable[float],
        sentences: Iterable[int],
    ) -> int:
        """Returns the number of the first new node; the others follow."""
        first = len(self)
        self.parent.extend(parents)
        self.token.extend(tokens)
        self.total.extend(totals)
        self.sentence.extend(sentences)
        return first

    def path(self, node: int) -> list[int]:
        """The nodes from the root to this one."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parent[node]
        return nodes[::-1]

    def tokens(self, node: int) -> list[int]:
        """With the token that starts the sentence."""
        return [self.token[n] for n in self.path(node)]

    def scores(self, node: int) -> list[float]:
        """Of each token after the one that starts the sentence."""
        totals = [self.total[n] for n in self.path(node)]
        pairs = zip(totals[1:], totals, strict=False)
        return [t if t == -math.inf else t - before for t, before in pairs]
