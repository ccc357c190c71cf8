"""`--criterion entmax_loss`: the α-entmax loss (S2S §3)."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum

from .sparse_criterion import SparseCriterion, SparseCriterionConfig, requested_settings

SOLVERS = ChoiceEnum(["auto", "sort", "topk", "bisect"])


@dataclass
class EntmaxLossConfig(SparseCriterionConfig):
    alpha: float = field(
        default=1.5, metadata={"help": "alpha of entmax, at least 1 (1: softmax, 2: sparsemax)"}
    )
    solver: SOLVERS = field(
        default="auto", metadata={"help": "how the threshold is found; all give the same loss"}
    )


@register_criterion("entmax_loss", dataclass=EntmaxLossConfig)
class EntmaxLossCriterion(SparseCriterion):
    def __init__(self, cfg: EntmaxLossConfig, task):
        super().__init__(cfg, task)
        self.solver = str(cfg.solver)
        self.requested = requested_settings("entmax", cfg.alpha)
