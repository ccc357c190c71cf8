"""Files of one's own: every form they may have, what is held out, and one line for bad ones."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from data_prep import segmentation
from data_prep.held_out import held_out, normal_form, split
from data_prep.recipes import plain_text
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

PAIRS = [(f"Satz {a}{b}", f"Sentence {a}{b}") for a in "abcdefghij" for b in "klmnopqrst"]


def write(path: Path, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def write_pairs(folder: Path, name: str, pairs=PAIRS, suffix: str = "") -> str:
    for language, side in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
        write(folder / f"{name}.{language}{suffix}", side)
    return str(folder / name)


def read(**files: str) -> dict[str, list[tuple[str, ...]]]:
    spec = DataSpec.from_mapping({"recipe": "plain_text", "source": "de", "target": "en", **files})
    sources = plain_text.sources(spec, None)
    found = plain_text.read(spec, {x.name: x.path for x in sources}, Path(), Counter())
    return {name: [tuple(side.decode() for side in row) for row in found[name]] for name in found}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_two_files_for_each_set(tmp_path, suffix):
    train = write_pairs(tmp_path, "train", suffix=suffix)
    valid = write_pairs(tmp_path, "dev", PAIRS[:5], suffix)
    test = write_pairs(tmp_path, "test", PAIRS[5:7], suffix)
    found = read(train=train, valid=valid, test=test)
    assert found == {"train": PAIRS, "valid": PAIRS[:5], "test": PAIRS[5:7]}


@pytest.mark.parametrize("name", ["all.tsv", "all.tsv.gz"])
def test_one_tab_separated_file(tmp_path, name):
    write(tmp_path / name, ["\t".join(pair) for pair in PAIRS])
    found = read(train=str(tmp_path / name))
    assert {name: len(rows) for name, rows in found.items()} == {
        **{"train": 80, "valid": 10, "test": 10}
    }
    assert sorted(row for rows in found.values() for row in rows) == sorted(PAIRS)


def test_only_the_missing_set_is_held_out(tmp_path):
    train, test = write_pairs(tmp_path, "train"), write_pairs(tmp_path, "test", PAIRS[:5])
    found = read(train=train, test=test)
    assert found["test"] == PAIRS[:5]
    assert (len(found["train"]), len(found["valid"])) == (90, 10)
    assert found == read(train=train, test=test)  # the seed decides, nothing else
    assert found["valid"] != read(train=train, test=test, seed=2)["valid"]


def test_no_held_out_sentence_has_a_twin_in_training():
    # One group of 40; chains through either side; case alone.
    pairs = [(f"Taste {n} gedrückt", f"Button {n} pressed") for n in range(40)]
    pairs += [*PAIRS, ("Satz ak", "It is k"), ("Es ist l", "It is k"), ("SATZ AM", "a is m")]
    rows = [tuple(side.encode() for side in pair) for pair in pairs]
    taken = held_out(rows, {"valid": 24, "test": 24}, seed=3)
    found = {name: [*split(rows, taken, name)] for name in ("train", "valid", "test")}
    assert sorted(row for part in found.values() for row in part) == sorted(rows)
    forms = {
        name: {(i, normal_form(side.decode())) for row in part for i, side in enumerate(row)}
        for name, part in found.items()
    }
    assert not forms["train"] & forms["valid"]
    assert not forms["train"] & forms["test"]
    assert not forms["valid"] & forms["test"]
    assert 20 <= len(found["valid"]) <= 24 and 20 <= len(found["test"]) <= 24
    assert sum(row[1].startswith(b"Button") for row in found["train"]) == 40


def breaks(folder: Path, what: str) -> None:
    """Turns the good files train.de and train.en of a folder into bad ones."""
    german = folder / "train.de"
    content = german.read_bytes()
    if what == "one side":
        german.unlink()
    elif what == "no side":
        german.unlink(), (folder / "train.en").unlink()
    elif what == "unequal":
        german.write_bytes(content + b"noch einer\n")
    elif what == "empty":
        german.write_bytes(b"")
    elif what == "utf-16":
        german.write_text(content.decode(), encoding="utf-16")
    elif what == "latin-1":
        german.write_text("Größe\n" * len(PAIRS), encoding="latin-1")
    elif what == "binary":
        german.write_bytes(b"\x7fELF\x00\x01\n" * len(PAIRS))
    elif what == "gzip":
        german.unlink()
        (folder / "train.de.gz").write_bytes(gzip.compress(content * 50)[:-40])
    elif what == "few":
        write_pairs(folder, "train", PAIRS[:7])


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("one side", r"train: .*train.en is there, but there is no .*train.de \(nor .gz of it\)"),
        ("no side", r"train: there is no .*train.de and no .*train.en \(nor .gz of it\)"),
        ("unequal", "train.de has 101 sentences but .*train.en has 100"),
        ("empty", "train.de is empty"),
        ("utf-16", "train.de is in UTF-16, not in UTF-8: iconv -f UTF-16"),
        ("latin-1", "train.de is not in UTF-8 .line 1 is the first of 100 .*iconv -f LATIN1"),
        ("binary", "train.de is not text: line 1 has a zero byte"),
        ("gzip", "train.de.gz is truncated or damaged"),
        ("few", "train has 7 pairs, too few to hold out valid and test"),
    ],
)
def test_bad_files_are_one_line_each(tmp_path, what, says):
    train = write_pairs(tmp_path, "train", PAIRS[:100])
    breaks(tmp_path, what)
    with pytest.raises(UsageError, match=says) as error:
        read(train=train)
    assert "\n" not in str(error.value)


def test_a_row_without_two_columns_names_its_line(tmp_path):
    write(tmp_path / "all.tsv", ["\t".join(pair) for pair in PAIRS] + ["a\tb\tc"])
    with pytest.raises(UsageError, match="all.tsv: line 101 has 3 columns: two are needed"):
        read(train=str(tmp_path / "all.tsv"))


def test_own_files_need_a_name_for_the_training_set():
    with pytest.raises(UsageError, match="plain_text needs train"):
        read()


@pytest.mark.parametrize(
    ("language", "tokenizer", "says"),
    [
        ("de", "moses", None),
        ("xx", "none", None),
        ("xx", "moses", "no rules for 'xx': it is tokenised with those of English"),
        ("ja", "moses", "'ja' is written without spaces"),
    ],
)
def test_languages_that_moses_does_not_know(language, tokenizer, says):
    spec = DataSpec.from_mapping(
        {"recipe": "plain_text", "source": language, "target": "en", "tokenizer": tokenizer}
    )
    note = segmentation.tokenizer_note(spec, language)
    assert (note is None) if says is None else (says in note)
