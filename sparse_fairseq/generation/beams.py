"""The hypotheses that are still growing, and the candidates for their next tokens.

Tensors are on the device; who belongs to which sentence is known on the host. What may follow is
decided elsewhere.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass
class Beams:
    """Rows sorted by sentence and slot. A slot is a place in the beam; some may have no row."""

    sentence: np.ndarray  # [rows] index among the sentences that are still running
    slot: np.ndarray  # [rows]
    first_node: int  # of the prefix tree: that of row 0; the others follow
    grid: Tensor  # [sentences, slots] the row in each slot; -1: none
    tokens: Tensor  # [rows, step + 1], with the token that starts the sentence
    scores: Tensor  # [rows, step], cumulative
    attention: Tensor | None = None  # [rows, source, step]
    support: Tensor | None = None  # [rows, step]

    @classmethod
    def start(cls, sentences: int, bos: int, device: torch.device) -> "Beams":
        """One row for each sentence."""
        index = np.arange(sentences)
        tokens = torch.full((sentences, 1), bos, device=device)
        scores = torch.zeros(sentences, 0, device=device)
        grid = torch.arange(sentences, device=device).unsqueeze(1)
        return cls(index, np.zeros_like(index), 0, grid, tokens, scores)

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

    def rows_of_slots(self, slots: int) -> tuple[Tensor, Tensor]:
        """(row in each slot, whether the slot has a row), both [sentences, slots]; a slot without
        a row names some row of its sentence."""
        missing = slots - self.grid.shape[1]
        grid = torch.nn.functional.pad(self.grid, (0, missing), value=-1)
        taken = grid >= 0
        return torch.where(taken, grid, self.grid.amax(1, keepdim=True)), taken

    def extend(
        self, rows: "NextRows", first_node: int, dtype: torch.dtype
    ) -> tuple["Beams", Tensor]:
        """(beams in which row r is row parents[r] of these and one token more, parents)."""
        parents, token, score, grid = rows.to(self.tokens.device)
        score = score.to(dtype)
        beams = Beams(
            rows.sentence,
            rows.slot,
            first_node,
            grid,
            torch.cat([self.tokens[parents], token.unsqueeze(1)], 1),
            torch.cat([self.scores[parents].to(score), score.unsqueeze(1)], 1),
            None if self.attention is None else self.attention[parents],
            None if self.support is None else self.support[parents],
        )
        return beams, parents


def _append(history: Tensor | None, now: Tensor) -> Tensor:
    now = now.unsqueeze(-1)
    return now if history is None else torch.cat([history, now], -1)


@dataclass
class NextRows:
    """What the host decided: the rows of the next step."""

    sentence: np.ndarray  # [rows]
    slot: np.ndarray  # [rows]
    parents: np.ndarray  # [rows] rows of the step before
    token: np.ndarray  # [rows]
    score: np.ndarray  # [rows] cumulative
    sentences: int

    def to(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(parents, token, score, grid) on the device; all at once, so that it waits once."""
        slots = int(self.slot.max()) + 1
        grid = np.full(self.sentences * slots, -1.0)
        grid[self.sentence * slots + self.slot] = np.arange(len(self.slot))
        flat = np.concatenate([self.parents, self.token, self.score, grid])
        moved = torch.from_numpy(flat).to(device)
        parents, token, score, places = moved.split([len(self.slot)] * 3 + [len(grid)])
        return parents.long(), token.long(), score, places.long().view(self.sentences, slots)


@dataclass
class Candidates:
    """Possible next tokens, [sentences, candidates], in the order in which the search wants them.
    Those from position `usable` on only show that there were more."""

    score: Tensor  # cumulative; −inf if there is none
    token: Tensor
    row: Tensor  # the row that it continues
    usable: int

    def on_host(self, *others: Tensor | None) -> tuple["HostCandidates", list]:
        """These candidates, and other vectors; all at once, so that it waits once."""
        shape = self.score.shape
        known = [x for x in others if x is not None]
        flat = [x.reshape(-1).double() for x in (self.score, self.token, self.row, *known)]
        parts = torch.cat(flat).cpu().split([len(x) for x in flat])
        score, token, row, *rest = (part.numpy() for part in parts)
        found = HostCandidates(
            score.reshape(shape),
            token.astype(np.int64).reshape(shape),
            row.astype(np.int64).reshape(shape),
            self.usable,
        )
        given = iter(rest)
        return found, [None if x is None else next(given) for x in others]


@dataclass
class HostCandidates:
    """The same as arrays, for decisions."""

    score: np.ndarray
    token: np.ndarray
    row: np.ndarray
    usable: int

    @property
    def finite(self) -> np.ndarray:
        return self.score > -math.inf


def merge(beams: Beams, scores: Tensor, tokens: Tensor, count: int) -> Candidates:
    """The best `count` candidates of each sentence, and one more, from the best `scores`
    [rows, k] of each row."""
    total = scores + beams.total.unsqueeze(1)
    k, (sentences, slots) = total.shape[1], beams.grid.shape
    if len(beams) < sentences * slots:  # the last row, of −inf, is that of slots without a row
        total = torch.cat([total, total.new_full((1, k), -math.inf)])[beams.grid]
    best, where = total.view(sentences, slots * k).topk(min(count + 1, slots * k))
    row = beams.grid.gather(1, where // k).clamp(min=0)
    return Candidates(best, tokens[row, where % k], row, count)
