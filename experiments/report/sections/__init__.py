"""One function per section of the report: from what was gathered to tables and figures."""

import sys
import traceback
from collections.abc import Callable

from ..gather import Material
from ..parts import Section
from . import lattice, overview, quality, sparsity, training

SECTIONS: tuple[Callable[[Material], Section], ...] = (
    overview.glance,
    quality.bleu,
    quality.empty_string,
    sparsity.support,
    sparsity.exactness,
    sparsity.self_normalization,
    training.tau,
    training.dynamics,
    training.inference_time,
    training.alpha_sweep,
    lattice.lattice,
    sparsity.attention,
    quality.examples,
    quality.human_eval,
    training.energy,
    overview.setting,
    overview.runs,
)


OF_TRANSLATIONS = (quality.human_eval,)  # an inflected word is right or wrong


def build(material: Material) -> list[Section]:
    """All sections; one that cannot be made says so and does not hide the others."""
    shown = [make for make in SECTIONS if not (material.inflects and make in OF_TRANSLATIONS)]
    return [_made(make, material) for make in shown]


def _made(make: Callable[[Material], Section], material: Material) -> Section:
    try:
        return make(material)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        name = make.__name__
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        return Section(
            name, name.replace("_", " ").capitalize(), [], missing=[f"could not be shown: {reason}"]
        )
