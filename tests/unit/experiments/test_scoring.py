"""Reading what fairseq prints, and the scores that follow from it."""

import math
import re

import pytest

from experiments.config import load_config
from experiments.results import collect, table
from experiments.runs import Run, find_runs
from experiments.scoring import (
    corpus_scores,
    exactness,
    find_tau,
    is_tokenised,
    log_records,
    read_generated,
    sentences_per_second,
    training_summary,
)

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
    shares = {"exact_raw": 100.0, "exact_normalized": 50.0, "single_hypothesis": 50.0}
    assert exactness([first, second]) == shares
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


def test_training_summary_takes_the_last_word_on_each_epoch(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(LOG)
    assert len(list(log_records(path, "train"))) == 3  # the line that a kill cut is left out
    summary = training_summary(path, "loss", maximize=False)
    assert summary["train_words_per_second"] == 200  # of epochs 1 and (repeated) 2
    assert (summary["train_seconds"], summary["updates"], summary["valid_support"]) == (9, 20, 7.5)
    assert training_summary(path, "loss", maximize=True)["updates"] == 10
    assert find_tau(path) == 0.125


def test_lines_of_a_log_that_are_no_json_are_left_out(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(
        LOG.replace('"train_wps": "1"', '"train_wps" "1"').replace('{"epoch": 1', '["', 1)
    )
    assert [record["epoch"] for record in log_records(path, "train")] == [1, 2]
    assert training_summary(path, "loss", maximize=False)["updates"] == 20


def test_of_equal_validations_the_last_is_the_best(tmp_path):
    """As fairseq has it, which replaces checkpoint_best.pt by one that is as good."""
    path = tmp_path / "train.log"
    line = '{} | INFO | valid | {{"epoch": {}, "valid_bleu": "{}", "valid_num_updates": "{}"}}\n'
    scores = enumerate((7, 8, 8, 6), 1)
    path.write_text("".join(line.format("now", i, bleu, 10 * i) for i, bleu in scores))
    assert training_summary(path, "bleu", maximize=True)["updates"] == 30


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


def write_run(path, scores: str, manifest: str = "") -> Run:
    (path / "checkpoints").mkdir(parents=True)
    (path / "checkpoints/checkpoint_best.pt").touch()
    whole = '{"config": {}, "data": {}, "commands": {}, "stages": {"train": {}}, "tau": null}'
    (path / "manifest.json").write_text(manifest or whole)
    (path / "scores.json").write_text(scores)
    return Run(path)


def test_results_average_over_seeds_and_name_broken_runs(tmp_path):
    for seed, bleu in (("1", 30.0), ("2", 32.0)):
        score = f'{{"test": {{"bleu": {bleu}, "bleu_signature": "how"}}}}'
        write_run(tmp_path / f"d/relu15/seed{seed}", score)
    write_run(tmp_path / "d/softmax/seed1", "{}", manifest="{")
    assert len(find_runs(tmp_path, "d")) == 3
    results = collect(tmp_path, "d")
    bleu = results["systems"]["relu15"]["bleu"]
    assert (bleu["mean"], bleu["n"]) == (31.0, 2)
    assert bleu["std"] == pytest.approx(math.sqrt(2))
    text = table(results)
    assert "31.0 ± 1.4" in text
    assert "BLEU: how" in text
    assert "softmax/seed1/manifest.json is broken" in text
