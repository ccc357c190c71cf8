"""What the page is told, on tables whose supports are known."""

from pathlib import Path

import pytest
from explore_tables import HOUSES, LAUGHTER, predictor_of, softmax_houses

from experiments.explore import answers
from experiments.explore.predictor import NotPossible
from experiments.explore.units import Language


@pytest.fixture(scope="module")
def predictor():
    return predictor_of(HOUSES)


def test_translation_says_how_many_words_were_possible(predictor):
    found = answers.translation(predictor, "the house", [])
    assert found["text"] == "the house"
    first, second = found["words"]
    assert (first["score"], first["possible"], first["only"]) == (pytest.approx(0.7), 3, False)
    assert (second["score"], second["possible"]) == (pytest.approx(0.65), 3)
    assert (found["end"]["possible"], found["end"]["only"]) == (2, False)


def test_words_without_a_choice_are_marked(predictor):
    found = answers.translation(predictor, "the house", ["the", "green"])
    assert [word["only"] for word in found["words"]] == [False, False, True]
    assert [word["given"] for word in found["words"]] == [True, True, False]
    # Only two translations begin so: the search has seen both.
    assert found["proof"]["best"] and not found["proof"]["forced"]


def test_rest_is_translated_after_ones_own_words(predictor):
    found = answers.translation(predictor, "the house", ["the"], typed="green")
    assert found["text"] == "the green house"


def test_impossible_word_is_named_and_gone_on_from(predictor):
    found = answers.translation(predictor, "the house", ["green", "the", "green"])
    assert [word["impossible"] for word in found["words"]] == [True, True, False, False]
    assert found["text"] == "green the green house"
    assert found["words"][0]["score"] == 0
    assert not found["proof"]["forced"]


def test_unknown_word_is_named_and_gone_on_from(predictor):
    found = answers.translation(predictor, "the zebra house", [], typed="zebra")
    assert [word["unknown"] for word in found["source"]] == [False, True, False]
    zebra = found["words"][0]
    assert zebra["unknown"] and zebra["text"] == "zebra"
    assert found["text"].startswith("zebra the ")


@pytest.mark.parametrize("name", ["</s>", "<pad>", "<s>"])
def test_who_writes_a_special_symbol_means_its_letters(predictor, name):
    found = answers.translation(predictor, name, [name])
    assert found["source"] == [{"text": name, "unknown": True}]
    assert found["words"][0]["unknown"]


def test_end_is_a_choice(predictor):
    found = answers.translation(predictor, "the house", ["the", "green"], end=True)
    assert found["text"] == "the green"
    assert found["end"]["impossible"] and found["proof"] is None


def test_attention_is_given_to_source_words(predictor):
    found = answers.translation(predictor, "the green house", ["the", "green", "house"])
    assert found["attention"] == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_alternatives_hold_all_of_the_probability_or_say_how_much(predictor):
    sparse = answers.alternatives(predictor, "the house", ["the"])
    assert sparse["complete"] and sparse["count"] == 3
    assert sum(item["score"] for item in sparse["items"]) == pytest.approx(1)
    dense = answers.alternatives(softmax_houses(), "the house", ["the"])
    assert not dense["complete"] and dense["others_share"] > 0
    shown = sum(item["score"] for item in dense["items"]) / dense["mass"]
    assert shown + dense["others_share"] == pytest.approx(1)


def test_words_and_beginnings_come_in_one_list_that_can_be_read_on(monkeypatch):
    monkeypatch.setattr(answers, "LISTED", 2)
    predictor = predictor_of(LAUGHTER)
    first = answers.alternatives(predictor, "ha", [])
    rest = [answers.alternatives(predictor, "ha", [], skip=skip)["items"] for skip in (2, 4, 20)]
    items = [*first["items"], *rest[0], *rest[1]]
    assert [item["name"] for item in items] == ["the", *("ha" * n for n in range(2, 7))]
    assert rest[-1] == []
    whole = first["count"] + first["beginnings"]
    last = answers.alternatives(predictor, "ha", [], skip=whole - 1)["items"][0]
    assert last["beginning"] and last["longest"] and not first["more"]


