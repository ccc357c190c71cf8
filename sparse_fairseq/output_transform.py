"""OutputTransform: what turns a decoder's logits into scores, log-scores and the loss.

It is a submodule of the decoder and its settings are part of the model's state, so that training
and decoding cannot disagree. It holds no math (`functional` does) and no flags (the task does).
"""

from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from fairseq.models.lstm import LSTMDecoder
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from . import functional as F

KINDS = ("softmax", "entmax", "alpha_relu")

# The name is what a user reads when stock fairseq meets our checkpoint ("Unexpected key(s) in
# state_dict: ..."). fairseq's EMA leaves entries with "version" in their name alone; it would
# average all others.
STATE_KEY = "needs_task_sparse_translation_version"
STATE_VERSION = 1


@dataclass(frozen=True)
class OutputSettings:
    """The settings a checkpoint carries. The default is a stock fairseq model."""

    kind: str = "softmax"
    alpha: float = 1.0
    tau: float | None = None  # α-ReLU only; None until the task has resolved it
    input_scale: float = 1.0  # what the embeddings tied to the output layer are multiplied with

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        low = {"softmax": "= 1", "entmax": "≥ 1", "alpha_relu": "> 1"}[self.kind]
        valid = {
            "softmax": self.alpha == 1,
            "entmax": 1 <= self.alpha < float("inf"),
            "alpha_relu": 1 < self.alpha < float("inf"),
        }[self.kind]
        if not valid:
            raise ValueError(f"alpha must be {low} and finite for {self.kind}, got {self.alpha}")
        if self.tau is not None and not abs(self.tau) < float("inf"):
            raise ValueError(f"tau must be finite, got {self.tau}")

    def __str__(self) -> str:
        if self.kind == "softmax":
            return "softmax"
        tau = f", tau={self.tau}" if self.kind == "alpha_relu" and self.tau is not None else ""
        return f"{self.kind}(alpha={self.alpha}{tau})"

    def to_tensor(self) -> Tensor:
        """fairseq can save, average and copy only tensors; float64 keeps every digit.

        The kind is one-hot, so that an average over checkpoints of different kinds is no kind.
        """
        tau = float("nan") if self.tau is None else self.tau
        kind = [float(self.kind == k) for k in KINDS]
        numbers = [STATE_VERSION, *kind, self.alpha, tau, self.input_scale]
        return torch.tensor(numbers, dtype=torch.float64)

    @classmethod
    def from_tensor(cls, state: Tensor) -> "OutputSettings":
        version, *kind, alpha, tau, input_scale = state.double().tolist()
        if version != STATE_VERSION:
            raise ValueError(f"output transform of version {version}, this is {STATE_VERSION}")
        if sorted(kind) != [0.0, 0.0, 1.0]:
            raise ValueError("the output transforms of different models were averaged")
        return cls(KINDS[kind.index(1.0)], alpha, None if tau != tau else tau, input_scale)


@dataclass
class LossRequest:
    """What a decoder's output layer is asked for in place of logits, and what it adds to it."""

    target: Tensor
    options: dict[str, Any]
    stats: F.RowStats | None = None


