"""The table of the terminal: which of several measures it shows."""

import json
import math

import pytest

from experiments.results import collect, table
from experiments.run_folder import Run, find_runs


@pytest.mark.parametrize("generate, exact", [({"unnormalized": True}, "91.0"), ({}, "12.0")])
@pytest.mark.parametrize("name", ["certified", "exact"])  # as it is called, and as it was
def test_certified_is_about_the_score_that_ranked(tmp_path, generate, exact, name):
    scores = {"valid": {f"{name}_raw": 91.0, f"{name}_normalized": 12.0}}
    scores["test"] = {f"{name}_raw": 1.0, f"{name}_normalized": 1.0}
    manifest = {"config": {"generate": generate}, "data": {}, "commands": {}, "stages": {}}
    write_run(tmp_path / "d/entmax15/seed1", json.dumps(scores), json.dumps(manifest))
    head, _, row = table(collect(tmp_path, "d")).strip().splitlines()
    assert head.split()[1:] == ["certified", "%"]
    assert row.split() == ["entmax15", exact]


def write_speed(path, **speeds: float) -> None:
    names = {"cpu": "train_words_per_cpu_second", "wall": "train_words_per_second"}
    write_run(path, json.dumps({names[clock]: value for clock, value in speeds.items()}))


def test_speeds_of_two_clocks_are_never_compared(tmp_path):
    write_speed(tmp_path / "d/softmax/seed1", cpu=100, wall=30)
    write_speed(tmp_path / "d/relu15/seed1", cpu=120, wall=20)
    head, _, *rows = table(collect(tmp_path, "d")).strip().splitlines()
    assert head.split()[1:] == ["train", "words/CPU", "s"]
    assert [row.split() for row in rows] == [["softmax", "100"], ["relu15", "120"]]
    write_speed(tmp_path / "d/sparsemax/seed1", wall=25)  # of an older version
    head, _, *rows = table(collect(tmp_path, "d")).strip().splitlines()
    assert head.split()[1:] == ["train", "words/s"]
    speeds = [["softmax", "30"], ["sparsemax", "25"], ["relu15", "20"]]
    assert [row.split() for row in rows] == speeds


def write_run(path, scores: str, manifest: str = "") -> Run:
    (path / "checkpoints").mkdir(parents=True)
    (path / "checkpoints/checkpoint_best.pt").touch()
    whole = '{"config": {}, "data": {}, "commands": {}, "stages": {"train": {}}, "tau": null}'
    (path / "manifest.json").write_text(manifest or whole)
    (path / "scores.json").write_text(scores)
    return Run(path)


def test_results_average_over_seeds_and_name_broken_runs(tmp_path):
    for seed, bleu in (("1", 30.0), ("2", 32.0)):
        score = f'{{"test": {{"bleu": {bleu}, "bleu_signature": "how"}}}}'
        write_run(tmp_path / f"d/relu15/seed{seed}", score)
    write_run(tmp_path / "d/softmax/seed1", "{}", manifest="{")
    assert len(find_runs(tmp_path, "d")) == 3
    results = collect(tmp_path, "d")
    bleu = results["systems"]["relu15"]["bleu"]
    assert (bleu["mean"], bleu["n"]) == (31.0, 2)
    assert bleu["std"] == pytest.approx(math.sqrt(2))
    text = table(results)
    assert "31.0 ± 1.4" in text
    assert "BLEU: how" in text
    assert "softmax/seed1/manifest.json is broken" in text
