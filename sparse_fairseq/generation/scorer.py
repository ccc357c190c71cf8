"""SparseSequenceScorer: what the models say about given targets (force-decoding).

A target that the models hold impossible has the score −inf, and says at which token.
"""

import math
from collections.abc import Sequence

import torch
from fairseq import utils
from fairseq.data import data_utils
from torch import Tensor

from .decoder_states import attention_of
from .shortlist import sums_to_one


class SparseSequenceScorer:
    """Takes what fairseq's SequenceScorer takes, and returns its keys: here ``score`` is the sum
    of ``positional_scores``, divided by the length only with `normalize_scores`.

    Each hypothesis has the log-scores as the models give them (``raw_scores``) and divided by
    their sum at each position (``renormalized_scores``); `score_normalization` ("none" or
    "renormalize") says which of them are the ``positional_scores``. Ensembles average scores.
    """

    def __init__(
        self,
        tgt_dict,
        softmax_batch=None,
        compute_alignment=False,
        eos=None,
        symbols_to_strip_from_output=None,
        *,
        normalize_scores=False,
        score_normalization="none",
    ):
        self.pad = tgt_dict.pad()
        self.eos = tgt_dict.eos() if eos is None else eos
        self.positions_at_once = softmax_batch
        self.compute_alignment = compute_alignment
        self.symbols_to_strip_from_output = {*(symbols_to_strip_from_output or ()), self.eos}
        self.normalize_scores = normalize_scores
        self.score_normalization = score_normalization

    def score(self, models, sample: dict, targets: Sequence[Tensor | list[int]]) -> list[dict]:
        """Scores one target, ending in EOS, for each sentence of the batch; [EOS] alone is the
        empty translation."""
        targets = [torch.as_tensor(target) for target in targets]
        previous, target = (
            data_utils.collate_tokens(targets, self.pad, self.eos, move_eos_to_beginning=move).to(
                sample["net_input"]["src_tokens"]
            )
            for move in (True, False)
        )
        net_input = {**sample["net_input"], "prev_output_tokens": previous}
        scored = self.generate(models, {**sample, "net_input": net_input, "target": target})
        return [hypothesis for (hypothesis,) in scored]

    @torch.no_grad()
    def generate(self, models, sample: dict, **unused) -> list[list[dict]]:
        """Scores sample["target"]; `unused` is what fairseq passes to generators."""
        raw, total, attention = self._forced_scores(models, sample)
        renormalized = raw if total is None else raw - total
        # 0 / 0: a position without support stays impossible.
        renormalized = renormalized.masked_fill(raw == -math.inf, -math.inf)
        starts = sample.get("start_indices", [0] * len(raw))
        return [
            [
                self._hypothesis(
                    sample,
                    i,
                    slice(starts[i], None),
                    raw[i],
                    renormalized[i],
                    None if attention is None else attention[i],
                )
            ]
            for i in range(len(raw))
        ]

    def _forced_scores(self, models, sample) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Averages over the models: log-scores of the target [sentences, positions], log of the
        sum over the vocabulary (None: known to be 0), attention."""
        scores, totals, attentions = [], [], []
        known = all(sums_to_one(model) for model in models)
        for model in models:
            model.eval()
            out = model(**sample["net_input"])
            score, total = self._gather(model, out, sample)
            scores.append(score)
            totals.append(total)
            if (attention := attention_of(out)) is not None:
                attentions.append(attention)
        mean = math.log(len(models))
        raw = torch.stack(scores).logsumexp(0) - mean
        total = None if known else torch.stack(totals).logsumexp(0) - mean
        return raw, total, sum(attentions) / len(models) if attentions else None

    def _gather(self, model, out, sample) -> tuple[Tensor, Tensor]:
        """Of one model; a part of the positions at a time, because the scores of the whole
        vocabulary at all positions may not fit into memory."""
        hidden, target = out[0].flatten(0, 1), sample["target"].flatten()
        size = self.positions_at_once or len(target)
        # Where it is known, the sum is not computed: of the words that are not the target, an
        # adaptive softmax does not fill in all.
        known = sums_to_one(model)
        scores, totals = [], []
        for part in range(0, len(target), size):
            wanted = target[None, part : part + size]
            # An adaptive softmax looks at the target, and needs it in this shape.
            lprobs = model.get_normalized_probs(
                (hidden[None, part : part + size], *out[1:]), True, {**sample, "target": wanted}
            )
            scores.append(lprobs.gather(2, wanted.unsqueeze(2)).flatten())
            totals.append(lprobs.new_zeros(wanted.numel()) if known else lprobs.logsumexp(2)[0])
        shape = sample["target"].shape
        return torch.cat(scores).view(shape), torch.cat(totals).view(shape)

    def _hypothesis(self, sample, i: int, part: slice, raw, renormalized, attention) -> dict:
        target = sample["target"][i, part]
        real = target != self.pad
        raw, renormalized = raw[part][real], renormalized[part][real]
        positions = renormalized if self.score_normalization == "renormalize" else raw
        alignment = None
        if attention is not None and self.compute_alignment:
            source = sample["net_input"]["src_tokens"][i]
            alignment = utils.extract_hard_alignment(
                attention, source, sample["target"][i], self.pad, self.eos
            )
        return {
            "tokens": target[real],
            "score": positions.sum() / (len(positions) if self.normalize_scores else 1),
            "attention": attention,
            "alignment": alignment,
            "positional_scores": positions.clone(),  # fairseq-generate changes them in place
            "raw_scores": raw,
            "renormalized_scores": renormalized,
        }
