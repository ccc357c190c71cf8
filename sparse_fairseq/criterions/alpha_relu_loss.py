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
        tau = parse_tau(cfg.tau)
        super().__init__(cfg, task, requested_settings("alpha_relu", cfg.alpha, tau))
        self.tau_from = "" if tau is not None else cfg.tau


def parse_tau(tau: str) -> float | None:
    """A number; None: it is found out at the start of training."""
    if tau in ("batch", "formula"):
        return None
    try:
        return float(tau)
    except ValueError:
        raise UsageError(f"--tau must be batch, formula or a number, got {tau!r}") from None
