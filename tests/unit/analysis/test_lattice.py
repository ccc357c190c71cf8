"""Search trees and lattices checked by hand, and attention maps."""

import pytest
import torch
from hand_made import EOS, A, B, C, make_run, scores_table, table_loaded, write_generated
from tiny_fairseq import make_batch, make_model, make_task

from experiments.analysis import attention, lattice
from experiments.analysis.shared.models import Loaded
from experiments.fairseq_output import Generated
from experiments.papers import published

FIGURE_1 = {n.note.strip("“”"): round(n.value / 100, 3) for n in published(place="S2S Figure 1")}


def draw(prefix: list[str]) -> dict[str, float]:
    """S2S Fig. 1: after d-r-a-w, `e`, `n` or the end; after `drawe`, only `d`."""
    sure = {"": "d", "d": "r", "dr": "a", "dra": "w", "drawe": "d", "drawed": ".", "drawn": "."}
    word = "".join(prefix)
    if word in sure:
        return {sure[word]: 1.0}
    return {"e": FIGURE_1["drawed"], "n": FIGURE_1["drawn"], ".": FIGURE_1["draw"]}


def test_the_tree_of_figure_1():
    tree = lattice.search_tree(draw, ".", nodes=50, candidates=10)
    found = {"".join(h["tokens"]): h["score"] for h in tree["hypotheses"]}
    assert found == pytest.approx(FIGURE_1)
    assert list(found) == ["drawed", "drawn", "draw"]  # best first
    assert tree["complete"] and tree["expanded"] == 8
    node = tree["root"]
    for letter in "draw":
        (node,) = node["children"]
        assert node["token"] == letter
    assert [(c["token"], c["score"]) for c in node["children"]] == [
        ("e", 0.664),
        ("n", 0.322),
        (".", 0.014),
    ]


def test_a_tree_that_is_cut_says_so():
    tree = lattice.search_tree(draw, ".", nodes=5, candidates=10)
    assert not tree["complete"] and tree["expanded"] == 5
    assert [h["tokens"] for h in tree["hypotheses"]] == [["d", "r", "a", "w"]]
    assert str(tree["root"]).count("unexplored") == 2
    tree = lattice.search_tree(draw, ".", nodes=50, candidates=2)
    assert not tree["complete"] and len(tree["hypotheses"]) == 2
    assert "'others': {'count': 1, 'score': 0.014}" in str(tree["root"])


def test_a_loop_without_end_is_cut():
    tree = lattice.search_tree(lambda prefix: {1: 0.5, 2: 0.5}, 0, nodes=20, candidates=5)
    assert not tree["complete"] and tree["hypotheses"] == [] and tree["expanded"] == 20


# "a b" or "a c" or "b"; then it ends.
ROWS = {
    EOS: {A: 0.75, B: 0.25},
    A: {B: 0.5, C: 0.5},
    B: {EOS: 1.0},
    C: {EOS: 1.0},
}


def test_lattice_and_tree_of_a_model(tmp_path, monkeypatch):
    loaded = table_loaded(scores_table([ROWS]), [[A, C]])
    monkeypatch.setattr(lattice, "load", lambda run: loaded)
    run = make_run(tmp_path)
    found = {"hypothesis": "a b", "target": "a c", "exactness": ("yes", "yes", 3, "finished")}
    write_generated(run, "valid", [found])
    settings = {"split": "valid", "sentences": 1, "trees": 3, "candidates": 5, "nodes": 20}
    result = lattice.compute(run, settings)
    (forced,) = result["forced"]
    assert [step["support"] for step in forced["steps"]] == [2, 2, 1]
    assert forced["steps"][0]["candidates"] == [
        {"token": "a", "score": 0.75},
        {"token": "b", "score": 0.25},
    ]
    assert forced["steps"][1]["token"] == "c" and forced["steps"][1]["in_support"]
    (tree,) = result["trees"]  # of the only sentence
    assert tree["complete"]
    assert {h["text"]: h["score"] for h in tree["hypotheses"]} == {
        "a b": 0.375,
        "a c": 0.375,
        "b": 0.25,
    }


