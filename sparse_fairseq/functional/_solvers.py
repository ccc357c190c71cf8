"""The threshold τ(z) of α-entmax (S2S Eq. 13), solved for blocks of rows.

Every solver takes a block of scores [rows, classes] and returns an :class:`EntmaxBlock`. Inside,
scores are shifted to a maximum of 0, computed with in float64, and the threshold is kept as
u = τ + 1 ≥ 0: for α → 1 both u and (α−1)z go to zero, and p = exp(log1p((α−1)z − u)/(α−1))
goes over into softmax without cancellation. No autograd here.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Alpha = float | Tensor  # a number, or float64 of shape [rows, 1]

CHUNK = 64  # columns that one maximum stands for when candidates are searched
CROWDED_CHUNKS = 0.2  # share of the chunks with candidates, above which all columns are read
GROUP = 16  # columns that one maximum stands for when chunks are crowded
MAX_NEWTON = 100  # never reached: convergence is quadratic; it guards against a hang
BLIND_NEWTON = 12  # steps where the host may not look whether they were enough
ROUNDING = 32  # units of precision; a smaller step may be the rounding of the sums
DENSE_CLASSES = 1024  # fewer are listed, however many are candidates
DENSE_STRIDE = 16  # of the sample that the density is estimated from
# Share of candidates, above which whole rows are computed with. Measured with the fused layer
# (x86_64, 1 thread), time of lists / whole rows as ratios to F.linear + F.cross_entropy at
# V = 4000, d = 192: α-ReLU 0.71 / 1.02 at 8% non-zeros, 0.97 / 1.00 at 15%, 1.39 / 0.97 at 25%;
# 1.5-entmax 1.12 / 1.72, 1.40 / 1.32, 2.39 / 1.25; sparsemax 1.04 / 1.29, 3.84 / 1.32, 8.36 / 1.20.
DENSE_SHARE = 0.12


@dataclass
class EntmaxBlock:
    """α-entmax of a block of rows, on the candidate columns only."""

    p: Tensor  # [rows, k], zero outside the support; NaN in rows with NaN or +inf
    shifted: Tensor  # [rows, k], z − max(z); −inf where a row has fewer candidates
    col: Tensor | None  # int64 [rows, k], column of each candidate; None: all columns in order
    max: Tensor  # [rows, 1], max(z)
    dense: bool = False  # p is of whole rows with too many non-zeros to list


def on_host(tensor: Tensor) -> bool:
    """Whether values may be looked at to decide what to do: elsewhere that waits for the device."""
    return tensor.device.type == "cpu"


# --- candidates -----------------------------------------------------------------------------


def chunk_maxima(z: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Maxima of runs of CHUNK columns, [rows, chunks], with the runs themselves.

    One pass over the data that tells the row maximum, any NaN, and which few runs can hold
    candidates. Columns that do not fill a run are the last chunk, padded with −inf.
    """
    rows, classes = z.shape
    full = classes // CHUNK * CHUNK
    runs = z[:, :full].unflatten(1, (-1, CHUNK))
    if full == classes:
        return runs.amax(2), runs, None
    tail = torch.full((rows, CHUNK), float("-inf"), dtype=z.dtype, device=z.device)
    tail[:, : classes - full] = z[:, full:]
    maxima = torch.cat([runs.amax(2), tail.amax(1, keepdim=True)], 1)
    return maxima, runs, tail


def is_crowded(maxima: Tensor, bound: Tensor) -> bool:
    """Whether candidates are in so many chunks that looking for the chunks gains nothing."""
    return int((maxima > bound).count_nonzero()) > CROWDED_CHUNKS * maxima.numel()


def _group_maxima(z: Tensor) -> Tensor:
    """Maxima of GROUP columns each, then the columns that fill no group, [rows, groups + rest]. The
    columns of a group are far apart, so that whole runs of scores are compared at once."""
    full = z.shape[1] // GROUP * GROUP
    maxima = z[:, :full].unflatten(1, (GROUP, -1)).amax(1)
    return maxima if full == z.shape[1] else torch.cat([maxima, z[:, full:]], 1)


def entries_above(z: Tensor, bound: Tensor, chunks: tuple[Tensor, Tensor, Tensor | None]):
    """The scores above ``bound`` [rows, 1] as a list ordered by row: (row, col, value)."""
    maxima, runs, tail = chunks
    if is_crowded(maxima, bound):
        return _entries_of_all(z, bound)
    row, chunk = (maxima > bound).nonzero(as_tuple=True)
    if tail is None:
        picked = runs[row, chunk]
    else:
        in_tail = chunk == runs.shape[1]
        picked = torch.empty(len(row), CHUNK, dtype=z.dtype, device=z.device)
        picked[~in_tail] = runs[row[~in_tail], chunk[~in_tail]]
        picked[in_tail] = tail[row[in_tail]]
    at = (picked > bound[row]).view(-1).nonzero().squeeze(1)
    which = at // CHUNK
    col = chunk.index_select(0, which) * CHUNK + at % CHUNK
    return row.index_select(0, which), col, picked.view(-1).index_select(0, at)


