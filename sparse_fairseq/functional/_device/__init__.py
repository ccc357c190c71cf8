"""The route for other devices and for torch.compile: torch operations, no host sync.

``thresholds`` solves; this module makes mappings, losses and gradients of it. Whole rows are
computed with, and what the backward pass needs is kept, as cross-entropy keeps its softmax.
"""

import torch
from torch import Tensor

from .. import _checks, _tsallis
from .._problem import (
    AlphaReLUMapping,
    EntmaxMapping,
    Layer,
    LinearLosses,
    Losses,
    Mapping,
    RowStats,
    Target,
    Wanted,
)
from .thresholds import solve, wide_dtype

# Logits that the fused losses hold at a time.
CHUNK_ELEMENTS = 1 << 26
GROUP = 32  # columns that are summed first where many are


def entmax(z: Tensor, mapping: EntmaxMapping) -> Tensor:
    solved = solve(z, mapping)
    return solved.weight * solved.inverse


def entmax_backward(p: Tensor, grad: Tensor, alpha: float | Tensor, for_alpha: bool):
    return _tsallis.entmax_vjp(p, grad, alpha), (
        _tsallis.entmax_alpha_vjp(p, grad, alpha) if for_alpha else None
    )


# --- losses ---------------------------------------------------------------------------------


def losses(z: Tensor, mapping: Mapping, target: Target, live: Tensor, wanted: Wanted) -> Losses:
    z = z.to(_checks.compute_dtype(z.dtype))
    if isinstance(mapping, AlphaReLUMapping):
        return _alpha_relu_losses(z, mapping, target, live, wanted)
    return _entmax_losses(z, mapping, target, live, wanted)


def _entmax_losses(
    z: Tensor, mapping: EntmaxMapping, target: Target, live: Tensor, wanted: Wanted
) -> Losses:
    solved, alpha, wide = solve(z, mapping), mapping.alpha, wide_dtype(z)
    # pᵀz + H(p) without a sum of powers: at the largest score p^(α−1) tells τ.
    conjugate = -solved.log_peak * _tsallis.phi1((alpha - 1.0) * solved.log_peak)
    if isinstance(alpha, Tensor) or alpha != 1.0:
        conjugate = ((alpha - 1.0) * solved.score + conjugate) / alpha
    shift = solved.top.where(solved.top.isfinite(), 0.0).to(wide)
    loss = conjugate - target.score(z, shift, wide) + target.negentropy(mapping, wide)
    if target.rows is not None:  # weights that do not sum to 1
        loss = loss + shift * (1.0 - target.dense(wide).sum(1, keepdim=True))
    slope = None
    if wanted.slope:
        p = (solved.weight * solved.inverse).to(wide)
        slope = _tsallis.entropy_slope(p, alpha) - target.entropy_slope(alpha, wide)
        slope = slope.squeeze(1)
    stats = None
    if wanted.stats:
        ones = torch.ones_like(solved.inverse) + 0.0 * solved.inverse
        stats = _stats(z, solved.weight, solved.inverse, ones, solved.top, target, wanted)
    kept = (solved.weight, solved.inverse) if wanted.gradient else ()
    return Losses(_of_live(loss, live), slope, stats, kept)


def _alpha_relu_losses(
    z: Tensor, mapping: AlphaReLUMapping, target: Target, live: Tensor, wanted: Wanted
) -> Losses:
    alpha, tau, wide = mapping.alpha, mapping.tau, wide_dtype(z)
    top = z.amax(1, keepdim=True)
    z_wide = z.to(alpha_relu_dtype(z.dtype, alpha))
    broken = top.isnan() | (top == float("inf"))
    # (α−1)z − τ in one pass; see ``thresholds`` for fmax. Infinity − infinity is NaN, thus 0.
    floor = torch.where(broken, -float("inf"), z_wide.new_full((), -tau))
    gap = torch.add(floor, z_wide, alpha=alpha - 1.0)
    gap = torch.fmax(gap, gap.new_zeros(()))
    beta = 1.0 / (alpha - 1.0)
    conjugate = _power_sum(gap, beta + 1.0, wide) / alpha  # p·gap = p^α
    loss = conjugate - target.score(z, tau * beta, wide) + target.negentropy(mapping, wide)
    answer = torch.where(broken, float("nan"), 1.0).to(gap.dtype)
    stats = None
    if wanted.stats:
        total = _power_sum(gap, beta, wide) * answer
        stats = _stats(z, gap, answer, total, top, target, wanted, beta)
    kept = (gap, answer) if wanted.gradient else ()
    return Losses(_of_live(loss * answer, live), None, stats, kept)


