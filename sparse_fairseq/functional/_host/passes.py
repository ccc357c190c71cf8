"""The one loop over blocks of rows, for plain and fused losses, and the sinks that it fills.

A sink is told of each block and keeps what its caller wants of it: the support, for a backward pass
(:class:`Support`); the gradients of an output layer (``layer.Gradients``); or nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .._checks import compute_dtype
from .._problem import Losses, Mapping, RowStats, Target, Wanted
from .blocks import (
    Block,
    DenseBlock,
    block_loss,
    block_slope,
    block_stats,
    make_block,
    row_blocks,
    scores_again,
)
from .candidates import DENSE_SHARE


class Sink(Protocol):
    def add(self, rows: slice, z: Tensor, block: Block) -> None: ...


class Passed(NamedTuple):
    """What a pass over blocks leaves, beside its sink."""

    loss: Tensor  # float64 [rows]
    slope: Tensor | None  # float64 [rows]
    stats: RowStats | None


def pass_over(
    blocks: Iterable[tuple[slice, Tensor]],
    mapping: Mapping,
    target: Target,
    wanted: Wanted,
    sink: Sink | None,
    dense_share: float,
) -> Passed:
    """The losses of blocks of scores, each given with the rows that it holds."""
    losses, slopes, stats = [], [], []
    for rows, z in blocks:
        q, own = target.of_rows(rows), mapping.of_rows(rows)
        block = make_block(z, own, dense_share)
        losses.append(block_loss(z, block, own, q))
        if wanted.slope:
            slopes.append(block_slope(block, own, q))
        if wanted.stats:
            stats.append(block_stats(z, block, own, q, wanted.counted))
        if sink is not None:
            sink.add(rows, z, block)
    return Passed(
        torch.cat(losses),
        torch.cat(slopes) if wanted.slope else None,
        RowStats(*map(torch.cat, zip(*stats, strict=True))) if wanted.stats else None,
    )


class Support:
    """Keeps the non-zeros of p, and where rows are dense what p is computed from again."""

    def __init__(self, rows: int, classes: int, dtype: torch.dtype) -> None:
        self.classes, self.dtype = classes, dtype
        self.flat: list[Tensor] = []
        self.value: list[Tensor] = []
        self.again = torch.empty(0)
        self.rows = rows
        self.dense: list[tuple[int, int]] = []

    def add(self, rows: slice, z: Tensor, block: Block) -> None:
        if isinstance(block, DenseBlock):
            if not self.dense:
                self.again = z.new_zeros(self.rows, 2)
            self.again[rows] = block.again
            self.dense.append((rows.start, rows.stop))
            return
        self.flat.append((block.row + rows.start) * self.classes + block.col)
        self.value.append(block.p.to(self.dtype))

    def kept(self) -> tuple[Tensor, ...]:
        """Row · classes + column of p ≠ 0, row by row; p there; what dense rows need."""
        if not self.flat:
            nothing = torch.empty(0, dtype=torch.int64, device=self.again.device)
            return nothing, nothing.to(self.dtype), self.again
        return torch.cat(self.flat), torch.cat(self.value), self.again


# --- plain losses ---------------------------------------------------------------------------


def losses(z: Tensor, mapping: Mapping, target: Target, live: Tensor, wanted: Wanted) -> Losses:
    dtype = compute_dtype(z.dtype)
    blocks = ((rows, z[rows].to(dtype)) for rows in row_blocks(z))
    sink = Support(len(z), z.shape[1], dtype) if wanted.gradient else None
    loss, slope, stats = pass_over(blocks, mapping, target, wanted, sink, DENSE_SHARE)
    loss = loss.masked_fill(~live, 0.0)
    if sink is None:
        return Losses(loss, slope, stats, ())
    return Losses(loss, slope, stats, sink.kept(), tuple(sink.dense))


def gradient(
    z: Tensor,
    mapping: Mapping,
    target: Target,
    kept: tuple[Tensor, ...],
    dense: tuple[tuple[int, int], ...],
    scale: Tensor,
) -> Tensor:
    """scale · (p − q), dense. The difference is rounded to half precision, not what cancels."""
    flat, value, again = kept
    scale = scale.to(value.dtype)
    if target.rows is None:
        grad = _sparse_gradient(z, flat, value, target, scale)
        blocks = dense
    else:
        grad = torch.empty(z.shape, dtype=z.dtype, device=z.device)
        blocks = tuple((rows.start, rows.stop) for rows in row_blocks(z))
    for start, stop in blocks:
        rows = slice(start, stop)
        if (start, stop) in dense:
            p = scores_again(z[rows].to(value.dtype), mapping.of_rows(rows), again[rows])
        else:
            p = _listed_scores(rows, z.shape[1], flat, value)
        subtract_target(p, target.of_rows(rows))
        torch.mul(p, scale[rows, None], out=grad[rows])
    if len(value) and bool(value.isnan().any()):
        grad[flat[value.isnan()] // z.shape[1]] = float("nan")
    ignored = (scale == 0).nonzero().squeeze(1)
    return grad.index_fill_(0, ignored, 0.0) if len(ignored) else grad


def subtract_target(p: Tensor, target: Target) -> None:
    """p −= q in place."""
    if target.rows is not None:
        for rows in row_blocks(p):
            p[rows] -= target.of_rows(rows).dense(p.dtype)
        return
    assert target.index is not None
    if target.smoothing:
        p -= target.smoothing / target.classes
    at = target.index[:, None]
    p.scatter_add_(1, at, torch.full_like(at, target.smoothing - 1, dtype=p.dtype))


def _sparse_gradient(z: Tensor, flat: Tensor, value: Tensor, target: Target, scale: Tensor):
    """The gradient for class indices, written once: q's constant part, then p, then q's peak."""
    assert target.index is not None
    classes = z.shape[1]
    rest = target.smoothing / classes
    if rest:
        grad = (-scale * rest)[:, None].to(z.dtype).expand(z.shape).contiguous()
    else:
        grad = torch.zeros_like(z, memory_format=torch.contiguous_format)
    row = flat // classes
    difference = value - rest if rest else value
    grad.view(-1)[flat] = (scale[row] * difference).to(z.dtype)
    at = target.index + torch.arange(len(z), device=z.device) * classes
    if z.dtype == scale.dtype:
        grad.view(-1)[at] -= scale * (1 - target.smoothing)
        return grad
    p = torch.zeros_like(scale).index_add_(0, row, value.where(flat == at[row], 0.0))
    grad.view(-1)[at] = (scale * (p - (1 - target.smoothing + rest))).to(z.dtype)
    return grad


def _listed_scores(rows: slice, classes: int, flat: Tensor, value: Tensor) -> Tensor:
    """p of a block of rows, dense, from the list."""
    ends = torch.tensor([rows.start * classes, rows.stop * classes], device=flat.device)
    own = slice(*torch.searchsorted(flat, ends).tolist())
    p = value.new_zeros(rows.stop - rows.start, classes)
    p.view(-1)[flat[own] - rows.start * classes] = value[own]
    return p
