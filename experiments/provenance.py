"""What made a run: code, versions, hardware, data, commands, and which stages are finished."""

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .paths import ROOT

PACKAGES = ("torch", "fairseq-fixed", "sacrebleu", "sacremoses", "subword-nmt", "sentencepiece")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def provenance() -> dict[str, Any]:
    return {"git_commit": _git_commit(), "versions": _versions(), "hardware": _hardware()}


def _git_commit() -> str | None:
    """The commit, with `+` if the files differ from it."""
    commit = _output("git", "-C", str(ROOT), "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return commit + ("+" if changed else "")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _hardware() -> dict[str, Any]:
    import os

    gpus = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return {
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "gpus": gpus.splitlines() if gpus else [],
    }


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or None


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
