"""Sorted rows and ranges in them: how rows of equal keys find each other without making all pairs of a key.

In: hashes and times of rows. Out: rows sorted by (hash, time, arrival) and, for each row that looks, what it meets.
Rule: no Python loop over rows; hashes only find candidates, equal typed key columns decide (NaN equals NaN, a null
inside a key equals a null); an array that is mapped from a file is touched only where a search leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.operators.changes import HASH

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Number = TypeVar("Number", bound=np.integer[Any])

SMALL = 64  # below this many rows one lexsort is the cheapest sort
ALIKE = 3  # rows to different ones, on average, that are worth being found
MANY = 1000  # numbers: from so many on Polars sorts them in less time, whatever it costs to call it


def rising(values: npt.NDArray[Any]) -> bool:
    """Never falling from one to the next."""
    return bool((values[1:] >= values[:-1]).all())


def packed_order(values: Hashes) -> Ints:
    """Stable order of unsigned numbers by their high bits: the low ones are replaced by the place and sorted along.

    One sort of plain numbers is several times faster than an argsort, and Polars's than NumPy's where they are many.
    """
    mask = np.uint64((1 << len(values).bit_length()) - 1)
    packed = (values & ~mask) | np.arange(len(values), dtype=np.uint64)
    if len(packed) < MANY:
        packed.sort()
    else:
        packed = pl.Series(packed).sort().to_numpy()
    return (packed & mask).astype(np.int64)


def order_of(numbers: Ints) -> Ints:
    """Stable order of integers."""
    if len(numbers) <= SMALL or rising(numbers):
        return np.argsort(numbers, kind="stable")
    low = numbers.min()
    bits = len(numbers).bit_length()
    if (int(numbers.max()) - int(low)).bit_length() + bits > 64:
        return np.argsort(numbers, kind="stable")
    return packed_order((numbers - low).astype(np.uint64) << np.uint64(bits))


def key_order(h: Hashes, times: Ints | None = None) -> Ints:
    """Order by (hash, time, place)."""
    if len(h) <= SMALL:
        return np.argsort(h, kind="stable") if times is None else np.lexsort((times, h))
    if times is None or rising(times):
        order = packed_order(h)
    else:
        by_time = order_of(times)
        order = by_time[packed_order(h[by_time])]
    if rising(h[order]):
        return order
    return np.argsort(h, kind="stable") if times is None else np.lexsort((times, h))  # two hashes share all high bits


def hashes_of(frame: pl.DataFrame) -> Hashes:
    h = frame.get_column(HASH)
    return (h.fill_null(0) if h.null_count() else h).to_numpy()


def rows_at(frame: pl.DataFrame, at: Ints) -> pl.DataFrame:
    """The rows with these numbers; none of a frame without columns. (The cheapest way there is for few of them.)"""
    return frame[pl.Series("", at.astype(np.uint32))] if frame.width else frame


def values_at(column: pl.Series, at: Ints) -> pl.Series:
    return column[pl.Series("", at.astype(np.uint32))]


def columns_of(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """A select without an optimiser, which is most of its cost in small batches."""
    if len(names) == len(frame.columns) and list(names) == frame.columns:
        return frame
    return pl.DataFrame([frame.get_column(name) for name in names])


def repeated(name: str, value: object, dtype: type[pl.DataType], count: int) -> pl.Series:
    """A column of one value. (As cheap as there is: no expression.)"""
    return pl.Series(name, [value], dtype=dtype).new_from_index(0, count)


def same_keys(a: pl.DataFrame, ai: Ints, b: pl.DataFrame, bi: Ints, keys: Sequence[str]) -> Flags:
    """Whether row `ai[i]` of `a` and row `bi[i]` of `b` have equal key columns."""
    same = np.ones(len(ai), dtype=np.bool_)
    for key in keys:
        left, right = values_at(a.get_column(key), ai), values_at(b.get_column(key), bi)
        plain = not left.null_count() and not right.null_count()
        same &= (left == right if plain else left.eq_missing(right)).to_numpy()
    return same


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows in the order (hash, time, arrival): `hashes` are the distinct ones, the i-th stands at
    `starts[i]:starts[i + 1]`. `plain`: no two different keys share a hash here (so one row speaks for its hash).
    `keys` are the key columns of these rows."""

    keys: pl.DataFrame
    h: Hashes
    hashes: Hashes
    starts: Ints
    plain: bool

    @property
    def counts(self) -> Ints:
        return np.diff(self.starts)


def keyed(h: Hashes, keys: pl.DataFrame) -> Keyed:
    """Of rows sorted by hash."""
    n = len(h)
    if not n:
        return Keyed(keys, h, h, np.zeros(1, dtype=np.int64), True)
    first = begins(h)
    at = np.flatnonzero(first)
    starts = np.append(at, n)
    return Keyed(keys, h, h[at], starts, len(at) == n or not _shared(keys, first))


