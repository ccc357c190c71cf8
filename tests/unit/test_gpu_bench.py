"""`make bench-gpu` as far as it goes without a GPU, and `make test-gpu` where there is none."""

import json
import subprocess
import sys

import pytest
import torch

from experiments.bench.gpu import __main__ as main
from experiments.bench.gpu import counts, training


def bench(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "experiments.bench.gpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_it_measures_and_writes_one_json(tmp_path):
    """On the CPU, where its numbers mean nothing."""
    out = tmp_path / "bench.json"
    small = [
        "--rows",
        "4",
        "--hidden",
        "8",
        "--classes",
        "64",
        "--elements",
        "4096",
        "--repeats",
        "1",
        "--no-training",
    ]
    done = bench("--device", "cpu", *small, "--out", str(out))
    assert done.returncode == 0, done.stderr
    content = json.loads(out.read_text())
    assert content["environment"]["versions"]["torch"] and content["environment"]["commit"]
    assert content["copy_gb_per_s"] > 0
    rows = [row for row in content["losses"] if row["loss"] == "alpha_relu_loss 1.5"]
    assert {row["dtype"] for row in rows} == {"bfloat16", "float32"}
    for row in rows:
        assert row["both"] > 0 and row["bytes"] == 2 * 4 * 64 * (
            4 if row["dtype"] == "float32" else 2
        )
    fused = {row["loss"] for row in content["fused"] if "error" not in row}
    assert fused >= {"linear + cross_entropy", "linear_alpha_relu_loss 1.5"}


@pytest.mark.parametrize("broken", ["_binarised", "_train"])
def test_a_training_that_fails_loses_no_measurement(broken, tmp_path, monkeypatch):
    def fails(*arguments):
        raise RuntimeError(f"fairseq-train failed: {broken}")

    out = tmp_path / "bench.json"
    monkeypatch.setattr(training, "_binarised", lambda *arguments: tmp_path)
    monkeypatch.setattr(training, broken, fails)
    monkeypatch.setattr(main, "measured", lambda *arguments: [{"loss": "one", "both": 1.0}])
    small = [
        "--rows",
        "4",
        "--hidden",
        "8",
        "--classes",
        "64",
        "--elements",
        "4096",
        "--repeats",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", ["bench", "--device", "cpu", *small, "--out", str(out)])
    main.main()
    content = json.loads(out.read_text())
    assert content["losses"][0]["both"] == 1.0
    assert all(row["error"].endswith(broken) for row in content["training"])


def test_a_program_that_fails_is_named():
    with pytest.raises(RuntimeError, match="fairseq-train failed: why"):
        training._run("fairseq-train", ["sh", "-c", "echo why >&2; exit 3"])
    with pytest.raises(RuntimeError, match="fairseq-train did not start"):
        training._run("fairseq-train", ["/no/such/program"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_both_targets_fail_in_one_line():
    done = bench()
    assert done.returncode == 1 and done.stderr.startswith("bench-gpu: torch sees no GPU")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-m",
        "gpu",
        "tests/gpu/test_only_on_gpu.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "test-gpu: torch sees no GPU" in done.stdout + done.stderr


def test_the_count_of_one_small_layer_by_hand():
    shape = counts.Shape(rows=2, classes=8, hidden=4, entries=3)
    assert shape.chunks == 1
    assert counts.of_products(shape)[0] == 3 * 2 * 2 * 8 * 4
    # logits 5·32 bytes, states 3·16 and 32 of their gradient, weights 32 · (2·2 + 2·4)
    assert counts.of_products(shape)[1] == 160 + 48 + 32 + 384
    assert counts.of_lists(shape)[0] == 2 * 2 * 8 * 4 + 4 * 6 * 4


def test_rows_that_do_not_fit_cost_more_than_products():
    """By the lists that are written and sorted for nothing, and one more pass that writes."""
    shape = counts.Shape(rows=2, classes=8, hidden=4, entries=200)
    flops, moved = counts.of_overflow(shape)
    assert flops == counts.of_products(shape)[0]
    assert moved - counts.of_products(shape)[1] == 32 + 2 * (8 * 128 + 192 * 128)
