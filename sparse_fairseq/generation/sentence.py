"""What is known about one sentence: its finished hypotheses, and a bound on all that was dropped.

Certificates are decided here. Where no prefix was left unexplored (S2S §4.1) they make no
assumption on the scores, which need not be probabilities and may grow with the length. Otherwise
they need totals that only fall: then a prefix bounds all that can follow it.
"""

import math
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Ranking:
    """How finished hypotheses are compared."""

    normalize: bool
    len_penalty: float

    def normalized(self, total: float, length: int) -> float:
        return total / length**self.len_penalty

    def score(self, total: float, length: int) -> float:
        return self.normalized(total, length) if self.normalize else total

    def normalized_bound(self, total: float, shortest: int, longest: int) -> float:
        """No normalised score of a hypothesis with these lengths is larger, if `total` ≤ 0 cannot
        grow."""
        return max(self.normalized(total, shortest), self.normalized(total, longest))

    def bound(self, total: float, shortest: int, longest: int) -> float:
        """The same for the score that counts."""
        return self.normalized_bound(total, shortest, longest) if self.normalize else total


@dataclass
class Ended:
    """A finished hypothesis: the prefix of a node, `rest`, and EOS."""

    node: int
    total: float
    length: int  # of the tokens, with EOS
    score: float
    rest: tuple[int, ...] = ()
    attention: Tensor | None = None  # [source, length - len(rest)]
    support: Tensor | None = None  # [length - len(rest)]

    @property
    def status(self) -> str:
        return "finished" if self.total > -math.inf else "forced"


