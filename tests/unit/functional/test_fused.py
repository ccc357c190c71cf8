"""The output layer fused with a loss: equal to F.linear and the plain loss, in less memory."""

import pytest
import torch
import torch.nn.functional as F
from helpers import only, scores, targets

from experiments.bench.common import peak_memory
from experiments.bench.fused import ChunkedCrossEntropy
from sparse_fairseq import functional as sf
from sparse_fairseq.functional._host import blocks
from sparse_fairseq.functional._host import layer as host_layer

TAU = 0.2
CASES = [("entmax", a) for a in (1.0, 1.02, 1.3, 1.5, 2.0, 2.5)] + [("alpha_relu", 1.5)]


def fused_loss(name, h, weight, y, alpha, bias=None, **options):
    if name == "alpha_relu":
        return sf.linear_alpha_relu_loss(h, weight, y, alpha, TAU, bias=bias, **options)
    return sf.linear_entmax_loss(h, weight, y, alpha, bias=bias, **options)


def plain_loss(name, h, weight, y, alpha, bias=None, **options):
    z = F.linear(h, weight, bias)
    if name == "alpha_relu":
        return sf.alpha_relu_loss(z, y, alpha, TAU, **options)
    return sf.entmax_loss(z, y, alpha, **options)


def layer(classes, hidden=6, rows=(5,), dtype=torch.float64, scale=1.0):
    h = scores(*rows, hidden, dtype=dtype).requires_grad_()
    weight = scores(classes, hidden, scale=scale, seed=1, dtype=dtype).requires_grad_()
    bias = scores(classes, seed=2, scale=scale, dtype=dtype).requires_grad_()
    return h, weight, bias


def assert_same(name, alpha, leaves, y, tolerance, **options):
    ours = fused_loss(name, *leaves[:2], y, alpha, leaves[2], reduction="none", **options)
    plain = plain_loss(name, *leaves[:2], y, alpha, leaves[2], reduction="none", **options)
    torch.testing.assert_close(ours, plain, rtol=tolerance, atol=tolerance)
    used = [leaf for leaf in leaves if leaf is not None]
    one_number = torch.tensor(0.7, dtype=ours.dtype).expand(ours.shape)  # as of a sum
    for upstream in (one_number, scores(*ours.shape, seed=4, dtype=ours.dtype)):
        grads = torch.autograd.grad(ours, used, upstream, retain_graph=True)
        wanted = torch.autograd.grad(plain, used, upstream, retain_graph=True)
        for grad, expected in zip(grads, wanted, strict=True):
            assert grad.dtype == expected.dtype
            torch.testing.assert_close(grad, expected, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [7, 150, 2000])
@pytest.mark.parametrize(("name", "alpha"), CASES)
def test_equals_linear_and_loss(name, alpha, classes, smoothing, dtype):
    leaves = layer(classes, rows=(4, 5), dtype=dtype)
    y = targets(4, 5, classes=classes)
    y[1, 2] = -100
    tolerance = 2e-5 if dtype == torch.float32 else 1e-10
    assert_same(name, alpha, leaves, y, tolerance, label_smoothing=smoothing)
    assert_same(name, alpha, (*leaves[:2], None), y, tolerance, label_smoothing=smoothing)


@pytest.mark.parametrize(("name", "alpha"), CASES)
def test_dense_blocks(name, alpha):
    """Nearly all classes in the support, as early in training: dense products, p computed again."""
    leaves = layer(3000, rows=(7,), scale=0.01)
    leaves[2].data += 1.0
    assert_same(name, alpha, leaves, targets(7, classes=3000), 1e-9)


@only("host")
@pytest.mark.parametrize("classes", [200, 1500])
def test_several_blocks_share_one_buffer(classes, monkeypatch):
    """Blocks of 16 rows in blocks of 5, lists of 64 entries, weights in pieces of 20: and, with
    1,500 classes, sparse rows beside dense ones."""
    monkeypatch.setattr(host_layer, "BUFFER_ELEMENTS", 0)
    monkeypatch.setattr(host_layer, "BUFFER_ROWS", 16)
    monkeypatch.setattr(host_layer, "WAITING_ENTRIES", 64)
    monkeypatch.setattr(host_layer, "PIECE_ELEMENTS", 120)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 5 * classes)
    leaves = layer(classes, rows=(50,))
    leaves[0].data[8:31] *= 0.01
    for name, alpha in CASES:
        assert_same(name, alpha, leaves, targets(50, classes=classes), 1e-9)


def test_backward_may_run_twice():
    leaves = layer(150)
    loss = fused_loss("entmax", *leaves[:2], targets(5, classes=150), 1.5, leaves[2])
    first, second = (torch.autograd.grad(loss, leaves, retain_graph=True) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other) and one.data_ptr() != other.data_ptr()


