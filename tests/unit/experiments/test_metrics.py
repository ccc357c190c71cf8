"""The measures of the CoNLL-SIGMORPHON 2018 shared task; BLEU with its signature."""

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.config import load_config
from experiments.metrics import (
    corpus_scores,
    edit_distance,
    inflection_scores,
    is_tokenised,
    read_languages,
)


def test_means_are_over_languages_and_not_over_words():
    """Three right of four German words and none of one English word: 75 and 0, so 37.5."""
    references = ["h a u s", "h ä u s e r", "g e h t", "g i n g", "d r a w n"]
    hypotheses = ["h a u s", "h ä u s e r", "g e h t", "g e h t e", "d r a w e d"]
    scores = inflection_scores(hypotheses, references, ["german"] * 4 + ["english"])
    assert scores["word_accuracy"] == 37.5
    assert scores["edit_distance"] == 1.5  # 4 of 4 words, and 2 of one
    assert scores["languages"] == {
        "english": {"word_accuracy": 0.0, "edit_distance": 2.0, "examples": 1},
        "german": {"word_accuracy": 75.0, "edit_distance": 1.0, "examples": 4},
    }


def test_a_symbol_of_several_characters_counts_once():
    """An unknown symbol is one symbol."""
    scores = inflection_scores(["a <unk> c"], ["a b c"], ["x"])
    assert scores["edit_distance"] == 1


def test_an_empty_word_misses_all_symbols():
    assert inflection_scores([""], ["a b c"], ["x"])["edit_distance"] == 3


def test_a_missing_word_is_an_error():
    with pytest.raises(ValueError):
        inflection_scores(["a"], ["a", "b"], ["x", "x"])


@pytest.mark.parametrize(
    "one, other, distance",
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("flaw", "lawn", 2), ("a", "a", 0)],
)
def test_edit_distances_known_from_the_literature(one, other, distance):
    assert edit_distance(one, other) == distance


def slow_distance(one, other):
    """The recursive definition."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        slow_distance(one[1:], other) + 1,
        slow_distance(one, other[1:]) + 1,
        slow_distance(one[1:], other[1:]) + (one[0] != other[0]),
    )


words = st.text("abc", max_size=5)


@given(words, words)
def test_edit_distance_is_the_recursive_definitions(one, other):
    assert edit_distance(one, other) == slow_distance(one, other)


def test_languages_are_those_of_the_data(tmp_path):
    run = SimpleNamespace(text=tmp_path, dataset="demo", references=lambda split: ["a b", "c"])
    assert read_languages(run, "valid") == ["demo", "demo"]
    (tmp_path / "valid.language").write_text("english\ngerman\n")
    assert read_languages(run, "valid") == ["english", "german"]


def test_bleu_carries_its_signature():
    scores = corpus_scores(["a b c d e"], ["a b c d e"], "en")
    assert scores["bleu"] == pytest.approx(100)
    assert "tok:13a" in scores["bleu_signature"]


@pytest.mark.parametrize("dataset", ["kftt_en_ja", "kftt_ja_en"])
def test_text_that_came_tokenised_is_scored_by_its_own_words(dataset):
    data = load_config(dataset).data
    assert is_tokenised(data)
    words = "これ は 京都 で ある ."
    scores = corpus_scores([words], [words], data["target"], tokenised=True)
    assert scores["bleu"] == pytest.approx(100)
    assert "tok:none" in scores["bleu_signature"]


def test_raw_text_is_not_taken_for_tokenised():
    assert not is_tokenised(load_config("demo").data)
    pieces = {"tokenizer": "none", "segmentation": "sentencepiece", "operations": 9}
    assert not is_tokenised({**load_config("demo").data, **pieces})


@pytest.mark.parametrize(
    ("language", "text"),
    [("ja", "これは京都である"), ("ko", "이것은 교토다"), ("zh-Hans", "这是京都市")],
)
def test_languages_without_spaces_have_a_score_whatever_is_installed(language, text):
    scores = corpus_scores([text], [text], language)
    assert scores["bleu"] == pytest.approx(100)
    assert re.search(r"tok:(ja-mecab|ko-mecab|char|zh)", scores["bleu_signature"])
