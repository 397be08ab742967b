"""What the rows of PostgreSQL's functions are made with: overloads, and meanings of Python.

In: types, and functions of plain values. Out: resolvers, `Function` rows.
Rule: an overload is found as PostgreSQL finds it: the one whose types agree, else the first that all arguments become
by implicit casts; a constant of no type yet (`Scalar.NULL`) becomes anything. Null in, null out.
"""

from __future__ import annotations

import decimal as py
import math
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from braid.expr.casts import as_decimal, fit
from braid.expr.nodes import Call, Expr
from braid.expr.rows import made
from braid.expr.signatures import MAX_PRECISION, Builder, Fallible, Function, Refused, Resolver, Signature, tried
from braid.types import WHOLE_NUMBERS, Array, Decimal, Scalar, Type, is_numeric, physical_type, polars_type

S = Scalar
DIALECT = "risingwave"
NUMERIC = Decimal(38, 10)  # NUMERIC without digits and scale
TOO_LONG = "the result has more digits than its type"

# What each type becomes by itself, in the order that PostgreSQL prefers.
_WIDER: dict[Type, tuple[Type, ...]] = {
    S.SMALLINT: (S.INT, S.BIGINT, S.REAL, S.DOUBLE),
    S.INT: (S.BIGINT, S.REAL, S.DOUBLE),
    S.BIGINT: (S.REAL, S.DOUBLE),
    S.REAL: (S.DOUBLE,),
    S.DATE: (S.TIMESTAMP, S.TIMESTAMPTZ),
    S.TIMESTAMP: (S.TIMESTAMPTZ,),
}
_TOP: dict[Type, int] = {S.SMALLINT: 2**15 - 1, S.INT: 2**31 - 1, S.BIGINT: 2**63 - 1}
_MAX_REAL = 3.4028235677973366e38  # what is larger becomes infinite
_TIMES = (S.DATE, S.TIMESTAMP, S.TIMESTAMPTZ)


def becomes(source: Type, target: Type) -> bool:
    """Whether PostgreSQL casts by itself."""
    if source in (target, S.NULL):
        return True
    if isinstance(target, Decimal):
        return source in WHOLE_NUMBERS or isinstance(source, Decimal)
    if isinstance(source, Decimal):
        return target in (S.REAL, S.DOUBLE)
    if isinstance(source, Array) and isinstance(target, Array):
        return becomes(source.element, target.element)
    return target in _WIDER.get(source, ())


def sum_type(t: Type) -> Type:
    """The type of a sum of numbers, of rows as of an array: `array_sum(int4[]) -> int8` (risingwavelabs/risingwave,
    expr/impl/src/scalar/array_sum.rs)."""
    match t:
        case S.SMALLINT | S.INT:
            return S.BIGINT
        case S.BIGINT:
            return Decimal(38, 0)
        case Decimal(scale=scale):
            return Decimal(38, scale)
    return t


def common(types: Sequence[Type]) -> Type | None:
    """The type that CASE, COALESCE, GREATEST and arrays give their values; None where there is none. A NUMERIC keeps
    every digit behind the point; of those before it 38 digits may leave too few, then a value fails."""
    known = [t for t in types if t is not S.NULL]
    found: Type | None = known[0] if known else S.VARCHAR
    for t in known[1:]:
        found = None if found is None else _wider(found, t)
    return found


def _wider(a: Type, b: Type) -> Type | None:
    if a == b:
        return a
    if isinstance(a, Array) and isinstance(b, Array):
        element = _wider(a.element, b.element)
        return None if element is None else Array(element)
    for order in (WHOLE_NUMBERS, _TIMES):
        if a in order and b in order:
            return max(a, b, key=order.index)
    if not is_numeric(a) or not is_numeric(b):
        return None
    if S.DOUBLE in (a, b) or S.REAL in (a, b):
        return S.DOUBLE if S.DOUBLE in (a, b) else S.REAL
    x, y = as_decimal(a), as_decimal(b)
    return digits(max(x.precision - x.scale, y.precision - y.scale), max(x.scale, y.scale))


def digits(whole: int, scale: int) -> Decimal:
    """The NUMERIC of so many digits before and behind the point, of 38 at most: those before it are cut."""
    scale = min(scale, MAX_PRECISION)
    return Decimal(min(MAX_PRECISION, max(whole + scale, 1)), scale)


