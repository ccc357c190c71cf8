"""The hypotheses that are still growing, and the candidates for their next tokens.

Only tensors and their bookkeeping: what may follow is decided elsewhere.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Beams:
    """Rows sorted by sentence and slot. A slot is a place in the beam; some may have no row."""

    sentence: Tensor  # [rows] index among the sentences that are still running
    slot: Tensor  # [rows]
    tokens: Tensor  # [rows, step + 1], with the token that starts the sentence
    scores: Tensor  # [rows, step], cumulative
    attention: Tensor | None = None  # [rows, source, step]
    support: Tensor | None = None  # [rows, step]

    @classmethod
    def start(cls, sentences: int, bos: int, device: torch.device) -> "Beams":
        """One row for each sentence."""
        index = torch.arange(sentences, device=device)
        tokens = torch.full((sentences, 1), bos, device=device)
        scores = torch.zeros(sentences, 0, device=device)
        return cls(index, torch.zeros_like(index), tokens, scores)

    def __len__(self) -> int:
        return len(self.sentence)

    @property
    def total(self) -> Tensor:
        """Score of each row so far."""
        if self.scores.shape[1] == 0:
            return self.scores.new_zeros(len(self))
        return self.scores[:, -1]

    def record(self, attention: Tensor | None, support: Tensor | None) -> None:
        """Adds what a step told about the rows as they are now."""
        if attention is not None:
            self.attention = _append(self.attention, attention)
        if support is not None:
            self.support = _append(self.support, support)

    def rows_of_slots(self, sentences: int, slots: int) -> tuple[Tensor, Tensor]:
        """(row in each slot, whether the slot has a row), both [sentences, slots]; a slot without
        a row names some row of its sentence."""
        place = self.sentence * slots + self.slot
        first = torch.searchsorted(self.sentence, torch.arange(sentences).to(self.sentence))
        rows = first.unsqueeze(1).repeat(1, slots).view(-1)
        rows[place] = torch.arange(len(self), device=rows.device)
        taken = torch.zeros_like(rows, dtype=torch.bool)
        taken[place] = True
        return rows.view(sentences, slots), taken.view(sentences, slots)

    def extend(self, parents: Tensor, sentence: Tensor, slot: Tensor, token: Tensor, score: Tensor):
        """Beams in which row r is row parents[r] of these and one token more."""
        return Beams(
            sentence,
            slot,
            torch.cat([self.tokens[parents], token.unsqueeze(1)], 1),
            torch.cat([self.scores[parents].to(score), score.unsqueeze(1)], 1),
            None if self.attention is None else self.attention[parents],
            None if self.support is None else self.support[parents],
        )


def _append(history: Tensor | None, now: Tensor) -> Tensor:
    now = now.unsqueeze(-1)
    return now if history is None else torch.cat([history, now], -1)


@dataclass
class Candidates:
    """Possible next tokens, [sentences, candidates], in the order in which the search wants them.
    Those from position `usable` on only show that there were more."""

    score: Tensor  # cumulative; −inf if there is none
    token: Tensor
    row: Tensor  # the row that it continues
    usable: int

    @property
    def finite(self) -> Tensor:
        return self.score > -math.inf


def merge(beams: Beams, scores: Tensor, tokens: Tensor, sentences: int, count: int) -> Candidates:
    """The best `count` candidates of each sentence, and one more, from the best `scores`
    [rows, k] of each row."""
    total = scores + beams.total.unsqueeze(1)
    rows, k = total.shape
    slots = int(beams.slot.max()) + 1
    if rows == sentences * slots:
        row_in_slot = torch.arange(rows, device=total.device).view(sentences, slots)
        table = total
    else:
        row_in_slot, _ = beams.rows_of_slots(sentences, slots)
        table = total.new_full((sentences * slots, k), -math.inf)
        table[beams.sentence * slots + beams.slot] = total
    best, where = table.view(sentences, slots * k).topk(min(count + 1, slots * k))
    row = row_in_slot.gather(1, where // k)
    return Candidates(best, tokens[row, where % k], row, count)
