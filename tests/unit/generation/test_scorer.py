"""Force-decoding: per-token scores of given targets, −inf where a model says impossible."""

import math

import pytest
import torch
from table_models import (
    EOS,
    IDENTITY,
    Oracle,
    probability_table,
    random_table,
    sample,
    table_followers,
    table_model,
)
from tiny_fairseq import make_batch, make_model, make_task

from sparse_fairseq.generation import SparseSequenceGenerator, SparseSequenceScorer
from sparse_fairseq.output_transform import OutputSettings

A, B = 4, 5
ROWS = {EOS: {A: 2.0, B: 1.0, EOS: 0.5}, A: {EOS: 0.5}, B: {A: 1.0}}


def score(target, **settings):
    model = table_model(probability_table(ROWS), IDENTITY)
    scorer = SparseSequenceScorer(model.decoder.dictionary, **settings)
    return scorer.score([model], sample(1), [torch.tensor(target)])[0]


def test_raw_and_renormalized():
    scored = score([A, EOS])
    assert scored["raw_scores"].tolist() == pytest.approx([math.log(2), math.log(0.5)])
    assert scored["renormalized_scores"].tolist() == pytest.approx([math.log(2 / 3.5), 0.0])
    assert float(scored["score"]) == pytest.approx(0.0, abs=1e-6)
    renormalized = score([A, EOS], score_normalization="renormalize")
    assert float(renormalized["score"]) == pytest.approx(math.log(2 / 3.5))


def test_length_divides_only_if_asked():
    assert float(score([EOS])["score"]) == pytest.approx(math.log(0.5))
    assert float(score([B, A, EOS])["score"]) == pytest.approx(math.log(0.5))
    asked = score([B, A, EOS], normalize_scores=True)
    assert float(asked["score"]) == pytest.approx(math.log(0.5) / 3)


def test_impossible():
    scored = score([A, B, A, EOS])
    assert scored["raw_scores"].tolist()[1] == -math.inf
    assert scored["renormalized_scores"].tolist()[1] == -math.inf
    assert scored["score"] == -math.inf
    assert not scored["renormalized_scores"].isnan().any()


@pytest.mark.parametrize("normalization", ["none", "renormalize"])
def test_agrees_with_the_generator_and_with_brute_force(normalization):
    """An ensemble of three outputs with different α."""
    outputs = [
        OutputSettings(),
        OutputSettings("entmax", 1.5),
        OutputSettings("alpha_relu", 1.5, 0.3),
    ]
    models = [
        table_model(random_table(20, 6, 16, 4, 2.0, seed), output)
        for seed, output in enumerate(outputs)
    ]
    dictionary = models[0].decoder.dictionary
    options = {"score_normalization": normalization}
    generator = SparseSequenceGenerator(
        models, dictionary, 5, max_len_b=4, normalize_scores=False, **options
    )
    best = [found[0] for found in generator.generate(models, sample(20))]
    scorer = SparseSequenceScorer(dictionary, **options)
    scored = scorer.score(models, sample(20), [h["tokens"] for h in best])
    for number, (one, other) in enumerate(zip(best, scored, strict=True)):
        torch.testing.assert_close(one["positional_scores"], other["positional_scores"])
        torch.testing.assert_close(one["score"], other["score"])
        renormalize = normalization == "renormalize"
        oracle = Oracle(table_followers(models, number, renormalize), 4)
        total = oracle.total[tuple(one["tokens"].tolist())]
        assert float(other["score"]) == pytest.approx(total, rel=1e-4, abs=1e-5)


def test_sum_of_an_ensemble_with_an_adaptive_softmax():
    """Its scores given a target are not those of the whole vocabulary, but it sums to one."""
    task = make_task(vocab=32)
    cutoff = {"adaptive_softmax_cutoff": "8,16", "adaptive_softmax_factor": 4.0}
    off = {"adaptive_softmax_dropout": 0.0, "tie_adaptive_weights": False}
    models = [make_model(task, **cutoff, **off, tie_adaptive_proj=False), make_model(task)]
    models[1].decoder.output_transform.settings = OutputSettings("alpha_relu", 1.5, -0.3)
    batch = make_batch(task, sentences=4)
    options = {"score_normalization": "renormalize"}
    generator = SparseSequenceGenerator(models, task.tgt_dict, 3, max_len_b=6, **options)
    best = [found[0] for found in generator.generate(models, batch)]
    scorer = SparseSequenceScorer(task.tgt_dict, **options)
    scored = scorer.score(models, batch, [h["tokens"] for h in best])
    for one, other in zip(best, scored, strict=True):
        torch.testing.assert_close(one["positional_scores"], other["renormalized_scores"])