def test_each_word_has_a_tree_of_its_own(tmp_path, monkeypatch):
    """Of four words as many as were asked for; those of an inflection are spelled."""
    others = {EOS: {C: 1.0}, C: {EOS: 1.0}}
    loaded = table_loaded(scores_table([others, ROWS, others, ROWS]), [[A, C]] * 4)
    monkeypatch.setattr(lattice, "load", lambda run: loaded)
    data = {"source": "xx", "target": "yy", "tokenizer": "none", "segmentation": "none"}
    config = {"data": data, "generate": {"beam": 5}, "metric": "inflection"}
    run = make_run(tmp_path, config=config)
    one, three = ("yes", "yes", 1, "finished"), ("yes", "yes", 3, "finished")
    words = [("c", one), ("a b", three), ("c", one), ("a c", three)]
    generated = [{"hypothesis": word, "exactness": exactness} for word, exactness in words]
    write_generated(run, "valid", generated)
    settings = {"split": "valid", "sentences": 1, "trees": 3, "candidates": 5, "nodes": 20}
    trees = lattice.compute(run, settings)["trees"]
    assert [tree["id"] for tree in trees] == [1, 3, 0]
    assert [{h["text"] for h in tree["hypotheses"]} for tree in trees] == [
        {"ab", "ac", "b"},
        {"ab", "ac", "b"},
        {"c"},
    ]
    (tree,) = lattice.compute(run, {**settings, "trees": 1})["trees"]
    assert tree["id"] == 1


def test_single_candidates_are_merged():
    def step(token, support, in_support=True):
        return {"token": token, "support": support, "in_support": in_support}

    steps = [step("this", 3), step("the", 1), step("tree", 1), step("x", 1, False), step("life", 1)]
    merged = [(s["start"], s["end"], s["text"]) for s in lattice.segments(steps)]
    assert merged == [(0, 1, "this"), (1, 3, "the tree"), (3, 4, "x"), (4, 5, "life")]


def test_which_sentences_are_shown():
    assert lattice.short_sentences([3, 9, 40, 12, 10], 2) == [1, 3]
    assert lattice.short_sentences([3, 40, 5], 2) == [0, 2]
    sentences = [
        Generated(0, hypothesis="a", exhaustive=True, hypotheses=1),
        Generated(1, hypothesis="a b c", exhaustive=True, hypotheses=3),
        Generated(2, hypothesis="a b", exhaustive=True, hypotheses=3),
        Generated(3, hypothesis="a", exhaustive=False, hypotheses=3),
    ]
    assert lattice.tree_sentences(sentences, 1) == [2]
    # The last one says the same as the first, which was searched to the end.
    assert lattice.tree_sentences(sentences, 4) == [2, 1, 0]
    assert lattice.tree_sentences(sentences[:1] + sentences[3:], 1) == [0]


def test_attention_maps_have_no_padding():
    task = make_task()
    loaded, sample = Loaded(make_model(task).eval(), task), make_batch(task)
    with loaded.cross_attention() as weights:
        loaded.forced(sample)
    pad = task.src_dict.pad()
    for row in range(len(sample["id"])):
        shown = attention.attention_map(loaded, sample, row, weights[-1][:, row])
        length = int((sample["net_input"]["src_tokens"][row] != pad).sum())
        assert len(shown["source"]) == length and shown["source"][-1] == "</s>"
        assert len(shown["target"]) == len(shown["weights"])
        for weight_row, flags in zip(shown["weights"], shown["nonzero"], strict=True):
            assert sum(weight_row) == pytest.approx(1, abs=1e-5) and all(flags)
        assert shown["attended"] == length  # softmax attends to all


def test_attention_marks_what_any_head_attends_to():
    task = make_task()
    sample = make_batch(task, sentences=1)
    source, target = sample["net_input"]["src_tokens"].shape[1], sample["target"].shape[1]
    weights = torch.zeros(2, target, source)
    weights[0, :, 0] = 1.0
    weights[1, :, source - 1] = 1.0
    loaded = Loaded(make_model(task).eval(), task)
    shown = attention.attention_map(loaded, sample, 0, weights)
    assert shown["attended"] == 1
    expected = [i in (0, source - 1) for i in range(source)]
    assert shown["nonzero"] == [expected] * target
