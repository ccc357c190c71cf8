"""Runs a command with its output in a file, tells how far it is, and leaves no orphan behind."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .paths import ROOT, readable

POLL_SECONDS = 0.25
PATIENCE_SECONDS = 5
TORCHRUN = re.compile(r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


class StageFailed(Exception):
    """A command of a stage ended with an error; the message is one line."""


class Processes:
    """The commands that run now; several threads may start one each."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen] = set()
        self._mutex = threading.Lock()
        self.stopping = False  # nothing starts any more

    def run(
        self,
        command: list[str],
        log: Path,
        lock: IO | None,
        threads: int,
        on_line: Callable[[str], None] = lambda line: None,
        mode: str = "a",
    ) -> None:
        """Runs ``command`` to its end; its output goes to ``log`` and line by line to ``on_line``.

        The command gets the file of the lock: should we be killed, it still holds the lock, and
        nobody else writes where it writes.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open(mode) as output, log.open(errors="replace", newline="\n") as reader:
            reader.seek(0, os.SEEK_END)
            with self._started(
                executable(command),
                env=environment(threads),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(lock.fileno(),) if lock else (),
            ) as process:
                last = self._follow(process, reader, on_line)
        if self.stopping:
            raise KeyboardInterrupt
        if process.returncode:
            what = f"{command[0]} failed (exit {process.returncode})"
            raise StageFailed(f"{what}, see {readable(log)}: {last}")

    def run_visibly(self, command: list[str], allow_failure: bool = False) -> bool:
        """Runs ``command`` with our own terminal, where it shows its own progress. Returns whether
        it succeeded."""
        with self._started(executable(command), env=without_torchrun()) as process:
            try:
                process.wait()
            except KeyboardInterrupt:
                interrupt(process)
                raise
        if process.returncode and not allow_failure:
            raise SystemExit(process.returncode)  # it has said why
        return not process.returncode

    @contextmanager
    def _started(self, command: list[str], **options: Any) -> Iterator[subprocess.Popen]:
        """A command that does not outlive what is done inside, however that ends."""
        with self._mutex:
            if self.stopping:
                raise KeyboardInterrupt
            process = subprocess.Popen(command, cwd=ROOT, **options)
            self._running.add(process)
        try:
            yield process
        except BaseException:
            end([process])
            raise
        finally:
            with self._mutex:
                self._running.discard(process)

    @staticmethod
    def _follow(process: subprocess.Popen, reader: IO, on_line: Callable[[str], None]) -> str:
        last, rest = "", ""
        while True:
            ended = process.poll() is not None
            rest += reader.read()
            *lines, rest = rest.split("\n")
            for line in lines:
                last = line.strip() or last
                on_line(line)
            if ended:
                return rest.strip() or last
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Ends all commands; none starts any more."""
        with self._mutex:
            self.stopping = True
            running = list(self._running)
        end(running)


def interrupt(process: subprocess.Popen) -> None:
    """Ctrl-C for a command that has its own way to clean up.

    That of a terminal reaches it without us, and a second one would disturb it.
    """
    for send, seconds in ((False, 1), (True, PATIENCE_SECONDS)):
        if send:
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def end(processes: list[subprocess.Popen]) -> None:
    """Asks them to end, and insists after a while."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def executable(command: list[str]) -> list[str]:
    """The same command with the programs of this Python's environment."""
    folder = Path(sys.executable).parent
    program = sys.executable if command[0] == "python" else str(folder / command[0])
    return [program, *command[1:]]


def environment(threads: int) -> dict[str, str]:
    """OMP_NUM_THREADS as the user set it, or so that jobs side by side share the cores."""
    return {"OMP_NUM_THREADS": str(threads), **without_torchrun(), "PYTHONUNBUFFERED": "1"}


def without_torchrun() -> dict[str, str]:
    """Our environment without what torchrun says to us: flags tell a command if it is a worker."""
    return {name: value for name, value in os.environ.items() if not TORCHRUN.fullmatch(name)}


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does: with the commands that we started."""

    def as_interrupt(number, frame):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, as_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
