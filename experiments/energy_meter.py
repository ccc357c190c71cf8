"""Measures the energy of a command while it runs. `analysis.energy` sums it up."""

import json
import shutil
import subprocess
import threading
import time
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
FILE = "energy.jsonl"


class Rapl:
    """Counters of the processor packages. They wrap around, so they must be read often."""

    source = "rapl"

    def __init__(self, folder: Path = POWERCAP):
        self.zones = [zone for zone in sorted(folder.glob("*-rapl:*")) if zone.name.count(":") == 1]
        if not self.zones:
            raise OSError("no RAPL counters in /sys/class/powercap")
        self.last = [self._read(zone, "energy_uj") for zone in self.zones]
        self.range = [self._read(zone, "max_energy_range_uj") for zone in self.zones]

    def joules(self, seconds: float) -> float:
        """Energy since the last call."""
        now = [self._read(zone, "energy_uj") for zone in self.zones]
        used = sum((b - a) % size for a, b, size in zip(self.last, now, self.range, strict=True))
        self.last = now
        return used / 1e6

    @staticmethod
    def _read(zone: Path, name: str) -> int:
        return int((zone / name).read_text())


class NvidiaSmi:
    """The power that all GPUs draw, times the time between two looks."""

    source = "nvidia-smi"

    def __init__(self) -> None:
        if shutil.which("nvidia-smi") is None:
            raise OSError("no nvidia-smi")
        self.watts = self._watts()

    def joules(self, seconds: float) -> float:
        before, self.watts = self.watts, self._watts()
        return (before + self.watts) / 2 * seconds

    @staticmethod
    def _watts() -> float:
        query = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        return sum(float(line) for line in done.stdout.split())


class Meter:
    """Measures the energy of what runs inside of it: `with Meter(run.path): …`.

    It adds lines to energy.jsonl as it goes, so that a kill loses seconds and not hours.
    """

    def __init__(self, folder: Path, interval: float = 10.0, counters=(NvidiaSmi, Rapl)):
        self.path = folder / FILE
        self.interval = interval
        self.counters = counters
        self.session = time.time()
        self.joules = self.seconds = 0.0
        self._stop = threading.Event()

    def __enter__(self) -> "Meter":
        self.counter, self.why = self._open()
        self._looked = time.monotonic()
        self._write()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._stop.set()
        self._thread.join()
        if self.counter is not None:
            self._look()

    def _open(self) -> tuple[Rapl | NvidiaSmi | None, str | None]:
        reasons = []
        for counter in self.counters:
            try:
                return counter(), None
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                reasons.append(" ".join(str(error).split()))
        return None, "; ".join(reasons)

    def _watch(self) -> None:
        while self.counter is not None and not self._stop.wait(self.interval):
            self._look()

    def _look(self) -> None:
        now = time.monotonic()
        seconds, self._looked = now - self._looked, now
        try:
            self.joules += self.counter.joules(seconds)
            self.seconds += seconds
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.counter, self.why = None, " ".join(str(error).split())
        self._write()

    def _write(self) -> None:
        record = {
            "session": self.session,
            "source": self.counter.source if self.counter else None,
            "seconds": round(self.seconds, 3),
            "joules": round(self.joules, 3) if self.counter else None,
            "why": self.why,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
