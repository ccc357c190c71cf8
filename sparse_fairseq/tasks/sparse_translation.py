"""`--task sparse_translation`: fairseq's translation task for models with an OutputTransform.

fairseq's hooks. The flags are in `config`, what a new model's output starts with in `output_start`,
which sentences get into batches in `batches`, decoding in `generation`.
"""

import json
import logging
from argparse import Namespace

from fairseq import utils
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationTask

from ..batches import count_fitting, left_out, refuse_empty_files, refuse_no_batch
from ..cpu_workers import refuse_to_work_alone
from ..errors import UsageError
from ..generation import (
    GenerationError,
    SparseSequenceGenerator,
    SparseSequenceGeneratorWithAlignment,
    SparseSequenceScorer,
)
from ..generation.exact_search import EXACT_BUDGET
from ..generation.report import ExactnessReport
from ..generation.search_flags import check_search_flags
from ..generation.shortlist import transform_of
from ..optim import tell_validation_loss
from ..output_start import OutputStart
from ..update_clock import UpdateClock
from .config import SparseTranslationConfig

logger = logging.getLogger(__name__)


@register_task("sparse_translation", dataclass=SparseTranslationConfig)
class SparseTranslationTask(TranslationTask):
    cfg: SparseTranslationConfig
    supports_sparse_output = True
    uses_ema = True  # makes the trainer hand its EMA model to train_step and valid_step

    def __init__(self, cfg, src_dict, tgt_dict):
        refuse_to_work_alone()
        super().__init__(cfg, src_dict, tgt_dict)
        self.output_start = OutputStart(cfg)
        self._train_iterator = None
        self.serves_command = False  # and not a program that has loaded a checkpoint
        self._exactness = None  # an ExactnessReport while a command decodes
        self._reported_iterator = None
        self._subsets_validated = 0
        self._clock = UpdateClock()
        self._averaged = None  # the EMA model that validation's generator decodes with

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        task = super().setup_task(cfg, **kwargs)
        task.serves_command = not kwargs.get("from_checkpoint", False)
        return task

    def build_model(self, cfg, from_checkpoint=False):
        model = super().build_model(cfg, from_checkpoint)
        self.output_start.of_model(model, from_checkpoint)
        return model

    def build_criterion(self, cfg, from_checkpoint=False):
        criterion = super().build_criterion(cfg, from_checkpoint)
        self.output_start.of_criterion(criterion)
        self._exactness = None  # what is decoded from now on is for validation
        return criterion

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        if split == self.cfg.train_subset:
            refuse_empty_files(self.cfg, split, epoch)
        super().load_dataset(split, epoch, combine, **kwargs)

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
        trains = self.output_start.trains and dataset is self.datasets.get(self.cfg.train_subset)
        # A batch more or less is nothing to training; every other sentence wants its answer.
        multiple = required_batch_size_multiple if trains else 1
        sizes = (max_tokens, max_sentences, max_positions, ignore_invalid_inputs)
        try:
            iterator = super().get_batch_iterator(dataset, *sizes, multiple, *args, **kwargs)
        except IndexError:  # fairseq asks for the last of no batches
            if count_fitting(dataset, max_positions):
                raise
            refuse_no_batch(self._name_of(dataset), dataset, max_positions, multiple)
        # To decode nothing is no error; to train or validate on nothing is one in fairseq too.
        if self.output_start.criterion is not None and not iterator.frozen_batches:
            refuse_no_batch(self._name_of(dataset), dataset, max_positions, multiple)
        if trains and iterator is not self._train_iterator:
            self._train_iterator = iterator
            if missing := left_out(dataset, iterator.frozen_batches, max_positions, multiple):
                logger.info(f"the training set: {missing}")
        self._reported_iterator = iterator
        if self._exactness is not None:
            self._exactness.begin(iterator)
        return iterator

    def _name_of(self, dataset) -> str:
        names = [name for name, known in self.datasets.items() if known is dataset]
        name = names[0] if names else "data"
        return "the training set" if name == self.cfg.train_subset else f"the set '{name}'"

    def begin_epoch(self, epoch, model):
        super().begin_epoch(epoch, model)
        device = next(model.parameters()).device
        self.output_start.of_epoch(epoch, model, lambda: self._first_batch(device))

    def _first_batch(self, device) -> dict:
        """The batch that the first update is going to see, on worker 0 if there are several."""
        iterator = self._train_iterator
        first = iterator.ordered_batches(iterator.epoch, False, iterator.shuffle)[0]
        sample = iterator.dataset.collater([iterator.dataset[i] for i in first])
        return utils.move_to_cuda(sample, device) if device.type == "cuda" else sample

    def train_step(self, sample, model, criterion, *args, ema_model=None, **kwargs):
        if self.cfg.validate_with_ema and ema_model is None:
            raise UsageError("--validate-with-ema needs --store-ema")
        self.output_start.of_update(model, ema_model)
        self._clock.begin()
        return super().train_step(sample, model, criterion, *args, **kwargs)

    def valid_step(self, sample, model, criterion, ema_model=None):
        if self.cfg.validate_with_ema and ema_model is not None:
            model = self._averaged_for_validation(ema_model)
        self.output_start.of_validation(model, criterion)
        return super().valid_step(sample, model, criterion)

    def _averaged_for_validation(self, ema_model):
        """The EMA model as fairseq has the model itself when it validates."""
        ema_model.eval()
        if self.cfg.eval_bleu and self._averaged is not ema_model:
            args = Namespace(**json.loads(self.cfg.eval_bleu_args))
            self.sequence_generator = self.build_generator([ema_model], args)
            self._averaged = ema_model
        return ema_model

    def reduce_metrics(self, logging_outputs, criterion):
        super().reduce_metrics(logging_outputs, criterion)
        if any("_bleu_ref_len" in log for log in logging_outputs):
            # fairseq logs no BLEU as long as all translations are empty, and then dies of it where
            # --best-checkpoint-metric wants it. Large τ make empty translations at first.
            metrics.log_derived("bleu", _validation_bleu)
        self._clock.end()

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
        if self.serves_command and self.cfg.quiet is not True:
            refuse_iteration_flags(args)
        normalization = str(self.cfg.score_normalization)
        self._exactness = None
        for model in models:
            if (transform := transform_of(model)) is not None:
                transform.solver = str(self.cfg.decoding_solver)
        if getattr(args, "score_reference", False):
            return SparseSequenceScorer(
                self.target_dictionary,
                compute_alignment=getattr(args, "print_alignment", False),
                normalize_scores=not getattr(args, "unnormalized", False),
                score_normalization=normalization,
            )
        if seq_gen_cls is None:
            seq_gen_cls = SparseSequenceGenerator
            extra.update(self._search_settings(args))
            if getattr(args, "print_alignment", None):
                seq_gen_cls = SparseSequenceGeneratorWithAlignment
                extra["print_alignment"] = args.print_alignment
            if self.serves_command and self.output_start.criterion is None:
                self._exactness = ExactnessReport.of_command(self.cfg)
                if self._reported_iterator is not None:  # fairseq-generate asks for it before
                    self._exactness.begin(self._reported_iterator)
        try:
            check_search_flags(args)
            return super().build_generator(
                models, args, seq_gen_cls, extra, prefix_allowed_tokens_fn
            )
        except GenerationError as error:
            raise UsageError(str(error)) from None

    def _search_settings(self, args) -> dict:
        """Of this task's own flags."""
        cfg = self.cfg
        settings = {
            "score_normalization": str(cfg.score_normalization),
            "end_search": str(cfg.end_search),
            "decision": str(cfg.decision),
            "utility": str(cfg.utility),
            "to_text": self._to_text,
        }
        if cfg.exact_search or cfg.enumerate is not None:
            budget = cfg.exact_budget
            settings["exact_budget"] = EXACT_BUDGET if budget is None else budget
            settings["enumerate_mass"] = cfg.enumerate
        elif cfg.exact_budget is not None and self.serves_command:
            raise UsageError("--exact-budget needs --exact-search or --enumerate")
        if self.serves_command or not hasattr(args, "nbest"):
            # Programs may use more hypotheses than --nbest; validation uses the best.
            settings["nbest"] = getattr(args, "nbest", 1)
        return settings

    def _to_text(self, tokens) -> str:
        return self.target_dictionary.string(tokens.int().cpu(), self.cfg.post_process)

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        try:
            found = super().inference_step(generator, models, sample, prefix_tokens, constraints)
        except GenerationError as error:
            raise UsageError(str(error)) from None
        if self._exactness is not None:
            self._exactness.decoded(sample, found)
        return found


def refuse_iteration_flags(args) -> None:
    """fairseq-generate prints what they ask for, and only generators that refine have it."""
    for name in ("print_step", "retain_iter_history"):
        if getattr(args, name, False):
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is for iterative refinement, which this task does not do")


def _validation_bleu(meters) -> float:
    """From what fairseq has summed up of the batches with words in their translations."""
    from sacrebleu.metrics import BLEU

    if "_bleu_counts" not in meters:
        return 0.0
    counts, totals = (meters[f"_bleu_{name}"].sum for name in ("counts", "totals"))
    lengths = (int(meters[f"_bleu_{name}"].sum) for name in ("sys_len", "ref_len"))
    return round(BLEU.compute_bleu(counts, totals, *lengths, smooth_method="exp").score, 2)
