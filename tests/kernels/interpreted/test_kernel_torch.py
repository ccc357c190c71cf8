"""The kernels in torch's world: autocast, several workers, and no value that the host asks for."""

import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sparse_fairseq import functional as sf
from sparse_fairseq.functional import _routes
from sparse_fairseq.functional._triton import launch, linear
from sparse_fairseq.functional._triton.launch import Family, Target

FAMILIES = [Family(1.5, 0.2), Family(1.02, 0.2), Family(1.5), Family(1.2)]
Y = torch.tensor([3, -100, 7, 0])


def normal(*shape) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("fused", [False, True], ids=["loss", "fused"])
@pytest.mark.parametrize("route", ["triton", "device"])
def test_autocast(route, fused, monkeypatch):
    """The layer runs in bfloat16, the loss in float32, parameters get float32 gradients; and all is
    near to what it is without autocast."""
    monkeypatch.setenv(_routes.VARIABLE, route)

    def run(enabled: bool):
        h, weight = normal(4, 8).requires_grad_(), normal(30, 8).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            if fused:
                loss = sf.linear_entmax_loss(h, weight, Y, 1.5)
            else:
                z = torch.nn.functional.linear(h, weight)
                assert z.dtype == (torch.bfloat16 if enabled else torch.float32)
                loss = sf.entmax_loss(z, Y, 1.5)
        assert loss.dtype == torch.float32
        return loss.detach(), *torch.autograd.grad(loss, (h, weight))

    for one, other in zip(run(True), run(False), strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= 0.03 * other.norm()


class Asking(TorchDispatchMode):
    """Notes the operations for which a host waits for a device."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name.lstrip("_").startswith(tuple(w.lstrip("_") for w in self.WAITING)):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_host_asks_for_no_value(family):
    z, h, weight = normal(4, 30), normal(4, 8), normal(30, 8)
    target, scale = Target(Y, -100, 0.1), torch.ones(4)
    options = {"stats": True, "counted": None, "scale": scale, "needs": (True, True, True)}
    with Asking() as asking:
        fields = launch.loss_rows(z, target, family, stats=True, scale=scale, out=z.clone())
        grad = launch.loss_gradient(z, target, family, fields, scale)
        launch.rescale_(grad, scale, 2 * scale)
        for lists in (False, True):
            linear.linear_rows(h, weight, None, target, family, lists=lists, **options)
        if family.tau is None:
            p = launch.entmax_rows(z, family.alpha, None)
            launch.entmax_gradients(p, z, None, launch.row_eps(torch.full((4,), 1.3)), True)
    assert asking.seen == []


def test_asking_is_noticed():
    with Asking() as asking:
        assert torch.ones(2).sum() > 1
    assert asking.seen == ["_local_scalar_dense"]


WORKERS = """
import copy, os, sys, torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel
from sparse_fairseq import functional as sf

class Layer(torch.nn.Linear):
    fused = False

    def forward(self, x, y):
        if self.fused:
            options = {"bias": self.bias, "reduction": "sum"}
            return sf.linear_alpha_relu_loss(x, self.weight, y, 1.5, 0.2, **options)
        return sf.entmax_loss(super().forward(x), y, 1.5, reduction="sum")

def gradients(layer, wrap, x, y):
    torch.set_num_threads(1)
    wrapped = wrap(layer)  # kept: without it nothing is reduced
    wrapped(x, y).backward()
    return [part.grad.clone() for part in layer.parameters()]

def worker(rank, init):
    distributed.init_process_group("gloo", init_method=init, rank=rank, world_size=2)
    mine = slice(3 * rank, 3 * rank + 3)
    for layer.fused in (False, True):
        layer.zero_grad()
        whole = gradients(copy.deepcopy(layer), lambda same: same, x, y)
        found = gradients(layer, DistributedDataParallel, x[mine], y[mine])
        for one, other in zip(found, whole):  # workers are averaged
            torch.testing.assert_close(2 * one, other, atol=1e-6, rtol=1e-5)
        assert found[0].count_nonzero() > 0
        # In one piece: the other worker writes into the same pipe.
        os.write(1, f"fused {layer.fused}, as one\\n".encode())

torch.manual_seed(0)
layer, x, y = Layer(8, 30), torch.randn(6, 8), torch.tensor([1, 2, -100, 3, 29, 0])
context = multiprocessing.get_context("fork")
workers = [context.Process(target=worker, args=(rank, sys.argv[1])) for rank in (0, 1)]
[each.start() for each in workers]
[each.join(100) for each in workers]
sys.exit(any(each.exitcode for each in workers))
"""


def test_two_workers_have_the_gradient_of_one(tmp_path, monkeypatch):
    """DistributedDataParallel over gloo, with the loss and the fused one."""
    monkeypatch.setenv(_routes.VARIABLE, "triton")
    command = [sys.executable, "-W", "ignore", "-c", WORKERS, f"file://{tmp_path}/init"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line for line in done.stdout.split("\n") if line.endswith("as one")]
    assert sorted(said) == ["fused False, as one"] * 2 + ["fused True, as one"] * 2
