"""The losses whose gradient is p − q: α-ReLU loss (SE Eq. 2), α-entmax loss (S2S Eq. 11).

All are Fenchel-Young losses, Ω*(z) + Ω(q) − qᵀz. The forward pass keeps only the support of p,
as (index, value); the backward pass writes the dense gradient once. The math of the mappings is
in ``_solvers`` and ``_tsallis``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _checks, _tsallis
from ._solvers import (
    CHUNK,
    chunk_maxima,
    dense_scores,
    entries_above,
    is_dense,
    on_host,
    power,
    round_down,
    solve_entmax,
)
from .mappings import Alpha, alpha_relu, alpha_relu_dtype, entmax, row_blocks


class RowStats(NamedTuple):
    """What a loss saw of p, for each target; free, because the forward pass has it at hand. What
    it says of ignored targets is undefined."""

    support: Tensor  # int64, number of non-zero scores (without the ``uncounted`` classes)
    total: Tensor  # Σp: 1 for entmax, the self-normalisation of α-ReLU (SE §4.5)
    target_score: Tensor  # p of the target
    correct: Tensor  # bool, no class scores higher than the target


class Block(NamedTuple):
    """A mapping applied to a block of rows: on candidate columns [rows, k], or as a list [n]."""

    p: Tensor
    col: Tensor | None  # None: all columns in order
    conjugate: Tensor  # float64 [rows, 1], Ω*(z − shift)
    shift: Tensor | float  # float64 [rows, 1] or a number
    max: Tensor  # [rows, 1]
    # What p of dense rows is computed from again in the backward pass; None: keep the support.
    again: tuple[Tensor, ...] | None = None
    row: Tensor | None = None  # [n], ascending: p and col are lists; None: they have rows


@dataclass(frozen=True)
class EntmaxMapping:
    """α-entmax for the losses below. Ω is the negative Tsallis entropy."""

    alpha: Alpha
    options: dict = field(default_factory=dict)
    shift_invariant = True  # Block.shift is there for precision only

    def __call__(self, z: Tensor) -> Tensor:
        return entmax(z, self.alpha, **self.options)

    def block(self, z: Tensor) -> Block:
        alpha = self.alpha
        solved = solve_entmax(z, alpha, **self.options)
        log_peak = _tsallis.log_of_support(solved.p.amax(1, keepdim=True))
        shift = solved.max.where(solved.max.isfinite(), 0.0)
        again = (shift, log_peak) if solved.dense else None
        # pᵀz + H(p) without a sum of powers: at the largest score p^(α−1) tells τ.
        log_peak = log_peak.double()
        conjugate = -log_peak * _tsallis.phi1((alpha - 1.0) * log_peak)
        if isinstance(alpha, Tensor) or alpha != 1.0:
            # No score under −1/(α−1) is in the support; 0 · −inf must stay 0.
            lowest = -1.0 / (alpha - 1.0 + 1e-30)
            score = (solved.p * solved.shifted.clamp(min=lowest)).sum(1, keepdim=True)
            conjugate = ((alpha - 1.0) * score.double() + conjugate) / alpha
        return Block(solved.p, solved.col, conjugate, shift.double(), solved.max, again)

    def dense_scores(self, z: Tensor, top: Tensor, log_peak: Tensor) -> Tensor:
        assert isinstance(self.alpha, float)
        return dense_scores(z, top, log_peak, self.alpha)

    def negentropy(self, q: Tensor) -> Tensor:
        return -_tsallis.entropy(q, self.alpha)

    def with_alpha(self, alpha: Tensor | None) -> "EntmaxMapping":
        return self if alpha is None else EntmaxMapping(alpha, self.options)

    def of_rows(self, rows: slice | Tensor) -> "EntmaxMapping":
        return self.with_alpha(self.alpha[rows] if isinstance(self.alpha, Tensor) else None)


@dataclass(frozen=True)
class AlphaReLUMapping:
    """α-ReLU for the losses below. Ω(q) = Σ q^α / (α(α−1)), the entropy of SE Eq. 2 but for
    its constant; Eq. 14 prints another one, which is not consistent with Lemma 1."""

    alpha: float
    tau: float
    shift_invariant = False  # Block.shift is part of the loss

    def __call__(self, z: Tensor) -> Tensor:
        return alpha_relu(z, self.alpha, self.tau)

    def block(self, z: Tensor) -> Block:
        shift = self.tau / (self.alpha - 1.0)
        if not on_host(z):  # a list has a length that the host would wait for
            top = z.amax(1, keepdim=True)
            return self._whole_rows(z, top, double=False)._replace(again=(top,))
        if z.shape[1] <= 2 * CHUNK:
            return self._whole_rows(z, z.amax(1, keepdim=True), double=True)
        chunks = chunk_maxima(z)
        top = chunks[0].amax(1, keepdim=True)
        bound = round_down(torch.full_like(top, shift, dtype=torch.float64), z.dtype)
        if is_dense(z, bound):
            return self._whole_rows(z, top, double=False)._replace(again=(top,))
        if not bool((top < float("inf")).all()):  # NaN or +inf
            return self._whole_rows(z, top, double=True)
        row, col, value = entries_above(z, bound, chunks)
        gap = self._gap(value.double())
        p = power(gap, 1.0 / (self.alpha - 1.0))
        conjugate = torch.zeros_like(top, dtype=torch.float64)
        conjugate.view(-1).index_add_(0, row, p * gap / self.alpha)  # p·gap = p^α
        return Block(p, col, conjugate, shift, top, row=row)

    def _whole_rows(self, z: Tensor, top: Tensor, double: bool) -> Block:
        gap = self._gap(z.double() if double else z.to(alpha_relu_dtype(z.dtype, self.alpha)))
        p = self._scores(gap, top)
        conjugate = (p * gap).sum(1, keepdim=True).double() / self.alpha
        return Block(p, None, conjugate, self.tau / (self.alpha - 1.0), top)

    def _gap(self, z: Tensor) -> Tensor:
        return (z * (self.alpha - 1.0)).sub_(self.tau).clamp_(min=0.0)

    def _scores(self, gap: Tensor, top: Tensor) -> Tensor:
        p = power(gap, 1.0 / (self.alpha - 1.0))
        return p.masked_fill(top.isnan() | (top == float("inf")), float("nan"))

    def dense_scores(self, z: Tensor, top: Tensor) -> Tensor:
        wide = z.to(alpha_relu_dtype(z.dtype, self.alpha))
        return self._scores(self._gap(wide), top).to(z.dtype)

    def negentropy(self, q: Tensor) -> Tensor:
        return q.pow(self.alpha).sum(-1, keepdim=True) / (self.alpha * (self.alpha - 1.0))

    def with_alpha(self, alpha: Tensor | None) -> "AlphaReLUMapping":
        return self  # α is a number here

    def of_rows(self, rows: slice | Tensor) -> "AlphaReLUMapping":
        return self


Mapping = EntmaxMapping | AlphaReLUMapping


# --- targets --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """q for every row: (1−ε)e_y + ε/V for class indices y, or given rows of probabilities."""

    index: Tensor | None  # int64 [rows]
    rows: Tensor | None  # [rows, classes]
    smoothing: float
    classes: int

    def dense(self, dtype: torch.dtype) -> Tensor:
        if self.rows is not None:
            q = self.rows.to(dtype)
            return q.lerp(torch.full_like(q, 1 / self.classes), self.smoothing)
        assert self.index is not None
        q = F.one_hot(self.index, self.classes).to(dtype)
        return q * (1 - self.smoothing) + self.smoothing / self.classes

    def likeliest(self) -> Tensor:
        """The class that counts as the right one."""
        if self.rows is not None:
            return self.rows.argmax(1)
        assert self.index is not None
        return self.index

    def of_rows(self, rows: slice | Tensor) -> "Target":
        return Target(
            None if self.index is None else self.index[rows],
            None if self.rows is None else self.rows[rows],
            self.smoothing,
            self.classes,
        )

    def score(self, z: Tensor, shift: Tensor | float) -> Tensor:
        """qᵀ(z − shift) [rows, 1] in float64, without what q = 0 multiplies."""
        if self.rows is not None:
            q = self.dense(torch.float64)
            return (q * (z.double() - shift).where(q != 0, 0.0)).sum(1, keepdim=True)
        assert self.index is not None
        at_target = z.gather(1, self.index[:, None]).double() - shift
        if not self.smoothing:
            return at_target
        mean = z.mean(1, keepdim=True, dtype=torch.float64) - shift
        return (1 - self.smoothing) * at_target + self.smoothing * mean

    def negentropy(self, mapping: Mapping) -> Tensor | float:
        """Ω(q) [rows, 1] (or one value for all rows)."""
        if self.rows is not None:
            return mapping.negentropy(self.dense(torch.float64))
        rest = self.smoothing / self.classes
        device = self.index.device if self.index is not None else None
        # Not torch.tensor: a copy from the host waits for the device.
        q = torch.full((1, 1), 1 - self.smoothing + rest, dtype=torch.float64, device=device)
        value = mapping.negentropy(q)
        if self.smoothing:
            value = value + (self.classes - 1) * mapping.negentropy(torch.full_like(q, rest))
        return value

    def subtract_from(self, p: Tensor) -> None:
        """p −= q in place."""
        if self.rows is not None:
            for rows in row_blocks(p):
                p[rows] -= self.of_rows(rows).dense(p.dtype)
            return
        assert self.index is not None
        if self.smoothing:
            p -= self.smoothing / self.classes
        at = self.index[:, None]
        p.scatter_add_(1, at, torch.full_like(at, self.smoothing - 1, dtype=p.dtype))


# --- the loss -------------------------------------------------------------------------------


class Forward(NamedTuple):
    """What a forward pass over blocks of rows leaves for the backward pass."""

    loss: Tensor  # float64 [rows], 0 for rows that do not count
    slope: Tensor | None  # float64 [rows], dL/dα where it is wanted
    flat: Tensor  # int64 [n], row · classes + column of p ≠ 0, row by row
    value: Tensor  # [n], p there
    dense: list  # (rows, what p is computed from) of the blocks that are not in ``flat``
    fields: tuple[Tensor, ...]  # of RowStats, where they are wanted


def forward_blocks(
    blocks: Iterable[tuple[slice, Tensor]],
    mapping: Mapping,
    target: Target,
    live: Tensor,
    slope_wanted: bool,
    stats_wanted: bool,
    uncounted: Tensor | None,
) -> Forward:
    """The losses of blocks of scores, each given with the rows that it holds."""
    losses, slopes, supports, stats, dense = [], [], [], [], []
    for rows, z in blocks:
        q, own = target.of_rows(rows), mapping.of_rows(rows)
        block = own.block(z)
        losses.append(block_loss(z, block, own, q))
        if slope_wanted:
            slopes.append(block_slope(block, own, q))
        if block.again is None:
            row, col, value = block_support(block, live[rows])
            supports.append(((row + rows.start) * z.shape[1] + col, value.to(z.dtype)))
        else:
            dense.append((rows, block.again))
        if stats_wanted:
            stats.append(block_stats(z, block, own, q, uncounted))
    nothing = (live.new_empty(0, dtype=torch.int64), losses[0].new_empty(0, dtype=z.dtype))
    flat, value = (torch.cat(part) for part in zip(*supports or [nothing], strict=True))
    return Forward(
        torch.cat(losses).masked_fill(~live, 0.0),
        torch.cat(slopes) if slopes else None,
        flat,
        value,
        dense,
        tuple(torch.cat(part) for part in zip(*stats, strict=True)),
    )


def block_loss(z: Tensor, block: Block, mapping: Mapping, target: Target) -> Tensor:
    """The loss of each row, float64 [rows]."""
    loss = block.conjugate - target.score(z, block.shift) + target.negentropy(mapping)
    if target.rows is not None and mapping.shift_invariant:  # weights that do not sum to 1
        loss = loss + block.shift * (1.0 - target.dense(torch.float64).sum(1, keepdim=True))
    return loss.squeeze(1)


def block_slope(block: Block, mapping: Mapping, target: Target) -> Tensor:
    """dL/dα of every row: by the envelope theorem p may be held fixed."""
    slope = _tsallis.entropy_slope(block.p.double(), mapping.alpha)
    if target.rows is not None or target.smoothing:
        slope = slope - _tsallis.entropy_slope(target.dense(torch.float64), mapping.alpha)
    return slope.squeeze(1)


def block_support(block: Block, live: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(row, column, value) of p ≠ 0 in rows that count. NaN is not zero, so NaN rows are in it."""
    inside = block.p != 0
    if block.row is not None and block.col is not None:
        if live is not None:
            inside &= live[block.row]
        at = inside.nonzero().squeeze(1)
        row, col, p = (part.index_select(0, at) for part in (block.row, block.col, block.p))
        return row, col, p
    if live is not None:
        inside &= live[:, None]
    at = inside.reshape(-1).nonzero().squeeze(1)
    row = at // inside.shape[1]
    if block.col is None:
        col = at - row * inside.shape[1]
    else:
        col = block.col.reshape(-1).index_select(0, at)
    return row, col, block.p.reshape(-1).index_select(0, at)