def _entries_of_all(z: Tensor, bound: Tensor):
    """The same where most chunks hold some. On the host by NumPy, which lists flags several times
    faster than torch does."""
    classes = z.shape[1]
    above = (z > bound).reshape(-1)
    if on_host(z):
        at = torch.from_numpy(np.flatnonzero(above.numpy()))
    else:
        at = above.nonzero().squeeze(1)
    row = at // classes
    return row, at - row * classes, z.reshape(-1).index_select(0, at)


def columns_above(z: Tensor, bound: Tensor, chunks: tuple[Tensor, Tensor, Tensor | None]):
    """The scores above ``bound`` [rows, 1]: (value, col), each [rows, k], padded with −inf, 0."""
    row, column, found = entries_above(z, bound, chunks)
    count = torch.bincount(row, minlength=len(z))
    start = (count.cumsum(0) - count).index_select(0, row)
    k = max(int(count.max()) if count.numel() else 0, 1)
    flat = row * k + torch.arange(len(row), device=z.device) - start
    value = torch.full((len(z), k), float("-inf"), dtype=torch.float64, device=z.device)
    col = torch.zeros(value.shape, dtype=torch.int64, device=z.device)
    value.view(-1)[flat] = found.double()
    col.view(-1)[flat] = column
    return value, col


def round_down(bound: Tensor, dtype: torch.dtype) -> Tensor:
    """A number of ``dtype`` below ``bound``, so that rounding excludes no candidate."""
    rounded = bound.to(dtype)
    return torch.nextafter(rounded, torch.full_like(rounded, float("-inf")))


# --- thresholds -----------------------------------------------------------------------------


def is_whole(beta: float) -> bool:
    """But for rounding; 1 only exactly, because what α = 2 is treated as differs."""
    return beta == 1.0 or (round(beta) > 1 and abs(beta - round(beta)) <= 1e-12 * beta)


def power(gap: Tensor, beta: float) -> Tensor:
    """gap^β for gaps ≥ 0 (the same tensor for β = 1), several times faster than torch.pow.

    α = 2, 1.5, 1.25, 1.2, 1.1 … have a whole β, for which products do. log2(0) is slow; the
    smallest normal number in its place still gives 0 for large β.
    """
    if beta < 17 and is_whole(beta):
        return _whole_power(gap, round(beta))
    if beta < 1.25:
        return gap.pow(beta)
    return gap.clamp(min=torch.finfo(gap.dtype).tiny).log2_().mul_(beta).exp2_()


def _whole_power(gap: Tensor, exponent: int) -> Tensor:
    """By repeated squaring, with no more than two new tensors."""
    base, result = gap, None
    while True:
        if exponent & 1:
            if result is not None:
                result.mul_(base)
            else:
                result = base.clone() if exponent > 1 else base
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        base = base.square() if base is gap else base.square_()


def _powers(x: Tensor, u: Tensor, alpha: Alpha) -> tuple[Tensor, Tensor]:
    """g^β and g for the gaps g = [x − τ]₊ = [x − u + 1]₊ and β = 1/(α−1).

    x may be float32, u is float64. Near α = 1 both are small and x − u is exact; elsewhere the
    gaps may be small, and x + (1 − u) is.
    """
    if isinstance(alpha, float):
        if alpha - 1.0 > (1e-4 if x.dtype == torch.float64 else 0.08):
            gap = (x + (1.0 - u).to(x.dtype)).clamp_(min=0.0)
            return power(gap, 1.0 / (alpha - 1.0)), gap
        beta: Alpha = 1.0 / (alpha - 1.0)
    else:
        beta = (1.0 / (alpha - 1.0)).to(x.dtype)
    below_one = (x - u.to(x.dtype)).clamp_(min=-1.0)
    return below_one.log1p().mul_(beta).exp_(), below_one.add_(1.0)


