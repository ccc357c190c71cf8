"""Against brute force: thousands of small random models, each with all its sentences."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_models import (
    EOS,
    PAD,
    Oracle,
    random_table,
    sample,
    table_followers,
    table_model,
)

from sparse_fairseq.generation import SparseSequenceGenerator
from sparse_fairseq.output_transform import OutputSettings

SENTENCES = 25  # random models in each example
VOCAB, LONGEST = 48, 4

transforms = st.one_of(
    st.just(OutputSettings()),
    st.sampled_from([1.2, 1.5, 2.0]).map(lambda alpha: OutputSettings("entmax", alpha)),
    st.tuples(st.sampled_from([1.5, 2.0]), st.floats(-0.5, 1.5)).map(
        lambda pair: OutputSettings("alpha_relu", *pair)
    ),
)
# Sentences take these demands in turn: tokens, and whether the sentence ends after them.
prefixes = st.lists(st.tuples(st.lists(st.integers(3, 5), max_size=3), st.booleans()), max_size=3)
worlds = st.fixed_dictionaries(
    {
        "settings": st.lists(transforms, min_size=1, max_size=3),
        "scale": st.sampled_from([0.5, 1.0, 2.0, 4.0]),
        "usable": st.integers(2, 4),
        "seed": st.integers(0, 2**31),
        "max_len": st.integers(1, LONGEST),
        "min_len": st.integers(0, 2),
        "prefixes": prefixes,
        "len_penalty": st.sampled_from([0.0, 0.5, 1.0, 2.0, -0.5, -2.0]),
        "unk_penalty": st.sampled_from([0.0, 0.0, 1.5, -1.0]),
        "no_repeat_ngram_size": st.sampled_from([0, 0, 0, 1, 2]),
        "temperature": st.sampled_from([1.0, 1.0, 0.5, 2.0]),
        "tokens_to_suppress": st.sampled_from([(), (), ("w0",)]),
        "normalize_scores": st.booleans(),
        "score_normalization": st.sampled_from(["none", "renormalize"]),
    }
)
PROBABILITIES = {"unk_penalty": 0.0, "score_normalization": "renormalize"}
FLAGS = (
    "len_penalty",
    "normalize_scores",
    "score_normalization",
    "unk_penalty",
    "no_repeat_ngram_size",
    "temperature",
    "tokens_to_suppress",
)
many = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


class World:
    """Models, what the generator finds, and what there is to find."""

    BEYOND = 2  # tokens by which sentences of any length are longer here than the maximum

    def __init__(self, world, beam, nbest=None, **settings):
        self.lenpen = world["len_penalty"] if world["normalize_scores"] else 0.0
        self.max_len, self.len_penalty = world["max_len"], world["len_penalty"]
        self.renormalize = world["score_normalization"] == "renormalize"
        self.temperature = world["temperature"]
        self.prefixes = padded(world["prefixes"])
        self.models, self.dictionary, batch = self.make(world)
        min_len = min(world["min_len"], world["max_len"])
        limits = {"max_len_b": world["max_len"], "min_len": min_len}
        flags = {**limits, **{name: world[name] for name in FLAGS}, **settings}
        self.generator = SparseSequenceGenerator(
            self.models, self.dictionary, beam, nbest=nbest, **flags
        )
        self.found = self.decode(batch)
        self.oracle_options = {
            "min_len": min_len,
            "prefix_limit": world["max_len"],  # as in fairseq
            "unk_penalty": world["unk_penalty"],
            "ngram_size": world["no_repeat_ngram_size"],
            "suppressed": [self.dictionary.index(word) for word in world["tokens_to_suppress"]],
        }

    def make(self, world):
        """(models, dictionary, batch)"""
        shape = (SENTENCES, LONGEST + 4, VOCAB, world["usable"], world["scale"])
        models = [
            table_model(random_table(*shape, world["seed"] + i), output)
            for i, output in enumerate(world["settings"])
        ]
        return models, models[0].decoder.dictionary, sample(SENTENCES)

    def followers(self, number):
        return table_followers(self.models, number, self.renormalize, self.temperature)

    def demand(self, number) -> tuple[int, ...]:
        return self.prefixes[number % len(self.prefixes)]

    def decode(self, batch):
        demands = torch.tensor([self.demand(number) for number in batch["id"].tolist()])
        prefix = demands if demands.numel() else None
        return self.generator.generate(self.models, batch, prefix_tokens=prefix)

    def oracles(self, beyond=0):
        """(what was found, what there is up to so many tokens beyond the maximum length)"""
        for number, found in enumerate(self.found):
            limit, prefix = self.max_len + beyond, self.demand(number)
            yield found, Oracle(self.followers(number), limit, prefix=prefix, **self.oracle_options)

    def check_scores(self, found, oracle):
        """Every hypothesis has its own score, best first, none twice; none is invented."""
        assert found
        scores = [float(h["score"]) for h in found]
        assert scores == sorted(scores, reverse=True)
        sentences = [tuple(h["tokens"].tolist()) for h in found]
        assert len(set(sentences)) == len(sentences)
        for hypothesis, sentence in zip(found, sentences, strict=True):
            assert sentence[-1] == EOS
            if hypothesis["status"] == "forced":
                assert len(found) == 1 and hypothesis["score"] == -math.inf
                assert sentence not in oracle.total
            else:
                total = oracle.total[sentence]
                expected = total / len(sentence) ** self.lenpen
                assert hypothesis["score"].item() == pytest.approx(expected, rel=1e-4, abs=1e-4)
                assert hypothesis["positional_scores"].sum().item() == pytest.approx(
                    total, rel=1e-4, abs=1e-4
                )

    def check_best(self, found, oracle, nbest):
        """A large budget finds the n best, and proves them."""
        best = oracle.ranked(self.lenpen)[:nbest]
        finished = [h for h in found if h["status"] == "finished"]
        scores = [float(h["score"]) for h in finished]
        assert scores[: len(best)] == pytest.approx(best, rel=1e-4, abs=1e-4)
        # Only sentences beyond the maximum length are beyond its reach. Where totals may grow,
        # nothing bounds these.
        bounded = self.generator.output().only_falls and self.lenpen > 0
        if bounded or not oracle.cut:
            assert all(h["proved"] for h in finished[:nbest])

    def check_mass(self, found, oracle, mass):
        """A large budget finds sentences with this probability, or all there are: the mass of what
        is too long, or forbidden, is nobody's."""
        listed = sum(math.exp(h["positional_scores"].sum()) for h in found)
        everything = oracle.mass(self.max_len)
        assert listed >= min(mass, everything) - 1e-4
        if mass == 1.0 and everything < 1 - 1e-4:
            assert sum(h["status"] == "finished" for h in found) == len(oracle.total)
        # All has been seen: so what nobody has is known, too, but for what α-ReLU loses at prefixes
        # that nothing may follow.
        kinds = {m.decoder.output_transform.settings.kind for m in self.models}
        if mass == 1.0 and "alpha_relu" not in kinds:
            assert found[0]["mass"][1] == pytest.approx(everything, abs=1e-4)

    def check_proofs(self):
        """Nothing that is claimed is wrong. What is said about totals holds for sentences of any
        length, what is said about normalised scores for those within the maximum length."""
        for found, oracle in self.oracles(beyond=self.BEYOND):
            totals = [float(h["positional_scores"].sum()) for h in found]
            best, ranked = oracle.best(), oracle.ranked(self.lenpen, self._proved_until)
            best_normalized = oracle.best(self.len_penalty, self.max_len)
            listed, mass = sum(map(math.exp, totals)), oracle.mass(self.max_len)
            finished = [h for h in found if h["status"] == "finished"]
            for place, (hypothesis, total) in enumerate(zip(found, totals, strict=True)):
                score = total / len(hypothesis["tokens"]) ** self.len_penalty
                check_bound(hypothesis, "raw", total, best)
                check_bound(hypothesis, "normalized", score, best_normalized)
                if hypothesis["exhaustive"]:
                    assert len(finished) == len(oracle.total)
                if hypothesis["proved"]:
                    assert hypothesis["score"].item() >= ranked[place] - 1e-4
                if hypothesis["mass"] is not None:
                    least, most = hypothesis["mass"]
                    assert least == pytest.approx(listed, abs=1e-4)
                    assert least - 1e-4 <= mass <= most + 1e-4 and most <= 1 + 1e-4

    @property
    def _proved_until(self) -> float:
        """How long the sentences are that proofs are about: of any length where totals rank."""
        return self.max_len if self.lenpen else math.inf


