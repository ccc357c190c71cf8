"""α-entmax for 1 < α ≤ 2: the mapping, its loss with the gradient, and both backward passes.

Rows that fit into registers are read once, whatever Newton needs; a program may hold several
short rows. Longer rows are read again for each step of Newton, out of the cache. Nothing is
sorted. The gradient may overwrite the scores, as in ``_alpha_relu``.
"""

import triton
import triton.language as tl

from ._lists import append_entries
from ._math import (
    DENSE,
    ENOUGH,
    FIELDS,
    INVERSE,
    LINEAR,
    LISTED,
    MAX_STEPS,
    POWER,
    SHIFT,
    SQUARE,
    STATE,
    VALUE_ONLY,
    entmax_conjugate,
    entmax_powers,
    newton_start,
    newton_step,
)
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
def _store_row(
    row_ptr, row, mask, live, wrong, loss, shift, state, inverse, support, p_target, correct,
    STATS: tl.constexpr,
):  # fmt: skip
    """The fields, with those that the backward pass needs beside."""
    total = tl.where(inverse > 0.0, 1.0, 0.0)
    store_fields(
        row_ptr, row, mask, live, wrong, loss, shift, support, total, p_target, correct, STATS
    )
    tl.store(row_ptr + row * FIELDS + STATE, state, mask=mask)
    tl.store(row_ptr + row * FIELDS + INVERSE, inverse, mask=mask)


