"""Exact search against brute force, and with real decoders against force-decoding."""

import math

import pytest
import torch
from fairseq.modules import FairseqDropout
from hypothesis import given, settings
from hypothesis import strategies as st
from table_models import EOS, IDENTITY, PAD, probability_table, sample, table_model
from test_decoder_states import peaked_model
from test_oracle import PROBABILITIES, World, assert_batches_change_nothing, many, worlds
from tiny_fairseq import make_batch, make_task

from sparse_fairseq.generation import (
    GenerationError,
    SparseSequenceGenerator,
    SparseSequenceScorer,
    batch_search,
    exact_search,
    tree_attention,
)
from sparse_fairseq.generation.state_archive import StateArchive
from sparse_fairseq.generation.tree_attention import Prefixes
from sparse_fairseq.output_transform import OutputSettings

PLENTY = 100_000
SOFTMAX, ENTMAX = OutputSettings(), OutputSettings("entmax", 1.5)
A, B, C, D = 4, 5, 6, 7


@settings(many, max_examples=40)
@given(
    world=worlds,
    beam=st.integers(1, 4),
    nbest=st.integers(1, 6),
    budget=st.sampled_from([1, 2, 5, 20]),
)
def test_killed_by_budget_it_is_never_wrong_and_at_least_the_beam(world, beam, nbest, budget):
    exact = World(world, beam, nbest, exact_budget=budget)
    plain = World(world, beam, min(nbest, beam))
    for (found, oracle), of_beam in zip(exact.oracles(), plain.found, strict=True):
        exact.check_scores(found, oracle)
        for one, other in zip(found[:nbest], of_beam, strict=False):
            assert one["score"] >= other["score"] - 1e-5
    exact.check_proofs()


@settings(many, max_examples=40)
@given(world=worlds, usable=st.integers(5, 6), budget=st.sampled_from([1, 2, 5]))
def test_what_is_not_listed_has_a_bound_too(world, usable, budget):
    """The end of a sentence may be among the tokens that were not kept."""
    world = {**world, "usable": usable, "max_len": 2, "len_penalty": -2.0, **PROBABILITIES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_search, "TOKENS", 1)
        patch.setattr(batch_search, "TOKENS", 1)
        exact = World({**world, "normalize_scores": True}, 1, 1, exact_budget=budget)
    exact.check_proofs()


@settings(many, max_examples=40)
@given(world=worlds, beam=st.integers(2, 5), budget=st.integers(1, 20))
def test_where_a_proof_looks_likely_and_is_not_it_is_at_least_the_beam(world, beam, budget):
    world = {**world, "usable": 6, **PROBABILITIES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_search, "LIKELY_SHARE", 0.0)
        exact = World(world, beam, 1, exact_budget=budget)
    plain = World(world, beam, 1)
    for one, other in zip(exact.found, plain.found, strict=True):
        assert one[0]["score"] >= other[0]["score"] - 1e-5


@settings(many, max_examples=40)
@given(
    world=worlds,
    beam=st.integers(1, 4),
    nbest=st.integers(1, 6),
    kept=st.sampled_from([1, 2, exact_search.TOKENS]),
)
def test_with_a_large_budget_the_best_are_found_and_proved(world, beam, nbest, kept):
    with pytest.MonkeyPatch.context() as patch:  # so that lists are too short, and are made longer
        patch.setattr(exact_search, "TOKENS", kept)
        patch.setattr(batch_search, "TOKENS", kept)
        patch.setattr(exact_search, "MORE_TOKENS", 2)
        exact = World(world, beam, nbest, exact_budget=PLENTY)
    for found, oracle in exact.oracles():
        exact.check_best(found, oracle, nbest)
    exact.check_proofs()


@settings(many, max_examples=10)
@given(
    world=worlds,
    beam=st.integers(1, 3),
    batch=st.integers(1, 9),
    padding=st.integers(0, 3),
    budget=st.sampled_from([3, 10, PLENTY]),
)
def test_batches_and_padding_change_nothing(world, beam, batch, padding, budget):
    world = World(world, beam, 1, exact_budget=budget)
    assert_batches_change_nothing(world, batch, padding)


# 3 + 9 + 27 + 81 prefixes after D have more than the best sentence, "D".
WIDE = {word: {EOS: 0.005, **dict.fromkeys((A, B, C), 0.995 / 3)} for word in (A, B, C, D)}


