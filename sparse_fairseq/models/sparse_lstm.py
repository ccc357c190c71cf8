"""`--arch sparse_lstm*`: the LSTM of S2S §2, with entmax over the source positions.

Embeddings, encoder, recurrent cells, output layer and flags are those of fairseq's `lstm`; what is
here is the attention and the decoder's loop with it.
"""

import math

import torch
from fairseq import utils
from fairseq.models import register_model, register_model_architecture
from fairseq.models.lstm import (
    DEFAULT_MAX_SOURCE_POSITIONS as UNLIMITED,
)
from fairseq.models.lstm import (
    Embedding,
    Linear,
    LSTMDecoder,
    LSTMEncoder,
    LSTMModel,
    base_architecture,
)
from torch import Tensor, nn

from ..errors import UsageError
from ..functional import entmax
from ..modules import KeepsAlpha
from .attention_alphas import HasAttentionAlphas
from .hydra_keys import as_namespace


class SparseLSTMEncoder(LSTMEncoder):
    """fairseq's encoder, but with states where the batch has its tokens: fairseq's moves padding to
    the right, and an attention over that is not one over `src_tokens`. Padding may be anywhere, and
    wider than the longest sentence needs (--required-seq-len-multiple)."""

    def forward(self, src_tokens: Tensor, src_lengths: Tensor, enforce_sorted: bool = True):
        is_padding = src_tokens.eq(self.padding_idx)
        tokens_first = is_padding.byte().argsort(dim=1, stable=True)
        packed = src_tokens.gather(1, tokens_first)[:, : int(src_lengths.max())]
        states, hidden, cell, _ = super().forward(packed, src_lengths, enforce_sorted)
        is_padding = is_padding.t()
        if not torch.equal(packed, src_tokens):
            place = (~is_padding).cumsum(0).sub(1).clamp(min=0)
            states = states.gather(0, place.unsqueeze(2).expand(-1, -1, states.shape[2]))
        return states, hidden, cell, is_padding


class GeneralAttention(KeepsAlpha):
    """z_j = sᵀ W h_j, π = entmax(z), c = Σ π_j h_j (S2S Eq. 1 with α-entmax)."""

    def __init__(self, state_size: int, source_size: int, alpha: float):
        super().__init__()
        self.alpha = self.alpha_setting = alpha
        self.project = Linear(state_size, source_size, bias=False)

    def forward(self, state: Tensor, source: Tensor, is_padding: Tensor) -> tuple[Tensor, Tensor]:
        """Context [rows, source size] and weights [rows, positions] for states [rows, state size]
        and encoder states [rows, positions, source size]."""
        # sᵀW first costs as much as W h_j for all j, and nothing is cached while decoding.
        scores = torch.bmm(source, self.project(state).unsqueeze(2)).squeeze(2)
        weights = entmax(scores.masked_fill(is_padding, -math.inf), self.alpha)
        return torch.bmm(weights.unsqueeze(1), source).squeeze(1), weights

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class SparseLSTMDecoder(LSTMDecoder):
    """LSTM with input feeding: o_t = tanh(W[s_t; c_t] + b) is the next step's input and makes the
    logits V o_t + b (S2S Eq. 2)."""

    def __init__(self, *args, attention_alpha: float, **kwargs):
        super().__init__(*args, attention=False, **kwargs)
        sizes = self.hidden_size, self.encoder_output_units
        self.attention = GeneralAttention(*sizes, attention_alpha)
        self.combine = Linear(sum(sizes), self.hidden_size)

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None):
        """Features [rows, steps, size], and the attention [rows, steps, positions] or None."""
        if incremental_state:
            prev_output_tokens = prev_output_tokens[:, -1:]
            hiddens, cells, fed = self.get_cached_state(incremental_state)
        else:
            hiddens, cells, fed = self._first_state(encoder_out)
        source, is_padding = encoder_out[0].transpose(0, 1), encoder_out[3].t()
        # Every step reads it whole; only while decoding are there too few steps to gain by a copy.
        source = source.contiguous() if prev_output_tokens.size(1) > 1 else source
        outputs, attention = [], []
        for embedded in self.dropout_in_module(self.embed_tokens(prev_output_tokens)).unbind(1):
            x = torch.cat((embedded, fed), dim=1)
            for i, layer in enumerate(self.layers):
                hiddens[i], cells[i] = layer(x, (hiddens[i], cells[i]))
                x = self.dropout_out_module(hiddens[i])
            state = hiddens[-1]
            context, weights = self.attention(state, source, is_padding)
            fed = torch.tanh(self.combine(torch.cat((state, context), dim=1)))
            fed = self.dropout_out_module(fed)
            outputs.append(fed)
            attention.append(weights)
        self._cache(incremental_state, hiddens, cells, fed)
        features = torch.stack(outputs, dim=1)
        if hasattr(self, "additional_fc") and self.adaptive_softmax is None:
            features = self.dropout_out_module(self.additional_fc(features))
        wanted = self.need_attn and not self.training
        return features, torch.stack(attention, dim=1) if wanted else None

    def _first_state(self, encoder_out) -> tuple[list[Tensor], list[Tensor], Tensor]:
        hiddens, cells = encoder_out[1], encoder_out[2]
        if self.encoder_hidden_proj is not None:
            hiddens, cells = self.encoder_hidden_proj(hiddens), self.encoder_cell_proj(cells)
        fed = hiddens.new_zeros(hiddens.size(1), self.hidden_size)
        return list(hiddens), list(cells), fed

    def _cache(self, incremental_state, hiddens, cells, fed) -> None:
        """In the form that fairseq's decoder reads and reorders."""
        cache = {
            "prev_hiddens": torch.stack(hiddens),
            "prev_cells": torch.stack(cells),
            "input_feed": fed,
        }
        self.set_incremental_state(incremental_state, "cached_state", cache)


