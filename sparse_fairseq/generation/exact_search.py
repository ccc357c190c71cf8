"""Search that goes on where the beam has stopped, until the best hypotheses are proved.

Where totals only fall, a prefix bounds all that can follow it: only prefixes whose bound is above
the n-th best finished score are worth a look, and when there are none left, the n best are proved.
The order among them hardly matters, so that this is done in sweeps: from short prefixes to long
ones, the best of each sentence, all sentences of the batch at once.
"""

import heapq
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .errors import GenerationError
from .sentence import Ended, Sentence

TOKENS = 32  # of the best next tokens of each prefix that are kept
MORE_TOKENS = 16  # times as many, when the last of them was good enough, too
ROWS = 128  # prefixes of one length in a sweep, shared by the sentences
AT_LEAST = 4  # of each sentence
AT_ONCE = 256  # rows in one call of the models


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


class ExactSearch:
    """Takes over from a BatchSearch that has filed what it evaluated."""

    def __init__(self, search):
        settings = search.settings
        self.settings, self.tree, self.archive = settings, search.tree, search.archive
        self.next, self.longest = search.next, search.max_len + 1
        self.recorded, self.only_falls = search.recorded, search.output.only_falls
        self.device = search.device
        self.goal = (settings.nbest, settings.enumerate_mass)
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
            self._sweep(active, max(AT_LEAST, ROWS // len(active)))
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
        self.archive.keep(nodes)
        for frontier in self.frontiers:
            sentence = frontier.sentence
            sentence.reopen()
            if sentence.finished[0].status == "forced":
                frontier.forced = sentence.finished.pop()
            frontier.ended = {h.node for h in sentence.finished}
            self._raise_floor(frontier)
        depth: dict[int, int] = {}
        for node, (scores, tokens) in zip(nodes, known, strict=True):
            parent = self.tree.parent[node]
            depth[node] = depth[parent] + 1 if parent >= 0 else 0
            entries = self._follow(
                of_sentence[self.tree.sentence[node]], node, depth[node], scores, tokens, children
            )
            heap = of_sentence[self.tree.sentence[node]].heap
            for entry in entries:
                heapq.heappush(heap, entry)

    def _recorded_of(self, nodes: list[int]) -> list[tuple[list[float], list[int]]]:
        """Next tokens of each of these nodes, with scores."""
        wanted = np.array(nodes)
        found = []
        for first, scores, tokens in self.recorded:
            rows = wanted[(wanted >= first) & (wanted < first + len(scores))] - first
            if len(rows):
                index = torch.from_numpy(rows).to(self.device)
                found.append((scores[index], tokens[index]))
        width = max(scores.shape[1] for scores, _ in found)
        padded = [
            torch.nn.functional.pad(torch.cat([s.double(), t.double()]), (0, width - s.shape[1]))
            for s, t in found
        ]
        host = torch.cat(padded).cpu().tolist()
        result, start = [], 0
        for scores, _ in found:
            n, k = scores.shape
            for row in range(start, start + n):
                result.append((host[row][:k], [int(t) for t in host[row + n][:k]]))
            start += 2 * n
        return result

    def _follow(
        self,
        frontier: Frontier,
        node: int,
        depth: int,
        scores: list[float],
        tokens: list[int],
        known: set[tuple[int, int]] = frozenset(),
        start: int = 0,
    ) -> list[Open]:
        """Ends what ends after this node; returns what is worth a look."""
        settings, total = self.settings, self.tree.total[node]
        entries, impossible = [], 0
        for score, token in zip(scores[start:], tokens[start:], strict=True):
            if score == -math.inf:
                impossible += token != settings.pad
            elif token == settings.eos:
                self._end(frontier, node, depth, total + score)
            elif (node, token) not in known:
                entries.append(self._open(depth + 1, total + score, node, token))
        # Fewer than there are tokens, and none of them impossible: there may be more.
        if not impossible and len(scores) < settings.vocab_size:
            least = min((s for s in scores if s > -math.inf), default=-math.inf)
            if least > -math.inf:
                entries.append(self._open(depth, total + least, node, -1, len(scores)))
        useful = []
        for entry in entries:
            if -entry.key > frontier.floor:
                useful.append(entry)
            else:
                self._drop(frontier, entry)
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
        if not frontier.heap or frontier.spent >= self.settings.exact_budget:
            return False
        mass = self.settings.enumerate_mass
        if mass is not None and frontier.sentence.listed_mass >= mass:
            return False
        return -frontier.heap[0].key > frontier.floor

    def _sweep(self, active: list[Frontier], rows: int) -> None:
        """Evaluates the best open prefixes of each sentence, at most `rows` of each length, and
        what follows them as far as it is as good."""
        lengths: dict[int, list[tuple[Frontier, Open]]] = {}
        least: dict[int, float] = {}
        for frontier in active:
            taken = [heapq.heappop(frontier.heap) for _ in range(min(rows, len(frontier.heap)))]
            least[frontier.number] = -taken[-1].key if frontier.heap else -math.inf
            for entry in taken:
                lengths.setdefault(entry.depth, []).append((frontier, entry))
        for depth in range(self.longest):
            group = self._admit(lengths.pop(depth, []), rows)
            for start in range(0, len(group), AT_ONCE):
                for frontier, entry in self._evaluate(depth, group[start : start + AT_ONCE]):
                    if -entry.key >= least[frontier.number]:
                        lengths.setdefault(entry.depth, []).append((frontier, entry))
                    else:
                        heapq.heappush(frontier.heap, entry)
            for frontier, entry in lengths.pop(depth, []):  # further tokens: the next sweep's
                heapq.heappush(frontier.heap, entry)

    def _admit(self, group: list[tuple[Frontier, Open]], rows: int) -> list[tuple[Frontier, Open]]:
        """Those whose sentences can still use and afford them, best first; the others go back."""
        taken: dict[int, int] = {}
        admitted = []
        for frontier, entry in sorted(group, key=lambda pair: pair[1].key):
            count = taken.get(frontier.number, 0)
            if -entry.key <= frontier.floor:
                self._drop(frontier, entry)
            elif count >= rows or frontier.spent >= self.settings.exact_budget:
                heapq.heappush(frontier.heap, entry)
            else:
                taken[frontier.number] = count + 1
                frontier.spent += 1
                admitted.append((frontier, entry))
        return admitted

    def _evaluate(
        self, depth: int, group: list[tuple[Frontier, Open]]
    ) -> list[tuple[Frontier, Open]]:
        """What is worth a look after these prefixes."""
        if not group:
            return []
        tree = self.tree
        parents = [tree.parent[e.node] if e.token < 0 else e.node for _, e in group]
        last = [tree.token[e.node] if e.token < 0 else e.token for _, e in group]
        paths = [tree.path(parent) for parent in parents]
        owner = [frontier.number for frontier, _ in group]
        nodes = [
            e.node if e.token < 0 else tree.add([e.node], [e.token], [e.total], [f.number])
            for f, e in group
        ]
        self.archive.restore(paths, owner)
        tokens = [[tree.token[n] for n in path] + [t] for path, t in zip(paths, last, strict=True)]
        width = max((e.seen * MORE_TOKENS for _, e in group), default=0) or TOKENS
        scores, best, cut, closed = self._ask(tokens, owner, width, nodes)
        found = []
        for row, (frontier, entry) in enumerate(group):
            known = (frontier, nodes[row], depth, scores[row], best[row])
            if entry.token >= 0:
                self._note_limits(frontier.sentence, entry.total, cut, closed, row)
            found += [(frontier, new) for new in self._follow(*known, start=entry.seen)]
        return found

    def _ask(self, tokens: list, owner: list[int], width: int, nodes: list[int]):
        """(scores, tokens, what is cut off, what is closed) of the next token, on the host."""
        device_tokens = torch.tensor(tokens, device=self.device)
        answer = self.next.best(device_tokens, np.array(owner), width)
        self.archive.file(nodes, len(tokens[0]) - 1, answer.attention, answer.support)
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
                path = self.tree.path(ended.node)
                ended.attention = self.archive.history(self.archive.attention, path)
                ended.support = self.archive.history(self.archive.support, path)
