"""The fused output layer inside fairseq's models: same losses and logs as without."""

import logging

import pytest
import torch
from tiny_fairseq import make_batch, make_criterion, make_model, make_task

from sparse_fairseq.functional import entmax_loss
from sparse_fairseq.output_transform import OutputTransform

CRITERIA = {
    "alpha_relu_loss": {"alpha": 1.5, "tau": "0.2"},
    "entmax_loss": {"alpha": 1.5, "label_smoothing": 0.1},
    "sparsemax_loss": {},
    "softmax_loss": {"label_smoothing": 0.1},
}
MODELS = {
    "untied": ("transformer", {}),
    "tied": ("transformer", {"share_decoder_input_output_embed": True}),
    "align": ("transformer_align", {}),
    "checkpointed": ("transformer", {"checkpoint_activations": True}),
    "lstm": ("lstm", {}),
    "lstm tied": ("lstm", {"share_decoder_input_output_embed": True}),
}


def train(arch, args, name, fused: bool, updates: int = 50):
    """The logs of some updates with gradient clipping and accumulation over two batches."""
    task = make_task(vocab=200)
    model = make_model(task, arch, dropout=0.0, **args)
    criterion = make_criterion(task, name, no_fused_output=not fused, **CRITERIA[name])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    logs = []
    for update in range(updates):
        for part in range(2):
            loss, size, log = criterion(model, make_batch(task, seed=2 * update + part))
            (loss / size).backward()
            logs.append({key: float(value) for key, value in log.items()})
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return logs


def count_fused(monkeypatch) -> list:
    calls = []
    original = OutputTransform.linear_loss

    def counted(self, *args, **kwargs):
        calls.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(OutputTransform, "linear_loss", counted)
    return calls


def pairs() -> list:
    """Each model with each criterion; only those of the first model or of entmax are quick."""
    every = [(model, name) for model in MODELS for name in CRITERIA]
    return [
        pytest.param(*pair, marks=() if {"untied", "entmax_loss"} & {*pair} else pytest.mark.slow)
        for pair in every
    ]


@pytest.mark.parametrize(("model", "name"), pairs())
def test_50_updates_are_the_same_with_and_without(model, name, monkeypatch):
    calls = count_fused(monkeypatch)
    arch, args = MODELS[model]
    fused = train(arch, args, name, True)
    assert len(calls) == len(fused)
    plain = train(arch, args, name, False)
    assert len(calls) == len(fused)
    for ours, expected in zip(fused, plain, strict=True):
        assert ours["loss"] == pytest.approx(expected["loss"], rel=1e-5, abs=1e-5)
        assert ours["total_score"] == pytest.approx(expected["total_score"], rel=1e-5)
        for key in ("n_correct", "zero_targets", "ntokens", "sample_size"):
            assert ours[key] == expected[key], key
        # A score within rounding of the threshold may count on one side only.
        assert ours["support"] == pytest.approx(expected["support"], abs=1.5)


WIDE = {"alpha_relu_loss": {"tau": "-0.03"}, "entmax_loss": {}, "sparsemax_loss": {}}


def train_wide(name, fused: bool, updates: int = 50):
    """The logs of a model that starts with equal scores and learns two batches by heart. In
    float64: what rounding changes grows with each of the large steps."""
    task = make_task(vocab=1200)
    model = make_model(task, dropout=0.0).double()
    criterion = make_criterion(task, name, no_fused_output=not fused, **WIDE[name])
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(0.01)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    logs = []
    for update in range(updates):
        loss, size, log = criterion(model, make_batch(task, seed=update % 2))
        optimizer.zero_grad()
        (loss / size).backward()
        optimizer.step()
        logs.append({key: float(value) for key, value in log.items()})
    return logs


