"""For how many sentences does `</s>` alone score higher than the beam's hypothesis (SE Table 2)?

Both sides are scored by the same model in the same way, in four ways: by the sum of the log-scores
as they are (``raw``, what the paper counts) and after division by Σp at each step
(``renormalized``: α-ReLU's Σp > 1 favours long output), each also divided by the length.
``result``:

    sentences                   number of sentences
    raw, renormalized, raw_length_normalized, renormalized_length_normalized
                                {"count", "percent"} of sentences that prefer the empty string
    empty_impossible            sentences whose empty translation has score 0
    empty_hypotheses            sentences whose hypothesis is itself empty (never counted above)
"""

import math

import torch
from torch import Tensor

from sparse_fairseq.generation import SparseSequenceScorer

from ..fairseq_output import Generated
from ..run_folder import Run
from .shared.analysis import Analysis, beam_hypotheses, percent
from .shared.models import Loaded, load, model_inputs

WAYS = ("raw", "renormalized")


def compute(run: Run, settings: dict) -> dict:
    loaded, split = load(run), settings["split"]
    generated = beam_hypotheses(run, split)
    scorer = SparseSequenceScorer(loaded.dictionary, softmax_batch=256)
    empty = torch.tensor([loaded.dictionary.eos()])
    tally, agree = Tally(), 0
    targets = [loaded.encode(sentence.hypothesis) for sentence in generated]
    label = f"{run.name}: empty string"
    for sample in loaded.batches(split, label, targets=targets):
        numbers = sample["id"].tolist()
        hypotheses = scorer.generate([loaded.model], sample)
        empties = scorer.score([loaded.model], sample, [empty] * len(numbers))
        for number, (hypothesis,), nothing in zip(numbers, hypotheses, empties, strict=True):
            tally.add(hypothesis, nothing)
            agree += agrees(generated[number], hypothesis["raw_scores"])
    _check(agree, tally.sentences, loaded, run, split)
    return {"split": split, **tally.result()}


class Tally:
    """Compares one hypothesis of the scorer with the empty one, sentence by sentence."""

    def __init__(self) -> None:
        self.sentences = self.impossible = self.empty = 0
        self.preferred = {way + kind: 0 for kind in ("", "_length_normalized") for way in WAYS}

    def add(self, hypothesis: dict, nothing: dict) -> None:
        self.sentences += 1
        length = len(hypothesis["tokens"])
        if length == 1:
            self.empty += 1
            return
        self.impossible += float(nothing["raw_scores"].sum()) == -math.inf
        for way in WAYS:
            total, other = (float(h[f"{way}_scores"].double().sum()) for h in (hypothesis, nothing))
            self.preferred[way] += other > total
            # The empty translation has length 1.
            self.preferred[f"{way}_length_normalized"] += other > total / length

    def result(self) -> dict:
        shares = {
            way: {"count": count, "percent": percent(count, self.sentences)}
            for way, count in self.preferred.items()
        }
        return {
            "sentences": self.sentences,
            **shares,
            "empty_impossible": self.impossible,
            "empty_hypotheses": self.empty,
        }


def agrees(sentence: Generated, scores: Tensor) -> bool:
    """Whether the score that was printed (base 2, divided by the length) is what we find."""
    total = float(scores.double().sum())
    if total == -math.inf or sentence.score == -math.inf:
        return total == sentence.score
    found = (total / math.log(2), total / len(scores) / math.log(2))
    return any(math.isclose(value, sentence.score, rel_tol=0.01, abs_tol=0.01) for value in found)


def _check(agree: int, sentences: int, loaded: Loaded, run: Run, split: str) -> None:
    """Hypotheses of another checkpoint, or in another segmentation, would be scored silently."""
    flags = run.config["generate"]
    plain = flags.get("lenpen", 1) == 1 and "score-normalization" not in flags
    if plain and agree < 0.9 * sentences:
        raise ValueError(
            f"{run.generated(split).name} was not made with this checkpoint: only {agree} of "
            f"{sentences} scores agree; run stage generate again"
        )


ANALYSIS = Analysis(compute, model_inputs, {"split": "valid"})

if __name__ == "__main__":
    ANALYSIS.main()
