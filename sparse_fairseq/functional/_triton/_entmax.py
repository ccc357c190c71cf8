"""α-entmax for 1 < α ≤ 2: the mapping, its loss with the gradient, and both backward passes.

Rows that fit into registers are read once, whatever Newton needs; a program may hold several
short rows. Longer rows are read again for each step of Newton, out of the cache. Nothing is
sorted. The gradient may overwrite the scores, as in ``_alpha_relu``.
"""

import triton
import triton.language as tl

from ._lists import append_entries
from ._math import (
    CORRECT,
    DENSE,
    ENOUGH,
    FIELDS,
    INVERSE,
    LINEAR,
    LISTED,
    LOSS,
    MAX_STEPS,
    SCORE,
    SHIFT,
    SQUARE,
    STATE,
    SUPPORT,
    TOTAL,
    VALUE_ONLY,
    entmax_conjugate,
    entmax_powers,
    newton_start,
    newton_step,
)


@triton.jit
def _newton_tile(u, eps, KIND: tl.constexpr, ROWS: tl.constexpr):
    """The state of each row of a tile [ROWS, BLOCK], and Σp there."""
    new = tl.full([ROWS, 1], newton_start(KIND), tl.float32)
    state = new
    total = tl.zeros([ROWS, 1], tl.float32)
    steps = 0
    going = 1
    while going > 0:
        state = new
        p, slopes = entmax_powers(u, state, eps, KIND)
        total = tl.sum(p, 1, keep_dims=True)
        step = newton_step(total, tl.sum(slopes, 1, keep_dims=True), state, eps, KIND)
        # A row without scores has Σp = 0, one with NaN compares as false: both stay.
        moves = (total > 1.0 + ENOUGH) & (step < state)
        new = tl.where(moves, step, state)
        steps += 1
        going = tl.where(steps < MAX_STEPS, tl.max(moves.to(tl.int32)), 0)
    return state, total


@triton.jit
def _inverse(total):
    return tl.where(total > 0.0, 1.0 / tl.where(total > 0.0, total, 1.0), 0.0)


@triton.jit
def _store_fields(
    row_ptr, mask, live, wrong, loss, shift, state, inverse, support, p_target, correct,
    STATS: tl.constexpr,
):  # fmt: skip
    nan = float("nan")
    tl.store(row_ptr + LOSS, tl.where(live, tl.where(wrong, nan, loss), 0.0), mask=mask)
    tl.store(row_ptr + SHIFT, tl.where(wrong, nan, shift), mask=mask)
    tl.store(row_ptr + STATE, state, mask=mask)
    tl.store(row_ptr + INVERSE, inverse, mask=mask)
    if STATS:
        full = tl.where(inverse > 0.0, 1.0, 0.0)
        tl.store(row_ptr + SUPPORT, support.to(tl.float32), mask=mask)
        tl.store(row_ptr + TOTAL, tl.where(wrong, nan, full), mask=mask)
        tl.store(row_ptr + SCORE, tl.where(wrong, nan, p_target), mask=mask)
        tl.store(row_ptr + CORRECT, correct.to(tl.float32), mask=mask)


