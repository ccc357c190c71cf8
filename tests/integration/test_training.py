"""fairseq-train as users run it: families, precisions, workers, interruptions, wrong flags."""

import random
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq_runs import (
    BASICS,
    TINY,
    Finished,
    command,
    environment,
    run,
    together,
    train,
    write_reversal_data,
)

RELU = ["--criterion=alpha_relu_loss"]
LOGGED = {"loss", "accuracy", "support", "total_score", "zero_targets"}


def last(finished, key="valid_loss"):
    return float(finished.records("valid")[-1][key])


def weights(folder):
    return torch.load(Path(folder) / "checkpoint_last.pt", weights_only=True)["model"]


def test_each_family_trains_and_its_checkpoint_loads(reversal_data, tmp_path):
    families = [arch for arch in TINY if arch != "transformer"]

    def train_one(arch):
        criterion = "sparsemax_loss" if arch == "lstm" else "alpha_relu_loss"
        options = [f"--criterion={criterion}", "--max-update=6"]
        return train(reversal_data, tmp_path / arch, *options, arch=arch)

    results = together(*(partial(train_one, arch) for arch in families))
    for arch, done in zip(families, results, strict=True):
        first, *_, final = done.records("train_inner")
        assert set(first) == set(final) >= LOGGED and "ppl" not in first
        assert float(final["loss"]) < float(first["loss"]), arch
        fused = arch in ("lstm", "transformer_align", "bart_base")
        assert ("cannot be fused" in done.text) != fused, arch
        assert "route of the loss: host" in done.text, arch
        (model,), _ = load_model_ensemble([str(tmp_path / arch / "checkpoint_last.pt")])
        kind = model.decoder.output_transform.kind
        assert kind == ("entmax" if arch == "lstm" else "alpha_relu")


def test_best_checkpoint_bleu_patience_and_validation_log(reversal_data, tmp_path):
    bleu = ["--eval-bleu", '--eval-bleu-args={"beam": 1, "max_len_b": 9}', "--patience=1"]
    by_bleu = ["--best-checkpoint-metric=bleu", "--maximize-best-checkpoint-metric"]
    by_accuracy = ["--best-checkpoint-metric=accuracy", "--maximize-best-checkpoint-metric"]
    no_lr = ["--lr=1e-12", "--patience=2"]  # nothing can improve
    empty = ["--tau=50", "--max-update=1"]  # no score is above zero
    done, dead, stuck = together(
        partial(train, reversal_data, tmp_path / "a", *RELU, *bleu, *by_bleu, "--max-epoch=2"),
        partial(train, reversal_data, tmp_path / "c", *RELU, *bleu, *by_bleu, *empty),
        partial(train, reversal_data, tmp_path / "b", *RELU, *by_accuracy, *no_lr),
    )
    assert {f"valid_{key}" for key in (*LOGGED, "bleu")} <= set(done.records("valid")[0])
    assert last(dead, "valid_bleu") == 0
    assert "early stop since valid performance" in stuck.out
    assert len(stuck.records("valid")) == 3
    for folder in "abc":
        assert (tmp_path / folder / "checkpoint_best.pt").exists()
    resumed = train(reversal_data, tmp_path / "a", *RELU, *bleu, *by_bleu, "--max-epoch=3")
    assert "Loaded checkpoint" in resumed.out  # numpy counts of BLEU are in it


def test_half_precision_trains_like_float32_and_keeps_tau(reversal_data, tmp_path):
    half = ["--memory-efficient-fp16", "--fp16-init-scale=4"]
    amp, fp16, fp32 = together(
        partial(train, reversal_data, tmp_path / "amp", *RELU, "--max-epoch=1", "--amp"),
        partial(
            train, reversal_data, tmp_path / "16", *RELU, "--max-epoch=1", "--tau=0.123456", *half
        ),
        partial(train, reversal_data, tmp_path / "32", *RELU, "--max-epoch=1", "--tau=0.123456"),
    )
    assert last(fp16) == pytest.approx(last(fp32), rel=0.01) and last(amp) > 0
    (key,) = (k for k in weights(tmp_path / "16") if "output_transform" in k)
    assert torch.equal(weights(tmp_path / "16")[key], weights(tmp_path / "32")[key])


def two_workers(data, save_dir, backend, *args):
    """Both ranks of one run on this machine; the Finished of rank 0."""
    port = random.randint(20000, 60000)
    shared = ["--distributed-world-size=2", "--distributed-no-spawn", "--distributed-backend=gloo"]
    shared += [f"--distributed-init-method=tcp://127.0.0.1:{port}", f"--ddp-backend={backend}"]
    ranks = (f"--distributed-rank={rank}" for rank in (0, 1))
    workers = (partial(train, data, save_dir, *args, *shared, rank) for rank in ranks)
    return together(*workers)[0]


