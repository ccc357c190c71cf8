"""How far all runs of one call are, from what their commands print."""

import threading

from data_prep.progress import Progress

from .commands import COMMON
from .config import Config
from .fairseq_output import log_line

# Decoding both splits takes about as long as this share of a training epoch; only the estimate
# of the time left depends on it.
GENERATION_EPOCHS = 0.5


class RunsProgress:
    """Counts epochs (or updates) of all runs together; several threads report to it."""

    def __init__(self, config: Config, runs: int, stages: tuple[str, ...], sentences: int):
        train, self.by_update = config.train, not config.train.get("max-epoch")
        self.length = float(train["max-update" if self.by_update else "max-epoch"])
        share = self.length / 20 if self.by_update else GENERATION_EPOCHS
        self.weights = {"train": self.length, "generate": share}
        self.sentences = max(1, sentences)
        total = runs * sum(self.weights.get(stage, 0.0) for stage in stages)
        unit, digits = ("updates", 0) if self.by_update else ("epochs", 1)
        label = f"{config.dataset}, {runs} run{'s' if runs > 1 else ''}"
        self.progress = Progress(label, total, unit, digits=digits)
        self.positions: dict[tuple[str, str], float] = {}
        self.mutex = threading.Lock()

    def __enter__(self) -> "RunsProgress":
        return self

    def __exit__(self, *error) -> None:
        self.progress.__exit__(*error)

    def line(self, run: str, stage: str, text: str) -> None:
        """Takes one line that a command of ``run`` printed."""
        if stage == "generate":
            if text.startswith("H-"):
                done = self.positions.get((run, stage), 0.0)
                self._move(run, stage, done + self.weights[stage] / self.sentences)
        elif (line := log_line(text)) and line.logger == "train_inner":
            position = line.numbers.get("num_updates" if self.by_update else "update")
            if position is not None:
                self._move(run, stage, position)
        elif line and line.logger == "valid" and line.numbers:
            self._note(run, line.numbers)

    def finish(self, run: str, stage: str) -> None:
        """The stage is over, however much of it was seen."""
        if stage not in self.weights:
            return
        with self.mutex:
            started = (run, stage) in self.positions
            left = self.weights[stage] - self.positions.pop((run, stage), 0.0)
            if started:
                self.progress.advance(max(0.0, left))
            else:
                self.progress.skip(left)

    def _move(self, run: str, stage: str, position: float) -> None:
        with self.mutex:
            before = self.positions.get((run, stage))
            if before is None:  # a run that goes on from a checkpoint begins late
                interval = COMMON["log-interval"] if self.by_update else 1.0
                before = interval * ((position - 1e-9) // interval) if stage == "train" else 0.0
                self.progress.skip(before)
            self.progress.advance(max(0.0, position - before))
            self.positions[run, stage] = position

    def _note(self, run: str, numbers: dict[str, float]) -> None:
        shown = [
            f"{key} {numbers[key]:g}" for key in ("loss", "accuracy", "bleu") if key in numbers
        ]
        with self.mutex:
            epoch = numbers.get("epoch", 0)
            self.progress.note(f"{run}: epoch {epoch:g}, valid {', '.join(shown)}")
