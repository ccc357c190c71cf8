"""Search errors, proofs and their times, of models whose best translations are known."""

import math
import time

import pytest
from hand_made import EOS, A, B, C, make_run, scores_table, table_loaded

from experiments.analysis import exact_search
from sparse_fairseq.generation import SparseSequenceGenerator

# One word after the other: a beam of 1 finds "a", which has 0.81. The empty one has 0.1.
EASY = {EOS: {EOS: 0.1, A: 0.9}, A: {EOS: 0.9, B: 0.1}, B: {EOS: 1.0}}
# "a" begins best, but goes on in many ways: "b" has 0.4, "a …" at most 0.6 · 0.4.
TRAP = {EOS: {A: 0.6, B: 0.4}, A: {A: 0.4, B: 0.3, C: 0.3}, B: {EOS: 1.0}, C: {EOS: 1.0}}
# The empty one has 0.005, and 3 + 9 + 27 + 81 prefixes have more: too many for a beam, and for a
# budget of 100.
WIDE = {last: {EOS: 0.005, **dict.fromkeys((A, B, C), 0.995 / 3)} for last in (EOS, A, B, C)}
SENTENCES = [EASY] * 3 + [TRAP, WIDE]
SETTINGS = {"split": "test", "sentences": 1000, "budget": 400}


@pytest.fixture
def run(tmp_path, monkeypatch):
    loaded = table_loaded(scores_table(SENTENCES, steps=202), [[A]] * 3 + [[B], [C]])
    monkeypatch.setattr(exact_search, "load", lambda run: loaded)
    return make_run(tmp_path)


@pytest.fixture
def decoded(monkeypatch) -> list[tuple[int, int]]:
    """(beam, budget) of every search; its time is 1 second, and 1 more for each 100 of budget."""
    clock, found = [0.0], []
    generate = SparseSequenceGenerator.generate

    def timed(self, *args, **kwargs):
        found.append((self.beam_size, self.exact_budget))
        clock[0] += 1 + self.exact_budget / 100
        return generate(self, *args, **kwargs)

    monkeypatch.setattr(SparseSequenceGenerator, "generate", timed)
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    return found


def test_what_the_best_is_and_who_misses_it(run):
    result = exact_search.compute(run, SETTINGS)
    assert result["sentences"] == 5 and result["proved"] == 100.0 and result["gaps"] == []
    assert result["search_errors"] == {"1": 40.0, "5": 0.0, "20": 0.0}
    assert result["exact"]["empty"] == 20.0 and result["exact"]["length"] == 80.0
    assert result["beam"]["shorter"] == result["exact"]["shorter"] == 0.0


def test_which_are_shorter_than_the_beams(run, monkeypatch):
    monkeypatch.setattr(exact_search, "BEAM", 1)
    result = exact_search.compute(run, SETTINGS)
    # Of TRAP a beam of 1 finds "a b", and the best is "b"; of WIDE it goes on where it could end.
    assert result["beam"]["shorter"] == 0.0 and result["exact"]["shorter"] == 40.0


def test_the_gap_of_what_is_not_proved(run):
    result = exact_search.compute(run, {**SETTINGS, "budget": 100})
    assert result["proved"] == 80.0
    (gap,) = result["gaps"]
    assert 0 < gap <= math.log(0.995 / 3 / 0.005)


def test_what_is_proved_is_also_looked_at_alone(run):
    """Of five sentences WIDE is not: what is left has no gap to blame."""
    everything = exact_search.compute(run, SETTINGS)
    qualities = {which: everything[which] for which in ("beam", "exact")}
    assert everything["of_proved"] == {"sentences": 5, **qualities}
    some = exact_search.compute(run, {**SETTINGS, "budget": 100})["of_proved"]
    assert some["sentences"] == 4 and some["exact"] == some["beam"]
    assert some["exact"]["empty"] == 0.0 and some["exact"]["length"] == 100.0
    assert some["exact"]["chrf"] == pytest.approx(100.0)
    assert everything["exact"]["chrf"] < 99


def test_where_nothing_is_proved_there_is_no_quality_of_it(tmp_path, monkeypatch):
    loaded = table_loaded(scores_table([WIDE], steps=202), [[C]])
    monkeypatch.setattr(exact_search, "load", lambda run: loaded)
    result = exact_search.compute(make_run(tmp_path), {**SETTINGS, "budget": 0})
    assert result["proved"] == 0.0 and result["of_proved"] is None


def test_budgets_end_with_that_of_the_settings(run, decoded):
    result = exact_search.compute(run, SETTINGS)
    assert result["by_budget"] == [
        {"budget": 0, "proved": result["proved_by_beam"], "time": 1.0},
        {"budget": 100, "proved": 80.0, "time": 2.0},
        {"budget": 400, "proved": 100.0, "time": 5.0},
    ]
    assert result["by_length"] == [{"words": 5, "sentences": 5, "proved": 100.0, "time": 5.0}]
    small = exact_search.compute(run, {**SETTINGS, "budget": 7})
    assert [point["budget"] for point in small["by_budget"]] == [0, 7]


def test_a_budget_of_zero_is_the_beam(run, decoded):
    result = exact_search.compute(run, {**SETTINGS, "budget": 0})
    assert result["by_budget"] == [{"budget": 0, "proved": result["proved"], "time": 1.0}]
    assert result["exact"] == result["beam"]


def test_nothing_is_decoded_twice_and_budgets_take_turns(run, decoded, monkeypatch):
    monkeypatch.setattr("experiments.analysis.shared.models.TOKENS", 6)  # two batches
    exact_search.compute(run, SETTINGS)
    half = len(decoded) // 2
    turns = [decoded[:half], decoded[half:]]
    assert all(len(set(turn)) == len(turn) == 5 for turn in turns), "two other beams, three budgets"
    first, second = ([budget for beam, budget in turn if beam == 5] for turn in turns)
    assert first == second[::-1] and sorted(first) == [0, 100, 400]
