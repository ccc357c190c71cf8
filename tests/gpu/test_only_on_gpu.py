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

ROWS, CLASSES, HIDDEN = 64, 20_000, 64
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def given(kind: str, dtype=torch.float32, seed: int = 0):
    """Inputs that were made on the CPU, and the call."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device="cpu").to("cuda", dtype)

    y = torch.randint(CLASSES, (ROWS,), generator=generator, device="cpu")
    y[3] = -100
    y = y.cuda()
    z, h, weight = 2 * normal(ROWS, CLASSES), normal(ROWS, HIDDEN), normal(CLASSES, HIDDEN) * 0.3
    alpha = torch.full((ROWS, 1), 1.4)
    return {
        "alpha_relu": ((z,), lambda z: sf.alpha_relu(z, 1.5, 0.5)),
        "entmax": ((z,), lambda z: sf.entmax(z, 1.5)),
        "entmax 1.2": ((z,), lambda z: sf.entmax(z, 1.2)),
        "sparsemax": ((z,), sf.sparsemax),
        "learned alpha": ((z, alpha), sf.entmax),
        "entmax_threshold": ((z,), sf.entmax_threshold),
        "alpha_relu_loss": ((z,), lambda z: sf.alpha_relu_loss(z, y.to(z.device), 1.5, 1.4)),
        "smoothed": ((z,), lambda z: sf.entmax_loss(z, y.to(z.device), label_smoothing=0.1)),
        "entmax_loss": ((z,), lambda z: sf.entmax_loss(z, y.to(z.device), reduction="none")),
        "entmax_loss 1.2": ((z,), lambda z: sf.entmax_loss(z, y.to(z.device), 1.2)),
        "sparsemax_loss": ((z,), lambda z: sf.sparsemax_loss(z, y.to(z.device))),
        "linear_alpha_relu_loss": (
            (h, weight),
            lambda h, w: sf.linear_alpha_relu_loss(h, w, y.to(h.device), 1.5, 1.0),
        ),
        "linear_entmax_loss": (
            (h, weight),
            lambda h, w: sf.linear_entmax_loss(h, w, y.to(h.device), 1.5),
        ),
    }[kind]


KINDS = (
    "alpha_relu", "entmax", "entmax 1.2", "sparsemax", "learned alpha", "entmax_threshold",
    "alpha_relu_loss", "smoothed", "entmax_loss", "entmax_loss 1.2", "sparsemax_loss",
    "linear_alpha_relu_loss", "linear_entmax_loss",
)  # fmt: skip
LOSSES = [kind for kind in KINDS if "loss" in kind or kind == "smoothed"]


def value_and_gradients(inputs, call):
    leaves = [part.detach().clone().requires_grad_() for part in inputs]
    value = call(*leaves)
    return value.detach(), *torch.autograd.grad((value * value).sum(), leaves)


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
    from sparse_fairseq.functional._triton import linear

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
        "h, w = (torch.randn(n, 16, device='cuda', requires_grad=True) for n in (5, 1001)); "
        "sf.alpha_relu_loss(z, y, 1.5, 1.4).backward(); sf.entmax_loss(z, y).backward(); "
        "sf.entmax(z[:, :77]).sum().backward(); sf.linear_entmax_loss(h, w, y).backward(); "
        "torch.cuda.synchronize()"
    )
    for check in ("memcheck", "racecheck"):
        command = [tool, "--tool", check, "--error-exitcode", "9", sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:]