@pytest.mark.parametrize("classes", [6, 140])
@pytest.mark.parametrize(("name", "alpha"), [("entmax", 1.3), ("entmax", 1.5), ("alpha_relu", 1.5)])
def test_gradcheck(name, alpha, classes):
    leaves = layer(classes, hidden=3, rows=(3,))
    y = torch.tensor([1, 5, -100])

    def loss(h, weight, bias):
        return fused_loss(name, h, weight, y, alpha, bias, label_smoothing=0.1) ** 2

    assert torch.autograd.gradcheck(loss, leaves, fast_mode=classes > 100)


def test_alpha_receives_a_gradient():
    h, weight, bias = layer(150, rows=(2, 3))
    y = targets(2, 3, classes=150)
    alpha = torch.tensor([[1.2], [1.5], [1.8]], dtype=torch.float64, requires_grad=True)
    ours = sf.linear_entmax_loss(h, weight, y, alpha, bias=bias, label_smoothing=0.1)
    plain = sf.entmax_loss(F.linear(h, weight, bias), y, alpha, label_smoothing=0.1)
    for grad, expected in zip(
        torch.autograd.grad(ours, (h, weight, alpha)),
        torch.autograd.grad(plain, (h, weight, alpha)),
        strict=True,
    ):
        torch.testing.assert_close(grad, expected)


def test_soft_targets():
    leaves = layer(150, rows=(4,))
    q = scores(4, 150, seed=5).softmax(1)
    for name, alpha in CASES:
        assert_same(name, alpha, leaves, q, 1e-9)
        assert_same(name, alpha, leaves, q, 1e-9, label_smoothing=0.1)


def test_alpha_must_not_change_before_backward():
    h, weight, _ = layer(150, rows=(3,))
    alpha = torch.full((3, 1), 1.5, dtype=torch.float64)
    loss = sf.linear_entmax_loss(h, weight, targets(3, classes=150), alpha, reduction="none")
    alpha.fill_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.prod().backward()


def test_soft_targets_must_not_change_before_backward():
    leaves = layer(150, rows=(4,))
    q = scores(4, 150, seed=5).softmax(1)
    loss = fused_loss("entmax", *leaves[:2], q, 1.5, reduction="none")
    q.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.prod().backward()


@pytest.mark.parametrize("classes", [5, 150, 2000])
def test_soft_targets_and_no_support(classes):
    leaves = layer(classes, rows=(2,), scale=0.0)  # all logits are 0, under the threshold
    assert_same("alpha_relu", 1.5, leaves, scores(2, classes, seed=5).softmax(1), 1e-9)


def test_called_twice_and_weight_tied_to_an_embedding():
    embedding = torch.nn.Embedding(150, 6, dtype=torch.float64)
    y = targets(5, classes=150)

    def loss(function):
        first = function("entmax", embedding(y), embedding.weight, y, 1.5)
        return first + 2 * function("alpha_relu", embedding(y), embedding.weight, y, 1.5)

    (grad,) = torch.autograd.grad(loss(fused_loss), embedding.weight)
    torch.testing.assert_close(grad, torch.autograd.grad(loss(plain_loss), embedding.weight)[0])


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_needs_no_gradient_gets_none(frozen):
    leaves = layer(150)
    leaves[frozen].requires_grad_(False)
    fused_loss("entmax", *leaves[:2], targets(5, classes=150), 1.5, leaves[2]).backward()
    assert [leaf.grad is None for leaf in leaves] == [i == frozen for i in range(3)]


@only("host")
def test_nothing_is_computed_for_gradients_that_cannot_be_asked_for(monkeypatch):
    def refuse(*args):
        raise AssertionError("computes gradients")

    monkeypatch.setattr(host_layer.Gradients, "add_entries", refuse)
    leaves = layer(150)
    with torch.no_grad():
        loss = fused_loss("entmax", *leaves[:2], targets(5, classes=150), 1.5)
    assert not loss.requires_grad
    with pytest.raises(AssertionError, match="computes gradients"):
        fused_loss("entmax", *leaves[:2], targets(5, classes=150), 1.5)


