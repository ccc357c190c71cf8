"""α-entmax of a block of long rows: exact, without sorting the classes.

Few candidates are listed and solved in float64, from a bound that maxima of many scores give. Rows
with too many are computed with as a whole, in their own dtype.
"""

import torch
from torch import Tensor

from .. import _solvers
from .._newton import Alpha, newton, scores
from .._problem import EntmaxMapping
from .._solvers import Padded, finish, solve_candidates, solve_steep
from . import candidates
from .candidates import (
    CHUNK,
    DENSE_SHARE,
    DENSE_STRIDE,
    columns_above,
    is_crowded,
    is_dense,
    round_down,
)


class Whole(Padded):
    """p of whole rows with too many non-zeros to list, in the dtype of z."""


def solve(z: Tensor, mapping: EntmaxMapping, dense_share: float = DENSE_SHARE) -> Padded:
    """α-entmax of a block of rows [rows, classes] in float32 or float64."""
    if mapping.solver != "auto":
        return _solvers.solve(z, mapping)
    return _solve_auto(z, mapping.alpha, dense_share)


def _solve_auto(z: Tensor, alpha: Alpha, dense_share: float) -> Padded:
    """Few candidates first, then Newton from the left."""
    if isinstance(alpha, float) and alpha == 1.0:
        top = z.amax(1, keepdim=True)
        return _solve_whole(z, top, alpha, torch.zeros_like(top))
    if z.shape[1] <= 2 * CHUNK:
        value = z.double()
        top = value.amax(1, keepdim=True)
        return finish(value, None, top, lambda x: solve_candidates(x, alpha, torch.zeros_like(top)))
    chunks = candidates.chunk_maxima(z)
    top = chunks.maxima.amax(1, keepdim=True)
    u = _lower_bound(chunks.maxima, top, alpha)
    bound = _bound(top, u, alpha, z.dtype)
    if isinstance(alpha, float) and alpha <= 2.0 and is_crowded(chunks.maxima, bound):
        u = torch.maximum(u, _lower_bound(candidates.group_maxima(z), top, alpha, start=u))
        bound = _bound(top, u, alpha, z.dtype)
        if is_dense(z, bound, dense_share):
            return _solve_whole(z, top, alpha, u)
    value, col = columns_above(z, bound, chunks)
    return finish(value, col, top.double(), lambda x: solve_candidates(x, alpha, u))


def _lower_bound(maxima: Tensor, top: Tensor, alpha: Alpha, start: Tensor | None = None) -> Tensor:
    """A bound below τ(z)+1, from few of the scores: fewer terms have a smaller root."""
    if isinstance(alpha, float) and alpha > 2.0:
        peak = solve_steep(maxima - top, alpha).amax(1, keepdim=True)
        u = 1.0 - peak.pow(alpha - 1.0)
    else:
        x = (maxima - top) * (alpha - 1.0)
        start = torch.zeros_like(top, dtype=torch.float64) if start is None else start
        u = newton(x, alpha, start, steps=4)
    # Rounding must not lift the bound over the root, so leave some room below.
    u = (u * (1 - 1e-5) - 1e-6 * (alpha - 1.0)).clamp_(min=0.0)
    if isinstance(alpha, Tensor):
        u = u.where((alpha > 1.0) & (alpha <= 2.0), 0.0)
    return u


def _bound(top: Tensor, u: Tensor, alpha: Alpha, dtype: torch.dtype) -> Tensor:
    """The score below which nothing is in the support if τ + 1 is at least u."""
    return round_down(top.double() + (u - 1.0) / (alpha - 1.0), dtype)


# --- whole rows -----------------------------------------------------------------------------


def _solve_whole(z: Tensor, top: Tensor, alpha: float, lowest: Tensor) -> Padded:
    """Newton over all classes in the dtype of z, from a bound below τ + 1.

    Convergence is quadratic, so the step after which to stop is the root of the precision.
    """

    def solve(shifted: Tensor) -> Tensor:
        if alpha == 1.0:
            p = shifted.softmax(1)
        else:
            x = shifted * (alpha - 1.0)
            buffers = torch.empty_like(x), torch.empty_like(x)
            tolerance = torch.finfo(z.dtype).eps ** 0.5
            start = torch.maximum(_start(shifted, alpha), lowest)
            u = newton(x, alpha, start, tolerance=tolerance, buffers=buffers)
            p = scores(x, u, alpha, buffers)
        # Rounding alone leaves 32,000 float32 terms off by 1e-6.
        return p.div_(p.sum(1, keepdim=True))

    return Whole(*finish(z, None, top, solve))


def _start(shifted: Tensor, alpha: float) -> Tensor:
    """u from every 16th score, each standing for 16, where one of them is finite.

    An estimate, not a bound: Newton on a convex function is left of the root after one step from
    wherever it starts.
    """
    x = shifted[:, ::DENSE_STRIDE] * (alpha - 1.0)
    # Σ w g^β = 1 is Σ (w^(1/β) g)^β = 1: the same equation for scaled gaps g = x − u + 1.
    scale = (shifted.shape[1] / x.shape[1]) ** (alpha - 1.0)
    x = (x + 1.0) * scale - 1.0
    u = newton(x, alpha, x.amax(1, keepdim=True).double(), steps=4) / scale
    u = u.where(u.isfinite(), 0.0)
    # The largest p is at least 1/V; beyond that nothing would be in the support.
    return u.clamp_(min=0.0, max=1.0 - shifted.shape[1] ** (1.0 - alpha))


def whole_scores(z: Tensor, top: Tensor, log_peak: Tensor, alpha: float) -> Tensor:
    """p of whole rows from the maximum of z and the log of the maximum of p, in the dtype of z."""
    if alpha == 1.0:
        return (z - top).add_(log_peak).exp_()
    u = -torch.expm1((alpha - 1.0) * log_peak.double())
    return scores((z - top).mul_(alpha - 1.0), u, alpha)
