"""Translations side by side where the systems differ most (SE Table 7)."""

import difflib
import re

from markupsafe import Markup, escape

from data_prep.inflection import spelled

from ...systems import in_order
from ..gather import Material
from ..parts import (
    Figure,
    Section,
    number_text,
    system_label,
    to_csv,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    result = material.result("examples")
    if not result:
        section.missing = [material.why("examples")]
        return
    section.reading = [
        f"{material.outputs.capitalize()} of the {result['split']} set where the systems are "
        "furthest apart by chrF. What differs from the reference is marked."
    ]
    boxes = Markup("").join(_example(material, i, result) for i in result["widest"])
    panel = Markup('<div class="examples">{}</div>').format(boxes)
    rows = [
        [i, name, s["source"], s["reference"], out["text"], out["chrf"]]
        for i, s in result["sentences"].items()
        for name, out in s["outputs"].items()
    ]
    header = ["sentence", "system", "source", "reference", "translation", "chrf"]
    caption = f"{result['signature']}; the CSV has more {material.outputs}."
    section.blocks = [Figure("examples", caption, [panel], to_csv(header, rows), wide=True)]


def _example(material: Material, number_: int, result: dict) -> Markup:
    sentence = result["sentences"][str(number_)]
    rows = [
        ("source", escape(material.source_text(sentence["source"].split(" ")))),
        ("reference", escape(_joined(material, sentence["reference"]))),
    ]
    for system in in_order(result["systems"]):
        output = sentence["outputs"].get(system)
        if output:
            label = f"{system_label(system)} ({number_text(output['chrf'], 0)})"
            rows.append((label, _marked(material, output["text"], sentence["reference"])))
    items = Markup("").join(Markup("<dt>{}</dt><dd dir=auto>{}</dd>").format(*row) for row in rows)
    return Markup('<div class="example"><dl><dt>{}</dt><dd>{}</dd>{}</dl></div>').format(
        material.outputs.removesuffix("s"), number_ + 1, items
    )


def _joined(material: Material, output: str) -> str:
    return spelled(output) if material.inflects else output


def _marked(material: Material, output: str, reference: str) -> Markup:
    """The tokens that the reference does not have in this place, marked."""
    if not output.strip():
        return Markup('<span class="gap">(empty)</span>')
    words = re.findall(r"\S+", output)
    matcher = difflib.SequenceMatcher(None, re.findall(r"\S+", reference), words, autojunk=False)
    parts = []
    for kind, _, _, start, end in matcher.get_opcodes():
        chunk = escape(_joined(material, " ".join(words[start:end])))
        if chunk:
            parts.append(chunk if kind == "equal" else Markup("<mark>{}</mark>").format(chunk))
    return Markup("" if material.inflects else " ").join(parts)


SECTION = SectionMaker(
    130,
    lambda material: f"{'Words' if material.inflects else 'Translations'} side by side",
    fill,
    ("SE Table 7",),
)
