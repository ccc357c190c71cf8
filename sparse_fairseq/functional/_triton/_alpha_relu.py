"""α-ReLU: loss and gradient of a row in one read and one write.

τ is a constant, so p of a column needs nothing but the column. One program per row. The gradient
may overwrite the scores: every element is loaded and stored by the same thread, and the target's
score is picked out of the blocks, not loaded a second time.
"""

import triton
import triton.language as tl

from ._lists import append_entries
from ._math import (
    CORRECT,
    DENSE,
    FIELDS,
    LISTED,
    LOSS,
    SCORE,
    SHIFT,
    SUPPORT,
    TOTAL,
    VALUE_ONLY,
    relu_power,
)


@triton.jit
def _widened(value, low, DOUBLE: tl.constexpr):
    """An argument, which is float32, with what float64 has beyond it."""
    if DOUBLE:
        return tl.zeros([], tl.float64) + value + low
    else:
        return value


@triton.jit
def _scores(z, eps, tau, KIND: tl.constexpr, DOUBLE: tl.constexpr):
    """p and its gap (p·gap = p^α)."""
    if DOUBLE:
        z = z.to(tl.float64)
    gap = tl.maximum(z * eps - tau, 0.0)
    return relu_power(gap, 1.0 / eps, KIND), gap


@triton.jit
def _write_dense(
    z_ptr, out_ptr, z_col, classes, y, live, wrong, scale, eps, tau, peak, rest,
    KIND: tl.constexpr, DOUBLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient in every column of a row that was read before: what overflows a list, or NaN."""
    for start in range(0, classes, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < classes
        at = col.to(tl.int64)
        z = tl.load(z_ptr + at * z_col, mask=inside & live, other=float("-inf")).to(tl.float32)
        p, gap = _scores(z, eps, tau, KIND, DOUBLE)
        p = tl.where(wrong, float("nan"), p.to(tl.float32))
        grad = scale * (p - tl.where(col == y, peak + rest, rest))
        grad = tl.where(live, grad, 0.0)
        tl.store(out_ptr + at, grad.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["ignore_index"])
def alpha_relu_loss_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, counted_ptr, row_ptr, col_ptr, value_ptr, count_ptr,
    z_row, z_col, out_row, scale_row, classes,
    eps, eps_low, tau, tau_low, smoothing, negentropy, ignore_index,
    KIND: tl.constexpr, DOUBLE: tl.constexpr, WRITE: tl.constexpr, STATS: tl.constexpr,
    SMOOTH: tl.constexpr, COUNTED: tl.constexpr, CAPACITY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ℓ = Σp^α/α − qᵀ(z − τ/ε) + Ω(q), and scale · (p − q)."""
    row = tl.program_id(0).to(tl.int64)
    z_ptr += row * z_row
    y = tl.load(target_ptr + row)
    live = y != ignore_index
    scale = 1.0
    if WRITE != VALUE_ONLY:
        out_ptr += row * out_row
        scale = tl.load(scale_ptr + row * scale_row)
    eps = _widened(eps, eps_low, DOUBLE)
    tau = _widened(tau, tau_low, DOUBLE)
    peak = 1.0 - smoothing
    rest = smoothing / classes
    power = tl.zeros([BLOCK], tl.float64 if DOUBLE else tl.float32)  # Σ p^α
    total = tl.zeros([BLOCK], tl.float32)
    of_target = tl.zeros([BLOCK], tl.float32)
    sum_z = tl.zeros([BLOCK], tl.float32)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    support = tl.zeros([BLOCK], tl.int32)
    bad = tl.zeros([BLOCK], tl.int32)
    entries = 0
    for start in range(0, classes, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < classes
        at = col.to(tl.int64)
        z = tl.load(z_ptr + at * z_col, mask=inside & live, other=float("-inf")).to(tl.float32)
        p, gap = _scores(z, eps, tau, KIND, DOUBLE)
        power += p * gap
        p = p.to(tl.float32)
        hit = (col == y) & live
        bad |= (~(z < float("inf"))).to(tl.int32)
        of_target += tl.where(hit, z, 0.0)
        if SMOOTH:
            sum_z += tl.where(inside, z, 0.0)
        if STATS:
            total += p
            top = tl.maximum(top, z)
            counts = p != 0.0
            if COUNTED:
                counts &= tl.load(counted_ptr + col, mask=inside, other=0) != 0
            support += counts.to(tl.int32)
        if WRITE == DENSE:
            grad = tl.where(live, scale * (p - tl.where(hit, peak + rest, rest)), 0.0)
            tl.store(out_ptr + at, grad.to(out_ptr.dtype.element_ty), mask=inside)
        if WRITE == LISTED:
            value = scale * (p - tl.where(hit, peak, 0.0))
            entries = append_entries(
                col_ptr + row * CAPACITY, value_ptr + row * CAPACITY, entries, col, value,
                (p != 0.0) | hit, CAPACITY,
            )  # fmt: skip
    wrong = (tl.max(bad, 0) > 0) | (live & ((y < 0) | (y >= classes)))
    z_target = tl.sum(of_target, 0)
    score = peak * z_target
    if SMOOTH:
        score += smoothing * (tl.sum(sum_z, 0) / classes)
    loss = tl.sum(power, 0) / (1.0 + eps) + tau / eps - score + negentropy
    loss = tl.where(wrong, float("nan"), loss.to(tl.float32))
    row_ptr += row * FIELDS
    tl.store(row_ptr + LOSS, tl.where(live, loss, 0.0))
    tl.store(row_ptr + SHIFT, tl.where(wrong, float("nan"), 0.0))
    if STATS:
        p_target, gap = _scores(z_target, eps, tau, KIND, DOUBLE)
        tl.store(row_ptr + SUPPORT, tl.sum(support, 0).to(tl.float32))
        tl.store(row_ptr + TOTAL, tl.where(wrong, float("nan"), tl.sum(total, 0)))
        tl.store(row_ptr + SCORE, tl.where(wrong, float("nan"), p_target.to(tl.float32)))
        tl.store(row_ptr + CORRECT, (z_target == tl.max(top, 0)).to(tl.float32))
    if WRITE == DENSE:
        if wrong & live:  # rare: a NaN row must not look like a gradient
            _write_dense(
                z_ptr, out_ptr, z_col, classes, y, live, wrong, scale, eps, tau, peak, rest,
                KIND, DOUBLE, BLOCK,
            )  # fmt: skip
    if WRITE == LISTED:
        overflow = (entries > CAPACITY) | (wrong & live)
        tl.store(count_ptr + row, tl.where(overflow, -1, entries))
        if overflow:
            _write_dense(
                z_ptr, out_ptr, z_col, classes, y, live, wrong, scale, eps, tau, peak, 0.0,
                KIND, DOUBLE, BLOCK,
            )  # fmt: skip


@triton.jit(do_not_specialize=["ignore_index"])
def alpha_relu_gradient_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, row_ptr, z_row, z_col, out_row, scale_row, classes,
    eps, eps_low, tau, tau_low, smoothing, ignore_index,
    KIND: tl.constexpr, DOUBLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """scale · (p − q) from the scores again, where the upstream gradient was not known before."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(target_ptr + row)
    live = y != ignore_index
    scale = tl.load(scale_ptr + row * scale_row)
    shift = tl.load(row_ptr + row * FIELDS + SHIFT)
    eps = _widened(eps, eps_low, DOUBLE)
    tau = _widened(tau, tau_low, DOUBLE)
    rest = smoothing / classes
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < classes
    at = col.to(tl.int64)
    z = tl.load(z_ptr + row * z_row + at * z_col, mask=inside & live, other=float("-inf"))
    p, gap = _scores(z.to(tl.float32), eps, tau, KIND, DOUBLE)
    p = p.to(tl.float32) + shift  # 0, or NaN
    grad = scale * (p - tl.where(col == y, 1.0 - smoothing + rest, rest))
    grad = tl.where(live, grad, 0.0)
    tl.store(out_ptr + row * out_row + at, grad.to(out_ptr.dtype.element_ty), mask=inside)
