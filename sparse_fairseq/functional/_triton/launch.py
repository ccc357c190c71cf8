"""From tensors to kernels: which kernel, how many threads, which outputs. No autograd.

Scores are [rows, classes] in float32, bfloat16 or float16 with any strides; targets are int64
class indices of which ``ignore_index`` does not count. Nothing here asks the device for a value.
"""

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from . import _alpha_relu, _entmax, _rescale
from ._math import DENSE, FIELDS, LINEAR, LISTED, POWER, SQUARE, VALUE_ONLY

# A kernel is compiled for each of these widths, so there are few: columns without a class cost
# registers, but no traffic. Rows up to LONGEST_TILE classes stay in registers (16 scores a thread
# at most; powers that are no products need more registers beside, and so do addresses of single
# scores where rows are not aligned). Attention has the short rows:
# fairseq's longest sentences have 1,024 tokens unless it is told otherwise.
LOSS_TILES = (64, 256, 1024, 4096, 8192, 16_384)
MAPPING_TILES = (32, 64, 128, 256, 512, 1024, 4096)
LONGEST_TILE = {"product": 16_384, "power": 8_192, "power, not aligned": 4_096}
LONGEST_MAPPING_TILE = 4096
TILE_ELEMENTS = 1024  # several rows share a program up to this many scores
THREAD_ELEMENTS = 16
# NVIDIA's compiler gives a thread few registers, so that a multiprocessor holds more threads, and
# spills rather than give more. Where it would, it may give so many that this many threads fit.
ENOUGH_THREADS = 384
MULTIPROCESSOR_REGISTERS = 65_536
SHORT_BLOCK = 512
LONGEST_BLOCK = {
    "alpha_relu": 2048, "alpha_relu_lists": 1024, "double": 1024, "double_lists": 512,
    "entmax": 4096, "power": 2048, "power_loss": 1024,
}  # fmt: skip
# Where rows begin at multiples of this, threads load and store 16 bytes at once. fairseq pads
# vocabularies to it.
ALIGNMENT = 8
# Under this α float32 loses more than its last digits in the power 1/(α−1) of α-ReLU.
DOUBLE_BELOW = 1.08
# Learned α may reach 1: the kernels' ε is at least this, which moves p by less than 1e-7.
SMALLEST_EPS = 1e-7


@dataclass(frozen=True)
class Family:
    """α-ReLU with a constant τ, or α-entmax (``tau`` None), for one α."""

    alpha: float
    tau: float | None = None

    @property
    def eps(self) -> float:
        return self.alpha - 1.0

    @property
    def double(self) -> bool:
        return self.tau is not None and self.alpha < DOUBLE_BELOW

    def negentropy(self, classes: int, smoothing: float) -> float:
        """Ω of a target (1−s)e_y + s/V."""
        rest = smoothing / classes
        peak = 1.0 - smoothing + rest
        if self.tau is None:
            return self._tsallis(peak) + (classes - 1) * self._tsallis(rest)
        powers = peak**self.alpha + (classes - 1) * rest**self.alpha
        return powers / (self.alpha * self.eps)

    def _tsallis(self, q: float) -> float:
        """(q^α − q) / (α(α−1))"""
        return q * math.expm1(self.eps * math.log(q)) / (self.alpha * self.eps) if q else 0.0


class Lists(NamedTuple):
    """The non-zeros of a gradient, row by row."""

    col: Tensor  # int32 [rows, capacity]
    value: Tensor  # float32 [rows, capacity]
    length: Tensor  # int32 [rows]; −1: the row does not fit and is dense, where its scores were


@dataclass(frozen=True)
class Target:
    index: Tensor  # int64 [rows]
    ignore_index: int
    smoothing: float


def new_output(like: Tensor, dtype: torch.dtype, *shape: int) -> Tensor:
    """What a kernel writes to."""
    return torch.empty(shape, dtype=dtype, device=like.device)


def kind_of(alpha: float):
    return {1.5: SQUARE, 2.0: LINEAR}.get(alpha, POWER)


