"""What is timed: our losses, torch's, and those of other kernel libraries where they are there."""

import importlib
from collections.abc import Callable

import torch
import torch.nn.functional as F

from sparse_fairseq import functional as sf

TAU = 1.4  # for scores of σ near 1, as fairseq's embeddings give them
LONGEST_IN_REGISTERS = 16_384  # classes; longer rows of entmax are read again, out of the cache

Loss = Callable[..., torch.Tensor]


def bytes_for_each(name: str, classes: int) -> float | None:
    """Bytes of memory for each byte of scores, forward and backward: docs/gpu.md counts them."""
    if name == "cross_entropy":
        return 6.0
    if name == "alpha_relu_loss 1.5":
        return 2.0
    if name in ("entmax_loss 1.5", "sparsemax_loss") and classes <= LONGEST_IN_REGISTERS:
        return 2.0
    return None


def plain_losses(device: str) -> dict[str, Loss]:
    """Of scores and targets."""
    losses: dict[str, Loss] = {
        "cross_entropy": F.cross_entropy,
        "alpha_relu_loss 1.5": lambda z, y: sf.alpha_relu_loss(z, y, 1.5, TAU),
        "entmax_loss 1.5": lambda z, y: sf.entmax_loss(z, y, 1.5),
        "entmax_loss 1.25": lambda z, y: sf.entmax_loss(z, y, 1.25),
        "sparsemax_loss": sf.sparsemax_loss,
    }
    if device == "cuda":
        # For each shape anew: a compiler that sees many either gives up, or compiles for all.
        torch._dynamo.reset()
        for name in ("cross_entropy", "alpha_relu_loss 1.5"):
            losses[f"{name}, compiled"] = torch.compile(losses[name], dynamic=False)
    liger = _import("liger_kernel.transformers.functional")
    if liger is not None:
        losses["Liger cross_entropy"] = lambda z, y: liger.liger_cross_entropy(z, y)
    return losses


def fused_losses(device: str) -> dict[str, Loss]:
    """Of states, weights and targets."""
    losses: dict[str, Loss] = {
        "linear + cross_entropy": lambda h, w, y: F.cross_entropy(F.linear(h, w), y),
        "linear_alpha_relu_loss 1.5": lambda h, w, y: sf.linear_alpha_relu_loss(h, w, y, 1.5, TAU),
        "linear_entmax_loss 1.5": lambda h, w, y: sf.linear_entmax_loss(h, w, y, 1.5),
    }
    if hasattr(F, "linear_cross_entropy"):
        losses["F.linear_cross_entropy"] = lambda h, w, y: F.linear_cross_entropy(h, w, y)
    liger = _import("liger_kernel.transformers.functional")
    if liger is not None:
        losses["Liger fused_linear_cross_entropy"] = lambda h, w, y: (
            liger.liger_fused_linear_cross_entropy(h, w, y)
        )
    cut = _import("cut_cross_entropy")
    if cut is not None:
        losses["cut-cross-entropy"] = lambda h, w, y: cut.linear_cross_entropy(h, w, y)
    return losses


def _import(name: str):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
