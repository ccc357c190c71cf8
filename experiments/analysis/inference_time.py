"""Decoding time against beam size, normalised by the smallest (SE Fig. 4).

All systems decode the same sentences, round after round, so that a busy machine slows all of them;
each is warmed up first, and the median over the rounds counts. ``result``:

    split, sentences, rounds, device, threads
    seeds       {system: seed}
    times       one per system and beam: system, beam, seconds (median), all (seconds of each
                round), sentences_per_second, normalized (by the smallest median of all)
"""

import statistics
import time

import torch

from data_prep.progress import track
from sparse_fairseq.generation import SparseSequenceGenerator

from ..runs import Run
from .examples import one_run_per_system
from .shared.analysis import Analysis, NotMeasured, decoded_checkpoint
from .shared.models import Loaded, data_files, load


def compute(runs: list[Run], settings: dict) -> dict:
    split = settings["split"]
    chosen = one_run_per_system(runs, split)
    if not chosen:
        raise NotMeasured("not run yet: no system has translations")
    seconds: dict[tuple[str, int], list[float]] = {}
    turns = [(run, beam) for run in chosen for beam in settings["beams"]]
    label, total = f"{chosen[0].dataset}: decoding", settings["rounds"] * len(turns)
    for run, beam in track(turns * settings["rounds"], label, total, "turns"):
        loaded = load(run)  # one model in memory at a time
        samples = first_batches(loaded, split, settings["sentences"])
        seconds.setdefault((run.system, beam), []).append(decode(loaded, samples, beam, run))
    sentences = sum(len(sample["id"]) for sample in samples)
    return {
        "split": split,
        "sentences": sentences,
        "rounds": settings["rounds"],
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "seeds": {run.system: run.seed for run in chosen},
        "times": table(seconds, sentences),
    }


def first_batches(loaded: Loaded, split: str, sentences: int) -> list[dict]:
    count = min(sentences, len(loaded.dataset(split)))
    return list(loaded.batches(split, None, range(count)))


def decode(loaded: Loaded, samples: list[dict], beam: int, run: Run) -> float:
    flags = run.config["generate"]
    generator = SparseSequenceGenerator(
        [loaded.model],
        loaded.dictionary,
        beam_size=beam,
        max_len_a=float(flags.get("max-len-a", 0)),
        max_len_b=int(flags.get("max-len-b", 200)),
        len_penalty=float(flags.get("lenpen", 1)),
        normalize_scores=not flags.get("unnormalized", False),
        end_search=flags.get("end-search", "auto"),
        nbest=1,
    )
    generator.generate(None, samples[0])  # warm up
    started = time.perf_counter()
    for sample in samples:
        generator.generate(None, sample)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def table(seconds: dict[tuple[str, int], list[float]], sentences: int) -> list[dict]:
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    smallest = min(medians.values())
    return [
        {
            "system": system,
            "beam": beam,
            "seconds": medians[system, beam],
            "all": values,
            "sentences_per_second": sentences / medians[system, beam],
            "normalized": medians[system, beam] / smallest,
        }
        for (system, beam), values in seconds.items()
    ]


ANALYSIS = Analysis(
    compute,
    lambda run, settings: [decoded_checkpoint(run), *data_files(run, settings["split"])],
    {"split": "test", "beams": [1, 5, 10], "sentences": 64, "rounds": 3},
    together=True,
)

if __name__ == "__main__":
    ANALYSIS.main()