def _shared(keys: pl.DataFrame, first: Flags) -> bool:
    """Whether some hash stands for two keys. `first`: where a hash begins."""
    n = keys.height
    for column in keys.get_columns():
        here, before = column.slice(1), column.slice(0, n - 1)
        changed = here.ne_missing(before) if column.null_count() else here != before
        if (changed.to_numpy() & ~first[1:]).any():
            return True
    return False


def grouped(frame: pl.DataFrame, keys: Sequence[str]) -> tuple[Ints, Ints]:
    """(order that brings the rows of each key together, in their own order; a number for each key, in that order)."""
    h = hashes_of(frame)
    order = key_order(h)
    rows = rows_at(columns_of(frame, [HASH, *keys]), order)
    k = keyed(h[order], columns_of(rows, keys))
    if k.plain:
        return order, np.repeat(np.arange(len(k.hashes), dtype=np.int64), k.counts)
    first = rows.with_row_index("_i").select(pl.col("_i").min().over(HASH, *keys))["_i"].to_numpy()
    apart = np.argsort(first, kind="stable")
    return order[apart], np.cumsum(begins(first[apart])) - 1


def alike_rows(columns: pl.DataFrame) -> tuple[Ints, Ints] | None:
    """One of the rows that are equal, for all such, and of each row the number of that one among these; None where
    these are not few, or hold what is not compared by its bytes."""
    if columns.height < MANY or any(t.is_nested() or t.is_float() for t in columns.dtypes):
        return None
    h = columns.hash_rows(seed=0).alias("h")
    if h.to_frame().select(pl.col("h").approx_n_unique()).item() * ALIKE > len(h):
        return None
    order = packed_order(h.to_numpy())
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = np.logical_or.reduce([~as_before(c) for c in rows_at(columns, order).get_columns()])
    which = np.empty(len(order), dtype=np.int64)
    which[order] = np.cumsum(new) - 1
    return order[new], which


def as_before(values: pl.Series) -> Flags:
    """Whether each value but the first is equal to the one before it."""
    return values.slice(1).eq_missing(values.slice(0, len(values) - 1)).to_numpy()


def begins(ids: npt.NDArray[Any]) -> Flags:
    """Where a run of equal numbers begins."""
    first = np.ones(len(ids), dtype=np.bool_)
    np.not_equal(ids[1:], ids[:-1], out=first[1:])
    return first


