"""The output layer fused with a sparse loss: hidden states and output weights in, loss out.

The logits of a block of rows live in one buffer that the next block overwrites. p − q is zero
outside of the support, so the gradients of states and weights are sums over few (row, column,
value); where a block is not sparse they are dense products of logits that are computed again.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _checks
from .losses import (
    Alpha,
    Mapping,
    Options,
    RowStats,
    Target,
    alpha_gradient,
    alpha_relu_mapping,
    empty_loss,
    entmax_mapping,
    forward_blocks,
    read_target,
    reduce_loss,
)

# The buffer for logits: small beside N × V, but with rows enough for an efficient product, which
# reads all weights for each block.
BUFFER_ELEMENTS = 1 << 23
BUFFER_ROWS = 256


def _row_slices(rows: int, classes: int) -> list[slice]:
    size = min(rows, max(BUFFER_ROWS, BUFFER_ELEMENTS // classes))
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]


def _logits(h: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
    if out is not None:
        out = out[: len(h)]
    if bias is None:
        return torch.mm(h, weight.t(), out=out)
    return torch.addmm(bias, h, weight.t(), out=out)


def _logit_blocks(
    h: Tensor, weight: Tensor, bias: Tensor | None, slices: list[slice]
) -> Iterator[tuple[slice, Tensor]]:
    """(rows, their logits in at least float32), all in the same memory."""
    size = slices[0].stop - slices[0].start
    buffer = torch.empty(size, len(weight), dtype=h.dtype, device=h.device)
    for rows in slices:
        logits = _logits(h[rows], weight, bias, buffer)
        yield rows, logits.to(_checks.compute_dtype(h.dtype))


class _LinearFenchelYoung(torch.autograd.Function):
    """Loss of every row [rows] and the fields of RowStats, from states [rows, hidden]."""

    @staticmethod
    def forward(ctx, h, weight, bias, alpha_rows, mapping, target, live, uncounted, stats_wanted):
        blocks = _logit_blocks(h, weight, bias, _row_slices(len(h), len(weight)))
        slope_wanted = ctx.needs_input_grad[3]
        done = forward_blocks(blocks, mapping, target, live, slope_wanted, stats_wanted, uncounted)
        ctx.mapping, ctx.target, ctx.dense = mapping, target, done.dense
        ctx.save_for_backward(h, weight, bias, done.flat, done.value, done.slope, live)
        ctx.mark_non_differentiable(*done.fields)
        return (done.loss.to(_checks.compute_dtype(h.dtype)), *done.fields)

    @staticmethod
    def backward(ctx, upstream, *_):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused loss has no second derivative: use the plain loss of F.linear(h, weight)"
            )
        h, weight, bias, flat, value, slope, live = ctx.saved_tensors
        upstream = upstream * live
        wanted = ctx.needs_input_grad[:3]
        with torch.autocast(h.device.type, enabled=False):
            grads = _Gradients(h, weight, wanted, upstream)
            grads.add_support(flat, value)
            grads.add_dense(ctx.dense, ctx.mapping, bias)
            grads.subtract_target(ctx.target)
            grads.poison(flat, value)
        grad_alpha = alpha_gradient(slope, upstream, live) if ctx.needs_input_grad[3] else None
        return (*grads.finished(), grad_alpha, None, None, None, None, None)


class _Gradients:
    """Gradients of states, weights and bias, as sums of the parts of upstream · (p − q)."""

    def __init__(self, h: Tensor, weight: Tensor, wanted: tuple, upstream: Tensor) -> None:
        self.dtype, self.upstream = h.dtype, upstream
        self.wants_h, self.wants_weight, self.wants_bias = wanted
        self.h, self.weight = h.to(upstream.dtype), weight.to(upstream.dtype)
        self.of_h: Tensor | None = None
        self.of_weight: Tensor | None = None
        self.of_bias: Tensor | None = None

    def add_support(self, flat: Tensor, value: Tensor) -> None:
        """Sums over the support. An embedding bag is a product with a sparse matrix: its bags
        are the rows of the matrix, and it reads each needed row of the dense factor once."""
        classes, rows = len(self.weight), len(self.h)
        row, col = flat // classes, flat % classes
        value = value * self.upstream[row]
        if self.wants_h:
            self.of_h = _bags(col, self.weight, row, rows, value)
        if self.wants_weight:
            order = col.argsort(stable=True)
            self.of_weight = _bags(row[order], self.h, col[order], classes, value[order])
        if self.wants_bias:
            self.of_bias = value.new_zeros(classes).index_add_(0, col, value)

    def add_dense(self, dense: list, mapping: Mapping, bias: Tensor | None) -> None:
        for rows, again in dense:
            h = self.h[rows]
            logits = _logits(h.to(self.dtype), self.weight.to(self.dtype), bias)
            p = mapping.of_rows(rows).dense_scores(logits.to(h.dtype), *again)
            self._add_rows(rows, p.mul_(self.upstream[rows, None]))

    def _add_rows(self, rows: slice, grad: Tensor) -> None:
        """The gradient of the logits of some rows, dense."""
        if self.of_h is not None:
            self.of_h[rows].addmm_(grad, self.weight)
        if self.of_weight is not None:
            self.of_weight.addmm_(grad.t(), self.h[rows])
        if self.of_bias is not None:
            self.of_bias += grad.sum(0)

    def subtract_target(self, target: Target) -> None:
        if target.index is None:
            for rows in _row_slices(len(self.h), len(self.weight)):
                q = target.of_rows(rows).dense(self.upstream.dtype)
                self._add_rows(rows, q.mul_(-self.upstream[rows, None]))
            return
        peak = -(1 - target.smoothing) * self.upstream
        rest = -target.smoothing / len(self.weight) * self.upstream
        if self.of_h is not None:
            self.of_h.addcmul_(self.weight[target.index], peak[:, None])
            if target.smoothing:
                self.of_h += rest[:, None] * self.weight.sum(0)
        if self.of_weight is not None:
            self.of_weight.index_add_(0, target.index, self.h * peak[:, None])
            if target.smoothing:
                self.of_weight += rest @ self.h
        if self.of_bias is not None:
            self.of_bias.index_add_(0, target.index, peak)
            if target.smoothing:
                self.of_bias += rest.sum()

    def poison(self, flat: Tensor, value: Tensor) -> None:
        """A NaN row must not look like a gradient: it makes its state and all weights NaN."""
        row = flat[value.isnan()] // len(self.weight)
        if len(row):
            if self.of_h is not None:
                self.of_h[row] = float("nan")
            for grad in (self.of_weight, self.of_bias):
                if grad is not None:
                    grad.fill_(float("nan"))

    def finished(self) -> tuple[Tensor | None, ...]:
        parts = (self.of_h, self.of_weight, self.of_bias)
        return tuple(None if grad is None else grad.to(self.dtype) for grad in parts)


def _bags(index: Tensor, table: Tensor, bag: Tensor, bags: int, weight: Tensor) -> Tensor:
    """Σ weight · table[index] for each bag [bags, hidden]; ``bag`` is ascending."""
    offsets = torch.bincount(bag, minlength=bags).cumsum(0).roll(1)
    offsets[0] = 0
    if not len(index):
        return table.new_zeros(bags, table.shape[1])
    return F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=weight)


# --- what users call ------------------------------------------------------------------------


def _check_shapes(h: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if h.dim() == 0 or weight.dim() != 2 or h.shape[-1] != weight.shape[1] or not len(weight):
        raise ValueError(
            f"h of shape {tuple(h.shape)} and weight of shape {tuple(weight.shape)} do not fit: "
            "weight is [classes, hidden] with h's last dimension"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}, need ({len(weight)},)")


def linear_fenchel_young_loss(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    mapping: Mapping,
    options: Options,
    stats_wanted: bool = False,
    uncounted: Tensor | None = None,
) -> tuple[Tensor, RowStats | None]:
    """``fenchel_young_loss`` of F.linear(h, weight, bias)."""
    _check_shapes(h, weight, bias)
    device = h.device.type
    if torch.is_autocast_enabled(device) and h.dtype != torch.float64:  # what F.linear would do
        dtype = torch.get_autocast_dtype(device)
        h, weight = h.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    leading = h.shape[:-1]
    q, live = read_target(target, torch.Size((*leading, len(weight))), options)
    rows = h.reshape(len(live), h.shape[-1])
    if len(rows):
        alpha_rows = mapping.alpha if isinstance(mapping.alpha, Tensor) else None
        detached = mapping.with_alpha(None if alpha_rows is None else alpha_rows.detach())
        with torch.autocast(device, enabled=False):
            loss, *fields = _LinearFenchelYoung.apply(
                rows, weight, bias, alpha_rows, detached, q, live, uncounted, stats_wanted
            )
    else:
        loss = rows.to(_checks.compute_dtype(h.dtype)).sum(1)
        loss = empty_loss(loss, mapping, weight, bias)
        fields = [live.long(), loss.detach(), loss.detach(), live]
    stats = RowStats(*(part.view(leading) for part in fields)) if stats_wanted else None
    return reduce_loss(loss, live, options.reduction, leading), stats


def linear_alpha_relu_loss(
    h: Tensor,
    weight: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    tau: float = 0.0,
    bias: Tensor | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """``alpha_relu_loss(F.linear(h, weight, bias), target, …)`` without the logits.

    Parameters
    ----------
    h
        Hidden states [..., hidden].
    weight, bias
        The output layer: [classes, hidden] and [classes].

    The rest as in :func:`alpha_relu_loss`. A second derivative is an error.
    """
    options = Options(reduction, ignore_index, label_smoothing)
    mapping = alpha_relu_mapping(alpha, tau)
    return linear_fenchel_young_loss(h, weight, bias, target, mapping, options)[0]


def linear_entmax_loss(
    h: Tensor,
    weight: Tensor,
    target: Tensor,
    alpha: Alpha = 1.5,
    bias: Tensor | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    solver: str = "auto",
    topk: int = 100,
    n_iter: int = 50,
) -> Tensor:
    """``entmax_loss(F.linear(h, weight, bias), target, …)`` without the logits; α = 2 is the
    sparsemax loss. States and weights as in :func:`linear_alpha_relu_loss`, the rest as in
    :func:`entmax_loss`. A second derivative is an error."""
    options = Options(reduction, ignore_index, label_smoothing)
    mapping = entmax_mapping(h.shape[:-1], alpha, solver, topk, n_iter)
    return linear_fenchel_young_loss(h, weight, bias, target, mapping, options)[0]


def linear_alpha_relu_loss_with_stats(
    h: Tensor,
    weight: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    tau: float = 0.0,
    bias: Tensor | None = None,
    *,
    uncounted: Tensor | None = None,
    **options,
) -> tuple[Tensor, RowStats]:
    """:func:`linear_alpha_relu_loss`, and :class:`RowStats` of the scores."""
    mapping = alpha_relu_mapping(alpha, tau)
    loss, stats = linear_fenchel_young_loss(
        h, weight, bias, target, mapping, Options(**options), True, uncounted
    )
    assert stats is not None
    return loss, stats


def linear_entmax_loss_with_stats(
    h: Tensor,
    weight: Tensor,
    target: Tensor,
    alpha: Alpha = 1.5,
    bias: Tensor | None = None,
    *,
    solver: str = "auto",
    topk: int = 100,
    n_iter: int = 50,
    uncounted: Tensor | None = None,
    **options,
) -> tuple[Tensor, RowStats]:
    """:func:`linear_entmax_loss`, and :class:`RowStats` of the probabilities."""
    mapping = entmax_mapping(h.shape[:-1], alpha, solver, topk, n_iter)
    loss, stats = linear_fenchel_young_loss(
        h, weight, bias, target, mapping, Options(**options), True, uncounted
    )
    assert stats is not None
    return loss, stats
