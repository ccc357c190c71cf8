"""The Tsallis entropy of S2S Eq. 9, and derivatives of α-entmax, stable down to α = 1.

All are plain differentiable torch: with ε = α − 1 and l = log p everything is written in
φ(εl) for entire functions φ, so that nothing is divided by ε.
"""

import torch
from torch import Tensor

from ._looking import may_look

Alpha = float | Tensor


def _entire(y: Tensor, exact: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """``exact`` away from 0, where it is accurate, and its Taylor polynomial near 0."""
    series = torch.zeros_like(y)
    near = y.abs() < 0.03
    small = y.where(near, 0.0)
    for c in reversed(coefficients):
        series = series * small + c
    return torch.where(near, series, exact)


def _safe(y: Tensor) -> Tensor:
    """y without the neighbourhood of 0, for the branch that is not used there."""
    return y.where(y.abs() >= 0.03, 1.0)


def phi1(y: Tensor) -> Tensor:
    """(e^y − 1)/y"""
    s = _safe(y)
    return _entire(y, torch.expm1(s) / s, (1, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040))


def phi1_slope(y: Tensor) -> Tensor:
    """d/dy (e^y − 1)/y"""
    s = _safe(y)
    exact = (s * s.exp() - torch.expm1(s)) / (s * s)
    return _entire(y, exact, (1 / 2, 1 / 3, 1 / 8, 1 / 30, 1 / 144, 1 / 840, 1 / 5760))


def phi2(y: Tensor) -> Tensor:
    """(e^y − 1 − y)/y²"""
    s = _safe(y)
    exact = (torch.expm1(s) - s) / (s * s)
    return _entire(y, exact, (1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040, 1 / 40320))


def log_of_support(p: Tensor) -> Tensor:
    """log p where p ≠ 0 (NaN included), else 0: what a zero is multiplied by is never infinite."""
    return p.where(p != 0, 1.0).log()


def entropy(p: Tensor, alpha: Alpha) -> Tensor:
    """H_α(p) = Σ (p − p^α) / (α(α−1)), Shannon's for α = 1. Summed over the last dimension."""
    log = log_of_support(p)
    return -(p * log * phi1((alpha - 1.0) * log)).sum(-1, keepdim=True) / alpha


def entropy_slope_terms(p: Tensor, alpha: Alpha) -> Tensor:
    """What each entry of a fixed p adds to dH_α(p)/dα."""
    log = log_of_support(p)
    y = (alpha - 1.0) * log
    return (p * log * phi1(y) / alpha - p * log * log * phi1_slope(y)) / alpha


def entropy_slope(p: Tensor, alpha: Alpha) -> Tensor:
    """dH_α(p)/dα for fixed p, over the last dimension."""
    return entropy_slope_terms(p, alpha).sum(-1, keepdim=True)


def entmax_slope(p: Tensor, alpha: Alpha) -> Tensor:
    """dp/dα of p = α-entmax(z) for fixed z.

    The formula of Correia et al. (2019, "Adaptively Sparse Transformers", Prop. 1), rearranged
    so that the terms in 1/(α−1)² cancel on paper and not in floating point. With y = −εl:
    dp = p [R − r + ε(rL − Rl)] / (1 + E), r = l²φ₂(y), R = Σpr, L = Σpl, 1 + E = Σp^(2−α).
    """
    eps = alpha - 1.0
    log = log_of_support(p)
    r = log * log * phi2(-eps * log)
    total_r = (p * r).sum(-1, keepdim=True)
    total_log = (p * log).sum(-1, keepdim=True)
    scale = (p * torch.exp(-eps * log)).sum(-1, keepdim=True)
    scale = scale.where(scale != 0, 1.0)
    return p * (total_r - r + eps * (r * total_log - total_r * log)) / scale


# --- gradients of α-entmax ----------------------------------------------------------------------


def entmax_alpha_vjp(p: Tensor, grad: Tensor, alpha: Alpha) -> Tensor:
    """Σ grad · dp/dα of each row, float64 [rows, 1]."""
    slope = entmax_slope(p.double(), alpha)
    return (grad.double() * slope).sum(1, keepdim=True)


def entmax_vjp(p: Tensor, grad: Tensor, alpha: Alpha) -> Tensor:
    """S2S Proposition 1: (diag(s) − ssᵀ/‖s‖₁)ᵀ grad with s = p^(2−α) on the support."""
    inside = p != 0  # NaN counts, so that a NaN row has a NaN gradient
    if _is_steep(alpha):
        return _steep_vjp(p.double(), grad.double(), alpha, inside).to(p.dtype)
    if isinstance(alpha, float) and alpha == 2.0:
        s = inside.to(p.dtype)
    else:
        exponent = 2.0 - (alpha.to(p.dtype) if isinstance(alpha, Tensor) else alpha)
        s = p.where(inside, 1.0).pow(exponent).where(inside, 0.0)
    total = s.sum(1, keepdim=True)
    total = total.where(total != 0, 1.0)
    out = s * (grad - (s * grad).sum(1, keepdim=True) / total)
    return out.where(~p.isnan(), p)


def _is_steep(alpha: Alpha) -> bool:
    """Tensors that may not be looked at are in [1, 2], or their p is NaN."""
    if isinstance(alpha, float):
        return alpha > 2.0
    return may_look(alpha) and bool((alpha > 2.0).any())


def _steep_vjp(p: Tensor, grad: Tensor, alpha: Alpha, inside: Tensor) -> Tensor:
    """The same where α > 2 and s of a small p is so large that s·(grad − mean) cancels.

    The rows of the Jacobian sum to 0: the entry with the largest s is minus the sum of the
    others, and these need grad only relative to its own.
    """
    log_s = ((2.0 - alpha) * log_of_support(p)).where(inside, -float("inf"))
    largest = log_s.detach().argmax(1, keepdim=True)
    weight = (log_s - log_s.gather(1, largest)).exp().where(inside, 0.0)
    total = weight.sum(1, keepdim=True)
    relative = grad - grad.gather(1, largest)
    mean = (weight * relative).sum(1, keepdim=True) / total.where(total != 0, 1.0)
    others = inside.scatter(1, largest, False)
    out = log_s.where(others, 0.0).exp().where(others, 0.0) * (relative - mean)
    out = out.scatter_add(1, largest, -out.sum(1, keepdim=True))
    return out.where(~p.isnan(), p)
