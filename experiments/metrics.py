"""Scores of what was generated: BLEU and chrF, accuracy of inflection, how exact the search was.

Pure functions, and the one that scores a split of a run. Each score is computed here alone.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from data_prep import recipes

from .fairseq_output import Generated, read_generated, sentences_per_second
from .run_folder import Run, read_lines


def score_split(run: Run, split: str, metric: str) -> dict[str, Any]:
    """What scores.json says of a split; ``metric`` is that of the config: bleu or inflection."""
    hypotheses, references = outputs(run, split)
    if metric == "inflection":
        scores = inflection_scores(hypotheses, references, read_languages(run, split))
    else:
        tokenised = is_tokenised(run.config["data"])
        scores = corpus_scores(hypotheses, references, run.target_lang, tokenised)
    generated = run.generated(split)
    return {
        **scores,
        **exactness(read_generated(generated)),
        "sentences": len(hypotheses),
        "sentences_per_second": sentences_per_second(generated),
    }


def outputs(run: Run, split: str) -> tuple[list[str], list[str]]:
    """Hypotheses and references, one of each for every sentence."""
    hypotheses, references = run.hypotheses(split), run.references(split)
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} translations of {split}, but {len(references)} references in "
            f"{run.text}"
        )
    return hypotheses, references


def exactness(sentences: Sequence[Generated]) -> dict[str, Any]:
    """How often the search was exact (S2S §4.1), in % of the sentences, and how many hypotheses it
    found; nothing if fairseq-generate printed no E- lines."""
    if not sentences or any(sentence.hypotheses is None for sentence in sentences):
        return {}

    def share(flags: Sequence[bool | None]) -> float:
        return 100 * sum(map(bool, flags)) / len(sentences)

    found = [sentence.hypotheses for sentence in sentences]
    return {
        "certified_raw": share([s.exact_raw for s in sentences]),
        "certified_normalized": share([s.exact_normalized for s in sentences]),
        "exhaustive": share([s.exhaustive for s in sentences]),
        "single_hypothesis": share([s.exhaustive and s.hypotheses == 1 for s in sentences]),
        "forced": sum(s.status == "forced" for s in sentences),
        "mean_hypotheses": statistics.fmean(found),
        "counts": sorted([number, times] for number, times in Counter(found).items()),
    }


def is_tokenised(data: Mapping[str, Any]) -> bool:
    """Whether the text of a config's data came with its words divided, as KFTT's does."""
    recipe = data.get("recipe")
    usual = recipes.load(recipe).DEFAULTS if recipe in recipes.NAMES else {}
    spec = {**usual, **{key: value for key, value in data.items() if value is not None}}
    # Sentencepiece takes raw text, and therefore no tokeniser either.
    return spec.get("tokenizer") == "none" and spec.get("segmentation") != "sentencepiece"


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_lang: str,
    tokenised: bool = False,
) -> dict[str, Any]:
    """sacreBLEU and chrF, each with the signature that says how it was made."""
    from sacrebleu.metrics import CHRF

    bleu = bleu_metric(target_lang, tokenised)
    scores: dict[str, Any] = {}
    for name, metric in (("bleu", bleu), ("chrf", CHRF())):
        scores[name] = metric.corpus_score(list(hypotheses), [list(references)]).score
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def bleu_metric(target_lang: str, tokenised: bool = False, **options: Any):
    """sacreBLEU's, with its own tokenisers for languages without spaces."""
    from sacrebleu.metrics import BLEU

    if tokenised:
        return BLEU(tokenize="none", force=True, **options)  # else it warns of tokenised text
    language = target_lang.partition("-")[0]
    tokenize = {"ja": "ja-mecab", "zh": "zh", "ko": "ko-mecab"}.get(language, "13a")
    try:
        return BLEU(tokenize=tokenize, **options)
    except RuntimeError:  # MeCab is not installed; characters need no package
        return BLEU(tokenize="char", **options)


def read_languages(run: Run, split: str) -> list[str]:
    """The language of each example; data of one language do not say which."""
    labels = run.text / f"{split}.language"
    return read_lines(labels) if labels.is_file() else [run.dataset] * len(run.references(split))


def inflection_scores(
    hypotheses: Sequence[str], references: Sequence[str], languages: Sequence[str]
) -> dict[str, Any]:
    """Word accuracy (%) and edit distance of words given as symbols with spaces between them.

    Both are means over languages, whatever number of examples each has: the measure of the shared
    task and of S2S Table 1.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for hypothesis, reference, language in zip(hypotheses, references, languages, strict=True):
        groups.setdefault(language, []).append((hypothesis, reference))
    by_language = {language: _scores(pairs) for language, pairs in sorted(groups.items())}
    return {
        **{
            key: statistics.fmean(scores[key] for scores in by_language.values())
            for key in ("word_accuracy", "edit_distance")
        },
        "languages": by_language,
    }


def _scores(pairs: list[tuple[str, str]]) -> dict[str, float]:
    distances = [edit_distance(one.split(), other.split()) for one, other in pairs]
    return {
        "word_accuracy": 100 * distances.count(0) / len(distances),
        "edit_distance": statistics.fmean(distances),
        "examples": len(distances),
    }


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Levenshtein's: how many symbols to insert, delete or replace.

    >>> edit_distance("drawed", "drawn")
    2
    """
    if one == other:
        return 0
    row = list(range(len(other) + 1))  # distances from the symbols of `one` seen so far
    for i, symbol in enumerate(one, 1):
        diagonal, row[0] = row[0], i
        for j, wanted in enumerate(other, 1):
            replaced = diagonal + (symbol != wanted)
            diagonal = row[j]
            row[j] = min(replaced, row[j] + 1, row[j - 1] + 1)
    return row[-1]
