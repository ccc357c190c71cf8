"""Reference values and inputs that several test modules share."""

import pytest
import torch
from torch import Tensor

from sparse_fairseq.functional import reference

ALPHAS = (1.0, 1.001, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 4.0)
SPARSE_ALPHAS = ALPHAS[1:]
SOLVERS = ("auto", "sort", "topk", "bisect")


def scores(*shape: int, scale: float = 1.0, seed: int = 0, dtype=torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def targets(*shape: int, classes: int, seed: int = 0) -> Tensor:
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(seed))


def assert_is_entmax(p: Tensor, z: Tensor, alpha: float, tolerance: float) -> None:
    """The optimality conditions of S2S Eq. 10, which hold for α-entmax and nothing else."""
    p, z = p.double(), z.double()
    z = z - z.amax(-1, keepdim=True)
    assert (p >= 0).all()
    assert ((p.sum(-1) - 1).abs() <= tolerance).all(), p.sum(-1)
    inside = p > 0
    # (α−1)z − τ = p^(α−1) on the support, so each member names the same τ; τ is weighed by p.
    power = p.where(inside, 1.0) ** (alpha - 1)
    tau = ((alpha - 1) * z - power).where(inside, 0.0)
    mean = (p * tau).sum(-1, keepdim=True) / p.sum(-1, keepdim=True)
    # A change of τ by d changes p by d·p^(2−α)/(α−1) ≤ d/(α−1) for α ≤ 2.
    change = (tau - mean).where(inside, 0.0).abs() * p.where(inside, 0.0) ** max(0.0, 2 - alpha)
    assert (change <= tolerance * max(alpha - 1, 1e-3) * 4).all(), change.max()
    outside = ((alpha - 1) * z - mean).where(~inside, 0.0).clamp(min=0.0)
    assert (outside ** (1 / (alpha - 1)) <= tolerance * 4).all()


def reference_loss(name: str, z: Tensor, q: Tensor, alpha: float, tau: float = 0.0) -> Tensor:
    if name == "alpha_relu":
        return reference.alpha_relu_loss(z, q, alpha, tau)
    return reference.entmax_loss(z, q, alpha)


def reference_scores(name: str, z: Tensor, alpha: float, tau: float = 0.0) -> Tensor:
    if name == "alpha_relu":
        return reference.alpha_relu(z, alpha, tau)
    return reference.entmax(z, alpha)


def only(route: str):
    """Marks a test of one route alone."""
    return pytest.mark.parametrize("route", [route], indirect=True)
