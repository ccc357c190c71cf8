"""The rows of both losses: a block of scores, what is written back, and the fields of a row.

Every element is loaded and stored by the same thread, so that a gradient may overwrite the scores.
"""

import triton
import triton.language as tl

from ._math import CORRECT, FIELDS, LOSS, SCORE, SHIFT, SUPPORT, TOTAL


@triton.jit
def load_block(z_ptr, z_col, start, classes, live, BLOCK: tl.constexpr):
    """Columns of a row from ``start`` on: (column, is it one, its score or −inf)."""
    col = start + tl.arange(0, BLOCK)
    inside = col < classes
    z = tl.load(z_ptr + col.to(tl.int64) * z_col, mask=inside & live, other=float("-inf"))
    return col, inside, z.to(tl.float32)


@triton.jit
def store_block(out_ptr, col, inside, value):
    tl.store(out_ptr + col.to(tl.int64), value.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def unusable(z):
    """NaN or +inf, of which a row becomes NaN."""
    return (~(z < float("inf"))).to(tl.int32)


@triton.jit
def no_class(y, live, classes):
    return live & ((y < 0) | (y >= classes))


@triton.jit
def is_target(col, y, live):
    """In 32 bits, as columns are; what has more is no class, and makes its row NaN."""
    return (col == y.to(tl.int32)) & live


@triton.jit
def in_support(p, counted_ptr, col, inside, COUNTED: tl.constexpr):
    """Columns with p > 0, of those that count."""
    counts = p != 0.0
    if COUNTED:
        counts &= tl.load(counted_ptr + col, mask=inside, other=0) != 0
    return counts.to(tl.int32)


@triton.jit
def scaled_difference(p, hit, live, scale, peak, rest):
    """scale · (p − q) for q = peak at the target and rest everywhere; 0 in rows that do not count,
    and where the scale is 0, even if p is NaN."""
    return tl.where(live & (scale != 0.0), scale * (p - tl.where(hit, peak + rest, rest)), 0.0)


@triton.jit
def store_fields(
    row_ptr, row, mask, live, wrong, loss, shift, support, total, p_target, correct,
    STATS: tl.constexpr,
):  # fmt: skip
    nan = float("nan")
    row_ptr += row * FIELDS
    tl.store(row_ptr + LOSS, tl.where(live, tl.where(wrong, nan, loss), 0.0), mask=mask)
    tl.store(row_ptr + SHIFT, tl.where(wrong, nan, shift), mask=mask)
    if STATS:
        tl.store(row_ptr + SUPPORT, support.to(tl.float32), mask=mask)
        tl.store(row_ptr + TOTAL, tl.where(wrong, nan, total), mask=mask)
        tl.store(row_ptr + SCORE, tl.where(wrong, nan, p_target), mask=mask)
        tl.store(row_ptr + CORRECT, correct.to(tl.float32), mask=mask)
