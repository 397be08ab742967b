"""What calls over rows give, of partitions in order.

In: rows partition by partition, in the order of each; the calls with their frames. Out: a column a call.
Rule: a rank is a number of rows before a row. LAG and LEAD are values of other rows. All else is of the rows of a
frame, from one place to another: numbers and exact sums are differences of what is added up, the least and the largest
are found among stretches of a power of two, floating-point numbers are added one after the other, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context
from decimal import Decimal as PyDecimal

import numpy as np
import polars as pl

from braid.operators import totals
from braid.operators.ranges import Flags, Ints, begins, narrow, values_at
from braid.operators.ranked import Rank, Sorting
from braid.plan.groups import Aggregation
from braid.plan.over import RANKS, ROWS, Frame, Windowed
from braid.types import polars_type

_UNITS = pl.Int128()
_WIDE = Context(prec=100)


@dataclass(frozen=True, slots=True)
class Partitions:
    """Rows in order. `group`: rises from partition to partition; `start`, `stop`: of each row its partition; `first`,
    `behind`: its peers."""

    rows: pl.DataFrame
    group: Ints
    peers: Flags
    start: Ints
    stop: Ints
    first: Ints
    behind: Ints
    sorting: Sorting

    @staticmethod
    def of(rows: pl.DataFrame, group: Ints, sorting: Sorting) -> Partitions:
        peers = sorting.peers(rows, group)
        return Partitions(rows, group, peers, *_stretches(begins(group)), *_stretches(peers), sorting)

    def frame(self, frame: Frame) -> tuple[Ints, Ints]:
        """The rows of each row's frame: from, and up to without it."""
        at = np.arange(len(self.group))
        if frame.unit == ROWS:
            low = self.start if frame.start is None else at + _rows(frame.start)
            high = self.stop if frame.end is None else at + _rows(frame.end) + 1
        else:
            low = self._bound(frame.start, self.start, self.first, right=False)
            high = self._bound(frame.end, self.stop, self.behind, right=True)
        low = np.clip(low, self.start, self.stop)
        return low, np.clip(high, low, self.stop)

    def _bound(self, bound: object, outermost: Ints, own: Ints, *, right: bool) -> Ints:
        if bound is None:
            return outermost
        if isinstance(bound, int):
            return own
        (by,) = self.sorting.columns
        values = self.rows[by.value.name]
        wanted = self.rows[bound.name].cast(values.dtype)  # type: ignore[attr-defined]
        codes = pl.concat([values, wanted]).rank("dense").cast(pl.Int64).to_numpy(writable=True)
        codes = -codes if by.descending else codes
        there, looking = codes[: len(values)], codes[len(values) :]
        found = narrow(there, *self._not_null(values, by.nulls_first), looking, right=right)
        null = wanted.is_null().to_numpy()
        return np.where(null, own, found)

    def _not_null(self, values: pl.Series, first: bool) -> tuple[Ints, Ints]:
        """Where the values of a partition begin and end that are not NULL."""
        before = np.concatenate([[0], np.cumsum(values.is_null().to_numpy())])
        nulls = before[self.stop] - before[self.start]
        return (self.start + nulls, self.stop) if first else (self.start, self.stop - nulls)


def _rows(bound: object) -> int:
    assert isinstance(bound, int)
    return bound


def _stretches(first: Flags) -> tuple[Ints, Ints]:
    """Of each row where its stretch begins and ends."""
    heads = np.flatnonzero(first)
    size = np.diff(np.append(heads, len(first)))
    return np.repeat(heads, size), np.repeat(heads + size, size)


def answer(calls: Sequence[Windowed], of: Partitions) -> list[pl.Series]:
    frames: dict[Frame, tuple[Ints, Ints]] = {}
    found = []
    for call in calls:
        made = _ranked(call, of) if call.function in RANKS else None
        if made is None and call.function in ("LAG", "LEAD"):
            made = _moved(call, of)
        if made is None:
            if call.frame not in frames:
                frames[call.frame] = of.frame(call.frame)
            made = of_frame(call.aggregation, of.rows, *frames[call.frame])
        output = call.aggregation.output
        found.append(made.cast(polars_type(output.type)).alias(output.name))
    return found


