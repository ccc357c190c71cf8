"""What a search found, in the form in which fairseq's generators return it."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .prefix_tree import PrefixTree
from .sentence import Ended, Sentence


def to_hypotheses(
    sentences: list[Sentence], tree: PrefixTree, settings, device: torch.device
) -> list[list[dict]]:
    """Hypotheses of each sentence, best first, with their proofs."""
    found = [sentence.ranked for sentence in sentences]
    flat = [ended for ranked in found for ended in ranked]
    lengths = [ended.length for ended in flat]
    paths = tree.paths(np.array([ended.node for ended in flat]))
    known = list(zip(flat, tree.token[paths].tolist(), tree.total[paths].tolist(), strict=True))
    tokens = [t for ended, path, _ in known for t in _tokens(ended, path, settings.eos)]
    scores = [s for ended, _, totals in known for s in _scores(ended, totals)]
    # All at once, so that it waits for the device once.
    parts = zip(
        torch.tensor(tokens, device=device).split(lengths),
        torch.tensor(scores, device=device).split(lengths),
        torch.tensor([ended.score for ended in flat], device=device).unbind(),
        strict=True,
    )
    return [
        [_hypothesis(sentence, ended, *next(parts)) for ended in ranked]
        for sentence, ranked in zip(sentences, found, strict=True)
    ]


def _hypothesis(
    sentence: Sentence, ended: Ended, tokens: Tensor, positional: Tensor, score: Tensor
) -> dict:
    attention = torch.empty(0)
    if ended.attention is not None:
        attention = _zeros_for(ended.rest, ended.attention)
    hypothesis = {
        "tokens": tokens,
        "score": score,
        "attention": attention,
        "alignment": torch.empty(0),
        "positional_scores": positional,
        "status": ended.status,
        **sentence.proofs(ended),
    }
    if ended.support is not None:
        hypothesis["support"] = _zeros_for(ended.rest, ended.support)
    return hypothesis


def _tokens(ended: Ended, path: list[int], eos: int) -> list[int]:
    """`path` has the tokens that were searched for at its end."""
    return [*path[len(path) - _searched(ended) :], *ended.rest, eos]


def _scores(ended: Ended, totals: list[float]) -> list[float]:
    """Of each token; −inf from the first that the models hold impossible."""
    totals = totals[len(totals) - _searched(ended) - 1 :]
    pairs = zip(totals[1:], totals, strict=False)
    scores = [t if t == -math.inf else t - before for t, before in pairs]
    end = ended.total - totals[-1] if ended.status == "finished" else -math.inf
    return [*scores, *[-math.inf] * len(ended.rest), end]


def _searched(ended: Ended) -> int:
    """How many tokens a search has put there: not what a user demands beyond, nor EOS."""
    return ended.length - len(ended.rest) - 1


def _zeros_for(rest: tuple[int, ...], history: Tensor) -> Tensor:
    """A history [..., steps] with zeros for the tokens that were put there without a step: readers
    expect one column for each token."""
    return functional.pad(history, (0, len(rest)))
