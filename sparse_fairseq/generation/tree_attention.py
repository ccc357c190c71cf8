"""One more step of a plain transformer decoder, for prefixes of a tree.

fairseq's attention wants keys and values of its own for each row. Here those of a prefix are read
from a table of all nodes, and those of a source are read once for many rows of its sentence.
"""

from itertools import pairwise

import numpy as np
import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from .mixed_lengths import embedded, logits_of, position_table, reads_source_from_caches

TOGETHER = 8  # rows of a sentence that share the keys and values of its source
PARTS = 4  # of the rows, at most, that are as wide as their own longest prefix
PART_ROWS = 32  # at least


def fits(decoder) -> bool:
    """Whether the decoder is made of nothing but what is done here."""
    return (
        reads_source_from_caches(decoder)
        and type(decoder).forward is TransformerDecoderBase.forward
        and not (decoder.cross_self_attention or decoder.training)
        and all(_is_plain(layer) for layer in decoder.layers)
    )


def _is_plain(layer) -> bool:
    extras = (layer.c_attn, layer.attn_ln, layer.ffn_layernorm, layer.w_resid)
    attentions = (layer.self_attn, layer.encoder_attn)
    return all(extra is None for extra in extras) and all(map(_is_plain_attention, attentions))


def _is_plain_attention(attention) -> bool:
    if type(attention) is not MultiheadAttention or attention.bias_k is not None:
        return False
    projections = (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj)
    return not attention.add_zero_attn and all(type(p) is nn.Linear for p in projections)


class TreeState:
    """Stands for fairseq's incremental state: what the next step has to know about its rows."""

    def __init__(self, decoder: "TreeDecoder", tables, sources, prefixes: "Prefixes", shared):
        self.decoder = decoder
        self.tables = tables  # of each layer: {"prev_key", "prev_value"}, the Rows of all nodes
        self.sources = sources  # of each layer: fairseq's cache of the source
        self.parts = prefixes.with_own(tables[0]["prev_key"].count)
        self.shared = shared


