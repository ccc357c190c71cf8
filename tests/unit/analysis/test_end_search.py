"""Both ends of a search, of models whose outputs are known."""

import json

import pytest
from hand_made import EOS, A, B, C, make_run, scores_table, table_loaded

from experiments.analysis import end_search
from experiments.analysis.shared.decoding import generator_settings
from experiments.analysis.shared.words import read_segmentation, subword_joiner

UNK = 3

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
    assert {*result["full"]} == {*result["ahead"]} == {"bleu", "bleu_signature", "chrf", "length"}
    assert "tok:none" in result["full"]["bleu_signature"]
    assert result["differ"] == pytest.approx(100 / 3)


def test_inflected_words_are_counted_by_language(make):
    run = make(metric="inflection")
    (run.text / "test.language").write_text("german\nenglish\nenglish\n")
    result = end_search.compute(run, {"split": "test"})
    assert result["full"] == {"word_accuracy": 50.0, "edit_distance": 1.0}
    assert result["ahead"] == {"word_accuracy": 100.0, "edit_distance": 0.0}


def test_unknown_words_of_references_are_never_right(make, monkeypatch):
    loaded = table_loaded(scores_table([{EOS: {UNK: 1.0}, UNK: {EOS: 1.0}}]), [[UNK]])
    monkeypatch.setattr(end_search, "load", lambda run: loaded)
    run = make(metric="inflection")
    (run.text / "test.language").write_text("german\n")
    assert end_search.compute(run, {"split": "test"})["ahead"]["word_accuracy"] == 0


@pytest.mark.parametrize(
    ("record", "generate", "joined"),
    [
        ("bpe", {}, "ab▁c ▁d"),
        ("sentencepiece", {}, "a@@b c d"),
        ("none", {}, "a@@ b▁c ▁d"),
        ("none", {"post-process": "subword_nmt"}, "ab▁c ▁d"),
        ("none", {"post-process": "sentencepiece"}, "a@@b c d"),
    ],
)
def test_words_are_joined_as_their_data_were_divided(make, record, generate, joined):
    """Of a run that was adopted, only its flags say it."""
    run = make(generate=generate)
    path = run.bin / "segmentation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "segmentation": record}))
    assert subword_joiner(read_segmentation(run))("a@@ b▁c ▁d") == joined


def test_flags_that_change_what_is_found_are_taken_over():
    flags = {"beam": 4, "temperature": 2.0, "match-source-len": True, "lenpen": None}
    assert generator_settings({"generate": flags}) == {
        **{"beam_size": 4, "temperature": 2.0, "match_source_len": True},
        "normalize_scores": True,
    }


def test_the_flags_of_the_run_hold_under_both_rules(make):
    """A beam of 1 has only one end to keep, and that is the best."""
    result = end_search.compute(make(generate={**GENERATE, "beam": 1}), {"split": "valid"})
    assert result["full"] == result["ahead"] and result["differ"] == 0
    assert (result["split"], result["beam"]) == ("valid", 1)
