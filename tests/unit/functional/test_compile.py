"""torch.compile(fullgraph=True): values and gradients of eager code, and few graphs.

``aot_eager`` traces forward and backward as ``inductor`` does, and generates no code, which takes
minutes; one test generates it.
"""

import pytest
import torch
from helpers import only, scores, targets
from torch._dynamo.testing import CompileCounterWithBackend

from sparse_fairseq import functional as sf
from sparse_fairseq.functional._routes import VARIABLE

pytestmark = only("host")  # what auto takes for eager calls on the CPU; compiled ones take device

CLASSES, HIDDEN = 300, 8
WEIGHT = scores(CLASSES, HIDDEN, seed=5, dtype=torch.float32)

# Each of scores z [rows, classes], targets y and a learned α [rows].
FUNCTIONS = {
    "alpha_relu": lambda z, y, a: sf.alpha_relu(z, 1.5, 0.2),
    "alpha_relu learned": lambda z, y, a: sf.alpha_relu(z, a[:, None], 0.2),
    "entmax": lambda z, y, a: sf.entmax(z),
    "entmax learned": lambda z, y, a: sf.entmax(z, a),
    "sparsemax": lambda z, y, a: sf.sparsemax(z),
    "alpha_relu_loss": lambda z, y, a: sf.alpha_relu_loss(z, y, 1.5, 0.2),
    "entmax_loss": lambda z, y, a: sf.entmax_loss(z, y),
    "entmax_loss learned": lambda z, y, a: sf.entmax_loss(z, y, a, reduction="none"),
    "sparsemax_loss": lambda z, y, a: sf.sparsemax_loss(z, y, label_smoothing=0.1),
    "linear_alpha_relu_loss": lambda z, y, a: sf.linear_alpha_relu_loss(
        z[:, :HIDDEN], WEIGHT.to(z), y, 1.5, 0.2
    ),
    "linear_entmax_loss": lambda z, y, a: sf.linear_entmax_loss(z[:, :HIDDEN], WEIGHT.to(z), y),
    "linear_entmax_loss learned": lambda z, y, a: sf.linear_entmax_loss(
        z[:, :HIDDEN], WEIGHT.to(z), y, a
    ),
}


def inputs(rows):
    z = scores(rows, CLASSES, seed=rows, dtype=torch.float32).requires_grad_()
    y = targets(rows, classes=CLASSES, seed=rows)
    y[0] = -100
    return z, y, torch.linspace(1.2, 1.9, rows).requires_grad_()


def assert_equal_to_eager(compiled, function, rows):
    z, y, alpha = inputs(rows)
    results = []
    for run in (function, compiled):
        out = run(z, y, alpha)
        before = out.detach().clone()
        upstream = scores(out.numel(), seed=1, dtype=torch.float32).view(out.shape)
        grads = torch.autograd.grad(out, (z, alpha), upstream, allow_unused=True)
        # Compiled code returned memory that its backward pass used again (torch 2.13).
        assert torch.equal(out, before)
        results.append([out.detach(), *(grad for grad in grads if grad is not None)])
    for own, expected in zip(*results, strict=True):
        torch.testing.assert_close(own, expected, rtol=2e-6, atol=2e-6)


FAST = ("alpha_relu", "entmax", "alpha_relu_loss", "entmax_loss", "linear_entmax_loss")


@pytest.mark.parametrize(
    "name",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in FUNCTIONS],
)
def test_equal_to_eager_with_few_graphs(name, monkeypatch):
    """11 numbers of rows, of which 1 is a graph of its own for torch."""
    monkeypatch.setenv(VARIABLE, "auto")
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True, dynamic=True, backend=counter)
    for rows in (5, 8, 16, 3, 7, 33, 64, 11, 100, 12, 40):
        assert_equal_to_eager(compiled, FUNCTIONS[name], rows)
    assert counter.frame_count <= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["entmax", "entmax_loss"])
def test_generated_code_is_equal_to_eager(name, monkeypatch):
    monkeypatch.setenv(VARIABLE, "auto")
    torch._dynamo.reset()
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True)
    assert_equal_to_eager(compiled, FUNCTIONS[name], 6)


def test_what_cannot_be_compiled_says_so(monkeypatch):
    monkeypatch.setenv(VARIABLE, "auto")
    torch._dynamo.reset()
    compiled = torch.compile(lambda z: sf.entmax(z, 1.5, solver="topk"), fullgraph=True)
    with pytest.raises(Exception, match="topk.*cannot be compiled.*'auto'"):
        compiled(scores(2, 300, dtype=torch.float32))
