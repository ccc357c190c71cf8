"""What the user's flags forbid or penalise at a step. Forbidden is −inf, as impossible is.

Rules change the log-scores [rows, vocabulary] that they are given in place, and never wait for the
device.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class TokenRules:
    pad: int
    unk: int
    eos: int
    unk_penalty: float
    min_len: int
    suppressed: Tensor  # tokens that are never allowed
    ngram_size: int

    def only_pad_at(self, step: int) -> bool:
        """Whether nothing but padding is forbidden, and nothing penalised, at this step."""
        free = self.unk_penalty == 0 and not len(self.suppressed) and self.ngram_size < 1
        return free and step >= self.min_len

    def apply(self, lprobs: Tensor, tokens: Tensor, prefix: Tensor | None) -> None:
        """`tokens` [rows, step + 1] are the hypotheses so far, `prefix` [rows] what must come next
        (padding: anything); without `prefix` the rules for free tokens hold."""
        step = tokens.shape[1] - 1
        lprobs[:, self.pad] = -math.inf
        lprobs[:, self.unk] -= self.unk_penalty
        if prefix is not None:
            _allow_only(lprobs, prefix, self.pad)
        else:
            if step < self.min_len:
                lprobs[:, self.eos] = -math.inf
            if len(self.suppressed):
                self.suppressed = self.suppressed.to(lprobs.device)
                lprobs.index_fill_(1, self.suppressed, -math.inf)
        if 0 < self.ngram_size <= step:
            _forbid_repeated_ngrams(lprobs, tokens[:, 1:], self.ngram_size)

    def end(self, lprobs: Tensor) -> Tensor:
        """Allows nothing but EOS; returns the best score [rows] with which each row could have
        gone on."""
        eos = lprobs[:, self.eos].clone()
        lprobs[:, self.eos] = -math.inf
        best = lprobs.amax(1)
        lprobs.fill_(-math.inf)
        lprobs[:, self.eos] = eos
        return best


def _allow_only(lprobs: Tensor, prefix: Tensor, pad: int) -> None:
    forced, wanted = (prefix != pad).unsqueeze(1), prefix.unsqueeze(1)
    kept = lprobs.gather(1, wanted)  # of rows without a wish: padding, which is forbidden already
    lprobs.masked_fill_(forced, -math.inf)
    lprobs.scatter_(1, wanted, kept)


def _forbid_repeated_ngrams(lprobs: Tensor, output: Tensor, size: int) -> None:
    """Forbids each token that would end an n-gram which is in the output [rows, step] already.

    fairseq's own rule does nothing off CUDA: its generator hands over a buffer whose last tokens,
    with which the n-grams are compared, are padding.
    """
    ngrams = output.unfold(1, size, 1)  # [rows, positions, size]
    start = output[:, output.shape[1] - size + 1 :].unsqueeze(1)
    repeated = (ngrams[:, :, :-1] == start).all(2)
    most = torch.where(repeated, -math.inf, math.inf).to(lprobs)
    lprobs.scatter_reduce_(1, ngrams[:, :, -1], most, "amin")
