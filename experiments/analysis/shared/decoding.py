"""How analyses let a run's model translate: with the flags of its config, and as words."""

from torch import Tensor

from sparse_fairseq.generation import SparseSequenceGenerator

from ...run_folder import Run
from .models import Loaded


def beam_of(run: Run) -> int:
    """The one that translated; fairseq's if the config names none."""
    return int(run.config["generate"].get("beam", 5))


def generator_of(loaded: Loaded, run: Run, **options) -> SparseSequenceGenerator:
    """As the run was decoded, but for these options of the generator; one hypothesis each."""
    flags = run.config["generate"]
    configured = {
        "beam_size": beam_of(run),
        "max_len_a": float(flags.get("max-len-a", 0)),
        "max_len_b": int(flags.get("max-len-b", 200)),
        "len_penalty": float(flags.get("lenpen", 1)),
        "normalize_scores": not flags.get("unnormalized", False),
        "end_search": flags.get("end-search", "auto"),
        "nbest": 1,
    }
    return SparseSequenceGenerator([loaded.model], loaded.dictionary, **{**configured, **options})


def words_of(loaded: Loaded, run: Run, tokens: Tensor) -> str:
    """As they were divided for training, without the marks of subwords."""
    separator = {"bpe": "@@ ", "sentencepiece": "sentencepiece"}
    segmentation = run.config["data"].get("segmentation")
    real = tokens[tokens != loaded.dictionary.pad()]
    return loaded.dictionary.string(real.cpu(), separator.get(segmentation))
