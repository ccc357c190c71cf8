"""Every word that may come next, from pieces: those that do not end a word are followed until all
words have ended.

Exhaustive for sparse outputs, up to a budget; of a softmax, which excludes nothing, the best.
"""

import heapq
from dataclasses import dataclass, field

from torch import Tensor

from .states import PrefixStates, Rows, Tokens
from .units import Pieces

BEST = 10  # words of a dense output
QUICK, FULL = 64, 1024  # beginnings of words that are followed
LONGEST = 16  # pieces of a word that are followed


@dataclass
class Candidate:
    """A word: the score of all its spellings in pieces, and the best of these. No name: the end of
    the sentence."""

    name: str | None
    score: float
    path: Tokens
    path_score: float


@dataclass
class NextWords:
    """``words``: best first. ``complete``: there are no others. Else ``others`` says how many
    pieces, with which score in all, begin words that are not among them."""

    words: list[Candidate]
    complete: bool
    total: float  # of all scores at this place: 1, but for α-ReLU and a filter by letters
    others: int = 0
    others_score: float = 0.0
    by_name: dict[str | None, Candidate] = field(init=False, repr=False)

    @property
    def mass(self) -> float:
        """Of all words, known or not; for α-ReLU it need not be the total of the pieces."""
        return sum(word.score for word in self.words) + self.others_score

    def __post_init__(self) -> None:
        self.by_name = {word.name: word for word in self.words}


@dataclass
class _Beginning:
    row: int  # of the rows that it continues
    path: Tokens
    score: float
    letters: str  # that are still to come


class Search:
    """One search; `run` gives its result."""

    def __init__(
        self,
        states: PrefixStates,
        pieces: Pieces,
        source: Tokens,
        dense: bool,
        budget: int = QUICK,
        best: int = BEST,
    ):
        """``budget``: how many beginnings of words may be followed; ``best``: how many words of a
        dense output are wanted."""
        self.states, self.pieces, self.source, self.dense = states, pieces, source, dense
        self.budget, self.best = budget, best
        self.words: dict[str | None, Candidate] = {}
        self.followed = 0
        self.others, self.others_score = 0, 0.0
        self.first, self.first_score = 0, 0.0  # pieces that may begin a word

    def run(self, prefix: Tokens, letters: str = "", whole: bool = False) -> NextWords:
        """Words that begin with these letters, in any case; with ``whole``, that are spelled so
        exactly."""
        self.prefix, self.wanted = prefix, letters if whole else None
        rows = self.states.after(self.source, prefix)
        total = float(rows.scores[0, self.pieces.counted].sum())
        self.share = 1.0
        if self.pieces.ends_late and prefix:  # given that the word before has ended
            self.share = max(self._ending(rows.scores[0]), 1e-30)
        beginnings = self._look(rows, [_Beginning(0, (), 1.0, letters)])
        while beginnings:
            beginnings = self._within_budget(beginnings)
            if not beginnings:
                break
            self.followed += len(beginnings)
            paths = [prefix + beginning.path for beginning in beginnings]
            rows = self.states.onward(rows, [b.row for b in beginnings], paths)
            for row, beginning in enumerate(beginnings):
                beginning.row = row
            beginnings = self._look(rows, beginnings)
        return self._result(total / self.share)

    def _look(self, rows: Rows, beginnings: list[_Beginning]) -> list[_Beginning]:
        """Notes the words that end in the next piece; returns what does not end yet."""
        longer = []
        for beginning in beginnings:
            scores = rows.scores[beginning.row]
            if self.pieces.ends_late and beginning.path and not beginning.letters:
                self._note(beginning.path, beginning.score * self._ending(scores) / self.share)
            if self.wanted is not None and beginning.path and not beginning.letters:
                continue  # what goes on is longer
            for piece, score in self._candidates(scores, beginning):
                path, value = (*beginning.path, piece), beginning.score * score
                if piece == self.pieces.eos:
                    self._note((piece,), value / self.share)
                elif self.pieces.goes_on[piece] or self.pieces.ends_late:
                    left = beginning.letters[len(self.pieces.letters[piece]) :]
                    longer.append(_Beginning(beginning.row, path, value, left))
                else:
                    self._note(path, value)
        return longer

    def _candidates(self, scores: Tensor, beginning: _Beginning) -> list[tuple[int, float]]:
        """Pieces with a score that may come next, and their scores."""
        allowed = self.pieces.counted
        if beginning.letters:
            allowed = self.pieces.fitting(beginning.letters)
        values = scores[allowed]
        if not beginning.path:
            self.first, self.first_score = len(allowed), float(values.sum())
        order = values.nonzero().squeeze(1)
        if self.dense and len(order) > 4 * self.best:
            order = values.topk(4 * self.best).indices
        found = zip(allowed[order].tolist(), values[order].tolist(), strict=True)
        inside = bool(beginning.path)
        if self.pieces.ends_late and (inside or self.prefix):
            # Within a word only what does not begin one; between words only what does.
            return [(i, score) for i, score in found if self.pieces.begins[i] != inside]
        if inside:  # BPE has no end within a word
            return [(i, score) for i, score in found if i != self.pieces.eos]
        return list(found)

    def _ending(self, scores: Tensor) -> float:
        """The score of all that may follow a word that has ended."""
        return float(scores[self.pieces.beginners].sum())

    def _note(self, path: Tokens, score: float) -> None:
        name = None if path == (self.pieces.eos,) else self.pieces.name(path)
        if score <= 0 or (self.wanted is not None and name != self.wanted):
            return
        word = self.words.setdefault(name, Candidate(name, 0.0, path, 0.0))
        word.score += score
        if score > word.path_score:
            word.path, word.path_score = path, score

    def _within_budget(self, beginnings: list[_Beginning]) -> list[_Beginning]:
        """Those that are followed; the others are counted."""
        beginnings.sort(key=lambda beginning: -beginning.score)
        kept = beginnings[: max(self.budget - self.followed, 0)]
        if len(beginnings[0].path) >= LONGEST:
            kept = []
        if self.dense:  # a longer word is not more probable than its beginning
            best = heapq.nlargest(self.best, (word.score for word in self.words.values()))
            least = best[-1] if len(best) == self.best else 0.0
            kept = [beginning for beginning in kept if beginning.score > least]
        left = beginnings[len(kept) :]
        self.others += len(left)
        self.others_score += sum(beginning.score for beginning in left)
        return kept

    def _result(self, total: float) -> NextWords:
        words = sorted(self.words.values(), key=lambda word: (-word.score, word.name or ""))
        if not self.dense:
            complete = self.others == 0
            return NextWords(words, complete, total, self.others, self.others_score / self.share)
        words = words[: self.best]
        others = self.first - len({word.path[0] for word in words})
        shown = sum(word.score for word in words)
        return NextWords(words, False, total, others, max(self.first_score - shown, 0.0))
