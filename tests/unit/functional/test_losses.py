"""The losses: values, gradients, reductions, targets, infinities, statistics."""

import entmax as peer
import pytest
import torch
import torch.nn.functional as F
from helpers import ALPHAS, SOLVERS, reference_loss, reference_scores, scores, targets
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_fairseq import functional as sf
from sparse_fairseq.functional import reference

INF, NAN = float("inf"), float("nan")
CASES = [("entmax", alpha) for alpha in ALPHAS] + [("alpha_relu", a) for a in (1.2, 1.5, 2.0, 3.0)]
TAU = 0.2


def loss_of(name: str, z, y, alpha: float, **options):
    if name == "alpha_relu":
        return sf.alpha_relu_loss(z, y, alpha, TAU, **options)
    return sf.entmax_loss(z, y, alpha, **options)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [1, 7, 140, 3000])
@pytest.mark.parametrize(("name", "alpha"), CASES)
def test_value_and_gradient_are_the_definition(name, alpha, classes, smoothing):
    z = scores(5, classes).requires_grad_()
    y = targets(5, classes=classes)
    loss = loss_of(name, z, y, alpha, reduction="none", label_smoothing=smoothing)
    q = reference.smoothed(y, classes, smoothing)
    torch.testing.assert_close(loss, reference_loss(name, z.detach(), q, alpha, TAU))
    upstream = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    (grad,) = torch.autograd.grad(loss, z, upstream)
    p = reference_scores(name, z.detach(), alpha, TAU)
    tolerance = 1e-9 if alpha <= 2 else 1e-4
    torch.testing.assert_close(grad, upstream[:, None] * (p - q), rtol=0, atol=tolerance)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [6, 140])
@pytest.mark.parametrize(
    ("name", "alpha"),
    [("entmax", a) for a in (1.0, 1.2, 1.5, 2.0, 2.5)] + [("alpha_relu", a) for a in (1.3, 1.5)],
)
def test_gradcheck(name, alpha, classes, smoothing):
    """gradcheck's upstream gradients are random, gradgradcheck differentiates once more."""
    z = scores(3, classes).requires_grad_()
    y = torch.tensor([1, 5, -100])

    def loss(z):
        return loss_of(name, z, y, alpha, reduction="none", label_smoothing=smoothing) ** 2

    assert torch.autograd.gradcheck(loss, z, fast_mode=classes > 100)
    assert torch.autograd.gradgradcheck(loss, z, fast_mode=classes > 100)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_alpha_receives_a_gradient(smoothing):
    z = scores(2, 3, 8).requires_grad_()
    y = targets(2, 3, classes=8)
    alpha = torch.tensor([[1.0], [1.5], [1.8]], dtype=torch.float64, requires_grad=True)

    def loss(z, alpha):
        return sf.entmax_loss(z, y, alpha, reduction="none", label_smoothing=smoothing)

    close_to_one = (alpha + torch.tensor([[1e-3], [0.0], [0.0]])).detach().requires_grad_()
    assert torch.autograd.gradcheck(loss, (z, close_to_one))
    assert torch.autograd.gradgradcheck(loss, (z, close_to_one))
    shared = torch.tensor(1.4, requires_grad=True)
    sf.entmax_loss(z, y, shared).backward()
    h = 1e-6
    slope = (sf.entmax_loss(z, y, 1.4 + h) - sf.entmax_loss(z, y, 1.4 - h)) / (2 * h)
    torch.testing.assert_close(shared.grad.double(), slope.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        loss(z, alpha)[:, 0],
        sf.entmax_loss(z[:, 0], y[:, 0], 1.0, reduction="none", label_smoothing=smoothing),
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5, 2.0, torch.tensor([[1.2], [1.5]] * 3)])
@pytest.mark.parametrize("classes", [500, 1500])
def test_solvers_agree(solver, alpha, classes):
    z = scores(6, classes).requires_grad_()
    y = targets(6, classes=classes)
    loss = sf.entmax_loss(z, y, alpha, solver=solver)
    (grad,) = torch.autograd.grad(loss, z)
    expected = sf.entmax_loss(z, y, alpha)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, z)[0])


