"""α-entmax of rows in a fixed number of torch operations: no host sync, nothing to trace anew.

Newton's steps for the threshold run blind. For 1 ≤ α ≤ 2 the equation is convex and decreasing, so
that from the left they approach its root from the left, quadratically. A few maxima of many scores
each give a start close to it at a sixteenth of the cost. The steps after which float32 and float64
show no more change were counted on Gaussian, tied, masked and geometric rows (``test_device``).

``fmax`` stands where one expects ``relu``: it maps NaN to the lower end, so that a broken row has
weights of 0 until :class:`Solved` marks it, and nothing has to be masked in a pass of its own.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _solvers, _tsallis
from .._looking import may_look
from .._problem import EntmaxMapping

GROUP = 16  # columns that one maximum stands for
FEW_CLASSES = 256  # with fewer, all of them are the start
START_STEPS = 10  # on the maxima
STEPS = {torch.float32: 5, torch.float64: 7}  # on all scores, from the start
STEPS_OF_FEW = {torch.float32: 10, torch.float64: 12}  # from nothing
NEAR_ONE = 1.08  # below, powers 1/(α−1) of gaps lose more than their last digits, or overflow


class Solved(NamedTuple):
    """α-entmax of rows: p = weight · inverse."""

    weight: Tensor  # [rows, classes], exactly 0 off the support and in rows without an answer
    inverse: Tensor  # [rows, 1], 1/Σ weight; NaN for rows with NaN or +inf
    score: Tensor  # wide [rows, 1], Σ p·(z − max z)
    log_peak: Tensor  # wide [rows, 1], the logarithm of the largest p
    top: Tensor  # [rows, 1], max z


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """What sums of a row are kept in: one kind of device has no float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def solve(z: Tensor, mapping: EntmaxMapping) -> Solved:
    """α-entmax of rows z [rows, classes] in float32 or float64."""
    alpha = mapping.alpha
    if mapping.solver != "auto" or (isinstance(alpha, float) and alpha > 2.0):
        return _solve_elsewhere(z, mapping)
    if isinstance(alpha, float) and alpha == 1.0:
        p = z.softmax(1)
        top, peak = z.amax(1, keepdim=True), p.amax(1, keepdim=True)
        score = torch.zeros_like(top, dtype=wide_dtype(z))  # α = 1 does without
        return _marked(p.nan_to_num(0.0), torch.ones_like(top), score, peak.log(), top)
    form: _Gaps | _Logs
    near_one = isinstance(alpha, Tensor) or alpha < NEAR_ONE
    form = _Logs(alpha, z) if near_one else _Gaps(alpha, z)  # type: ignore[arg-type]
    few = z.shape[1] < FEW_CLASSES
    maxima = z if few else _group_maxima(z)
    top = maxima.amax(1, keepdim=True)
    shifted = z - top
    lowest = torch.full_like(top, form.lowest)
    if few:
        t = _newton(form, shifted, lowest, lowest, STEPS_OF_FEW[z.dtype])
    else:
        start = _newton(form, maxima - top, lowest, lowest, START_STEPS)
        start = torch.fmax(start - form.slack, lowest)  # rounding must not lift it over the root
        t = _newton(form, shifted, start, start, STEPS[z.dtype])
    weight, total, score, log_peak = form.finish(shifted, t)
    solved = _marked(weight, 1.0 / total, score, log_peak, top)
    return _only_possible(solved, z, mapping) if isinstance(alpha, Tensor) else solved


