"""`--criterion softmax_loss`: cross-entropy with the log and the output layer of the others.

For comparisons like with like: fairseq's `cross_entropy` has other logs and keeps the logits of the
whole batch. The checkpoints are stock fairseq's.
"""

import math
from dataclasses import dataclass

import torch
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.logging import metrics

from ..output_transform import OutputSettings
from .sparse_criterion import SparseCriterion, SparseCriterionConfig, log_measured, total


@dataclass
class SoftmaxLossConfig(SparseCriterionConfig):
    pass


@register_criterion("softmax_loss", dataclass=SoftmaxLossConfig)
class SoftmaxLossCriterion(SparseCriterion):
    def __init__(self, cfg: SoftmaxLossConfig, task):
        super().__init__(cfg, task, OutputSettings())
        self.target_entropy = smoothed_entropy(cfg.label_smoothing, len(task.target_dictionary))

    def compute_loss(self, model, sample, target, reduction):
        """A Fenchel-Young loss is the cross-entropy without the entropy of the target."""
        loss, stats = super().compute_loss(model, sample, target, reduction)
        if self.target_entropy:
            counted = target.ne(self.padding_idx)
            loss = loss + self.target_entropy * (counted.sum() if reduction == "sum" else counted)
        return loss, stats

    def measured(self, loss, stats, counted) -> dict:
        nll = loss
        if self.label_smoothing:
            tiny = torch.finfo(stats.target_score.dtype).tiny
            nll = -stats.target_score.clamp_min(tiny).log().masked_fill(~counted, 0)
        return {"nll_loss": nll.sum(), **super().measured(loss, stats, counted)}

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """In bits, as fairseq's cross_entropy."""
        for key, size_of in (("loss", "sample_size"), ("nll_loss", "ntokens")):
            size = max(total(logging_outputs, size_of), 1)
            bits = total(logging_outputs, key) / size / math.log(2)
            metrics.log_scalar(key, bits, size, round=4)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        log_measured(logging_outputs)


def smoothed_entropy(epsilon: float, classes: int) -> float:
    """Of (1 − ε) one-hot + ε uniform, in nats."""
    rest = epsilon / classes
    peak = 1 - epsilon + rest
    return -sum(n * q * math.log(q) for n, q in ((1, peak), (classes - 1, rest)) if q)
