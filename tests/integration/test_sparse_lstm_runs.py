"""fairseq-train and -generate with `--arch sparse_lstm` and `--lr-scheduler halve_on_loss`."""

import re

import pytest
from fairseq_runs import BASICS, run, together

MODEL = "--arch=sparse_lstm --encoder-embed-dim=16 --decoder-embed-dim=16 --decoder-hidden-size=32"
CRITERIA = {
    "softmax": ["--criterion=cross_entropy", "--attention-alpha=1"],
    "sparsemax": ["--criterion=sparsemax_loss", "--attention-alpha=2"],
    "relu15": ["--criterion=alpha_relu_loss", "--alpha=1.5", "--attention-alpha=1.25"],
}
# A rate at which the validation loss goes up and down.
WILD = ["--criterion=entmax_loss", "--share-all-embeddings"]
WILD += ["--lr=0.1", "--lr-scheduler=halve_on_loss"]
WILD += ["--best-checkpoint-metric=accuracy", "--maximize-best-checkpoint-metric"]
# Else fairseq keeps the first epoch's batches, and a resumed run has those of another epoch.
WILD += ["--update-epoch-batch-itr=True"]
EPOCHS = 8


def train(data, save_dir, *args, **options):
    common = [data, "--task=sparse_translation", f"--save-dir={save_dir}", *BASICS, *MODEL.split()]
    return run("fairseq-train", *common, *args, **options)


@pytest.fixture(scope="module")
def trained(reversal_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lstm")
    logs = together(
        *(
            lambda name=name, flags=flags: train(
                reversal_data, folder / name, *flags, "--max-epoch=2"
            )
            for name, flags in CRITERIA.items()
        )
    )
    return folder, dict(zip(CRITERIA, logs, strict=True))


def test_every_criterion_trains_it_and_is_fused(trained):
    _, logs = trained
    for name, log in logs.items():
        losses = [float(record["train_loss"]) for record in log.records("train")]
        assert losses[1] < losses[0], (name, losses)
        assert "cannot be fused" not in log.text


def test_an_ensemble_decodes_with_alignments(trained, wild, reversal_data):
    """The checkpoints know their α; all positions of an alignment are within the sentences."""
    folders = [trained[0] / name for name in CRITERIA] + [wild[0] / "whole"]
    paths = ":".join(str(folder / "checkpoint_best.pt") for folder in folders)
    flags = ["--task=sparse_translation", f"--path={paths}", "--cpu", "--max-len-b=12"]
    out = run("fairseq-generate", reversal_data, *flags, "--print-alignment", "--beam=3").out
    source = dict(re.findall(r"^S-(\d+)\t(.*)$", out, re.MULTILINE))
    alignment = dict(re.findall(r"^A-(\d+)\t(.*)$", out, re.MULTILINE))
    assert len(source) == len(alignment) == 16
    for number, pairs in alignment.items():
        for pair in pairs.split():
            assert 0 <= int(pair.split("-")[0]) < len(source[number].split())


def by_epoch(log, logger, key) -> dict[int, float]:
    return {record["epoch"]: float(record[key]) for record in log.records(logger)}


def changes(values: dict[int, float], sign: int) -> list[int]:
    """Epochs with a value above (below, for -1) the one before, but for the last epoch."""
    return [e for e in range(2, EPOCHS) if sign * values[e] > sign * values[e - 1]]


@pytest.fixture(scope="module")
def wild(reversal_data, tmp_path_factory):
    """A whole run, and one that is interrupted where the rate has just been halved."""
    folder = tmp_path_factory.mktemp("wild")
    whole = train(reversal_data, folder / "whole", *WILD, f"--max-epoch={EPOCHS}")
    stop = changes(by_epoch(whole, "valid", "valid_loss"), 1)[0]
    parts = [
        train(reversal_data, folder / "parts", *WILD, f"--max-epoch={last}")
        for last in (stop, EPOCHS)
    ]
    return folder, whole, parts


def test_rate_follows_the_loss_and_not_the_metric_of_the_best_checkpoint(wild):
    _, whole, _ = wild
    rises = changes(by_epoch(whole, "valid", "valid_loss"), 1)
    # Else a schedule that follows the metric would do the same.
    assert rises != changes(by_epoch(whole, "valid", "valid_accuracy"), -1)
    rates = by_epoch(whole, "train", "train_lr")
    for epoch in range(2, EPOCHS):
        expected = rates[epoch] / 2 if epoch in rises else rates[epoch]
        assert rates[epoch + 1] == pytest.approx(expected, rel=1e-3), (epoch, rates, rises)


def test_an_interrupted_run_ends_as_one_that_was_not(wild):
    _, whole, (first, second) = wild
    for logger, key in (("train", "train_lr"), ("valid", "valid_loss")):
        parts = {**by_epoch(first, logger, key), **by_epoch(second, logger, key)}
        assert parts == by_epoch(whole, logger, key)
