"""τ of untrained models, the normality of their logits, and the table of decoding times."""

from types import SimpleNamespace

import pytest
import torch
from tiny_fairseq import make_batch, make_model, make_task

from experiments.analysis import inference_time, tau
from experiments.analysis.shared import decoding
from sparse_fairseq.functional import xavier_tau
from sparse_fairseq.output_init import scale_to_xavier


def test_normal_logits_pass_and_others_do_not():
    rng = torch.Generator().manual_seed(0)
    normal = torch.randn(30, 4000, generator=rng)
    found = tau.shapiro_wilk(normal)
    assert found["median_p"] > 0.15  # SE §4.4
    assert found["positions"] == 20 and found["sample"] == 2000
    assert found["share_above_0.05"] > 0.8
    assert tau.shapiro_wilk(normal.exp())["median_p"] < 1e-6


def test_tau_of_an_untrained_model_by_batch_and_by_formula():
    task = make_task(vocab=2000, made_up=0)
    sizes = {"embed_dim": 64, "ffn_embed_dim": 64, "layers": 1, "attention_heads": 2}
    model = make_model(task, sizes=sizes).eval()
    scale_to_xavier(model.decoder)
    found = tau.measure(model, task, make_batch(task, sentences=20))
    assert found["shape"] == (64, 2000)
    assert found["tau_batch"] == pytest.approx(xavier_tau(64, 2000), abs=0.02)
    assert found["tau_formula"] == pytest.approx(xavier_tau(64, 2000), abs=0.005)
    assert found["sigma"] == pytest.approx((2 * 64 / 2064) ** 0.5, rel=0.03)


def test_where_the_formula_does_not_hold_it_is_missing_with_a_reason():
    task = make_task()
    found = tau.measure(make_model(task, "lstm").eval(), task, make_batch(task))
    assert found["tau_formula"] is None and "LSTMDecoder" in found["why"]


def test_times_are_medians_divided_by_the_smallest():
    seconds = {("softmax", 1): [2.0, 9.0, 2.2], ("softmax", 5): [4.4, 4.4, 5.0]}
    seconds[("relu15", 1)] = [1.0, 1.1, 30.0]
    rows = inference_time.table(seconds, sentences=11)
    found = {(row["system"], row["beam"]): row for row in rows}
    assert found["relu15", 1]["normalized"] == 1 and found["relu15", 1]["seconds"] == 1.1
    assert found["softmax", 1]["normalized"] == pytest.approx(2)
    assert found["softmax", 5]["normalized"] == pytest.approx(4)
    assert found["relu15", 1]["sentences_per_second"] == pytest.approx(10)


@pytest.mark.parametrize("flags, normalizes", [({}, True), ({"unnormalized": True}, False)])
def test_decoding_is_timed_as_the_config_decodes(monkeypatch, flags, normalizes):
    made = {}

    class Generator:
        def __init__(self, models, dictionary, **options):
            made.update(options)

        def generate(self, models, sample):
            pass

    monkeypatch.setattr(decoding, "SparseSequenceGenerator", Generator)
    run = SimpleNamespace(config={"generate": {"lenpen": 0.5, **flags}})
    loaded = SimpleNamespace(model=None, dictionary=None)
    ticks = iter((10.0, 12.5))
    assert inference_time.decode(loaded, [{}], 5, run, lambda: next(ticks)) == 2.5
    assert made["normalize_scores"] == normalizes
    assert (made["beam_size"], made["len_penalty"]) == (5, 0.5)


def test_without_a_gpu_one_thread_works_and_its_cpu_time_counts(monkeypatch):
    """Seconds on the wall would be longer on a busy machine."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(inference_time.time, "process_time", lambda: 7.0)
    clock, before = inference_time.Clock(), torch.get_num_threads()
    assert (clock.name, clock()) == ("cpu", 7.0)
    with clock.threads():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
