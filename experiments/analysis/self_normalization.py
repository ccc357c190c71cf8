"""Σp at each step (SE §4.5, Fig. 7): 1 for softmax and entmax; α-ReLU is only near a constant.

`madeupword`s and padding count here, as they do when decoding. ``result``:

    gold, beam      at every position of the references, of the beam's hypotheses: positions, mean,
                    std, min, max, histogram {start, width, counts, above}: bin i begins at
                    start + i·width, `above` counts sums of 10 and more

"beam" is {"missing": why} if nothing was generated.
"""

from collections.abc import Iterator

from ..run_folder import Run
from .shared.analysis import Analysis
from .shared.models import ROWS, Loaded, load, model_inputs
from .shared.streams import Histogram
from .support import ways


def compute(run: Run, settings: dict) -> dict:
    loaded, split = load(run), settings["split"]
    result: dict = {"split": split}
    for way, targets in ways(loaded, run, split):
        if isinstance(targets, str):
            result[way] = {"missing": targets}
        else:
            result[way] = measure(loaded, targets(f"{run.name}: Σp, {way}"))
    return result


def measure(loaded: Loaded, batches: Iterator[dict]) -> dict:
    sums = Histogram()
    for sample in batches:
        logits, _ = loaded.forced(sample)
        for block in logits.split(ROWS):
            sums.add(loaded.transform.scores(block).double().sum(1).cpu())
    return sums.summary()


ANALYSIS = Analysis(compute, model_inputs, {"split": "test"})

if __name__ == "__main__":
    ANALYSIS.main()
