"""The command line: what it shows, what it refuses, and how it ends."""

import json
import os
import time

import pytest

from experiments.code_digest import report_digest
from experiments.run import check_flags, main
from sparse_fairseq.errors import UsageError
from tests.pretended_runs import CONFIG


def shown(place, capsys, *words: str) -> list[str]:
    main([*place.arguments(), "--dry-run", *words])
    return capsys.readouterr().out.splitlines()


def test_a_dry_run_shows_every_command_up_to_the_report(place, capsys):
    lines = shown(place, capsys, "--report")
    modules = [line.split()[2] for line in lines if line.startswith("python -m ")]
    assert modules == ["data_prep", "experiments.analysis", "experiments.report"]
    assert f"--runs-root {place.folder / 'runs'}" in lines[-1]
    assert len(shown(place, capsys)) == len(lines) - 2


def test_a_dry_run_shows_commands_for_gpus_that_are_not_here(place, capsys):
    train = shown(place, capsys, "--gpus=8")[1]
    assert "--distributed-world-size=8" in train and "--max-tokens=50 " in train


def test_mistakes_are_found_before_data_are_prepared(place, monkeypatch):
    """Preparing may take hours."""
    (place.folder / "data/tiny/data.json").unlink()
    monkeypatch.setattr("experiments.run.check_flags", check_flags)
    place.configure(CONFIG.replace("beam: 2", "beem: 5"))
    assert "no flag 'beem'" in one_line_about(place)
    assert "GPUS=-1" in one_line_about(place, "--gpus=-1")
    assert place.commands.programs == []


def one_line_about(place, *words: str) -> str:
    with pytest.raises(UsageError) as raised:
        place.call(*words)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_broken_file_is_named_in_one_line(place):
    place.call()
    for name, text in (
        ("generate-test.txt", "H-0\tmuch\tx\n"),
        ("generate-test.txt", "H-1\t-1\tx\n"),
        ("hypotheses-test.txt", b"\xff"),
    ):
        before = (place.run / name).read_bytes()
        (place.run / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        place.forget("score")
        assert str(place.run / name) in one_line_about(place)
        (place.run / name).write_bytes(before)
    place.call()
    for path, text in (
        (place.folder / "data/tiny/data.json", "{"),
        (place.folder / "data/tiny/data.json", '{"spec": "multi30k", "sizes": {}, "checksums": 1}'),
    ):
        path.write_text(text)
        assert f"{path} is broken" in one_line_about(place)


def test_a_config_that_is_no_text_is_named(place):
    (place.folder / "configs/tiny.yaml").write_bytes(b"about: \xff")
    assert "tiny.yaml" in one_line_about(place)


def test_a_full_disk_is_one_line(place, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device", str(place.run / "scores.json"))

    monkeypatch.setattr("experiments.stages.write_json", full)
    message = one_line_about(place)
    assert "tiny/relu15/seed1" in message and "No space left" in message
    assert "scores.json" in message


def test_broken_scores_of_a_run_hide_no_other(place, capsys):
    place.call()
    (place.run / "scores.json").write_text("{")
    capsys.readouterr()
    place.call()
    assert f"left out: {place.run / 'scores.json'} is broken" in capsys.readouterr().out


def with_a_page(place) -> None:
    place.call()
    page = place.folder / "runs/tiny/report.html"
    page.write_text(f"a page of this code: {report_digest()}")
    os.utime(page, (time.time() + 9, time.time() + 9))


@pytest.mark.parametrize("text", [None, "{"])
def test_results_that_were_removed_are_collected_again(place, capsys, text):
    with_a_page(place)
    results = place.folder / "runs/tiny/results.json"
    results.unlink()
    if text:
        results.write_text(text)
    capsys.readouterr()
    assert place.call("--report") == []
    assert "relu15" in capsys.readouterr().out
    assert results.is_file()


def grow(place) -> None:
    (place.run / "train.log").write_text("more")
    os.utime(place.run / "train.log", (time.time() + 99, time.time() + 99))


def fail(place) -> None:
    folder = place.folder / "runs/tiny/analysis"
    folder.mkdir()
    (folder / "tau.json").write_text('{"analysis": "tau", "error": "out of memory"}')


def remove(place) -> None:
    results = place.folder / "runs/tiny/results.json"
    record = json.loads(results.read_text())
    record["runs"].append({"system": "softmax", "seed": 1})  # whose directory is gone
    results.write_text(json.dumps(record))


@pytest.mark.parametrize("change", [grow, fail, remove])
def test_a_page_that_no_longer_shows_what_is_there_is_made_anew(place, change):
    with_a_page(place)
    assert place.call("--report") == []
    change(place)
    assert place.call("--report") == ["python", "python"]


def test_a_failed_analysis_is_an_error_after_the_page(place, capsys):
    place.commands.fails = True
    with pytest.raises(UsageError, match="an analysis failed"):
        place.call("--report")
    assert [command[2] for command in place.commands.run_commands[-2:]] == [
        "experiments.analysis",
        "experiments.report",
    ]
    assert "relu15" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--epochs=many"], ["--gpus=x"], ["a", "1", "all", "more"]])
def test_what_cannot_be_read_is_one_line(place, words):
    assert one_line_about(place, *words).startswith("sparse_fairseq: error: ")
