"""Rows of a table by a key that several of them may share: which stood when another row was processed.

In: signed changes (+1 a row comes, -1 it goes) of a batch, by the table's own key, and what is kept of earlier batches.
Out: versions: each row with the places from which and up to which it stood.
Rule: a row that goes ends the version of its own key under the same shared key. What comes is numbered by arrival, over
all batches, so that "last written" is a matter of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from braid.operators.arrangement import ARRIVAL, Found, Run, Runs, cancelled
from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, HEADERS, POS, SUB, TIME, numbers_within, result_subs
from braid.operators.pairing import MISSING, gathered, joined_on, piece_rows, pieces, with_headers
from braid.operators.ranges import (
    Flags,
    Ints,
    Keyed,
    Stored,
    columns_of,
    expand,
    hashes_of,
    key_order,
    keyed,
    narrow,
    order_of,
    probe,
    rows_at,
    values_at,
)

LASTS = np.iinfo(np.int64).max  # the end of a version that stands
BEFORE = -1  # the place of what stood before the batch


class Standing(Runs):
    """Rows by hash, each until an entry with its number and `_diff` -1 takes it back. Columns: `_h`, the key columns,
    `_n`, `_diff`, `_t`, any others. Rows below the floor have expired."""

    __slots__ = ("keys",)

    def __init__(self, state: State, name: str, keys: Sequence[str]) -> None:
        super().__init__(state, name)
        self.keys = tuple(keys)

    def append(self, entries: pl.DataFrame) -> None:
        """Adds rows, and entries that take rows back."""
        if entries.height:
            self.runs.append(self._run(entries))
        self._merge(entries.height)

    def forget(self, bound: int) -> None:
        """Rows below `bound` have expired; a run that holds no others goes."""
        self.floor = max(self.floor, bound)
        old = [r for r in self.runs if r.high < self.floor]
        self.expired += sum(r.rows for r in old)
        self._remove(old)
        self.runs = [r for r in self.runs if r.high >= self.floor]

    def probe(self, looking: Keyed) -> Found:
        """The rows that stand under the keys of the looking rows."""
        pairs, parts = [], []
        for run in self.runs:
            stored = self._read(run)
            q, s = probe(looking, Stored(stored, run.plain, self.keys), None)
            if len(q):
                pairs.append(q)
                parts.append(rows_at(stored, s))
        if not pairs:
            return Found(np.empty(0, dtype=np.int64), None)
        which, rows = np.concatenate(pairs), pl.concat(parts, how="diagonal")
        n, diff = rows[ARRIVAL].to_numpy(), rows[DIFF].to_numpy()
        live = (diff == 1) & ~np.isin(n, n[diff == -1]) & (rows[TIME].to_numpy() >= self.floor)
        at = np.flatnonzero(live)
        return Found(which[at], rows_at(rows, at) if len(at) else None)

    def _run(self, entries: pl.DataFrame) -> Run:
        rows = rows_at(entries, key_order(hashes_of(entries)))
        t = rows[TIME].to_numpy()
        plain = keyed(hashes_of(rows), columns_of(rows, self.keys)).plain
        return Run("", rows.height, 0, int(t.min()), int(t.max()), plain, rows)

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        entries = pl.concat([self._read(r) for r in runs], how="diagonal")
        live = rows_at(entries, np.flatnonzero(entries[TIME].to_numpy() >= self.floor))
        self.expired += entries.height - live.height
        live = cancelled(live, oldest)
        return self._run(live) if live.height else None


@dataclass(slots=True)
class Table:
    """One side of a join, or a table alone. Arrays are of the rows of `frame`: `place` is their order in the batch over
    both sides, `group` the number of their key (below 0: they have none), `sign` +1 or -1."""

    frame: pl.DataFrame
    place: Ints
    group: Ints
    columns: list[str]  # payload
    parts: list[pl.DataFrame] = field(default_factory=list)  # rows that results are made of: the new, then stored ones

    @property
    def sign(self) -> Ints:
        return self.frame[DIFF].to_numpy().astype(np.int64)


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of rows, by (group, number): `row` is the number among the parts of their table, they stood after place
    `start` and before place `stop`; `n` is their arrival, `t` their time. `first`: where each group begins."""

    group: Ints
    row: Ints
    start: Ints
    stop: Ints
    n: Ints
    t: Ints
    first: Ints

    def at(self, group: Ints, place: Ints, after: bool = False) -> tuple[Ints, Ints]:
        """Which versions stood at each place (`after`: what came there counts): (number of the place, version), by
        arrival within a place. Each version looks for the places at which it stood: a key that is written often has
        many versions, of which few stand at a place."""
        looks = np.flatnonzero(group >= 0)
        looks = looks[np.lexsort((place[looks], group[looks]))]
        places, first = place[looks], np.searchsorted(group[looks], np.arange(len(self.first)))
        begin, end = first[self.group], first[self.group + 1]
        begin = narrow(places, begin, end, self.start - int(after), right=True)
        version, look = expand(begin, narrow(places, begin, end, self.stop, right=False))
        order = order_of(looks[look])
        return looks[look][order], version[order]


