"""Powers of gaps, and Newton's method for the threshold τ(z) of α-entmax (S2S Eq. 13).

Scores are shifted to a maximum of 0 and multiplied: x = (α−1)(z − max z). The threshold is kept as
u = τ + 1 ≥ 0, the gaps are g = [x − τ]₊ = [x − u + 1]₊, and p = g^β with β = 1/(α−1). For α → 1
both x and u go to zero, and exp(log1p(x − u)/(α−1)) goes over into softmax without cancellation.
"""

import math

import torch
from torch import Tensor

from ._looking import may_look

Alpha = float | Tensor  # a number, or float64 [rows, 1]
Buffers = tuple[Tensor, Tensor]  # of the shape of x, for gaps and powers

MAX_STEPS = 100  # never reached: convergence is quadratic; it guards against a hang
BLIND_STEPS = 12  # where the host may not look whether they were enough
ROUNDING = 32  # units of precision; a smaller step may be the rounding of the sums
NEAR_ONE = {torch.float32: 1.08, torch.float64: 1.0001}  # below, x + 1 loses what β multiplies
SMALLEST_GAP = 1e-30


def _is_near_one(alpha: Alpha, dtype: torch.dtype, buffers: Buffers | None) -> bool:
    """Whether to take the form for α near 1, which is right for each α, and a little slower."""
    if isinstance(alpha, float):
        return alpha <= NEAR_ONE[dtype]
    return buffers is None or bool((alpha < NEAR_ONE[dtype]).any())


def is_whole(beta: float) -> bool:
    """But for rounding; 1 only exactly, because what α = 2 is treated as differs."""
    return beta == 1.0 or (round(beta) > 1 and abs(beta - round(beta)) <= 1e-12 * beta)


def power(gap: Tensor, beta: Alpha, out: Tensor | None = None) -> Tensor:
    """gap^β for gaps ≥ 0 (the same tensor for β = 1), several times faster than torch.pow.

    α = 2, 1.5, 1.25, 1.2, 1.1 … have a whole β, for which products do. The logarithm of 0 is slow,
    and so are powers too small for a normal number.
    """
    if isinstance(beta, float) and beta < 17 and is_whole(beta):
        return _whole_power(gap, round(beta), out)
    if isinstance(beta, float) and beta < 1.25:
        return torch.pow(gap, beta, out=out)
    if gap.dtype == torch.float64:
        smallest = torch.finfo(gap.dtype).tiny  # its power is 0
        return torch.clamp(gap, min=smallest, out=out).log2_().mul_(beta).exp2_()
    out = torch.clamp(gap, min=SMALLEST_GAP, out=out).log2_().mul_(beta).exp2_()
    return torch.threshold_(out, SMALLEST_GAP, 0.0)


def _whole_power(gap: Tensor, exponent: int, out: Tensor | None) -> Tensor:
    """By squaring, from the highest bit of the exponent down."""
    if exponent == 1:
        return gap
    base = gap
    for bit in bin(exponent)[3:]:
        base = out = torch.mul(base, base, out=out)
        if bit == "1":
            base.mul_(gap)
    return base


def powers(x: Tensor, u: Tensor, alpha: Alpha, buffers: Buffers | None = None) -> Buffers:
    """g^β and g, in the buffers if there are some. For α = 2 they are one tensor."""
    gap, out = (None, None) if buffers is None else buffers
    beta = 1.0 / (alpha - 1.0)
    if isinstance(beta, Tensor):
        beta = beta.to(x.dtype)
    if not _is_near_one(alpha, x.dtype, buffers):
        gap = torch.add(x, (1.0 - u).to(x.dtype), out=gap).clamp_(min=0.0)
        return power(gap, beta, out), gap
    gap = torch.sub(x, u.to(x.dtype), out=gap).clamp_(min=-1.0)
    result = torch.log1p(gap, out=out).mul_(beta * math.log2(math.e)).exp2_()
    return result, gap.add_(1.0)


def scores(x: Tensor, u: Tensor, alpha: Alpha, buffers: Buffers | None = None) -> Tensor:
    """p = [x − u + 1]₊^(1/(α−1))."""
    return powers(x, u, alpha, buffers)[0]


def power_sums(x: Tensor, u: Tensor, alpha: Alpha, buffers: Buffers | None = None) -> Buffers:
    """Σ g^β and Σ g^(β−1) over the support, [rows, 1] in the dtype of u."""
    result, gap = powers(x, u, alpha, buffers)
    total = result.sum(1, keepdim=True).to(u.dtype)
    if isinstance(alpha, float) and alpha == 2.0:
        gap = gap.sign_()
    elif not (isinstance(alpha, float) and alpha == 1.5):
        gap = result.div_(gap.clamp_(min=SMALLEST_GAP))  # no 0/0 where the power is 0
    return total, gap.sum(1, keepdim=True).to(u.dtype)


def newton(
    x: Tensor,
    alpha: Alpha,
    u: Tensor,
    *,
    steps: int = MAX_STEPS,
    tolerance: Alpha | None = None,
    buffers: Buffers | None = None,
) -> Tensor:
    """u with Σ g^β = 1, for 1 < α ≤ 2, from any u at or left of it.

    Newton on ‖[x − τ]₊‖_β − 1, which is convex and decreasing in τ because β ≥ 1: from the left
    the iteration is monotone, and it is exact at once where the support is stable and tied. A step
    of (α−1)g changes p = g^β by its own size; 1 − u is the largest gap. With ``buffers`` no memory
    is touched for the first time, and the last steps are taken by those rows alone that need them.
    """
    if tolerance is None:
        tolerance = ROUNDING * torch.finfo(x.dtype).eps
    looks, exponent = may_look(x), alpha - 1.0
    if isinstance(exponent, Tensor):
        exponent = exponent.to(u.dtype)
    limit = tolerance * exponent
    for _ in range(steps if looks else min(steps, BLIND_STEPS)):
        total, slope = power_sums(x, u, alpha, buffers)
        step = _step(total, alpha, exponent) / slope
        u = u + step
        if not looks:
            continue
        far = step.abs() > limit * (1.0 - u)
        count = int(far.count_nonzero())
        if count == 0:
            break
        if buffers is not None and 2 * count < len(u):
            rows = far.squeeze(1).nonzero().squeeze(1)
            few = buffers[0][:count], buffers[1][:count]
            own = [part[rows] if isinstance(part, Tensor) else part for part in (alpha, tolerance)]
            rest = newton(x[rows], own[0], u[rows], tolerance=own[1], buffers=few)
            return u.index_copy_(0, rows, rest)
    return u


def _step(total: Tensor, alpha: Alpha, exponent: Alpha) -> Tensor:
    """(‖g‖ − 1) · |d‖g‖/dτ|⁻¹ but for Σ g^(β−1), so that nothing cancels for large β."""
    if isinstance(alpha, float) and alpha == 2.0:
        return total - 1.0
    if isinstance(alpha, float) and alpha == 1.5:
        return total - total.sqrt()
    return -total * torch.expm1(-exponent * total.log())
