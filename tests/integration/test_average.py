"""--store-ema from training to decoding: what selects a checkpoint is what decodes."""

import subprocess
import sys
from pathlib import Path

import pytest
from fairseq_runs import run, train

ROOT = Path(__file__).parents[2]
RELU = ["--criterion=alpha_relu_loss", "--tau=batch", "--max-epoch=3"]
AVERAGE = ["--store-ema", "--ema-decay=0.5", "--validate-with-ema"]


def extract(checkpoint: Path, out: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "experiments.ema", str(checkpoint), str(out)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_average_validates_is_selected_and_decodes(reversal_data, tmp_path):
    trained = train(reversal_data, tmp_path, *RELU, *AVERAGE)
    best = min(float(record["valid_loss"]) for record in trained.records("valid"))
    done = extract(tmp_path / "checkpoint_best.pt", tmp_path / "checkpoint_ema.pt")
    assert done.returncode == 0, done.stderr
    flags = ["--task=sparse_translation", "--valid-subset=valid", "--batch-size=16", "--cpu"]
    flags += ["--log-format=json"]
    losses = {}
    for name in ("best", "ema"):
        path = f"--path={tmp_path / f'checkpoint_{name}.pt'}"
        (record,) = run("fairseq-validate", reversal_data, *flags, path).records("valid")
        losses[name] = float(record["valid_loss"])
    # What the log has of the best checkpoint is what its average gives, not its own weights.
    assert losses["ema"] == pytest.approx(best, abs=2e-4)
    assert abs(losses["best"] - best) > 1e-3
    beam = ["--task=sparse_translation", "--beam=2", "--cpu", "--gen-subset=valid"]
    path = f"--path={tmp_path / 'checkpoint_ema.pt'}"
    generated = run("fairseq-generate", reversal_data, path, *beam)
    assert generated.out.count("\nH-") >= 1


def test_a_checkpoint_without_average_is_one_line(reversal_data, tmp_path):
    train(reversal_data, tmp_path, *RELU[:2], "--max-update=1")
    done = extract(tmp_path / "checkpoint_last.pt", tmp_path / "out.pt")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "has no moving average: train with --store-ema" in done.stderr
