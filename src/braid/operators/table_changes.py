"""Changes of tables: as a multiset, as a table by another key, and of the rows that pass a condition.

In: changes of one table in processing order, spread by the key that each class names. Out: changes, at the place and
time of those that cause them.
Rule: what stands before a change says what comes of it.

`Retract`: upserts as rows that come and go. For each change the key's old row with -1 (if it had one), then the new one
with +1 (if it has one): summed up, the result is the table at every place. It makes a table fit for aggregates.
`Differing`: the same of what groups tell with what they told before; `Shown`: what of it a condition lets be seen.
`Upserts`: rows that have keys of their own as upserts by another key, that several of them may share. What stands at
one position is one change: of each row only what it is afterwards counts. Under a key those that came or changed are
written; if there are none but some went, the one written last of those that remain, or a tombstone. Under a null key
each row that comes is written, and nothing else. (docs/rules/lenses.md, "Two tables")
`TableFilter`: upserts of the rows that pass, a tombstone for one that no longer does; a key that neither passed nor
passes says nothing. (docs/rules/ksqldb.md, KR-32)

*Matches* nothing.
*Keeps* the last row of each key; the rows; the keys that pass.
*Emits* at the change's place; upserts at that of the row that came, or of the last one that went.
*Forgets* a row when it is replaced, deleted or goes, a key when it no longer passes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Col, Expr
from braid.operators.arrangement import Newest
from braid.operators.base import Behind, Result, State
from braid.operators.changes import DIFF, HASH, LAST, POS, SUB, explicit_sub, result_subs
from braid.operators.clocks import Clocks, Closing
from braid.operators.lives import Lives, Standing, arrivals, timeline
from braid.operators.pairing import MISSING, all_dropped, failed_rows, gathered, keys_of, payload_of, without_nulls
from braid.operators.ranges import Flags, Ints, alike, columns_of, order_of, rows_at
from braid.operators.watermarks import Passing, by_time
from braid.plan import groups, logical
from braid.plan.told import Kept, Told


@dataclass(frozen=True, slots=True)
class Retract(Behind):
    """Spread by the table's primary key. `passing`: of rows known by what has a watermark; `by_epoch`: nobody asks when
    a row came that takes the place of an equal one, so neither goes and comes; `apart`: several rows of one place are
    changes of their own."""

    called = "materialize"
    mode = "retract"
    passing: Passing | None = None
    by_epoch: bool = False
    apart: bool = False

    @property
    def told(self) -> Told:
        return Told([Kept("input", "rows")], notes=["a change is the old row going, the new one coming"])

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops)
        keys = keys_of(rows)
        if not rows.height:
            if self.passing is not None:
                self.passing.forgotten(state, "rows", keys, clocks)
            return Result(rows, all_dropped(drops))
        if self.apart:
            rows, _ = explicit_sub(rows)
        held = Newest(state, "rows", keys, by_time(keys, None, self.passing))
        line = timeline([rows], None, keys)
        seen = line.seen(0, 0, held)
        if self.passing is not None:
            self.passing.forget(held, clocks)
        line.keep(0, held)

        goes, comes = seen.at != MISSING, rows[DIFF].to_numpy() == 1
        return Result(_changed(rows, goes, comes, seen.parts, seen.at, self.by_epoch), all_dropped(drops))


def _changed(
    rows: pl.DataFrame,
    goes: Flags,
    comes: Flags,
    parts: Sequence[pl.DataFrame],
    last: Ints,
    by_epoch: bool,
    same: Collection[str] = (),
) -> pl.DataFrame:
    """What is changed by each row that is the first of `parts`: the one before it goes, its number is `last`; it comes.
    `by_epoch`: neither, where they are equal; the columns `same` are."""
    payload = payload_of(rows)
    if by_epoch and payload:
        both, told = np.flatnonzero(goes & comes), [c for c in payload if c not in same]
        stays = both[alike(gathered(parts, told, last[both]), rows_at(columns_of(rows, told), both))]
        goes[stays], comes[stays] = False, False
    had, has = np.flatnonzero(goes), np.flatnonzero(comes)
    cause, which = np.concatenate([had, has]), np.concatenate([last[had], has])
    second = np.arange(len(cause)) >= len(had)
    order = order_of(2 * cause + second)
    cause, which, second = cause[order], which[order], second[order]
    old = ~second
    number = (second & np.append(False, old[:-1])).astype(np.int64)  # 1: a new row after its old one
    own = rows_at(rows.drop(payload), cause).with_columns(
        pl.Series(DIFF, np.where(old, -1, 1).astype(np.int8)), result_subs(rows[SUB], cause, number)
    )
    return own.hstack(gathered(parts, payload, which))


@dataclass(frozen=True, slots=True)
class Shown:
    """Of what groups tell, and told before, only what passes is there; no row goes from its place."""

    predicate: Expr

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        if not rows.height:
            return Result(rows)
        made, _ = compile.evaluate(rows, [("_passes", self.predicate)])
        passes = made["_passes"].fill_null(False)
        return Result(rows.with_columns(rows[DIFF].set(~passes, -1)))


@dataclass(frozen=True, slots=True)
class Differing:
    """`Retract` of what groups tell, with what they told before: nothing is kept a second time. `same`: columns that
    are equal in all that a group tells."""

    same: frozenset[str] = frozenset()

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        if LAST not in rows.columns:
            return Result(rows)
        there, last = rows[DIFF].to_numpy(), rows[LAST].drop_nulls().to_numpy()
        goes, comes = (last != MISSING) & (there[last] >= 0), there[: len(last)] == 1
        return Result(_changed(rows.drop(LAST), goes, comes, [rows], last, True, self.same))


@dataclass(frozen=True, slots=True)
class Upserts(Behind):
    """`own`: the columns that the rows are known by; `keyed`: there is a key to write."""

    called = "upserts"
    mode = "upsert"
    own: tuple[str, ...]
    keyed: bool

    @property
    def told(self) -> Told:
        return Told([Kept("input", "rows")], notes=["each key has the row that was written last"])

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        if not rows.height:
            return Result(rows)
        if not self.keyed:
            return Result(rows.filter(pl.col(DIFF) == 1).with_columns(pl.lit(None, pl.UInt64).alias(HASH)))
        keys = keys_of(rows)
        base, known = arrivals(state, inputs), rows[HASH].is_not_null().to_numpy()
        came = np.flatnonzero(~known & (rows[DIFF].to_numpy() == 1))  # under a null key
        final = self._final(rows, known, keys)
        line = timeline([rows], None, keys, [final])
        lives = line.lives(0, Standing(state, "rows", keys), self.own, base)
        wrote = np.flatnonzero(final & (rows[DIFF].to_numpy() == 1))
        group = line.groups(0)
        speaks = self._speaks(rows, group, lives)
        which, life = lives.at(group[speaks], speaks)
        newest = speaks.copy()  # of a tombstone: itself
        newest[which] = lives.row[life]
        remains = np.zeros(len(speaks), dtype=np.bool_)
        remains[which] = True

        cause = np.concatenate([came, wrote, speaks])
        shown = np.concatenate([came, wrote, newest])
        diff = np.ones(len(cause), dtype=np.int8)
        diff[len(cause) - len(speaks) :] = np.where(remains, 1, -1)
        order = np.argsort(cause, kind="stable")
        columns = payload_of(rows)
        payload = gathered(lives.parts, columns, shown[order])
        own = rows_at(rows.drop(columns), cause[order]).with_columns(pl.Series(DIFF, diff[order]))
        return Result(own.hstack(payload).select(rows.columns))

    def _final(self, rows: pl.DataFrame, known: Flags, keys: list[str]) -> Flags:
        """Whether a row has a key, and is the last of its own key at its position and under its key."""
        place = rows[POS].rle_id().alias("_place")
        numbered = columns_of(rows, [HASH, *keys, *self.own]).with_columns(place).with_row_index("_i")
        numbered = numbered.filter(pl.Series(known))
        last = numbered.select(pl.col("_i").max().over("_place", HASH, *keys, *self.own))["_i"]
        final = np.zeros(rows.height, dtype=np.bool_)
        final[last.to_numpy()] = True
        return final

    def _speaks(self, rows: pl.DataFrame, group: Ints, lives: Lives) -> Ints:
        """The rows that went, one for each position and key at which none came: the last."""
        final = np.flatnonzero(group >= 0)
        spoken = rows[POS].rle_id().to_numpy().astype(np.int64)[final] * (len(lives.first) + 1) + group[final]
        sign = rows[DIFF].to_numpy()[final]
        at = np.flatnonzero((sign == -1) & np.isin(final, lives.stop) & ~np.isin(spoken, spoken[sign == 1]))
        _, first = np.unique(spoken[at][::-1], return_index=True)
        return np.sort(final[at[len(at) - 1 - first]])


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Spread by the table's primary key. `kept`: payload columns that a tombstone keeps, those of the key;
    `closing`: of groups in windows; `passing`: of rows known by what has a watermark; `names`: what to call columns
    that only the plan has."""

    predicate: Expr
    kept: tuple[str, ...]
    closing: Closing | None = None
    passing: Passing | None = None
    names: Mapping[str, str] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(node: logical.Filter, closing: Closing | None = None, passing: Passing | None = None) -> TableFilter:
        own, called = tuple(e.name for e in node.row_key if isinstance(e, Col)), groups.names(node.input)
        return TableFilter(node.predicate, own, closing, passing, called)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops)
        keys = keys_of(rows)
        if not rows.height:
            if self.passing is not None:
                self.passing.forgotten(state, "passing", keys, clocks)
            return Result(rows, all_dropped(drops))
        held = Newest(state, "passing", keys, by_time(keys, self.closing, self.passing))
        alive = rows[DIFF].to_numpy() == 1
        made, failed = compile.evaluate(rows, [("_passes", self.predicate)])
        told = failed_rows(rows, failed, [self.predicate], names=self.names)
        if told is not None:
            drops.append(told)
        passes = made["_passes"].fill_null(False).to_numpy() & alive
        diff = pl.Series(DIFF, np.where(passes, 1, -1).astype(np.int8))
        verdicts = columns_of(rows, [HASH, *keys]).hstack([diff])
        line = timeline([verdicts], None, keys)
        passed = line.seen(0, 0, held).at != MISSING
        if self.closing is not None:
            held.forget(self.closing.open_from(clocks))
        if self.passing is not None:
            self.passing.forget(held, clocks)
        line.keep(0, held)

        at = np.flatnonzero(passes | passed)
        names = [c for c in payload_of(rows) if c not in self.kept]
        values = gathered([rows], names, np.where(passes[at], at, MISSING))
        return Result(rows_at(rows, at).with_columns(diff[at], *values.get_columns()), all_dropped(drops))
