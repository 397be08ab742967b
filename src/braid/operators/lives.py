"""Lives: which rows of a table stood when another row was processed.

In: the changes of a batch in processing order, and what is kept of earlier batches. Out: for each row that looks, the
rows of its key that stand at its place.
Rule: a row lives from the place after its own up to the one that ends it, whatever the times: where the table's keys
are unique, the next change of its key (a tombstone is no row); else the -1 of its own key under the key that several
rows share. Arrivals are numbered over all batches, so that "last written" is a matter of numbers.

The rows of one unique key; a tombstone comes at 3:

    place        before   0     1     2     3     4     5    after
    kept           [------------)
    comes at 1                  (-----------)
    comes at 5                                          (---------> is kept
    look                              ^           ^
                             sees the second   sees none
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.arrangement import ARRIVAL, Arrangement, Found, Newest, Run, cancelled
from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, HEADERS, POS, SUB, TIME
from braid.operators.pairing import MISSING, stacked
from braid.operators.ranges import (
    Flags,
    Hashes,
    Ints,
    Keyed,
    begins,
    columns_of,
    expand,
    grouped,
    hashes_of,
    key_order,
    keyed,
    narrow,
    numbered,
    order_of,
    rows_at,
)

LASTS = np.iinfo(np.int64).max  # the end of a life that has not ended
BEFORE = -1  # the place of what stood before the batch


def arrivals(state: State, inputs: Sequence[pl.DataFrame]) -> int:
    """How many rows came before this batch; those of this one are counted."""
    base = int(state.manifest.get("arrivals", 0))
    state.manifest["arrivals"] = base + sum(frame.height for frame in inputs)
    return base


class Standing(Arrangement):
    """Rows by hash, each until an entry with its number and `_diff` -1 takes it back. Columns: `_h`, the key columns,
    `_n`, `_diff`, `_t`, any others. Rows below the floor have expired."""

    __slots__ = ()

    def change(self, came: pl.DataFrame, n: Ints, gone: pl.DataFrame | None) -> None:
        """Adds rows with their arrival numbers, and entries that take back those that are gone."""
        entries = [came.with_columns(pl.Series(ARRIVAL, n))] if came.height else []
        if gone is not None and gone.height:
            entries.append(gone.with_columns(pl.lit(-1, pl.Int8).alias(DIFF)))
        if entries:
            self.runs.append(self._run(pl.concat(entries, how="diagonal")))
        self._merge(sum(e.height for e in entries))

    @property
    def used(self) -> bool:
        """Whether it has ever held a row."""
        return bool(self.runs) or self.name in self.state.manifest

    def settle(self) -> None:
        if self.used:
            self.close()

    def standing(self, looking: Keyed, since: Ints | None = None) -> Found:
        """The rows that stand under the keys of the looking rows. `since`: from a time on, in runs sorted by time."""
        found = self.probe(looking, since, None if since is None else np.full(len(since), LASTS))
        if found.rows is None:
            return found
        n, diff = found.rows[ARRIVAL].to_numpy(), found.rows[DIFF].to_numpy()
        live = (diff == 1) & ~np.isin(n, n[diff == -1]) & (found.rows[TIME].to_numpy() >= self.floor)
        at = np.flatnonzero(live)
        return Found(found.looking[at], rows_at(found.rows, at) if len(at) else None)

    def _run(self, rows: pl.DataFrame) -> Run:
        return super()._run(rows_at(rows, key_order(hashes_of(rows))))

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        entries = pl.concat([self._read(r) for r in runs], how="diagonal")
        live = rows_at(entries, np.flatnonzero(entries[TIME].to_numpy() >= self.floor))
        self.expired += entries.height - live.height
        live = cancelled(live, oldest)
        return self._run(live) if live.height else None


@dataclass(frozen=True, slots=True)
class Seen:
    """`at[i]`: the number of the row that row i sees, among `parts` (one after the other), or `MISSING`."""

    at: Ints
    parts: list[pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Lives:
    """Lives of rows, by (group, arrival): `row` is the number among `parts` (the new rows, then kept ones), they stand
    after place `start` and before place `stop`; `n` is their arrival, `t` their time. `first`: where each group
    begins."""

    parts: list[pl.DataFrame]
    group: Ints
    row: Ints
    start: Ints
    stop: Ints
    n: Ints
    t: Ints
    first: Ints

    def at(self, group: Ints, place: Ints, after: bool = False) -> tuple[Ints, Ints]:
        """Which lives there were at each place (`after`: what came there counts): (number of the place, life), by
        arrival within a place. Each life looks for the places that it spans: a key that is written often has many
        lives, of which few span a place."""
        looks = np.flatnonzero(group >= 0)
        looks = looks[np.lexsort((place[looks], group[looks]))]
        places, first = place[looks], np.searchsorted(group[looks], np.arange(len(self.first)))
        begin, end = first[self.group], first[self.group + 1]
        begin = narrow(places, begin, end, self.start - int(after), right=True)
        life, look = expand(begin, narrow(places, begin, end, self.stop, right=False))
        order = order_of(looks[look])
        return looks[look][order], life[order]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of all inputs that have a key (numbered one input after the other) by key, each key's in processing
    order. `places`: of each input's rows, in the order common to all.

    `number`: the row at each place; `group`: its key, from 0; `first`: where each key begins; `h`, `keys`: of each key.
    """

    inputs: Sequence[pl.DataFrame]
    places: tuple[Ints, ...]
    number: Ints
    group: Ints
    first: Ints
    h: Hashes
    keys: pl.DataFrame

    def offset(self, side: int) -> int:
        """The number of the first row of an input."""
        return sum(frame.height for frame in self.inputs[:side])

    def of(self, side: int) -> Flags:
        """Which of the rows are an input's."""
        offset = self.offset(side)
        return (self.number >= offset) & (self.number < offset + self.inputs[side].height)

    def groups(self, side: int) -> Ints:
        """The key of each row of an input; `MISSING`: it has none."""
        made = np.full(self.inputs[side].height, MISSING, dtype=np.int64)
        mine = self.of(side)
        made[self.number[mine] - self.offset(side)] = self.group[mine]
        return made

    @property
    def looking(self) -> Keyed:
        """A row for each key."""
        return keyed(self.h, self.keys)

    def alone(self, some: Flags, rows: pl.DataFrame) -> Timeline:
        """The same groups with some of their rows alone, which are `rows`, in their order; of one input."""
        those, group = self.number[some], self.group[some]
        _, number = numbered(those)
        places = (np.arange(len(those), dtype=np.int64),)
        return Timeline([rows], places, number, group, np.flatnonzero(begins(group)), self.h, self.keys)

    # ---------------------------------------------------------------- unique keys

    def seen(self, looking: int, side: int, held: Newest) -> Seen:
        """What the rows of input `looking` see of the table whose changes are input `side`: the row before them."""
        changes = self.inputs[side]
        at = np.full(self.inputs[looking].height, MISSING, dtype=np.int64)
        places = np.arange(len(self.number), dtype=np.int64)
        last = np.maximum.accumulate(np.where(self.of(side), places, -1)) if len(places) else places
        before = np.concatenate([np.array([-1], dtype=np.int64), last[:-1]])
        mine = np.flatnonzero(self.of(looking))
        before = before[mine]
        in_batch = before >= self.first[self.group[mine]]
        who = self.number[mine] - self.offset(looking)
        change = self.number[before[in_batch]] - self.offset(side)
        if changes.height:
            alive = changes[DIFF].to_numpy() == 1
            at[who[in_batch]] = np.where(alive[change], change, MISSING)
        parts = [changes]
        open_ = np.flatnonzero(~in_batch)
        if len(open_) and held.runs:
            group = self.group[mine[open_]]
            wanted = np.flatnonzero(np.bincount(group, minlength=len(self.first)))
            found = held.probe(keyed(self.h[wanted], rows_at(self.keys, wanted)))
            if found.rows is not None:
                by_group = np.full(len(self.first), MISSING, dtype=np.int64)
                by_group[wanted[found.looking]] = changes.height + np.arange(found.rows.height)
                at[who[open_]] = by_group[group]
                parts.append(found.rows)
        return Seen(at, parts)

    def keep(self, side: int, held: Newest, rows: pl.DataFrame | None = None) -> None:
        """Keeps the last row of each key of an input (or of `rows`, which stand for its rows)."""
        rows = self.inputs[side] if rows is None else rows
        if rows.height:
            places = np.flatnonzero(self.of(side))
            last = places[np.append(begins(self.group[places])[1:], True)]
            held.append(rows_at(_stored(rows), self.number[last] - self.offset(side)))
        held.close()

    # ---------------------------------------------------------------- several rows a key

    def lives(self, side: int, held: Standing, own: Sequence[str], base: int) -> Lives:
        """The lives of a table's rows in this batch; keeps what stands after it. `own`: the columns of the table's own
        key; `base`: arrivals before the batch."""
        frame, group = self.inputs[side], self.groups(side)
        at = np.flatnonzero(group >= 0)
        new = rows_at(columns_of(frame, [TIME, DIFF, *own]), at)
        parts, place = [frame], self.places[side][at]
        group, row, n = group[at], at, base + place
        if (found := held.standing(self.looking)).rows is not None:
            count = found.rows.height
            parts.append(found.rows)
            new = columns_of(found.rows, new.columns).vstack(new)
            group, row = np.concatenate([found.looking, group]), np.concatenate([frame.height + np.arange(count), row])
            place = np.concatenate([np.full(count, BEFORE, dtype=np.int64), place])
            n = np.concatenate([found.rows[ARRIVAL].to_numpy(), n])
        stop = _ends(codes(group, columns_of(new, own)), place)
        comes, lasts, is_new = new[DIFF].to_numpy() == 1, stop == LASTS, row < frame.height
        stay, gone = np.flatnonzero(comes & lasts & is_new), np.flatnonzero(comes & ~lasts & ~is_new)
        back = rows_at(parts[1], row[gone] - frame.height) if len(gone) else None
        held.change(rows_at(_stored(frame), row[stay]), n[stay], back)
        held.settle()
        came = np.flatnonzero(comes)
        came = came[np.lexsort((n[came], group[came]))]
        first = np.searchsorted(group[came], np.arange(len(self.first) + 1))
        t = new[TIME].to_numpy()[came]
        return Lives(parts, group[came], row[came], place[came], stop[came], n[came], t, first)


