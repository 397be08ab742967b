"""Rows alive together: pairs of rows of two sides with one key whose lives overlap.

In: two frames with lives, and the columns of their keys. Out: numbers of the rows of each pair.
Rule: of two rows that meet one enters while the other is alive, so each pair is found from the one that was there
first, in a range of the other side's rows by (key, enter). What does not overlap is never looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.changes import NEVER
from braid.operators.frames import ENTER, LEAVE
from braid.operators.ranges import Crowded, Ints, expand, narrow


@dataclass(frozen=True, slots=True)
class _Side:
    """Rows that live and have a key, by (key, enter); `row`: their numbers, `first`: where each key begins."""

    row: Ints
    key: Ints
    enter: Ints
    leave: Ints
    first: Ints


class Together:
    """Two sides: all rows of each, and their key columns (none: all rows have one key). A NULL equals nothing."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: pl.DataFrame, right: pl.DataFrame, keys: tuple[pl.DataFrame, pl.DataFrame] | None) -> None:
        if keys is None:
            groups, count = [np.zeros(x.height, dtype=np.int64) for x in (left, right)], 1
        else:
            groups, count = _numbered(*keys)
        self._left, self._right = (_side(x, g, count) for x, g in zip((left, right), groups, strict=True))

    def pairs(self, since: int = NEVER, crowd: tuple[int, int] | None = None) -> tuple[Ints, Ints]:
        """The pairs that are together for the first time at `since` or later. `crowd`: (time, most): `Crowded` where
        more than so many are for the first time at that time or later."""
        if crowd is not None:
            count = sum(int((stop - start).sum()) for _, start, stop in self._ranges(crowd[0]))
            if count > crowd[1]:
                raise Crowded(count)
        (l, *from_left), (r, *from_right) = self._ranges(since)
        left, theirs = expand(*from_left)
        right, ours = expand(*from_right)
        lefts = np.concatenate([self._left.row[l[left]], self._left.row[ours]])
        rights = np.concatenate([self._right.row[theirs], self._right.row[r[right]]])
        return lefts, rights

    def _ranges(self, since: int) -> Sequence[tuple[Ints, Ints, Ints]]:
        """For rows of the left, then of the right side: their numbers by (key, enter), and the range of the others
        that enter while they are alive. Of two that enter at once the left one was there first."""
        return [_entering(self._left, self._right, since, 0), _entering(self._right, self._left, since, 1)]


def _side(rows: pl.DataFrame, group: Ints, count: int) -> _Side:
    enter, leave = rows[ENTER].to_numpy(), rows[LEAVE].to_numpy()
    at = np.flatnonzero((enter <= leave) & (group >= 0))
    at = at[np.lexsort((enter[at], group[at]))]
    key = group[at]
    return _Side(at, key, enter[at], leave[at], np.searchsorted(key, np.arange(count + 1)))


def _entering(there: _Side, others: _Side, since: int, later: int) -> tuple[Ints, Ints, Ints]:
    first, end = others.first[there.key], others.first[there.key + 1]
    at = np.flatnonzero((end > first) & (there.leave >= since))
    first, end = first[at], end[at]
    start = narrow(others.enter, first, end, np.maximum(there.enter[at] + later, since), right=False)
    return at, start, narrow(others.enter, start, end, there.leave[at], right=True)


def _numbered(left: pl.DataFrame, right: pl.DataFrame) -> tuple[list[Ints], int]:
    """A number for each key of both sides; -1 for rows that have a NULL in theirs."""
    both = pl.concat([left, right]).with_row_index("_i")
    first = both.select(pl.col("_i").min().over(left.columns))["_i"].to_numpy()
    distinct, number = np.unique(first, return_inverse=True)
    null = both.select(pl.any_horizontal(pl.col(c).is_null() for c in left.columns).alias("n"))["n"].to_numpy()
    number = np.where(null, -1, number.astype(np.int64))
    return [number[: left.height], number[left.height :]], len(distinct)
