"""Every recipe on a miniature of its archives, in the official format and under official names."""

import gzip
import json
import operator
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import miniature_corpora as corpora
import pytest
from miniature_corpora import sentences, text

from data_prep import prepare, recipes
from data_prep.acceptance import Tolerance
from data_prep.download import obtain
from data_prep.prepare import SPLITS, clean
from data_prep.recipes import home_assistant, lefff, wmt13_en_ru, wmt16_ro_en
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

# Miniatures have neither the official sizes, nor so many lines that a damaged one is a per mille.
ANY = Tolerance(damaged=0.5, any_size=True)


def cleaned(folder: Path, raw: Path, **mapping):
    """The clean text of all splits as lists of lines by name, and the facts about it."""
    work = folder / ".work"
    work.mkdir(parents=True)
    clean(DataSpec.from_mapping(mapping), folder, work, raw, jobs=1, tolerance=ANY)
    files = [path for path in (work / "clean").iterdir() if path.name.startswith(SPLITS)]
    texts = {path.name: path.read_text().split("\n")[:-1] for path in files}
    return texts, json.loads((work / "clean" / "facts.json").read_text())


@pytest.fixture
def any_checksum(monkeypatch):
    """Miniatures cannot have the checksums of the real files."""

    def unchecked(source, folder, raw):
        return obtain(replace(source, sha256=None, md5=None), folder, raw)

    monkeypatch.setattr(prepare, "obtain", unchecked)


def test_iwslt14_trains_on_all_talks_and_has_the_official_sets(tmp_path):
    raw = corpora.write_iwslt14(tmp_path / "raw", size=115)
    texts, facts = cleaned(tmp_path / "out", raw, recipe="iwslt14")
    assert facts["sizes"] == {"train": 115, "valid": 3, "test": 9}
    # Titles and addresses of talks are no sentences of theirs.
    assert texts["train.en"] == [pair[1] for pair in sentences(("de", "en"), 115)]
    # dev2010 is the first of the five sets that the miniature has, tst2010 the third.
    assert texts["valid.en"] == [pair[1] for pair in sentences(("de", "en"), 3, seed=1)]
    assert texts["test.en"][:3] == [pair[1] for pair in sentences(("de", "en"), 3, seed=3)]


def test_iwslt14_as_fairseqs_script_splits_it(tmp_path):
    """Titles train, pairs are filtered by tokens before every 23rd of them validates."""
    long = ("ein " * 176, "a " * 176)
    unlike = ("eins zwei drei vier", "one two three four five six seven")
    pairs = [*sentences(("de", "en"), 30), long, unlike, ("It\u2019s", "R&amp;D")]
    raw = corpora.write_iwslt14(tmp_path / "raw", pairs=pairs)
    texts, facts = cleaned(tmp_path / "out", raw, recipe="iwslt14_fairseq")
    kept = [("ein titel", "ein titel"), *(pairs[:30]), ("it\u2019s", "r&d")]
    kept = [tuple(side.lower() for side in pair) for pair in kept]
    assert facts["sizes"] == {"train": 31, "valid": 1, "test": 5 * 33}
    assert texts["test.de"][-1] == "it's"  # the script writes ’ so, in test sets only
    assert list(zip(texts["valid.de"], texts["valid.en"], strict=True)) == [kept[22]]
    train = list(zip(texts["train.de"], texts["train.en"], strict=True))
    assert train == [pair for number, pair in enumerate(kept, 1) if number != 23]
    (reason,) = facts["dropped"]
    assert "ratio" in reason and facts["dropped"][reason] == 2


@pytest.mark.parametrize("recipe", ["iwslt14_fairseq", "sigmorphon2018"])
def test_how_many_rows_will_come_is_known_before(tmp_path, recipe):
    """About how many: the bar's time left is made from it."""
    if recipe == "iwslt14_fairseq":
        raw = corpora.write_iwslt14(tmp_path / "raw", size=115)
    else:
        raw = corpora.write_sigmorphon(tmp_path / "raw", packed=False)
    module, spec = recipes.load(recipe), DataSpec.from_mapping({"recipe": recipe})
    files = {s.name: obtain(s, tmp_path / "out", raw)[0] for s in module.sources(spec, raw)}
    splits = module.read(spec, files, tmp_path / "scratch", Counter())
    for split in ("train", "valid"):
        assert operator.length_hint(splits[split]) == pytest.approx(len([*splits[split]]), rel=0.1)


def test_iwslt14_in_the_other_direction_swaps_the_sides(tmp_path):
    raw = corpora.write_iwslt14(tmp_path / "raw")
    texts, _ = cleaned(tmp_path / "out", raw, recipe="iwslt14", source="en", target="de")
    assert texts["train.de"][0] == sentences(("de", "en"), 115)[0][0]
    with pytest.raises(UsageError, match="iwslt14 has de and en, not fr and en"):
        cleaned(tmp_path / "fr", raw, recipe="iwslt14", source="fr")