@pytest.mark.parametrize("budget", [400, 100_000])
@pytest.mark.parametrize("probability", [0.5, math.exp(-4), math.exp(-15)])
def test_an_unlikely_prefix_that_is_demanded_is_as_easy(probability, budget):
    rows = {EOS: {D: probability, A: 1 - probability}, **WIDE}
    model = table_model(probability_table(rows, steps=8).log(), OutputSettings())
    generator = SparseSequenceGenerator(
        *([model], model.decoder.dictionary, 5),
        **{"normalize_scores": False, "nbest": 1, "max_len_b": 5, "exact_budget": budget},
    )
    ((best, *_),) = generator.generate([model], sample(1), prefix_tokens=torch.tensor([[D]]))
    assert best["proved"] and best["tokens"].tolist() == [D, EOS]


@pytest.mark.parametrize(("budget", "is_proved"), [(1000, False), (64_000, True)])
def test_what_looks_hopeless_gets_a_part_of_the_budget(budget, is_proved):
    """All sentences are most unlikely, but there are only 120 prefixes."""
    end = math.exp(-14)
    rows = {word: {EOS: end, **dict.fromkeys((A, B, C), (1 - end) / 3)} for word in (A, B, C)}
    rows[EOS] = dict.fromkeys((A, B, C), 1 / 3)
    model = table_model(probability_table(rows, steps=8).log(), OutputSettings())
    generator = SparseSequenceGenerator(
        *([model], model.decoder.dictionary, 1),
        **{"normalize_scores": True, "nbest": 1, "max_len_b": 4, "exact_budget": budget},
    )
    ((best, *_),) = generator.generate([model], sample(1))
    assert best["proved"] == is_proved


@settings(many, max_examples=20)
@given(world=worlds, beam=st.integers(1, 3), nbest=st.integers(1, 3))
def test_without_room_sentences_wait_for_each_other(world, beam, nbest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_search, "STATES", 0)
        waiting = World(world, beam, nbest, exact_budget=PLENTY)
    at_once = World(world, beam, nbest, exact_budget=PLENTY)
    for found, expected in zip(waiting.found, at_once.found, strict=True):
        assert [h["proved"] for h in found] == [h["proved"] for h in expected]
        scores = [float(h["score"]) for h in found]
        assert scores == pytest.approx([float(h["score"]) for h in expected], abs=1e-5)
    waiting.check_proofs()


@pytest.fixture(scope="module")
def task():
    return make_task(vocab=32)


@pytest.mark.parametrize("nbest", [1, 2])
@pytest.mark.parametrize("arch", ["transformer", "lstm"])
def test_states_stay_in_the_room_that_they_have(task, arch, nbest, monkeypatch):
    """Of all 6 sentences, each of which spends its budget, only what one of them needs is held
    beyond that; what is found is the same."""
    model, batch = peaked_model(task, arch, SOFTMAX), make_batch(task, sentences=6, length=9)
    budget, room, held = 200, 100, []
    file = StateArchive.file

    def watched(archive, *args):
        file(archive, *args)
        held.append((archive.count, archive.bytes_per_node))

    monkeypatch.setattr(StateArchive, "file", watched)
    monkeypatch.setattr(exact_search, "LIKELY_SHARE", 0.0)

    def search():
        held.clear()
        flags = {"max_len_b": 12, "normalize_scores": False, "nbest": nbest, "min_len": 4}
        generator = SparseSequenceGenerator([model], task.tgt_dict, 2, exact_budget=budget, **flags)
        return generator.generate([model], batch), max(count for count, _ in held)

    free, most = search()
    monkeypatch.setattr(exact_search, "STATES", room * held[-1][1])
    bounded, fewer = search()
    # Leads and beams are not part of the budget: 6 sentences of 2 rows in 12 steps.
    assert most > 4 * budget and fewer <= room + budget + 6 * 2 * 13
    for one, other in zip(free, bounded, strict=True):
        for a, b in zip(one[:nbest], other[:nbest], strict=True):
            assert a["tokens"].tolist() == b["tokens"].tolist()
            # Calls of other sizes round otherwise.
            assert a["gap"] == pytest.approx(b["gap"], abs=1e-5)
            torch.testing.assert_close(a["attention"], b["attention"])


