"""α-ReLU: loss and gradient of a row in one read and one write.

τ is a constant, so p of a column needs nothing but the column. One program per row. The gradient
may overwrite the scores: the target's score is picked out of the blocks, not loaded a second time.
"""

import triton
import triton.language as tl

from ._lists import append_entries
from ._math import DENSE, FIELDS, LISTED, SHIFT, VALUE_ONLY, relu_power
from ._rows import (
    in_support,
    is_target,
    load_block,
    no_class,
    scaled_difference,
    store_block,
    store_fields,
    unusable,
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
        col, inside, z = load_block(z_ptr, z_col, start, classes, live, BLOCK)
        p, gap = _scores(z, eps, tau, KIND, DOUBLE)
        p = tl.where(wrong, float("nan"), p.to(tl.float32))
        store_block(
            out_ptr,
            col,
            inside,
            scaled_difference(p, is_target(col, y, live), live, scale, peak, rest),
        )


@triton.jit(do_not_specialize=["ignore_index", "z_row", "out_row", "classes"])
def alpha_relu_loss_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, counted_ptr, row_ptr, col_ptr, value_ptr, count_ptr,
    z_row, z_col, out_row, scale_row, classes,
    eps, eps_low, tau, tau_low, smoothing, negentropy, ignore_index,
    KIND: tl.constexpr, DOUBLE: tl.constexpr, WRITE: tl.constexpr, STATS: tl.constexpr,
    SMOOTH: tl.constexpr, COUNTED: tl.constexpr, CAPACITY: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """ℓ = Σp^α/α − qᵀ(z − τ/ε) + Ω(q), and scale · (p − q)."""
    row = tl.program_id(0).to(tl.int64)
    classes *= ALIGNED
    z_ptr += row * z_row * ALIGNED
    y = tl.load(target_ptr + row)
    live = y != ignore_index
    scale = 1.0
    if WRITE != VALUE_ONLY:
        out_ptr += row * out_row * ALIGNED
        scale = tl.load(scale_ptr + row * scale_row)
    eps = _widened(eps, eps_low, DOUBLE)
    tau = _widened(tau, tau_low, DOUBLE)
    peak = 1.0 - smoothing
    rest = 0.0 if WRITE == LISTED else smoothing / classes
    power = tl.zeros([BLOCK], tl.float64 if DOUBLE else tl.float32)  # Σ p^α
    total = tl.zeros([BLOCK], tl.float32)
    of_target = tl.zeros([BLOCK], tl.float32)
    sum_z = tl.zeros([BLOCK], tl.float32)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    support = tl.zeros([BLOCK], tl.int32)
    entries = 0
    for start in range(0, classes, BLOCK):
        col, inside, z = load_block(z_ptr, z_col, start, classes, live, BLOCK)
        p, gap = _scores(z, eps, tau, KIND, DOUBLE)
        power += p * gap
        p = p.to(tl.float32)
        hit = is_target(col, y, live)
        top = tl.maximum(top, z, propagate_nan=tl.PropagateNan.ALL)
        of_target += tl.where(hit, z, 0.0)
        if SMOOTH:
            sum_z += tl.where(inside, z, 0.0)
        if STATS:
            total += p
            support += in_support(p, counted_ptr, col, inside, COUNTED)
        grad = scaled_difference(p, hit, live, scale, peak, rest)
        if WRITE == DENSE:
            store_block(out_ptr, col, inside, grad)
        if WRITE == LISTED:
            entries = append_entries(
                col_ptr, value_ptr, row, entries, col, grad, (p != 0.0) | hit, CAPACITY
            )
    wrong = (tl.max(unusable(top), 0) > 0) | no_class(y, live, classes)
    z_target = tl.sum(of_target, 0)
    score = peak * z_target
    if SMOOTH:
        score += smoothing * (tl.sum(sum_z, 0) / classes)
    loss = tl.sum(power, 0) / (1.0 + eps) + tau / eps - score + negentropy
    p_target, gap = _scores(z_target, eps, tau, KIND, DOUBLE)
    store_fields(
        row_ptr, row, True, live, wrong, loss.to(tl.float32), 0.0, tl.sum(support, 0),
        tl.sum(total, 0), p_target.to(tl.float32), z_target == tl.max(top, 0), STATS,
    )  # fmt: skip
    if WRITE != VALUE_ONLY:
        again = wrong & live  # rare: a NaN row must not look like a gradient
        if WRITE == LISTED:
            again |= entries > CAPACITY
            tl.store(count_ptr + row, tl.where(again, -1, entries))
        if again:
            _write_dense(
                z_ptr, out_ptr, z_col, classes, y, live, wrong, scale, eps, tau, peak, rest,
                KIND, DOUBLE, BLOCK,
            )  # fmt: skip


@triton.jit(do_not_specialize=["ignore_index", "z_row", "out_row", "classes"])
def alpha_relu_gradient_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, row_ptr, z_row, z_col, out_row, scale_row, classes,
    eps, eps_low, tau, tau_low, smoothing, ignore_index,
    KIND: tl.constexpr, DOUBLE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """scale · (p − q) from the scores again, where the upstream gradient was not known before."""
    row = tl.program_id(0).to(tl.int64)
    classes *= ALIGNED
    y = tl.load(target_ptr + row)
    live = y != ignore_index
    scale = tl.load(scale_ptr + row * scale_row)
    shift = tl.load(row_ptr + row * FIELDS + SHIFT)
    eps = _widened(eps, eps_low, DOUBLE)
    tau = _widened(tau, tau_low, DOUBLE)
    start = tl.program_id(1) * BLOCK
    z_ptr += row * z_row * ALIGNED
    col, inside, z = load_block(z_ptr, z_col, start, classes, live, BLOCK)
    p, gap = _scores(z, eps, tau, KIND, DOUBLE)
    p = p.to(tl.float32) + shift  # 0, or NaN
    grad = scaled_difference(
        p, is_target(col, y, live), live, scale, 1.0 - smoothing, smoothing / classes
    )
    store_block(out_ptr + row * out_row * ALIGNED, col, inside, grad)
