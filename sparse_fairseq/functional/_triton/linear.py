"""The output layer with its loss: chunks of logits by torch's product, loss and gradient by the
kernels, in place; then the gradients of states, weights and bias.

Large vocabularies take lists: p − q is exactly zero outside of the support, so two of the three
products of the layer give way to sums over few rows of weights and states. A row with more
non-zeros than a list holds goes the dense way, which the device decides, not the host.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from . import _lists, launch
from .launch import Family, Lists, Target, loss_rows, warps

# Logits that are there at once, and rows at least: what keeps a product efficient.
CHUNK_ELEMENTS = 1 << 25
CHUNK_ROWS = 256
# Entries of a row's list, and entries that wait for the weights' gradient at most.
CAPACITY = 128
WAITING_ENTRIES = 1 << 22
# From this many classes on, lists are at least 1.5 times cheaper in FLOPs and in bytes, at 16
# non-zeros a row and up to 2,048 hidden units (docs/gpu.md has the count).
LISTS_FROM = 24_576
SHAPE = {"ENTRIES": 16, "BLOCK": 128}
DENSE_SHAPE = {"ROWS": 64, "COLUMNS": 64, "BLOCK": 64}


class Sums(NamedTuple):
    """The gradients, in float32."""

    of_h: Tensor | None
    of_weight: Tensor | None
    of_bias: Tensor | None


def prefers_lists(classes: int) -> bool:
    return classes >= LISTS_FROM


def _slices(rows: int, size: int) -> list[slice]:
    size = max(1, size)
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]


def chunks(rows: int, classes: int) -> list[slice]:
    return _slices(rows, max(CHUNK_ROWS, CHUNK_ELEMENTS // classes))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32, accumulated and returned so in half precision too."""
    if a.dtype == torch.float32:
        return a @ b
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def _logits(h: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    if bias is None:
        return torch.mm(h, weight.t(), out=out)
    return torch.addmm(bias, h, weight.t(), out=out)


def linear_rows(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Target,
    family: Family,
    *,
    stats: bool,
    counted: Tensor | None,
    scale: Tensor | None = None,
    needs: Sequence[bool] = (False, False, False),
    lists: bool | None = None,
) -> tuple[Tensor, Sums]:
    """The fields of every row as ``loss_rows`` has them, and the gradients of Σ scale · loss.

    scale [rows] is 0 for rows without a gradient, ignored ones among them. Within the chunks it is
    relative to its largest entry, so that half precision keeps gradients that a mean makes small.
    """
    rows, classes = len(h), len(weight)
    weight = weight.contiguous()
    buffer = launch.new_output(h, h.dtype, chunks(rows, classes)[0].stop if rows else 0, classes)
    if scale is None:
        parts = [
            loss_rows(_chunk(h, weight, bias, rows_, buffer=buffer), _part(target, rows_), family,
                      stats=stats, counted=counted)
            for rows_ in chunks(rows, classes)
        ]  # fmt: skip
        return _joined(parts, h), Sums(None, None, None)
    states = h.masked_fill((scale == 0)[:, None], 0.0).contiguous()  # 0 · NaN in the sums
    largest = scale.abs().amax() if rows else scale.new_ones(())
    largest = largest.where(largest > 0, 1.0)
    relative = (scale / largest).float()
    sums = Sums(*(
        launch.new_output(h, torch.float32, *shape).zero_() if needed else None
        for shape, needed in zip((h.shape, weight.shape, weight.shape[:1]), needs, strict=True)
    ))  # fmt: skip
    by_lists = prefers_lists(classes) if lists is None else lists
    run = _listed_pass if by_lists else _dense_pass
    chunk = functools.partial(_chunk, h, weight, bias, buffer=buffer)
    parts = run(chunk, states, weight, target, family, relative, sums, stats, counted)
    for part in sums:
        if part is not None:
            part.mul_(largest)
    return _joined(parts, h), sums


def _chunk(h, weight, bias, rows: slice, *, buffer: Tensor) -> Tensor:
    return _logits(h[rows], weight, bias, buffer[: rows.stop - rows.start])


def _part(target: Target, rows: slice) -> Target:
    return replace(target, index=target.index[rows])


def _joined(parts: list[Tensor], h: Tensor) -> Tensor:
    return torch.cat(parts) if parts else h.new_empty(0, 8, dtype=torch.float32)


def _dense_pass(chunk, h, weight, target, family, scale, sums, stats, counted):
    """Three products for each chunk."""
    parts = []
    for rows in chunks(len(h), len(weight)):
        logits = chunk(rows)
        parts.append(
            loss_rows(logits, _part(target, rows), family, stats=stats, counted=counted,
                      scale=scale[rows], out=logits)
        )  # fmt: skip
        if sums.of_h is not None:
            sums.of_h[rows] = _product(logits, weight)
        if sums.of_weight is not None:
            if h.dtype == torch.float32:
                sums.of_weight.addmm_(logits.t(), h[rows])
            else:
                sums.of_weight.add_(_product(logits.t(), h[rows]))
        if sums.of_bias is not None:
            sums.of_bias.add_(logits.sum(0, dtype=torch.float32))
    return parts


def _listed_pass(chunk, h, weight, target, family, scale, sums, stats, counted):
    """One product for each chunk; then lists, and what did not fit into them."""
    parts = []
    for group in _slices(len(h), WAITING_ENTRIES // CAPACITY):
        lists = _new_lists(h[group])
        for rows in chunks(group.stop - group.start, len(weight)):
            place = slice(group.start + rows.start, group.start + rows.stop)
            logits = chunk(place)
            own = Lists(*(part[rows] for part in lists))
            parts.append(
                loss_rows(logits, _part(target, place), family, stats=stats, counted=counted,
                          scale=scale[place], out=logits, lists=own)
            )  # fmt: skip
            if sums.of_h is not None:
                _states(logits, own, weight, sums.of_h[place])
            if sums.of_weight is not None or sums.of_bias is not None:
                _weights_of_dense(logits, own, h[place], sums)
        if sums.of_weight is not None or sums.of_bias is not None:
            _weights_of_lists(lists, h[group], sums, len(weight))
    if target.smoothing:
        _subtract_constant(h, weight, scale, target.smoothing / len(weight), sums)
    return parts


def _widen(grad: Tensor) -> bool:
    return grad.dtype == torch.bfloat16 and triton.knobs.runtime.interpret


def _new_lists(h: Tensor) -> Lists:
    rows = len(h)
    return Lists(
        launch.new_output(h, torch.int32, rows, CAPACITY),
        launch.new_output(h, torch.float32, rows, CAPACITY),
        launch.new_output(h, torch.int32, rows),
    )


def _states(grad: Tensor, lists: Lists, weight: Tensor, out: Tensor) -> None:
    rows, hidden = out.shape
    with torch.cuda.device_of(grad):
        _lists.states_of_lists_kernel[(rows, triton.cdiv(hidden, SHAPE["BLOCK"]))](
            *lists, weight, out, weight.stride(0), hidden, CAPACITY=CAPACITY, **SHAPE,
            num_warps=warps(SHAPE["ENTRIES"] * SHAPE["BLOCK"]),
        )  # fmt: skip
        grid = (
            triton.cdiv(rows, DENSE_SHAPE["ROWS"]),
            triton.cdiv(hidden, DENSE_SHAPE["BLOCK"]),
        )
        _lists.states_of_dense_kernel[grid](
            grad, lists.length, weight, out, grad.stride(0), weight.stride(0), rows, len(weight),
            hidden, WIDEN=_widen(grad), **DENSE_SHAPE, num_warps=4,
        )  # fmt: skip


def _weights_of_dense(grad: Tensor, lists: Lists, h: Tensor, sums: Sums) -> None:
    of_weight = _or_nothing(sums.of_weight, h)
    classes, hidden = grad.shape[1], of_weight.shape[1]
    grid = (
        triton.cdiv(classes, DENSE_SHAPE["COLUMNS"]),
        max(1, triton.cdiv(hidden, DENSE_SHAPE["BLOCK"])),
    )
    with torch.cuda.device_of(grad):
        _lists.weights_of_dense_kernel[grid](
            grad, lists.length, lists.length.amin(), h, of_weight, sums.of_bias, grad.stride(0),
            h.stride(0), len(h), classes, hidden, OF_BIAS=sums.of_bias is not None,
            WIDEN=_widen(grad), **DENSE_SHAPE, num_warps=4,
        )  # fmt: skip


def _weights_of_lists(lists: Lists, h: Tensor, sums: Sums, classes: int) -> None:
    of_weight = _or_nothing(sums.of_weight, h)
    entry = torch.arange(CAPACITY, device=h.device)
    columns = lists.col.where(entry < lists.length[:, None], classes).flatten()
    columns, order = columns.sort(stable=True)
    ends = torch.arange(classes + 1, dtype=torch.int32, device=h.device)
    starts = torch.searchsorted(columns, ends, out_int32=True)
    grid = (classes, max(1, triton.cdiv(of_weight.shape[1], SHAPE["BLOCK"])))
    with torch.cuda.device_of(h):
        _lists.weights_of_lists_kernel[grid](
            starts, order, lists.value, h, of_weight, sums.of_bias, h.stride(0),
            of_weight.shape[1], OF_BIAS=sums.of_bias is not None, CAPACITY=CAPACITY, **SHAPE,
            num_warps=warps(SHAPE["ENTRIES"] * SHAPE["BLOCK"]),
        )  # fmt: skip


def _or_nothing(of_weight: Tensor | None, h: Tensor) -> Tensor:
    """A gradient without columns where only the bias asks for one."""
    return h.new_empty(0, 0, dtype=torch.float32) if of_weight is None else of_weight


def _subtract_constant(h, weight, scale, rest: float, sums: Sums) -> None:
    """The part of q that smoothing gives to every class."""
    if sums.of_h is not None:
        sums.of_h.addcmul_(scale[:, None], weight.sum(0, dtype=torch.float32), value=-rest)
    if sums.of_weight is not None:
        sums.of_weight.sub_(rest * (scale[:, None] * h.float()).sum(0))
    if sums.of_bias is not None:
        sums.of_bias.sub_(rest * scale.sum())
