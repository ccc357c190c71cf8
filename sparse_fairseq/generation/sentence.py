"""What is known about one sentence: its finished hypotheses, and what was left unexplored.

The certificate (S2S §4.1) is decided here. It makes no assumption on the scores: they need not be
probabilities, and may grow with the length.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from .beams import Beams


@dataclass
class Ranking:
    """How finished hypotheses are compared."""

    normalize: bool
    len_penalty: float

    def normalized(self, total: float, length: int) -> float:
        return total / length**self.len_penalty

    def score(self, total: float, length: int) -> float:
        return self.normalized(total, length) if self.normalize else total

    def bound(self, total: float, shortest: int, longest: int) -> float:
        """No score of a hypothesis with these lengths is larger, if `total` cannot grow."""
        return max(self.score(total, shortest), self.score(total, longest))


@dataclass
class Sentence:
    """`exhaustive`: every hypothesis with a non-zero score is in `finished`, once the search of
    this sentence has ended."""

    ranking: Ranking
    exhaustive: bool
    finished: list[dict] = field(default_factory=list)
    reserve: dict | None = None

    def add(self, hypothesis: dict) -> None:
        self.finished.append(hypothesis)

    def replace_worst(self, hypothesis: dict) -> None:
        """Takes the place of the worst one, if it is better."""
        scores = [float(h["score"]) for h in self.finished]
        if float(hypothesis["score"]) > min(scores):
            self.finished[scores.index(min(scores))] = hypothesis

    def set_aside(self, hypothesis: dict) -> None:
        """A hypothesis that the beam had no place for: better than none."""
        if self.reserve is None or hypothesis["score"] > self.reserve["score"]:
            self.reserve = hypothesis

    def awaits_better(self, n: int, total: float) -> bool:
        """Whether an unfinished hypothesis with this total is ahead of the n-th finished one."""
        totals = sorted((h["total"] for h in self.finished), reverse=True)
        return total > totals[min(n, len(totals)) - 1]

    def can_end(self, n: int, total: float, shortest: int, longest: int) -> bool:
        """Whether no unfinished hypothesis, the best of which has this total, can become one of
        the n best; only for totals that cannot grow. An exhaustive search goes on, because it
        would lose its certificate."""
        if self.exhaustive or len(self.finished) < n:
            return False
        scores = sorted((float(h["score"]) for h in self.finished), reverse=True)
        return self.ranking.bound(total, shortest, longest) <= scores[n - 1]

    def result(self) -> list[dict]:
        """Hypotheses, best first, with their certificates."""
        hypotheses = sorted(self.finished, key=lambda h: float(h["score"]), reverse=True)
        totals = [h.pop("total") for h in hypotheses]
        lengths = [len(h["tokens"]) for h in hypotheses]
        normalized = list(map(self.ranking.normalized, totals, lengths))
        for i, hypothesis in enumerate(hypotheses):
            sure = self.exhaustive and hypothesis["status"] == "finished"
            hypothesis["exact"] = {
                "raw": sure and totals[i] == max(totals),
                "normalized": sure and normalized[i] == max(normalized),
            }
            hypothesis["exhaustive"] = self.exhaustive
        return hypotheses


def close(beams: Beams, row: int, total: Tensor, eos: int, ranking: Ranking, rest=()) -> dict:
    """The hypothesis of a row that ends here with `total`; `rest` is put before EOS."""
    tokens = torch.cat([beams.tokens[row, 1:], beams.tokens.new_tensor([*rest, eos])])
    end = total.new_full((len(rest),), -math.inf)
    cumulative = torch.cat([beams.scores[row].to(total), end, total.view(1)])
    attention = torch.empty(0)
    if beams.attention is not None:
        attention = _zeros_for(rest, beams.attention[row])
    hypothesis = {
        "tokens": tokens,
        "score": torch.as_tensor(ranking.score(total, len(tokens))),
        "attention": attention,
        "alignment": torch.empty(0),
        "positional_scores": per_position(cumulative),
        "total": float(total),
        "status": "finished" if total > -math.inf else "forced",
    }
    if beams.support is not None:
        hypothesis["support"] = _zeros_for(rest, beams.support[row])
    return hypothesis


def _zeros_for(rest, history: Tensor) -> Tensor:
    """A history [..., steps] with zeros for the tokens that were put there without a step: readers
    expect one column for each token."""
    return functional.pad(history, (0, len(rest)))


def per_position(cumulative: Tensor) -> Tensor:
    """Differences of cumulative scores; −inf where the score has become −inf, and after that."""
    before = torch.cat([cumulative.new_zeros(1), cumulative[:-1]])
    return torch.where(cumulative == -math.inf, cumulative, cumulative - before)