def distinct(numbers: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Each number once, in order. (NumPy's `unique` hashes: of many different numbers it takes ten times as long.)"""
    found = np.sort(numbers) if len(numbers) < MANY else pl.Series(numbers).sort().to_numpy()
    return found[begins(found)]


def numbered(numbers: Ints) -> tuple[Ints, Ints]:
    """Each number once, in order; and where among these each of the numbers is."""
    which = pl.Series(numbers).rank("dense").to_numpy().astype(np.int64) - 1
    known = np.empty(int(which.max(initial=-1)) + 1, dtype=np.int64)
    known[which] = numbers
    return known, which


@dataclass(frozen=True, slots=True)
class Window:
    """The times that each looking row asks for, both ends included. `times`: of the stored rows."""

    times: Ints
    lo: Ints
    hi: Ints


def narrow(values: npt.NDArray[Any], start: Ints, stop: Ints, bound: Ints, *, right: bool) -> Ints:
    """For each range the first place whose value is >= bound (`right`: > bound); all ranges searched at once."""
    lo, hi = start.copy(), stop.copy()
    at = np.flatnonzero(lo < hi)
    while len(at):
        mid = (lo[at] + hi[at]) >> 1
        below = values[mid] <= bound[at] if right else values[mid] < bound[at]
        lo[at] = np.where(below, mid + 1, lo[at])
        hi[at] = np.where(below, hi[at], mid)
        at = at[lo[at] < hi[at]]
    return lo


def expand(start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Every place of every range: (number of the range, place)."""
    size = stop - start
    total = int(size.sum())
    which = np.repeat(np.arange(len(size), dtype=np.int64), size)
    before = np.cumsum(size) - size
    return which, np.arange(total, dtype=np.int64) + np.repeat(start - before, size)


class Crowded(Exception):
    """More pairs than are to be made at once: `pairs` of them."""

    def __init__(self, pairs: int) -> None:
        super().__init__(f"{pairs} pairs")
        self.pairs = pairs


def meetings(
    looking: Keyed, left: Ints, right: Ints, window: Window | None, most: int | None = None
) -> tuple[Ints, Ints]:
    """Pairs (looking row, stored row). `left:right` is where each distinct looking hash stands among the stored rows;
    no window: all of them. `Crowded` where they are more than `most`."""
    found = right > left
    if not found.any():
        none = np.empty(0, dtype=np.int64)
        return none, none
    counts = looking.counts
    if found.all():
        rows, start, stop = np.arange(len(looking.h), dtype=np.int64), np.repeat(left, counts), np.repeat(right, counts)
    else:
        rows = np.flatnonzero(np.repeat(found, counts))
        start, stop = np.repeat(left[found], counts[found]), np.repeat(right[found], counts[found])
    if window is None:
        _refuse_crowds(start, stop, most)
        which, stored = expand(start, stop)
        return rows[which], stored
    times, low, high = window.times, window.lo[rows], window.hi[rows]
    if int((stop - start).sum()) > 4 * len(rows) + SMALL:  # large groups are searched, small ones tried row by row
        start = narrow(times, start, stop, low, right=False)
        stop = narrow(times, start, stop, high, right=True)
        _refuse_crowds(start, stop, most)
        which, stored = expand(start, stop)
        return rows[which], stored
    which, stored = expand(start, stop)
    t = times[stored]
    ok = (t >= low[which]) & (t <= high[which])
    return rows[which[ok]], stored[ok]


def _refuse_crowds(start: Ints, stop: Ints, most: int | None) -> None:
    if most is not None and (count := int((stop - start).sum())) > most:
        raise Crowded(count)


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows sorted by hash that others look at."""

    rows: pl.DataFrame
    plain: bool
    keys: Sequence[str]


def verified(
    looking: Keyed, stored: Stored, left: Ints, right: Ints, window: Window | None, most: int | None
) -> tuple[Ints, Ints]:
    """`meetings` without those whose hashes agree and whose keys do not."""
    if stored.plain and looking.plain:  # one row of each side speaks for its hash
        at = np.flatnonzero(right > left)
        ok = same_keys(looking.keys, looking.starts[at], stored.rows, left[at], stored.keys)
        if not ok.all():
            right = right.copy()
            right[at[~ok]] = left[at[~ok]]
        return meetings(looking, left, right, window, most)
    q, s = meetings(looking, left, right, window, most)
    ok = same_keys(looking.keys, q, stored.rows, s, stored.keys)
    return q[ok], s[ok]


def meet(
    looking: Keyed, stored: Keyed, keys: Sequence[str], window: Window | None, most: int | None = None
) -> tuple[Ints, Ints]:
    """Pairs of rows of two sorted frames with equal keys and a stored time in the window. `Crowded` where those with
    equal hashes are more than `most`."""
    if not len(stored.hashes) or not len(looking.hashes):
        none = np.empty(0, dtype=np.int64)
        return none, none
    at = np.minimum(np.searchsorted(stored.hashes, looking.hashes), len(stored.hashes) - 1)
    left = stored.starts[at]
    right = np.where(stored.hashes[at] == looking.hashes, stored.starts[at + 1], left)
    return verified(looking, Stored(stored.keys, stored.plain, keys), left, right, window, most)


def probe(looking: Keyed, stored: Stored, window: Window | None, most: int | None = None) -> tuple[Ints, Ints]:
    """The same for rows of which only the hash column is at hand, such as a run mapped from a file."""
    left, right = spans(hashes_of(stored.rows), looking.hashes)
    return verified(looking, stored, left, right, window, most)


def spans(held: Hashes, h: Hashes) -> tuple[Ints, Ints]:
    """Where each hash begins and ends among sorted ones: few stand there more than once, so one search finds both."""
    left = np.searchsorted(held, h)
    right = left.copy()
    if len(held):
        last = len(held) - 1
        at = np.flatnonzero((held[np.minimum(left, last)] == h) & (left <= last))
        right[at] += 1
        more = at[(held[np.minimum(right[at], last)] == h[at]) & (right[at] <= last)]
        right[more] = np.searchsorted(held, h[more], side="right")
    return left, right


def alike(some: pl.DataFrame, others: pl.DataFrame) -> Flags:
    """Which rows of two frames of the same columns are the same to the last bit; of nested columns none is known to
    be."""
    same = np.ones(some.height, dtype=np.bool_)
    for a, b in zip(some.get_columns(), others.get_columns(), strict=True):
        if a.dtype.is_nested():
            return np.zeros(some.height, dtype=np.bool_)
        same &= a.eq_missing(b).to_numpy()
        if a.dtype.is_float():  # 0.0 and -0.0
            same &= np.signbit(a.fill_null(0).to_numpy()) == np.signbit(b.fill_null(0).to_numpy())
    return same
