"""A mapping applied to a block of rows: its non-zeros as a list, or whole rows where many are.

Padded candidates become a list here, once. What a loss needs of p beside it, the conjugate Ω*, is
computed from the candidates while they are at hand.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .. import _tsallis
from .._checks import ALPHA_RELU_DOUBLE_BELOW
from .._newton import power
from .._problem import AlphaReLUMapping, EntmaxMapping, Mapping, RowStats, Target
from . import thresholds
from .candidates import CHUNK, chunk_maxima, entries_above, flags_at, is_dense, round_down
from .thresholds import Whole, whole_scores

# Elements in a block of rows: what stays in a CPU's cache.
BLOCK_ELEMENTS = 1 << 20


def row_blocks(z: Tensor) -> list[slice]:
    """Slices of the rows of z [rows, classes] to work on one after the other."""
    size = max(1, BLOCK_ELEMENTS // max(1, z.shape[1]))
    return [slice(i, min(i + size, len(z))) for i in range(0, len(z), size)]


class Conjugate(NamedTuple):
    """Ω*(z) of rows, and their maxima."""

    value: Tensor  # float64 [rows, 1], Ω*(z − shift)
    shift: Tensor | float  # float64 [rows, 1]: for precision only; a number: part of the loss
    max: Tensor  # [rows, 1]


class ListedBlock(NamedTuple):
    """The non-zeros of p, row by row. NaN is not zero, so NaN rows are in it."""

    row: Tensor  # int64 [n], ascending
    col: Tensor  # int64 [n]
    p: Tensor  # [n]
    conjugate: Conjugate


class DenseBlock(NamedTuple):
    """p of whole rows [rows, classes], and the columns from which a backward pass computes it
    again (see ``scores_again``)."""

    p: Tensor
    again: Tensor  # [rows, 2]
    conjugate: Conjugate


Block = ListedBlock | DenseBlock


def make_block(z: Tensor, mapping: Mapping, dense_share: float) -> Block:
    """The mapping of rows z [rows, classes] in float32 or float64; dense where more than about
    that share of the classes can be in the support."""
    if isinstance(mapping, AlphaReLUMapping):
        return _alpha_relu_block(z, mapping, dense_share)
    return _entmax_block(z, mapping, dense_share)


def scores_again(z: Tensor, mapping: Mapping, again: Tensor) -> Tensor:
    """p of a DenseBlock."""
    if isinstance(mapping, AlphaReLUMapping):
        wide = z.to(_alpha_relu_dtype(z.dtype, mapping.alpha))
        return _alpha_relu_scores(_gap(wide, mapping), again[:, :1], mapping).to(z.dtype)
    assert isinstance(mapping.alpha, float)
    return whole_scores(z, again[:, :1], again[:, 1:], mapping.alpha)


def _listed(p: Tensor, col: Tensor | None, conjugate: Conjugate) -> ListedBlock:
    at = flags_at(p != 0)
    row = at // p.shape[1]
    col = at - row * p.shape[1] if col is None else col.reshape(-1).index_select(0, at)
    return ListedBlock(row, col, p.reshape(-1).index_select(0, at), conjugate)


# --- α-entmax -------------------------------------------------------------------------------


def _entmax_block(z: Tensor, mapping: EntmaxMapping, dense_share: float) -> Block:
    alpha = mapping.alpha
    solved = thresholds.solve(z, mapping, dense_share)
    log_peak = _tsallis.log_of_support(solved.p.amax(1, keepdim=True))
    shift = solved.max.where(solved.max.isfinite(), 0.0)
    again = torch.cat([shift, log_peak.to(shift.dtype)], 1)
    # pᵀz + H(p) without a sum of powers: at the largest score p^(α−1) tells τ.
    log_peak = log_peak.double()
    value = -log_peak * _tsallis.phi1((alpha - 1.0) * log_peak)
    if isinstance(alpha, Tensor) or alpha != 1.0:
        # No score under −1/(α−1) is in the support; 0 · −inf must stay 0.
        lowest = -1.0 / (alpha - 1.0 + 1e-30)
        score = solved.shifted.clamp_(min=lowest).mul_(solved.p).sum(1, keepdim=True)
        value = ((alpha - 1.0) * score.double() + value) / alpha
    conjugate = Conjugate(value, shift.double(), solved.max)
    if isinstance(solved, Whole):
        return DenseBlock(solved.p, again, conjugate)
    return _listed(solved.p, solved.col, conjugate)


# --- α-ReLU ---------------------------------------------------------------------------------


def _alpha_relu_block(z: Tensor, mapping: AlphaReLUMapping, dense_share: float) -> Block:
    alpha, shift = mapping.alpha, mapping.tau / (mapping.alpha - 1.0)
    if z.shape[1] <= 2 * CHUNK:
        return _alpha_relu_rows(z.double(), z.amax(1, keepdim=True), mapping, listed=True)
    chunks = chunk_maxima(z)
    top = chunks.maxima.amax(1, keepdim=True)
    bound = round_down(torch.full_like(top, shift, dtype=torch.float64), z.dtype)
    if is_dense(z, bound, dense_share):
        wide = z.to(_alpha_relu_dtype(z.dtype, alpha))
        return _alpha_relu_rows(wide, top, mapping, listed=False)
    if not bool((top < float("inf")).all()):  # NaN or +inf
        return _alpha_relu_rows(z.double(), top, mapping, listed=True)
    row, col, value = entries_above(z, bound, chunks)
    gap = _gap(value.double(), mapping)
    p = power(gap, 1.0 / (alpha - 1.0))
    conjugate = torch.zeros_like(top, dtype=torch.float64)
    conjugate.view(-1).index_add_(0, row, p * gap / alpha)  # p·gap = p^α
    return ListedBlock(row, col, p, Conjugate(conjugate, shift, top))


def _alpha_relu_rows(z: Tensor, top: Tensor, mapping: AlphaReLUMapping, listed: bool) -> Block:
    gap = _gap(z, mapping)
    p = _alpha_relu_scores(gap, top, mapping)
    value = (p * gap).sum(1, keepdim=True).double() / mapping.alpha
    conjugate = Conjugate(value, mapping.tau / (mapping.alpha - 1.0), top)
    return _listed(p, None, conjugate) if listed else DenseBlock(p, top.expand(-1, 2), conjugate)


def _alpha_relu_dtype(dtype: torch.dtype, alpha: float) -> torch.dtype:
    return torch.float64 if alpha < ALPHA_RELU_DOUBLE_BELOW else dtype


def _gap(z: Tensor, mapping: AlphaReLUMapping) -> Tensor:
    return (z * (mapping.alpha - 1.0)).sub_(mapping.tau).clamp_(min=0.0)


def _alpha_relu_scores(gap: Tensor, top: Tensor, mapping: AlphaReLUMapping) -> Tensor:
    p = power(gap, 1.0 / (mapping.alpha - 1.0))
    broken = top.isnan() | (top == float("inf"))
    return p.masked_fill(broken, float("nan")) if bool(broken.any()) else p


# --- what losses need of a block ----------------------------------------------------------------


def block_loss(z: Tensor, block: Block, mapping: Mapping, target: Target) -> Tensor:
    """The loss of each row, float64 [rows]."""
    value, shift, _ = block.conjugate
    wide = torch.float64
    loss = value - target.score(z, shift, wide) + target.negentropy(mapping, wide)
    if target.rows is not None and isinstance(shift, Tensor):  # weights that do not sum to 1
        loss = loss + shift * (1.0 - target.dense(wide).sum(1, keepdim=True))
    return loss.squeeze(1)


def block_slope(block: Block, mapping: Mapping, target: Target) -> Tensor:
    """dL/dα of every row: by the envelope theorem p may be held fixed."""
    alpha = mapping.alpha
    p, rows = block.p.double(), len(block.conjugate.value)
    if isinstance(block, ListedBlock):
        of_entry = alpha.squeeze(1)[block.row] if isinstance(alpha, Tensor) else alpha
        terms = _tsallis.entropy_slope_terms(p, of_entry)
        slope = p.new_zeros(rows).index_add_(0, block.row, terms)[:, None]
    else:
        slope = _tsallis.entropy_slope_terms(p, alpha).sum(1, keepdim=True)
    return (slope - target.entropy_slope(alpha, torch.float64)).squeeze(1)


def block_stats(
    z: Tensor, block: Block, mapping: Mapping, target: Target, counted: Tensor | None
) -> RowStats:
    index, rows = target.likeliest()[:, None], len(z)
    correct = z.gather(1, index) == block.conjugate.max.to(z.dtype)
    if isinstance(block, DenseBlock):
        inside = block.p != 0
        support = (inside if counted is None else inside & counted).sum(1)
        total, score = block.p.sum(1), block.p.gather(1, index).squeeze(1)
    else:
        row, col, p, _ = block
        support = torch.bincount(row if counted is None else row[counted[col]], minlength=rows)
        total = p.new_zeros(rows).index_add_(0, row, p)
        at_target = p.where(col == index.squeeze(1)[row], 0.0)
        score = p.new_zeros(rows).index_add_(0, row, at_target)
    return RowStats(support, total.to(z.dtype), score.to(z.dtype), correct.squeeze(1))
