"""Search that goes on where the beam has stopped, until the best hypotheses are proved.

Where totals only fall, a prefix bounds all that can follow it: only prefixes whose bound is above
the n-th best finished score are worth a look, and when there are none left, the n best are proved.
Once the best is found, all of these have to be looked at, in whatever order; so this is done in
sweeps from short prefixes to long ones, all sentences of the batch at once.
"""

import heapq
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .errors import GenerationError
from .sentence import Ended, Sentence

EXACT_BUDGET = 400  # evaluations of a sentence, if nothing else is said
TOKENS = 32  # of the best next tokens of each prefix that are kept
MORE_TOKENS = 16  # times as many, when the last of them was good enough, too
# A prefix worth a look has a probability above e^floor, and those of one length share a mass
# of 1: of each length there are at most e^−floor. Proofs took 0.3 to 0.6 times as many evaluations
# in all, with little spread, for softmax and sparse models alike.
LIKELY_SHARE = 0.4
TRIAL = 8  # the part of the budget for sentences whose proof is likely to need more than all of it
AT_ONCE = 512  # rows in one call of the models


@dataclass(order=True)
class Open:
    """A prefix that was not evaluated yet; or one that was, whose further tokens are wanted."""

    key: float  # minus the bound on the score of what follows it
    depth: int = field(compare=False)  # tokens
    total: float = field(compare=False)  # of the prefix; no further token's total is larger
    node: int = field(compare=False)  # its parent; or, for further tokens, itself
    token: int = field(compare=False)  # -1: further tokens
    seen: int = field(compare=False, default=0)  # tokens that are known


@dataclass
class Frontier:
    """The open prefixes of one sentence."""

    number: int
    sentence: Sentence
    floor: float = -math.inf  # scores that are not above it are of no use
    heap: list[Open] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)  # nodes whose hypothesis is known
    forced: Ended | None = None  # better than nothing
    spent: int = 0
    allowance: int = 0  # evaluations


