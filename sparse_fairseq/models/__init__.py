"""Sparse architectures; importing this registers them with fairseq."""

from .attention_alphas import expect_checkpoint
from .sparse_lstm import SparseLSTMModel
from .sparse_transformer import SparseTransformerModel

__all__ = ["SparseLSTMModel", "SparseTransformerModel", "expect_checkpoint"]
