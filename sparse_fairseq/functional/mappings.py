"""Mappings from scores to non-negative weights: α-ReLU (SE Eq. 1), α-entmax and sparsemax (S2S).

Autograd, shapes and dtypes; the routes (see ``_routes``) compute.
"""

from dataclasses import replace

import torch
from torch import Tensor

from . import _checks, _tsallis
from ._looking import may_look
from ._problem import Alpha, EntmaxMapping
from ._routes import route, route_name

NUMBER = float("nan")  # in the place of an α that is a tensor and goes to autograd by itself


class _Entmax(torch.autograd.Function):
    """α-entmax of rows [rows, classes] in float32 or float64. Differentiable any number of times,
    because the backward pass can be plain torch on the output p."""

    @staticmethod
    def forward(z, alpha_rows, mapping, route_):
        return route(route_).entmax(z, mapping.with_alpha(alpha_rows))

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, alpha_rows, ctx.mapping, ctx.route = inputs
        ctx.save_for_backward(output, alpha_rows)

    @staticmethod
    def backward(ctx, grad):
        p, alpha_rows = ctx.saved_tensors
        alpha = ctx.mapping.with_alpha(alpha_rows).alpha
        for_alpha = ctx.needs_input_grad[1]
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # Kernels keep p in half precision.
            dtype, wide = p.dtype, _checks.compute_dtype(p.dtype)
            p, grad = p.to(wide), grad.to(wide)
            grad_alpha = _tsallis.entmax_alpha_vjp(p, grad, alpha) if for_alpha else None
            return _tsallis.entmax_vjp(p, grad, alpha).to(dtype), grad_alpha, None, None
        return *route(ctx.route).entmax_backward(p, grad, alpha, for_alpha), None, None

    @staticmethod
    def vmap(info, in_dims, z, alpha_rows, mapping, route_):
        """Rows are independent of each other: those of all samples are one batch."""
        z, alpha_rows = fold(z, in_dims[0], info), fold(alpha_rows, in_dims[1], info)
        return samples(_Entmax.apply(z, alpha_rows, mapping, route_), info), 0


def fold(part: Tensor | None, dim: int | None, info) -> Tensor | None:
    """The rows of all samples of a vmap as rows of one batch."""
    if part is None:
        return None
    of_samples = part.expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0)
    return of_samples.flatten(0, 1)


def samples(part: Tensor, info) -> Tensor:
    """What ``fold`` made one, as samples again."""
    return part.unflatten(0, (info.batch_size, -1))


def entmax(
    z: Tensor,
    alpha: Alpha = 1.5,
    dim: int = -1,
    solver: str = "auto",
    topk: int | None = None,
    n_iter: int | None = None,
) -> Tensor:
    """α-entmax along ``dim`` (S2S Eq. 10): softmax for α = 1, sparsemax for α = 2.

    Parameters
    ----------
    z
        Scores of any shape. −inf scores get probability 0; a row of only −inf maps to zeros; NaN
        or +inf makes its row NaN.
    alpha
        At least 1: a number, or a tensor that receives a gradient. It has the shape of z without
        ``dim`` (one α for each row), or broadcasts to z with size 1 in ``dim`` (one α for each
        attention head). On devices other than the CPU, and compiled, a tensor's entries are not
        looked at: rows with one outside of [1, 2] are NaN.
    solver
        ``auto`` (exact, no full sort), ``sort`` (S2S Algorithm 2), ``topk`` (partial sort that
        starts with the ``topk`` largest, 100 if not given, and grows until it is exact) or
        ``bisect`` (S2S Algorithm 1 with ``n_iter`` halvings, 50 if not given).

    >>> entmax(torch.tensor([2.0, 1.0, -1.0]))
    tensor([0.8307, 0.1693, 0.0000])
    """
    _checks.check_alpha(alpha)
    options = _checks.check_solver(solver, topk, n_iter)
    dtype = _checks.compute_dtype(z.dtype)
    last = z.unsqueeze(0) if z.dim() == 0 else _checks.classes_last(z, dim)
    if isinstance(alpha, Tensor) and alpha.dim() > 0 and alpha.shape != last.shape[:-1]:
        alpha = _alpha_classes_last(alpha, z, dim)
    alpha = _checks.alpha_per_row(alpha, last.shape[:-1])
    if last.numel() == 0:
        return z * 1.0
    # Only what is needed: of a chain of views that change nothing, compiled code returned memory
    # that the backward pass had overwritten (torch 2.13).
    rows = last if last.dim() == 2 else last.reshape(-1, last.shape[-1])
    tensor = alpha if isinstance(alpha, Tensor) else None
    mapping = EntmaxMapping(alpha, **options)
    route_ = route_name("entmax", rows, mapping)
    if route_ != "triton":  # its kernels widen what they read
        rows = rows if rows.dtype == dtype else rows.to(dtype)
    p = _Entmax.apply(rows, tensor, mapping if tensor is None else _without(mapping), route_)
    p = p if last.dim() == 2 else p.reshape(last.shape)
    p = p if p.dtype == z.dtype else p.to(z.dtype)
    if z.dim() == 0:
        return p.squeeze(0)
    return p if dim in (-1, z.dim() - 1) else p.movedim(-1, dim)


