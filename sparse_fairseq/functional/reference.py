"""Slow, obviously right float64 versions of the mappings and losses, straight from the papers.

Tests compare against these and benchmarks may. Class scores in the last dimension; no autograd,
no infinities, no options beyond the definition.
"""

import torch
from torch import Tensor


def alpha_relu(z: Tensor, alpha: float = 1.5, tau: float = 0.0) -> Tensor:
    """SE Eq. 1."""
    return ((alpha - 1) * z.double() - tau).clamp(min=0) ** (1 / (alpha - 1))


def entmax_threshold(z: Tensor, alpha: float = 1.5) -> Tensor:
    """τ(z) of S2S Eq. 13 by bisection, until the bracket is two neighbouring numbers.

    p is exact to 1e-14 from that for α ≤ 2. Above, p is steep at τ, and only as exact as the
    power 1/(α−1) of the precision."""
    x = (alpha - 1) * z.double()
    top = x.amax(-1)
    low, high = top - 1, top.clone()
    for _ in range(200):
        middle = (low + high) / 2
        if ((middle == low) | (middle == high)).all():
            break
        total = ((x - middle[..., None]).clamp(min=0) ** (1 / (alpha - 1))).sum(-1)
        low, high = torch.where(total >= 1, middle, low), torch.where(total >= 1, high, middle)
    return low


def entmax(z: Tensor, alpha: float = 1.5) -> Tensor:
    """S2S Eq. 13; Eq. 4 for α = 1."""
    if alpha == 1:
        weight = (z.double() - z.double().amax(-1, keepdim=True)).exp()
        return weight / weight.sum(-1, keepdim=True)
    tau = entmax_threshold(z, alpha)[..., None]
    return ((alpha - 1) * z.double() - tau).clamp(min=0) ** (1 / (alpha - 1))


def tsallis_entropy(p: Tensor, alpha: float) -> Tensor:
    """S2S Eq. 9."""
    if alpha == 1:
        return -torch.xlogy(p, p).sum(-1)
    return (p - p**alpha).sum(-1) / (alpha * (alpha - 1))


def smoothed(target: Tensor, classes: int, label_smoothing: float = 0.0) -> Tensor:
    """q = (1−ε)e_y + ε/V."""
    one_hot = torch.nn.functional.one_hot(target, classes).double()
    return (1 - label_smoothing) * one_hot + label_smoothing / classes


def entmax_loss(z: Tensor, q: Tensor, alpha: float = 1.5) -> Tensor:
    """S2S Eq. 11 for a target distribution q: (p − q)ᵀz + H(p) − H(q), for each row."""
    p = entmax(z, alpha)
    score = ((p - q) * z.double()).sum(-1)
    return score + tsallis_entropy(p, alpha) - tsallis_entropy(q, alpha)


def alpha_relu_loss(z: Tensor, q: Tensor, alpha: float = 1.5, tau: float = 0.0) -> Tensor:
    """SE Eq. 2 for target weights q: (p − q)ᵀ(z − τ/(α−1)) + H(p) − H(q), for each row, with
    the entropy of Eq. 2, (1 − Σpᵅ)/(α(α−1))."""
    p = alpha_relu(z, alpha, tau)
    shifted = z.double() - tau / (alpha - 1)
    entropies = ((q**alpha).sum(-1) - (p**alpha).sum(-1)) / (alpha * (alpha - 1))
    return ((p - q) * shifted).sum(-1) + entropies
