"""The models' side of a search: encoder outputs and cached decoder states, one row per hypothesis.

Rows come and go one by one, unlike in fairseq's generator, where every sentence has `beam` rows.
"""

import math

import torch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor

from .mixed_lengths import forward_mixed
from .tree_attention import TreeState


class DecoderStates:
    def __init__(self, ensemble: EnsembleModel, net_input: dict):
        self.ensemble = ensemble
        for model in ensemble.models:
            _expect_single_rows(model)
        self.encoder_outs = ensemble.forward_encoder(net_input)
        self.incremental: list[dict | TreeState] = [{} for _ in ensemble.models]

    def log_scores(
        self, tokens: Tensor, temperature: float, steps: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Log-scores [rows, vocabulary] of the next token, averaged over the models as
        probabilities (S2S §4.1), and the attention [rows, source] if the models give one.

        `steps` [rows] says how long each prefix is where they differ; padding is on the left.
        """
        if steps is None:
            return self.ensemble.forward_decoder(
                tokens, self.encoder_outs, self.incremental, temperature
            )
        found, attentions = [], []
        for place, model in enumerate(self.ensemble.models):
            logits, attention = self._mixed(place, tokens, steps)
            out = (logits.unsqueeze(1) / temperature, None)
            found.append(model.get_normalized_probs(out, log_probs=True, sample=None)[:, -1])
            attentions += [] if attention is None else [attention]
        attention = torch.stack(attentions).mean(0) if attentions else None
        if len(found) == 1:
            return found[0], attention
        return torch.stack(found).logsumexp(0) - math.log(len(found)), attention

    def logits(self, tokens: Tensor, steps: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """What the output transform of a single model is applied to, and its attention."""
        if steps is not None:
            return self._mixed(0, tokens, steps)
        (encoder_out,), (state,) = self.encoder_outs, self.incremental
        decoder = self.ensemble.single_model.decoder
        return _last(decoder.forward(tokens, encoder_out=encoder_out, incremental_state=state))

    def _mixed(self, place: int, tokens: Tensor, steps: Tensor) -> tuple[Tensor, Tensor | None]:
        decoder, state = self.ensemble.models[place].decoder, self.incremental[place]
        if isinstance(state, TreeState):
            return _last(state.decoder.forward(tokens, steps, state))
        return _last(forward_mixed(decoder, tokens, steps, self.encoder_outs[place], state))

    def reorder(self, order: Tensor, moved: bool) -> None:
        """Row r continues row order[r]; `moved` says that some row belongs to another sentence
        than before. What comes from the encoder is the same for all rows of a sentence."""
        if self.ensemble.has_incremental_states():
            for model, state in zip(self.ensemble.models, self.incremental, strict=True):
                _reorder_incremental(model.decoder, state, order, moved)
        if moved:
            self.encoder_outs = self.ensemble.reorder_encoder_out(self.encoder_outs, order)


def _last(out: tuple) -> tuple[Tensor, Tensor | None]:
    """(logits [rows, vocabulary], attention [rows, source]) of the last position."""
    attention = attention_of(out)
    return out[0][:, -1], None if attention is None else attention[:, -1]


def _expect_single_rows(model) -> None:
    """Turns off the shortcuts of some modules for `beam` neighbouring rows per sentence."""
    for module in (model, getattr(model, "decoder", None)):
        if hasattr(module, "set_beam_size"):
            module.set_beam_size(1)


def _reorder_incremental(decoder, state: dict, order: Tensor, moved: bool) -> None:
    for module in decoder.modules():
        if getattr(module, "encoder_decoder_attention", False):
            # Its own method leaves the cache alone whenever the number of rows stays the same,
            # even if a sentence has lost a row and another one has won it.
            cache = module._get_input_buffer(state) if moved else None
            if cache:
                moved_cache = {
                    name: None if value is None else value.index_select(0, order)
                    for name, value in cache.items()
                }
                module._set_input_buffer(state, moved_cache)
        elif hasattr(module, "reorder_incremental_state"):
            module.reorder_incremental_state(state, order)


def attention_of(out: tuple) -> Tensor | None:
    """Attention [rows, target, source] of a decoder's output; models wrap it in several ways."""
    attention = out[1] if len(out) > 1 else None
    attention = attention.get("attn") if isinstance(attention, dict) else attention
    if isinstance(attention, list | tuple):
        attention = attention[0] if attention else None
    return attention
