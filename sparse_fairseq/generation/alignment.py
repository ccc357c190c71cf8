"""The generator for `--print-alignment`: hypotheses with an alignment to the source."""

import torch
from fairseq import utils
from fairseq.data import data_utils
from fairseq.sequence_generator import EnsembleModelWithAlignment

from .generator import SparseSequenceGenerator

EXTRACT = {"hard": utils.extract_hard_alignment, "soft": utils.extract_soft_alignment}


class SparseSequenceGeneratorWithAlignment(SparseSequenceGenerator):
    """Takes what fairseq's SequenceGeneratorWithAlignment takes."""

    def __init__(self, models, tgt_dict, left_pad_target=False, print_alignment="hard", **settings):
        super().__init__(EnsembleModelWithAlignment(models), tgt_dict, **settings)
        self.left_pad_target = left_pad_target
        # On the command line the flag may come without a value.
        self.extract = EXTRACT["hard" if print_alignment is True else str(print_alignment)]

    @torch.no_grad()
    def generate(self, models, sample, *args, **kwargs):
        hypotheses = super().generate(models, sample, *args, **kwargs)
        # Sentences may have different numbers of hypotheses.
        sentence = [i for i, found in enumerate(hypotheses) for _ in found]
        flat = [hypothesis for found in hypotheses for hypothesis in found]
        source = sample["net_input"]["src_tokens"][sentence]
        target = self._collate(flat, move_eos_to_beginning=False)
        attention = self._attention(sample, flat, sentence)
        for hypothesis, *inputs in zip(flat, attention, source, target, strict=True):
            inputs = [x.cpu() for x in inputs]
            hypothesis["alignment"] = self.extract(*inputs, self.pad, self.eos)
        return hypotheses

    def _collate(self, hypotheses, move_eos_to_beginning):
        tokens = [hypothesis["tokens"] for hypothesis in hypotheses]
        return data_utils.collate_tokens(
            tokens, self.pad, self.eos, self.left_pad_target, move_eos_to_beginning
        )

    def _attention(self, sample, hypotheses, sentence):
        """[target, source] for each hypothesis: from a second pass if a model wants the whole
        target for it, else from the search."""
        if any(getattr(model, "full_context_alignment", False) for model in self.model.models):
            inputs = (sample["net_input"][name][sentence] for name in ("src_tokens", "src_lengths"))
            return self.model.forward_align(*inputs, self._collate(hypotheses, True))
        return [hypothesis["attention"].transpose(0, 1) for hypothesis in hypotheses]
