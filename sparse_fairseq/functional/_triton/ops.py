"""The kernels as operators of torch: what torch.compile, autocast and CUDA graphs see of them.

Each has a fake kernel, which gives shapes without computing. None has autograd: that is in
``functional``, the same for all routes. A Family goes through an operator as two numbers.
"""

import torch
from torch import Tensor

from . import launch, linear
from ._math import FIELDS
from .launch import Family, Target


def _empty(z: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=z.device)


@torch.library.custom_op("sparse_fairseq::loss_rows", mutates_args=())
def loss_rows(
    z: Tensor,
    index: Tensor,
    scale: Tensor | None,
    counted: Tensor | None,
    alpha: float,
    tau: float | None,
    smoothing: float,
    ignore_index: int,
    stats: bool,
) -> tuple[Tensor, Tensor]:
    """The fields of each row, and scale · (p − q) where a scale is given (else nothing)."""
    out = None if scale is None else launch.new_output(z, z.dtype, *z.shape)
    target = Target(index, ignore_index, smoothing)
    fields = launch.loss_rows(
        z, target, Family(alpha, tau), stats=stats, counted=counted, scale=scale, out=out
    )
    return fields, _empty(z, 0) if out is None else out


@loss_rows.register_fake
def _(z, index, scale, counted, alpha, tau, smoothing, ignore_index, stats):
    grad = _empty(z, 0) if scale is None else _empty(z, *z.shape, dtype=z.dtype)
    return _empty(z, len(z), FIELDS.value), grad


@torch.library.custom_op("sparse_fairseq::loss_gradient", mutates_args=())
def loss_gradient(
    z: Tensor,
    index: Tensor,
    fields: Tensor,
    scale: Tensor,
    alpha: float,
    tau: float | None,
    smoothing: float,
    ignore_index: int,
) -> Tensor:
    """scale · (p − q) from the scores again."""
    target = Target(index, ignore_index, smoothing)
    return launch.loss_gradient(z, target, Family(alpha, tau), fields, scale)


@loss_gradient.register_fake
def _(z, index, fields, scale, alpha, tau, smoothing, ignore_index):
    return _empty(z, *z.shape, dtype=z.dtype)


@torch.library.custom_op("sparse_fairseq::rescale_", mutates_args=("grad",))
def rescale_(grad: Tensor, have: Tensor, want: Tensor) -> None:
    """Rows that are multiplied by ``have`` become rows that are multiplied by ``want``. Where both
    are the same nothing is read."""
    launch.rescale_(grad, have, want)


@rescale_.register_fake
def _(grad, have, want):
    return None


@torch.library.custom_op("sparse_fairseq::entmax_rows", mutates_args=())
def entmax_rows(z: Tensor, alpha: float | None, eps: Tensor | None) -> Tensor:
    """α-entmax of rows, for one α or (``eps``) one for each."""
    return launch.entmax_rows(z, alpha, eps)


@entmax_rows.register_fake
def _(z, alpha, eps):
    return _empty(z, *z.shape, dtype=z.dtype)


@torch.library.custom_op("sparse_fairseq::entmax_gradients", mutates_args=())
def entmax_gradients(
    p: Tensor, grad: Tensor, alpha: float | None, eps: Tensor | None, of_alpha: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of the scores, and of α [rows] (nothing unless it is asked for)."""
    return launch.entmax_gradients(p, grad, alpha, eps, of_alpha)


@entmax_gradients.register_fake
def _(p, grad, alpha, eps, of_alpha):
    return _empty(p, *p.shape, dtype=p.dtype), _empty(p, len(p) if of_alpha else 0)


@torch.library.custom_op("sparse_fairseq::linear_rows", mutates_args=())
def linear_rows(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    index: Tensor,
    scale: Tensor | None,
    counted: Tensor | None,
    alpha: float,
    tau: float | None,
    smoothing: float,
    ignore_index: int,
    stats: bool,
    needs: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fields of each row, and the gradients of states, weights and bias where a scale is given
    and they are needed (else nothing)."""
    fields, sums = linear.linear_rows(
        h, weight, bias, Target(index, ignore_index, smoothing), Family(alpha, tau), stats=stats,
        counted=counted, scale=scale, needs=needs,
    )  # fmt: skip
    of_h, of_weight, of_bias = (_empty(h, 0) if part is None else part for part in sums)
    return fields, of_h, of_weight, of_bias


@linear_rows.register_fake
def _(h, weight, bias, index, scale, counted, alpha, tau, smoothing, ignore_index, stats, needs):
    shapes = (h.shape, weight.shape, weight.shape[:1])
    gradients = (
        _empty(h, *shape) if needed and scale is not None else _empty(h, 0)
        for shape, needed in zip(shapes, needs, strict=True)
    )
    return _empty(h, len(h), FIELDS.value), *gradients
