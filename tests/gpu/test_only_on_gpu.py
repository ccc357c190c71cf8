"""What only a device can show: the public functions on it, large tensors, repeatability, no host
sync, graphs, memory, races."""

import shutil
import subprocess
import sys

import pytest
import torch

from sparse_fairseq import functional as sf
from sparse_fairseq.functional import _routes
from sparse_fairseq.functional._problem import EntmaxMapping
from sparse_fairseq.functional._triton import linear

# Enough classes that the fused layer takes lists (``linear.LISTS_FROM``); FEW, that it does not.
ROWS, CLASSES, FEW, HIDDEN, HEADS = 64, 25_000, 4_000, 64, 4
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def mappings(z, alpha) -> dict:
    of_heads = z[:, :2048].unflatten(0, (-1, HEADS, 4))  # [batch, heads, queries, keys]
    return {
        "alpha_relu": ((z,), lambda z: sf.alpha_relu(z, 1.5, 0.5)),
        "entmax": ((z,), lambda z: sf.entmax(z, 1.5)),
        "entmax 1.2": ((z,), lambda z: sf.entmax(z, 1.2)),
        "entmax of columns": ((z,), lambda z: sf.entmax(z, 1.5, dim=0)),
        "sparsemax": ((z,), sf.sparsemax),
        "learned alpha": ((z, alpha), sf.entmax),
        "alpha of each head": ((of_heads, alpha[:HEADS].view(HEADS, 1, 1)), sf.entmax),
        "entmax_threshold": ((z,), sf.entmax_threshold),
    }


def losses(z, y, of_classes) -> dict:
    def counted(z):
        flags = (torch.arange(2 * CLASSES, device=z.device) % 3 > 0)[::2]
        loss, stats = sf.entmax_loss(z, y.to(z.device), return_stats=True, counted=flags)
        return loss + sum((part * live.to(z.device)).float().mean() for part in stats[:3])

    def middle(z):
        scores = z[:, :FEW].unflatten(0, (8, 8)).movedim(-1, 1)  # [N, C, L]
        return sf.entmax_loss(scores, y.to(z.device).view(8, 8) % FEW, dim=1)

    def weighted(z):
        weight = of_classes.to(z.device)
        return sf.alpha_relu_loss(z, y.to(z.device), 1.5, 1.4, weight=weight)

    live = y != -100
    return {
        "alpha_relu_loss": ((z,), lambda z: sf.alpha_relu_loss(z, y.to(z.device), 1.5, 1.4)),
        "smoothed": ((z,), lambda z: sf.entmax_loss(z, y.to(z.device), label_smoothing=0.1)),
        "entmax_loss": ((z,), lambda z: sf.entmax_loss(z, y.to(z.device), reduction="none")),
        "entmax_loss 1.2": ((z,), lambda z: sf.entmax_loss(z, y.to(z.device), 1.2)),
        "sparsemax_loss": ((z,), lambda z: sf.sparsemax_loss(z, y.to(z.device))),
        "statistics": ((z,), counted),
        "classes in the middle": ((z,), middle),
        "class weights": ((z,), weighted),
    }


def fused_losses(h, weight, bias, y) -> dict:
    """By lists, by lists in which no row fits, and by products."""

    def loss(name, *numbers, **options):
        def run(h, weight, bias=None):
            target = y.to(h.device) % len(weight)
            return getattr(sf, name)(h, weight, target, *numbers, bias=bias, **options)

        return run

    relu, entmax, few = "linear_alpha_relu_loss", "linear_entmax_loss", weight[:FEW]
    return {
        relu: ((h, weight), loss(relu, 1.5, 4.0)),
        f"{relu}, no row fits": ((h, weight), loss(relu, 1.5, 1.0)),
        f"{relu}, products": ((h, few), loss(relu, 1.5, 4.0)),
        entmax: ((h, weight), loss(entmax, 1.5)),
        f"{entmax}, products": ((h, few), loss(entmax, 1.5)),
        "bias and smoothing": ((h, weight, bias), loss(entmax, 1.5, label_smoothing=0.1)),
        "bias and smoothing, products": (
            (h, few, bias[:FEW]),
            loss(relu, 1.5, 4.0, label_smoothing=0.1),
        ),
        "rows apart": ((h, weight), loss(relu, 1.5, 4.0, reduction="none")),
        "rows apart, products": ((h, few), loss(entmax, 1.5, reduction="none")),
    }


