"""Multisets: changes with weights, netting, a bag of rows as state, and which rows of both sides of a join can meet.

In: changes of one batch, which may hold several epochs. Out: net changes per epoch; of a side the entries by hash, and
those whose NULLs keep them from meeting anything.
Rule: the epoch of a row is the high part of its position. A weight is a count with a sign (column `_diff`, Int64 inside
an operator); rows of one epoch with equal columns are one row with the sum of their weights. All operators here are
sums over weights, so several epochs of one batch need no loop: a pair belongs to the later epoch of its rows. Rows that
meet nothing are never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl

from braid.expr.nodes import Expr, columns
from braid.operators.arrangement import Arrangement, Run
from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, LOW, NEVER, POS, POS_TYPE, SUB, TIME, sequence_of, time_of
from braid.operators.pairing import BOTH, failed_rows, failing, payload_of
from braid.operators.ranges import (
    Crowded,
    Ints,
    Keyed,
    Stored,
    Window,
    columns_of,
    distinct,
    hashes_of,
    key_order,
    keyed,
    meet,
    probe,
    rows_at,
)
from braid.plan import residuals

EPOCH = "_e"
TICK = "_c"  # what cleaning goes by


def end_of(epoch: pl.Expr) -> pl.Expr:
    """The last position of an epoch: where its changes stand, and where its watermarks are read."""
    return (epoch.cast(POS_TYPE) + 1) * pl.lit(LOW, POS_TYPE) - 1


def weighted(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The rows' epochs, weights and the named columns."""
    return rows.select(sequence_of(pl.col(POS)).alias(EPOCH), pl.col(DIFF).cast(pl.Int64), *columns)


