"""Decoder states of all prefixes that were evaluated, so that a search can branch at any of them.

Of an attention over the prefix, a node has the keys and values of its own token alone; those of a
whole prefix are gathered along the path from the root. What comes from the source is kept once for
each sentence. Other states (LSTM, convolutions) are kept as they are.

Memory: one entry for each node, of the size that a decoder's cache has for one token: for a
transformer 2 · layers · dimensions numbers.
"""

import copy
import math

import numpy as np
import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from .decoder_states import DecoderStates
from .errors import GenerationError
from .mixed_lengths import can_mix, reads_source_from_caches
from .tree_attention import Prefixes, SharedSources, TreeDecoder, TreeState, fits

KEYS = ("prev_key", "prev_value")
CANNOT = (
    "--exact-search cannot branch from what this decoder remembers of a prefix; it can with "
    "transformers and LSTMs"
)


class Rows:
    """A growing table of tensors, one for each node that was kept."""

    def __init__(self):
        self.buffer: Tensor | None = None
        self.count = 0

    def add(self, rows: Tensor) -> None:
        if self.buffer is not None and self.buffer.shape[1:] != rows.shape[1:]:
            raise GenerationError(CANNOT)  # a state that grows with the prefix
        end = self.count + len(rows)
        if self.buffer is None or end > len(self.buffer):
            larger = rows.new_empty((2 * end, *rows.shape[1:]))
            if self.buffer is not None:
                larger[: self.count] = self.table()
            self.buffer = larger
        self.buffer[self.count : end] = rows
        self.count = end

    def table(self) -> Tensor:
        return self.buffer[: self.count]

    @property
    def bytes_of_one(self) -> int:
        if self.buffer is None:
            return 0
        return math.prod(self.buffer.shape[1:]) * self.buffer.element_size()

    def keep(self, places: Tensor) -> None:
        if self.buffer is not None:
            self.buffer, self.count = self.table()[places], len(places)