class ExactSearch:
    """Takes over from a BatchSearch that has filed what it evaluated."""

    def __init__(self, search):
        settings = search.settings
        self.settings, self.tree, self.archive = settings, search.tree, search.archive
        self.next, self.longest = search.next, search.max_len + 1
        self.recorded, self.only_falls = search.recorded, search.output.only_falls
        self.device = search.device
        self.goal = (settings.nbest, settings.enumerate_mass)
        self.tokens: dict[int, list[int]] = {}  # of each node, with the one that starts a sentence
        self.frontiers = [
            Frontier(number, sentence)
            for number, sentence in enumerate(search.sentences)
            if not sentence.is_settled(*self.goal)
        ]

    def run(self) -> None:
        if not self.frontiers:
            return
        self._take_over()
        while active := [f for f in self.frontiers if self._goes_on(f)]:
            self._sweep(active)
        for frontier in self.frontiers:
            for entry in frontier.heap:
                self._drop(frontier, entry)
            if not frontier.sentence.finished:
                frontier.sentence.add(frontier.forced)
            self._complete(frontier.sentence)

    # What the beam leaves

    def _take_over(self) -> None:
        of_sentence = {f.number: f for f in self.frontiers}
        nodes = [n for n, number in enumerate(self.tree.sentence) if number in of_sentence]
        children = {(self.tree.parent[n], self.tree.token[n]) for n in nodes}
        known = self._recorded_of(nodes)
        self.archive.keep(nodes, [self.tree.parent[node] for node in nodes])
        for frontier in self.frontiers:
            sentence = frontier.sentence
            sentence.reopen()
            if sentence.finished[0].status == "forced":
                frontier.forced = sentence.finished.pop()
            frontier.ended = {h.node for h in sentence.finished}
            self._raise_floor(frontier)
        for node, scores, tokens in zip(nodes, *known, strict=True):
            parent = self.tree.parent[node]
            above = self.tokens[parent] if parent >= 0 else []
            self.tokens[node] = [*above, self.tree.token[node]]
            frontier = of_sentence[self.tree.sentence[node]]
            total, depth = self.tree.total[node], len(above)
            if self.settings.ranking.bound(total, depth + 1, self.longest) <= frontier.floor:
                frontier.sentence.drop(total, depth + 1, self.longest)
                continue
            frontier.heap += self._follow(frontier, node, scores, tokens, children)
        for frontier in self.frontiers:
            heapq.heapify(frontier.heap)

    def _recorded_of(self, nodes: list[int]) -> tuple[list[list[float]], list[list[int]]]:
        """Scores and tokens of what may follow each of these nodes."""
        wanted = np.array(nodes)
        found = []
        for first, scores, tokens in self.recorded:
            rows = wanted[(wanted >= first) & (wanted < first + len(scores))] - first
            if len(rows):
                index = torch.from_numpy(rows).to(self.device)
                found.append(torch.stack([scores[index].double(), tokens[index].double()]))
        width = max(part.shape[2] for part in found)
        padded = [torch.nn.functional.pad(p, (0, width - p.shape[2])) for p in found]
        scores, tokens = torch.cat(padded, 1).cpu().numpy()
        sizes = [part.shape[2] for part in found for _ in range(part.shape[1])]
        pairs = zip(scores.tolist(), tokens.astype(int).tolist(), sizes, strict=True)
        cut = [(s[:size], t[:size]) for s, t, size in pairs]
        return [s for s, _ in cut], [t for _, t in cut]

    def _follow(
        self,
        frontier: Frontier,
        node: int,
        scores: list[float],
        tokens: list[int],
        known: set[tuple[int, int]] | frozenset = frozenset(),
        start: int = 0,
    ) -> list[Open]:
        """Ends what ends after this node; returns what is worth a look."""
        settings, total, depth = self.settings, self.tree.total[node], len(self.tokens[node]) - 1
        if settings.eos in tokens:
            score = scores[tokens.index(settings.eos)]
            if score > -math.inf:
                self._end(frontier, node, depth, total + score)
        useful, least = [], -math.inf
        for score, token in zip(scores[start:], tokens[start:], strict=True):
            if score == -math.inf:
                if token == settings.pad:
                    continue
                return useful  # there is nothing else
            least = score
            if token == settings.eos or (node, token) in known:
                continue
            entry = self._open(depth + 1, total + score, node, token)
            if -entry.key <= frontier.floor:
                self._drop(frontier, entry)
                break
            useful.append(entry)
        if len(scores) < settings.vocab_size and least > -math.inf:
            rest = self._open(depth, total + least, node, -1, len(scores))
            if -rest.key > frontier.floor:
                useful.append(rest)
            else:
                self._drop(frontier, rest)
        return useful

    def _open(self, depth: int, total: float, node: int, token: int, seen: int = 0) -> Open:
        bound = self.settings.ranking.bound(total, depth + 1, self.longest)
        return Open(-bound, depth, total, node, token, seen)

    def _end(self, frontier: Frontier, node: int, depth: int, total: float) -> None:
        if node in frontier.ended:
            return
        frontier.ended.add(node)
        length = depth + 1
        ended = Ended(node, total, length, self.settings.ranking.score(total, length))
        sentence = frontier.sentence
        room = max(self.settings.beam_size, self.settings.nbest)
        if len(sentence.finished) < room or self.settings.enumerate_mass is not None:
            sentence.add(ended)
        else:
            sentence.add_to_full(ended)
        self._raise_floor(frontier)

    def _raise_floor(self, frontier: Frontier) -> None:
        if self.only_falls and self.settings.enumerate_mass is None:
            frontier.floor = frontier.sentence.nth_score(self.settings.nbest)

    def _drop(self, frontier: Frontier, entry: Open) -> None:
        frontier.sentence.drop(entry.total, entry.depth + 1, self.longest)

    # Sweeps

    def _goes_on(self, frontier: Frontier) -> bool:
        mass = self.settings.enumerate_mass
        if mass is not None and frontier.sentence.listed_mass >= mass:
            return False
        if not frontier.heap or -frontier.heap[0].key <= frontier.floor:
            return False
        budget = self.settings.exact_budget
        likely = self._expected(frontier) <= budget
        frontier.allowance = budget if likely else -(-budget // TRIAL)
        return frontier.spent < frontier.allowance

    def _sweep(self, active: list[Frontier]) -> None:
        """Evaluates the open prefixes of each sentence, and what follows them."""
        lengths: dict[int, list[tuple[Frontier, Open]]] = {}
        for frontier in active:
            for entry in self._take(frontier):
                lengths.setdefault(entry.depth, []).append((frontier, entry))
        for depth in range(self.longest):
            group = self._admit(lengths.pop(depth, []))
            for start in range(0, len(group), AT_ONCE):
                for frontier, entry in self._evaluate(depth, group[start : start + AT_ONCE]):
                    lengths.setdefault(entry.depth, []).append((frontier, entry))
            for frontier, entry in lengths.pop(depth, []):  # further tokens: the next sweep's
                heapq.heappush(frontier.heap, entry)

    def _take(self, frontier: Frontier) -> list[Open]:
        """The open prefixes with which a sweep begins."""
        count = min(frontier.allowance - frontier.spent, len(frontier.heap))
        return [heapq.heappop(frontier.heap) for _ in range(count)]

    def _expected(self, frontier: Frontier) -> float:
        """How many evaluations a proof is likely to need. Without a floor, proofs are not what the
        search is for."""
        ranking = self.settings.ranking
        if frontier.floor == -math.inf:
            return 0.0
        least = frontier.floor  # the total that makes a prefix worth a look
        if ranking.normalize:
            least *= (self.longest if ranking.len_penalty > 0 else 1) ** ranking.len_penalty
        open_ones = sum(-entry.key > frontier.floor for entry in frontier.heap)
        return max(open_ones, LIKELY_SHARE * math.exp(min(-least, 50.0)))

    def _admit(self, group: list[tuple[Frontier, Open]]) -> list[tuple[Frontier, Open]]:
        """Those whose sentences can still use and afford them, best first; the others go back."""
        admitted = []
        for frontier, entry in sorted(group, key=lambda pair: pair[1].key):
            if -entry.key <= frontier.floor:
                self._drop(frontier, entry)
            elif frontier.spent < frontier.allowance:
                frontier.spent += 1
                admitted.append((frontier, entry))
            else:
                heapq.heappush(frontier.heap, entry)
        return admitted

    def _evaluate(
        self, depth: int, group: list[tuple[Frontier, Open]]
    ) -> list[tuple[Frontier, Open]]:
        """What is worth a look after these prefixes."""
        if not group:
            return []
        nodes = [self._node(frontier, entry) for frontier, entry in group]
        owner = [frontier.number for frontier, _ in group]
        self.archive.restore([self.tree.parent[node] for node in nodes], owner)
        width = max(e.seen for _, e in group) * MORE_TOKENS or TOKENS
        tokens = [self.tokens[node] for node in nodes]
        scores, best, cut, closed = self._ask(tokens, owner, width, nodes)
        found = []
        for row, (frontier, entry) in enumerate(group):
            if entry.token >= 0:
                self._note_limits(frontier.sentence, entry.total, cut, closed, row)
            answer = (nodes[row], scores[row], best[row])
            found += [(frontier, e) for e in self._follow(frontier, *answer, start=entry.seen)]
        return found

    def _node(self, frontier: Frontier, entry: Open) -> int:
        if entry.token < 0:
            return entry.node
        node = self.tree.add([entry.node], [entry.token], [entry.total], [frontier.number])
        self.tokens[node] = [*self.tokens[entry.node], entry.token]
        return node

    def _ask(self, tokens: list, owner: list[int], width: int, nodes: list[int]):
        """(scores, tokens, what is cut off, what is closed) of the next token, on the host."""
        device_tokens = torch.tensor(tokens, device=self.device)
        answer = self.next.best(device_tokens, np.array(owner), width)
        parents = [self.tree.parent[node] for node in nodes]
        self.archive.file(nodes, parents, len(tokens[0]) - 1, answer.attention, answer.support)
        parts: list[Tensor] = [answer.scores, answer.tokens]
        parts += [x.unsqueeze(1) for x in (answer.cut, answer.closed) if x is not None]
        host = torch.cat([x.double() for x in parts], 1).cpu().numpy()
        if np.isnan(host).any():
            raise GenerationError(f"the models' scores are NaN at step {len(tokens[0]) - 1}")
        k = answer.scores.shape[1]
        rest = iter(host[:, 2 * k :].T)
        cut, closed = (None if x is None else next(rest) for x in (answer.cut, answer.closed))
        return host[:, :k].tolist(), host[:, k : 2 * k].astype(int).tolist(), cut, closed

    def _note_limits(self, sentence: Sentence, total: float, cut, closed, row: int) -> None:
        if cut is not None:
            sentence.cut(total + cut[row], self.longest)
        if closed is not None:
            sentence.closed += math.exp(total) * closed[row]

    def _complete(self, sentence: Sentence) -> None:
        """Attention and support of hypotheses that this search has found."""
        for ended in sentence.finished:
            if ended.attention is None and ended.support is None:
                ended.attention = self.archive.history(self.archive.attention, ended.node)
                ended.support = self.archive.history(self.archive.support, ended.node)