@register_model("sparse_lstm")
class SparseLSTMModel(HasAttentionAlphas, LSTMModel):
    @staticmethod
    def add_args(parser):
        LSTMModel.add_args(parser)
        parser.add_argument(
            "--attention-alpha",
            type=float,
            metavar="A",
            help="alpha of the attention's entmax, at least 1 (softmax); default: 1.5",
        )

    @classmethod
    def build_model(cls, args, task):
        args = as_namespace(args)
        sparse_lstm(args)
        _check(args, task)
        of_encoder, of_decoder = _embeddings(args, task)
        encoder = SparseLSTMEncoder(
            dictionary=task.source_dictionary,
            embed_dim=args.encoder_embed_dim,
            hidden_size=args.encoder_hidden_size,
            num_layers=args.encoder_layers,
            dropout_in=args.encoder_dropout_in,
            dropout_out=args.encoder_dropout_out,
            bidirectional=True,
            pretrained_embed=of_encoder,
            max_source_positions=getattr(args, "max_source_positions", UNLIMITED),
        )
        decoder = SparseLSTMDecoder(
            dictionary=task.target_dictionary,
            embed_dim=args.decoder_embed_dim,
            hidden_size=args.decoder_hidden_size,
            out_embed_dim=args.decoder_out_embed_dim,
            num_layers=args.decoder_layers,
            dropout_in=args.decoder_dropout_in,
            dropout_out=args.decoder_dropout_out,
            encoder_output_units=encoder.output_units,
            pretrained_embed=of_decoder,
            share_input_output_embed=args.share_decoder_input_output_embed,
            adaptive_softmax_cutoff=(
                utils.eval_str_list(args.adaptive_softmax_cutoff, type=int)
                if getattr(args, "criterion", None) == "adaptive_loss"
                else None
            ),
            max_target_positions=getattr(args, "max_target_positions", UNLIMITED),
            attention_alpha=args.attention_alpha,
        )
        return cls(encoder, decoder)

    def alpha_flag(self, name):
        return "--attention-alpha"


