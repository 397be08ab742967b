"""Aggregates that keep values: lists, sets, the first and the last ones, the largest, counts of each; and the spread.

In: the groups of a batch, an argument in their order, what stood before. Out: accumulators after each row.
Rule: what stands after a row is a stretch of the group's values where it can be; else a Python fold over the rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from braid.expr.functions_arrays import same
from braid.expr.rows import lists
from braid.operators.accumulation import Accumulation, Groups, Merged, Running
from braid.operators.ranges import Ints, expand, values_at
from braid.plan.groups import PRESENT
from braid.types import Map, Scalar, Type, polars_type

MOST_GATHERED = 2**31
MOST_COUNTED = 1000  # different values that HISTOGRAM counts, and those of which one knows how often they are there


def _list_of(t: Type) -> tuple[pl.DataType, ...]:
    return (pl.List(polars_type(t)),)


def _as_it_is(held: Sequence[pl.Series], t: Type) -> pl.Series:
    return held[0].fill_null([])


def _first(held: Sequence[pl.Series], t: Type) -> pl.Series:
    return held[0].list.first()


# -------------------------------------------------------------------- stretches


class _Values:
    """The values of each group, those held first, then those of the batch that count: `known`, one after the other."""

    def __init__(self, groups: Groups, value: pl.Series, counts: pl.Series, held: pl.Series) -> None:
        """`counts`: whether a value of the batch does."""
        stood = held.list.len().fill_null(0).to_numpy().astype(np.int64)
        own = groups.group[groups.rest][counts.to_numpy()]
        everything = np.concatenate([np.repeat(np.arange(len(stood)), stood), own])
        order = np.argsort(everything, kind="stable")
        inside = held.filter(pl.Series(stood > 0)).explode().cast(value.dtype)
        self.known = values_at(inside.clone().append(value.filter(counts)), order)
        self.group = everything[order]
        self.is_held = order < int(stood.sum())
        sizes = np.bincount(everything, minlength=len(stood))
        self.first = (np.cumsum(sizes) - sizes)[groups.group]  # of the group of each place
        self.stood = stood[groups.group]

    def lists(self, start: Ints, size: Ints) -> pl.Series:
        """For each place so many values from there on."""
        _, at = expand(self.first + start, self.first + start + size)
        return lists(values_at(self.known, at), size)


def _so_far(groups: Groups, counts: pl.Series) -> Ints:
    """How many values of the batch count up to each place."""
    none = pl.zeros(len(groups.first), dtype=pl.Int64, eager=True)
    return groups.sums(groups.spread(none, counts.cast(pl.Int64)).to_numpy())


def _counted(value: pl.Series, nulls: bool) -> pl.Series:
    return pl.repeat(True, len(value), eager=True) if nulls else value.is_not_null()


def _earliest(n: int, nulls: bool) -> Running:
    def running(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
        counts = _counted(value, nulls)
        values = _Values(groups, value, counts, held[0])
        size = np.minimum(values.stood + _so_far(groups, counts), n)
        return [values.lists(np.zeros_like(size), size)]

    return running


def _latest(n: int, nulls: bool) -> Running:
    def running(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
        counts = _counted(value, nulls)
        values = _Values(groups, value, counts, held[0])
        size = values.stood + _so_far(groups, counts)
        return [values.lists(np.maximum(size - n, 0), np.minimum(size, n))]

    return running


def _new_ones(groups: Groups, value: pl.Series, nulls: bool, held: pl.Series) -> pl.Series:
    """Which values of the batch their group has not had."""
    counts = _counted(value, nulls)
    values = _Values(groups, value, counts, held)
    pairs = pl.DataFrame([pl.Series("g", values.group), values.known.alias("v")])
    new = pairs.select(pl.struct("g", "v").is_first_distinct())["g"].to_numpy() & ~values.is_held
    found = np.zeros(len(value), dtype=np.bool_)
    found[counts.to_numpy()] = new[~values.is_held]
    return pl.Series(found)


def _set(most: int) -> Running:
    def running(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
        counts = _new_ones(groups, value, True, held[0])
        values = _Values(groups, value, counts, held[0])
        size = np.minimum(values.stood + _so_far(groups, counts), most)
        return [values.lists(np.zeros_like(size), size)]

    return running


def _distinct(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
    """How many there are, and the last row of a group in the batch has them all."""
    new = _new_ones(groups, value, False, held[0])
    values = _Values(groups, value, new, held[0])
    size = values.stood + _so_far(groups, new)
    last = np.append(groups.start[1:], True) if len(size) else groups.start
    return [values.lists(np.zeros_like(size), np.where(last, size, 0)), pl.Series(size)]


# ------------------------------------------------------------------------ folds

# what stood, a value, how often it came (below 0: went): what stands; makes a new list
Step = Callable[[list[Any], Any, int], list[Any]]


def _folded(step: Step) -> Running:
    """Slow path (Python rows): what stands is no stretch of the values."""

    def running(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
        before, values = iter(held[0].to_list()), iter(value.to_list())
        state: list[Any] = []
        found: list[list[Any]] = []
        for leads, diff in zip(groups.start.tolist(), groups.diff.tolist(), strict=True):
            state = next(before) or [] if leads else step(state, next(values), diff)
            found.append(state)
        return [pl.Series(found, dtype=held[0].dtype)]

    return running


def _collected(most: int) -> Running:
    """A value that is taken back takes the last one like it along."""

    def step(state: list[Any], value: Any, diff: int) -> list[Any]:
        if diff > 0:
            return [*state, value] if len(state) < most else state
        at = next((i for i in reversed(range(len(state))) if same(state[i]) == same(value)), None)
        return state if at is None else [*state[:at], *state[at + 1 :]]

    def running(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
        whole = _earliest(most, True) if (groups.diff >= 0).all() else _folded(step)
        return whole(groups, value, held)

    return running


def _gathered(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
    """All values that stand, in any order, behind the last row of a group in an epoch; behind others, which nobody
    sees, none. Slow path (Python rows)."""
    assert groups.ends is not None
    before, values, ends = iter(held[0].to_list()), iter(value.to_list()), iter(groups.ends.tolist())
    state, gone, found = list[Any](), Counter[Hashable](), list[list[Any] | None]()
    for leads, diff in zip(groups.start.tolist(), groups.diff.tolist(), strict=True):
        found.append(None)
        if leads:
            state = list(next(before) or [])
            continue
        given, last = next(values), next(ends)
        if given is not None and given[PRESENT]:
            if diff > 0:
                state.append(given)
            else:
                gone[same(given)] += 1
        if last:
            state = _without(state, gone) if gone else state
            gone.clear()
            found[-1] = list(state)
    return [pl.Series(found, dtype=held[0].dtype)]


def _without(values: list[Any], gone: Counter[Hashable]) -> list[Any]:
    """Without so many of each value."""
    left = []
    for x in values:
        key = same(x)
        if gone[key]:
            gone[key] -= 1
        else:
            left.append(x)
    return left


def _size(value: Any) -> tuple[bool, Any]:
    sort = next(iter(value.values())) if isinstance(value, dict) else value
    return (True, 0) if sort != sort else (False, sort)  # noqa: PLR0124  # NaN is the largest


def _largest(k: int, *, once: bool) -> Step:
    """The largest first; of those that are equal the earlier. A structure is as large as its first field."""

    def step(state: list[Any], value: Any, diff: int) -> list[Any]:
        if value is None or (isinstance(value, dict) and next(iter(value.values())) is None):
            return state
        sizes = [_size(v) for v in reversed(state)]
        at = len(state) - bisect_left(sizes, _size(value))
        if at >= k or (once and at and sizes[len(state) - at] == _size(value)):
            return state
        return [*state[:at], value, *state[at:]][:k]

    return step


def _smallest(k: int, *, once: bool) -> Step:
    """The smallest first; of those that are equal the earlier."""

    def step(state: list[Any], value: Any, diff: int) -> list[Any]:
        if value is None:
            return state
        sizes = [_size(v) for v in state]
        at = bisect_right(sizes, _size(value))
        if at >= k or (once and at and sizes[at - 1] == _size(value)):
            return state
        return [*state[:at], value, *state[at:]][:k]

    return step


def _histogram(state: list[Any], value: Any, diff: int) -> list[Any]:
    at = next((i for i, e in enumerate(state) if e["key"] == value), None)
    if value is None or (at is None and (diff < 0 or len(state) >= MOST_COUNTED)):
        return state
    if at is None:
        return [*state, {"key": value, "value": diff}]
    count = state[at]["value"] + diff
    return [*state[:at], *([{"key": value, "value": count}] if count > 0 else []), *state[at + 1 :]]


def _attribute(state: list[Any], value: Any, diff: int) -> list[Any]:
    """Each different value, null too, and how often it stands."""
    like: Hashable = same(value)
    at = next((i for i, e in enumerate(state) if same(e["value"]) == like), None)
    if at is None:
        return [*state, {"value": value, "count": diff}] if diff > 0 else state
    count = state[at]["count"] + diff
    return [*state[:at], *([{"value": value, "count": count}] if count > 0 else []), *state[at + 1 :]]


def _often(state: list[Any], value: Any, diff: int) -> list[Any]:
    """The same without null, of so many different values at a time."""
    return state if value is None else _attribute(state, value, diff)[:MOST_COUNTED]


def _by_count(k: int, most: bool) -> Callable[[Sequence[pl.Series], Type], pl.Series]:
    """The values that are there most often, or least; of those that are there as often the earlier first."""

    def result(held: Sequence[pl.Series], t: Type) -> pl.Series:
        count = pl.element().struct.field("count")
        ranked = pl.element().sort_by(count, descending=most, maintain_order=True).struct.field("value")
        return held[0].fill_null([]).list.eval(ranked).list.head(k)

    return result


def _only(held: Sequence[pl.Series], t: Type) -> pl.Series:
    """The value where there is one."""
    one = (held[0].list.len() == 1).fill_null(False)
    return held[0].list.first().struct.field("value").set(~one, None)


# ----------------------------------------------------------------------- merged


def _joined(most: int | None = None, *, once: bool = False) -> Merged:
    """Values behind values."""

    def merged(first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
        both = first[0].fill_null([]).list.concat(second[0].fill_null([]))
        both = both.list.unique(maintain_order=True) if once else both
        return [both if most is None else both.list.head(most)]

    return merged


def _distinct_joined(first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
    (both,) = _joined(once=True)(first, second)
    return [both, both.list.len().cast(pl.Int64)]


def _by_number(n: int, earliest: bool) -> Merged:
    """Values that carry the numbers of their arrival."""

    def merged(first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
        (both,) = _joined()(first, second)
        both = both.list.eval(pl.element().sort_by(pl.element().struct.field("n")))
        return [both.list.head(n) if earliest else both.list.tail(n)]

    return merged


def _all_put(put: Callable[[list[Any], Any], list[Any]]) -> Merged:
    """Slow path (Python rows): what the second has is put into the first."""

    def merged(first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
        pairs = zip(first[0].to_list(), second[0].to_list(), strict=True)
        return [pl.Series([reduce(put, b or [], a or []) for a, b in pairs], dtype=first[0].dtype)]

    return merged


def _sums(first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
    return [a.fill_null(0) + b.fill_null(0) for a, b in zip(first, second, strict=True)]


def _spreads_joined(first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
    """Squares of the differences from the mean of both: theirs, and what their means differ by (Chan and others)."""
    (n, s, _), (m, t, _) = ([x.fill_null(0).cast(pl.Float64).to_numpy() for x in held] for held in (first, second))
    delta = s * m - t * n
    below = n * m * (n + m)
    between = np.divide(delta * delta, below, out=np.zeros(len(n)), where=below != 0)
    count, total, squares = _sums(first, second)
    return [count, total, squares + pl.Series(between)]


# ----------------------------------------------------------------------- spread


def _spread(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
    """Count, sum, and squares of the differences from the mean, each value's share in its turn (Youngs and Cramer)."""
    diff = groups.diffs * value.is_not_null().to_numpy()
    known = value.fill_null(0)
    count = groups.sums(groups.spread(held[0].fill_null(0), pl.Series(diff)).to_numpy())
    total = groups.over(pl.col("v").cum_sum(), groups.spread(held[1].fill_null(0), known * pl.Series(diff)))
    signs = groups.spread(pl.zeros(len(groups.first), dtype=pl.Int64, eager=True), pl.Series(diff)).to_numpy()
    own = groups.spread(pl.zeros(len(groups.first), dtype=known.dtype, eager=True), known)
    # of the larger one of the groups before and after
    n = np.where(signs < 0, count + 1, count)
    sum_ = total + own.zip_with(pl.Series(signs < 0), pl.zeros(len(own), dtype=own.dtype, eager=True))
    delta = (own * pl.Series(n) - sum_).cast(pl.Float64).to_numpy()
    share = np.divide(delta * delta, n * (n - 1.0), out=np.zeros(len(n)), where=(n > 1) & (signs != 0)) * signs
    squares = groups.over(pl.col("v").cum_sum(), _leading(groups, held[2].fill_null(0.0), pl.Series(share)))
    return [pl.Series(count), total, squares]