@triton.jit(do_not_specialize=["ignore_index"])
def entmax_loss_tile_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, counted_ptr, row_ptr,
    z_row, z_col, out_row, scale_row, rows, classes,
    eps, smoothing, negentropy, ignore_index,
    KIND: tl.constexpr, WRITE: tl.constexpr, STATS: tl.constexpr, SMOOTH: tl.constexpr,
    COUNTED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Whole rows in registers: one read, one write. There are no lists here."""
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    here = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = (col < classes) & here
    at = col.to(tl.int64)
    y = tl.load(target_ptr + row, mask=here, other=ignore_index)
    live = (y != ignore_index) & here
    hit = (col == y) & live
    z = tl.load(z_ptr + row * z_row + at * z_col, mask=inside & live, other=float("-inf"))
    z = z.to(tl.float32)
    top = tl.max(z, 1, keep_dims=True)
    wrong = tl.max((~(z < float("inf"))).to(tl.int32), 1, keep_dims=True) > 0
    wrong |= live & ((y < 0) | (y >= classes))
    shift = tl.where(top > float("-inf"), top, 0.0)
    u = z - shift
    state, total = _newton_tile(u, eps, KIND, ROWS)
    inverse = _inverse(total)
    p, slopes = entmax_powers(u, state, eps, KIND)
    p = p * inverse
    # No score under −1/ε is in the support; 0 · −inf must stay 0.
    score = tl.sum(p * tl.maximum(u, -1.0 / eps), 1, keep_dims=True)
    u_target = tl.sum(tl.where(hit, u, 0.0), 1, keep_dims=True)
    peak = 1.0 - smoothing
    rest = smoothing / classes
    loss = entmax_conjugate(score, tl.where(total > 0.0, total, 1.0), state, eps, KIND)
    loss += negentropy - peak * u_target
    if SMOOTH:
        loss -= smoothing * (tl.sum(tl.where(inside, u, 0.0), 1, keep_dims=True) / classes)
    counts = p != 0.0
    if COUNTED:
        counts &= tl.load(counted_ptr + col, mask=col < classes, other=0) != 0
    _store_fields(
        row_ptr + row * FIELDS, here, live, wrong, loss, shift, state, inverse,
        tl.sum(counts.to(tl.int32), 1, keep_dims=True),
        tl.sum(tl.where(hit, p, 0.0), 1, keep_dims=True), u_target == top - shift, STATS,
    )  # fmt: skip
    if WRITE == DENSE:
        scale = tl.load(scale_ptr + row * scale_row, mask=here, other=0.0)
        p = tl.where(wrong, float("nan"), p)
        grad = tl.where(live, scale * (p - tl.where(hit, peak + rest, rest)), 0.0)
        target = out_ptr + row * out_row + at
        tl.store(target, grad.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _newton_blocks(
    z_ptr, z_col, classes, live, shift, eps, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    """The state of a row in memory, Σp and Σpu there (p not yet divided by Σp)."""
    new = tl.full([], newton_start(KIND), tl.float32)
    state = new
    total = tl.full([], 0.0, tl.float32)
    score = total
    steps = 0
    going = 1
    while going > 0:
        state = new
        totals = tl.zeros([BLOCK], tl.float32)
        slopes = tl.zeros([BLOCK], tl.float32)
        scores = tl.zeros([BLOCK], tl.float32)
        for start in range(0, classes, BLOCK):
            at = (start + tl.arange(0, BLOCK)).to(tl.int64)
            mask = (at < classes) & live
            u = tl.load(z_ptr + at * z_col, mask=mask, other=float("-inf")).to(tl.float32) - shift
            p, slope = entmax_powers(u, state, eps, KIND)
            totals += p
            slopes += slope
            scores += p * tl.maximum(u, -1.0 / eps)
        total = tl.sum(totals, 0)
        score = tl.sum(scores, 0)
        new = newton_step(total, tl.sum(slopes, 0), state, eps, KIND)
        steps += 1
        moves = (total > 1.0 + ENOUGH) & (new < state) & (steps < MAX_STEPS)
        going = moves.to(tl.int32)
    return state, total, score


@triton.jit
def _write_blocks(
    z_ptr, out_ptr, col_ptr, value_ptr, counted_ptr, row, z_col, classes, y, live, wrong, shift,
    state, inverse, scale, eps, peak, rest,
    KIND: tl.constexpr, WRITE: tl.constexpr, COUNTED: tl.constexpr, CAPACITY: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The pass over a long row that writes. Returns the support's size and the list's length."""
    support = tl.zeros([BLOCK], tl.int32)
    entries = 0
    for start in range(0, classes, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < classes
        at = col.to(tl.int64)
        z = tl.load(z_ptr + at * z_col, mask=inside & live, other=float("-inf")).to(tl.float32)
        p, slope = entmax_powers(z - shift, state, eps, KIND)
        counts = p != 0.0
        if COUNTED:
            counts &= tl.load(counted_ptr + col, mask=inside, other=0) != 0
        support += counts.to(tl.int32)
        p = tl.where(wrong, float("nan"), p * inverse)
        hit = (col == y) & live
        grad = tl.where(live, scale * (p - tl.where(hit, peak + rest, rest)), 0.0)
        if WRITE == DENSE:
            tl.store(out_ptr + at, grad.to(out_ptr.dtype.element_ty), mask=inside)
        if WRITE == LISTED:
            entries = append_entries(
                col_ptr + row * CAPACITY, value_ptr + row * CAPACITY, entries, col, grad,
                (grad != 0.0) | hit, CAPACITY,
            )  # fmt: skip
    return tl.sum(support, 0), entries


@triton.jit(do_not_specialize=["ignore_index"])
def entmax_loss_blocks_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, counted_ptr, row_ptr, col_ptr, value_ptr, count_ptr,
    z_row, z_col, out_row, scale_row, classes,
    eps, smoothing, negentropy, ignore_index,
    KIND: tl.constexpr, WRITE: tl.constexpr, STATS: tl.constexpr, SMOOTH: tl.constexpr,
    COUNTED: tl.constexpr, CAPACITY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows of any length, one program each: a pass for the maximum, one for each step of Newton,
    one that writes."""
    row = tl.program_id(0).to(tl.int64)
    z_ptr += row * z_row
    y = tl.load(target_ptr + row)
    live = y != ignore_index
    tops = tl.full([BLOCK], float("-inf"), tl.float32)
    of_target = tl.zeros([BLOCK], tl.float32)
    sum_z = tl.zeros([BLOCK], tl.float32)
    bad = tl.zeros([BLOCK], tl.int32)
    for start in range(0, classes, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < classes
        at = col.to(tl.int64)
        z = tl.load(z_ptr + at * z_col, mask=inside & live, other=float("-inf")).to(tl.float32)
        tops = tl.maximum(tops, z)
        bad |= (~(z < float("inf"))).to(tl.int32)
        of_target += tl.where((col == y) & live, z, 0.0)
        if SMOOTH:
            sum_z += tl.where(inside, z, 0.0)
    top = tl.max(tops, 0)
    wrong = (tl.max(bad, 0) > 0) | (live & ((y < 0) | (y >= classes)))
    shift = tl.where(top > float("-inf"), top, 0.0)
    state, total, score = _newton_blocks(z_ptr, z_col, classes, live, shift, eps, KIND, BLOCK)
    inverse = _inverse(total)
    u_target = tl.sum(of_target, 0) - shift
    peak = 1.0 - smoothing
    rest = smoothing / classes
    loss = entmax_conjugate(score * inverse, tl.where(total > 0.0, total, 1.0), state, eps, KIND)
    loss += negentropy - peak * u_target
    if SMOOTH:
        loss -= smoothing * (tl.sum(sum_z, 0) / classes - shift)
    p_target, slope = entmax_powers(u_target, state, eps, KIND)
    support = 0
    entries = 0
    if (WRITE != VALUE_ONLY) or STATS:
        scale = 1.0
        if WRITE != VALUE_ONLY:
            scale = tl.load(scale_ptr + row * scale_row)
            out_ptr += row * out_row
        support, entries = _write_blocks(
            z_ptr, out_ptr, col_ptr, value_ptr, counted_ptr, row, z_col, classes, y, live,
            wrong, shift, state, inverse, scale, eps, peak,
            0.0 if WRITE == LISTED else rest, KIND, WRITE, COUNTED, CAPACITY, BLOCK,
        )  # fmt: skip
    _store_fields(
        row_ptr + row * FIELDS, True, live, wrong, loss, shift, state, inverse, support,
        p_target * inverse, u_target == top - shift, STATS,
    )  # fmt: skip
    if WRITE == LISTED:
        overflow = (entries > CAPACITY) | (wrong & live)
        tl.store(count_ptr + row, tl.where(overflow, -1, entries))
        if overflow:
            _write_blocks(
                z_ptr, out_ptr, col_ptr, value_ptr, counted_ptr, row, z_col, classes, y, live,
                wrong, shift, state, inverse, scale, eps, peak, 0.0,
                KIND, DENSE, False, CAPACITY, BLOCK,
            )  # fmt: skip


@triton.jit(do_not_specialize=["ignore_index"])
def entmax_gradient_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, row_ptr, z_row, z_col, out_row, scale_row, classes,
    eps, smoothing, ignore_index, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """scale · (p − q) from the scores and what the forward pass left of each row."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(target_ptr + row)
    live = y != ignore_index
    scale = tl.load(scale_ptr + row * scale_row)
    row_ptr += row * FIELDS
    shift = tl.load(row_ptr + SHIFT)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < classes
    at = col.to(tl.int64)
    z = tl.load(z_ptr + row * z_row + at * z_col, mask=inside & live, other=float("-inf"))
    p, slope = entmax_powers(z.to(tl.float32) - shift, tl.load(row_ptr + STATE), eps, KIND)
    p = tl.where(shift == shift, p * tl.load(row_ptr + INVERSE), shift)
    rest = smoothing / classes
    grad = scale * (p - tl.where(col == y, 1.0 - smoothing + rest, rest))
    grad = tl.where(live, grad, 0.0)
    tl.store(out_ptr + row * out_row + at, grad.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def entmax_tile_kernel(
    z_ptr, out_ptr, eps_ptr, z_row, z_col, eps_row, rows, classes, eps,
    KIND: tl.constexpr, PER_ROW: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mapping for rows that fit into registers, with one α or one for each row."""
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    here = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = (col < classes) & here
    at = col.to(tl.int64)
    if PER_ROW:
        eps = tl.load(eps_ptr + row * eps_row, mask=here, other=1.0)
    z = tl.load(z_ptr + row * z_row + at * z_col, mask=inside, other=float("-inf")).to(tl.float32)
    top = tl.max(z, 1, keep_dims=True)
    wrong = tl.max((~(z < float("inf"))).to(tl.int32), 1, keep_dims=True) > 0
    if PER_ROW:
        wrong |= eps != eps
    u = z - tl.where(top > float("-inf"), top, 0.0)
    state, total = _newton_tile(u, eps, KIND, ROWS)
    p, slopes = entmax_powers(u, state, eps, KIND)
    p = tl.where(wrong, float("nan"), p * _inverse(total))
    target = out_ptr + row * classes + at
    tl.store(target, p.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def entmax_blocks_kernel(
    z_ptr, out_ptr, eps_ptr, z_row, z_col, eps_row, rows, classes, eps,
    KIND: tl.constexpr, PER_ROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mapping for rows of any length."""
    row = tl.program_id(0).to(tl.int64)
    z_ptr += row * z_row
    if PER_ROW:
        eps = tl.load(eps_ptr + row * eps_row)
    tops = tl.full([BLOCK], float("-inf"), tl.float32)
    bad = tl.zeros([BLOCK], tl.int32)
    for start in range(0, classes, BLOCK):
        at = (start + tl.arange(0, BLOCK)).to(tl.int64)
        z = tl.load(z_ptr + at * z_col, mask=at < classes, other=float("-inf")).to(tl.float32)
        tops = tl.maximum(tops, z)
        bad |= (~(z < float("inf"))).to(tl.int32)
    top = tl.max(tops, 0)
    wrong = tl.max(bad, 0) > 0
    if PER_ROW:
        wrong |= eps != eps
    shift = tl.where(top > float("-inf"), top, 0.0)
    state, total, score = _newton_blocks(z_ptr, z_col, classes, True, shift, eps, KIND, BLOCK)
    inverse = _inverse(total)
    for start in range(0, classes, BLOCK):
        at = (start + tl.arange(0, BLOCK)).to(tl.int64)
        z = tl.load(z_ptr + at * z_col, mask=at < classes, other=float("-inf")).to(tl.float32)
        p, slope = entmax_powers(z - shift, state, eps, KIND)
        p = tl.where(wrong, float("nan"), p * inverse)
        target = out_ptr + row * classes + at
        tl.store(target, p.to(out_ptr.dtype.element_ty), mask=at < classes)


@triton.jit
def _phi2(y):
    """(e^y − 1 − y)/y²; the series where the quotient cancels."""
    near = tl.abs(y) < 0.35
    s = tl.where(near, y, 0.0)
    series = 0.5 + s * (
        1 / 6 + s * (1 / 24 + s * (1 / 120 + s * (1 / 720 + s * (1 / 5040 + s / 40320))))
    )
    far = tl.where(near, 1.0, y)
    return tl.where(near, series, (tl.exp(far) - 1.0 - far) / (far * far))


@triton.jit
def _jacobian_power(p, eps, KIND: tl.constexpr):
    """s = p^(2−α) on the support."""
    inside = p != 0.0
    if KIND == SQUARE:
        return tl.sqrt(p)
    elif KIND == LINEAR:
        return inside.to(tl.float32)
    else:
        s = tl.exp(tl.log(tl.where(inside, p, 1.0)) * (1.0 - eps))
        return tl.where(inside, s, 0.0)


@triton.jit
def _slope_terms(p, eps):
    """log p on the support and r = log² p · φ₂(−ε log p), of which dp/dα is made."""
    log = tl.log(tl.where(p != 0.0, p, 1.0))
    return log, log * log * _phi2(-eps * log)


@triton.jit
def _alpha_slope(p, log, r, total_r, total_log, inverse, eps):
    """dp/dα, written as ``_tsallis.entmax_slope`` is."""
    return p * (total_r - r + eps * (r * total_log - total_r * log)) * inverse


@triton.jit
def entmax_backward_tile_kernel(
    p_ptr, grad_ptr, out_ptr, eps_ptr, alpha_ptr, grad_row, grad_col, eps_row, rows, classes, eps,
    KIND: tl.constexpr, PER_ROW: tl.constexpr, OF_ALPHA: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """S2S Proposition 1: s ∘ (grad − sᵀgrad/Σs), s = p^(2−α) on the support; and gradᵀ dp/dα."""
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    here = row < rows
    if PER_ROW:
        eps = tl.load(eps_ptr + row * eps_row, mask=here, other=1.0)
    col = tl.arange(0, BLOCK)[None, :]
    inside = (col < classes) & here
    at = col.to(tl.int64)
    p = tl.load(p_ptr + row * classes + at, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + row * grad_row + at * grad_col, mask=inside, other=0.0)
    grad = grad.to(tl.float32)
    s = _jacobian_power(p, eps, KIND)
    inverse = _inverse(tl.sum(s, 1, keep_dims=True))
    out = s * (grad - tl.sum(s * grad, 1, keep_dims=True) * inverse)
    out = tl.where(p == p, out, p)
    tl.store(out_ptr + row * classes + at, out.to(out_ptr.dtype.element_ty), mask=inside)
    if OF_ALPHA:
        log, r = _slope_terms(p, eps)
        total_r = tl.sum(p * r, 1, keep_dims=True)
        total_log = tl.sum(p * log, 1, keep_dims=True)
        slope = _alpha_slope(p, log, r, total_r, total_log, inverse, eps)
        tl.store(alpha_ptr + row, tl.sum(grad * slope, 1, keep_dims=True), mask=here)


@triton.jit
def entmax_backward_blocks_kernel(
    p_ptr, grad_ptr, out_ptr, eps_ptr, alpha_ptr, grad_row, grad_col, eps_row, rows, classes, eps,
    KIND: tl.constexpr, PER_ROW: tl.constexpr, OF_ALPHA: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same for rows of any length, which are read twice."""
    row = tl.program_id(0).to(tl.int64)
    if PER_ROW:
        eps = tl.load(eps_ptr + row * eps_row)
    p_ptr += row * classes
    grad_ptr += row * grad_row
    sums = tl.zeros([BLOCK], tl.float32)
    products = tl.zeros([BLOCK], tl.float32)
    rs = tl.zeros([BLOCK], tl.float32)
    logs = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        at = (start + tl.arange(0, BLOCK)).to(tl.int64)
        p = tl.load(p_ptr + at, mask=at < classes, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + at * grad_col, mask=at < classes, other=0.0).to(tl.float32)
        s = _jacobian_power(p, eps, KIND)
        sums += s
        products += s * grad
        if OF_ALPHA:
            log, r = _slope_terms(p, eps)
            rs += p * r
            logs += p * log
    inverse = _inverse(tl.sum(sums, 0))
    mean = tl.sum(products, 0) * inverse
    total_r = tl.sum(rs, 0)
    total_log = tl.sum(logs, 0)
    slopes = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        at = (start + tl.arange(0, BLOCK)).to(tl.int64)
        p = tl.load(p_ptr + at, mask=at < classes, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + at * grad_col, mask=at < classes, other=0.0).to(tl.float32)
        out = _jacobian_power(p, eps, KIND) * (grad - mean)
        out = tl.where(p == p, out, p).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row * classes + at, out, mask=at < classes)
        if OF_ALPHA:
            log, r = _slope_terms(p, eps)
            slopes += grad * _alpha_slope(p, log, r, total_r, total_log, inverse, eps)
    if OF_ALPHA:
        tl.store(alpha_ptr + row, tl.sum(slopes, 0))
