"""The mapping and its backward pass, for attention rows and longer ones."""

import pytest
import torch
from kernel_cases import DTYPES, TOLERANCE, assert_near, name, scores

from sparse_fairseq.functional import _tsallis, reference
from sparse_fairseq.functional._triton import launch

INF, NAN = float("inf"), float("nan")
LENGTHS = [False, True]


def jacobian(p, alpha):
    """S2S Proposition 1, for each row."""
    s = torch.where(p > 0, p ** (2 - alpha), 0.0)
    return torch.diag_embed(s) - s[:, :, None] * s[:, None, :] / s.sum(1)[:, None, None]


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("long", LENGTHS, ids=["tile", "blocks"])
@pytest.mark.parametrize("keys", [1, 7, 50, 100])
@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0])
def test_one_alpha(alpha, keys, long, dtype, request):
    if long:
        request.getfixturevalue("small_blocks")
    z = scores(4, keys, dtype)
    p = launch.entmax_rows(z, alpha, None)
    want = reference.entmax(z, alpha)
    assert_near(p, want, TOLERANCE[dtype])
    grad = scores(4, keys, dtype, seed=5)
    of_z, of_alpha = launch.entmax_gradients(p, grad, alpha, None, False)
    expected = torch.einsum("nij,nj->ni", jacobian(p.double(), alpha), grad.double())
    assert_near(of_z, expected, TOLERANCE[dtype])
    assert of_alpha.numel() == 0


@pytest.mark.parametrize("long", LENGTHS, ids=["tile", "blocks"])
@pytest.mark.parametrize("keys", [7, 50])
def test_alpha_for_each_row(keys, long, request):
    """As for each head; α = 1, which a learned α may reach, is softmax."""
    if long:
        request.getfixturevalue("small_blocks")
    z = scores(5, keys)
    alpha = torch.tensor([1.0, 1.001, 1.25, 1.7, 2.0], dtype=torch.float64)
    eps = launch.row_eps(alpha)
    p = launch.entmax_rows(z, None, eps)
    want = torch.stack([reference.entmax(z[i], alpha[i].item()) for i in range(5)])
    assert_near(p, want, 1e-6)
    grad = scores(5, keys, seed=5)
    of_z, of_alpha = launch.entmax_gradients(p, grad, None, eps, True)
    for i in range(5):
        expected = jacobian(want[i : i + 1], alpha[i].item())[0] @ grad[i].double()
        assert_near(of_z[i], expected, 1e-6)
    slope = _tsallis.entmax_slope(want, alpha[:, None])
    assert_near(of_alpha, (grad.double() * slope).sum(1), 2e-6)
    alone, nothing = launch.entmax_gradients(p, grad, None, eps, False)
    assert torch.equal(alone, of_z) and nothing.numel() == 0


@pytest.mark.parametrize("per_row", [False, True], ids=["constant", "learned"])
@pytest.mark.parametrize("long", LENGTHS, ids=["tile", "blocks"])
def test_masks_and_nan(long, per_row, request):
    if long:
        request.getfixturevalue("small_blocks")
    z = scores(4, 40).clone()
    z[0, 5:] = -INF
    z[1] = -INF
    z[2, 3] = NAN
    z[3, 3] = INF
    alpha, eps = (None, torch.full((4,), 0.5)) if per_row else (1.5, None)
    p = launch.entmax_rows(z, alpha, eps)
    assert_near(p[:1, :5], reference.entmax(z[:1, :5], 1.5), 1e-6)
    assert (p[0, 5:] == 0).all() and (p[1] == 0).all() and p[2:].isnan().all()
    of_z, of_alpha = launch.entmax_gradients(p, torch.ones(4, 40), alpha, eps, per_row)
    assert (of_z[1] == 0).all() and of_z[2:].isnan().all() and of_z[0].abs().max() < 1e-6
    assert not per_row or of_alpha[1] == 0


def test_strided_gradients_and_scores():
    z, grad = scores(4, 12), scores(4, 12, seed=3)
    across, grad_across = (x.t().contiguous().t() for x in (z, grad))
    p = launch.entmax_rows(z, 1.5, None)
    assert torch.equal(launch.entmax_rows(across, 1.5, None), p)
    of_z, _ = launch.entmax_gradients(p, grad, 1.5, None, False)
    assert torch.equal(launch.entmax_gradients(p, grad_across, 1.5, None, False)[0], of_z)
    summed = torch.ones(()).expand(4, 12)  # what sum() hands back
    assert launch.entmax_gradients(p, summed, 1.5, None, False)[0].abs().max() < 1e-6
