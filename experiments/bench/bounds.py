"""What the bounds of plain beam search cost: the same search with and without them.

    python -m experiments.bench.bounds runs/<dataset> [--rounds 5] [--sentences 1000]

Without bounds a sentence only knows whether anything was ever dropped, as S2S §4.1 needs it: not
how good that was, nor what probability the flags forbid. The empty translation is forbidden, as it
is for users: so the bound on the mass costs something, too. Both take turns, batch by batch; one
thread, CPU time, medians. Writes bounds_<dataset>.csv.
"""

import argparse
import dataclasses
import gc
import math
import time
from statistics import median

import numpy as np
import torch

from sparse_fairseq.generation.batch_search import BatchSearch
from sparse_fairseq.generation.beams import HostCandidates
from sparse_fairseq.generation.sentence import Ended, Sentence

from ..analysis.exact_search import BEAM, search_generator
from ..analysis.shared.models import load
from ..run_folder import Run
from .common import write_csv
from .exact_search import add_arguments, batches_of, runs_of

LOSSY = 0.0  # some total: that there is one is all that counts


class UnboundedSentence(Sentence):
    def drop(self, total: float, shortest: int, longest: int) -> None:
        if total > -math.inf:
            self.dropped = LOSSY

    def cut(self, total: float, longest: int) -> None:
        if total > -math.inf:
            self.beyond = LOSSY

    def proofs(self, ended: Ended) -> dict:
        return {"exact": self.exhaustive}


class UnboundedSearch(BatchSearch):
    """Does not compute what it drops."""

    def __init__(self, *args):
        super().__init__(*args)
        # Of scores that are no probabilities nothing is summed up.
        self.next.output = dataclasses.replace(self.output, is_probability=False)
        self.sentences = [
            UnboundedSentence(s.ranking, s.seeks_best, s.only_falls, s.is_probability)
            for s in self.sentences
        ]

    def _note_pruned(self, found: HostCandidates, pruned: np.ndarray) -> None:
        for index in pruned.any(1).nonzero()[0].tolist():
            self.sentences[self.running[index]].dropped = LOSSY


@torch.no_grad()
def measure(run: Run, split: str, sentences: int, rounds: int) -> dict:
    loaded = load(run)
    generator = search_generator(loaded, run, BEAM, min_len=1)
    searches = {"without": UnboundedSearch, "with": BatchSearch}
    seconds = dict.fromkeys(searches, 0.0)
    for turn, sample in enumerate(batches_of(loaded.dataset(split), sentences)):
        found: dict[str, list] = {}
        clocks: dict[str, list[float]] = {name: [] for name in searches}
        for number in range(-1, rounds):  # the first one warms up
            for name in list(searches)[:: -1 if (turn + number) % 2 else 1]:
                gc.collect()
                began = time.process_time()
                found[name] = searches[name](generator, sample, None, None, None).run()
                clocks[name].append(time.process_time() - began)
        pairs = zip(found["with"], found["without"], strict=True)
        if any(a[0]["tokens"].tolist() != b[0]["tokens"].tolist() for a, b in pairs):
            raise AssertionError("bounds change what is found")
        for name in searches:
            seconds[name] += median(clocks[name][1:])
    return {
        "system": run.system,
        "sentences": sentences,
        **{name: round(spent, 3) for name, spent in seconds.items()},
        "cost_percent": round(100 * (seconds["with"] / seconds["without"] - 1), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser, rounds=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for run in runs_of(parser, options.runs):
        rows.append(measure(run, options.split, options.sentences, options.rounds))
        print(rows[-1], flush=True)
    write_csv(f"bounds_{options.runs.name}", rows)


if __name__ == "__main__":
    main()
