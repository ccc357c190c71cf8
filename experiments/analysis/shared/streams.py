"""Distributions of numbers that come in batches: exact counts and histograms, no stored values."""

import math

import numpy as np
from numpy.typing import ArrayLike


class Counts:
    """How often each non-negative integer came."""

    def __init__(self) -> None:
        self.counts = np.zeros(1, dtype=np.int64)

    def add(self, values: ArrayLike) -> None:
        self._add(np.bincount(np.asarray(values, dtype=np.int64).ravel()))

    def merge(self, other: "Counts") -> None:
        self._add(other.counts)

    def _add(self, counts: np.ndarray) -> None:
        total = np.zeros(max(len(counts), len(self.counts)), dtype=np.int64)
        total[: len(counts)] += counts
        total[: len(self.counts)] += self.counts
        self.counts = total

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        return float(self.counts @ np.arange(len(self.counts))) / self.total

    def quantile(self, share: float) -> int:
        """The smallest number that at least this share of all numbers do not exceed."""
        return int(np.searchsorted(self.counts.cumsum(), share * self.total))

    def summary(self) -> dict:
        """``counts`` holds [number, how often] for every number that came."""
        if not self.total:
            return {"positions": 0}
        present = self.counts.nonzero()[0]
        deviations = (present - self.mean) ** 2
        return {
            "positions": self.total,
            "mean": self.mean,
            "std": math.sqrt(float(self.counts[present] @ deviations) / self.total),
            "min": int(present[0]),
            "median": self.quantile(0.5),
            "quantiles": {f"{q:g}": self.quantile(q) for q in (0.05, 0.25, 0.75, 0.95, 0.99)},
            "max": int(present[-1]),
            "counts": [[int(n), int(self.counts[n])] for n in present],
        }


class Histogram:
    """Mean, spread and bins of equal width of non-negative real numbers."""

    def __init__(self, width: float = 0.01, highest: float = 10.0):
        self.width = width
        self.bins = np.zeros(round(highest / width) + 1, dtype=np.int64)  # the last one is open
        self.n, self.mean, self.squares = 0, 0.0, 0.0
        self.min, self.max = math.inf, -math.inf

    def add(self, values: ArrayLike) -> None:
        new = np.asarray(values, dtype=np.float64).ravel()
        if not len(new):
            return
        index = np.minimum((new / self.width).astype(np.int64), len(self.bins) - 1)
        self.bins += np.bincount(index, minlength=len(self.bins))
        # Chan's update: sums of squares of numbers close to 1 would cancel.
        n, mean, squares = len(new), float(new.mean()), float(((new - new.mean()) ** 2).sum())
        step, total = mean - self.mean, self.n + n
        self.squares += squares + step**2 * self.n * n / total
        self.mean += step * n / total
        self.n = total
        self.min, self.max = min(self.min, float(new.min())), max(self.max, float(new.max()))

    def summary(self) -> dict:
        """Bin i of ``histogram`` holds the numbers from start + i·width on; the very last bin of
        all, [10, ∞), is in ``above``."""
        if not self.n:
            return {"positions": 0}
        filled = self.bins[:-1].nonzero()[0]
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, -1)
        return {
            "positions": self.n,
            "mean": self.mean,
            "std": math.sqrt(self.squares / self.n),
            "min": self.min,
            "max": self.max,
            "histogram": {
                "start": round(first * self.width, 10),
                "width": self.width,
                "counts": self.bins[first : last + 1].tolist(),
                "above": int(self.bins[-1]),
            },
        }
