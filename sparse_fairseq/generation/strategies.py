"""fairseq's search strategies on rows that come and go.

A strategy wants `beam` rows of every sentence. Slots without a row are −inf for it, so nothing it
returns for them counts.
"""

import math
from dataclasses import dataclass

import torch
from fairseq import search
from torch import Tensor

from .beams import Beams, Candidates
from .errors import GenerationError
from .shortlist import renormalize


def is_plain(strategy: search.Search) -> bool:
    return type(strategy) is search.BeamSearch


def keeps_places(strategy: search.Search) -> bool:
    """Diverse beam search tells its groups by slot."""
    return isinstance(strategy, search.DiverseBeamSearch)


def needs_all_rows(strategy: search.Search) -> bool:
    """Top-p sampling draws as many random numbers as the widest row has candidates. Rows that
    have ended go on, as in fairseq, so that the same seed gives the same samples."""
    return isinstance(strategy, search.Sampling) and strategy.sampling_topp > 0


def check(strategy: search.Search, beam: int, vocab_size: int) -> None:
    """Refuses settings with which the strategy itself would fail in the middle of a batch."""
    if isinstance(strategy, search.DiverseBeamSearch) and beam % strategy.num_groups:
        raise GenerationError(
            f"--diverse-beam-groups {strategy.num_groups} does not divide the beam of {beam}"
        )
    # With both flags, fairseq looks at --sampling-topp alone.
    top_k = isinstance(strategy, search.Sampling) and strategy.sampling_topp <= 0
    if top_k and strategy.sampling_topk > vocab_size:
        raise GenerationError(
            f"--sampling-topk {strategy.sampling_topk} is larger than the vocabulary of "
            f"{vocab_size}"
        )
    # It wants that many candidates of each row.
    if isinstance(strategy, search.DiverseSiblingsSearch) and 2 * beam > vocab_size:
        raise GenerationError(
            f"--diversity-rate needs a vocabulary of twice the beam of {beam}, and it is "
            f"{vocab_size}: use --beam {vocab_size // 2} or less"
        )


@dataclass
class Outlook:
    """What a strategy is told beside the log-scores."""

    ids: Tensor  # [sentences] their numbers in the corpus
    slots: int  # the beam
    sums_to_one: bool
    eos: int
    can_end: Tensor  # [rows] whether the models give EOS a score
    finished: Tensor  # [sentences] how many hypotheses have ended


def propose(strategy: search.Search, lprobs: Tensor, beams: Beams, known: Outlook) -> Candidates:
    """Candidates from log-scores [rows, vocabulary]."""
    step = beams.scores.shape[1]
    rows, taken = beams.rows_of_slots(known.slots)
    if step == 0:  # all hypotheses are still the same
        taken = torch.ones_like(taken)
    scores = beams.scores[rows].masked_fill(~taken.unsqueeze(2), -math.inf)
    grid = lprobs[rows].masked_fill(~taken.unsqueeze(2), -math.inf)
    sampling = isinstance(strategy, search.Sampling)
    seen = _samplable(grid, strategy, known) if sampling else grid
    prefixes = beams.tokens[rows.view(-1)]
    score, token, slot = strategy.step(step, seen, scores, prefixes, known.ids)
    if sampling:  # a strategy that sees renormalised scores returns those
        score = grid[torch.arange(len(grid)).to(slot).unsqueeze(1), slot, token]
        if step > 0:
            score = score + scores[:, :, -1].gather(1, slot)
    if isinstance(strategy, search.LengthConstrainedBeamSearch):
        # At the maximum length it gives EOS the log-score 0, whatever the models say.
        impossible = (token == known.eos) & ~known.can_end[rows].gather(1, slot)
        score = score.masked_fill(impossible, -math.inf)
    if isinstance(strategy, search.PrefixConstrainedBeamSearch):
        # It proposes no spare candidates: as in fairseq, each finished hypothesis takes a place.
        place = torch.arange(score.shape[1], device=score.device)
        score = score.masked_fill(place >= known.slots - known.finished.unsqueeze(1), -math.inf)
    return Candidates(score, token, rows.gather(1, slot), score.shape[1])


def _samplable(grid: Tensor, strategy: search.Sampling, known: Outlook) -> Tensor:
    """A copy for the sampler to work on. A row without support needs something to draw; its score
    stays −inf. A share p of the mass is a share of p / Σp."""
    seen = grid.clone()
    if strategy.sampling_topp > 0 and not known.sums_to_one:
        seen = renormalize(seen)
    empty = seen.amax(2) == -math.inf
    seen[..., known.eos] = seen[..., known.eos].masked_fill(empty, 0.0)
    return seen
