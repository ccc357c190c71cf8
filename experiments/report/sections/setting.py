"""What else a paper says of a dataset and its models, beside what holds here."""

import re
from typing import Any

from ...papers import flag_of, published
from ..comparison import triple
from ..gather import Material
from ..parts import (
    Cell,
    Section,
    Table,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    paper = material.config.paper if material.config else None
    if paper is None:
        section.missing = [f"no paper has {material.dataset}; its setting is in its config"]
        return
    shown = _shown_elsewhere()
    numbers = [
        n
        for n in published()
        if n.dataset in (None, material.dataset, material.target)
        and n.place.startswith(f"{paper} ")
        and n.metric not in shown
    ]
    known = _known(material)
    rows = []
    for printed in numbers:
        value = known.get(printed.metric)
        here = (value, None, 1) if isinstance(value, int | float) else None
        title = printed.metric.replace("_", " ")
        note = printed.unit if printed.unit != title else None
        digits = _digits(printed.value, value)
        cells = triple(material, printed, here, digits, _why_unknown(material, printed.metric))
        rows.append([Cell(title, title, note=note), *cells])
    section.places = list(dict.fromkeys(number.place for number in numbers))
    section.reading = ["What else the paper says about this dataset and its models."]
    columns = ["Quantity", "Paper", "Here", "Difference"]
    section.blocks = [Table("setting", "Published settings", columns, rows)]


def _shown_elsewhere() -> set[str]:
    from . import section_makers  # it imports this file

    return {metric for maker in section_makers() for metric in maker.metrics}


def _why_unknown(material: Material, metric: str) -> str:
    arch = material.config.train.get("arch")
    return f"as --arch {arch} has it" if flag_of(metric) and arch else "not known"


def _digits(*values: Any) -> int:
    numbers = [value for value in values if isinstance(value, int | float)]
    return min(6, max((len(f"{v:.6g}".partition(".")[2]) for v in numbers), default=0))


def _known(material: Material) -> dict[str, Any]:
    """What is known here of the quantities that papers publish."""
    config, data = material.config, material.data
    flags = {**config.softmax, **config.train, **config.generate}
    metrics = {number.metric for number in published()}
    known = {metric: flags.get(flag) for metric in metrics if (flag := flag_of(metric))}
    known["label_smoothing"] = flags.get("label-smoothing", 0.0)  # no criterion smooths by itself
    known["training_pairs"] = (data.get("sizes") or {}).get("train")
    known["bpe_merges"] = config.data.get("operations")
    known["vocabulary"] = next(
        (result["vocabulary"] for result in material.first_results("support").values()), None
    )
    known["batch_tokens"], known["batch_size"] = config.batch.tokens, config.batch.sentences
    known["accumulation"] = config.batch.accumulate
    known["runs"] = max((len(material.runs_of(x)) for x in material.systems), default=0)
    betas = re.findall(r"[\d.]+", str(flags.get("adam-betas", "")))
    if len(betas) == 2:
        known["adam_beta1"], known["adam_beta2"] = map(float, betas)
    by_epochs = flags.get("validate-interval")
    known["validation_interval"] = flags.get("validate-interval-updates", by_epochs)
    if languages := material.language_count:
        known["languages"], pairs = languages, known["training_pairs"]
        known["training_samples_per_language"] = pairs and pairs / languages
    return known


SECTION = SectionMaker(160, "Setting", fill, command="")
