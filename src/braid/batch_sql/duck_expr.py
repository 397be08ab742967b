"""Typed expressions in DuckDB's SQL: what DuckDB computes itself, and what it asks Braid for.

In: typed expressions whose columns are pieces of DuckDB's SQL. Out: text, and the functions that the text calls.
Rule: one meaning, two engines. DuckDB gets only what it computes as the rows of `FUNCTIONS` do: comparisons, logic,
conversions that cannot fail. An expression with anything else is one function over the columns that it reads, computed
by `expr.compile` as in a view; a row that fails there ends the query.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal as PyDecimal
from inspect import Parameter, Signature

import polars as pl
import pyarrow as pa

from braid.batch_sql.duck_text import literal
from braid.batch_sql.duck_text import name as identifier
from braid.bind.bound import Asked
from braid.errors import BraidError, SqlError
from braid.expr import compile, trace
from braid.expr.functions import FUNCTIONS
from braid.expr.nodes import Call, Case, Cast, Col, Expr, Field, Lit, children, parts, substituted
from braid.expr.typing import conjuncts
from braid.types import Array, Decimal, Scalar, Struct, Type, polars_type

S = Scalar
_NAMES: dict[Type, str] = {
    S.BOOLEAN: "BOOLEAN",
    S.SMALLINT: "SMALLINT",
    S.INT: "INTEGER",
    S.BIGINT: "BIGINT",
    S.REAL: "FLOAT",
    S.DOUBLE: "DOUBLE",
    S.VARCHAR: "VARCHAR",
    S.BYTES: "BLOB",
    S.JSONB: "VARCHAR",
    S.DATE: "DATE",
    S.TIME: "TIME",
    S.TIMESTAMP: "TIMESTAMP",
    S.TIMESTAMPTZ: "TIMESTAMPTZ",
    S.INTERVAL: "INTERVAL",
    S.NULL: "VARCHAR",
}
_WIDENED = (S.SMALLINT, S.INT, S.BIGINT, S.DOUBLE)


def duck_name(t: Type) -> str:
    """DuckDB's name of a type."""
    match t:
        case Decimal(p, s):
            return f"DECIMAL({p}, {s})"
        case Array(element):
            return f"{duck_name(element)}[]"
        case Struct(fields):
            return f"STRUCT({', '.join(f'{identifier(f.name)} {duck_name(f.type)}' for f in fields)})"
        case Scalar():
            return _NAMES[t]
    raise _no_structures()


def _no_structures() -> SqlError:
    """Rows are selected, counted and compared, and nothing else."""
    return SqlError("an expression over structures is not supported yet", hint="take their columns one by one")


Ask = Callable[[Expr, tuple[Col, ...]], str]  # the name of the function that computes an expression


def text_of(e: Expr, ask: Ask) -> str:
    """The text of an expression."""
    if _is_own(e):
        return _text(e)
    args = tuple(dict.fromkeys(x for x in parts(e) if isinstance(x, Col)))
    if not args:
        known = _constant(e)
        if known is not None:
            return _literal(known)
    return f"{ask(e, args)}({', '.join(c.name for c in args) or '1'})"


def condition_of(e: Expr, ask: Ask) -> str:
    """The same of a condition: what AND joins stands apart as far as DuckDB computes it, so that it finds the keys of
    joins. What it asks for is asked once, with all of the condition, so that nothing fails on rows that do not pass the
    rest."""
    terms = list(conjuncts(e))
    own = [t for t in terms if _is_own(t)]
    if len(own) == len(terms):
        return " AND ".join(map(_text, terms))
    return " AND ".join([*map(_text, own), text_of(e, ask)])


def name_of(e: Expr) -> str:
    """A name for the function of an expression that no other expression has."""
    return f"f__{hashlib.sha256(repr(e).encode()).hexdigest()[:24]}"


# ------------------------------------------------------------- what DuckDB computes


def _is_own(e: Expr) -> bool:
    match e:
        case Col():
            return True
        case Lit():
            return _plain(e)
        case Field(arg=arg):
            return _is_own(arg)
        case Call(function="TRANSFORM"):
            return False
        case Call(function=f, args=args):
            if FUNCTIONS[f].duck is None or (f != "make_array" and any(isinstance(x.type, Array) for x in args)):
                return False
            return all(_is_own(_inside(x)) for x in args)
        case Case():
            return all(map(_is_own, children(e)))
        case Cast(arg=arg, type=t):
            return _is_own(arg) and _converts(arg.type, t)
    return False


def _inside(e: Expr) -> Expr:
    """Floats and truth values are compared by DuckDB as PostgreSQL does, by themselves."""
    return e.args[0] if isinstance(e, Call) and e.function == "pg.place" else e


def _plain(e: Lit) -> bool:
    return isinstance(e.type, Scalar | Decimal) and not (e.type is S.TIME and e.value is not None)


def _converts(source: Type, target: Type) -> bool:
    if source in _WIDENED and (target in _WIDENED or isinstance(target, Decimal)):
        return True
    return isinstance(source, Decimal) and isinstance(target, Decimal)


