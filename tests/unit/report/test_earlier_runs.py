"""What version 0.1 wrote still opens: tests/assets/runs_of_0.1.tar.xz holds the JSON files of three
tiny runs and their analyses, made by that version (search trees left out, paths changed)."""

import json
import tarfile
from pathlib import Path

import pytest
from test_report import Page

from experiments.report.gather import gather
from experiments.report.page import render
from experiments.results import collect, table

ASSET = Path(__file__).parents[2] / "assets/runs_of_0.1.tar.xz"
SYSTEMS = ("softmax", "entmax15", "relu15")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ASSET) as archive:
        archive.extractall(folder, filter="data")
    for system in SYSTEMS:
        checkpoints = folder / f"tiny/{system}/seed1/checkpoints"
        checkpoints.mkdir()
        (checkpoints / "checkpoint_best.pt").touch()
    return folder


def test_the_table_of_earlier_runs(runs):
    before = json.loads((runs / "tiny/results.json").read_text())
    measured = {(r["system"], r["seed"]): r["measured"] for r in before["runs"] if r["seed"] == 1}
    after = collect(runs, "tiny")
    assert [entry["problem"] for entry in after["runs"]] == [None] * len(SYSTEMS)
    for entry in after["runs"]:
        old = measured[entry["system"], entry["seed"]]
        for key in ("bleu", "chrf", "accuracy", "support", "total_score", "empty_string"):
            assert entry["measured"][key] == old[key], key
        # Then it was the test set's in the terminal, and the validation set's on the page.
        scores = entry["scores"]["valid"]
        assert entry["measured"]["certified"] == scores["exact_normalized"]
    shown = table(after)
    assert "train words/s" in shown and "CPU" not in shown  # that version had the wall's clock only


def test_the_page_of_earlier_runs(runs):
    page = Page(render(gather(runs, "tiny"), "some day"))
    assert "could not be shown" not in page.text
    analysed = json.loads((runs / "tiny/analysis/bleu.json").read_text())["result"]["test"][
        "systems"
    ]
    for system, label in zip(SYSTEMS, ("softmax", "1.5-entmax", "1.5-ReLU"), strict=True):
        scores = json.loads((runs / f"tiny/{system}/seed1/scores.json").read_text())
        mean = analysed[system]["bleu"]["mean"]  # of two seeds
        assert page.row("bleu", label)["Here"].startswith(f"{mean:.1f} ± ")
        assert page.row("glance", label)["BLEU"] == f"{scores['test']['bleu']:.1f}"
    for name in ("support_output", "exactness", "total_score", "tau", "training_speed", "alpha"):
        assert len(page.rows[name]) > 1, name
    assert "time on the wall" in page.text  # how decoding was timed
