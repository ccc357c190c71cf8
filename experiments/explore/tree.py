"""The tree of pieces below a place: which words end where, and which beginnings go on.

Nothing here decides what is shown. A piece that ends no word is a beginning; it is followed when
somebody asks for it, many at once, and what follows it is remembered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torch import Tensor, bincount

from .states import PrefixStates, Rows, Tokens
from .units import Pieces

LONGEST = 16  # pieces of a word that are followed

Found = tuple[list[int], list[float]]  # pieces and their scores


@dataclass(eq=False)
class Node:
    """The beginning of a word. Once it was followed: the words that end with at most one more
    piece, the beginnings that go on, and the score of what is no word (the sentence ends here)."""

    path: Tokens
    name: str  # the letters so far
    score: float
    letters: str = ""  # that a word is to have and that are still to come
    followed: bool = False
    ends: list[tuple[Tokens, float]] = field(default_factory=list)  # what is added to the path
    nodes: list["Node"] = field(default_factory=list)
    lost: float = 0.0

    @property
    def is_longest(self) -> bool:
        return len(self.path) >= LONGEST


class Tree:
    """Below one prefix of one source."""

    def __init__(
        self,
        states: PrefixStates,
        pieces: Pieces,
        source: Tokens,
        prefix: Tokens,
        letters: str = "",
        whole: bool = False,
        keep: int | None = None,
    ):
        """Words that begin with ``letters``, in any case; with ``whole``, that are spelled so
        exactly. ``keep``: how many pieces of a step are looked at, for a dense output."""
        self.states, self.pieces, self.source, self.prefix = states, pieces, source, prefix
        self.wanted = letters if whole else None
        self.keep = keep
        rows = states.after(source, prefix)
        scores = rows.scores[0]
        share = 1.0
        if pieces.ends_late and prefix:  # given that the word before has ended
            share = max(float(scores[pieces.beginners].sum()), 1e-30)
        self.root = Node((), "", 1 / share, letters)
        self.total = float(scores[pieces.counted].sum()) / share
        first = self._fitting(self.root)
        self.first, self.first_score = len(first), float(scores[first].sum()) / share
        self._rows: Rows | None = None  # of the nodes that were followed last
        self._row_of: dict[Tokens, int] = {}
        self._look(rows.scores, [self.root])

    def follow(self, nodes: Sequence[Node]) -> None:
        """Looks at what comes after these."""
        if self._rows is not None and all(node.path[:-1] in self._row_of for node in nodes):
            self._step(self._rows, self._row_of, nodes, [node.path for node in nodes])
            return
        # Their states are not kept: from the prefix on, each piece that some share once.
        rows, row_of = self.states.after(self.source, self.prefix), {(): 0}
        for length in range(1, max(len(node.path) for node in nodes) + 1):
            here = [node for node in nodes if len(node.path) == length]
            paths = [node.path for node in here]
            longer = {node.path[:length] for node in nodes if len(node.path) > length}
            rows, row_of = self._step(rows, row_of, here, [*paths, *longer.difference(paths)])

    def rest(self) -> None:
        """Forgets the decoder's states, which are large."""
        self._rows, self._row_of = None, {}

    def _step(
        self, rows: Rows, row_of: dict[Tokens, int], nodes: Sequence[Node], paths: list[Tokens]
    ) -> tuple[Rows, dict[Tokens, int]]:
        """``paths``: first those of the nodes, then others that are on the way to longer ones."""
        parents = [row_of[path[:-1]] for path in paths]
        rows = self.states.onward(rows, parents, [self.prefix + path for path in paths])
        if nodes:
            self._look(rows.scores[: len(nodes)], nodes)
        self._rows, self._row_of = rows, {path: row for row, path in enumerate(paths)}
        return self._rows, self._row_of

    def _look(self, scores: Tensor, nodes: Sequence[Node]) -> None:
        """Row i is what comes after node i; all are roots, or none is."""
        pieces, inside = self.pieces, bool(nodes[0].path)
        none = pieces.no_word_inside if inside else pieces.uncounted
        lost = scores[:, none].sum(1).tolist()
        ending = scores[:, pieces.beginners].sum(1).tolist() if pieces.ends_late else []
        for i, (node, found) in enumerate(zip(nodes, self._found(scores, nodes), strict=True)):
            node.followed = True
            if not node.letters and self.wanted is None:
                node.lost = node.score * lost[i]
            if pieces.ends_late and inside and ending[i] > 0 and not node.letters:
                node.ends.append(((), node.score * ending[i]))
            self._note(node, *found)

    def _note(self, node: Node, found: list[int], scores: list[float]) -> None:
        pieces = self.pieces
        for piece, score in zip(found, scores, strict=True):
            if piece == pieces.eos:
                node.ends.append(((piece,), node.score * score))
                continue
            name = node.name + pieces.letters[piece]
            if pieces.goes_on[piece] or pieces.ends_late:
                if self.wanted is None or self._leads(name):
                    left = node.letters[len(pieces.letters[piece]) :]
                    path = (*node.path, piece)
                    node.nodes.append(Node(path, name, node.score * score, left))
            elif self.wanted is None or name == self.wanted:
                node.ends.append(((piece,), node.score * score))

    def _leads(self, name: str) -> bool:
        """Whether the word that is wanted begins so."""
        longer = len(name) < len(self.wanted) or self.pieces.ends_late
        return longer and self.wanted.startswith(name)

    def _found(self, scores: Tensor, nodes: Sequence[Node]) -> list[Found]:
        """Pieces with a score that may come next, of each node."""
        if self.keep is not None or any(node.letters for node in nodes):
            return [self._found_one(*row) for row in zip(scores, nodes, strict=True)]
        allowed = self._fitting(nodes[0])
        values = scores[:, allowed]
        rows, columns = values.nonzero(as_tuple=True)
        last = bincount(rows, minlength=len(nodes)).cumsum(0).tolist()
        found, values = allowed[columns].tolist(), values[rows, columns].tolist()
        return [(found[a:b], values[a:b]) for a, b in pairwise([0, *last])]

    def _found_one(self, scores: Tensor, node: Node) -> Found:
        allowed = self._fitting(node)
        values = scores[allowed]
        order = values.nonzero().squeeze(1)
        if self.keep is not None and len(order) > self.keep:
            order = values.topk(self.keep).indices
        return allowed[order].tolist(), values[order].tolist()

    def _fitting(self, node: Node) -> Tensor:
        """Pieces that may come next at all."""
        pieces, inside = self.pieces, bool(node.path)
        if not node.letters:
            if inside:
                return pieces.inside
            return pieces.beginners if pieces.ends_late and self.prefix else pieces.counted
        found = pieces.fitting(node.letters)
        if pieces.ends_late and (inside or self.prefix):
            # Within a word only what does not begin one; between words only what does.
            found = found[pieces.begins_word[found] != inside]
        return found
