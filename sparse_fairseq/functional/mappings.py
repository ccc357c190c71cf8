"""Mappings from scores to non-negative weights: α-ReLU (SE Eq. 1), α-entmax and sparsemax (S2S).

Autograd, shapes and dtypes; the thresholds are found in ``_solvers``.
"""

import torch
from torch import Tensor

from . import _checks, _short_rows, _tsallis
from ._solvers import solve_entmax

Alpha = float | Tensor

# Elements in a block of rows: what stays in a CPU's cache; on other devices what keeps them busy.
BLOCK_ELEMENTS = {"cpu": 1 << 20}
BLOCK_ELEMENTS_ELSEWHERE = 1 << 26
# The power 1/(α−1) of α-ReLU multiplies what rounding does to its gap: below this α float32 would
# lose more than its last digits.
ALPHA_RELU_DOUBLE_BELOW = 1.08


def row_blocks(z: Tensor) -> list[slice]:
    """Slices of the rows of z [rows, classes] to work on one after the other."""
    elements = BLOCK_ELEMENTS.get(z.device.type, BLOCK_ELEMENTS_ELSEWHERE)
    size = max(1, elements // max(1, z.shape[1]))
    return [slice(i, min(i + size, len(z))) for i in range(0, len(z), size)]


def alpha_relu_dtype(dtype: torch.dtype, alpha: Alpha) -> torch.dtype:
    """The dtype that α-ReLU of scores is computed in."""
    low = alpha < ALPHA_RELU_DOUBLE_BELOW
    near_one = bool(low.any()) if isinstance(low, Tensor) else low
    return torch.float64 if near_one else _checks.compute_dtype(dtype)


def alpha_of(alpha: Alpha, rows: slice) -> Alpha:
    return alpha[rows] if isinstance(alpha, Tensor) else alpha


class _Entmax(torch.autograd.Function):
    """α-entmax of rows [rows, classes] in float32 or float64. Differentiable any number of times,
    because the backward pass is plain torch on the output p."""

    @staticmethod
    def forward(ctx, z, alpha_rows, alpha, solver, topk, n_iter):
        # alpha_rows is the tensor to differentiate for; a number goes through ``alpha``.
        alpha = alpha if alpha_rows is None else alpha_rows
        ctx.alpha = alpha if alpha_rows is None else None
        ctx.short = solver == "auto" and _short_rows.fits(z, alpha)
        if ctx.short:
            out = _short_rows.scores(z, alpha)
            ctx.save_for_backward(out, alpha_rows)
            return out
        out = torch.zeros_like(z)
        for rows in row_blocks(z):
            block = solve_entmax(z[rows], alpha_of(alpha, rows), solver, topk, n_iter)
            p = block.p.to(z.dtype)
            if block.col is None:
                out[rows] = p
                continue
            # Padding adds its zeros to column 0; only a NaN row must cover all its columns.
            out[rows].scatter_add_(1, block.col, p.nan_to_num(nan=0.0))
            out[rows].masked_fill_(p[:, :1].isnan(), float("nan"))
        ctx.save_for_backward(out, alpha_rows)
        return out

    @staticmethod
    def backward(ctx, grad):
        p, alpha_rows = ctx.saved_tensors
        alpha = ctx.alpha if alpha_rows is None else alpha_rows
        if ctx.short and not torch.is_grad_enabled():
            grads = _short_rows.gradients(p, grad, alpha, ctx.needs_input_grad[1])
            return *grads, None, None, None, None
        grad_z = grad_alpha = None
        if ctx.needs_input_grad[0]:
            grad_z = _entmax_vjp(p, grad, alpha)
        if ctx.needs_input_grad[1]:
            slope = _tsallis.entmax_slope(p.double(), alpha)
            grad_alpha = (grad.double() * slope).sum(1, keepdim=True)
        return grad_z, grad_alpha, None, None, None, None


def _entmax_vjp(p: Tensor, grad: Tensor, alpha: Alpha) -> Tensor:
    """S2S Proposition 1: (diag(s) − ssᵀ/‖s‖₁)ᵀ grad with s = p^(2−α) on the support."""
    inside = p != 0  # NaN counts, so that a NaN row has a NaN gradient
    if bool((alpha > 2.0).any()) if isinstance(alpha, Tensor) else alpha > 2.0:
        return _steep_vjp(p.double(), grad.double(), alpha, inside).to(p.dtype)
    if isinstance(alpha, float) and alpha == 2.0:
        s = inside.to(p.dtype)
    else:
        exponent = 2.0 - (alpha.to(p.dtype) if isinstance(alpha, Tensor) else alpha)
        s = p.where(inside, 1.0).pow(exponent).where(inside, 0.0)
    total = s.sum(1, keepdim=True)
    total = total.where(total != 0, 1.0)
    out = s * (grad - (s * grad).sum(1, keepdim=True) / total)
    return out.where(~p.isnan(), p)


def _steep_vjp(p: Tensor, grad: Tensor, alpha: Alpha, inside: Tensor) -> Tensor:
    """The same where α > 2 and s of a small p is so large that s·(grad − mean) cancels.

    The rows of the Jacobian sum to 0: the entry with the largest s is minus the sum of the
    others, and these need grad only relative to its own.
    """
    log_s = ((2.0 - alpha) * _tsallis.log_of_support(p)).where(inside, -float("inf"))
    largest = log_s.detach().argmax(1, keepdim=True)
    weight = (log_s - log_s.gather(1, largest)).exp().where(inside, 0.0)
    total = weight.sum(1, keepdim=True)
    relative = grad - grad.gather(1, largest)
    mean = (weight * relative).sum(1, keepdim=True) / total.where(total != 0, 1.0)
    others = inside.scatter(1, largest, False)
    out = log_s.where(others, 0.0).exp().where(others, 0.0) * (relative - mean)
    out = out.scatter_add(1, largest, -out.sum(1, keepdim=True))
    return out.where(~p.isnan(), p)


def entmax(
    z: Tensor,
    alpha: Alpha = 1.5,
    dim: int = -1,
    solver: str = "auto",
    topk: int = 100,
    n_iter: int = 50,
) -> Tensor:
    """α-entmax along ``dim`` (S2S Eq. 10): softmax for α = 1, sparsemax for α = 2.

    Parameters
    ----------
    z
        Scores of any shape. −inf scores get probability 0; a row of only −inf maps to zeros; NaN
        or +inf makes its row NaN.
    alpha
        At least 1: a number, or a tensor that broadcasts to z with size 1 in ``dim`` (one α per
        attention head); it receives a gradient.
    solver
        ``auto`` (exact, no full sort), ``sort`` (S2S Algorithm 2), ``topk`` (partial sort that
        starts with the ``topk`` largest and grows until it is exact) or ``bisect`` (S2S Algorithm
        1 with ``n_iter`` halvings).

    >>> entmax(torch.tensor([2.0, 1.0, -1.0]))
    tensor([0.8307, 0.1693, 0.0000])
    """
    _checks.check_alpha(alpha)
    _checks.check_solver(solver, topk, n_iter)
    dtype = _checks.compute_dtype(z.dtype)
    last = z.unsqueeze(0) if z.dim() == 0 else z.movedim(dim, -1)
    if isinstance(alpha, Tensor) and alpha.dim() > 0:
        alpha = _alpha_classes_last(alpha, z, dim)
    alpha = _checks.alpha_per_row(alpha, last.shape[:-1])
    if last.numel() == 0:
        return z * 1.0
    rows = last.reshape(-1, last.shape[-1]).to(dtype)
    tensor = alpha if isinstance(alpha, Tensor) else None
    number = alpha if isinstance(alpha, float) else None
    p = _Entmax.apply(rows, tensor, number, solver, topk, n_iter)
    p = p.view(last.shape).to(z.dtype)
    return p.squeeze(0) if z.dim() == 0 else p.movedim(-1, dim)


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
    z: Tensor, dim: int = -1, solver: str = "auto", topk: int = 100, n_iter: int = 50
) -> Tensor:
    """Sparsemax along ``dim`` (S2S Eq. 5): the Euclidean projection onto the simplex.

    >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    return entmax(z, 2.0, dim, solver, topk, n_iter)


def alpha_relu(z: Tensor, alpha: Alpha = 1.5, tau: float | Tensor = 0.0) -> Tensor:
    """α-ReLU (SE Eq. 1): [(α−1)z − τ]₊^(1/(α−1)) with a constant τ, for α > 1.

    Elementwise, except that NaN or +inf makes its row (the last dimension) NaN.

    >>> alpha_relu(torch.tensor([2.0, 1.0, -1.0]), tau=0.25)
    tensor([0.5625, 0.0625, 0.0000])
    """
    _checks.check_alpha(alpha, strict=True)
    _checks.check_tau(tau)
    _checks.check_broadcast("alpha", alpha, z.shape)
    _checks.check_broadcast("tau", tau, z.shape)
    dtype = alpha_relu_dtype(z.dtype, alpha)
    positive = (alpha - 1.0) * z.detach().to(dtype) - tau > 0
    # Masked before the product: 0 · −inf would be the gradient of alpha.
    gap = ((alpha - 1.0) * z.to(dtype).where(positive, 0.0) - tau).where(positive, 1.0)
    if isinstance(alpha, Tensor) or alpha not in (1.5, 2.0):
        gap = gap.pow(1.0 / (alpha - 1.0))
    elif alpha == 1.5:
        gap = gap.square()
    p = gap.where(positive, 0.0)
    if z.dim() and z.shape[-1]:
        top = z.detach().amax(-1, keepdim=True)
        wrong = top.isnan() | (top == float("inf"))
        p = p.masked_fill(wrong, float("nan")) if bool(wrong.any()) else p
    return p.to(z.dtype)


def entmax_threshold(z: Tensor, alpha: Alpha = 1.5, dim: int = -1) -> Tensor:
    """τ(z) of S2S Eq. 13, for α > 1: entmax(z) = [(α−1)z − τ]₊^(1/(α−1)). ``dim`` is reduced.

    >>> entmax_threshold(torch.zeros(4), alpha=1.5)
    tensor(-0.5000)
    """
    _checks.check_alpha(alpha, strict=True)
    z = z.to(_checks.compute_dtype(z.dtype))
    p = entmax(z, alpha, dim)
    if isinstance(alpha, Tensor) and alpha.dim():
        alpha = _alpha_classes_last(alpha, z, dim).movedim(-1, dim)
    # At its largest score p^(α−1) = (α−1) max(z) − τ: exact for every α, and differentiable.
    top = (alpha - 1.0) * z.amax(dim, keepdim=True) - p.amax(dim, keepdim=True) ** (alpha - 1.0)
    return top.squeeze(dim).to(z.dtype)
