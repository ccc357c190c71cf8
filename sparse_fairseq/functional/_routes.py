"""Which code computes a call: the decision between the routes, and what a route has to offer.

======== ======================= ==================================================================
route    folder                  what it is
======== ======================= ==================================================================
host     ``_host/``              CPU: lists of the few candidates, looks at values, stops early
device   ``_device/``            torch operations only: no host sync, traceable, any device
triton   ``_triton/``            kernels, for the calls that they say they serve
======== ======================= ==================================================================

``SPARSE_FAIRSEQ_ROUTE`` is ``auto`` (the default), ``host``, ``device`` or ``triton``. ``auto``
takes host for CPU tensors; device for CPU tensors inside of ``torch.compile``; for CUDA tensors
(ROCm's are some, too) triton where it serves the call and device where not; device for all others.
It never imports ``_triton`` for CPU tensors. ``triton`` takes the kernels for tensors of any device
(``TRITON_INTERPRET=1`` runs them on the CPU) and device for the calls that they do not serve.

A route is a package with these functions. All take rows of scores z [rows, classes] (or a
``Layer``, whose logits are z), hold no autograd, and leave their arguments as they were. The types
are in ``_problem``; α is a number, or float64 [rows, 1].

``entmax(z, mapping) -> p``
    α-entmax of rows in float32 or float64; a row of only −inf maps to zeros, one with NaN or +inf
    to NaN.
``entmax_backward(p, grad, alpha, for_alpha) -> (grad_z, grad_alpha)``
    S2S Proposition 1, and dL/dα of each row (float64 [rows, 1]) if it is asked for, else None.
``losses(z, mapping, target, live, wanted) -> Losses``
    The loss of each row, and what ``wanted`` names; 0 for the rows that are not ``live``, whatever
    they hold. z has its own dtype (half precision too), results at least float32.
``gradient(z, mapping, target, kept, notes, scale) -> grad_z``
    scale · (p − q) in the dtype of z, from what ``losses`` kept and noted. scale [rows] is exactly
    0 for rows that do not count, which get zeros even if they hold NaN.
``linear_losses(layer, mapping, target, live, wanted, scale) -> LinearLosses``
    The same for a Layer. With ``scale`` [rows] the gradients of Σ scale · loss are computed in the
    same pass; without it, ``kept`` and ``notes`` are what the next function needs.
``linear_gradients(layer, mapping, target, kept, notes, scale, wanted) -> gradients``
    Those of h, weight and bias, where ``wanted.leaves`` asks for them, in at least float32.

``_triton`` has ``serves(operation, z, mapping) -> bool`` beside them: whether it can compute that
call. ``operation`` is the name of one of the functions above; z the scores, or the states of a
Layer; mapping an ``EntmaxMapping`` or ``AlphaReLUMapping``. The route of a forward pass is that of
its backward pass, so that only ``entmax``, ``losses`` and ``linear_losses`` are asked for. Where a
function is not there, ``serves`` says no to it.
"""

import importlib.util
import os
from types import ModuleType

import torch
from torch import Tensor

from ._problem import AlphaReLUMapping, EntmaxMapping, Mapping

VARIABLE = "SPARSE_FAIRSEQ_ROUTE"
CHOICES = ("auto", "host", "device", "triton")
INTERPRETED = ("1", "true", "on", "yes", "y")  # what Triton itself takes for yes
TRITON_IS_INSTALLED = importlib.util.find_spec("triton") is not None


# Neither function is marked for torch.compile, which reads both as constants anyway: the mark would
# import its whole machinery, Triton included.
def _chosen() -> str:
    choice = os.environ.get(VARIABLE, "auto")
    if choice not in CHOICES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(CHOICES)}, got {choice!r}")
    return choice


def route_name(operation: str, z: Tensor, mapping: Mapping) -> str:
    """The route of a call: host, device or triton."""
    choice, compiling = _chosen(), torch.compiler.is_compiling()
    if choice == "host" and compiling:
        raise ValueError(f"{VARIABLE}=host cannot be compiled: use auto or device, or run eagerly")
    if choice in ("host", "device"):
        return choice
    if choice == "auto":
        if z.device.type == "cpu":
            return "device" if compiling else "host"
        if z.device.type != "cuda" or not _has_triton():
            return "device"
    else:
        _check_that_kernels_run(z)
    return "triton" if route("triton").serves(operation, z, mapping) else "device"


def _check_that_kernels_run(z: Tensor) -> None:
    if not _has_triton():
        raise ValueError(f"{VARIABLE}=triton needs the package triton: pip install triton")
    if z.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") not in INTERPRETED:
        raise ValueError(
            f"{VARIABLE}=triton runs CPU tensors with TRITON_INTERPRET=1 alone: set it, or take "
            "another route"
        )


def _has_triton() -> bool:
    return TRITON_IS_INSTALLED


def route(name: str) -> ModuleType:
    if name == "host":
        from . import _host

        return _host
    if name == "device":
        from . import _device

        return _device
    from . import _triton  # type: ignore[attr-defined]

    return _triton


def route_of(operation: str, z: Tensor, mapping: Mapping) -> ModuleType:
    """The package that computes a call."""
    return route(route_name(operation, z, mapping))


def loss_route(like: Tensor, alpha: float, tau: float | None = None) -> str:
    """The route of a fused loss for states like these: α-ReLU with a τ, α-entmax without."""
    mapping = EntmaxMapping(alpha) if tau is None else AlphaReLUMapping(alpha, tau)
    return route_name("linear_losses", like, mapping)
