"""Building blocks of the sparse architectures."""

from .alpha_state import LEARNED, KeepsAlpha, expect_checkpoint
from .sparse_attention import SparseMultiheadAttention

__all__ = ["LEARNED", "KeepsAlpha", "SparseMultiheadAttention", "expect_checkpoint"]
