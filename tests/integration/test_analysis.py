"""All analyses on a run that real fairseq commands made, beside a broken one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq_runs import environment, run, train

ROOT = Path(__file__).parents[2]
PER_RUN = ("dynamics", "energy", "exactness", "empty_string", "support", "self_normalization")
PER_RUN += ("lattice", "attention")
TOGETHER = ("bleu", "tau", "alpha_sweep")


@pytest.fixture(scope="module")
def dataset(reversal_data, tmp_path_factory) -> Path:
    """runs/toy with relu15/seed1, trained and decoded (valid only), and softmax/seed1, broken."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    path = folder / "relu15" / "seed1"
    trained = train(
        reversal_data, path / "checkpoints", "--criterion=alpha_relu_loss", "--max-epoch=3"
    )
    (path / "train.log").write_text(trained.out)
    found = run(
        "fairseq-generate",
        *(reversal_data, "--task=sparse_translation", "--gen-subset=valid", "--cpu"),
        *(f"--path={path / 'checkpoints' / 'checkpoint_best.pt'}", "--beam=5", "--num-workers=0"),
    )
    (path / "generate-valid.txt").write_text(found.out)
    lines = sorted(
        (int(line.split("\t")[0][2:]), line.split("\t")[2])
        for line in found.out.splitlines()
        if line.startswith("H-")
    )
    (path / "hypotheses-valid.txt").write_text("".join(f"{text}\n" for _, text in lines))
    record = {"source": "src", "target": "tgt", "tokenizer": "none", "segmentation": "none"}
    (reversal_data / "segmentation.json").write_text(json.dumps({**record, "normalise": False}))
    manifest = {
        "config": {"data": record, "generate": {"beam": 5}, "metric": "bleu"},
        "data": {"bin": str(reversal_data), "text": str(reversal_data.parent)},
        "commands": {},
        "stages": {"train": {"seconds": 1.0}},
        "settings": {"criterion": "alpha_relu_loss"},
        "tau": 0.5,
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    broken = folder / "softmax" / "seed1"
    broken.mkdir(parents=True)
    (broken / "manifest.json").write_text("{}")
    return folder


def analyse(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "experiments.analysis", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)


def test_all_analyses_of_a_run_beside_a_broken_one(dataset):
    done = analyse(dataset)
    assert done.returncode == 1
    assert "failed: toy/softmax/seed1: " in done.stderr
    documents = {name: json.loads(_file(dataset, name).read_text()) for name in PER_RUN + TOGETHER}
    assert not [name for name, document in documents.items() if "error" in document], done.stderr
    results = {name: document.get("result") for name, document in documents.items()}
    assert documents["alpha_sweep"]["missing"]  # α-ReLU is not of the entmax family
    last = results["dynamics"]["points"][-1]
    best = min(results["dynamics"]["points"], key=lambda point: point["loss"])
    support = results["support"]["output"]["gold"]
    # What the criterion logged of the same data is counted by other code.
    assert support["mean"] == pytest.approx(best["support"], abs=0.006)
    assert last["updates"] == 75
    sums = results["self_normalization"]
    assert "generate-test.txt is missing" in sums["beam"]["missing"]
    assert 0.2 < sums["gold"]["mean"] < 2
    assert results["empty_string"]["sentences"] == 48
    assert results["exactness"]["valid"]["sentences"] == 48
    trees = results["lattice"]["trees"]
    assert len({tree["id"] for tree in trees}) == 3
    assert all(tree["expanded"] > 0 for tree in trees)
    assert len(results["attention"]["maps"]) == 3
    assert results["bleu"]["valid"]["runs"][0]["sentences"] == 48
    assert results["tau"]["architecture"]["d_model"] == 32

    again = analyse(dataset, "--only", "support", "tau", "dynamics")
    assert again.stdout.count("nothing has changed") == 3


def _file(dataset: Path, name: str) -> Path:
    folder = dataset if name in TOGETHER else dataset / "relu15" / "seed1"
    return folder / "analysis" / f"{name}.json"