class OutputTransform(nn.Module):
    """Scores, log-scores and loss of logits [..., vocabulary], as `settings` say."""

    def __init__(self, settings: OutputSettings | None = None):
        super().__init__()
        self.settings = settings or OutputSettings()
        self.solver = "auto"  # how `scores` finds entmax's threshold; all give the same
        self.found_in_checkpoint = False  # by the last load_state_dict
        self._request: LossRequest | None = None  # while `loss_of` runs the model

    @property
    def kind(self) -> str:
        return self.settings.kind

    @property
    def alpha(self) -> float:
        return self.settings.alpha

    @property
    def tau(self) -> float:
        if self.settings.tau is None:
            raise ValueError(f"tau of {self.kind} has not been resolved yet")
        return self.settings.tau

    def scores(self, logits: Tensor) -> Tensor:
        """p, at least in float32 whatever the model's precision, exactly 0 off the support."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.kind == "alpha_relu":
            return F.alpha_relu(logits, self.alpha, self.tau)
        # In float64: the logarithm of a word at the threshold shows every rounding.
        return F.entmax(logits.double(), self.alpha, solver=self.solver).to(logits.dtype)

    def log_scores(self, logits: Tensor) -> Tensor:
        """log p, exactly -inf where p is 0."""
        if self.alpha == 1:
            dtype = torch.promote_types(logits.dtype, torch.float32)
            return logits.log_softmax(-1, dtype=dtype)
        return self.scores(logits).log()

    def loss(self, logits: Tensor, target: Tensor, solver: str = "auto", **options: Any):
        """(loss, RowStats); `options` are those of the losses in `functional`."""
        if self.kind == "alpha_relu":
            return F.alpha_relu_loss(
                logits, target, self.alpha, self.tau, return_stats=True, **options
            )
        return F.entmax_loss(
            logits, target, self.alpha, solver=solver, return_stats=True, **options
        )

    def linear_loss(
        self,
        features: Tensor,
        layer: nn.Module,
        target: Tensor,
        solver: str = "auto",
        **options: Any,
    ):
        """`loss` of the logits that the output layer would make of features, without them."""
        weight, bias = layer.weight, getattr(layer, "bias", None)
        options["return_stats"] = True
        if self.kind == "alpha_relu":
            return F.linear_alpha_relu_loss(
                features, weight, target, self.alpha, self.tau, bias=bias, **options
            )
        return F.linear_entmax_loss(
            features, weight, target, self.alpha, bias=bias, solver=solver, **options
        )

    def loss_of(
        self, model: nn.Module, sample: dict, target: Tensor, fuse: bool, **options: Any
    ) -> tuple[Tensor, F.RowStats]:
        """(loss, RowStats) of a batch; `options` are those of `loss`, the reduction too.

        With `fuse` (see `can_fuse`) the decoder's output layer answers with the losses: there are
        never logits of the whole batch. It does so inside of the model's forward pass, because
        DDP, FSDP and the like take a weight that is used outside of it for unused. This call is
        the only one during which a model returns anything but logits.
        """
        if not fuse:
            logits = model(**sample["net_input"])[0]
            return self.loss(logits, target, **options)
        self._request = request = LossRequest(target, options)
        try:
            loss = model(**sample["net_input"])[0]
        finally:
            self._request = None
        assert request.stats is not None
        return loss, request.stats

    def answer(self, layer: nn.Module, features: Tensor) -> Tensor | None:
        """The loss that `loss_of` asks for, from the output layer's input; None: logits are
        wanted."""
        request = self._request
        if request is None:
            return None
        loss, request.stats = self.linear_loss(features, layer, request.target, **request.options)
        return loss

    def scale_input(self, module: nn.Module, args: tuple, embedded: Tensor) -> Tensor | None:
        """Forward hook for embeddings that share the output layer's weights."""
        scale = self.settings.input_scale
        return None if scale == 1 else embedded * scale

    def extra_repr(self) -> str:
        return str(self.settings)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        # A model that stock fairseq could have trained stays a stock checkpoint.
        if self.settings != OutputSettings():
            destination[prefix + STATE_KEY] = self.settings.to_tensor()

    def _load_from_state_dict(
        self, state_dict, prefix, metadata, strict, missing, unexpected, errors
    ):
        state = state_dict.get(prefix + STATE_KEY)
        self.found_in_checkpoint = state is not None
        if state is not None:
            try:
                self.settings = OutputSettings.from_tensor(state)
            except ValueError as error:
                errors.append(f"{prefix}{STATE_KEY}: {error}")


def attach_output_transform(model: nn.Module) -> OutputTransform:
    """Gives the model's decoder an OutputTransform (softmax until told otherwise), and methods that
    ask it in place of two of fairseq's: fairseq has no other place for either."""
    decoder = model.decoder
    transform = decoder.output_transform = OutputTransform()
    decoder.get_normalized_probs = MethodType(_get_normalized_probs, decoder)
    if _has_plain_output_layer(decoder):
        decoder.output_layer = MethodType(_logits_or_loss, decoder)
    layer = output_projection_of(decoder)
    for module in model.modules():
        if layer is not None and isinstance(module, nn.Embedding) and module.weight is layer.weight:
            module.register_forward_hook(transform.scale_input)
    return transform


def _get_normalized_probs(self, net_output, log_probs, sample=None):
    transform = self.output_transform
    if transform.kind == "softmax":  # as fairseq does it, adaptive softmax included
        return type(self).get_normalized_probs(self, net_output, log_probs, sample)
    return transform.log_scores(net_output[0]) if log_probs else transform.scores(net_output[0])


def _logits_or_loss(self, features, **kwargs):
    """In place of fairseq's `output_layer`."""
    loss = self.output_transform.answer(output_projection_of(self), features)
    return type(self).output_layer(self, features, **kwargs) if loss is None else loss


def _has_plain_output_layer(decoder: nn.Module) -> bool:
    """Whether decoder.output_layer is fairseq's own F.linear and nothing more."""
    own = getattr(type(decoder), "output_layer", None)
    return own in (TransformerDecoderBase.output_layer, LSTMDecoder.output_layer)


def can_fuse(decoder: nn.Module) -> bool:
    """Whether the decoder's output layer can answer with a loss: whether nothing but the product
    with its weight makes the logits. That may change while a model lives: layers are wrapped,
    quantised, watched."""
    layer = output_projection_of(decoder)
    ours = getattr(getattr(decoder, "output_layer", None), "__func__", None) is _logits_or_loss
    return ours and layer is not None and _is_plain_layer(layer)


def _is_plain_layer(layer: nn.Module) -> bool:
    plain = type(layer).forward in (nn.Linear.forward, nn.Embedding.forward)
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = [hook for kind in kinds for hook in getattr(layer, kind).values()]
    # Ours is for what the layer is as an embedding.
    others = [x for x in hooks if getattr(x, "__func__", None) is not OutputTransform.scale_input]
    return plain and "forward" not in vars(layer) and not others


def output_projection_of(decoder: nn.Module) -> nn.Module | None:
    """The module whose `weight` [vocabulary, hidden] makes the logits, or None if there is none."""
    for name in ("output_projection", "fc_out", "fc3"):
        layer = getattr(decoder, name, None)
        if layer is not None:
            return layer if isinstance(layer, nn.Linear) else None
    if getattr(decoder, "adaptive_softmax", None) is None and getattr(
        decoder, "share_input_output_embed", False
    ):
        return decoder.embed_tokens
    return None
