"""Table join: one current table from two.

In: changes of both tables, spread by the join's key, in processing order: upserts where the tables' keys are unique
(the join is on their primary keys), signed changes where several rows share a key. Out: the same of the result.
Rule: a change touches the combinations with the rows of the other side that stand at its place, in the order in which
these were written. Rows of an outer side that stand alone are combinations with nothing. With unique keys the result's
row is emitted if it exists now, a tombstone if it existed just before, nothing else; with shared ones combinations that
go and that come, known by both rows' own keys. (docs/rules/ksqldb.md, docs/rules/lenses.md, "Two tables")

*Matches* equal keys.
*Keeps* the rows of both tables.
*Emits* at the change's place; time is the later of the change's and the other side's row, if that exists.
*Forgets* a row when it is replaced or goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import polars as pl

from braid.expr.nodes import Expr
from braid.operators.arrangement import Newest
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, NEVER, TIME, at_one_moment, key_column
from braid.operators.clocks import Clocks
from braid.operators.lives import BEFORE, Lives, Standing, Timeline, arrivals, codes, timeline
from braid.operators.pairing import (
    MISSING,
    Results,
    Sides,
    all_dropped,
    in_arrival_order,
    meeting,
    nothing_joined,
    without_nulls,
)
from braid.operators.ranges import Flags, Ints, columns_of
from braid.plan.joins import TableTableJoin
from braid.plan.logical import How

SIDES = ("left", "right")
ALONE_NO_MORE, PAIR, ALONE_NOW = 0, 1, 2  # the order of what one change gives
Parts = tuple[list[pl.DataFrame], list[pl.DataFrame]]


class Tables(Protocol):
    """What the rows of both tables are to each other: which results their changes give, and what is kept of them."""

    def results(self, how: How, line: Timeline, state: State, keys: Sequence[str]) -> tuple[list[Results], Parts]: ...


@dataclass(frozen=True, slots=True)
class Unique:
    """Tables of one row a key: each change gives one row, or none."""

    def results(self, how: How, line: Timeline, state: State, keys: Sequence[str]) -> tuple[list[Results], Parts]:
        held = [Newest(state, side, keys) for side in SIDES]
        parts: Parts = ([line.inputs[0]], [line.inputs[1]])
        made = [self._of_side(how, line, side, held, parts) for side in (0, 1) if line.inputs[side].height]
        for side in (0, 1):
            line.keep(side, held[side])
        return made, parts

    def _of_side(self, how: How, line: Timeline, side: int, held: Sequence[Newest], parts: Parts) -> Results:
        """What the changes of a side give; the rows that they meet are added to the parts of the other side."""
        own = line.inputs[side]
        theirs = line.seen(side, 1 - side, held[1 - side])
        parts[1 - side][1:] = theirs.parts[1:]
        is_row, there = own[DIFF].to_numpy() == 1, theirs.at != MISSING
        had = line.seen(side, side, held[side]).at != MISSING
        stands = self._exists(how, side, is_row, there)
        emitted = np.flatnonzero(stands | self._exists(how, side, had, there))
        alive, at = stands[emitted], theirs.at[emitted]
        mine = np.where(alive & is_row[emitted], emitted, MISSING)  # a tombstone has a key and no payload
        times = np.append(np.concatenate([p[TIME].to_numpy() for p in theirs.parts]), NEVER)
        time = np.maximum(own[TIME].to_numpy()[emitted], times[at])
        return results_of(line, side, (emitted, mine, np.where(alive, at, MISSING)), time, np.where(alive, 1, -1))

    def _exists(self, how: How, side: int, own: Flags, other: Flags) -> Flags:
        """Whether the result row exists when the sides' rows do."""
        left, right = (own, other) if side == 0 else (other, own)
        return {"inner": left & right, "left": left, "right": right, "full": left | right}[how]


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of one side: numbers of the old and the new row (`MISSING`: there is none), their place and key; `had`,
    `has`: how many rows of the side the key has before and after.

    A change is a row that goes, one that comes, or an old and a new row of one own key at one position.
    """

    old: Ints
    new: Ints
    place: Ints
    group: Ints
    had: Ints
    has: Ints

    @property
    def cause(self) -> Ints:
        return np.where(self.old == MISSING, self.new, self.old)


@dataclass(frozen=True, slots=True)
class Shared:
    """Tables of which several rows share a key: what others had alone goes; old combinations go, each followed by the
    new one; what others have alone now comes. `own`: for each side the columns that its rows are known by."""

    own: tuple[tuple[str, ...], tuple[str, ...]]

    def results(self, how: How, line: Timeline, state: State, keys: Sequence[str]) -> tuple[list[Results], Parts]:
        base = arrivals(state, line.inputs)
        left, right = (line.lives(i, Standing(state, SIDES[i], keys), self.own[i], base) for i in (0, 1))
        made = self._combined(how, line, 0, self._changes(line, 0, left), right)
        made += self._combined(how, line, 1, self._changes(line, 1, right), left)
        return made, (left.parts, right.parts)

    def _changes(self, line: Timeline, side: int, lives: Lives) -> _Changes:
        """A row that goes and one that comes are one change where they follow each other in their key."""
        table, groups, group, mine = line.inputs[side], line.groups(side), line.group, line.of(side)
        number = line.number - line.offset(side)
        sign = table[DIFF].to_numpy().astype(np.int64)
        signs = np.zeros(len(number), dtype=np.int64)
        signs[mine] = sign[number[mine]]
        heads = heads_of(table, self.own[side], number, mine, groups)
        total = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(signs)])
        before_batch = np.bincount(lives.group[lives.start == BEFORE], minlength=len(line.first))
        had = before_batch[group] + total[:-1] - total[line.first[group]]

        counts = mine.copy()
        counts[heads + 1] = False
        new = np.where(signs == 1, number, MISSING)
        new[heads] = number[heads + 1]
        at = np.flatnonzero(counts)
        old, new, had = np.where(signs[at] == -1, number[at], MISSING), new[at], had[at]
        net = (new != MISSING).astype(np.int64) - (old != MISSING)

        lone = np.flatnonzero(groups < 0)
        none, zeros = np.full(len(lone), MISSING, dtype=np.int64), np.zeros(len(lone), dtype=np.int64)
        return _Changes(
            old=np.concatenate([old, np.where(sign[lone] == -1, lone, MISSING)]),
            new=np.concatenate([new, np.where(sign[lone] == 1, lone, MISSING)]),
            place=line.places[side][np.concatenate([number[at], lone])],
            group=np.concatenate([group[at], none]),
            had=np.concatenate([had, zeros]),
            has=np.concatenate([had + net, zeros]),
        )

    def _combined(self, how: How, line: Timeline, side: int, changes: _Changes, others: Lives) -> list[Results]:
        """What the changes of a side give: with the rows of the other side, or alone."""
        which, life = others.at(changes.group, changes.place)
        own_t = line.inputs[side][TIME].to_numpy()[changes.cause]
        alone = np.full(len(changes.old), how in ("full", SIDES[side]))
        alone[which] = False
        single = np.flatnonzero(alone)
        nothing = np.full(len(single), MISSING, dtype=np.int64)
        with_ = np.concatenate([which, single])
        row, n = np.concatenate([others.row[life], nothing]), np.concatenate([others.n[life], nothing])
        time = np.concatenate([np.maximum(own_t[which], others.t[life]), own_t[single]])
        made = []
        for sign, mine in ((-1, changes.old[with_]), (1, changes.new[with_])):
            at = np.flatnonzero(mine != MISSING)
            rows = (changes.cause[with_[at]], mine[at], row[at])
            made.append(results_of(line, side, rows, time[at], sign, (PAIR, n[at])))
        if how in ("full", SIDES[1 - side]):
            for phase, sign, when in (
                (ALONE_NO_MORE, -1, (changes.old == MISSING) & (changes.had == 0)),
                (ALONE_NOW, 1, (changes.new == MISSING) & (changes.has == 0)),
            ):
                at = np.flatnonzero(when[which])
                rows = (changes.cause[which[at]], np.full(len(at), MISSING, dtype=np.int64), row[at])
                made.append(results_of(line, side, rows, time[at], sign, (phase, n[at])))
        return made


def heads_of(table: pl.DataFrame, own: Sequence[str], number: Ints, mine: Flags, groups: Ints) -> Ints:
    """Where in the order of all rows an old row of a table stands that its new one follows. `own`: the columns that its
    rows are known by; `number`, `mine`: which row stands where, and whether it is the table's."""
    at = np.flatnonzero(mine[:-1] & mine[1:])
    if not len(at):
        return at
    old, new = number[at], number[at + 1]
    code, diff = codes(groups, columns_of(table, own)), table[DIFF].to_numpy()
    same = (diff[old] == -1) & (diff[new] == 1) & (code[old] == code[new])
    same &= at_one_moment(table, old, new)
    heads: Ints = at[same]
    return heads


