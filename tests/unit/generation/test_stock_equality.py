"""On softmax models our generator returns what fairseq's returns, whatever the flag."""

import pytest
import torch
from fairseq import search
from fairseq.modules import FairseqDropout
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer
from fairseq.token_generation_constraints import pack_constraints
from tiny_fairseq import make_batch, make_model, make_task
from torch import nn

from sparse_fairseq.generation import (
    SparseSequenceGenerator,
    SparseSequenceGeneratorWithAlignment,
    SparseSequenceScorer,
)


@pytest.fixture(scope="module")
def task():
    return make_task(vocab=32)


@pytest.fixture(scope="module")
def batch(task):
    return make_batch(task, sentences=7, length=9)


def random_model(task, seed: int = 0, arch: str = "transformer", peak: float = 3.0, **args):
    """Large weights, for predictions that depend on the input and on the position."""
    positions = {"encoder_learned_pos": True, "decoder_learned_pos": True}
    model = make_model(task, arch, **positions, **args).eval()
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(std=peak * max(parameter.std().item(), 0.05))
    return model


def assert_same(ours, stock):
    assert len(ours) == len(stock)
    for our_list, stock_list in zip(ours, stock, strict=True):
        assert [h["tokens"].tolist() for h in our_list] == [
            h["tokens"].tolist() for h in stock_list
        ]
        for one, other in zip(our_list, stock_list, strict=True):
            for key in ("score", "positional_scores", "attention"):
                close = {"atol": 1e-5, "rtol": 1e-5, "equal_nan": True}
                torch.testing.assert_close(one[key], other[key], **close)
            assert one["status"] == "finished"


def assert_same_as_stock(task, batch, models, arguments=None, strategy=None, **settings):
    """Runs both with the same settings and the same random numbers."""
    # Long hypotheses of random models repeat themselves, with many all but equal scores.
    settings.setdefault("max_len_b", 12)
    results = []
    for kind in (SparseSequenceGenerator, SequenceGenerator):
        made = strategy(task.tgt_dict) if strategy else None
        generator = kind(models, task.tgt_dict, search_strategy=made, **settings)
        torch.manual_seed(1)
        results.append(generator.generate(models, batch, **(arguments or {})))
    assert_same(*results)
    return results[0]


class BigramModel(nn.Module):
    """The least that the generator expects of a language model."""

    def __init__(self, size: int):
        super().__init__()
        self.table = nn.Embedding(size, size)

    def forward(self, tokens):
        return (self.table(tokens),)

    def get_normalized_probs(self, out, log_probs, sample=None):
        return out[0].log_softmax(-1)