def _without(mapping: EntmaxMapping) -> EntmaxMapping:
    return replace(mapping, alpha=NUMBER)


def _alpha_classes_last(alpha: Tensor, z: Tensor, dim: int) -> Tensor:
    """α with its entry for ``dim`` moved to the end, as the scores are."""
    if alpha.dim() > z.dim():
        raise ValueError(
            f"alpha of shape {tuple(alpha.shape)} does not broadcast to scores of shape "
            f"{tuple(z.shape)}"
        )
    full = alpha[(None,) * (z.dim() - alpha.dim())]
    return full.movedim(dim, -1)


def sparsemax(
    z: Tensor,
    dim: int = -1,
    solver: str = "auto",
    topk: int | None = None,
    n_iter: int | None = None,
) -> Tensor:
    """Sparsemax along ``dim`` (S2S Eq. 5): the Euclidean projection onto the simplex.

    >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    return entmax(z, 2.0, dim, solver, topk, n_iter)


def alpha_relu(z: Tensor, alpha: Alpha = 1.5, tau: float | Tensor = 0.0) -> Tensor:
    """α-ReLU (SE Eq. 1): [(α−1)z − τ]₊^(1/(α−1)) with a constant τ, for α > 1.

    Elementwise: NaN stays in its entry. Tensors for ``alpha`` and ``tau`` broadcast to z and
    receive gradients.

    >>> alpha_relu(torch.tensor([2.0, 1.0, -1.0]), tau=0.25)
    tensor([0.5625, 0.0625, 0.0000])
    """
    _checks.check_alpha(alpha, strict=True)
    _checks.check_tau(tau)
    _checks.check_broadcast("alpha", alpha, z.shape)
    _checks.check_broadcast("tau", tau, z.shape)
    alpha = alpha if isinstance(alpha, Tensor) else _checks.number(alpha)
    dtype = _alpha_relu_dtype(z.dtype, alpha)
    wide = z if z.dtype == dtype else z.to(dtype)
    needs_gradient = torch.is_grad_enabled() and z.requires_grad
    numbers = not isinstance(alpha, Tensor) and not isinstance(tau, Tensor)
    if numbers and alpha <= 2.0 and not needs_gradient:
        p = ((alpha - 1.0) * wide).sub_(tau).clamp_(min=0.0)
        p = p.square_() if alpha == 1.5 else p if alpha == 2.0 else p.pow_(1.0 / (alpha - 1.0))
        return p if p.dtype == z.dtype else p.to(z.dtype)
    zero = (alpha - 1.0) * wide.detach() - tau <= 0  # false for NaN
    # Masked before the product: 0 · −inf would be the gradient of alpha.
    gap = ((alpha - 1.0) * wide.masked_fill(zero, 0.0) - tau).masked_fill(zero, 1.0)
    if isinstance(alpha, Tensor) or alpha not in (1.5, 2.0):
        gap = gap.pow(1.0 / (alpha - 1.0))
    elif alpha == 1.5:
        gap = gap.square()
    p = gap.masked_fill(zero, 0.0)
    return p if p.dtype == z.dtype else p.to(z.dtype)


def _alpha_relu_dtype(dtype: torch.dtype, alpha: Alpha) -> torch.dtype:
    """float64 where α is so close to 1 that float32 is too coarse, and that may be looked at."""
    low = alpha < _checks.ALPHA_RELU_DOUBLE_BELOW
    if isinstance(low, Tensor):
        low = may_look(low) and bool(low.any())
    return torch.float64 if low else _checks.compute_dtype(dtype)


def entmax_threshold(z: Tensor, alpha: Alpha = 1.5, dim: int = -1) -> Tensor:
    """τ(z) of S2S Eq. 13, for α > 1: entmax(z) = [(α−1)z − τ]₊^(1/(α−1)). ``dim`` is reduced.

    >>> entmax_threshold(torch.zeros(4), alpha=1.5)
    tensor(-0.5000)
    """
    _checks.check_alpha(alpha, strict=True)
    z = z.to(_checks.compute_dtype(z.dtype))
    p = entmax(z, alpha, dim)
    if isinstance(alpha, Tensor) and alpha.dim():
        if alpha.shape == p.movedim(dim, -1).shape[:-1]:
            alpha = alpha.unsqueeze(dim)
        else:
            alpha = _alpha_classes_last(alpha, z, dim).movedim(-1, dim)
    # At its largest score p^(α−1) = (α−1) max(z) − τ: exact for every α, and differentiable.
    top = (alpha - 1.0) * z.amax(dim, keepdim=True) - p.amax(dim, keepdim=True) ** (alpha - 1.0)
    return top.squeeze(dim).to(z.dtype)
