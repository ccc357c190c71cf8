"""The normal cases of a sparse model, at which fairseq's generator asserts or returns nothing.

Each table says which tokens may follow which, with what score; everything else is impossible.
"""

import math

import pytest
import torch
from fairseq import search
from fairseq.token_generation_constraints import pack_constraints
from table_models import BOS, EOS, IDENTITY, PAD, UNK, probability_table, sample, table_model, words
from tiny_fairseq import make_batch, make_model, make_task

from sparse_fairseq.generation import (
    GenerationError,
    SparseSequenceGenerator,
    SparseSequenceGeneratorWithAlignment,
)
from sparse_fairseq.output_transform import OutputSettings

A, B, C = 4, 5, 6
ONE_SENTENCE = {EOS: {A: 1.0}, A: {B: 1.0}, B: {EOS: 1.0}}  # a b
TWO_SENTENCES = {EOS: {A: 0.6, B: 0.4}, A: {EOS: 1.0}, B: {EOS: 1.0}}  # a; b
ONLY_EOS = {EOS: {EOS: 1.0}}
NEVER_EOS = {EOS: {A: 0.7, B: 0.3}, A: {A: 0.9, B: 0.1}, B: {A: 1.0}}
NOTHING = {}
DEAD_END = {EOS: {A: 0.9, B: 0.1}, A: {}, B: {EOS: 1.0}}  # b, although a looks better
EOS_OR_DEAD_END = {EOS: {A: 1.0}, A: {B: 0.9, EOS: 0.1}}  # a, although b looks better
GROWING = {EOS: {A: 2.0}, A: {A: 1.5, EOS: 0.5}}  # log-scores that are positive: a a a …


def decode(rows, beam=5, sentences=1, arguments=None, **settings):
    model = table_model(probability_table(rows, sentences), IDENTITY)
    settings.setdefault("max_len_b", 6)
    generator = SparseSequenceGenerator([model], model.decoder.dictionary, beam, **settings)
    return generator.generate([model], sample(sentences), **(arguments or {}))


def tokens(hypotheses) -> list[list[int]]:
    return [h["tokens"].tolist() for h in hypotheses]


@pytest.mark.parametrize("beam", [1, 2, 5, 11])
def test_one_sentence(beam):
    (found,) = decode(ONE_SENTENCE, beam)
    assert tokens(found) == [[A, B, EOS]]
    assert found[0]["status"] == "finished" and found[0]["score"] == 0
    assert found[0]["exact"] == {"raw": True, "normalized": True}


@pytest.mark.parametrize("beam", [1, 2, 3])
@pytest.mark.parametrize("normalize", [True, False])
def test_unlikely_ends_do_not_fill_the_list_before_the_likely_one(beam, normalize):
    """At each step there are two candidates, so that the end is among the best, whatever its
    score: after `beam` steps the list is full."""
    table = probability_table({EOS: {A: 1.0}, A: {A: 0.98, EOS: 0.02}})
    table[:, 6, A] = 0.0
    table[:, 6, A, EOS] = 1.0
    model = table_model(table, IDENTITY)
    settings = {"beam_size": beam, "max_len_b": 6, "normalize_scores": normalize, "nbest": 1}
    generator = SparseSequenceGenerator([model], model.decoder.dictionary, **settings)
    (found,) = generator.generate([model], sample(1))
    assert tokens(found)[0] == [A] * 6 + [EOS] and len(found) <= beam
    assert found[0]["positional_scores"].sum() == pytest.approx(5 * math.log(0.98))


