"""The output layer fused with a loss: the gradients of states and weights from lists.

The logits of some rows live in one buffer that the next rows overwrite. p − q is zero outside of
the support, so the gradients are sums over few (row, column, value), or dense products where a
block is not sparse.
"""

from collections.abc import Iterator
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import compute_dtype
from .._problem import Layer, LinearLosses, Mapping, RowStats, Target, Wanted
from .blocks import Block, DenseBlock, row_blocks, scores_again
from .candidates import DENSE_SHARE_FUSED
from .passes import Passed, Support, pass_over, subtract_target

# The buffer for logits: small beside N × V, but with rows enough for an efficient product, which
# reads all weights for each block.
BUFFER_ELEMENTS = 1 << 23
BUFFER_ROWS = 256
# Entries of the support that wait for the weights' gradient, which is large, and elements of it
# that are computed at a time.
WAITING_ENTRIES = 1 << 20
PIECE_ELEMENTS = 1 << 22


def linear_losses(
    layer: Layer,
    mapping: Mapping,
    target: Target,
    live: Tensor,
    wanted: Wanted,
    scale: Tensor | None,
) -> LinearLosses:
    """Over the rows that count; all others have zeros, whatever their states hold."""
    if bool(live.all()):
        return _linear_losses(layer, mapping, target, wanted, scale)
    rows = live.nonzero().squeeze(1)
    layer = layer._replace(h=layer.h.index_select(0, rows))
    scale = None if scale is None else scale[rows]
    done = _linear_losses(layer, mapping.of_rows(rows), target.of_rows(rows), wanted, scale)

    def spread(part: Tensor) -> Tensor:
        return part.new_zeros(len(live), *part.shape[1:]).index_copy_(0, rows, part)

    gradients = done.gradients
    if gradients and gradients[0] is not None:
        gradients = [spread(gradients[0]), *gradients[1:]]
    return LinearLosses(
        spread(done.loss),
        None if done.slope is None else spread(done.slope),
        None if done.stats is None else RowStats(*map(spread, done.stats)),
        gradients,
        (*done.kept, rows) if done.kept else (),
        done.notes,
    )


def _linear_losses(
    layer: Layer, mapping: Mapping, target: Target, wanted: Wanted, scale: Tensor | None
) -> LinearLosses:
    dtype = compute_dtype(layer.h.dtype)
    if not len(layer.h):
        return _no_losses(layer, wanted, dtype)
    sink: Gradients | Support | None = None
    if wanted.gradient and scale is not None:
        sink = Gradients(layer, target, wanted, scale)
    elif wanted.gradient:
        sink = Support(len(layer.h), len(layer.weight), dtype)
    blocks = _logit_blocks(layer, sink if isinstance(sink, Gradients) else None)
    done = pass_over(blocks, mapping, target, wanted, sink, DENSE_SHARE_FUSED)
    if isinstance(sink, Gradients):
        return LinearLosses(*done, sink.finished())
    if isinstance(sink, Support):
        return LinearLosses(*done, [], sink.kept(), tuple(sink.dense))
    return LinearLosses(*done, [])


def _no_losses(layer: Layer, wanted: Wanted, dtype: torch.dtype) -> LinearLosses:
    """Of no rows at all."""
    none = layer.h.new_zeros(0, dtype=torch.float64)
    kinds = (torch.int64, dtype, dtype, torch.bool)
    stats = RowStats(*(none.to(kind) for kind in kinds)) if wanted.stats else None
    zeros = [None if part is None else torch.zeros_like(part, dtype=dtype) for part in layer]
    done = Passed(none, none if wanted.slope else None, stats)
    kept = (none.long(), none.to(dtype), none.to(dtype))
    return LinearLosses(*done, zeros if wanted.gradient else [], kept, ())


def linear_gradients(
    layer: Layer,
    mapping: Mapping,
    target: Target,
    kept: tuple[Tensor, ...],
    dense: tuple[tuple[int, int], ...],
    scale: Tensor,
    wanted: Wanted,
) -> list[Tensor | None]:
    """From the lists that a pass kept; the logits of dense rows are computed once more."""
    flat, value, again, *rows = kept
    size = len(layer.h)
    if rows:
        layer = layer._replace(h=layer.h.index_select(0, rows[0]))
        mapping, target, scale = mapping.of_rows(rows[0]), target.of_rows(rows[0]), scale[rows[0]]
    sink = Gradients(layer, target, wanted, scale)
    classes = len(layer.weight)
    if len(layer.h):
        row = flat // classes
        sink.add_entries(slice(0, len(layer.h)), row, flat - row * classes, value)
    start = 0
    for first, last in (*dense, (len(layer.h), len(layer.h))):
        sink.subtract_target(slice(start, first))
        start = last
        for outer in _row_slices(last - first, classes):
            part = slice(first + outer.start, first + outer.stop)
            p = _logits(layer, part, None).to(sink.dtype)
            p = scores_again(p, mapping.of_rows(part), again[part])
            subtract_target(p, target.of_rows(part))
            sink.add_rows(part, p)
    of_h, *others = sink.finished()
    if rows and of_h is not None:
        of_h = of_h.new_zeros(size, of_h.shape[1]).index_copy_(0, rows[0], of_h)
    return [of_h, *others]


