"""The sparse criteria: value, gradient, logging; and what the task makes of their flags."""

import math

import pytest
import torch
from fairseq.logging import metrics
from tiny_fairseq import make_batch, make_criterion, make_model, make_task
from torch.nn.functional import cross_entropy

from sparse_fairseq import functional as F
from sparse_fairseq.criterions import SparseCriterion
from sparse_fairseq.errors import UsageError
from sparse_fairseq.output_transform import OutputSettings

CRITERIA = {
    "alpha_relu_loss": ({"alpha": 1.5, "tau": "0.2"}, lambda z: F.alpha_relu(z, 1.5, 0.2)),
    "entmax_loss": ({"alpha": 1.5}, lambda z: F.entmax(z, 1.5)),
    "sparsemax_loss": ({}, F.sparsemax),
    "softmax_loss": ({}, lambda z: z.softmax(-1)),
}
LOSSES = {
    "alpha_relu_loss": lambda z, y, **o: F.alpha_relu_loss(z, y, 1.5, 0.2, **o),
    "entmax_loss": lambda z, y, **o: F.entmax_loss(z, y, 1.5, **o),
    "sparsemax_loss": F.sparsemax_loss,
    "softmax_loss": lambda z, y, **o: cross_entropy(z.transpose(1, 2), y, **o),
}
LOGGED = {"loss", "accuracy", "support", "total_score", "zero_targets"}


@pytest.fixture
def task():
    return make_task()


def setup(task, name, **config):
    model = make_model(task)
    return model, make_criterion(task, name, **{**CRITERIA[name][0], **config})


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", CRITERIA)
def test_loss_is_the_sum_over_real_targets(task, name, label_smoothing):
    model, criterion = setup(task, name, label_smoothing=label_smoothing)
    model.eval()
    sample = make_batch(task)
    loss, sample_size, log = criterion(model, sample)
    logits, target = model(**sample["net_input"])[0], sample["target"]
    options = {"ignore_index": task.tgt_dict.pad(), "label_smoothing": label_smoothing}
    expected = LOSSES[name](logits, target, reduction="sum", **options)
    torch.testing.assert_close(loss, expected)
    assert sample_size == log["ntokens"] == sample["ntokens"]
    each, _, log_each = criterion(model, sample, reduce=False)
    torch.testing.assert_close(each.sum(), loss)
    torch.testing.assert_close(log_each["loss"], log["loss"])


@pytest.mark.parametrize("name", CRITERIA)
def test_logged_numbers_are_means_over_words(task, name):
    model, criterion = setup(task, name)
    model.eval()
    samples = [make_batch(task, seed=1), make_batch(task, seed=2, sentences=3)]
    with metrics.aggregate() as log:
        type(criterion).reduce_metrics([criterion(model, sample)[2] for sample in samples])
    logged = log.get_smoothed_values()
    assert set(logged) == LOGGED | ({"nll_loss", "ppl"} if name == "softmax_loss" else set())

    rows, targets = [], []
    for sample in samples:
        real = sample["target"].ne(task.tgt_dict.pad())
        rows.append(model(**sample["net_input"])[0][real])
        targets.append(sample["target"][real])
    target = torch.cat(targets)
    p = CRITERIA[name][1](torch.cat(rows))
    words = [i for i, s in enumerate(task.tgt_dict.symbols) if "madeup" not in s and s != "<pad>"]
    expected = {
        "accuracy": 100 * (p.argmax(1) == target).float().mean().item(),
        "support": (p[:, words] > 0).sum(1).float().mean().item(),
        "total_score": p.sum(1).mean().item(),
        "zero_targets": 100 * (p.gather(1, target[:, None]) == 0).float().mean().item(),
    }
    for key, value in expected.items():
        assert logged[key] == pytest.approx(value, abs=0.01), key


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_softmax_loss_says_what_fairseqs_own_criteria_say(task, label_smoothing):
    """In bits. fairseq spreads ε over all other words; we, as torch does, over all words."""
    model, criterion = setup(task, "softmax_loss", label_smoothing=label_smoothing)
    others = len(task.tgt_dict) - 1
    fairseqs = {"label_smoothing": label_smoothing * others / len(task.tgt_dict)}
    stock = make_criterion(
        task, "label_smoothed_cross_entropy", report_accuracy=True, ignore_prefix_size=0, **fairseqs
    )
    sample, logged = make_batch(task), []
    for one in (criterion, stock):
        with metrics.aggregate() as log:
            type(one).reduce_metrics([one(model.eval(), sample)[2]])
        logged.append(log.get_smoothed_values())
    for key in ("loss", "nll_loss", "ppl", "accuracy"):
        assert logged[0][key] == pytest.approx(logged[1][key], abs=0.01), key
    assert logged[0]["ppl"] == pytest.approx(2 ** logged[0]["nll_loss"], rel=0.01)


