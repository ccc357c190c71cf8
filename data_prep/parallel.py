"""A map over chunks on all cores: results in order, never more than a few chunks in memory."""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

from sparse_fairseq.errors import UsageError

In = TypeVar("In")
Out = TypeVar("Out")


def chunks(items: Iterable[In], size: int) -> Iterator[list[In]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def ordered_map(function: Callable[[In], Out], items: Iterable[In], jobs: int) -> Iterator[Out]:
    """``map`` in ``jobs`` processes. Executor.map would take all items before it gives any."""
    others = multiprocessing.active_children()
    waiting: deque = deque()
    # Workers share what was made before them, and are our own children, by which they know that
    # we live; neither is so with the start method that Python has by default since 3.14.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, _worker, (os.getpid(),)) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UsageError("a worker was killed (out of memory?); try fewer --jobs") from error
        except BaseException:
            # Nobody wants what the workers still do, and learning BPE may take minutes.
            for worker in set(multiprocessing.active_children()) - set(others):
                worker.kill()
            raise


def _worker(parent: int) -> None:
    """Ctrl-C is the parent's affair; a worker whose parent was killed must not stay behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
