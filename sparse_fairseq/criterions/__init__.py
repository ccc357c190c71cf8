"""The sparse criteria; importing this registers them with fairseq."""

from .alpha_relu_loss import AlphaReLULossCriterion
from .entmax_loss import EntmaxLossCriterion
from .sparse_criterion import SparseCriterion
from .sparsemax_loss import SparsemaxLossCriterion

__all__ = [
    "AlphaReLULossCriterion",
    "EntmaxLossCriterion",
    "SparseCriterion",
    "SparsemaxLossCriterion",
]
