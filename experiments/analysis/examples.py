"""Sentences where systems differ most, side by side with source and reference (SE Table 7).

How good a translation is, is measured by sentence-level chrF here. ``result``:

    split, signature    of chrF
    seed                of all systems; null: the smallest of each
    systems             names, in the order of the runs
    sentences           {id: {"source", "reference", "spread" (largest − smallest chrF),
                        "outputs": {system: {"text", "chrf"}}}}
    widest              ids with the largest spread, widest first
    pairs               one per two systems: one, other, one_better (ids), other_better (ids)
"""

import itertools
from pathlib import Path

from data_prep.progress import track

from ..run_folder import Run, read_lines
from .shared.analysis import Analysis, NotMeasured


def compute(runs: list[Run], settings: dict) -> dict:
    from sacrebleu.metrics import CHRF

    split, count = settings["split"], settings["count"]
    chosen = one_run_per_system(runs, split)
    if len(chosen) < 2:
        raise NotMeasured("not run yet: fewer than two systems have translations")
    outputs = {run.system: run.hypotheses(split) for run in chosen}
    first = chosen[0]
    references = first.references(split)
    sources = read_lines(first.text / f"{split}.{first.source_lang}")
    lengths = {len(lines) for lines in (references, sources, *outputs.values())}
    if len(lengths) > 1:
        raise ValueError(f"unequal numbers of sentences: {', '.join(map(str, sorted(lengths)))}")
    metric = CHRF()
    label, total = f"{first.dataset}: chrF of sentences", len(references)
    chrf = [
        {
            name: metric.sentence_score(lines[i], [reference]).score
            for name, lines in outputs.items()
        }
        for i, reference in enumerate(track(references, label, total, "sentences"))
    ]
    widest, pairs = select(chrf, list(outputs), count)
    shown = {*widest, *(i for pair in pairs for i in pair["one_better"] + pair["other_better"])}
    return {
        "split": split,
        "signature": str(metric.get_signature()),
        "seed": first.seed if len({run.seed for run in chosen}) == 1 else None,
        "systems": list(outputs),
        "sentences": {
            str(i): {
                "source": sources[i],
                "reference": references[i],
                "spread": spread(chrf[i]),
                "outputs": {
                    name: {"text": lines[i], "chrf": chrf[i][name]}
                    for name, lines in outputs.items()
                },
            }
            for i in sorted(shown)
        },
        "widest": widest,
        "pairs": pairs,
    }


def one_run_per_system(runs: list[Run], split: str) -> list[Run]:
    """The run with the smallest seed of each system that has translations."""
    chosen: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: (run.seed is None, run.seed)):
        if run.seed is not None and (run.path / f"hypotheses-{split}.txt").exists():
            chosen.setdefault(run.system, run)
    order = dict.fromkeys(run.system for run in runs)
    return [chosen[system] for system in order if system in chosen]


def spread(scores: dict[str, float]) -> float:
    return max(scores.values()) - min(scores.values())


def select(chrf: list[dict[str, float]], systems: list[str], count: int) -> tuple[list, list]:
    """Where the systems are furthest apart; ties in corpus order."""
    every = range(len(chrf))
    widest = sorted(every, key=lambda i: -spread(chrf[i]))[:count]
    pairs = []
    for one, other in itertools.combinations(systems, 2):
        gain = [scores[one] - scores[other] for scores in chrf]
        better = [i for i in sorted(every, key=lambda i: -gain[i])[:count] if gain[i] > 0]
        worse = [i for i in sorted(every, key=lambda i: gain[i])[:count] if gain[i] < 0]
        pairs.append({"one": one, "other": other, "one_better": better, "other_better": worse})
    return widest, pairs


def inputs(run: Run, settings: dict) -> list[Path]:
    split = settings["split"]
    texts = [run.text / f"{split}.{lang}" for lang in (run.source_lang, run.target_lang)]
    return [run.path / f"hypotheses-{split}.txt", *texts]


ANALYSIS = Analysis(
    compute,
    inputs,
    {"split": "test", "count": 5},
    together=True,
)

if __name__ == "__main__":
    ANALYSIS.main()
