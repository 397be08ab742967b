"""Times ahead: where in a partition the first record later than some time stands.

In: blocks of records with their highest times, and a way to read one block's times. Out: offsets and maxima.
Rule: block maxima are asked for only as far as needed, times only of the block in which an answer lies. A record
without a readable time has `NEVER`: it never cuts and never raises a maximum.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.operators.changes import NEVER, TIME

Times = npt.NDArray[np.int64]
Block = tuple[int, int, int]  # first offset, end, highest time


class Ahead:
    """The running maximum of the times from `first` to `end`, block by block.

    `blocks` covers [first, end) without gaps; `load(start, stop)` gives the times of one of its blocks.
    """

    def __init__(self, first: int, end: int, blocks: Iterator[Block], load: Callable[[int, int], Times]) -> None:
        self.first, self.end = first, end
        self._blocks, self._load = blocks, load
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._maxima: list[int] = []

    def cut(self, time: int) -> int:
        """The offset of the first record later than `time`, else the end."""
        at = bisect_right(self._maxima, time)
        while at == len(self._maxima):
            if not self._more():
                return self.end
            if self._maxima[at] <= time:
                at += 1
        start, stop = self._starts[at], self._stops[at]
        return start + int(np.argmax(self._load(start, stop) > time))

    def highest(self, count: int) -> int | None:
        """The highest of the first `count` times; None where fewer records are there."""
        last = self.first + count
        if last > self.end or count < 1:
            return None
        while not self._stops or self._stops[-1] < last:
            if not self._more():
                return None
        at = bisect_left(self._stops, last)
        start, stop = self._starts[at], self._stops[at]
        if stop == last:
            return self._maxima[at]
        within = int(self._load(start, stop)[: last - start].max())
        return max(within, self._maxima[at - 1]) if at else within

    def _more(self) -> bool:
        block = next(self._blocks, None)
        if block is None:
            return False
        start, stop, top = block
        self._starts.append(start)
        self._stops.append(stop)
        self._maxima.append(max(top, self._maxima[-1]) if self._maxima else top)
        return True


def filled(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with every `_t` that is null replaced by the highest before it, `NEVER` where there is none.

    Within the range that is read, as `m` is: a record without a time stands right behind the one before it, and where
    it comes first, before all others, in every cut.
    """
    if not rows[TIME].null_count():
        return rows
    so_far = pl.col(TIME).cum_max().forward_fill()
    return rows.with_columns(pl.coalesce(TIME, so_far, pl.lit(NEVER, pl.Int64)).alias(TIME))
