"""What a loss is computed from and what comes out: the types that all routes share. Little math:
q, its entropy, and the two mappings by name."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _tsallis

Alpha = float | Tensor  # a number, or float64 [rows, 1]


# --- mappings -------------------------------------------------------------------------------


@dataclass(frozen=True)
class EntmaxMapping:
    """α-entmax. Ω is the negative Tsallis entropy."""

    alpha: Alpha
    solver: str = "auto"
    topk: int = 100
    n_iter: int = 50

    def negentropy(self, q: Tensor) -> Tensor:
        return -_tsallis.entropy(q, self.alpha)

    def with_alpha(self, alpha: Tensor | None) -> "EntmaxMapping":
        if alpha is None:
            return self
        return EntmaxMapping(alpha, self.solver, self.topk, self.n_iter)

    def of_rows(self, rows: slice | Tensor) -> "EntmaxMapping":
        return self.with_alpha(self.alpha[rows] if isinstance(self.alpha, Tensor) else None)


@dataclass(frozen=True)
class AlphaReLUMapping:
    """α-ReLU. Ω(q) = Σ q^α / (α(α−1)), the entropy of SE Eq. 2 but for its constant; Eq. 14 prints
    another one, which is not consistent with Lemma 1."""

    alpha: float
    tau: float

    def negentropy(self, q: Tensor) -> Tensor:
        return q.pow(self.alpha).sum(-1, keepdim=True) / (self.alpha * (self.alpha - 1.0))

    def with_alpha(self, alpha: Tensor | None) -> "AlphaReLUMapping":
        return self  # α is a number here

    def of_rows(self, rows: slice | Tensor) -> "AlphaReLUMapping":
        return self


Mapping = EntmaxMapping | AlphaReLUMapping


# --- targets --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """q for every row: (1−ε)e_y + ε/V for class indices y, or given rows of weights."""

    index: Tensor | None  # int64 [rows]; 0 where a row does not count
    rows: Tensor | None  # [rows, classes]
    smoothing: float
    classes: int

    def dense(self, dtype: torch.dtype) -> Tensor:
        if self.rows is not None:
            q = self.rows.to(dtype)
            return q.lerp(torch.full_like(q, 1 / self.classes), self.smoothing)
        assert self.index is not None
        # Not F.one_hot, which reads the indices on the host.
        rest, index = self.smoothing / self.classes, self.index[:, None]
        q = torch.full((len(index), self.classes), rest, dtype=dtype, device=index.device)
        return q.scatter(1, index, 1 - self.smoothing + rest)

    def likeliest(self) -> Tensor:
        """The class that counts as the right one."""
        if self.rows is not None:
            return self.rows.argmax(1)
        assert self.index is not None
        return self.index

    def of_rows(self, rows: slice | Tensor) -> "Target":
        return Target(
            None if self.index is None else self.index[rows],
            None if self.rows is None else self.rows[rows],
            self.smoothing,
            self.classes,
        )

    def score(self, z: Tensor, shift: Tensor | float, wide: torch.dtype) -> Tensor:
        """qᵀ(z − shift) [rows, 1] in ``wide``, without what q = 0 multiplies."""
        if self.rows is not None:
            q = self.dense(wide)
            return (q * (z.to(wide) - shift).where(q != 0, 0.0)).sum(1, keepdim=True)
        assert self.index is not None
        at_target = z.gather(1, self.index[:, None]).to(wide) - shift
        if not self.smoothing:
            return at_target
        mean = z.mean(1, keepdim=True, dtype=wide) - shift
        return (1 - self.smoothing) * at_target + self.smoothing * mean

    def negentropy(self, mapping: Mapping, wide: torch.dtype) -> Tensor | float:
        """Ω(q) [rows, 1] (or one value for all rows)."""
        if self.rows is not None:
            return mapping.negentropy(self.dense(wide))
        assert self.index is not None
        rest = self.smoothing / self.classes
        # Not torch.tensor: a copy from the host waits for the device.
        q = torch.full((1, 1), 1 - self.smoothing + rest, dtype=wide, device=self.index.device)
        value = mapping.negentropy(q)
        if self.smoothing:
            value = value + (self.classes - 1) * mapping.negentropy(torch.full_like(q, rest))
        return value

    def entropy_slope(self, alpha: Alpha, wide: torch.dtype) -> Tensor | float:
        """dH_α(q)/dα [rows, 1]: 0 for a class without smoothing."""
        if self.rows is None and not self.smoothing:
            return 0.0
        return _tsallis.entropy_slope(self.dense(wide), alpha)


# --- what is asked for, and what comes back ---------------------------------------------------


class Wanted(NamedTuple):
    """What is computed beside the losses."""

    gradient: bool  # of z, or of a layer: compute it, or keep what a backward pass needs
    slope: bool = False  # dL/dα of each row
    stats: bool = False
    counted: Tensor | None = None  # bool [classes]: the classes that RowStats.support counts
    leaves: tuple[bool, bool, bool] = (True, True, True)  # gradients of h, weight, bias
    # [rows], where the gradient of Σ scale · loss will be asked for: a route may make it at once.
    scale: Tensor | None = None


class RowStats(NamedTuple):
    """What a loss saw of p, for each target; free, because the forward pass has it at hand. What
    it says of ignored targets is undefined."""

    support: Tensor  # int64, number of non-zero scores (of the ``counted`` classes)
    total: Tensor  # Σp: 1 for entmax, the self-normalisation of α-ReLU (SE §4.5)
    target_score: Tensor  # p of the target
    correct: Tensor  # bool, no class scores higher than the target


class Losses(NamedTuple):
    """What a route makes of rows of scores."""

    loss: Tensor  # [rows], 0 where a row does not count
    slope: Tensor | None  # [rows], dL/dα
    stats: RowStats | None
    kept: tuple[Tensor, ...]  # for the route's own ``gradient``; saved by autograd
    notes: Any = None  # what it needs beside tensors


class Layer(NamedTuple):
    """The output layer whose logits the scores are."""

    h: Tensor  # [rows, hidden]
    weight: Tensor  # [classes, hidden]
    bias: Tensor | None


class LinearLosses(NamedTuple):
    """What a route makes of a Layer."""

    loss: Tensor
    slope: Tensor | None
    stats: RowStats | None
    gradients: list[Tensor | None]  # of h, weight, bias where ``scale`` was given, at least float32
    kept: tuple[Tensor, ...] = ()
    notes: Any = None
