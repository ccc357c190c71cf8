"""The device route: nothing waits for a device, and how many bytes pass through its memory.

There is no such device here. CPU tensors play one that may not be looked at; tensors without data
(``meta``) count what a loss would read and write.
"""

import pytest
import torch
import torch.nn.functional as F
from helpers import only, reference_loss, scores, targets
from torch.utils._python_dispatch import TorchDispatchMode

from sparse_fairseq import functional as sf
from sparse_fairseq.functional import _checks, _newton, _solvers, _tsallis, fused, losses, mappings
from sparse_fairseq.functional._device import thresholds
from sparse_fairseq.functional.reference import smoothed

pytestmark = only("device")

INF = float("inf")
LOOKING = (_checks, _newton, _solvers, _tsallis, fused, losses, mappings, thresholds)


# --- waiting --------------------------------------------------------------------------------


class NoSynchronisation(TorchDispatchMode):
    """Refuses what makes the host wait for a device: reading a value, or counting flags."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "bincount", "equal")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        by_flags = any(i is not None and i.dtype == torch.bool for i in indices)
        assert name not in self.WAITS and not by_flags, f"{name} waits for the device"
        return function(*args, **(kwargs or {}))


@pytest.fixture
def far_away(monkeypatch):
    """CPU tensors are treated as those of another device."""
    for module in LOOKING:
        if hasattr(module, "may_look"):
            monkeypatch.setattr(module, "may_look", lambda tensor: False)


ALPHAS = [1.0, 1.02, 1.3, 1.5, 2.0, "learned"]


def alpha_of(alpha, rows):
    if alpha != "learned":
        return alpha
    return torch.linspace(1.02, 2.0, rows, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("classes", [50, 2000])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_mappings_never_wait(alpha, classes, far_away):
    """Attention is a mapping of short rows."""
    z = scores(9, classes, dtype=torch.float32).requires_grad_()
    alpha = alpha_of(alpha, 9)
    leaves = [z, alpha] if isinstance(alpha, torch.Tensor) else [z]
    exact = sf.entmax(z.double(), alpha)
    with NoSynchronisation():
        p = sf.entmax(z, alpha)
        torch.autograd.grad(p.square().sum(), leaves)
        tau = 0.1 if not isinstance(alpha, torch.Tensor) else torch.zeros(9, 1)
        if alpha is not leaves[-1] and alpha > 1:
            torch.autograd.grad(sf.alpha_relu(z, alpha, tau).sum(), z)
    torch.testing.assert_close(p.double(), exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [50, 2000])
@pytest.mark.parametrize(("name", "alpha"), [("entmax", a) for a in ALPHAS] + [("alpha_relu", 1.5)])
def test_losses_never_wait(name, alpha, classes, smoothing, far_away):
    h = scores(9, 6, dtype=torch.float32).requires_grad_()
    weight = scores(classes, 6, seed=1, dtype=torch.float32).requires_grad_()
    y, alpha = targets(9, classes=classes), alpha_of(alpha, 9)
    y[3] = -100
    options = {"label_smoothing": smoothing, "reduction": "sum", "return_stats": True}
    leaves = [h, weight, *([alpha] if isinstance(alpha, torch.Tensor) else [])]

    def plain():
        z = F.linear(h, weight)
        if name == "alpha_relu":
            return sf.alpha_relu_loss(z, y, alpha, 0.2, **options)[0]
        return sf.entmax_loss(z, y, alpha, **options)[0]

    def fused_loss():
        if name == "alpha_relu":
            return sf.linear_alpha_relu_loss(h, weight, y, alpha, 0.2, **options)[0]
        return sf.linear_entmax_loss(h, weight, y, alpha, **options)[0]

    results = []
    for loss in (plain, fused_loss):
        with NoSynchronisation():
            found = loss()
            results.append([found.detach(), *torch.autograd.grad(found, leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


# --- right ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.1, 1.5, 2.0])
def test_few_legal_classes(alpha):
    """A start from every 16th score was NaN where all of those were −inf."""
    z = torch.tensor([[-INF, 1.0, 0.5, -1.0]])
    y = torch.tensor([1])
    expected = reference_loss("entmax", z[:, 1:], smoothed(y - 1, 3), alpha)
    loss = sf.entmax_loss(z, y, alpha).double()
    torch.testing.assert_close(loss, expected[0], rtol=0, atol=2e-6)
    rows = torch.full((200, 4096), -INF)
    generator = torch.Generator().manual_seed(0)
    legal = torch.rand(rows.shape, generator=generator).topk(5).indices
    kept = scores(200, 5, dtype=torch.float32)
    rows.scatter_(1, legal, kept)
    losses_ = sf.entmax_loss(rows, legal[:, 2], alpha, reduction="none")
    few = sf.entmax_loss(kept, torch.full((200,), 2), alpha, reduction="none")
    torch.testing.assert_close(losses_, few, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", [1.08, 1.25, 1.5, 1.9, 2.0])
@pytest.mark.parametrize("kind", ["gaussian", "tied", "masked", "geometric"])
def test_blind_steps_are_enough(kind, alpha):
    """In float64 there are more of them; the rest is rounding."""
    for scale in (1e-3, 0.05, 0.3, 3.0, 100.0):
        for classes in (17, 300, 4000):
            z = scores(3, classes, dtype=torch.float32)
            if kind == "tied":
                z = z.round()
            if kind == "geometric":
                z = -(z.abs() * 5).exp() / 100
            z = z * scale
            if kind == "masked":
                z[:, torch.arange(classes) % 7 != 3] = -INF
                z[:, 0] = 0.0
            p, exact = sf.entmax(z, alpha), sf.entmax(z.double(), alpha)
            torch.testing.assert_close(p.double(), exact, rtol=0, atol=2e-6)


def test_tensor_alphas_that_are_impossible_give_nan(far_away):
    alpha = torch.tensor([0.9, 1.5, 2.5, 2.0])
    z = scores(4, 7, dtype=torch.float32)
    p = sf.entmax(z, alpha)
    assert p.isnan().any(1).tolist() == [True, False, True, False]
    loss = sf.entmax_loss(z, torch.zeros(4, dtype=torch.long), alpha, reduction="none")
    assert loss.isnan().tolist() == [True, False, True, False]


# --- bytes ----------------------------------------------------------------------------------


class CountBytes(TorchDispatchMode):
    """Bytes that operations read and write; views move none, and products of matrices are left
    out. What reads or writes few places of a tensor counts for these."""

    FEW = ("gather", "scatter_add_", "scatter_add", "index", "nll_loss_forward")
    PRODUCTS = ("mm", "addmm", "addmm_", "bmm")
    VIEWS = ("view", "_unsafe_view", "t", "transpose", "expand", "slice", "select", "unsqueeze")
    VIEWS += ("squeeze", "detach", "alias", "permute", "as_strided", "empty", "new_empty")

    # These read nothing of the tensor that they are given.
    ONLY_WRITE = ("new_zeros", "new_full", "zeros_like", "ones_like", "full_like")
    ONLY_WRITE += ("nll_loss_backward",)

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name not in self.PRODUCTS + self.VIEWS + self.FEW:
            read = [a for a in args if isinstance(a, torch.Tensor)]
            read = [] if name in self.ONLY_WRITE else read
            for a in args:
                read += [b for b in a if isinstance(b, torch.Tensor)] if type(a) is list else []
            written = out if isinstance(out, tuple | list) else [out]
            tensors = [*read, *(o for o in written if isinstance(o, torch.Tensor))]
            # Broadcast tensors are as large as what they hold.
            self.bytes += sum(size_of(tensor) for tensor in tensors)
        return out


def size_of(tensor):
    held = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        held *= size if stride else 1
    return held * tensor.element_size()


ROWS, CLASSES = 4096, 32_000


def bytes_per_logit(loss, *leaves):
    with CountBytes() as count:
        torch.autograd.grad(loss(*leaves), leaves)
    return count.bytes / (ROWS * CLASSES)


BARS = {"cross_entropy": 24, "alpha_relu": 48, "entmax15": 200, "sparsemax": 200}


def counted_losses():
    y = torch.zeros(ROWS, dtype=torch.long, device="meta")
    plain = {
        "cross_entropy": lambda z: F.cross_entropy(z, y),
        "alpha_relu": lambda z: sf.alpha_relu_loss(z, y, 1.5, 0.3),
        "entmax15": lambda z: sf.entmax_loss(z, y, 1.5),
        "sparsemax": lambda z: sf.sparsemax_loss(z, y),
    }
    linear = {
        "alpha_relu": lambda h, w: sf.linear_alpha_relu_loss(h, w, y, 1.5, 0.3),
        "entmax15": lambda h, w: sf.linear_entmax_loss(h, w, y, 1.5),
        "sparsemax": lambda h, w: sf.linear_entmax_loss(h, w, y, 2.0),
    }
    z = torch.empty(ROWS, CLASSES, device="meta", requires_grad=True)
    h = torch.empty(ROWS, 512, device="meta", requires_grad=True)
    w = torch.empty(CLASSES, 512, device="meta", requires_grad=True)
    found = {name: bytes_per_logit(loss, z) for name, loss in plain.items()}
    return found, {name: bytes_per_logit(loss, h, w) for name, loss in linear.items()}


def test_bytes_per_logit():
    plain, linear = counted_losses()
    for name, bar in BARS.items():
        assert plain[name] <= bar + 0.001, plain  # of cross-entropy's mean are the thousandth
    assert set(linear) == set(BARS) - {"cross_entropy"}
    for name in linear:
        assert linear[name] <= plain[name], (linear, plain)
