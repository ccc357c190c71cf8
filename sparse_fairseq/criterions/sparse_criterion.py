"""What the sparse criteria share: asking the model's OutputTransform, and logging.

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
    """Fenchel-Young loss of the model's output transform. Subclasses set `requested`."""

    requested: OutputSettings  # what the flags ask for; tau None: not a number, see `tau_from`
    tau_from: str = ""
    solver: str = "auto"

    def __init__(self, cfg: SparseCriterionConfig, task):
        super().__init__(task)
        if not getattr(task, "supports_sparse_output", False):
            raise UsageError(
                f"--criterion {cfg._name} needs --task sparse_translation "
                f"(this is {type(task).__name__})"
            )
        if not 0 <= cfg.label_smoothing < 1:
            raise UsageError(f"--label-smoothing must be in [0, 1), got {cfg.label_smoothing}")
        self.label_smoothing = cfg.label_smoothing
        self.sentence_avg = cfg.sentence_avg
        self.fused_output = not cfg.no_fused_output
        self._told = False  # that it cannot be done
        uncounted = torch.tensor(uncounted_symbols(task.target_dictionary))
        self.register_buffer("uncounted", uncounted, persistent=False)

    def forward(self, model, sample, reduce=True):
        """(summed loss, its denominator, what to log), as fairseq's trainer expects."""
        target = model.get_targets(sample, None)
        loss, stats = self.compute_loss(model, sample, target)
        loss = loss.sum() if reduce else loss
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        counted = target.ne(self.padding_idx)
        log = {
            "loss": loss.data if reduce else loss.data.sum(),
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
            "n_correct": (stats.correct & counted).sum(),
            "support": stats.support.masked_fill(~counted, 0).sum(),
            "total_score": stats.total.masked_fill(~counted, 0).sum(),
            "zero_targets": (stats.target_score.eq(0) & counted).sum(),
        }
        return loss, sample_size, log

    def compute_loss(self, model, sample, target):
        """The loss of each target, and RowStats."""
        transform = model.decoder.output_transform
        options = {
            "solver": self.solver,
            "ignore_index": self.padding_idx,
            "label_smoothing": self.label_smoothing,
            "uncounted": self.uncounted,
        }
        if not (self.fused_output and self._can_fuse(model.decoder)):
            logits = model(**sample["net_input"])[0]
            return transform.loss(logits, target, reduction="none", **options)
        with transform.fused(target, **options) as stats:
            loss = model(**sample["net_input"])[0]
        return loss, stats[0]

    def _can_fuse(self, decoder) -> bool:
        fusible = can_fuse(decoder)
        if not fusible and not self._told:
            name = type(decoder).__name__
            logger.info(f"the output layer of {name} cannot be fused with the loss")
            self._told = True
        return fusible

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        def total(key):
            return sum(log.get(key, 0) for log in logging_outputs)

        # No ppl and no log 2: these losses are not nats.
        sample_size, ntokens = max(total("sample_size"), 1), max(total("ntokens"), 1)
        metrics.log_scalar("loss", total("loss") / sample_size, sample_size, round=4)
        metrics.log_scalar("accuracy", 100.0 * total("n_correct") / ntokens, ntokens, round=3)
        metrics.log_scalar("support", total("support") / ntokens, ntokens, round=2)
        metrics.log_scalar("total_score", total("total_score") / ntokens, ntokens, round=4)
        zero_targets = 100.0 * total("zero_targets") / ntokens
        metrics.log_scalar("zero_targets", zero_targets, ntokens, round=3)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


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
