"""The clock of a source, as the definitions have it.

In: which partition has shown which time, or fell idle. Out: how far the source has come.
Rule: the lowest of the highest times of the live partitions; it never falls.
"""

from __future__ import annotations

from collections.abc import Iterable

FOREVER = 2**61  # the time of a source that has ended and lifts its clock
NEVER = float("-inf")  # the clock of a source that has shown nothing


class Clock:
    """The clock of a source: the minimum, over its live partitions, of the highest time each has shown.

    Without live partitions it is the highest time that any has shown. It never falls. It begins when `expected`
    partitions have shown something.
    """

    def __init__(self) -> None:
        self.now = NEVER
        self.expected = 0
        self.last = NEVER  # the highest time shown, ends aside
        self._first: dict[int, int] = {}
        self._idle: set[int] = set()
        self._shown: dict[int, int] = {}
        self._live: set[int] = set()

    def see(self, partitions: Iterable[int], time: int) -> None:
        for p in partitions:
            self._shown[p] = max(time, self._shown.get(p, time))
            self._live.add(p)
            self._first.setdefault(p, time)
            self._idle.discard(p)
        if time < FOREVER:
            self.last = max(self.last, time)
        self._settle()

    def idle(self, partitions: Iterable[int]) -> None:
        self._live -= set(partitions)
        self._idle |= set(partitions)
        self._settle()

    def is_live(self, partition: int) -> bool:
        return partition in self._live

    @property
    def first(self) -> float:
        """The lowest of the first times of the partitions."""
        return min(self._first.values(), default=NEVER)

    def is_late(self, partition: int, time: int) -> bool:
        """Below what the partition, or the whole source, has shown."""
        return time < self.limit(partition)

    def limit(self, partition: int) -> float:
        """What is below is late."""
        return max(self._shown.get(partition, NEVER), self.now)

    def _settle(self) -> None:
        if len(self._shown.keys() | self._idle) < self.expected:
            return
        if self._live:
            self.now = max(self.now, min(self._shown[p] for p in self._live))
        else:
            self.now = max(self.now, *self._shown.values(), NEVER)
