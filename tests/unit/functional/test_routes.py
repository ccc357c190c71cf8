"""The decision between the routes."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from helpers import only

from sparse_fairseq.functional import _routes
from sparse_fairseq.functional._problem import EntmaxMapping

MAPPING = EntmaxMapping(1.5)


def name(z=None):
    return _routes.route_name("losses", torch.zeros(1, 2) if z is None else z, MAPPING)


@only("host")
def test_auto_depends_on_the_device_and_on_compilation(monkeypatch):
    monkeypatch.delenv(_routes.VARIABLE, raising=False)
    assert name() == "host"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert name() == "device"
    monkeypatch.setattr(_routes, "_has_triton", lambda: False)
    assert name(torch.zeros(1, 2, device="meta")) == "device"


@only("host")
@pytest.mark.parametrize("device", ["meta", "mps", "xpu", "cuda"])
def test_auto_takes_kernels_on_cuda_alone(device, monkeypatch):
    """ROCm's tensors are of the type cuda, too."""
    monkeypatch.setenv(_routes.VARIABLE, "auto")
    monkeypatch.setattr(_routes, "_has_triton", lambda: True)
    scores = SimpleNamespace(device=torch.device(device), dtype=torch.float32)
    assert name(scores) == ("triton" if device == "cuda" else "device")


@only("host")
def test_kernels_that_cannot_run_are_one_clear_error(monkeypatch):
    monkeypatch.setenv(_routes.VARIABLE, "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="SPARSE_FAIRSEQ_ROUTE=triton .* TRITON_INTERPRET=1"):
        name()
    monkeypatch.setattr(_routes, "_has_triton", lambda: False)
    with pytest.raises(ValueError, match="SPARSE_FAIRSEQ_ROUTE=triton needs the package triton"):
        name()


@only("host")
@pytest.mark.parametrize("choice", ["host", "device"])
def test_the_variable_overrides_it(choice, monkeypatch):
    monkeypatch.setenv(_routes.VARIABLE, choice)
    assert name() == name(torch.zeros(1, 2, device="meta")) == choice
    assert _routes.route_of("losses", torch.zeros(1, 2), MAPPING).__name__.endswith(f"_{choice}")


@only("host")
def test_what_cannot_be_is_one_clear_error(monkeypatch):
    monkeypatch.setenv(_routes.VARIABLE, "gpu")
    with pytest.raises(ValueError, match="SPARSE_FAIRSEQ_ROUTE must be one of auto.*'gpu'"):
        name()
    monkeypatch.setenv(_routes.VARIABLE, "host")
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(ValueError, match="SPARSE_FAIRSEQ_ROUTE=host cannot be compiled"):
        name()


@only("host")
def test_the_cpu_never_imports_the_kernels(monkeypatch):
    monkeypatch.setenv(_routes.VARIABLE, "auto")
    code = (
        "import sys, torch; from sparse_fairseq import functional as sf; "
        "z = torch.randn(3, 5, requires_grad=True); "
        "sf.entmax_loss(z, torch.tensor([0, 1, 2])).backward(); "
        "print('sparse_fairseq.functional._triton' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False"]