def test_the_rule_that_ends_a_search_can_be_chosen():
    """By itself softmax has fairseq's, sparse models have the other."""
    table = probability_table({EOS: {A: 1.0}, A: {A: 0.98, EOS: 0.02}})
    table[:, 6, A] = 0.0
    table[:, 6, A, EOS] = 1.0
    lengths = {}
    kinds = {
        "sparse": IDENTITY,
        "softmax": OutputSettings(),
        "entmax of α = 1": OutputSettings("entmax", 1.0),  # a softmax by another name
    }
    for kind, settings in kinds.items():
        model = table_model(table if kind == "sparse" else table.log(), settings)
        for rule in ("auto", "full", "ahead"):
            options = {"beam_size": 2, "max_len_b": 6, "nbest": 1, "end_search": rule}
            generator = SparseSequenceGenerator([model], model.decoder.dictionary, **options)
            ((best, *_),) = generator.generate([model], sample(1))
            lengths[kind, rule] = len(best["tokens"])
    early = lengths["softmax", "full"]
    assert early < 7 and lengths["sparse", "full"] == lengths["softmax", "auto"] == early
    assert lengths["entmax of α = 1", "auto"] == early
    assert (
        lengths["sparse", "auto"] == lengths["sparse", "ahead"] == lengths["softmax", "ahead"] == 7
    )
    with pytest.raises(GenerationError, match="--end-search must be one of auto, full, ahead"):
        decode(ONE_SENTENCE, end_search="late")


@pytest.mark.parametrize("beam", [2, 5, 11])
def test_fewer_sentences_than_beam(beam):
    (found,) = decode(TWO_SENTENCES, beam)
    assert tokens(found) == [[A, EOS], [B, EOS]]
    expected = [math.log(0.6) / 2, math.log(0.4) / 2]
    assert [float(h["score"]) for h in found] == pytest.approx(expected)


@pytest.mark.parametrize("beam", [1, 5])
def test_eos_never_supported(beam):
    (found,) = decode(NEVER_EOS, beam)
    assert tokens(found) == [[A] * 6 + [EOS]]
    assert found[0]["status"] == "forced" and found[0]["score"] == -math.inf
    assert found[0]["positional_scores"].tolist() == pytest.approx(
        [math.log(0.7)] + [math.log(0.9)] * 5 + [-math.inf]
    )
    assert found[0]["exact"] == {"raw": False, "normalized": False}


@pytest.mark.parametrize("rows", [ONLY_EOS, NOTHING])
@pytest.mark.parametrize("beam", [1, 5])
def test_nothing_allowed_at_the_first_step(rows, beam):
    (found,) = decode(rows, beam, min_len=1)
    assert tokens(found) == [[EOS]] and found[0]["status"] == "forced"


def test_only_eos_and_no_minimum_length():
    (found,) = decode(ONLY_EOS, min_len=0)
    assert tokens(found) == [[EOS]] and found[0]["status"] == "finished"
    assert found[0]["exact"]["raw"]


def test_forced_prefix_with_score_zero_is_completed():
    (found,) = decode(ONE_SENTENCE, arguments={"prefix_tokens": torch.tensor([[A, C, B]])})
    assert tokens(found) == [[A, C, B, EOS]] and found[0]["status"] == "forced"
    assert found[0]["positional_scores"].tolist() == [0.0] + [-math.inf] * 3


def test_support_of_a_completed_prefix():
    prefix = {"prefix_tokens": torch.tensor([[A, C, B]])}
    (found,) = decode(ONE_SENTENCE, arguments=prefix, return_support=True)
    assert found[0]["support"].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("how", ["hard", "soft"])
def test_alignment_of_a_completed_prefix(how):
    """Tokens after the first impossible one were never decoded: nothing attends for them."""
    task = make_task(vocab=32)
    model = make_model(task).eval()
    model.decoder.output_transform.settings = OutputSettings("entmax", 2.0)
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.6)
    batch = make_batch(task, sentences=5, length=6)
    generator = SparseSequenceGeneratorWithAlignment(
        [model], task.tgt_dict, beam_size=3, print_alignment=how, max_len_b=8
    )
    prefix = batch["target"][:, :3]
    best = [found[0] for found in generator.generate([model], batch, prefix_tokens=prefix)]
    source = batch["net_input"]["src_tokens"].shape[1]
    assert [h["attention"].shape for h in best] == [(source, len(h["tokens"])) for h in best]
    forced = [h for h in best if h["status"] == "forced" and not h["attention"][:, -1].any()]
    assert forced and all(h["alignment"] for h in forced)


