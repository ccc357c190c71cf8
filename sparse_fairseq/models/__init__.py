"""Sparse architectures; importing this registers them with fairseq."""

from .sparse_lstm import SparseLSTMModel
from .sparse_transformer import SparseTransformerModel

__all__ = ["SparseLSTMModel", "SparseTransformerModel"]
