"""Lists of the words that may come next. Of a sparse output they are exhaustive at any length.

A list holds words, and beginnings of words that were not followed to their ends. A beginning stands
for all words that begin so and are not listed, with the score of them all; no beginning begins with
another, so every word belongs to one. Words and beginnings are everything that the model holds
possible; where scores are probabilities, they sum to one.
Of a softmax, which excludes nothing, a list holds the best words.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .states import Tokens
from .tree import Node, Tree

BEST = 10  # words of a dense output
# Beginnings that are followed in the hope that all words end. Lists that do not end with so many
# do not with thousands: rare pieces are joined to ever longer words that nobody would write.
QUICK, FULL = 32, 256
AT_ONCE = 256  # beginnings of one decoder's step
MOST = 20_000  # that one list follows at most when it is told to follow all
LEAST = 0.01  # of all scores: less probable beginnings stay closed if the words do not all end


@dataclass
class Candidate:
    """A word: the score of all its spellings in pieces, and the best of these. No name: the end of
    the sentence."""

    name: str | None
    score: float
    path: Tokens
    path_score: float


@dataclass
class Beginning:
    """All words that begin so and are not listed. ``longest``: they have more pieces than are ever
    followed."""

    name: str
    score: float
    nodes: list[Node] = field(repr=False)

    @property
    def longest(self) -> bool:
        return all(node.is_longest for node in self.nodes)


@dataclass
class NextWords:
    """``words`` and ``beginnings``: best first. ``complete``: the words are all there are."""

    words: list[Candidate]
    complete: bool
    total: float  # of the scores of all pieces at this place: 1, but for α-ReLU
    beginnings: list[Beginning] = field(default_factory=list)
    lost: float = 0.0  # score of what is no word: the sentence ends within one
    exact: bool = True  # else a beginning may hold rare spellings of words that are listed
    others: int = 0  # of a dense output: pieces that begin words which are not listed
    others_score: float = 0.0
    by_name: dict[str | None, Candidate] = field(init=False, repr=False)

    @property
    def items(self) -> list[Candidate | Beginning]:
        """Words and beginnings, best first."""
        return sorted([*self.words, *self.beginnings], key=lambda item: -item.score)

    @property
    def open_score(self) -> float:
        return sum(beginning.score for beginning in self.beginnings)

    @property
    def mass(self) -> float:
        """Of all that is possible; for α-ReLU it need not be the total of the pieces."""
        words = sum(word.score for word in self.words)
        return words + self.open_score + self.lost + self.others_score

    def __post_init__(self) -> None:
        self.by_name = {word.name: word for word in self.words}


class Listing:
    """What may come below some beginnings of a tree, listed further and further."""

    def __init__(
        self, tree: Tree, opened: Beginning | None = None, known: frozenset[str] = frozenset()
    ):
        """``opened``: only the words of a beginning; ``known``: without these, which are listed
        elsewhere."""
        self.tree, self.known = tree, known
        self.name = opened.name if opened else None
        self.start = list(opened.nodes) if opened else [tree.root]
        self.followed = 0

    def follow(self, budget: int) -> bool:
        """Follows so many beginnings in all, the most probable first. Whether some are left."""
        while waiting := self.waiting():
            if self.followed >= budget:
                return True
            chosen = waiting[: min(budget - self.followed, AT_ONCE)]
            self.tree.follow(chosen)
            self.followed += len(chosen)
        return False

    def waiting(self) -> list[Node]:
        """Beginnings that can be followed: first those without which there would be nothing new,
        because they have not all letters yet, or no more than what was opened."""
        found = [n for n in self.below(self.start) if not n.followed and not n.is_longest]

        def late(node: Node) -> tuple[bool, float]:
            return not node.letters and node.name != self.name, -node.score

        return sorted(found, key=late)

    def below(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """These and all that were found after them."""
        left = list(nodes)
        while left:
            node = left.pop()
            yield node
            left += node.nodes

    def left(self) -> tuple[int, float]:
        """How many beginnings are open, and their score."""
        scores = [node.score for node in self.below(self.start) if not node.followed]
        return len(scores), sum(scores)

    def shown(self, everything: bool, settled: int = 0) -> NextWords:
        """The list: with ``everything``, of all that was found; else short, with the less probable
        beginnings closed. ``settled``: how many beginnings may be followed for other spellings of
        its words."""
        least = 0.0 if everything else LEAST * self._mass()
        view = _View(self, least)
        return view.result(view.settle(settled))

    def _mass(self) -> float:
        score = 0.0
        for node in self.below(self.start):
            score += sum(s for _, s in node.ends) if node.followed else node.score
        return score


def ends_of(node: Node, tree: Tree) -> Iterator[tuple[str | None, Tokens, float]]:
    """The words that end after a node: name, path and score."""
    for added, score in node.ends:
        is_end = added == (tree.pieces.eos,)
        name = None if is_end else node.name + tree.pieces.name(added)
        yield name, node.path + added, score


def note(words: dict[str | None, Candidate], name: str | None, path: Tokens, score: float) -> None:
    """Adds one spelling of a word."""
    word = words.setdefault(name, Candidate(name, 0.0, path, 0.0))
    word.score += score
    if score > word.path_score:
        word.path, word.path_score = path, score


def in_order(words: dict[str | None, Candidate]) -> list[Candidate]:
    return sorted(words.values(), key=lambda word: (-word.score, word.name or ""))


class _View:
    """A list in the making: which beginnings are open, and what is listed then."""

    def __init__(self, listing: Listing, least: float):
        self.listing, self.tree = listing, listing.tree
        self.words: dict[str | None, Candidate] = {}
        self.closed: list[Node] = []
        self.lost = 0.0
        left = list(listing.start)
        first = {id(node) for node in left}
        while left:
            node = left.pop()
            is_open = node.score >= least or node.letters or id(node) in first
            if not node.followed or not is_open:
                self.closed.append(node)
                continue
            self.lost += node.lost
            self._note_ends(node)
            left += node.nodes
        names = {name for name in self.words if name} | listing.known
        self.leading = {name[:end] for name in names for end in range(len(name) + 1)}

    def _note_ends(self, node: Node, among: bool = False) -> float:
        """Notes the words that end after a node, or with ``among`` those of them that are listed
        already; returns the score of the others."""
        left = 0.0
        for name, path, score in ends_of(node, self.tree):
            if name in self.listing.known:
                continue
            if among and name not in self.words:
                left += score
            else:
                note(self.words, name, path, score)
        return left

    def settle(self, most: int) -> bool:
        """Follows closed beginnings where they may spell listed words, so that the scores of these
        are whole. False: there are more than so many such beginnings."""
        while waiting := self._unsettled():
            if len(waiting) > most:
                return False
            most -= len(waiting)
            for first in range(0, len(waiting), AT_ONCE):
                self.tree.follow(waiting[first : first + AT_ONCE])
        return True

    def _unsettled(self) -> list[Node]:
        below = self.listing.below(self.closed)
        return [n for n in below if not n.followed and not n.is_longest and n.name in self.leading]

    def result(self, exact: bool) -> NextWords:
        beginnings: dict[str, Beginning] = {}
        for node in sorted(self.closed, key=lambda node: len(node.name)):
            score = self._left(node)
            if score > 0:
                # The shortest beginning of this one, of which there is at most one.
                parts = (node.name[:end] for end in range(len(node.name)))
                name = next(filter(beginnings.__contains__, parts), node.name)
                beginning = beginnings.setdefault(name, Beginning(name, 0.0, []))
                beginning.score += score
                beginning.nodes.append(node)
        return NextWords(
            in_order(self.words),
            complete=not beginnings,
            total=self.tree.total,
            beginnings=sorted(beginnings.values(), key=lambda b: (-b.score, b.name)),
            lost=self.lost,
            exact=exact,
        )

    def _left(self, node: Node) -> float:
        """The score of what a closed beginning holds besides words that are listed."""
        score = 0.0
        for below in self.listing.below([node]):
            if below.followed:
                score += below.lost + self._note_ends(below, among=True)
            else:
                score += below.score
        return score


def all_words(listing: Listing, budget: int, settled: int = 0) -> NextWords:
    """All words if following ends within the budget; else a short list with beginnings."""
    more = listing.follow(budget)
    found = listing.shown(everything=not more, settled=settled)
    listing.tree.rest()
    return found


def best_words(tree: Tree, budget: int, best: int) -> NextWords:
    """The best words of a dense output."""
    words: dict[str | None, Candidate] = {}
    nodes, least = [tree.root], 0.0
    while nodes:
        for node in nodes:
            for end in ends_of(node, tree):
                note(words, *end)
        if len(words) >= best:
            least = heapq.nlargest(best, (word.score for word in words.values()))[-1]
        # A longer word is not more probable than its beginning.
        longer = [n for node in nodes for n in node.nodes if n.score > least and not n.is_longest]
        nodes = heapq.nlargest(budget, longer, key=lambda node: node.score)
        budget -= len(nodes)
        if nodes:
            tree.follow(nodes)
    tree.rest()
    listed = in_order(words)[:best]
    others = tree.first - len({word.path[0] for word in listed})
    left = max(tree.first_score - sum(word.score for word in listed), 0.0)
    return NextWords(listed, False, tree.total, others=others, others_score=left)
