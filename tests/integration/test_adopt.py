"""A model that was trained by hand becomes a run that analyses and report can read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq_runs import environment, train

from experiments.run_folder import Run

ROOT = Path(__file__).parents[2]


def adopt(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "experiments.adopt", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)


@pytest.fixture(scope="module")
def stock(tmp_path_factory, reversal_data) -> Path:
    """A checkpoint of stock fairseq, trained without us."""
    folder = tmp_path_factory.mktemp("stock")
    options = {"task": "translation", "sparse": False}
    train(reversal_data, folder, "--criterion=cross_entropy", "--max-update=2", **options)
    return folder / "checkpoint_best.pt"


def test_a_stock_checkpoint_becomes_a_run(stock, reversal_data, tmp_path):
    places = [f"--data-root={tmp_path / 'data'}", f"--runs-root={tmp_path / 'runs'}"]
    done = adopt(stock, reversal_data, "--as", "mine/softmax/seed3", "--beam", 2, *places)
    assert done.returncode == 0, done.stderr
    assert f"python -m experiments.analysis {tmp_path / 'runs/mine'}" in done.stdout
    run = Run(tmp_path / "runs/mine/softmax/seed3")
    assert run.problem is None
    assert run.manifest["adopted"]["checkpoint"] == str(stock)
    assert (run.source_lang, run.target_lang) == ("src", "tgt")
    assert run.references("test") == (reversal_data.parent / "test.tgt").read_text().splitlines()
    assert len(run.hypotheses("test")) == len(run.references("test"))
    assert "tok:none" in run.scores["test"]["bleu_signature"]
    # The analyses load it as a model with an output of ours.
    code = (
        "from pathlib import Path; from experiments.run_folder import Run; "
        "from experiments.analysis.shared.models import load; "
        f"print('α', load(Run(Path({str(run.path)!r}))).transform.alpha)"
    )
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert "α 1" in loaded.stdout, loaded.stderr
    again = adopt(stock, reversal_data, "--as", "mine/softmax/seed3", *places)
    assert again.returncode == 1 and "is there already: remove it" in again.stderr
    facts = json.loads((tmp_path / "data/mine/data.json").read_text())
    assert facts["sizes"] == {"valid": 48, "test": 16}


@pytest.mark.parametrize(
    ("name", "checkpoint", "says"),
    [
        ("mine/relu15/seed1", None, "was trained with cross_entropy with α = 1, not as 'relu15'"),
        ("mine/softmaxx/seed1", None, "no system 'softmaxx'; did you mean 'softmax'"),
        ("mine/softmax", None, "--as mine/softmax: DATASET/SYSTEM/seedN is needed"),
        ("mine/softmax/seed1", "/no/file.pt", "/no/file.pt: there is no such checkpoint"),
        ("mine/softmax/seed1", __file__, "is no checkpoint that can be loaded"),
    ],
)
def test_what_cannot_be_adopted_is_one_line(
    stock, reversal_data, tmp_path, name, checkpoint, says, capsys
):
    from experiments import adopt

    places = [f"--data-root={tmp_path / 'data'}", f"--runs-root={tmp_path / 'runs'}"]
    with pytest.raises(SystemExit) as error:
        adopt.main([str(checkpoint or stock), str(reversal_data), "--as", name, *places])
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_data_that_are_not_binarised_are_one_line(stock, tmp_path):
    from experiments import adopt

    with pytest.raises(SystemExit, match="is no binarised data"):
        adopt.main(
            [str(stock), str(tmp_path), "--as", "a/softmax/seed1", f"--runs-root={tmp_path}"]
        )
