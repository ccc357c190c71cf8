"""Validation scores against updates and against wall time (SE Fig. 2 and 3, S2S Fig. 6), from the
log of fairseq-train. Work that was lost because a run was interrupted counts neither way.

``result``:

    points      one per validation: updates, epoch, seconds (of training and validation since the
                start) and every score that fairseq logged: loss, accuracy, bleu, support, …
    training    one per epoch: updates, epoch, seconds, and what was logged: loss, wps, …
    seconds     of the whole training
    restarts    how often training went on from a checkpoint
"""

import re
from datetime import datetime

from ..runs import Run
from ..scoring import json_record
from .shared.analysis import Analysis, NotMeasured, need

LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) \| \w+ \| ([\w.]+) \| (.*)")
SAVED = re.compile(r"Saved checkpoint .* @ (\d+) updates")
LOADED = re.compile(r"Loaded checkpoint .* @ (\d+) updates")
FRESH = "No existing checkpoint found"  # what fairseq-train says instead


def compute(run: Run, settings: dict) -> dict:
    need(run.train_log)
    timeline = Timeline()
    for line in run.train_log.open(encoding="utf-8", errors="replace"):
        if match := LINE.match(line):
            timeline.add(datetime.fromisoformat(match[1]).timestamp(), match[2], match[3])
    if not timeline.valid:
        raise NotMeasured("not run yet: train.log has no validation")
    return timeline.result()


class Timeline:
    """Seconds of training that led to where we are, over all processes that took part in it."""

    def __init__(self) -> None:
        self.valid: dict[int, dict] = {}
        self.train: dict[int, dict] = {}
        self.saved = {0: 0.0}  # updates of a checkpoint -> seconds when it was written
        self.began = None  # when this process began to train, on the clock
        self.before = 0.0  # seconds of training before that
        self.seconds = self.recorded = 0.0  # now, and when something was last recorded
        self.restarts = 0

    def add(self, time: float, logger: str, text: str) -> None:
        if match := LOADED.search(text):
            self.restarts += 1
            self._begin(time, int(match[1]))
        elif FRESH in text:
            self._begin(time, 0)
        elif self.began is None:
            self.began = time
        self.seconds = self.before + time - self.began
        if match := SAVED.search(text):
            self.saved[int(match[1])] = self.seconds
        if logger in ("valid", "train") and (record := json_record(text)):
            self._take(logger, record)

    def _begin(self, time: float, updates: int) -> None:
        """Goes on from a checkpoint; what was done after it is done again."""
        self.before = self.saved.get(updates, self.recorded)
        self.began = time
        for records in (self.valid, self.train):
            for later in [n for n in records if n > updates]:
                del records[later]

    def _take(self, logger: str, record: dict) -> None:
        values = {key.removeprefix(f"{logger}_"): _number(value) for key, value in record.items()}
        updates = values.pop("num_updates", None)
        if updates is not None:
            point = {"updates": int(updates), "epoch": values.pop("epoch", None)}
            point |= {"seconds": self.seconds}
            point |= {key: value for key, value in values.items() if value is not None}
            (self.valid if logger == "valid" else self.train)[int(updates)] = point
            self.recorded = self.seconds

    def result(self) -> dict:
        return {
            "points": [self.valid[n] for n in sorted(self.valid)],
            "training": [self.train[n] for n in sorted(self.train)],
            "seconds": self.recorded,
            "restarts": self.restarts,
        }


def _number(value) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


ANALYSIS = Analysis(compute, lambda run, settings: [run.train_log])

if __name__ == "__main__":
    ANALYSIS.main()