class Prefixes:
    """The nodes of prefixes in a table, in parts of neighbouring rows: each part is as wide as its
    longest prefix, so that rows which are sorted by length have little padding."""

    def __init__(self, places: np.ndarray, missing: np.ndarray, device: torch.device):
        """Of [rows, tokens] nodes; `missing` says where there is none, on the left."""
        self.parts: list[tuple[slice, Tensor, Tensor | None]] = []
        rows = len(places)
        edges = np.linspace(0, rows, max(1, min(PARTS, rows // PART_ROWS)) + 1).astype(int)
        for start, end in pairwise(edges.tolist()):
            empty = int(missing[start:end].all(0).sum())
            hidden = missing[start:end, empty:]
            seen = None
            if hidden.any():
                own = np.ones((end - start, 1), bool)
                seen = torch.from_numpy(np.hstack([~hidden, own])).to(device)[:, None, None]
            nodes = torch.from_numpy(np.ascontiguousarray(places[start:end, empty:])).to(device)
            self.parts.append((slice(start, end), nodes, seen))

    def with_own(self, first: int) -> list[tuple[slice, Tensor, Tensor | None]]:
        """(rows, nodes [rows, longest] of their prefixes and of themselves, which begin with
        `first`, where they are to be seen) of each part."""
        found = []
        for rows, nodes, seen in self.parts:
            own = torch.arange(first + rows.start, first + rows.stop, device=nodes.device)
            found.append((rows, torch.cat([nodes, own.unsqueeze(1)], 1), seen))
        return found


class SharedSources:
    """Rows in groups of at most TOGETHER, all of one sentence."""

    def __init__(self, sentences: np.ndarray, device: torch.device):
        order = np.argsort(sentences, kind="stable")
        names, first, counts = np.unique(sentences[order], return_index=True, return_counts=True)
        groups = -(-counts // TOGETHER)
        start = np.cumsum(groups) - groups
        rank = np.arange(len(order)) - np.repeat(first, counts)
        place = np.empty(len(order), np.int64)
        place[order] = np.repeat(start, counts) * TOGETHER + rank
        self.size = int(groups.sum())
        self.place = torch.from_numpy(place).to(device)  # [rows] in the groups
        self.sentence = torch.from_numpy(np.repeat(names, groups)).to(device)  # [groups]

    def spread(self, x: Tensor, heads: int) -> Tensor:
        """[rows, dimensions] → [groups, heads, TOGETHER, dimensions of a head]"""
        grid = x.new_zeros(self.size * TOGETHER, x.shape[1]).index_copy_(0, self.place, x)
        return grid.view(self.size, TOGETHER, heads, -1).transpose(1, 2)

    def collect(self, grid: Tensor) -> Tensor:
        """[groups, TOGETHER, …] → [rows, …]"""
        return grid.flatten(0, 1).index_select(0, self.place)


class TreeDecoder:
    """A decoder that `fits`, with what its steps share: projections in one matrix, positions."""

    def __init__(self, decoder):
        self.decoder = decoder
        self.projections = [_query_key_value(layer.self_attn) for layer in decoder.layers]
        self.positions: Tensor | None = None

    def forward(self, tokens: Tensor, steps: Tensor, state: TreeState) -> tuple:
        """What `decoder.forward` returns; see `mixed_lengths.forward_mixed`. The keys and values
        of the last tokens go into the tables."""
        decoder, weights = self.decoder, None
        x = embedded(decoder, tokens, steps, self._position_table(tokens)).squeeze(1)
        of_layers = zip(decoder.layers, self.projections, state.tables, state.sources, strict=True)
        for layer, projection, tables, source in of_layers:
            before = layer.normalize_before
            h = layer.self_attn_layer_norm(x) if before else x
            x = x + _attend_to_prefix(layer.self_attn, projection, h, tables, state)
            h = x = x if before else layer.self_attn_layer_norm(x)
            h = layer.encoder_attn_layer_norm(h) if before else h
            found, weights = _attend_to_source(layer.encoder_attn, h, source, state.shared)
            x = x + found
            h = x = x if before else layer.encoder_attn_layer_norm(x)
            h = layer.final_layer_norm(h) if before else h
            x = x + layer.fc2(layer.activation_fn(layer.fc1(h)))
            x = x if before else layer.final_layer_norm(x)
        attention = state.shared.collect(weights.mean(1))
        return logits_of(decoder, x.unsqueeze(1)), {"attn": [attention[:, None]]}

    def _position_table(self, tokens: Tensor) -> Tensor | None:
        if self.positions is None or len(self.positions) < tokens.shape[1]:
            self.positions = position_table(self.decoder, tokens)
        return self.positions


def _query_key_value(attention) -> tuple[Tensor, Tensor | None]:
    """(weights, biases) of the three projections as one."""
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    has_bias = attention.q_proj.bias is not None
    bias = torch.cat([part.bias for part in parts]) if has_bias else None
    return torch.cat([part.weight for part in parts]), bias


def _attend_to_prefix(attention, projection, h: Tensor, tables: dict, state: TreeState) -> Tensor:
    (count, size), heads = h.shape, attention.num_heads
    query, *own = nn.functional.linear(h, *projection).view(count, 3, heads, -1).unbind(1)
    for name, new in zip(("prev_key", "prev_value"), own, strict=True):
        tables[name].add(new)
    key, value = (tables[name].table().view(-1, size) for name in ("prev_key", "prev_value"))
    found = []
    for rows, nodes, seen in state.parts:
        shape, flat = (*nodes.shape, heads, size // heads), nodes.flatten()
        known = (table.index_select(0, flat).view(shape).transpose(1, 2) for table in (key, value))
        part = query[rows].unsqueeze(2)
        found.append(nn.functional.scaled_dot_product_attention(part, *known, attn_mask=seen))
    return attention.out_proj(torch.cat(found).reshape(count, size))


def _attend_to_source(attention, h: Tensor, cache: dict, shared: SharedSources):
    """(what is found, weights [groups, heads, TOGETHER, source])"""
    query = shared.spread(attention.q_proj(h) * attention.scaling, attention.num_heads)
    key, value = (
        cache[name].index_select(0, shared.sentence) for name in ("prev_key", "prev_value")
    )
    scores = query @ key.transpose(2, 3)
    if (mask := cache.get("prev_key_padding_mask")) is not None:
        hidden = mask.index_select(0, shared.sentence).bool()[:, None, None]
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = scores.softmax(-1, dtype=torch.float32).to(scores)
    found = shared.collect((weights @ value).transpose(1, 2).flatten(2))
    return attention.out_proj(found), weights
