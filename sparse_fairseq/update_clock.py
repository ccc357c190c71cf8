"""CPU time of updates: words per second of the wall depend on what else the machine does."""

import time

import torch
from fairseq.logging import metrics


class UpdateClock:
    """Of all updates so far of this process, logged as `cpu_seconds` where there is no GPU."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began: float | None = None

    def begin(self) -> None:
        """Before each batch; an update may have several."""
        if self._began is None:
            self._began = time.process_time()

    def end(self) -> None:
        """After the update, where what is logged belongs to it; nothing after a validation."""
        if self._began is None:
            return
        self.seconds += time.process_time() - self._began
        self._began = None
        if not torch.cuda.is_available():
            # Without a weight there is no mean: the last value counts.
            metrics.log_scalar("cpu_seconds", self.seconds, 0, priority=900, round=3)