def test_iwslt17_takes_its_references_from_the_other_direction(tmp_path, any_checksum):
    train, valid, test = (sentences(("de", "en"), size, seed=size) for size in (20, 3, 4))
    raw = corpora.write_iwslt17(tmp_path / "raw", train, valid, test)
    texts, facts = cleaned(tmp_path / "out", raw, recipe="iwslt17", source="en", target="de")
    assert facts["sizes"] == {"train": 20, "valid": 21, "test": 4}
    assert list(zip(texts["test.de"], texts["test.en"], strict=True)) == test
    assert list(zip(texts["train.de"], texts["train.en"], strict=True)) == train


def test_kftt_takes_the_publishers_tokens(tmp_path):
    train, valid, test = (sentences(("ja", "en"), size) for size in (20, 3, 4))
    train[0] = ("犬 \u3000 猫", "dog cat")
    raw = corpora.write_kftt(tmp_path / "raw", train, valid, test)
    texts, facts = cleaned(tmp_path / "out", raw, recipe="kftt")
    assert facts["sizes"] == {"train": 20, "valid": 3, "test": 4}
    assert texts["train.tokens.ja"] == texts["train.ja"]
    # A token that is an ideographic space stays one: fairseq would take it for white space.
    assert texts["train.ja"][0].split() == ["犬", "▁", "猫"]


def test_wmt14_joins_three_corpora_and_reads_sgml(tmp_path, any_checksum):
    languages = ("en", "de")
    parts = [sentences(languages, 5, seed=n) for n in range(3)]
    tests = [("Tom & Jerry said <so>", "Tom & Jerry sagten <so>"), *sentences(languages, 2)]
    raw = corpora.write_wmt14(tmp_path / "raw", parts, tests, tests)
    texts, facts = cleaned(tmp_path / "out", raw, recipe="wmt14_en_de")
    assert facts["sizes"] == {"train": 15, "valid": 3, "test": 3}
    found = list(zip(texts["train.en"], texts["train.de"], strict=True))
    assert found == [pair for part in parts for pair in part]
    assert list(zip(texts["test.en"], texts["test.de"], strict=True)) == tests


def test_wmt13_turns_the_headlines_round(tmp_path, any_checksum, capsys):
    parts = [sentences(("en", "ru"), 4, seed) for seed in range(4)]
    titles = text(["Москва ||| Moscow", "Лена", "Красная река ||| Red river"])
    raw = corpora.write_wmt13(tmp_path / "raw", parts[:2], parts[2], parts[3], titles)
    texts, facts = cleaned(tmp_path / "out", raw, recipe="wmt13_en_ru")
    assert facts["sizes"] == {"train": 10, "valid": 4, "test": 4}
    assert (texts["train.en"][-1], texts["train.ru"][-1]) == ("Red river", "Красная река")
    assert facts["dropped"] == {"wiki.ru-en: not two columns": 1}
    log = capsys.readouterr().err
    assert "dropped 1 entries of the raw files: wiki.ru-en: not two columns\n" in log
    assert "WARNING: 1 of 10 pairs of train are damaged" in log
    assert wmt13_en_ru.HEADLINES.name in [entry["name"] for entry in facts["sources"]]


@pytest.mark.parametrize("corpus", ["SETIMES", "SETIMES2"])
def test_wmt16_takes_diacritics_off_romanian_text_alone(tmp_path, any_checksum, corpus):
    pairs = [("Țara și câinele înăuntru", "Zoë in a café"), *sentences(("ro", "en"), 4)]
    pairs.append(("s\u0326i t\u0326ara", "and the country"))
    raw = corpora.write_wmt16(tmp_path / "raw", pairs, corpus)
    texts, facts = cleaned(tmp_path / "out", raw, recipe="wmt16_ro_en")
    assert facts["sizes"] == {"train": 12, "valid": 6, "test": 6}
    assert texts["train.ro"][0] == "Tara si cainele inauntru"
    assert texts["test.ro"][5] == "si tara"
    assert all(
        line.isascii() for name in ("train", "valid", "test") for line in texts[f"{name}.ro"]
    )
    assert texts["train.en"][0] == "Zoë in a café"
    assert wmt16_ro_en.SETIMES.name in [entry["name"] for entry in facts["sources"]]