def test_agrees_with_the_entmax_package_and_with_torch():
    z, y = scores(9, 50), targets(9, classes=50)
    for ours, theirs in (
        (sf.entmax_loss(z, y, reduction="sum"), peer.entmax15_loss(z, y).sum()),
        (sf.sparsemax_loss(z, y, reduction="sum"), peer.sparsemax_loss(z, y).sum()),
        (sf.entmax_loss(z, y, 1.0), F.cross_entropy(z, y)),
        (
            sf.entmax_loss(z, y, 1.0, label_smoothing=0.1),
            F.cross_entropy(z, y, label_smoothing=0.1)
            - reference.tsallis_entropy(reference.smoothed(y, 50, 0.1), 1).mean(),
        ),
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("name", "alpha"), CASES)
def test_soft_targets(name, alpha):
    z = scores(4, 9).requires_grad_()
    q = torch.rand(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q = q * (q > 0.5)
    q = q / q.sum(1, keepdim=True)
    loss = loss_of(name, z, q, alpha, reduction="none")
    torch.testing.assert_close(loss, reference_loss(name, z.detach(), q, alpha, TAU))
    (grad,) = torch.autograd.grad(loss.sum(), z)
    torch.testing.assert_close(grad, reference_scores(name, z.detach(), alpha, TAU) - q)
    smooth = loss_of(name, z, q, alpha, label_smoothing=0.2, reduction="none")
    torch.testing.assert_close(
        smooth, reference_loss(name, z.detach(), 0.8 * q + 0.2 / 9, alpha, TAU)
    )
    one_hot = F.one_hot(targets(4, classes=9), 9).double()
    torch.testing.assert_close(
        loss_of(name, z, one_hot, alpha), loss_of(name, z, targets(4, classes=9), alpha)
    )
    with pytest.raises(ValueError, match="detach"):
        loss_of(name, z, q.requires_grad_(), alpha)


@pytest.mark.parametrize(("name", "alpha"), CASES)
def test_loss_is_zero_where_scores_equal_the_target(name, alpha):
    """Label smoothing included: that is what the constant Ω(q) is for."""
    y = torch.tensor([2])
    q = reference.smoothed(y, 6, 0.1)
    # Invert p = q: z = q^(α−1)/(α−1) + τ/(α−1), or log q.
    z = q.log() if alpha == 1 else (q ** (alpha - 1) + TAU) / (alpha - 1)
    torch.testing.assert_close(
        loss_of(name, z, y, alpha, label_smoothing=0.1).item(), 0.0, rtol=0, atol=1e-12
    )


def test_margin():
    """S2S §3.2: the loss is zero once the target is ahead by 1/(α−1)."""
    for alpha in (1.25, 1.5, 2.0):
        z = torch.zeros(1, 300)
        z[0, 7] = 1 / (alpha - 1)
        assert sf.entmax_loss(z, torch.tensor([7]), alpha) == 0.0


@pytest.mark.parametrize("ignore_index", [-100, -1, 0, 3])
@pytest.mark.parametrize("classes", [6, 300])
@pytest.mark.parametrize(("name", "alpha"), [("entmax", 1.5), ("entmax", 1.0), ("alpha_relu", 1.5)])
def test_reductions_and_ignore_index(name, alpha, classes, ignore_index):
    z = scores(2, 4, classes).requires_grad_()
    y = torch.tensor([[1, ignore_index, 2, 4], [ignore_index, 5, 1, 1]])
    options = {"ignore_index": ignore_index}
    each = loss_of(name, z, y, alpha, reduction="none", **options)
    assert each.shape == y.shape and (each[y == ignore_index] == 0).all()
    assert (each[y != ignore_index] > 0).all()
    total = loss_of(name, z, y, alpha, reduction="sum", **options)
    torch.testing.assert_close(total, each.sum())
    mean = loss_of(name, z, y, alpha, **options)
    torch.testing.assert_close(mean, each.sum() / 6)
    (grad,) = torch.autograd.grad(mean, z)
    assert (grad[y == ignore_index] == 0).all() and (grad[y != ignore_index] != 0).any(-1).all()


@pytest.mark.parametrize(("name", "alpha"), [("entmax", 1.5), ("entmax", 1.0), ("alpha_relu", 1.5)])
def test_nothing_to_average(name, alpha):
    z = scores(3, 300).requires_grad_()
    everything = torch.full((3,), -100)
    loss = loss_of(name, z, everything, alpha)
    loss.backward()
    assert loss == 0 and (z.grad == 0).all()
    empty = scores(0, 300).requires_grad_()
    loss = loss_of(name, empty, targets(0, classes=3), alpha)
    loss.backward()
    assert loss == 0 and empty.grad.shape == (0, 300)


@pytest.mark.parametrize("classes", [6, 300, 3000])
@pytest.mark.parametrize(
    ("name", "alpha"), [("entmax", 1.02), ("entmax", 1.5), ("entmax", 1.0), ("alpha_relu", 1.5)]
)
def test_infinities_and_nan(name, alpha, classes):
    z = scores(8, classes, scale=0.1, dtype=torch.float32) + 1
    y = torch.tensor([0, 1, 2, 3, 4, 5, -100, -100])
    clean = loss_of(name, z, y, alpha, reduction="none")
    z[0, 1] = -INF  # outside of the support
    z[1, 1] = -INF  # the target
    z[2] = -INF
    z[3, 0] = NAN
    z[4, 0] = INF
    z[6, 0] = NAN  # in an ignored row
    z[7, 0] = INF
    z.requires_grad_()
    loss = loss_of(name, z, y, alpha, reduction="none")
    (grad,) = torch.autograd.grad(loss, z, torch.full((8,), 2.0))
    assert loss[0].isfinite() and grad[0].isfinite().all() and grad[0, 1] == 0
    assert loss[1] == INF and loss[2] == INF
    p = sf.alpha_relu(z, alpha, TAU) if name == "alpha_relu" else sf.entmax(z, alpha)
    q = F.one_hot(y.clamp(min=0), classes)
    for row in (1, 2):
        torch.testing.assert_close(grad[row], 2 * (p - q)[row], rtol=1e-3, atol=1e-7)
    assert loss[3:5].isnan().all() and grad[3:5].isnan().all()
    torch.testing.assert_close(loss[5], clean[5])
    assert (loss[6:] == 0).all() and (grad[6:] == 0).all()


@pytest.mark.parametrize("late", [False, True], ids=["mean", "none"])
@pytest.mark.parametrize("classes", [6, 3000])
@pytest.mark.parametrize(("name", "alpha"), [("entmax", 1.2), ("entmax", 1.5), ("alpha_relu", 1.5)])
def test_a_row_that_nothing_depends_on_has_no_gradient(name, alpha, classes, late):
    """Its loss is left out of the sum afterwards, or the sum of the total: 0 · NaN is 0 here."""
    z = scores(4, classes, dtype=torch.float32)
    z[1, 0] = NAN
    z.requires_grad_()
    y = torch.tensor([0, 1, 2, 3])
    loss = loss_of(name, z, y, alpha, reduction="none" if late else "sum")
    kept = torch.where(loss.isnan(), 0.0, loss)
    (grad,) = torch.autograd.grad(kept.sum(), z)
    assert kept.isfinite().all() and (grad[1] == 0).all() and grad.isfinite().all()
    assert (grad[[0, 2, 3]] != 0).any(1).all() or not late


@pytest.mark.parametrize("name", ["entmax", "alpha_relu"])
def test_second_derivative_without_ignored_rows(name):
    z = torch.tensor([[1.0, 0.5, -1.0], [NAN, 0.0, 0.0]], dtype=torch.float64)
    alpha = torch.tensor(1.5, dtype=torch.float64, requires_grad=name == "entmax")

    def second_derivatives(z, y):
        leaves = [leaf for leaf in (z.requires_grad_(), alpha) if leaf.requires_grad]
        loss = loss_of(name, z, y, alpha, reduction="sum")
        (grad,) = torch.autograd.grad(loss, z, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), leaves)

    of_z, *of_alpha = second_derivatives(z.clone(), torch.tensor([0, -100]))
    expected, *expected_of_alpha = second_derivatives(z[:1].clone(), torch.tensor([0]))
    torch.testing.assert_close(of_z, torch.cat([expected, torch.zeros_like(expected)]))
    torch.testing.assert_close(of_alpha, expected_of_alpha)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "alpha"), [("entmax", 1.5), ("entmax", 1.1), ("alpha_relu", 1.5)])
