"""Sparse mappings and losses in plain torch: any torch user can import this; no fairseq here."""

from .fused import (
    linear_alpha_relu_loss,
    linear_alpha_relu_loss_with_stats,
    linear_entmax_loss,
    linear_entmax_loss_with_stats,
)
from .losses import (
    RowStats,
    alpha_relu_loss,
    alpha_relu_loss_with_stats,
    entmax_loss,
    entmax_loss_with_stats,
    sparsemax_loss,
)
from .mappings import alpha_relu, entmax, entmax_threshold, sparsemax
from .modules import AlphaReLULoss, EntmaxLoss, SparsemaxLoss
from .tau import batch_tau, gaussian_support, gaussian_tau, xavier_tau

__all__ = [
    "AlphaReLULoss",
    "EntmaxLoss",
    "RowStats",
    "SparsemaxLoss",
    "alpha_relu",
    "alpha_relu_loss",
    "alpha_relu_loss_with_stats",
    "batch_tau",
    "entmax",
    "entmax_loss",
    "entmax_loss_with_stats",
    "entmax_threshold",
    "gaussian_support",
    "gaussian_tau",
    "linear_alpha_relu_loss",
    "linear_alpha_relu_loss_with_stats",
    "linear_entmax_loss",
    "linear_entmax_loss_with_stats",
    "sparsemax",
    "sparsemax_loss",
    "xavier_tau",
]
