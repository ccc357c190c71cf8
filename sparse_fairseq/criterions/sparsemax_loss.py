"""`--criterion sparsemax_loss`: entmax_loss with alpha = 2, under its own name."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion

from .entmax_loss import SOLVERS
from .sparse_criterion import SparseCriterion, SparseCriterionConfig, requested_settings


@dataclass
class SparsemaxLossConfig(SparseCriterionConfig):
    solver: SOLVERS = field(
        default="auto", metadata={"help": "how the threshold is found; all give the same loss"}
    )


@register_criterion("sparsemax_loss", dataclass=SparsemaxLossConfig)
class SparsemaxLossCriterion(SparseCriterion):
    def __init__(self, cfg: SparsemaxLossConfig, task):
        super().__init__(cfg, task)
        self.solver = str(cfg.solver)
        self.requested = requested_settings("entmax", 2.0)
