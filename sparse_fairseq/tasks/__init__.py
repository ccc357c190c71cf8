"""The task; importing this registers it with fairseq."""

from .sparse_translation import SparseTranslationConfig, SparseTranslationTask

__all__ = ["SparseTranslationConfig", "SparseTranslationTask"]
