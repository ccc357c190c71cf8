"""Beam search and scorer for scores that may be exactly zero and need not sum to one."""

from .alignment import SparseSequenceGeneratorWithAlignment
from .errors import GenerationError
from .generator import SparseSequenceGenerator
from .scorer import SparseSequenceScorer

__all__ = [
    "GenerationError",
    "SparseSequenceGenerator",
    "SparseSequenceGeneratorWithAlignment",
    "SparseSequenceScorer",
]
