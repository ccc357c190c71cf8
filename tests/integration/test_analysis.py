"""Analyses and report on runs that experiments.run made itself: no file is written by hand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import miniature
import pytest
from test_report import Page
from tiny_experiment import ROOT, Place

from experiments.analysis import analyses
from experiments.analysis.shared import models
from experiments.report.sections import section_makers
from experiments.run_folder import Run, find_runs

SYSTEMS = ("softmax", "relu15")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    """Two systems, trained, decoded, scored, analysed and reported on."""
    place = Place(tmp_path_factory.mktemp("analysed"))
    place.output = place.finish("runs", "--report")
    return place


@pytest.fixture(scope="module")
def page(place) -> Page:
    return Page((place.folder / "runs/tiny/report.html").read_text())


def run_of(place: Place, system: str) -> Run:
    return Run(place.folder / f"runs/tiny/{system}/seed1")


def documents(place: Place, system: str) -> dict[str, dict]:
    """What the analyses of a run, and of all of them together, have written."""
    folders = [run_of(place, system).analysis_dir, place.folder / "runs/tiny/analysis"]
    files = [path for folder in folders for path in folder.glob("*.json")]
    return {path.stem: json.loads(path.read_text()) for path in files}


def analyse(place: Place, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "experiments.analysis", str(place.folder / "runs/tiny")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_analysis_has_an_answer(place, system):
    found = documents(place, system)
    assert {*found} == {*analyses()}
    assert [name for name, document in found.items() if "error" in document] == []
    assert [name for name, document in found.items() if "missing" in document] == []


def test_numbers_agree_with_what_other_code_found(place):
    found = {name: x.get("result") for name, x in documents(place, "relu15").items()}
    points = found["dynamics"]["points"]
    best = min(points, key=lambda point: point["loss"])
    # What the criterion logged of the same data is counted by other code.
    assert found["support"]["output"]["gold"]["mean"] == pytest.approx(best["support"], abs=0.006)
    assert found["support"]["accuracy"] == pytest.approx(best["accuracy"], abs=0.006)
    scores = place.json("runs/tiny/relu15/seed1/scores.json")
    rows = {row["system"]: row for row in found["bleu"]["test"]["runs"]}
    assert rows["relu15"]["bleu"] == scores["test"]["bleu"]
    for key in ("certified_normalized", "single_hypothesis", "mean_hypotheses"):
        assert found["exactness"]["valid"][key] == scores["valid"][key]
    assert (
        found["tau"]["runs"][0]["tau"] == place.json("runs/tiny/relu15/seed1/manifest.json")["tau"]
    )
    assert found["inference_time"]["clock"] == "cpu" and found["inference_time"]["threads"] == 1
    softmax = documents(place, "softmax")["self_normalization"]["result"]
    assert softmax["gold"]["mean"] == pytest.approx(1, abs=1e-4)


def test_every_section_shows_what_was_measured(place, page):
    assert "could not be shown" not in page.text
    for maker in section_makers():
        assert maker.name in page.ids
    figures = {name.removeprefix("figure-") for name in page.ids if name.startswith("figure-")}
    assert {"bleu_figure", "support_figure", "exactness_figure", "dynamics", "lattice"} <= figures
    scores = place.json("runs/tiny/relu15/seed1/scores.json")
    assert page.row("bleu", "1.5-ReLU")["Here"] == f"{scores['test']['bleu']:.1f}"
    here = page.csv("glance", "tiny")
    assert [row["System"] for row in here] == list(SYSTEMS)


def test_terminal_and_page_show_the_same_numbers(place, page):
    results = place.json("runs/tiny/results.json")["systems"]
    head = page.rows["glance"][0]
    assert "Training, words/CPU s" in head and "Certified, %" in head
    for row in page.csv("glance", "tiny"):
        measured = results[row["System"]]
        for heading, key in (
            ("BLEU", "bleu"),
            ("Certified, %", "certified"),
            ("Non-zero words", "support"),
            ("Training, words/CPU s", "train_words_per_cpu_second"),
            ("Decoding, sentences/s", "sentences_per_second"),
        ):
            assert float(row[heading]) == measured[key]["mean"], heading
    assert "certified %" in place.output and "train words/CPU s" in place.output


def test_what_has_not_changed_is_not_computed_again(place):
    before = analyse(place)
    assert before.returncode == 0
    assert before.stdout.count("nothing has changed") == before.stdout.count(".json: ")
    reference = place.folder / "data/tiny/text/test.en"
    text = reference.read_text()
    try:
        reference.write_text(text.replace("one", "uno"))
        after = analyse(place, "--only", "examples", "bleu", "exactness")
    finally:
        reference.write_text(text)
    made = set(re.findall(r"(\w+)\.json: written", after.stdout))
    assert made == {"examples", "bleu"}, after.stdout + after.stderr


def test_a_broken_run_is_named_and_hides_no_other(place):
    broken = place.folder / "runs/tiny/softmax/seed2"
    broken.mkdir()
    (broken / "manifest.json").write_text("{}")
    try:
        done = analyse(place, "--only", "dynamics")
    finally:
        (broken / "manifest.json").unlink()
        broken.rmdir()
    assert done.returncode == 1
    assert "failed: tiny/softmax/seed2: " in done.stderr


class Opened:
    """Which files of a place Python opens while it is watched."""

    def __init__(self) -> None:
        self.folder, self.files = None, set()
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple) -> None:
        if self.folder and event == "open" and isinstance(arguments[0], str | os.PathLike):
            path = Path(os.path.abspath(os.fspath(arguments[0])))
            if path.is_relative_to(self.folder) and path.is_file():
                self.files.add(path)


@pytest.fixture(scope="module")
def opened() -> Opened:
    return Opened()  # a hook cannot be taken away, but it can be idle


def test_an_analysis_declares_every_file_that_it_reads(place, opened):
    runs = find_runs(place.folder / "runs", "tiny")
    for name, analysis in analyses().items():
        settings = dict(analysis.settings)
        asked = [runs] if analysis.together else [[run] for run in runs]
        for group in asked:
            models._load.cache_clear()
            opened.folder, opened.files = place.folder, set()
            analysis._outcome(group, settings)
            opened.folder = None
            declared = {path for run in group for path in analysis.files(run, settings)}
            left = {path.relative_to(place.folder) for path in opened.files - declared}
            assert not left, f"{name} reads {sorted(map(str, left))}"


# What files that were written by hand have beyond those of the tiny runs, and why.
RARE = {
    "dynamics.json": {".result.points[].bleu"},  # the tiny runs validate without --eval-bleu
    "tau.json": {".result.sweep[].points[].bleu"},
}


def forms(runs: Path, data: Path) -> dict[str, set[str]]:
    """Of every JSON file of the runs of a dataset, and of its data, by its name."""
    found: dict[str, set[str]] = {}
    for path in [*(runs / "tiny").glob("**/*.json"), data / "tiny/data.json"]:
        found.setdefault(path.name, set()).update(miniature.form(json.loads(path.read_text())))
    return found


def test_the_miniature_has_the_form_of_real_runs(place, tmp_path):
    """Tests of the report that need rare cases have files written by hand; they must not drift."""
    runs = miniature.write_runs(tmp_path, "tiny", SYSTEMS, (1,))
    by_hand = forms(runs, tmp_path / "data")
    real = forms(place.folder / "runs", place.folder / "data")
    del by_hand["human_eval.json"]  # needs people; its own tests compare it
    assert {*analyses()} == {Path(name).stem for name in by_hand} - {"manifest", "scores", "data"}
    left = {name: keys - real[name] for name, keys in by_hand.items()}
    assert {name: keys for name, keys in left.items() if keys} == RARE
