"""`--criterion entmax_loss`: the α-entmax loss (S2S §3); `sparsemax_loss` is its α = 2."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum

from .sparse_criterion import SparseCriterion, SparseCriterionConfig, requested_settings

SOLVERS = ChoiceEnum(["auto", "sort", "topk", "bisect"])


@dataclass
class SparsemaxLossConfig(SparseCriterionConfig):
    solver: SOLVERS = field(
        default="auto", metadata={"help": "how the threshold is found; all give the same loss"}
    )


@dataclass
class EntmaxLossConfig(SparsemaxLossConfig):
    alpha: float = field(
        default=1.5, metadata={"help": "alpha of entmax, at least 1 (1: softmax, 2: sparsemax)"}
    )


@register_criterion("entmax_loss", dataclass=EntmaxLossConfig)
class EntmaxLossCriterion(SparseCriterion):
    def __init__(self, cfg: SparsemaxLossConfig, task):
        alpha = getattr(cfg, "alpha", 2.0)
        super().__init__(cfg, task, requested_settings("entmax", alpha))
        self.solver = str(cfg.solver)


@register_criterion("sparsemax_loss", dataclass=SparsemaxLossConfig)
class SparsemaxLossCriterion(EntmaxLossCriterion):
    """Its config has no α."""
