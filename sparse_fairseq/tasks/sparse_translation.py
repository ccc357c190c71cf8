"""`--task sparse_translation`: fairseq's translation task for models with an OutputTransform.

It attaches the transform to any encoder-decoder model, gives a new model the output its criterion
asks for, resolves τ before the first update and refuses a checkpoint that disagrees.
"""

import dataclasses
import logging
import math
import os
from dataclasses import dataclass, field
from typing import NoReturn, Optional

import torch
from fairseq import utils
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from ..criterions import SparseCriterion
from ..errors import UsageError
from ..functional import batch_tau
from ..generation import (
    GenerationError,
    SparseSequenceGenerator,
    SparseSequenceGeneratorWithAlignment,
    SparseSequenceScorer,
)
from ..generation.report import ExactnessReport, output_of_command
from ..modules import expect_checkpoint
from ..optim import tell_validation_loss
from ..output_init import formula_tau, is_tied, scale_to_xavier
from ..output_transform import (
    OutputSettings,
    OutputTransform,
    attach_output_transform,
    output_layer,
)

logger = logging.getLogger(__name__)


@dataclass
class SparseTranslationConfig(TranslationConfig):
    output_init: ChoiceEnum(["auto", "xavier", "fairseq"]) = field(
        default="auto",
        metadata={
            "help": "scale of a new model's output weights: OpenNMT's (xavier) or as fairseq "
            "initialises them; auto: xavier for sparse criteria, with which they learn faster"
        },
    )
    score_normalization: ChoiceEnum(["none", "renormalize"]) = field(
        default="none",
        metadata={
            "help": "what to do with α-ReLU's scores when decoding: use them as they are, as in "
            "the paper, or divide them by their sum at each step"
        },
    )
    end_search: ChoiceEnum(["auto", "full", "ahead"]) = field(
        default="auto",
        metadata={
            "help": "when beam search ends a sentence of which --beam hypotheses have ended; full: "
            "at once, as fairseq does; ahead: when no unfinished one has a higher total score; "
            "auto: ahead for sparse models, full for softmax"
        },
    )
    # fairseq knows Optional, but not `str | None`.
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")  # noqa: UP045
    save_dir: str = II("checkpoint.save_dir")
    quiet: bool = II("common_eval.quiet")


