"""Scores, their spread over seeds, and whether systems differ; sentences where they do."""

import json
import statistics

import pytest
from hand_made import make_run, write_generated

from experiments.analysis import bleu, examples
from experiments.analysis.shared.analysis import NotMeasured
from experiments.metrics import score_split

SENTENCE = "the cat sat on a mat and looked at my old dog with great surprise"
REFERENCES = [" ".join(SENTENCE.split()[i : i + 5 + i % 4]) for i in range(8)] * 3
WORSE = [" ".join(reference.split()[::-1]) for reference in REFERENCES]
MIXED = [
    good if i % 4 else bad for i, (good, bad) in enumerate(zip(REFERENCES, WORSE, strict=True))
]


def translated(tmp_path, system: str, lines: list[str], seed: int = 1):
    run = make_run(tmp_path, system, seed)
    (run.path / "hypotheses-test.txt").write_text("\n".join(lines) + "\n")
    for language in ("xx", "yy"):
        (run.text / f"test.{language}").write_text("\n".join(REFERENCES) + "\n")
    sentences = [
        {"hypothesis": line, "target": target}
        for line, target in zip(lines, REFERENCES, strict=True)
    ]
    write_generated(run, "test", sentences)
    scores = {"test": score_split(run, "test", "bleu")}
    (run.path / "scores.json").write_text(json.dumps(scores))
    return run


def test_scores_of_runs_and_systems(tmp_path):
    runs = [
        translated(tmp_path, "good", REFERENCES),
        translated(tmp_path, "mixed", MIXED, 1),
        translated(tmp_path, "mixed", REFERENCES, 2),
    ]
    result = bleu.compute(runs, {"samples": 100})
    assert "valid" not in result
    rows, systems = result["test"]["runs"], result["test"]["systems"]
    assert rows[0]["bleu"] == pytest.approx(100) == rows[0]["tokenized_bleu"]
    assert "tok:none" in rows[0]["bleu_signature"]  # its data have no tokeniser
    assert "tok:none" in rows[0]["tokenized_bleu_signature"]
    assert rows[0]["sentences"] == 24
    values = [rows[1]["bleu"], 100.0]
    assert systems["mixed"]["bleu"]["mean"] == pytest.approx(statistics.mean(values))
    assert systems["mixed"]["bleu"]["std"] == pytest.approx(statistics.stdev(values))
    assert systems["good"]["chrf"] == {"mean": 100, "std": None, "n": 1, "values": [100]}
    pairs = {pair["metric"]: pair for pair in result["test"]["pairs"]}
    assert (pairs["bleu"]["baseline"], pairs["bleu"]["system"]) == ("good", "mixed")
    assert pairs["bleu"]["difference"] == pytest.approx(rows[1]["bleu"] - 100)
    assert pairs["bleu"]["seed"] == 1 and pairs["chrf"]["samples"] == 100


def test_systems_are_compared_with_each_seed_that_both_have(tmp_path):
    runs = [translated(tmp_path, "good", REFERENCES, seed) for seed in (1, 3)]
    runs += [translated(tmp_path, "mixed", text, s) for s, text in ((1, MIXED), (2, MIXED))]
    runs.append(translated(tmp_path, "mixed", WORSE, 3))
    pairs = bleu.compute(runs, {"samples": 20})["test"]["pairs"]
    found = {(p["seed"], p["metric"]): p["difference"] for p in pairs}
    assert [*found] == [(seed, metric) for seed in (1, 3) for metric in ("bleu", "chrf")]
    assert found[3, "bleu"] < found[1, "bleu"] < 0


def test_bootstrap_sees_what_differs_and_only_that():
    found = bleu.paired_bootstrap(WORSE, REFERENCES, REFERENCES, "en", 200)
    assert all(test["p_value"] < 0.05 for test in found)
    found = bleu.paired_bootstrap(MIXED, MIXED, REFERENCES, "en", 200)
    assert all(test["difference"] == 0 and test["p_value"] > 0.5 for test in found)


@pytest.mark.parametrize(
    "segmentation, line, joined",
    [
        ("bpe", "un@@ believ@@ able cat", "unbelievable cat"),
        ("bpe", "un@@ believ@@", "unbeliev"),
        ("sentencepiece", "\u2581un believ able \u2581cat", "unbelievable cat"),
        ("none", "d r a w n", "d r a w n"),
    ],
)
def test_subwords_are_joined_as_they_were_cut(segmentation, line, joined):
    assert bleu.subword_joiner({"segmentation": segmentation})(line) == joined


