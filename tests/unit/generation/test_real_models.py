"""Beam and exact search with real decoders against brute force: all their sentences, force-decoded.

Prefixes of different lengths share calls here, as they do for users; tables of scores cannot do
that.
"""

import dataclasses
import functools
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_models import EOS, PAD, normalized
from test_oracle import PROBABILITIES, World, many, worlds
from tiny_fairseq import make_batch, make_model, make_task

from sparse_fairseq.generation import batch_search, exact_search, tree_attention
from sparse_fairseq.output_transform import OutputSettings

PLENTY = 100_000
SENTENCES = 3
ARCHITECTURES = {
    "learned positions": ("transformer", {"decoder_learned_pos": True}),
    "sinusoidal": ("transformer", {"layernorm_embedding": True}),
    "no positions": (
        "transformer",
        {"no_token_positional_embeddings": True, "decoder_normalize_before": True},
    ),
    "sparse attention": ("sparse_transformer", {"attention_alpha": 1.5}),
    "lstm": ("lstm", {}),
}
TASK = make_task(vocab=8, made_up=0)
ONGOING = [token for token in range(len(TASK.tgt_dict)) if token not in (PAD, EOS)]


@functools.cache
def untrained(name: str, copy: int):
    arch, options = ARCHITECTURES[name]
    model = make_model(TASK, arch, **options).eval()
    output_of(model).bias = torch.nn.Parameter(torch.zeros(len(TASK.tgt_dict)))
    return model.double()


def output_of(model) -> torch.nn.Linear:
    decoder = model.decoder
    return decoder.output_projection if hasattr(decoder, "output_projection") else decoder.fc_out


class RealWorld(World):
    BEYOND = 1

    def make(self, world):
        batch = make_batch(TASK, sentences=SENTENCES, length=5, seed=world["seed"] % 1000)
        batch["id"] = torch.arange(SENTENCES)
        generator, models = torch.Generator().manual_seed(world["seed"]), []
        for copy, output in enumerate(world["settings"]):
            name = world["architectures"][copy % len(world["architectures"])]
            models.append(model := untrained(name, copy))
            for parameter in model.parameters():
                parameter.data.normal_(std=0.3 * world["scale"], generator=generator)
            output_of(model).bias.data[PAD] = -100.0  # trained models do not expect padding
            model.decoder.output_transform.settings = dataclasses.replace(output)
        self.longest = world["max_len"] + self.BEYOND
        self.prev = torch.tensor(
            [(EOS, *tokens) for tokens in itertools.product(ONGOING, repeat=self.longest)]
        )
        self.scores = [self._scores(models, batch, number) for number in range(SENTENCES)]
        return models, TASK.tgt_dict, batch

    @torch.no_grad()
    def _scores(self, models, batch, number):
        """Log-scores [prefixes of the longest sentences, step, token]."""
        places = torch.full((len(self.prev),), number)
        found = []
        for model in models:
            net_input = {k: batch["net_input"][k] for k in ("src_tokens", "src_lengths")}
            source = model.encoder.reorder_encoder_out(model.encoder(**net_input), places)
            logits, _ = model.decoder(self.prev, encoder_out=source)
            found.append(model.decoder.output_transform.scores(logits / self.temperature))
        return normalized(torch.stack(found).mean(0), self.renormalize).log().tolist()

    def followers(self, number):
        size, longest = len(ONGOING), self.longest

        def after(tokens):
            digits = map(ONGOING.index, tokens)
            row = sum(d * size ** (longest - 1 - place) for place, d in enumerate(digits))
            scores = self.scores[number][row][len(tokens)]
            return [(token, score) for token, score in enumerate(scores) if score > -math.inf]

        return after


real_worlds = st.tuples(
    worlds, st.lists(st.sampled_from(sorted(ARCHITECTURES)), min_size=1, max_size=2)
).map(lambda pair: {**pair[0], "architectures": pair[1], "max_len": min(3, pair[0]["max_len"])})


@settings(many, max_examples=60)
@given(
    world=real_worlds,
    beam=st.integers(1, 3),
    nbest=st.integers(1, 5),
    budget=st.sampled_from([0, 2, 10, 40, PLENTY]),
    kept=st.sampled_from([1, 2, exact_search.TOKENS]),
    likely=st.sampled_from([0.0, exact_search.LIKELY_SHARE]),
)
def test_nothing_that_is_claimed_is_wrong(world, beam, nbest, budget, kept, likely):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_search, "TOKENS", kept)
        patch.setattr(batch_search, "TOKENS", kept)
        patch.setattr(exact_search, "MORE_TOKENS", 2)
        patch.setattr(exact_search, "LIKELY_SHARE", likely)
        patch.setattr(tree_attention, "PART_ROWS", 1)
        world = RealWorld(world, beam, nbest, exact_budget=budget)
    world.check_proofs()
    for found, oracle in world.oracles():
        world.check_scores(found, oracle)
        if budget == PLENTY:
            world.check_best(found, oracle, nbest)


@settings(many, max_examples=30)
@given(
    world=real_worlds,
    mass=st.sampled_from([0.5, 1.0]),
    budget=st.sampled_from([5, 30, 200, PLENTY]),
)
def test_enumeration_knows_what_it_has_not_found(world, mass, budget):
    world = RealWorld({**world, **PROBABILITIES}, 1, exact_budget=budget, enumerate_mass=mass)
    world.check_proofs()
    if budget == PLENTY:
        for found, oracle in world.oracles():
            world.check_mass(found, oracle, mass)


def test_the_empty_prefix_is_evaluated_again(monkeypatch):
    """It has no states to go on from, as longer ones have that are evaluated with it."""
    for module in (exact_search, batch_search):
        monkeypatch.setattr(module, "TOKENS", 1)
    monkeypatch.setattr(exact_search, "MORE_TOKENS", 2)
    chosen = {
        **{"settings": [OutputSettings()] * 2, "architectures": ["lstm"], "seed": 0, "scale": 2.0},
        **{"max_len": 3, "min_len": 1, "prefixes": [], "len_penalty": 2.0, "unk_penalty": 0.0},
        **{"no_repeat_ngram_size": 0, "temperature": 1.0, "usable": 2, "tokens_to_suppress": ()},
        **{"normalize_scores": False, "score_normalization": "none"},
    }
    world = RealWorld(chosen, 1, 3, exact_budget=40)
    for found, oracle in world.oracles():
        world.check_scores(found, oracle)