def takes(usage: str, *options: tuple[Sequence[Type], Type]) -> Resolver:
    """Plain overloads, in the order of PostgreSQL's preference. `usage`: 'a text and a length', for a refusal."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        types = [a.type for a in args]
        fitting = [o for o in options if len(o[0]) == len(types) and all(map(becomes, types, o[0]))]
        exact = [o for o in fitting if all(a in (p, S.NULL) for a, p in zip(types, o[0], strict=True))]
        for parameters, result in (*exact, *fitting):
            return Signature(tuple(parameters), result)
        return Refused(f"it takes {usage}")

    return resolve


def named(*names: str) -> dict[str, Sequence[str]]:
    """What the row is called in SQL, in upper case."""
    return {DIALECT: names}


def row(names: str, resolve: Resolver, build: Builder | Fallible) -> Function:
    """`names`: of SQL, with blanks between. The plan's name is the first; one in small letters is no name of SQL."""
    words = names.split()
    return Function(f"pg.{words[0].lower()}", resolve, build, named(*(w for w in words if w.isupper())))


def fallible(of: Function) -> Fallible:
    """The builder of a row that can fail."""
    assert isinstance(of.build, Fallible)
    return of.build


def plain(names: str, usage: str, options: Sequence[tuple[Sequence[Type], Type]], f: Callable[..., object],
          ) -> Function:  # fmt: skip
    """A row whose meaning is a Python function of plain values: slow path. It raises `ValueError` with a reason, in a
    few words as PostgreSQL has it, where PostgreSQL gives an error. All overloads have one result type. `names`: as for
    `row`."""
    results = {result for _, result in options}
    assert len(results) == 1, "rows of one result type"
    return row(names, takes(usage, *options), tried(f, results.pop()))


# ---------------------------------------------------------------- rows of values


def in_rows(
    names: str,
    resolve: Resolver,
    f: Callable[..., object],
    *,
    nulls: bool = False,
    why: Callable[..., str] | None = None,
) -> Function:
    """A row whose meaning is a Python function, called for every row: -0.0 and 0.0 are equal, and not the same
    arguments. The type of its result is what `resolve` says; a NUMERIC that it cannot hold is a failure. Times and
    dates are numbers (`physical_type`): Python's end at the year 9999. `nulls`: the function is asked about them."""
    return row(names, resolve, each(f, why, nulls=nulls))


def reason(f: Callable[..., object], *, nulls: bool = False) -> Callable[..., str]:
    """Why a call failed."""

    def why(*values: object) -> str:
        try:
            value = f(*values) if nulls or all(v is not None for v in values) else None
        except ValueError as e:
            return str(e)
        return (
            TOO_LONG
            if not isinstance(value, int)
            else "integer out of range"
            if _fits(value)
            else "bigint out of range"
        )

    return why


def _fits(value: int) -> bool:
    return -(2**63) <= value < 2**63


def each(f: Callable[..., object], why: Callable[..., str] | None = None, *, nulls: bool = False) -> Fallible:
    """What a Python function gives, row by row; it fails where that raises a `ValueError`."""

    def run(call: Call, columns: Sequence[pl.Series]) -> tuple[pl.Series, pl.Series]:
        given = [c.cast(physical_type(a.type)).to_list() for c, a in zip(columns, call.args, strict=True)]
        held = _held_by(call.type)
        values: list[object] = []
        marks: list[bool] = []
        for row in zip(*given, strict=True):
            value, bad = None, False
            if nulls or None not in row:
                try:
                    value = held(f(*row)) if held else f(*row)
                except ValueError:
                    bad = True
            values.append(value)
            marks.append(bad)
        column = made("", values, physical_type(call.type)).cast(polars_type(call.type))
        return column, pl.Series(marks, dtype=pl.Boolean)

    return parts(run, why or reason(f, nulls=nulls))


def parts(
    run: Callable[[Call, list[pl.Series]], tuple[pl.Series, pl.Series]], why: Callable[..., str] | str
) -> Fallible:
    """Of what gives values and failures at once."""

    def part(which: int) -> Builder:
        def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
            def apply(s: pl.Series) -> pl.Series:
                return run(call, [s.struct.field(str(i)) for i in range(len(args))])[which].rename(s.name)

            packed = pl.struct([a.alias(str(i)) for i, a in enumerate(args)])
            dtype = pl.Boolean() if which else polars_type(call.type)
            return packed.map_batches(apply, return_dtype=dtype, is_elementwise=True)

        return build

    return Fallible(part(0), part(1), why, lambda call, args: run(call, args.get_columns()))


def _held_by(t: Type) -> Callable[[Any], object] | None:
    """A value as the type holds it; it raises a `ValueError` where that cannot. None: the type holds all."""
    if isinstance(t, Decimal):
        return lambda value: None if value is None else _held(fit(py.Decimal(value), t))
    if t in _TOP:
        return lambda value: value if value is None or -_TOP[t] - 1 <= value <= _TOP[t] else _held(None)
    if t is S.REAL:
        return lambda value: value if value is None or not _MAX_REAL < abs(value) < math.inf else _held(None)
    return None


def _held(value: object) -> object:
    if value is None:
        raise ValueError(TOO_LONG)
    return value
