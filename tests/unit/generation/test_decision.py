"""Lists that hold a share of the probability, and the most useful hypothesis of a list."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF
from table_models import EOS, IDENTITY, probability_table, sample, table_model
from test_oracle import PROBABILITIES, World, many, worlds

from sparse_fairseq.generation import GenerationError, SparseSequenceGenerator, decision
from sparse_fairseq.generation.decision import UTILITIES, expected_utilities, utility
from sparse_fairseq.generation.report import ExactnessReport
from sparse_fairseq.output_transform import OutputSettings

A, B, C, D, UNLIKE = range(4, 9)
# One sentence alone against three that agree but for a word.
MEANT = {
    EOS: {UNLIKE: 0.35, A: 0.65},
    UNLIKE: {EOS: 1.0},
    A: {B: 0.34, C: 0.33, D: 0.33},
    **{word: {EOS: 1.0} for word in (B, C, D)},
}


@settings(many, max_examples=20)
@given(world=worlds, mass=st.sampled_from([0.3, 0.8, 1.0]))
def test_enumeration_holds_the_mass_that_was_asked_for(world, mass):
    world = World({**world, **PROBABILITIES}, 2, exact_budget=10_000, enumerate_mass=mass)
    for found, oracle in world.oracles():
        world.check_mass(found, oracle, mass)
    world.check_proofs()


@pytest.mark.parametrize(("mass", "words_needed"), [(0.5, 1), (0.7, 2), (0.9, 4)])
def test_enumeration_goes_on_no_longer_than_needed(mass, words_needed):
    """After each word half of the sentences end: 4 have one word, 16 two, 64 three."""
    words = (A, B, C, D)
    rows = {word: {EOS: 0.5, **dict.fromkeys(words, 0.125)} for word in words}
    rows[EOS] = dict.fromkeys(words, 0.25)
    model = table_model(probability_table(rows, steps=9).log(), OutputSettings())
    limits = {"max_len_b": 6, "exact_budget": 10_000, "enumerate_mass": mass}
    (found,) = SparseSequenceGenerator([model], model.decoder.dictionary, 1, **limits).generate(
        [model], sample(1)
    )
    assert mass - 1e-6 <= found[0]["mass"][0] < 1
    # A round may look at a few more.
    assert sum(model.decoder.rows) < 16 + sum(4**n for n in range(words_needed + 1))


def test_enumeration_needs_probabilities():
    model = table_model(probability_table({EOS: {A: 1.0}}), IDENTITY)
    generator = SparseSequenceGenerator(
        [model], model.decoder.dictionary, 1, max_len_b=4, exact_budget=9, enumerate_mass=0.5
    )
    with pytest.raises(GenerationError, match="--enumerate needs probabilities"):
        generator.generate([model], sample(1))
    model.decoder.output_transform.settings = OutputSettings("entmax", 1.5)
    assert generator.generate([model], sample(1))


@pytest.mark.parametrize("name", UTILITIES)
def test_a_text_is_as_useful_to_itself_as_can_be(name):
    measure = utility(name)
    assert measure("a small house", "a small house") == pytest.approx(100)
    assert measure("a small house", "two trees") < measure("a small house", "a small boat")


def test_expected_utility_is_the_mean_over_the_list():
    texts = ["the house", "the home", "a house", "the house"]
    p = [0.3, 0.4, 0.2, 0.1]
    found = expected_utilities(texts, [math.log(x) for x in p], utility("chrf"))
    chrf = CHRF()
    for text, value in zip(texts, found, strict=True):
        scores = [chrf.sentence_score(text, [other]).score for other in texts]
        assert value == pytest.approx(sum(q * s for q, s in zip(p, scores, strict=True)))


def test_most_useful_is_not_always_most_probable():
    model = table_model(probability_table(MEANT), IDENTITY)
    first = {}
    for way in ("map", "mbr"):
        settings = {"decision": way, "utility": "edit", "normalize_scores": False}
        (found,) = SparseSequenceGenerator(
            [model], model.decoder.dictionary, 5, score_normalization="renormalize", **settings
        ).generate([model], sample(1))
        first[way] = found[0]
    assert first["map"]["tokens"].tolist() == [UNLIKE, EOS]
    assert first["mbr"]["tokens"].tolist() == [A, B, EOS]
    assert first["mbr"]["expected_utility"] > 30 and not first["mbr"]["exact"]["raw"]


def test_a_decision_is_between_all_that_a_beam_finds():
    """However few are printed."""
    model = table_model((probability_table(MEANT) + 1e-6).log(), OutputSettings())
    for budget in (0, 1000):
        (found,) = SparseSequenceGenerator(
            *([model], model.decoder.dictionary, 5),
            **{"nbest": 1, "decision": "mbr", "utility": "edit", "exact_budget": budget},
            **{"normalize_scores": False, "max_len_b": 6},
        ).generate([model], sample(1))
        assert found[0]["tokens"].tolist() == [A, B, EOS]
        assert found[0]["utility_mass"] > 0.99


def test_the_probability_that_a_decision_rests_on(monkeypatch):
    monkeypatch.setattr(decision, "AT_MOST", 2)
    model = table_model(probability_table(MEANT).log(), OutputSettings())
    (found,) = SparseSequenceGenerator(
        *([model], model.decoder.dictionary, 5), decision="mbr", normalize_scores=False
    ).generate([model], sample(1))
    assert found[0]["utility_mass"] == pytest.approx(0.35 + 0.65 * 0.34, abs=1e-5)
    assert ["utility_mass" in h for h in found] == [True, True, False, False]
    line = ExactnessReport().add(found)
    assert line.endswith(f"utility_mass={found[0]['utility_mass']:.4f}")


@pytest.mark.parametrize(
    ("scores", "flags"), [(IDENTITY, {}), (OutputSettings(), {"unk_penalty": 1})]
)
def test_a_decision_needs_probabilities(scores, flags):
    model = table_model(probability_table(MEANT), scores)
    generator = SparseSequenceGenerator(
        [model], model.decoder.dictionary, 2, decision="mbr", **flags
    )
    with pytest.raises(GenerationError, match="--decision mbr needs probabilities"):
        generator.generate([model], sample(1))