def power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def warps(elements: int) -> int:
    """Warps (a power of two) that give each thread THREAD_ELEMENTS, up to 1,024 threads."""
    threads = min(1024, power_of_two(elements) // THREAD_ELEMENTS)
    return max(1, threads // _warp_size())


def tile_warps(elements: int) -> int:
    """Half as much for each thread where that leaves it 128 registers: nothing is spilled then."""
    return warps(elements * 2) if elements < 8192 else warps(elements)


def loss_tile_warps(height: int, block: int, options: dict) -> int:
    """Twice as many for powers in the narrowest tile, so that a thread has fewer rows' numbers; not
    where it would load less than 16 bytes at once then."""
    narrow = options["KIND"] == POWER and block == LOSS_TILES[0] and options["ALIGNED"] == 1
    return tile_warps(height * block * (2 if narrow else 1))


def most_registers(num_warps: int) -> int:
    """Of a thread: 168 for up to 4 warps, 128 for 8 or 16, 64 for 32. Registers are given out by
    eights."""
    threads = num_warps * _warp_size()
    programs = triton.cdiv(ENOUGH_THREADS, threads)
    return MULTIPROCESSOR_REGISTERS // (programs * threads) // 8 * 8


def resources(num_warps: int, crowded: bool = True) -> dict[str, int]:
    """Options of a launch. ``crowded``: ptxas might spill while registers are left. AMD's compiler
    does not, and has no such option."""
    options = {"num_warps": num_warps}
    if crowded and not triton.knobs.runtime.interpret and _target().backend == "cuda":
        options["maxnreg"] = most_registers(num_warps)
    return options


def _warp_size() -> int:
    return 32 if triton.knobs.runtime.interpret else _target().warp_size


def _target():
    return _target_of(triton.runtime.driver.active.get_current_device())


@functools.cache
def _target_of(device: int):
    return triton.runtime.driver.active.get_current_target()


def tile_shape(classes: int, widths: Sequence[int]) -> tuple[int, int]:
    """(rows, columns) of the tile of one program."""
    columns = next(width for width in widths if classes <= width)
    return max(1, TILE_ELEMENTS // columns), columns


def block_size(classes: int, kind: str) -> int:
    longest = LONGEST_BLOCK[kind]
    return min(longest, SHORT_BLOCK) if classes <= SHORT_BLOCK else longest


def in_units(*sizes: int) -> tuple[int, tuple[int, ...]]:
    """(ALIGNED, sizes in multiples of it): Triton itself only notices multiples of 16."""
    unit = 1 if any(size % ALIGNMENT for size in sizes) else ALIGNMENT
    return unit, tuple(size // unit for size in sizes)


def fits_tile(classes: int, kind, unit: int) -> bool:
    if kind != POWER:
        return classes <= LONGEST_TILE["product"]
    return classes <= LONGEST_TILE["power" if unit == ALIGNMENT else "power, not aligned"]


def entmax_block(classes: int, kind) -> int:
    return block_size(classes, "power" if kind == POWER else "entmax")


def entmax_loss_block(classes: int, options: dict) -> int:
    """Losses need more registers than the mapping; powers and addresses of single scores, too."""
    lists = options["WRITE"] == LISTED
    if options["KIND"] == POWER:
        return block_size(classes, "power" if lists else "power_loss")
    return block_size(classes, "power" if lists and options["ALIGNED"] == 1 else "entmax")


def _halves(value: float) -> tuple[float, float]:
    """A float64 as two float32: kernels take no wider numbers. A tensor could be on a device, which
    the host would wait for."""
    high = ctypes.c_float(value).value
    return high, value - high


def _row_stride(scale: Tensor | None) -> int:
    return scale.stride(0) if scale is not None and scale.dim() and len(scale) > 1 else 0


def loss_rows(
    z: Tensor,
    target: Target,
    family: Family,
    *,
    stats: bool = False,
    counted: Tensor | None = None,
    scale: Tensor | None = None,
    out: Tensor | None = None,
    lists: Lists | None = None,
) -> Tensor:
    """The fields [rows, FIELDS] of every row; scale · (p − q) in ``out`` (which may be z), or in
    ``lists`` and ``out`` for the rows that do not fit there, without the constant part of q."""
    rows, classes = z.shape
    fields = new_output(z, torch.float32, rows, FIELDS.value)
    if not rows:
        return fields
    write = LISTED if lists is not None else VALUE_ONLY if out is None else DENSE
    unit, (z_row, out_row, units) = in_units(
        z.stride(0), 0 if out is None else out.stride(0), classes
    )
    strides = (z_row, z.stride(1), out_row, _row_stride(scale))
    tensors = [z, out, target.index, scale, counted, fields]
    last = (target.smoothing, family.negentropy(classes, target.smoothing), target.ignore_index)
    options = {
        "KIND": kind_of(family.alpha),
        "WRITE": write,
        "STATS": stats,
        "SMOOTH": target.smoothing > 0,
        "COUNTED": counted is not None,
        "ALIGNED": unit,
    }
    with torch.cuda.device_of(z):
        if family.tau is None and lists is None and fits_tile(classes, options["KIND"], unit):
            height, block = tile_shape(classes, LOSS_TILES)
            num_warps = loss_tile_warps(height, block, options)
            _entmax.entmax_loss_tile_kernel[(triton.cdiv(rows, height),)](
                *tensors, *strides, rows, units, family.eps, *last, **options,
                ROWS=height, BLOCK=block, **resources(num_warps),
            )  # fmt: skip
            return fields
        tensors += lists or (None, None, None)
        options["CAPACITY"] = 0 if lists is None else lists.col.shape[1]
        if family.tau is None:
            block = entmax_loss_block(classes, options)
            _entmax.entmax_loss_blocks_kernel[(rows,)](
                *tensors, *strides, units, family.eps, *last, **options,
                BLOCK=block, **resources(warps(block * 2)),
            )  # fmt: skip
        else:
            # Lists need many registers: two small programs instead of a large one have enough. In
            # float64 a thread has half as many scores, too.
            kind = "double" if family.double else "alpha_relu"
            block = block_size(classes, kind if lists is None else f"{kind}_lists")
            threads_for = block * (4 if lists is not None and family.double else 2)
            numbers = (*_halves(family.eps), *_halves(family.tau))
            _alpha_relu.alpha_relu_loss_kernel[(rows,)](
                *tensors, *strides, units, *numbers, *last, **options,
                BLOCK=block, DOUBLE=family.double, **resources(warps(threads_for)),
            )  # fmt: skip
    return fields


def loss_gradient(
    z: Tensor, target: Target, family: Family, fields: Tensor, scale: Tensor
) -> Tensor:
    """scale · (p − q) [rows, classes] from the scores again."""
    rows, classes = z.shape
    out = new_output(z, z.dtype, rows, classes)
    if not rows:
        return out
    block = block_size(classes, "double" if family.double else "alpha_relu")
    grid = (rows, triton.cdiv(classes, block))
    unit, (z_row, units) = in_units(z.stride(0), classes)
    arguments = [z, out, target.index, scale, fields, z_row, z.stride(1), units]
    arguments += [_row_stride(scale), units]
    options = {"KIND": kind_of(family.alpha), "ALIGNED": unit, "BLOCK": block}
    options["num_warps"] = warps(block)
    last = (target.smoothing, target.ignore_index)
    with torch.cuda.device_of(z):
        if family.tau is not None:
            numbers = [*_halves(family.eps), *_halves(family.tau), *last]
            _alpha_relu.alpha_relu_gradient_kernel[grid](
                *arguments, *numbers, **options, DOUBLE=family.double
            )
        else:
            _entmax.entmax_gradient_kernel[grid](*arguments, family.eps, *last, **options)
    return out


def rescale_(grad: Tensor, have: Tensor, want: Tensor) -> None:
    """grad [rows, classes] times want/have of its row, in place; unread where they are the same."""
    rows, classes = grad.shape
    if not rows:
        return
    block = block_size(classes, "alpha_relu")
    unit, (grad_row, units) = in_units(grad.stride(0), classes)
    with torch.cuda.device_of(grad):
        _rescale.rescale_kernel[(rows,)](
            grad, have, want, grad_row, _row_stride(have), _row_stride(want), units,
            ALIGNED=unit, BLOCK=block, num_warps=warps(block),
        )  # fmt: skip


def row_eps(alpha: Tensor) -> Tensor:
    """ε of each row as the kernels take it, from α [rows]: NaN where α is not in [1, 2]."""
    eps = alpha.detach().double() - 1.0
    eps = eps.where((eps >= 0.0) & (eps <= 1.0), float("nan"))
    return eps.clamp(min=SMALLEST_EPS).float().contiguous()


def _of_alpha(like: Tensor, alpha: float | None, eps: Tensor | None) -> tuple:
    """(KIND, ε of each row, is it read, ε of all rows). One kernel for an α of each row and for one
    α that is no product: it is compiled once, and where it does not read, nothing is filled."""
    if alpha is None:
        return POWER, eps, 1, 0.0
    kind = kind_of(alpha)
    unread = new_output(like, torch.float32, 1) if kind == POWER else None
    return kind, unread, 0, alpha - 1.0


def entmax_rows(z: Tensor, alpha: float | None, eps: Tensor | None) -> Tensor:
    """α-entmax of every row, with one α or (``eps``) one for each row."""
    rows, classes = z.shape
    out = new_output(z, z.dtype, rows, classes)
    if not out.numel():
        return out
    unit, (z_row, units) = in_units(z.stride(0), classes)
    kind, eps, *numbers = _of_alpha(z, alpha, eps)
    arguments = [z, out, eps, z_row, z.stride(1), rows, units, *numbers]
    options = {"KIND": kind, "ALIGNED": unit}
    with torch.cuda.device_of(z):
        if classes > LONGEST_MAPPING_TILE:
            block = entmax_block(classes, options["KIND"])
            _entmax.entmax_blocks_kernel[(rows,)](
                *arguments, **options, BLOCK=block,
                **resources(warps(block * 2), kind == POWER),
            )  # fmt: skip
        else:
            height, block = tile_shape(classes, MAPPING_TILES)
            _entmax.entmax_tile_kernel[(triton.cdiv(rows, height),)](
                *arguments, **options, ROWS=height, BLOCK=block,
                **resources(tile_warps(height * block), kind == POWER),
            )  # fmt: skip
    return out


def entmax_gradients(
    p: Tensor, grad: Tensor, alpha: float | None, eps: Tensor | None, of_alpha: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of the scores [rows, classes] and of α [rows] (empty unless ``of_alpha``)."""
    rows, classes = p.shape
    out = new_output(p, p.dtype, rows, classes)
    slope = new_output(p, torch.float32, rows if of_alpha else 0)
    if not out.numel():
        return out, slope.zero_()
    unit, (grad_row, units) = in_units(grad.stride(0), classes)
    kind, eps, *numbers = _of_alpha(p, alpha, eps)
    strides = (grad_row, grad.stride(1))
    arguments = [p, grad, out, eps, slope, *strides, rows, units, *numbers]
    options = {"KIND": kind, "OF_ALPHA": of_alpha, "ALIGNED": unit}
    with torch.cuda.device_of(p):
        if classes > LONGEST_MAPPING_TILE:
            block = entmax_block(classes, options["KIND"])
            _entmax.entmax_backward_blocks_kernel[(rows,)](
                *arguments, **options, BLOCK=block,
                **resources(warps(block * 2), kind == POWER),
            )  # fmt: skip
        else:
            height, block = tile_shape(classes, MAPPING_TILES)
            _entmax.entmax_backward_tile_kernel[(triton.cdiv(rows, height),)](
                *arguments, **options, ROWS=height, BLOCK=block,
                **resources(tile_warps(height * block), kind == POWER),
            )  # fmt: skip
    return out, slope
