"""The benches of proofs, on models whose best translations are known."""

import argparse
import itertools
import json
import time

import pytest
from hand_made import EOS, A, B, make_run, scores_table, table_loaded

from experiments.bench import bounds, exact_search
from sparse_fairseq.generation.batch_search import BatchSearch
from sparse_fairseq.generation.next_tokens import NextTokens

EASY = {EOS: {A: 1.0}, A: {EOS: 1.0}}  # nothing is ever dropped
# "a" begins best and ends worst: a beam of 1 would miss "b".
TRAP = {EOS: {A: 0.6, B: 0.4}, A: {A: 0.5, B: 0.5}, B: {EOS: 0.9, A: 0.1}}
SENTENCES = [EASY, TRAP, EASY]


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    loaded = table_loaded(scores_table(SENTENCES, steps=202), [[A], [B], [A]])
    for bench in (bounds, exact_search):
        monkeypatch.setattr(bench, "load", lambda run: loaded)
    return loaded


def test_a_search_without_bounds_finds_the_same_and_proves_less(loaded, tmp_path):
    run = make_run(tmp_path)
    generator = bounds.search_generator(loaded, run, 5)
    (sample,) = exact_search.batches_of(loaded.dataset("test"), 3)
    plain, bare = (
        search(generator, sample, None, None, None).run()
        for search in (BatchSearch, bounds.UnboundedSearch)
    )
    for with_bounds, without in zip(plain, bare, strict=True):
        assert with_bounds[0]["tokens"].tolist() == without[0]["tokens"].tolist()
        assert with_bounds[0]["exhaustive"] == without[0]["exact"]
        assert "gap" in with_bounds[0] and "gap" not in without[0]


def test_the_mass_is_part_of_what_bounds_cost(loaded, tmp_path, monkeypatch):
    """Users forbid the empty translation: its probability is summed up only where there are
    bounds."""
    asked = []
    best = NextTokens.best

    def watched(self, *args, **kwargs):
        answer = best(self, *args, **kwargs)
        asked.append((self.settings.min_len, answer.closed is not None))
        return answer

    monkeypatch.setattr(NextTokens, "best", watched)
    bounds.measure(make_run(tmp_path), "test", 3, rounds=1)
    assert {min_len for min_len, _ in asked} == {1}
    # Of the first step alone: when it warms up, and when it is measured.
    assert sum(is_summed_up for _, is_summed_up in asked) == 2


def test_a_row_of_what_bounds_cost(loaded, tmp_path, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: float(next(clock)))
    row = bounds.measure(make_run(tmp_path), "test", 3, rounds=3)
    assert row == {
        "system": "relu15",
        "sentences": 3,
        "without": 1.0,
        "with": 1.0,
        "cost_percent": 0.0,
    }


def test_rows_of_each_budget(loaded, tmp_path):
    rows = exact_search.measure(make_run(tmp_path), "test", 3, [50], rounds=2)
    assert [row["budget"] for row in rows] == [0, 50]
    assert rows[1]["proved"] == 100.0 and rows[0]["time"] == 1.0
    json.dumps(rows)


def test_no_runs_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        exact_search.runs_of(argparse.ArgumentParser(), tmp_path / "nothing")
    assert "no finished runs of softmax" in capsys.readouterr().err
