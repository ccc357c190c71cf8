"""The systems that a paper compares, by the names users type, as flags of fairseq-train."""

import re
from collections.abc import Iterable

from sparse_fairseq.errors import UsageError

from .config import Config, Flags, unknown

NAMED: dict[str, Flags] = {
    "sparsemax": {"criterion": "sparsemax_loss"},
    "entmax15": {"criterion": "entmax_loss", "alpha": 1.5},
    # The exact algorithm and its partial sort, as in SE Fig. 3: same model, other speed.
    "entmax15_sort": {"criterion": "entmax_loss", "alpha": 1.5, "solver": "sort"},
    "entmax15_k100": {"criterion": "entmax_loss", "alpha": 1.5, "solver": "topk"},
    "relu15": {"criterion": "alpha_relu_loss", "alpha": 1.5, "tau": "batch"},
}
NUMBER = r"(\d+(?:\.\d+)?)"
FORMS = {
    "entmax<alpha>": re.compile(rf"entmax{NUMBER}"),
    "relu15_tau<value>": re.compile(rf"relu15_tau{NUMBER}"),
    "out<alpha>_att<alpha>": re.compile(rf"out{NUMBER}_att{NUMBER}"),
}
# A table's order where nothing else decides; what is not in it follows by name and numbers.
ORDER = ("reference", "softmax", "sparsemax", "entmax15", "relu15")


def in_order(systems: Iterable[str]) -> list[str]:
    """Without repetitions; an ensemble follows its system.

    >>> in_order(["out2_att1", "out1.5_att1", "out1_att1", "softmax ensemble", "softmax"])
    ['softmax', 'softmax ensemble', 'out1_att1', 'out1.5_att1', 'out2_att1']
    """

    def key(name: str) -> tuple:
        system = name.removesuffix(" ensemble")
        if system in ORDER:
            return ORDER.index(system), "", [], name
        numbers = [float(n) for n in re.findall(r"\d+(?:\.\d+)?", system)]
        return len(ORDER), system[:3], numbers, name

    return sorted(set(systems), key=key)


def system_flags(config: Config, system: str) -> Flags:
    """Criterion flags, and the α of the attention where the config has one."""
    output, output_alpha, attention_alpha = _resolve(config, system)
    if attention_alpha is None:
        same = config.attention_alpha == "same"
        attention_alpha = output_alpha if same else config.attention_alpha
    if attention_alpha is None:
        return output
    return {**output, _attention_flag(config): attention_alpha}


def _resolve(config: Config, system: str) -> tuple[Flags, float, float | None]:
    """Criterion flags, the α of the output, the α of the attention if the name says one."""
    alphas = {"softmax": 1.0, "sparsemax": 2.0}
    if system == "softmax":
        return config.softmax, 1.0, None
    if system in NAMED:
        return NAMED[system], alphas.get(system, 1.5), None
    if match := FORMS["entmax<alpha>"].fullmatch(system):
        return _entmax(config, float(match[1]), system), float(match[1]), None
    if match := FORMS["relu15_tau<value>"].fullmatch(system):
        return {**NAMED["relu15"], "tau": float(match[1])}, 1.5, None
    if match := FORMS["out<alpha>_att<alpha>"].fullmatch(system):
        output, attention = float(match[1]), float(match[2])
        if attention < 1:
            raise UsageError(f"system {system}: α of the attention must be at least 1")
        return _entmax(config, output, system), output, attention
    raise UsageError(unknown("system", system, ["softmax", *NAMED, *FORMS]))


def _entmax(config: Config, alpha: float, system: str) -> Flags:
    if alpha < 1:
        raise UsageError(f"system {system}: α must be at least 1")
    if alpha == 1:
        return config.softmax
    return NAMED["sparsemax"] if alpha == 2 else {"criterion": "entmax_loss", "alpha": alpha}


def _attention_flag(config: Config) -> str:
    arch = str(config.train.get("arch", ""))
    for family, flag in (
        ("sparse_lstm", "attention-alpha"),
        ("sparse_transformer", "cross-attention-alpha"),
    ):
        if arch.startswith(family):
            return flag
    raise UsageError(f"{config.dataset}: --arch {arch} has no α of the attention")