def test_tokenised_bleu_compares_tokens_with_tokens(tmp_path):
    """fairseq-generate prints hypotheses as subwords, but references as raw text."""
    raw = ["It's a well-known cat, isn't it?", "Switch the old light off, please."]
    cut = [
        "It &apos;s a well @-@ kno@@ wn cat , isn &apos;t it ?",
        "Switch the old li@@ ght off , please .",
    ]
    run = make_run(tmp_path)
    record = {"source": "de", "target": "en", "tokenizer": "moses", "normalise": False}
    record["segmentation"] = "bpe"
    (run.bin / "segmentation.json").write_text(json.dumps(record))
    (run.text / "test.yy").write_text("\n".join(raw) + "\n")
    sentences = [{"hypothesis": h, "target": t} for h, t in zip(cut, raw, strict=True)]
    write_generated(run, "test", sentences)
    assert bleu.tokenized_bleu(run, "test")["tokenized_bleu"] == pytest.approx(100)


def test_inflection_is_scored_by_words(tmp_path):
    run = translated(tmp_path, "out1_att1", REFERENCES)
    run.manifest["config"]["metric"] = "inflection"
    scores = {"word_accuracy": 93.15, "edit_distance": 0.1, "languages": {"english": {}}}
    (run.path / "scores.json").write_text(json.dumps({"test": scores}))
    result = bleu.compute([run], {"samples": 10})["test"]
    assert result["systems"]["out1_att1"]["word_accuracy"]["mean"] == 93.15
    assert result["pairs"] == [] and "languages" not in result["runs"][0]


def test_unequal_numbers_of_sentences_are_an_error(tmp_path):
    run = translated(tmp_path, "good", REFERENCES)
    (run.path / "hypotheses-test.txt").write_text("one\n")
    with pytest.raises(ValueError, match="1 translations of test, but 24 references"):
        bleu.compute([run], {"samples": 10})


def test_a_run_that_cannot_be_scored_costs_no_other(tmp_path):
    good, bad = (translated(tmp_path, name, REFERENCES) for name in ("good", "bad"))
    (bad.path / "hypotheses-test.txt").write_text("one\n")
    plain = translated(tmp_path, "plain", REFERENCES)
    plain.generated("test").unlink()
    result = bleu.compute([good, bad, plain], {"samples": 10})["test"]
    assert [row["system"] for row in result["runs"]] == ["good", "plain"]
    assert "tokenized_bleu" in result["runs"][0] and "tokenized_bleu" not in result["runs"][1]
    (problem,) = result["problems"]
    assert "1 translations of test, but 24 references" in problem and "bad" in problem


def test_the_bootstrap_tokenises_as_the_scores_do(monkeypatch):
    """The name in a signature (ja-mecab-0.996-IPA) is not always that of a tokeniser."""
    from sacrebleu.metrics import BLEU

    usual = BLEU.get_signature

    def with_version(metric):
        signature = usual(metric)
        signature.info["tok"] = "ja-mecab-0.996-IPA"
        return signature

    monkeypatch.setattr(BLEU, "get_signature", with_version)
    assert bleu.paired_bootstrap(MIXED, REFERENCES, REFERENCES, "ja", 10)


def test_nothing_generated(tmp_path):
    for module in (bleu, examples):
        with pytest.raises(NotMeasured, match="not run yet"):
            module.compute([make_run(tmp_path)], {"samples": 1, "split": "test", "count": 1})


def test_examples_are_where_systems_are_furthest_apart(tmp_path):
    other = list(REFERENCES)
    other[5] = "nothing alike"
    runs = [translated(tmp_path, "one", REFERENCES), translated(tmp_path, "two", other)]
    result = examples.compute(runs, {"split": "test", "count": 1})
    assert result["widest"] == [5]
    assert result["pairs"] == [
        {"one": "one", "other": "two", "one_better": [5], "other_better": []}
    ]
    shown = result["sentences"]["5"]
    assert shown["reference"] == REFERENCES[5]
    assert shown["outputs"]["two"]["text"] == "nothing alike"
    assert shown["outputs"]["one"]["chrf"] == pytest.approx(100)
    assert shown["spread"] == pytest.approx(100 - shown["outputs"]["two"]["chrf"])


def test_examples_rank_both_ways():
    scores = [{"a": 10, "b": 90}, {"a": 50, "b": 50}, {"a": 70, "b": 60}, {"a": 99, "b": 1}]
    widest, (pair,) = examples.select(scores, ["a", "b"], 2)
    assert widest == [3, 0]
    assert pair["one_better"] == [3, 2] and pair["other_better"] == [0]