@dataclass(frozen=True, slots=True)
class Groups:
    """The keys of a batch, by hash: `keyed` has one row for each."""

    keyed: Keyed
    count: int


def grouped_keys(
    frames: Sequence[pl.DataFrame], known: Sequence[Flags], keys: Sequence[str]
) -> tuple[Groups, list[Ints]]:
    """The keys of the known rows of all frames, and the number of each row's key (or -1)."""
    rows = pl.concat([columns_of(f, [HASH, *keys]).filter(pl.Series(k)) for f, k in zip(frames, known, strict=True)])
    order = key_order(hashes_of(rows))
    in_order = rows_at(rows, order)
    ids = in_order.with_row_index("_i").select(pl.col("_i").min().over(HASH, *keys)).to_series().to_numpy()
    distinct, dense = np.unique(ids, return_inverse=True)
    one_each = rows_at(in_order, distinct.astype(np.int64))
    number = np.empty(rows.height, dtype=np.int64)
    number[order] = dense
    groups, first = [], 0
    for k in known:
        mine = np.full(len(k), -1, dtype=np.int64)
        count = int(k.sum())
        mine[k] = number[first : first + count]
        first += count
        groups.append(mine)
    looking = keyed(hashes_of(one_each), columns_of(one_each, keys))
    return Groups(looking, len(distinct)), groups


def versions(table: Table, held: Standing, groups: Groups, own: Sequence[str], base: int) -> Versions:
    """The versions of the table's rows in this batch; keeps what stands after it. `own`: the columns of the table's own
    key; `base`: arrivals before the batch."""
    found = held.probe(groups.keyed)
    table.parts = [table.frame]
    at = np.flatnonzero(table.group >= 0)
    group, place, sign = table.group[at], table.place[at], table.sign[at]
    row, n, t = at, base + place, table.frame[TIME].to_numpy()[at]
    identity = rows_at(columns_of(table.frame, own), at)
    if found.rows is not None:
        table.parts.append(found.rows)
        count = found.rows.height
        group = np.concatenate([found.looking, group])
        place = np.concatenate([np.full(count, BEFORE, dtype=np.int64), place])
        sign = np.concatenate([np.ones(count, dtype=np.int64), sign])
        row = np.concatenate([table.frame.height + np.arange(count), row])
        n = np.concatenate([found.rows[ARRIVAL].to_numpy(), n])
        t = np.concatenate([found.rows[TIME].to_numpy(), t])
        identity = pl.concat([columns_of(found.rows, own), identity])
    code = codes(group, identity)
    order = np.lexsort((place, code))
    next_same = np.append(code[order][1:] == code[order][:-1], False)[: len(order)]
    stop_in_order = np.full(len(order), LASTS, dtype=np.int64)
    stop_in_order[next_same] = place[order][1:][next_same[:-1]]
    stop = np.empty(len(order), dtype=np.int64)
    stop[order] = stop_in_order
    _keep(table, held, (row, sign, stop, n))
    came = np.flatnonzero(sign == 1)
    came = came[np.lexsort((n[came], group[came]))]
    first = np.searchsorted(group[came], np.arange(groups.count + 1))
    return Versions(group[came], row[came], place[came], stop[came], n[came], t[came], first)


