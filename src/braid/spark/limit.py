"""Turns: how many batches of all queries of a process run at once.

In: the cores; batches that are planned. Out: a turn for each, while its tasks run.
Rule: so many have one at a time, and the others wait: what a hundred queries have in memory, in the driver and in
tasks, is what a few have. A query that is stopped does not wait for a turn.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator

AT_ONCE = 8  # batches, or one for each core if these are more
PAUSE = 0.5  # s


class Limit:
    """For `most` at once."""

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)

    @contextlib.contextmanager
    def taken(self, over: Callable[[], bool]) -> Iterator[None]:
        """A turn, or none where it is `over` before there is one."""
        while not (mine := self._free.acquire(timeout=PAUSE)) and not over():
            pass
        try:
            yield
        finally:
            if mine:
                self._free.release()


@functools.cache
def limit(cores: int) -> Limit:
    """Those of this process."""
    return Limit(max(AT_ONCE, cores))
