"""Search that goes on where a beam has stopped, until the best hypotheses are proved.

Where totals only fall, a prefix bounds all that can follow it: only prefixes whose bound is above
the n-th best finished score, the floor, are worth a look. When there are none left, the n best are
proved. Once the best is found, all of these have to be looked at, in whatever order; so this is
done in sweeps from short prefixes to long ones, all sentences of the batch at once.

If one hypothesis is wanted, the beam before is narrow: it only gives a floor. The rows of the wide
beam that the user asked for are part of the first sweep, as far as they are above the floor, so
that the result is never worse than that beam's.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from .errors import GenerationError
from .next_tokens import Answer
from .sentence import Ended, Sentence

EXACT_BUDGET = 2000  # evaluations of a sentence, if nothing else is said
NARROW = 2  # width of the beam before, where it only gives a floor
LIKELY = math.log(0.03)  # further rows of the beam before have larger totals: most proofs need them
TOKENS = 32  # of the best next tokens of each prefix that are kept
MOST_TOKENS = 32  # where more than these may be good enough
MORE_TOKENS = 16  # times as many, when the last of them was good enough, too
# A prefix worth a look has a probability above e^floor, and those of one length share a mass
# of 1: of each length there are at most e^−floor. Proofs took 0.5 to 1 times as many evaluations
# in all, for softmax and sparse models alike.
LIKELY_SHARE = 0.8
FIRST = 6  # prefixes of each length, in the first sweep, where a proof is not likely
AT_ONCE = 512  # rows in one call of the models


@dataclass
class Open:
    """Prefixes of one length that were not evaluated yet, as arrays; or ones that were, whose
    further tokens are wanted."""

    sentence: np.ndarray
    node: np.ndarray  # the parent; or, for further tokens, the prefix itself
    token: np.ndarray  # -1: further tokens
    total: np.ndarray  # of the prefix; no further token's total is larger
    seen: np.ndarray  # tokens after the prefix that are known

    def __len__(self) -> int:
        return len(self.node)

    def __getitem__(self, chosen) -> "Open":
        return Open(*(getattr(self, f.name)[chosen] for f in fields(self)))

    @classmethod
    def join(cls, parts: list["Open"]) -> "Open":
        if len(parts) == 1:
            return parts[0]
        if not parts:
            none = np.empty(0, np.int64)
            return cls(none, none, none, np.empty(0), none)
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


@dataclass
class Known:
    """What may follow some prefixes of one length, best first: the first `count` of each row."""

    node: np.ndarray  # [rows]
    scores: np.ndarray  # [rows, tokens]
    tokens: np.ndarray  # [rows, tokens]
    count: np.ndarray  # [rows]
    again: bool  # whether some of it may be known already

    @property
    def shown(self) -> np.ndarray:
        return np.arange(self.scores.shape[1]) < self.count[:, None]


class ExactSearch:
    """Takes over from a BatchSearch that has filed what it evaluated."""

    def __init__(self, search):
        settings = search.settings
        self.settings, self.tree, self.archive = settings, search.tree, search.archive
        self.next, self.longest = search.next, search.max_len + 1
        self.recorded, self.only_falls = search.recorded, search.output.only_falls
        self.device, self.sentences = search.device, search.sentences
        self.owes_beam = search.is_narrow and settings.beam_size > NARROW
        goal = (settings.nbest, settings.enumerate_mass)
        self.numbers = [n for n, s in enumerate(self.sentences) if not s.is_settled(*goal)]
        self.open: list[list[Open]] = [[] for _ in range(self.longest)]  # by length
        self.forced: dict[int, Ended] = {}  # better than nothing
        self.ended: set[int] = set()  # nodes whose ends are known
        count = len(self.sentences)
        self.floor = np.full(count, -math.inf)  # scores that are not above it are of no use
        self.worst = np.full(count, -math.inf)  # of a full list of finished hypotheses
        self.spent = np.zeros(count, np.int64)
        self.width = np.zeros(count, np.int64)  # prefixes of one length that a sweep may take
        self.sweeps = 0
        self.levels: list[Known] = []  # what the beam before has evaluated
        self.in_beam = np.zeros(0, bool)  # [nodes] of the wide beam

    def run(self) -> None:
        if not self.numbers:
            return
        self._take_over()
        while self._plan():
            self._sweep()
        for depth, parts in enumerate(self.open):
            left = Open.join(parts)
            self._drop(left.sentence, left.total, depth + 1, self.longest)
        for number in self.numbers:
            sentence = self.sentences[number]
            if not sentence.finished:
                sentence.add(self.forced[number])
            self._complete(sentence)

    # What the beam leaves

    def _take_over(self) -> None:
        nodes = np.isin(self.tree.sentence, self.numbers).nonzero()[0]
        self.archive.keep(nodes, len(self.tree))
        for number in self.numbers:
            sentence = self.sentences[number]
            sentence.reopen()
            if sentence.finished[0].status == "forced":
                self.forced[number] = sentence.finished.pop()
            self.ended.update(h.node for h in sentence.finished)
            self._note_list(number)
        self.in_beam = self.tree.parent < 0
        self.levels = self._recorded_of(nodes)
        for depth, known in enumerate(self.levels):
            self._follow(depth, known)

    def _recorded_of(self, nodes: np.ndarray) -> list[Known]:
        """What may follow each of these nodes, by length; all at once from the device."""
        flat, shapes = [], []
        for first, scores, tokens in self.recorded:
            rows = nodes[(nodes >= first) & (nodes < first + len(scores))] - first
            index = torch.from_numpy(rows).to(self.device)
            flat += [scores[index].double().flatten(), tokens[index].double().flatten()]
            shapes.append((rows + first, (len(rows), scores.shape[1])))
        parts = torch.cat(flat).cpu().split([len(part) for part in flat])
        found = []
        for (rows, shape), scores, tokens in zip(shapes, parts[::2], parts[1::2], strict=True):
            scores, tokens = scores.numpy().reshape(shape), tokens.long().numpy().reshape(shape)
            found.append(Known(rows, scores, tokens, np.full(*shape), True))
        return found

    def _follow(self, depth: int, known: Known) -> None:
        """Ends what ends after these nodes, and opens what is worth a look."""
        sentence, total = self.tree.sentence[known.node], self.tree.total[known.node]
        totals = total[:, None] + known.scores
        shown = known.shown & (known.scores > -math.inf)
        is_eos = known.tokens == self.settings.eos
        rows, columns = (shown & is_eos).nonzero()
        if known.again:
            new = [node not in self.ended for node in known.node[rows].tolist()]
            rows, columns = rows[new], columns[new]
        self._end(depth + 1, known.node[rows], sentence[rows], totals[rows, columns])
        child = shown & ~is_eos
        if known.again:
            child &= ~self._are_known(depth, known)
        useful = child & (self._bound(totals, depth + 2) > self.floor[sentence][:, None])
        left = np.where(child & ~useful, totals, -math.inf).max(1)
        self._drop(sentence, left, depth + 2, self.longest)
        rows, columns = useful.nonzero()
        chosen = (known.tokens[rows, columns], totals[rows, columns], np.zeros_like(rows))
        self._push(depth + 1, Open(sentence[rows], known.node[rows], *chosen))
        self._want_more(depth, known, np.where(shown, totals, math.inf).min(1))

    def _are_known(self, depth: int, known: Known) -> np.ndarray:
        """Which of these next tokens lead to prefixes that were evaluated, or are open."""
        size = self.settings.vocab_size
        parts = self.open[depth + 1] if depth + 1 < self.longest else []
        pairs = [self.tree.parent * size + self.tree.token]
        pairs += [part.node * size + part.token for part in parts]
        return np.isin(known.node[:, None] * size + known.tokens, np.concatenate(pairs))

    def _want_more(self, depth: int, known: Known, least: np.ndarray) -> None:
        """Opens the nodes whose last known token, with total `least`, was good enough to look for
        further ones."""
        impossible = (known.scores == -math.inf) & (known.tokens != self.settings.pad)
        whole = (known.shown & impossible).any(1) | (least == math.inf)
        whole |= known.count >= self.settings.vocab_size
        sentence = self.tree.sentence[known.node]
        more = ~whole & (self._bound(least, depth + 1) > self.floor[sentence])
        left = ~whole & ~more
        self._drop(sentence[left], least[left], depth + 1, self.longest)
        node, count = known.node[more], known.count[more]
        self._push(depth, Open(sentence[more], node, np.full(len(node), -1), least[more], count))

    def _push(self, depth: int, opened: Open) -> None:
        if len(opened):
            self.open[depth].append(opened)

    def _bound(self, total: np.ndarray, shortest: int) -> np.ndarray:
        """`Ranking.bound` of arrays."""
        ranking = self.settings.ranking
        if not ranking.normalize:
            return total
        power = ranking.len_penalty
        return np.maximum(total / shortest**power, total / self.longest**power)

    def _drop(self, sentence: np.ndarray, total: np.ndarray, shortest: int, longest: int) -> None:
        """`Sentence.drop` of arrays."""
        best = np.full(len(self.sentences), -math.inf)
        np.maximum.at(best, sentence, total)
        for number in (best > -math.inf).nonzero()[0].tolist():
            self.sentences[number].drop(float(best[number]), shortest, longest)

    def _end(self, length: int, node: np.ndarray, sentence: np.ndarray, total: np.ndarray) -> None:
        ranking, mass = self.settings.ranking, self.settings.enumerate_mass
        score = total / length**ranking.len_penalty if ranking.normalize else total
        late = score <= self.worst[sentence]
        self._drop(sentence[late], total[late], length, length)
        self.ended.update(node.tolist())
        for i in (~late).nonzero()[0].tolist():
            number = int(sentence[i])
            known = self.sentences[number]
            ended = Ended(int(node[i]), float(total[i]), length, float(score[i]))
            if mass is not None or len(known.finished) < self._room:
                known.add(ended)
            else:
                known.add_to_full(ended)
            self._note_list(number)

    @property
    def _room(self) -> int:
        return max(self.settings.beam_size, self.settings.nbest)

    def _note_list(self, number: int) -> None:
        """The list of finished hypotheses has changed."""
        sentence, mass = self.sentences[number], self.settings.enumerate_mass
        if mass is not None:
            if sentence.listed_mass >= mass:
                self.width[number] = 0
            return
        if self.only_falls:
            self.floor[number] = sentence.nth_score(self.settings.nbest)
        self.worst[number] = sentence.nth_score(self._room)

    # Sweeps

    def _plan(self) -> bool:
        """Decides how many prefixes of each length the next sweep may take of each sentence.
        Whether there is anything to do."""
        self.width[:] = 0
        parts = [(d, part) for d, parts in enumerate(self.open) for part in parts]
        if parts:
            owner = np.concatenate([part.sentence for _, part in parts])
            bound = np.concatenate([self._bound(part.total, d + 1) for d, part in parts])
            useful = np.bincount(owner[bound > self.floor[owner]], minlength=len(self.width))
            for number in useful.nonzero()[0].tolist():
                self.width[number] = self._width(number, int(useful[number]))
        self.sweeps += 1
        return bool(self.width.any())

    def _width(self, number: int, open_ones: int) -> int:
        budget, mass = self.settings.exact_budget, self.settings.enumerate_mass
        if self.spent[number] >= budget:
            return 0
        if mass is not None and self.sentences[number].listed_mass >= mass:
            return 0
        # Few prefixes of each length may find a better hypothesis, and then a proof is likely.
        # Without a floor there are never enough of them.
        if self.floor[number] == -math.inf:
            return FIRST << self.sweeps
        if self._expected(number, open_ones) <= budget:
            return budget
        return FIRST if self.sweeps == 0 else 0

    def _expected(self, number: int, open_ones: int) -> float:
        """How many evaluations a proof is likely to need."""
        ranking, least = self.settings.ranking, self.floor[number]
        if ranking.normalize:  # the total that makes a prefix worth a look
            least *= (self.longest if ranking.len_penalty > 0 else 1) ** ranking.len_penalty
        return max(open_ones, LIKELY_SHARE * math.exp(min(-least, 50.0)))

    def _sweep(self) -> None:
        """Evaluates open prefixes of each sentence, and what follows them."""
        for depth in range(self.longest):
            free = self._mark_beam(depth) if self.owes_beam else None
            group, free = self._admit(depth, free)
            for known in self._evaluate_all(depth, group, free):
                self._follow(depth, known)
        self.owes_beam = False

    def _mark_beam(self, depth: int) -> np.ndarray:
        """Which open prefixes of this length the wide beam would evaluate: its rows are the best of
        those that continue its rows. Some of these were evaluated already."""
        opened = Open.join(self.open[depth])
        self.open[depth] = [opened]
        free = np.zeros(len(opened), bool)
        if depth == 0:
            return free
        nodes = self.levels[depth].node if depth < len(self.levels) else np.empty(0, np.int64)
        nodes = nodes[self.in_beam[self.tree.parent[nodes]]]
        places = (self.in_beam[opened.node] & (opened.token >= 0)).nonzero()[0]
        sentence = np.concatenate([self.tree.sentence[nodes], opened.sentence[places]])
        total = np.concatenate([self.tree.total[nodes], opened.total[places]])
        chosen = _rank(sentence, total) < self.settings.beam_size
        self.in_beam[nodes] = chosen[: len(nodes)]
        free[places] = chosen[len(nodes) :]
        return free

    def _admit(self, depth: int, free: np.ndarray | None) -> tuple[Open, np.ndarray]:
        """(open prefixes of this length that their sentences can use and afford, which of them are
        rows of the wide beam, which cost nothing)."""
        opened = Open.join(self.open[depth])
        if free is None:
            free = np.zeros(len(opened), bool)
        sentence, bound = opened.sentence, self._bound(opened.total, depth + 1)
        useful = bound > self.floor[sentence]
        self._drop(sentence[~useful], opened.total[~useful], depth + 1, self.longest)
        wanted = (useful & ~free).nonzero()[0]
        most = np.minimum(self.width, self.settings.exact_budget - self.spent)[sentence[wanted]]
        paid = wanted[_rank(sentence[wanted], bound[wanted]) < most]
        self.spent += np.bincount(sentence[paid], minlength=len(self.spent))
        taken = useful & free
        taken[paid] = True
        self.open[depth] = [opened[useful & ~taken]]
        return opened[taken], free[taken]

    def _evaluate_all(self, depth: int, group: Open, free: np.ndarray) -> list[Known]:
        """What may follow these prefixes."""
        found = []
        for again in (False, True):
            chosen = ((group.token < 0) == again).nonzero()[0]
            for start in range(0, len(chosen), AT_ONCE):
                part = chosen[start : start + AT_ONCE]
                found.append(self._evaluate(depth, group[part], free[part], again))
        return found

    def _evaluate(self, depth: int, group: Open, free: np.ndarray, again: bool) -> Known:
        nodes, sentence = group.node, group.sentence
        if not again:
            first = self.tree.add(nodes, group.token, group.total, sentence)
            nodes = np.arange(first, len(self.tree))
            self.in_beam = np.concatenate([self.in_beam, free])
        count = group.seen * MORE_TOKENS if again else self._useful_tokens(group)
        paths = self.tree.paths(nodes, depth + 1)
        self.archive.restore(paths[:, :-1], sentence)
        tokens = torch.from_numpy(self.tree.token[paths]).to(self.device)
        answer = self.next.best(tokens, sentence, int(count.max()))
        self.archive.file(nodes, depth, answer.attention, answer.support)
        scores, best, cut, closed = _on_host(answer)
        if np.isnan(scores).any():
            raise GenerationError(f"the models' scores are NaN at step {depth}")
        if not again:
            self._note_limits(group, cut, closed)
        # Of all tokens there may be fewer, and one more comes with padding.
        count = np.where(count >= best.shape[1] - 1, best.shape[1], count)
        return Known(nodes, scores, best, count, again)

    def _useful_tokens(self, group: Open) -> np.ndarray:
        """How many next tokens to keep. Of a probability of e^total, fewer than e^(total − floor)
        parts can be above e^floor. The wide beam, EOS and padding need their places, too."""
        floor, least = self.floor[group.sentence], self.settings.beam_size + 2
        if self.settings.ranking.normalize:
            return np.full(len(group), max(TOKENS, least))
        parts = np.exp(np.minimum(group.total - floor, 50.0))
        parts = np.where(floor > -math.inf, parts + 2, TOKENS)
        return np.clip(parts, least, max(MOST_TOKENS, least)).astype(np.int64)

    def _note_limits(self, group: Open, cut, closed) -> None:
        if cut is None and closed is None:
            return
        for row, (number, total) in enumerate(zip(group.sentence, group.total, strict=True)):
            if cut is not None:
                self.sentences[number].cut(float(total + cut[row]), self.longest)
            if closed is not None:
                self.sentences[number].closed += math.exp(total) * float(closed[row])

    def _complete(self, sentence: Sentence) -> None:
        """Attention and support of hypotheses that this search has found."""
        for ended in sentence.finished:
            if ended.attention is None and ended.support is None:
                path = self.tree.path(ended.node)
                ended.attention = self.archive.history(self.archive.attention, path)
                ended.support = self.archive.history(self.archive.support, path)


def _rank(sentence: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The place of each among those of its sentence, the best first."""
    order = np.lexsort((-score, sentence))
    ordered = sentence[order]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return rank


def _on_host(answer: Answer):
    """(scores, tokens, what is cut off, what is closed); all at once, so that it waits once."""
    parts: list[Tensor] = [answer.scores, answer.tokens]
    parts += [x.unsqueeze(1) for x in (answer.cut, answer.closed) if x is not None]
    host = torch.cat([x.double() for x in parts], 1).cpu().numpy()
    k = answer.scores.shape[1]
    rest = iter(host[:, 2 * k :].T)
    cut, closed = (None if x is None else next(rest) for x in (answer.cut, answer.closed))
    return host[:, :k], host[:, k : 2 * k].astype(np.int64), cut, closed