def timeline(
    inputs: Sequence[pl.DataFrame],
    places: tuple[Ints, ...] | None,
    keys: Sequence[str],
    known: Sequence[Flags] | None = None,
) -> Timeline:
    """`places`: the common processing order of the inputs' rows (`pairing.in_arrival_order`); None: there is one input.
    `known`: the rows that have a key; None: all have."""
    rows = stacked([columns_of(frame, [HASH, *keys]) for frame in inputs])
    if known is not None and all(x.all() for x in known):
        known = None
    if len(inputs) == 1 and known is None:
        order, ids = grouped(rows, keys)
        number = order
    else:
        in_time = np.arange(rows.height, dtype=np.int64)
        if places is not None:
            in_time[np.concatenate(places)] = np.arange(rows.height)
        if known is not None:
            in_time = in_time[np.concatenate(known)[in_time]]
        order, ids = grouped(rows_at(rows, in_time), keys)
        number = in_time[order]
    new = begins(ids)
    first = np.flatnonzero(new)
    one_each = rows_at(rows, number[first])
    places = (np.arange(rows.height, dtype=np.int64),) if places is None else places
    return Timeline(inputs, places, number, np.cumsum(new) - 1, first, hashes_of(one_each), columns_of(one_each, keys))


def codes(group: Ints, identity: pl.DataFrame) -> Ints:
    """A number for each own key within its group."""
    frame = identity.with_columns(pl.Series("_g", group)).with_row_index("_i")
    return frame.select(pl.col("_i").min().over("_g", *identity.columns))["_i"].to_numpy().astype(np.int64)


def _ends(code: Ints, place: Ints) -> Ints:
    """Where each life ends, of rows by place: at the next row of its code."""
    order = order_of(code)
    followed = np.flatnonzero(~begins(code[order])[1:])
    stop = np.full(len(code), LASTS, dtype=np.int64)
    stop[order[followed]] = place[order[followed + 1]]
    return stop


def _stored(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows without what only a batch knows of them."""
    return columns_of(rows, [c for c in rows.columns if c not in (POS, SUB, HEADERS)])
