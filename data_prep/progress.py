"""How far a long stage is: a bar with the time left on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

LOG_SECONDS = 5.0

T = TypeVar("T")


def format_seconds(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress:
    """Counts up to ``total`` (None if unknown); use it as a context manager."""

    def __init__(self, label: str, total: float | None, unit: str = "", file=None, digits: int = 0):
        self.file = file or sys.stderr
        self.label, self.total, self.unit, self.done = label, total, unit, 0.0
        self.digits = digits
        self.started = self.reported = time.monotonic()
        self.bar = None
        if self.file.isatty():
            self.bar = tqdm(
                total=total, file=self.file, dynamic_ncols=True, bar_format=self._format()
            )

    def _format(self) -> str | None:
        count = f"{{n:,.{self.digits}f}}"
        if self.total is None:
            return f"{self.label}: {count} {self.unit} [{{elapsed}}]"
        numbers = f"{count}/{{total:,.{self.digits}f}} {self.unit}"
        return f"{self.label}: {{percentage:3.0f}}%|{{bar}}| {numbers}, {{remaining}} left"

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error) -> None:
        if self.bar is not None:
            self.bar.close()
        elif error[0] is None:
            self._line(f"done in {format_seconds(time.monotonic() - self.started)}")

    def advance(self, amount: float = 1) -> None:
        self.done += amount
        if self.bar is not None:
            self.bar.update(amount)
        elif time.monotonic() - self.reported >= LOG_SECONDS:
            self.reported = time.monotonic()
            self._line(self._state())

    def skip(self, amount: float) -> None:
        """Takes off ``total`` what turns out to be done already: only the rest is timed."""
        if self.total is not None:
            self.total -= amount
            if self.bar is not None:
                self.bar.total = self.total
                self.bar.refresh()

    def note(self, text: str) -> None:
        """A line of its own, above the bar."""
        if self.bar is not None:
            self.bar.write(text, file=self.file)
        else:
            print(text, file=self.file, flush=True)

    def _state(self) -> str:
        count = f"{self.done:,.{self.digits}f}"
        if not self.total:
            return f"{count} {self.unit}"
        elapsed = time.monotonic() - self.started
        left = elapsed * (self.total - self.done) / self.done if self.done else 0.0
        share = f"{100 * self.done / self.total:.0f}%"
        total = f"{self.total:,.{self.digits}f}"
        return f"{count} of {total} {self.unit} ({share}), {format_seconds(left)} left"

    def _line(self, text: str) -> None:
        print(f"{self.label}: {text}", file=self.file, flush=True)


def track(items: Iterable[T], label: str, total: float | None, unit: str = "") -> Iterator[T]:
    with Progress(label, total, unit) as progress:
        for item in items:
            yield item
            progress.advance()
