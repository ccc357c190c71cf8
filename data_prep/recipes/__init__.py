"""One module per dataset: where its files are, and which pairs of lines they hold.

A recipe has `DEFAULTS` (its values of a DataSpec), `sources(spec, raw)` (the files it needs) and
`read(spec, files, scratch, dropped)`, which gives for each split the raw pairs of lines, as bytes
and in order, and counts in `dropped` by reason what it leaves out itself. It does not clean or
segment them. `LABELS` names the columns after the first two, where there are any. `official(spec)`
says how many pairs the official files have, by split, where that is known.
"""

import importlib
from types import ModuleType

NAMES = (
    "home_assistant",
    "iwslt14",
    "iwslt14_fairseq",
    "iwslt17",
    "kftt",
    "lefff",
    "multi30k",
    "plain_text",
    "sigmorphon2018",
    "wmt13_en_ru",
    "wmt14_en_de",
    "wmt16_ro_en",
)


def load(name: str) -> ModuleType:
    return importlib.import_module(f"data_prep.recipes.{name}")
