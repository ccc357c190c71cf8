"""The output layer fused with a sparse loss: hidden states and output weights in, loss out.

The logits of a block of rows live in one buffer that the next block overwrites. p − q is zero
outside of the support, so the gradients of states and weights are sums over few (row, column,
value), or dense products where a block is not sparse. Both are computed while the logits are at
hand, in the forward pass; the backward pass multiplies them by the upstream gradient.
"""

from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _checks
from ._solvers import on_host
from .losses import (
    Alpha,
    Mapping,
    Options,
    RowStats,
    Target,
    alpha_gradient,
    alpha_relu_mapping,
    block_loss,
    block_slope,
    block_stats,
    block_support,
    empty_loss,
    entmax_mapping,
    read_target,
    reduce_loss,
)
from .mappings import row_blocks

# The buffer for logits: small beside N × V, but with rows enough for an efficient product, which
# reads all weights for each block.
BUFFER_ELEMENTS = 1 << 23
BUFFER_ROWS = 256
# Entries of the support that wait for the weights' gradient, which is large, and elements of it
# that are computed at a time.
WAITING_ENTRIES = 1 << 20
PIECE_ELEMENTS = 1 << 22


class Layer(NamedTuple):
    """What a loss is computed from, without autograd."""

    h: Tensor  # [rows, hidden]
    weight: Tensor  # [classes, hidden]
    bias: Tensor | None
    mapping: Mapping
    target: Target

    def of_rows(self, rows: Tensor) -> "Layer":
        h, target = self.h.index_select(0, rows), self.target.of_rows(rows)
        return self._replace(h=h, target=target, mapping=self.mapping.of_rows(rows))


class Wanted(NamedTuple):
    """What is computed beside the losses."""

    of_h: bool
    of_weight: bool
    of_bias: bool
    slope: bool
    stats: bool

    @property
    def gradients(self) -> bool:
        return self.of_h or self.of_weight or self.of_bias


class Passed(NamedTuple):
    """What a pass over the logits leaves."""

    loss: Tensor  # float64 [rows]
    slope: Tensor | None  # float64 [rows], dL/dα
    fields: tuple[Tensor, ...]  # of RowStats
    gradients: list[Tensor | None]  # of h, weight and bias, in at least float32

    def of_all_rows(self, rows: Tensor, size: int) -> "Passed":
        """With zeros for the rows that were left out."""

        def spread(part: Tensor) -> Tensor:
            return part.new_zeros(size, *part.shape[1:]).index_copy_(0, rows, part)

        loss, slope, fields, (of_h, *others) = self
        slope = None if slope is None else spread(slope)
        of_h = None if of_h is None else spread(of_h)
        return Passed(spread(loss), slope, tuple(map(spread, fields)), [of_h, *others])


# --- one pass over the logits ---------------------------------------------------------------