def test_two_workers_equal_one_with_update_freq_2(reversal_data, tmp_path):
    args = [*RELU, "--dropout=0", "--max-epoch=2"]
    one = train(reversal_data, tmp_path / "one", *args, "--update-freq=2")
    expected = weights(tmp_path / "one")
    for backend in ("pytorch_ddp", "legacy_ddp"):
        two = two_workers(reversal_data, tmp_path / backend, backend, *args)
        assert "cannot be fused" not in one.text + two.text
        assert last(two) == pytest.approx(last(one), abs=1e-4)
        found = weights(tmp_path / backend)
        for key in expected:
            torch.testing.assert_close(found[key], expected[key], atol=1e-4, rtol=1e-4)
    resumed = two_workers(reversal_data, tmp_path / backend, backend, *RELU, "--max-epoch=3")
    assert "Loaded checkpoint" in resumed.out and "tau = " not in resumed.out
    assert last(resumed) < last(one)


def test_killed_mid_epoch_and_resumed_equals_an_undisturbed_run(reversal_data, tmp_path):
    args = [*RELU, "--max-epoch=2", "--save-interval-updates=10", "--tau=batch"]
    whole = train(reversal_data, tmp_path / "whole", *args)
    killed = command(
        "fairseq-train", reversal_data, "--task=sparse_translation", *BASICS, *args,
        *TINY["transformer"].split(), f"--save-dir={tmp_path / 'killed'}",
    )  # fmt: skip
    process = subprocess.Popen(killed, stdout=subprocess.PIPE, text=True, env=environment())
    for line in process.stdout:
        if '"num_updates": "13"' in line and "train_inner" in line:
            process.send_signal(signal.SIGKILL)
            break
    process.stdout.close()
    assert process.wait(60) == -signal.SIGKILL
    resumed = train(reversal_data, tmp_path / "killed", *args)
    assert "tau = " in whole.out and "tau = " not in resumed.out
    assert resumed.records("train_inner")[0]["num_updates"] == "11"
    assert last(resumed) == pytest.approx(last(whole), abs=1e-4)
    for key, value in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "killed")[key], value)


BAD_FLAGS = [
    ([*RELU, "--alpha=0.9"], "--alpha must be > 1"),
    (["--criterion=entmax_loss", "--alpha=nan"], "--alpha must be ≥ 1 and finite"),
    ([*RELU, "--tau=abc"], "--tau must be batch, formula or a number, got 'abc'"),
    ([*RELU, "--adaptive-softmax-cutoff=4,8"], "--adaptive-softmax-cutoff"),
]


def test_wrong_flags_are_one_clear_line_before_the_first_batch(reversal_data, tmp_path):
    def attempt(args):
        base = [reversal_data, "--task=sparse_translation", f"--save-dir={tmp_path}", *BASICS]
        return run("fairseq-train", *base, "--arch=transformer", *args, ok=False)

    attempts = together(*(partial(attempt, args) for args, _ in BAD_FLAGS))
    for done, (_, complaint) in zip(attempts, BAD_FLAGS, strict=True):
        assert_one_line(done, complaint)


def assert_one_line(done: Finished, complaint: str):
    assert done.code == 1
    assert "Traceback" not in done.text and not done.records("train_inner")
    lines = [x for x in done.err.splitlines() if x.startswith("sparse_fairseq: error:")]
    assert len(lines) == 1 and complaint in lines[0]


def test_tau_batch_needs_a_training_set(tmp_path):
    data = write_reversal_data(tmp_path, {"train": 4, "valid": 4}, longest=3)
    source = tmp_path / "nothing"
    source.mkdir()
    for split, lines in (("train", ""), ("valid", "1 2\n")):
        for language in ("src", "tgt"):
            (source / f"{split}.{language}").write_text(lines)
    prefixes = [f"--trainpref={source / 'train'}", f"--validpref={source / 'valid'}"]
    dictionaries = [f"--srcdict={data / 'dict.src.txt'}", "--joined-dictionary"]
    target = ["--source-lang=src", "--target-lang=tgt", f"--destdir={source / 'bin'}"]
    run("fairseq-preprocess", *target, *prefixes, *dictionaries, sparse=False)
    done = train(source / "bin", tmp_path / "save", *RELU, ok=False)
    assert_one_line(done, "the training set is empty")


def test_nan_in_the_model_stops_training(reversal_data, tmp_path):
    train(reversal_data, tmp_path, *RELU, "--max-update=2")
    file = tmp_path / "checkpoint_last.pt"
    state = torch.load(file)
    state["model"]["decoder.output_projection.weight"][6] = float("nan")
    torch.save(state, file)
    done = train(reversal_data, tmp_path, *RELU, "--max-update=4", ok=False)
    assert done.code != 0 and "FloatingPointError: gradients are Nan/Inf" in done.text