def test_multi30k_reads_compressed_and_plain_files(tmp_path):
    raw = corpora.write_multi30k(tmp_path / "raw", {"train": 20, "val": 3, "test_2016_flickr": 4})
    packed = raw / "val.en.gz"
    (raw / "val.en").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    texts, facts = cleaned(tmp_path / "out", raw, recipe="multi30k")
    assert facts["sizes"] == {"train": 20, "valid": 3, "test": 4}
    assert texts["valid.en"] == [pair[1] for pair in sentences(("de", "en"), 3, seed=1)]
    assert {entry["name"]: entry["lines"] for entry in facts["sources"]}["val.en"] == 3
    with pytest.raises(UsageError, match="multi30k has cs, de, en, fr, not 'it'"):
        cleaned(tmp_path / "it", raw, recipe="multi30k", target="it")


@pytest.mark.parametrize("packed", [True, False])
def test_sigmorphon_puts_all_languages_into_one_set(tmp_path, packed):
    raw = corpora.write_sigmorphon(tmp_path / "raw", packed)
    texts, facts = cleaned(tmp_path / "out", raw, recipe="sigmorphon2018")
    assert facts["sizes"] == {"train": 4, "valid": 4, "test": 4}
    # S2S §4.1: language, tags and characters of the lemma; a space in a form is a symbol.
    finnish = "[finnish] [V] [ACT] [PST] [2] [PL] t a s a t a"
    assert texts["train.src"][0] == finnish
    assert texts["train.tgt"][0] == "e t t e ▁ t a s a n n e e t"
    assert texts["test.language"] == ["finnish", "english", "english", "german"]
    assert texts["train.tokens.src"] == texts["train.src"]


def test_sigmorphon_languages_and_settings(tmp_path):
    raw = corpora.write_sigmorphon(tmp_path / "raw", packed=False)
    english, _ = cleaned(
        tmp_path / "a", raw, recipe="sigmorphon2018", languages=["german", "english"]
    )
    assert english["valid.language"] == ["english", "english", "german"]
    # Kashubian has no high data: it is neither trained nor tested on in that setting.
    medium, _ = cleaned(tmp_path / "b", raw, recipe="sigmorphon2018", setting="medium")
    assert "kashubian" in medium["test.language"]
    with pytest.raises(UsageError, match="no high data for 'kashubian'; there are english, fi"):
        cleaned(tmp_path / "c", raw, recipe="sigmorphon2018", languages="kashubian")


def test_sigmorphon_files_that_are_not_there(tmp_path):
    raw = corpora.write_sigmorphon(tmp_path / "raw", packed=False)
    with pytest.raises(
        UsageError, match="task1 has neither conll2018-master.zip nor the directory"
    ):
        cleaned(tmp_path / "a", raw / "task1", recipe="sigmorphon2018")
    (german,) = raw.glob("task1/*/german-test")
    german.write_text("\n")
    with pytest.raises(UsageError, match="german-test has no examples"):
        cleaned(tmp_path / "b", raw, recipe="sigmorphon2018")
    for path in raw.glob("task1/*/*-train-high"):
        path.unlink()
    with pytest.raises(UsageError, match=r"has no files task1/\*/\*-train-high"):
        cleaned(tmp_path / "c", raw, recipe="sigmorphon2018", languages="german")


def test_lefff_splits_by_verb_and_leaves_out_forms_that_have_a_rival(
    tmp_path, any_checksum, capsys
):
    lines = [
        "le\tdet\tle\tms",
        "payer\tv\tpayer\tW",
        "paie\tv\tpayer\tPS13s",
        "paye\tv\tpayer\tPS13s",
    ]
    verbs = [a + b + c + "er" for a in "bcdfglm" for b in "aeiou" for c in ("rl", "nt", "ss")]
    for verb in verbs:
        lines += [f"{verb}a\tv\t{verb}\tF3s", f"{verb}ai\tv\t{verb}\tF1s", f"{verb}\tv\t{verb}\tW"]
    corpora.write_lefff(tmp_path / "raw", lines)
    sizes = {"valid": 10, "test": 10, "train": 50}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lefff, "SIZES", sizes)
        texts, facts = cleaned(tmp_path / "out", tmp_path / "raw", recipe="lefff")
    assert facts["sizes"] == sizes
    lemmas = {s: {line.split("] ")[-1] for line in texts[f"{s}.src"]} for s in sizes}
    assert not lemmas["train"] & lemmas["valid"]
    assert not lemmas["train"] & lemmas["test"]
    assert not lemmas["valid"] & lemmas["test"]
    assert texts["train.src"][0].startswith(("[v] [F] [1] [s] ", "[v] [F] [3] [s] "))
    assert facts["dropped"]["more than one form"] == 2
    assert "dropped 2 entries of the raw files: more than one form\n" in capsys.readouterr().err
    assert not any("p a y" in line for line in texts["train.src"])