def _power_sums(x: Tensor, u: Tensor, alpha: Alpha) -> tuple[Tensor, Tensor]:
    """Σ g^β and Σ g^(β−1) over the support, [rows, 1] in float64."""
    power, gap = _powers(x, u, alpha)
    total = power.sum(1, keepdim=True).double()
    if isinstance(alpha, float) and alpha == 2.0:
        return total, gap.sign_().sum(1, keepdim=True).double()
    if not (isinstance(alpha, float) and alpha == 1.5):
        gap = power.div_(gap.clamp_(min=1e-30))  # no 0/0 where the power is 0
    return total, gap.sum(1, keepdim=True).double()


def _scores(x: Tensor, u: Tensor, alpha: Alpha) -> Tensor:
    """[x − u + 1]₊^(1/(α−1))."""
    return _powers(x, u, alpha)[0]


def _newton(
    x: Tensor, alpha: Alpha, u: Tensor, steps: int = MAX_NEWTON, tolerance: float | None = None
) -> Tensor:
    """u with Σ [x − u + 1]₊^β = 1, for 1 < α ≤ 2, from any u at or left of it.

    Newton on ‖[x − τ]₊‖_β − 1, which is convex and decreasing in τ because β ≥ 1: from the left
    the iteration is monotone, and it is exact at once where the support is stable and tied.
    """
    tolerance = tolerance or ROUNDING * torch.finfo(x.dtype).eps
    looks = on_host(x)
    for _ in range(steps if looks else min(steps, BLIND_NEWTON)):
        total, slope = _power_sums(x, u, alpha)
        # (‖g‖ − 1) / |d‖g‖/dτ|, written so that nothing cancels for large β
        step = -total * torch.expm1(-(alpha - 1.0) * total.log()) / slope
        u = u + step
        # A step of (α−1)g changes p = g^β by its own size; 1 − u is the largest gap.
        if looks and not bool((step.abs() > tolerance * (alpha - 1.0) * (1.0 - u)).any()):
            break
    return u


def _lower_bound(maxima: Tensor, top: Tensor, alpha: Alpha, start: Tensor | None = None) -> Tensor:
    """A bound below τ(z)+1, from few of the scores: fewer terms have a smaller root."""
    if isinstance(alpha, float) and alpha > 2.0:
        peak = _solve_steep(maxima - top, alpha).amax(1, keepdim=True)
        u = 1.0 - peak.pow(alpha - 1.0)
    else:
        x = (maxima - top) * (alpha - 1.0)
        start = torch.zeros_like(top, dtype=torch.float64) if start is None else start
        u = _newton(x, alpha, start, steps=4)
    # Rounding must not lift the bound over the root, so leave some room below.
    u = (u * (1 - 1e-5) - 1e-6 * (alpha - 1.0)).clamp_(min=0.0)
    if isinstance(alpha, Tensor):
        u = u.where((alpha > 1.0) & (alpha <= 2.0), 0.0)
    return u


def _bound(top: Tensor, u: Tensor, alpha: Alpha, dtype: torch.dtype) -> Tensor:
    """The score below which nothing is in the support if τ + 1 is at least u."""
    return round_down(top.double() + (u - 1.0) / (alpha - 1.0), dtype)


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
    while bool((outside - inside > 1).any()):
        middle = (inside + outside) // 2
        total, _ = _power_sums(x, x.gather(1, middle) + 1.0, alpha)
        fits = (total < 1.0) & (x.gather(1, middle) > -1.0)
        inside = torch.where(fits, middle, inside)
        outside = torch.where(fits, outside, middle)
    return inside + 1


def _solve_steep(shifted: Tensor, alpha: Alpha) -> Tensor:
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
    for _ in range(MAX_NEWTON):
        # In logs, because w^(α−1) underflows for large α.
        log_p = torch.logaddexp(log_delta, (alpha - 1.0) * w.log()) / (alpha - 1.0)
        p = log_p.exp().where(inside, 0.0)
        slope = ((alpha - 2.0) * (w.log() - log_p)).exp().where(inside, 0.0)
        step = (p.sum(1, keepdim=True) - 1.0) / slope.sum(1, keepdim=True)
        w = (w - step).clamp_(min=torch.finfo(x.dtype).tiny)
        if not bool((step > ROUNDING * torch.finfo(x.dtype).eps).any()):
            break
    return torch.zeros_like(p).scatter_(1, order, p)


def _solve(shifted: Tensor, alpha: Alpha, u: Tensor) -> Tensor:
    """p on the candidates, from their shifted scores and a bound u at or left of τ + 1."""
    if isinstance(alpha, Tensor):
        return _solve_mixed(shifted, alpha, u)
    if alpha == 1.0:
        return shifted.softmax(1)
    if alpha > 2.0:
        return _solve_steep(shifted, alpha)
    x = shifted * (alpha - 1.0)
    u = _newton(x, alpha, u)
    if alpha in (1.5, 2.0):
        u = _closed_form(x, u, alpha)
    return _scores(x, u, alpha)


