"""The rows of partitions in order: those of a partition that come first are read without the others.

In: entries with weights, each batch. Out: of some partitions the first rows that stand, or all of them.
Rule: runs are in order of the hash, the order columns and the key of the rows. Of each run some of a partition's first
entries are read; what lies before the last of them in every run is known, and more is read where that is too little.
So what is read follows what is asked for, whatever a partition holds.

`Ranked`: entries by (hash, order), `_diff` being how often a row came less how often it went. `top`: rows with a higher
rank are forgotten when runs merge, where none ever goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from braid.operators.arrangement import LEVEL_0, Arrangement, Run
from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, NEVER
from braid.operators.multiset import EPOCH, TICK, netted
from braid.operators.ranges import Flags, Ints, alike, begins, columns_of, expand, hashes_of, rows_at
from braid.plan.over import Ordered, Reach

GROUP = "_g"
FIRST, MORE = 8, 8  # so many entries of a partition are read at first, so many times more where they are too few
_EDGE = "_edge"


@dataclass(frozen=True, slots=True)
class Sorting:
    """The order of the rows of a partition. `columns`: those that decide, then `key`, which tells peers apart."""

    columns: tuple[Ordered, ...]
    key: tuple[str, ...]

    def sorted(self, rows: pl.DataFrame, *before: str) -> pl.DataFrame:
        """By the columns `before`, then in this order."""
        names = [o.value.name for o in self.columns]
        key = [k for k in self.key if k not in names]
        down = [False] * len(before) + [o.descending for o in self.columns] + [False] * len(key)
        last = [False] * len(before) + [not o.nulls_first for o in self.columns] + [True] * len(key)
        by = [*before, *names, *key]
        return rows.sort(by, descending=down, nulls_last=last, maintain_order=True) if by else rows

    def peers(self, rows: pl.DataFrame, group: Ints) -> Flags:
        """Where peers begin, of rows in this order within groups."""
        first = begins(group)
        if self.columns and rows.height:
            other = (pl.col(o.value.name).ne_missing(pl.col(o.value.name).shift()) for o in self.columns)
            first = first | rows.select(pl.any_horizontal(other).alias("n"))["n"].to_numpy()
        return first


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank of rows: ROW_NUMBER, RANK or DENSE_RANK."""

    function: str

    def of(self, group: Ints, peers: Flags) -> Ints:
        """Of rows in order, group by group."""
        at = np.arange(len(group))
        if not len(at):
            return at
        head = np.maximum.accumulate(np.where(begins(group), at, 0))
        match self.function:
            case "ROW_NUMBER":
                return at - head + 1
            case "RANK":
                return np.maximum.accumulate(np.where(peers, at, 0)) - head + 1
        number: Ints = np.cumsum(peers)
        found: Ints = number - number[head] + 1
        return found

    def known(self, group: Ints, peers: Flags, groups: int) -> Ints:
        """Of each group the highest rank for which all rows are known, where the next row to come may be a peer of the
        last one."""
        found = np.zeros(groups, dtype=np.int64)
        if len(group):
            ranks = self.of(group, peers)
            last = np.append(np.flatnonzero(begins(group))[1:], len(group)) - 1
            found[group[last]] = ranks[last] - (self.function != "ROW_NUMBER")
        return found


