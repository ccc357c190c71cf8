"""One number for all workers of a distributed training, or one error."""

import math
from collections.abc import Callable

import torch
from torch import distributed

from .errors import UsageError


def agreed(what: str, compute: Callable[[], float]) -> float:
    """What worker 0 computes. Every worker computes it, because a model whose weights are spread
    over the workers runs on all of them or hangs; and if one fails, none waits for it."""
    if not distributed.is_initialized():
        return compute()
    value, failure = math.nan, None
    try:
        value = compute()
    except (Exception, UsageError) as error:  # a UsageError is no Exception
        failure = error
    every = _gathered([value, float(failure is not None)])
    if failure is not None:
        raise failure
    failed = [str(rank) for rank, (_, fails) in enumerate(every) if fails]
    if failed:
        raise UsageError(f"{what} failed on worker {', '.join(failed)}: see its error")
    return every[0][0]


def _gathered(numbers: list[float]) -> list[list[float]]:
    """The numbers of each worker. They travel where the backend can take them."""
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    own = torch.tensor(numbers, dtype=torch.float64, device=device)
    every = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(every, own)
    return [numbers.tolist() for numbers in every]
