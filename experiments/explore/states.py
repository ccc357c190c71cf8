"""What a model says after a prefix: scores and attention, remembered with the decoder's state.

A translator who types asks again and again about the same sentence with one more word. Encoder
outputs and the states of prefixes are kept, so that each piece is decoded once.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor

from sparse_fairseq.generation.decoder_states import DecoderStates

SOURCES = 32  # whose encoder outputs are kept
PREFIXES = 256  # whose states are kept, of all sources together

Tokens = tuple[int, ...]
Value = TypeVar("Value")


class Recent:
    """The last values that were asked for."""

    def __init__(self, size: int):
        self.size = size
        self._values: OrderedDict = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        if key not in self._values:
            self._values[key] = make()  # which may ask for others
        self._values.move_to_end(key)
        value = self._values[key]
        while len(self._values) > self.size:
            self._values.popitem(last=False)
        return value

    def clear(self) -> None:
        self._values.clear()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)


@dataclass
class Rows:
    """Prefixes of one length after a decoder's step: scores [rows, vocabulary], exactly 0 where the
    model excludes a piece; attention [rows, source] or None."""

    scores: Tensor
    attention: Tensor | None
    states: DecoderStates


class PrefixStates:
    """Rows for prefixes of any source; not for two threads at once."""

    def __init__(self, model, eos: int):
        self.ensemble, self.eos = EnsembleModel([model]).eval(), eos
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.steps = 0  # of the decoder, since the beginning
        self._sources, self._prefixes = Recent(SOURCES), Recent(PREFIXES)

    def forget(self) -> None:
        self._sources.clear()
        self._prefixes.clear()

    def sample(self, source: Tokens) -> dict:
        """A batch of one sentence, as fairseq makes them."""
        tokens = torch.tensor([source], device=self.device)
        lengths = torch.tensor([len(source)], device=self.device)
        return {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}

    @torch.no_grad()
    def after(self, source: Tokens, prefix: Tokens) -> Rows:
        """One row: the prefix."""
        # From the longest known prefix on; not by recursion, for prefixes may be long.
        known = len(prefix)
        while known and (source, prefix[:known]) not in self._prefixes:
            known -= 1
        for length in range(known, len(prefix)):
            self._row(source, prefix[:length])
        return self._row(source, prefix)

    def _row(self, source: Tokens, prefix: Tokens) -> Rows:
        def make() -> Rows:
            if not prefix:
                start = self._sources.get(source, lambda: self._encoded(source))
                return self._step(_twin(start), [prefix])
            return self.onward(self._row(source, prefix[:-1]), [0], [prefix])

        return self._prefixes.get((source, prefix), make)

    def _encoded(self, source: Tokens) -> DecoderStates:
        return DecoderStates(self.ensemble, self.sample(source)["net_input"])

    @torch.no_grad()
    def onward(self, rows: Rows, parents: Sequence[int], prefixes: Sequence[Tokens]) -> Rows:
        """Row i continues row parents[i], and is now prefixes[i], which all have one length."""
        states = _twin(rows.states)
        states.reorder(torch.tensor(parents, device=self.device), moved=True)
        return self._step(states, prefixes)

    def _step(self, states: DecoderStates, prefixes: Sequence[Tokens]) -> Rows:
        tokens = [[self.eos, *prefix] for prefix in prefixes]
        self.steps += 1
        scores, attention = states.log_scores(torch.tensor(tokens, device=self.device), 1.0)
        return Rows(scores.exp().cpu(), None if attention is None else attention.cpu(), states)


def _twin(states: DecoderStates) -> DecoderStates:
    """To go on with while the original stays. Its tensors are the same until they are reordered,
    which copies them, or are replaced."""
    twin = copy.copy(states)
    twin.incremental = [
        {key: dict(value) if isinstance(value, dict) else value for key, value in state.items()}
        for state in states.incremental
    ]
    return twin