# --- logits ---------------------------------------------------------------------------------


def _row_slices(rows: int, classes: int) -> list[slice]:
    size = max(1, min(rows, max(BUFFER_ROWS, BUFFER_ELEMENTS // classes)))
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]


def _logits(layer: Layer, rows: slice, out: Tensor | None) -> Tensor:
    h, weight, bias = layer
    if bias is None:
        return torch.mm(h[rows], weight.t(), out=out)
    return torch.addmm(bias, h[rows], weight.t(), out=out)


def _logit_blocks(layer: Layer, sink: "Gradients | None") -> Iterator[tuple[slice, Tensor]]:
    """Blocks of logits. Thresholds are searched in what stays in the cache, products want more."""
    dtype = compute_dtype(layer.h.dtype)
    slices = _row_slices(len(layer.h), len(layer.weight))
    buffer = layer.h.new_empty(slices[0].stop, len(layer.weight))
    for outer in slices:
        logits = _logits(layer, outer, buffer[: outer.stop - outer.start]).to(dtype)
        for inner in row_blocks(logits):
            yield slice(outer.start + inner.start, outer.start + inner.stop), logits[inner]
        if sink is not None:
            sink.finish_rows(outer, logits)


# --- gradients ------------------------------------------------------------------------------


class _Slices(list[slice]):
    """Rows, neighbours as one slice: products of few rows are slow."""

    def add(self, rows: slice) -> None:
        if self and self[-1].stop == rows.start:
            rows = slice(self.pop().start, rows.stop)
        self.append(rows)


class Gradients:
    """Gradients of states, weights and bias: sums over blocks of rows of scale · (p − q)."""

    def __init__(self, layer: Layer, target: Target, wanted: Wanted, scale: Tensor) -> None:
        self.weight, self.target = layer.weight, target
        self.dtype = dtype = compute_dtype(layer.h.dtype)
        self.scale = scale.to(dtype)
        self.without = self.scale == 0  # rows that add nothing, even if they hold NaN
        self.some_without = bool(self.without.any())
        self.h = layer.h
        if self.some_without:
            self.h = self.h.masked_fill(self.without[:, None], 0.0)
        of_h, of_weight, of_bias = wanted.leaves
        self.of_h = torch.zeros_like(self.h, dtype=dtype) if of_h else None
        self.of_weight = torch.zeros_like(self.weight, dtype=dtype) if of_weight else None
        has_bias = of_bias and layer.bias is not None
        self.of_bias = self.h.new_zeros(len(self.weight), dtype=dtype) if has_bias else None
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

    def add(self, rows: slice, z: Tensor, block: Block) -> None:
        if isinstance(block, DenseBlock):
            z.copy_(block.p)
            self.dense.add(rows)
        else:
            self.add_entries(rows, block.row, block.col, block.p)
            self.listed.add(rows)

    def add_entries(self, rows: slice, row: Tensor, col: Tensor, value: Tensor) -> None:
        """p of some rows as a list; ``row`` counts from the first of them."""
        value, place = value.to(self.dtype), row + rows.start
        if self.some_without:
            value = value.masked_fill(self.without[place], 0.0)
        if bool(value.isnan().any()):
            self.poisoned.append(place[value.isnan()])
        value = value * self.scale[place]
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

    def finish_rows(self, outer: slice, logits: Tensor) -> None:
        """− q for rows whose p is in lists; p − q, as one, for dense rows, so that half precision
        rounds the difference and not what cancels."""
        for rows in self.listed:
            self.subtract_target(rows)
        for rows in self.dense:
            p = logits[rows.start - outer.start : rows.stop - outer.start]
            subtract_target(p, self.target.of_rows(rows))
            self.add_rows(rows, p)
        self.dense, self.listed = _Slices(), _Slices()

    def add_rows(self, rows: slice, value: Tensor) -> None:
        """p − q of some rows, which this may overwrite. Products are in the layer's dtype."""
        value = value.mul_(self.scale[rows, None])
        if self.some_without:
            value.masked_fill_(self.without[rows, None], 0.0)
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

    def subtract_target(self, rows: slice) -> None:
        if rows.start == rows.stop:
            return
        q = self.target.of_rows(rows)
        if q.index is None:
            for part in _row_slices(rows.stop - rows.start, len(self.weight)):
                own = slice(rows.start + part.start, rows.start + part.stop)
                self.add_rows(own, self.target.of_rows(own).dense(self.dtype).neg_())
            return
        scale = self.scale[rows]
        peak, rest = (q.smoothing - 1) * scale, -q.smoothing / q.classes * scale
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
