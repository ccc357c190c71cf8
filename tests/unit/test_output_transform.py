"""OutputTransform: mapping, state, and life inside a decoder."""

import copy
import io

import pytest
import torch
from fairseq.sequence_generator import EnsembleModel
from tiny_fairseq import ARCHITECTURES, make_batch, make_model, make_task

from sparse_fairseq import functional as F
from sparse_fairseq.output_transform import (
    STATE_KEY,
    OutputSettings,
    OutputTransform,
    attach_output_transform,
)

RELU = OutputSettings("alpha_relu", 1.3, 0.1 + 0.2)
ENTMAX = OutputSettings("entmax", 1.5)
KEY = f"decoder.output_transform.{STATE_KEY}"


@pytest.fixture
def task():
    return make_task()


@pytest.fixture
def model(task):
    return make_model(task).eval()


def with_settings(model, settings):
    model.decoder.output_transform.settings = settings
    return model


@pytest.mark.parametrize(
    "settings, mapping",
    [
        (OutputSettings(), lambda z: z.softmax(-1)),
        (OutputSettings("entmax", 1.0), lambda z: z.softmax(-1)),
        (OutputSettings("entmax", 1.5), lambda z: F.entmax(z, 1.5)),
        (OutputSettings("entmax", 2.0), F.sparsemax),
        (OutputSettings("alpha_relu", 1.5, 0.3), lambda z: F.alpha_relu(z, 1.5, 0.3)),
    ],
    ids=["softmax", "entmax1", "entmax15", "sparsemax", "alpha_relu"],
)
def test_model_answers_with_the_transform(task, model, settings, mapping):
    sample = make_batch(task)
    net_output = with_settings(model, settings)(**sample["net_input"])
    expected = mapping(net_output[0].double())
    scores = model.get_normalized_probs(net_output, log_probs=False)
    log_scores = model.get_normalized_probs(net_output, log_probs=True, sample=sample)
    torch.testing.assert_close(scores.double(), expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(log_scores == -torch.inf, scores == 0)
    torch.testing.assert_close(log_scores.exp(), scores, atol=1e-6, rtol=1e-5)


def test_ensemble_averages_scores_of_different_transforms(task):
    settings = [OutputSettings(), ENTMAX, OutputSettings("alpha_relu", 1.5, 0.3)]
    models = [with_settings(make_model(task).eval(), each) for each in settings]
    sample = make_batch(task)["net_input"]
    ensemble = EnsembleModel(models)
    ensemble.has_incremental = False
    tokens = sample["prev_output_tokens"]
    log_scores, _ = ensemble.forward_decoder(tokens, ensemble.forward_encoder(sample), [])
    each = [m.get_normalized_probs(m(**sample), log_probs=False)[:, -1] for m in models]
    torch.testing.assert_close(log_scores.exp(), torch.stack(each).mean(0))


def test_loss_is_that_of_functional():
    z, y = torch.randn(5, 7), torch.tensor([0, 1, 2, 3, 4])
    for settings, expected in [
        (OutputSettings(), torch.nn.functional.cross_entropy(z, y)),
        (ENTMAX, F.entmax_loss(z, y, 1.5)),
        (RELU, F.alpha_relu_loss(z, y, RELU.alpha, RELU.tau)),
    ]:
        loss, stats = OutputTransform(settings).loss(z, y, reduction="mean")
        torch.testing.assert_close(loss, expected)
        assert stats.support.shape == y.shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_give_float32_scores(dtype):
    z = torch.randn(3, 1000).to(dtype)
    for settings in (OutputSettings(), ENTMAX, OutputSettings("alpha_relu", 1.5, 0.3)):
        transform = OutputTransform(settings)
        assert transform.scores(z).dtype == transform.log_scores(z).dtype == torch.float32
    torch.testing.assert_close(OutputTransform(ENTMAX).scores(z).sum(-1), torch.ones(3))


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float"])
def test_state_survives_casts_and_files_to_the_last_digit(task, model, cast):
    getattr(with_settings(model, RELU), cast)()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = make_model(task, from_checkpoint=True)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert loaded.decoder.output_transform.settings == RELU


def test_softmax_model_is_a_stock_checkpoint(model):
    assert KEY not in model.state_dict()
    assert KEY in with_settings(model, ENTMAX).state_dict()


def test_stock_checkpoint_loads_as_softmax(task, model):
    fresh = make_model(task, from_checkpoint=True)
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert fresh.decoder.output_transform.kind == "softmax"


def test_component_loading_finds_it_too(task, model):
    state = with_settings(model, RELU).decoder.state_dict()
    fresh = make_model(task, from_checkpoint=True)
    fresh.decoder.load_state_dict(state, strict=True)
    assert fresh.decoder.output_transform.settings == RELU


def test_average_of_equal_checkpoints_keeps_it_and_of_different_kinds_is_refused(task, model):
    relu = with_settings(model, RELU).state_dict()
    entmax = with_settings(model, ENTMAX).state_dict()

    def average(*states):
        return {key: sum(s[key] for s in states) / len(states) for key in states[0]}

    fresh = make_model(task, from_checkpoint=True)
    fresh.load_state_dict(average(relu, relu, relu))
    settings = fresh.decoder.output_transform.settings
    assert settings.kind == "alpha_relu" and settings.alpha == pytest.approx(1.3, abs=1e-15)
    with pytest.raises(RuntimeError, match="different models were averaged"):
        fresh.load_state_dict(average(relu, entmax))


def test_a_copy_of_the_model_has_its_own_transform(task, model):
    copied = copy.deepcopy(with_settings(model, ENTMAX))
    with_settings(model, OutputSettings())
    net_output = copied(**make_batch(task)["net_input"])
    scores = copied.get_normalized_probs(net_output, log_probs=False)
    torch.testing.assert_close(scores, F.entmax(net_output[0], 1.5))


def test_input_scale_reaches_tied_embeddings_only(task):
    sample = make_batch(task)["net_input"]
    for share, changes in [("share_all_embeddings", True), ("no_share", False)]:
        model = make_model(task, **{share: True}).eval()
        before = model.encoder(sample["src_tokens"], sample["src_lengths"])["encoder_out"][0]
        with_settings(model, OutputSettings("entmax", 1.5, input_scale=3.0))
        after = model.encoder(sample["src_tokens"], sample["src_lengths"])["encoder_out"][0]
        assert torch.equal(before, after) != changes


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("entmax", 0.9), "alpha must be ≥ 1"),
        (("entmax", float("nan")), "alpha"),
        (("alpha_relu", 1.0, 0.0), "alpha must be > 1"),
        (("alpha_relu", 1.5, float("inf")), "tau"),
        (("hardmax", 1.0), "kind"),
    ],
)
def test_bad_settings_are_named(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        OutputSettings(*arguments)


def test_unresolved_tau_is_an_error():
    with pytest.raises(ValueError, match="tau"):
        OutputTransform(OutputSettings("alpha_relu", 1.5)).scores(torch.randn(2, 3))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_decoder_family_answers_with_it(task, arch):
    model = with_settings(make_model(task, arch).eval(), OutputSettings("entmax", 2.0))
    net_output = model(**make_batch(task)["net_input"])
    net_output = (net_output[0] * 9, *net_output[1:])  # a new LSTM's logits are all but equal
    scores = model.get_normalized_probs(net_output, log_probs=False)
    assert (scores == 0).any()
    torch.testing.assert_close(scores, F.sparsemax(net_output[0]))


def test_attach_needs_no_task():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = torch.nn.Module()

    model = Model()
    assert attach_output_transform(model) is model.decoder.output_transform
