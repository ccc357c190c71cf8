"""How many keystrokes a translator saves who types the reference and accepts suggestions.

The page of `experiments.explore` is simulated: at each word the translator sees the words that can
come next, best first, types letters until the right one is the first, and presses Tab. Words that
are the only possibility come ahead, several at a time. ``result``:

    split, words
    sentences           fewer than were asked for where lists are very long (MOST_LISTED)
    without, with       keystrokes of the whole text, and with suggestions
    saved               % of them that are saved so
    first               % of the words that were the first suggestion before any letter was typed
    accepted            % of the words that were accepted as a first suggestion, at any letter
    ahead               % of the words that were offered ahead, as the only possibility
    k, p                of the lists "top_k" and "top_p"
    lists               of "all" words (sparse outputs), "top_k", "top_p": length (mean), median
                        (of the length; beginnings of longer words count as one), coverage (% of the
                        words that are in it, for "all" also behind one of its beginnings), saved (%
                        of the keystrokes, if one goes down the list with the arrow key where that
                        is shorter); of "all" words: listed (% of the words that stand in it as
                        such), cut (% of the lists that have beginnings)
    curve               [[k, % of the words that are among the best k], …]
"""

import statistics
from dataclasses import dataclass, field

from data_prep.progress import Progress

from ..explore.catalogue import open_predictor
from ..explore.next_words import Beginning, Candidate, NextWords
from ..explore.predictor import Given, NotPossible, Predictor, Source
from ..run_folder import Run, read_lines
from .shared.analysis import Analysis, NotMeasured, need, percent
from .shared.models import data_files

LONGEST = 50  # words of a dense output that are looked at; top-p is cut there, too
# Words in the lists of all sentences. A model that has hardly learnt thinks thousands of words
# possible, and would take minutes for each sentence; the demo's four list 257,000 at the most.
MOST_LISTED = 300_000


@dataclass
class Place:
    """Where a reference word is to come."""

    text: str
    spaced: bool  # whether a space goes before it
    ranks: list[int | None]  # in the list, after each number of letters; None: it is not in it
    first: bool  # is the list's first word before any letter
    lengths: dict[str, int]  # of the lists before any letter
    covered: dict[str, bool]
    complete: bool
    listed: bool  # stands in the list of all words as such
    ahead: int = 0  # words, this one included, that come ahead at `ahead_letters`
    ahead_letters: int = 0


@dataclass
class Tally:
    words: int = 0
    first: int = 0
    accepted: int = 0
    ahead: int = 0
    keys: dict[str, int] = field(default_factory=dict)  # by way of typing
    lengths: dict[str, list[int]] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    listed: int = 0
    at_rank: list[int] = field(default_factory=lambda: [0] * LONGEST)

    def add(self, counts: str, name: str, number: int) -> None:
        table = getattr(self, counts)
        table[name] = table.get(name, 0) + number


