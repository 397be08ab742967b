"""Inputs: what a query reads, partition by partition, in ranges of offsets.

In: a source's declaration and where its records lie. Out: decoded records of a range, end offsets, and the running
maximum of times that batches are cut by.
Rule: the same range gives the same records for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from braid.plan.logical import Source
from braid.stage.decode import Decoded


class Input(Protocol):
    """One source's records. Offsets of a partition count from 0; `first` is included, `last` is not.

    A record without a readable time never cuts: it counts as later than nothing. In `read` its time is the highest
    before it in the range, so that no time is null.
    """

    @property
    def source(self) -> Source: ...

    @property
    def partitions(self) -> int: ...

    def ends(self) -> list[int]:
        """The present end offset of each partition."""
        ...

    def cut(self, partition: int, first: int, time: int) -> int:
        """The offset up to which a batch that ends at `time` reads: that of the first record from `first` on whose time
        is later, else the present end."""
        ...

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        """The highest time among the `count` records from `first` on; None where fewer are there."""
        ...

    def read(self, partition: int, first: int, last: int) -> Decoded: ...


@dataclass(frozen=True, slots=True)
class Until:
    """An input that ends where it ended at a certain moment."""

    input: Input
    limits: list[int]

    @property
    def source(self) -> Source:
        return self.input.source

    @property
    def partitions(self) -> int:
        return self.input.partitions

    def ends(self) -> list[int]:
        return list(self.limits)

    def cut(self, partition: int, first: int, time: int) -> int:
        return min(self.input.cut(partition, first, time), max(first, self.limits[partition]))

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        if first + count > self.limits[partition]:
            return None
        return self.input.time_after(partition, first, count)

    def read(self, partition: int, first: int, last: int) -> Decoded:
        return self.input.read(partition, first, last)
