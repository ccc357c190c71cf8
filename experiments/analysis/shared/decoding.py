"""How analyses let a run's model translate."""

from sparse_fairseq.generation import SparseSequenceGenerator

from ...run_folder import Run
from .models import Loaded


def beam_of(run: Run) -> int:
    """The one that translated; fairseq's if the config names none."""
    return int(run.config["generate"].get("beam", 5))


def generator_of(loaded: Loaded, run: Run, **options) -> SparseSequenceGenerator:
    """With the run's beam, limits of length, ranking and end of the search, but for these options
    of the generator; one hypothesis each."""
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
