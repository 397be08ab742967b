"""Aggregate: one row per group, emitted after every change of it.

In: rows (append), or rows and rows taken back (retract), spread by the grouping key, in processing order. Out: upserts
of the result, one for each input row; an old and a new row of one change and one group give one.
Rule: running values are those after each row, whatever the batches; sums of DOUBLE are added up in processing order.
(specs/ksqldb.md 3.9)

*Matches* nothing.
*Keeps* one row a group: its accumulators and its highest time.
*Emits* at the input row's place; time is the highest of the group so far.
*Forgets* nothing: a group that is empty again stands with COUNT 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.operators.arrangement import Newest
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, POS, SUB, TIME, key_column, result_sub
from braid.operators.clocks import Clocks
from braid.operators.pairing import dropped_rows, without_null_keys
from braid.operators.ranges import begins, grouped
from braid.operators.versions import as_of, keep
from braid.plan import logical
from braid.types import Decimal, Scalar, Type, polars_type

GROUP, START = "_g", "_start"


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How one aggregate runs. `columns`: names of its accumulators for aggregate i and their types; `running`: the
    accumulators after each row, from the value column, `_diff` and what stood at the group's start; `result`: the value."""

    columns: Callable[[Type], tuple[pl.DataType, ...]]
    running: Callable[[pl.Expr, Sequence[str], Type], list[pl.Expr]]
    result: Callable[[Sequence[str], Type], pl.Expr]


def _wide(t: Type) -> pl.DataType:
    """The type that sums are made in."""
    match t:
        case Decimal(scale=scale):
            return pl.Decimal(38, scale)
        case Scalar.DOUBLE:
            return pl.Float64()
        case _:
            return pl.Int64()


def _sum(value: pl.Expr, name: str, t: pl.DataType) -> pl.Expr:
    """Start and values, added up one after the other. A start row has its value in the accumulator column itself."""
    signed = pl.when(pl.col(DIFF) < 0).then(-value).otherwise(value).fill_null(0)
    return pl.when(pl.col(START)).then(pl.col(name)).otherwise(signed.cast(t)).cum_sum().over(GROUP).alias(name)


def _count(value: pl.Expr, name: str) -> pl.Expr:
    one = pl.when(value.is_null()).then(0).otherwise(pl.col(DIFF)).cast(pl.Int64)
    return pl.when(pl.col(START)).then(pl.col(name)).otherwise(one).cum_sum().over(GROUP).alias(name)


def _narrow(e: pl.Expr, t: Type) -> pl.Expr:
    """A sum as its result type: integers wrap."""
    if t == Scalar.INT:
        return ((e + 2**31) % 2**32 - 2**31).cast(pl.Int32)
    return e.cast(polars_type(t), strict=False)


def _extreme(value: pl.Expr, name: str, largest: bool) -> pl.Expr:
    """By rank, so that every ordered type works: the best rank so far leads to its value."""
    held = pl.when(pl.col(START)).then(pl.col(name)).otherwise(value)
    rank = held.rank("dense").cast(pl.Int64)
    best = (rank.cum_max() if largest else rank.cum_min()).over(GROUP).forward_fill().over(GROUP)
    at_best = pl.when(rank == best).then(held)
    return at_best.forward_fill().over(GROUP).alias(name)


ACCUMULATIONS: dict[str, Accumulation] = {
    "COUNT": Accumulation(
        lambda t: (pl.Int64(),), lambda v, n, t: [_count(v, n[0])], lambda n, t: pl.col(n[0])
    ),
    "SUM": Accumulation(
        lambda t: (_wide(t),), lambda v, n, t: [_sum(v, n[0], _wide(t))], lambda n, t: _narrow(pl.col(n[0]), t)
    ),
    "AVG": Accumulation(
        lambda t: (pl.Float64(), pl.Int64()),
        lambda v, n, t: [_sum(v.cast(pl.Float64), n[0], pl.Float64()), _count(v, n[1])],
        lambda n, t: pl.when(pl.col(n[1]) == 0).then(0.0).otherwise(pl.col(n[0]) / pl.col(n[1])),
    ),
    "MIN": Accumulation(
        lambda t: (polars_type(t),), lambda v, n, t: [_extreme(v, n[0], largest=False)], lambda n, t: pl.col(n[0])
    ),
    "MAX": Accumulation(
        lambda t: (polars_type(t),), lambda v, n, t: [_extreme(v, n[0], largest=True)], lambda n, t: pl.col(n[0])
    ),
    "LATEST_BY_OFFSET": Accumulation(
        lambda t: (polars_type(t),),
        lambda v, n, t: [
            pl.when(pl.col(START)).then(pl.col(n[0])).otherwise(v).forward_fill().over(GROUP).alias(n[0])
        ],
        lambda n, t: pl.col(n[0]),
    ),
}


