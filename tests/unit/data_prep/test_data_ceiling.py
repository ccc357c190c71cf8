"""References must be reachable: what the tokeniser makes of them must give them back.

Each recipe reads, cleans and tokenises a miniature whose references have the punctuation of real
ones. A system that wrote exactly the tokens it was trained on would score the ceiling.
"""

import html
import itertools
import json
from dataclasses import replace
from pathlib import Path

import miniature_corpora as corpora
import pytest
from miniature_corpora import sentences, text

from data_prep import prepare, recipes, segmentation
from data_prep.acceptance import Tolerance
from data_prep.ceiling import ceiling
from data_prep.download import obtain
from data_prep.recipes import lefff
from data_prep.spec import DataSpec

# By language, as newspapers and talks write, as far as Moses' detokeniser knows where spaces were
# (it does not with « », ” before a comma, or ’ within a word).
PUNCTUATION = {
    "de": [
        "„Das ist – so sagt man – billiger“, sagte er.",
        "Die EU-Kommission (Brüssel) prüft das: „Ja oder nein?“",
        "Es kostet 12.500 Euro!",
    ],
    "en": [
        "It's – they say – 3.5% cheaper, isn't it?",
        "The well-known (and U.S.-based) firm's profit: $4.5 million.",
        'He said: "Tom & Jerry <live>".',
    ],
    "ru": [
        "Это – из-за какого-то (Москва) – дешевле: 12,5 рубля!",
        "Предложение без ничего.",
        "Слово — серебро, молчание — золото.",
    ],
    "ro": [
        "Este – zice-se – mai ieftin, nu-i asa?",
        "S-a dus intr-o zi (luni) la S.U.A.",
        "„Da“ sau nu.",
    ],
}


def pairs(source: str, target: str, start: int = 0) -> list[tuple[str, str]]:
    """Every pair has real punctuation on both sides."""
    lines = [[f"{line} {start + n}" for n, line in enumerate(PUNCTUATION[source] * 4)]]
    lines += [[f"{line} {start + n}" for n, line in enumerate(PUNCTUATION[target] * 4)]]
    return list(zip(*lines, strict=False))


def write_raw(recipe: str, raw: Path) -> Path:
    de_en, en_de = pairs("de", "en"), pairs("en", "de")
    en_ru, ro_en = pairs("en", "ru"), pairs("ro", "en")
    if recipe in ("iwslt14", "iwslt14_fairseq"):
        return corpora.write_iwslt14(raw, pairs=de_en * 4)
    if recipe == "iwslt17":
        return corpora.write_iwslt17(raw, de_en, de_en, de_en)
    if recipe == "kftt":
        ja_en = sentences(("ja", "en"), 20)
        return corpora.write_kftt(raw, ja_en, ja_en, ja_en)
    if recipe == "wmt14_en_de":
        return corpora.write_wmt14(raw, [en_de] * 3, en_de, en_de)
    if recipe == "wmt13_en_ru":
        return corpora.write_wmt13(raw, [en_ru] * 2, en_ru, en_ru, text(["Дом ||| House"]))
    if recipe == "wmt16_ro_en":
        return corpora.write_wmt16(raw, ro_en)
    if recipe == "multi30k":
        return corpora.write_multi30k(raw, {"train": 20, "val": 20, "test_2016_flickr": 20})
    if recipe == "sigmorphon2018":
        return corpora.write_sigmorphon(raw, packed=False)
    if recipe == "lefff":
        verbs = [a + b + c + "er" for a in "bcdfglm" for b in "aeiou" for c in ("rl", "nt")]
        return corpora.write_lefff(raw, [f"{verb}a\tv\t{verb}\tF3s" for verb in verbs])
    if recipe == "home_assistant":
        # Strings that differ in numbers only would all be kept in training.
        letters = ["".join(pair) for pair in itertools.product("abcdefgh", "klmnop")]
        strings = [
            {f"k{x}": f"{PUNCTUATION[lang][n % 2]} {x}" for n, x in enumerate(letters)}
            for lang in ("de", "en")
        ]
        return corpora.write_home_assistant(
            raw, {"hue": dict(zip(("de", "en"), strings, strict=True))}
        )
    if recipe == "plain_text":
        for column, language in enumerate(("de", "en")):
            (raw.parent / f"mine.{language}").write_bytes(text(pair[column] for pair in de_en * 4))
        return raw.parent
    raise AssertionError(f"{recipe} has no miniature: give it one")


def cleaned(folder: Path, recipe: str, monkeypatch) -> tuple[DataSpec, Path]:
    """The spec, and the clean and tokenised text of a miniature."""
    monkeypatch.setattr(
        prepare, "obtain", lambda s, *where: obtain(replace(s, sha256=None, md5=None), *where)
    )
    monkeypatch.setattr(lefff, "SIZES", {"valid": 5, "test": 5, "train": 20})
    raw, work = write_raw(recipe, folder / "raw"), folder / "out" / ".work"
    work.mkdir(parents=True)
    own = {"source": "de", "target": "en", **dict.fromkeys(prepare.SPLITS, str(folder / "mine"))}
    spec = DataSpec.from_mapping({"recipe": recipe, **(own if recipe == "plain_text" else {})})
    prepare.clean(spec, folder / "out", work, raw, 1, Tolerance(any_size=True))
    return spec, work / "clean"


@pytest.mark.parametrize("recipe", recipes.NAMES)
def test_the_references_of_every_recipe_are_reachable(tmp_path, recipe, monkeypatch):
    spec, clean = cleaned(tmp_path, recipe, monkeypatch)
    found = json.loads((clean / "facts.json").read_text())["ceiling"]
    # Where text is not tokenised, tokens are the text.
    best = None if spec.tokenizer == "none" else 100.0
    assert found == {"valid": best, "test": best}
    for split in ("valid", "test"):
        references = (clean / f"{split}.{spec.target}").read_text()
        tokens = (clean / f"{split}.tokens.{spec.target}").read_text()
        assert "".join(map(written, tokens.split())) == "".join(references.split())


def written(token: str) -> str:
    """A token of Moses as it is written in text."""
    return html.unescape("-" if token == "@-@" else token)


def test_references_that_keep_what_training_loses_are_noticed(tmp_path):
    """Punctuation that is normalised for the model only, as it once was for WMT'14."""
    spec = DataSpec.from_mapping({"recipe": "wmt14_en_de", "normalise": True})
    normalise, tokenise = segmentation.normaliser(spec, "de"), segmentation.tokenizer(spec, "de")
    references = PUNCTUATION["de"]
    (tmp_path / "test.de").write_bytes(text(references))
    (tmp_path / "all.de").write_bytes(text(map(normalise, references)))
    for split in ("test", "all"):
        tokens = [tokenise(normalise(line)) for line in references]
        (tmp_path / f"{split}.tokens.de").write_bytes(text(tokens))
    assert ceiling(spec, tmp_path, "all") == 100
    assert ceiling(spec, tmp_path, "test") < 80