def given(kind: str, dtype=torch.float32, seed: int = 0):
    """Inputs that were made on the CPU, and the call."""
    generator = torch.Generator().manual_seed(seed)
    device = torch.get_default_device()

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device="cpu").to(device, dtype)

    y = torch.randint(CLASSES, (ROWS,), generator=generator, device="cpu")
    y[3] = -100
    y = y.to(device)
    z, h, weight = 2 * normal(ROWS, CLASSES), normal(ROWS, HIDDEN), normal(CLASSES, HIDDEN) * 0.3
    bias, of_classes = normal(CLASSES), torch.linspace(0.5, 2.0, CLASSES)
    alpha = torch.linspace(1.2, 1.8, ROWS).view(ROWS, 1)
    every = mappings(z, alpha) | losses(z, y, of_classes) | fused_losses(h, weight, bias, y)
    return every[kind]


# The names alone: tests are collected where there is no GPU, too.
NOTHING = torch.zeros(ROWS, CLASSES, device="meta")
MAPPINGS = list(mappings(NOTHING, NOTHING[:, :1]))
LOSSES = [
    *losses(NOTHING, NOTHING[:, 0], None),
    *fused_losses(NOTHING, NOTHING, NOTHING[0], NOTHING[:, 0]),
]
KINDS = MAPPINGS + LOSSES


def value_and_gradients(inputs, call):
    """Of the squares of a mapping's result; of twice a loss, which asks for another gradient than
    its one pass has made. Squares of losses are too large for float16."""
    leaves = [part.detach().clone().requires_grad_() for part in inputs]
    value = call(*leaves)
    total = (value * value).sum() if value.dim() > 1 else 2 * value.sum()
    return value.detach(), *torch.autograd.grad(total, leaves)


def test_vocabularies_that_take_lists_and_products():
    assert linear.prefers_lists(CLASSES) and not linear.prefers_lists(FEW)


@pytest.mark.parametrize("kind", ["entmax", "entmax 1.2", "sparsemax", *LOSSES[:5]])
def test_half_precision_is_rounded_once(kind):
    """The interpreter truncates; a device rounds what kernels compute in float32."""
    inputs, call = given(kind, torch.bfloat16)
    value, grad = value_and_gradients(inputs, call)
    exact, of_exact = value_and_gradients([part.float() for part in inputs], call)
    torch.testing.assert_close(value, exact.to(value.dtype), rtol=2**-7, atol=1e-6)
    if kind in LOSSES:  # that of a mapping is computed from the rounded result
        torch.testing.assert_close(grad, of_exact.bfloat16(), rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_long_sums_are_in_float32(dtype):
    """In bfloat16 throughout, the sum over so many classes is about 0.95."""
    (z,), call = given("entmax", dtype)
    assert (call(z * 0.1).float().sum(1) - 1).abs().max() < 2e-3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_tau(dtype):
    (z,), _ = given("entmax", dtype)
    assert float(sf.batch_tau(z)) == pytest.approx(float(sf.batch_tau(z.cpu().double())), rel=1e-3)


def test_the_kernels_are_the_route():
    z = torch.zeros(1, 2, device="cuda")
    assert _routes.route_name("losses", z, EntmaxMapping(1.5)) == "triton"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_public_functions_against_float64_on_the_cpu(kind, dtype):
    inputs, call = given(kind, dtype)
    found = value_and_gradients(inputs, call)
    with torch.device("cpu"):
        wanted = value_and_gradients([part.cpu().double() for part in inputs], call)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}[dtype]
    for one, other in zip(found, wanted, strict=True):
        error = (one.cpu().double() - other).norm() / other.norm().clamp(min=1e-6)
        assert error <= tolerance, (kind, error.item())


