"""What a function takes and gives: the shape of a row of `FUNCTIONS`, and how types widen.

In: types of arguments. Out: a `Signature` (the types the arguments are cast to, the type of the result) or a `Refused`.
Rule: widening never loses a value: INTEGER < BIGINT < DECIMAL < DOUBLE, and NULL fits everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from braid.expr.casts import as_decimal
from braid.expr.nodes import Call, Expr, Lit
from braid.expr.rows import distinct, once
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type, is_numeric, polars_type

S = Scalar
MAX_PRECISION = 38
_USAGE = "it takes "
# Why rows of several files fail.
GROWS = "the result would be too long"
NEGATIVE = "the number is negative"
NO_TIME = "there is no such time"


@dataclass(frozen=True, slots=True)
class Signature:
    """`name`: the row that gives the value for these types, where it is another than the one that was asked."""

    args: tuple[Type, ...]
    result: Type
    name: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    message: str
    hint: str | None = None


Resolver = Callable[[Sequence[Expr]], Signature | Refused]
Builder = Callable[[Call, list[pl.Expr]], pl.Expr]
Once = Callable[[Call, pl.DataFrame], tuple[pl.Series, pl.Series]]


@dataclass(frozen=True, slots=True)
class Fallible:
    """What builds a value that can be missing although the arguments are there. `failed`: true on the rows where it is;
    `why`: the reason in a few words, of these arguments (empty: their type says it); `once`: value and failure in one
    pass, of what is slow."""

    build: Builder
    failed: Builder
    why: Callable[..., str] | str = ""
    once: Once | None = None

    def __call__(self, call: Call, args: list[pl.Expr]) -> pl.Expr:
        return self.build(call, args)


@dataclass(frozen=True, slots=True)
class Function:
    """One function. `name`: what plans call it. `names`: what it is called in SQL, by dialect; operators and what only
    `bind` uses have none.

    `build` gives the value; of a function that can fail it is `Fallible`. `duck`: DuckDB's own expression that gives
    the same, with `{0}`, `{1}` for the arguments, or `{}` for all; None: a batch query asks this row. `kind`: 'scalar';
    'lambda' or 'table', whose calls the binder makes something else of. `meaning`: since which number of
    `expr.meanings` a call gives the values that it gives.
    """

    name: str
    resolve: Resolver
    build: Builder | Fallible
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    duck: str | None = None
    kind: str = "scalar"
    meaning: int | Callable[[Call], int] = 1

    @property
    def fallible(self) -> Fallible | None:
        return self.build if isinstance(self.build, Fallible) else None


def in_sql(**names: str) -> dict[str, tuple[str, ...]]:
    """What dialects call a row: `in_sql(lenses="LEN LENGTH", sqlstream="CHAR_LENGTH")`."""
    return {dialect: tuple(given.split()) for dialect, given in names.items()}


def usage(f: Function) -> str:
    """What it takes, as its refusal says."""
    many = [Lit("", S.VARCHAR)] * 9
    refused = (f.resolve(args) for args in ((), many))
    texts = [r.message for r in refused if isinstance(r, Refused) and r.message.startswith(_USAGE)]
    return texts[0].removeprefix(_USAGE)


def null_fails(build: Builder, why: Callable[..., str] | str = "") -> Fallible:
    """A failure is a null result of arguments that are all there."""

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        there = pl.all_horizontal([a.is_not_null() for a in args])
        return there & build(call, args).is_null()

    return Fallible(build, failed, why)


def decimal_fails(build: Builder, why: Callable[..., str] | str = "") -> Fallible:
    """The same, where only a DECIMAL can fail: its digits are limited."""
    fallible = null_fails(build, why)

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        return fallible.failed(call, args) if isinstance(call.type, Decimal) else pl.lit(False)

    return replace(fallible, failed=failed)


def tried(f: Callable[..., object], result: Type, why: Callable[..., str] | str | None = None) -> Fallible:
    """What a Python function gives, called once for equal arguments; it fails where that raises a `ValueError`. `why`:
    in place of that error's message."""
    return Fallible(
        lambda call, args: distinct(or_null(f), args, polars_type(result)),
        lambda call, args: distinct(fails(f), args, pl.Boolean()),
        refusal(f) if why is None else why,
        lambda call, args: once(f, args, polars_type(result)),
    )


