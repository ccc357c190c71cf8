"""Mean and deviation of a few numbers: the one place where they are computed."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    mean: float
    std: float | None  # with n − 1; None for one number
    n: int


def spread(values: Sequence[float]) -> Spread | None:
    """None where there is nothing.

    >>> spread([1.0, 3.0]), spread([2.0]), spread([])
    (Spread(mean=2.0, std=1.4142135623730951, n=2), Spread(mean=2.0, std=None, n=1), None)
    """
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), deviation, len(values))
