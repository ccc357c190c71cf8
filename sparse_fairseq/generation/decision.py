"""Which hypothesis of a list is the answer: the most probable one, or the most useful one.

Minimum Bayes risk without samples: the expectation is over the list's own, exact probabilities.
"""

import math
from collections.abc import Callable, Sequence

DECISIONS = ("map", "mbr")
UTILITIES = ("chrf", "bleu", "edit")
AT_MOST = 100  # hypotheses: each is compared with each


def utility(name: str) -> Callable[[str, str], float]:
    """(hypothesis, reference) -> 0 to 100 by sacrebleu; `edit` is 100 − TER, and at least 0."""
    from sacrebleu.metrics import BLEU, CHRF, TER

    if name == "edit":
        ter = TER()
        return lambda text, reference: max(0.0, 100.0 - ter.sentence_score(text, [reference]).score)
    metric = CHRF() if name == "chrf" else BLEU(effective_order=True)
    return lambda text, reference: metric.sentence_score(text, [reference]).score


def expected_utilities(
    texts: Sequence[str], totals: Sequence[float], measure: Callable[[str, str], float]
) -> list[float]:
    """Of each text, if the others are what was meant with probabilities ∝ exp(totals). Texts that
    are the same, from different tokens, add up."""
    most = max(totals)
    weight: dict[str, float] = {}
    for text, total in zip(texts, totals, strict=True):
        weight[text] = weight.get(text, 0.0) + math.exp(total - most)
    mass = sum(weight.values())
    of_text = {
        text: sum(w * measure(text, other) for other, w in weight.items()) / mass for text in weight
    }
    return [of_text[text] for text in texts]


def most_useful_first(
    hypotheses: list[dict], to_text: Callable, measure: Callable[[str, str], float]
) -> list[dict]:
    """The finished hypotheses by expected utility, which each of them gets, with the probability
    that it rests on; of equals the more probable one is first. What is not compared stays behind
    them."""
    if hypotheses[0]["status"] == "forced":
        return hypotheses
    totals = [float(h["positional_scores"].double().sum()) for h in hypotheses]
    order = sorted(range(len(hypotheses)), key=lambda i: -totals[i])
    compared, rest = order[:AT_MOST], order[AT_MOST:]
    texts = [to_text(hypotheses[i]["tokens"]) for i in compared]
    utilities = expected_utilities(texts, [totals[i] for i in compared], measure)
    mass = sum(math.exp(totals[i]) for i in compared)
    for i, value in zip(compared, utilities, strict=True):
        hypotheses[i].update(expected_utility=value, utility_mass=mass)
    best = sorted(compared, key=lambda i: -hypotheses[i]["expected_utility"])
    return [hypotheses[i] for i in (*best, *rest)]