@dataclass(frozen=True, slots=True)
class GroupBy:
    keys: tuple[str, ...]  # plan columns of the grouping key, beside `_k0` …
    aggregations: tuple[logical.Aggregation, ...]

    @staticmethod
    def of(node: logical.Aggregate) -> GroupBy:
        return GroupBy(tuple(c.name for c, _ in node.keys), node.aggregations)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        rows, keyless = without_null_keys(inputs[0], None)
        keys = [key_column(i) for i in range(len(self.keys))]
        held = Newest(state, "groups", keys)
        if not rows.height:
            rows = rows.select(POS, SUB, TIME, DIFF, HASH, *keys).hstack(self._empty())
            return Result(self._finished(rows), keyless)
        arguments = [(f"_v{i}", a.arg) for i, a in enumerate(self.aggregations) if a.arg is not None]
        values, failed = compile.evaluate(rows, arguments)
        dropped = [keyless] if keyless is not None else []
        if failed.any():
            dropped.append(dropped_rows(rows.filter(failed), "expression", None))
        headers = [c for c in rows.columns if c == "_headers"]
        rows = rows.select(POS, SUB, TIME, DIFF, HASH, *keys, *headers).hstack(values)
        running = self._running(rows, keys, held)
        rows = rows.with_columns(running.get_columns())
        keep(held, rows.with_columns(pl.lit(1, pl.Int8).alias(DIFF)).select(TIME, DIFF, HASH, *keys, *self._names()))
        return Result(self._finished(_once_a_change(rows, keys)), pl.concat(dropped) if dropped else None)

    def _names(self) -> list[str]:
        return [n for i, _ in enumerate(self.aggregations) for n in self._columns(i)]

    def _columns(self, i: int) -> dict[str, pl.DataType]:
        """Accumulator columns of aggregate i."""
        a = self.aggregations[i]
        types = ACCUMULATIONS[a.function].columns(a.arg.type if a.arg is not None else Scalar.BIGINT)
        return {f"_a{i}_{j}": t for j, t in enumerate(types)}

    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema={n: t for i in range(len(self.aggregations)) for n, t in self._columns(i).items()})

    def _running(self, rows: pl.DataFrame, keys: list[str], held: Newest) -> pl.DataFrame:
        """`_t` and the accumulators after each row, in the rows' order."""
        order, ids = grouped(rows, keys)
        first = np.flatnonzero(begins(ids))
        group = np.cumsum(begins(ids)) - 1
        starts = self._starts(rows[order[first]], keys, held)
        marked = pl.concat(
            [
                starts.with_columns(pl.lit(True).alias(START), pl.Series(GROUP, np.arange(len(first), dtype=np.int64))),
                rows[order].select(TIME, DIFF, *(c for c in rows.columns if c.startswith("_v"))).with_columns(
                    pl.lit(False).alias(START), pl.Series(GROUP, group, dtype=pl.Int64)
                ),
            ],
            how="diagonal",
        )
        exprs = [pl.col(TIME).cum_max().over(GROUP)]
        for i, a in enumerate(self.aggregations):
            value = pl.col(f"_v{i}") if a.arg is not None else pl.lit(1)
            t = a.arg.type if a.arg is not None else Scalar.BIGINT
            exprs += ACCUMULATIONS[a.function].running(value, list(self._columns(i)), t)
        # Start rows come first, so within each group the order is: start, then the rows.
        made = marked.with_columns(exprs).filter(~pl.col(START)).select(TIME, *self._names())
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return made[back]

    def _starts(self, groups: pl.DataFrame, keys: list[str], held: Newest) -> pl.DataFrame:
        """What stood of each group before the batch: zeros and nulls for a new one."""
        place = np.zeros(groups.height, dtype=np.int64)
        seen = as_of(groups, place, groups.clear(), np.empty(0, dtype=np.int64), held)
        kept = seen.parts[1] if len(seen.parts) > 1 else None
        names = [TIME, *self._names()]
        if kept is None:
            frame = pl.DataFrame({n: [None] * groups.height for n in names}, schema={TIME: pl.Int64(), **self._empty().schema})
        else:
            at = pl.Series(np.where(seen.at < 0, kept.height, seen.at))
            frame = pl.concat([kept.select(names), kept.select(names).clear(1)])[at]
        counted = [n for i, a in enumerate(self.aggregations) if a.function in ("COUNT", "SUM", "AVG") for n in self._columns(i)]
        return frame.with_columns(pl.col(n).fill_null(0) for n in counted)

    def _finished(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Accumulators as results, grouping keys as plan columns."""
        results = []
        for i, a in enumerate(self.aggregations):
            value = ACCUMULATIONS[a.function].result(list(self._columns(i)), a.output.type)
            results.append(value.cast(polars_type(a.output.type)).alias(a.output.name))
        keys = [pl.col(key_column(i)).alias(name) for i, name in enumerate(self.keys)]
        numbers = pl.Series(np.zeros(rows.height, dtype=np.int64))
        dropped = [c for c in rows.columns if c.startswith(("_a", "_v"))]
        return rows.with_columns(
            pl.lit(1, pl.Int8).alias(DIFF), result_sub(rows[SUB], numbers).alias(SUB), *keys, *results
        ).drop(dropped)


def _once_a_change(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Without old rows whose new row follows at the same place in the same group: one change is one result."""
    if not (rows[DIFF] == -1).any():
        return rows
    following = rows.select(POS, HASH, *keys, DIFF).shift(-1)
    same = rows[POS].eq_missing(following[POS]) & rows[HASH].eq_missing(following[HASH])
    for key in keys:
        same &= rows[key].eq_missing(following[key])
    return rows.filter(~((rows[DIFF] == -1) & same & (following[DIFF] == 1)))