def padded(demands) -> list[tuple[int, ...]]:
    """All of one length, with padding on the right, where nothing is demanded."""
    rows = [[*tokens, EOS] if ends else tokens for tokens, ends in demands] or [[]]
    widest = max(map(len, rows))
    return [(*row, *[PAD] * (widest - len(row))) for row in rows]


def check_bound(hypothesis, kind, score, best):
    exact, bound, gap = (hypothesis[key][kind] for key in ("exact", "bound", "gap"))
    # E- lines and JSON have no use for numpy's.
    assert type(exact) is type(hypothesis["proved"]) is type(hypothesis["exhaustive"]) is bool
    assert {type(bound), type(gap)} <= {float, type(None)}
    if exact:
        assert score >= best - 1e-4 and gap == 0
    if bound is None:
        assert gap is None and not exact
    else:
        assert bound >= best - 1e-4
        if hypothesis["status"] == "forced":
            assert gap is None and not exact
        else:
            assert exact == (gap == 0)
            assert gap == pytest.approx(bound - score, abs=1e-4)


@many
@given(world=worlds)
def test_wide_beam_finds_and_certifies_everything(world):
    world = World(world, VOCAB - 1)
    for found, oracle in world.oracles():
        world.check_scores(found, oracle)
        if oracle.widest > VOCAB - 1:
            continue
        if oracle.total:
            assert {tuple(h["tokens"].tolist()) for h in found} == set(oracle.total)
            best = found[0]["score"].item()
            assert best == pytest.approx(oracle.best(world.lenpen), rel=1e-4, abs=1e-4)
        else:
            assert [h["status"] for h in found] == ["forced"]
        assert all(h["exhaustive"] == (not oracle.cut) for h in found)
        if oracle.total and not oracle.cut:
            assert any(h["exact"]["raw"] for h in found)
            assert any(h["exact"]["normalized"] for h in found)
            assert found[0]["exact"]["normalized" if world.lenpen else "raw"]


