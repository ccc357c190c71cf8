"""Support, Σp: models whose scores are known by construction."""

import numpy as np
import pytest
import torch
from hand_made import (
    EOS,
    MADE_UP,
    PAD,
    A,
    B,
    C,
    make_run,
    scores_table,
    table_loaded,
    write_generated,
)
from tiny_fairseq import make_batch, make_model, make_task

from experiments.analysis import self_normalization, support
from experiments.analysis.shared.models import Loaded
from experiments.analysis.shared.streams import Counts, Histogram
from sparse_fairseq.output_transform import OutputSettings

# 3 non-zeros at the start, 1 after a, 2 after b. Padding and the made-up word do not count as
# words, but they do in the sum, as when decoding.
ROWS = {
    EOS: {A: 0.5, B: 0.25, EOS: 0.25, MADE_UP: 0.5},
    A: {EOS: 1.0, PAD: 0.5},
    B: {EOS: 0.75, C: 0.25},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    loaded = table_loaded(scores_table([ROWS, ROWS]), [[A], [B]])
    for module in (support, self_normalization):
        monkeypatch.setattr(module, "load", lambda run: loaded)
    return make_run(tmp_path)


def test_support_along_references_and_hypotheses(run):
    write_generated(run, "valid", [{"hypothesis": "a"}, {"hypothesis": "a"}])
    result = support.compute(run, {"split": "valid"})
    assert result["vocabulary"] == 6  # <s> </s> <unk> a b c
    gold, beam = result["output"]["gold"], result["output"]["beam"]
    assert gold["counts"] == [[1, 1], [2, 1], [3, 2]]
    assert (gold["positions"], gold["mean"], gold["max"]) == (4, 2.25, 3)
    assert gold["zero_share"] == pytest.approx(1 - 2.25 / 6)
    assert beam["counts"] == [[1, 2], [3, 2]]
    assert result["attention"] is None


def test_what_was_not_generated_is_missing(run):
    result = support.compute(run, {"split": "valid"})
    assert "generate-valid.txt is missing" in result["output"]["beam"]["missing"]


def test_softmax_excludes_no_word_even_where_it_underflows():
    table = scores_table([{EOS: {A: 1000.0}}])
    loaded = table_loaded(table, [[]], OutputSettings())
    output, _ = support.measure(loaded, loaded.batches("valid", None))
    assert output["counts"] == [[6, 1]] and output["zero_share"] == 0


def test_sums_of_scores(run):
    result = self_normalization.compute(run, {"split": "test"})
    gold = result["gold"]  # 1.5 and 1.5 at the start, 1.5 after a, 1 after b
    assert gold["positions"] == 4
    assert gold["mean"] == pytest.approx(1.375)
    assert gold["std"] == pytest.approx(np.std([1.5, 1.5, 1.5, 1.0]))
    histogram = gold["histogram"]
    assert histogram["start"] == 1.0 and histogram["counts"][0] == 1
    assert histogram["counts"][50] == 3 and sum(histogram["counts"]) == 4


def test_entmax_sums_to_one():
    table = torch.randn(3, 6, 8, 8, generator=torch.Generator().manual_seed(0))
    loaded = table_loaded(table, [[A], [B], [A, C]], OutputSettings("entmax", 1.5))
    sums = self_normalization.measure(loaded, loaded.batches("valid", None))
    assert sums["mean"] == pytest.approx(1, abs=1e-6) and sums["std"] < 1e-6


def test_attended_counts_each_head_at_real_positions():
    weights = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]], [[[0.2, 0.8], [0.0, 1.0]]]])
    both = support.attended(weights, torch.tensor([[True, True]]))
    assert both.tolist() == [[1, 2], [2, 1]]
    assert support.attended(weights, torch.tensor([[True, False]])).tolist() == [[1], [2]]


def test_cross_attention_of_every_head_and_layer():
    task = make_task()
    model = make_model(task, decoder_layers=2).eval()
    loaded, sample = Loaded(model, task), make_batch(task)
    plain, real = loaded.forced(sample)
    with loaded.cross_attention() as weights:
        watched, _ = loaded.forced(sample)
    assert torch.equal(plain, watched)
    source = sample["net_input"]["src_tokens"]
    assert [tuple(w.shape) for w in weights] == [(2, *real.shape, source.shape[1])] * 2
    torch.testing.assert_close(weights[0].sum(3), torch.ones(2, *real.shape))
    lengths = (source != task.src_dict.pad()).sum(1, keepdim=True).expand_as(real)[real]
    assert support.attended(weights[1], real).tolist() == [lengths.tolist()] * 2
    loaded.forced(sample)
    assert len(weights) == 2  # no longer watched


def test_the_one_attention_of_an_lstm():
    task = make_task()
    loaded, sample = Loaded(make_model(task, "lstm").eval(), task), make_batch(task)
    with loaded.cross_attention() as weights:
        _, real = loaded.forced(sample)
    assert [w.shape[0] for w in weights] == [1]
    source = sample["net_input"]["src_tokens"]
    lengths = (source != task.src_dict.pad()).sum(1, keepdim=True).expand_as(real)[real]
    assert support.attended(weights[0], real).tolist() == [lengths.tolist()]


@pytest.mark.parametrize("seed", range(3))
def test_streams_agree_with_numpy(seed):
    rng = np.random.default_rng(seed)
    counts, sums = Counts(), Histogram()
    numbers, reals = rng.integers(1, 40, 500), rng.uniform(0.5, 12.0, 500)
    for part in range(0, 500, 77):
        counts.add(numbers[part : part + 77])
        sums.add(reals[part : part + 77])
    found = counts.summary()
    assert found["mean"] == pytest.approx(numbers.mean())
    assert found["std"] == pytest.approx(numbers.std())
    assert found["median"] == np.quantile(numbers, 0.5, method="inverted_cdf")
    found = sums.summary()
    assert found["mean"] == pytest.approx(reals.mean())
    assert found["std"] == pytest.approx(reals.std())
    assert found["histogram"]["above"] == (reals >= 10).sum()
    assert Counts().summary() == Histogram().summary() == {"positions": 0}