SHARED = Path(os.environ.get("SPARSE_FAIRSEQ_DATA", "nowhere"))


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs real data in SPARSE_FAIRSEQ_DATA")
def test_real_files_give_the_sizes_that_their_publishers_state(tmp_path):
    multi30k = {"recipe": "multi30k", "tokenizer": "none"}
    _, facts = cleaned(tmp_path / "a", SHARED / "multi30k_de_en", **multi30k)
    assert facts["sizes"] == {"train": 29_000, "valid": 1_014, "test": 1_000}
    assert not facts["dropped"]
    inflection = {"recipe": "sigmorphon2018", "languages": "english german", "setting": "medium"}
    texts, facts = cleaned(tmp_path / "b", SHARED / "sigmorphon2018", **inflection)
    assert facts["sizes"] == {"train": 2_000, "valid": 2_000, "test": 2_000}
    assert texts["test.language"] == ["english"] * 1_000 + ["german"] * 1_000


# Home Assistant


def test_home_assistant_pairs_strings_by_key_and_filters_them(tmp_path, any_checksum):
    german = {"a": {"x": "Ein guter Satz", "y": "Zurück zu {name}"}, "b": "Ja", "d": "Nur hier da"}
    english = {"a": {"x": "A good sentence", "y": "Back to {name}"}, "b": "Yes", "c": "Only here"}
    more = {f"k{n}": f"Satz Nummer {chr(97 + n)} heute" for n in range(26)}
    other = {f"k{n}": f"Sentence number {chr(97 + n)} today" for n in range(26)}
    bad = {
        "url": "Siehe https://x.org dort",
        "mark": "Drücke **OK** nun",
        "code": "Setze `x` hier",
        "same": "Home Assistant Cloud",
        "long": "wort " * 21,
        "word": "Lichtschalter",
    }
    bad_english = {**{key: f"an english {key} text" for key in bad}, "same": bad["same"]}
    bad_english["word"] = "Light switch"
    raw = corpora.write_home_assistant(
        tmp_path / "raw",
        {
            "hue": {"de": german, "en": english, "fr": {}},
            "zwave": {"de": {**german, **more}, "en": {**english, **other}},
            "third": {"de": bad, "en": bad_english},
        },
    )
    texts, facts = cleaned(tmp_path / "out", raw, recipe="home_assistant")
    pairs = {
        (left, right)
        for split in SPLITS
        for left, right in zip(texts[f"{split}.de"], texts[f"{split}.en"], strict=True)
    }
    assert ("Ein guter Satz", "A good sentence") in pairs
    # A compound is one word in German and two in English: the longer side counts.
    assert ("Lichtschalter", "Light switch") in pairs
    assert len(pairs) == sum(facts["sizes"].values()) == 28
    assert facts["dropped"] == {
        "placeholder, address or mark-up": 5,
        "repeated": 1,
        "too short": 2,
        "not translated": 1,
        "too long": 1,
    }
    with pytest.raises(UsageError, match="no language 'xx'; it has de, en, fr"):
        cleaned(tmp_path / "xx", raw, recipe="home_assistant", source="xx")


def test_no_string_of_valid_or_test_has_a_twin_in_training():
    pairs = [(f"Taste {n} gedrückt", f"Button {n} pressed") for n in range(40)]
    pairs += [(f"Der {a} ist {b}", f"The {a} is {b}") for a in "abcdefghij" for b in "klmnopqrst"]
    # The same German for two English strings, and the other way round; case alone.
    pairs += [("Der a ist k", "It is k"), ("Es ist l", "The a is l"), ("DER B IST M", "B is M")]
    rows = home_assistant.split(pairs, seed=1)
    assert [len(rows[split]) for split in ("valid", "test")] == [14, 14]
    forms = {
        split: {home_assistant.normal_form(side.decode()) for row in found for side in row}
        for split, found in rows.items()
    }
    assert not forms["train"] & forms["valid"]
    assert not forms["train"] & forms["test"]
    assert not forms["valid"] & forms["test"]
    # All 40 buttons are one string after replacing digits; so many stay in training.
    assert sum(row[1].startswith(b"Button") for row in rows["train"]) == 40
    assert sorted(row for found in rows.values() for row in found) == sorted(
        tuple(side.encode() for side in pair) for pair in pairs
    )


def test_the_split_depends_on_the_seed_and_not_on_the_order():
    pairs = [(f"Satz {a} {b}", f"Sentence {a} {b}") for a in "abcdefgh" for b in "klmnopqr"]
    first = home_assistant.split(pairs, seed=1)
    again = home_assistant.split(pairs[::-1], seed=1)
    assert {k: sorted(v) for k, v in first.items()} == {k: sorted(v) for k, v in again.items()}
    assert sorted(home_assistant.split(pairs, seed=2)["test"]) != sorted(first["test"])
