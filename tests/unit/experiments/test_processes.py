"""Commands end with who started them, and who waits can be interrupted."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from data_prep.files import lock
from experiments.processes import Processes

ROOT = Path(__file__).parents[3]
SLEEPER = """
import os, sys, time
from pathlib import Path
print("started", flush=True)
Path(sys.argv[1]).with_suffix(".tmp").write_text(str(os.getpid()))
Path(sys.argv[1]).with_suffix(".tmp").rename(sys.argv[1])
time.sleep(100)
"""
PARENT = f"""
import sys
from experiments.processes import Processes, termination_as_interrupt
with termination_as_interrupt():
    Processes().run_visibly(["python", "-c", {SLEEPER!r}, sys.argv[1]])
"""


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has_ended(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_visible_command_ends_with_us(tmp_path, number):
    note = tmp_path / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(note)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    wait_for(note.exists)
    parent.send_signal(number)  # to it alone, unlike Ctrl-C in a terminal
    assert parent.wait(30) != 0
    assert has_ended(int(note.read_text()))


def test_a_command_ends_if_its_output_cannot_be_followed(tmp_path):
    note = tmp_path / "pid"

    def fail(line: str) -> None:
        wait_for(note.exists)
        raise ValueError("not understood")

    with pytest.raises(ValueError, match="not understood"):
        Processes().run(["python", "-c", SLEEPER, str(note)], tmp_path / "log", None, 1, fail)
    assert has_ended(int(note.read_text()))


def test_nothing_starts_after_a_stop(tmp_path):
    processes = Processes()
    processes.stop()
    with pytest.raises(KeyboardInterrupt):
        processes.run_visibly(["python", "-c", f"open('{tmp_path}/x', 'w')"])
    assert not (tmp_path / "x").exists()


def test_who_waits_for_a_lock_gives_up_when_all_stop(tmp_path):
    processes, outcome = Processes(), []

    def wait_in_a_thread() -> None:
        try:
            with lock(tmp_path / ".lock", "a test", lambda: processes.stopping):
                outcome.append("got it")
        except KeyboardInterrupt:
            outcome.append("gave up")

    with lock(tmp_path / ".lock", "a test"):
        thread = threading.Thread(target=wait_in_a_thread, daemon=True)
        thread.start()
        time.sleep(0.3)
        assert outcome == []
        processes.stop()
        thread.join(10)
    assert outcome == ["gave up"]
