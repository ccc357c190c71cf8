"""Typing with suggestions, counted by hand on a table model."""

from functools import partial

import pytest
from explore_tables import HOUSES, THERE, predictor_of, softmax_houses

from data_prep.progress import Progress
from experiments.analysis import keystrokes
from experiments.analysis.keystrokes import Place, Tally, count, look, summary
from experiments.explore import next_words


@pytest.fixture(scope="module")
def predictor():
    return predictor_of(HOUSES)


def typed(predictor, reference: str) -> dict:
    tally = Tally()
    count(tally, look(predictor, "the house", reference, top=2, mass=0.9))
    return summary(tally, predictor.dense)


def test_places_of_a_reference(predictor):
    the, green, house = look(predictor, "the house", "the green house", top=2, mass=0.9)
    assert (the.ranks[0], the.first, the.spaced) == (0, True, False)
    # "green" is second; its first letter leaves it alone, and "house" must follow
    assert green.ranks[:2] == [1, 0]
    assert (green.ahead, green.ahead_letters) == (2, 1)
    assert green.lengths == {"all": 3, "top_k": 2, "top_p": 2}  # 0.65 + 0.25 of 1 are 0.9
    assert (house.ahead, house.ahead_letters) == (1, 0)


def test_keystrokes_by_hand(predictor):
    found = typed(predictor, "the green house")
    assert found["without"] == len("the green house")
    # Tab; g, Tab for "green house"
    assert found["with"] == 3
    assert found["saved"] == pytest.approx(100 * 12 / 15)
    assert found["first"] == pytest.approx(100 * 2 / 3)
    assert found["accepted"] == pytest.approx(100)
    # Tab; down, Tab (or g, Tab); Tab
    assert found["lists"]["all"]["saved"] == pytest.approx(100 * 11 / 15)
    assert found["lists"]["all"]["coverage"] == 100
    assert found["lists"]["all"]["length"] == pytest.approx((3 + 3 + 1) / 3)
    assert found["lists"]["all"]["median"] == 3
    assert found["curve"][0] == [1, pytest.approx(100 * 2 / 3)]
    assert found["curve"][1] == [2, 100]


def test_word_that_is_impossible_is_typed_in_full_and_a_space_after_it(predictor):
    found = typed(predictor, "blue the house")
    # b l u e; space, Tab: "the" is offered after an unknown word; Tab for "house"
    assert found["with"] == 4 + 1 + 1 + 1
    assert found["lists"]["all"]["coverage"] == pytest.approx(100 * 2 / 3)


def test_word_behind_a_beginning_is_in_the_list_of_all_words(monkeypatch):
    monkeypatch.setattr(next_words, "LEAST", 0.2)
    predictor = predictor_of(THERE)
    predictor.next_words = partial(predictor.next_words, budget=1)
    (them,) = look(predictor, "the", "them", top=2, mass=0.9)
    # the, there, that, a; and "t…", in which it is, but not as a word
    assert them.lengths["all"] == 5
    assert (them.covered["all"], them.listed, them.complete) == (True, False, False)
    (tea,) = look(predictor, "the", "tea", top=2, mass=0.9)
    assert not tea.covered["all"]


def test_softmax_has_no_list_of_all_words_and_nothing_ahead():
    found = typed(softmax_houses(), "the green house")
    assert set(found["lists"]) == {"top_k", "top_p"}
    assert found["ahead"] == 0


def test_arrow_key_is_used_where_it_is_shorter():
    place = Place(
        text="of",
        spaced=True,
        ranks=[2, 1],
        first=False,
        lengths={"all": 3, "top_k": 1},
        covered={"all": True, "top_k": False},
        complete=True,
        listed=True,
    )
    tally = Tally()
    count(tally, [place])
    # by hand "of" costs 2, as does nothing else: two arrows and Tab, or o, arrow and Tab, are 3
    assert tally.keys == {"without": 3, "with": 2, "all": 2, "top_k": 2}
    long = Place(**{**vars(place), "text": "often", "ranks": [1, 1, 0]})
    tally = Tally()
    count(tally, [long, long])
    # arrow and Tab; with one word in the list, o, f and Tab
    assert tally.keys == {"without": 12, "with": 6, "all": 4, "top_k": 6}


def test_a_model_that_thinks_everything_possible_is_asked_for_fewer_sentences(
    predictor, monkeypatch
):
    pairs = [("the house", "the green house")] * 3
    with Progress("keystrokes", 3, "sentences") as progress:
        assert keystrokes.simulate(predictor, pairs, 2, 0.9, progress)[1] == 3
        monkeypatch.setattr(keystrokes, "MOST_LISTED", 1)
        tally, used = keystrokes.simulate(predictor, pairs, 2, 0.9, progress)
    assert used == 1 and tally.words == 3
