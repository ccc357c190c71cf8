"""Against brute force: thousands of small random models, each with all its sentences."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_models import EOS, Oracle, random_table, sample, table_model

from sparse_fairseq.generation import SparseSequenceGenerator
from sparse_fairseq.output_transform import OutputSettings

SENTENCES = 40  # random models in each example
VOCAB, LONGEST = 48, 4

transforms = st.one_of(
    st.just(OutputSettings()),
    st.sampled_from([1.2, 1.5, 2.0]).map(lambda alpha: OutputSettings("entmax", alpha)),
    st.tuples(st.sampled_from([1.5, 2.0]), st.floats(-0.5, 1.5)).map(
        lambda pair: OutputSettings("alpha_relu", *pair)
    ),
)
worlds = st.fixed_dictionaries(
    {
        "settings": st.lists(transforms, min_size=1, max_size=3),
        "scale": st.sampled_from([0.5, 1.0, 2.0, 4.0]),
        "usable": st.integers(2, 4),
        "seed": st.integers(0, 2**31),
        "max_len": st.integers(1, LONGEST),
        "min_len": st.integers(0, 1),
        "prefix": st.lists(st.integers(3, 5), max_size=2),
        "len_penalty": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        "normalize_scores": st.booleans(),
        "score_normalization": st.sampled_from(["none", "renormalize"]),
    }
)
many = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


class World:
    """Models, what the generator finds, and what there is to find."""

    def __init__(self, world, beam, nbest=None):
        self.lenpen = world["len_penalty"] if world["normalize_scores"] else 0.0
        self.models = [
            table_model(
                random_table(
                    SENTENCES,
                    LONGEST + 4,
                    VOCAB,
                    world["usable"],
                    world["scale"],
                    world["seed"] + i,
                ),
                output,
            )
            for i, output in enumerate(world["settings"])
        ]
        limits = {"max_len_b": world["max_len"], "min_len": world["min_len"]}
        generator = SparseSequenceGenerator(
            self.models,
            self.models[0].decoder.dictionary,
            beam,
            nbest=nbest,
            **limits,
            **{
                name: world[name]
                for name in ("len_penalty", "normalize_scores", "score_normalization")
            },
        )
        # As in fairseq, a prefix ends where the longest sentence must.
        prefix = world["prefix"][: world["max_len"]]
        tokens = torch.tensor([prefix] * SENTENCES) if prefix else None
        self.found = generator.generate(self.models, sample(SENTENCES), prefix_tokens=tokens)
        self.oracle_options = {
            "min_len": world["min_len"],
            "prefix": prefix,
            "renormalize": world["score_normalization"] == "renormalize",
        }
        self.max_len, self.len_penalty = world["max_len"], world["len_penalty"]

    def oracles(self, max_len=None):
        longest = self.max_len if max_len is None else max_len
        for number, found in enumerate(self.found):
            yield found, Oracle(self.models, number, longest, **self.oracle_options)

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
    # A certificate speaks about longer sentences too.
    for found, oracle in world.oracles(world.max_len + 2):
        for hypothesis in found:
            total = float(hypothesis["positional_scores"].sum())
            normalized = total / len(hypothesis["tokens"]) ** world.len_penalty
            if hypothesis["exact"]["raw"]:
                assert total >= oracle.best() - 1e-4
            if hypothesis["exact"]["normalized"]:
                assert normalized >= oracle.best(world.len_penalty) - 1e-4
            if hypothesis["exhaustive"]:
                finished = [h for h in found if h["status"] == "finished"]
                assert len(finished) == len(oracle.total)


@settings(many, max_examples=20)
@given(world=worlds, beam=st.integers(1, 6), batch=st.integers(1, 7), padding=st.integers(0, 3))
def test_batches_and_padding_change_nothing(world, beam, batch, padding):
    whole = World(world, beam)
    generator = SparseSequenceGenerator(
        whole.models, whole.models[0].decoder.dictionary, beam, max_len_b=whole.max_len
    )
    alone = generator.generate(whole.models, sample(SENTENCES))
    padded = sample(SENTENCES, padding)
    for start in range(0, SENTENCES, batch):
        part = {
            "id": padded["id"][start : start + batch],
            "net_input": {k: v[start : start + batch] for k, v in padded["net_input"].items()},
        }
        for one, other in zip(generator.generate(whole.models, part), alone[start:], strict=False):
            assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
            assert [h["exact"] for h in one] == [h["exact"] for h in other]
            for a, b in zip(one, other, strict=True):
                torch.testing.assert_close(a["score"], b["score"])
