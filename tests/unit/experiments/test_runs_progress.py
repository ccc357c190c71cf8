"""The estimate of the time left, from the lines that commands print."""

import io
import json
import time

import pytest

from data_prep.progress import Progress, format_seconds, track
from experiments.config import load_config
from experiments.runs_progress import RunsProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def inner(update: float) -> str:
    return (
        f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps({'epoch': 1, 'update': update})}"
    )


@pytest.fixture
def progress(capsys) -> RunsProgress:
    config = load_config("demo").replaced("train", **{"max-epoch": 4})
    return RunsProgress(config, 2, ("data", "train", "generate", "score"), sentences=10)


def test_training_and_decoding_count_towards_one_total(progress):
    assert progress.progress.total == 2 * (4 + 0.5)
    progress.line("a", "train", inner(0.5))
    progress.line("b", "train", inner(0.25))
    progress.line("a", "train", inner(1.5))
    assert progress.progress.done == 1.75
    progress.finish("a", "train")
    assert progress.progress.done == 4.25
    for _ in range(10):
        progress.line("a", "generate", "H-3\t-1\tx")
    assert progress.progress.done == pytest.approx(4.75)


def test_what_was_done_before_is_not_timed(progress):
    progress.line("a", "train", inner(2.5))  # resumed after two epochs
    assert (progress.progress.total, progress.progress.done) == (7, 0.5)
    progress.finish("b", "train")  # was finished before
    assert progress.progress.total == 3


def test_a_broken_line_of_a_log_moves_nothing(progress):
    progress.line("a", "train", inner(0.5).replace(":", "", 4).replace("{", "{{"))
    progress.line("a", "train", "now | INFO | valid | {broken}")
    assert progress.progress.done == 0


def test_plain_lines_every_few_seconds_in_a_log(monkeypatch):
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    log = io.StringIO()
    with Progress("learn", 8, "lines", file=log) as progress:
        for _ in range(8):
            progress.advance()
    lines = log.getvalue().splitlines()
    assert 1 < len(lines) < 8
    assert all(line.startswith("learn: ") for line in lines)
    assert "left" in lines[0]
    assert lines[-1].startswith("learn: done in ")


def test_a_bar_with_the_time_left_on_a_terminal():
    terminal = Terminal()
    with Progress("learn", 8, "lines", file=terminal) as progress:
        progress.advance(8)
    assert "100%" in terminal.getvalue()
    assert "left" in terminal.getvalue()


def test_track_gives_the_items_on():
    assert list(track([1, 2], "x", 2)) == [1, 2]


def test_times_are_written_for_people():
    assert [format_seconds(s) for s in (5, 65, 3665)] == ["0:05", "1:05", "1:01:05"]
