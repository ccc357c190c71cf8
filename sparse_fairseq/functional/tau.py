"""Choosing the constant τ of α-ReLU: from a batch (SE §3.1) or from a formula (SE Eq. 3).

These run once before training. scipy is imported when they are called, not before.
"""

import math

from torch import Tensor

from . import _checks
from .mappings import entmax_threshold


def batch_tau(logits: Tensor, alpha: float = 1.5) -> float:
    """The mean of τ(z) over a batch of logits from an untrained model (SE §3.1)."""
    if logits.numel() == 0:
        raise ValueError("batch_tau needs at least one row of logits")
    rows = logits.detach()
    return entmax_threshold(rows, alpha).double().mean().item()


def gaussian_support(vocab_size: int, sigma: float) -> float:
    """p* of SE Lemma 2: the share of V scores from N(0, σ²) in the support of 1.5-entmax."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    _check_gaussian(vocab_size, sigma)
    eps = 1.0 / vocab_size

    def antiderivatives(x: float) -> tuple[float, float]:
        quantile = norm.ppf(x)
        density = norm.pdf(quantile)
        return density, (x - density * quantile if density > 0 else x)

    def mean_and_room(p: float) -> tuple[float, float]:
        """m(p) and what stands under the root in Lemma 2."""
        (f0, g0), (f1, g1) = antiderivatives(eps), antiderivatives(p)
        m = (f1 - f0) / (p - eps)
        return m, 4 * eps / (sigma**2 * p) - ((g1 - g0) / (p - eps) - m * m)

    def equation(p: float) -> float:
        m, room = mean_and_room(p)
        return norm.isf(p) - m + math.sqrt(max(room, 0.0))

    low, high = eps * (1 + 1e-6), 1 - 1e-12
    if mean_and_room(high)[1] < 0:  # the root is left of where the square root ends
        high = brentq(lambda p: mean_and_room(p)[1], low, high, xtol=1e-16)
    if equation(high) > 0:
        return 1.0  # scores so close to each other that all are in the support
    return brentq(equation, low, high, xtol=1e-16)


def gaussian_tau(vocab_size: int, sigma: float, alpha: float = 1.5) -> float:
    """τ that makes α-ReLU of V scores from N(0, σ²) sum to about 1 (more, where σ is large).

    α = 1.5 is SE Lemma 2. For other α, where the paper has no closed form, τ solves
    V · E[[(α−1)σx − τ]₊^(1/(α−1))] = 1 numerically.
    """
    _checks.check_alpha(alpha, strict=True)
    _check_gaussian(vocab_size, sigma)
    if alpha == 1.5 and (support := gaussian_support(vocab_size, sigma)) < 1.0:
        from scipy.stats import norm

        return sigma / 2 * float(norm.isf(support))
    return _expected_sum_tau(vocab_size, sigma, alpha)


def _expected_sum_tau(vocab_size: int, sigma: float, alpha: float) -> float:
    import numpy as np
    from scipy.optimize import brentq

    scale, beta = (alpha - 1.0) * sigma, 1.0 / (alpha - 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    # p = t^β is smooth in t = gap^β for α > 2 and in the gap itself for α ≤ 2.
    power = max(1.0, alpha - 1.0)

    def log_sum(tau: float) -> float:
        low, high = tau / scale, max(tau / scale, 0.0) + 12.0
        low = max(low, -40.0)
        t = (nodes + 1) / 2
        x = low + (high - low) * t**power
        width = (high - low) * power * t ** (power - 1) * weights / 2
        gap = np.maximum(scale * x - tau, 0.0)
        density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return math.log(vocab_size * float(np.sum(width * gap**beta * density)) + 1e-300)

    # Below low every gap is over 1; the sum falls with τ.
    low, high = -1.0 - 40.0 * scale, 12.0 * scale
    while log_sum(high) > 0:
        high += 12.0 * scale
    return brentq(log_sum, low, high, xtol=1e-14)


def xavier_tau(d_model: int, vocab_size: int) -> float:
    """SE Eq. 3: τ for a Xavier-initialised output layer on layer-normalised states (OpenNMT-py).

    >>> round(xavier_tau(512, 10_000), 2)
    0.33
    """
    if d_model < 1:
        raise ValueError(f"d_model must be at least 1, got {d_model}")
    return gaussian_tau(vocab_size, math.sqrt(2.0 * d_model / (d_model + vocab_size)))


def _check_gaussian(vocab_size: int, sigma: float) -> None:
    if vocab_size < 2:
        raise ValueError(f"vocab_size must be at least 2, got {vocab_size}")
    if not (math.isfinite(sigma) and sigma > 0):
        raise ValueError(f"sigma must be positive and finite, got {sigma}")
