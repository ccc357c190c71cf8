"""α of an attention as part of the model's state: what a run was trained with, it goes on with.

fairseq compares no flags when it loads a checkpoint. A state that says another number is refused
here; which flag that is, and what a checkpoint is loaded for, is known above (`models`).
"""

import math

import torch
from torch import Tensor, nn

LEARNED = "learned"
Alpha = float | str  # a number of at least 1, or LEARNED

# fairseq's EMA leaves entries with "version" in their name alone.
STATE_KEY = "needs_sparse_attention_version"
LOGITS = "alpha_logits"


class KeepsAlpha(nn.Module):
    """Base of attentions that have `alpha_setting`; learned ones have a parameter alpha_logits."""

    alpha_setting: Alpha
    # The α of a state that does not say any; None: every state says it.
    unsaved_alpha: float | None = None
    loaded_alpha: Alpha | None = None  # by the last load_state_dict; None: nothing known
    may_change_alpha = False  # to another number, or to a learned one

    @property
    def changes_alpha(self) -> bool:
        """Whether the last load_state_dict knew another α."""
        return not is_same_alpha(self.loaded_alpha, self.alpha_setting)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.alpha_setting not in (LEARNED, self.unsaved_alpha):
            value = torch.tensor(self.alpha_setting, dtype=torch.float64)
            destination[prefix + STATE_KEY] = value

    def _load_from_state_dict(self, state_dict, prefix, *others):
        self.loaded_alpha = self._saved_alpha(state_dict, prefix)
        starts_learning = self.alpha_setting == LEARNED and self.loaded_alpha != LEARNED
        stops_learning = self.alpha_setting != LEARNED and self.loaded_alpha == LEARNED
        # No entry may be an average of weights, or softmax: whoever loads the state decides.
        changes = starts_learning or (prefix + STATE_KEY in state_dict and self.changes_alpha)
        if stops_learning or (changes and not self.may_change_alpha):
            raise AnotherAlpha(self)
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


class AnotherAlpha(ValueError):
    """A state was loaded into an attention with another α."""

    def __init__(self, attention: KeepsAlpha):
        self.attention = attention
        loaded, wanted = attention.loaded_alpha, attention.alpha_setting
        super().__init__(f"alpha is {alpha_text(wanted)}, that of the state {alpha_text(loaded)}")


def is_same_alpha(loaded: Alpha | None, wanted: Alpha) -> bool:
    """But for the last digits, which an average over checkpoints may change."""
    if loaded is None:
        return True
    if LEARNED in (loaded, wanted):
        return loaded == wanted
    return math.isclose(loaded, wanted, rel_tol=1e-6)


def alpha_text(alpha: Alpha | None) -> str:
    return "none" if alpha is None else alpha if alpha == LEARNED else f"{alpha:g}"