class ModelArchive:
    """Of one model."""

    def __init__(self, decoder):
        self.decoder = decoder
        modules = list(decoder.modules())
        attention = [m for m in modules if isinstance(m, MultiheadAttention)]
        self.source = [m for m in attention if m.encoder_decoder_attention]
        self.prefix = [m for m in attention if not m.encoder_decoder_attention]
        self.prefix_rows = [{key: Rows() for key in KEYS} for _ in self.prefix]
        self.source_caches: list[dict] = []
        self.buffers: dict[tuple, Tensor] = {}
        self.other_rows: dict[str, list[Rows]] = {}
        self.other_dims: dict[str, list[int]] = {}
        self.other_examples: dict[str, object] = {}
        self.has_all_of_source = reads_source_from_caches(decoder)
        self.can_mix = can_mix(decoder)
        self.tree_decoder = TreeDecoder(decoder) if fits(decoder) else None

    def start(self, state: dict, rows: int) -> None:
        """Looks at the state after the first step, which has one row for each sentence."""
        self.source_caches = [dict(m._get_input_buffer(state)) for m in self.source]
        known = {id(m._get_input_buffer(state)) for m in (*self.source, *self.prefix)}
        others = {key: value for key, value in state.items() if id(value) not in known}
        if others:
            self._find_rows(state, others, rows)

    def _find_rows(self, state: dict, others: dict, rows: int) -> None:
        """Which dimension of a state is that of the rows: the one that a reordering changes."""
        more = {key: _map(value, torch.clone) for key, value in state.items()}
        device = next(leaf.device for value in others.values() for leaf in _leaves(value))
        order = torch.arange(rows + 1, device=device) % rows
        self.decoder.reorder_incremental_state_scripting(more, order)
        for key, value in others.items():
            before, after = _leaves(value), _leaves(more[key])
            self.other_dims[key] = [
                next(d for d in range(a.dim()) if a.shape[d] != b.shape[d])
                for a, b in zip(before, after, strict=True)
            ]
            self.other_rows[key] = [Rows() for _ in before]
            self.other_examples[key] = value

    def add(self, state: dict | TreeState, step: int) -> None:
        """The rows of the last step, in their order."""
        if isinstance(state, TreeState):
            return  # they are there
        for module, rows in zip(self.prefix, self.prefix_rows, strict=True):
            cache = module._get_input_buffer(state)
            for key in KEYS:
                if cache[key].shape[2] != step + 1:
                    raise GenerationError(CANNOT)
                rows[key].add(cache[key][:, :, -1])
        for key, tables in self.other_rows.items():
            leaves = _leaves(state[key])
            for table, leaf, dim in zip(tables, leaves, self.other_dims[key], strict=True):
                table.add(leaf.movedim(dim, 0))

    def tables(self) -> list[Rows]:
        prefix = [rows[key] for rows in self.prefix_rows for key in KEYS]
        return prefix + [table for tables in self.other_rows.values() for table in tables]

    def _gather(self, table: Tensor, index: Tensor, name: tuple) -> Tensor:
        """table[index], into the same memory each time: fresh pages cost more than the copy."""
        buffer = self.buffers.get(name)
        size = len(index) * table[0].numel()
        if buffer is None or len(buffer) < size:
            buffer = self.buffers[name] = table.new_empty(2 * size)
        out = buffer[:size].view(len(index), *table.shape[1:])
        return torch.index_select(table, 0, index, out=out)

    def tree_state(self, prefixes: Prefixes, shared: SharedSources) -> TreeState:
        """The same as `state_of`, for a TreeDecoder."""
        decoder, tables, sources = self.tree_decoder, self.prefix_rows, self.source_caches
        return TreeState(decoder, tables, sources, prefixes, shared)

    def state_of(self, paths: Tensor, padding: Tensor | None, sentences: Tensor) -> dict:
        """The state after the prefixes whose nodes are `paths` [rows, tokens], where there is no
        `padding` [rows, tokens]."""
        state: dict = {}
        for module, cache in zip(self.source, self.source_caches, strict=True):
            chosen = {
                k: None if v is None else self._gather(v, sentences, (module, k))
                for k, v in cache.items()
            }
            module._set_input_buffer(state, chosen)
        heads = [rows[KEYS[0]].table().shape[1] for rows in self.prefix_rows]
        for module, rows, count in zip(self.prefix, self.prefix_rows, heads, strict=True):
            # The rows of a table [nodes · heads, dimensions], in the order of a cache.
            head = torch.arange(count, device=paths.device).unsqueeze(1)
            index = (paths.unsqueeze(1) * count + head).flatten()
            cache: dict = {"prev_key_padding_mask": padding}
            for key in KEYS:
                table = rows[key].table()
                found = self._gather(table.reshape(-1, table.shape[2]), index, (module, key))
                cache[key] = found.view(len(paths), table.shape[1], paths.shape[1], -1)
            module._set_input_buffer(state, cache)
        last = paths[:, -1]
        for key, tables in self.other_rows.items():
            leaves = [
                table.table()[last].movedim(0, dim)
                for table, dim in zip(tables, self.other_dims[key], strict=True)
            ]
            state[key] = _replace(copy.copy(self.other_examples[key]), iter(leaves))
        return state


