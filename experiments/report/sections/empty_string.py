"""Who prefers to say nothing: empty translations (SE Table 2)."""

from ..comparison import comparison, mean_of
from ..gather import Material
from ..parts import (
    Section,
    number,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    output = _output(material)
    raw = material.of_seeds("empty_string", lambda r: r["raw"]["percent"])
    if not raw:
        return
    more = {}

    def why(system: str) -> str:
        return material.why("empty_string", system)

    for title, key in (
        ("Divided by Σp", "renormalized"),
        ("Divided by length", "raw_length_normalized"),
    ):
        found = material.of_seeds("empty_string", lambda r, key=key: r[key]["percent"])
        more[title] = lambda system, found=found: number(*mean_of(found, system, 2), why(system))
    section.reading = [
        f"“Cat got your tongue”: how many {material.outputs} of the validation set score higher "
        f"with the empty {output} than with what beam search found. Where nothing else is said, "
        "sums of log-scores are compared, as in the paper; dividing by Σp at each step takes away "
        "what α-ReLU gains from scores that sum to more than one."
    ]
    caption = f"{material.outputs.capitalize()} that prefer the empty {output}, %"
    section.blocks = [
        comparison(material, "empty_string", caption, "empty_string", raw, why, 2, more)
    ]


def _output(material: Material) -> str:
    return "string" if material.inflects else "translation"


SECTION = SectionMaker(
    30,
    lambda material: f"Empty {_output(material)}s",
    fill,
    ("SE Table 2",),
    ("empty_string",),
)
