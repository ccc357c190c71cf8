"""From a predictor to what the page shows: values that JSON can hold."""

import math
from collections.abc import Sequence

from .next_words import Beginning, Candidate, NextWords
from .predictor import Given, NotPossible, Opened, Predictor, Source

LISTED = 2_000  # words and beginnings that are sent at once
SUGGESTED = 100


def translation(
    predictor: Predictor,
    text: str,
    names: Sequence[str],
    typed: str = "",
    end: bool = False,
    prove: bool = False,
) -> dict:
    """The best translation that begins with these words; with ``end``, exactly these. ``prove``:
    search on where it is not known to be the best."""
    source = predictor.source(text)
    given = predictor.given(source, [*names, *predictor.language.words(typed)])
    words, proof = list(given), None
    if not end:
        words, hypothesis = predictor.translate(source, given, prove)
        proof = {**_proof(predictor, hypothesis), "searched": prove}
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
    score = predictor.word_score(source, before, word)
    possible, beginnings = len(predictor.pieces.counted), 0
    if not predictor.dense:
        found = predictor.next_words(source, before)
        possible, beginnings = len(found.words), len(found.beginnings)
    return {
        **_named(predictor, None if word is None else word.name),
        "score": score,
        "possible": possible,
        "beginnings": beginnings,
        "only": not predictor.dense and not beginnings and possible == 1 and score > 0,
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


def alternatives(
    predictor: Predictor,
    text: str,
    names: Sequence[str],
    opened: Opened = (),
    everything: bool = False,
    skip: int = 0,
) -> dict:
    """Every word that could come after these: words, and beginnings of longer words. ``opened``:
    only those of a beginning (`Predictor.alternatives`). ``skip``: how many are known."""
    source = predictor.source(text)
    given = predictor.given(source, names)
    found = predictor.alternatives(source, given, opened, everything)
    items = found.items[skip : skip + LISTED]
    return {
        "items": [_item(predictor, item) for item in items],
        **_summary(found),
        "more": any(not beginning.longest for beginning in found.beginnings),
    }


def progress(
    predictor: Predictor, text: str, names: Sequence[str], opened: Opened, budget: int
) -> dict:
    """Follows a list's beginnings, so many in all, and says how far it came."""
    source = predictor.source(text)
    given = predictor.given(source, names)
    listing, more = predictor.follow(source, given, opened, budget)
    left, score = listing.left()
    return {"followed": listing.followed, "open": left, "open_score": score, "more": more}


def _item(predictor: Predictor, item: Candidate | Beginning) -> dict:
    is_word = isinstance(item, Candidate)
    return {
        **_named(predictor, item.name),
        "score": item.score,
        "unknown": is_word and predictor.pieces.unknown in item.path,
        "beginning": not is_word,
        "longest": not is_word and item.longest,
    }


def _summary(found: NextWords) -> dict:
    return {
        "count": len(found.words),
        "beginnings": len(found.beginnings),
        "complete": found.complete,
        "exact": found.exact,
        "open_share": share(found.open_score, found.mass),
        "lost_share": share(found.lost, found.mass),
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
            {**_item(predictor, item), "insert": _insert(predictor, written, item.name)}
            for item in found.items[:SUGGESTED]
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


__all__ = ["NotPossible", "alternatives", "progress", "suggestions", "translation"]