def test_prefixes_of_different_lengths():
    prefix = torch.tensor([[A, B], [B, PAD], [C, PAD]])
    found = decode(TWO_SENTENCES, sentences=3, arguments={"prefix_tokens": prefix})
    assert [tokens(f)[0] for f in found] == [[A, B, EOS], [B, EOS], [C, EOS]]
    assert [f[0]["status"] for f in found] == ["forced", "finished", "forced"]


@pytest.mark.parametrize("size", [1, 2])
def test_ngram_blocking_empties_the_support(size):
    (found,) = decode({EOS: {A: 1.0}, A: {A: 1.0}}, no_repeat_ngram_size=size)
    assert tokens(found) == [[A] * size + [EOS]] and found[0]["status"] == "forced"


def test_suppressed_tokens_empty_the_support():
    (found,) = decode(ONE_SENTENCE, tokens_to_suppress=["w1"])  # B
    assert tokens(found) == [[A, EOS]] and found[0]["status"] == "forced"


@pytest.mark.parametrize("representation", ["ordered", "unordered"])
def test_constraints_empty_the_support(representation):
    model = table_model(probability_table(TWO_SENTENCES, vocab=24), IDENTITY)
    dictionary = model.decoder.dictionary
    strategy = search.LexicallyConstrainedBeamSearch(dictionary, representation)
    generator = SparseSequenceGenerator(
        [model], dictionary, 3, max_len_b=4, search_strategy=strategy
    )
    impossible, possible = (
        generator.generate([model], sample(1), constraints=pack_constraints([[torch.tensor([w])]]))
        for w in (C, B)
    )
    assert impossible[0][0]["status"] == "forced"
    assert tokens(possible[0])[0] == [B, EOS] and possible[0][0]["status"] == "finished"


STRATEGIES = {
    "sampling": lambda d: search.Sampling(d),
    "top-k": lambda d: search.Sampling(d, sampling_topk=3),
    "top-p": lambda d: search.Sampling(d, sampling_topp=0.9),
    "diverse beam": lambda d: search.DiverseBeamSearch(d, 2, 0.5),
    "diverse siblings": lambda d: search.DiverseSiblingsSearch(d, 0.5),
    "length": lambda d: search.LengthConstrainedBeamSearch(d, 1, 0, 1, 0),
    "allowed tokens": lambda d: search.PrefixConstrainedBeamSearch(d, lambda i, x: [EOS, A, B]),
    "nothing allowed": lambda d: search.PrefixConstrainedBeamSearch(d, lambda i, x: []),
    "lexical": lambda d: search.LexicallyConstrainedBeamSearch(d, "ordered"),
}
TABLES = (ONE_SENTENCE, TWO_SENTENCES, ONLY_EOS, NEVER_EOS, NOTHING, DEAD_END, GROWING)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("beam", [2, 4])
def test_every_strategy_answers(strategy, beam):
    for rows in TABLES:
        model = table_model(probability_table(rows, 3, vocab=24), IDENTITY)
        generator = SparseSequenceGenerator(
            [model],
            model.decoder.dictionary,
            beam,
            max_len_b=5,
            match_source_len=strategy == "length",
            search_strategy=STRATEGIES[strategy](model.decoder.dictionary),
        )
        for found in generator.generate([model], sample(3)):
            assert 1 <= len(found) <= beam
            for hypothesis in found:
                assert hypothesis["tokens"][-1] == EOS
                assert (hypothesis["score"] > -math.inf) == (hypothesis["status"] == "finished")
                assert not hypothesis["exact"]["raw"]


def decode_to_source_length(rows, beam=2):
    """Sources have two tokens."""
    strategy = search.LengthConstrainedBeamSearch(words(12), 1, 0, 1, 0)
    return decode(rows, beam, match_source_len=True, search_strategy=strategy)


def test_end_at_the_source_length_is_not_made_possible():
    (found,) = decode_to_source_length(NEVER_EOS)
    assert tokens(found) == [[A, A, EOS]]
    assert found[0]["status"] == "forced" and found[0]["score"] == -math.inf
    # a b can end, although a a looks better
    (found,) = decode_to_source_length({EOS: {A: 1.0}, A: {A: 0.9, B: 0.1}, B: {EOS: 0.5}})
    assert tokens(found) == [[A, B, EOS]] and found[0]["status"] == "finished"