@register_task("sparse_translation", dataclass=SparseTranslationConfig)
class SparseTranslationTask(TranslationTask):
    cfg: SparseTranslationConfig
    supports_sparse_output = True
    uses_ema = True  # makes the trainer hand its EMA model to train_step

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        self._new_model = None
        self._criterion = None
        self._train_iterator = None
        self._decoding_iterator = None
        self._subsets_validated = 0
        self._exactness = None  # an ExactnessReport while fairseq-generate runs

    def build_model(self, cfg, from_checkpoint=False):
        model = super().build_model(cfg, from_checkpoint)
        if not hasattr(model, "decoder"):
            raise UsageError("--task sparse_translation needs an encoder-decoder model")
        attach_output_transform(model)
        # Loaders (generate, validate, from_pretrained) say from_checkpoint; a model to be trained
        # gets its criterion next.
        self._new_model = None if from_checkpoint else model
        return model

    def build_criterion(self, cfg, from_checkpoint=False):
        criterion = super().build_criterion(cfg, from_checkpoint)
        self._criterion = criterion
        if self._new_model is not None:
            self._prepare_training(self._new_model.decoder, criterion)
            expect_checkpoint(self._new_model, finetuning=self._is_finetuning())
            self._new_model = None
        return criterion

    def _prepare_training(self, decoder, criterion):
        """The output of a model that starts from nothing. Here, and not when the first epoch
        begins, because half-precision optimizers copy the weights in between."""
        wanted = requested_output(criterion)
        if wanted.kind != "softmax" and getattr(decoder, "adaptive_softmax", None) is not None:
            raise UsageError(
                f"{wanted.kind} needs the logits of the whole vocabulary: "
                "drop --adaptive-softmax-cutoff"
            )
        transform = decoder.output_transform
        transform.settings = wanted
        init = str(self.cfg.output_init)
        if init == "auto":
            known = wanted.kind != "softmax" and output_layer(decoder) is not None
            init = "xavier" if known else "fairseq"
        if init == "xavier":
            self._initialise_output(decoder, transform)

        def after_load(module, incompatible_keys):
            if module is transform:  # and not the copy in an EMA model
                self._after_load(transform)

        transform.register_load_state_dict_post_hook(after_load)

    def _initialise_output(self, decoder, transform):
        try:
            factor = scale_to_xavier(decoder)
        except ValueError as error:
            raise UsageError(f"--output-init xavier: {error}") from None
        note = ""
        if is_tied(decoder):
            # Tied weights are embeddings too: those must not shrink with the output layer.
            scale = 1.0 / factor
            transform.settings = dataclasses.replace(transform.settings, input_scale=scale)
            note = f"; the embeddings tied to them are multiplied with {scale:.4g} on input"
        logger.info(f"--output-init xavier: output weights scaled by {factor:.4g}{note}")

    def _after_load(self, transform: OutputTransform):
        """A checkpoint was loaded into the model that is to be trained."""
        loaded = transform.settings if transform.found_in_checkpoint else OutputSettings()
        wanted = requested_output(self._criterion)
        same = is_same_mapping(wanted, loaded)
        tau = wanted.tau
        if same and tau is None:
            tau = loaded.tau  # the model was trained around it
        if not self._is_finetuning():
            same = same and is_same_tau(tau, loaded.tau)
            if not same:
                raise UsageError(
                    f"the checkpoint's output is {loaded}, the criterion's is {wanted}; resume "
                    "with the same, or start a new run with --finetune-from-model"
                )
            tau = loaded.tau
        transform.settings = dataclasses.replace(wanted, tau=tau, input_scale=loaded.input_scale)

    def _is_finetuning(self) -> bool:
        """Whether the checkpoint was --finetune-from-model's; fairseq prefers one to resume."""
        last = os.path.join(self.cfg.save_dir, "checkpoint_last.pt")
        return self.cfg.finetune_from_model is not None and not os.path.exists(last)

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        if split == self.cfg.train_subset:
            self._refuse_empty_files(split, epoch)
        super().load_dataset(split, epoch, combine, **kwargs)

    def _refuse_empty_files(self, split, epoch):
        """fairseq-preprocess writes no byte for no sentence, and fairseq cannot read that."""
        paths = utils.split_paths(self.cfg.data)
        folder = paths[(epoch - 1) % len(paths)]
        languages = (self.cfg.source_lang, self.cfg.target_lang)
        for language in languages:
            file = os.path.join(folder, f"{split}.{'-'.join(languages)}.{language}.bin")
            if os.path.exists(file) and os.path.getsize(file) == 0:
                raise UsageError(f"the training set is empty: {file}")

    def get_batch_iterator(
        self,
        dataset,
        max_tokens=None,
        max_sentences=None,
        max_positions=None,
        ignore_invalid_inputs=False,
        required_batch_size_multiple=1,
        *args,
        **kwargs,
    ):
        sizes = (max_tokens, max_sentences, max_positions, ignore_invalid_inputs)
        multiple = required_batch_size_multiple
        try:
            iterator = super().get_batch_iterator(dataset, *sizes, multiple, *args, **kwargs)
        except IndexError:  # fairseq asks for the last of no batches
            fitting = count_fitting(dataset, max_positions)
            if fitting:
                raise
            self._refuse_no_batch(dataset, fitting, max_positions, multiple)
        # To decode nothing is no error; to train or validate on nothing is one in fairseq too.
        if self._criterion is not None and not iterator.frozen_batches:
            fitting = count_fitting(dataset, max_positions)
            self._refuse_no_batch(dataset, fitting, max_positions, multiple)
        if dataset is self.datasets.get(self.cfg.train_subset):
            self._train_iterator = iterator
        self._decoding_iterator = iterator
        return iterator

    def _refuse_no_batch(self, dataset, fitting: int, max_positions, multiple: int) -> NoReturn:
        names = [name for name, known in self.datasets.items() if known is dataset]
        name = names[0] if names else "data"
        which = "the training set" if name == self.cfg.train_subset else f"the set '{name}'"
        if fitting:
            reason = (
                f"its {fitting} sentence pairs fill no batch of "
                f"--required-batch-size-multiple {multiple}; set that to 1, or add sentences"
            )
        else:
            reason = (
                f"none of its {len(dataset)} sentence pairs is within the size limits "
                f"{max_positions} (--max-source-positions, --max-target-positions, --max-tokens)"
            )
        raise UsageError(f"{which} is empty: {reason}")

    def begin_epoch(self, epoch, model):
        super().begin_epoch(epoch, model)
        transform = model.decoder.output_transform
        settings = transform.settings
        if settings.kind == "alpha_relu" and settings.tau is None:
            tau, how = self._resolve_tau(model, settings.alpha)
            transform.settings = dataclasses.replace(settings, tau=tau)
            logger.info(f"tau = {tau!r} ({how})")
        elif epoch == 1:
            logger.info(f"output transform: {settings}")

    def _resolve_tau(self, model, alpha: float) -> tuple[float, str]:
        """τ for a new α-ReLU model, from worker 0 on all workers; and how it was obtained."""
        if self._criterion.tau_from == "formula":
            try:
                tau = formula_tau(model.decoder, alpha)
            except ValueError as error:
                raise UsageError(f"--tau formula: {error}; use --tau batch") from None
            how = "formula, from the scale of the output weights"
        else:
            tau = math.nan
            if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
                tau = self._measure_tau(model, alpha)
            how = "batch, the mean entmax threshold over the first batch"
        if torch.distributed.is_initialized():
            device = next(model.parameters()).device
            shared = torch.tensor(tau, dtype=torch.float64, device=device)
            torch.distributed.broadcast(shared, src=0)
            tau = shared.item()
        if not math.isfinite(tau):
            raise UsageError(f"--tau {self._criterion.tau_from} gave {tau}: set --tau to a number")
        return tau, how

    def _measure_tau(self, model, alpha: float) -> float:
        """SE §3.1, with dropout off, on the batch that the first update is going to see."""
        iterator = self._train_iterator
        first = iterator.ordered_batches(iterator.epoch, False, iterator.shuffle)[0]
        sample = iterator.dataset.collater([iterator.dataset[i] for i in first])
        if next(model.parameters()).is_cuda:
            sample = utils.move_to_cuda(sample)
        was_training = model.training
        model.eval()
        with torch.no_grad():
            logits = model(**sample["net_input"])[0]
        model.train(was_training)
        return batch_tau(logits[sample["target"].ne(self.tgt_dict.pad())], alpha)

    def train_step(self, sample, model, criterion, *args, ema_model=None, **kwargs):
        if ema_model is not None:
            # EMA averages weights; what the weights are for must be the model's own.
            ema_model.decoder.output_transform.settings = model.decoder.output_transform.settings
        return super().train_step(sample, model, criterion, *args, **kwargs)

    def valid_step(self, sample, model, criterion, ema_model=None):
        settings, wanted = model.decoder.output_transform.settings, requested_output(criterion)
        if not is_same_mapping(settings, wanted):
            raise UsageError(
                f"the model's output is {settings}, the criterion's is {wanted}: "
                "validate with the criterion the model was trained with"
            )
        return super().valid_step(sample, model, criterion)

    def begin_valid_epoch(self, epoch, model):
        super().begin_valid_epoch(epoch, model)
        self._subsets_validated = 0

    def post_validate(self, model, stats, meters):
        """fairseq calls this after each subset; `stats` are rounded, the meters are not."""
        if self._subsets_validated == 0:
            tell_validation_loss(float(meters["loss"].avg))
        self._subsets_validated += 1

    def build_generator(
        self,
        models,
        args,
        seq_gen_cls=None,
        extra_gen_cls_kwargs=None,
        prefix_allowed_tokens_fn=None,
    ):
        extra = dict(extra_gen_cls_kwargs or {})
        # Only fairseq-generate says which language model to use, be it none.
        is_generate_command = "lm_model" in extra
        if is_generate_command and self.cfg.quiet is not True:
            refuse_iteration_flags(args)
        normalization = str(self.cfg.score_normalization)
        self._exactness = None
        if getattr(args, "score_reference", False):
            return SparseSequenceScorer(
                self.target_dictionary,
                compute_alignment=getattr(args, "print_alignment", False),
                normalize_scores=not getattr(args, "unnormalized", False),
                score_normalization=normalization,
            )
        if seq_gen_cls is None:
            seq_gen_cls = SparseSequenceGenerator
            extra["score_normalization"] = normalization
            extra["end_search"] = str(self.cfg.end_search)
            if is_generate_command or not hasattr(args, "nbest"):
                # Others may use more hypotheses than --nbest; validation uses the best.
                extra["nbest"] = getattr(args, "nbest", 1)
            if getattr(args, "print_alignment", None):
                seq_gen_cls = SparseSequenceGeneratorWithAlignment
                extra["print_alignment"] = args.print_alignment
            self._exactness = ExactnessReport() if is_generate_command else None
        try:
            return super().build_generator(
                models, args, seq_gen_cls, extra, prefix_allowed_tokens_fn
            )
        except (ValueError, AssertionError) as error:
            raise UsageError(str(error)) from None

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        try:
            found = super().inference_step(generator, models, sample, prefix_tokens, constraints)
        except GenerationError as error:
            raise UsageError(str(error)) from None
        if self._exactness is not None:
            self._report_exactness(sample, found)
        return found

    def _report_exactness(self, sample, found):
        """fairseq-generate has no hook for lines of its own, so those of a batch are printed where
        the batch is decoded, before its S- and H- lines, and the summary with the last batch."""
        output = output_of_command()
        for number, hypotheses in zip(sample["id"].tolist(), found, strict=True):
            line = self._exactness.add(hypotheses)
            if self.cfg.quiet is not True:
                print(f"E-{number}\t{line}", file=output)
        iterator = self._decoding_iterator
        # A worker with fewer batches than others gets empty ones at the end.
        own = range(iterator.shard_id, len(iterator.frozen_batches), iterator.num_shards)
        if iterator.iterations_in_epoch >= len(own):
            print(self._exactness.summary(), file=output)
            if self._exactness.forced:
                logger.warning(
                    f"{self._exactness.forced} sentences have no hypothesis with a non-zero score; "
                    "their best unfinished one was closed (E- lines: status=forced)"
                )


def refuse_iteration_flags(args) -> None:
    """fairseq-generate prints what they ask for, and only generators that refine have it."""
    for name in ("print_step", "retain_iter_history"):
        if getattr(args, name, False):
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is for iterative refinement, which this task does not do")


def count_fitting(dataset, max_positions) -> int:
    """How many sentence pairs are not too long."""
    indices = dataset.ordered_indices()
    if max_positions is not None:
        indices, _ = dataset.filter_indices_by_size(indices, max_positions)
    return len(indices)


def is_same_mapping(one: OutputSettings, other: OutputSettings) -> bool:
    """Same kind and α, but for the last digits, which an average over checkpoints may change."""
    return one.kind == other.kind and math.isclose(one.alpha, other.alpha, rel_tol=1e-6)


def is_same_tau(one: float | None, other: float | None) -> bool:
    """None is a τ that is not resolved yet; the last digits as for α."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6)


def requested_output(criterion) -> OutputSettings:
    """What a criterion trains: fairseq's own are for softmax."""
    return criterion.requested if isinstance(criterion, SparseCriterion) else OutputSettings()
