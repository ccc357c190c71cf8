"""α-entmax of many short rows in float32, as attention has them: forward and backward.

A row of a thousand scores is cheaper to go over ten times than to list its candidates. Everything
is written into few buffers that stay in the cache. No autograd here; 1 ≤ α ≤ 2 only.
"""

import torch
from torch import Tensor

from .. import _tsallis
from .._newton import Alpha, Buffers, newton, scores

CLASSES = 2048  # longer rows are left to the solvers that list candidates
# Elements in a block of rows: few enough for a CPU's cache, enough to hide the cost of a call.
BLOCK_ELEMENTS = 1 << 19
EPS = torch.finfo(torch.float32).eps
SMALLEST_P = torch.finfo(torch.float32).tiny
NEAR_ONE = 1.08
NEAREST = 1.001  # of the α > 1 that float32 is good enough for


def fits(z: Tensor, alpha: Alpha) -> bool:
    """Whether rows z [rows, classes] are a case for this module."""
    if z.dtype != torch.float32 or z.shape[1] > CLASSES:
        return False
    if isinstance(alpha, Tensor):
        return bool(((alpha >= NEAREST) & (alpha <= 2.0)).all())
    return alpha == 1.0 or NEAREST <= alpha <= 2.0


def _blocks(z: Tensor) -> list[slice]:
    size = max(1, BLOCK_ELEMENTS // max(1, z.shape[1]))
    return [slice(i, min(i + size, len(z))) for i in range(0, len(z), size)]


def _of(alpha: Alpha, rows: slice) -> Alpha:
    return alpha[rows] if isinstance(alpha, Tensor) else alpha


def _float32(value: Alpha) -> Alpha:
    return value.to(torch.float32) if isinstance(value, Tensor) else value


def _is(alpha: Alpha, value: float) -> bool:
    return isinstance(alpha, float) and alpha == value


# --- forward --------------------------------------------------------------------------------


def entmax(z: Tensor, alpha: Alpha) -> Tensor:
    """α-entmax of rows. A row of only −inf maps to zeros, one with NaN or +inf to NaN."""
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    blocks = _blocks(z)
    # Memory that was never touched costs as much as several passes over it.
    gap, power = torch.empty_like(out[blocks[0]]), torch.empty_like(out[blocks[0]])
    for rows in blocks:
        size = rows.stop - rows.start
        _solve(z[rows], _of(alpha, rows), out[rows], (gap[:size], power[:size]))
    return out


def _solve(z: Tensor, alpha: Alpha, out: Tensor, buffers: Buffers) -> None:
    top = z.amax(1, keepdim=True)
    if _is(alpha, 1.0):
        torch.softmax(z, 1, out=out)
    else:
        x = torch.sub(z, top, out=out)
        if not _is(alpha, 2.0):
            x.mul_(_float32(alpha - 1.0))
        start = torch.zeros_like(top, dtype=torch.float64)  # 1 − u, the largest gap, may be small
        u = newton(x, alpha, start, tolerance=_tolerance(alpha), buffers=buffers)
        p = scores(x, u, alpha, buffers)
        torch.div(p, p.sum(1, keepdim=True), out=out)
    masked = top == float("-inf")
    if bool(masked.any()):
        out.masked_fill_(masked, 0.0)


def _tolerance(alpha: Alpha) -> Alpha:
    """The largest step, relative to the largest gap and α − 1, after which the next one is lost in
    rounding. p has a kink of power β − 1 at τ: the nearer α is to 2, the slower is the convergence.
    """
    if isinstance(alpha, Tensor):
        relative = (2 * EPS ** (alpha - 1.0).clamp(min=0.5)).clamp_(min=8 * EPS)
        rounding = EPS * (alpha < NEAR_ONE).to(alpha.dtype) / (alpha - 1.0)
        return relative + rounding
    near = 1.0 / (alpha - 1.0) if alpha < NEAR_ONE else 0.0
    return max(8 * EPS, 2 * EPS ** max(0.5, alpha - 1.0)) + EPS * near


# --- backward -------------------------------------------------------------------------------


def entmax_backward(
    p: Tensor, grad: Tensor, alpha: Alpha, for_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradients of the scores (S2S Proposition 1) and, if asked for, of each row's α."""
    out = torch.empty_like(p)
    grad_alpha = torch.empty(len(p), 1, dtype=torch.float64, device=p.device)
    blocks = _blocks(p)
    buffer = torch.empty_like(p[blocks[0]])
    for rows in blocks:
        used = buffer[: rows.stop - rows.start]
        mean = _grad_scores(p[rows], grad[rows], _of(alpha, rows), out[rows], used)
        if for_alpha and isinstance(alpha, Tensor):
            grad_alpha[rows] = _grad_alpha(p[rows], grad[rows], alpha[rows], mean, used)
    return out, grad_alpha if for_alpha else None


def _grad_scores(p: Tensor, grad: Tensor, alpha: Alpha, out: Tensor, buffer: Tensor) -> Tensor:
    """s · (grad − m) with s = p^(2−α) and m, returned, the mean of grad weighted with s."""
    s = _sensitivity(p, alpha, buffer)
    total = s.sum(1, keepdim=True)
    total = total.where(total != 0, 1.0)
    mean = torch.mul(s, grad, out=out).sum(1, keepdim=True) / total
    mean += 0.0 * p[:, :1]  # the gradient of a NaN row is NaN
    torch.sub(grad, mean, out=out).mul_(s)
    return mean


def _sensitivity(p: Tensor, alpha: Alpha, out: Tensor) -> Tensor:
    """p^(2−α) on the support, as p · p^(1−α), which is exactly 0 elsewhere."""
    if _is(alpha, 1.0):
        return p
    if _is(alpha, 2.0):
        return torch.sign(p, out=out)
    positive = torch.clamp(p, min=SMALLEST_P, out=out)
    if _is(alpha, 1.5):
        return positive.rsqrt_().mul_(p)
    return positive.log2_().mul_(_float32(1.0 - alpha)).exp2_().mul_(p)


def _grad_alpha(p: Tensor, grad: Tensor, alpha: Tensor, mean: Tensor, buffer: Tensor) -> Tensor:
    """Σ grad · dp/dα for each row (Correia et al. 2019, Proposition 1), float64 [rows, 1].

    With ε = α − 1 and h = −p log p it is (Σ grad·p − m)/ε² + (Σ grad·h − m Σh)/ε, which cancels
    where α is near 1: such rows take the long way.
    """
    grad_p = torch.mul(p, grad, out=buffer).sum(1, keepdim=True).double()
    h = torch.clamp(p, min=SMALLEST_P, out=buffer).log_().mul_(p).neg_()
    entropy = h.sum(1, keepdim=True).double()
    grad_h = h.mul_(grad).sum(1, keepdim=True).double()
    out = (grad_p - mean) / (alpha - 1.0) ** 2 + (grad_h - mean * entropy) / (alpha - 1.0)
    near = (alpha < NEAR_ONE).squeeze(1).nonzero().squeeze(1)
    if len(near):
        own = alpha[near].to(torch.float32)
        slope = _tsallis.entmax_slope(p[near], own)
        out[near] = slope.mul_(grad[near]).sum(1, keepdim=True).double()
    return out