def compute(run: Run, settings: dict) -> dict:
    if run.inflects:
        raise NotMeasured("an inflection is a single word: there is no next one to suggest")
    need(run.decoded_checkpoint())
    predictor, split = open_predictor(run), settings["split"]
    sources = read_lines(run.text / f"{split}.{run.source_lang}")
    pairs = list(zip(sources, run.references(split), strict=True))
    pairs = pairs[:: max(len(pairs) // settings["sentences"], 1)][: settings["sentences"]]
    limits = {"k": settings["k"], "p": settings["p"]}
    with Progress(f"{run.name}: keystrokes", len(pairs), "sentences") as progress:
        tally, used = simulate(predictor, pairs, settings["k"], settings["p"], progress)
    return {"split": split, "sentences": used, **limits, **summary(tally, predictor.dense)}


def simulate(
    predictor: Predictor, pairs: list[tuple[str, str]], top: int, mass: float, progress: Progress
) -> tuple[Tally, int]:
    """Types the references, and how many it typed."""
    tally, used = Tally(), 0
    for source, reference in pairs:
        if sum(tally.lengths.get("all", [])) > MOST_LISTED:
            break
        try:
            count(tally, look(predictor, source, reference, top, mass))
            used += 1
        except NotPossible:  # too long for the model
            pass
        progress.advance(1)
    return tally, used


def look(predictor: Predictor, text: str, reference: str, top: int, mass: float) -> list[Place]:
    """What a translator of this sentence would be shown at each word of the reference."""
    source, language = predictor.source(text), predictor.language
    names = language.words(reference)
    given = predictor.given(source, names)
    return [
        _place(predictor, source, given[:i], given[i:], language.after(names[:i], name), top, mass)
        for i, name in enumerate(names)
    ]


def _place(
    predictor: Predictor,
    source: Source,
    before: list[Given],
    rest: list[Given],
    insert: str,
    top: int,
    mass: float,
) -> Place:
    found = predictor.next_words(source, before, best=LONGEST)
    names = [_word(item) for item in found.items]
    name, text = rest[0].name, insert.lstrip()
    sizes = {"top_k": min(top, len(names)), "top_p": _smallest(found, mass)}
    rank = names.index(name) if name in names else None
    covered = {way: rank is not None and rank < size for way, size in sizes.items()}
    if not predictor.dense:
        sizes["all"] = len(names)
        covered["all"] = rank is not None or _is_begun(predictor, source, before, rest[0], found)
    ranks, ahead, letters = [rank], 0, 0
    for typed in range(len(text)):
        matching, complete = _matching(predictor, source, before, found, text[:typed])
        if typed:
            ranks.append(matching.index(name) if name in matching else None)
        if complete and matching == [name] and not ahead:
            ahead, letters = _ahead(predictor, source, before, rest), typed
        if ranks[-1] == 0:
            break  # who types on has seen it
    return Place(
        text=text,
        spaced=insert != text,
        ranks=ranks,
        first=rank == 0,
        lengths=sizes,
        covered=covered,
        complete=found.complete,
        listed=rank is not None,
        ahead=ahead,
        ahead_letters=letters,
    )


def _word(item: Candidate | Beginning) -> str | None:
    """The name of a word; what no word is called for a beginning, which is only passed by."""
    return item.name if isinstance(item, Candidate) else f"{item.name} …"


def _is_begun(
    predictor: Predictor, source: Source, before: list[Given], word: Given, found: NextWords
) -> bool:
    """Whether a beginning in the list holds this word."""
    begun = any(word.name.startswith(beginning.name) for beginning in found.beginnings)
    return begun and predictor.score(source, before, word.path) > 0


def _matching(
    predictor: Predictor, source: Source, before: list[Given], found: NextWords, letters: str
) -> tuple[list, bool]:
    """Names in the list after letters were typed, best first, as the page would show them, and
    whether there are no others."""
    shown, folded = predictor.language.shown, letters.casefold()
    names = [_word(item) for item in found.items if item.name is not None or not letters]
    if found.complete or not letters:
        names = [n for n in names if n is None or shown(n).casefold().startswith(folded)]
        return names, found.complete
    if predictor.dense:
        names = [n for n in names if shown(n).casefold().startswith(folded)]
        if names:  # no other matching word is better
            return names, False
    more = predictor.next_words(source, before, predictor.language.named(letters))
    return [_word(item) for item in more.items], more.complete


def _ahead(predictor: Predictor, source: Source, before: list[Given], rest: list[Given]) -> int:
    """How many words come at once with the first: all that are offered, if all are right."""
    offered = [n for n in predictor.ahead(source, [*before, rest[0]]) if n is not None]
    wanted = [word.name for word in rest[1 : 1 + len(offered)]]
    return 1 + len(offered) if offered == wanted else 1


def _smallest(found: NextWords, mass: float) -> int:
    """How many of the best hold this share of the scores; at most all that are known."""
    held, whole = 0.0, found.mass
    for size, item in enumerate(found.items, start=1):
        held += item.score
        if held >= mass * whole * (1 - 1e-6):
            return size
    return len(found.items)


def count(tally: Tally, places: list[Place]) -> None:
    """Types a sentence in every way."""
    for place in places:
        tally.words += 1
        tally.first += place.first
        tally.cut += not place.complete
        tally.listed += place.listed
        tally.add("keys", "without", len(place.text) + place.spaced)
        for way, size in place.lengths.items():
            tally.lengths.setdefault(way, []).append(size)
            tally.add("covered", way, place.covered[way])
        if place.ranks[0] is not None and place.ranks[0] < LONGEST:
            tally.at_rank[place.ranks[0]] += 1
    _type_with_tab(tally, places)
    for way in places[0].lengths if places else ():
        by_hand, keys = False, 0
        for place in places:
            cost, by_hand = _cheapest(place, place.lengths[way], by_hand)
            keys += cost
        tally.add("keys", way, keys)


def _type_with_tab(tally: Tally, places: list[Place]) -> None:
    """As the page is meant: Tab when the first suggestion is right, and for all that is ahead."""
    by_hand, done = False, 0
    for i, place in enumerate(places):
        if i < done:
            continue
        space = by_hand and place.spaced
        first = next((k for k, rank in enumerate(place.ranks) if rank == 0), None)
        if place.ahead and (first is None or place.ahead_letters <= first):
            first, done = place.ahead_letters, i + place.ahead
            tally.ahead += place.ahead
            tally.accepted += place.ahead - 1
        by_hand = first is None
        tally.accepted += not by_hand
        tally.add("keys", "with", space + (len(place.text) if by_hand else first + 1))


def _cheapest(place: Place, size: int, after_hand: bool) -> tuple[int, bool]:
    """Keystrokes of a word, and whether it was typed to its end: a space has to follow then.

    One may type some letters, go down the list to the word, and press Tab. The list has ``size``
    words before the first letter, and no more after it.
    """
    space = after_hand and place.spaced
    chosen = [
        k + rank + 1 for k, rank in enumerate(place.ranks) if rank is not None and rank < size
    ]
    if chosen and min(chosen) <= len(place.text):
        return space + min(chosen), False
    return space + len(place.text), True


def summary(tally: Tally, dense: bool) -> dict:
    without = tally.keys.get("without", 0)
    if not without:
        raise NotMeasured("no sentence could be typed")

    def saved(way: str) -> float | None:
        return percent(without - tally.keys.get(way, 0), without)

    covered = 0
    curve = []
    for rank, times in enumerate(tally.at_rank, start=1):
        covered += times
        curve.append([rank, percent(covered, tally.words)])
    lists = {
        way: {
            "length": statistics.fmean(lengths),
            "median": statistics.median(lengths),
            "coverage": percent(tally.covered[way], tally.words),
            "saved": saved(way),
        }
        for way, lengths in tally.lengths.items()
    }
    if not dense:
        lists["all"]["listed"] = percent(tally.listed, tally.words)
        lists["all"]["cut"] = percent(tally.cut, tally.words)
    return {
        "words": tally.words,
        "without": without,
        "with": tally.keys["with"],
        "saved": saved("with"),
        "first": percent(tally.first, tally.words),
        "accepted": percent(tally.accepted, tally.words),
        "ahead": percent(tally.ahead, tally.words),
        "lists": lists,
        "curve": curve,
    }


def inputs(run: Run, settings: dict) -> list:
    split = settings["split"]
    texts = [run.text / f"{split}.{lang}" for lang in (run.source_lang, run.target_lang)]
    return [run.decoded_checkpoint(), *data_files(run), *texts]


ANALYSIS = Analysis(compute, inputs, {"split": "valid", "sentences": 100, "k": 5, "p": 0.9})

if __name__ == "__main__":
    ANALYSIS.main()