class StateArchive:
    """Of all models of an ensemble. Nodes have the numbers that the prefix tree gives them, until
    `keep` leaves some of them out."""

    def __init__(self, states: DecoderStates, device: torch.device):
        self.states, self.device = states, device
        self.source = [copy.copy(out) for out in states.encoder_outs]
        # Models without a cache run whole prefixes anyway.
        cached = states.ensemble.has_incremental_states()
        models = states.ensemble.models if cached else []
        self.models = [ModelArchive(model.decoder) for model in models]
        self.attention, self.support = Rows(), Rows()
        self.places = np.empty(0, np.int64)  # of the nodes, after a `keep`
        self.count = 0

    @property
    def can_mix(self) -> bool:
        """Whether prefixes of different lengths can be evaluated together."""
        return bool(self.models) and all(archive.can_mix for archive in self.models)

    def add(self, step: int, rows: int, attention: Tensor | None, support: Tensor | None) -> None:
        """Files the rows that the models were asked about last."""
        for archive, state in zip(self.models, self.states.incremental, strict=False):
            if self.count == 0:
                archive.start(state, rows)
            archive.add(state, step)
        if attention is not None:
            self.attention.add(attention)
        if support is not None:
            self.support.add(support)
        self.count += rows

    def _tables(self) -> list[Rows]:
        return [self.attention, self.support, *(t for m in self.models for t in m.tables())]

    @property
    def bytes_per_node(self) -> int:
        return max(1, sum(rows.bytes_of_one for rows in self._tables()))

    def keep(self, nodes: np.ndarray, among: int) -> None:
        """Forgets all others of so many."""
        known = self.places[nodes] if len(self.places) else nodes
        places = torch.from_numpy(known).to(self.device)
        for rows in self._tables():
            rows.keep(places)
        self.places = np.full(2 * among, -1)
        self.places[nodes] = np.arange(len(nodes))
        self.count = len(nodes)

    def file(self, nodes: np.ndarray, step: int, attention, support) -> None:
        """As `add`, for nodes that come after a `keep`."""
        if (most := int(nodes.max())) >= len(self.places):
            self.places = np.resize(self.places, 2 * most + 1)
        self.places[nodes] = np.arange(self.count, self.count + len(nodes))
        self.add(step, len(nodes), attention, support)

    def restore(self, paths: np.ndarray, sentences: np.ndarray) -> None:
        """Prepares the models for the tokens after those of `paths` [rows, nodes], in which -1
        stands before the beginning of prefixes that are shorter than others."""
        order = torch.from_numpy(sentences).to(self.device)
        if not paths.shape[1] or not self.models:
            self.states.encoder_outs = self._source_of(order)
            self.states.incremental = [{} for _ in self.source]
            return
        if all(archive.has_all_of_source for archive in self.models):
            self.states.encoder_outs = [_of_shape(out, len(order)) for out in self.source]
        else:
            self.states.encoder_outs = self._source_of(order)
        missing = paths < 0
        places = np.where(missing, 0, self.places[paths])
        prefixes = Prefixes(places, missing, self.device)
        shared = SharedSources(sentences, self.device)
        nodes = torch.from_numpy(places).to(self.device)
        padding = torch.from_numpy(missing).to(self.device) if missing.any() else None
        self.states.incremental = [
            archive.tree_state(prefixes, shared)
            if archive.tree_decoder is not None and self.can_mix
            else archive.state_of(nodes, padding, order)
            for archive in self.models
        ]

    def _source_of(self, order: Tensor) -> list:
        # A copy of each: fconv reorders in place.
        source = [copy.copy(out) for out in self.source]
        return self.states.ensemble.reorder_encoder_out(source, order)

    def histories(self, rows: Rows, paths: np.ndarray) -> list[Tensor] | list[None]:
        """Of each path: [..., tokens] what was recorded of its nodes."""
        if rows.buffer is None:
            return [None] * len(paths)
        places = torch.from_numpy(self.places[paths[paths >= 0]]).to(self.device)
        lengths = (paths >= 0).sum(1).tolist()
        return [part.movedim(0, -1) for part in rows.table()[places].split(lengths)]


def _of_shape(encoder_out: dict, rows: int) -> dict:
    """Something with so many rows, for a decoder that only asks how many there are."""
    out, mask = encoder_out["encoder_out"], encoder_out["encoder_padding_mask"]
    return {
        **{name: [] for name in encoder_out},
        "encoder_out": [x[:, :1].expand(-1, rows, -1) for x in out],
        "encoder_padding_mask": [x[:1].expand(rows, -1) for x in mask],
    }


def _leaves(value) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value or () for leaf in _leaves(part)]


def _map(value, function):
    return _replace(value, iter([function(leaf) for leaf in _leaves(value)]))


def _replace(value, leaves):
    """The same structure with other tensors."""
    if isinstance(value, Tensor):
        return next(leaves)
    if isinstance(value, dict):
        return {key: _replace(part, leaves) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replace(part, leaves) for part in value)
    return value
