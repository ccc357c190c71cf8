"""`--criterion alpha_relu_loss`: the α-ReLU loss (SE Eq. 2)."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion

from ..errors import UsageError
from .sparse_criterion import SparseCriterion, SparseCriterionConfig, requested_settings


@dataclass
class AlphaReLULossConfig(SparseCriterionConfig):
    alpha: float = field(default=1.5, metadata={"help": "alpha of α-ReLU, greater than 1"})
    tau: str = field(
        default="batch",
        metadata={
            "help": "threshold of α-ReLU: a number, or how to get one for a new model: 'batch' "
            "(mean entmax threshold over the first batch) or 'formula' (from the scale of the "
            "output weights)"
        },
    )


@register_criterion("alpha_relu_loss", dataclass=AlphaReLULossConfig)
class AlphaReLULossCriterion(SparseCriterion):
    def __init__(self, cfg: AlphaReLULossConfig, task):
        super().__init__(cfg, task)
        tau = None
        if cfg.tau in ("batch", "formula"):
            self.tau_from = cfg.tau
        else:
            try:
                tau = float(cfg.tau)
            except ValueError:
                raise UsageError(
                    f"--tau must be batch, formula or a number, got {cfg.tau!r}"
                ) from None
        self.requested = requested_settings("alpha_relu", cfg.alpha, tau)
