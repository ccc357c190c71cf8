"""What the benchmarks share: taking turns, memory, and a CSV that says how it was made."""

import csv
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own messages

import torch
from torch.profiler import ProfilerActivity, profile

from experiments.provenance import provenance

RESULTS = Path(__file__).parent / "results"


def clock() -> float:
    """Seconds: of this process's own CPU time, which other processes slow least, or of the wall
    clock where several threads share the work."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def take_turns(
    contestants: dict[str, Callable[[], object]], rounds: int, slow: frozenset[str] = frozenset()
) -> dict[str, list[float]]:
    """Times relative to the first contestant, round by round; ``slow`` ones run in one round.

    The machine may be busy: rounds are not comparable with each other, turns within one are.
    """
    for name, run in contestants.items():
        if name not in slow:
            run()  # warm up
    baseline = next(iter(contestants))
    ratios: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        base = 1.0
        for name, run in contestants.items():
            if name in slow and number > 0:
                continue
            start = clock()
            run()
            seconds = clock() - start
            base = seconds if name == baseline else base
            ratios[name].append(seconds / base)
    return ratios


def summary(ratios: list[float]) -> dict[str, float]:
    values = {"ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
    return {key: round(value, 3) for key, value in values.items()}


def peak_memory(run: Callable[[], object]) -> int:
    """Most bytes that ``run`` held at once; what it frees of an earlier run is no credit."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    size = lowest = peak = 0
    events = record.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            size += event.nbytes()
            lowest = min(lowest, size)
            peak = max(peak, size - lowest)
    return peak


def commit() -> str:
    """Of the code that is measured; "" where it is not in a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def machine() -> dict:
    found = provenance()
    hardware, versions = found["hardware"], found["versions"]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": f"{hardware['cpu']}, {hardware['cores']} cores",
        "threads": torch.get_num_threads(),
        **{name: versions[name] for name in ("python", "torch", "fairseq-fixed")},
        "entmax": version("entmax"),
    }


def write_csv(name: str, rows: list[dict]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(machine() | rows[0]))
        writer.writeheader()
        writer.writerows(machine() | row for row in rows)
    print(f"\nwritten to {path}")
