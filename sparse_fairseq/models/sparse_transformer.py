"""`--arch sparse_transformer*`: fairseq's transformers and their presets with sparse attention.

Only which attention the layers are built with, its flags and the log of learned α; the attention
itself is in `modules`, everything else is fairseq's.
"""

import math

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.logging import metrics
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    register_model,
    register_model_architecture,
)
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)

from ..errors import UsageError
from ..modules import LEARNED, SparseMultiheadAttention
from .attention_alphas import HasAttentionAlphas
from .hydra_keys import as_namespace, of_flat_keys

ATTENTIONS = {
    "encoder": "the encoder's self-attention",
    "decoder": "the decoder's self-attention",
    "cross": "the decoder's attention to the encoder",
}


class SparseTransformerEncoderLayer(TransformerEncoderLayerBase):
    def build_self_attention(self, embed_dim, cfg):
        return SparseMultiheadAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            self_attention=True,
            **_attention_options(cfg, "encoder"),
        )


class SparseTransformerDecoderLayer(TransformerDecoderLayerBase):
    def build_self_attention(self, embed_dim, cfg, **bias_options):
        return SparseMultiheadAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            self_attention=not cfg.cross_self_attention,
            **bias_options,
            **_attention_options(cfg, "decoder"),
        )

    def build_encoder_attention(self, embed_dim, cfg):
        return SparseMultiheadAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            encoder_decoder_attention=True,
            **_attention_options(cfg, "cross"),
        )


def _attention_options(cfg, which: str) -> dict:
    # fairseq's attention to the encoder takes the xFormers settings of the encoder.
    side = cfg.decoder if which == "decoder" else cfg.encoder
    return {
        "alpha": getattr(cfg, f"{which}_attention_alpha"),
        "dropout": cfg.attention_dropout,
        "q_noise": cfg.quant_noise.pq,
        "qn_block_size": cfg.quant_noise.pq_block_size,
        "xformers_att_config": side.xformers_att_config,
    }


class SparseTransformerEncoder(TransformerEncoderBase):
    def build_encoder_layer(self, cfg):
        return _wrapped(SparseTransformerEncoderLayer(cfg, return_fc=self.return_fc), cfg)


class SparseTransformerDecoder(TransformerDecoderBase):
    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return _wrapped(SparseTransformerDecoderLayer(cfg, no_encoder_attn), cfg)


def _wrapped(layer, cfg):
    """With --checkpoint-activations and FSDP, which fairseq's classes add to their own layers."""
    if not cfg.checkpoint_activations:
        return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
    layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0)


@register_model("sparse_transformer")
class SparseTransformerModel(HasAttentionAlphas, TransformerModel):
    """fairseq's transformer with α-entmax attention. With α = 1 the two share checkpoints."""

    @classmethod
    def hub_models(cls):
        return {}

    @classmethod
    def add_args(cls, parser):
        super().add_args(parser)
        for which, where in ATTENTIONS.items():
            parser.add_argument(
                f"--{which}-attention-alpha",
                metavar="ALPHA",
                help=f"α of the entmax in {where}: at least 1; 1 is softmax (default), "
                f"'{LEARNED}' trains one in (1, 2) for each head",
            )

    @classmethod
    def build_model(cls, args, task):
        args = as_namespace(args)
        for which in ATTENTIONS:
            name = f"{which}_attention_alpha"
            value = getattr(args, name, None)
            setattr(args, name, parse_alpha(f"--{which}-attention-alpha", value))
        _refuse_xformers(args)
        if getattr(args, "no_cross_attention", False) and args.cross_attention_alpha != 1.0:
            raise UsageError("--cross-attention-alpha has no meaning with --no-cross-attention")
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens):
        cfg = TransformerConfig.from_namespace(args)
        return SparseTransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        cfg = TransformerConfig.from_namespace(args)
        no_encoder_attn = cfg.no_cross_attention
        return SparseTransformerDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn)

    def alpha_flag(self, name):
        return f"--{_which(name)[0]}-attention-alpha"

    def set_num_updates(self, num_updates):
        """fairseq calls this before each update, where what is logged belongs to the update."""
        super().set_num_updates(num_updates)
        # Tensors, which fairseq reads when it prints them: reading makes a GPU wait, each time.
        for name, alphas in self.learned_alphas().items():
            summary = {"": alphas.mean(), "_min": alphas.amin(), "_max": alphas.amax()}
            for suffix, value in summary.items():
                # Weight 0: not a mean over updates.
                metrics.log_scalar(f"alpha_{name}{suffix}", value, weight=0, round=4)

    def learned_alphas(self) -> dict[str, torch.Tensor]:
        """α of each head by attention and layer: encoder0, decoder0, cross0, encoder1 …"""
        found = {}
        for name, module in self.named_modules():
            if isinstance(module, SparseMultiheadAttention) and module.constant_alpha is None:
                found["".join(_which(name))] = module.alpha.detach()
        return found


def _which(name: str) -> tuple[str, str]:
    """Attention and layer of a module's name, as in decoder.layers.0.encoder_attn."""
    side, _, layer, *_, kind = name.split(".")
    return "cross" if kind == "encoder_attn" else side, layer


def parse_alpha(flag: str, value: float | str | None) -> float | str:
    """α as a number, or LEARNED. No value is what a checkpoint of a stock transformer has."""
    if value is None:
        return 1.0
    if value == LEARNED:
        return LEARNED
    try:
        alpha = float(value)
    except ValueError:
        alpha = math.nan
    if not 1.0 <= alpha < math.inf:
        raise UsageError(f"{flag} must be a number of at least 1 or '{LEARNED}', got {value!r}")
    return alpha


def _refuse_xformers(args) -> None:
    sparse = any(getattr(args, f"{which}_attention_alpha") != 1.0 for which in ATTENTIONS)
    for side in ("encoder", "decoder"):
        if sparse and getattr(args, f"{side}_xformers_att_config", None) is not None:
            raise UsageError(
                f"xFormers has no sparse attention: drop --{side}-xformers-att-config, or "
                "leave every attention alpha at 1"
            )


for _name in ARCH_MODEL_INV_REGISTRY["transformer"]:
    register_model_architecture("sparse_transformer", f"sparse_{_name}")(
        of_flat_keys(ARCH_CONFIG_REGISTRY[_name])
    )