@triton.jit
def _tile(rows, classes, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """(row, column, is it one) of a program's tile [ROWS, BLOCK]."""
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    return row, col, (col < classes) & (row < rows)


@triton.jit(do_not_specialize=["ignore_index", "z_row", "out_row", "rows", "classes"])
def entmax_loss_tile_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, counted_ptr, row_ptr,
    z_row, z_col, out_row, scale_row, rows, classes,
    eps, smoothing, negentropy, ignore_index,
    KIND: tl.constexpr, WRITE: tl.constexpr, STATS: tl.constexpr, SMOOTH: tl.constexpr,
    COUNTED: tl.constexpr, ALIGNED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Whole rows in registers: one read, one write. There are no lists here."""
    classes *= ALIGNED
    row, col, inside = _tile(rows, classes, ROWS, BLOCK)
    here = row < rows
    y = tl.load(target_ptr + row, mask=here, other=ignore_index)
    live = (y != ignore_index) & here
    hit = is_target(col, y, live)
    place = z_ptr + row * z_row * ALIGNED + col.to(tl.int64) * z_col
    z = tl.load(place, mask=inside & live, other=float("-inf")).to(tl.float32)
    top = tl.max(z, 1, keep_dims=True)
    wrong = (tl.max(unusable(z), 1, keep_dims=True) > 0) | no_class(y, live, classes)
    shift = tl.where(top > float("-inf"), top, 0.0)
    u = z - shift
    # Summed before Newton, so that fewer registers are needed after it.
    u_target = tl.sum(tl.where(hit, u, 0.0), 1, keep_dims=True)
    if SMOOTH:
        mean_u = tl.sum(tl.where(inside, u, 0.0), 1, keep_dims=True) / classes
    state, total = _newton_tile(u, eps, KIND, ROWS)
    inverse = _inverse(total)
    p, slopes = entmax_powers(u, state, eps, KIND)
    p = p * inverse
    # No score under −1/ε is in the support; 0 · −inf must stay 0.
    score = tl.sum(p * tl.maximum(u, -1.0 / eps), 1, keep_dims=True)
    peak = 1.0 - smoothing
    loss = entmax_conjugate(score, tl.where(total > 0.0, total, 1.0), state, eps, KIND)
    loss += negentropy - peak * u_target
    if SMOOTH:
        loss -= smoothing * mean_u
    p_target, slope = entmax_powers(u_target, state, eps, KIND)
    if WRITE == DENSE:
        scale = tl.load(scale_ptr + row * scale_row, mask=here, other=0.0)
        grad = tl.where(wrong, float("nan"), p)
        grad = scaled_difference(grad, hit, live, scale, peak, smoothing / classes)
        store_block(out_ptr + row * out_row * ALIGNED, col, inside, grad)
    # Behind the store, so that what is loaded here does not need registers before.
    support = tl.sum(in_support(p, counted_ptr, col, col < classes, COUNTED), 1, keep_dims=True)
    _store_row(
        row_ptr, row, here, live, wrong, loss, shift, state, inverse, support,
        p_target * inverse, u_target == top - shift, STATS,
    )  # fmt: skip


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
            col, inside, z = load_block(z_ptr, z_col, start, classes, live, BLOCK)
            u = z - shift
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
        col, inside, z = load_block(z_ptr, z_col, start, classes, live, BLOCK)
        p, slope = entmax_powers(z - shift, state, eps, KIND)
        hit = is_target(col, y, live)
        grad = tl.where(wrong, float("nan"), p * inverse)
        grad = scaled_difference(grad, hit, live, scale, peak, rest)
        if WRITE == DENSE:
            store_block(out_ptr, col, inside, grad)
        support += in_support(p, counted_ptr, col, inside, COUNTED)
        if WRITE == LISTED:
            entries = append_entries(
                col_ptr, value_ptr, row, entries, col, grad, (grad != 0.0) | hit, CAPACITY
            )
    return tl.sum(support, 0), entries


@triton.jit(do_not_specialize=["ignore_index", "z_row", "out_row", "classes"])
def entmax_loss_blocks_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, counted_ptr, row_ptr, col_ptr, value_ptr, count_ptr,
    z_row, z_col, out_row, scale_row, classes,
    eps, smoothing, negentropy, ignore_index,
    KIND: tl.constexpr, WRITE: tl.constexpr, STATS: tl.constexpr, SMOOTH: tl.constexpr,
    COUNTED: tl.constexpr, CAPACITY: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows of any length, one program each: a pass for the maximum, one for each step of Newton,
    one that writes."""
    row = tl.program_id(0).to(tl.int64)
    classes *= ALIGNED
    z_ptr += row * z_row * ALIGNED
    y = tl.load(target_ptr + row)
    live = y != ignore_index
    tops = tl.full([BLOCK], float("-inf"), tl.float32)
    of_target = tl.zeros([BLOCK], tl.float32)
    sum_z = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        col, inside, z = load_block(z_ptr, z_col, start, classes, live, BLOCK)
        tops = tl.maximum(tops, z, propagate_nan=tl.PropagateNan.ALL)
        of_target += tl.where(is_target(col, y, live), z, 0.0)
        if SMOOTH:
            sum_z += tl.where(inside, z, 0.0)
    top = tl.max(tops, 0)
    wrong = (tl.max(unusable(tops), 0) > 0) | no_class(y, live, classes)
    shift = tl.where(top > float("-inf"), top, 0.0)
    # Summed before Newton, so that the blocks do not keep registers through it.
    u_target = tl.sum(of_target, 0) - shift
    mean_u = tl.sum(sum_z, 0) / classes - shift
    state, total, score = _newton_blocks(z_ptr, z_col, classes, live, shift, eps, KIND, BLOCK)
    inverse = _inverse(total)
    peak = 1.0 - smoothing
    rest = 0.0 if WRITE == LISTED else smoothing / classes
    loss = entmax_conjugate(score * inverse, tl.where(total > 0.0, total, 1.0), state, eps, KIND)
    loss += negentropy - peak * u_target
    if SMOOTH:
        loss -= smoothing * mean_u
    p_target, slope = entmax_powers(u_target, state, eps, KIND)
    support = 0
    entries = 0
    if (WRITE != VALUE_ONLY) or STATS:
        scale = 1.0
        if WRITE != VALUE_ONLY:
            scale = tl.load(scale_ptr + row * scale_row)
            out_ptr += row * out_row * ALIGNED
        support, entries = _write_blocks(
            z_ptr, out_ptr, col_ptr, value_ptr, counted_ptr, row, z_col, classes, y, live,
            wrong, shift, state, inverse, scale, eps, peak, rest,
            KIND, WRITE, COUNTED, CAPACITY, BLOCK,
        )  # fmt: skip
    _store_row(
        row_ptr, row, True, live, wrong, loss, shift, state, inverse, support,
        p_target * inverse, u_target == top - shift, STATS,
    )  # fmt: skip
    if WRITE == LISTED:
        overflow = (entries > CAPACITY) | (wrong & live)
        tl.store(count_ptr + row, tl.where(overflow, -1, entries))
        if overflow:
            _write_blocks(
                z_ptr, out_ptr, col_ptr, value_ptr, counted_ptr, row, z_col, classes, y, live,
                wrong, shift, state, inverse, scale, eps, peak, rest,
                KIND, DENSE, False, CAPACITY, BLOCK,
            )  # fmt: skip


@triton.jit(do_not_specialize=["ignore_index", "z_row", "out_row", "classes"])
def entmax_gradient_kernel(
    z_ptr, out_ptr, target_ptr, scale_ptr, row_ptr, z_row, z_col, out_row, scale_row, classes,
    eps, smoothing, ignore_index,
    KIND: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """scale · (p − q) from the scores and what the forward pass left of each row."""
    row = tl.program_id(0).to(tl.int64)
    classes *= ALIGNED
    y = tl.load(target_ptr + row)
    live = y != ignore_index
    scale = tl.load(scale_ptr + row * scale_row)
    row_ptr += row * FIELDS
    shift = tl.load(row_ptr + SHIFT)
    start = tl.program_id(1) * BLOCK
    z_ptr += row * z_row * ALIGNED
    col, inside, z = load_block(z_ptr, z_col, start, classes, live, BLOCK)
    p, slope = entmax_powers(z - shift, tl.load(row_ptr + STATE), eps, KIND)
    p = tl.where(shift == shift, p * tl.load(row_ptr + INVERSE), shift)
    grad = scaled_difference(
        p, is_target(col, y, live), live, scale, 1.0 - smoothing, smoothing / classes
    )
    store_block(out_ptr + row * out_row * ALIGNED, col, inside, grad)


@triton.jit
def _eps_of(row, here, eps_ptr, per_row, eps):
    """ε of each row, or the same for all. Nothing is loaded then."""
    own = per_row != 0
    return tl.where(own, tl.load(eps_ptr + row, mask=here & own, other=1.0), eps)


@triton.jit(do_not_specialize=["z_row", "rows", "classes", "per_row"])
def entmax_tile_kernel(
    z_ptr, out_ptr, eps_ptr, z_row, z_col, rows, classes, per_row, eps,
    KIND: tl.constexpr, ALIGNED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mapping for rows that fit into registers, with one α or one for each row."""
    classes *= ALIGNED
    row, col, inside = _tile(rows, classes, ROWS, BLOCK)
    if KIND == POWER:
        eps = _eps_of(row, row < rows, eps_ptr, per_row, eps)
    place = z_ptr + row * z_row * ALIGNED + col.to(tl.int64) * z_col
    z = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
    top = tl.max(z, 1, keep_dims=True)
    wrong = tl.max(unusable(z), 1, keep_dims=True) > 0
    if KIND == POWER:
        wrong |= eps != eps
    u = z - tl.where(top > float("-inf"), top, 0.0)
    state, total = _newton_tile(u, eps, KIND, ROWS)
    p, slopes = entmax_powers(u, state, eps, KIND)
    p = tl.where(wrong, float("nan"), p * _inverse(total))
    store_block(out_ptr + row * classes, col, inside, p)


@triton.jit(do_not_specialize=["z_row", "rows", "classes", "per_row"])
def entmax_blocks_kernel(
    z_ptr, out_ptr, eps_ptr, z_row, z_col, rows, classes, per_row, eps,
    KIND: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mapping for rows of any length."""
    row = tl.program_id(0).to(tl.int64)
    classes *= ALIGNED
    z_ptr += row * z_row * ALIGNED
    if KIND == POWER:
        eps = _eps_of(row, True, eps_ptr, per_row, eps)
    tops = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, classes, BLOCK):
        col, inside, z = load_block(z_ptr, z_col, start, classes, True, BLOCK)
        tops = tl.maximum(tops, z, propagate_nan=tl.PropagateNan.ALL)
    top = tl.max(tops, 0)
    wrong = tl.max(unusable(tops), 0) > 0
    if KIND == POWER:
        wrong |= eps != eps
    shift = tl.where(top > float("-inf"), top, 0.0)
    state, total, score = _newton_blocks(z_ptr, z_col, classes, True, shift, eps, KIND, BLOCK)
    inverse = _inverse(total)
    for start in range(0, classes, BLOCK):
        col, inside, z = load_block(z_ptr, z_col, start, classes, True, BLOCK)
        p, slope = entmax_powers(z - shift, state, eps, KIND)
        p = tl.where(wrong, float("nan"), p * inverse)
        store_block(out_ptr + row * classes, col, inside, p)


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


@triton.jit(do_not_specialize=["grad_row", "rows", "classes", "per_row"])
def entmax_backward_tile_kernel(
    p_ptr, grad_ptr, out_ptr, eps_ptr, alpha_ptr, grad_row, grad_col, rows, classes, per_row, eps,
    KIND: tl.constexpr, OF_ALPHA: tl.constexpr, ALIGNED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """S2S Proposition 1: s ∘ (grad − sᵀgrad/Σs), s = p^(2−α) on the support; and gradᵀ dp/dα."""
    classes *= ALIGNED
    row, col, inside = _tile(rows, classes, ROWS, BLOCK)
    here = row < rows
    if KIND == POWER:
        eps = _eps_of(row, here, eps_ptr, per_row, eps)
    at = col.to(tl.int64)
    p = tl.load(p_ptr + row * classes + at, mask=inside, other=0.0).to(tl.float32)
    place = grad_ptr + row * grad_row * ALIGNED + at * grad_col
    grad = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    s = _jacobian_power(p, eps, KIND)
    inverse = _inverse(tl.sum(s, 1, keep_dims=True))
    out = s * (grad - tl.sum(s * grad, 1, keep_dims=True) * inverse)
    store_block(out_ptr + row * classes, col, inside, tl.where(p == p, out, p))
    if OF_ALPHA:
        log, r = _slope_terms(p, eps)
        total_r = tl.sum(p * r, 1, keep_dims=True)
        total_log = tl.sum(p * log, 1, keep_dims=True)
        slope = _alpha_slope(p, log, r, total_r, total_log, inverse, eps)
        tl.store(alpha_ptr + row, tl.sum(grad * slope, 1, keep_dims=True), mask=here)


@triton.jit
def _load_pair(p_ptr, grad_ptr, grad_col, start, classes, BLOCK: tl.constexpr):
    """Columns of a row from ``start`` on: (column, is it one, p, its gradient)."""
    col = start + tl.arange(0, BLOCK)
    at = col.to(tl.int64)
    inside = col < classes
    p = tl.load(p_ptr + at, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + at * grad_col, mask=inside, other=0.0).to(tl.float32)
    return col, inside, p, grad


@triton.jit(do_not_specialize=["grad_row", "rows", "classes", "per_row"])
def entmax_backward_blocks_kernel(
    p_ptr, grad_ptr, out_ptr, eps_ptr, alpha_ptr, grad_row, grad_col, rows, classes, per_row, eps,
    KIND: tl.constexpr, OF_ALPHA: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The same for rows of any length, which are read twice."""
    row = tl.program_id(0).to(tl.int64)
    classes *= ALIGNED
    if KIND == POWER:
        eps = _eps_of(row, True, eps_ptr, per_row, eps)
    p_ptr += row * classes
    grad_ptr += row * grad_row * ALIGNED
    sums = tl.zeros([BLOCK], tl.float32)
    products = tl.zeros([BLOCK], tl.float32)
    rs = tl.zeros([BLOCK], tl.float32)
    logs = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        col, inside, p, grad = _load_pair(p_ptr, grad_ptr, grad_col, start, classes, BLOCK)
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
        col, inside, p, grad = _load_pair(p_ptr, grad_ptr, grad_col, start, classes, BLOCK)
        out = _jacobian_power(p, eps, KIND) * (grad - mean)
        store_block(out_ptr + row * classes, col, inside, tl.where(p == p, out, p))
        if OF_ALPHA:
            log, r = _slope_terms(p, eps)
            slopes += grad * _alpha_slope(p, log, r, total_r, total_log, inverse, eps)
    if OF_ALPHA:
        tl.store(alpha_ptr + row, tl.sum(slopes, 0))