def _ranked(call: Windowed, of: Partitions) -> pl.Series:
    return pl.Series(Rank(call.function).of(of.group, of.peers))


def _moved(call: Windowed, of: Partitions) -> pl.Series:
    (by,) = call.aggregation.options
    assert by is not None
    at = np.arange(len(of.group)) + (-by if call.function == "LAG" else by)
    return picked(argument(call.aggregation, of.rows), at, (at >= of.start) & (at < of.stop))


def argument(a: Aggregation, rows: pl.DataFrame) -> pl.Series:
    assert a.arg is not None
    return rows[a.arg.name]  # type: ignore[union-attr]


def picked(values: pl.Series, at: Ints, there: Flags) -> pl.Series:
    """The values at some places; NULL where there is none."""
    if not len(values):
        return values
    found = values_at(values, np.where(there, at, 0))
    return found if there.all() else found.set(pl.Series(~there), None)


def nth(values: pl.Series, low: Ints, high: Ints, number: int, *, from_last: bool, ignores_nulls: bool) -> pl.Series:
    """The value with that number, from 1, among those from one place up to another."""
    if not ignores_nulls:
        return picked(values, high - number if from_last else low + number - 1, number <= high - low)
    places, before = _not_null(values)
    at = before[high] - number if from_last else before[low] + number - 1
    there = number <= before[high] - before[low]
    return picked(values, places[np.where(there, at, 0)] if len(places) else at, there)


def lagged(
    values: pl.Series, low: Ints, high: Ints, mine: Ints, by: int, *, ignores_nulls: bool
) -> tuple[pl.Series, Flags]:
    """The value so many rows before each of some, and where there is such a row among those from one place up to
    another."""
    at = mine - by
    if ignores_nulls and by:
        places, before = _not_null(values)
        at = before[mine] - by
        at = np.where(at >= 0, places[np.maximum(at, 0)], -1) if len(places) else np.full(len(mine), -1)
    there = (at >= low) & (at < high)
    return picked(values, at, there), there


def _not_null(values: pl.Series) -> tuple[Ints, Ints]:
    """Where values are that are not NULL; and how many stand before each place."""
    there = values.is_not_null().to_numpy()
    return np.flatnonzero(there), np.concatenate([[0], np.cumsum(there)])


def of_frame(a: Aggregation, rows: pl.DataFrame, low: Ints, high: Ints) -> pl.Series:
    """What an aggregate gives of the rows from one place up to another."""
    if a.arg is None:
        return pl.Series(high - low)
    values = argument(a, rows)
    match a.function:
        case "FIRST_VALUE" | "LAST_VALUE":
            last, ignores_nulls = a.function == "LAST_VALUE", bool(a.options)
            return nth(values, low, high, 1, from_last=last, ignores_nulls=ignores_nulls)
        case "MIN" | "MAX":
            return _extreme(values, low, high, largest=a.function == "MAX")
        case "STDDEV_SAMP":
            return _variance(values, low, high)
    count = _counted(values, low, high)
    if a.function == "COUNT":
        return pl.Series(count)
    if values.dtype.is_float() and a.function == "SUM":
        made = _added(values.fill_null(0.0), low, high)
    elif values.dtype.is_float():
        made = _added(values.fill_null(0.0).cast(pl.Float64), low, high) / pl.Series(np.maximum(count, 1))
    else:
        made = _exact(a, values, low, high, count)
    return made.set(pl.Series(count == 0), None)


def _counted(values: pl.Series, low: Ints, high: Ints) -> Ints:
    _, before = _not_null(values)
    found: Ints = before[high] - before[low]
    return found


def _exact(a: Aggregation, values: pl.Series, low: Ints, high: Ints, count: Ints) -> pl.Series:
    """A sum or a mean of whole numbers or NUMERIC, by differences of what is added up."""
    whole = values.fill_null(0)
    scale = whole.dtype.scale if isinstance(whole.dtype, pl.Decimal) else 0
    units = (whole.to_physical() if isinstance(whole.dtype, pl.Decimal) else whole).cast(_UNITS)
    if (units.cast(pl.Float64).abs().sum() or 0) < totals.SAFE:
        before = pl.concat([pl.Series([0], dtype=_UNITS), units.cum_sum()])
        sums = values_at(before, high) - values_at(before, low)
        held = [totals.decimal_of(sums, scale), pl.zeros(len(sums), dtype=pl.Int64, eager=True)]
    else:
        held = _far(units.to_list(), low, high, scale)
    if a.function == "AVG":
        return totals.mean([*held, pl.Series(count, dtype=pl.Int64)], a.output.type)
    return totals.total(held, a.output.type)