def results_of(
    line: Timeline,
    side: int,
    rows: tuple[Ints, Ints, Ints],
    time: Ints,
    sign: Ints | int,
    order: tuple[int, Ints] | None = None,
) -> Results:
    """`rows`: causes, rows of the side, rows of the other side; `order`: phase, arrival of the other side's row."""
    cause, own, other = rows
    left, right = (own, other) if side == 0 else (other, own)
    signs = np.full(len(cause), sign, dtype=np.int64)
    by = () if order is None else (np.full(len(cause), order[0]), order[1], signs)
    return Results(left, right, line.offset(side) + cause, time, signs, by)


@dataclass(frozen=True, slots=True)
class TableJoin:
    """`names`: the plan columns of the join key; `null_key`: what becomes of outer rows without a key; `ifs`: what else
    a left row needs in order to match, and a right one."""

    how: How
    names: tuple[str, ...]
    tables: Tables
    null_key: Literal["drop", "pad"] = "drop"
    ifs: tuple[Expr | None, Expr | None] = (None, None)

    @staticmethod
    def of(node: TableTableJoin, own: tuple[tuple[str, ...], tuple[str, ...]]) -> TableJoin:
        """`own`: for each side the columns that its rows are known by."""
        names, tables = tuple(c.name for c in node.keys), Unique() if node.by_key else Shared(own)
        return TableJoin(node.how, names, tables, node.null_key, node.also_if)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        keys, drops = [key_column(i) for i in range(max(1, len(self.names)))], list[pl.DataFrame]()
        if self.null_key == "drop":
            inputs = [without_nulls(rows, side, drops) for rows, side in zip(inputs, SIDES, strict=True)]
        if not any(rows.height for rows in inputs):
            return Result(nothing_joined(inputs, keys, *self.names), all_dropped(drops))
        known = [meeting(*x, drops) for x in zip(inputs, SIDES, self.ifs, strict=True)]
        line = timeline(inputs, in_arrival_order(*inputs), keys, known)
        results, parts = self.tables.results(self.how, line, state, keys)
        return Sides(inputs, line.places, parts, keys, self.names).result(results, drops)
