"""Building blocks of the sparse architectures."""

from .sparse_attention import LEARNED, SparseMultiheadAttention

__all__ = ["LEARNED", "SparseMultiheadAttention"]
