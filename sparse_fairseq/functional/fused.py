"""The output layer fused with a sparse loss: hidden states and output weights in, loss out.

The logits exist for some rows at a time only. The gradients of states and weights are computed
while they are at hand, in the forward pass; the backward pass multiplies them by the upstream
gradient.
Arguments and autograd are here; the routes (see ``_routes``) compute.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from . import _checks
from ._looking import is_transformed, may_look
from ._problem import Alpha, Layer, Mapping, RowStats, Target, Wanted
from ._routes import route, route_name
from .losses import (
    Call,
    Loss,
    Options,
    alpha_gradient,
    alpha_relu_mapping,
    empty_loss,
    entmax_mapping,
    read_target,
    split_alpha,
)

UNSUPPORTED = (
    "the fused loss has no second derivative and does not go with torch.func: "
    "use the plain loss of F.linear(h, weight)"
)


class _LinearFenchelYoung(torch.autograd.Function):
    """Σ scale · loss, or each of its terms, and the fields of RowStats, from states
    [rows, hidden]."""

    @staticmethod
    def forward(ctx, h, weight, bias, alpha_rows, scale, live, index, soft, counted, call, leaves):
        target = Target(index, soft, call.smoothing, len(weight))
        wanted = Wanted(call.gradient, call.slope, call.stats, counted, leaves)
        layer = Layer(h.detach(), weight.detach(), None if bias is None else bias.detach())
        mapping = call.mapping.with_alpha(alpha_rows)
        own = scale if call.reduce else None
        done = route(call.route).linear_losses(layer, mapping, target, live, wanted, own)
        ctx.call, ctx.notes, ctx.wanted = call, done.notes, wanted._replace(counted=None)
        ctx.gradients = done.gradients
        # α and soft targets are saved so that torch complains if they change before the backward
        # pass.
        saved = (h, weight, bias, alpha_rows, scale, live, index, soft, done.slope)
        ctx.save_for_backward(*saved, *done.kept)
        stats = done.stats or ()
        ctx.mark_non_differentiable(*stats)
        loss = done.loss * scale.to(done.loss.dtype)
        loss = loss.sum() if call.reduce else loss
        return (loss.to(_checks.compute_dtype(h.dtype)), *stats)

    @staticmethod
    def backward(ctx, upstream, *_):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(UNSUPPORTED)
        h, weight, bias, alpha_rows, scale, live, index, soft, slope, *kept = ctx.saved_tensors
        call, wanted = ctx.call, ctx.wanted
        # They are given away, so that nobody needs a copy; a second backward pass starts again.
        gradients, ctx.gradients = ctx.gradients, None
        if not gradients and any(wanted.leaves):
            layer = Layer(h.detach(), weight.detach(), None if bias is None else bias.detach())
            target = Target(index, soft, call.smoothing, len(weight))
            mapping, route_ = call.mapping.with_alpha(alpha_rows), route(call.route)
            with _without_autocast(h):
                if call.reduce:
                    done = route_.linear_losses(layer, mapping, target, live, wanted, scale)
                    gradients = done.gradients
                else:
                    own = upstream.to(scale.dtype) * scale
                    gradients = route_.linear_gradients(
                        layer, mapping, target, tuple(kept), ctx.notes, own, wanted
                    )
        gradients = gradients or [None] * 3
        if call.reduce:
            gradients = _scaled(gradients, upstream)
        gradients = [None if grad is None else grad.to(h.dtype) for grad in gradients]
        grad_alpha = None
        if ctx.needs_input_grad[3]:
            grad_alpha = alpha_gradient(slope, upstream.to(scale.dtype) * scale, live)
        return *gradients, grad_alpha, *(None,) * 7


def _without_autocast(h: Tensor) -> AbstractContextManager:
    device = h.device.type
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def _scaled(gradients: list[Tensor | None], upstream: Tensor) -> list[Tensor | None]:
    if may_look(upstream) and float(upstream) == 1.0:
        return gradients
    return [None if grad is None else grad.mul_(upstream) for grad in gradients]


# --- what users call ------------------------------------------------------------------------


def _check_shapes(h: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if h.dim() == 0 or weight.dim() != 2 or h.shape[-1] != weight.shape[1] or not len(weight):
        raise ValueError(
            f"h of shape {tuple(h.shape)} and weight of shape {tuple(weight.shape)} do not fit: "
            "weight is [classes, hidden] with h's last dimension"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}, need ({len(weight)},)")


def _as_linear_would(h: Tensor, weight: Tensor, bias: Tensor | None) -> Layer:
    """The dtypes that F.linear would compute in, which must be one."""
    device = h.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if autocast and h.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
        h, weight = h.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != h.dtype:
            raise ValueError(f"{name} is {tensor.dtype}, but h is {h.dtype}")
    return Layer(h, weight, bias)


def linear_fenchel_young_loss(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    mapping: Mapping,
    options: Options,
) -> Loss:
    """``fenchel_young_loss`` of F.linear(h, weight, bias)."""
    if not torch.compiler.is_compiling():
        for part in (h, weight, bias, target):
            if part is not None and is_transformed(part):
                raise RuntimeError(UNSUPPORTED)
    h, weight, bias = _as_linear_would(h, weight, bias)
    leading = h.shape[:-1]
    q, live, scale = read_target(target, torch.Size((*leading, len(weight))), options)
    if leading.numel() == 0:
        dtype = _checks.compute_dtype(h.dtype)
        return empty_loss(mapping, options, dtype, h, weight, bias)
    rows = h if h.dim() == 2 else h.reshape(-1, h.shape[-1])
    alpha_rows, plain = split_alpha(mapping)
    enabled = torch.is_grad_enabled()
    leaves = tuple(
        enabled and part is not None and part.requires_grad for part in (h, weight, bias)
    )
    call = Call(
        plain,
        q.smoothing,
        route_name("linear_losses", rows, mapping),
        reduce=options.reduction != "none",
        gradient=any(leaves),
        slope=enabled and alpha_rows is not None and alpha_rows.requires_grad,
        stats=options.return_stats,
    )
    with _without_autocast(h):
        loss, *stats = _LinearFenchelYoung.apply(
            rows,
            weight,
            bias,
            alpha_rows,
            scale,
            live,
            q.index,
            q.rows,
            options.counted,
            call,
            leaves,
        )
    loss = loss.view(leading) if options.reduction == "none" and len(leading) != 1 else loss
    return (loss, RowStats(*(part.view(leading) for part in stats))) if stats else loss


def linear_alpha_relu_loss(
    h: Tensor,
    weight: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    tau: float | None = None,
    *,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    return_stats: bool = False,
    counted: Tensor | None = None,
) -> Loss:
    """``alpha_relu_loss(F.linear(h, weight, bias), target, …)`` without the logits.

    Parameters
    ----------
    h
        Hidden states [..., hidden].
    weight, bias
        The output layer: [classes, hidden] and [classes].
    class_weight
        ``weight`` of :func:`alpha_relu_loss`.

    The rest as in :func:`alpha_relu_loss`. A second derivative is an error.

    The sum and the mean cost one pass over the logits, and so does any multiple of them. With
    ``reduction="none"`` the gradients have to wait for the weights of the rows: on the CPU they
    come from the support that is kept, and only rows that are not sparse compute their logits
    again; on other devices all do. Weights that are known before belong into the loss
    (``class_weight``, ``ignore_index``).
    """
    _check_shapes(h, weight, bias)
    options = Options(reduction, ignore_index, label_smoothing, class_weight, return_stats, counted)
    mapping = alpha_relu_mapping(alpha, tau)
    return linear_fenchel_young_loss(h, weight, bias, target, mapping, options)


def linear_entmax_loss(
    h: Tensor,
    weight: Tensor,
    target: Tensor,
    alpha: Alpha = 1.5,
    *,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    solver: str = "auto",
    topk: int | None = None,
    n_iter: int | None = None,
    return_stats: bool = False,
    counted: Tensor | None = None,
) -> Loss:
    """``entmax_loss(F.linear(h, weight, bias), target, …)`` without the logits; α = 2 is the
    sparsemax loss, α = 1 cross-entropy. States, weights and passes as in
    :func:`linear_alpha_relu_loss`, the rest as in :func:`entmax_loss`."""
    _check_shapes(h, weight, bias)
    options = Options(reduction, ignore_index, label_smoothing, class_weight, return_stats, counted)
    mapping = entmax_mapping(h.shape[:-1], alpha, solver, topk, n_iter)
    return linear_fenchel_young_loss(h, weight, bias, target, mapping, options)