def _solve_mixed(shifted: Tensor, alpha: Tensor, u: Tensor) -> Tensor:
    """Rows with their own α: softmax, flat (1 < α ≤ 2) and steep (α > 2) rows one by one."""
    p = torch.zeros_like(shifted)
    flat = ((alpha > 1.0) & (alpha <= 2.0)).squeeze(1)
    steep = (alpha > 2.0).squeeze(1)
    soft = (alpha == 1.0).squeeze(1)
    if bool(soft.any()):
        p[soft] = shifted[soft].softmax(1)
    if bool(flat.any()):
        x = shifted[flat] * (alpha[flat] - 1.0)
        p[flat] = _scores(x, _newton(x, alpha[flat], u[flat]), alpha[flat])
    if bool(steep.any()):
        p[steep] = _solve_steep(shifted[steep], alpha[steep])
    return p


# --- dense rows -----------------------------------------------------------------------------


def is_dense(z: Tensor, bound: Tensor) -> bool:
    """Whether so many of the scores lie above ``bound`` that a list of them does not pay."""
    if z.shape[1] < DENSE_CLASSES:
        return False
    return float((z[:, ::DENSE_STRIDE] > bound).double().mean()) > DENSE_SHARE


def _dense_start(z: Tensor, top: Tensor, alpha: float) -> Tensor:
    """u from every 16th score, each standing for 16.

    An estimate, not a bound: Newton on a convex function is left of the root after one step from
    wherever it starts.
    """
    x = (z[:, ::DENSE_STRIDE] - top) * (alpha - 1.0)
    # Σ w g^β = 1 is Σ (w^(1/β) g)^β = 1: the same equation for scaled gaps g = x − u + 1.
    scale = (z.shape[1] / x.shape[1]) ** (alpha - 1.0)
    x = (x + 1.0) * scale - 1.0
    u = _newton(x, alpha, x.amax(1, keepdim=True).double(), steps=4) / scale
    # The largest p is at least 1/V; beyond that nothing would be in the support.
    return u.clamp_(min=0.0, max=1.0 - z.shape[1] ** (1.0 - alpha))


def dense_scores(z: Tensor, top: Tensor, log_peak: Tensor, alpha: float) -> Tensor:
    """p of whole rows from the maximum of z and the log of the maximum of p, in the dtype of z."""
    if alpha == 1.0:
        return (z - top).add_(log_peak).exp_()
    u = -torch.expm1((alpha - 1.0) * log_peak.double())
    return _scores((z - top).mul_(alpha - 1.0), u, alpha)


def _solve_dense(z: Tensor, top: Tensor, alpha: float) -> EntmaxBlock:
    """Rows with many classes in the support: Newton over all of them in the dtype of z.

    Convergence is quadratic, so the step after which to stop is the root of the precision.
    """

    def solve(shifted: Tensor) -> Tensor:
        if alpha == 1.0:
            p = shifted.softmax(1)
        else:
            x = shifted * (alpha - 1.0)
            u = _dense_start(shifted, torch.zeros_like(top), alpha)
            u = _newton(x, alpha, u, tolerance=torch.finfo(z.dtype).eps ** 0.5)
            p = _scores(x, u, alpha)
        # Rounding alone leaves 32,000 float32 terms off by 1e-6.
        return p.div_(p.sum(1, keepdim=True))

    block = _finish(z, None, top, solve)
    block.dense = True
    return block


# --- the solvers ----------------------------------------------------------------------------


def _finish(value: Tensor, col: Tensor | None, top: Tensor, solve) -> EntmaxBlock:
    """Shift, solve, and answer for rows without a finite maximum."""
    regular = top.isfinite()
    shifted = value - top.where(regular, 0.0)
    irregular = not (on_host(top) and bool(regular.all()))
    if irregular:
        shifted = torch.where(regular, shifted, torch.zeros_like(shifted))
    p = solve(shifted)
    if irregular:
        # A row of only −inf maps to zeros; NaN or +inf must not look like an answer.
        p = torch.where(regular, p, torch.where(top == float("-inf"), 0.0, float("nan")))
        shifted = torch.where(regular, shifted, float("-inf"))
    return EntmaxBlock(p, shifted, col, top)


