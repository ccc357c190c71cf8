"""Search errors and model errors (Stahlberg & Byrne 2019), with proofs: what exact search finds.

Hypotheses are ranked by the sum of their log-scores, the empty one is allowed (`--min-len 0`), and
α-ReLU's scores are divided by their sum at each step. ``result``:

    split, sentences, budget
    proved_by_beam, proved      % of sentences whose best translation is proved after a beam of 5,
                                and with exact search
    gaps                        of the others: how far, in nats, the best may be above what was
                                found; sorted
    search_errors               {beam: % of the proved sentences whose best that beam missed}
    beam, exact                 of a beam of 5, and of the best that was found: bleu and chrf of
                                the words (as they were divided for training, so only comparable
                                with each other), empty (% of translations), length (words, of
                                100 in the references), shorter (% of translations with fewer
                                words than the beam's)
    of_proved                   {sentences, beam, exact}: the same of the sentences whose best
                                translation is proved; null if there is none
    by_length                   [{words (of the source, at most), sentences, proved, time}, …]
    by_budget                   [{budget, proved, time}, …]; a budget of 0 is the beam of 5

``time`` is CPU time relative to the beam of 5. Beam and budgets take turns, batch by batch, and the
sentences of a batch, which are about as long, share its time equally.
"""

import time

from sparse_fairseq.generation import SparseSequenceGenerator

from ..run_folder import Run
from .shared.analysis import Analysis, percent
from .shared.decoding import generator_of
from .shared.models import Loaded, load, model_inputs
from .shared.words import reader, word_scores

BEAM = 5
BEAMS = (1, BEAM, 20)
BUDGETS = (0, 100, 400, 1000)  # and the one of the settings, which is the last
CLOSE = 1e-4  # nats: what rounding may do
LENGTHS = (5, 10, 15, 20, 30, 50)


def compute(run: Run, settings: dict) -> dict:
    loaded, split = load(run), settings["split"]
    count = min(settings["sentences"], len(loaded.dataset(split)))
    found = Findings(loaded, run, settings["budget"])
    for sample in loaded.batches(split, f"{run.name}: exact search", range(count)):
        found.add(sample)
    return {"split": split, "sentences": count, "budget": settings["budget"], **found.result()}


def search_generator(
    loaded: Loaded, run: Run, beam: int, budget: int = 0, min_len: int = 0
) -> SparseSequenceGenerator:
    return generator_of(
        loaded,
        run,
        beam_size=beam,
        min_len=min_len,
        normalize_scores=False,
        score_normalization="renormalize",
        end_search="ahead",
        exact_budget=budget,
    )


class Findings:
    """Collects what beams and exact search find, sentence by sentence."""

    def __init__(self, loaded: Loaded, run: Run, budget: int):
        self.run = run
        self.words, self.wanted = reader(loaded, run), reader(loaded, run, of_references=True)
        self.beams = {beam: search_generator(loaded, run, beam) for beam in BEAMS if beam != BEAM}
        self.budget = budget
        budgets = (*(b for b in BUDGETS if b < budget), budget)
        self.by_budget = {b: search_generator(loaded, run, BEAM, b) for b in budgets}
        self.turn = 1
        self.sentences: list[dict] = []

    def add(self, sample: dict) -> None:
        beams = {beam: generator.generate(None, sample) for beam, generator in self.beams.items()}
        budgets, seconds = self._timed(sample)
        beams[BEAM] = budgets[0]
        lengths = sample["net_input"]["src_lengths"].tolist()
        for place, (exact, *_) in enumerate(budgets[self.budget]):
            of_beams = {beam: found[place][0] for beam, found in beams.items()}
            self.sentences.append(
                {
                    "source": lengths[place] - 1,
                    "proved": {b: found[place][0]["proved"] for b, found in budgets.items()},
                    "seconds": {b: spent / len(lengths) for b, spent in seconds.items()},
                    "gap": exact["gap"]["raw"],
                    "missed": {
                        beam: float(found["score"]) < float(exact["score"]) - CLOSE
                        for beam, found in of_beams.items()
                    },
                    "exact": self.words(exact["tokens"]),
                    "beam": self.words(of_beams[BEAM]["tokens"]),
                    "reference": self.wanted(sample["target"][place]),
                }
            )

    def _timed(self, sample: dict) -> tuple[dict, dict]:
        """What each budget finds, and its seconds; every other batch begins with the last one."""
        found, seconds = {}, {}
        self.turn = -self.turn
        for budget in list(self.by_budget)[:: self.turn]:
            began = time.process_time()
            found[budget] = self.by_budget[budget].generate(None, sample)
            seconds[budget] = time.process_time() - began
        return found, seconds

    def result(self) -> dict:
        proved = [s for s in self.sentences if s["proved"][self.budget]]
        others = [s for s in self.sentences if not s["proved"][self.budget]]
        return {
            "proved_by_beam": _proved(self.sentences, 0),
            "proved": _proved(self.sentences, self.budget),
            "gaps": sorted(round(s["gap"], 4) for s in others if s["gap"] is not None),
            "search_errors": {
                str(beam): percent(sum(s["missed"][beam] for s in proved), len(proved))
                for beam in BEAMS
            },
            **self._qualities(self.sentences),
            "of_proved": {"sentences": len(proved), **self._qualities(proved)} if proved else None,
            "by_length": _by_length(self.sentences, self.budget),
            "by_budget": [
                {"budget": b, **_share_and_time(self.sentences, b)} for b in self.by_budget
            ],
        }

    def _qualities(self, sentences: list[dict]) -> dict:
        return {which: self._quality(sentences, which) for which in ("beam", "exact")}

    def _quality(self, sentences: list[dict], which: str) -> dict:
        texts = [s[which] for s in sentences]
        shorter = sum(len(s[which].split()) < len(s["beam"].split()) for s in sentences)
        return {
            **word_scores(self.run, texts, [s["reference"] for s in sentences]),
            "empty": percent(sum(not text for text in texts), len(texts)),
            "shorter": percent(shorter, len(sentences)),
        }


def _proved(sentences: list[dict], budget: int) -> float | None:
    return percent(sum(s["proved"][budget] for s in sentences), len(sentences))


def _share_and_time(sentences: list[dict], budget: int) -> dict:
    spent, plain = (sum(s["seconds"][b] for s in sentences) for b in (budget, 0))
    return {"proved": _proved(sentences, budget), "time": round(spent / plain, 3)}


def _by_length(sentences: list[dict], budget: int) -> list[dict]:
    groups, left = [], sentences
    for limit in (*LENGTHS, None):
        here = [s for s in left if limit is None or s["source"] <= limit]
        left = [s for s in left if limit is not None and s["source"] > limit]
        if here:
            measured = _share_and_time(here, budget)
            groups.append({"words": limit, "sentences": len(here), **measured})
    return groups


# Less than the default of a search: an analysis searches many times.
ANALYSIS = Analysis(compute, model_inputs, {"split": "test", "sentences": 1000, "budget": 2000})

if __name__ == "__main__":
    ANALYSIS.main()
