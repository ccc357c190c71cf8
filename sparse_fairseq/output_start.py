"""OutputStart: the output of a model that is to be trained, from its start to its last checkpoint.

Kind, α, τ and the scale of the weights that a new model starts with, whether a checkpoint agrees
with them, and who is told: one method for each moment of a run, in the order in which they come.
"""

import dataclasses
import logging
import math
import os
from collections.abc import Callable

import torch
from torch import nn

from .criterions import SparseCriterion
from .errors import UsageError
from .functional import batch_tau
from .functional._routes import loss_route
from .models import expect_checkpoint
from .output_init import formula_tau, is_tied, scale_to_xavier
from .output_transform import (
    OutputSettings,
    OutputTransform,
    attach_output_transform,
    output_projection_of,
)
from .workers import agreed

logger = logging.getLogger(__name__)


class OutputStart:
    """Knows the flags that say how training starts; belongs to the task, which has the moments."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.trains = False  # whether this process has a model to train
        self.criterion: nn.Module | None = None
        self._waiting: nn.Module | None = None  # the model, until its criterion is there
        self._route_said = False

    def of_model(self, model: nn.Module, from_checkpoint: bool) -> None:
        """A model was built. Loaders (generate, validate, from_pretrained) say from_checkpoint; a
        model to be trained gets its criterion next."""
        if not hasattr(model, "decoder"):
            raise UsageError("--task sparse_translation needs an encoder-decoder model")
        attach_output_transform(model)
        self._waiting = None if from_checkpoint else model

    def of_criterion(self, criterion: nn.Module) -> None:
        """The criterion was built: now the output of a new model can start. Here, and not when the
        first epoch begins, because half-precision optimizers copy the weights in between."""
        self.criterion = criterion
        if self._waiting is None:
            return
        model, self._waiting = self._waiting, None
        self.trains = True
        transform = model.decoder.output_transform
        transform.settings = self._first_settings(model.decoder)

        def after_load(module, incompatible_keys):
            if module is transform:  # and not the copy in an EMA model
                self.of_checkpoint(transform)

        transform.register_load_state_dict_post_hook(after_load)
        expect_checkpoint(model, finetuning=self._is_finetuning())

    def of_checkpoint(self, transform: OutputTransform) -> None:
        """A checkpoint was loaded into the model that is to be trained."""
        loaded = transform.settings if transform.found_in_checkpoint else OutputSettings()
        wanted, finetuning = requested_output(self.criterion), self._is_finetuning()
        transform.settings = agreement(wanted, loaded, finetuning)

    def of_epoch(self, epoch: int, model: nn.Module, first_batch: Callable[[], dict]) -> None:
        """An epoch begins: the first one needs τ."""
        transform = model.decoder.output_transform
        settings = transform.settings
        if settings.kind == "alpha_relu" and settings.tau is None:
            tau, how = self._resolve_tau(model, settings.alpha, first_batch)
            transform.settings = dataclasses.replace(settings, tau=tau)
            logger.info(f"tau = {tau!r} ({how})")
        elif epoch == 1:
            logger.info(f"output transform: {settings}")
        self._say_route(transform.settings, next(model.parameters()))

    def _say_route(self, settings: OutputSettings, weight: torch.Tensor) -> None:
        """Once: which code computes the loss."""
        if not self._route_said and settings.kind != "softmax":
            name = loss_route(weight, settings.alpha, settings.tau)
            logger.info(f"route of the loss: {name} (SPARSE_FAIRSEQ_ROUTE sets another)")
        self._route_said = True

    @staticmethod
    def of_update(model: nn.Module, ema_model: nn.Module | None) -> None:
        """EMA averages weights; what the weights are for must be the model's own."""
        if ema_model is not None:
            ema_model.decoder.output_transform.settings = model.decoder.output_transform.settings

    @staticmethod
    def of_validation(model: nn.Module, criterion: nn.Module) -> None:
        settings, wanted = model.decoder.output_transform.settings, requested_output(criterion)
        if not is_same_mapping(settings, wanted):
            raise UsageError(
                f"the model's output is {settings}, the criterion's is {wanted}: "
                "validate with the criterion the model was trained with"
            )

    def _first_settings(self, decoder: nn.Module) -> OutputSettings:
        """What the criterion asks for, with output weights as --output-init says."""
        wanted = requested_output(self.criterion)
        ours = isinstance(self.criterion, SparseCriterion)
        if ours and getattr(decoder, "adaptive_softmax", None) is not None:
            raise UsageError(
                f"{wanted.kind} needs the logits of the whole vocabulary: "
                "drop --adaptive-softmax-cutoff"
            )
        init = str(self.cfg.output_init)
        if init == "auto":
            known = wanted.kind != "softmax" and output_projection_of(decoder) is not None
            init = "xavier" if known else "fairseq"
        if init == "fairseq":
            return wanted
        try:
            factor = scale_to_xavier(decoder)
        except ValueError as error:
            raise UsageError(f"--output-init xavier: {error}") from None
        # Tied weights are embeddings too: those must not shrink with the output layer.
        scale = 1.0 / factor if is_tied(decoder) else 1.0
        tied = f"; the embeddings tied to them are multiplied with {scale:.4g} on input"
        note = tied if is_tied(decoder) else ""
        logger.info(f"--output-init xavier: output weights scaled by {factor:.4g}{note}")
        return dataclasses.replace(wanted, input_scale=scale)

    def _is_finetuning(self) -> bool:
        """Whether the checkpoint is --finetune-from-model's; fairseq prefers one to resume."""
        last = os.path.join(self.cfg.save_dir, "checkpoint_last.pt")
        return self.cfg.finetune_from_model is not None and not os.path.exists(last)

    def _resolve_tau(
        self, model: nn.Module, alpha: float, first_batch: Callable[[], dict]
    ) -> tuple[float, str]:
        """τ for a new α-ReLU model, the same on all workers; and how it was obtained."""
        assert self.criterion is not None
        tau_from = self.criterion.tau_from
        if tau_from == "formula":
            try:
                tau = formula_tau(model.decoder, alpha)
            except ValueError as error:
                raise UsageError(f"--tau formula: {error}; use --tau batch") from None
            how = "formula, from the scale of the output weights"
        else:
            padding = self.criterion.padding_idx
            tau = agreed("--tau batch", lambda: measure_tau(model, alpha, first_batch(), padding))
            how = "batch, the mean entmax threshold over the first batch"
        if not math.isfinite(tau):
            raise UsageError(f"--tau {tau_from} gave {tau}: set --tau to a number")
        return tau, how


