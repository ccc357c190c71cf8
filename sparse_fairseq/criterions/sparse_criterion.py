"""What our criteria share: asking the model's OutputTransform, and logging.

The losses themselves are in `functional`; which transform a model has is the task's business.
"""

import logging
from dataclasses import dataclass, field

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II

from ..errors import UsageError
from ..output_transform import OutputSettings, can_fuse

logger = logging.getLogger(__name__)


@dataclass
class SparseCriterionConfig(FairseqDataclass):
    label_smoothing: float = field(
        default=0.0,
        metadata={"help": "epsilon of uniform label smoothing, spread over the whole vocabulary"},
    )
    no_fused_output: bool = field(
        default=False,
        metadata={"help": "compute the logits and then their loss, not both block by block"},
    )
    sentence_avg: bool = II("optimization.sentence_avg")


class SparseCriterion(FairseqCriterion):
    """Fenchel-Young loss of the model's output transform, for the output that `requested` says."""

    solver: str = "auto"
    tau_from: str = ""  # how to get a τ that `requested` leaves open

    def __init__(self, cfg: SparseCriterionConfig, task, requested: OutputSettings):
        super().__init__(task)
        if not getattr(task, "supports_sparse_output", False):
            raise UsageError(
                f"--criterion {cfg._name} needs --task sparse_translation "
                f"(this is {type(task).__name__})"
            )
        if not 0 <= cfg.label_smoothing < 1:
            raise UsageError(f"--label-smoothing must be in [0, 1), got {cfg.label_smoothing}")
        self.requested = requested
        self.label_smoothing = cfg.label_smoothing
        self.sentence_avg = cfg.sentence_avg
        self.fused_output = not cfg.no_fused_output
        self._told = False  # that it cannot be done
        counted = torch.ones(len(task.target_dictionary), dtype=torch.bool)
        counted[uncounted_symbols(task.target_dictionary)] = False
        self.register_buffer("counted", counted, persistent=False)

    def forward(self, model, sample, reduce=True):
        """(summed loss, its denominator, what to log), as fairseq's trainer expects."""
        target = model.get_targets(sample, None)
        # Summed by the loss itself: its gradients need no second pass over the logits then.
        loss, stats = self.compute_loss(model, sample, target, "sum" if reduce else "none")
        counted = target.ne(self.padding_idx)
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        log = {
            "loss": loss.data.sum(),
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
            **self.measured(loss.data, stats, counted),
        }
        return loss, sample_size, log

    def compute_loss(self, model, sample, target, reduction):
        """The loss, summed or of each target, and RowStats."""
        return model.decoder.output_transform.loss_of(
            model,
            sample,
            target,
            fuse=self.fused_output and self._can_fuse(model.decoder),
            solver=self.solver,
            ignore_index=self.padding_idx,
            label_smoothing=self.label_smoothing,
            counted=self.counted,
            reduction=reduction,
        )

    def measured(self, loss, stats, counted) -> dict:
        """Sums over the target's words of what is logged beside the loss."""
        return {
            "n_correct": (stats.correct & counted).sum(),
            "support": stats.support.masked_fill(~counted, 0).sum(),
            "total_score": stats.total.masked_fill(~counted, 0).sum(),
            "zero_targets": (stats.target_score.eq(0) & counted).sum(),
        }

    def _can_fuse(self, decoder) -> bool:
        fusible = can_fuse(decoder)
        if not fusible and not self._told:
            name = type(decoder).__name__
            logger.info(f"the output layer of {name} cannot be fused with the loss")
            self._told = True
        return fusible

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        # No ppl and no log 2: these losses are not nats.
        sample_size = max(total(logging_outputs, "sample_size"), 1)
        loss = total(logging_outputs, "loss") / sample_size
        metrics.log_scalar("loss", loss, sample_size, round=4)
        log_measured(logging_outputs)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def total(logging_outputs, key: str):
    return sum(log.get(key, 0) for log in logging_outputs)


def log_measured(logging_outputs) -> None:
    """What `measured` sums up, per word."""
    ntokens = max(total(logging_outputs, "ntokens"), 1)
    for key, name, factor, digits in (
        ("n_correct", "accuracy", 100.0, 3),
        ("support", "support", 1.0, 2),
        ("total_score", "total_score", 1.0, 4),
        ("zero_targets", "zero_targets", 100.0, 3),
    ):
        value = factor * total(logging_outputs, key) / ntokens
        metrics.log_scalar(name, value, ntokens, round=digits)


def requested_settings(kind: str, alpha: float, tau: float | None = None) -> OutputSettings:
    """The settings, or the error of the flag that is wrong."""
    try:
        return OutputSettings(kind, alpha, tau)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def uncounted_symbols(dictionary) -> list[int]:
    """Entries that are no words: padding, and the `madeupword`s that pad a dictionary's size."""
    made_up = (i for i, symbol in enumerate(dictionary.symbols) if symbol.startswith("madeupword"))
    return [dictionary.pad(), *made_up]
