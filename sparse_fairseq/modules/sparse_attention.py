"""Multi-head attention whose weights are α-entmax, with a constant α or one learned for each head.

Projections, masks and the cache of incremental decoding are fairseq's; the mapping from scores to
weights is `functional.entmax`.
"""

import math

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from .. import functional as sf
from .alpha_state import LEARNED, Alpha, KeepsAlpha


class SparseMultiheadAttention(KeepsAlpha, MultiheadAttention):
    """fairseq's attention with α-entmax in place of softmax.

    With α = 1 it is fairseq's own, and so is its state; rows in which every key is masked get
    weights of 0 for every α. A learned α is 1 + sigmoid(a) with a ~ N(0, 1) at first, for each
    head (Correia, Niculae & Martins 2019, "Adaptively Sparse Transformers").
    """

    unsaved_alpha = 1.0

    def __init__(self, *args, alpha: Alpha = 1.0, **kwargs):
        super().__init__(*args, **kwargs)
        if self.bias_k is not None:
            raise ValueError(
                "add_bias_kv: fairseq's own attention with a cache cannot do it either"
            )
        self.constant_alpha = None if alpha == LEARNED else float(alpha)
        if self.constant_alpha is None:
            self.alpha_logits = nn.Parameter(torch.randn(self.num_heads))

    @property
    def alpha_setting(self) -> Alpha:
        return LEARNED if self.constant_alpha is None else self.constant_alpha

    @property
    def alpha(self) -> float | Tensor:
        """The constant, or α of each head, float64: half precision must not round it to 1 or 2."""
        if self.constant_alpha is not None:
            return self.constant_alpha
        return 1.0 + self.alpha_logits.double().sigmoid()

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As in fairseq: [time, batch, channels], and the weights averaged over heads or not."""
        need_weights = need_weights or need_head_weights
        in_torch = incremental_state is None and not static_kv and not need_weights
        if in_torch and self.constant_alpha == 1.0 and not before_softmax:
            return super().forward(
                query, key, value, key_padding_mask, need_weights=False, attn_mask=attn_mask
            )
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(
                attn_mask, -math.inf
            )
        # One for each head is what torch takes, and fairseq's own code does not.
        of_heads = attn_mask if attn_mask is not None and attn_mask.dim() == 3 else None
        # Without a cache static_kv means nothing but fairseq's own code instead of torch's.
        scores, v = super().forward(
            query,
            key,
            value,
            key_padding_mask,
            incremental_state,
            static_kv=static_kv or incremental_state is None,
            attn_mask=attn_mask if of_heads is None else None,
            before_softmax=True,
        )
        if of_heads is not None:
            scores = scores + F.pad(of_heads, (0, scores.shape[-1] - of_heads.shape[-1]))
        if before_softmax:
            return scores, v
        dtype = scores.dtype
        if need_weights:  # returned in float32, as fairseq's are
            scores = scores.to(torch.promote_types(dtype, torch.float32))
        weights = self._weights(scores)  # [batch * heads, queries, keys]
        attended = self._attend(self.dropout_module(weights.to(dtype)), v)
        length, batch = query.shape[:2]
        attended = attended.transpose(0, 1).reshape(length, batch, self.embed_dim)
        if not need_weights:
            return self.out_proj(attended), None
        by_head = weights.unflatten(0, (batch, self.num_heads)).transpose(0, 1)
        return self.out_proj(attended), by_head if need_head_weights else by_head.mean(0)

    def _weights(self, scores: Tensor) -> Tensor:
        """In the scores' dtype, but computed in float32 at least: kernels widen what they read."""
        alpha = self.alpha
        if isinstance(alpha, float):
            return sf.entmax(scores, alpha)
        by_head = scores.unflatten(0, (-1, self.num_heads))
        return sf.entmax(by_head, alpha.view(-1, 1, 1)).flatten(0, 1)

    def _attend(self, weights: Tensor, v: Tensor) -> Tensor:
        """The weighted values. All hypotheses of a beam may share the keys of their sentence."""
        if len(weights) == len(v):
            return torch.bmm(weights, v)
        v = v.unflatten(0, (-1, 1, self.num_heads))
        beams = weights.unflatten(0, (len(v), -1, self.num_heads))
        return torch.matmul(beams, v).flatten(0, 2)
