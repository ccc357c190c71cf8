"""How the output layer of a new model starts: the scale of its weights, and τ from that scale.

What is measured by running the model (`--tau batch`) is in the task.
"""

import math

import torch
from fairseq.models.lightconv import LightConvDecoder
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from .functional import gaussian_tau
from .output_transform import output_projection_of


def scale_to_xavier(decoder: nn.Module) -> float:
    """Rescales the output weights to Xavier's variance 2/(d+V); returns the factor.

    Rescaling what fairseq drew, rather than drawing anew, leaves the random numbers of the rest of
    the model as they are, pretrained embeddings useful and the padding row zero.
    """
    layer = output_projection_of(decoder)
    if layer is None:
        raise ValueError(f"{type(decoder).__name__} has no output layer that can be initialised")
    vocab, hidden = layer.weight.shape
    scale = _rms(layer.weight)
    if scale == 0.0:
        raise ValueError("output weights that are all zero cannot be scaled; draw them anew")
    factor = math.sqrt(2.0 / (hidden + vocab)) / scale
    # Under weight normalisation (fconv) `weight` is computed anew from its norms `weight_g`.
    weight = layer.weight_g if hasattr(layer, "weight_g") else layer.weight
    with torch.no_grad():
        weight.mul_(factor)
    return factor


def is_tied(decoder: nn.Module) -> bool:
    embedding = getattr(decoder, "embed_tokens", None)
    layer = output_projection_of(decoder)
    return layer is not None and getattr(embedding, "weight", None) is layer.weight


def formula_tau(decoder: nn.Module, alpha: float) -> float:
    """SE Eq. 3 with the σ that the logits of this decoder have: layer-normalised states [d] have
    norm √d, so σ = √d · rms(W), whatever initialised W and whatever it is tied to."""
    layer = output_projection_of(decoder)
    if layer is None or not _ends_in_layer_norm(decoder):
        raise ValueError(
            "the formula holds for layer-normalised states straight before the output layer, "
            f"which {type(decoder).__name__} does not have (SE §4.4)"
        )
    vocab, hidden = layer.weight.shape
    return gaussian_tau(vocab, math.sqrt(hidden) * _rms(layer.weight), alpha)


def _ends_in_layer_norm(decoder: nn.Module) -> bool:
    if not isinstance(decoder, TransformerDecoderBase | LightConvDecoder):
        return False
    # Layers that normalise first (--decoder-normalize-before) leave it to a final norm.
    final = getattr(decoder, "layer_norm", None) is not None
    before = any(getattr(layer, "normalize_before", False) for layer in decoder.layers)
    return decoder.project_out_dim is None and (final or not before)


def _rms(weight: Tensor) -> float:
    return weight.detach().double().square().mean().sqrt().item()