def test_half_precision(name, alpha, dtype):
    z = scores(4, 3000, dtype=dtype).requires_grad_()
    y = targets(4, classes=3000)
    loss = loss_of(name, z, y, alpha)
    assert loss.dtype == torch.float32
    loss.backward()
    full = z.detach().float().requires_grad_()
    expected = loss_of(name, full, y, alpha)
    torch.testing.assert_close(loss, expected, rtol=0, atol=0)
    torch.testing.assert_close(z.grad, torch.autograd.grad(expected, full)[0].to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("spread", [1.0, 0.001])
@pytest.mark.parametrize(
    ("name", "alpha", "solver"),
    [
        ("entmax", 1.0, "auto"),
        ("entmax", 1.3, "auto"),
        ("entmax", 2.0, "sort"),
        ("alpha_relu", 1.5, None),
    ],
)
def test_half_precision_rounds_the_difference_of_p_and_q(
    name, alpha, solver, spread, soft, smoothing, dtype
):
    """Where a model is sure and right, p − q is much smaller than p. Listed and dense rows."""
    z = scores(16, 1200, scale=spread) + (0.0 if spread == 1.0 else 1.0)
    y = targets(16, classes=1200)
    z[torch.arange(16), y] += torch.linspace(0.5, 3.0, 16, dtype=torch.float64)
    z = z.to(dtype)
    q = F.one_hot(y, 1200).to(torch.float32) if soft else y
    options = {"label_smoothing": smoothing, "reduction": "sum"}
    options |= {} if solver is None else {"solver": solver}
    grads = []
    for scores_ in (z.clone().requires_grad_(), z.float().requires_grad_()):
        loss = 1.7 * loss_of(name, scores_, q, alpha, **options)
        grads += torch.autograd.grad(loss, scores_)
    torch.testing.assert_close(grads[0], grads[1].to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-7)


def test_half_precision_of_a_golden_row():
    z = torch.tensor([[0.99609375, 0.0, -1.0, -1.0]], dtype=torch.bfloat16, requires_grad=True)
    sf.sparsemax_loss(z, torch.tensor([0])).backward()
    assert z.grad.tolist() == [[-0.001953125, 0.001953125, 0.0, 0.0]]


@pytest.mark.parametrize("scale", [0.001, 0.1])
@pytest.mark.parametrize(
    ("name", "alpha"), [("entmax", 1.05), ("entmax", 1.25), ("alpha_relu", 1.5)]
)
def test_dense_rows_of_a_large_vocabulary(name, alpha, scale):
    """Most classes in the support: the backward pass computes p again instead of listing it."""
    z = (scores(3, 5000, scale=scale, dtype=torch.float32) + 1).requires_grad_()
    y = torch.tensor([17, 4999, -100])
    for options in ({}, {"label_smoothing": 0.1}):
        loss = loss_of(name, z, y, alpha, reduction="none", **options)
        (grad,) = torch.autograd.grad(loss, z, torch.tensor([2.0, 3.0, 5.0]))
        q = reference.smoothed(y.clamp(min=0), 5000, options.get("label_smoothing", 0.0))
        p = reference_scores(name, z.detach(), alpha, TAU)
        expected = torch.tensor([2.0, 3.0, 0.0])[:, None] * (p - q)
        scale_of = p.max().item()
        torch.testing.assert_close(grad.double(), expected, rtol=1e-4, atol=1e-5 * scale_of)
        value = reference_loss(name, z.detach(), q, alpha, TAU)
        torch.testing.assert_close(loss[:2].double(), value[:2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.07, 1.0001])
def test_dense_rows_of_alpha_relu_near_softmax(alpha):
    z = scores(4, 3000, dtype=torch.float32)
    y, tau = targets(4, classes=3000), sf.batch_tau(z.double(), alpha)
    results = []
    for leaf in (z.clone().requires_grad_(), z.double().requires_grad_()):
        options = {"reduction": "none", "return_stats": True}
        loss, stats = sf.alpha_relu_loss(leaf, y, alpha, tau, **options)
        (grad,) = torch.autograd.grad(loss.sum(), leaf)
        results.append([part.double() for part in (loss, grad, stats.total, stats.target_score)])
    for own, expected in zip(*results, strict=True):
        torch.testing.assert_close(own, expected, rtol=2e-6, atol=1e-9)


def test_called_twice_before_backward():
    z = scores(3, 400).requires_grad_()
    y = targets(3, classes=400)
    (sf.entmax_loss(z, y) + 2 * sf.entmax_loss(z, y) + sf.alpha_relu_loss(z, y, tau=0.0)).backward()
    p = 3 * sf.entmax(z) + sf.alpha_relu(z) - 4 * F.one_hot(y, 400)
    torch.testing.assert_close(z.grad, (p / 3).detach())


@pytest.mark.parametrize("classes", [10, 400])
def test_input_is_not_modified_and_may_be_strided(classes):
    z = scores(classes, 2, 3).permute(1, 2, 0)
    before, y = z.clone(), targets(2, 3, classes=classes)
    for name in ("entmax", "alpha_relu"):
        loss = loss_of(name, z, y, 1.5)
        torch.testing.assert_close(loss, loss_of(name, before.contiguous(), y, 1.5))
    torch.testing.assert_close(z, before, rtol=0, atol=0)


def test_no_grad():
    z, y = scores(3, 400).requires_grad_(), targets(3, classes=400)
    with torch.no_grad():
        assert not sf.entmax_loss(z, y).requires_grad


@pytest.mark.parametrize("classes", [20, 400, 3000])
@pytest.mark.parametrize(
    ("name", "alpha"), [("entmax", 1.05), ("entmax", 1.5), ("alpha_relu", 1.5)]
)
def test_statistics(name, alpha, classes):
    z, y = scores(4, 5, classes), targets(4, 5, classes=classes)
    z[0, :, 3] = 9.0
    y[0, :3] = 3
    counted = torch.ones(classes, dtype=torch.bool)
    counted[[3, 7]] = False
    loss, stats = loss_of(name, z, y, alpha, return_stats=True, counted=counted)
    torch.testing.assert_close(loss, loss_of(name, z, y, alpha))
    p = reference_scores(name, z, alpha, TAU)
    assert (stats.support == ((p > 1e-15) & counted).sum(-1)).all()
    torch.testing.assert_close(stats.total, p.sum(-1))
    torch.testing.assert_close(stats.target_score, p.gather(-1, y[..., None]).squeeze(-1))
    assert (stats.correct == (z.argmax(-1) == y)).all()


def test_wrong_arguments_are_named():
    z = scores(2, 5)
    for bad in (5, -1, 99):
        with pytest.raises(ValueError, match=f"target {bad} is out of range for 5 classes"):
            sf.entmax_loss(z, torch.tensor([0, bad]))
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        sf.alpha_relu_loss(z, torch.tensor([0, 1, 2]), tau=0.1)
    with pytest.raises(ValueError, match="float32"):
        sf.entmax_loss(z, torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match="reduction.*'avg'"):
        sf.entmax_loss(z, torch.tensor([0, 1]), reduction="avg")
    with pytest.raises(ValueError, match="label_smoothing.*2"):
        sf.entmax_loss(z, torch.tensor([0, 1]), label_smoothing=2.0)
    with pytest.raises(ValueError, match="alpha"):
        sf.entmax_loss(z, torch.tensor([0, 1]), 0.9)
    with pytest.raises(ValueError, match="alpha must be > 1"):
        sf.alpha_relu_loss(z, torch.tensor([0, 1]), 1.0, 0.1)
    with pytest.raises(ValueError, match="alpha of shape"):
        sf.entmax_loss(z, torch.tensor([0, 1]), torch.ones(3) * 1.5)
    for wrong in (torch.ones(4, dtype=torch.bool), torch.ones(5), torch.ones(1, 5) > 0):
        with pytest.raises(ValueError, match=r"counted must be bool of shape \(5,\)"):
            sf.entmax_loss(z, torch.tensor([0, 1]), return_stats=True, counted=wrong)
    with pytest.raises(ValueError, match="counted.*return_stats"):
        sf.entmax_loss(z, torch.tensor([0, 1]), counted=torch.ones(5, dtype=torch.bool))


def test_modules_hold_the_options():
    z, y = scores(3, 5), torch.tensor([1, 2, 0])
    options = {"reduction": "sum", "ignore_index": 0, "label_smoothing": 0.1}
    for module, loss in (
        (sf.AlphaReLULoss(1.3, 0.1, **options), sf.alpha_relu_loss(z, y, 1.3, 0.1, **options)),
        (sf.EntmaxLoss(1.3, solver="sort", **options), sf.entmax_loss(z, y, 1.3, **options)),
        (sf.SparsemaxLoss(**options), sf.sparsemax_loss(z, y, **options)),
    ):
        torch.testing.assert_close(module(z, y), loss)
        assert "label_smoothing=0.1" in repr(module)
    learned = sf.EntmaxLoss(torch.nn.Parameter(torch.tensor(1.5)))
    assert [name for name, _ in learned.named_parameters()] == ["alpha"]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=150),
    st.floats(1.0, 4.0),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.data(),
)
def test_losses_are_not_negative(row, alpha, smoothing, data):
    z = torch.tensor([row], dtype=torch.float64)
    y = torch.tensor([data.draw(st.integers(0, len(row) - 1))])
    assert sf.entmax_loss(z, y, alpha, label_smoothing=smoothing) >= -1e-10
    if alpha > 1.05:
        loss = sf.alpha_relu_loss(z, y, alpha, 0.1, label_smoothing=smoothing)
        p = sf.alpha_relu(z, alpha, 0.1)
        assert loss >= -1e-12 * (1 + (p**alpha).sum())


