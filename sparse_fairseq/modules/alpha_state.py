"""α of an attention as part of the model's state: what a run was trained with, it goes on with.

fairseq compares no flags when it loads a checkpoint. A state that says another number is refused,
whatever the task; ours says also what a checkpoint is loaded for (`expect_checkpoint`).
"""

import logging
import math

import torch
from torch import Tensor, nn

from ..errors import UsageError

logger = logging.getLogger(__name__)

LEARNED = "learned"
Alpha = float | str  # a number of at least 1, or LEARNED

# fairseq's EMA leaves entries with "version" in their name alone.
STATE_KEY = "needs_sparse_attention_version"
LOGITS = "alpha_logits"


class KeepsAlpha(nn.Module):
    """Base of attentions that have `alpha_setting`; learned ones have a parameter alpha_logits."""

    alpha_setting: Alpha
    alpha_flag = "--attention-alpha"
    # The α of a state that does not say any; None: every state says it.
    unsaved_alpha: float | None = None
    loaded_alpha: Alpha | None = None  # by the last load_state_dict; None: nothing known
    may_change_alpha = False  # to another number, or to a learned one

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.alpha_setting not in (LEARNED, self.unsaved_alpha):
            value = torch.tensor(self.alpha_setting, dtype=torch.float64)
            destination[prefix + STATE_KEY] = value

    def _load_from_state_dict(self, state_dict, prefix, *others):
        self.loaded_alpha = self._saved_alpha(state_dict, prefix)
        starts_learning = self.alpha_setting == LEARNED and self.loaded_alpha != LEARNED
        stops_learning = self.alpha_setting != LEARNED and self.loaded_alpha == LEARNED
        # No entry may be an average of weights, or softmax: then only the hook below decides.
        changes = starts_learning or (
            prefix + STATE_KEY in state_dict
            and not is_same_alpha(self.loaded_alpha, self.alpha_setting)
        )
        if stops_learning or (changes and not self.may_change_alpha):
            raise another_alpha(self)
        if starts_learning:
            own = self.get_parameter(LOGITS).detach()
            state_dict = {**state_dict, prefix + LOGITS: own}
        state_dict = {key: x for key, x in state_dict.items() if key != prefix + STATE_KEY}
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _saved_alpha(self, state_dict: dict[str, Tensor], prefix: str) -> Alpha | None:
        if prefix + LOGITS in state_dict:
            return LEARNED
        saved = state_dict.get(prefix + STATE_KEY)
        return self.unsaved_alpha if saved is None else float(saved)


def another_alpha(attention: KeepsAlpha) -> UsageError:
    loaded, wanted = attention.loaded_alpha, attention.alpha_setting
    afresh = ", or start a new run with --task sparse_translation --finetune-from-model"
    return UsageError(
        f"{attention.alpha_flag} is {_text(wanted)}, that of the checkpoint {_text(loaded)}: "
        f"repeat it{'' if loaded == LEARNED else afresh}"
    )


def is_same_alpha(loaded: Alpha | None, wanted: Alpha) -> bool:
    """But for the last digits, which an average over checkpoints may change."""
    if loaded is None:
        return True
    if LEARNED in (loaded, wanted):
        return loaded == wanted
    return math.isclose(loaded, wanted, rel_tol=1e-6)


def _text(alpha: Alpha | None) -> str:
    return "none" if alpha is None else alpha if alpha == LEARNED else f"{alpha:g}"


def expect_checkpoint(model: nn.Module, finetuning: bool) -> None:
    """Says what a checkpoint will be loaded for into a model that is to be trained: to start from,
    with any α that has the parameters for it, or to go on, with its own."""
    attentions = [module for module in model.modules() if isinstance(module, KeepsAlpha)]
    for attention in attentions:
        attention.may_change_alpha = finetuning

    def compare(module, incompatible_keys):
        # An EMA is a copy of the model, and loads its weights without our entry at each update.
        changed = [x for x in attentions if not is_same_alpha(x.loaded_alpha, x.alpha_setting)]
        if module is not model or not changed:
            return
        if not finetuning:
            raise another_alpha(changed[0])
        for line in dict.fromkeys(map(_change, changed)):
            logger.info(line)

    model.register_load_state_dict_post_hook(compare)


def _change(attention: KeepsAlpha) -> str:
    loaded, wanted = attention.loaded_alpha, attention.alpha_setting
    start = ", which start at random" if wanted == LEARNED else ""
    return f"{attention.alpha_flag}: from {_text(loaded)} to {_text(wanted)}{start}"
