"""From a predictor to what the page shows: values that JSON can hold."""

import math
from collections.abc import Sequence

from .next_words import FULL, Candidate, NextWords
from .predictor import Given, NotPossible, Predictor, Source

LISTED = 2_000  # words of one list that are sent
SUGGESTED = 100


def translation(
    predictor: Predictor, text: str, names: Sequence[str], typed: str = "", end: bool = False
) -> dict:
    """The best translation that begins with these words; with ``end``, exactly these."""
    source = predictor.source(text)
    given = predictor.given(source, [*names, *predictor.language.words(typed)])
    words, proof = list(given), None
    if not end:
        words, hypothesis = predictor.translate(source, given)
        proof = _proof(predictor, hypothesis)
    shown = [
        _place(predictor, source, words[:i], word, is_given=i < len(given))
        for i, word in enumerate(words)
    ]
    return {
        "source": [
            {"text": predictor.source_language.shown(name), "unknown": unknown}
            for name, unknown in zip(source.names, source.unknown, strict=True)
        ],
        "words": shown,
        "end": _place(predictor, source, words, None, is_given=end),
        "attention": predictor.attention(source, words),
        "text": predictor.language.joined([word.name for word in words]),
        "proof": proof,
    }


def _place(
    predictor: Predictor, source: Source, before: list[Given], word: Given | None, is_given: bool
) -> dict:
    """A word of a translation: its score, and how many words were possible in its place."""
    path = (predictor.pieces.eos,) if word is None else word.path
    score = predictor.score(source, before, path)
    possible, complete = len(predictor.pieces.counted), True
    if not predictor.dense:
        found = predictor.next_words(source, before)
        possible, complete = len(found.words), found.complete
        same = found.by_name.get(None if word is None else word.name)
        score = same.score if same else score
    return {
        **_named(predictor, None if word is None else word.name),
        "score": score,
        "possible": possible,
        "complete": complete,
        "only": not predictor.dense and complete and possible == 1 and score > 0,
        "given": is_given,
        "unknown": word is not None and word.unknown,
        "impossible": score == 0,
    }


def _proof(predictor: Predictor, hypothesis: dict) -> dict:
    """What the generator knows about its own result, by the score with which it ranks: whether it
    is the best of all, or how far from the best it is at most (None: unknown)."""
    way = "normalized" if predictor.generator.ranking.normalize else "raw"
    gap = hypothesis["gap"][way]
    return {
        "best": bool(hypothesis["exact"][way]),
        "gap": gap if gap is not None and math.isfinite(gap) else None,
        "per_piece": way == "normalized",
        "forced": hypothesis["status"] == "forced",
    }


def _named(predictor: Predictor, name: str | None) -> dict:
    return {"name": name, "text": None if name is None else predictor.language.shown(name)}


def alternatives(predictor: Predictor, text: str, names: Sequence[str]) -> dict:
    """Every word that could come after these."""
    source = predictor.source(text)
    given = predictor.given(source, names)
    found = predictor.next_words(source, given, budget=FULL)
    listed = found.words[:LISTED]
    return {
        "words": [_candidate(predictor, word) for word in listed],
        **_summary(found),
        "share": share(sum(word.score for word in listed), found.mass),
    }


def _candidate(predictor: Predictor, word: Candidate) -> dict:
    unknown = predictor.pieces.unknown in word.path
    return {**_named(predictor, word.name), "score": word.score, "unknown": unknown}


def _summary(found: NextWords) -> dict:
    return {
        "count": len(found.words),
        "complete": found.complete,
        "others": found.others,
        "others_share": share(found.others_score, found.mass),
        "total": found.total,
        "mass": found.mass,
    }


def share(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole > 0 else 0.0


def suggestions(predictor: Predictor, text: str, names: Sequence[str], typed: str) -> dict:
    """The words that may come next in a translation of which ``names`` and then ``typed`` have been
    written; what has no space after it is the beginning of the next word."""
    source, language = predictor.source(text), predictor.language
    written = [*names, *language.words(typed)]
    is_open = bool(written) and not (typed[-1:].isspace() if typed else False)
    letters = written.pop() if is_open else ""
    given = predictor.given(source, written)
    found = predictor.next_words(source, given, letters)
    words = found.words[:SUGGESTED]
    return {
        "words": [
            {
                **_named(predictor, word.name),
                "unknown": word.unknown,
                "impossible": predictor.score(source, given[:i], word.path) == 0,
            }
            for i, word in enumerate(given)
        ],
        "letters": language.shown(letters),
        "candidates": [
            {**_candidate(predictor, word), "insert": _insert(predictor, written, word.name)}
            for word in words
        ],
        **_summary(found),
        "ahead": _ahead(predictor, source, given, found),
    }


def _insert(predictor: Predictor, written: Sequence[str], name: str | None) -> str:
    return "" if name is None else predictor.language.after(written, name)


def _ahead(
    predictor: Predictor, source: Source, given: list[Given], found: NextWords
) -> list[dict]:
    """The words that must come, the first of which is the only one that fits what was typed."""
    if not found.complete or len(found.words) != 1:
        return []
    first = found.words[0]
    names: list[str | None] = [first.name]
    if first.name is not None:
        begun = [*given, Given(first.name, first.path, predictor.pieces.unknown in first.path)]
        names += predictor.ahead(source, begun)
    written = [word.name for word in given]
    ahead = []
    for name in names:
        ahead.append({**_named(predictor, name), "insert": _insert(predictor, written, name)})
        written = [*written, name or ""]
    return ahead


__all__ = ["NotPossible", "alternatives", "suggestions", "translation"]
