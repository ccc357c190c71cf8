"""Test scores: detokenised sacreBLEU and chrF (SE Table 1), tokenised BLEU (S2S Table 2), word
accuracy of inflection (S2S Table 1); mean ± deviation over seeds; paired bootstrap of systems.

``result`` has an entry per split ("test", "valid"):

    runs        one per run: system, seed (null: ensemble), sentences and its scores: bleu,
                bleu_signature, chrf, chrf_signature (as scores.json has them), tokenized_bleu,
                tokenized_bleu_signature; or word_accuracy, edit_distance
    systems     {system: {score: {"mean", "std" (null for one seed), "n", "values"}}}, no ensembles
    pairs       one per two systems and metric: baseline, system, seed, metric, baseline_score,
                score, difference, p_value, samples: sacreBLEU's paired bootstrap
    problems    a line for each run that could not be scored
"""

import itertools
import logging
from collections.abc import Callable

from data_prep.segmentation import RECORD, tokenizer
from data_prep.spec import DataSpec

from ..metrics import bleu_metric, is_tokenised, outputs
from ..run_folder import Run
from ..spread import spread
from .shared.analysis import Analysis, NotMeasured, beam_hypotheses
from .shared.words import read_segmentation, subword_joiner

SPLITS = ("test", "valid")
SCORES = (
    *("sentences", "bleu", "bleu_signature", "chrf", "chrf_signature"),
    *("word_accuracy", "edit_distance"),
)


def compute(runs: list[Run], settings: dict) -> dict:
    result = {}
    for split in SPLITS:
        scored = [run for run in runs if (run.path / f"hypotheses-{split}.txt").exists()]
        if scored:
            rows, problems = {}, []
            for run in scored:
                try:
                    rows[run] = score(run, split)
                except (OSError, ValueError) as error:  # costs this run only
                    problems.append(f"{run.name}: {error}")
            found = list(rows.values())
            result[split] = {"runs": found, "systems": summary(found), "pairs": []}
            result[split]["problems"] = problems
            if split == "test":
                result[split]["pairs"] = compare(list(rows), split, settings["samples"])
    if not result:
        raise NotMeasured("not run yet: nothing was generated")
    if not any(part["runs"] for part in result.values()):
        raise ValueError("; ".join(x for part in result.values() for x in part["problems"]))
    return result


def score(run: Run, split: str) -> dict:
    """What scores.json has, and BLEU of the tokens themselves."""
    scores = (run.scores or {}).get(split)
    if not scores:
        raise ValueError(f"no score of {split} yet: run stage score")
    outputs(run, split)  # as many of them as there are references
    row = {"system": run.system, "seed": run.seed, **{k: scores[k] for k in SCORES if k in scores}}
    translated = "bleu" in scores and run.generated(split).exists()
    return {**row, **tokenized_bleu(run, split)} if translated else row


def tokenized_bleu(run: Run, split: str) -> dict:
    """BLEU of the tokens that the model wrote, subwords joined, and of the references, tokenised
    as its training data were; sacreBLEU tokenises nothing."""
    from sacrebleu.metrics import BLEU

    segmentation = read_segmentation(run)
    join, tokenize = subword_joiner(segmentation), reference_tokenizer(segmentation)
    metric = BLEU(tokenize="none", force=True)
    hypotheses = [join(sentence.hypothesis) for sentence in beam_hypotheses(run, split)]
    # fairseq-generate prints T- lines as raw text.
    found = metric.corpus_score(hypotheses, [[tokenize(line) for line in run.references(split)]])
    return {
        "tokenized_bleu": found.score,
        "tokenized_bleu_signature": str(metric.get_signature()),
    }


def reference_tokenizer(segmentation: dict) -> Callable[[str], str]:
    names = ("source", "target", "tokenizer", "normalise")
    spec = DataSpec(**{name: segmentation[name] for name in names})
    return tokenizer(spec, spec.target)


def summary(rows: list[dict]) -> dict[str, dict]:
    """Mean and deviation (n − 1) over the seeds of each system, of every score that is a number."""
    systems: dict[str, dict] = {}
    for system in dict.fromkeys(row["system"] for row in rows):
        own = [row for row in rows if row["system"] == system and row["seed"] is not None]
        names = [k for k, v in (own[0] if own else {}).items() if isinstance(v, float)]
        systems[system] = {
            name: {**spread(values)._asdict(), "values": values}
            for name in names
            if (values := [row[name] for row in own if row.get(name) is not None])
        }
    return systems


def compare(runs: list[Run], split: str, samples: int) -> list[dict]:
    """Every two systems, with each seed that both have."""
    by_name = {
        (run.system, run.seed): run for run in runs if run.seed is not None and not run.inflects
    }
    systems = list(dict.fromkeys(system for system, _ in by_name))
    pairs = []
    for one, other in itertools.combinations(systems, 2):
        seeds = {seed for system, seed in by_name if system == one}
        for seed in sorted(seeds & {seed for system, seed in by_name if system == other}):
            two = by_name[one, seed], by_name[other, seed]
            tests = paired_bootstrap(
                *(run.hypotheses(split) for run in two),
                two[0].references(split),
                two[0].target_lang,
                samples,
                is_tokenised(two[0].config["data"]),
            )
            names = {"baseline": one, "system": other, "seed": seed}
            pairs += [{**names, **test} for test in tests]
    return pairs


def paired_bootstrap(
    baseline: list[str],
    system: list[str],
    references: list[str],
    target_lang: str,
    samples: int,
    tokenised: bool = False,
) -> list[dict]:
    """sacreBLEU's test whether two systems differ, by BLEU and by chrF."""
    from sacrebleu.metrics import CHRF
    from sacrebleu.significance import PairedTest

    metrics = {
        "BLEU": bleu_metric(target_lang, tokenised, references=[references]),
        "chrF2": CHRF(references=[references]),
    }
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    named = [("baseline", baseline), ("system", system)]
    _, found = PairedTest(named, metrics, None, test_type="bs", n_samples=samples)()
    return [
        {"metric": name, **_difference(*found[key]), "samples": samples}
        for name, key in (("bleu", "BLEU"), ("chrf", "chrF2"))
    ]


def _difference(baseline, system) -> dict:
    difference = system.score - baseline.score
    return {
        "baseline_score": baseline.score,
        "score": system.score,
        "difference": difference,
        # sacreBLEU counts resamples that differ *more*: equal systems would be significant.
        "p_value": system.p_value if difference else 1.0,
    }


ANALYSIS = Analysis(
    compute,
    lambda run, settings: [
        *(run.path / f"hypotheses-{split}.txt" for split in SPLITS),
        *(run.generated(split) for split in SPLITS),
        run.bin / RECORD,
        *(run.text / f"{split}.{run.target_lang}" for split in SPLITS),
        run.path / "scores.json",
    ],
    {"samples": 1000},
    together=True,
)

if __name__ == "__main__":
    ANALYSIS.main()
