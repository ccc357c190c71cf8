"""The fused output layer inside fairseq's models: same losses and logs as without."""

import logging

import pytest
import torch
from tiny_fairseq import make_batch, make_criterion, make_model, make_task

from sparse_fairseq.output_transform import OutputTransform

CRITERIA = {
    "alpha_relu_loss": {"alpha": 1.5, "tau": "0.2"},
    "entmax_loss": {"alpha": 1.5, "label_smoothing": 0.1},
    "sparsemax_loss": {},
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


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("model", MODELS)
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


@pytest.mark.parametrize("arch", ["fconv", "lightconv"])
def test_other_architectures_fall_back_with_one_line(arch, caplog):
    task = make_task()
    model = make_model(task, arch)
    criterion = make_criterion(task, "entmax_loss")
    with caplog.at_level(logging.INFO):
        for seed in range(3):
            loss, _, _ = criterion(model, make_batch(task, seed=seed))
            assert loss.isfinite()
    assert [r.message for r in caplog.records if "fused" in r.message] == [
        "this architecture's output layer cannot be fused with the loss"
    ]


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