def test_impossible_tokens_never_outrank_possible_ones():
    """The only way that is left has by far the worst score of all."""
    rows = {EOS: {A: 1e-30, B: 1.0}, A: {A: 1e-30}, B: {}}
    (found,) = decode(
        {**rows, A: {EOS: 1e-30}}, beam=1, arguments={"prefix_tokens": torch.tensor([[A]])}
    )
    assert tokens(found) == [[A, EOS]] and found[0]["status"] == "finished"
    assert float(found[0]["score"]) == pytest.approx(math.log(1e-30))


def test_dead_end():
    assert tokens(decode(DEAD_END, beam=2)[0]) == [[B, EOS]]
    (found,) = decode(DEAD_END, beam=1)
    assert tokens(found) == [[A, EOS]] and found[0]["status"] == "forced"


def test_end_that_the_beam_had_no_place_for_is_better_than_none():
    (found,) = decode(EOS_OR_DEAD_END, beam=1)
    assert tokens(found) == [[A, EOS]] and found[0]["status"] == "finished"
    assert found[0]["exact"] == {"raw": False, "normalized": False}


@pytest.mark.parametrize("end, certified", [(0.5, True), (0.1, False)])
def test_cut_by_length(end, certified):
    """A longer sentence could have the total of what was cut off, and no more; not so with scores
    that are no probabilities."""
    rows = {EOS: {A: 1.0}, A: {A: 1 - end, EOS: end}}
    (found,) = decode(rows, beam=5, max_len_b=3, score_normalization="renormalize")
    assert sorted(len(t) for t in tokens(found)) == [2, 3, 4]
    best = max(found, key=lambda h: h["positional_scores"].sum())
    assert best["exact"]["raw"] == certified and not best["exhaustive"]
    assert best["bound"]["raw"] == pytest.approx(math.log(max(end, (1 - end) ** 3)), abs=1e-6)
    # Of the sentences within the maximum length it has seen all.
    assert found[0]["exact"]["normalized"] and found[0]["proved"]
    (found,) = decode(rows, beam=5, max_len_b=3)
    assert not any(any(h["exact"].values()) or h["exhaustive"] for h in found)
    assert found[0]["bound"] == found[0]["gap"] == {"raw": None, "normalized": None}


@pytest.mark.parametrize("last, certified", [(A, False), (EOS, True), (PAD, True)])
def test_prefix_cut_by_length_is_not_certified(last, certified):
    prefix = torch.tensor([[A, B, last]])
    (found,) = decode(ONE_SENTENCE, max_len_b=2, arguments={"prefix_tokens": prefix})
    assert tokens(found) == [[A, B, EOS]]
    assert found[0]["exhaustive"] == found[0]["exact"]["raw"] == certified


@pytest.mark.parametrize("settings", [{}, {"normalize_scores": False}, {"len_penalty": 0.0}])
@pytest.mark.parametrize("nbest", [1, 2])
def test_positive_log_scores(settings, nbest):
    """2 · 1.5ⁿ · 0.5: the longest sentence is the best, and found after all the others."""
    (found,) = decode(GROWING, beam=8, nbest=nbest, **settings)
    assert [len(t) for t in tokens(found)] == [7, 6, 5, 4, 3, 2]
    total = math.log(2) + 5 * math.log(1.5) + math.log(0.5)
    assert float(found[0]["positional_scores"].sum()) == pytest.approx(total)


def test_renormalized_scores():
    (found,) = decode(GROWING, beam=8, score_normalization="renormalize")
    by_length = {len(h["tokens"]): h["positional_scores"].tolist() for h in found}
    assert by_length[3] == pytest.approx([0.0, math.log(0.75), math.log(0.25)], abs=1e-6)


def test_temperature_divides_the_logits_before_tau():
    """[(α−1)z/T − τ]₊ with α = 2, τ = 0 is p/T."""
    (found,) = decode(ONE_SENTENCE, temperature=4.0)
    assert found[0]["positional_scores"].tolist() == pytest.approx([math.log(0.25)] * 3)


