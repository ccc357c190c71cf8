"""The frame of the analyses: what is reused, what is written, and that nothing hides the others."""

import json
from pathlib import Path

import pytest
from hand_made import make_run, read_result

from experiments.analysis.shared.analysis import Analysis, NotMeasured, expand

NAME = Path(__file__).stem  # an analysis has the name of its file


class Counted:
    """An analysis that counts how often it was asked."""

    def __init__(self, answer=lambda run, settings: {"n": 1}, **options):
        self.asked = []

        def compute(run, settings):
            self.asked.append(settings)
            return answer(run, settings)

        inputs = lambda run, settings: [run.path / "input.txt"]  # noqa: E731
        self.analysis = Analysis(compute, inputs, {"size": 3}, **options)


def test_a_result_says_what_made_it(tmp_path):
    run = make_run(tmp_path)
    assert Counted().analysis.perform([run]) == []
    document = read_result(run, NAME)
    assert document["result"] == {"n": 1}
    made = document["made"]
    assert made["runs"] == ["toy_xx_yy/relu15/seed1"]
    assert (made["dataset"], made["system"], made["seed"]) == ("toy_xx_yy", "relu15", 1)
    assert made["settings"] == {"size": 3}
    assert {"torch", "fairseq-fixed", "sacrebleu"} <= made["versions"].keys()


def test_a_result_is_reused_until_an_input_or_a_setting_changes(tmp_path):
    run, counted = make_run(tmp_path), Counted()
    counted.analysis.perform([run])
    counted.analysis.perform([run])
    assert len(counted.asked) == 1
    (run.path / "input.txt").write_text("new")
    counted.analysis.perform([run])
    assert len(counted.asked) == 2
    counted.analysis.perform([run], {"size": 4})
    assert len(counted.asked) == 3 and counted.asked[-1] == {"size": 4}
    (run.analysis_dir / f"{NAME}.json").write_text("{half")
    counted.analysis.perform([run], {"size": 4})
    assert len(counted.asked) == 4


def test_another_split_has_a_file_of_its_own(tmp_path):
    """The report says of which split its numbers are."""
    run, counted = make_run(tmp_path), Counted()
    counted.analysis.settings["split"] = "valid"
    counted.analysis.perform([run])
    counted.analysis.perform([run], {"split": "test"})
    assert read_result(run, NAME)["made"]["settings"]["split"] == "valid"
    assert read_result(run, f"{NAME}-test")["made"]["settings"]["split"] == "test"


def test_a_missing_measurement_says_why_and_is_no_failure(tmp_path):
    def answer(run, settings):
        raise NotMeasured("not run yet")

    run, counted = make_run(tmp_path), Counted(answer)
    assert counted.analysis.perform([run]) == []
    assert read_result(run, NAME)["missing"] == "not run yet"
    counted.analysis.perform([run])
    assert len(counted.asked) == 1


def test_a_failure_is_one_line_is_tried_again_and_the_others_go_on(tmp_path, capsys):
    def answer(run, settings):
        if run.system == "bad":
            raise RuntimeError("size mismatch\n  for weight")
        return {}

    bad, good = make_run(tmp_path, "bad"), make_run(tmp_path, "good")
    counted = Counted(answer)
    (problem,) = counted.analysis.perform([bad, good])
    assert problem == f"toy_xx_yy/bad/seed1: {NAME}: size mismatch for weight"
    assert read_result(bad, NAME)["error"] == "size mismatch for weight"
    assert read_result(good, NAME)["result"] == {}
    counted.analysis.perform([bad, good])
    assert len(counted.asked) == 3


def test_a_broken_run_directory_is_named(tmp_path, capsys):
    broken, whole = make_run(tmp_path, "broken"), make_run(tmp_path, "whole")
    (broken.path / "manifest.json").write_text("{")
    with pytest.raises(SystemExit) as end:
        Counted().analysis.main([str(broken.path), str(whole.path)])
    assert end.value.code == 1
    assert "broken/seed1: " in capsys.readouterr().err
    assert read_result(whole, NAME)["result"] == {"n": 1}


def test_runs_of_a_dataset_are_compared_together(tmp_path):
    runs = [make_run(tmp_path, system) for system in ("softmax", "relu15")]
    counted = Counted(lambda runs, settings: {"systems": [r.system for r in runs]}, together=True)
    counted.analysis.perform(runs)
    path = runs[0].path.parents[1] / "analysis" / f"{NAME}.json"
    assert json.loads(path.read_text())["result"] == {"systems": ["softmax", "relu15"]}


def test_the_directory_of_a_dataset_stands_for_its_runs(tmp_path):
    for system in ("softmax", "relu15"):
        make_run(tmp_path, system)
    found = expand([tmp_path / "runs" / "toy_xx_yy"])
    assert [run.system for run in found] == ["relu15", "softmax"]
    assert [run.system for run in expand([found[1].path])] == ["softmax"]


def test_settings_are_flags(tmp_path):
    run, counted = make_run(tmp_path), Counted()
    counted.analysis.main([str(run.path), "--size", "7"])
    assert counted.asked == [{"size": 7}]


def test_the_moving_average_is_analysed_where_it_translates(tmp_path):
    run = make_run(tmp_path)
    assert run.decoded_checkpoint().name == "checkpoint_best.pt"
    run.manifest["config"]["train"] = {"store-ema": True}
    assert run.decoded_checkpoint().name == "checkpoint_ema.pt"