@pytest.mark.parametrize("output", [SOFTMAX, ENTMAX], ids=str)
@pytest.mark.parametrize("arch", ["transformer", "lstm", "fconv"])
def test_branches_have_their_own_states(task, arch, output):
    """The scorer runs the whole target at once, without cached states."""
    model, batch = peaked_model(task, arch, output), make_batch(task, sentences=6, length=9)
    limits = {"max_len_b": 12, "normalize_scores": False}
    found, plain = (
        SparseSequenceGenerator([model], task.tgt_dict, 2, exact_budget=budget, **limits).generate(
            [model], batch
        )
        for budget in (200, 0)
    )
    # Most of what the beam of such models finds is not the best.
    better = [a[0]["score"] > b[0]["score"] + 1e-3 for a, b in zip(found, plain, strict=True)]
    assert sum(better) > 3
    for place in range(2):
        chosen = [f[min(place, len(f) - 1)] for f in found]
        scored = SparseSequenceScorer(task.tgt_dict).score(
            [model], batch, [h["tokens"] for h in chosen]
        )
        for one, other in zip(chosen, scored, strict=True):
            positions = (one["positional_scores"], other["positional_scores"])
            torch.testing.assert_close(*positions, atol=2e-3, rtol=1e-3)
            if one["attention"].numel():
                columns = other["attention"].T[:, : len(one["tokens"])]
                torch.testing.assert_close(one["attention"], columns, atol=2e-3, rtol=1e-3)


def deep_search(models, task, **settings):
    """(hypotheses, calls of the first decoder)"""
    known = {"max_len_b": 9, "normalize_scores": False, "score_normalization": "renormalize"}
    prefix = settings.pop("prefix_tokens", None)
    generator = SparseSequenceGenerator(
        models, task.tgt_dict, 2, nbest=1, exact_budget=80, **known, **settings
    )
    calls = []
    hook = models[0].decoder.embed_tokens.register_forward_hook(lambda *_: calls.append(1))
    found = generator.generate(models, make_batch(task, sentences=6, length=9), prefix)
    hook.remove()
    return found, len(calls)


def test_parts_of_rows_are_as_wide_as_their_longest_prefix(task, monkeypatch):
    """What is found does not depend on the parts, and they save padding."""
    model = peaked_model(task, "transformer", SOFTMAX)

    def search(parts: int):
        made = []
        monkeypatch.setattr(tree_attention, "PARTS", parts)
        monkeypatch.setattr(tree_attention, "PART_ROWS", 1)
        with_own = Prefixes.with_own
        watched = lambda *args: made.append(with_own(*args)) or made[-1]  # noqa: E731
        with monkeypatch.context() as during:
            during.setattr(Prefixes, "with_own", watched)
            found, _ = deep_search([model], task)
        widths = [nodes.numel() for call in made for _, nodes, _ in call]
        return found, sum(widths), max(map(len, made))

    whole, most, one = search(1)
    divided, fewer, several = search(4)
    assert (one, several) == (1, 4) and fewer < 0.9 * most
    for a, b in zip(whole, divided, strict=True):
        assert a[0]["tokens"].tolist() == b[0]["tokens"].tolist()
        torch.testing.assert_close(a[0]["positional_scores"], b[0]["positional_scores"])


EACH_LENGTH_HAS_ITS_RULES = {
    "prefix_tokens": torch.tensor([[5], [PAD]] * 3),
    "min_len": 3,
    "unk_penalty": 0.5,
    "no_repeat_ngram_size": 2,
    "temperature": 1.3,
}