def alpha_relu_dtype(dtype: torch.dtype, alpha: float) -> torch.dtype:
    """The power 1/(α−1) multiplies what rounding does to the gap: near 1 float32 would lose more
    than its last digits."""
    return torch.float64 if alpha < _checks.ALPHA_RELU_DOUBLE_BELOW else dtype


def _power_sum(gap: Tensor, exponent: float, wide: torch.dtype) -> Tensor:
    """Σ gap^exponent [rows, 1]: a norm of norms, because one over thousands of terms is added up in
    order by some devices, and rounds."""
    full = gap.shape[1] // GROUP * GROUP
    norms = torch.linalg.vector_norm(gap[:, :full].unflatten(1, (GROUP, -1)), exponent, dim=1)
    norms = norms if full == gap.shape[1] else torch.cat([norms, gap[:, full:]], 1)
    norm = torch.linalg.vector_norm(norms, exponent, dim=1, keepdim=True)
    return norm.to(wide).pow(exponent)


def _of_live(loss: Tensor, live: Tensor) -> Tensor:
    return loss.squeeze(1).where(live, 0.0)


def _stats(
    z: Tensor,
    weight: Tensor,
    factor: Tensor,
    total: Tensor,
    top: Tensor,
    target: Target,
    wanted: Wanted,
    power: float = 1.0,
) -> RowStats:
    """Of p = weight^power · factor. NaN is not zero: it counts."""
    index = target.likeliest()[:, None]
    inside = (weight != 0) | factor.isnan()
    if wanted.counted is not None:
        inside = inside & wanted.counted
    score = weight.gather(1, index).pow(power) * factor
    correct = z.gather(1, index) == top
    parts = (inside.sum(1, keepdim=True), total.to(z.dtype), score.to(z.dtype), correct)
    return RowStats(*(part.squeeze(1) for part in parts))


def gradient(
    z: Tensor, mapping: Mapping, target: Target, kept: tuple[Tensor, ...], notes, scale: Tensor
) -> Tensor:
    weight, factor = kept
    scale = scale.to(weight.dtype)[:, None]
    factor = torch.where(scale == 0, 0.0, scale * factor)
    if isinstance(mapping, AlphaReLUMapping):
        grad = _alpha_relu_weight(weight, mapping).mul_(factor)
    else:
        grad = weight * factor
    return _minus_target(grad, target, scale).to(z.dtype)


def _alpha_relu_weight(gap: Tensor, mapping: AlphaReLUMapping) -> Tensor:
    beta = 1.0 / (mapping.alpha - 1.0)
    return gap.square() if beta == 2.0 else gap.pow(beta)


def _minus_target(grad: Tensor, target: Target, scale: Tensor) -> Tensor:
    """grad − scale · q"""
    if target.rows is not None:
        return grad.sub_(target.dense(grad.dtype).mul_(scale))
    assert target.index is not None
    if target.smoothing:
        grad = grad.sub_(scale * (target.smoothing / target.classes))
    return grad.scatter_add_(1, target.index[:, None], scale * (target.smoothing - 1))


# --- the output layer fused with a loss ---------------------------------------------------------


def _chunks(rows: int, classes: int) -> list[slice]:
    """Rows whose logits are held at a time. Of a traced call all: their number is a symbol, and
    each number of chunks would be a graph of its own."""
    if torch.compiler.is_compiling():
        return [slice(0, rows)]
    size = max(1, CHUNK_ELEMENTS // classes)
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]


def _logits(layer: Layer, rows: slice) -> Tensor:
    if layer.bias is None:
        return torch.mm(layer.h[rows], layer.weight.t())
    return torch.addmm(layer.bias, layer.h[rows], layer.weight.t())


