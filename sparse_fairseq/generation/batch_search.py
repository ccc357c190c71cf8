"""The search loop over one batch.

A step asks the models for scores, takes the candidates that a strategy proposes, finishes those
that end in EOS and continues with the others. Rows and sentences leave as soon as they can.
"""

import math

import torch
from torch import Tensor

from . import strategies
from .beams import Beams, Candidates, merge
from .decoder_states import DecoderStates
from .errors import GenerationError
from .sentence import Sentence, close
from .shortlist import renormalize, shortlist, transform_of


class BatchSearch:
    """Decodes one batch with the settings of a SparseSequenceGenerator."""

    def __init__(self, settings, sample: dict, prefix_tokens, constraints, bos_token):
        self.settings = settings
        self.strategy = settings.search
        source, self.source_lengths = source_of(sample["net_input"], settings.eos, settings.pad)
        self.prefix = prefix_tokens
        self.ids = torch.arange(len(source), device=source.device)
        if isinstance(sample.get("id"), Tensor) and not strategies.keeps_places(self.strategy):
            self.ids = sample["id"]
        self.max_len = settings.longest(source, self.source_lengths)
        self.device = source.device
        self.strategy.init_constraints(
            _constraints(self.strategy, constraints, len(source)), settings.beam_size
        )
        self.states = DecoderStates(settings.model, sample["net_input"])
        self.is_plain = strategies.is_plain(self.strategy)
        self.output = settings.output()
        # fairseq ends a sentence when `beam` hypotheses have. Of a sparse model's few candidates
        # even unlikely ends are among the best `beam`: they would fill the list before the likely
        # ones have come to their ends.
        self.outlasts_a_full_list = self.is_plain and self.output.outlasts_a_full_list
        # Other strategies look for something else than the best hypothesis.
        self.sentences = [Sentence(settings.ranking, self.is_plain) for _ in source]
        self.running = list(range(len(source)))  # the sentences that have rows
        self.owner = torch.arange(len(source), device=source.device)  # the sentence of each row
        bos = settings.eos if bos_token is None else bos_token
        self.beams = Beams.start(len(source), bos, source.device)

    def run(self) -> list[list[dict]]:
        for step in range(self.max_len + 1):  # one more than tokens, for EOS
            candidates = self._plain(step) if self.is_plain else self._proposed(step)
            if bool(candidates.score.isnan().any()):
                raise GenerationError(f"the models' scores are NaN at step {step}")
            ended, order, live = self._choose(candidates)
            self._finish(step, candidates, ended)
            remaining = self._end_sentences(step, candidates, order, live)
            if not self.running:
                break
            self._continue(candidates, order, live, remaining)
        return [sentence.result() for sentence in self.sentences]

    # Scores and candidates

    def _plain(self, step: int) -> Candidates:
        """Beam search; one candidate more than fairseq looks at tells whether there are more."""
        settings, count = self.settings, 2 * self.settings.beam_size
        if self._can_shortlist(step):
            logits, attention = self.states.logits(self.beams.tokens)
            transform = transform_of(settings.model.single_model)
            # The one token that is forbidden may be among the best.
            k = min(count + 2, logits.shape[1])
            scores, tokens = shortlist(logits, transform, k, settings.temperature)
            scores = scores.masked_fill(tokens == settings.pad, -math.inf)
            self.beams.record(attention, None)
        else:
            lprobs = self._log_scores()
            self._apply_rules(step, lprobs)
            scores, tokens = lprobs.topk(min(count + 1, lprobs.shape[1]))
        return merge(self.beams, scores, tokens, len(self.running), count)

    def _proposed(self, step: int) -> Candidates:
        settings = self.settings
        lprobs = self._log_scores()
        can_end = lprobs[:, settings.eos] > -math.inf
        self._apply_rules(step, lprobs)
        if getattr(self.strategy, "needs_src_lengths", False):
            self.strategy.set_src_lengths(self.source_lengths)
        shape = (len(self.running), settings.beam_size)
        finished = [len(self.sentences[number].finished) for number in self.running]
        how = (self.output.sums_to_one, settings.eos, can_end)
        finished = torch.tensor(finished, device=self.device)
        return strategies.propose(
            self.strategy, lprobs, self.beams, self.ids, *shape, *how, finished
        )

    def _can_shortlist(self, step: int) -> bool:
        settings = self.settings
        free = settings.min_len <= step < self.max_len and settings.rules.only_pad_at(step)
        return free and self.output.can_shortlist and self._next_of_prefix(step) is None

    def _log_scores(self) -> Tensor:
        """Log-scores [rows, vocabulary] of the next token, as the models give them."""
        settings, beams = self.settings, self.beams
        lprobs, attention = self.states.log_scores(beams.tokens, settings.temperature)
        if self.output.renormalize:
            lprobs = renormalize(lprobs)
        support = None
        if settings.return_support:
            support = (lprobs > -math.inf).sum(1) - settings.count_made_up(lprobs)
        beams.record(attention, support)
        return lprobs if settings.lm_model is None else lprobs + self._language_model()

    def _apply_rules(self, step: int, lprobs: Tensor) -> None:
        """Changes log-scores in place."""
        settings, beams = self.settings, self.beams
        settings.rules.apply(lprobs, beams.tokens, self._next_of_prefix(step))
        if step >= self.max_len:
            cut = settings.rules.end(lprobs) | self._is_prefix_cut()
            for index in beams.sentence[cut].unique().tolist():
                self.sentences[self.running[index]].exhaustive = False

    def _is_prefix_cut(self) -> Tensor:
        """Whether each row's prefix goes on beyond the maximum length."""
        if self.prefix is None or self.prefix.shape[1] <= self.max_len:
            return torch.zeros_like(self.beams.sentence, dtype=torch.bool)
        wanted = self.prefix[self.beams.sentence, self.max_len]
        return (wanted != self.settings.pad) & (wanted != self.settings.eos)

    def _language_model(self) -> Tensor:
        model = self.settings.lm_model
        out = model(self.beams.tokens)
        lprobs = model.get_normalized_probs(out, log_probs=True, sample=None)
        return lprobs[:, -1] * self.settings.lm_weight

    def _next_of_prefix(self, step: int) -> Tensor | None:
        """What must come next, [rows]; None where the prefix cannot or does not reach."""
        if self.prefix is None or step >= min(self.prefix.shape[1], self.max_len):
            return None
        return self.prefix[self.beams.sentence, step]

    # Decisions

    def _choose(self, found: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        """(candidates that finish a hypothesis, candidate for each slot, slots that get a row).

        As in fairseq, a hypothesis ends only if EOS is among the best `beam` candidates, and the
        best `beam` of the others go on. Candidates without score come last.
        """
        beam, usable = self.settings.beam_size, found.usable
        finite = found.finite
        eos = finite & (found.token == self.settings.eos)
        ended = eos & (finite.cumsum(1) <= beam)
        last = eos | ~finite
        if strategies.keeps_places(self.strategy):
            last = eos
        order = last[:, :usable].byte().argsort(stable=True)[:, :beam]
        live = (finite & ~eos).gather(1, order)
        self._note_pruning(finite.sum(1) > ended.sum(1) + live.sum(1))
        return ended, order, live

    def _note_pruning(self, pruned: Tensor) -> None:
        for index in pruned.nonzero().squeeze(1).tolist():
            self.sentences[self.running[index]].exhaustive = False

    def _finish(self, step: int, found: Candidates, ended: Tensor) -> None:
        settings = self.settings
        if settings.match_source_len:  # ends that come too late do not count
            ended = ended & (step <= self.source_lengths.unsqueeze(1))
        for index, position in ended.nonzero().tolist():
            sentence = self.sentences[self.running[index]]
            if len(sentence.finished) < settings.beam_size:
                sentence.add(self._closed(found, index, position))
                continue
            sentence.exhaustive = False
            if self.outlasts_a_full_list:
                sentence.replace_worst(self._closed(found, index, position))
        if not settings.match_source_len:
            self._set_aside(found, ended)

    def _set_aside(self, found: Candidates, ended: Tensor) -> None:
        """Keeps ends outside the beam for sentences that may find nothing else."""
        missed = found.finite & (found.token == self.settings.eos) & ~ended
        for index, position in missed.nonzero().tolist():
            sentence = self.sentences[self.running[index]]
            if not sentence.finished:
                sentence.set_aside(self._closed(found, index, position))

    def _closed(self, found: Candidates, index: int, position: int) -> dict:
        row, total = int(found.row[index, position]), found.score[index, position]
        return close(self.beams, row, total, self.settings.eos, self.settings.ranking)

    def _end_sentences(self, step: int, found: Candidates, order: Tensor, live: Tensor) -> list:
        """Ends what can end; returns the positions, among the running ones, of those that go on."""
        best = found.score.gather(1, order).masked_fill(~live, -math.inf).amax(1).tolist()
        remaining = []
        for index, number in enumerate(self.running):
            sentence = self.sentences[number]
            if not self._can_end(step, index, sentence, best[index]):
                remaining.append(index)
                continue
            if best[index] > -math.inf:
                sentence.exhaustive = False
            if not sentence.finished:
                sentence.add(sentence.reserve or self._forced(step, index))
        self.running = [self.running[index] for index in remaining]
        return remaining

    def _can_end(self, step: int, index: int, sentence: Sentence, best: float) -> bool:
        settings = self.settings
        if best == -math.inf:
            return True
        if len(sentence.finished) >= settings.beam_size:
            waits = self.outlasts_a_full_list and sentence.awaits_better(settings.nbest, best)
            return not waits
        if settings.match_source_len and step >= self.source_lengths[index]:
            return True
        if not (self.is_plain and self.output.only_falls):
            return False
        return sentence.can_end(settings.nbest, best, step + 2, self.max_len + 1)

    def _forced(self, step: int, index: int) -> dict:
        """The best unfinished hypothesis, closed with EOS, which the models hold impossible. A
        prefix that the user demands is completed."""
        rows = (self.beams.sentence == index).nonzero().squeeze(1)
        row = int(rows[self.beams.total[rows].argmax()])
        rest = [] if self.prefix is None else self.prefix[index, step:].tolist()
        ends = (self.settings.eos, self.settings.pad)
        rest = rest[: next((i for i, token in enumerate(rest) if token in ends), len(rest))]
        impossible = self.beams.total.new_tensor(-math.inf)
        return close(self.beams, row, impossible, self.settings.eos, self.settings.ranking, rest)

    # The next step

    def _continue(self, found: Candidates, order: Tensor, live: Tensor, remaining: list) -> None:
        old_owner = self.owner
        if len(remaining) < len(found.score):
            keep = torch.tensor(remaining, device=self.device)
            self.strategy.prune_sentences(keep)
            order, live = order[keep], live[keep]
            found = Candidates(found.score[keep], found.token[keep], found.row[keep], found.usable)
            self.ids, self.source_lengths = self.ids[keep], self.source_lengths[keep]
            self.prefix = None if self.prefix is None else self.prefix[keep]
        self.strategy.update_constraints(order)
        chosen = torch.ones_like(live) if strategies.needs_all_rows(self.strategy) else live
        sentence, slot = chosen.nonzero(as_tuple=True)
        parents, token, score = (
            values.gather(1, order)[chosen]
            for values in (found.row, found.token, found.score.where(found.finite, -math.inf))
        )
        score = score.masked_fill(~live[chosen], -math.inf)
        self.beams = self.beams.extend(parents, sentence, slot, token, score)
        self.owner = torch.tensor(self.running, device=self.device)[sentence]
        moved = not torch.equal(old_owner, self.owner)
        if moved or not torch.equal(parents, torch.arange(len(parents)).to(parents)):
            self.states.reorder(parents, moved)


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