@pytest.mark.parametrize(
    ("archs", "positions"),
    [
        (["transformer"], {}),
        (["transformer"], {"decoder_learned_pos": False, "layernorm_embedding": True}),
        (
            ["transformer"],
            {"no_token_positional_embeddings": True, "decoder_normalize_before": True},
        ),
        (["sparse_transformer"], {"attention_alpha": 1.5}),
        (["lstm"], {}),
        (["transformer", "lstm", "transformer"], {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("flags", [{}, EACH_LENGTH_HAS_ITS_RULES], ids=["free", "rules"])
def test_lengths_are_mixed(task, archs, positions, flags, monkeypatch):
    """Prefixes of different lengths in one call of the models: the same as one call for each
    length."""
    models = [peaked_model(task, arch, ENTMAX, **positions) for arch in archs]
    mixed, few = deep_search(models, task, **flags)
    monkeypatch.setattr(StateArchive, "can_mix", False)
    apart, many = deep_search(models, task, **flags)
    assert few < many
    for one, other in zip(mixed, apart, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a["tokens"].tolist() == b["tokens"].tolist()
            assert a["proved"] == b["proved"]
            for key in ("positional_scores", "attention"):
                torch.testing.assert_close(a[key], b[key], atol=2e-3, rtol=1e-3)


def test_a_decoder_whose_states_grow_is_refused(task):
    model, batch = peaked_model(task, "lightconv", OutputSettings()), make_batch(task)
    generator = SparseSequenceGenerator([model], task.tgt_dict, 2, exact_budget=9)
    with pytest.raises(GenerationError, match="cannot branch from what this decoder remembers"):
        generator.generate([model], batch)


def test_support_of_what_the_beam_has_not_seen():
    """b c looks worse than a at first, and is the best."""
    rows = {EOS: {A: 0.6, B: 0.4}, A: {C: 0.5, A: 0.5}, B: {C: 1.0}, C: {EOS: 0.5, C: 0.3, A: 0.2}}
    model = table_model(probability_table(rows), IDENTITY)
    known = {"normalize_scores": False, "score_normalization": "renormalize", "max_len_b": 5}
    (found,) = SparseSequenceGenerator(
        [model], model.decoder.dictionary, 1, exact_budget=9, return_support=True, **known
    ).generate([model], sample(1))
    assert found[0]["tokens"].tolist() == [B, C, EOS] and found[0]["proved"]
    assert found[0]["support"].tolist() == [2, 1, 3]


def test_what_may_grow_is_proved_where_all_of_it_was_seen():
    """Three sentences, and a list that has room for one."""
    end = {EOS: 1.0}
    rows = {EOS: {A: 0.9, B: 0.8, C: 0.7}, A: end, B: end, C: end}
    model = table_model(probability_table(rows), IDENTITY)
    limits = {"normalize_scores": False, "max_len_b": 4, "nbest": 1}
    generator = SparseSequenceGenerator(
        [model], model.decoder.dictionary, 1, exact_budget=PLENTY, **limits
    )
    assert not generator.output().only_falls
    ((best, *_),) = generator.generate([model], sample(1))
    assert best["tokens"].tolist() == [A, EOS] and best["proved"] and best["exact"]["raw"]
    assert not best["exhaustive"] and best["gap"]["raw"] == 0


@pytest.mark.parametrize("budget", [0, 50])
def test_random_scores_prove_nothing(task, budget):
    """As --retain-dropout makes them."""
    model, batch = peaked_model(task, "transformer", SOFTMAX), make_batch(task, sentences=3)
    noisy = next(m for m in model.modules() if isinstance(m, FairseqDropout))
    noisy.p, noisy.apply_during_inference = 0.3, True
    options = {"normalize_scores": False, "max_len_b": 8, "exact_budget": budget}
    if budget:
        with pytest.raises(GenerationError, match="drop --retain-dropout"):
            SparseSequenceGenerator([model], task.tgt_dict, 2, **options)
        return
    found = SparseSequenceGenerator([model], task.tgt_dict, 2, **options).generate([model], batch)
    for hypothesis in (h for hypotheses in found for h in hypotheses):
        assert not hypothesis["proved"] and not hypothesis["exhaustive"]
        assert hypothesis["bound"]["raw"] is None and hypothesis["mass"] is None


def test_a_whole_number_is_a_length_penalty():
    model = table_model(probability_table({EOS: {A: 1.0}, A: {EOS: 1.0}}), IDENTITY)
    limits = {"max_len_b": 3, "exact_budget": 9, "score_normalization": "renormalize"}
    generator = SparseSequenceGenerator([model], model.decoder.dictionary, len_penalty=-1, **limits)
    ((best, *_),) = generator.generate([model], sample(1))
    assert best["tokens"].tolist() == [A, EOS]


def test_no_hypothesis_is_none():
    model = table_model(probability_table({EOS: {A: 1.0}}), IDENTITY)
    with pytest.raises(GenerationError, match="--nbest must be at least 1, got 0"):
        SparseSequenceGenerator([model], model.decoder.dictionary, nbest=0, exact_budget=9)
