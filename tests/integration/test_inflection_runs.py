"""The paper's inflection config, made tiny, from the shared task's files to an ensemble's scores.

That an ensemble averages probabilities is in unit/generation/test_stock_equality.py
(test_ensembles_average_probabilities) and, for sparse outputs, in unit/test_output_transform.py.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from miniature_corpora import write_sigmorphon

from experiments.config import CONFIGS

ROOT = Path(__file__).parents[2]
CONFIG = """
extends: sigmorphon2018_high
systems: [out1.5_att1.5]
seeds: [1, 2]
train:
  encoder-embed-dim: 16
  decoder-embed-dim: 16
  decoder-hidden-size: 16
  encoder-layers: 1
  decoder-layers: 1
  lr: 0.01
  max-epoch: 2
  num-workers: 0
generate: {beam: 3}
"""
SYSTEM = "out1.5_att1.5"
VERBS = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ("nk", "rt")]
WORDS = {
    "task1/all/finnish": [("tasata", "ette tasanneet", "V;ACT;PST;2;PL")],
    "task1/surprise/english": [(verb, f"{verb}ed", "V;PST") for verb in VERBS],
    "task1/surprise/german": [(f"{verb}en", f"ge{verb}t", "V.PTCP;PST") for verb in VERBS[:40]],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The folder of all runs, after the seeds and then their ensemble."""
    folder = tmp_path_factory.mktemp("inflection")
    (folder / "configs").mkdir()
    shutil.copy(CONFIGS / "sigmorphon2018_high.yaml", folder / "configs")
    (folder / "configs/tiny.yaml").write_text(CONFIG)
    write_sigmorphon(folder / "raw", packed=False, words=WORDS)
    paths = {"configs": "configs", "data-root": "data", "runs-root": "runs", "raw": "raw"}
    flags = [f"--{name}={folder / path}" for name, path in paths.items()]
    flags += ["--languages=english german", "--jobs=1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    for words in ([], [SYSTEM, "ensemble"]):
        command = [sys.executable, "-m", "experiments.run", "tiny", *words, *flags]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "runs/tiny_english_german"


def load(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.mark.parametrize("member", ["seed1", "seed2", "ensemble"])
def test_the_chosen_languages_are_scored_one_by_one(runs, member):
    scores = load(runs / SYSTEM / member / "scores.json")["test"]
    examples = {language: x["examples"] for language, x in scores["languages"].items()}
    assert examples == {"english": len(VERBS), "german": 40}
    by_language = [x["word_accuracy"] for x in scores["languages"].values()]
    assert scores["word_accuracy"] == pytest.approx(sum(by_language) / 2)


@pytest.mark.parametrize("member", ["seed1", "ensemble"])
def test_how_exact_the_search_was_is_known(runs, member):
    scores = load(runs / SYSTEM / member / "scores.json")["test"]
    lines = (runs / SYSTEM / member / "generate-test.txt").read_text().splitlines()
    told = [line for line in lines if line.startswith("E-")]
    for key, word in (("certified_raw", "raw=yes"), ("certified_normalized", "normalized=yes")):
        share = sum(f"\t{word}\t" in line for line in told) / len(told)
        assert scores[key] == pytest.approx(100 * share)


def test_the_ensemble_decodes_with_the_checkpoints_of_all_seeds(runs):
    manifest = load(runs / SYSTEM / "ensemble/manifest.json")
    assert set(manifest["stages"]) == {"generate", "score"}  # it trains nothing
    members = [runs / SYSTEM / f"seed{seed}/checkpoints/checkpoint_best.pt" for seed in (1, 2)]
    for command in manifest["commands"]["generate"]:
        assert f"--path={members[0]}:{members[1]}" in command


def test_the_ensemble_is_a_system_of_its_own(runs):
    systems = load(runs / "results.json")["systems"]
    assert set(systems) == {SYSTEM, f"{SYSTEM} ensemble"}
    for name, count in ((SYSTEM, 2), (f"{SYSTEM} ensemble", 1)):
        for key in ("word_accuracy", "edit_distance", "single_hypothesis"):
            assert systems[name][key]["n"] == count