@pytest.mark.parametrize(("name", "alpha"), [("entmax", 1.0), ("entmax", 1.5), ("alpha_relu", 1.5)])
@pytest.mark.parametrize("classes", [5, 140])
def test_soft_targets_need_not_sum_to_one(name, alpha, classes):
    """A row of zeros is how a padded position is often masked."""
    z = scores(3, classes).requires_grad_()
    q = torch.rand(3, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    q = q * torch.tensor([[0.0], [0.3], [2.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: loss_of(name, z, q, alpha, reduction="none"), z)


@pytest.mark.parametrize(("name", "alpha"), [("entmax", 1.5), ("alpha_relu", 1.5)])
def test_soft_targets_must_not_change_before_backward(name, alpha):
    z = scores(2, 4).requires_grad_()
    q = scores(2, 4, seed=1).softmax(1)
    loss = loss_of(name, z, q, alpha)
    q.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_small_integer_targets():
    z = scores(2, 200)
    y = torch.tensor([156, 3])
    expected = sf.entmax_loss(z, y)
    torch.testing.assert_close(sf.entmax_loss(z, y.to(torch.uint8)), expected)
    torch.testing.assert_close(sf.entmax_loss(z, y.to(torch.int16)), expected)


def test_alpha_relu_takes_constants_only():
    z, y = scores(2, 5), torch.tensor([0, 1])
    for bad in ({"alpha": torch.tensor(1.5, requires_grad=True)}, {"alpha": torch.ones(2) * 1.5}):
        with pytest.raises(ValueError, match="alpha must be one number"):
            sf.alpha_relu_loss(z, y, tau=0.1, **bad)
    with pytest.raises(ValueError, match="tau must be one number"):
        sf.alpha_relu_loss(z, y, tau=torch.tensor(0.1, requires_grad=True))
    torch.testing.assert_close(
        sf.alpha_relu_loss(z, y, torch.tensor(1.5), 0.1), sf.alpha_relu_loss(z, y, tau=0.1)
    )


def test_alpha_relu_has_no_silent_threshold():
    z, y = scores(2, 5), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"alpha-ReLU needs tau: batch_tau\(logits\)"):
        sf.alpha_relu_loss(z, y)
    with pytest.raises(ValueError, match="alpha-ReLU needs tau"):
        sf.linear_alpha_relu_loss(scores(2, 3), scores(5, 3), y)


def test_empty_batch_gives_alpha_a_gradient():
    alpha = torch.tensor(1.5, requires_grad=True)
    sf.entmax_loss(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), alpha).backward()
    assert alpha.grad == 0
