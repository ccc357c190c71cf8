"""The float32 route for many short rows against the float64 solvers."""

import pytest
import torch
from helpers import scores

from sparse_fairseq import functional as sf
from sparse_fairseq.functional._host import short_rows

ALPHAS = [1.0, 1.001, 1.05, 1.1, 1.25, 4 / 3, 1.4, 1.5, 1.75, 1.9, 1.99, sum([0.2] * 10), 2.0]
CLASSES = [1, 2, 33, 300, 2048]


def both(z, alpha, upstream):
    """p and the gradients by the route under test, and in float64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        leaf = z.to(dtype).requires_grad_()
        leaves = [leaf]
        if isinstance(alpha, torch.Tensor):
            leaves.append(alpha.double().requires_grad_())
        p = sf.entmax(leaf, leaves[1] if len(leaves) == 2 else alpha)
        grads = torch.autograd.grad(p, leaves, upstream.to(dtype))
        results.append([p.double(), *(grad.double() for grad in grads)])
    return results


@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0, 100.0])
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_agrees_with_float64(alpha, classes, scale):
    z = scores(5, classes, scale=scale, dtype=torch.float32)
    assert short_rows.fits(z, alpha) and not short_rows.fits(z.double(), alpha)
    got, expected = both(z, alpha, scores(5, classes, seed=1, dtype=torch.float32))
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=5e-7)
    torch.testing.assert_close(got[1], expected[1], rtol=1e-3, atol=5e-4)
    assert ((got[0].sum(1) - 1).abs() < 1e-6).all()


@pytest.mark.parametrize("lowest", [1.001, 1.1])
@pytest.mark.parametrize("classes", CLASSES[1:])
def test_rows_with_their_own_alpha(classes, lowest):
    z = scores(40, classes, scale=2.0, dtype=torch.float32)
    alpha = torch.linspace(lowest, 2.0, 40, dtype=torch.float64)[:, None]
    assert short_rows.fits(z, alpha)
    got, expected = both(z, alpha, scores(40, classes, seed=1, dtype=torch.float32))
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=5e-7)
    torch.testing.assert_close(got[1], expected[1], rtol=1e-3, atol=5e-4)
    torch.testing.assert_close(got[2], expected[2], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("alpha", [1.0, 1.05, 1.4, 1.5, 2.0])
def test_masked_and_broken_rows(alpha):
    """−inf is a mask; a row of it maps to zeros; NaN and +inf spoil their own row alone."""
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, -inf, 0.5], [-inf] * 3, [nan, 0.0, 0.0], [inf, 0.0, -inf], [0.1, 0.2, 0.3]]
    z = torch.tensor(rows, requires_grad=True)
    p = sf.entmax(z, alpha)
    (grad,) = torch.autograd.grad((p * torch.tensor([1.0, 2.0, 4.0])).sum(), z)
    kept = sf.entmax(torch.tensor([1.0, 0.5]), alpha)
    torch.testing.assert_close(p[0, [0, 2]], kept)
    assert p[0, 1] == 0 == grad[0, 1] and (p[1] == 0).all() and (grad[1] == 0).all()
    assert p[2:4].isnan().all() and grad[2:4].isnan().all()
    torch.testing.assert_close(p[4], sf.entmax(z[4].double(), alpha).float())


def test_blocks_do_not_show(monkeypatch):
    z = scores(50, 40, dtype=torch.float32)
    whole = sf.entmax(z, 1.5)
    monkeypatch.setattr(short_rows, "BLOCK_ELEMENTS", 320)
    torch.testing.assert_close(sf.entmax(z, 1.5), whole)


def test_second_derivatives():
    """The backward pass in place is only for when nobody differentiates it."""
    z = scores(3, 6, dtype=torch.float32).requires_grad_()
    exact = z.detach().double().requires_grad_()
    seconds = []
    for leaf in (z, exact):
        (first,) = torch.autograd.grad(sf.entmax(leaf, 1.5)[:, 0].sum(), leaf, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), leaf)[0])
    torch.testing.assert_close(seconds[0].double(), seconds[1], rtol=1e-4, atol=1e-5)