def solve_auto(z: Tensor, alpha: Alpha) -> EntmaxBlock:
    """Exact, without sorting the classes: few candidates first, then Newton from the left."""
    if isinstance(alpha, float) and (alpha == 1.0 or (alpha <= 2.0 and not on_host(z))):
        return _solve_dense(z, z.amax(1, keepdim=True), alpha)
    if z.shape[1] <= 2 * CHUNK:
        value = z.double()
        top = value.amax(1, keepdim=True)
        return _finish(value, None, top, lambda x: _solve(x, alpha, torch.zeros_like(top)))
    chunks = chunk_maxima(z)
    top = chunks[0].amax(1, keepdim=True)
    u = _lower_bound(chunks[0], top, alpha)
    bound = _bound(top, u, alpha, z.dtype)
    if isinstance(alpha, float) and alpha <= 2.0 and is_crowded(chunks[0], bound):
        u = torch.maximum(u, _lower_bound(_group_maxima(z), top, alpha, start=u))
        bound = _bound(top, u, alpha, z.dtype)
        if is_dense(z, bound):
            return _solve_dense(z, top, alpha)
    value, col = columns_above(z, bound, chunks)
    return _finish(value, col, top.double(), lambda x: _solve(x, alpha, u))


def _solve_sorted(shifted: Tensor, alpha: Alpha) -> Tensor:
    """p for rows sorted in descending order: S2S Algorithm 2, and its like for other α."""
    if isinstance(alpha, Tensor) or alpha > 2.0 or alpha == 1.0:
        return _solve(shifted, alpha, torch.zeros_like(shifted[:, :1]))
    # Scores below −1 are outside of every support; the clamp keeps −inf out of the sums.
    x = (shifted * (alpha - 1.0)).clamp_(min=-2.0)
    if alpha not in (1.5, 2.0):
        size = _sorted_support(x, alpha)
        x = x.where(torch.arange(x.shape[1], device=x.device) < size, -2.0)
        return _scores(x, _newton(x, alpha, torch.zeros_like(x[:, :1])), alpha)
    rho = torch.arange(1, x.shape[1] + 1, dtype=x.dtype, device=x.device)
    mean = x.cumsum(1) / rho
    if alpha == 2.0:
        tau = mean - 1.0 / rho
    else:
        spread = x.square().cumsum(1) - rho * mean.square()
        tau = mean - ((1.0 - spread).clamp_(min=0.0) / rho).sqrt_()
    size = (x > tau).sum(1, keepdim=True)
    u = tau.gather(1, size - 1) + 1.0
    return _scores(x, _closed_form(x, u, alpha), alpha)


def solve_sort(z: Tensor, alpha: Alpha) -> EntmaxBlock:
    """S2S Algorithm 2: sort all classes, then look for the support size that fits."""
    value, col = z.sort(1, descending=True)
    top = value[:, :1].double()
    # Only scores above max − 1/(α−1) can be in a support, and they come first.
    k = max(1, int((value > top - 1.0 / (alpha - 1.0 + 1e-30)).sum(1).max()))
    value, col = value[:, :k], col[:, :k]
    return _finish(value.double(), col, top, lambda x: _solve_sorted(x, alpha))


def solve_topk(z: Tensor, alpha: Alpha, k: int) -> EntmaxBlock:
    """S2S §3.3: sort the k largest scores; k doubles until the support of every row fits."""
    classes = z.shape[1]
    k = min(k, classes)
    while True:
        value, col = z.topk(k, 1)
        top = value[:, :1].double()
        block = _finish(value.double(), col, top, lambda x: _solve_sorted(x, alpha))
        # The support fits iff the smallest score that was kept is outside of it.
        if k == classes or not bool((block.p[:, -1] > 0).any()):
            return block
        k = min(2 * k, classes)


def solve_bisect(z: Tensor, alpha: Alpha, n_iter: int) -> EntmaxBlock:
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
            below = _scores(x, u, a).sum(1, keepdim=True) < 1.0
            high, low = torch.where(below, u, high), torch.where(below, low, u)
        p = _scores(x, low, a)
        p = p / p.sum(1, keepdim=True)
        return torch.where(a == 1.0, shifted.softmax(1), p) if isinstance(a, Tensor) else p

    block = _finish(z, None, top, solve)
    return EntmaxBlock(block.p.double(), block.shifted.double(), None, block.max.double())


def solve_entmax(
    z: Tensor, alpha: Alpha, solver: str = "auto", topk: int = 100, n_iter: int = 50
) -> EntmaxBlock:
    """α-entmax of a block of rows [rows, classes] in float32 or float64."""
    if solver == "sort":
        return solve_sort(z, alpha)
    if solver == "topk":
        return solve_topk(z, alpha, topk)
    if solver == "bisect":
        return solve_bisect(z, alpha, n_iter)
    return solve_auto(z, alpha)
