"""The task. fairseq imports this package and `models` by itself (--user-dir), and nothing else of
ours: what the task needs registered is imported here."""

from .. import compat, criterions, optim  # noqa: F401
from .config import SparseTranslationConfig
from .sparse_translation import SparseTranslationTask

__all__ = ["SparseTranslationConfig", "SparseTranslationTask"]
