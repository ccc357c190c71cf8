"""Scores that make exactly 3 of 10 sentences prefer the empty string."""

import math

import pytest
from hand_made import EOS, A, B, make_run, scores_table, table_loaded, write_generated

from experiments.analysis import empty_string

# The empty string has score 0.5, "a" has 0.5 · 0.5: equal if both are divided by their lengths.
SHORT = {EOS: {EOS: 0.5, A: 0.5}, A: {EOS: 0.5, B: 0.5}}
# The empty string has 0.1, "a" has 0.9 · 0.9.
LONG = {EOS: {EOS: 0.1, A: 0.9}, A: {EOS: 0.9, B: 0.1}}
# The same, but Σp = 9 after "a": divided by it, "a" has only 0.9 · 0.1.
HEAVY = {EOS: {EOS: 0.1, A: 0.9}, A: {EOS: 0.9, B: 8.1}}
# No empty string.
SURE = {EOS: {A: 0.5}, A: {EOS: 0.5}}
SENTENCES = [SHORT] * 3 + [HEAVY] + [SURE] * 2 + [LONG] * 4


def totals() -> list[float]:
    return [math.log(rows[EOS][A] * rows[A][EOS]) for rows in SENTENCES]


@pytest.fixture
def run(tmp_path, monkeypatch):
    loaded = table_loaded(scores_table(SENTENCES), [[A]] * 10)
    # Sources are tokens: ten sentences, but the dictionary has eight entries.
    monkeypatch.setattr(empty_string, "load", lambda run: loaded)
    return make_run(tmp_path)


def test_three_of_ten(run):
    write_generated(run, "valid", [{"hypothesis": "a", "total": t} for t in totals()])
    result = empty_string.compute(run, {"split": "valid"})
    assert result["sentences"] == 10
    assert result["raw"] == {"count": 3, "percent": 30.0}
    assert result["renormalized"]["count"] == 4
    assert result["raw_length_normalized"]["count"] == 0
    assert result["empty_impossible"] == 2
    assert result["empty_hypotheses"] == 0


def test_an_empty_hypothesis_does_not_beat_itself(run):
    sentences = [{"hypothesis": "a", "total": t} for t in totals()]
    sentences[0] = {"hypothesis": "", "total": math.log(0.5)}
    write_generated(run, "valid", sentences)
    result = empty_string.compute(run, {"split": "valid"})
    assert result["raw"]["count"] == 2 and result["empty_hypotheses"] == 1


def test_hypotheses_of_another_model_are_refused(run):
    write_generated(run, "valid", [{"hypothesis": "a", "total": t - 1} for t in totals()])
    with pytest.raises(ValueError, match="only 0 of 10 scores agree; run stage generate again"):
        empty_string.compute(run, {"split": "valid"})
