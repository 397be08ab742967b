"""The rows of partitions in order: those of a partition that come first are read without the others.

In: entries with weights, each batch. Out: of some partitions the first rows that stand, or all of them.
Rule: runs are in order of the hash, the order columns and the key of the rows (`in_order`). A row that came may have
gone again, so more entries are read where too few of them stand.

`Ranked`: entries by (hash, order), `_diff` being how often a row came less how often it went. `top`: rows with a higher
rank are forgotten when runs merge, where none ever goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, NEVER
from braid.operators.in_order import GROUP, InOrder
from braid.operators.multiset import EPOCH, netted
from braid.operators.ranges import Flags, Ints, begins, numbered, rows_at
from braid.plan.over import Ordered, Reach

FIRST, MORE = 8, 8  # so many entries of a partition are read at first, so many times more where they are too few
FOREVER = np.iinfo(np.int64).max  # the epoch in which what stays leaves
_PLACE = "_place"


@dataclass(frozen=True, slots=True)
class Sorting:
    """The order of the rows of a partition. `columns`: those that decide, then `key`, which tells peers apart."""

    columns: tuple[Ordered, ...]
    key: tuple[str, ...]

    def sorted(self, rows: pl.DataFrame, *before: str, behind: Sequence[str] = ()) -> pl.DataFrame:
        """By the columns `before`, then in this order, then by those `behind`."""
        names = [o.value.name for o in self.columns]
        rest = [*(k for k in self.key if k not in names), *behind]
        down = [False] * len(before) + [o.descending for o in self.columns] + [False] * len(rest)
        last = [False] * len(before) + [not o.nulls_first for o in self.columns] + [True] * len(rest)
        by = [*before, *names, *rest]
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

    def leaves(self, group: Ints, peers: Flags, epochs: Ints, most: int) -> Ints:
        """Of rows that come, in order, and never go: the epoch from which on so many others are before a row that its
        rank is above `most`. It is the `most`-th one of those in which rows come that are before it. Those of earlier
        batches are counted; of the new ones the n-th smallest epoch among those before a row is found in n passes, each
        of which hands on what it holds no more."""
        found = np.full(len(group), FOREVER)
        if not len(group):
            return found
        counted = peers if self.function == "DENSE_RANK" else np.ones(len(group), dtype=np.bool_)
        if self.function == "DENSE_RANK":
            epochs = np.repeat(*_lowest(epochs, peers))  # peers count from the first one that comes on
        heads = begins(group)
        head = np.flatnonzero(heads)
        own = np.cumsum(heads) - 1  # the number of each row's group, from 0
        stood = np.cumsum(counted & (epochs == NEVER))
        before = stood - (counted & (epochs == NEVER)) - np.append(0, stood)[head][own]
        rank_of = most - before  # which of the new rows before it pushes it out
        new = counted & (epochs != NEVER)
        known, code = numbered(epochs)
        base = (own[-1] - own) * (len(known) + 1)
        none = base + len(known)
        values = np.where(new, base + code, none)
        seen = np.append(known, FOREVER)
        found[rank_of <= 0] = NEVER
        for n in range(1, min(most, int(np.add.reduceat(new, head, dtype=np.int64).max())) + 1):
            lowest = np.minimum.accumulate(values)
            held = np.append(none[:1], lowest[:-1])
            held[head] = none[head]
            mine = rank_of == n
            found[mine] = seen[(held - base)[mine]]
            values = np.maximum(held, values)
        if self.function != "ROW_NUMBER":
            first = np.maximum.accumulate(np.where(peers, np.arange(len(group)), 0))
            found = found[first]
        return found


def _lowest(values: Ints, first: Flags) -> tuple[Ints, Ints]:
    """The lowest value of each stretch, and how long it is."""
    heads = np.flatnonzero(first)
    return np.minimum.reduceat(values, heads), np.diff(np.append(heads, len(values)))


class Ranked(InOrder):
    """The rows of partitions."""

    __slots__ = ("_sorting", "_top")

    def __init__(
        self,
        state: State,
        name: str,
        keys: Sequence[str],
        sorting: Sorting,
        top: tuple[Rank, int] | None = None,
        expires: pl.Expr | None = None,
    ) -> None:
        super().__init__(state, name, keys, expires)
        self._sorting, self._top = sorting, top

    def add(self, rows: pl.DataFrame) -> None:
        """Adds the entries of a batch."""
        entries = rows.drop(EPOCH)
        entries = netted(entries, [c for c in entries.columns if c != DIFF])
        self.append(self._sorting.sorted(entries, HASH), ordered=True)
        self.shrink(int((entries[DIFF] < 0).sum()))

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
            rows, edges = self._seen(groups, todo, many, last=True)
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
        enough = self._ahead(rows, touched, groups) >= max(reach.rows, 1)
        marks = [touched.with_columns(pl.col(low.name).alias(o.value.name)) for low in reach.lows
                 for o in self._sorting.columns]  # fmt: skip
        for mark in [*marks, *([touched] if reach.peers else [])]:
            enough &= self._ahead(rows, mark, groups, peers=True) > 0
        return enough

    def _ahead(self, rows: pl.DataFrame, marks: pl.DataFrame, groups: int, *, peers: bool = False) -> Ints:
        """How many rows of each partition stand before all of its marks; before their `peers`, too, if asked for."""
        order = replace(self._sorting, key=()) if peers else self._sorting
        both = pl.concat([_placed(rows, 1), _placed(marks, 0)], how="diagonal_relaxed")
        both = order.sorted(both, GROUP, behind=(_PLACE,))
        before = both.filter((pl.col(_PLACE) == 0).cum_sum().over(GROUP) == 0)
        return np.bincount(before[GROUP].to_numpy(), minlength=groups)

    def _before(self, rows: pl.DataFrame, edges: pl.DataFrame, *, from_end: bool = False) -> pl.DataFrame:
        """In order, the rows before the first edge of their partition, a row for each unit of weight; or those behind
        the last one."""
        edge = 2 if from_end else 0
        both = pl.concat([_placed(rows, 1), _placed(edges, edge)], how="diagonal")
        both = self._sorting.sorted(both, GROUP, behind=(_PLACE,))
        made = both.filter((pl.col(_PLACE) == edge).cum_sum(reverse=from_end).over(GROUP) == 0).select(rows.columns)
        return rows_at(made, np.repeat(np.arange(made.height), made[DIFF].to_numpy())).with_columns(
            pl.lit(1, pl.Int64).alias(DIFF)
        )

    def _arranged(self, rows: pl.DataFrame) -> pl.DataFrame:
        rows = self._sorting.sorted(rows, HASH)
        return rows if self._top is None or not rows.height else self._cut(rows, *self._top)

    def _cut(self, rows: pl.DataFrame, rank: Rank, most: int) -> pl.DataFrame:
        """Without the rows that have so many before them. An entry of several equal rows counts as one."""
        group = rows.select(pl.struct(HASH, *self.keys).rle_id().alias("g"))["g"].to_numpy().astype(np.int64)
        return rows.filter(pl.Series(rank.of(group, self._sorting.peers(rows, group)) <= most))


def _placed(rows: pl.DataFrame, place: int) -> pl.DataFrame:
    """With their place among rows that are equal in order: marks and edges count before them, or behind them."""
    return rows.with_columns(pl.lit(place).alias(_PLACE))


def _net(rows: pl.DataFrame) -> pl.DataFrame:
    return netted(rows, [c for c in rows.columns if c != DIFF]).filter(pl.col(DIFF) > 0)
