"""Scores of inflected words, as the CoNLL-SIGMORPHON 2018 shared task measures them.

Pure functions, and the one that finds out which language a word is of. How exact the search was is
in `experiments.scoring`.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from .runs import Run, read_lines


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
