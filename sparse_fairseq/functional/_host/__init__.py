"""The route for the CPU: lists of the few candidates, looks at values, stops early.

``passes`` has the one loop of the losses, ``blocks`` what it applies to each block of rows,
``thresholds`` and ``candidates`` how α-entmax is solved there, ``layer`` the gradients of the fused
losses, ``short_rows`` attention.
"""

import torch
from torch import Tensor

from .. import _tsallis
from .._problem import EntmaxMapping
from . import short_rows, thresholds
from .blocks import row_blocks
from .layer import linear_gradients, linear_losses
from .passes import gradient, losses

__all__ = [
    "entmax",
    "entmax_backward",
    "gradient",
    "linear_gradients",
    "linear_losses",
    "losses",
]


def entmax(z: Tensor, mapping: EntmaxMapping) -> Tensor:
    if mapping.solver == "auto" and short_rows.fits(z, mapping.alpha):
        return short_rows.entmax(z, mapping.alpha)
    out = torch.zeros_like(z)
    for rows in row_blocks(z):
        block = thresholds.solve(z[rows], mapping.of_rows(rows))
        p = block.p.to(z.dtype)
        if block.col is None:
            out[rows] = p
            continue
        # Padding adds its zeros to column 0; only a NaN row must cover all its columns.
        out[rows].scatter_add_(1, block.col, p.nan_to_num(nan=0.0))
        out[rows].masked_fill_(p[:, :1].isnan(), float("nan"))
    return out


def entmax_backward(p: Tensor, grad: Tensor, alpha: float | Tensor, for_alpha: bool):
    if short_rows.fits(p, alpha):
        return short_rows.entmax_backward(p, grad, alpha, for_alpha)
    grad_alpha = _tsallis.entmax_alpha_vjp(p, grad, alpha) if for_alpha else None
    return _tsallis.entmax_vjp(p, grad, alpha), grad_alpha
