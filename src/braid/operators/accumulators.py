"""Which aggregates there are, and the accumulators of some of them, as columns.

In: rows of a batch group by group, their arguments, what was kept. Out: accumulators after each row, values of them.
Rule: nulls do not count, nothing adds up to zero; sums of DOUBLE are added up in processing order.

Which functions exist, over what, is told by `expr.aggregates`; here is how each runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile, reasons, user
from braid.expr.nodes import Expr
from braid.operators import totals
from braid.operators.accumulation import Accumulation, Groups, Merged, Parts, Scanned
from braid.operators.changes import DIFF
from braid.operators.collecting import COLLECTED
from braid.operators.pairing import failed_rows
from braid.operators.ranges import Ints, order_of, rows_at, values_at
from braid.operators.user_aggregate import accumulation_of
from braid.plan import groups
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
    if held.dtype == pl.Int64:
        numbers = np.empty(len(groups.start), dtype=np.int64)
        values, signs = value.cast(pl.Int64).fill_null(0).to_numpy(), groups.diffs
        numbers[groups.first] = held.fill_null(0).to_numpy()
        numbers[groups.rest] = values if (signs > 0).all() else values * np.sign(signs)
        return pl.Series(groups.sums(numbers))
    taken_back = pl.Series(groups.diffs < 0)
    wide = value.cast(held.dtype)
    signed = (wide if not taken_back.any() else (-wide).zip_with(taken_back, wide)).fill_null(0)
    sequence = groups.spread(held.fill_null(0), signed)
    return groups.over(pl.col("v").cum_sum(), sequence)


def _count(groups: Groups, value: pl.Series, held: pl.Series) -> pl.Series:
    counted = groups.diffs * value.is_not_null().to_numpy()
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
        groups = Groups(places // 2, places % 2 == 0, places[::2], places[1::2], places % 2)
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


def _folded_count(parts: Parts, value: pl.Series) -> list[pl.Series]:
    return [parts.sums(value.is_not_null().to_numpy().astype(np.int64))]


def _folded_sum(parts: Parts, value: pl.Series) -> list[pl.Series]:
    if isinstance(value.dtype, pl.Decimal):
        return totals.folded(parts, value)
    return [parts.sums(value.cast(pl.Int64).fill_null(0).to_numpy())]


def _sum_fits(value: pl.Series, held: Sequence[pl.Series], t: Type) -> bool:
    return len(held) == 1 or totals.fits(value, held, t)


_added, _newest = _by_scan(_sums_of_sums), _as_values(_last_to_come)

ACCUMULATIONS: dict[str, Accumulation] = {
    "COUNT": Accumulation(
        lambda t: (pl.Int64(),),
        lambda g, v, held: [_count(g, v, held[0])],
        _first,
        *_added,
        folded=_folded_count,
    ),
    "SUM": Accumulation(_wide, _sums, _narrow, *_added, _too_large, _folded_sum, _sum_fits),
    "AVG": Accumulation(
        lambda t: (pl.Float64(), pl.Int64()),
        lambda g, v, held: [_sum(g, v, held[0]), _count(g, v, held[1])],
        _average,
        *_added,
    ),
    "MIN": Accumulation(
        lambda t: (polars_type(t),),
        lambda g, v, held: [_least(g, v, held[0])],
        _first,
        *_as_values(_least),
        folded=lambda parts, v: [parts.extreme(v, pl.Expr.min)],
    ),
    "MAX": Accumulation(
        lambda t: (polars_type(t),),
        lambda g, v, held: [_largest(g, v, held[0])],
        _first,
        *_as_values(_largest),
        folded=lambda parts, v: [parts.extreme(v, pl.Expr.max)],
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
    lambda parts, v: [*totals.folded(parts, v), *_folded_count(parts, v)],
    totals.fits,
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

    def scanned(
        self,
        groups: Groups,
        values: pl.DataFrame,
        before: pl.DataFrame,
        found: Mapping[int, pl.Series] | None = None,
    ) -> list[pl.Series]:
        """After each place, from the accumulators of the rows; `found` as in `running`."""
        made: list[pl.Series] = []
        for i, a in enumerate(self.aggregations):
            names, scanned = list(self.columns(i)), accumulation(a).scanned
            if found is not None and i in found:
                made.append(found[i].alias(names[0]))
                continue
            assert scanned is not None
            ran = scanned(groups, [values[n] for n in names], [before[n] for n in names])
            made += (s.alias(n) for s, n in zip(ran, names, strict=True))
        return made

    def fold(self, values: Sequence[pl.Series], before: pl.DataFrame, but: Collection[int]) -> bool:
        """Whether parts of rows may count as one row each: neither their order matters, nor is a result on the way too
        large. `values`: the arguments of the rows; `but`: aggregates that are found otherwise."""
        for i, a in enumerate(self.aggregations):
            if i not in but:
                made = accumulation(a)
                if made.folded is None or a.leaves:
                    return False
                held = [before[n] for n in self.columns(i)]
                if made.fits is not None and not made.fits(values[i], held, a.output.type):
                    return False
        return True

    def folded(self, parts: Parts, values: Sequence[pl.Series], but: Collection[int]) -> pl.DataFrame:
        """The accumulators of parts of rows that may count as one."""
        made: list[pl.Series] = []
        for i, a in enumerate(self.aggregations):
            if i not in but and (folded := accumulation(a).folded) is not None:
                made += (s.alias(n) for n, s in zip(self.columns(i), folded(parts, values[i]), strict=True))
        return pl.DataFrame(made)

    def results(self, after: pl.DataFrame) -> list[pl.Series]:
        made = []
        for i, a in enumerate(self.aggregations):
            value = accumulation(a).result([after[n] for n in self.columns(i)], a.output.type)
            if self._numbers(a):
                value = _without_numbers(value)
            made.append(value.cast(polars_type(a.output.type)).alias(a.output.name))
        return made

    def failed(
        self, rows: pl.DataFrame, failed: pl.Series, after: pl.DataFrame | None, values: pl.DataFrame
    ) -> Iterator[pl.DataFrame]:
        """What is told of rows whose arguments failed, or at which a user's aggregate did. `after`: the accumulators
        behind each row, where there may be such; `values`: its arguments."""
        raised = None if after is None else self._raised(after, values, rows[DIFF])
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


def evaluated(accumulators: Accumulators, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The arguments of rows, a column for each aggregate, and which rows failed."""
    arguments, everything = accumulators.arguments, pl.repeat(1, rows.height, eager=True)
    counts = [everything.alias(f"{i}") for i, a in enumerate(accumulators.aggregations) if a.arg is None]
    if not arguments:
        return pl.DataFrame(counts), pl.repeat(False, rows.height, eager=True)
    values, failed = compile.evaluate(rows, arguments)
    return values.hstack(counts), failed