def measure_tau(model: nn.Module, alpha: float, sample: dict, padding: int) -> float:
    """SE §3.1, with dropout off, over the target's words."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        logits = model(**sample["net_input"])[0]
    model.train(was_training)
    return batch_tau(logits[sample["target"].ne(padding)], alpha)


def agreement(wanted: OutputSettings, loaded: OutputSettings, finetuning: bool) -> OutputSettings:
    """What a model goes on with that was trained for `loaded`: the same, but for fine-tuning."""
    same = is_same_mapping(wanted, loaded)
    tau = wanted.tau
    if same and tau is None:
        tau = loaded.tau  # the model was trained around it
    if not finetuning:
        if not (same and is_same_tau(tau, loaded.tau)):
            raise UsageError(
                f"the checkpoint's output is {loaded}, the criterion's is {wanted}; resume "
                "with the same, or start a new run with --finetune-from-model"
            )
        tau = loaded.tau
    return dataclasses.replace(wanted, tau=tau, input_scale=loaded.input_scale)


def is_same_mapping(one: OutputSettings, other: OutputSettings) -> bool:
    """Same kind and α, but for the last digits, which an average over checkpoints may change."""
    return one.kind == other.kind and math.isclose(one.alpha, other.alpha, rel_tol=1e-6)


def is_same_tau(one: float | None, other: float | None) -> bool:
    """None is a τ that is not resolved yet; the last digits as for α."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6)


def requested_output(criterion: nn.Module | None) -> OutputSettings:
    """What a criterion trains: fairseq's own are for softmax."""
    return criterion.requested if isinstance(criterion, SparseCriterion) else OutputSettings()
