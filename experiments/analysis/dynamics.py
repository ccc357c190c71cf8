"""Validation scores against updates and against wall time (SE Fig. 2 and 3, S2S Fig. 6), from the
log of fairseq-train. Work that was lost because a run was interrupted counts neither way.

``result``:

    points      one per validation: updates, epoch, seconds (of training and validation since the
                start) and every score that fairseq logged: loss, accuracy, bleu, support, …
    training    one per epoch: updates, epoch, seconds, and what was logged: loss, wps, …
    seconds     of the whole training
    words_per_cpu_second    of training; null where the log has no CPU time
    restarts    how often training went on from a checkpoint
"""

from ..fairseq_output import FRESH, LOADED, SAVED, LogLine, read_log, words_per_cpu_second
from ..run_folder import Run
from .shared.analysis import Analysis, NotMeasured, need


def compute(run: Run, settings: dict) -> dict:
    need(run.train_log)
    timeline, lines = Timeline(), list(read_log(run.train_log))
    for line in lines:
        timeline.add(line)
    if not timeline.valid:
        raise NotMeasured("not run yet: train.log has no validation")
    return {**timeline.result(), "words_per_cpu_second": words_per_cpu_second(lines)}


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

    def add(self, line: LogLine) -> None:
        if match := LOADED.search(line.text):
            self.restarts += 1
            self._begin(line.time, int(match[1]))
        elif FRESH in line.text:
            self._begin(line.time, 0)
        elif self.began is None:
            self.began = line.time
        self.seconds = self.before + line.time - self.began
        if match := SAVED.search(line.text):
            self.saved[int(match[1])] = self.seconds
        if line.logger in ("valid", "train"):
            self._take(line.logger, dict(line.numbers))

    def _begin(self, time: float, updates: int) -> None:
        """Goes on from a checkpoint; what was done after it is done again."""
        self.before = self.saved.get(updates, self.recorded)
        self.began = time
        for records in (self.valid, self.train):
            for later in [n for n in records if n > updates]:
                del records[later]

    def _take(self, logger: str, values: dict[str, float]) -> None:
        updates = values.pop("num_updates", None)
        if updates is not None:
            point = {"updates": int(updates), "epoch": values.pop("epoch", None)}
            point |= {"seconds": self.seconds, **values}
            (self.valid if logger == "valid" else self.train)[int(updates)] = point
            self.recorded = self.seconds

    def result(self) -> dict:
        return {
            "points": [self.valid[n] for n in sorted(self.valid)],
            "training": [self.train[n] for n in sorted(self.train)],
            "seconds": self.recorded,
            "restarts": self.restarts,
        }


ANALYSIS = Analysis(compute, lambda run, settings: [run.train_log])

if __name__ == "__main__":
    ANALYSIS.main()