def _check(args, task) -> None:
    if not 1 <= args.attention_alpha < math.inf:
        raise UsageError(f"--attention-alpha must be ≥ 1 and finite, got {args.attention_alpha}")
    if not utils.eval_bool(args.decoder_attention):
        raise UsageError("--decoder-attention 0: this architecture is for its attention; use lstm")
    if args.encoder_layers != args.decoder_layers:
        raise UsageError("--encoder-layers must match --decoder-layers")
    if args.decoder_freeze_embed and not (args.decoder_embed_path or args.share_all_embeddings):
        raise UsageError("--decoder-freeze-embed needs --decoder-embed-path")
    if args.share_all_embeddings:
        if task.source_dictionary != task.target_dictionary:
            raise UsageError("--share-all-embeddings needs one dictionary for both languages")
        if args.encoder_embed_dim != args.decoder_embed_dim:
            raise UsageError(
                "--share-all-embeddings needs --encoder-embed-dim and --decoder-embed-dim to be one"
            )
        if args.decoder_embed_path not in (None, args.encoder_embed_path):
            raise UsageError("--share-all-embeddings leaves no place for --decoder-embed-path")
    tied = args.share_decoder_input_output_embed
    if tied and args.decoder_embed_dim != args.decoder_out_embed_dim:
        raise UsageError(
            "--share-decoder-input-output-embed needs --decoder-embed-dim and "
            "--decoder-out-embed-dim to be one"
        )


def _embeddings(args, task) -> tuple[nn.Embedding, nn.Embedding]:
    """Of encoder and decoder, one and the same with --share-all-embeddings."""
    encoder = _embedding(args.encoder_embed_path, task.source_dictionary, args.encoder_embed_dim)
    decoder = encoder
    if not args.share_all_embeddings:
        size = args.decoder_embed_dim
        decoder = _embedding(args.decoder_embed_path, task.target_dictionary, size)
    for embedding, freeze in (
        (encoder, args.encoder_freeze_embed),
        (decoder, args.decoder_freeze_embed),
    ):
        if freeze:
            embedding.weight.requires_grad = False
    return encoder, decoder


def _embedding(path: str | None, dictionary, size: int) -> nn.Embedding:
    """New, with the vectors of a file for the words that are in it."""
    embedding = Embedding(len(dictionary), size, dictionary.pad())
    if not path:
        return embedding
    try:
        vectors = utils.parse_embedding(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the embeddings of {path}: {error}") from None
    utils.print_embed_overlap(vectors, dictionary)
    return utils.load_embedding(vectors, dictionary, embedding)


@register_model_architecture("sparse_lstm", "sparse_lstm")
def sparse_lstm(args, units: int = 512, layers: int = 1, dropout: float = 0.1) -> None:
    """States of encoder and decoder have `units` entries; --encoder-hidden-size is that of one
    direction, as in fairseq."""

    def default(name, value):
        setattr(args, name, getattr(args, name, value))

    default("attention_alpha", 1.5)
    default("dropout", dropout)
    default("encoder_layers", layers)
    default("decoder_layers", layers)
    default("encoder_embed_dim", units)
    default("decoder_embed_dim", units)
    default("decoder_hidden_size", args.decoder_embed_dim)
    default("encoder_hidden_size", args.decoder_hidden_size // 2)
    tied = getattr(args, "share_all_embeddings", False) or getattr(
        args, "share_decoder_input_output_embed", False
    )
    default("decoder_out_embed_dim", args.decoder_embed_dim if tied else args.decoder_hidden_size)
    args.encoder_bidirectional = True
    base_architecture(args)
    if args.share_all_embeddings:
        args.share_decoder_input_output_embed = True


@register_model_architecture("sparse_lstm", "sparse_lstm_s2s")
def sparse_lstm_s2s(args, units: int = 500) -> None:
    """S2S §4.2: "500 dimensions for word vectors and hidden states"; two layers, dropout 0.3."""
    # OpenNMT, with which S2S was made, drops no entries of an LSTM's embeddings.
    for name in ("encoder_dropout_in", "decoder_dropout_in"):
        setattr(args, name, getattr(args, name, 0.0))
    sparse_lstm(args, units, layers=2, dropout=0.3)


@register_model_architecture("sparse_lstm", "sparse_lstm_inflection")
def sparse_lstm_inflection(args) -> None:
    """S2S §4.1: "embedding and hidden state sizes of 300"."""
    sparse_lstm_s2s(args, units=300)
