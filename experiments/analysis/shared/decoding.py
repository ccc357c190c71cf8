"""How a run's model translates in analyses and on the page of `make explore`: as it was decoded."""

from typing import Any

from sparse_fairseq.generation import SparseSequenceGenerator

from ...run_folder import Run
from .models import Loaded

# Flags of fairseq-generate that say what is searched for, and their names in the generator.
GENERATE = {
    "beam": "beam_size",
    "max-len-a": "max_len_a",
    "max-len-b": "max_len_b",
    "min-len": "min_len",
    "lenpen": "len_penalty",
    "unkpen": "unk_penalty",
    "no-repeat-ngram-size": "no_repeat_ngram_size",
    "temperature": "temperature",
    "match-source-len": "match_source_len",
    "end-search": "end_search",
    "score-normalization": "score_normalization",
}


def beam_of(run: Run) -> int:
    """The one that translated; fairseq's if the config names none."""
    return int(run.config["generate"].get("beam", 5))


def generator_settings(config: dict[str, Any]) -> dict[str, Any]:
    """What the run's config asks of the generator."""
    flags = config.get("generate", {})
    found = {name: flags[flag] for flag, name in GENERATE.items() if flags.get(flag) is not None}
    return {"beam_size": 5, "normalize_scores": not flags.get("unnormalized", False), **found}


def generator_of(loaded: Loaded, run: Run, **options) -> SparseSequenceGenerator:
    """As the run was decoded, but for these options of the generator; one hypothesis each."""
    configured = {**generator_settings(run.config), "nbest": 1}
    return SparseSequenceGenerator([loaded.model], loaded.dictionary, **{**configured, **options})
