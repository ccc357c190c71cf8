"""The papers' own algorithms for α-entmax (sort, partial sort, bisection), and α > 2.

Every solver takes scores [rows, classes] and returns :class:`Padded`. Both routes use them; where
values may not be looked at, loops run a fixed number of times. No autograd here.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ._looking import may_look
from ._newton import MAX_STEPS, ROUNDING, Alpha, newton, power_sums, scores
from ._problem import EntmaxMapping

BLIND_STEEP = 40  # Newton steps for α > 2 where nobody may look


class Padded(NamedTuple):
    """α-entmax of rows on their candidate columns."""

    p: Tensor  # [rows, k], zero outside the support; NaN in rows with NaN or +inf
    shifted: Tensor  # [rows, k], z − max(z); −inf where a row has fewer candidates
    col: Tensor | None  # int64 [rows, k], column of each candidate; None: all columns in order
    max: Tensor  # [rows, 1], max(z)


def solve(z: Tensor, mapping: EntmaxMapping) -> Padded:
    """By the solver that the mapping names; ``auto`` here is for α > 2."""
    alpha = mapping.alpha
    if mapping.solver == "topk":
        return solve_topk(z, alpha, mapping.topk)
    if mapping.solver == "bisect":
        return solve_bisect(z, alpha, mapping.n_iter)
    return solve_sort(z, alpha)


def finish(value: Tensor, col: Tensor | None, top: Tensor, solve: Callable) -> Padded:
    """Shift, solve, and answer for rows without a finite maximum."""
    regular = top.isfinite()
    shifted = value - top.where(regular, 0.0)
    irregular = not (may_look(top) and bool(regular.all()))
    if irregular:
        shifted = torch.where(regular, shifted, torch.zeros_like(shifted))
    p = solve(shifted)
    if irregular:
        # A row of only −inf maps to zeros; NaN or +inf must not look like an answer.
        nothing = torch.where(top == float("-inf"), 0.0, float("nan")).to(p.dtype)
        p = torch.where(regular, p, nothing)
        shifted = torch.where(regular, shifted, float("-inf"))
    return Padded(p, shifted, col, top)


# --- given candidates -----------------------------------------------------------------------


def solve_candidates(shifted: Tensor, alpha: Alpha, u: Tensor) -> Tensor:
    """p on the candidates, from their shifted scores and a bound u at or left of τ + 1."""
    if isinstance(alpha, Tensor):
        return _solve_mixed(shifted, alpha, u)
    if alpha == 1.0:
        return shifted.softmax(1)
    if alpha > 2.0:
        return solve_steep(shifted, alpha)
    x = shifted * (alpha - 1.0)
    u = newton(x, alpha, u)
    if alpha in (1.5, 2.0):
        u = _closed_form(x, u, alpha)
    return scores(x, u, alpha)


def _solve_mixed(shifted: Tensor, alpha: Tensor, u: Tensor) -> Tensor:
    """Rows with their own α: softmax, flat (1 < α ≤ 2) and steep (α > 2) rows one by one."""
    if not may_look(alpha):
        raise ValueError("only solver='auto' takes a tensor alpha on this device or when compiled")
    p = torch.zeros_like(shifted)
    flat = ((alpha > 1.0) & (alpha <= 2.0)).squeeze(1)
    steep, soft = (alpha > 2.0).squeeze(1), (alpha == 1.0).squeeze(1)
    if bool(soft.any()):
        p[soft] = shifted[soft].softmax(1)
    if bool(flat.any()):
        x = shifted[flat] * (alpha[flat] - 1.0)
        p[flat] = scores(x, newton(x, alpha[flat], u[flat]), alpha[flat])
    if bool(steep.any()):
        p[steep] = solve_steep(shifted[steep], alpha[steep])
    return p


def _closed_form(x: Tensor, u: Tensor, alpha: float) -> Tensor:
    """u from the support {x > τ} that ``u`` implies: S2S Algorithm 2 lines 3-5, or sparsemax."""
    inside = x > u - 1.0
    size = inside.sum(1, keepdim=True).to(x.dtype)
    x = x.where(inside, 0.0)
    mean = x.sum(1, keepdim=True) / size
    if alpha == 2.0:
        return mean - 1.0 / size + 1.0
    spread = (x - mean).where(inside, 0.0).square().sum(1, keepdim=True)
    return mean - ((1.0 - spread).clamp(min=0.0) / size).sqrt() + 1.0


def _sorted_support(x: Tensor, alpha: Alpha) -> Tensor:
    """Size of the support for x sorted in descending order, [rows, 1], by binary search.

    x[k] is in the support iff Σ [x − x[k]]₊^β < 1.
    """
    inside = torch.zeros_like(x[:, :1], dtype=torch.int64)
    outside = torch.full_like(inside, x.shape[1])
    for _ in range(math.ceil(math.log2(x.shape[1])) if x.shape[1] > 1 else 0):
        middle = (inside + outside) // 2
        total, _ = power_sums(x, x.gather(1, middle) + 1.0, alpha)
        fits = (total < 1.0) & (x.gather(1, middle) > -1.0)
        unknown = outside - inside > 1
        inside = torch.where(fits & unknown, middle, inside)
        outside = torch.where(fits | ~unknown, outside, middle)
    return inside + 1


def solve_steep(shifted: Tensor, alpha: Alpha) -> Tensor:
    """p for α > 2, where p = [x − τ]₊^β has infinite slope at τ, so that no τ is exact enough.

    The unknown is w = p of the smallest member of the support instead: with δ = x − x_min,
    Σ (δ + w^(α−1))^β − 1 is convex and increasing in w, and Newton from w = 1/k is monotone.
    """
    x, order = (shifted * (alpha - 1.0)).clamp_(min=-2.0).sort(1, descending=True)
    size = _sorted_support(x, alpha)
    inside = torch.arange(x.shape[1], device=x.device) < size
    log_delta = (x - x.gather(1, size - 1)).where(inside, 0.0).log()
    w = 1.0 / size.to(x.dtype)
    p = torch.zeros_like(x)
    looks = may_look(x)
    for _ in range(MAX_STEPS if looks else BLIND_STEEP):
        # In logs, because w^(α−1) underflows for large α.
        log_p = torch.logaddexp(log_delta, (alpha - 1.0) * w.log()) / (alpha - 1.0)
        p = log_p.exp().where(inside, 0.0)
        slope = ((alpha - 2.0) * (w.log() - log_p)).exp().where(inside, 0.0)
        step = (p.sum(1, keepdim=True) - 1.0) / slope.sum(1, keepdim=True)
        w = (w - step).clamp_(min=torch.finfo(x.dtype).tiny)
        if looks and not bool((step > ROUNDING * torch.finfo(x.dtype).eps).any()):
            break
    return torch.zeros_like(p).scatter_(1, order, p)


# --- the papers' algorithms -------------------------------------------------------------------


def _solve_sorted(shifted: Tensor, alpha: Alpha) -> Tensor:
    """p for rows sorted in descending order: S2S Algorithm 2, and its like for other α."""
    if isinstance(alpha, Tensor) or alpha > 2.0 or alpha == 1.0:
        return solve_candidates(shifted, alpha, torch.zeros_like(shifted[:, :1]))
    # Scores below −1 are outside of every support; the clamp keeps −inf out of the sums.
    x = (shifted * (alpha - 1.0)).clamp_(min=-2.0)
    if alpha not in (1.5, 2.0):
        size = _sorted_support(x, alpha)
        x = x.where(torch.arange(x.shape[1], device=x.device) < size, -2.0)
        return scores(x, newton(x, alpha, torch.zeros_like(x[:, :1])), alpha)
    rho = torch.arange(1, x.shape[1] + 1, dtype=x.dtype, device=x.device)
    mean = x.cumsum(1) / rho
    if alpha == 2.0:
        tau = mean - 1.0 / rho
    else:
        spread = x.square().cumsum(1) - rho * mean.square()
        tau = mean - ((1.0 - spread).clamp_(min=0.0) / rho).sqrt_()
    size = (x > tau).sum(1, keepdim=True)
    u = tau.gather(1, size - 1) + 1.0
    return scores(x, _closed_form(x, u, alpha), alpha)


def solve_sort(z: Tensor, alpha: Alpha) -> Padded:
    """S2S Algorithm 2: sort all classes, then look for the support size that fits."""
    value, col = z.sort(1, descending=True)
    top = value[:, :1].double()
    if may_look(z):
        # Only scores above max − 1/(α−1) can be in a support, and they come first.
        k = max(1, int((value > top - 1.0 / (alpha - 1.0 + 1e-30)).sum(1).max()))
        value, col = value[:, :k], col[:, :k]
    return finish(value.double(), col, top, lambda x: _solve_sorted(x, alpha))


def solve_topk(z: Tensor, alpha: Alpha, k: int) -> Padded:
    """S2S §3.3: sort the k largest scores; k doubles until the support of every row fits."""
    if torch.compiler.is_compiling():
        raise ValueError("solver='topk' looks at its result and cannot be compiled: use 'auto'")
    classes = z.shape[1]
    k = min(k, classes)
    while True:
        value, col = z.topk(k, 1)
        top = value[:, :1].double()
        block = finish(value.double(), col, top, lambda x: _solve_sorted(x, alpha))
        # The support fits iff the smallest score that was kept is outside of it.
        if k == classes or not bool((block.p[:, -1] > 0).any()):
            return block
        k = min(2 * k, classes)


def solve_bisect(z: Tensor, alpha: Alpha, n_iter: int) -> Padded:
    """S2S Algorithm 1, in the dtype of z, for the timing comparisons of the papers.

    A threshold in that dtype is exact enough for α ≤ 2; above, p is steep at the threshold.
    """
    top = z.amax(1, keepdim=True)

    def solve(shifted: Tensor) -> Tensor:
        if isinstance(alpha, float) and alpha == 1.0:
            return shifted.softmax(1)
        a = alpha.to(shifted.dtype) if isinstance(alpha, Tensor) else alpha
        x = shifted * (a - 1.0)
        low = torch.zeros_like(top)  # u = τ + 1
        high = 1.0 - torch.ones_like(top) * z.shape[1] ** (1.0 - a)
        for _ in range(n_iter):
            u = (low + high) / 2
            below = scores(x, u, a).sum(1, keepdim=True) < 1.0
            high, low = torch.where(below, u, high), torch.where(below, low, u)
        p = scores(x, low, a)
        p = p / p.sum(1, keepdim=True)
        return torch.where(a == 1.0, shifted.softmax(1), p) if isinstance(a, Tensor) else p

    block = finish(z, None, top, solve)
    return Padded(block.p.double(), block.shifted.double(), None, block.max.double())