@dataclass
class Sentence:
    ranking: Ranking
    seeks_best: bool  # a search for something else proves nothing
    only_falls: bool  # a longer hypothesis never has a larger total, and none is above 0
    is_probability: bool  # totals are logarithms of probabilities
    finished: list[Ended] = field(default_factory=list)
    reserve: Ended | None = None
    dropped: float = -math.inf  # the largest total of the prefixes that were left unexplored
    dropped_normalized: float = -math.inf  # what that may reach within the maximum length
    left_out: float = -math.inf  # the same of whole hypotheses that the list had no place for
    left_out_normalized: float = -math.inf
    beyond: float = -math.inf  # the largest total that the maximum length cut off
    beyond_normalized: float = -math.inf
    closed: float = 0.0  # probability that no allowed sentence has

    @property
    def exhaustive(self) -> bool:
        """Whether every hypothesis with a non-zero score is in `finished`, once the search of
        this sentence has ended."""
        return self._has_seen_all and self.left_out == -math.inf

    @property
    def _has_seen_all(self) -> bool:
        """Whether no prefix was left unexplored."""
        return self.seeks_best and self.dropped == self.beyond == -math.inf

    @property
    def _elsewhere(self) -> float:
        """No total of what is not in `finished` is larger, where that can be said."""
        return max(self.dropped, self.left_out, self.beyond)

    @property
    def _elsewhere_normalized(self) -> float:
        return max(self.dropped_normalized, self.left_out_normalized, self.beyond_normalized)

    @property
    def unexplored(self) -> float:
        """The same in the ranking that counts."""
        return self._elsewhere_normalized if self.ranking.normalize else self._elsewhere

    def reopen(self) -> None:
        """Another search is going to explore all that was dropped, and to find again what was
        left out."""
        self.dropped = self.dropped_normalized = -math.inf
        self.left_out = self.left_out_normalized = -math.inf

    def drop(self, total: float, shortest: int, longest: int) -> None:
        """Leaves a prefix unexplored; the lengths of what follows it are between these."""
        if total == -math.inf:
            return
        self.drop_bounds(total, self.ranking.normalized_bound(total, shortest, longest))

    def drop_bounds(self, total: float, normalized: float) -> None:
        """The same, given the bound on the normalised score."""
        self.dropped = max(self.dropped, total)
        self.dropped_normalized = max(self.dropped_normalized, normalized)

    def cut(self, total: float, longest: int) -> None:
        """Leaves a prefix unexplored that would be longer than the maximum length. Where long
        sentences are favoured, nothing bounds its normalised score: that is about sentences
        within the maximum length."""
        self.beyond = max(self.beyond, total)
        if self.ranking.len_penalty <= 0 and total > -math.inf:
            bound = self.ranking.normalized(total, longest + 1)
            self.beyond_normalized = max(self.beyond_normalized, bound)

    def add(self, ended: Ended) -> None:
        self.finished.append(ended)

    def add_to_full(self, ended: Ended) -> None:
        """Takes the place of the worst one, if it is better."""
        worst = min(range(len(self.finished)), key=lambda i: self.finished[i].score)
        if ended.score > self.finished[worst].score:
            ended, self.finished[worst] = self.finished[worst], ended
        self.leave_out(ended)

    def leave_out(self, ended: Ended) -> None:
        self.leave_out_scores(ended.total, self.ranking.normalized(ended.total, ended.length))

    def leave_out_scores(self, total: float, normalized: float) -> None:
        """The same of several hypotheses, given the largest of their scores."""
        self.left_out = max(self.left_out, total)
        self.left_out_normalized = max(self.left_out_normalized, normalized)

    def set_aside(self, ended: Ended) -> None:
        """A hypothesis that the beam had no place for: better than none."""
        if self.reserve is None or ended.score > self.reserve.score:
            self.reserve = ended

    def awaits_better(self, n: int, total: float) -> bool:
        """Whether an unfinished hypothesis with this total is ahead of the n-th finished one."""
        totals = sorted((h.total for h in self.finished), reverse=True)
        return total > totals[min(n, len(totals)) - 1]

    def nth_score(self, n: int) -> float:
        """Of the n-th best finished hypothesis; −inf if there are fewer."""
        scores = sorted((h.score for h in self.finished), reverse=True)
        return scores[n - 1] if len(scores) >= n else -math.inf

    def can_end(self, n: int, total: float, shortest: int, longest: int) -> bool:
        """Whether no unfinished hypothesis, the best of which has this total, can become one of
        the n best; only for totals that cannot grow. An exhaustive search goes on, because it
        would lose its certificate."""
        if self.exhaustive or len(self.finished) < n:
            return False
        return self.ranking.bound(total, shortest, longest) <= self.nth_score(n)

    @property
    def ranked(self) -> list[Ended]:
        """Best first."""
        return sorted(self.finished, key=lambda h: h.score, reverse=True)

    @property
    def can_prove(self) -> bool:
        """Whether what is known bounds all that is not: totals that may grow bound nothing but
        themselves."""
        return self._has_seen_all or (self.seeks_best and self.only_falls)

    def proofs(self, ended: Ended) -> dict:
        """What is known about one of the finished hypotheses."""
        raw = self._compare(ended.total, [h.total for h in self.finished], self._elsewhere)
        normalized = self._compare(
            self.ranking.normalized(ended.total, ended.length),
            [self.ranking.normalized(h.total, h.length) for h in self.finished],
            self._elsewhere_normalized,
        )
        sure = self.can_prove and ended.status == "finished"
        return {
            "exact": {"raw": raw[1] == 0, "normalized": normalized[1] == 0},
            "bound": {"raw": raw[0], "normalized": normalized[0]},
            "gap": {"raw": raw[1], "normalized": normalized[1]},
            "proved": sure and ended.score >= self.unexplored,
            "exhaustive": self.exhaustive,
            "mass": self.mass,
        }

    def _compare(self, score: float, scores: list[float], elsewhere: float):
        """(upper bound on the best score of all sentences, its distance to `score`), None where
        nothing is known, or nothing was found."""
        if not self.can_prove:
            return None, None
        bound = max(*scores, elsewhere)
        return bound, bound - score if score > -math.inf else None

    @property
    def listed_mass(self) -> float:
        return sum(math.exp(h.total) for h in self.finished)

    def is_settled(self, n: int, mass: float | None) -> bool:
        """Whether the list needs no further search: it provably holds the n best, or sentences
        with this probability."""
        if self.exhaustive:
            return True
        if mass is not None:
            return self.listed_mass >= mass
        return self.can_prove and self.nth_score(n) >= self.unexplored

    @property
    def mass(self) -> tuple[float, float] | None:
        """Bounds on the probability of all allowed sentences together: what the list has, and
        what may be left."""
        if not self.is_probability:
            return None
        found = self.listed_mass
        return found, found if self.exhaustive else max(found, 1.0 - self.closed)