@pytest.mark.parametrize("kind", LOSSES[:5])
def test_more_scores_than_32_bits_count(kind):
    """N·V > 2³¹: the last rows as if they were alone."""
    rows = 2**31 // CLASSES + ROWS
    if torch.cuda.get_device_properties(0).total_memory < 14e9:
        pytest.skip("needs 14 GB of memory")
    (z,), _ = given(kind, torch.bfloat16)
    large = torch.zeros(rows, CLASSES, dtype=torch.bfloat16)
    large[-ROWS:] = z
    y = torch.full((rows,), -100)
    y[-ROWS:] = torch.arange(ROWS)
    loss = {
        "alpha_relu_loss": lambda z, y: sf.alpha_relu_loss(z, y, 1.5, 1.4),
        "smoothed": lambda z, y: sf.entmax_loss(z, y, label_smoothing=0.1),
        "entmax_loss": lambda z, y: sf.entmax_loss(z, y),
        "entmax_loss 1.2": lambda z, y: sf.entmax_loss(z, y, 1.2),
        "sparsemax_loss": sf.sparsemax_loss,
    }[kind]
    large.requires_grad_()
    (grad,) = torch.autograd.grad(loss(large, y), large)
    own = z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(own, y[-ROWS:]), own)
    assert torch.equal(grad[-ROWS:], expected) and not grad[:-ROWS].any()


@pytest.mark.parametrize("kind", KINDS)
def test_repeats_are_equal_bit_by_bit(kind):
    inputs, call = given(kind, torch.bfloat16)
    first = value_and_gradients(inputs, call)
    for _ in range(10):
        for one, other in zip(value_and_gradients(inputs, call), first, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_the_host_never_waits(kind):
    """What waits raises an error here."""
    inputs, call = given(kind)
    expected = value_and_gradients(inputs, call)  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = value_and_gradients(inputs, call)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", LOSSES)
def test_cuda_graphs(kind):
    inputs, call = given(kind)
    expected = value_and_gradients(inputs, call)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # for the inputs
    with torch.cuda.stream(stream):
        for _ in range(3):
            value_and_gradients(inputs, call)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = value_and_gradients(inputs, call)
    graph.replay()
    for one, other in zip(captured, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_compile(kind):
    inputs, call = given(kind)
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True)
    eager = value_and_gradients(inputs, call)
    for one, other in zip(value_and_gradients(inputs, compiled), eager, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=2e-5)


def peak(run) -> int:
    run()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


def test_peak_memory():
    """A plain loss needs its gradient beside the scores; a fused one no more than a chunk of
    logits and the gradients of the layer (with a third for the allocator)."""
    z = torch.randn(4096, CLASSES).requires_grad_()
    y = torch.arange(4096)
    one = peak(lambda: torch.autograd.grad(sf.alpha_relu_loss(z, y, 1.5, 1.4), z))
    assert one <= 1.4 * z.numel() * 4
    h, weight = torch.randn(32_768, HIDDEN), torch.randn(CLASSES, HIDDEN)
    many = torch.arange(32_768) % CLASSES
    leaves = [h.requires_grad_(), weight.requires_grad_()]
    fused = peak(
        lambda: torch.autograd.grad(sf.linear_alpha_relu_loss(*leaves, many, 1.5, 4.0), leaves)
    )
    lists = len(h) * linear.CAPACITY * (4 + 4 + 4 + 8 + 8)
    gradients = 8 * (h.numel() + weight.numel())
    chunk = 4 * max(linear.CHUNK_ELEMENTS, linear.CHUNK_ROWS * CLASSES)
    assert fused <= 1.4 * (chunk + gradients + lists) < 4 * len(h) * CLASSES


def test_compute_sanitizer():
    """Races and wild addresses inside of the kernels, where NVIDIA's tool is installed."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        pytest.skip("compute-sanitizer is not on the PATH")
    code = (
        "import torch; from sparse_fairseq import functional as sf; "
        "z = torch.randn(5, 20001, device='cuda', requires_grad=True); "
        "y = torch.arange(5, device='cuda'); "
        "h, *ws = (torch.randn(n, 16, device='cuda', requires_grad=True) "
        "for n in (5, 1001, 24601)); "
        "sf.alpha_relu_loss(z, y, 1.5, 1.4).backward(); sf.entmax_loss(z, y).backward(); "
        "sf.entmax(z[:, :77]).sum().backward(); "
        "[sf.linear_entmax_loss(h, w, y).backward() for w in ws]; "
        "[sf.linear_alpha_relu_loss(h, w, y, 1.5, t).backward() for w in ws for t in (0.0, 4.0)]; "
        "torch.cuda.synchronize()"
    )
    for check in ("memcheck", "racecheck"):
        command = [tool, "--tool", check, "--error-exitcode", "9", sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:]
