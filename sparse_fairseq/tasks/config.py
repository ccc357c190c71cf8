"""The flags of `--task sparse_translation`."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.translation import TranslationConfig
from omegaconf import II

from ..generation.decision import DECISIONS, UTILITIES
from ..generation.exact_search import EXACT_BUDGET


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
    decoding_solver: ChoiceEnum(["auto", "sort", "topk", "bisect"]) = field(
        default="auto",
        metadata={
            "help": "how decoding finds entmax's threshold, as --solver says it for training; all "
            "give the same scores, and only auto looks at the best words alone"
        },
    )
    exact_search: bool = field(
        default=False,
        metadata={
            "help": "search until the translation is provably the best, or the budget is spent"
        },
    )
    exact_budget: Optional[int] = field(  # noqa: UP045
        default=None,
        metadata={
            "help": "prefixes that --exact-search or --enumerate may evaluate for a sentence, at "
            f"most (default: {EXACT_BUDGET})"
        },
    )
    enumerate: Optional[float] = field(  # noqa: UP045
        default=None,
        metadata={
            "help": "go on until the sentences found have this share of the probability, or the "
            "budget is spent; --nbest says how many are printed"
        },
    )
    decision: ChoiceEnum(list(DECISIONS)) = field(
        default="map",
        metadata={
            "help": "print the best hypothesis by its score first (map), or the one with the "
            "highest expected --utility under the probabilities of all that were found (mbr)"
        },
    )
    utility: ChoiceEnum(list(UTILITIES)) = field(
        default="chrf", metadata={"help": "of --decision mbr, by sacrebleu; edit: 100 - TER"}
    )
    validate_with_ema: bool = field(
        default=False,
        metadata={
            "help": "validate, and so select checkpoints, with the averaged weights of --store-ema "
            "(fairseq only stores them)"
        },
    )
    # fairseq knows Optional, but not `str | None`.
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")  # noqa: UP045
    save_dir: str = II("checkpoint.save_dir")
    quiet: bool = II("common_eval.quiet")
    results_path: Optional[str] = II("common_eval.results_path")  # noqa: UP045
    post_process: Optional[str] = II("common_eval.post_process")  # noqa: UP045
    gen_subset: str = II("dataset.gen_subset")