def netted(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Rows that agree in `by` as one, with the sum of their weights, if that is not 0; other columns: the first's."""
    if only_adds(rows):
        return rows
    if not _equal_rows(rows.select(by)):
        return rows.filter(pl.col(DIFF) != 0)
    others = [c for c in rows.columns if c not in by and c != DIFF]
    sums = rows.group_by(by, maintain_order=True).agg(pl.col(DIFF).sum(), *(pl.col(c).first() for c in others))
    return sums.filter(pl.col(DIFF) != 0).select(rows.columns)


def _equal_rows(rows: pl.DataFrame) -> bool:
    """Whether there may be equal ones: a quarter of what it takes to group them."""
    hashes = rows.hash_rows().sort()
    return bool((hashes == hashes.shift()).any())


def only_adds(rows: pl.DataFrame) -> bool:
    return not rows.height or bool((rows[DIFF].min() or 0) > 0)  # type: ignore[operator]


def changes_of(rows: pl.DataFrame, keys: Sequence[str], payload: Sequence[str]) -> pl.DataFrame:
    """Net changes as they leave an operator: by epoch, one row for each unit of weight."""
    rows = netted(rows, [EPOCH, *payload])
    weights = rows[DIFF].abs()
    if rows.height and weights.max() != 1:
        rows = rows_at(rows, np.repeat(np.arange(rows.height, dtype=np.int64), weights.to_numpy()))
    rows = rows if rows[EPOCH].is_sorted() else rows.sort(EPOCH, maintain_order=True)
    return rows.select(
        end_of(pl.col(EPOCH)).alias(POS),
        pl.lit(None, pl.Binary).alias(SUB),
        time_of(pl.col(EPOCH)).alias(TIME),
        pl.col(DIFF).sign().cast(pl.Int8),
        HASH,
        *keys,
        *payload,
    )


def come(rows: pl.DataFrame, e: Expr, keys: Sequence[str], payload: Sequence[str]) -> pl.DataFrame:
    """Rows whose values that `e` reads come to a key in their epoch: not those that take the place of others."""
    read = [EPOCH, *keys, *dict.fromkeys(columns(e))]
    made = changes_of(netted(rows.sort(DIFF, descending=True, maintain_order=True), read), keys, payload)
    return made.filter(pl.col(DIFF) == 1)


class Failures:
    """The pairs of a join whose residual fails, some of each key and epoch: those that hold what of it cannot fail."""

    def __init__(self, residual: Expr | None, keys: Sequence[str]) -> None:
        self._first, self._rest = residuals.parted(residual)
        self._keys, self._pairs = keys, list[pl.DataFrame]()

    def __bool__(self) -> bool:
        """Whether it can fail."""
        return self._rest is not None

    def look(self, pairs: pl.DataFrame) -> None:
        """Pairs as they come to be, with their epochs and weights."""
        if self._rest is None or not pairs.height:
            return
        lost = failing(pairs, self._first, self._rest)
        if lost.height:
            self._pairs.append(self._few(lost))
        if sum(x.height for x in self._pairs) > 2 * MOST:
            self._pairs = [self._few(pl.concat(self._pairs, how="diagonal_relaxed"))]

    def told(self, payload: Sequence[str]) -> pl.DataFrame | None:
        """What is told of them; `payload`: the columns of both sides."""
        if not self._pairs or self._rest is None:
            return None
        rows = come(pl.concat(self._pairs, how="diagonal_relaxed"), self._rest, self._keys, payload)
        rows = rows.group_by(POS, *self._keys, maintain_order=True).head(residuals.MOST)
        return failed_rows(rows, pl.repeat(True, rows.height, eager=True), [self._rest], BOTH)

    def _few(self, pairs: pl.DataFrame) -> pl.DataFrame:
        if pairs.height <= residuals.MOST:
            return pairs
        return pairs.group_by(EPOCH, *self._keys, maintain_order=True).head(residuals.MOST).select(pairs.columns)


def by_hash(rows: pl.DataFrame) -> pl.DataFrame:
    return rows_at(rows, key_order(hashes_of(rows)))


def distinct_keys(frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """The keys of all rows, each once, by hash."""
    all_keys = pl.concat([columns_of(f, [HASH, *keys]) for f in frames])
    return by_hash(all_keys.unique(maintain_order=True))


class Bag(Arrangement):
    """A multiset of rows: entries with weights, by (hash, tick). Entries of equal rows cancel when runs merge."""

    __slots__ = ()

    def __init__(self, state: State, name: str, keys: Sequence[str]) -> None:
        super().__init__(state, name, keys, time=TICK)

    def add(self, rows: pl.DataFrame, keep: Sequence[str], ordered: bool = False) -> None:
        """Adds entries: rows with weights and ticks; `keep`: the columns that tell rows apart; `ordered`: by hash and
        tick."""
        names = [HASH, *self.keys, TICK, DIFF, *keep]
        made = netted(columns_of(rows, names), [n for n in names if n != DIFF])
        self.append(made, ordered)
        self.shrink(int((made[DIFF] < 0).sum()))

    def only_adds(self) -> bool:
        """Whether no entry takes back another."""
        return all(only_adds(self._read(run)) for run in self.runs)

    def touched(self, looking: Keyed, lo: Ints, hi: Ints) -> pl.DataFrame | None:
        """The entries that `probe` finds, each once."""
        found = []
        for run in self.runs:
            if len(lo) and (run.high < int(lo.min()) or run.low > int(hi.max())):
                continue
            stored = self._read(run)
            at = distinct(
                probe(looking, Stored(stored, run.plain, self.keys), Window(stored[TICK].to_numpy(), lo, hi))[1]
            )
            if len(at):
                found.append(rows_at(stored, at))
        return pl.concat(found) if found else None

    def with_new(self, rows: pl.DataFrame) -> None:
        """Adds rows (by hash and tick) to what is looked at only; see `as_it_stands`."""
        if rows.height:
            names = [HASH, *self.keys, TICK, DIFF]
            others = [c for c in rows.columns if c not in names and c != EPOCH]
            self.runs.append(self._run(columns_of(rows, [*names, *others])))

    def below(self, limit: int) -> pl.DataFrame:
        """The entries below `limit` that are not forgotten, netted."""
        found = [self._read(r) for r in self.runs if r.low < limit]
        due = pl.col(TICK).is_between(self.floor, limit, closed="left")
        rows = pl.concat([f.filter(due) for f in found]) if found else pl.DataFrame()
        return netted(rows, [c for c in rows.columns if c != DIFF])

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        rows = pl.concat([self._read(r) for r in runs])
        before = rows.height
        rows = rows.filter(pl.col(TICK) >= self.floor)
        self.expired += before - rows.height
        rows = netted(rows, [c for c in rows.columns if c != DIFF])
        if not rows.height:
            return None
        return self._run(rows_at(rows, key_order(hashes_of(rows), rows[TICK].to_numpy())))


def at_first(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of earlier batches: they stand before every epoch of this one."""
    return rows.with_columns(pl.lit(NEVER, pl.Int64).alias(EPOCH))


def sums_of(which: Ints, weights: Ints, count: int) -> Ints:
    """The sum of the weights for each number below `count`."""
    return np.bincount(which, weights=weights, minlength=count).astype(np.int64)


T = TypeVar("T")
FAR = 2**60  # ticks
MOST = 500_000  # pairs made at once, with the rows of both


def entries_of(rows: pl.DataFrame, keys: Sequence[str], tick: pl.Expr | None = None) -> pl.DataFrame:
    """The net entries of a batch: epoch, weight, hash, keys, tick and payload."""
    payload = payload_of(rows)
    tick = pl.lit(0, pl.Int64) if tick is None else tick
    new = weighted(rows, [HASH, *keys, *payload]).with_columns(tick.alias(TICK))
    return netted(new, [EPOCH, *keys, *payload])


def parted(rows: pl.DataFrame, never: pl.Series | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(rows that may meet others, by hash and tick; rows for which `never` is true)."""
    if never is None or not never.any():
        return by_hash_and_tick(rows), rows.clear()
    return by_hash_and_tick(rows.filter(~never)), rows.filter(never)


def by_hash_and_tick(rows: pl.DataFrame) -> pl.DataFrame:
    return rows_at(rows, key_order(hashes_of(rows), rows[TICK].to_numpy()))


def null_in(rows: pl.DataFrame, keys: Sequence[str], null_safe: Sequence[bool]) -> pl.Series | None:
    """Which rows have a NULL in a key that is not null-safe. (The key's last column is a constant.)"""
    strict = [k for k, safe in zip(keys, null_safe, strict=False) if not safe]
    return rows.select(pl.any_horizontal(pl.col(k).is_null() for k in strict).alias("n"))["n"] if strict else None


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the ticks of rows that meet can be apart: that of the right one less that of the left one is from `low`
    to `high` (None: any)."""

    low: int | None
    high: int | None

    def of(self, looking: pl.DataFrame, left: bool) -> tuple[Ints, Ints]:
        """The ticks at which rows of one side look, both ends included. Those of far numbers look everywhere."""
        t = looking[TICK].to_numpy()
        low, high = self.low, self.high
        if not left:
            low, high = (None if x is None else -x for x in (high, low))
        near = (t > -FAR) & (t < FAR)
        ends = np.iinfo(np.int64)
        return (
            np.full(len(t), ends.min) if low is None else np.where(near, t + low, ends.min),
            np.full(len(t), ends.max) if high is None else np.where(near, t + high, ends.max),
        )


def meetings(
    looking: pl.DataFrame,
    stored: pl.DataFrame,
    keys: Sequence[str],
    ticks: tuple[Ints, Ints] | None = None,
    most: int | None = None,
) -> tuple[Ints, Ints]:
    """Pairs of rows with equal keys, both by hash; with `ticks` (then both by hash and tick) those at which the looking
    rows look. `Crowded` where they are more than `most`."""
    if not looking.height or not stored.height:
        return zeros(0), zeros(0)
    l = keyed(hashes_of(looking), columns_of(looking, keys))
    s = keyed(hashes_of(stored), columns_of(stored, keys))
    return meet(l, s, keys, None if ticks is None else Window(stored[TICK].to_numpy(), *ticks), most)


def in_rounds(
    looking: pl.DataFrame, others: Callable[[pl.DataFrame, int | None], T], most: int | None = None
) -> Iterator[tuple[pl.DataFrame, T]]:
    """The looking rows in rounds, with what `others` finds for them: at most about `most` pairs (else `MOST`) in a
    round. One row is never cut."""
    most = min(MOST, most or MOST)
    left = [looking] if looking.height else []
    while left:
        rows = left.pop()
        try:
            found = others(rows, most if rows.height > 1 else None)
        except Crowded as crowd:
            size = max(1, rows.height // (1 + 2 * crowd.pairs // most))
            left += [rows.slice(start, size) for start in range(0, rows.height, size)][::-1]
        else:
            yield rows, found


def known(
    bag: Bag,
    looking: pl.DataFrame,
    keys: Sequence[str],
    ticks: tuple[Ints, Ints] | None = None,
    most: int | None = None,
) -> tuple[Ints, pl.DataFrame] | None:
    """The entries of earlier batches that rows (by hash) meet: (row, entry); None where there are none. `ticks`,
    `most`: see `meetings`."""
    if not looking.height or not bag.runs:
        return None
    low, high = ticks or (None, None)
    found = bag.probe(keyed(hashes_of(looking), columns_of(looking, keys)), low, high, most)
    return None if found.rows is None else (found.looking, at_first(found.rows))


def touched(bag: Bag, looking: pl.DataFrame, keys: Sequence[str], ticks: tuple[Ints, Ints]) -> pl.DataFrame | None:
    """The entries of earlier batches that some of the rows meet, each once."""
    if not looking.height or not bag.runs:
        return None
    rows = bag.touched(keyed(hashes_of(looking), columns_of(looking, keys)), *ticks)
    return None if rows is None else at_first(rows)


def zeros(n: int) -> Ints:
    return np.zeros(n, dtype=np.int64)
