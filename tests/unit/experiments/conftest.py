"""Where unit tests of experiments find a place."""

import pytest

from experiments import run
from tests.pretended_runs import Commands, Place


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    commands = Commands()
    monkeypatch.setattr(run, "Processes", lambda: commands)
    monkeypatch.setattr(run, "check_flags", lambda plan, commands: None)
    place = Place(tmp_path, commands)
    place.prepare()
    return place
