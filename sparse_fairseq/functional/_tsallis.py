"""The Tsallis entropy of S2S Eq. 9 and its derivative in α, stable down to α = 1.

Both are plain differentiable torch: with ε = α − 1 and l = log p everything is written in
φ(εl) for entire functions φ, so that nothing is divided by ε.
"""

import torch
from torch import Tensor

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


def entropy_slope(p: Tensor, alpha: Alpha) -> Tensor:
    """dH_α(p)/dα for fixed p, over the last dimension."""
    log = log_of_support(p)
    y = (alpha - 1.0) * log
    first = (p * log * phi1(y)).sum(-1, keepdim=True) / alpha
    second = (p * log * log * phi1_slope(y)).sum(-1, keepdim=True)
    return (first - second) / alpha


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
