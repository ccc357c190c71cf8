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

from ..runs import Run
from ..scoring import Generated
from .shared.analysis import Analysis, NotMeasured, beam_hypotheses, percent
from .shared.streams import Counts

SPLITS = ("valid", "test")


def compute(run: Run, settings: dict) -> dict:
    splits = [split for split in SPLITS if run.generated(split).exists()]
    if not splits:
        raise NotMeasured("not run yet: nothing was generated")
    beam = run.config["generate"].get("beam")
    return {split: {**measure(beam_hypotheses(run, split)), "beam": beam} for split in splits}


def measure(sentences: list[Generated]) -> dict:
    if any(sentence.hypotheses is None for sentence in sentences):
        raise NotMeasured("fairseq-generate printed no E- lines")

    def share(flags) -> float | None:
        return percent(sum(map(bool, flags)), len(sentences))

    found = Counts()
    found.add([sentence.hypotheses for sentence in sentences])
    return {
        "sentences": len(sentences),
        "certified_raw": share(s.exact_raw for s in sentences),
        "certified_normalized": share(s.exact_normalized for s in sentences),
        "exhaustive": share(s.exhaustive for s in sentences),
        "single_hypothesis": share(s.exhaustive and s.hypotheses == 1 for s in sentences),
        "forced": sum(s.status == "forced" for s in sentences),
        "mean_hypotheses": found.mean,
        "counts": found.summary()["counts"],
    }


ANALYSIS = Analysis(compute, lambda run, settings: [run.generated(split) for split in SPLITS])

if __name__ == "__main__":
    ANALYSIS.main()
