"""Beam search over one batch.

A step asks for the next tokens, takes the candidates that a strategy proposes, finishes those that
end in EOS and continues with the others. Rows and sentences leave as soon as they can. A step waits
for the device twice: the candidates come to the host, and its decisions go back.
"""

import math

import numpy as np
import torch
from torch import Tensor

from . import strategies
from .beams import Beams, Candidates, HostCandidates, NextRows, merge
from .decoder_states import DecoderStates
from .errors import GenerationError
from .exact_search import TOKENS, ExactSearch
from .hypotheses import to_hypotheses
from .next_tokens import Answer, NextTokens
from .prefix_tree import PrefixTree
from .sentence import Ended, Sentence
from .state_archive import StateArchive


class BatchSearch:
    """Decodes one batch with the settings of a SparseSequenceGenerator."""

    def __init__(self, settings, sample: dict, prefix_tokens, constraints, bos_token):
        self.settings = settings
        self.strategy = settings.search
        source, lengths = source_of(sample["net_input"], settings.eos, settings.pad)
        self.source_lengths = lengths
        self.lengths = lengths.tolist() if settings.match_source_len else None
        self.ids = torch.arange(len(source), device=source.device)
        if isinstance(sample.get("id"), Tensor) and not strategies.keeps_places(self.strategy):
            self.ids = sample["id"]
        self.max_len = settings.longest(source, lengths)
        self.device = source.device
        self.strategy.init_constraints(
            _constraints(self.strategy, constraints, len(source)), settings.beam_size
        )
        self.is_plain = strategies.is_plain(self.strategy)
        self.output = settings.output()
        self.states = DecoderStates(settings.model, sample["net_input"])
        self.next = NextTokens(settings, self.output, self.states, prefix_tokens, self.max_len)
        # fairseq ends a sentence when `beam` hypotheses have. Of a sparse model's few candidates
        # even unlikely ends are among the best `beam`: they would fill the list before the likely
        # ones have come to their ends.
        self.outlasts_a_full_list = self.is_plain and self.output.outlasts_a_full_list
        # Other strategies look for something else than the best hypothesis. Random scores bound
        # nothing, and their totals are no probabilities of hypotheses.
        certain = not settings.is_random
        is_probability = self.output.is_probability and certain
        known = (self.is_plain and certain, self.output.only_falls, is_probability)
        self.sentences = [Sentence(settings.ranking, *known) for _ in source]
        self.running = np.arange(len(source))  # the sentences that have rows
        bos = settings.eos if bos_token is None else bos_token
        # One more than fairseq looks at tells whether there are more.
        self.width = 2 * settings.beam_size + 1
        if settings.exact_budget:
            self.width = max(self.width, TOKENS)
        self.beams = Beams.start(len(source), bos, source.device)
        # What an exact search needs to go on from here.
        self.archive = None
        if settings.exact_budget:
            self.archive = StateArchive(self.states, self.device)
        self.recorded: list[tuple[int, Tensor, Tensor]] = []
        self.tree = PrefixTree()
        n = len(source)
        self.tree.add([-1] * n, bos, 0.0, range(n))

    def run(self) -> list[list[dict]]:
        # An exact search for the best hypothesis needs no beam.
        if not (self.settings.seeks_one and self.output.only_falls):
            self._run_beam()
        if self.archive is not None:
            ExactSearch(self).run()
        return to_hypotheses(self.sentences, self.tree, self.settings, self.device)

    def _run_beam(self) -> None:
        for step in range(self.max_len + 1):  # one more than tokens, for EOS
            answer = self._ask()
            candidates = self._plain(answer) if self.is_plain else self._proposed(answer)
            found, (cut, closed) = candidates.on_host(answer.cut, answer.closed)
            if np.isnan(found.score).any():
                raise GenerationError(f"the models' scores are NaN at step {step}")
            self._note_limits(cut, closed)
            ended, order, live = self._choose(found)
            self._finish(step, found, ended)
            remaining = self._end_sentences(step, found, order, live)
            if not len(self.running):
                break
            self._continue(found, order, live, remaining, candidates.score.dtype)

    # Candidates

    def _ask(self) -> Answer:
        beams = self.beams
        owner = self.running[beams.sentence]
        if self.is_plain:
            answer = self.next.best(beams.tokens, owner, self.width)
        else:
            answer = self.next.all(beams.tokens, owner)
        beams.record(answer.attention, answer.support)
        if self.archive is not None:
            step = beams.tokens.shape[1] - 1
            self.archive.add(step, len(beams), answer.attention, answer.support)
            self.recorded.append((beams.first_node, answer.scores, answer.tokens))
        return answer

    def _plain(self, answer: Answer) -> Candidates:
        count = 2 * self.settings.beam_size
        first = slice(count + 2)  # padding may be among them
        return merge(self.beams, answer.scores[:, first], answer.tokens[:, first], count)

    def _proposed(self, answer: Answer) -> Candidates:
        if getattr(self.strategy, "needs_src_lengths", False):
            self.strategy.set_src_lengths(self.source_lengths)
        finished = [len(self.sentences[number].finished) for number in self.running]
        known = strategies.Outlook(
            ids=self.ids,
            slots=self.settings.beam_size,
            sums_to_one=self.output.sums_to_one,
            eos=self.settings.eos,
            can_end=answer.can_end,
            finished=torch.tensor(finished, device=self.device),
        )
        return strategies.propose(self.strategy, answer.scores, self.beams, known)

    def _note_limits(self, cut: np.ndarray | None, closed: np.ndarray | None) -> None:
        """What the maximum length cuts off, and what probability the flags leave to nothing."""
        if cut is None and closed is None:
            return
        first, totals = self.beams.first_node, self.tree.total
        for row, index in enumerate(self.beams.sentence):
            sentence, total = self.sentences[self.running[index]], float(totals[first + row])
            if cut is not None:
                sentence.cut(total + float(cut[row]), self.max_len + 1)
            if closed is not None:
                sentence.closed += math.exp(total) * float(closed[row])

    # Decisions

    def _choose(self, found: HostCandidates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(candidates that finish a hypothesis, candidate for each slot, slots that get a row).

        As in fairseq, a hypothesis ends only if EOS is among the best `beam` candidates, and the
        best `beam` of the others go on. Candidates without score come last.
        """
        beam, finite = self.settings.beam_size, found.finite
        eos = finite & (found.token == self.settings.eos)
        ended = eos & (finite.cumsum(1) <= beam)
        last = eos if strategies.keeps_places(self.strategy) else eos | ~finite
        order = last[:, : found.usable].argsort(1, kind="stable")[:, :beam]
        live = np.take_along_axis(finite & ~eos, order, 1)
        pruned = finite & ~ended
        np.put_along_axis(pruned, order, np.take_along_axis(pruned, order, 1) & ~live, 1)
        self._note_pruned(found, pruned)
        return ended, order, live

    def _note_pruned(self, found: HostCandidates, pruned: np.ndarray) -> None:
        best = np.where(pruned, found.score, -math.inf).max(1)
        shortest = self.beams.tokens.shape[1]
        for index, total in enumerate(best.tolist()):
            self.sentences[self.running[index]].drop(total, shortest, self.max_len + 1)

    def _finish(self, step: int, found: HostCandidates, ended: np.ndarray) -> None:
        if self.lengths is not None:  # ends that come too late do not count
            limits = np.array([self.lengths[number] for number in self.running])
            ended = ended & (step <= limits)[:, None]
        for index, position in zip(*ended.nonzero(), strict=True):
            sentence = self.sentences[self.running[index]]
            hypothesis = self._closed(found, index, position)
            if len(sentence.finished) < self.settings.beam_size:
                sentence.add(hypothesis)
            elif self.outlasts_a_full_list:
                sentence.add_to_full(hypothesis)
            else:
                sentence.leave_out(hypothesis)
        if self.lengths is None:
            self._set_aside(found, ended)

    def _set_aside(self, found: HostCandidates, ended: np.ndarray) -> None:
        """Keeps ends outside the beam for sentences that may find nothing else."""
        missed = found.finite & (found.token == self.settings.eos) & ~ended
        for index, position in zip(*missed.nonzero(), strict=True):
            sentence = self.sentences[self.running[index]]
            if not sentence.finished:
                sentence.set_aside(self._closed(found, index, position))

    def _closed(self, found: HostCandidates, index: int, position: int) -> Ended:
        return self._ended(int(found.row[index, position]), float(found.score[index, position]))

    def _ended(self, row: int, total: float, rest: tuple[int, ...] = ()) -> Ended:
        """The hypothesis of a row that ends here with `total`; `rest` is put before EOS."""
        beams = self.beams
        length = beams.tokens.shape[1] + len(rest)
        return Ended(
            beams.first_node + row,
            total,
            length,
            self.settings.ranking.score(total, length),
            rest,
            None if beams.attention is None else beams.attention[row],
            None if beams.support is None else beams.support[row],
        )

    def _end_sentences(
        self, step: int, found: HostCandidates, order: np.ndarray, live: np.ndarray
    ) -> list[int]:
        """Ends what can end; returns the positions, among the running ones, of those that go on."""
        totals = np.take_along_axis(found.score, order, 1)
        best = np.where(live, totals, -math.inf).max(1, initial=-math.inf).tolist()
        remaining = []
        for index, number in enumerate(self.running):
            sentence = self.sentences[number]
            if not self._can_end(step, number, sentence, best[index]):
                remaining.append(index)
                continue
            sentence.drop(best[index], step + 2, self.max_len + 1)
            if not sentence.finished:
                sentence.add(sentence.reserve or self._forced(step, index))
        self.running = self.running[remaining]
        return remaining

    def _can_end(self, step: int, number: int, sentence: Sentence, best: float) -> bool:
        settings = self.settings
        if best == -math.inf:
            return True
        if len(sentence.finished) >= settings.beam_size:
            waits = self.outlasts_a_full_list and sentence.awaits_better(settings.nbest, best)
            return not waits
        if self.lengths is not None and step >= self.lengths[number]:
            return True
        if not (self.is_plain and self.output.only_falls):
            return False
        return sentence.can_end(settings.nbest, best, step + 2, self.max_len + 1)

    def _forced(self, step: int, index: int) -> Ended:
        """The best unfinished hypothesis, closed with EOS, which the models hold impossible. A
        prefix that the user demands is completed."""
        rows = (self.beams.sentence == index).nonzero()[0].tolist()
        first = self.beams.first_node
        row = max(rows, key=lambda r: self.tree.total[first + r])
        rest = self.next.longest_rest(self.running[index], step)
        return self._ended(row, -math.inf, rest)

    # The next step

    def _continue(
        self,
        found: HostCandidates,
        order: np.ndarray,
        live: np.ndarray,
        remaining: list[int],
        dtype: torch.dtype,
    ) -> None:
        old_owner = self.tree.sentence[self.beams.first_node :]
        order, live = order[remaining], live[remaining]
        if not self.is_plain:
            self._tell_strategy(remaining, len(found.score), order)
        chosen = np.ones_like(live) if strategies.needs_all_rows(self.strategy) else live
        sentence, slot = chosen.nonzero()
        parents, token, score = (
            np.take_along_axis(values[remaining], order, 1)[chosen]
            for values in (found.row, found.token, np.where(found.finite, found.score, -math.inf))
        )
        score = np.where(live[chosen], score, -math.inf)
        rows = NextRows(sentence, slot, parents, token, score, len(remaining))
        owner = self.running[sentence]
        first = self.tree.add(self.beams.first_node + parents, token, score, owner)
        self.beams, order_of_states = self.beams.extend(rows, first, dtype)
        moved = not np.array_equal(old_owner, owner)
        if moved or not np.array_equal(parents, np.arange(len(parents))):
            self.states.reorder(order_of_states, moved)

    def _tell_strategy(self, remaining: list[int], sentences: int, order: np.ndarray) -> None:
        if len(remaining) < sentences:
            keep = torch.tensor(remaining, device=self.device)
            self.strategy.prune_sentences(keep)
            self.ids, self.source_lengths = self.ids[keep], self.source_lengths[keep]
        self.strategy.update_constraints(torch.from_numpy(order).to(self.device))


def source_of(net_input: dict, eos: int, pad: int) -> tuple[Tensor, Tensor]:
    """(source, lengths): token models have src_tokens, speech models source or features."""
    if "src_tokens" in net_input:
        source = net_input["src_tokens"]
        lengths = net_input.get("src_lengths")
        if lengths is None:
            lengths = ((source != eos) & (source != pad)).sum(1)
        return source, lengths
    for name in ("source", "features"):
        if name in net_input:
            source, mask = net_input[name], net_input["padding_mask"]
            full = torch.full((len(source),), source.shape[-1], device=source.device)
            return source, full if mask is None else (~mask).sum(-1)
    raise GenerationError(f"no src_tokens, source or features in {', '.join(net_input)}")


def _constraints(strategy, constraints: Tensor | None, sentences: int) -> Tensor | None:
    if constraints is not None and not strategy.supports_constraints:
        raise GenerationError("this search strategy does not support constraints")
    if constraints is None and strategy.supports_constraints:
        return torch.zeros(sentences, 1, dtype=torch.long)  # packed: no constraint each
    return constraints
