"""Building blocks of the sparse architectures."""

from .alpha_state import LEARNED, AnotherAlpha, KeepsAlpha, alpha_text
from .sparse_attention import SparseMultiheadAttention

__all__ = ["LEARNED", "AnotherAlpha", "KeepsAlpha", "SparseMultiheadAttention", "alpha_text"]
