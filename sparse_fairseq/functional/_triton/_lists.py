"""Lists of a gradient's non-zeros: how a kernel writes them, and what is computed from them."""

import triton
import triton.language as tl


@triton.jit
def append_entries(col_ptr, value_ptr, row, entries, col, value, chosen, CAPACITY: tl.constexpr):
    """The chosen columns and values behind the ``entries`` that a row's list has already. What does
    not fit is counted but not written. Returns the new count."""
    col_ptr += row * CAPACITY
    value_ptr += row * CAPACITY
    chosen = chosen.to(tl.int32)
    more = tl.sum(chosen, 0)
    if more > 0:
        place = entries + tl.cumsum(chosen, 0) - 1
        fits = (chosen > 0) & (place < CAPACITY)
        tl.store(col_ptr + place, col, mask=fits)
        tl.store(value_ptr + place, value, mask=fits)
    return entries + more


@triton.jit
def states_of_lists_kernel(
    col_ptr, value_ptr, count_ptr, weight_ptr, out_ptr, weight_row, hidden,
    CAPACITY: tl.constexpr, ENTRIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ value · weight[col] over a row's list. Rows that do not fit (count −1) are left alone."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(count_ptr + row)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, ENTRIES):
        k = start + tl.arange(0, ENTRIES)
        col = tl.load(col_ptr + row * CAPACITY + k, mask=k < count, other=0).to(tl.int64)
        value = tl.load(value_ptr + row * CAPACITY + k, mask=k < count, other=0.0)
        place = weight_ptr + col[:, None] * weight_row + d[None, :]
        weight = tl.load(place, mask=(k < count)[:, None] & (d < hidden)[None, :], other=0.0)
        total += tl.sum(value[:, None] * weight.to(tl.float32), 0)
    tl.store(out_ptr + row * hidden + d, total, mask=(d < hidden) & (count >= 0))


@triton.jit
def weights_of_lists_kernel(
    start_ptr, order_ptr, value_ptr, h_ptr, out_ptr, bias_ptr, h_row, hidden,
    OF_BIAS: tl.constexpr, CAPACITY: tl.constexpr, ENTRIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[v] += Σ value · h[row] over the entries of column v, which stand together in ``order``:
    one program for each column and piece of it, so that the sum's order never changes."""
    column = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(start_ptr + column)
    end = tl.load(start_ptr + column + 1)
    if first < end:
        total = tl.zeros([BLOCK], tl.float32)
        bias = tl.zeros([ENTRIES], tl.float32)
        for start in range(first, end, ENTRIES):
            k = start + tl.arange(0, ENTRIES)
            entry = tl.load(order_ptr + k, mask=k < end, other=0).to(tl.int64)
            value = tl.load(value_ptr + entry, mask=k < end, other=0.0)
            from_row = h_ptr + (entry // CAPACITY)[:, None] * h_row + d[None, :]
            h = tl.load(from_row, mask=(k < end)[:, None] & (d < hidden)[None, :], other=0.0)
            total += tl.sum(value[:, None] * h.to(tl.float32), 0)
            bias += value
        place = out_ptr + column * hidden + d
        total += tl.load(place, mask=d < hidden, other=0.0)
        tl.store(place, total, mask=d < hidden)
        if OF_BIAS:
            if tl.program_id(1) == 0:
                tl.store(bias_ptr + column, tl.load(bias_ptr + column) + tl.sum(bias, 0))


@triton.jit
def _dot(a, b, total, WIDEN: tl.constexpr):
    """WIDEN: the interpreter would multiply the bits of bfloat16."""
    if WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="ieee")


@triton.jit
def states_of_dense_kernel(
    grad_ptr, count_ptr, weight_ptr, out_ptr, grad_row, weight_row, rows, classes, hidden,
    WIDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """grad @ weight for the rows that did not fit into lists; returns at once where all did."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dense = tl.load(count_ptr + row, mask=row < rows, other=0) < 0
    if tl.max(dense.to(tl.int32), 0) > 0:
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for start in range(0, classes, COLUMNS):
            col = (start + tl.arange(0, COLUMNS)).to(tl.int64)
            mask = dense[:, None] & (col < classes)[None, :]
            grad = tl.load(grad_ptr + row[:, None] * grad_row + col[None, :], mask=mask, other=0.0)
            mask = (col < classes)[:, None] & (d < hidden)[None, :]
            place = weight_ptr + col[:, None] * weight_row + d[None, :]
            weight = tl.load(place, mask=mask, other=0.0)
            total = _dot(grad, weight, total, WIDEN)
        mask = dense[:, None] & (d < hidden)[None, :]
        tl.store(out_ptr + row[:, None] * hidden + d[None, :], total, mask=mask)


@triton.jit
def weights_of_dense_kernel(
    grad_ptr, count_ptr, fewest_ptr, h_ptr, out_ptr, bias_ptr, grad_row, h_row,
    rows, classes, hidden,
    OF_BIAS: tl.constexpr, WIDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out += gradᵀ @ h over the rows that did not fit into lists; returns at once where all did."""
    if tl.load(fewest_ptr) < 0:
        col = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
        d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros([COLUMNS, BLOCK], tl.float32)
        bias = tl.zeros([COLUMNS], tl.float32)
        for start in range(0, rows, ROWS):
            row = (start + tl.arange(0, ROWS)).to(tl.int64)
            dense = tl.load(count_ptr + row, mask=row < rows, other=0) < 0
            if tl.max(dense.to(tl.int32), 0) > 0:
                mask = (col < classes)[:, None] & dense[None, :]
                place = grad_ptr + row[None, :] * grad_row + col[:, None]
                grad = tl.load(place, mask=mask, other=0.0)
                mask = dense[:, None] & (d < hidden)[None, :]
                h = tl.load(h_ptr + row[:, None] * h_row + d[None, :], mask=mask, other=0.0)
                total = _dot(grad, h, total, WIDEN)
                bias += tl.sum(grad.to(tl.float32), 1)
        mask = (col < classes)[:, None] & (d < hidden)[None, :]
        place = out_ptr + col[:, None] * hidden + d[None, :]
        tl.store(place, tl.load(place, mask=mask, other=0.0) + total, mask=mask)
        if OF_BIAS:
            if tl.program_id(1) == 0:
                bias += tl.load(bias_ptr + col, mask=col < classes, other=0.0)
                tl.store(bias_ptr + col, bias, mask=col < classes)
