"""Table-table join: all combinations of rows of two tables with equal keys.

In: signed changes of both tables, spread by the join's key, in processing order. Out: signed changes of their
combinations, which are known by both rows' own keys.
Rule: a change is a row that goes, one that comes, or an old and a new row of one own key at one position. It touches
the combinations with the rows of the other side that stand at its place, in the order in which these were written.
Rows of an outer side that stand alone are combinations with nothing. (docs/rules/lenses.md, "Two tables")

*Matches* equal keys.
*Keeps* the rows of both tables.
*Emits* at the change's place: what others had alone goes; old combinations go, each followed by the new one; what
others have alone now comes. Time is the later of both rows.
*Forgets* a row when it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import HASH, TIME, at_one_moment, key_column
from braid.operators.clocks import Clocks
from braid.operators.pairing import MISSING, all_dropped, dropped_rows, in_arrival_order, nothing_joined, payload_of
from braid.operators.ranges import Flags, Ints, columns_of
from braid.operators.standing import (
    BEFORE,
    Results,
    Standing,
    Table,
    Versions,
    codes,
    grouped_keys,
    put_together,
    stacked_results,
    versions,
)
from braid.plan.keyed import CombiningJoin
from braid.plan.logical import How

ALONE_NO_MORE, PAIR, ALONE_NOW = 0, 1, 2  # the order of what one change gives


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of one side: numbers of the old and the new row (`MISSING`: there is none), their place and key; `had`,
    `has`: how many rows of the side the key has before and after."""

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
class Combining:
    """`own`: for each side the columns that its rows are known by."""

    how: How
    width: int
    names: tuple[str, ...]
    own: tuple[tuple[str, ...], tuple[str, ...]]
    ifs: tuple[Expr | None, Expr | None] = (None, None)

    @staticmethod
    def of(node: CombiningJoin, own: tuple[tuple[str, ...], tuple[str, ...]]) -> Combining:
        names = tuple(c.name for c in node.keys)
        return Combining(node.how, max(1, len(names)), names, own, (node.left_if, node.right_if))

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        keys = [key_column(i) for i in range(self.width)]
        if not any(frame.height for frame in inputs):
            return Result(nothing_joined(inputs, keys, *self.names))
        drops: list[pl.DataFrame] = []
        base = int(state.manifest.get("arrivals", 0))
        state.manifest["arrivals"] = base + sum(frame.height for frame in inputs)
        known = [self._meets(frame, side, drops) for side, frame in enumerate(inputs)]
        groups, of_row = grouped_keys(inputs, known, keys)
        tables = [
            Table(frame, place, group, payload_of(frame), [frame])
            for frame, place, group in zip(inputs, in_arrival_order(*inputs), of_row, strict=True)
        ]
        stood = [
            versions(table, Standing(state, name, keys), groups, own, base)
            for table, name, own in zip(tables, ("left", "right"), self.own, strict=True)
        ]
        parts: list[Results] = []
        for side in (0, 1):
            changes = self._changes(tables, side, stood[side], groups.count)
            parts += self._combined(tables, side, changes, stood[1 - side])
        return Result.of(
            put_together(tables[0], tables[1], stacked_results(parts), keys, self.names, own_headers=False),
            all_dropped(drops),
        )

    def _is_outer(self, side: int) -> bool:
        return self.how in ("full", ("left", "right")[side])

    def _meets(self, frame: pl.DataFrame, side: int, drops: list[pl.DataFrame]) -> Flags:
        meets = frame[HASH].is_not_null().to_numpy()
        condition = self.ifs[side]
        if condition is not None and frame.height:
            made, failed = compile.evaluate(frame, [("_meets", condition)])
            if failed.any():
                drops.append(dropped_rows(frame.filter(failed), "expression", ("left", "right")[side]))
            meets = meets & made["_meets"].fill_null(False).to_numpy()
        return meets

    def _changes(self, tables: Sequence[Table], side: int, stood: Versions, count: int) -> _Changes:
        """A row that goes and one that comes are one change where they follow each other in their key."""
        table, offset = tables[side], side * tables[0].frame.height
        group, place, sign = (np.concatenate([getattr(t, name) for t in tables]) for name in ("group", "place", "sign"))
        order = np.lexsort((place, group))
        order = order[group[order] >= 0]
        number = order - offset
        mine = (number >= 0) & (number < table.frame.height)
        heads = self._heads(table, side, number, mine)

        signs, start = np.where(mine, sign[order], 0), np.searchsorted(group[order], group[order])
        total = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(signs)])
        before_batch = np.bincount(stood.group[stood.start == BEFORE], minlength=count)
        had = before_batch[group[order]] + total[:-1] - total[start]

        counts = mine.copy()
        counts[heads + 1] = False
        new = np.where(signs == 1, number, MISSING)
        new[heads] = number[heads + 1]
        at = np.flatnonzero(counts)
        old, new, had = np.where(signs[at] == -1, number[at], MISSING), new[at], had[at]
        net = (new != MISSING).astype(np.int64) - (old != MISSING)

        lone = np.flatnonzero(table.group < 0)
        none, zeros = np.full(len(lone), MISSING, dtype=np.int64), np.zeros(len(lone), dtype=np.int64)
        return _Changes(
            old=np.concatenate([old, np.where(table.sign[lone] == -1, lone, MISSING)]),
            new=np.concatenate([new, np.where(table.sign[lone] == 1, lone, MISSING)]),
            place=np.concatenate([place[order][at], table.place[lone]]),
            group=np.concatenate([group[order][at], none]),
            had=np.concatenate([had, zeros]),
            has=np.concatenate([had + net, zeros]),
        )

    def _heads(self, table: Table, side: int, number: Ints, mine: Flags) -> Ints:
        """Where in the order of all rows an old row stands that its new one follows."""
        at = np.flatnonzero(mine[:-1] & mine[1:])
        if not len(at):
            return at
        old, new = number[at], number[at + 1]
        code = codes(table.group, columns_of(table.frame, self.own[side]))
        same = (table.sign[old] == -1) & (table.sign[new] == 1) & (code[old] == code[new])
        same &= at_one_moment(table.frame, old, new)
        heads: Ints = at[same]
        return heads

    def _combined(self, tables: Sequence[Table], side: int, changes: _Changes, others: Versions) -> list[Results]:
        """What the changes of a side give: with the rows of the other side, or alone."""
        which, version = others.at(changes.group, changes.place)
        own_t = tables[side].frame[TIME].to_numpy()[changes.cause]
        alone = np.ones(len(changes.old), dtype=np.bool_)
        alone[which] = False
        single = np.flatnonzero(alone) if self._is_outer(side) else np.zeros(0, dtype=np.int64)
        nothing = np.full(len(single), MISSING, dtype=np.int64)
        with_ = np.concatenate([which, single])
        row, n = np.concatenate([others.row[version], nothing]), np.concatenate([others.n[version], nothing])
        time = np.concatenate([np.maximum(own_t[which], others.t[version]), own_t[single]])
        parts = []
        for sign, mine in ((-1, changes.old[with_]), (1, changes.new[with_])):
            at = np.flatnonzero(mine != MISSING)
            cause = changes.cause[with_[at]]
            parts.append(_results(tables, side, (cause, mine[at], row[at]), (PAIR, n[at]), time[at], sign))
        if self._is_outer(1 - side):
            for phase, sign, when in (
                (ALONE_NO_MORE, -1, (changes.old == MISSING) & (changes.had == 0)),
                (ALONE_NOW, 1, (changes.new == MISSING) & (changes.has == 0)),
            ):
                at = np.flatnonzero(when[which])
                none = np.full(len(at), MISSING, dtype=np.int64)
                cause = changes.cause[which[at]]
                parts.append(_results(tables, side, (cause, none, row[at]), (phase, n[at]), time[at], sign))
        return parts


def _results(
    tables: Sequence[Table], side: int, rows: tuple[Ints, Ints, Ints], order: tuple[int, Ints], time: Ints, sign: int
) -> Results:
    """`rows`: causes, rows of the side, rows of the other side."""
    cause, own, other = rows
    phase, n = order
    signs = np.full(len(cause), sign, dtype=np.int64)
    left, right = (own, other) if side == 0 else (other, own)
    number = cause + side * tables[0].frame.height
    return Results(left, right, number, (np.full(len(cause), phase), n, signs), time, signs)
