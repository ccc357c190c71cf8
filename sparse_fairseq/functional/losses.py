"""The losses whose gradient is p − q: α-ReLU loss (SE Eq. 2), α-entmax loss (S2S Eq. 11).

All are Fenchel-Young losses, Ω*(z) + Ω(q) − qᵀz. Here are their arguments, reductions and autograd;
the routes (see ``_routes``) compute losses and gradients of rows.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _checks, _tsallis
from ._looking import may_look
from ._problem import Alpha, AlphaReLUMapping, EntmaxMapping, Mapping, RowStats, Target, Wanted
from ._routes import route, route_name
from .mappings import NUMBER, alpha_relu, entmax, fold, samples

# What a loss returns: a Tensor, or with ``return_stats`` a pair of it and RowStats.
Loss = Any


@dataclass(frozen=True)
class Options:
    """What all losses take, as in :func:`torch.nn.functional.cross_entropy`, and statistics."""

    reduction: str = "mean"
    ignore_index: int = -100
    label_smoothing: float = 0.0
    weight: Tensor | None = None  # of classes
    return_stats: bool = False
    counted: Tensor | None = None

    def __post_init__(self) -> None:
        _checks.check_choice("reduction", self.reduction, _checks.REDUCTIONS)
        object.__setattr__(self, "label_smoothing", _checks.number(self.label_smoothing))
        if not 0.0 <= self.label_smoothing <= 1.0:
            raise ValueError(f"label_smoothing must be in [0, 1], got {self.label_smoothing}")
        if self.counted is not None and not self.return_stats:
            raise ValueError("counted is an option of return_stats=True")


# --- targets --------------------------------------------------------------------------------


class Rows(NamedTuple):
    """What the rows of scores are compared with."""

    target: Target
    live: Tensor  # bool [rows]: which count
    scale: Tensor  # float64 [rows]: what each loss is multiplied with; 0 for those that do not


def read_target(target: Tensor, shape: torch.Size, options: Options) -> Rows:
    """q for scores of ``shape``, classes last; and how much each row counts."""
    _checks.check_counted(options.counted, shape[-1])
    q, live = _target_and_live(target, shape, options)
    wide = torch.float32 if target.device.type == "mps" else torch.float64
    counts = live.to(wide)
    divisor = counts.sum() if options.reduction == "mean" else None
    scale = counts
    if options.weight is not None:
        q, scale = _weighted(q, counts, _checks.class_weight(options.weight, shape[-1], wide))
        if divisor is not None and q.rows is None:
            divisor = scale.sum()
        elif divisor is not None and target.shape != shape:  # smoothed classes
            index = target.reshape(-1).long().where(live, 0)
            divisor = (counts * options.weight.to(wide)[index]).sum()
    if divisor is not None:
        # Nothing to average is 0, not NaN: a batch of padding must not end a training run.
        scale = scale / divisor.where(divisor > 0, 1.0)
    return Rows(q, live, scale)


def _target_and_live(target: Tensor, shape: torch.Size, options: Options) -> tuple[Target, Tensor]:
    classes, rows = shape[-1], shape[:-1].numel()
    smoothing, ignore_index = options.label_smoothing, options.ignore_index
    if target.dtype.is_floating_point and target.shape == shape:
        if target.requires_grad:
            raise ValueError("soft targets get no gradient: detach them")
        everything = torch.ones(rows, dtype=torch.bool, device=target.device)
        return Target(None, target.reshape(rows, classes), smoothing, classes), everything
    _checks.check_target(target, shape)
    target = target.long()  # before comparing: −100 is 156 in uint8
    if may_look(target):  # elsewhere the device complains
        _checks.check_range(target, classes, ignore_index)
    live = (target != ignore_index).reshape(rows)
    index = target.reshape(rows).masked_fill(~live, 0)
    return Target(index, None, smoothing, classes), live


def _weighted(q: Target, counts: Tensor, weight: Tensor) -> tuple[Target, Tensor]:
    """Σ w·q times the loss for w·q/Σ w·q, which is what weighted cross-entropy is: p − q becomes
    (Σ w·q)p − w·q."""
    if q.index is not None and not q.smoothing:
        return q, counts * weight[q.index]
    rows = q.dense(weight.dtype) * weight
    total = rows.sum(1, keepdim=True)
    rows = rows / total.where(total > 0, 1.0)
    return Target(None, rows, 0.0, q.classes), counts * total.squeeze(1)


# --- autograd -------------------------------------------------------------------------------


class Call(NamedTuple):
    """What a loss is told beside tensors."""

    mapping: Mapping  # with NUMBER for an α that is a tensor
    smoothing: float
    route: str
    reduce: bool  # to Σ scale · loss
    gradient: bool  # whether there can be a backward pass
    slope: bool
    stats: bool


class _FenchelYoung(torch.autograd.Function):
    """Of scores [rows, classes]: Σ scale · loss or its terms; notes for the backward pass; dL/dα;
    the fields of RowStats, if wanted; the tensors that the backward pass needs."""

    @staticmethod
    def forward(z, alpha_rows, scale, live, index, soft, counted, call):
        target = Target(index, soft, call.smoothing, z.shape[1])
        early = scale if call.reduce and not torch.compiler.is_compiling() else None
        wanted = Wanted(call.gradient, call.slope, call.stats, counted, scale=early)
        mapping = call.mapping.with_alpha(alpha_rows)
        done = route(call.route).losses(z, mapping, target, live, wanted)
        loss = done.loss * scale.to(done.loss.dtype)
        loss = (loss.sum() if call.reduce else loss).to(_checks.compute_dtype(z.dtype))
        return loss, done.notes, done.slope, *(done.stats or ()), *done.kept

    @staticmethod
    def setup_context(ctx, inputs, output):
        z, alpha_rows, scale, live, index, soft, _, ctx.call = inputs
        _, ctx.notes, slope, *others = output
        kept = others[4:] if ctx.call.stats else others
        # Soft targets are saved so that torch complains if they change before the backward pass.
        ctx.save_for_backward(z, alpha_rows, scale, live, index, soft, slope, *kept)
        ctx.mark_non_differentiable(*(part for part in (slope, *others) if part is not None))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, upstream, *_):
        z, alpha_rows, scale, live, index, soft, slope, *kept = ctx.saved_tensors
        nothing = (None,) * 6
        if upstream is None:
            return None, None, *nothing
        call = ctx.call
        scale = upstream.to(scale.dtype) * scale
        target = Target(index, soft, call.smoothing, z.shape[1])
        mapping = call.mapping.with_alpha(alpha_rows)
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return *_differentiable(z, mapping, target, scale, live), *nothing
        grad_z = grad_alpha = None
        if ctx.needs_input_grad[0]:
            backward = route(call.route).gradient
            grad_z = backward(z, mapping, target, tuple(kept), ctx.notes, scale)
        if ctx.needs_input_grad[1]:
            grad_alpha = alpha_gradient(slope, scale, live)
        return grad_z, grad_alpha, *nothing

    @staticmethod
    def vmap(info, in_dims, *inputs):
        """Rows are independent of each other: those of all samples are one batch."""
        *tensors, counted, call = inputs
        folded = [fold(part, dim, info) for part, dim in zip(tensors, in_dims, strict=False)]
        each = call._replace(reduce=False)
        loss, _, *others = _FenchelYoung.apply(*folded, counted, each)
        others = others[: 5 if call.stats else 1]  # what was kept is not by rows
        others = [part if part is None else samples(part, info) for part in others]
        loss = samples(loss, info)
        loss = loss.sum(1) if call.reduce else loss
        return (loss, None, *others), (0, None, *(None if part is None else 0 for part in others))


def alpha_gradient(slope: Tensor, scale: Tensor, live: Tensor) -> Tensor:
    return (scale * slope.to(scale.dtype).where(live, 0.0))[:, None]


def _differentiable(z, mapping, target, scale, live):
    """The gradients as plain torch on z and α, for a second derivative and for torch.func."""
    dtype = _checks.compute_dtype(z.dtype)
    # Before the mapping too: of a NaN row the mapping's own gradient would be 0 · NaN.
    ignored = ~live[:, None]
    scores = z.to(dtype).masked_fill(ignored, 0.0)
    if isinstance(mapping, AlphaReLUMapping):
        p = alpha_relu(scores, mapping.alpha, mapping.tau)
    else:
        topk = mapping.topk if mapping.solver == "topk" else None
        n_iter = mapping.n_iter if mapping.solver == "bisect" else None
        p = entmax(scores, mapping.alpha, -1, mapping.solver, topk, n_iter)
    p = p.masked_fill(ignored, 0.0)
    q = target.dense(dtype)
    grad_z = (scale[:, None].to(dtype) * (p - q)).to(z.dtype)
    grad_alpha = None
    if isinstance(mapping.alpha, Tensor):
        slope = _tsallis.entropy_slope(p.double(), mapping.alpha)
        slope = slope - _tsallis.entropy_slope(q.double(), mapping.alpha)
        grad_alpha = scale[:, None] * slope
    return grad_z, grad_alpha


def empty_loss(mapping: Mapping, options: Options, dtype, *inputs: Tensor | None) -> Loss:
    """No rows, but a graph: everything that could get a gradient gets zeros. ``inputs`` begin with
    the scores or states, whose leading shape the result has."""
    first = inputs[0]
    assert first is not None
    loss = first.to(dtype).sum(-1)
    live = torch.zeros(loss.shape, dtype=torch.bool, device=loss.device)
    stats = RowStats(live.long(), loss.detach(), loss.detach(), live)
    loss = loss if options.reduction == "none" else loss.sum()
    for tensor in (mapping.alpha, *inputs[1:]):
        if isinstance(tensor, Tensor):
            loss = loss + 0.0 * tensor.sum()
    return (loss, stats) if options.return_stats else loss


def split_alpha(mapping: Mapping) -> tuple[Tensor | None, Mapping]:
    """An α to differentiate for, and the mapping without it."""
    if isinstance(mapping, EntmaxMapping) and isinstance(mapping.alpha, Tensor):
        return mapping.alpha, replace(mapping, alpha=NUMBER)
    return None, mapping


def fenchel_young_loss(z: Tensor, target: Tensor, mapping: Mapping, options: Options) -> Loss:
    """The loss of a mapping for scores with classes last."""
    leading = z.shape[:-1]
    if z.numel() == 0:
        read_target(target, z.shape, options)
        return empty_loss(mapping, options, _checks.compute_dtype(z.dtype), z)
    q, live, scale = read_target(target, z.shape, options)
    rows = z if z.dim() == 2 else z.reshape(-1, z.shape[-1])
    alpha_rows, plain = split_alpha(mapping)
    enabled = torch.is_grad_enabled()
    slope = enabled and alpha_rows is not None and alpha_rows.requires_grad
    call = Call(
        plain,
        q.smoothing,
        route_name("losses", rows, mapping),
        reduce=options.reduction != "none",
        gradient=enabled and z.requires_grad,
        slope=slope,
        stats=options.return_stats,
    )
    loss, _, _, *others = _FenchelYoung.apply(
        rows, alpha_rows, scale, live, q.index, q.rows, options.counted, call
    )
    loss = loss.view(leading) if options.reduction == "none" and len(leading) != 1 else loss
    if not options.return_stats:
        return loss
    return loss, RowStats(*(part.view(leading) for part in others[:4]))


# --- what users call ------------------------------------------------------------------------


def alpha_relu_mapping(alpha: float, tau: float | None) -> AlphaReLUMapping:
    if tau is None:  # no default: which τ is right depends on the scale of the scores
        raise ValueError("alpha-ReLU needs tau: batch_tau(logits) measures one before training")
    alpha, tau = _checks.check_constant("alpha", alpha), _checks.check_constant("tau", tau)
    _checks.check_alpha(alpha, strict=True)
    _checks.check_tau(tau)
    return AlphaReLUMapping(alpha, tau)


def entmax_mapping(
    rows: torch.Size, alpha: Alpha, solver: str, topk: int | None, n_iter: int | None
) -> EntmaxMapping:
    _checks.check_alpha(alpha)
    options = _checks.check_solver(solver, topk, n_iter)
    return EntmaxMapping(_checks.alpha_per_row(alpha, rows), **options)


def _classes_last(z: Tensor, target: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    if z.dim() == 0 or z.shape[dim] == 0:
        raise ValueError(f"scores need at least one class, got shape {tuple(z.shape)}")
    if target.dtype.is_floating_point and target.shape == z.shape:
        target = _checks.classes_last(target, dim)
    return _checks.classes_last(z, dim), target


def alpha_relu_loss(
    z: Tensor,
    target: Tensor,
    alpha: float = 1.5,
    tau: float | None = None,
    *,
    dim: int = -1,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    return_stats: bool = False,
    counted: Tensor | None = None,
) -> Loss:
    """The loss of SE Eq. 2, with gradient α-ReLU(z) − q (Lemma 1).

    Parameters
    ----------
    z
        Scores, classes in ``dim`` (the last; 1 for scores [N, C, L]).
    target
        Class indices with the shape of z without ``dim``, or non-negative weights q with its shape.
    alpha, tau
        α > 1 and the constant threshold τ of α-ReLU, which must be given: see ``batch_tau``.
    weight, reduction, ignore_index, label_smoothing
        As in :func:`torch.nn.functional.cross_entropy`, with q = (1−ε)e_y + ε/V. Class weights w
        make it (Σ w·q) times the loss for w·q/Σ w·q; with smoothing or soft targets this q is
        written out. The mean over no target at all is 0.
    return_stats, counted
        Return :class:`RowStats` of the scores, too; ``counted`` (bool [classes]) says which classes
        its support counts.

    Returns
    -------
    Tensor
        float32 (float64 for float64 scores). At least 0, and 0 exactly when p = q. Whatever it is
        multiplied with, the backward pass reads the logits at most once more.

    >>> alpha_relu_loss(torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([0]), tau=0.0)
    tensor(0.4167)
    """
    options = Options(reduction, ignore_index, label_smoothing, weight, return_stats, counted)
    mapping = alpha_relu_mapping(alpha, tau)
    return fenchel_young_loss(*_classes_last(z, target, dim), mapping, options)


def entmax_loss(
    z: Tensor,
    target: Tensor,
    alpha: Alpha = 1.5,
    *,
    dim: int = -1,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    solver: str = "auto",
    topk: int | None = None,
    n_iter: int | None = None,
    return_stats: bool = False,
    counted: Tensor | None = None,
) -> Loss:
    """The α-entmax loss of S2S Eq. 11, with gradient α-entmax(z) − q; α = 1 is cross-entropy.

    ``alpha`` may be a tensor with the shape of z without ``dim``, or one that broadcasts to that
    shape followed by 1; it receives a gradient. ``solver``, ``topk`` and ``n_iter`` as in
    :func:`entmax`; the rest as in :func:`alpha_relu_loss`. With soft or smoothed targets the loss
    includes −H(q), so that 0 means p = q.

    >>> entmax_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]), alpha=2.0)
    tensor(0.0625)
    """
    options = Options(reduction, ignore_index, label_smoothing, weight, return_stats, counted)
    z, target = _classes_last(z, target, dim)
    mapping = entmax_mapping(z.shape[:-1], alpha, solver, topk, n_iter)
    return fenchel_young_loss(z, target, mapping, options)


def sparsemax_loss(z: Tensor, target: Tensor, **options) -> Loss:
    """The sparsemax loss: :func:`entmax_loss` with α = 2, and its options.

    >>> sparsemax_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
    tensor(0.0625)
    """
    return entmax_loss(z, target, 2.0, **options)
