"""`--lr-scheduler halve_on_loss`: S2S §4's schedule, "halved whenever the loss increases on the
validation set", whatever metric selects the best checkpoint and however often is validated.

fairseq hands a schedule only that metric, and only at the end of an epoch, after the checkpoint has
been saved; so the task tells the loss as soon as it is known.
"""

import logging
import weakref
from dataclasses import dataclass
from typing import List  # noqa: UP035

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from ..errors import UsageError

logger = logging.getLogger(__name__)

# A process has one trainer, which builds its schedule anew when it loads a checkpoint.
_current = None


def tell_validation_loss(loss: float) -> None:
    """To be called after each validation, with the loss on the first subset."""
    schedule = _current and _current()
    if schedule is not None:
        schedule.validated(loss)


@dataclass
class HalveOnLossConfig(FairseqDataclass):
    lr: List[float] = II("optimization.lr")  # noqa: UP006, RUF009
    task: str = II("task._name")


@register_lr_scheduler("halve_on_loss", dataclass=HalveOnLossConfig)
class HalveOnLoss(FairseqLRScheduler):
    def __init__(self, cfg: HalveOnLossConfig, optimizer):
        super().__init__(cfg, optimizer)
        if cfg.task != "sparse_translation":
            raise UsageError(
                "--lr-scheduler halve_on_loss needs --task sparse_translation, "
                f"which tells it the validation loss (this is {cfg.task})"
            )
        if len(cfg.lr) != 1:
            raise UsageError(f"--lr-scheduler halve_on_loss takes one --lr, got {list(cfg.lr)}")
        self.lr = cfg.lr[0]
        self.previous_loss = None
        global _current
        _current = weakref.ref(self)

    def validated(self, loss: float) -> None:
        if self.previous_loss is not None and loss > self.previous_loss:
            self.lr /= 2
            # fairseq asks for the rate only after the next update.
            self.optimizer.set_lr(self.lr)
            logger.info(
                f"the validation loss rose from {self.previous_loss:.5g} to {loss:.5g}: "
                f"learning rate {self.lr:.4g}"
            )
        self.previous_loss = loss

    def step_update(self, num_updates):
        self.optimizer.set_lr(self.lr)
        return self.lr

    def state_dict(self):
        return {**super().state_dict(), "lr": self.lr, "previous_loss": self.previous_loss}

    def load_state_dict(self, state_dict):
        if "previous_loss" not in state_dict:
            raise UsageError(
                "the checkpoint was trained with another --lr-scheduler: keep that one, or start "
                "halve_on_loss with --reset-lr-scheduler"
            )
        self.lr, self.previous_loss = state_dict["lr"], state_dict["previous_loss"]
