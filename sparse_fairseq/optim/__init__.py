"""Learning-rate schedules; importing this registers them with fairseq."""

from .halve_on_loss import HalveOnLoss, tell_validation_loss

__all__ = ["HalveOnLoss", "tell_validation_loss"]
