"""Versions of a table's rows: which row of a key stood when another row was processed.

In: rows that look, changes of a table in the same batch, and what is kept of earlier batches. Out: for each looking row
the number of the row it sees, among the changes and then the kept rows; `MISSING` where there is none.
Rule: of the batch's changes the last one before the looking row counts, whatever its time; a tombstone is no row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.arrangement import Newest, last_of_key
from braid.operators.changes import DIFF, HASH, POS, SUB
from braid.operators.pairing import MISSING
from braid.operators.ranges import Ints, begins, grouped, hashes_of, key_order, keyed


@dataclass(frozen=True, slots=True)
class Seen:
    """`at[i]`: the number of the row that looking row i sees, among `parts` (one after the other), or `MISSING`."""

    at: Ints
    parts: list[pl.DataFrame]


def as_of(
    looking: pl.DataFrame, looking_place: Ints, changes: pl.DataFrame, changes_place: Ints, held: Newest
) -> Seen:
    """What each looking row sees of a table. Places are those of one common order; a change at the place of a looking
    row comes after it. Looking rows without a key see nothing."""
    keys = list(held.keys)
    at = np.full(looking.height, MISSING, dtype=np.int64)
    has_key = looking[HASH].is_not_null().to_numpy()
    who = np.flatnonzero(has_key)
    if not len(who):
        return Seen(at, [changes])
    rows = looking[who] if len(who) < looking.height else looking
    in_batch = _in_batch(rows, looking_place[who], changes, changes_place, keys)
    open_ = np.flatnonzero(in_batch == MISSING)
    at[who] = in_batch
    parts = [changes]
    if len(open_) and held.runs:
        found, numbers = _kept(rows.select(HASH, *keys)[open_], keys, held)
        if found is not None:
            parts.append(found)
            at[who[open_]] = np.where(numbers == MISSING, MISSING, numbers + changes.height)
    if changes.height:
        gone = (changes[DIFF] == -1).to_numpy()
        dead = (at != MISSING) & (at < changes.height)
        dead[dead] = gone[at[dead]]
        at[dead] = MISSING
    return Seen(at, parts)


def _in_batch(rows: pl.DataFrame, places: Ints, changes: pl.DataFrame, changes_place: Ints, keys: list[str]) -> Ints:
    """The number of the last change before each row, else `MISSING`."""
    n = rows.height
    if not changes.height:
        return np.full(n, MISSING, dtype=np.int64)
    both = pl.concat([rows.select(HASH, *keys), changes.select(HASH, *keys)])
    in_time = np.argsort(np.concatenate([places * 2, changes_place * 2 + 1]), kind="stable")
    order, ids = grouped(both[in_time], keys)
    number = in_time[order]
    is_change = number >= n
    place = np.arange(len(number), dtype=np.int64)
    last = np.maximum.accumulate(np.where(is_change, place, -1))
    first = np.maximum.accumulate(np.where(begins(ids), place, 0))
    seen = np.where(last >= first, number[np.maximum(last, 0)] - n, MISSING)
    at = np.empty(n, dtype=np.int64)
    at[number[~is_change]] = seen[~is_change]
    return at


def _kept(rows: pl.DataFrame, keys: list[str], held: Newest) -> tuple[pl.DataFrame | None, Ints]:
    """The kept row of each row's key: (rows, number of each row's among them or `MISSING`)."""
    order, ids = grouped(rows, keys)
    numbers = np.empty(rows.height, dtype=np.int64)
    numbers[order] = np.cumsum(begins(ids)) - 1
    one_a_key = rows[order[np.flatnonzero(begins(ids))]]
    found = held.probe(keyed(hashes_of(one_a_key), one_a_key.select(keys)))
    if found.rows is None:
        return None, numbers
    by_key = np.full(one_a_key.height, MISSING, dtype=np.int64)
    by_key[found.looking] = np.arange(found.rows.height, dtype=np.int64)
    return found.rows, by_key[numbers]


def keep(held: Newest, changes: pl.DataFrame) -> None:
    """Keeps the last row of each key of a batch's changes (in processing order)."""
    rows = changes.drop([POS, SUB], strict=False)
    rows = rows[key_order(hashes_of(rows))]
    held.append(rows.filter(pl.Series(last_of_key(rows, list(held.keys)))) if rows.height else rows)
    held.close()