SETTINGS = {
    "defaults": {},
    "beam": {"beam_size": 5},
    "wide beam": {"beam_size": 25},
    "beam larger than the dictionary": {"beam_size": 99},
    "lenpen": {"beam_size": 5, "len_penalty": 0.3},
    "negative lenpen": {"beam_size": 5, "len_penalty": -0.5},
    "unnormalized": {"beam_size": 5, "normalize_scores": False},
    "unkpen": {"beam_size": 5, "unk_penalty": 2.0},
    "negative unkpen": {"beam_size": 5, "unk_penalty": -6.0},
    "max-len": {"beam_size": 5, "max_len_a": 0.5, "max_len_b": 2},
    "max_len": {"beam_size": 5, "max_len": 4},
    "min-len": {"beam_size": 5, "min_len": 7, "max_len_b": 12},
    "min-len 0": {"beam_size": 5, "min_len": 0},
    "temperature": {"beam_size": 5, "temperature": 2.5},
    "low temperature": {"beam_size": 5, "temperature": 0.3},
    "suppressed tokens": {"beam_size": 5, "tokens_to_suppress": ["w1", "w3", "w5", "w8"]},
    "another eos": {"beam_size": 3, "eos": 9},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_settings(task, batch, name, seed):
    assert_same_as_stock(task, batch, [random_model(task, seed)], **SETTINGS[name])


@pytest.mark.parametrize("arch", ["lstm", "fconv", "lightconv", "transformer_align"])
def test_architectures(task, batch, arch):
    assert_same_as_stock(task, batch, [random_model(task, arch=arch, peak=1.5)], beam_size=4)


@pytest.mark.parametrize("size", [2, 3])
def test_ensembles_average_probabilities(task, batch, size):
    assert_same_as_stock(
        task, batch, [random_model(task, seed) for seed in range(size)], beam_size=4
    )


def test_language_model_fusion(task, batch):
    torch.manual_seed(0)
    lm = BigramModel(len(task.tgt_dict))
    assert_same_as_stock(task, batch, [random_model(task)], beam_size=4, lm_model=lm, lm_weight=0.4)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_prefix_tokens(task, batch, size):
    prefix = batch["target"][:, :size].clone()  # some targets are shorter: EOS, then padding
    short = (prefix == task.tgt_dict.eos()).any(1)
    prefix[short] = task.tgt_dict.pad()  # for which fairseq repeats one hypothesis `beam` times
    assert_same_as_stock(task, batch, [random_model(task)], {"prefix_tokens": prefix}, beam_size=4)


def test_prefix_that_ends_the_sentence(task, batch):
    """fairseq returns the same hypothesis `beam` times, we once."""
    model, prefix = random_model(task), batch["target"]
    ours, stock = (
        kind([model], task.tgt_dict, beam_size=3).generate([model], batch, prefix_tokens=prefix)
        for kind in (SparseSequenceGenerator, SequenceGenerator)
    )
    for (one,), (other, *_) in zip(ours, stock, strict=True):
        assert one["tokens"].tolist() == other["tokens"].tolist()
        torch.testing.assert_close(one["score"], other["score"], atol=1e-5, rtol=1e-5)


def test_beginning_of_sentence(task, batch):
    assert_same_as_stock(task, batch, [random_model(task)], {"bos_token": 7}, beam_size=4)


def allowed(sentence: int, tokens: list[int]) -> list[int]:
    """Nothing after EOS, where fairseq's search goes on."""
    ended = tokens[-1] == 2 and len(tokens) > 1
    return [] if ended else [2, *range(4, 24, 1 + sentence % 3 + len(tokens) % 2)]


STRATEGIES = {
    "sampling": (lambda d: search.Sampling(d), 4),
    "sampling-topk": (lambda d: search.Sampling(d, sampling_topk=5), 4),
    "sampling-topp": (lambda d: search.Sampling(d, sampling_topp=0.8), 4),
    "diverse beam": (lambda d: search.DiverseBeamSearch(d, 4, 0.5), 4),
    "diverse siblings": (lambda d: search.DiverseSiblingsSearch(d, 0.7), 5),
    "prefix constraints": (
        lambda d: search.PrefixConstrainedBeamSearch(
            d, lambda i, tokens: allowed(int(i), tokens.tolist())
        ),
        4,
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_search_strategies(task, batch, name, seed):
    strategy, beam = STRATEGIES[name]
    assert_same_as_stock(task, batch, [random_model(task, seed)], strategy=strategy, beam_size=beam)


def test_diverse_beam_with_several_rows_per_group(task, batch):
    """Once a hypothesis has ended, fairseq's groups go on with rows that have ended: ours never,
    so they agree on what ends first."""
    model = random_model(task)
    ours, stock = (
        kind(
            [model],
            task.tgt_dict,
            beam_size=4,
            search_strategy=search.DiverseBeamSearch(task.tgt_dict, 2, 0.5),
        ).generate([model], batch)
        for kind in (SparseSequenceGenerator, SequenceGenerator)
    )
    for our_list, stock_list in zip(ours, stock, strict=True):
        assert not any((h["tokens"][:-1] == task.tgt_dict.eos()).any() for h in our_list)
        shortest = min(stock_list, key=lambda h: len(h["tokens"]))["tokens"].tolist()
        assert shortest in [h["tokens"].tolist() for h in our_list]


@pytest.mark.parametrize("representation", ["ordered", "unordered"])
def test_lexical_constraints(task, batch, representation):
    words = [torch.tensor([6, 9]), torch.tensor([11])]
    constraints = pack_constraints([words[: i % 3] for i in range(len(batch["id"]))])
    model = random_model(task)
    ours, stock = (
        kind(
            [model],
            task.tgt_dict,
            beam_size=5,
            max_len_b=12,
            search_strategy=search.LexicallyConstrainedBeamSearch(task.tgt_dict, representation),
        ).generate([model], batch, constraints=constraints)
        for kind in (SparseSequenceGenerator, SequenceGenerator)
    )
    # At the maximum length fairseq lets forbidden tokens take the place of possible ones.
    known = [[h["tokens"].tolist() for h in found] for found in stock]
    both = zip(ours, known, strict=True)
    ours = [[h for h in found if h["tokens"].tolist() in k] for found, k in both]
    assert_same(ours, stock)
    for found, wanted in zip(ours, constraints.tolist(), strict=True):
        assert (wanted[0] < 1 or "6, 9" in str(found[0]["tokens"].tolist())) and found


@pytest.mark.parametrize("min_len", [1, 4])
def test_match_source_length(task, batch, min_len):
    """fairseq fills its lists with hypotheses of score −inf; we do not. Some sources are shorter
    than the larger minimum, and win."""
    model = random_model(task)
    ours, stock = (
        kind(
            [model],
            task.tgt_dict,
            beam_size=4,
            min_len=min_len,
            match_source_len=True,
            search_strategy=search.LengthConstrainedBeamSearch(task.tgt_dict, 1, 0, 1, 0),
        ).generate([model], batch)
        for kind in (SparseSequenceGenerator, SequenceGenerator)
    )
    assert_same(ours, [[h for h in found if h["score"] > -torch.inf] for found in stock])
    lengths = batch["net_input"]["src_lengths"].tolist()
    assert [len(found[0]["tokens"]) - 1 for found in ours] == lengths


@pytest.mark.parametrize("size", [2, 3])
def test_no_repeated_ngrams(task, batch, size, monkeypatch):
    """fairseq's CPU code compares with padding and blocks nothing; on CUDA it works. Here it gets
    the tokens without padding."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    block = NGramRepeatBlock._no_repeat_ngram

    def without_padding(self, tokens, lprobs, bsz, beam_size, step):
        return block(self, tokens[:, : step + 1], lprobs, bsz, beam_size, step)

    monkeypatch.setattr(NGramRepeatBlock, "_no_repeat_ngram", without_padding)
    settings = {"beam_size": 4, "no_repeat_ngram_size": size, "max_len_b": 20}
    found = assert_same_as_stock(task, batch, [random_model(task)], **settings)
    for hypothesis in (h for hypotheses in found for h in hypotheses):
        tokens = hypothesis["tokens"].tolist()
        ngrams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        assert len(ngrams) == len(set(ngrams))


@pytest.mark.parametrize("how", ["hard", "soft"])
@pytest.mark.parametrize("arch", ["transformer", "transformer_align"])
def test_alignment(task, batch, how, arch):
    options = {"alignment_layer": 0, "alignment_heads": 1, "full_context_alignment": True}
    model = random_model(task, arch=arch, **(options if arch == "transformer_align" else {}))
    ours, stock = (
        kind([model], task.tgt_dict, beam_size=3, print_alignment=how).generate([model], batch)
        for kind in (SparseSequenceGeneratorWithAlignment, SequenceGeneratorWithAlignment)
    )
    assert_same(ours, stock)
    for our_list, stock_list in zip(ours, stock, strict=True):
        for one, other in zip(our_list, stock_list, strict=True):
            assert one["alignment"] == other["alignment"]


def test_retained_dropout(task, batch):
    """In the encoder, which both run on the same rows."""
    model = random_model(task)
    for module in model.encoder.modules():
        if isinstance(module, FairseqDropout):
            module.apply_during_inference = True
            module.p = 0.3
    kept = assert_same_as_stock(task, batch, [model], beam_size=3)
    for module in model.encoder.modules():
        if isinstance(module, FairseqDropout):
            module.apply_during_inference = False
    dropped = assert_same_as_stock(task, batch, [model], beam_size=3)
    assert kept[0][0]["score"] != dropped[0][0]["score"]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("softmax_batch", [None, 5])
def test_scored_references(task, batch, size, softmax_batch):
    models = [random_model(task, seed) for seed in range(size)]
    ours = SparseSequenceScorer(task.tgt_dict, softmax_batch, normalize_scores=True)
    stock = SequenceScorer(task.tgt_dict, softmax_batch)
    for one, other in zip(ours.generate(models, batch), stock.generate(models, batch), strict=True):
        for key in ("tokens", "score", "positional_scores", "attention"):
            torch.testing.assert_close(one[0][key], other[0][key], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("normalize", [True, False])
def test_fewer_hypotheses_wanted(task, batch, normalize):
    """With nbest a search may end early; its best hypotheses are the same."""
    for seed in range(4):
        model = random_model(task, seed)
        settings = {"beam_size": 6, "normalize_scores": normalize, "max_len_b": 12}
        ours = SparseSequenceGenerator([model], task.tgt_dict, nbest=2, **settings)
        stock = SequenceGenerator([model], task.tgt_dict, **settings)
        found = [hypotheses[:2] for hypotheses in ours.generate([model], batch)]
        assert_same(found, [hypotheses[:2] for hypotheses in stock.generate([model], batch)])