class Ranked(Arrangement):
    """`expires`: the number by which partitions are forgotten, made of their key."""

    __slots__ = ("_clean", "_expires", "_passed", "_sorting", "_top")

    def __init__(
        self,
        state: State,
        name: str,
        keys: Sequence[str],
        sorting: Sorting,
        top: tuple[Rank, int] | None = None,
        expires: pl.Expr | None = None,
    ) -> None:
        super().__init__(state, name, keys, time=TICK)
        kept = state.manifest.get(name, {})
        self._sorting, self._top, self._expires = sorting, top, expires
        self._passed: int = kept.get("passed", NEVER)
        self._clean: int = kept.get("clean", 0)  # rows after all of them became one run

    def close(self) -> None:
        super().close()
        if self._expires is not None:
            self.state.manifest[self.name] |= {"passed": self._passed, "clean": self._clean}

    def add(self, rows: pl.DataFrame) -> None:
        """Adds the entries of a batch."""
        entries = rows.drop(EPOCH)
        entries = netted(entries, [c for c in entries.columns if c != DIFF])
        self.append(self._sorting.sorted(entries, HASH), ordered=True)
        self.shrink(int((entries[DIFF] < 0).sum()))

    def pass_by(self, limit: int) -> None:
        """Partitions below `limit` are forgotten, once that frees half of what is held."""
        self._passed = max(self._passed, limit)
        if self.rows > 2 * self._clean + LEVEL_0:
            self.unite()
            self._clean = self.rows

    def all(self, groups: pl.DataFrame) -> pl.DataFrame:
        """All rows of partitions (hash, key), with their weights and the number of their partition."""
        rows, _ = self._seen(groups, np.arange(groups.height), None)
        return _net(rows)

    def best(self, groups: pl.DataFrame, rank: Rank, most: Ints) -> pl.DataFrame:
        """The same, of each partition at least the rows with a rank up to `most`."""
        todo, many, found = np.arange(groups.height), np.maximum(most, FIRST), list[pl.DataFrame]()
        while len(todo):
            rows, edges = self._seen(groups, todo, many)
            sure = self._before(_net(rows), edges)
            group = sure[GROUP].to_numpy()
            reached = rank.known(group, self._sorting.peers(sure, group), groups.height)
            cut = np.zeros(groups.height, dtype=np.bool_)
            cut[edges[GROUP].to_numpy()] = True
            open_ = cut & (reached < most)
            found.append(rows_at(sure, np.flatnonzero(~open_[group])))
            todo, many = np.flatnonzero(open_), many * MORE
        return pl.concat(found)

    def near(self, groups: pl.DataFrame, touched: pl.DataFrame, reach: Reach) -> pl.DataFrame:
        """The same, of each partition the rows that the first of some entries (with their partition's number) reaches,
        and all behind: read from the end, where most come."""
        todo, many, found = np.arange(groups.height), np.full(groups.height, reach.rows + FIRST), list[pl.DataFrame]()
        while len(todo):
            rows, edges = self._seen(groups, todo, many, from_end=True)
            sure = self._before(_net(rows), edges, from_end=True)
            enough = self._beyond(sure, touched, reach, groups.height)
            cut = np.zeros(groups.height, dtype=np.bool_)
            cut[edges[GROUP].to_numpy()] = True
            open_ = cut & ~enough
            found.append(rows_at(sure, np.flatnonzero(~open_[sure[GROUP].to_numpy()])))
            todo, many = np.flatnonzero(open_), many * MORE
        return pl.concat(found)

    def _beyond(self, rows: pl.DataFrame, touched: pl.DataFrame, reach: Reach, groups: int) -> Flags:
        """Of which partitions the rows go beyond what the first of the touched ones reaches."""
        enough = self._ahead(rows, touched, groups, ()) >= max(reach.rows, 1)
        marks = [touched.with_columns(pl.col(low.name).alias(o.value.name)) for low in reach.lows
                 for o in self._sorting.columns]  # fmt: skip
        for mark in [*marks, *([touched] if reach.peers else [])]:
            enough &= self._ahead(rows, mark, groups, self._sorting.key) > 0
        return enough

    def _ahead(self, rows: pl.DataFrame, marks: pl.DataFrame, groups: int, without: Sequence[str]) -> Ints:
        """How many rows of each partition stand before all of its marks; before their peers, too, if their key does not
        count (`without`)."""
        marked = marks.with_columns(pl.lit(0).alias(_EDGE), *(pl.lit(None).alias(k) for k in without))
        order = replace(self._sorting, key=(_EDGE,)) if without else self._sorting
        both = pl.concat([rows.with_columns(pl.lit(1).alias(_EDGE)), marked], how="diagonal_relaxed")
        both = order.sorted(both.sort(_EDGE, maintain_order=True), GROUP)
        before = both.filter((pl.col(_EDGE) == 0).cum_sum().over(GROUP) == 0)
        return np.bincount(before[GROUP].to_numpy(), minlength=groups)

    def _before(self, rows: pl.DataFrame, edges: pl.DataFrame, *, from_end: bool = False) -> pl.DataFrame:
        """In order, the rows before the first edge of their partition, a row for each unit of weight; or those behind
        the last one."""
        both = pl.concat([rows.with_columns(pl.lit(1).alias(_EDGE)), edges.with_columns(pl.lit(0).alias(_EDGE))],
                         how="diagonal")  # fmt: skip
        both = self._sorting.sorted(both.sort(_EDGE, descending=from_end, maintain_order=True), GROUP)
        made = both.filter((pl.col(_EDGE) == 0).cum_sum(reverse=from_end).over(GROUP) == 0).select(rows.columns)
        return rows_at(made, np.repeat(np.arange(made.height), made[DIFF].to_numpy())).with_columns(
            pl.lit(1, pl.Int64).alias(DIFF)
        )

    def _seen(
        self, groups: pl.DataFrame, todo: Ints, many: Ints | None, *, from_end: bool = False
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Of each partition in each run its first (last) entries, and the outermost of those where there are more."""
        wanted = rows_at(groups, todo)
        h, seen, edges = hashes_of(wanted), list[pl.DataFrame](), list[pl.DataFrame]()
        for stored in map(self._read, self.runs):
            held = hashes_of(stored)
            start, stop = np.searchsorted(held, h, side="left"), np.searchsorted(held, h, side="right")
            if many is not None:
                cut = np.flatnonzero(stop - start > many[todo])
                if from_end:
                    start = np.maximum(start, stop - many[todo])
                else:
                    stop = np.minimum(stop, start + many[todo])
                edge = start[cut] if from_end else stop[cut] - 1
                edges.append(rows_at(stored, edge).with_columns(pl.Series(GROUP, todo[cut])))
            which, place = expand(start, stop)
            entries = rows_at(stored, place)
            same = alike(rows_at(columns_of(wanted, self.keys), which), columns_of(entries, self.keys))
            seen.append(entries.with_columns(pl.Series(GROUP, todo[which])).filter(pl.Series(same)))
        return pl.concat(seen), pl.concat(edges) if edges else seen[0].clear()

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        rows = pl.concat([self._read(r) for r in runs])
        before = rows.height
        if self._expires is not None:
            rows = rows.filter(self._expires >= self._passed)
        rows = self._sorting.sorted(netted(rows, [c for c in rows.columns if c != DIFF]), HASH)
        if self._top is not None and rows.height:
            rows = self._cut(rows, *self._top)
        self.expired += before - rows.height
        return self._run(rows) if rows.height else None

    def _cut(self, rows: pl.DataFrame, rank: Rank, most: int) -> pl.DataFrame:
        """Without the rows that have so many before them. An entry of several equal rows counts as one."""
        group = rows.select(pl.struct(HASH, *self.keys).rle_id().alias("g"))["g"].to_numpy().astype(np.int64)
        return rows.filter(pl.Series(rank.of(group, self._sorting.peers(rows, group)) <= most))


def _net(rows: pl.DataFrame) -> pl.DataFrame:
    return netted(rows, [c for c in rows.columns if c != DIFF]).filter(pl.col(DIFF) > 0)
