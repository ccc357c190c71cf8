"""Both ends of a search, of models whose outputs are known."""

import pytest
from hand_made import EOS, A, B, C, make_run, scores_table, table_loaded

from experiments.analysis import end_search

# A beam of 2 keeps the bad ends "a" (0.1) and "a b" (0.09); the best output, "a b c", has 0.81.
BAD_ENDS = {
    EOS: {A: 1.0},
    A: {B: 0.9, EOS: 0.1},
    B: {C: 0.9, EOS: 0.1},
    C: {EOS: 1.0},
}
ONE_WORD = {EOS: {A: 1.0}, A: {EOS: 1.0}}
GENERATE = {"beam": 2, "unnormalized": True, "end-search": "ahead"}


@pytest.fixture
def make(tmp_path, monkeypatch):
    table = scores_table([BAD_ENDS, ONE_WORD, ONE_WORD])
    loaded = table_loaded(table, [[A, B, C], [A], [A]])
    monkeypatch.setattr(end_search, "load", lambda run: loaded)

    def make(**config):
        run = make_run(tmp_path)
        return make_run(tmp_path, config={**run.config, "generate": GENERATE, **config})

    return make


def test_bleu_and_length_under_both_rules(make):
    result = end_search.compute(make(), {"split": "test"})
    assert (result["split"], result["sentences"], result["beam"]) == ("test", 3, 2)
    assert result["ahead"]["length"] == 100.0 and result["ahead"]["chrf"] == pytest.approx(100)
    assert result["full"]["length"] == 60.0 and result["full"]["chrf"] < 90
    assert {*result["full"]} == {*result["ahead"]} == {"bleu", "chrf", "length"}
    assert result["differ"] == pytest.approx(100 / 3)


def test_inflected_words_are_counted_by_language(make):
    run = make(metric="inflection")
    (run.text / "test.language").write_text("german\nenglish\nenglish\n")
    result = end_search.compute(run, {"split": "test"})
    assert result["full"] == {"word_accuracy": 50.0, "edit_distance": 1.0}
    assert result["ahead"] == {"word_accuracy": 100.0, "edit_distance": 0.0}


def test_the_flags_of_the_run_hold_under_both_rules(make):
    """A beam of 1 has only one end to keep, and that is the best."""
    result = end_search.compute(make(generate={**GENERATE, "beam": 1}), {"split": "valid"})
    assert result["full"] == result["ahead"] and result["differ"] == 0
    assert (result["split"], result["beam"]) == ("valid", 1)