def _newton(form: "_Gaps | _Logs", x: Tensor, t: Tensor, lowest: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        t = torch.fmin(torch.fmax(form.step(x, t), lowest), form.highest)
    return t


def _group_maxima(z: Tensor) -> Tensor:
    """Maxima of GROUP columns each, then the columns that fill no group."""
    full = z.shape[1] // GROUP * GROUP
    maxima = z[:, :full].unflatten(1, (GROUP, -1)).amax(1)
    return maxima if full == z.shape[1] else torch.cat([maxima, z[:, full:]], 1)


def _marked(weight: Tensor, inverse: Tensor, score: Tensor, log_peak: Tensor, top: Tensor):
    """A row of only −inf has zeros and no entropy; NaN or +inf must not look like an answer."""
    wide = wide_dtype(weight)
    broken = top.isnan() | (top == float("inf"))
    answer = torch.where(broken, float("nan"), 0.0).to(wide)
    regular = top.isfinite()
    return Solved(
        weight,
        torch.where(regular, inverse.to(wide), answer).to(weight.dtype),
        torch.where(regular, score, answer),
        torch.where(regular, log_peak.to(wide), answer),
        top,
    )


class _Gaps:
    """A number 1 < α ≤ 2. Weights are g^β for the gaps g = [z − max − t]₊ and β = 1/(α−1); they
    sum to one (but for a factor) where ‖g‖_β = β. Sums of powers are norms, one read each."""

    def __init__(self, alpha: float, z: Tensor) -> None:
        self.beta = 1.0 / (alpha - 1.0)
        self.lowest = -self.beta
        # The largest p is at least 1/V.
        self.highest = z.new_full((), -self.beta * z.shape[1] ** (1.0 - alpha))
        self.slack = 1e-6 * self.beta

    def gaps(self, x: Tensor, t: Tensor) -> Tensor:
        return torch.fmax(x - t, x.new_zeros(()))

    def step(self, x: Tensor, t: Tensor) -> Tensor:
        gap, beta = self.gaps(x, t), self.beta
        norm = _norm(gap, beta)
        if beta == 1.0:
            slope = _norm(gap, 0.0)
        elif beta < 1.25:  # the norm of a low order overflows
            slope = gap.pow(beta - 1.0).sum(1, keepdim=True) / norm.pow(beta - 1.0)
        else:
            slope = (_norm(gap, beta - 1.0) / norm).pow(beta - 1.0)
        return t + (norm - beta) / slope

    def finish(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        gap, beta, wide = self.gaps(x, t), self.beta, wide_dtype(x)
        higher = _norm(gap, beta + 1.0).to(wide).pow(beta + 1.0)
        weight = gap if beta == 1.0 else gap.square() if beta == 2.0 else gap.pow(beta)
        total = weight.sum(1, keepdim=True).to(wide)
        # z − max = g + t on the support
        return weight, total, higher / total + t, beta * (-t.to(wide)).log() - total.log()


def _norm(gap: Tensor, order: float) -> Tensor:
    if order == 1.0:  # gaps are not negative, and a sum rounds better
        return gap.sum(1, keepdim=True)
    return torch.linalg.vector_norm(gap, order, dim=1, keepdim=True)


class _Logs:
    """Any 1 ≤ α ≤ 2, also one for each row. With ε = α − 1, weights are exp(log1p(ε(x − t))/ε),
    which goes over into exp(x − t) for ε → 0; Newton's step goes over into log Σ weight."""

    def __init__(self, alpha: float | Tensor, z: Tensor) -> None:
        wide = wide_dtype(z)
        column = (
            torch.full_like(z[:, :1], alpha - 1.0, dtype=wide)
            if isinstance(alpha, float)
            else (alpha.to(wide) - 1.0)
        )
        # So small that log1p(εx)/ε is x, and no division by zero.
        self.eps = column.clamp(min=1e-20)
        self.narrow = self.eps.to(z.dtype)
        self.alpha = column + 1.0
        self.lowest, self.slack = 0.0, 1e-6
        self.highest = -(torch.expm1(-self.eps * math.log(z.shape[1])) / self.eps).to(z.dtype)

    def powers(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        below_one = torch.fmax((x - t) * self.narrow, x.new_full((), -1.0))
        return (below_one.log1p() / self.narrow).exp(), below_one

    def step(self, x: Tensor, t: Tensor) -> Tensor:
        weight, below_one = self.powers(x, t)
        total = weight.sum(1, keepdim=True).to(self.eps.dtype)
        slope = (weight / (below_one + 1.0).clamp(min=1e-30)).sum(1, keepdim=True)
        step = -total * torch.expm1(-self.eps * total.log()) / (self.eps * slope)
        return t + step.to(t.dtype)

    def finish(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        weight, _ = self.powers(x, t)
        wide = self.eps.dtype
        total = weight.sum(1, keepdim=True).to(wide)
        # No score below −1/(α−1) is in the support; 0 · −inf must stay 0.
        score = (weight * torch.fmax(x, -1.0 / self.narrow)).sum(1, keepdim=True).to(wide) / total
        log_peak = torch.log1p(-self.eps * t.to(wide)) / self.eps - total.log()
        return weight, total, score, log_peak


def _only_possible(solved: Solved, z: Tensor, mapping: EntmaxMapping) -> Solved:
    """Rows whose α is not in [1, 2]: solved if it may be looked at, else without an answer."""
    alpha = mapping.alpha
    assert isinstance(alpha, Tensor)
    possible = (alpha >= 1.0) & (alpha <= 2.0)
    if may_look(alpha) and not bool(possible.all()):
        steep = _solve_elsewhere(z, EntmaxMapping(alpha.clamp(min=2.0)))
        parts = zip(solved, steep, strict=True)
        return Solved(*(torch.where(possible, own, other) for own, other in parts))
    nan = float("nan")
    return solved._replace(
        inverse=torch.where(possible, solved.inverse, nan),
        score=torch.where(possible, solved.score, nan),
    )


def _solve_elsewhere(z: Tensor, mapping: EntmaxMapping) -> Solved:
    """Solvers that sort or bisect, and α > 2."""
    block = _solvers.solve(z, mapping)
    p = block.p.to(z.dtype)
    if block.col is not None:
        p = torch.zeros_like(z).scatter_add(1, block.col, p.nan_to_num(0.0))
    wide = wide_dtype(z)
    score = (block.p * block.shifted.where(block.p != 0, 0.0)).sum(1, keepdim=True).to(wide)
    log_peak = _tsallis.log_of_support(block.p.amax(1, keepdim=True))
    top = z.amax(1, keepdim=True)
    return _marked(p.nan_to_num(0.0), torch.ones_like(top), score, log_peak, top)