def _far(units: list[int], low: Ints, high: Ints, scale: int) -> list[pl.Series]:
    """The same of sums that may have more than 38 digits: slow path (Python integers)."""
    before = [0]
    for n in units:
        before.append(before[-1] + n)
    sums = [before[j] - before[i] for i, j in zip(low.tolist(), high.tolist(), strict=True)]
    signs = [-1 if n < 0 else 1 for n in sums]
    digits = [PyDecimal(s * (abs(n) % totals.TOP)).scaleb(-scale, _WIDE) for n, s in zip(sums, signs, strict=True)]
    times = [s * (abs(n) // totals.TOP) for n, s in zip(sums, signs, strict=True)]
    return [pl.Series(digits, dtype=pl.Decimal(totals.DIGITS, scale)), pl.Series(times, dtype=pl.Int64)]


def _added(values: pl.Series, low: Ints, high: Ints) -> pl.Series:
    """Floating-point numbers, one after the other: of frames that grow from one row to the next what was added goes
    on."""
    v, total = values.to_numpy(), np.zeros(len(low), dtype=values.to_numpy().dtype)
    for start, stop in zip(*(x.tolist() for x in _same_begins(low)), strict=True):
        first = int(low[start])
        sums = np.add.accumulate(v[first : int(high[start:stop].max(initial=first))], dtype=v.dtype)
        some = np.flatnonzero(high[start:stop] > first)
        total[start + some] = sums[high[start:stop][some] - first - 1]
    return pl.Series(total) + 0.0  # -0.0 is 0.0 then


def _variance(values: pl.Series, low: Ints, high: Ints) -> pl.Series:
    """That of a sample, added up one value after the other, of all frames at once."""
    v, there = values.fill_null(0.0).to_numpy(), values.is_not_null().to_numpy()
    count, total, squares = (np.zeros(len(low)) for _ in range(3))
    for step in range(int((high - low).max(initial=0))):
        some = np.flatnonzero(low + step < high)
        some = some[there[low[some] + step]]
        x = v[low[some] + step]
        n, sums = count[some] + 1, total[some] + x
        delta = x * n - sums
        squares[some] += np.where(n > 1, delta * delta / np.maximum(n * (n - 1), 1), 0.0)
        count[some], total[some] = n, sums
    return pl.Series(np.where(count > 1, np.maximum(squares, 0.0) / np.maximum(count - 1, 1), 0.0))


def _same_begins(low: Ints) -> tuple[Ints, Ints]:
    """Rows one after the other whose frames begin at one place."""
    heads = np.flatnonzero(begins(low))
    return heads, np.append(heads[1:], len(low))


def _extreme(values: pl.Series, low: Ints, high: Ints, *, largest: bool) -> pl.Series:
    codes = values.rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
    top = int(codes.max(initial=0))
    codes = codes if largest else np.where(codes > 0, top + 1 - codes, 0)
    best = _highest(codes, low, high)
    place = np.zeros(top + 1, dtype=np.int64)
    place[codes] = np.arange(len(codes))
    return picked(values, place[best], best > 0)


def _highest(codes: Ints, low: Ints, high: Ints) -> Ints:
    """The highest number from one place up to another, 0 where there is none: each stretch is two of a power of two."""
    found = np.zeros(len(low), dtype=np.int64)
    size = high - low
    level, reach = codes, 1
    while reach <= int(size.max(initial=0)):
        mine = np.flatnonzero((size >= reach) & (size < 2 * reach))
        found[mine] = np.maximum(level[low[mine]], level[high[mine] - reach])
        level = np.maximum(level[:-reach], level[reach:]) if len(level) > reach else level[:0]
        reach *= 2
    return found
