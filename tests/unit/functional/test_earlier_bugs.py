"""One test for each bug that earlier implementations of this math have (not: they had)."""

from functools import partial

import entmax as peer
import pytest
import torch
from helpers import scores, targets

from sparse_fairseq import functional as sf

INF = float("inf")


def test_alpha_relu_loss_value_is_consistent_with_its_gradient():
    """With the entropy of SE Eq. 14 the loss goes negative and its slope is not p − q."""
    z = scores(6, 40, scale=2.0).requires_grad_()
    y = targets(6, classes=40)
    loss = sf.alpha_relu_loss(z, y, 1.5, 0.1, reduction="sum")
    (grad,) = torch.autograd.grad(loss, z)
    direction = scores(6, 40, seed=3)
    step = 1e-6
    with torch.no_grad():
        ahead = sf.alpha_relu_loss(z + step * direction, y, 1.5, 0.1, reduction="sum")
        behind = sf.alpha_relu_loss(z - step * direction, y, 1.5, 0.1, reduction="sum")
    slope = (ahead - behind) / (2 * step)
    torch.testing.assert_close((grad * direction).sum(), slope, rtol=1e-6, atol=1e-6)
    assert loss > 0


@pytest.mark.parametrize(
    "loss", [partial(sf.alpha_relu_loss, tau=0.1), sf.entmax_loss, sf.sparsemax_loss]
)
def test_backward_uses_the_upstream_gradient(loss):
    """Where it is ignored, padding that was masked afterwards still gets a gradient."""
    z = scores(4, 200).requires_grad_()
    mask = torch.tensor([1.0, 0.0, -2.0, 0.0], dtype=torch.float64)
    each = loss(z, targets(4, classes=200), reduction="none")
    (grad,) = torch.autograd.grad((each * mask).sum(), z)
    (plain,) = torch.autograd.grad(loss(z, targets(4, classes=200), reduction="sum"), z)
    torch.testing.assert_close(grad, mask[:, None] * plain)
    assert (grad[1] == 0).all() and (grad[3] == 0).all() and (grad[0] != 0).any()


def test_tau_helpers_return_numbers_for_any_alpha():
    for alpha in (1.2, 1.5, 1.8):
        assert isinstance(sf.batch_tau(scores(3, 100), alpha), float)
        assert isinstance(sf.gaussian_tau(100, 1.0, alpha), float)


@pytest.mark.parametrize("alpha", [1.2, 1.8, 2.5])
def test_alpha_relu_takes_any_alpha(alpha):
    z = torch.tensor([1.0, -1.0])
    expected = torch.tensor([(alpha - 1.0) ** (1 / (alpha - 1)), 0.0])
    torch.testing.assert_close(sf.alpha_relu(z, alpha), expected)


def test_minus_infinity_costs_nothing():
    z, y = torch.tensor([[1.0, 0.5, -INF]]), torch.tensor([0])
    for alpha in (1.0, 1.3, 1.5, 2.0):
        without = sf.entmax_loss(z[:, :2], y, alpha)
        torch.testing.assert_close(sf.entmax_loss(z, y, alpha), without)
    torch.testing.assert_close(
        sf.alpha_relu_loss(z, y, tau=0.1), sf.alpha_relu_loss(z[:, :2], y, tau=0.1)
    )


def test_fully_masked_row_maps_to_zeros():
    z = torch.tensor([[-INF, -INF], [1.0, 0.0]], requires_grad=True)
    for alpha in (1.0, 1.3, 1.5, 2.0):
        p = sf.entmax(z, alpha)
        (grad,) = torch.autograd.grad(p[:, 0].sum(), z)
        assert (p[0] == 0).all() and (grad[0] == 0).all() and grad.isfinite().all()


def test_alpha_one_is_softmax():
    z = scores(3, 500)
    torch.testing.assert_close(sf.entmax(z, 1.0), z.softmax(-1))
    torch.testing.assert_close(sf.entmax(z, torch.ones(3, 1)), z.softmax(-1))


def test_losses_take_any_leading_shape_negative_ignore_index_and_mean():
    z, y = scores(2, 3, 50), targets(2, 3, classes=50)
    y[1, 2] = -7
    flat = sf.entmax_loss(z.flatten(0, 1)[:5], y.flatten()[:5], reduction="mean")
    torch.testing.assert_close(sf.entmax_loss(z, y, reduction="mean", ignore_index=-7), flat)


def test_topk_is_exact_when_the_support_is_larger():
    """k = 100 of the peer is checked against its own, exact sort."""
    z = scores(3, 4000, scale=0.02)
    exact = peer.entmax15(z, -1)
    assert ((exact > 0).sum(1) > 200).all()
    torch.testing.assert_close(sf.entmax(z, 1.5, solver="topk", topk=100), exact)


def test_bfloat16_is_summed_in_float32():
    """In bfloat16 throughout, the sum over 32,000 classes is about 0.95. Here only the result is
    rounded, so rows differ from 1 by what rounding p does, and on average by next to nothing."""
    z = scores(16, 32_000, scale=0.2, dtype=torch.bfloat16)
    total = sf.entmax(z, 1.5).float().sum(1)
    assert (total - 1).abs().max() < 2e-3


def test_loss_has_a_gradient_for_alpha():
    z, y = scores(3, 50), targets(3, classes=50)
    alpha = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(sf.entmax_loss(z, y, alpha), alpha)
    numeric = (sf.entmax_loss(z, y, 1.5 + 1e-6) - sf.entmax_loss(z, y, 1.5 - 1e-6)) / 2e-6
    torch.testing.assert_close(slope, numeric, rtol=1e-6, atol=1e-8)


def test_smoothing_is_uniform():
    """Not weighted by how often a word occurs: all classes but the target get the same."""
    z = scores(1, 50).requires_grad_()
    loss = sf.alpha_relu_loss(z, torch.tensor([3]), 1.5, 5.0, label_smoothing=0.1)
    (grad,) = torch.autograd.grad(loss, z)  # p = 0, so this is −q
    expected = torch.full((1, 50), -0.1 / 50, dtype=torch.float64)
    expected[0, 3] -= 0.9
    torch.testing.assert_close(grad, expected)
