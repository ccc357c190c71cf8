"""Files that are whole or not there, locks that a killed process cannot leave behind, checksums."""

import fcntl
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

LOCK_SECONDS = 0.2


@contextmanager
def atomic_output(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file that takes its name only when all of it has been written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; outputs get the permissions of any other new file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    with atomic_output(path) as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


@contextmanager
def lock(
    path: Path, purpose: str, stopping: Callable[[], bool] = lambda: False
) -> Iterator[IO[Any]]:
    """Lets one process at a time go on; the others say so once and wait, or until ``stopping``.

    The kernel drops the lock with the last process that has the file open, so kill -9 leaves
    nothing to clean up, and a child process that was given the file keeps the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if not _try_lock(file):
            print(f"waiting: another process works on {purpose} ({path})", file=sys.stderr)
            # Short waits: a thread that the kernel holds hears of no Ctrl-C.
            while not _try_lock(file):
                if stopping():
                    raise KeyboardInterrupt
                time.sleep(LOCK_SECONDS)
        yield file


def _try_lock(file: IO[Any]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
