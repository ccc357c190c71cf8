"""Runs the real fairseq-preprocess on segmented text."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from data_prep.progress import Progress
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError


def binarise(spec: DataSpec, segmented: Path, out: Path, jobs: int, held: IO) -> None:
    """Dictionaries and binarised splits in ``out``, which must not hold any yet.

    fairseq-preprocess gets the lock file too: it outlives a killed parent, and the next
    preparation then waits for it.
    """
    program = Path(sys.executable).parent / "fairseq-preprocess"
    if not program.exists():
        raise UsageError(f"{program} is missing: run `make setup`, or install fairseq-fixed")
    command = [str(program), f"--source-lang={spec.source}", f"--target-lang={spec.target}"]
    command += [f"--{split}pref={segmented / split}" for split in ("train", "valid", "test")]
    command += [f"--destdir={out}", f"--workers={jobs}"]
    command += ["--joined-dictionary"] if spec.joint_dictionary else []
    log = out / "fairseq-preprocess.log"
    with log.open("wb") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=environment, pass_fds=[held.fileno()]
        )
        try:
            _watch(process, segmented, out)
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        last = (log.read_text(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"fairseq-preprocess failed: {last} (command: {' '.join(command)})")
    log.unlink()
    (out / "preprocess.log").unlink(missing_ok=True)


def _watch(process: subprocess.Popen, segmented: Path, out: Path) -> None:
    """Waits; the bar takes two bytes of what has been written for a token."""
    total = sum(map(_tokens, segmented.iterdir()))
    with Progress("binarise", total, "tokens") as bar:
        while process.poll() is None:
            time.sleep(0.2)
            done = sum(path.stat().st_size for path in out.glob("*.bin") if path.exists()) // 2
            bar.advance(max(0, min(done, total) - bar.done))


def _tokens(path: Path) -> int:
    """Tokens of a segmented text, ends of sentences included."""
    count = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count += block.count(b" ") + 2 * block.count(b"\n")
    return count