def _text(e: Expr) -> str:
    match e:
        case Col(name=name):
            return name
        case Lit():
            return _literal(e)
        case Field(arg=arg, name=name):
            return f"struct_extract({_text(arg)}, {literal(name)})"
        case Call(function=f, args=args):
            form, given = FUNCTIONS[f].duck or "", [_text(_inside(x)) for x in args]
            return form.format(*given) if "{0}" in form else form.format(", ".join(given))
        case Case(whens=whens, default=default):
            made = " ".join(f"WHEN {_text(c)} THEN {_text(v)}" for c, v in whens)
            return f"(CASE {made} ELSE {_text(default)} END)"
        case Cast(arg=arg, type=t):
            return f"CAST({_text(arg)} AS {duck_name(t)})"
    raise AssertionError("not DuckDB's")


def _literal(e: Lit) -> str:
    """A constant of exactly its type."""
    match e.value:
        case bool() | str():
            return _raw(e)
        case int() if e.type is S.INT:
            return _raw(e)
        case bytes():
            return f"from_hex('{e.value.hex()}')"
        case tuple():
            months, days, us = e.value
            return f"CAST('{months} months {days} days {us} microseconds' AS INTERVAL)"
    return f"CAST({_raw(e)} AS {duck_name(e.type)})"


def list_of(column: Sequence[Lit], t: Type) -> str:
    """The constants of a column as one list: the type stands there once."""
    return f"CAST([{', '.join(_raw(e) for e in column)}] AS {duck_name(t)}[])"


def _raw(e: Lit) -> str:
    """A constant that a CAST around it gives its type."""
    match e.value:
        case None | bool() | int() | str():
            return literal(e.value)
        case dt.datetime():
            return f"'{e.value.isoformat(' ')}{'+00' if e.type is S.TIMESTAMPTZ else ''}'"
        case dt.date() | dt.time():
            return f"'{e.value.isoformat()}'"
        case PyDecimal():
            return f"'{e.value:f}'"
        case float():
            return f"'{e.value!r}'"
    return _literal(e)


def _constant(e: Expr) -> Lit | None:
    """The value of an expression without columns, where it has a plain form; it may fail, and then says why."""
    if not isinstance(e.type, Scalar | Decimal) or e.type is S.INTERVAL:
        return None
    frame, bad = compile.evaluate(pl.DataFrame({"one": [1]}), [("v", e)])
    if bad[0]:
        raise BraidError(_reason(pl.DataFrame({"one": [1]}), e, {}), "correct it")
    try:
        return Lit(frame["v"].to_list()[0], e.type)
    except (ValueError, OverflowError):  # a time that Python does not have
        return None


# -------------------------------------------------------------- what Braid computes


def computed(asked: Asked) -> Callable[..., pa.ChunkedArray]:
    """The function as DuckDB calls it: Arrow in, Arrow out. A row that fails is an error that says where and why."""
    columns = [Col(f"a{i}", c.type) for i, c in enumerate(asked.args)]
    inner = substituted(asked.expr, {c.name: new for c, new in zip(asked.args, columns, strict=True)})

    words = {new.name: old.name for new, old in zip(columns, asked.args, strict=True)}

    def compute(*given: pa.ChunkedArray) -> pa.ChunkedArray:
        series = [_taken(a, c) for a, c in zip(given, columns, strict=False)]
        frame = pl.DataFrame(series) if series else pl.DataFrame({"one": [1] * len(given[0])})
        made, bad = compile.evaluate(frame, [("v", inner)])
        if bad.any():
            raise ValueError(_reason(frame.filter(bad), inner, words))
        return _given(made["v"], asked.expr.type)

    names = [c.name for c in columns] or ["one"]  # DuckDB counts them
    compute.__signature__ = Signature([Parameter(n, Parameter.POSITIONAL_ONLY) for n in names])  # type: ignore[attr-defined]
    return compute


def _taken(values: pa.ChunkedArray, c: Col) -> pl.Series:
    if c.type is S.INTERVAL:
        found = [None if v is None else {"months": v.months, "days": v.days, "us": v.nanoseconds // 1000}
                 for v in (x.as_py() for x in values)]  # fmt: skip
        return pl.Series(c.name, found, dtype=polars_type(c.type))
    made = pl.from_arrow(values)
    assert isinstance(made, pl.Series)
    return made.cast(polars_type(c.type)).alias(c.name)


def _given(s: pl.Series, t: Type) -> pa.ChunkedArray:
    match t:
        case S.INTERVAL:
            rows = [None if v is None else (v["months"], v["days"], v["us"] * 1000) for v in s.to_list()]
            return pa.chunked_array([pa.array(rows, type=pa.month_day_nano_interval())])
        case S.TIMESTAMPTZ:
            return pa.chunked_array([s.dt.replace_time_zone("UTC").to_arrow()])
        case S.NULL:
            return pa.chunked_array([s.cast(pl.String).to_arrow()])
    return pa.chunked_array([s.to_arrow()])


def _reason(rows: pl.DataFrame, e: Expr, words: Mapping[str, str]) -> str:
    """What failed in the first of these rows, and why."""
    return trace.messages(rows.head(1), [e], words)[0] or "an expression fails"
