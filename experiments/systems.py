"""The systems that a paper compares, by the names users type. A new system is one entry below.

All that the project knows of a system is in its `System`: nobody else looks into a name.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property

from sparse_fairseq.errors import UsageError

from .config import Config, Flags, unknown


@dataclass(frozen=True)
class System:
    """A way to train: its output, and its attention if the name says one."""

    name: str
    label: str  # as the papers write it
    criterion: Flags | None = None  # flags of fairseq-train; None with α = 1: the config's softmax
    alpha: float = math.nan  # of the output: 1 is softmax, 2 sparsemax; NaN: we do not know it
    attention_alpha: float | None = None  # None: what the config says
    tau: float | None = None  # of α-ReLU; None: found out at the start
    sweep: bool = False  # a point of a figure; in tables only where the config names it
    colour: int | None = None  # in every figure; None: one that is free
    order: tuple = (math.inf,)  # place in tables

    @property
    def dense(self) -> bool:
        """Whether the output leaves nothing out, whatever it is called."""
        return self.alpha == 1

    @property
    def normalised(self) -> bool:
        """Whether scores sum to one by construction; those of α-ReLU do not."""
        return (self.criterion or {}).get("criterion") != "alpha_relu_loss"

    @property
    def solver(self) -> str:
        """How entmax's threshold is found, in training and in decoding."""
        return (self.criterion or {}).get("solver", "auto")

    @property
    def can_train(self) -> bool:
        return self.dense or self.criterion is not None


@dataclass(frozen=True)
class Family:
    """Systems that differ in numbers: `entmax<alpha>` is entmax1.25, entmax1.33 …"""

    form: str
    make: Callable[..., System]  # takes the name and the numbers in it

    @cached_property
    def pattern(self) -> re.Pattern:
        return re.compile(re.sub(r"<\w+>", lambda _: r"(\d+(?:\.\d+)?)", self.form))


def _entmax(alpha: float, **flags) -> Flags | None:
    if alpha == 1:
        return None
    return {"criterion": "entmax_loss", "alpha": alpha, **flags} if alpha != 2 else SPARSEMAX


def _of_alpha(name: str, alpha: float) -> System:
    return System(name, f"{alpha:g}-entmax", _entmax(alpha), alpha, sweep=True)


def _of_tau(name: str, tau: float) -> System:
    return System(name, f"1.5-ReLU (τ = {tau:g})", {**RELU, "tau": tau}, 1.5, tau=tau, sweep=True)


def _of_two_alphas(name: str, output: float, attention: float) -> System:
    label = f"α {output:g} (attention {attention:g})"
    return System(name, label, _entmax(output), output, attention, sweep=True)


SPARSEMAX: Flags = {"criterion": "sparsemax_loss"}
RELU: Flags = {"criterion": "alpha_relu_loss", "alpha": 1.5, "tau": "batch"}
# In the order of tables.
SYSTEMS: tuple[System | Family, ...] = (
    System("reference", "reference"),  # what people wrote
    System("softmax", "softmax", None, 1.0, colour=0),
    System("sparsemax", "sparsemax", SPARSEMAX, 2.0, colour=1),
    System("entmax15", "1.5-entmax", _entmax(1.5), 1.5, colour=2),
    System("relu15", "1.5-ReLU", RELU, 1.5, colour=3),
    # Same model as entmax15, other speed: the exact algorithm with a full sort, its partial sort
    # (SE Fig. 3), and bisection (S2S Fig. 6).
    System("entmax15_sort", "1.5-entmax (full sort)", _entmax(1.5, solver="sort"), 1.5),
    System("entmax15_k100", "1.5-entmax (k = 100)", _entmax(1.5, solver="topk"), 1.5),
    System("entmax_bisect", "1.5-entmax (bisection)", _entmax(1.5, solver="bisect"), 1.5),
    Family("entmax<alpha>", _of_alpha),
    Family("out<alpha>_att<alpha>", _of_two_alphas),
    Family("relu15_tau<value>", _of_tau),
)


@cache
def _find(name: str) -> System | None:
    for place, entry in enumerate(SYSTEMS):
        if isinstance(entry, System):
            if entry.name == name:
                return replace(entry, order=(place,))
        elif match := entry.pattern.fullmatch(name):
            numbers = [float(number) for number in match.groups()]
            return replace(entry.make(name, *numbers), order=(place, *numbers))
    return None


def describe(name: str) -> System:
    """What is known of a system; of one that the project does not have, its name."""
    return _find(name) or System(name, name)


def find_system(name: str) -> System:
    """A system that can be trained; an error for others, with the nearest name."""
    found = _find(name)
    if found is None or not found.can_train:
        names = [getattr(entry, "form", None) or entry.name for entry in SYSTEMS]
        raise UsageError(unknown("system", name, names))
    if found.alpha < 1:
        raise UsageError(f"system {name}: α must be at least 1")
    if (found.attention_alpha or 1) < 1:
        raise UsageError(f"system {name}: α of the attention must be at least 1")
    return found


def in_order(systems: Iterable[str]) -> list[str]:
    """Without repetitions; an ensemble follows its system.

    >>> in_order(["out2_att1", "out1.5_att1", "out1_att1", "softmax ensemble", "softmax"])
    ['softmax', 'softmax ensemble', 'out1_att1', 'out1.5_att1', 'out2_att1']
    """
    return sorted(
        {*systems}, key=lambda name: (describe(name.removesuffix(" ensemble")).order, name)
    )


def system_flags(config: Config, name: str) -> Flags:
    """Criterion flags, and the α of the attention where the config or the name has one."""
    system = find_system(name)
    output = config.softmax if system.dense else system.criterion
    attention = system.attention_alpha
    if attention is None:
        same = config.attention_alpha == "same"
        attention = system.alpha if same else config.attention_alpha
    return output if attention is None else {**output, _attention_flag(config): attention}


def _attention_flag(config: Config) -> str:
    arch = str(config.train.get("arch", ""))
    for family, flag in (
        ("sparse_lstm", "attention-alpha"),
        ("sparse_transformer", "cross-attention-alpha"),
    ):
        if arch.startswith(family):
            return flag
    raise UsageError(f"{config.dataset}: --arch {arch} has no α of the attention")
