"""What one run says about a sentence: translations after a prefix, words that may come next, the
attention. All answers are plain values; scores are as the model gives them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from fairseq.sequence_generator import EnsembleModel

from sparse_fairseq.generation import SparseSequenceGenerator

from .next_words import (
    BEST,
    FULL,
    MOST,
    QUICK,
    Beginning,
    Listing,
    NextWords,
    all_words,
    best_words,
)
from .states import PrefixStates, Recent, Tokens
from .tree import Tree
from .units import Language, Pieces

LISTS = 256  # of next words that are kept
OPENED = 16  # of these that were clicked, and are followed further and further
SETTLED = 2_000  # beginnings that are followed for other spellings of words in these
DENSE = 64  # beginnings that are followed for the best words of a dense output
PROVING = 2_000  # prefixes that are looked at to prove that a translation is the best
AHEAD = 8  # words that are offered ahead
SURE = 8  # beginnings that are followed to see whether a word is the only one: few are enough


Opened = tuple[tuple[str, bool], ...]


class NotPossible(ValueError):
    """The request cannot be answered; the message says why, in one line."""


class AfterPrefix(EnsembleModel):
    """Models for which the words of a prefix cost what they cost, but nothing if they are
    impossible: what a translator has written stands, whatever the models think of it."""

    def __init__(self, models):
        super().__init__(models)
        self.prefix: Tokens = ()

    def forward_decoder(self, tokens, encoder_outs, incremental_states, temperature=1.0):
        found = super().forward_decoder(tokens, encoder_outs, incremental_states, temperature)
        lprobs, attention = found
        step = tokens.shape[1] - 1
        if step < len(self.prefix):
            wanted = lprobs[:, self.prefix[step]]
            lprobs[:, self.prefix[step]] = wanted.masked_fill(wanted == -math.inf, 0.0)
        return lprobs, attention


@dataclass(frozen=True)
class Source:
    names: tuple[str, ...]
    tokens: Tokens
    owner: tuple[int, ...]  # the word of each token; -1 for the end
    unknown: tuple[bool, ...]  # of each word


@dataclass(frozen=True)
class Given:
    """A word that a translator has written."""

    name: str
    path: Tokens
    unknown: bool


class Predictor:
    """Not for two threads at once."""

    def __init__(
        self,
        model,
        dictionaries: tuple,
        languages: tuple[Language, Language],
        settings: dict | None = None,
    ):
        """``settings``: those of the generator."""
        self.source_pieces, self.target_dictionary = dictionaries
        self.source_language, self.language = languages
        self.pieces = Pieces(self.target_dictionary, self.language.kind)
        transform = model.decoder.output_transform
        self.dense = transform.alpha == 1
        self.sums_to_one = transform.kind != "alpha_relu"
        self.states = PrefixStates(model, self.pieces.eos)
        self._models = AfterPrefix([model])
        settings = {"nbest": 1, **(settings or {"beam_size": 5})}
        common = (self._models, self.target_dictionary)
        self.generator = SparseSequenceGenerator(*common, **settings)
        self._prover = SparseSequenceGenerator(*common, exact_budget=PROVING, **settings)
        self.longest_source = getattr(model, "max_positions", lambda: (1024, 1024))()[0]
        self._lists, self._listings, self._views = Recent(LISTS), Recent(OPENED), Recent(OPENED)

    def forget(self) -> None:
        """Empties the caches."""
        for cache in (self._lists, self._listings, self._views):
            cache.clear()
        self.states.forget()

    # Text

    def source(self, text: str) -> Source:
        names = self.source_language.words(text)
        if not names:
            raise NotPossible("the source sentence is empty")
        dictionary, language = self.source_pieces, self.source_language
        tokens, owner, unknown = [], [], []
        for number, name in enumerate(names):
            indices = indices_of(dictionary, language.pieces(name))
            tokens += indices
            owner += [number] * len(indices)
            unknown.append(dictionary.unk() in indices)
        if len(tokens) >= self.longest_source:
            raise NotPossible(
                f"the source sentence has {len(tokens)} pieces of words; this model takes at most "
                f"{self.longest_source - 1}"
            )
        return Source(tuple(names), (*tokens, dictionary.eos()), (*owner, -1), tuple(unknown))

    def given(self, source: Source, names: Sequence[str]) -> list[Given]:
        """Words in pieces: the model's most probable spelling of each after those before it, or
        the usual one where the model excludes the word."""
        found: list[Given] = []
        prefix: Tokens = ()
        for name in names:
            word = self._list(source, prefix, name, whole=True).by_name.get(name)
            if word is not None:
                path = word.path
            else:
                path = tuple(indices_of(self.target_dictionary, self.language.pieces(name)))
            prefix += path
            if len(prefix) >= self._longest(source):
                raise NotPossible(
                    f"the translation is too long: this model ends this sentence after at most "
                    f"{self._longest(source) - 1} pieces of words"
                )
            found.append(Given(name, path, self.pieces.unknown in path))
        return found

    def _longest(self, source: Source) -> int:
        sample = self.states.sample(source.tokens)["net_input"]
        return self.generator.longest(sample["src_tokens"], sample["src_lengths"])

    # Next words

    def next_words(
        self,
        source: Source,
        given: Sequence[Given],
        letters: str = "",
        budget: int = QUICK,
        best: int = BEST,
    ) -> NextWords:
        """``budget``: how many beginnings of words may be followed until the words have ended;
        ``best``: how many words of a dense output are wanted."""
        return self._list(source, path_of(given), letters, budget=budget, best=best)

    def _list(
        self,
        source: Source,
        prefix: Tokens,
        letters: str = "",
        whole: bool = False,
        budget: int = QUICK,
        best: int = BEST,
    ) -> NextWords:
        def make() -> NextWords:
            tree = self._tree(source, prefix, letters, whole, best)
            if self.dense:
                return best_words(tree, DENSE, best)
            return all_words(Listing(tree), budget)

        return self._lists.get((source.tokens, prefix, letters, whole, budget, best), make)

    def _tree(self, source: Source, prefix: Tokens, letters="", whole=False, best=BEST) -> Tree:
        keep = 4 * best if self.dense else None
        return Tree(self.states, self.pieces, source.tokens, prefix, letters, whole, keep)

    # Lists that are followed on

    def alternatives(
        self, source: Source, given: Sequence[Given], opened: Opened = (), everything: bool = False
    ) -> NextWords:
        """All words, or those of a beginning that was opened. ``everything``: all that following
        has found, instead of a short list."""
        prefix = path_of(given)
        if self.dense:
            if opened:
                raise NotPossible("softmax excludes nothing: its list has no beginnings to open")
            return self._list(source, prefix, budget=FULL)
        listing = self._listing(source, prefix, opened)

        def make() -> NextWords:
            if everything:
                return listing.shown(True, SETTLED)
            return all_words(listing, FULL, SETTLED)

        state = listing.followed if everything else None
        found = self._views.get((source.tokens, prefix, opened, state), make)
        listing.tree.rest()
        return found

    def follow(
        self, source: Source, given: Sequence[Given], opened: Opened, budget: int
    ) -> tuple[Listing, bool]:
        """Follows so many beginnings of a list in all; whether there are more to follow."""
        if self.dense:
            raise NotPossible("softmax excludes nothing: following its beginnings has no end")
        listing = self._listing(source, path_of(given), opened)
        more = listing.follow(min(budget, MOST))
        listing.tree.rest()
        return listing, more and listing.followed < MOST

    def _listing(self, source: Source, prefix: Tokens, opened: Opened) -> Listing:
        """``opened``: beginnings, one below the other, each with whether the list it was in was of
        everything."""

        def make() -> Listing:
            if not opened:
                return Listing(self._tree(source, prefix))
            *before, (name, everything) = opened
            within = self._listing(source, prefix, tuple(before))
            given = [Given("", prefix, False)]
            found = self.alternatives(source, given, tuple(before), everything)
            known = within.known | {word.name for word in found.words if word.name}
            return Listing(within.tree, _named(found.beginnings, name), known)

        return self._listings.get((source.tokens, prefix, opened), make)

    def word_score(self, source: Source, given: Sequence[Given], word: Given | None) -> float:
        """Of all spellings of a word after these, or of the end."""
        prefix = path_of(given)
        if not self.dense:
            wanted = {} if word is None else {"letters": word.name, "whole": True}
            listed = self._list(source, prefix, **wanted).by_name
            name = None if word is None else word.name
            if name in listed:
                return listed[name].score
        return self.score(source, given, (self.pieces.eos,) if word is None else word.path)

    def score(self, source: Source, given: Sequence[Given], path: Tokens) -> float:
        """Of pieces after words."""
        prefix, score = path_of(given), 1.0
        for piece in path:
            score *= float(self.states.after(source.tokens, prefix).scores[0, piece])
            prefix += (piece,)
        return score

    def ahead(self, source: Source, given: Sequence[Given]) -> list[str | None]:
        """The words that must come next, while there is no choice; None: the end."""
        names: list[str | None] = []
        prefix = path_of(given)
        while len(names) < AHEAD and len(prefix) < self._longest(source) - 1:
            found = self._list(source, prefix, budget=SURE)
            if not found.complete or len(found.words) != 1:
                break
            names.append(found.words[0].name)
            if names[-1] is None:
                break
            prefix += found.words[0].path
        return names

    # Translations

    @torch.no_grad()
    def translate(
        self, source: Source, given: Sequence[Given], prove: bool = False
    ) -> tuple[list[Given], dict]:
        """The words of the best translation that begins with those given, and the generator's
        hypothesis. ``prove``: search on until no other can be better, or for a while."""
        prefix = path_of(given)
        self._models.prefix = prefix
        told = torch.tensor([prefix], device=self.states.device) if prefix else None
        sample = self.states.sample(source.tokens)
        generator = self._prover if prove else self.generator
        (hypotheses,) = generator.generate(None, sample, prefix_tokens=told)
        tokens = [t for t in hypotheses[0]["tokens"].tolist() if t != self.pieces.eos]
        rest = self.pieces.split(tokens[len(prefix) :])
        words = [Given(self.pieces.name(p), p, self.pieces.unknown in p) for p in rest]
        return [*given, *words], hypotheses[0]

    def attention(self, source: Source, given: Sequence[Given]) -> list[list[float]] | None:
        """For each word and the end, how much of it the model took from each source word."""
        prefix: Tokens = ()
        found = []
        for path in [*(word.path for word in given), (self.pieces.eos,)]:
            weights = [0.0] * len(source.names)
            for place in range(len(path)):
                rows = self.states.after(source.tokens, prefix + path[:place])
                if rows.attention is None:
                    return None
                for owner, weight in zip(source.owner, rows.attention[0].tolist(), strict=True):
                    if owner >= 0:
                        weights[owner] += weight / len(path)
            found.append(weights)
            prefix += path
        return found


def _named(beginnings: list[Beginning], name: str) -> Beginning:
    for beginning in beginnings:
        if beginning.name == name:
            return beginning
    raise NotPossible(f"the list has no beginning {name!r} any more: open it anew")


def path_of(given: Sequence[Given]) -> Tokens:
    return tuple(token for word in given for token in word.path)


def indices_of(dictionary, pieces: Sequence[str]) -> list[int]:
    """Of text: who writes </s> means these letters, and not the end."""
    special = {dictionary.bos(), dictionary.pad(), dictionary.eos()}
    indices = [dictionary.index(piece) for piece in pieces]
    return [dictionary.unk() if index in special else index for index in indices]
