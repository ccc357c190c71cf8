"""entmax, sparsemax, alpha_relu and entmax_threshold: values, shapes, dtypes, infinities."""

import entmax as peer
import pytest
import torch
from helpers import ALPHAS, SOLVERS, SPARSE_ALPHAS, assert_is_entmax, scores
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_fairseq import functional as sf
from sparse_fairseq.functional import reference

INF, NAN = float("inf"), float("nan")

rows = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=200).map(torch.tensor)
alphas = st.floats(1.01, 4.0)


def test_golden_values():
    """By hand: with x = z/2 − τ, 1.5-entmax of (1, 0) solves x² + (x − 1/2)² = 1."""
    root = (0.5 + 7**0.5 / 2) / 2
    expected = torch.tensor([root**2, (root - 0.5) ** 2], dtype=torch.float64)
    z = torch.tensor([1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(sf.entmax(z, 1.5), expected, rtol=1e-15, atol=0)
    torch.testing.assert_close(sf.sparsemax(torch.tensor([0.5, 0.0, -3.0])), _f(0.75, 0.25, 0))
    torch.testing.assert_close(sf.entmax(torch.zeros(4), 3.0), torch.full((4,), 0.25))
    torch.testing.assert_close(sf.alpha_relu(_f(1.0, 0.2), 1.5, 0.1), _f(0.16, 0.0))
    torch.testing.assert_close(sf.alpha_relu(_f(1.0, -1.0), 2.0), _f(1.0, 0.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [50, 3000])
def test_an_alpha_that_is_2_but_for_rounding(classes, dtype):
    alpha = sum([0.2] * 10)
    assert alpha != 2.0
    z = scores(4, classes, dtype=dtype)
    torch.testing.assert_close(sf.entmax(z, alpha), sf.sparsemax(z), rtol=0, atol=1e-6)
    target = torch.arange(4)
    loss = sf.entmax_loss(z, target, alpha)
    torch.testing.assert_close(loss, sf.entmax_loss(z, target, 2.0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0])
def test_largest_score_among_the_last_columns_of_a_crowded_row(alpha):
    """2,055 columns are 128 groups of 16 and 7 columns more: the bound must know of these."""
    z = scores(4, 2055, scale=0.05)
    z[:, -1] = z.amax(1) + torch.tensor([0.0, 0.01, 0.1, 3.0])
    torch.testing.assert_close(sf.entmax(z, alpha), reference.entmax(z, alpha), rtol=0, atol=1e-12)


def _f(*values: float) -> torch.Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("classes", [1, 2, 64, 129, 300, 5000])
@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0])
def test_agrees_with_the_reference(solver, alpha, classes, scale):
    z = scores(6, classes, scale=scale)
    p = sf.entmax(z, alpha, solver=solver)
    # p = [x − τ]^β with β < 1 is steep at τ: there bisection on τ, the reference's too, is
    # exact only to the power β of the precision.
    tolerance = 1e-12 if alpha <= 2 else 1e-15 ** (1 / (alpha - 1))
    torch.testing.assert_close(p, reference.entmax(z, alpha), rtol=0, atol=tolerance)
    if alpha > 1 and solver != "bisect":
        assert_is_entmax(p, z, alpha, 1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_agrees_with_the_entmax_package(solver):
    z = scores(20, 400, scale=2.0)
    torch.testing.assert_close(sf.sparsemax(z, solver=solver), peer.sparsemax(z, -1))
    torch.testing.assert_close(sf.entmax(z, solver=solver), peer.entmax15(z, -1))
    p = peer.entmax_bisect(z, 1.3, n_iter=80)
    torch.testing.assert_close(sf.entmax(z, 1.3, solver=solver), p)


@pytest.mark.parametrize("alpha", [1.02, 1.1, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dense_rows_of_a_large_vocabulary(alpha, dtype):
    """Nearly all of 20,000 classes in the support: another code path than few candidates."""
    z = scores(3, 20_000, scale=0.01 * (2.1 - alpha), dtype=dtype)
    p = sf.entmax(z, alpha)
    if alpha <= 1.5:
        assert ((p > 0).double().mean(1) > 0.3).all()
    relative = 1e-4 if dtype == torch.float32 else 1e-11
    expected = reference.entmax(z, alpha)
    torch.testing.assert_close(p.double(), expected, rtol=relative, atol=expected.max() * relative)
    assert ((p.double().sum(1) - 1).abs() < 1e-6).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_sums_to_one_in_float32(alpha):
    for scale in (1e-4, 0.18, 1.0, 10.0, 1e4):
        p = sf.entmax(scores(4, 32_000, scale=scale, dtype=torch.float32), alpha)
        assert ((p.double().sum(1) - 1).abs() < 1e-6).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_one_row_of_250_000_classes(alpha):
    z = scores(1, 250_000, dtype=torch.float32)
    p = sf.entmax(z, alpha)
    torch.testing.assert_close(p.double(), reference.entmax(z, alpha), rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    z = scores(4, 32_000, dtype=dtype).requires_grad_()
    p = sf.entmax(z, 1.1)
    torch.testing.assert_close(p, sf.entmax(z.float(), 1.1).to(dtype), rtol=0, atol=0)
    (grad,) = torch.autograd.grad(p[:, 0].sum(), z)
    assert p.dtype == dtype and grad.dtype == dtype
    relu = sf.alpha_relu(z, 1.5, 0.3)
    assert relu.dtype == dtype
    torch.testing.assert_close(relu, sf.alpha_relu(z.float(), 1.5, 0.3).to(dtype))


def test_autocast_changes_nothing():
    z = scores(4, 300, dtype=torch.float32).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        p = sf.entmax(z, 1.3)
        (grad,) = torch.autograd.grad(p[:, 0].sum(), z)
    torch.testing.assert_close(p, sf.entmax(z, 1.3), rtol=0, atol=0)
    assert p.dtype == grad.dtype == torch.float32


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_any_dimension_and_non_contiguous_input(dim):
    z = scores(4, 5, 6).transpose(0, 1)
    before = z.clone()
    p = sf.entmax(z, 1.5, dim)
    expected = reference.entmax(z.movedim(dim, -1)).movedim(-1, dim)
    torch.testing.assert_close(p, expected)
    torch.testing.assert_close(z, before, rtol=0, atol=0)
    strided = scores(4, 10, 12)[:, ::2, ::2]
    torch.testing.assert_close(sf.entmax(strided, 1.5, dim), sf.entmax(strided.clone(), 1.5, dim))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5), (5, 0), (0,)])
def test_empty_input(shape):
    z = torch.zeros(shape, requires_grad=True)
    for p in (sf.entmax(z), sf.entmax(z, 1.0), sf.sparsemax(z), sf.alpha_relu(z)):
        assert p.shape == z.shape


def test_leading_shapes_and_scalars():
    z = scores(2, 3, 1, 7)
    assert sf.entmax(z).shape == z.shape
    torch.testing.assert_close(sf.entmax(z)[1, 2, 0], sf.entmax(z[1, 2, 0]))
    assert sf.entmax(torch.tensor(3.0)) == 1.0
    assert sf.entmax_threshold(z, dim=1).shape == (2, 1, 7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("classes", [5, 300])
def test_infinities_and_nan(solver, alpha, classes):
    z = scores(5, classes, dtype=torch.float32)
    clean = sf.entmax(z, alpha, solver=solver)
    z[0, 2] = -INF
    z[1] = -INF
    z[2, 1] = NAN
    z[3, 0] = INF
    z.requires_grad_()
    p = sf.entmax(z, alpha, solver=solver)
    upstream = scores(5, classes, seed=1, dtype=torch.float32)
    (grad,) = torch.autograd.grad(p, z, upstream)
    kept = torch.cat([z[:1, :2], z[:1, 3:]], 1).detach()
    torch.testing.assert_close(
        torch.cat([p[:1, :2], p[:1, 3:]], 1), sf.entmax(kept, alpha, solver=solver)
    )
    assert p[0, 2] == 0 and grad[0, 2] == 0 and grad[0].isfinite().all()
    assert (p[1] == 0).all() and (grad[1] == 0).all()
    assert p[2].isnan().all() and p[3].isnan().all()
    torch.testing.assert_close(p[4], clean[4])
    assert grad[4].isfinite().all()


def test_infinities_in_alpha_relu():
    z = torch.tensor([[1.0, -INF], [-INF, -INF], [NAN, 1.0], [INF, 1.0], [2.0, 0.0]])
    z.requires_grad_()
    for alpha, powers in ((1.5, [0.25, 1.0]), (1.25, [0.25**4, 0.5**4])):
        p = sf.alpha_relu(z, alpha)
        assert p[:2].tolist() == [[powers[0], 0.0], [0.0, 0.0]] and p[4].tolist() == [
            powers[1],
            0.0,
        ]
        assert p[2, 0].isnan() and p[3, 0] == INF and p[2:4, 1].tolist() == [powers[0]] * 2
        (grad,) = torch.autograd.grad(p.sum(), z)
        assert grad[:2].isfinite().all() and grad[4].isfinite().all()
        assert grad[2, 0].isnan() and grad[2, 1] == grad[0, 0] == grad[3, 1] > 0


def test_masked_equals_truncated():
    z = scores(3, 200)
    masked = z.clone()
    masked[:, 150:] = -INF
    torch.testing.assert_close(sf.entmax(masked, 1.3)[:, :150], sf.entmax(z[:, :150], 1.3))


@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.3, 1.5, 1.9, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("classes", [12, 140])
def test_gradients(alpha, classes):
    z = scores(2, classes).requires_grad_()
    fast = classes > 100
    functions = [lambda z: sf.entmax(z, alpha)]
    if alpha > 1:
        functions += [
            lambda z: sf.entmax_threshold(z, alpha),
            lambda z: sf.alpha_relu(z, alpha, 0.1),
        ]
    for function in functions:
        assert torch.autograd.gradcheck(function, z, fast_mode=fast)
        assert torch.autograd.gradgradcheck(function, z, fast_mode=fast)


def test_gradients_along_another_dimension():
    z = scores(4, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: sf.entmax(z, 1.4, dim=0), z)


def test_alpha_per_head_with_gradient():
    z = scores(2, 3, 4, 9).requires_grad_()
    alpha = torch.tensor([1.0001, 1.5, 1.9], dtype=torch.float64)[:, None, None].requires_grad_()
    p = sf.entmax(z, alpha)
    for head in range(3):
        expected = sf.entmax(z[:, head], alpha[head].item())
        torch.testing.assert_close(p[:, head], expected)
    assert torch.autograd.gradcheck(sf.entmax, (z, alpha))
    assert torch.autograd.gradgradcheck(sf.entmax, (z, alpha))


def test_alpha_tensor_of_all_kinds():
    """Softmax, flat and steep rows in one call, for few and for many classes."""
    alpha = torch.tensor([1.0, 1.2, 1.5, 2.0, 3.0])[:, None]
    for classes in (10, 1000):
        z = scores(5, classes)
        for solver in SOLVERS:
            p = sf.entmax(z, alpha, solver=solver)
            for row in range(5):
                expected = sf.entmax(z[row], alpha[row].item())
                torch.testing.assert_close(p[row], expected, rtol=0, atol=1e-7)


def test_alpha_gradient_is_continuous_at_one():
    z = scores(1, 6)

    def slope(value: float) -> torch.Tensor:
        alpha = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
        return torch.stack(
            [torch.autograd.grad(sf.entmax(z, alpha)[0, i], alpha)[0] for i in range(6)]
        )

    log = z.log_softmax(1)
    expected = log.exp() * ((log.exp() * log**2).sum() - log**2) / 2  # the limit, by hand
    torch.testing.assert_close(slope(1.0).flatten(), expected.flatten())
    torch.testing.assert_close(slope(1 + 1e-9), slope(1.0), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("bad", [0.9, NAN, INF, -1.0, torch.tensor([1.5, 0.5]), torch.ones(7) * 2])
def test_wrong_alpha_is_named(bad):
    z = scores(2, 3)
    with pytest.raises(ValueError, match="alpha"):
        sf.entmax(z, bad)


@pytest.mark.parametrize("bad", [1.0, 0.5, NAN])
def test_wrong_alpha_of_alpha_relu_is_named(bad):
    for function in (sf.alpha_relu, sf.entmax_threshold):
        with pytest.raises(ValueError, match=f"alpha must be > 1.*{bad}"):
            function(scores(2, 3), bad)


def test_other_wrong_arguments_are_named():
    z = scores(2, 3)
    with pytest.raises(ValueError, match="solver.*'sorted'"):
        sf.entmax(z, solver="sorted")
    with pytest.raises(ValueError, match="topk.*0"):
        sf.entmax(z, solver="topk", topk=0)
    with pytest.raises(ValueError, match="int64"):
        sf.entmax(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="tau.*nan"):
        sf.alpha_relu(z, tau=NAN)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_topk_grows_until_the_support_fits(alpha):
    z = scores(3, 2000, scale=0.01)
    exact = sf.entmax(z, alpha, solver="sort")
    assert (exact > 0).sum(1).max() > 3
    torch.testing.assert_close(sf.entmax(z, alpha, solver="topk", topk=3), exact)


@pytest.mark.parametrize("alpha", SPARSE_ALPHAS)
def test_threshold_gives_the_mapping(alpha):
    z = scores(5, 300)
    tau = sf.entmax_threshold(z, alpha)
    x = ((alpha - 1) * z - tau[:, None]).clamp(min=0)
    tolerance = 1e-10 if alpha <= 2 else 1e-4
    torch.testing.assert_close(x ** (1 / (alpha - 1)), sf.entmax(z, alpha), rtol=0, atol=tolerance)
    torch.testing.assert_close(tau, reference.entmax_threshold(z, alpha))


@settings(deadline=None, max_examples=200)
@given(rows, alphas)
def test_entmax_is_a_distribution_that_solves_its_problem(z, alpha):
    assert_is_entmax(sf.entmax(z, alpha), z, alpha, 2e-6)


@settings(deadline=None, max_examples=100)
@given(rows, alphas, st.floats(-100, 100))
def test_shift_invariance(z, alpha, shift):
    z = z.double()
    torch.testing.assert_close(sf.entmax(z + shift, alpha), sf.entmax(z, alpha), rtol=0, atol=1e-5)


@settings(deadline=None, max_examples=100)
@given(rows)
def test_ends_of_the_family(z):
    z = z.double()
    torch.testing.assert_close(sf.entmax(z, 1 + 1e-9), z.softmax(-1), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(sf.entmax(z, 1.0), z.softmax(-1))
    torch.testing.assert_close(sf.entmax(z, 2.0), sf.sparsemax(z), rtol=0, atol=0)


@settings(deadline=None, max_examples=100)
@given(rows, st.floats(1.01, 2.0))
def test_alpha_relu_at_the_threshold_is_entmax(z, alpha):
    z = z.double()
    tau = sf.entmax_threshold(z, alpha).item()
    torch.testing.assert_close(sf.alpha_relu(z, alpha, tau), sf.entmax(z, alpha), rtol=0, atol=1e-9)


@pytest.mark.parametrize("alpha", [3.0, 5.0, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_of_steep_mappings(alpha, dtype):
    """Two classes, the second with p = w: the Jacobian is s₁s₂/(s₁+s₂) · [[1, −1], [−1, 1]]."""
    for w in (0.3, 1e-2, 1e-4, 1e-6):
        gap = (1 - w) ** (alpha - 1) - w ** (alpha - 1)
        z = torch.tensor([0.0, -gap / (alpha - 1), -9.0], dtype=dtype, requires_grad=True)
        p = sf.entmax(z, alpha)
        (grad,) = torch.autograd.grad(p[0], z)
        small = p[1].double()
        s = (1 - small) ** (2 - alpha), small ** (2 - alpha)
        expected = s[0] / (1 + s[0] / s[1]) if small > 0 else s[0] * 0
        assert grad[0].item() == pytest.approx(expected.item(), rel=1e-4)
        assert grad[1].item() == pytest.approx(-expected.item(), rel=1e-4) and grad[2] == 0


@pytest.mark.parametrize("alpha", [20.0, 100.0, 500.0, 2000.0])
@pytest.mark.parametrize("solver", ["auto", "sort", "topk"])
def test_very_large_alpha(alpha, solver):
    torch.testing.assert_close(
        sf.entmax(torch.zeros(2, 300), alpha, solver=solver).sum(1), torch.ones(2)
    )
    p = sf.entmax(scores(20, 200, scale=1e-4), alpha, solver=solver)
    torch.testing.assert_close(p.sum(1), torch.ones(20, dtype=torch.float64))


@pytest.mark.parametrize("alpha", [1.0, 1.5, 3.0])
def test_backward_of_an_empty_batch(alpha):
    z = torch.zeros(0, 5, requires_grad=True)
    (sf.entmax(z, alpha).sum() + sf.alpha_relu(z).sum()).backward()
    assert z.grad.shape == (0, 5)


def test_gradients_of_alpha_relu_for_tensors():
    z = scores(3, 6).requires_grad_()
    alpha = torch.tensor([[1.3], [1.5], [1.9]], dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sf.alpha_relu, (z, alpha, tau))
    masked = z.detach().clone()
    masked[:, 0] = -INF
    (grad,) = torch.autograd.grad(sf.alpha_relu(masked, alpha).sum(), alpha)
    assert grad.isfinite().all()
    for bad in (torch.ones(4) * 1.5, torch.ones(2, 3, 6) * 1.5):
        with pytest.raises(ValueError, match="alpha of shape"):
            sf.alpha_relu(z, bad)


@pytest.mark.parametrize("alpha", [1.07, 1.01, 1.0001, torch.tensor(1.0001)])
def test_alpha_relu_near_softmax_in_float32(alpha):
    z = scores(8, 300, dtype=torch.float32)
    number = float(alpha)
    tau = sf.batch_tau(z.double(), number)
    expected = sf.alpha_relu(z.double(), number, tau)
    p = sf.alpha_relu(z, alpha, tau)
    assert p.dtype == torch.float32
    torch.testing.assert_close(p.double(), expected, rtol=1e-6, atol=1e-9)