def _row_slices(rows: int, classes: int) -> list[slice]:
    size = max(1, min(rows, max(BUFFER_ROWS, BUFFER_ELEMENTS // classes)))
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]


def _logits(h: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    if bias is None:
        return torch.mm(h, weight.t(), out=out)
    return torch.addmm(bias, h, weight.t(), out=out)


def _pass(layer: Layer, wanted: Wanted, row_weight: Tensor | None, uncounted) -> Passed:
    """The loss of every row, and the gradients of Σ row_weight · loss."""
    h, weight, bias, mapping, target = layer
    dtype = _checks.compute_dtype(h.dtype)
    loss = h.new_zeros(len(h), dtype=torch.float64)
    slope = torch.zeros_like(loss) if wanted.slope else None
    kinds = (torch.int64, dtype, dtype, torch.bool) if wanted.stats else ()
    fields = tuple(torch.zeros_like(loss, dtype=kind) for kind in kinds)
    gradients = _Gradients(layer, wanted, row_weight)
    slices = _row_slices(len(h), len(weight))
    buffer = h.new_empty(slices[0].stop if slices else 0, len(weight))
    for outer in slices:
        logits = _logits(h[outer], weight, bias, buffer[: outer.stop - outer.start]).to(dtype)
        # Thresholds are searched in what stays in the cache.
        for inner in row_blocks(logits):
            rows = slice(outer.start + inner.start, outer.start + inner.stop)
            z, q, own = logits[inner], target.of_rows(rows), mapping.of_rows(rows)
            block = own.block(z)
            loss[rows] = block_loss(z, block, own, q)
            if slope is not None:
                slope[rows] = block_slope(block, own, q)
            if wanted.stats:
                stats = block_stats(z, block, own, q, uncounted)
                for field, part in zip(fields, stats, strict=True):
                    field[rows] = part
            if wanted.gradients and block.again is not None:
                z.copy_(block.p)
                gradients.dense.add(inner)
            elif wanted.gradients:
                gradients.add_entries(rows, *block_support(block))
                gradients.listed.add(inner)
        gradients.finish_rows(outer, logits, target)
    return Passed(loss, slope, fields, gradients.finished())


def _pass_over_live(
    layer: Layer, live: Tensor, wanted: Wanted, row_weight: Tensor | None, uncounted
) -> Passed:
    """``_pass`` over the rows that count; all others have zeros, whatever their states hold."""
    if not on_host(live):  # how many count is not known here
        weight = live.to(_checks.compute_dtype(layer.h.dtype))
        row_weight = weight if row_weight is None else weight * row_weight
        layer = layer._replace(h=layer.h.masked_fill(~live[:, None], 0.0))
        done = _pass(layer, wanted, row_weight, uncounted)
        return done._replace(loss=done.loss.masked_fill(~live, 0.0))
    if bool(live.all()):
        return _pass(layer, wanted, row_weight, uncounted)
    rows = live.nonzero().squeeze(1)
    row_weight = None if row_weight is None else row_weight[rows]
    done = _pass(layer.of_rows(rows), wanted, row_weight, uncounted)
    return done.of_all_rows(rows, len(live))


class _Slices(list[slice]):
    """Rows of the buffer, neighbours as one slice: products of few rows are slow."""

    def add(self, rows: slice) -> None:
        if self and self[-1].stop == rows.start:
            rows = slice(self.pop().start, rows.stop)
        self.append(rows)


class _Gradients:
    """Gradients of states, weights and bias: sums over blocks of rows of row_weight · (p − q)."""

    def __init__(self, layer: Layer, wanted: Wanted, row_weight: Tensor | None) -> None:
        self.h, self.weight, self.row_weight = layer.h, layer.weight, row_weight
        self.dtype = dtype = _checks.compute_dtype(layer.h.dtype)
        self.of_h = torch.zeros_like(self.h, dtype=dtype) if wanted.of_h else None
        self.of_weight = torch.zeros_like(self.weight, dtype=dtype) if wanted.of_weight else None
        self.of_bias = self.h.new_zeros(len(self.weight), dtype=dtype) if wanted.of_bias else None
        self.dense, self.listed = _Slices(), _Slices()  # dense: with p where their logits were
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self.waiting_entries = 0
        self.poisoned: list[Tensor] = []

    @cached_property
    def wide_h(self) -> Tensor:
        return self.h.to(self.dtype)

    @cached_property
    def wide_weight(self) -> Tensor:
        return self.weight.to(self.dtype)

    @cached_property
    def sum_of_weights(self) -> Tensor:
        return self.wide_weight.sum(0)

    def add_entries(self, rows: slice, row: Tensor, col: Tensor, value: Tensor) -> None:
        """p of some rows as a list; ``row`` counts from the first of them."""
        value, place = value.to(self.dtype), row + rows.start
        if bool(value.isnan().any()):
            self.poisoned.append(place[value.isnan()])
        if self.row_weight is not None:
            value = value * self.row_weight[place]
        if self.of_bias is not None:
            self.of_bias.index_add_(0, col, value)
        column = col.int()  # half the memory, and faster to sort
        if self.of_h is not None:
            ends = torch.bincount(row, minlength=rows.stop - rows.start).cumsum(0)
            self.of_h[rows] = _bags(column, self.wide_weight, ends, value)
        self._add_to_waiting(place, column, value)

    def _add_to_waiting(self, row: Tensor, col: Tensor, value: Tensor) -> None:
        if self.of_weight is None or not len(value):  # no column, no piece of the gradient
            return
        self.waiting.append((row.int(), col.int(), value))
        self.waiting_entries += len(value)
        if self.waiting_entries > WAITING_ENTRIES:
            self._add_waiting()

    def _add_waiting(self) -> None:
        """The weights' gradient of the lists: ordered by column, the columns that are in them,
        some at a time."""
        assert self.of_weight is not None
        row, col, value = (torch.cat(part) for part in zip(*self.waiting, strict=True))
        self.waiting, self.waiting_entries = [], 0
        col, order = col.sort(stable=True)
        row, value = row.index_select(0, order), value.index_select(0, order)
        touched, counts = torch.unique_consecutive(col, return_counts=True)
        ends, done = counts.cumsum(0), 0
        size = max(1, PIECE_ELEMENTS // max(1, self.h.shape[1]))
        for columns, own in zip(touched.split(size), ends.split(size), strict=True):
            until = int(own[-1])
            sums = _bags(row[done:until], self.wide_h, own - done, value[done:until])
            self.of_weight.index_add_(0, columns, sums)
            done = until

    def finish_rows(self, outer: slice, logits: Tensor, target: Target) -> None:
        """− q for rows whose p is in lists; p − q, as one, for dense rows, so that half precision
        rounds the difference and not what cancels."""
        for rows in self.listed:
            place = slice(outer.start + rows.start, outer.start + rows.stop)
            self._subtract_target(place, target.of_rows(place))
        for rows in self.dense:
            place = slice(outer.start + rows.start, outer.start + rows.stop)
            p = logits[rows]
            target.of_rows(place).subtract_from(p)
            self._add_rows(place, p)
        self.dense, self.listed = _Slices(), _Slices()

    def _add_rows(self, rows: slice, value: Tensor) -> None:
        """p − q of some rows, which this may overwrite. Products are in the layer's dtype."""
        if self.row_weight is not None:
            value.mul_(self.row_weight[rows, None])
        if self.of_bias is not None:
            self.of_bias += value.sum(0)
        value = value.to(self.h.dtype)
        if self.of_h is not None:
            self.of_h[rows] += value @ self.weight
        if self.of_weight is not None:
            if self.h.dtype == self.dtype:
                self.of_weight.addmm_(value.t(), self.h[rows])
            else:
                self.of_weight += value.t() @ self.h[rows]

    def _subtract_target(self, rows: slice, q: Target) -> None:
        if q.index is None:
            self._add_rows(rows, q.dense(self.dtype).neg_())
            return
        ones = torch.ones_like(q.index, dtype=self.dtype)
        weight = ones if self.row_weight is None else self.row_weight[rows].to(self.dtype)
        peak, rest = (q.smoothing - 1) * weight, -q.smoothing / q.classes * weight
        if self.of_h is not None:
            self.of_h[rows].addcmul_(self.wide_weight.index_select(0, q.index), peak[:, None])
            if q.smoothing:
                self.of_h[rows] += rest[:, None] * self.sum_of_weights
        if self.of_weight is not None:
            place = torch.arange(rows.start, rows.stop, device=self.h.device)
            self._add_to_waiting(place, q.index, peak)
            if q.smoothing:
                self.of_weight += rest @ self.wide_h[rows]
        if self.of_bias is not None:
            self.of_bias.index_add_(0, q.index, peak)
            if q.smoothing:
                self.of_bias += rest.sum()

    def _poison(self) -> None:
        """A NaN row must not look like a gradient: it makes its state and all weights NaN."""
        for row in self.poisoned:
            if self.of_h is not None:
                self.of_h[row] = float("nan")
            for grad in (self.of_weight, self.of_bias):
                if grad is not None:
                    grad.fill_(float("nan"))

    def finished(self) -> list[Tensor | None]:
        if self.waiting:
            self._add_waiting()
        self._poison()
        return [self.of_h, self.of_weight, self.of_bias]


def _bags(index: Tensor, table: Tensor, ends: Tensor, weight: Tensor) -> Tensor:
    """Σ weight · table[index] over each bag [bags, hidden]: a product with a sparse matrix whose
    rows are the bags, which end at ``ends``. It reads each needed row of the table once."""
    if not len(index):
        return table.new_zeros(len(ends), table.shape[1])
    starts = ends.roll(1)
    starts[0] = 0
    starts = starts.to(index.dtype)
    return F.embedding_bag(index, table, starts, mode="sum", per_sample_weights=weight)


# --- autograd -------------------------------------------------------------------------------


class _LinearFenchelYoung(torch.autograd.Function):
    """Loss of every row [rows] and the fields of RowStats, from states [rows, hidden]."""

    @staticmethod
    def forward(ctx, h, weight, bias, alpha_rows, mapping, target, live, uncounted, flags):
        stats_wanted, grad_enabled = flags
        of_h, of_weight, of_bias, slope = (
            needs and grad_enabled for needs in ctx.needs_input_grad[:4]
        )
        wanted = Wanted(of_h, of_weight, of_bias, slope, stats_wanted)
        layer = Layer(h.detach(), weight.detach(), bias, mapping, target)
        done = _pass_over_live(layer, live, wanted, None, uncounted)
        ctx.mapping, ctx.target, ctx.gradients = mapping, target, done.gradients
        # α and soft targets are saved so that torch complains if they change before the backward
        # pass, which reads them through the mapping and the target.
        ctx.save_for_backward(h, weight, bias, done.slope, live, alpha_rows, target.rows)
        ctx.mark_non_differentiable(*done.fields)
        return (done.loss.to(_checks.compute_dtype(h.dtype)), *done.fields)

    @staticmethod
    def backward(ctx, upstream, *_):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused loss has no second derivative: use the plain loss of F.linear(h, weight)"
            )
        h, weight, bias, slope, live, *_ = ctx.saved_tensors
        # They are given away, so that nobody needs a copy; a second backward pass starts again.
        gradients, ctx.gradients = ctx.gradients, None
        one_number = upstream.stride() == (0,)  # of a sum or mean of the losses
        with torch.autocast(h.device.type, enabled=False):
            if gradients is None or not one_number:
                layer = Layer(h.detach(), weight.detach(), bias, ctx.mapping, ctx.target)
                of_h, of_weight, of_bias = ctx.needs_input_grad[:3]
                wanted = Wanted(of_h, of_weight, of_bias, slope=False, stats=False)
                row_weight = None if one_number else upstream
                gradients = _pass_over_live(layer, live, wanted, row_weight, None).gradients
            if one_number:
                gradients = _scaled(gradients, upstream[0])
        gradients = [None if grad is None else grad.to(h.dtype) for grad in gradients]
        grad_alpha = alpha_gradient(slope, upstream, live) if ctx.needs_input_grad[3] else None
        return (*gradients, grad_alpha, None, None, None, None, None)


def _scaled(gradients: list[Tensor | None], upstream: Tensor) -> list[Tensor | None]:
    if on_host(upstream) and float(upstream) == 1.0:
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


def _check_dtypes(h: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype != h.dtype:
            raise ValueError(f"{name} is {tensor.dtype}, but h is {h.dtype}")


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
    _check_dtypes(h, weight, bias)
    leading = h.shape[:-1]
    q, live = read_target(target, torch.Size((*leading, len(weight))), options)
    rows = h.reshape(len(live), h.shape[-1])
    if len(rows):
        alpha_rows = mapping.alpha if isinstance(mapping.alpha, Tensor) else None
        detached = mapping.with_alpha(None if alpha_rows is None else alpha_rows.detach())
        flags = (stats_wanted, torch.is_grad_enabled())  # inside, gradients are always disabled
        with torch.autocast(device, enabled=False):
            loss, *fields = _LinearFenchelYoung.apply(
                rows, weight, bias, alpha_rows, detached, q, live, uncounted, flags
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