def linear_losses(
    layer: Layer,
    mapping: Mapping,
    target: Target,
    live: Tensor,
    wanted: Wanted,
    scale: Tensor | None,
) -> LinearLosses:
    """With ``scale`` each chunk's gradients while its logits are at hand. Without it they are
    computed again in the backward pass."""
    layer = layer._replace(h=layer.h.where(live[:, None], 0.0))  # 0 · NaN in products of gradients
    now = wanted.gradient and scale is not None
    gradients = _Gradients(layer, wanted) if now else None
    done = []
    for rows in _chunks(len(layer.h), len(layer.weight)):
        z, own, q = _logits(layer, rows), mapping.of_rows(rows), target.of_rows(rows)
        part = losses(z, own, q, live[rows], wanted._replace(gradient=now))
        if gradients is not None and scale is not None:
            gradients.add(rows, *_factored(z, own, q, part.kept, scale[rows]))
        done.append(part._replace(kept=()))
    slopes = [part.slope for part in done if part.slope is not None]
    slope = torch.cat(slopes) if slopes else None
    stats = None
    if wanted.stats:
        parts = [part.stats for part in done if part.stats is not None]
        stats = RowStats(*map(torch.cat, zip(*parts, strict=True)))
    found = [] if gradients is None else gradients.found()
    return LinearLosses(torch.cat([part.loss for part in done]), slope, stats, found)


def linear_gradients(
    layer: Layer,
    mapping: Mapping,
    target: Target,
    kept: tuple[Tensor, ...],
    notes,
    scale: Tensor,
    wanted: Wanted,
) -> list[Tensor | None]:
    """In a second pass over the logits, which are not kept."""
    return linear_losses(layer, mapping, target, scale != 0, wanted, scale).gradients


def _factored(
    z: Tensor, mapping: Mapping, target: Target, kept: tuple[Tensor, ...], scale: Tensor
) -> tuple[Tensor, Tensor | None]:
    """scale · (p − q) as values times a factor of each row [rows, 1], which costs less in what the
    values are multiplied with than in a pass over them. It overwrites what was kept. In half
    precision the factor would be rounded a second time there: it is in the values."""
    if z.dtype != _checks.compute_dtype(z.dtype):
        return gradient(z, mapping, target, kept, None, scale), None
    weight, inverse = kept
    if isinstance(mapping, AlphaReLUMapping):
        weight = _alpha_relu_weight(weight, mapping)
    scale = scale.to(weight.dtype)[:, None]
    # Rows of zeros have no sum to be divided by.
    inverse = inverse.where(inverse != 0, 1.0)
    factor = torch.where(scale == 0, 0.0, scale * inverse)
    values = _minus_target(weight, target, (1.0 / inverse).nan_to_num(0.0))
    return values.to(z.dtype), factor.to(z.dtype)


class _Gradients:
    """Sums of products with chunks of scale · (p − q), in the layer's dtype; kept in at least
    float32."""

    def __init__(self, layer: Layer, wanted: Wanted) -> None:
        self.layer, self.leaves = layer, wanted.leaves
        self.dtype = _checks.compute_dtype(layer.h.dtype)
        self.of_h: list[Tensor] = []
        self.of_weight: Tensor | None = None
        self.of_bias: Tensor | None = None

    def add(self, rows: slice, values: Tensor, factor: Tensor | None) -> None:
        h, weight, bias = self.layer
        of_h, of_weight, of_bias = self.leaves
        if of_h:
            part = (values @ weight).to(self.dtype)
            self.of_h.append(part if factor is None else part.mul_(factor))
        if of_weight:
            self._add_to_weight(values, h[rows] if factor is None else h[rows] * factor)
        if of_bias and bias is not None:
            sums = values.sum(0, dtype=self.dtype) if factor is None else values.t() @ factor[:, 0]
            self.of_bias = sums if self.of_bias is None else self.of_bias.add_(sums)

    def _add_to_weight(self, values: Tensor, h: Tensor) -> None:
        if self.of_weight is not None and h.dtype == self.dtype:
            self.of_weight.addmm_(values.t(), h)
            return
        part = (values.t() @ h).to(self.dtype)
        self.of_weight = part if self.of_weight is None else self.of_weight.add_(part)

    def found(self) -> list[Tensor | None]:
        of_h = self.of_h[0] if len(self.of_h) == 1 else torch.cat(self.of_h) if self.of_h else None
        return [of_h, self.of_weight, self.of_bias]
