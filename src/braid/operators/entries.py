"""The sides of a join over epochs: which rows can meet, and what earlier batches have left.

In: the changes of one side in one batch. Out: its entries by hash, those whose NULLs keep them from meeting anything.
Rule: rows that meet nothing are never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl

from braid.operators.changes import HASH
from braid.operators.epochs import EPOCH, TICK, Bag, at_first, netted, weighted
from braid.operators.pairing import payload_of
from braid.operators.ranges import Crowded, Ints, Window, columns_of, hashes_of, key_order, keyed, meet, rows_at

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
    looking: pl.DataFrame, others: Callable[[pl.DataFrame, int | None], T]
) -> Iterator[tuple[pl.DataFrame, T]]:
    """The looking rows in rounds, with what `others` finds for them: at most about `MOST` pairs in a round. One row is
    never cut."""
    left = [looking] if looking.height else []
    while left:
        rows = left.pop()
        try:
            found = others(rows, MOST if rows.height > 1 else None)
        except Crowded as crowd:
            size = max(1, rows.height // (1 + 2 * crowd.pairs // MOST))
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
