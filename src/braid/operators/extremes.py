"""MIN and MAX of rows that come and go: the values of each group in order, each with how often it stands.

In: the rows of a batch group by group, their values, what is kept. Out: the least or the largest value after each row.
Rule: of what is kept only the values that the batch touches are looked up, and so many of the best ones that one is
among them which it does not touch; that one stands throughout. So a batch costs as much as its rows, whatever a group
holds. (docs/decisions/0067-extremes-keep-their-values-in-order.md)

`Values`: entries by (hash, tick, value), `_diff` being how often the value came less how often it went. A tick rises
with the value: of texts it is their first eight bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.accumulation import Groups
from braid.operators.changes import DIFF, HASH
from braid.operators.in_order import GROUP, InOrder
from braid.operators.multiset import TICK
from braid.operators.ranges import (
    Ints,
    begins,
    columns_of,
    expand,
    hashes_of,
    narrow,
    rows_at,
    same_keys,
    spans,
    values_at,
)

VALUE, CODE, PLACE = "_v", "_code", "_place"
FIRST, MORE = 4, 8  # so many of the best values of a group are read at first; so many times more where none is left
_SIGN = np.uint64(1 << 63)


def ticks(values: pl.Series) -> Ints:
    """A number for each value that rises with it."""
    t = values.dtype
    if t in (pl.String(), pl.Binary()):
        heads = values.cast(pl.Binary()).bin.slice(0, 8)
        raw = np.array(heads.to_list(), dtype="S8").view(">u8").astype(np.uint64)
    elif t.is_float() or t.is_decimal():
        raw = values.cast(pl.Float64()).to_numpy().copy()
        raw[raw == 0] = 0.0  # of both signs
        raw[np.isnan(raw)] = np.nan
        bits = raw.view(np.uint64)
        raw = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    else:
        return values.to_physical().cast(pl.Int64()).to_numpy()
    return (raw ^ _SIGN).view(np.int64)


class Values(InOrder):
    """The values of groups."""

    __slots__ = ()

    def add(self, rows: pl.DataFrame) -> None:
        """Adds entries: hash, key, value, and how often it came or went."""
        rows = self._arranged(rows.hstack([pl.Series(TICK, ticks(rows[VALUE]))]))
        self.append(columns_of(rows, [HASH, *self.keys, TICK, VALUE, DIFF]), ordered=True)
        self.shrink(int((rows[DIFF] < 0).sum()))

    def counts(self, looking: pl.DataFrame) -> Ints:
        """How often each value stands (columns: hash, key, tick, value)."""
        found = np.zeros(looking.height, dtype=np.int64)
        h, at = hashes_of(looking), looking[TICK].to_numpy()
        names = [*self.keys, VALUE]
        for stored in map(self._read, self.runs):
            start, stop = spans(hashes_of(stored), h)
            held = stored[TICK].to_numpy()
            start, stop = narrow(held, start, stop, at, right=False), narrow(held, start, stop, at, right=True)
            which, place = expand(start, stop)
            same = same_keys(looking, which, stored, place, names)
            np.add.at(found, which[same], stored[DIFF].to_numpy()[place[same]].astype(np.int64))
        return found

    def best(self, groups: pl.DataFrame, touched: pl.DataFrame, largest: bool) -> pl.DataFrame:
        """Of each group (hash, key) the best value that stands and is not touched (columns: group, value): its number
        and that value; nothing of a group that has none."""
        todo, made, many = np.arange(groups.height), [_NONE.with_columns(touched[VALUE].clear())], FIRST
        while len(todo) and self.runs:
            seen, bounds = self._seen(groups, todo, np.full(groups.height, many), largest)
            rank = pl.concat([seen[VALUE], bounds[VALUE]]).rank("dense").cast(pl.Int64())
            rank = rank if largest else -rank
            seen = seen.hstack([rank.head(seen.height).alias(CODE)])
            # beyond the last value that was read of a run there may be more of it
            known = bounds.hstack([rank.tail(bounds.height).alias("_edge")])
            edges = known.group_by(GROUP).agg(pl.col("_edge").max())
            stands = seen.group_by(GROUP, VALUE, maintain_order=True).agg(pl.col(DIFF).sum(), pl.col(CODE).first())
            stands = stands.filter(pl.col(DIFF) > 0).join(touched, on=[GROUP, VALUE], how="anti")
            stands = stands.join(edges, on=GROUP, how="left")
            sure = stands.filter(pl.col("_edge").is_null() | (pl.col(CODE) > pl.col("_edge")))
            top = sure.filter(pl.col(CODE) == pl.col(CODE).max().over(GROUP)).unique(GROUP, keep="first")
            made.append(top.select(GROUP, VALUE))
            open_ = np.setdiff1d(edges[GROUP].to_numpy(), top[GROUP].to_numpy())
            todo, many = open_, many * MORE
        return pl.concat(made)

    def _arranged(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.sort(HASH, TICK, VALUE)


_NONE = pl.DataFrame(schema={GROUP: pl.Int64()})


@dataclass(frozen=True, slots=True)
class Extreme:
    """The values of a batch, of one argument. `keys`: hash and key of each group; `rows`: those that have a value."""

    groups: Groups
    keys: pl.DataFrame
    rows: pl.DataFrame
    held: Values

    @staticmethod
    def of(groups: Groups, rows: pl.DataFrame, value: pl.Series, held: Values) -> Extreme:
        """`rows`: hash and key of the rows, group by group; `value`: theirs."""
        at = groups.rest
        there = np.flatnonzero(value.is_not_null().to_numpy())
        frame = rows_at(rows, there).with_columns(
            values_at(value, there).alias(VALUE),
            pl.Series(GROUP, groups.group[at][there].astype(np.int64)),
            pl.Series(PLACE, at[there].astype(np.int64)),
            pl.Series(DIFF, groups.diff[at][there].astype(np.int64)),
        )
        heads = groups.first - np.arange(len(groups.first))
        return Extreme(groups, rows_at(rows, heads), frame, held)

    def after(self, largest: Sequence[bool]) -> Iterator[pl.Series]:
        """The least or the largest value after each place; then what came and went is kept."""
        keys = [HASH, *self.held.keys]
        touched = self.rows.unique([GROUP, VALUE], keep="first", maintain_order=True)
        touched = columns_of(touched, [*keys, GROUP, VALUE]).hstack([pl.Series(TICK, ticks(touched[VALUE]))])
        before = self.held.counts(touched)
        for up in largest:
            best = self.held.best(self.keys, columns_of(touched, [GROUP, VALUE]), up)
            yield self._painted(touched, before, best, up)
        sums = self.rows.group_by(*keys, VALUE, maintain_order=True).agg(pl.col(DIFF).sum())
        self.held.add(sums.filter(pl.col(DIFF) != 0))

    def _painted(self, touched: pl.DataFrame, before: Ints, best: pl.DataFrame, largest: bool) -> pl.Series:
        """The best of the values that stand at each place: each is painted from where it stands to where it no longer
        does, and the best paint is seen."""
        values = pl.concat([touched[VALUE], best[VALUE]])
        code = values.rank("dense").cast(pl.Int64()).to_numpy()
        code = code if largest else code.max(initial=0) + 1 - code
        first, ends = self.groups.first, np.append(self.groups.first[1:], len(self.groups.group))
        known = touched.select(GROUP, VALUE, pl.Series(CODE, code[: touched.height]), pl.Series("_n", before))
        rows = self.rows.join(known, on=[GROUP, VALUE], how="left", maintain_order="left")
        rows = rows.sort(GROUP, CODE, PLACE)
        group, place, mine = (rows[c].to_numpy() for c in (GROUP, PLACE, CODE))
        head = np.flatnonzero(begins(group) | begins(mine))
        size = np.diff(np.append(head, len(group)))
        total = np.cumsum(rows[DIFF].to_numpy())
        stands = rows["_n"].to_numpy() + total - np.repeat(total[head] - rows[DIFF].to_numpy()[head], size)
        until = np.append(place[1:], 0)
        until[head + size - 1] = ends[group[head]]
        alive, had = np.flatnonzero(stands > 0), head[rows["_n"].to_numpy()[head] > 0]
        untouched = best[GROUP].to_numpy()
        start = np.concatenate([place[alive], first[group[had]], first[untouched]])
        stop = np.concatenate([until[alive], place[had], ends[untouched]])
        paint = np.concatenate([mine[alive], mine[had], code[touched.height :]])
        seen = _best_paint(len(self.groups.group), start, stop, paint)
        example = np.zeros(code.max(initial=0) + 1, dtype=np.int64)
        example[code] = np.arange(len(code))
        if not len(code):
            return pl.Series(VALUE, [None] * len(seen), dtype=values.dtype)
        found = values_at(values, example[seen])
        return found.set(pl.Series(seen == 0), None) if (seen == 0).any() else found


def _best_paint(count: int, start: Ints, stop: Ints, paint: Ints) -> Ints:
    """At each of so many places the highest paint of the stretches [start, stop) that hold it; 0 where none does. A
    stretch is two of a length that is a power of two; from the longest on each length hands its paint to the halves."""
    some = np.flatnonzero(stop > start)
    start, stop, paint = start[some], stop[some], paint[some]
    power = np.frexp((stop - start).astype(np.float64))[1] - 1
    seen = np.zeros(count, dtype=np.int64)
    for level in range(int(power.max(initial=0)), -1, -1):
        mine = np.flatnonzero(power == level)
        np.maximum.at(seen, start[mine], paint[mine])
        np.maximum.at(seen, stop[mine] - (1 << level), paint[mine])
        if level:
            half, above = 1 << (level - 1), seen.copy()
            np.maximum(seen[half:], above[: count - half], out=seen[half:])
    return seen
