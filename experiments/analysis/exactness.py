"""How often beam search is exact (S2S §4.1), from the E- lines of fairseq-generate.

``result`` has one entry per split ("valid", "test") that was generated:

    sentences                   number of sentences
    certified_raw               % whose translation is provably the best of all by its raw score
    certified_normalized        the same by the length-normalised score
    exhaustive                  % whose n-best list holds every sentence with a non-zero score
    single_hypothesis           % with exactly one such sentence
    forced                      sentences without any
    mean_hypotheses, counts     number of hypotheses that were found (at most the beam): mean, and
                                [[number, how many sentences], …]
    beam                        size of the beam
"""

from ..fairseq_output import Generated
from ..metrics import exactness
from ..run_folder import Run
from .shared.analysis import Analysis, NotMeasured, beam_hypotheses

SPLITS = ("valid", "test")


def compute(run: Run, settings: dict) -> dict:
    splits = [split for split in SPLITS if run.generated(split).exists()]
    if not splits:
        raise NotMeasured("not run yet: nothing was generated")
    beam = run.config["generate"].get("beam")
    return {split: {**measure(beam_hypotheses(run, split)), "beam": beam} for split in splits}


def measure(sentences: list[Generated]) -> dict:
    found = exactness(sentences)
    if not found:
        raise NotMeasured("fairseq-generate printed no E- lines")
    return {"sentences": len(sentences), **found}


ANALYSIS = Analysis(compute, lambda run, settings: [run.generated(split) for split in SPLITS])

if __name__ == "__main__":
    ANALYSIS.main()
