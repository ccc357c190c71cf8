"""The few scores that can be in a support: found with one pass over the rows.

Only scores above max − 1/(α−1) can be in the support of α-entmax, and only those above τ/(α−1) in
that of α-ReLU. Maxima of runs of columns tell which few runs to look into.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

CHUNK = 64  # columns that one maximum stands for when candidates are searched
CROWDED_CHUNKS = 0.2  # share of the chunks with candidates, above which all columns are read
GROUP = 16  # columns that one maximum stands for when chunks are crowded
DENSE_CLASSES = 1024  # fewer are listed, however many are candidates
DENSE_STRIDE = 16  # of the sample that the density is estimated from
# Shares of candidates, above which whole rows are computed with. Times of lists / whole rows with
# one thread (x86_64): plain losses, as ratios to F.cross_entropy at V = 32,000: α-ReLU 0.80 / 1.26
# at 3% non-zeros, 1.02 / 1.01 at 5%, 1.21 / 0.91 at 8%; entmax with α = 1.1 1.11 / 2.20,
# 1.41 / 1.98, 1.80 / 1.80; α = 1.5 1.21 / 1.65, 1.41 / 1.59, 1.84 / 1.71; sparsemax 1.84 / 1.32,
# 2.86 / 1.72, 3.24 / 1.29. Two threads gain more from whole rows.
DENSE_SHARE = 0.07
# With the fused layer whole rows mean whole products, too: as ratios to F.linear + F.cross_entropy
# at V = 4,000, d = 192, α-ReLU 0.71 / 1.02 at 8%, 0.97 / 1.00 at 15%, 1.39 / 0.97 at 25%;
# 1.5-entmax 1.12 / 1.72, 1.40 / 1.32, 2.39 / 1.25; sparsemax 1.04 / 1.29, 3.84 / 1.32, 8.36 / 1.20.
DENSE_SHARE_FUSED = 0.12


class Chunks(NamedTuple):
    """Runs of CHUNK columns. Columns that do not fill a run are the last, padded with −inf."""

    maxima: Tensor  # [rows, chunks]
    runs: Tensor  # [rows, full chunks, CHUNK]
    tail: Tensor | None  # [rows, CHUNK]


def chunk_maxima(z: Tensor) -> Chunks:
    """One pass over the data that tells the row maximum, any NaN, and where candidates can be."""
    rows, classes = z.shape
    full = classes // CHUNK * CHUNK
    runs = z[:, :full].unflatten(1, (-1, CHUNK))
    if full == classes:
        return Chunks(runs.amax(2), runs, None)
    tail = torch.full((rows, CHUNK), float("-inf"), dtype=z.dtype, device=z.device)
    tail[:, : classes - full] = z[:, full:]
    maxima = torch.cat([runs.amax(2), tail.amax(1, keepdim=True)], 1)
    return Chunks(maxima, runs, tail)


def group_maxima(z: Tensor) -> Tensor:
    """Maxima of GROUP columns each, then the columns that fill no group, [rows, groups + rest]. The
    columns of a group are far apart, so that whole runs of scores are compared at once."""
    full = z.shape[1] // GROUP * GROUP
    maxima = z[:, :full].unflatten(1, (GROUP, -1)).amax(1)
    return maxima if full == z.shape[1] else torch.cat([maxima, z[:, full:]], 1)


def is_crowded(maxima: Tensor, bound: Tensor) -> bool:
    """Whether candidates are in so many chunks that looking for the chunks gains nothing."""
    return int((maxima > bound).count_nonzero()) > CROWDED_CHUNKS * maxima.numel()


def is_dense(z: Tensor, bound: Tensor, share: float) -> bool:
    """Whether more than that share of the scores, or so, lies above ``bound``."""
    if z.shape[1] < DENSE_CLASSES:
        return False
    return float((z[:, ::DENSE_STRIDE] > bound).double().mean()) > share


def entries_above(z: Tensor, bound: Tensor, chunks: Chunks) -> tuple[Tensor, Tensor, Tensor]:
    """The scores above ``bound`` [rows, 1] as a list ordered by row: (row, col, value)."""
    maxima, runs, tail = chunks
    if is_crowded(maxima, bound):
        at = flags_at(z > bound)
        row = at // z.shape[1]
        return row, at - row * z.shape[1], z.reshape(-1).index_select(0, at)
    row, chunk = (maxima > bound).nonzero(as_tuple=True)
    if tail is None:
        picked = runs[row, chunk]
    else:
        in_tail = chunk == runs.shape[1]
        picked = torch.empty(len(row), CHUNK, dtype=z.dtype, device=z.device)
        picked[~in_tail] = runs[row[~in_tail], chunk[~in_tail]]
        picked[in_tail] = tail[row[in_tail]]
    at = (picked > bound[row]).view(-1).nonzero().squeeze(1)
    which = at // CHUNK
    col = chunk.index_select(0, which) * CHUNK + at % CHUNK
    return row.index_select(0, which), col, picked.view(-1).index_select(0, at)


def flags_at(flags: Tensor) -> Tensor:
    """Where flags are set, in row-major order: by NumPy, which lists flags several times faster
    than torch does."""
    if flags.device.type != "cpu":
        return flags.reshape(-1).nonzero().squeeze(1)
    return torch.from_numpy(np.flatnonzero(flags.reshape(-1).numpy()))


def columns_above(z: Tensor, bound: Tensor, chunks: Chunks) -> tuple[Tensor, Tensor]:
    """The scores above ``bound`` [rows, 1]: (value, col), each [rows, k], padded with −inf, 0."""
    row, column, found = entries_above(z, bound, chunks)
    count = torch.bincount(row, minlength=len(z))
    start = (count.cumsum(0) - count).index_select(0, row)
    k = max(int(count.max()) if count.numel() else 0, 1)
    flat = row * k + torch.arange(len(row), device=z.device) - start
    value = torch.full((len(z), k), float("-inf"), dtype=torch.float64, device=z.device)
    col = torch.zeros(value.shape, dtype=torch.int64, device=z.device)
    value.view(-1)[flat] = found.double()
    col.view(-1)[flat] = column
    return value, col


def round_down(bound: Tensor, dtype: torch.dtype) -> Tensor:
    """A number of ``dtype`` below ``bound``, so that rounding excludes no candidate."""
    rounded = bound.to(dtype)
    return torch.nextafter(rounded, torch.full_like(rounded, float("-inf")))