def codes(group: Ints, identity: pl.DataFrame) -> Ints:
    """A number for each own key within its group."""
    frame = identity.with_columns(pl.Series("_g", group)).with_row_index("_i")
    return frame.select(pl.col("_i").min().over("_g", *identity.columns))["_i"].to_numpy().astype(np.int64)


def _keep(table: Table, held: Standing, versions: tuple[Ints, Ints, Ints, Ints]) -> None:
    """Keeps the new rows that stand, takes back the stored ones that do not."""
    row, sign, stop, n = versions
    new = table.frame.height
    came = np.flatnonzero((sign == 1) & (row < new) & (stop == LASTS))
    went = np.flatnonzero((sign == 1) & (row >= new) & (stop < LASTS))
    entries = []
    if len(came):
        names = [c for c in table.frame.columns if c not in (POS, SUB, HEADERS)]
        entries.append(rows_at(columns_of(table.frame, names), row[came]).with_columns(pl.Series(ARRIVAL, n[came])))
    if len(went):
        gone = rows_at(table.parts[1], row[went] - new)
        entries.append(gone.with_columns(pl.lit(-1, pl.Int8).alias(DIFF)))
    held.append(pl.concat(entries, how="diagonal") if entries else table.frame.clear())
    if held.runs or held.name in held.state.manifest:
        held.close()


@dataclass(frozen=True, slots=True)
class Results:
    """Rows that go out: numbers of rows among the parts of each side, or `MISSING`; `cause`: the new row that each
    comes from (numbered over both frames), `order`: by which results of one cause are sorted."""

    left: Ints
    right: Ints
    cause: Ints
    order: tuple[Ints, ...]
    time: Ints
    diff: Ints


def stacked_results(parts: Sequence[Results]) -> Results:
    """Several kinds of results as one; all have the same number of order keys."""
    names = ("left", "right", "cause", "time", "diff")
    whole = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
    order = tuple(np.concatenate(x) for x in zip(*(p.order for p in parts), strict=True))
    return Results(whole["left"], whole["right"], whole["cause"], order, whole["time"], whole["diff"])


def put_together(
    left: Table, right: Table, results: Results, keys: Sequence[str], names: Sequence[str], own_headers: bool
) -> Iterator[pl.DataFrame]:
    """The results as rows, in processing order, in pieces. `own_headers`: those of the left row, not of the cause."""
    place = np.concatenate([left.place, right.place])[results.cause]
    order = np.lexsort((*reversed(results.order), place))
    number = numbers_within(place[order])
    positions = left.frame[POS].clone().append(right.frame[POS])
    subs = left.frame[SUB].clone().append(right.frame[SUB])
    both = [*left.parts, *right.parts]
    offset = sum(p.height for p in left.parts)
    headed = left.parts if own_headers else [left.frame, right.frame]
    has_headers = any(HEADERS in p.columns for p in headed)
    for piece in pieces(len(order), piece_rows(left.parts, right.parts)):
        at = order[piece]
        cause, l_at, r_at = results.cause[at], results.left[at], results.right[at]
        made = gathered(both, [HASH, *keys], np.where(l_at == MISSING, offset + r_at, l_at)).with_columns(
            values_at(positions, cause).alias(POS),
            result_subs(subs, cause, number[piece], cause >= left.frame.height).alias(SUB),
            pl.Series(TIME, results.time[at]),
            pl.Series(DIFF, results.diff[at].astype(np.int8)),
        )
        if has_headers:
            theirs = gathered([with_headers(p) for p in headed], [HEADERS], l_at if own_headers else cause)
            made = made.with_columns(theirs)
        yield joined_on(
            made, gathered(left.parts, left.columns, l_at), gathered(right.parts, right.columns, r_at), keys, names
        )
