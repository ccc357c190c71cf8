"""Decoding time against beam size, normalised by the smallest (SE Fig. 4).

All systems decode the same sentences, in turns; each is warmed up first, and the median over the
rounds counts. Without a GPU, one thread works, and its CPU time counts: that of the wall would be
longer on a busy machine. ``result``:

    split, sentences, rounds, device, threads
    clock       "cpu" or "wall"
    seeds       {system: seed}
    times       one per system and beam: system, beam, seconds (median), all (seconds of each
                round), sentences_per_second, normalized (by the smallest median of all)
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from data_prep.progress import track

from ..run_folder import Run
from ..systems import describe
from .examples import one_run_per_system
from .shared.analysis import Analysis, NotMeasured
from .shared.decoding import beam_of, generator_of
from .shared.models import Loaded, data_files, load


def compute(runs: list[Run], settings: dict) -> dict:
    split = settings["split"]
    chosen = one_run_per_system(runs, split)
    if not chosen:
        raise NotMeasured("not run yet: no system has translations")
    clock = Clock()
    beams = sorted({*settings["beams"], *(beam_of(run) for run in chosen)})
    seconds: dict[tuple[str, int], list[float]] = {}
    turns = [(run, beam) for run in chosen for beam in beams]
    label, total = f"{chosen[0].dataset}: decoding", settings["rounds"] * len(turns)
    with clock.threads():
        for run, beam in track(turns * settings["rounds"], label, total, "turns"):
            loaded = load(run)  # one model in memory at a time
            loaded.transform.solver = describe(run.system).solver
            samples = first_batches(loaded, split, settings["sentences"])
            found = decode(loaded, samples, beam, run, clock)
            seconds.setdefault((run.system, beam), []).append(found)
            threads = torch.get_num_threads()
    sentences = sum(len(sample["id"]) for sample in samples)
    return {
        "split": split,
        "sentences": sentences,
        "rounds": settings["rounds"],
        "device": "cpu" if clock.name == "cpu" else "cuda",
        "threads": threads,
        "clock": clock.name,
        "seeds": {run.system: run.seed for run in chosen},
        "times": table(seconds, sentences),
    }


class Clock:
    """CPU time of one thread where there is no GPU, else that of the wall."""

    def __init__(self) -> None:
        self.name = "wall" if torch.cuda.is_available() else "cpu"

    def __call__(self) -> float:
        if self.name == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def threads(self) -> Iterator[None]:
        """While this lasts, one thread works on a CPU."""
        before = torch.get_num_threads()
        torch.set_num_threads(1 if self.name == "cpu" else before)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def first_batches(loaded: Loaded, split: str, sentences: int) -> list[dict]:
    count = min(sentences, len(loaded.dataset(split)))
    return list(loaded.batches(split, None, range(count)))


def decode(loaded: Loaded, samples: list[dict], beam: int, run: Run, clock: Clock) -> float:
    generator = generator_of(loaded, run, beam_size=beam)
    generator.generate(None, samples[0])  # warm up
    started = clock()
    for sample in samples:
        generator.generate(None, sample)
    return clock() - started


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
    lambda run, settings: [
        run.decoded_checkpoint(),
        run.path / f"hypotheses-{settings['split']}.txt",
        *data_files(run, settings["split"]),
    ],
    {"split": "test", "beams": [1, 5, 10], "sentences": 64, "rounds": 3},
    together=True,
)

if __name__ == "__main__":
    ANALYSIS.main()
