"""What models with sparse attention share: their flags for α, and checkpoints that disagree.

The attentions notice a state with another α (`modules.alpha_state`); here it gets the name of the
flag and becomes the line that a user sees.
"""

import logging
from collections.abc import Iterator

from torch import nn

from ..errors import UsageError
from ..modules import LEARNED, AnotherAlpha, KeepsAlpha, alpha_text

logger = logging.getLogger(__name__)


class HasAttentionAlphas:
    """Mixin of fairseq models that contain KeepsAlpha attentions."""

    def alpha_flag(self, name: str) -> str:
        """The flag that sets α of the attention with this name among `named_modules`."""
        raise NotImplementedError

    def attentions(self) -> Iterator[tuple[str, KeepsAlpha]]:
        """With the flag of each."""
        for name, module in self.named_modules():
            if isinstance(module, KeepsAlpha):
                yield self.alpha_flag(name), module

    def load_state_dict(self, *args, **kwargs):
        try:
            return super().load_state_dict(*args, **kwargs)
        except AnotherAlpha as error:
            (flag,) = (flag for flag, x in self.attentions() if x is error.attention)
            raise another_alpha(flag, error.attention) from None


def another_alpha(flag: str, attention: KeepsAlpha) -> UsageError:
    loaded, wanted = attention.loaded_alpha, attention.alpha_setting
    afresh = ", or start a new run with --task sparse_translation --finetune-from-model"
    return UsageError(
        f"{flag} is {alpha_text(wanted)}, that of the checkpoint {alpha_text(loaded)}: "
        f"repeat it{'' if loaded == LEARNED else afresh}"
    )


def expect_checkpoint(model: nn.Module, finetuning: bool) -> None:
    """Says what a checkpoint will be loaded for into a model that is to be trained: to start from,
    with any α that has the parameters for it, or to go on, with its own."""
    if not isinstance(model, HasAttentionAlphas):
        return
    attentions = list(model.attentions())
    for _, attention in attentions:
        attention.may_change_alpha = finetuning

    def compare(module, incompatible_keys):
        # An EMA is a copy of the model, and loads its weights without our entry at each update.
        changed = [(flag, x) for flag, x in attentions if x.changes_alpha]
        if module is not model or not changed:
            return
        if not finetuning:
            raise another_alpha(*changed[0])
        for line in dict.fromkeys(_change(flag, attention) for flag, attention in changed):
            logger.info(line)

    model.register_load_state_dict_post_hook(compare)


def _change(flag: str, attention: KeepsAlpha) -> str:
    loaded, wanted = attention.loaded_alpha, attention.alpha_setting
    start = ", which start at random" if wanted == LEARNED else ""
    return f"{flag}: from {alpha_text(loaded)} to {alpha_text(wanted)}{start}"
