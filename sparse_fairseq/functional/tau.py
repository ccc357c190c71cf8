"""Choosing the constant τ of α-ReLU: from a batch (SE §3.1) or from a formula (SE Eq. 3).

These run once before training, so that Python's own normal distribution and plain bisection are
fast enough.
"""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from torch import Tensor

from . import _checks
from .mappings import entmax_threshold

# From here on the differences of Lemma 2 are lost in rounding.
LARGEST_SIGMA = 1e4
NORMAL = NormalDist()


def batch_tau(logits: Tensor, alpha: float = 1.5) -> float:
    """The mean of τ(z) over a batch of logits from an untrained model (SE §3.1)."""
    if logits.numel() == 0:
        raise ValueError("batch_tau needs at least one row of logits")
    rows = logits.detach()
    return entmax_threshold(rows, alpha).double().mean().item()


def gaussian_support(vocab_size: int, sigma: float) -> float:
    """p* of SE Lemma 2: the share of V scores from N(0, σ²) in the support of 1.5-entmax."""
    _check_gaussian(vocab_size, sigma)
    if sigma > LARGEST_SIGMA:
        raise ValueError(f"sigma must be at most {LARGEST_SIGMA:g} for SE Lemma 2, got {sigma}")
    eps = 1.0 / vocab_size

    def antiderivatives(x: float) -> tuple[float, float]:
        quantile = NORMAL.inv_cdf(x)
        density = NORMAL.pdf(quantile)
        return density, (x - density * quantile if density > 0 else x)

    def mean_and_room(p: float) -> tuple[float, float]:
        """m(p) and what stands under the root in Lemma 2."""
        (f0, g0), (f1, g1) = antiderivatives(eps), antiderivatives(p)
        m = (f1 - f0) / (p - eps)
        return m, 4 * eps / (sigma**2 * p) - ((g1 - g0) / (p - eps) - m * m)

    def equation(p: float) -> float:
        m, room = mean_and_room(p)
        return -NORMAL.inv_cdf(p) - m + math.sqrt(max(room, 0.0))

    low, high = eps * (1 + 1e-6), 1 - 1e-12
    if mean_and_room(high)[1] < 0:  # the root is left of where the square root ends
        high = _falling_root(lambda p: mean_and_room(p)[1], low, high)
    if equation(high) > 0:
        return 1.0  # scores so close to each other that all are in the support
    return _falling_root(equation, low, high)


def gaussian_tau(vocab_size: int, sigma: float, alpha: float = 1.5) -> float:
    """τ that makes α-ReLU of V scores from N(0, σ²) sum to about 1 (more, where σ is large).

    α = 1.5 is SE Lemma 2. For other α, where the paper has no closed form, τ solves
    V · E[[(α−1)σx − τ]₊^(1/(α−1))] = 1 numerically.
    """
    alpha = _checks.check_constant("alpha", alpha)
    _checks.check_alpha(alpha, strict=True)
    _check_gaussian(vocab_size, sigma)
    if alpha == 1.5 and (support := gaussian_support(vocab_size, sigma)) < 1.0:
        return -sigma / 2 * NORMAL.inv_cdf(support)
    return _expected_sum_tau(vocab_size, sigma, alpha)


def _expected_sum_tau(vocab_size: int, sigma: float, alpha: float) -> float:
    scale, beta = (alpha - 1.0) * sigma, 1.0 / (alpha - 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    # p = t^β is smooth in t = gap^β for α > 2 and in the gap itself for α ≤ 2.
    power = max(1.0, alpha - 1.0)
    log_t = np.log((nodes + 1) / 2)
    t_power = np.exp(power * log_t)
    log_width = np.log(power * weights / 2) + (power - 1) * log_t

    def log_sum(tau: float) -> float:
        # In logs: gap^β and the density are out of range where α is near 1 or σ is large. The
        # logarithm of their product bends by at least −1, so that all that counts is near its
        # peak, which is far from the likely x if σ is large.
        root = math.hypot(tau, 2.0 * sigma * math.sqrt(alpha - 1.0))
        peak = (tau + root) / (2.0 * scale) if tau > 0 else 2.0 * sigma / (root - tau)
        low = max(tau / scale, peak - 12.0)
        reach = peak + 12.0 - low
        least = scale * low - tau if low > tau / scale else 0.0
        log_least = math.log(least) if least > 0 else -math.inf
        log_gap = np.logaddexp(log_least, math.log(scale * reach) + power * log_t)
        terms = log_width + beta * log_gap - (low + reach * t_power) ** 2 / 2
        most = float(terms.max())
        log_integral = math.log(reach) + most + math.log(np.exp(terms - most).sum())
        return math.log(vocab_size / math.sqrt(2 * math.pi)) + log_integral

    # Below low every gap is over 1; the sum falls with τ.
    low, high = -1.0 - 40.0 * scale, 12.0 * scale
    while log_sum(high) > 0:
        high += 12.0 * scale
    return _falling_root(log_sum, low, high)


def _falling_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero, to the last digit of a float."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return middle


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
