"""Our criteria; importing this registers them with fairseq."""

from .alpha_relu_loss import AlphaReLULossCriterion
from .entmax_loss import EntmaxLossCriterion, SparsemaxLossCriterion
from .softmax_loss import SoftmaxLossCriterion
from .sparse_criterion import SparseCriterion

__all__ = [
    "AlphaReLULossCriterion",
    "EntmaxLossCriterion",
    "SoftmaxLossCriterion",
    "SparseCriterion",
    "SparsemaxLossCriterion",
]