def _leading(groups: Groups, leading: pl.Series, values: pl.Series) -> pl.Series:
    """`values` of all places, but for the leading rows."""
    return groups.spread(leading, values.filter(pl.Series(~groups.start)))


def _variance(held: Sequence[pl.Series], t: Type) -> pl.Series:
    n = held[0].to_numpy()
    squares = np.maximum(held[2].to_numpy(), 0.0)
    return pl.Series(np.divide(squares, n - 1.0, out=np.zeros(len(n)), where=n > 1))


def _deviation(held: Sequence[pl.Series], t: Type) -> pl.Series:
    return _variance(held, t).sqrt()


def _pairs(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
    """Count and the sums of x, y, x², y², xy, each x and y less the first one; then these."""
    x, y = value.struct.field("X").cast(pl.Float64), value.struct.field("Y").cast(pl.Float64)
    both = x.is_not_null() & y.is_not_null()
    firsts = [_first_of(groups, v, both, h) for v, h in zip((x, y), held[6:], strict=True)]
    x, y = (v - f.filter(pl.Series(~groups.start)) for v, f in zip((x, y), firsts, strict=True))
    sign = pl.Series(groups.diffs).cast(pl.Float64) * both
    parts = (sign, x * sign, y * sign, x * x * sign, y * y * sign, x * y * sign)
    # where one is missing nothing is added, also to what is infinite
    none = pl.zeros(len(x), eager=True)
    added = (groups.spread(h.fill_null(0.0), p.zip_with(both, none)) for h, p in zip(held, parts, strict=False))
    return [*(groups.over(pl.col("v").cum_sum(), p) for p in added), *firsts]


def _first_of(groups: Groups, value: pl.Series, counts: pl.Series, held: pl.Series) -> pl.Series:
    """The first value of its group that counts, from that place on."""
    known = groups.spread(held.is_not_null(), counts).to_numpy()
    places = np.arange(len(known))
    first = np.minimum.reduceat(np.where(known, places, len(known)), groups.first)[groups.group]
    found = values_at(groups.spread(held, value), np.minimum(first, places))
    return found.set(pl.Series(first > places), None)


def _correlation(held: Sequence[pl.Series], t: Type) -> pl.Series:
    n, sx, sy, sxx, syy, sxy = (h.to_numpy() for h in held[:6])
    with np.errstate(all="ignore"):
        below = (n * sxx - sx * sx) * (n * syy - sy * sy)
        found = np.clip((n * sxy - sx * sy) / np.sqrt(np.where(below > 0, below, np.nan)), -1.0, 1.0)
        return pl.Series(np.where(n == 2, np.sign(found), found))


def _pairs_joined(first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
    """The sums of the second one as if its values were less the first one's first."""
    firsts = [a.fill_null(b) for a, b in zip(first[6:], second[6:], strict=True)]
    d, e = ((b - a).fill_null(0.0) for a, b in zip(firsts, second[6:], strict=True))
    n, sx, sy, sxx, syy, sxy = (h.fill_null(0.0) for h in second[:6])
    moved = (n, sx + n * d, sy + n * e, sxx + d * (2 * sx + n * d), syy + e * (2 * sy + n * e),
             sxy + d * sy + e * (sx + n * d))  # fmt: skip
    return [*(a.fill_null(0.0) + b for a, b in zip(first[:6], moved, strict=True)), *firsts]


def _counts_of(t: Type) -> tuple[pl.DataType, ...]:
    return (pl.List(pl.Struct({"value": polars_type(t), "count": pl.Int64})),)


def _of_spread(t: Type) -> tuple[pl.DataType, ...]:
    return (pl.Int64(), pl.Float64() if t is Scalar.DOUBLE else pl.Int64(), pl.Float64())


def _by_offset(earliest: bool) -> Callable[[int | None, bool], Accumulation]:
    running = _earliest if earliest else _latest

    def made(n: int | None, nulls: bool) -> Accumulation:
        most = 1 if n is None else n
        result = _first if n is None else _as_it_is
        return Accumulation(_list_of, running(most, nulls), result, _by_number(most, earliest))

    return made


def _top(of: Callable[..., Step], once: bool) -> Callable[[int], Accumulation]:
    def made(k: int) -> Accumulation:
        step = of(k, once=once)
        return Accumulation(_list_of, _folded(step), _as_it_is, _all_put(lambda held, value: step(held, value, 1)))

    return made


def _counted_values(most: bool) -> Callable[[int], Accumulation]:
    def made(k: int) -> Accumulation:
        merged = _all_put(lambda held, e: _often(held, e["value"], e["count"]))
        return Accumulation(_counts_of, _folded(_often), _by_count(k, most), merged)

    return made


COLLECTED: dict[str, Callable[..., Accumulation]] = {
    "EARLIEST_BY_OFFSET": _by_offset(True),
    "LATEST_BY_OFFSET": _by_offset(False),
    "COLLECT_LIST": lambda most: Accumulation(_list_of, _collected(most), _as_it_is, _joined(most)),
    "GATHER": lambda: Accumulation(_list_of, _gathered, _as_it_is, _joined(MOST_GATHERED)),
    "COLLECT_SET": lambda most: Accumulation(_list_of, _set(most), _as_it_is, _joined(most, once=True)),
    "COUNT_DISTINCT": lambda: Accumulation(
        lambda t: (*_list_of(t), pl.Int64()), _distinct, lambda held, t: held[1], _distinct_joined
    ),
    "TOPK": _top(_largest, once=False),
    "TOPKDISTINCT": _top(_largest, once=True),
    "LOWESTK": _top(_smallest, once=False),
    "LOWESTKDISTINCT": _top(_smallest, once=True),
    "MOST_OFTEN": _counted_values(most=True),
    "LEAST_OFTEN": _counted_values(most=False),
    "HISTOGRAM": lambda: Accumulation(
        lambda t: (polars_type(Map(t, Scalar.BIGINT)),),
        _folded(_histogram),
        _as_it_is,
        _all_put(lambda held, e: _histogram(held, e["key"], e["value"])),
    ),
    "ATTR": lambda: Accumulation(
        _counts_of,
        _folded(_attribute),
        _only,
        _all_put(lambda held, e: _attribute(held, e["value"], e["count"])),
    ),
    "STDDEV_SAMP": lambda: Accumulation(_of_spread, _spread, _variance, _spreads_joined),
    "STDDEV_SAMPLE": lambda: Accumulation(_of_spread, _spread, _deviation, _spreads_joined),
    "CORRELATION": lambda: Accumulation(lambda t: (pl.Float64(),) * 8, _pairs, _correlation, _pairs_joined),
}