@pytest.mark.parametrize("name", ["entmax", "alpha_relu"])
def test_nothing_to_average(name):
    h, weight, bias = layer(150)
    loss = fused_loss(name, h, weight, torch.full((5,), -100), 1.5, bias)
    loss.backward()
    assert loss == 0 and all((leaf.grad == 0).all() for leaf in (h, weight, bias))
    empty = torch.zeros(0, 6, dtype=torch.float64, requires_grad=True)
    weight.grad = bias.grad = None
    loss = fused_loss(name, empty, weight, targets(0, classes=5), 1.5, bias)
    loss.backward()
    assert loss == 0 and empty.grad.shape == (0, 6)
    assert (weight.grad == 0).all() and (bias.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(dtype):
    leaves = layer(300, dtype=torch.float32)
    y = targets(5, classes=300)
    half = [leaf.detach().to(dtype).requires_grad_() for leaf in leaves]
    for name in ("entmax", "alpha_relu"):
        assert_same(name, 1.5, half, y, 2e-2)
        with torch.autocast("cpu", dtype):
            ours = fused_loss(name, *leaves[:2], y, 1.5, leaves[2])
            plain = plain_loss(name, *leaves[:2], y, 1.5, leaves[2])
        torch.testing.assert_close(ours, plain, rtol=1e-2, atol=1e-2)
        assert torch.autograd.grad(ours, leaves)[1].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("name", "alpha"), [("entmax", 1.5), ("entmax", 2.0), ("alpha_relu", 1.5)])
def test_half_precision_rounds_the_difference_of_p_and_q(name, alpha, dtype):
    """Where a model is sure and right, p − q is much smaller than p: dense rows, which are all
    that other devices have, must not be rounded before q is subtracted."""
    y = targets(256, classes=1200) % 8
    _, weight, _ = layer(1200, hidden=32, dtype=torch.float32, scale=32**-0.5)
    h = 2.2 * weight.detach()[y] + scores(256, 32, seed=6, dtype=torch.float32, scale=0.1)
    half = [leaf.detach().to(dtype).requires_grad_() for leaf in (h, weight)]
    exact = [leaf.detach().double().requires_grad_() for leaf in half]

    def gradients(loss, leaves):
        return torch.autograd.grad(loss(name, *leaves, y, alpha, reduction="sum"), leaves)

    wanted = gradients(plain_loss, exact)
    ours, plain = gradients(fused_loss, half), gradients(plain_loss, half)
    for own, peer, value in zip(ours, plain, wanted, strict=True):
        assert (own - value).norm() <= 2 * (peer - value).norm()


def test_autocast_leaves_float64_alone_and_backward_may_run_under_it():
    leaves = layer(3000, scale=0.01)
    leaves[2].data += 1.0
    y = targets(5, classes=3000)
    expected = torch.autograd.grad(fused_loss("entmax", *leaves[:2], y, 1.1, leaves[2]), leaves)
    with torch.autocast("cpu", torch.bfloat16):
        loss = fused_loss("entmax", *leaves[:2], y, 1.1, leaves[2])
        grads = torch.autograd.grad(loss, leaves)
    for grad, value in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, value, rtol=0, atol=0)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("reduction", ["none", "sum"])
@pytest.mark.parametrize("name", ["entmax", "alpha_relu"])
def test_nan_reaches_the_gradients(name, reduction, broken):
    h, weight, _ = layer(300)
    h.data[1, 0] = broken
    y = targets(5, classes=300)
    loss = fused_loss(name, h, weight, y, 1.5, reduction=reduction)
    if reduction == "none":
        assert loss.isnan().tolist() == [False, True, False, False, False]
    loss.sum().backward()
    assert h.grad.isnan().any(1).tolist() == [False, True, False, False, False]
    assert weight.grad.isnan().all()
    y[1] = -100
    h.grad = weight.grad = None
    fused_loss(name, h, weight, y, 1.5, reduction=reduction).sum().backward()
    assert h.grad.isfinite().all() and weight.grad.isfinite().all()


@pytest.mark.parametrize("scale", [0.01, 3.0], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["entmax", "alpha_relu"])
def test_a_row_that_is_left_out_afterwards_has_no_gradient(name, scale):
    """0 · NaN would reach all weights."""
    h, weight, bias = layer(300, scale=scale, dtype=torch.float32)
    y = targets(5, classes=300)
    leaves = (h, weight, bias)

    def gradients(rows):
        loss = fused_loss(name, h[rows], weight, y[rows], 1.5, bias, reduction="none")
        return torch.autograd.grad(torch.where(loss.isnan(), 0.0, loss).sum(), leaves)

    others = [0, 2, 3, 4]
    expected = gradients(others)
    h.data[1, 0] = float("nan")
    found = gradients(slice(None))
    assert (found[0][1] == 0).all()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_statistics_are_those_of_the_plain_loss():
    h, weight, bias = layer(500, rows=(3, 4))
    y, counted = targets(3, 4, classes=500), torch.arange(500) % 498 != 1
    y[1, 1] = -100
    options = {"return_stats": True, "counted": counted}
    for name in ("entmax", "alpha_relu"):
        loss, stats = fused_loss(name, h, weight, y, 1.5, bias, **options)
        expected_loss, expected = plain_loss(name, h, weight, y, 1.5, bias, **options)
        torch.testing.assert_close(loss, expected_loss)
        for field, value in zip(stats, expected, strict=True):
            torch.testing.assert_close(field[y != -100], value[y != -100])


