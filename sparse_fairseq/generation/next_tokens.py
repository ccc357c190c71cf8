"""Which tokens may follow given prefixes, with their log-scores: the models, and the user's flags.

The beam and the exact search ask here.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .decoder_states import DecoderStates
from .shortlist import renormalize, shortlist, transform_of


@dataclass
class Answer:
    """Of each row: the best tokens, or all of the vocabulary, and what a step tells beside."""

    scores: Tensor  # [rows, tokens] log-scores
    tokens: Tensor | None  # [rows, tokens], best first; None: the whole vocabulary
    attention: Tensor | None = None  # [rows, source]
    support: Tensor | None = None  # [rows]
    cut: Tensor | None = None  # [rows] the best score beyond the maximum length
    closed: Tensor | None = None  # [rows] the share of the probability that no token gets
    can_end: Tensor | None = None  # [rows] whether the models give EOS a score


class NextTokens:
    """Answers for the sentences of one batch."""

    def __init__(self, settings, output, states: DecoderStates, prefix, max_len: int):
        self.settings, self.output, self.states = settings, output, states
        # What the user demands is looked at on the host.
        self.prefix: np.ndarray | None = None if prefix is None else prefix.cpu().numpy()
        self.max_len = max_len

    def best(
        self, tokens: Tensor, sentences: np.ndarray, k: int, steps: np.ndarray | None = None
    ) -> Answer:
        """The k best tokens after the prefixes `tokens` [rows, step + 1], which belong to these
        sentences; the last states' rows are theirs. `steps` are their lengths where they differ;
        padding is on the left then."""
        different = [tokens.shape[1] - 1] if steps is None else np.unique(steps).tolist()
        if all(self._can_shortlist(step, sentences) for step in different):
            return self._shortlisted(tokens, k, steps)
        found = self.all(tokens, sentences, steps)
        found.scores, found.tokens = found.scores.topk(min(k, found.scores.shape[1]))
        return found

    def all(self, tokens: Tensor, sentences: np.ndarray, steps: np.ndarray | None = None) -> Answer:
        """The log-scores [rows, vocabulary] of all tokens."""
        found = self._ask(tokens, steps)
        found.can_end = found.scores[:, self.settings.eos] > -math.inf
        if steps is None:
            self._apply_rules(found, tokens, sentences)
        else:
            self._apply_rules_by_step(found, tokens, sentences, steps)
        return found

    def longest_rest(self, sentence: int, step: int) -> tuple[int, ...]:
        """What the user demands from this step on."""
        rest = [] if self.prefix is None else self.prefix[sentence, step:].tolist()
        ends = (self.settings.eos, self.settings.pad)
        return tuple(rest[: next((i for i, t in enumerate(rest) if t in ends), len(rest))])

    def _can_shortlist(self, step: int, sentences: np.ndarray) -> bool:
        settings = self.settings
        free = settings.min_len <= step < self.max_len and settings.rules.only_pad_at(step)
        return free and self.output.can_shortlist and self._wanted(step, sentences) is None

    def _shortlisted(self, tokens: Tensor, k: int, steps: np.ndarray | None) -> Answer:
        settings = self.settings
        logits, attention = self.states.logits(tokens, _on_device(steps, tokens))
        transform = transform_of(settings.model.single_model)
        # The one token that is forbidden may be among the best.
        k = min(k + 1, logits.shape[1])
        scores, best = shortlist(
            logits, transform, k, settings.temperature, self.output.renormalize
        )
        return Answer(scores.masked_fill(best == settings.pad, -math.inf), best, attention)

    def _ask(self, tokens: Tensor, steps: np.ndarray | None) -> Answer:
        """As the models give them."""
        settings = self.settings
        lprobs, attention = self.states.log_scores(
            tokens, settings.temperature, _on_device(steps, tokens)
        )
        if self.output.renormalize:
            lprobs = renormalize(lprobs)
        support = None
        if settings.return_support:
            support = (lprobs > -math.inf).sum(1) - settings.count_made_up(lprobs)
        if settings.lm_model is not None:
            lprobs = lprobs + self._language_model(tokens)
        return Answer(lprobs, None, attention, support)

    def _language_model(self, tokens: Tensor) -> Tensor:
        model = self.settings.lm_model
        lprobs = model.get_normalized_probs(model(tokens), log_probs=True, sample=None)
        return lprobs[:, -1] * self.settings.lm_weight

    def _apply_rules(self, found: Answer, tokens: Tensor, sentences: np.ndarray) -> None:
        step, rules = tokens.shape[1] - 1, self.settings.rules
        wanted = self._wanted(step, sentences)
        on_device = None if wanted is None else torch.from_numpy(wanted).to(tokens.device)
        rules.apply(found.scores, tokens, on_device)
        if step >= self.max_len:
            # A demand beyond the maximum length counts as a way to go on that was cut off.
            found.cut = rules.end(found.scores)
            if (beyond := self._is_prefix_cut(sentences)).any():
                allowed = torch.from_numpy(beyond).to(tokens.device)
                found.cut = found.cut.masked_fill(allowed, 0.0)
        free = wanted is None and rules.only_pad_at(step) and step < self.max_len
        if self.output.is_probability and not free:
            found.closed = (1.0 - found.scores.exp().sum(1)).clamp(min=0.0)

    def _apply_rules_by_step(
        self, found: Answer, tokens: Tensor, sentences: np.ndarray, steps: np.ndarray
    ) -> None:
        """The same for prefixes of different lengths: they are looked at length by length."""
        for step in np.unique(steps).tolist():
            chosen = (steps == step).nonzero()[0]
            rows = torch.from_numpy(chosen).to(tokens.device)
            part = Answer(found.scores[rows], None)
            self._apply_rules(part, tokens[rows, -step - 1 :], sentences[chosen])
            found.scores[rows] = part.scores
            if part.cut is not None:
                found.cut = torch.full_like(found.scores[:, 0], -math.inf)
                found.cut[rows] = part.cut
            if part.closed is not None:
                if found.closed is None:
                    found.closed = torch.zeros_like(found.scores[:, 0])
                found.closed[rows] = part.closed

    def _wanted(self, step: int, sentences: np.ndarray) -> np.ndarray | None:
        """What must come next, [rows]; None where the prefix cannot or does not reach."""
        if self.prefix is None or step >= min(self.prefix.shape[1], self.max_len):
            return None
        return self.prefix[sentences, step]

    def _is_prefix_cut(self, sentences: np.ndarray) -> np.ndarray:
        """Whether each row's prefix goes on beyond the maximum length."""
        if self.prefix is None or self.prefix.shape[1] <= self.max_len:
            return np.zeros(len(sentences), dtype=bool)
        wanted = self.prefix[sentences, self.max_len]
        return (wanted != self.settings.pad) & (wanted != self.settings.eos)


def _on_device(steps: np.ndarray | None, tokens: Tensor) -> Tensor | None:
    return None if steps is None else torch.from_numpy(steps).to(tokens.device)