def test_unk_penalty():
    rows = {EOS: {UNK: 0.6, A: 0.4}, UNK: {EOS: 1.0}, A: {EOS: 1.0}}
    assert tokens(decode(rows, beam=2)[0])[0] == [UNK, EOS]
    assert tokens(decode(rows, beam=2, unk_penalty=1.0)[0])[0] == [A, EOS]
    (found,) = decode(rows, beam=2, unk_penalty=-5.0)
    assert float(found[0]["positional_scores"][0]) == pytest.approx(math.log(0.6) + 5)


def test_top_p_is_a_share_of_the_sum():
    """Scores 3, 1 and 0.1 sum to 4.1: 0.9 of it is the first two, whatever their size."""
    rows = {EOS: {A: 3.0, B: 1.0, C: 0.1}, A: {EOS: 1.0}, B: {EOS: 1.0}, C: {EOS: 1.0}}
    model = table_model(probability_table(rows, 200), IDENTITY)
    dictionary = model.decoder.dictionary
    strategy = search.Sampling(dictionary, sampling_topp=0.9)
    generator = SparseSequenceGenerator([model], dictionary, 5, search_strategy=strategy)
    torch.manual_seed(0)
    found = [h for f in generator.generate([model], sample(200)) for h in f]
    first = [h["tokens"][0].item() for h in found]
    assert set(first) == {A, B}
    assert first.count(A) / len(first) == pytest.approx(0.75, abs=0.05)
    by_token = {h["tokens"][0].item(): float(h["positional_scores"][0]) for h in found}
    assert by_token == pytest.approx({A: math.log(3), B: 0.0})


def test_certain_sentences_cost_one_row_each():
    """A batch with support 1 everywhere decodes at greedy cost, whatever the beam."""
    model = table_model(probability_table(ONE_SENTENCE, 3), IDENTITY)
    SparseSequenceGenerator([model], model.decoder.dictionary, 10).generate([model], sample(3))
    assert model.decoder.rows == [3, 3, 3]


def test_dead_rows_and_finished_sentences_leave_the_batch():
    table = torch.cat(
        [probability_table(rows) for rows in (ONE_SENTENCE, TWO_SENTENCES, NEVER_EOS)]
    )
    model = table_model(table, IDENTITY)
    generator = SparseSequenceGenerator([model], model.decoder.dictionary, 3, max_len_b=4)
    generator.generate([model], sample(3))
    # 1 + 1 + 1 rows; then a | a, b | a, b; then ab | none | at most three of the third
    assert model.decoder.rows == [3, 5, 4, 3, 3]


def test_support_on_request():
    (found,) = decode(TWO_SENTENCES, return_support=True)
    assert [h["support"].tolist() for h in found] == [[2, 1], [2, 1]]
    assert "support" not in decode(TWO_SENTENCES)[0][0]


def test_nan_is_an_error():
    with pytest.raises(GenerationError, match="NaN at step 1"):
        decode({EOS: {A: 1.0}, A: {A: math.nan}})


def test_bad_settings():
    with pytest.raises(GenerationError, match="--min-len 9 is larger than the maximum length 6"):
        decode(ONE_SENTENCE, min_len=9)
    with pytest.raises(GenerationError, match="--temperature"):
        decode(ONE_SENTENCE, temperature=0)
    with pytest.raises(GenerationError, match="--score-normalization"):
        decode(ONE_SENTENCE, score_normalization="sum")
    with pytest.raises(GenerationError, match="'x1'"):
        decode(ONE_SENTENCE, tokens_to_suppress=["x1"])
    with pytest.raises(GenerationError, match="constraints"):
        decode(ONE_SENTENCE, arguments={"constraints": torch.zeros(1, 1).long()})


def test_beginning_of_sentence():
    rows = {BOS: {A: 1.0}, A: {EOS: 1.0}}
    assert tokens(decode(rows, arguments={"bos_token": BOS})[0]) == [[A, EOS]]
