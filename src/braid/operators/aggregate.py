"""Aggregate: one row per group, emitted after every change of it.

In: rows (append), or rows and rows taken back (retract), spread by the grouping key, in processing order. Out: upserts
of the result, one for each input row; an old and a new row of one change and one group give one.
Rule: running values are those after each row, whatever the batches; sums of DOUBLE are added up in processing order;
nulls do not count, nothing adds up to zero. (docs/rules/ksqldb.md, "Groups")

*Matches* nothing.
*Keeps* one row a group: its accumulators and its highest time; for MIN and MAX of rows that come and go their values.
*Emits* at the input row's place; time is the highest of the group so far.
*Forgets* groups of windows that are closed, else nothing: a group that is empty again stands with COUNT 0, unless
nobody sees it. What sums of floating-point numbers would leave behind goes where a group has no rows at the end of an
epoch (`begins_again`).

Which functions exist, over what, is told by `expr.aggregates`; here is how each runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from braid.expr import compile, reasons, user
from braid.expr.nodes import Col, Expr
from braid.operators import totals
from braid.operators.accumulation import Accumulation, Groups, Merged, Scanned, ends_of
from braid.operators.arrangement import Newest
from braid.operators.base import Result, State
from braid.operators.changes import (
    DIFF,
    HASH,
    HEADERS,
    POS,
    SUB,
    TIME,
    at_one_moment,
    key_column,
    no_rows,
    one_change,
    sequence_of,
)
from braid.operators.clocks import Clocks, Closing
from braid.operators.collecting import COLLECTED
from braid.operators.extremes import Extreme, Values
from braid.operators.lives import Standing, Timeline, arrivals, timeline
from braid.operators.pairing import MISSING, all_dropped, dropped_rows, failed_rows, gathered, without_nulls
from braid.operators.ranges import Flags, Ints, columns_of, order_of, rows_at, values_at
from braid.operators.user_aggregate import accumulation_of
from braid.operators.watermarks import Passing, by_time
from braid.operators.watermarks import after as after_batch
from braid.plan import groups
from braid.plan.drop_reasons import Reason
from braid.plan.groups import GATHER
from braid.plan.node import Mode
from braid.types import Column, Decimal, Scalar, Struct, Type, polars_type

MOST_TOLD = 1000  # rows of a batch and bucket whose errors of a user's aggregate are told
NUMBER, VALUE = "n", "v"  # of values that carry the number of their arrival
BY_ARRIVAL = ("LATEST", "LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET")


def _wide(t: Type) -> tuple[pl.DataType, ...]:
    """What sums are made in."""
    match t:
        case Decimal():
            return totals.columns(t)
        case Scalar.DOUBLE:
            return (pl.Float64(),)
        case Scalar.REAL:
            return (pl.Float32(),)
        case _:
            return (pl.Int64(),)


def _sums(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
    return totals.running(groups, value, held) if len(held) > 1 else [_sum(groups, value, held[0])]


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


def _least(groups: Groups, value: pl.Series, held: pl.Series) -> pl.Series:
    return _extreme(groups, value, held, largest=False)


def _largest(groups: Groups, value: pl.Series, held: pl.Series) -> pl.Series:
    return _extreme(groups, value, held, largest=True)


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


def _narrow(held: Sequence[pl.Series], t: Type) -> pl.Series:
    """A sum as its result type: integers wrap, a DECIMAL that does not fit is null."""
    if len(held) > 1:
        return totals.total(held, t)
    if t == Scalar.INT:
        return pl.Series(held[0].to_numpy().astype(np.int32))
    return held[0].cast(polars_type(t), strict=False)


def _too_large(held: Sequence[pl.Series], t: Type) -> pl.Series:
    return totals.total(held, t).is_null() if len(held) > 1 else pl.repeat(False, len(held[0]), eager=True)


def _average(held: Sequence[pl.Series], t: Type) -> pl.Series:
    total, count = held[0].to_numpy(), held[1].to_numpy()
    return pl.Series(np.divide(total, count, out=np.zeros(len(total)), where=count != 0))


def _first(held: Sequence[pl.Series], t: Type) -> pl.Series:
    return held[0]


def _as_values(running: Callable[[Groups, pl.Series, pl.Series], pl.Series]) -> tuple[Merged, Scanned]:
    """Each accumulator of a session as one value that comes after those of the others."""

    def scanned(groups: Groups, values: Sequence[pl.Series], held: Sequence[pl.Series]) -> list[pl.Series]:
        return [running(groups, v, h) for v, h in zip(values, held, strict=True)]

    return _by_scan(scanned)


def _by_scan(scanned: Scanned) -> tuple[Merged, Scanned]:
    """Two sessions as one: the second comes after the first."""

    def merged(first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
        count = len(first[0])
        places = np.arange(2 * count)
        groups = Groups(places // 2, places % 2 == 0, places[::2], places % 2)
        return [x.gather_every(2, 1) for x in scanned(groups, second, first)]

    return merged, scanned


def _last_to_come(groups: Groups, value: pl.Series, held: pl.Series) -> pl.Series:
    """Of values with their numbers."""
    sequence = groups.spread(held, value)
    number = sequence.struct.field(NUMBER).fill_null(-1).to_numpy()
    order = order_of(number)
    return values_at(sequence, order[np.searchsorted(number[order], groups.maxima(number))])


def _sums_of_sums(groups: Groups, values: Sequence[pl.Series], held: Sequence[pl.Series]) -> list[pl.Series]:
    if isinstance(held[0].dtype, pl.Decimal):
        rest = [_sum(groups, v, h) for v, h in zip(values[2:], held[2:], strict=True)]
        return [*totals.scanned(groups, values[:2], held[:2]), *rest]
    return [_sum(groups, v, h) for v, h in zip(values, held, strict=True)]


_added, _newest = _by_scan(_sums_of_sums), _as_values(_last_to_come)

ACCUMULATIONS: dict[str, Accumulation] = {
    "COUNT": Accumulation(lambda t: (pl.Int64(),), lambda g, v, held: [_count(g, v, held[0])], _first, *_added),
    "SUM": Accumulation(_wide, _sums, _narrow, *_added, _too_large),
    "AVG": Accumulation(
        lambda t: (pl.Float64(), pl.Int64()),
        lambda g, v, held: [_sum(g, v, held[0]), _count(g, v, held[1])],
        _average,
        *_added,
    ),
    "MIN": Accumulation(
        lambda t: (polars_type(t),), lambda g, v, held: [_least(g, v, held[0])], _first, *_as_values(_least)
    ),
    "MAX": Accumulation(
        lambda t: (polars_type(t),), lambda g, v, held: [_largest(g, v, held[0])], _first, *_as_values(_largest)
    ),
    "LATEST": Accumulation(lambda t: (polars_type(t),), lambda g, v, held: [g.spread(held[0], v)], _first, *_newest),
    "LATEST_BY_OFFSET": Accumulation(
        lambda t: (polars_type(t),), lambda g, v, held: [_latest(g, v, held[0])], _first, *_newest
    ),
}

EXACT_AVG = Accumulation(
    lambda t: (*_wide(t), pl.Int64()),
    lambda g, v, held: [*_sums(g, v, held[:2]), _count(g, v, held[2])],
    totals.mean,
    *_added,
    lambda held, t: totals.mean(held, t).is_null() & (held[2] > 0),
)


def accumulation(a: groups.Aggregation) -> Accumulation:
    """How an aggregate runs; one with options keeps values."""
    if a.code is not None:
        return accumulation_of(a.code, a.output.type)
    if a.function == "AVG" and isinstance(a.output.type, Decimal):
        return EXACT_AVG
    plain = ACCUMULATIONS.get(a.function) if not a.options else None
    return plain or COLLECTED[a.function](*a.options)


@dataclass(frozen=True, slots=True)
class Accumulators:
    """The accumulators of some aggregates, as columns. `numbered`: values of which the first or the last to come count
    carry numbers, so that those of two sessions can be told apart."""

    aggregations: tuple[groups.Aggregation, ...]
    numbered: bool = False

    @property
    def arguments(self) -> list[tuple[str, Expr]]:
        return [(f"{i}", a.arg) for i, a in enumerate(self.aggregations) if a.arg is not None]

    def columns(self, i: int) -> dict[str, pl.DataType]:
        """Those of aggregate i."""
        a = self.aggregations[i]
        t = a.arg.type if a.arg is not None else Scalar.BIGINT
        if self._numbers(a):
            t = Struct((Column(NUMBER, Scalar.BIGINT), Column(VALUE, t)))
        return {f"_a{i}_{j}": t for j, t in enumerate(accumulation(a).columns(t))}

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {name: t for i in range(len(self.aggregations)) for name, t in self.columns(i).items()}

    def running(
        self,
        groups: Groups,
        values: Sequence[pl.Series],
        before: pl.DataFrame,
        numbers: Ints | None = None,
        found: Mapping[int, pl.Series] | None = None,
    ) -> list[pl.Series]:
        """After each place: from the arguments (and the numbers) of the rows, group by group, and what stood before.
        `found`: of some aggregates, by number, what has been found already."""
        made: list[pl.Series] = []
        for i, a in enumerate(self.aggregations):
            names = list(self.columns(i))
            if found is not None and i in found:
                made.append(found[i].alias(names[0]))
                continue
            value = values[i] if numbers is None or not self._numbers(a) else _numbered(values[i], numbers, a)
            ran = accumulation(a).running(groups, value, [before[n] for n in names])
            made += (s.alias(n) for s, n in zip(ran, names, strict=True))
        return made

    def merged(self, first: pl.DataFrame, second: pl.DataFrame) -> list[pl.Series]:
        made: list[pl.Series] = []
        for i, a in enumerate(self.aggregations):
            names = list(self.columns(i))
            found = accumulation(a).merged([first[n] for n in names], [second[n] for n in names])
            made += (s.alias(n) for s, n in zip(found, names, strict=True))
        return made

    @property
    def scan(self) -> bool:
        return all(accumulation(a).scanned is not None for a in self.aggregations)

    def scanned(self, groups: Groups, values: pl.DataFrame, before: pl.DataFrame) -> list[pl.Series]:
        made: list[pl.Series] = []
        for i, a in enumerate(self.aggregations):
            names, scanned = list(self.columns(i)), accumulation(a).scanned
            assert scanned is not None
            found = scanned(groups, [values[n] for n in names], [before[n] for n in names])
            made += (s.alias(n) for s, n in zip(found, names, strict=True))
        return made

    def results(self, after: pl.DataFrame) -> list[pl.Series]:
        made = []
        for i, a in enumerate(self.aggregations):
            value = accumulation(a).result([after[n] for n in self.columns(i)], a.output.type)
            if self._numbers(a):
                value = _without_numbers(value)
            made.append(value.cast(polars_type(a.output.type)).alias(a.output.name))
        return made

    def failed(
        self, rows: pl.DataFrame, failed: pl.Series, after: pl.DataFrame, values: pl.DataFrame
    ) -> Iterator[pl.DataFrame]:
        """What is told of rows whose arguments failed, or at which a user's aggregate did. `after`: the accumulators
        behind each row; `values`: its arguments."""
        raised = self._raised(after, values, rows[DIFF])
        failed = failed if raised is None else failed | raised.is_not_null()
        lost = failed_rows(rows, failed, [e for _, e in self.arguments], otherwise=raised)
        if lost is not None:
            yield lost

    def _raised(self, after: pl.DataFrame, values: pl.DataFrame, diff: pl.Series) -> pl.Series | None:
        """What is told of rows at which a user's aggregate failed, as its last column says; null for others. `values`:
        the arguments of the rows."""
        own = [(i, a) for i, a in enumerate(self.aggregations) if a.code is not None]
        if not own:
            return None
        told = pl.repeat(None, after.height, dtype=pl.String(), eager=True).alias("message")
        for i, a in reversed(own):
            at = after[list(self.columns(i))[-1]].arg_true()
            if len(at):
                errors = self._errors(i, rows_at(after, at.to_numpy()), values[f"{i}"].gather(at), diff.gather(at))
                told = told.scatter(at, [reasons.raised(a.shown, error) for error in errors])
        return told

    def _errors(self, i: int, after: pl.DataFrame, values: pl.Series, diff: pl.Series) -> list[str]:
        """With which errors a user's aggregate failed at rows: of the first ones; empty for the others."""
        code = self.aggregations[i].code
        assert code is not None
        fields = list(self.columns(i))[:-2]
        states = after.select(pl.col(c).alias(f.name) for c, f in zip(fields, user.state_of(code), strict=True))
        args, signs = values.struct.unnest(), diff.head(MOST_TOLD).to_list()
        told = [user.raised_in(code, states[n], args[n], sign < 0) for n, sign in enumerate(signs)]
        return told + [""] * (after.height - len(told))

    def unfit(self, after: pl.DataFrame) -> pl.Series:
        """What is told of rows in which a result is NULL because its type is too small for it; null for others."""
        found = pl.repeat(None, after.height, dtype=pl.String(), eager=True).alias("message")
        for i, a in reversed([*enumerate(self.aggregations)]):
            if (unfit := accumulation(a).unfit) is not None:
                found = found.set(
                    unfit([after[n] for n in self.columns(i)], a.output.type), reasons.unfit(a.shown, a.output.type)
                )
        return found

    def kept(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows that were kept, also by a version that had fewer accumulators."""
        missing = [pl.lit(None, t).alias(n) for n, t in self.schema.items() if n not in rows.columns]
        return rows.with_columns(missing) if missing else rows

    def _numbers(self, a: groups.Aggregation) -> bool:
        return self.numbered and a.function in BY_ARRIVAL


def _numbered(value: pl.Series, numbers: Ints, a: groups.Aggregation) -> pl.Series:
    """Values with their numbers; null where they do not count."""
    counts = pl.lit(True) if a.function == "LATEST" or a.options[1:] == (True,) else pl.col(VALUE).is_not_null()
    rows = pl.DataFrame([pl.Series(NUMBER, numbers), value.alias(VALUE)])
    return rows.select(pl.when(counts).then(pl.struct(NUMBER, VALUE)).alias(VALUE))[VALUE]


def _without_numbers(values: pl.Series) -> pl.Series:
    if isinstance(values.dtype, pl.List):
        return values.list.eval(pl.element().struct.field(VALUE))
    return values.struct.field(VALUE)


@dataclass(frozen=True, slots=True)
class GroupBy:
    """`keys`: plan columns of the grouping key, beside `_k0` …; `own`: those that the rows of a table are known by
    (None: rows only come); `mode`: of the input; `closing`: of groups in windows; `passing`: of groups by what has a
    watermark; `by_epoch`: a group tells what it is after an epoch, once; `rows`: the number of COUNT(*), where nobody
    sees a group without rows, so that it need not be kept; `begins_again`: that of a group which is as if it had never
    been once it has had no rows at the end of an epoch."""

    keys: tuple[str, ...]
    aggregations: tuple[groups.Aggregation, ...]
    own: tuple[str, ...] | None = None
    mode: Mode = "append"
    closing: Closing | None = None
    passing: Passing | None = None
    by_epoch: bool = False
    rows: int | None = None
    begins_again: int | None = None

    @staticmethod
    def of(
        node: groups.Aggregate,
        closing: Closing | None = None,
        passing: Passing | None = None,
        by_epoch: bool = False,
        rows: int | None = None,
    ) -> GroupBy:
        mode = node.input.mode
        own = tuple(e.name for e in node.input.row_key if isinstance(e, Col))
        latest = any(a.function == "LATEST" for a in node.aggregations) and mode != "append"
        names = tuple(c.name for c, _ in node.keys)
        again = next((i for i, a in enumerate(node.aggregations) if a.output == node.rows), None)
        own_key = own if latest else None
        return GroupBy(names, node.aggregations, own_key, mode, closing, passing, by_epoch, rows, again)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops, retracting=self.mode == "retract")
        keys = [key_column(i) for i in range(len(self.keys))]
        if not rows.height:
            if self.passing is not None:
                self.passing.forgotten(state, "groups", keys, clocks)
                self._forget_values(state, keys, clocks)
            return Result(self._nothing(rows, keys), all_dropped(drops))
        held = Newest(state, "groups", keys, by_time(keys, self.closing, self.passing))
        accumulators = Accumulators(self.aggregations)
        values, failed = evaluated(accumulators, rows)
        line = timeline([rows], None, keys)
        shown = values if self.own is None else self._shown(line, keys, accumulators.arguments, values, state)
        groups, before = self._before(line, rows, held, accumulators)
        if any(a.function == GATHER for a in self.aggregations):
            groups = replace(groups, ends=ends_of(line.group, _epochs(rows, line.number)))
        stood = groups.spread(before[TIME], rows_at(rows, line.number)[TIME])
        known = [(shown if a.function == "LATEST" else values)[f"{i}"] for i, a in enumerate(self.aggregations)]
        known = [values_at(x, line.number) for x in known]
        found = self._extremes(groups, rows_at(columns_of(rows, [HASH, *keys]), line.number), known, state, clocks)
        running = accumulators.running(groups, known, before, found=found)
        after = _in_place(groups, line, [pl.Series(TIME, groups.maxima(stood.to_numpy())), *running])
        if self.begins_again is not None:
            after = self._begun_again(line, rows, groups, before, accumulators, known, after)
        drops += accumulators.failed(rows, failed, after, values)
        if self.closing is not None:
            held.forget(self.closing.open_from(clocks))
        if self.passing is not None:
            self.passing.forget(held, clocks)
        stands = pl.repeat(1, rows.height, dtype=pl.Int8, eager=True).alias(DIFF)
        keeps = stands if self.rows is None else stands.set(after[f"_a{self.rows}_0"] == 0, -1)
        line.keep(0, held, columns_of(rows, [HASH, *keys]).hstack([keeps, *after.get_columns()]))
        tells = _tells(line, rows, by_place=self.mode == "retract")
        unfit = accumulators.unfit(after)
        if len(unfit) and (lost := tells & unfit.is_not_null().to_numpy()).any():
            few = pl.Series(lost)
            drops.append(dropped_rows(rows.filter(few), Reason.EXPRESSION, None, message=unfit.filter(few)))
        told = _lasts(line, rows, tells) if self.by_epoch else np.flatnonzero(tells)
        names = [POS, SUB, HASH, *keys, *([HEADERS] if HEADERS in rows.columns else [])]
        out, after = rows_at(columns_of(rows, names).hstack([stands]), told), rows_at(after, told)
        named = [out[k].alias(name) for k, name in zip(keys, self.keys, strict=True)]
        headers = [HEADERS] if HEADERS in rows.columns else []
        internal = columns_of(out.with_columns(after[TIME]), [POS, SUB, TIME, DIFF, HASH, *keys, *headers])
        return Result(internal.hstack([*named, *accumulators.results(after)]), all_dropped(drops))

    def _begun_again(
        self,
        line: Timeline,
        rows: pl.DataFrame,
        groups: Groups,
        before: pl.DataFrame,
        accumulators: Accumulators,
        values: Sequence[pl.Series],
        after: pl.DataFrame,
    ) -> pl.DataFrame:
        """What is behind each row, where groups begin again within the batch: each part of a group is one by itself."""
        count = f"_a{self.begins_again}_0"
        epoch = _epochs(rows, line.number)
        new = np.flatnonzero((epoch[1:] != epoch[:-1]) & (line.group[1:] == line.group[:-1])) + 1
        new = new[rows_at(after.select(count), line.number[new - 1])[count].to_numpy() == 0]
        if not len(new):
            return after
        first = np.union1d(line.first, new)
        parts = replace(Groups.led(first, groups.diff[~groups.start]), ends=groups.ends)
        which = np.where(np.isin(first, new), before.height, np.searchsorted(line.first, first))
        nothing = pl.DataFrame({n: [None] for n in before.columns}, schema=before.schema)
        began = rows_at(before.vstack(nothing).rechunk(), which).with_columns(pl.col(TIME).fill_null(rows[TIME].min()))
        kept = {i: parts.spread(began[c], values_at(after[c], line.number)) for i, c in self._found()}
        running = accumulators.running(parts, values, began, found=kept)
        time = parts.spread(began[TIME], rows_at(rows, line.number)[TIME])
        return _in_place(parts, line, [pl.Series(TIME, parts.maxima(time.to_numpy())), *running])

    def _found(self) -> list[tuple[int, str]]:
        """The numbers and columns of MIN and MAX of rows that come and go, of which nothing is left anyway."""
        return [(i, f"_a{i}_0") for numbers in self._of_values().values() for i in numbers]

    def _of_values(self) -> dict[str, list[int]]:
        """The numbers of MIN and MAX of rows that come and go, by the name of the values that they are of."""
        made: dict[Expr, list[int]] = {}
        for i, a in enumerate(self.aggregations):
            if self.mode == "retract" and a.function in ("MIN", "MAX") and a.arg is not None:
                made.setdefault(a.arg, []).append(i)
        return {f"values{n}": numbers for n, numbers in enumerate(made.values())}

    def _values(self, state: State, name: str, keys: Sequence[str]) -> Values:
        return Values(state, name, keys, None if self.passing is None else self.passing.tick)

    def _extremes(
        self, groups: Groups, rows: pl.DataFrame, values: Sequence[pl.Series], state: State, clocks: Clocks
    ) -> dict[int, pl.Series]:
        """MIN and MAX of rows that come and go after each place, by number. `rows`, `values`: group by group."""
        found: dict[int, pl.Series] = {}
        for name, numbers in self._of_values().items():
            held = self._values(state, name, [c for c in rows.columns if c != HASH])
            up = [self.aggregations[i].function == "MAX" for i in numbers]
            made = Extreme.of(groups, rows, values[numbers[0]], held).after(up)
            found |= dict(zip(numbers, made, strict=True))
            if self.passing is not None:
                held.pass_by(after_batch(self.passing.watermarks, clocks))
            held.close()
        return found

    def _forget_values(self, state: State, keys: Sequence[str], clocks: Clocks) -> None:
        assert self.passing is not None
        for name in self._of_values():
            if name in state.manifest:
                held = self._values(state, name, keys)
                before = held.rows
                held.pass_by(after_batch(self.passing.watermarks, clocks))
                if held.rows < before:
                    held.close()

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
        return gathered(parts, [name for name, _ in arguments], newest)

    def _nothing(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """No rows, with the columns of the result."""
        schema = {c: rows.schema[c] for c in (POS, SUB, TIME, DIFF, HASH, *keys)}
        schema |= {name: rows.schema[k] for k, name in zip(keys, self.keys, strict=True)}
        return no_rows(schema | {a.output.name: polars_type(a.output.type) for a in self.aggregations})

    def _before(
        self, line: Timeline, rows: pl.DataFrame, held: Newest, accumulators: Accumulators
    ) -> tuple[Groups, pl.DataFrame]:
        """The groups, and what stood of each before the batch: nulls for a new one."""
        count = len(line.first)
        groups = Groups.led(line.first, rows[DIFF].to_numpy()[line.number])
        schema = {TIME: pl.Int64()} | accumulators.schema
        kept = held.probe(line.looking)
        before = pl.DataFrame({name: pl.Series([None] * count, dtype=t) for name, t in schema.items()})
        if kept.rows is not None:
            at = count + np.arange(kept.rows.height)
            which = np.arange(count)
            which[kept.looking] = at
            stood = columns_of(accumulators.kept(kept.rows), list(schema))
            if self.begins_again is not None:
                alive = kept.rows[f"_a{self.begins_again}_0"].to_numpy() != 0
                which[kept.looking[~alive]] = kept.looking[~alive]
            before = rows_at(before.vstack(stood).rechunk(), which)
        return groups, before.with_columns(pl.col(TIME).fill_null(rows[TIME].min()))


def evaluated(accumulators: Accumulators, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The arguments of rows, a column for each aggregate, and which rows failed."""
    arguments, everything = accumulators.arguments, pl.repeat(1, rows.height, eager=True)
    counts = [everything.alias(f"{i}") for i, a in enumerate(accumulators.aggregations) if a.arg is None]
    if not arguments:
        return pl.DataFrame(counts), pl.repeat(False, rows.height, eager=True)
    values, failed = compile.evaluate(rows, arguments)
    return values.hstack(counts), failed


def _in_place(groups: Groups, line: Timeline, running: Sequence[pl.Series]) -> pl.DataFrame:
    """Running values of groups, by the number of the rows."""
    back = np.empty(len(line.number), dtype=np.int64)
    back[line.number] = np.flatnonzero(~groups.start)
    return rows_at(pl.DataFrame(running), back)


def _epochs(rows: pl.DataFrame, number: Ints) -> Ints:
    """In which epoch these rows are."""
    return rows_at(columns_of(rows, [POS]), number).select(sequence_of(pl.col(POS)).alias("e"))["e"].to_numpy()


def _lasts(line: Timeline, rows: pl.DataFrame, tells: Flags) -> Ints:
    """Of the rows that tell, the last of each group in each epoch."""
    speaks = tells[line.number]
    number, group = line.number[speaks], line.group[speaks]
    return np.sort(number[ends_of(group, _epochs(rows, number))])


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