def or_null(f: Callable[..., object]) -> Callable[..., object]:
    """`f`, with null where it raises a `ValueError`."""

    def one(*values: object) -> object:
        try:
            return f(*values)
        except ValueError:
            return None

    return one


def fails(f: Callable[..., object]) -> Callable[..., bool]:
    """Whether `f` raises a `ValueError`."""

    def failing(*values: object) -> bool:
        try:
            f(*values)
        except ValueError:
            return True
        return False

    return failing


def refusal(f: Callable[..., object]) -> Callable[..., str]:
    """The message of the `ValueError` that `f` raises; empty where it raises none."""

    def told(*values: object) -> str:
        try:
            f(*values)
        except ValueError as e:
            return str(e)
        return ""

    return told


def divided(_: object, divisor: object) -> str:
    """Why a division failed."""
    return "division by zero" if divisor == 0 else ""


def constant(e: Expr) -> object:
    """The value of a literal; None for anything else."""
    return e.value if isinstance(e, Lit) else None


# ------------------------------------------------------------------ widening


def decimal(precision: int, scale: int) -> Decimal:
    """A DECIMAL of at most 38 digits: what is too much is taken from the fraction, of which six digits stay."""
    if precision <= MAX_PRECISION:
        return Decimal(max(precision, 1), scale)
    return Decimal(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), min(scale, 6)))


def common_type(a: Type, b: Type) -> Type | None:
    """The narrowest type that holds the values of both; None where there is none."""
    if a == b or b is S.NULL:
        return a
    if a is S.NULL:
        return b
    if is_numeric(a) and is_numeric(b):
        if S.DOUBLE in (a, b) or S.REAL in (a, b):
            return S.DOUBLE
        if isinstance(a, Decimal) or isinstance(b, Decimal):
            da, db = as_decimal(a), as_decimal(b)
            scale = max(da.scale, db.scale)
            return decimal(max(da.precision - da.scale, db.precision - db.scale) + scale, scale)
        return S.BIGINT if S.BIGINT in (a, b) else S.INT
    match a, b:
        case (S.TIMESTAMP, S.TIMESTAMPTZ) | (S.TIMESTAMPTZ, S.TIMESTAMP):
            return S.TIMESTAMPTZ
        case (Array(x), Array(y)):
            element = common_type(x, y)
            return Array(element) if element is not None else None
        case (Map(k, x), Map(kk, y)):
            value = common_type(x, y)
            return Map(k, value) if k == kk and value is not None else None
        case (Struct(fields), Struct(others)):
            if [f.name for f in fields] != [f.name for f in others]:
                return None
            types = [common_type(f.type, g.type) for f, g in zip(fields, others, strict=True)]
            columns = [Column(f.name, t) for f, t in zip(fields, types, strict=True) if t is not None]
            return Struct(tuple(columns)) if len(columns) == len(fields) else None
    return None


def common_of(types: Sequence[Type]) -> Type | None:
    """The common type of many."""
    found: Type | None = S.NULL
    for t in types:
        found = None if found is None else common_type(found, t)
    return found


def resolve_extreme(args: Sequence[Expr]) -> Signature | Refused:
    """Values of one type, of which one is the greatest."""
    wide = common_of([a.type for a in args])
    if not args or wide is None or not isinstance(wide, Scalar | Decimal):
        return Refused("it takes values of one type that has an order")
    return Signature((wide,) * len(args), wide)


def fits(arg: Type, parameter: Type) -> bool:
    """Whether an argument may be passed where `parameter` is declared."""
    if arg in (parameter, S.NULL):
        return True
    if is_numeric(arg) and is_numeric(parameter):
        return common_type(arg, parameter) == parameter
    return False


def forms(usage: str, *options: tuple[Sequence[Type], Type]) -> Resolver:
    """Plain overloads: the one whose types agree, else the first that the arguments fit."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        types = [a.type for a in args]
        for parameters, result in options:
            if list(parameters) == types:
                return Signature(tuple(parameters), result)
        for parameters, result in options:
            if len(parameters) == len(types) and all(map(fits, types, parameters)):
                return Signature(tuple(parameters), result)
        return Refused(f"it takes {usage}")

    return resolve
