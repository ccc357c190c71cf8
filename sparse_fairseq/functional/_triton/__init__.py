"""The route of kernels: what ``_routes`` asks of a route, on top of the operators in ``ops``.

========================= =========================================================================
``_alpha_relu``           loss and gradient of α-ReLU
``_entmax``               the same of α-entmax; the mapping and its backward pass
``_lists``, ``_rescale``  what the fused layer and a backward pass need beside
``launch``, ``linear``    which kernel for which tensors; the output layer in chunks
``ops``                   all that as operators of torch
========================= =========================================================================

float32, bfloat16 and float16 scores; α-ReLU for any α, α-entmax for 1 < α ≤ 2. What the kernels do
not serve (float64, soft targets, a learned α in a loss, other solvers) is the device route's.
A sum or a mean makes the gradient in its one pass over the scores, unless it is compiled or in
float16; then, and for ``reduction="none"``, the backward pass reads the scores again.
"""

from typing import Any

import torch
from torch import Tensor

from .. import _device
from .._problem import (
    EntmaxMapping,
    Layer,
    LinearLosses,
    Losses,
    Mapping,
    RowStats,
    Target,
    Wanted,
)
from . import ops
from ._math import CORRECT, LOSS, SCORE, SUPPORT, TOTAL
from .launch import row_eps

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# The index of rows that do not count: none that a target has by accident, as −1, which is no class
# and makes its row NaN.
IGNORED = -(1 << 62)
# Not float16: a gradient that is made before its upstream gradient, which scales the loss, would
# be lost in what float16 cannot hold.
ONE_PASS = (torch.float32, torch.bfloat16)


def serves(operation: str, z: Tensor, mapping: Mapping) -> bool:
    if z.dtype not in DTYPES:
        return False
    if not isinstance(mapping, EntmaxMapping):
        return operation in ("losses", "linear_losses")
    if mapping.solver != "auto":
        return False
    if isinstance(mapping.alpha, Tensor):
        return operation == "entmax"
    return 1.0 < mapping.alpha <= 2.0


# --- the mapping ------------------------------------------------------------------------------


def entmax(z: Tensor, mapping: EntmaxMapping) -> Tensor:
    if isinstance(mapping.alpha, Tensor):
        return ops.entmax_rows(z, None, row_eps(mapping.alpha.reshape(-1)))
    return ops.entmax_rows(z, mapping.alpha, None)


def entmax_backward(
    p: Tensor, grad: Tensor, alpha: float | Tensor, for_alpha: bool
) -> tuple[Tensor, Tensor | None]:
    number, eps = (None, row_eps(alpha.reshape(-1))) if isinstance(alpha, Tensor) else (alpha, None)
    of_z, of_alpha = ops.entmax_gradients(p, grad, number, eps, for_alpha)
    return of_z, of_alpha[:, None].double() if for_alpha else None


# --- losses -----------------------------------------------------------------------------------


def _numbers(mapping: Mapping, target: Target) -> tuple[float, float | None, float, int]:
    assert isinstance(mapping.alpha, float)
    tau = None if isinstance(mapping, EntmaxMapping) else mapping.tau
    return mapping.alpha, tau, target.smoothing, IGNORED


def _flags(wanted: Wanted) -> Tensor | None:
    """Of classes, side by side: the kernels have no stride for them."""
    return None if wanted.counted is None else wanted.counted.contiguous()


def _stats(fields: Tensor, wanted: Wanted) -> RowStats | None:
    if not wanted.stats:
        return None
    support, total, score, correct = (
        fields[:, which.value] for which in (SUPPORT, TOTAL, SCORE, CORRECT)
    )
    return RowStats(support.long(), total, score, correct.bool())


class _Waiting:
    """A gradient that was made in the forward pass, until a backward pass takes it."""

    def __init__(self, grad: Tensor, scale: Tensor) -> None:
        self.grad: Tensor | None = grad
        self.scale = scale

    def take(self, scale: Tensor) -> Tensor | None:
        """For another upstream gradient; None from the second time on. A factor of 1 costs
        nothing."""
        grad, self.grad = self.grad, None
        if grad is not None:
            ops.rescale_(grad, self.scale, scale)
        return grad


def losses(z: Tensor, mapping: Mapping, target: Target, live: Tensor, wanted: Wanted) -> Losses:
    """With ``wanted.scale`` the gradient is made in the same pass over the scores."""
    if target.index is None:
        return _device.losses(z, mapping, target, live, wanted)
    index = target.index.where(live, IGNORED)
    scale = None
    if wanted.gradient and wanted.scale is not None and z.dtype in ONE_PASS:
        scale = wanted.scale.float()
    fields, grad = ops.loss_rows(
        z, index, scale, _flags(wanted), *_numbers(mapping, target), wanted.stats
    )
    notes = None if scale is None else _Waiting(grad, scale)
    return Losses(fields[:, LOSS.value], None, _stats(fields, wanted), (index, fields), notes)


def gradient(
    z: Tensor,
    mapping: Mapping,
    target: Target,
    kept: tuple[Tensor, ...],
    notes: _Waiting | None,
    scale: Tensor,
) -> Tensor:
    if target.index is None:
        return _device.gradient(z, mapping, target, kept, notes, scale)
    grad = None if notes is None else notes.take(scale.float())
    if grad is not None:
        return grad
    index, fields = kept
    return ops.loss_gradient(z, index, fields, scale.float(), *_numbers(mapping, target))


# --- the output layer -------------------------------------------------------------------------


def linear_losses(
    layer: Layer,
    mapping: Mapping,
    target: Target,
    live: Tensor,
    wanted: Wanted,
    scale: Tensor | None,
) -> LinearLosses:
    if target.index is None:
        return _device.linear_losses(layer, mapping, target, live, wanted, scale)
    index = target.index.where(live, IGNORED)
    made = wanted.gradient and scale is not None
    fields, gradients = _layer_pass(layer, mapping, target, index, scale if made else None, wanted)
    stats = _stats(fields, wanted)
    return LinearLosses(fields[:, LOSS.value], None, stats, gradients if made else [], (index,))


def linear_gradients(
    layer: Layer,
    mapping: Mapping,
    target: Target,
    kept: tuple[Tensor, ...],
    notes: Any,
    scale: Tensor,
    wanted: Wanted,
) -> list[Tensor | None]:
    if target.index is None:
        return _device.linear_gradients(layer, mapping, target, kept, notes, scale, wanted)
    return _layer_pass(layer, mapping, target, kept[0], scale, wanted._replace(stats=False))[1]


def _layer_pass(
    layer: Layer,
    mapping: Mapping,
    target: Target,
    index: Tensor,
    scale: Tensor | None,
    wanted: Wanted,
) -> tuple[Tensor, list[Tensor | None]]:
    needs = list(wanted.leaves)
    fields, *gradients = ops.linear_rows(
        *layer, index, None if scale is None else scale.float(), _flags(wanted),
        *_numbers(mapping, target), wanted.stats, needs,
    )  # fmt: skip
    return fields, [part if need else None for part, need in zip(gradients, needs, strict=True)]