def test_the_benchmarks_peer_is_cross_entropy():
    h, weight, _ = layer(150, rows=(50,))
    y = targets(50, classes=150)
    peer = ChunkedCrossEntropy.apply(h, weight, y, 16)
    plain = F.cross_entropy(F.linear(h, weight), y, reduction="sum")
    torch.testing.assert_close(peer, plain)
    grads = torch.autograd.grad(3 * peer, (h, weight))
    for grad, value in zip(grads, torch.autograd.grad(3 * plain, (h, weight)), strict=True):
        torch.testing.assert_close(grad, value)


SIXTEENTH = {"BUFFER_ELEMENTS": 1 << 19, "WAITING_ENTRIES": 1 << 16, "PIECE_ELEMENTS": 1 << 18}


@only("host")
@pytest.mark.parametrize("share", [0.01, 0.08, 0.3])
@pytest.mark.parametrize("name", ["alpha_relu", "entmax"])
def test_memory_is_a_sixth_of_cross_entropys_at_any_density(name, share, monkeypatch):
    """At most 15% of what F.linear + F.cross_entropy needs, for N = 4096, V = 32,000, d = 512:
    here all of it is a sixteenth, the buffers too. The logits alone would be 33%."""
    for constant, value in SIXTEENTH.items():
        monkeypatch.setattr(host_layer, constant, value)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 1 << 18)
    monkeypatch.setattr(host_layer, "BUFFER_ROWS", 64)
    rows, classes, hidden = 1024, 8000, 128
    h = scores(rows, hidden, dtype=torch.float32)
    weight = scores(classes, hidden, seed=1, dtype=torch.float32, scale=hidden**-0.5)
    y = targets(rows, classes=classes)
    logits = F.linear(h[:32], weight)
    tau = 0.5 * logits.flatten().kthvalue(int((1 - share) * logits.numel())).values.item()
    if name != "alpha_relu":
        h = h * scale_for_share(logits, share)

    def run(loss):
        leaves = [leaf.clone().requires_grad_() for leaf in (h, weight)]
        return peak_memory(lambda: loss(*leaves).backward())

    def ours(h, weight):
        if name == "alpha_relu":
            return sf.linear_alpha_relu_loss(h, weight, y, 1.5, tau)
        return sf.linear_entmax_loss(h, weight, y)

    assert run(ours) <= 0.15 * run(lambda h, weight: F.cross_entropy(F.linear(h, weight), y))


def scale_for_share(logits, share):
    """The factor with which about this share of the logits is in the support."""
    low, high = 1e-3, 1e3
    for _ in range(20):
        middle = (low * high) ** 0.5
        dense = (sf.entmax(logits * middle) > 0).double().mean() > share
        low, high = (middle, high) if dense else (low, middle)
    return low


def test_second_derivative_is_an_error():
    h, weight, _ = layer(150)
    loss = fused_loss("entmax", h, weight, targets(5, classes=150), 1.5)
    with pytest.raises(RuntimeError, match="no second derivative.*use the plain loss"):
        torch.autograd.grad(loss, h, create_graph=True)


def test_layer_without_units():
    """All logits are the bias."""
    h, weight, bias = layer(10, hidden=0)
    assert_same("entmax", 1.5, (h, weight, bias), targets(5, classes=10), 1e-9)


def test_wrong_arguments_are_named():
    h, weight, bias = layer(10)
    with pytest.raises(ValueError, match=r"h of shape \(5, 6\).*\(10, 5\)"):
        sf.linear_entmax_loss(h, weight[:, :5], targets(5, classes=10))
    with pytest.raises(ValueError, match="bias has shape"):
        sf.linear_entmax_loss(h, weight, targets(5, classes=10), bias=bias[:3])
    with pytest.raises(ValueError, match="weight is torch.float32, but h is torch.float64"):
        sf.linear_entmax_loss(h, weight.float(), targets(5, classes=10))
    with pytest.raises(ValueError, match="target 10 is out of range for 10 classes"):
        sf.linear_alpha_relu_loss(h, weight, torch.full((5,), 10), tau=0.1)
    with pytest.raises(ValueError, match="alpha"):
        sf.linear_entmax_loss(h, weight, targets(5, classes=10), 0.5)
