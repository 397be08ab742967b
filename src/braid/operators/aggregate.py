"""Aggregate: one row per group, emitted after every change of it.

In: rows (append), or rows and rows taken back (retract), spread by the grouping key, in processing order. Out: upserts
of the result, one for each input row; an old and a new row of one change and one group give one.
Rule: running values are those after each row, whatever the batches; sums of DOUBLE are added up in processing order;
nulls do not count, nothing adds up to zero. (docs/rules/ksqldb.md, "Groups")

*Matches* nothing.
*Keeps* one row a group: its accumulators and its highest time.
*Emits* at the input row's place; time is the highest of the group so far.
*Forgets* groups of windows that are closed, else nothing: a group that is empty again stands with COUNT 0.

Which functions exist, over what, is told by `expr.aggregates`; here is how each runs.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Col, Expr
from braid.operators.arrangement import Newest
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, HEADERS, POS, SUB, TIME, at_one_moment, key_column, no_rows, one_change
from braid.operators.clocks import Clocks, Closing
from braid.operators.collecting import COLLECTED
from braid.operators.lives import Standing, Timeline, arrivals, timeline
from braid.operators.pairing import MISSING, all_dropped, dropped_rows, gathered, without_nulls
from braid.operators.ranges import Flags, Ints, columns_of, rows_at, values_at
from braid.operators.user_aggregate import accumulation_of
from braid.plan import logical
from braid.plan.node import Mode
from braid.types import Decimal, Scalar, Type, polars_type


@dataclass(frozen=True, slots=True)
class Groups:
    """The rows of a batch by group, each group's in processing order and led by a row for what stood before."""

    group: Ints
    start: Flags
    first: Ints  # where each group begins
    diff: Ints  # 0 for the leading rows

    def spread(self, leading: pl.Series, values: pl.Series) -> pl.Series:
        """One value for each place: of the leading rows, and of the others."""
        at = np.empty(len(self.group), dtype=np.int64)
        at[self.start] = np.arange(len(self.first))
        at[~self.start] = len(self.first) + np.arange(len(values))
        return values_at(leading.clone().append(values), at)

    def sums(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Running sums within each group; they wrap."""
        total = np.cumsum(values)
        return total - (total[self.first] - values[self.first])[self.group]

    def maxima(self, values: Ints) -> Ints:
        """Running maxima within each group."""
        if not len(values):
            return values
        low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span.bit_length() + len(self.first).bit_length() < 63:
            shift = self.group * span
            return np.maximum.accumulate(values - low + shift) - shift + low
        return self.over(pl.col("v").cum_max(), pl.Series(values)).to_numpy()

    def over(self, running: pl.Expr, values: pl.Series) -> pl.Series:
        """A running value of column `v` within each group."""
        frame = pl.DataFrame([values.alias("v"), pl.Series("g", self.group)])
        return frame.select(running.over("g", mapping_strategy="explode"))["v"]


Running = Callable[[Groups, pl.Series, Sequence[pl.Series]], list[pl.Series]]


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How one aggregate runs. `columns`: the types of its accumulators for a type of argument; `running`: each of them
    after each row, from the groups, the argument and what stood before; `result`: the value of them, of a type."""

    columns: Callable[[Type], tuple[pl.DataType, ...]]
    running: Running
    result: Callable[[Sequence[pl.Series], Type], pl.Series]


def _wide(t: Type) -> pl.DataType:
    """The type that sums are made in."""
    match t:
        case Decimal(scale=scale):
            return pl.Decimal(38, scale)
        case Scalar.DOUBLE:
            return pl.Float64()
        case _:
            return pl.Int64()


def _sum(groups: Groups, value: pl.Series, held: pl.Series) -> pl.Series:
    """In the type of `held`: what stood before, then the values one after the other."""
    taken_back = pl.Series(groups.diff[~groups.start] < 0)
    wide = value.cast(held.dtype)
    signed = (wide if not taken_back.any() else (-wide).zip_with(taken_back, wide)).fill_null(0)
    sequence = groups.spread(held.fill_null(0), signed)
    if held.dtype == pl.Int64:
        return pl.Series(groups.sums(sequence.to_numpy()))
    return groups.over(pl.col("v").cum_sum(), sequence)


def _count(groups: Groups, value: pl.Series, held: pl.Series) -> pl.Series:
    counted = groups.diff[~groups.start] * value.is_not_null().to_numpy()
    return pl.Series(groups.sums(groups.spread(held.fill_null(0), pl.Series(counted)).to_numpy()))


def _latest(groups: Groups, value: pl.Series, held: pl.Series) -> pl.Series:
    sequence = groups.spread(held, value)
    known = np.where(sequence.is_not_null().to_numpy(), np.arange(len(sequence)), groups.first[groups.group])
    return values_at(sequence, groups.maxima(known))


def _extreme(groups: Groups, value: pl.Series, held: pl.Series, largest: bool) -> pl.Series:
    """By rank, so that every ordered type works."""
    sequence = groups.spread(held, value)
    rank = sequence.rank("dense").cast(pl.Int64).fill_null(0).to_numpy()
    worth = rank if largest else np.where(rank > 0, rank.max(initial=0) + 1 - rank, 0)  # 0: a null
    best = groups.maxima(worth)
    example = np.zeros(len(sequence) + 2, dtype=np.int64)  # a place where each rank stands
    example[worth] = np.arange(len(sequence))
    found = values_at(sequence, example[best])
    return found.set(pl.Series(best == 0), None) if (best == 0).any() else found


def _narrow(total: pl.Series, t: Type) -> pl.Series:
    """A sum as its result type: integers wrap, a DECIMAL that does not fit is null."""
    if t == Scalar.INT:
        return pl.Series(total.to_numpy().astype(np.int32))
    return total.cast(polars_type(t), strict=False)


def _average(held: Sequence[pl.Series], t: Type) -> pl.Series:
    total, count = held[0].to_numpy(), held[1].to_numpy()
    return pl.Series(np.divide(total, count, out=np.zeros(len(total)), where=count != 0))


def _first(held: Sequence[pl.Series], t: Type) -> pl.Series:
    return held[0]


ACCUMULATIONS: dict[str, Accumulation] = {
    "COUNT": Accumulation(lambda t: (pl.Int64(),), lambda g, v, held: [_count(g, v, held[0])], _first),
    "SUM": Accumulation(
        lambda t: (_wide(t),), lambda g, v, held: [_sum(g, v, held[0])], lambda held, t: _narrow(held[0], t)
    ),
    "AVG": Accumulation(
        lambda t: (pl.Float64(), pl.Int64()),
        lambda g, v, held: [_sum(g, v, held[0]), _count(g, v, held[1])],
        _average,
    ),
    "MIN": Accumulation(
        lambda t: (polars_type(t),), lambda g, v, held: [_extreme(g, v, held[0], largest=False)], _first
    ),
    "MAX": Accumulation(
        lambda t: (polars_type(t),), lambda g, v, held: [_extreme(g, v, held[0], largest=True)], _first
    ),
    "LATEST": Accumulation(lambda t: (polars_type(t),), lambda g, v, held: [g.spread(held[0], v)], _first),
    "LATEST_BY_OFFSET": Accumulation(lambda t: (polars_type(t),), lambda g, v, held: [_latest(g, v, held[0])], _first),
}


def accumulation(a: logical.Aggregation) -> Accumulation:
    """How an aggregate runs; one with options keeps values."""
    if a.code is not None:
        return Accumulation(*accumulation_of(a.code, a.output.type))
    plain = ACCUMULATIONS.get(a.function) if not a.options else None
    return plain or Accumulation(*COLLECTED[a.function](*a.options))


@dataclass(frozen=True, slots=True)
class GroupBy:
    """`keys`: plan columns of the grouping key, beside `_k0` …; `own`: those that the rows of a table are known by
    (None: rows only come); `mode`: of the input; `closing`: of groups in windows."""

    keys: tuple[str, ...]
    aggregations: tuple[logical.Aggregation, ...]
    own: tuple[str, ...] | None = None
    mode: Mode = "append"
    closing: Closing | None = None

    @staticmethod
    def of(node: logical.Aggregate, closing: Closing | None = None) -> GroupBy:
        mode = node.input.mode
        own = tuple(e.name for e in node.input.row_key if isinstance(e, Col))
        latest = any(a.function == "LATEST" for a in node.aggregations) and mode != "append"
        names = tuple(c.name for c, _ in node.keys)
        return GroupBy(names, node.aggregations, own if latest else None, mode, closing)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops)
        keys = [key_column(i) for i in range(len(self.keys))]
        if not rows.height:
            return Result(self._nothing(rows, keys), all_dropped(drops))
        held = Newest(state, "groups", keys, None if self.closing is None else keys[-1])
        arguments = [(f"{i}", a.arg) for i, a in enumerate(self.aggregations) if a.arg is not None]
        values, failed = compile.evaluate(rows, arguments) if arguments else (pl.DataFrame(), pl.Series([False]))
        failures = [failed] if failed.any() else []
        line = timeline([rows], None, keys)
        shown = values if self.own is None else self._shown(line, keys, arguments, values, state)
        groups, before = self._before(line, rows, held)
        stood = groups.spread(before[TIME], rows_at(rows, line.number)[TIME])
        running = {TIME: pl.Series(groups.maxima(stood.to_numpy()))}
        everything = pl.repeat(1, rows.height, eager=True)
        for i, a in enumerate(self.aggregations):
            known = shown if a.function == "LATEST" else values
            value = values_at(everything if a.arg is None else known[f"{i}"], line.number)
            names = list(self._columns(i))
            made = accumulation(a).running(groups, value, [before[n] for n in names])
            running |= dict(zip(names, made, strict=True))
        back = np.empty(rows.height, dtype=np.int64)
        back[line.number] = np.flatnonzero(~groups.start)
        after = rows_at(pl.DataFrame([s.alias(n) for n, s in running.items()]), back)
        # the last column of a user's aggregate says where it failed
        failures += [after[list(self._columns(i))[-1]] for i, a in enumerate(self.aggregations) if a.code is not None]
        if failures and (wrong := functools.reduce(operator.or_, failures)).any():
            drops.append(dropped_rows(rows.filter(wrong), "expression", None))

        if self.closing is not None:
            held.forget(self.closing.open_from(clocks))
        stands = pl.repeat(1, rows.height, dtype=pl.Int8, eager=True).alias(DIFF)
        line.keep(0, held, columns_of(rows, [HASH, *keys]).hstack([stands, *after.get_columns()]))
        told = np.flatnonzero(_tells(line, rows, by_place=self.mode == "retract"))
        names = [POS, SUB, HASH, *keys, *([HEADERS] if HEADERS in rows.columns else [])]
        return Result(self._finished(columns_of(rows, names).hstack([stands]), after, keys, told), all_dropped(drops))

    def _shown(
        self,
        line: Timeline,
        keys: Sequence[str],
        arguments: list[tuple[str, Expr]],
        values: pl.DataFrame,
        state: State,
    ) -> pl.DataFrame:
        """The arguments of the row of each group that was written last, of those that stand after each row."""
        assert self.own is not None
        lives = line.lives(0, Standing(state, "rows", keys), self.own, arrivals(state, line.inputs))
        which, life = lives.at(line.groups(0), line.places[0], after=True)
        newest = np.full(values.height, MISSING, dtype=np.int64)
        newest[which] = lives.row[life]
        parts = [values, *(compile.evaluate(p, arguments)[0] for p in lives.parts[1:])]
        return gathered(parts, values.columns, newest)

    def _nothing(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """No rows, with the columns of the result."""
        schema = {c: rows.schema[c] for c in (POS, SUB, TIME, DIFF, HASH, *keys)}
        schema |= {name: rows.schema[k] for k, name in zip(keys, self.keys, strict=True)}
        return no_rows(schema | {a.output.name: polars_type(a.output.type) for a in self.aggregations})

    def _columns(self, i: int) -> dict[str, pl.DataType]:
        """Accumulator columns of aggregate i."""
        a = self.aggregations[i]
        types = accumulation(a).columns(a.arg.type if a.arg is not None else Scalar.BIGINT)
        return {f"_a{i}_{j}": t for j, t in enumerate(types)}

    def _before(self, line: Timeline, rows: pl.DataFrame, held: Newest) -> tuple[Groups, pl.DataFrame]:
        """The groups, and what stood of each before the batch: nulls for a new one."""
        count, n = len(line.first), rows.height
        start = np.zeros(n + count, dtype=np.bool_)
        start[line.first + np.arange(count)] = True
        diff = np.zeros(n + count, dtype=np.int64)
        diff[~start] = rows[DIFF].to_numpy()[line.number]
        groups = Groups(np.cumsum(start) - 1, start, np.flatnonzero(start), diff)
        schema: dict[str, pl.DataType] = {TIME: pl.Int64()}
        for i in range(len(self.aggregations)):
            schema |= self._columns(i)
        kept = held.probe(line.looking)
        before = pl.DataFrame({name: pl.Series([None] * count, dtype=t) for name, t in schema.items()})
        if kept.rows is not None:
            at = count + np.arange(kept.rows.height)
            which = np.arange(count)
            which[kept.looking] = at
            before = rows_at(before.vstack(columns_of(kept.rows, list(schema))).rechunk(), which)
        return groups, before.with_columns(pl.col(TIME).fill_null(rows[TIME].min()))

    def _finished(self, rows: pl.DataFrame, after: pl.DataFrame, keys: Sequence[str], told: Ints) -> pl.DataFrame:
        """Accumulators as results, grouping keys as plan columns."""
        rows, after = rows_at(rows, told), rows_at(after, told)
        made = [rows[k].alias(name) for k, name in zip(keys, self.keys, strict=True)]
        for i, a in enumerate(self.aggregations):
            held = [after[n] for n in self._columns(i)]
            value = accumulation(a).result(held, a.output.type)
            made.append(value.cast(polars_type(a.output.type)).alias(a.output.name))
        headers = [rows[HEADERS]] if HEADERS in rows.columns else []
        internal = [rows[POS], rows[SUB], after[TIME], rows[DIFF], rows[HASH], *(rows[k] for k in keys), *headers]
        return pl.DataFrame([*internal, *made])


def _tells(line: Timeline, rows: pl.DataFrame, by_place: bool) -> Flags:
    """All rows but the old ones whose new row follows in the same group: one change gives one result. `by_place`: all
    that stands at one position, on the same side of its step, is one change."""
    tells = np.ones(rows.height, dtype=np.bool_)
    diff = rows[DIFF].to_numpy()[line.number]
    pair = np.flatnonzero((diff[:-1] == -1) & (diff[1:] == 1) & (line.group[1:] == line.group[:-1]))
    if len(pair):
        old, new = line.number[pair], line.number[pair + 1]
        same = at_one_moment(rows, old, new)
        if not by_place:
            parents = one_change(rows)
            same &= values_at(parents, old).eq_missing(values_at(parents, new)).to_numpy()
        tells[old[same]] = False
    return tells
