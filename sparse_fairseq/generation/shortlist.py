"""The best next tokens of each row, without transforming the whole vocabulary.

Every output transform is monotone, so the best tokens are those with the largest logits: only
these are transformed. The values are those of `OutputTransform.log_scores`.
"""

import math

import torch
from fairseq.models import FairseqDecoder
from torch import Tensor

from ..output_transform import OutputTransform

BLOCK = 16  # tokens whose maximum is looked at first
AT_LEAST = 32  # tokens that entmax is computed of, so that most supports fit in


def transform_of(model) -> OutputTransform | None:
    return getattr(getattr(model, "decoder", None), "output_transform", None)


def can_shortlist(model) -> bool:
    """Whether the model's scores are its transform of its logits and of nothing else.

    Somebody who names a solver wants it to see the whole vocabulary.
    """
    transform = transform_of(model)
    if transform is None or transform.solver != "auto":
        return False
    adaptive = getattr(model.decoder, "adaptive_softmax", None) is not None
    return transform.kind != "softmax" or (_is_softmax(model) and not adaptive)


def is_sparse(model) -> bool:
    """Whether the model may give a token a score of exactly zero."""
    transform = transform_of(model)
    return transform is not None and transform.kind != "softmax" and transform.alpha > 1


def sums_to_one(model) -> bool:
    """Whether the model's scores are known to be probabilities."""
    transform = transform_of(model)
    if transform is None or transform.kind == "softmax":
        return _is_softmax(model)
    return transform.kind == "entmax"


def _is_softmax(model) -> bool:
    """Whether fairseq's own softmax makes the scores of a model that has no other transform."""
    decoder = type(getattr(model, "decoder", None))
    return all(
        getattr(decoder, name, None) is getattr(FairseqDecoder, name)
        for name in ("get_normalized_probs", "get_normalized_probs_scriptable")
    )


def shortlist(
    logits: Tensor,
    transform: OutputTransform,
    k: int,
    temperature: float = 1.0,
    renormalized: bool = False,
) -> tuple[Tensor, Tensor]:
    """The k largest log-scores of each row of logits [rows, vocabulary], and their tokens;
    `renormalized`: of scores that are divided by their sum."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature != 1:
        logits = logits / temperature
    of_entmax = transform.alpha > 1 and transform.kind == "entmax"
    values, tokens = top_k(logits, min(max(k, AT_LEAST) if of_entmax else k, logits.shape[1]))
    if transform.alpha == 1:
        scores = logits.log_softmax(1).gather(1, tokens)  # one pass; torch's logsumexp needs more
    elif of_entmax:
        scores = _entmax(logits, values, tokens, transform).log()
    else:
        p = transform.scores(values)
        scores = p.log()
        if renormalized:
            total = _sum_of_scores(logits, p, transform).log()
            scores = scores - total.masked_fill(total == -math.inf, 0.0)
    return scores[:, :k], tokens[:, :k]


def _entmax(logits: Tensor, values: Tensor, tokens: Tensor, transform: OutputTransform) -> Tensor:
    """entmax of each row at its top tokens. The threshold of these alone is the row's threshold if
    the smallest of them is outside the support."""
    p = transform.scores(values)
    if values.shape[1] < logits.shape[1]:
        unsure = (p[:, -1] > 0).nonzero().squeeze(1)
        if len(unsure):
            p[unsure] = transform.scores(logits[unsure]).gather(1, tokens[unsure])
    return p


def _sum_of_scores(logits: Tensor, p: Tensor, transform: OutputTransform) -> Tensor:
    """[rows, 1], from the scores of the top tokens: they are all if the smallest of them is 0."""
    total = p.sum(1, keepdim=True)
    if p.shape[1] < logits.shape[1]:
        unsure = (p[:, -1] > 0).nonzero().squeeze(1)
        if len(unsure):
            total[unsure] = transform.scores(logits[unsure]).sum(1, keepdim=True)
    return total


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """torch.topk of rows; the k largest are in the k blocks with the largest maxima. Tokens of a
    block are as far apart as there are blocks: so all maxima of a row are computed side by side."""
    rows, size = x.shape
    blocks = size // BLOCK
    if blocks < 3 * k:
        return x.topk(k)
    end = blocks * BLOCK
    chosen = x[:, :end].view(rows, BLOCK, blocks).amax(1).topk(k, sorted=False).indices
    columns = chosen.unsqueeze(2) + torch.arange(0, end, blocks, device=x.device)
    rest = torch.arange(end, size, device=x.device).expand(rows, -1)
    columns = torch.cat([columns.view(rows, -1), rest], 1)
    best, where = x.gather(1, columns).topk(k)
    return best, columns.gather(1, where)


def renormalize(lprobs: Tensor) -> Tensor:
    """log(p / Σp); a row without support stays −inf."""
    total = lprobs.logsumexp(-1, keepdim=True)
    return lprobs - total.masked_fill(total == -math.inf, 0.0)