def test_softmax_loss_leaves_a_stock_checkpoint(task):
    model, _ = setup(task, "softmax_loss")
    assert model.decoder.output_transform.settings == OutputSettings()
    assert not any("output_transform" in key for key in model.state_dict())


def test_ppl_is_finite_where_the_target_is_as_good_as_impossible(task):
    model, criterion = setup(task, "softmax_loss", label_smoothing=0.1)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(1e4)
    _, _, log = criterion(model, make_batch(task))
    assert log["zero_targets"] > 0 and math.isfinite(log["nll_loss"])


def test_no_metric_fails_on_an_empty_log():
    with metrics.aggregate() as log:
        SparseCriterion.reduce_metrics([{"loss": 0, "ntokens": 0, "sample_size": 0}])
    assert log.get_smoothed_values()["loss"] == 0


def test_sentence_avg(task):
    model = make_model(task)
    criterion = make_criterion(task, "entmax_loss")
    criterion.sentence_avg = True
    sample = make_batch(task, sentences=5)
    assert criterion(model, sample)[1] == 5


@pytest.mark.parametrize("name", ["entmax_loss", "sparsemax_loss"])
def test_solver_does_not_change_the_loss(task, name):
    sample, losses = make_batch(task), []
    for solver in ("auto", "sort", "topk", "bisect"):
        model, criterion = setup(task, name, solver=solver)
        losses.append(criterion(model.eval(), sample)[0].item())
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", CRITERIA)
def test_non_finite_logits_are_not_silent(task, name, bad):
    model, criterion = setup(task, name)
    with torch.no_grad():
        model.decoder.output_projection.weight[5] = bad
    loss = criterion(model, make_batch(task))[0]
    loss.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert not torch.isfinite(loss)
    assert not all(torch.isfinite(g).all() for g in grads)


def test_a_batch_times_zero_is_zero(task):
    """fairseq multiplies the loss of dummy batches with 0, also where targets have score 0."""
    model, criterion = setup(task, "sparsemax_loss")
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(100)
    loss, _, log = criterion(model, make_batch(task))
    assert log["zero_targets"] > 0
    (loss * 0).backward()
    assert all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    "name, config, complaint",
    [
        ("alpha_relu_loss", {"alpha": 0.9}, "--alpha must be > 1"),
        ("alpha_relu_loss", {"alpha": float("nan")}, "--alpha"),
        ("alpha_relu_loss", {"tau": "abc"}, "--tau must be batch, formula or a number"),
        ("alpha_relu_loss", {"tau": "nan"}, "--tau must be finite"),
        ("entmax_loss", {"alpha": 0.9}, "--alpha must be ≥ 1"),
        ("entmax_loss", {"label_smoothing": 1.0}, "--label-smoothing"),
    ],
)
def test_bad_flags_are_named(task, name, config, complaint):
    with pytest.raises(UsageError, match=complaint):
        make_criterion(task, name, **config)


def test_other_tasks_are_refused(task):
    task.supports_sparse_output = False
    with pytest.raises(UsageError, match="--task sparse_translation"):
        make_criterion(task, "entmax_loss")