def block_stats(
    z: Tensor, block: Block, mapping: Mapping, target: Target, uncounted: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fields of RowStats for a block of rows."""
    index = target.likeliest()[:, None]
    counted = block.p != 0
    if block.col is not None and uncounted is not None:
        countable = torch.ones(z.shape[1], dtype=torch.bool, device=z.device)
        countable[uncounted] = False
        counted &= countable[block.col]
    elif uncounted is not None:
        counted.index_fill_(1, uncounted, False)
    if block.row is not None:
        support = torch.bincount(block.row[counted], minlength=len(z))
        total = torch.zeros(len(z), dtype=block.p.dtype, device=z.device)
        total.index_add_(0, block.row, block.p)
        assert isinstance(mapping, AlphaReLUMapping)
        score = mapping.dense_scores(z.gather(1, index), block.max).squeeze(1)
    else:
        support, total = counted.sum(1), block.p.sum(1)
        if block.col is None:
            score = block.p.gather(1, index).squeeze(1)
        else:
            score = block.p.where(block.col == index, 0.0).sum(1)
    correct = z.gather(1, index) == block.max.to(z.dtype)
    return support, total.to(z.dtype), score.to(z.dtype), correct.squeeze(1)


class _FenchelYoung(torch.autograd.Function):
    """Loss of every row [rows], and the fields of ``RowStats``, from scores [rows, classes]."""

    @staticmethod
    def forward(ctx, z, alpha_rows, mapping, target, live, uncounted, stats_wanted):
        dtype = _checks.compute_dtype(z.dtype)
        blocks = ((rows, z[rows].to(dtype)) for rows in row_blocks(z))
        slope_wanted = ctx.needs_input_grad[1]
        done = forward_blocks(blocks, mapping, target, live, slope_wanted, stats_wanted, uncounted)
        ctx.mapping, ctx.target, ctx.dense = mapping, target, done.dense
        # Soft targets are saved so that torch complains if they change before the backward pass.
        saved = (z, alpha_rows, done.flat, done.value, done.slope, live)
        ctx.save_for_backward(*saved, target.rows)
        ctx.mark_non_differentiable(*done.fields)
        return (done.loss.to(dtype), *done.fields)

    @staticmethod
    def backward(ctx, upstream, *_):
        z, alpha_rows, flat, value, slope, live, _ = ctx.saved_tensors
        upstream = upstream * live
        if torch.is_grad_enabled():
            grads = _differentiable_backward(ctx, z, alpha_rows, upstream, live)
        else:
            grad_z = grad_alpha = None
            if ctx.needs_input_grad[0]:
                grad_z = _gradient(z, flat, value, ctx, upstream, live)
            if ctx.needs_input_grad[1]:
                grad_alpha = alpha_gradient(slope, upstream, live)
            grads = grad_z, grad_alpha
        return (*grads, None, None, None, None, None)


def alpha_gradient(slope: Tensor, upstream: Tensor, live: Tensor) -> Tensor:
    return (upstream.double() * slope.masked_fill(~live, 0.0))[:, None]


def _gradient(z, flat, value, ctx, upstream, live):
    """upstream · (p − q), dense. The difference is rounded to half precision, not what cancels."""
    target, dense = ctx.target, ctx.dense
    if target.rows is None:
        grad = _sparse_gradient(z, flat, value, target, upstream)
    else:
        grad = torch.empty(z.shape, dtype=z.dtype, device=z.device)
        dense = [*dense, *_listed_blocks(z, dense)]
    for rows, again in dense:
        if again is None:
            p = _listed_scores(rows, z.shape[1], flat, value)
        else:
            p = ctx.mapping.dense_scores(z[rows].to(upstream.dtype), *again)
        target.of_rows(rows).subtract_from(p)
        torch.mul(p, upstream[rows, None], out=grad[rows])
    if len(value) and bool(value.isnan().any()):
        grad[flat[value.isnan()] // z.shape[1]] = float("nan")
    return grad.masked_fill_(~live[:, None], 0.0)


def _sparse_gradient(z, flat, value, target, upstream):
    """The gradient for class indices, written once: q's constant part, then p, then q's peak."""
    classes = z.shape[1]
    rest = target.smoothing / classes
    if rest:
        grad = (-upstream * rest)[:, None].to(z.dtype).expand(z.shape).contiguous()
    else:
        grad = torch.zeros_like(z, memory_format=torch.contiguous_format)
    row = flat // classes
    difference = value - rest if rest else value
    grad.view(-1)[flat] = (upstream[row] * difference).to(z.dtype)
    at = target.index + torch.arange(len(z), device=z.device) * classes
    if z.dtype == upstream.dtype:
        grad.view(-1)[at] -= upstream * (1 - target.smoothing)
        return grad
    p = torch.zeros_like(upstream).index_add_(0, row, value.where(flat == at[row], 0.0))
    grad.view(-1)[at] = (upstream * (p - (1 - target.smoothing + rest))).to(z.dtype)
    return grad


def _listed_blocks(z: Tensor, dense: list) -> list:
    """The blocks of rows whose p is in the list, as (rows, None)."""
    others = {rows.start for rows, _ in dense}
    return [(rows, None) for rows in row_blocks(z) if rows.start not in others]


def _listed_scores(rows: slice, classes: int, flat: Tensor, value: Tensor) -> Tensor:
    """p of a block of rows, dense, from the list."""
    ends = torch.tensor([rows.start * classes, rows.stop * classes], device=flat.device)
    own = slice(*torch.searchsorted(flat, ends).tolist())
    p = value.new_zeros(rows.stop - rows.start, classes)
    p.view(-1)[flat[own] - rows.start * classes] = value[own]
    return p


def _differentiable_backward(ctx, z, alpha_rows, upstream, live):
    """The same gradients as plain torch on z and α, for a second derivative."""
    dtype = upstream.dtype
    mapping = ctx.mapping.with_alpha(alpha_rows)
    # Before the mapping too: of a NaN row the mapping's own gradient would be 0 · NaN.
    ignored = ~live[:, None]
    p = mapping(z.to(dtype).masked_fill(ignored, 0.0)).masked_fill(ignored, 0.0)
    q = ctx.target.dense(dtype)
    grad_z = (upstream[:, None] * (p - q)).to(z.dtype)
    grad_alpha = None
    if alpha_rows is not None:
        slope = _tsallis.entropy_slope(p.double(), alpha_rows)
        slope = slope - _tsallis.entropy_slope(q.double(), alpha_rows)
        grad_alpha = upstream[:, None].double() * slope
    return grad_z, grad_alpha


def empty_loss(loss: Tensor, mapping: Mapping, *inputs: Tensor | None) -> Tensor:
    """No rows, but a graph: everything that could get a gradient gets zeros."""
    for tensor in (mapping.alpha, *inputs):
        if isinstance(tensor, Tensor):
            loss = loss + 0.0 * tensor.sum()
    return loss


def reduce_loss(loss: Tensor, live: Tensor, reduction: str, shape: torch.Size) -> Tensor:
    if reduction == "none":
        return loss.view(shape)
    if reduction == "sum":
        return loss.sum()
    # Nothing to average is 0, not NaN: a batch of padding must not end a training run.
    return loss.sum() / live.sum().clamp(min=1)


@dataclass(frozen=True)
class Options:
    """What all losses take, as in :func:`torch.nn.functional.cross_entropy`."""

    reduction: str = "mean"
    ignore_index: int = -100
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        _checks.check_choice("reduction", self.reduction, _checks.REDUCTIONS)
        if not 0.0 <= self.label_smoothing <= 1.0:
            raise ValueError(f"label_smoothing must be in [0, 1], got {self.label_smoothing}")


def read_target(target: Tensor, shape: torch.Size, options: Options) -> tuple[Target, Tensor]:
    """q for scores of ``shape``, and which of the rows count."""
    classes, rows = shape[-1], shape[:-1].numel()
    smoothing, ignore_index = options.label_smoothing, options.ignore_index
    if target.dtype.is_floating_point and target.shape == shape:
        if target.requires_grad:
            raise ValueError("soft targets get no gradient: detach them")
        everything = torch.ones(rows, dtype=torch.bool, device=target.device)
        return Target(None, target.reshape(rows, classes), smoothing, classes), everything
    _checks.check_target(target, shape)
    target = target.long()  # before comparing: −100 is 156 in uint8
    if on_host(target):  # elsewhere the device complains
        _checks.check_range(target, classes, ignore_index)
    live = (target != ignore_index).reshape(rows)
    index = target.reshape(rows).masked_fill(~live, 0)
    return Target(index, None, smoothing, classes), live


def fenchel_young_loss(
    z: Tensor,
    target: Tensor,
    mapping: Mapping,
    options: Options,
    stats_wanted: bool = False,
    uncounted: Tensor | None = None,
) -> tuple[Tensor, RowStats | None]:
    """The loss of a mapping, reduced, and RowStats where wanted."""
    if z.dim() == 0 or z.shape[-1] == 0:
        raise ValueError(f"scores need at least one class, got shape {tuple(z.shape)}")
    dtype, leading = _checks.compute_dtype(z.dtype), z.shape[:-1]
    q, live = read_target(target, z.shape, options)
    rows = z.reshape(len(live), z.shape[-1])
    if len(rows):
        alpha_rows = mapping.alpha if isinstance(mapping.alpha, Tensor) else None
        detached = mapping.with_alpha(None if alpha_rows is None else alpha_rows.detach())
        loss, *fields = _FenchelYoung.apply(
            rows, alpha_rows, detached, q, live, uncounted, stats_wanted
        )
    else:
        loss = empty_loss(rows.to(dtype).sum(1), mapping)
        fields = [live.long(), loss.detach(), loss.detach(), live]
    stats = RowStats(*(part.view(leading) for part in fields)) if stats_wanted else None
    return reduce_loss(loss, live, options.reduction, leading), stats


# --- what users call ------------------------------------------------------------------------


def alpha_relu_mapping(alpha: float, tau: float) -> AlphaReLUMapping:
    alpha, tau = _checks.check_constant("alpha", alpha), _checks.check_constant("tau", tau)
    _checks.check_alpha(alpha, strict=True)
    _checks.check_tau(tau)
    return AlphaReLUMapping(alpha, tau)


def entmax_mapping(
    rows: torch.Size, alpha: Alpha, solver: str, topk: int, n_iter: int
) -> EntmaxMapping:
    _checks.check_alpha(alpha)
    _checks.check_solver(solver, topk, n_iter)
    solver_options = {"solver": solver, "topk": topk, "n_iter": n_iter}
    return EntmaxMapping(_checks.alpha_per_row(alpha, rows), solver_options)


def alpha_relu_loss(
    z: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    tau: float = 0.0,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The loss of SE Eq. 2, with gradient α-ReLU(z) − q (Lemma 1).

    Parameters
    ----------
    z
        Scores, classes in the last dimension.
    target
        Class indices with the leading shape of z, or non-negative weights q with its shape.
    alpha, tau
        α > 1 and the constant threshold τ of α-ReLU.
    reduction, ignore_index, label_smoothing
        As in :func:`torch.nn.functional.cross_entropy`, with q = (1−ε)e_y + ε/V. The mean over
        no target at all is 0.

    Returns
    -------
    Tensor
        float32 (float64 for float64 scores). At least 0, and 0 exactly when p = q.

    >>> alpha_relu_loss(torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([0]))
    tensor(0.4167)
    """
    options = Options(reduction, ignore_index, label_smoothing)
    return fenchel_young_loss(z, target, alpha_relu_mapping(alpha, tau), options)[0]


def alpha_relu_loss_with_stats(
    z: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    tau: float = 0.0,
    *,
    uncounted: Tensor | None = None,
    **options,
) -> tuple[Tensor, RowStats]:
    """:func:`alpha_relu_loss`, and :class:`RowStats` of the scores."""
    mapping = alpha_relu_mapping(alpha, tau)
    loss, stats = fenchel_young_loss(z, target, mapping, Options(**options), True, uncounted)
    assert stats is not None
    return loss, stats


def entmax_loss(
    z: Tensor,
    target: Tensor,
    alpha: Alpha = 1.5,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    solver: str = "auto",
    topk: int = 100,
    n_iter: int = 50,
) -> Tensor:
    """The α-entmax loss of S2S Eq. 11, with gradient α-entmax(z) − q; α = 1 is cross-entropy.

    ``alpha`` may be a tensor that broadcasts to ``z.shape[:-1] + (1,)``; it receives a gradient.
    ``solver``, ``topk`` and ``n_iter`` as in :func:`entmax`; the rest as in
    :func:`alpha_relu_loss`. With soft or smoothed targets the loss includes −H(q), so that 0
    means p = q.

    >>> entmax_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]), alpha=2.0)
    tensor(0.0625)
    """
    mapping = entmax_mapping(z.shape[:-1], alpha, solver, topk, n_iter)
    options = Options(reduction, ignore_index, label_smoothing)
    return fenchel_young_loss(z, target, mapping, options)[0]


def entmax_loss_with_stats(
    z: Tensor,
    target: Tensor,
    alpha: Alpha = 1.5,
    *,
    solver: str = "auto",
    topk: int = 100,
    n_iter: int = 50,
    uncounted: Tensor | None = None,
    **options,
) -> tuple[Tensor, RowStats]:
    """:func:`entmax_loss`, and :class:`RowStats` of the probabilities."""
    mapping = entmax_mapping(z.shape[:-1], alpha, solver, topk, n_iter)
    loss, stats = fenchel_young_loss(z, target, mapping, Options(**options), True, uncounted)
    assert stats is not None
    return loss, stats


def sparsemax_loss(z: Tensor, target: Tensor, **options) -> Tensor:
    """The sparsemax loss: :func:`entmax_loss` with α = 2, and its options.

    >>> sparsemax_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
    tensor(0.0625)
    """
    return entmax_loss(z, target, 2.0, **options)
