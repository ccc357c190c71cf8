"""Models of fairseq-hydra-train: nested keys (encoder.layers) become flat ones (encoder_layers).

fairseq has flags for the architectures here, and no dataclass: what Hydra gives them is a plain
mapping, to which presets and models are to be applied as to flags.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import fields

from fairseq.models.transformer.transformer_config import (
    DecoderConfig,
    EncDecBaseConfig,
    QuantNoiseConfig,
)
from omegaconf import DictConfig, OmegaConf

from ..errors import UsageError

NESTED = {"encoder": EncDecBaseConfig, "decoder": DecoderConfig, "quant_noise": QuantNoiseConfig}


def of_flat_keys(preset: Callable) -> Callable:
    """The preset of an architecture, for configurations that may have nested keys: those must be
    known before it fills in what depends on them."""

    def apply(args) -> None:
        if OmegaConf.is_config(args):
            flatten(args)
        preset(args)

    return apply


def flatten(cfg: DictConfig) -> None:
    for group, config in NESTED.items():
        if not isinstance(cfg.get(group), Mapping | DictConfig):
            continue
        known = {"attention_alpha", *(field.name for field in fields(config))} - {"_name"}
        for key, value in cfg.pop(group).items():
            if key not in known:
                names = ", ".join(sorted(known))
                raise UsageError(f"model.{group} has no key {key!r}; it has {names}")
            cfg[f"{group}_{key}"] = value


def as_namespace(args: Namespace | DictConfig) -> Namespace:
    """What flags would have given."""
    if OmegaConf.is_config(args):
        return Namespace(**OmegaConf.to_container(args, resolve=True))
    return args
