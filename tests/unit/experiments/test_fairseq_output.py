"""Reading what fairseq prints, and the scores that follow from it."""

import math

import pytest

from experiments.fairseq_output import (
    find_tau,
    read_generated,
    read_log,
    sentences_per_second,
    training_summary,
    words_per_cpu_second,
)
from experiments.metrics import exactness

GENERATED = """E-1\traw=yes\tnormalized=no\texhaustive=no\thypotheses=5\tstatus=finished
S-1\ta b
T-1\tx y
H-1\t-0.5\tx@@ y
D-1\t-0.5\txy
P-1\t-0.1 -0.2
E-0\traw=yes\tnormalized=yes\texhaustive=yes\thypotheses=1\tstatus=finished
S-0\tc
T-0\tz
H-0\t-inf\tz\u2028w
D-0\t-inf\tz\u2028w
H-0\t-inf\tsecond of --nbest
2026-01-01 00:00:00 | INFO | fairseq_cli.generate | Translated 2 sentences (5 tokens) in 0.5s \
(4.25 sentences/s, 10.00 tokens/s)
"""


def test_generated_sentences_come_in_corpus_order_with_their_certificates(tmp_path):
    path = tmp_path / "generate.txt"
    path.write_text(GENERATED)
    first, second = read_generated(path)
    assert (first.id, first.detokenised, first.score) == (0, "z\u2028w", -math.inf)
    assert (second.source, second.target, second.hypothesis) == ("a b", "x y", "x@@ y")
    assert (second.exact_raw, second.exact_normalized, second.hypotheses) == (True, False, 5)
    assert exactness([first, second]) == {
        "certified_raw": 100.0,
        "certified_normalized": 50.0,
        "exhaustive": 50.0,
        "single_hypothesis": 50.0,
        "forced": 0,
        "mean_hypotheses": 3.0,
        "counts": [[1, 1], [5, 1]],
    }
    assert sentences_per_second(path) == 4.25


def test_a_cut_file_is_not_read_as_a_whole_one(tmp_path):
    path = tmp_path / "generate.txt"
    path.write_text(GENERATED[: GENERATED.index("H-0")])
    with pytest.raises(ValueError, match="not every sentence"):
        read_generated(path)


LOG = """noise
2026-01-01 00:00:00 | INFO | sparse_fairseq.tasks | tau = 0.125 (batch)
2026-01-01 00:00:01 | INFO | valid | {"epoch": 1, "valid_loss": "3", "valid_num_updates": "10"}
2026-01-01 00:00:01 | INFO | train | {"epoch": 1, "train_wps": "100", "train_wall": "5"}
2026-01-01 00:00:02 | INFO | valid | {"epoch": 2, "valid_loss": "2", "valid_num_updates": "20", \
"valid_support": "7.5"}
2026-01-01 00:00:02 | INFO | train | {"epoch": 2, "train_wps": "1", "train_wall": "6"}
2026-01-01 00:00:03 | INFO | train | {"epoch": 2, "train_wps": "300", "train_wall": "9"}
2026-01-01 00:00:03 | INFO | train | {"epoch": 3, "train_w"""


NOW = "2026-01-01 00:00:00"


def records(path) -> list[dict]:
    return [line.numbers for line in read_log(path) if line.logger == "train" and line.numbers]


def test_training_summary_takes_the_last_word_on_each_epoch(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(LOG)
    assert len(records(path)) == 3  # the line that a kill cut is left out
    summary = training_summary(path, {})
    assert summary["train_words_per_second"] == 200  # of epochs 1 and (repeated) 2
    assert (summary["train_seconds"], summary["updates"], summary["valid_support"]) == (9, 20, 7.5)
    assert training_summary(path, {"maximize-best-checkpoint-metric": True})["updates"] == 10
    assert find_tau(path) == 0.125


def test_lines_of_a_log_that_are_no_json_are_left_out(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(
        LOG.replace('"train_wps": "1"', '"train_wps" "1"').replace('{"epoch": 1', '["', 1)
    )
    assert [record["epoch"] for record in records(path)] == [1, 2]
    assert training_summary(path, {})["updates"] == 20


def test_of_equal_validations_the_last_is_the_best(tmp_path):
    """As fairseq has it, which replaces checkpoint_best.pt by one that is as good."""
    path = tmp_path / "train.log"
    line = '{} | INFO | valid | {{"epoch": {}, "valid_bleu": "{}", "valid_num_updates": "{}"}}\n'
    scores = enumerate((7, 8, 8, 6), 1)
    path.write_text("".join(line.format(NOW, i, bleu, 10 * i) for i, bleu in scores))
    flags = {"best-checkpoint-metric": "bleu", "maximize-best-checkpoint-metric": True}
    assert training_summary(path, flags)["updates"] == 30


INNER = '{{"epoch": 1, "wpb": "{}", "num_updates": "{}", "cpu_seconds": "{}"}}'


def inner(words: float, updates: int, cpu: float) -> str:
    return f"2026-01-01 00:00:00 | INFO | train_inner | {INNER.format(words, updates, cpu)}\n"


def test_words_per_cpu_second_are_those_between_two_lines(tmp_path):
    """A restart does not confuse it, and one slow interval does not move the median."""
    path = tmp_path / "train.log"
    loaded = "2026-01-01 00:00:00 | INFO | x | Loaded checkpoint c.pt (epoch 2 @ 80 updates)\n"
    path.write_text(
        inner(100, 20, 10.0)  # 2,000 words in 10 seconds
        + inner(120, 40, 20.0)  # 2,400
        + inner(100, 60, 120.0)  # 20 words per second
        + inner(100, 80, 130.0)  # 200
        + inner(100, 100, 140.0)  # 200; lost
        + loaded
        + inner(100, 100, 5.0)  # 400
    )
    assert words_per_cpu_second(read_log(path)) == 200
    assert training_summary(path, {})["train_words_per_cpu_second"] == 200
    path.write_text(LOG)
    assert words_per_cpu_second(read_log(path)) is None
    assert "train_words_per_cpu_second" not in training_summary(path, {})
