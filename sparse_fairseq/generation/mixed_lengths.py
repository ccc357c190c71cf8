"""One more step of a decoder for prefixes of different lengths. fairseq does not take such ones:
its decoders give all rows the same position.
"""

from fairseq.models.lstm import LSTMDecoder
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor


def reads_source_from_caches(decoder) -> bool:
    """Whether the decoder, after its first step, looks at nothing of the source but what its
    attentions have cached."""
    return (
        isinstance(decoder, TransformerDecoderBase)
        and type(decoder).extract_features_scriptable
        is TransformerDecoderBase.extract_features_scriptable
        and all(type(m).forward is TransformerDecoderLayerBase.forward for m in decoder.layers)
    )


def can_mix(decoder) -> bool:
    """Whether `forward_mixed` does for the decoder what its own `forward` does."""
    if isinstance(decoder, LSTMDecoder):
        return True  # it knows no positions
    usual = reads_source_from_caches(decoder) and not decoder.cross_self_attention
    return usual and type(decoder).forward is TransformerDecoderBase.forward


def forward_mixed(decoder, tokens: Tensor, steps: Tensor, encoder_out: dict, state: dict) -> tuple:
    """What `decoder.forward` returns for prefixes `tokens` [rows, longest], padded on the left,
    whose last tokens have the positions `steps` [rows], given the states of all but these."""
    if isinstance(decoder, LSTMDecoder):
        return decoder.forward(tokens, encoder_out=encoder_out, incremental_state=state)
    positions = position_table(decoder, tokens)
    x = embedded(decoder, tokens, steps, positions).transpose(0, 1)
    source = encoder_out["encoder_out"][0]
    mask = next(iter(encoder_out["encoder_padding_mask"]), None)
    attention = None
    for layer in decoder.layers:
        is_last = layer is decoder.layers[-1]
        options = {"need_attn": is_last, "need_head_weights": is_last}
        x, attention, _ = layer(x, source, mask, state, **options)
    if attention is not None:
        attention = attention.float().to(x).mean(dim=0)
    return logits_of(decoder, x.transpose(0, 1)), {"attn": [attention]}


def logits_of(decoder, x: Tensor) -> Tensor:
    """What the decoder does after its layers, with x [rows, 1, dimensions]."""
    if decoder.layer_norm is not None:
        x = decoder.layer_norm(x)
    if decoder.project_out_dim is not None:
        x = decoder.project_out_dim(x)
    return decoder.output_layer(x)


def position_table(decoder, tokens: Tensor) -> Tensor | None:
    """[length, dimensions] of a sentence without padding, as long as the longest prefix."""
    if decoder.embed_positions is None:
        return None
    return decoder.embed_positions(tokens.new_full((1, tokens.shape[1]), decoder.padding_idx + 1))[
        0
    ]


def embedded(decoder, tokens: Tensor, steps: Tensor, positions: Tensor | None) -> Tensor:
    """What the decoder does before its layers, with the last of the tokens."""
    x = decoder.embed_scale * decoder.embed_tokens(tokens[:, -1:])
    if decoder.quant_noise is not None:
        x = decoder.quant_noise(x)
    if decoder.project_in_dim is not None:
        x = decoder.project_in_dim(x)
    if positions is not None:
        x = x + positions[steps].unsqueeze(1)
    if decoder.layernorm_embedding is not None:
        x = decoder.layernorm_embedding(x)
    return decoder.dropout_module(x)