@pytest.mark.parametrize(
    ("names", "typed", "letters", "candidates", "ahead"),
    [
        ([], "", "", ["the", "house", "houses"], []),
        ([], "t", "t", ["the"], ["the"]),
        ([], "the gr", "gr", ["green"], ["green", "house"]),
        ([], "the green ", "", ["house"], ["house"]),
        (["the"], " ", "", ["house", "green", "houses"], []),
        (["the"], "", "the", ["the"], ["the"]),
        (["the", "houses"], " ", "", [None], [None]),
        ([], "xyz", "xyz", [], []),
    ],
)
def test_suggestions(predictor, names, typed, letters, candidates, ahead):
    found = answers.suggestions(predictor, "the house", names, typed)
    assert found["letters"] == letters
    assert [word["name"] for word in found["candidates"]] == candidates
    assert found["complete"]
    assert [word["name"] for word in found["ahead"]] == ahead


def test_suggestions_insert_spaces_where_the_language_has_them(predictor):
    found = answers.suggestions(predictor, "the house", [], "the gr")
    assert [word["insert"] for word in found["ahead"]] == [" green", " house"]


def test_empty_and_too_long_sentences_are_refused(predictor):
    for text in ("", "  \n\t", "\u2028"):
        with pytest.raises(NotPossible, match="empty"):
            answers.translation(predictor, text, [])
    with pytest.raises(NotPossible, match="too long"):
        answers.translation(predictor, "the house", ["the"] * 40)


@pytest.mark.parametrize(
    "text", ["\u202ethe\u202c house", "👩‍👩‍👧 the", "a\u0300\u0301" * 40, "<b>&amp;"]
)
def test_any_text_gets_an_answer(predictor, text):
    found = answers.translation(predictor, text, [])
    assert found["text"] == "the house"
    assert " ".join(word["text"] for word in found["source"]) == text


def moses() -> Language:
    record = {"source": "de", "target": "en", "tokenizer": "moses", "normalise": False}
    return Language({**record, "segmentation": "none"}, "en", Path())


def test_words_of_moses_are_shown_as_people_write_them():
    language = moses()
    words = language.words("It's a well-known [fact] & more.")
    assert [language.shown(word) for word in words] == [
        *("It", "'s", "a", "well", "-", "known", "[", "fact", "]", "&", "more", ".")
    ]
    assert language.joined(words) == "It's a well-known [fact] & more."


def test_what_a_word_adds_to_a_text():
    language = moses()
    words = language.words('It\'s "fine", really.')
    text = ""
    for i, word in enumerate(words):
        text += language.after(words[:i], word)
    assert text == 'It\'s "fine", really.'


def test_characters_of_an_inflection():
    record = {"source": "xx", "target": "yy", "tokenizer": "none", "segmentation": "characters"}
    language = Language(record, "xx", Path())
    assert language.words("[V] [PST] draw up") == ["[V]", "[PST]", *"draw", "\u2581", *"up"]
    assert language.joined([*"drew", "\u2581", *"up"]) == "drew up"


def test_gap_to_the_best_is_told_where_it_is_known():
    """A beam of one has dropped "hou@@", with which no sentence is better than 0.3."""
    found = answers.translation(softmax_houses(beam_size=1), "the house", [])
    assert not found["proof"]["best"] and found["proof"]["gap"] > 0
    wide = answers.translation(softmax_houses(beam_size=5), "the house", [])
    assert wide["proof"]["best"] or wide["proof"]["gap"] <= found["proof"]["gap"]


@pytest.mark.parametrize("names", [[], ["the"]])
def test_searching_on_proves_the_best_or_finds_it(names):
    narrow = answers.translation(softmax_houses(beam_size=1), "the house", names)
    found = answers.translation(softmax_houses(beam_size=1), "the house", names, prove=True)
    assert (narrow["proof"]["searched"], found["proof"]["searched"]) == (False, True)
    wide = answers.translation(softmax_houses(beam_size=10), "the house", names)
    assert found["proof"]["best"] and found["text"] == wide["text"]
