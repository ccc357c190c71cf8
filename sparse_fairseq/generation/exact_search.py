"""Search for the best hypotheses, and for the proof that they are.

Where totals only fall, a prefix bounds all that can follow it: only prefixes whose bound is above
the n-th best finished score, the floor, are worth a look. When there are none left, the n best are
proved. So the best prefixes are evaluated first, in rounds: some of each sentence, of whatever
length, all in one call of the models.

If one hypothesis is wanted, no beam comes before. A round then has, for each sentence, the next
token of its lead, a greedy hypothesis, and all prefixes whose totals are above the lead's: unless a
better hypothesis turns up, a proof needs them. Where a proof is not likely, the search does what a
beam does, so that the result is never worse than a beam's.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from .errors import GenerationError
from .next_tokens import Answer
from .open_lists import REST, OpenLists
from .sentence import Ended

# Evaluations of a sentence, if nothing else is said: proves 85% of Multi30k for all systems.
EXACT_BUDGET = 16_000
TOKENS = 24  # of the best next tokens of each prefix that are kept
MORE_TOKENS = 16  # times as many, when the last of them was good enough, too
# A prefix worth a look has a probability above e^floor, and those of one length share a mass
# of 1: of each length there are at most e^−floor. Proofs took 0.5 to 1 times as many evaluations
# in all, for softmax and sparse models alike.
LIKELY_SHARE = 0.8
# Evaluations where a proof is not likely: so many, and at least this part of the budget. A model
# may have few sentences, however small their scores are.
TRIAL = 24
TRIAL_PART = 64
SIDES = 8  # prefixes of a sentence in a round beside its lead
FIRST = 8  # prefixes of a sentence in its first round without a lead; later twice as many
# A longer prefix comes before a shorter one that is better by this for each token: its end, which
# may raise the floor, is nearer.
PATIENCE = 0.2
AT_ONCE = 1024  # rows in one call of the models
STATES = 2**31  # bytes of decoder states of a batch; some of its sentences wait if it needs more

# What a sentence is doing.
LEAD, BEAM, PROOF, NOTHING = range(4)


@dataclass
class Wanted:
    """Entries of open lists that are to be evaluated, as arrays."""

    list: np.ndarray
    place: np.ndarray

    def __len__(self) -> int:
        return len(self.list)

    def __getitem__(self, chosen) -> "Wanted":
        return Wanted(self.list[chosen], self.place[chosen])

    @classmethod
    def join(cls, parts: list["Wanted"]) -> "Wanted":
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


class ExactSearch:
    """Takes over from a BatchSearch that has filed what it evaluated, or has only begun."""

    def __init__(self, search):
        settings = search.settings
        self.settings, self.tree, self.archive = settings, search.tree, search.archive
        self.next, self.longest = search.next, search.max_len + 1
        self.recorded, self.only_falls = search.recorded, search.output.only_falls
        self.device, self.sentences = search.device, search.sentences
        self.width = min(max(TOKENS, settings.beam_size + 2), settings.vocab_size)
        self.lists = OpenLists(self.width)
        self.list_of = np.empty(256, np.int64)  # [nodes] the first list of each
        self.ended: set[int] = set()  # nodes whose ends are known
        count = len(self.sentences)
        self.floor = np.full(count, -math.inf)  # scores that are not above it are of no use
        self.worst = np.full(count, -math.inf)  # of a full list of finished hypotheses
        self.best_total = np.full(count, -math.inf)  # of a finished hypothesis
        # Prefixes that the user demands: how long, and the total of what was evaluated of each.
        self.demand = np.array([len(self.next.longest_rest(n, 0)) for n in range(count)])
        self.demanded_total = np.zeros(count)
        self.spent = np.zeros(count, np.int64)
        self.rounds = np.zeros(count, np.int64)  # without a lead
        self.doing = np.full(count, NOTHING)
        self.lead = np.zeros(count, np.int64)  # the length of each lead
        self.lead_total = np.full(count, -math.inf)
        self.beams: dict[int, np.ndarray] = {}  # nodes, of the sentences that have a beam
        self.had_beam = np.zeros(count, bool)
        self.is_closed = np.zeros(count, bool)  # its states are forgotten

    def run(self) -> None:
        if self.recorded:
            self._take_over()
        else:
            self._begin()
        while len(wanted := self._choose()):
            self._evaluate_all(wanted)
        lists = self.lists
        self._drop(lists.sentence, lists.head, lists.depth + 1, self.longest)
        self._close(~self.is_closed)

    # The start

    def _begin(self) -> None:
        """Evaluates the empty prefix of each sentence."""
        self.doing[:] = LEAD
        self._evaluate(np.arange(len(self.sentences)), again=False, count=self.width)

    def _take_over(self) -> None:
        """Goes on from what a beam has evaluated, where that is not enough."""
        goal = (self.settings.nbest, self.settings.enumerate_mass)
        numbers = [n for n, s in enumerate(self.sentences) if not s.is_settled(*goal)]
        nodes = np.isin(self.tree.sentence, numbers).nonzero()[0]
        self.archive.keep(nodes, len(self.tree))
        self._note_demanded(nodes)
        self.doing[numbers] = PROOF
        self.had_beam[:] = self.is_closed[:] = True
        self.is_closed[numbers] = False
        for number in numbers:
            sentence = self.sentences[number]
            sentence.reopen()
            if sentence.finished[0].status == "forced":
                sentence.finished.clear()
            self.ended.update(h.node for h in sentence.finished)
            self._note_list(number)
        for found, scores, tokens in self._recorded_of(nodes):
            if len(found):
                self._follow(found, scores, tokens, again=True)

    def _recorded_of(self, nodes: np.ndarray) -> list[tuple]:
        """What may follow each of these nodes, by length; all at once from the device."""
        flat, shapes = [], []
        for first, scores, tokens in self.recorded:
            rows = nodes[(nodes >= first) & (nodes < first + len(scores))] - first
            index = torch.from_numpy(rows).to(self.device)
            flat += [scores[index].double().flatten(), tokens[index].double().flatten()]
            shapes.append((rows + first, (len(rows), scores.shape[1])))
        parts = torch.cat(flat).cpu().split([len(part) for part in flat])
        return [
            (rows, scores.numpy().reshape(shape), tokens.long().numpy().reshape(shape))
            for (rows, shape), scores, tokens in zip(shapes, parts[::2], parts[1::2], strict=True)
        ]

    # What an evaluation tells

    def _follow(
        self, nodes: np.ndarray, scores: np.ndarray, tokens: np.ndarray, again: bool
    ) -> None:
        """Ends what ends after these nodes, and lists what else may follow. `again`: some of it
        may be known already."""
        tree, settings = self.tree, self.settings
        sentence, seen = tree.sentence[nodes], scores.shape[1]
        totals = tree.total[nodes][:, None] + scores
        possible, is_eos = scores > -math.inf, tokens == settings.eos
        rows, places = (possible & is_eos).nonzero()
        self._end(nodes[rows], sentence[rows], totals[rows, places])
        # What is not listed has no larger total than the last that is; if that is impossible,
        # there is nothing else.
        impossible = ~possible & (tokens != settings.pad)
        whole = impossible.any(1) | (seen >= settings.vocab_size)
        rest = np.where(possible, totals, math.inf).min(1)
        rest = np.where(whole | (rest == math.inf), -math.inf, rest)
        keep = possible & ~is_eos
        if again:
            keep &= ~self._are_known(nodes, tokens)
        order = np.argsort(~keep, axis=1, kind="stable")
        totals = np.take_along_axis(np.where(keep, totals, -math.inf), order, 1)
        tokens = np.take_along_axis(tokens, order, 1)
        first = len(self.lists)
        self._list(nodes, seen, totals, tokens, keep.sum(1), rest)
        if not again:
            self._note_lists(nodes, first)

    def _list(self, nodes, seen: int, totals, tokens, count, rest) -> None:
        """Opens lists of the first `count` continuations of each node; long ones are several, and
        the last one has the rest."""
        sentence, depth = self.tree.sentence[nodes], self.tree.depth[nodes]
        for start in range(0, max(1, int(count.max())), self.width):
            part = slice(start, start + self.width)
            chosen = slice(None) if start == 0 else (count > start).nonzero()[0]
            first = self.lists.add(nodes[chosen], sentence[chosen], depth[chosen], seen)
            rows = slice(first, None)
            here = min(totals.shape[1] - start, self.width)
            self.lists.totals[rows, :here] = totals[chosen, part]
            self.lists.tokens[rows, :here] = tokens[chosen, part]
            left = count[chosen] - start
            last = (left <= self.width).nonzero()[0]
            place = (first + last, left[last])
            self.lists.totals[place], self.lists.tokens[place] = rest[chosen][last], REST

    def _note_lists(self, nodes: np.ndarray, first: int) -> None:
        if (most := int(nodes.max())) >= len(self.list_of):
            self.list_of = np.resize(self.list_of, 2 * most + 1)
        self.list_of[nodes] = np.arange(first, first + len(nodes))

    def _are_known(self, nodes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Which of these next tokens lead to prefixes that were evaluated, or are listed."""
        size = self.settings.vocab_size
        listed = np.isin(self.lists.node, nodes)
        known = self.lists.node[listed][:, None] * size + self.lists.tokens[listed]
        real = (self.lists.tokens[listed] != REST) & (self.lists.totals[listed] > -math.inf)
        pairs = [self.tree.parent * size + self.tree.token, known[real]]
        return np.isin(nodes[:, None] * size + tokens, np.concatenate(pairs))

    def _bound(self, total: np.ndarray, shortest) -> np.ndarray:
        """`Ranking.bound` of arrays."""
        if not self.settings.ranking.normalize:
            return total
        return self._normalized_bound(total, shortest, self.longest)

    def _normalized_bound(self, total: np.ndarray, shortest, longest) -> np.ndarray:
        power = self.settings.ranking.len_penalty
        short, long = np.asarray(shortest, float) ** power, np.asarray(longest, float) ** power
        return np.maximum(total / short, total / long)

    def _drop(self, sentence: np.ndarray, total: np.ndarray, shortest, longest) -> None:
        """`Sentence.drop` of arrays."""
        normalized = self._normalized_bound(total, shortest, longest)
        for number, *largest in self._largest(sentence, total, normalized):
            self.sentences[number].drop_bounds(*largest)

    def _leave_out(self, sentence: np.ndarray, total: np.ndarray, length: np.ndarray) -> None:
        """`Sentence.leave_out` of arrays."""
        normalized = total / length**self.settings.ranking.len_penalty
        for number, *largest in self._largest(sentence, total, normalized):
            self.sentences[number].leave_out_scores(*largest)

    def _largest(self, sentence: np.ndarray, *values: np.ndarray) -> list[tuple]:
        """(number, the largest of each kind of value) of the sentences that have some."""
        largest = np.full((len(values), len(self.sentences)), -math.inf)
        for of_kind, kind in zip(largest, values, strict=True):
            np.maximum.at(of_kind, sentence, kind)
        numbers = (largest[0] > -math.inf).nonzero()[0]
        return list(zip(numbers.tolist(), *largest[:, numbers].tolist(), strict=True))

    def _end(self, node: np.ndarray, sentence: np.ndarray, total: np.ndarray) -> None:
        """Finishes hypotheses that end after these nodes, if they did not already."""
        new = [n not in self.ended for n in node.tolist()]
        node, sentence, total = node[new], sentence[new], total[new]
        self.ended.update(node.tolist())
        ranking, mass = self.settings.ranking, self.settings.enumerate_mass
        length = self.tree.depth[node] + 1
        score = total / length**ranking.len_penalty if ranking.normalize else total
        late = score <= self.worst[sentence]
        self._leave_out(sentence[late], total[late], length[late])
        in_time = (~late).nonzero()[0].tolist()
        for i in in_time:
            known = self.sentences[int(sentence[i])]
            ended = Ended(int(node[i]), float(total[i]), int(length[i]), float(score[i]))
            if mass is not None or len(known.finished) < self._room:
                known.add(ended)
            else:
                known.add_to_full(ended)
        for number in np.unique(sentence[in_time]).tolist():
            self._note_list(number)

    @property
    def _room(self) -> int:
        return max(self.settings.beam_size, self.settings.nbest)

    def _note_list(self, number: int) -> None:
        """The list of finished hypotheses has changed."""
        sentence, mass = self.sentences[number], self.settings.enumerate_mass
        self.best_total[number] = max((h.total for h in sentence.finished), default=-math.inf)
        if mass is not None:
            if sentence.listed_mass >= mass:
                self.doing[number] = NOTHING
            return
        if self.only_falls:
            self.floor[number] = sentence.nth_score(self.settings.nbest)
        self.worst[number] = sentence.nth_score(self._room)

    # What to look at next

    def _choose(self) -> Wanted:
        """The prefixes of the next round. Those of leads and beams cost nothing."""
        for number in (self._is_exhausted() & ~self.had_beam).nonzero()[0].tolist():
            self._start_beam(number)
        free = [*self._leads(), *self._beams()]
        for wanted in free:
            self._take(wanted)
        paid, counts = self._admitted(self._best_open())
        self._take(paid)
        self.spent += counts
        self.rounds += (self.doing == PROOF) & (counts > 0)
        return Wanted.join([*free, paid])

    def _is_exhausted(self) -> np.ndarray:
        return (self.doing == PROOF) & (self.spent >= self.settings.exact_budget)

    def _take(self, wanted: Wanted) -> None:
        np.maximum.at(self.lists.taken, wanted.list, wanted.place + 1)

    def _leads(self) -> list[Wanted]:
        """The next prefix of each lead: the best open one that is not shorter than the last. A
        lead ends when its total is not above that of a hypothesis that has ended."""
        lists, count = self.lists, len(self.doing)
        ahead = (self.doing == LEAD)[lists.sentence] & (lists.depth >= self.lead[lists.sentence])
        rows = ahead.nonzero()[0]
        owner, head = (
            lists.sentence[rows],
            np.where(lists.head_is_rest, -math.inf, lists.head)[rows],
        )
        order = np.lexsort((head, owner))  # the best of each sentence comes last
        self.lead_total[:] = -math.inf
        last = np.zeros(count, np.int64)
        self.lead_total[owner[order]], last[owner[order]] = head[order], rows[order]
        leads = self.doing == LEAD
        self._decide((leads & (self.lead_total <= self.best_total)).nonzero()[0])
        leads &= self.lead_total > self.best_total
        hopeless = leads & (self._expected(self.lead_total) > self.settings.exact_budget)
        for number in hopeless.nonzero()[0].tolist():
            self._start_beam(number)
        numbers = (leads & ~hopeless).nonzero()[0]
        self.lead[numbers] = lists.depth[last[numbers]] + 1
        return [Wanted(last[numbers], lists.taken[last[numbers]])]

    def _decide(self, numbers: np.ndarray) -> None:
        """What sentences do whose lead or beam has ended."""
        proof = self._is_likely()[numbers] | self.had_beam[numbers]
        self.doing[numbers[proof]] = PROOF
        for number in numbers[~proof].tolist():
            self._start_beam(number)

    def _is_likely(self) -> np.ndarray:
        """Whether each sentence can afford a proof, with the floor that it has."""
        ranking, least = self.settings.ranking, self.floor
        if ranking.normalize:  # the total that makes a prefix worth a look
            longest = self.longest if ranking.len_penalty > 0 else 1
            least = least * longest**ranking.len_penalty
        return self._expected(least) <= self.settings.exact_budget

    def _expected(self, least: np.ndarray) -> np.ndarray:
        """How many evaluations a proof is likely to need."""
        return LIKELY_SHARE * np.exp(np.minimum(self.demanded_total - least, 50.0))

    def _start_beam(self, number: int) -> None:
        self.doing[number], self.had_beam[number] = BEAM, True
        self.beams[number] = np.array([number])  # its root

    def _beams(self) -> list[Wanted]:
        """The prefixes that beams would evaluate next, as far as they are worth a look."""
        found = []
        for number in (self.doing == BEAM).nonzero()[0].tolist():
            wanted = self._beam(number)
            if wanted is None:
                self._decide(np.array([number]))
            else:
                found.append(wanted)
        return found

    def _beam(self, number: int) -> Wanted | None:
        """The rows of a beam are the best of those that continue its rows. Some of them were
        evaluated already."""
        while True:
            lists = self.list_of[self.beams[number]]
            totals, depth = self.lists.totals[lists], int(self.lists.depth[lists[0]])
            useful = (self._bound(totals, depth + 2) > self.floor[number]) & (totals > -math.inf)
            useful &= self.lists.tokens[lists] != REST
            rows, places = useful.nonzero()
            best = np.argsort(-totals[rows, places], kind="stable")[: self.settings.beam_size]
            if not len(best):
                del self.beams[number]
                return None
            lists, places = lists[rows[best]], places[best]
            child = self.lists.child[lists, places]
            if (child < 0).any():
                return Wanted(lists[child < 0], places[child < 0])
            self.beams[number] = child

    def _best_open(self) -> Wanted:
        """Open prefixes that their sentences can use and afford, the best first; those of a list
        in its own order, because they are as long."""
        lists, least, most = self.lists, self._worth(), self._affordable()
        least = np.where(most > 0, least, math.inf)
        head = self._bound(lists.head, lists.depth + 1)
        chosen = (head > least[lists.sentence]).nonzero()[0]
        sentence, depth = lists.sentence[chosen][:, None], lists.depth[chosen][:, None]
        totals = lists.totals[chosen]
        bound = self._bound(totals, depth + 1)
        useful = (bound > least[sentence]) & (totals > -math.inf)
        useful &= np.arange(lists.width) >= lists.taken[chosen][:, None]
        rows, places = useful.nonzero()
        owner = sentence[rows, 0]
        nearest = bound[rows, places] + PATIENCE * depth[rows, 0]
        best = _rank(owner, nearest) < most[owner]
        return Wanted(chosen[rows[best]], places[best])

    def _admitted(self, wanted: Wanted) -> tuple[Wanted, np.ndarray]:
        """Those whose states there is room for, and how many of each sentence. A sentence waits
        with all it wants, so that it finds the same as alone; one of them always goes on."""
        owner = self.lists.sentence[wanted.list]
        counts = np.bincount(owner, minlength=len(self.doing))
        if counts.sum() > self._free_states():
            self._forget(np.isin(self.doing, (PROOF, NOTHING)) & (counts == 0))
            goes = (np.cumsum(counts) <= self._free_states()) | (self.doing == LEAD)
            goes[np.argmax(counts > 0)] = True
            wanted, counts = wanted[goes[owner]], np.where(goes, counts, 0)
        return wanted, counts

    def _free_states(self) -> float:
        return STATES / self.archive.bytes_per_node - self.archive.count

    def _worth(self) -> np.ndarray:
        """What bounds have to be above, of each sentence, in this round."""
        sides = np.maximum(self.floor, self.lead_total)
        if self.settings.ranking.normalize:
            sides[:] = math.inf  # totals do not tell what a proof needs
        return np.select([self.doing == LEAD, self.doing == PROOF], [sides, self.floor], math.inf)

    def _affordable(self) -> np.ndarray:
        """How many prefixes each sentence may look at in this round."""
        tried = (self.doing == PROOF) & (self.floor > -math.inf) & ~self._is_likely()
        budget = np.full(len(self.doing), self.settings.exact_budget)
        budget[tried] = np.minimum(budget[tried], np.maximum(TRIAL, budget[tried] // TRIAL_PART))
        width = np.where(self.doing == LEAD, SIDES, FIRST << np.minimum(self.rounds, 20))
        return np.clip(budget - self.spent, 0, width)

    # Evaluation

    def _evaluate_all(self, wanted: Wanted) -> None:
        lists = self.lists
        is_rest = lists.tokens[wanted.list, wanted.place] == REST
        known = wanted.list[is_rest]
        # Apart from others: the empty prefix, which has no states to go on from.
        kinds = 2 * lists.seen[known] + (lists.depth[known] > 0)
        for kind in np.unique(kinds).tolist():
            again, count = known[kinds == kind], kind // 2 * MORE_TOKENS
            for part in self._calls(lists.depth[again]):
                self._evaluate(lists.node[again[part]], again=True, count=count)
        new = wanted[~is_rest]
        for part in self._calls(lists.depth[new.list]):
            self._evaluate_new(new[part])

    def _calls(self, depth: np.ndarray) -> list[np.ndarray]:
        """Which prefixes, of these lengths, are evaluated in one call of the models."""
        groups = [np.argsort(depth, kind="stable")]  # those of one length share their padding
        if not self.archive.can_mix:
            groups = [(depth == d).nonzero()[0] for d in np.unique(depth)]
        return [
            group[start : start + AT_ONCE]
            for group in groups
            for start in range(0, len(group), AT_ONCE)
        ]

    def _evaluate_new(self, wanted: Wanted) -> None:
        lists = self.lists
        where = (wanted.list, wanted.place)
        parents, sentence = lists.node[wanted.list], lists.sentence[wanted.list]
        first = self.tree.add(parents, lists.tokens[where], lists.totals[where], sentence)
        nodes = np.arange(first, len(self.tree))
        lists.child[where] = nodes
        self._evaluate(nodes, again=False, count=self.width)

    def _evaluate(self, nodes: np.ndarray, again: bool, count: int) -> None:
        sentence, depth = self.tree.sentence[nodes], self.tree.depth[nodes]
        paths = self.tree.paths(nodes)
        self.archive.restore(paths[:, :-1], sentence)
        tokens = np.where(paths >= 0, self.tree.token[paths], self.settings.pad)
        # Where lengths may differ, they are always told; the first step is that of the beam.
        steps = depth if self.archive.can_mix and depth.any() else None
        answer = self.next.best(torch.from_numpy(tokens).to(self.device), sentence, count, steps)
        self.archive.file(nodes, paths.shape[1] - 1, answer.attention, answer.support)
        scores, best, cut, closed = _on_host(answer)
        if np.isnan(scores).any():
            raise GenerationError(f"the models' scores are NaN at step {int(depth.max())}")
        if not again:
            self._note_demanded(nodes)
            self._note_limits(nodes, cut, closed)
        # Of all tokens there may be fewer, and one more comes with padding.
        kept = slice(None if count >= best.shape[1] - 1 else count)
        self._follow(nodes, scores[:, kept], best[:, kept], again)

    def _note_demanded(self, nodes: np.ndarray) -> None:
        """What a proof costs is decided after what the user demands, whose prefixes come in order
        and have no others beside them."""
        inside = nodes[self.tree.depth[nodes] <= self.demand[self.tree.sentence[nodes]]]
        self.demanded_total[self.tree.sentence[inside]] = self.tree.total[inside]

    def _note_limits(self, nodes: np.ndarray, cut, closed) -> None:
        if cut is None and closed is None:
            return
        owner, totals = self.tree.sentence[nodes].tolist(), self.tree.total[nodes].tolist()
        for row, (number, total) in enumerate(zip(owner, totals, strict=True)):
            if cut is not None:
                self.sentences[number].cut(total + float(cut[row]), self.longest)
            if closed is not None:
                self.sentences[number].closed += math.exp(total) * float(closed[row])

    # The end

    def _forced(self, number: int) -> Ended:
        """The best of the longest prefixes, closed with EOS, which the models hold impossible. A
        prefix that the user demands is completed."""
        nodes = (self.tree.sentence == number).nonzero()[0].tolist()
        node = max(nodes, key=lambda n: (self.tree.depth[n], self.tree.total[n]))
        depth = int(self.tree.depth[node])
        rest = self.next.longest_rest(number, depth)
        return Ended(node, -math.inf, depth + 1 + len(rest), -math.inf, rest)

    def _close(self, which: np.ndarray) -> None:
        """Completes the hypotheses of sentences that have come to their end."""
        for number in which.nonzero()[0].tolist():
            if not self.sentences[number].finished:
                self.sentences[number].add(self._forced(number))
        self._complete(which)

    def _forget(self, which: np.ndarray) -> None:
        """The states of sentences that have come to their end."""
        which = which & ~self.is_closed
        if which.any():
            self._close(which)
            self.is_closed |= which
            self.archive.keep((~self.is_closed)[self.tree.sentence].nonzero()[0], len(self.tree))

    def _complete(self, which: np.ndarray) -> None:
        """Attention and support of hypotheses that this search has found."""
        found = [
            ended
            for number in which.nonzero()[0].tolist()
            for ended in self.sentences[number].finished
            if ended.attention is None and ended.support is None
        ]
        if found:
            paths = self.tree.paths(np.array([ended.node for ended in found]))
            attention = self.archive.histories(self.archive.attention, paths)
            support = self.archive.histories(self.archive.support, paths)
            for ended, *known in zip(found, attention, support, strict=True):
                ended.attention, ended.support = known


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
