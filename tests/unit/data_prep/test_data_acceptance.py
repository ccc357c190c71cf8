"""What a preparation says, and where it stops, if files are not what they should be."""

import gzip
import json
import shutil

import pytest
from miniature_corpora import sentences, sgml, tagged, tar, write_iwslt14, write_multi30k

from data_prep.acceptance import Presumed, Read, Tolerance, check_damage, check_size
from data_prep.prepare import clean, prepared, start_work
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

ANY_SIZE = Tolerance(any_size=True)
IWSLT14 = DataSpec.from_mapping({"recipe": "iwslt14", "tokenizer": "none"})
MULTI30K = DataSpec.from_mapping({"recipe": "multi30k", "tokenizer": "none"})
SIZES = {"train": 300, "val": 20, "test_2016_flickr": 20}


def cleaned(spec, out, raw, tolerance=ANY_SIZE):
    """The facts about the clean text, as a killed preparation would leave them."""
    work = out / ".work"
    start_work(spec, out, work, raw)
    clean(spec, out, work, raw, 1, tolerance)
    return json.loads((work / "clean" / "facts.json").read_text())


@pytest.mark.parametrize(
    "damaged, bound, outcome",
    [(1, 0.01, ""), (5, 0.01, "WARNING: 5 of 1,000 pairs"), (20, 0.02, "WARNING: 20 of 1,000")],
)
def test_damage_up_to_the_bound_is_said_aloud_from_a_per_mille_on(capsys, damaged, bound, outcome):
    check_damage(Read("train", 1000, 0, {"bad UTF-8": damaged}), Tolerance(bound))
    assert capsys.readouterr().err.startswith(outcome or "\0") == bool(outcome)


def test_damage_beyond_the_bound_is_an_error_that_names_the_flag():
    read = Read("test", 669, 243, {"bad UTF-8": 426})
    with pytest.raises(UsageError, match=r"426 of 669 pairs of test .*--max-damaged 0.637"):
        check_damage(read, Tolerance())
    check_damage(read, Tolerance(0.637))
    with pytest.raises(UsageError, match="--max-damaged must be a share between 0 and 1, not 5"):
        Tolerance(5)


def test_training_data_are_counted_as_read_and_test_sets_as_scored(capsys):
    check_size(Read("train", 100, 90, {}), 100, Tolerance())
    with pytest.raises(UsageError, match="test has 90 pairs, but the official files have 100"):
        check_size(Read("test", 100, 90, {}), 100, Tolerance())
    check_size(Read("test", 100, 90, {}), 100, ANY_SIZE)
    assert (
        capsys.readouterr().err == "WARNING: test has 90 pairs, but the official files have 100\n"
    )


def test_a_number_without_a_source_is_no_error(capsys):
    check_size(Read("valid", 100, 90, {}), Presumed(90), Tolerance())
    assert not capsys.readouterr().err
    check_size(Read("valid", 100, 90, {}), Presumed(100), Tolerance())
    said = "valid has 90 pairs, but the official files have 100, as far as we know"
    assert capsys.readouterr().err == f"WARNING: {said}\n"


def test_a_latin1_file_does_not_pass_for_a_smaller_one(tmp_path):
    raw = write_multi30k(tmp_path / "raw", SIZES)
    german = gzip.decompress((raw / "val.de.gz").read_bytes()).decode()
    assert "ö" in german or "ä" in german or "ß" in german
    (raw / "val.de.gz").write_bytes(gzip.compress(german.encode("latin-1")))
    with pytest.raises(UsageError, match="pairs of valid are damaged .bad UTF-8: .*Latin-1"):
        cleaned(MULTI30K, tmp_path / "out", raw)


def test_official_sizes_are_checked(tmp_path):
    raw = write_multi30k(tmp_path / "raw", SIZES)
    with pytest.raises(UsageError, match="train has 300 pairs, but the official .* 29,000: .*-any"):
        cleaned(MULTI30K, tmp_path / "out", raw, Tolerance())
    assert not (tmp_path / "out" / "raw" / "lock.json").exists()


def test_an_interrupted_preparation_does_not_use_the_files_of_another_archive(tmp_path):
    raw, out = write_iwslt14(tmp_path / "raw"), tmp_path / "out"
    cleaned(IWSLT14, out, raw)
    old = (out / ".work" / "clean" / "train.de").read_text()
    # Killed while it unpacked: what came out of the archive is still there.
    shutil.rmtree(out / ".work" / "clean")
    (out / "raw" / "lock.json").unlink()
    write_iwslt14(raw, pairs=sentences(("de", "en"), 9, seed=8))
    facts = cleaned(IWSLT14, out, raw)
    assert facts["sizes"] == {"train": 9, "valid": 9, "test": 27}
    # Killed after it: clean text of the older archive is not gone on with, either.
    (out / "raw" / "lock.json").unlink()
    write_iwslt14(raw)
    cleaned(IWSLT14, out, raw)
    assert (out / ".work" / "clean" / "train.de").read_text() == old


def test_unpacked_files_belong_to_the_archive_they_came_from(tmp_path):
    """As when kill -9 comes between unpacking and reading."""
    raw, out = write_iwslt14(tmp_path / "raw"), tmp_path / "out"
    broken = {"de": tagged(["a"]), "en": tagged(["a", "b"])}
    members = {f"de-en/train.tags.de-en.{x}": content for x, content in broken.items()}
    sets = ("TED.dev2010", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    for name in sets:
        for language in ("de", "en"):
            members[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = sgml(["x"])
    whole = (raw / "de-en.tgz").read_bytes()
    tar(raw / "de-en.tgz", members)
    with pytest.raises(UsageError, match="has 1 sentences but .* has 2"):
        cleaned(IWSLT14, out, raw)
    assert list((out / ".work" / "unpacked").rglob("train.tags.de-en.de"))
    # What was refused is not pinned: the right archive is taken at once, and nothing of the other.
    (raw / "de-en.tgz").write_bytes(whole)
    assert cleaned(IWSLT14, out, raw)["sizes"]["train"] == 115
    assert "de-en.tgz" in json.loads((out / "raw" / "lock.json").read_text())


def test_a_byte_order_mark_on_one_side_is_repaired_and_counted(tmp_path):
    raw = write_multi30k(tmp_path / "raw", SIZES)
    text = gzip.decompress((raw / "train.de.gz").read_bytes())
    (raw / "train.de.gz").write_bytes(gzip.compress("\ufeff".encode() + text))
    facts = cleaned(MULTI30K, tmp_path / "out", raw)
    assert facts["repaired"] == {"train: byte order mark": 1}
    first = (tmp_path / "out/.work/clean/train.de").read_text().split()[0]
    assert first == text.decode().split()[0]


def test_prepared_data_are_compared_with_the_files_in_raw(tmp_path, capsys):
    raw, out = write_multi30k(tmp_path / "raw", SIZES), tmp_path / "out"
    facts = cleaned(MULTI30K, out, raw)
    record = {"spec": MULTI30K.to_mapping(), "checksums": {}, **facts}
    (out / "data.json").write_text(json.dumps(record))
    assert prepared(MULTI30K, out, raw)["sizes"]["train"] == 300
    assert "is prepared already: --raw was only compared" in capsys.readouterr().err
    write_multi30k(raw, {**SIZES, "val": 21})
    with pytest.raises(UsageError, match="made from another val.de.gz than .*raw: remove its data"):
        prepared(MULTI30K, out, raw)
    assert prepared(MULTI30K, out)["sizes"]["train"] == 300