@pytest.mark.parametrize("name", WIDE)
def test_the_way_from_dense_to_sparse_is_the_same(name):
    """From 1,024 classes on, dense blocks take another route than sparse ones."""
    fused, plain = train_wide(name, True), train_wide(name, False)
    supports = [log["support"] / log["ntokens"] for log in fused]
    assert supports[0] > 600 and min(supports[-2:]) < 12
    for ours, expected in zip(fused, plain, strict=True):
        assert ours == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(
    "arch, decoder", [("fconv", "FConvDecoder"), ("lightconv", "LightConvDecoder")]
)
def test_other_architectures_fall_back_with_one_line(arch, decoder, caplog):
    task = make_task()
    model = make_model(task, arch)
    criterion = make_criterion(task, "entmax_loss")
    with caplog.at_level(logging.INFO):
        for seed in range(3):
            loss, _, _ = criterion(model, make_batch(task, seed=seed))
            assert loss.isfinite()
    assert [r.message for r in caplog.records if "fused" in r.message] == [
        f"the output layer of {decoder} cannot be fused with the loss"
    ]


class Doubled(torch.nn.Linear):
    """A stand-in for LoRA and the like: a Linear that does more than its product."""

    def forward(self, x):
        return 2 * super().forward(x)


class Wrapped(torch.nn.Module):
    """A stand-in for a quantised layer: no Linear, and its weight is not what it takes."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.weight = layer, torch.zeros_like(layer.weight)

    def forward(self, x):
        return 2 * self.layer(x)


def subclass(decoder, name):
    layer = getattr(decoder, name)
    setattr(decoder, name, Doubled(layer.in_features, layer.out_features, layer.bias is not None))
    getattr(decoder, name).load_state_dict(layer.state_dict())


def own_forward(decoder, name):
    layer = getattr(decoder, name)
    forward = layer.forward
    layer.forward = lambda x: 2 * forward(x)


CHANGES = {
    "subclass": subclass,
    "wrapped": lambda decoder, name: setattr(decoder, name, Wrapped(getattr(decoder, name))),
    "own forward": own_forward,
    "hook": lambda decoder, name: getattr(decoder, name).register_forward_hook(
        lambda module, args, out: 2 * out
    ),
    "pre-hook": lambda decoder, name: getattr(decoder, name).register_forward_pre_hook(
        lambda module, args: 2 * args[0]
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("model", ["untied", "tied", "lstm"])
def test_what_was_done_to_the_layer_after_some_updates_counts(model, change, caplog, monkeypatch):
    """The loss is that of the logits which the model gives, whatever makes them."""
    calls, (arch, args) = count_fused(monkeypatch), MODELS[model]
    task = make_task()
    model = make_model(task, arch, dropout=0.0, **args).eval()
    criterion = make_criterion(task, "entmax_loss", alpha=1.5)
    sample = make_batch(task)
    before, _, _ = criterion(model, sample)
    assert len(calls) == 1
    CHANGES[change](model.decoder, "fc_out" if arch == "lstm" else "output_projection")
    with caplog.at_level(logging.INFO):
        losses = [float(criterion(model, sample)[0]) for _ in range(2)]
    assert len(calls) == 1
    assert len([r for r in caplog.records if "cannot be fused" in r.message]) == 1
    with torch.no_grad():
        logits = model(**sample["net_input"])[0]
    padding = task.tgt_dict.pad()
    expected = entmax_loss(logits, sample["target"], 1.5, ignore_index=padding, reduction="sum")
    assert losses[0] == losses[1] == pytest.approx(float(expected), rel=1e-5)
    assert losses[0] != pytest.approx(float(before), rel=1e-3)


def test_a_hook_that_is_gone_is_forgotten(monkeypatch):
    calls, task = count_fused(monkeypatch), make_task()
    model, criterion = make_model(task), make_criterion(task, "entmax_loss")
    handle = model.decoder.output_projection.register_forward_hook(lambda *args: None)
    criterion(model, make_batch(task))
    assert not calls
    handle.remove()
    criterion(model, make_batch(task))
    assert len(calls) == 1


def test_decoding_between_updates_gets_logits():
    task = make_task()
    model = make_model(task)
    criterion = make_criterion(task, "entmax_loss")
    sample = make_batch(task)
    criterion(model, sample)
    assert model(**sample["net_input"])[0].shape[-1] == len(task.tgt_dict)
    broken = {**sample, "net_input": {}}
    with pytest.raises(TypeError):  # and after a forward pass that failed
        criterion(model, broken)
    assert model(**sample["net_input"])[0].shape[-1] == len(task.tgt_dict)
