"""The first screen: five lines that say what was run and how the systems compare."""

from typing import NamedTuple

from ..number_text import number_text, signed_text
from ..spread import Spread
from ..systems import describe, in_order
from .gather import Material
from .parts import spread_text, system_label


class Line(NamedTuple):
    lead: str
    text: str


def summary(material: Material) -> list[Line]:
    return [
        Line("What ran", _what(material)),
        Line("Quality", _quality(material)),
        Line("Sparsity", _sparsity(material)),
        Line("Empty output", _empty(material)),
        Line("Speed", _speed(material)),
    ]


def _what(material: Material) -> str:
    if not material.runs:
        return f"Nothing yet on {material.title}: {material.make()}"
    systems = in_order(run.system for run in material.runs)
    names = [system_label(system) for system in systems]
    listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    seeds = max(len(material.runs_of(system)) for system in systems)
    size = (material.data.get("sizes") or {}).get("train")
    data = f"{size:,} training pairs of " if size else ""
    hardware = material.runs[0].manifest.get("hardware") or {}
    gpus = hardware.get("gpus") or []
    where = f"{len(gpus)} × {gpus[0]}" if gpus else f"{hardware.get('cores')} CPU cores"
    where = f", with {where}" if gpus or "cores" in hardware else ""
    each = f"up to {seeds} seeds each" if seeds > 1 else "one seed each"
    text = f"{listed}; {each}, on {data}{material.title}{where}."
    broken = [name for name in material.broken if name.count("/") == 2]
    return text + (f" {len(broken)} broken, see Runs." if broken else "")


def _ranked(found: dict[str, Spread | None], reverse: bool = True) -> list[str]:
    known = {system: value for system, value in found.items() if value}
    return sorted(known, key=lambda system: known[system][0], reverse=reverse)


def _quality(material: Material) -> str:
    inflection = material.test_scores("word_accuracy")
    scores = inflection or material.test_scores("bleu")
    scores = {system: scores[system] for system in material.systems if system in scores}
    if not scores:
        return f"Not measured yet: {material.why('bleu')}."
    name, digits = ("Word accuracy", 2) if inflection else ("Test BLEU", 1)
    order = _ranked(scores)
    ranked = ", ".join(
        f"{system_label(s)} {spread_text(*scores[s][:2], digits)}" for s in order[:5]
    )
    text = f"{name}: {ranked}."
    if len(order) > 1 and "softmax" in order and not inflection:
        text += _against_softmax(material, order[0])
    return text + _published(material, order)


def _against_softmax(material: Material, best: str) -> str:
    """What the bootstrap of each seed says, which may differ from the mean over seeds."""
    pairs = ((material.result("bleu") or {}).get("test") or {}).get("pairs") or []
    found = []
    for pair in pairs:
        if pair["metric"] == "bleu" and {pair["baseline"], pair["system"]} == {best, "softmax"}:
            sign = 1 if pair["system"] == best else -1
            found.append((sign * pair["difference"], pair["p_value"]))
    if not found or best == "softmax":
        return ""
    sure = sum(gap > 0 and p < 0.05 for gap, p in found)
    if len(found) > 1:
        verdict = f"significantly better than softmax with {sure} of {len(found)} seeds"
    else:
        word = "significantly better" if sure else "not significantly better"
        verdict = f"{word if found[0][0] > 0 else 'not better'} than softmax"
    listed = "; ".join(f"{signed_text(gap)}, p = {number_text(p, 3)}" for gap, p in found)
    return f" {system_label(best)} is {verdict} ({listed})."


def _published(material: Material, order: list[str]) -> str:
    """The paper's order, where it can be compared."""
    for metric in ("bleu", "tokenized_bleu", "word_accuracy"):
        found = {system: material.paper(metric, system) for system in order}
        values = {s: (n.value, None, 1) for s, n in found.items() if n and material.comparable(n)}
        if values:
            listed = ", ".join(f"{system_label(s)} {values[s][0]:g}" for s in _ranked(values)[:5])
            kind = " (tokenised BLEU)" if metric == "tokenized_bleu" else ""
            return f" Paper{kind}: {listed}."
    return ""


def _sparsity(material: Material) -> str:
    found = {s: v for s, v in material.quantity("support").items() if s in material.systems}
    order = [system for system in _ranked(found, reverse=False) if not describe(system).dense]
    if not order:
        return f"Not measured yet: {material.why('support')}."
    listed = ", ".join(f"{system_label(s)} {number_text(found[s][0], 1)}" for s in order[:5])
    whole = found.get(material.baseline)
    end = f"; softmax gives one to all {number_text(whole[0], 0)}" if whole else ""
    tokens = material.tokens.capitalize()
    return f"{tokens} with a non-zero score at a step, on average: {listed}{end}."


def _empty(material: Material) -> str:
    found = {s: v for s, v in material.quantity("empty_string").items() if s in material.systems}
    if not found:
        reason = material.why("empty_string", material.systems[0]) if material.systems else ""
        return f"Not measured yet: {reason or material.why('empty_string')}."
    listed = ", ".join(
        f"{system_label(s)} {number_text(found[s][0], 1)}%" for s in _ranked(found)[:5]
    )
    return f"{material.outputs.capitalize()} that score higher when left empty: {listed}."


def _speed(material: Material) -> str:
    speed = material.training_speed
    words = material.quantity(speed.key) if speed else {}
    base = words.get(material.baseline)
    clock = "second of CPU time" if speed and "cpu" in speed.key else "second"
    whole = f"Training {material.tokens} per {clock}"
    others = [s for s in material.systems if s != material.baseline and s in words]
    if not base or not others:
        known = [s for s in material.systems if s in words]
        if not known:
            return f"Not measured yet: {material.make()}."
        listed = ", ".join(f"{system_label(s)} {number_text(words[s][0], 0)}" for s in known[:5])
        return f"{whole}: {listed}."
    listed = ", ".join(
        f"{system_label(s)} {number_text(words[s][0] / base[0], 2)}" for s in others[:5]
    )
    return f"{whole} as a multiple of softmax’s {number_text(base[0], 0)}: {listed}."