@many
@given(world=worlds, beam=st.integers(1, 5), nbest=st.integers(1, 5))
def test_certificate_of_a_narrow_beam_is_never_wrong(world, beam, nbest):
    world = World(world, beam, nbest)
    for found, oracle in world.oracles():
        world.check_scores(found, oracle)
        if oracle.total and oracle.widest <= beam:
            assert found[0]["status"] == "finished"
    world.check_proofs()


@settings(many, max_examples=20)
@given(world=worlds, beam=st.integers(1, 6), batch=st.integers(1, 7), padding=st.integers(0, 3))
def test_batches_and_padding_change_nothing(world, beam, batch, padding):
    world = World(world, beam)
    assert_batches_change_nothing(world, batch, padding)


def assert_batches_change_nothing(world, batch, padding):
    """Nor does the order of the sentences."""
    padded = sample(SENTENCES, padding)
    shuffled = torch.randperm(SENTENCES, generator=torch.Generator().manual_seed(batch))
    for part in shuffled.split(batch):
        net_input = {name: value[part] for name, value in padded["net_input"].items()}
        found = world.decode({"id": padded["id"][part], "net_input": net_input})
        for one, number in zip(found, part.tolist(), strict=True):
            other = world.found[number]
            assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
            for key in ("exact", "proved", "exhaustive"):
                assert [h[key] for h in one] == [h[key] for h in other]
            for a, b in zip(one, other, strict=True):
                for key in ("gap", "bound"):
                    assert a[key] == pytest.approx(b[key], abs=1e-5)
                torch.testing.assert_close(a["score"], b["score"])
