"""Dirty lines: each kind is counted, and no pair is ever torn apart."""

import pytest
from miniature_corpora import text

from data_prep.clean import aligned, clean_rows
from data_prep.prepare import _clean_chunk
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

SPEC = DataSpec.from_mapping({"recipe": "multi30k", "max_words": 5, "max_ratio": 2.0})


def rows(*pairs):
    return [(left.encode(), right.encode()) for left, right in pairs]


def test_what_cannot_be_used_is_dropped_on_both_sides_and_counted():
    dirty = [
        (b"eins", b"one"),
        (b"", b"empty left"),
        (b"leer rechts", b" \t "),
        (b"\xff\xfe kaputt", b"broken"),
        (b"zwei", b"two"),
        (b"a b c d e f", b"a b c d e f"),
        (b"a b c d e", b"a b"),
        (b"drei", b"three"),
    ]
    cleaned = clean_rows(dirty, SPEC, training=True)
    assert cleaned.rows == [("eins", "one"), ("zwei", "two"), ("drei", "three")]
    assert cleaned.dropped == {"empty": 2, "bad UTF-8": 1, "too long": 1, "length ratio": 1}


def test_validation_and_test_sentences_stay_whatever_their_length():
    dirty = rows(("a b c d e f g", "a"), ("", "x"), ("eins", "one"))
    cleaned = clean_rows(dirty, SPEC, training=False)
    assert cleaned.rows == [("a b c d e f g", "a"), ("eins", "one")]
    assert cleaned.dropped == {"empty": 1}


@pytest.mark.parametrize("character", "\r\v\f\x00\x1c\x1d\x1e\x85\u2028\u2029")
def test_line_separators_inside_a_line_do_not_end_it(character):
    cleaned = clean_rows(rows((f"ein{character}Hund", "a dog")), SPEC, training=True)
    assert cleaned.rows == [("ein Hund", "a dog")]
    assert cleaned.repaired == {"control character": 1}
    assert len(cleaned.rows[0][0].splitlines()) == 1


def test_windows_line_ends_and_byte_order_marks_go():
    cleaned = clean_rows(rows(("\ufeffeins\r", "one\r"), ("zwei", "two")), SPEC, training=True)
    assert cleaned.rows == [("eins", "one"), ("zwei", "two")]
    assert cleaned.repaired == {"CR at the end": 1, "byte order mark": 1}


def test_all_white_space_is_one_space():
    cleaned = clean_rows(rows(("a\u00a0b\tc \u3000 d", "a  b c d")), SPEC, training=True)
    assert cleaned.rows == [("a b c d", "a b c d")]
    assert not cleaned.repaired


def test_labels_stay_with_their_pair():
    dirty = [(b"a", b"b", b"english"), (b"", b"c", b"german"), (b"d", b"e", b"french")]
    cleaned = clean_rows(dirty, SPEC, training=True)
    assert cleaned.rows == [("a", "b", "english"), ("d", "e", "french")]


def test_a_chunk_gives_columns_of_equal_length_even_if_all_of_it_is_dropped():
    count, cleaned, columns, _ = _clean_chunk(SPEC, True, rows(("", "x"), ("y", "")))
    assert (count, cleaned.dropped, columns) == (2, {"empty": 2}, [b"", b"", b"", b""])


def test_files_of_unequal_length_are_named_with_their_counts(tmp_path):
    longer, shorter = tmp_path / "train.de", tmp_path / "train.en"
    longer.write_bytes(text("abc"))
    shorter.write_bytes(text("ab"))
    with pytest.raises(UsageError, match="train.de has 3 sentences but .*train.en has 2"):
        list(aligned(longer, shorter))
    with pytest.raises(UsageError, match="train.en has 2 sentences but .*train.de has 3"):
        list(aligned(shorter, longer))


def test_only_newlines_end_lines(tmp_path):
    left, right = tmp_path / "left", tmp_path / "right"
    left.write_bytes("eins\u2028zwei\rdrei\x85vier\nfünf".encode())
    right.write_bytes(b"one two three four\nfive\n")
    pairs = list(aligned(left, right))
    assert [pair[1] for pair in pairs] == [b"one two three four", b"five"]
    assert pairs[1][0] == "fünf".encode()
