"""The sides of a join over epochs: which rows can meet, and what earlier batches have left.

In: the changes of one side in one batch. Out: its entries by hash, those whose NULLs keep them from meeting anything.
Rule: rows that meet nothing are never kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from braid.operators.changes import HASH
from braid.operators.epochs import EPOCH, TICK, Bag, at_first, by_hash, netted, weighted
from braid.operators.pairing import MOST, payload_of
from braid.operators.ranges import Hashes, Ints, columns_of, hashes_of, keyed, meet


def entries_of(rows: pl.DataFrame, keys: Sequence[str], tick: pl.Expr | None = None) -> pl.DataFrame:
    """The net entries of a batch: epoch, weight, hash, keys, tick and payload."""
    payload = payload_of(rows)
    tick = pl.lit(0, pl.Int64) if tick is None else tick
    new = weighted(rows, [HASH, *keys, *payload]).with_columns(tick.alias(TICK))
    return netted(new, [EPOCH, *keys, *payload])


def parted(rows: pl.DataFrame, never: pl.Series | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(rows that may meet others, by hash; rows for which `never` is true)."""
    if never is None or not never.any():
        return by_hash(rows), rows.clear()
    return by_hash(rows.filter(~never)), rows.filter(never)


def null_in(rows: pl.DataFrame, keys: Sequence[str], null_safe: Sequence[bool]) -> pl.Series | None:
    """Which rows have a NULL in a key that is not null-safe. (The key's last column is a constant.)"""
    strict = [k for k, safe in zip(keys, null_safe, strict=False) if not safe]
    return rows.select(pl.any_horizontal(pl.col(k).is_null() for k in strict).alias("n"))["n"] if strict else None


def meetings(looking: pl.DataFrame, stored: pl.DataFrame, keys: Sequence[str]) -> tuple[Ints, Ints]:
    """Pairs of rows with equal keys; both by hash."""
    if not looking.height or not stored.height:
        return zeros(0), zeros(0)
    l = keyed(hashes_of(looking), columns_of(looking, keys))
    s = keyed(hashes_of(stored), columns_of(stored, keys))
    return meet(l, s, keys, None)


def in_rounds(looking: pl.DataFrame, others: Sequence[Hashes]) -> list[pl.DataFrame]:
    """The looking rows (by hash) in rounds, so that those of one meet at most about `MOST` of the others, of whom the
    hashes are given; one row is never cut."""
    if not looking.height:
        return []
    h = hashes_of(looking)
    sizes = zeros(looking.height)
    for theirs in others:
        sizes += np.searchsorted(theirs, h, side="right") - np.searchsorted(theirs, h, side="left")
    total = np.cumsum(sizes)
    if total[-1] <= MOST:
        return [looking]
    cuts = np.flatnonzero(np.diff((total - sizes) // MOST)) + 1
    return [looking.slice(at[0], len(at)) for at in np.split(np.arange(looking.height), cuts)]


def known(bag: Bag, looking: pl.DataFrame, keys: Sequence[str]) -> tuple[Ints, pl.DataFrame] | None:
    """The entries of earlier batches that rows (by hash) meet: (row, entry); None where there are none."""
    if not looking.height or not bag.runs:
        return None
    found = bag.probe(keyed(hashes_of(looking), columns_of(looking, keys)))
    return None if found.rows is None else (found.looking, at_first(found.rows))


def zeros(n: int) -> Ints:
    return np.zeros(n, dtype=np.int64)
