"""INSERT INTO: rows of constants (VALUES), and does a SELECT's result fit the target?

In: the statement, the target's columns and the result's. Out: `Inserted` with key and value of each record; key and
value outputs, widened where the target is wider.
Rule: a value must have its column's type or widen into it; a column that is not named is null. A result has the same
names in the same order, key with key; a number may be widened, a constant is cast into a DECIMAL that has its digits,
and nothing else is converted silently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal as PyDecimal
from typing import Any, Never

from braid.bind.bound import Declared, DeclaredColumn, Inserted, InsertedRow
from braid.bind.expressions import Rules, bind_expr, with_span
from braid.bind.present import present
from braid.errors import Span, SqlError
from braid.expr import compile, typing
from braid.expr.nodes import Expr, Lit
from braid.guess import meant
from braid.plan.logical import Output
from braid.sql import ast
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type, is_numeric, is_time

ROWTIME = DeclaredColumn("ROWTIME", Scalar.BIGINT, "rowtime")
_SUCH_AS: Mapping[Type, str] = {
    Scalar.TIMESTAMP: ", such as '2024-03-01T08:00:00'",
    Scalar.DATE: ", such as '2024-03-01'",
    Scalar.TIME: ", such as '08:00:00'",
}
TIMES = (Scalar.DATE, Scalar.TIME, Scalar.TIMESTAMP)


def bind_insert_values(s: ast.InsertValues, target: Declared) -> Inserted:
    check_insertable(target, s.target.span)
    columns = _columns(s, target)
    rules = Rules("VALUES", no_column, whole=present)
    rows = tuple(_row(row, columns, target, s.span, rules) for row in s.rows)
    return Inserted(target.topic, target, rows)


def check_insertable(target: Declared, span: Span) -> None:
    if target.registered:
        raise SqlError(f"{target.name} is a registered DataFrame: nothing can be inserted", span, "register more rows")
    if target.read_only:
        hint = f"declare it without SOURCE: CREATE {target.kind.upper()} {target.name} …"
        raise SqlError(f"{target.name} is a SOURCE {target.kind}: nothing can be inserted", span, hint)
    if target.windowed is not None:
        message = f"{target.name} has windows in its keys: nothing can be inserted"
        raise SqlError(message, span, "insert into what is grouped")
    if any(c.place in ("header", "headers") for c in target.columns):
        message = f"{target.name} has header columns: nothing can be inserted"
        raise SqlError(message, span, "declare it without them")


def _columns(s: ast.InsertValues, target: Declared) -> list[DeclaredColumn]:
    known = {c.name: c for c in (*target.visible, ROWTIME)}
    if s.columns:
        return named_columns(target, s.columns, known, near=True)
    return sorted(target.visible, key=lambda c: c.place != "key")  # those of the key first


def named_columns(
    target: Declared, written: Sequence[ast.Name], known: Mapping[str, DeclaredColumn], near: bool = False
) -> list[DeclaredColumn]:
    """The columns that an INSERT names, each once. `near`: the hint guesses what was meant."""
    found: list[DeclaredColumn] = []
    for name in written:
        column = known.get(name.parts[-1])
        if column is None:
            listed = f"columns are {', '.join(known)}"
            hint = meant(name.parts[-1], known, listed) if near else listed
            raise SqlError(f"{target.name} has no column {name}", name.span, hint)
        if column in found:
            raise SqlError(f"column {name} is named twice", name.span, "name it once")
        found.append(column)
    return found


def _row(
    row: tuple[ast.Expr, ...], columns: list[DeclaredColumn], target: Declared, span: Span, rules: Rules
) -> InsertedRow:
    values = {c.name: v for _, c, v in inserted_values(row, columns, span, rules)}
    key = {c.name: values.get(c.name) for c in target.key if not c.hidden}
    if target.kind == "table":
        for name, v in key.items():
            if v is None:
                at = next((e.span for e, c in zip(row, columns, strict=True) if c.name == name), span)
                raise SqlError(f"the key {name} of table {target.name} has no value", at, f"give {name} a value")
    if "ROWTIME" in values and values["ROWTIME"] is None:
        raise SqlError("ROWTIME cannot be null", span, "leave ROWTIME out for the present time")
    if "ROWTIME" in values and not is_time(values["ROWTIME"]):
        raise SqlError(f"ROWTIME {values['ROWTIME']} is out of range", span, "ROWTIME takes milliseconds since 1970")
    return row_of(values, target)


def row_of(values: Mapping[str, Any], target: Declared) -> InsertedRow:
    """The record that columns make; those that are not there are null, or have the default of a schema that was
    chosen."""
    key = {c.name: values.get(c.name) for c in target.key if not c.hidden}
    body = {c.name: values.get(c.name) for c in target.columns if c.place == "value"}
    if target.encoding.value_schema is not None and target.encoding.value_schema.text:  # it may have defaults
        body = {n: v for n, v in body.items() if n in values}
    empty = all(v is None for v in key.values())
    return InsertedRow(None if empty else key, body, values.get("ROWTIME"))


def inserted_values(
    row: Sequence[ast.Expr], columns: Sequence[DeclaredColumn], span: Span, rules: Rules | None = None
) -> Iterator[tuple[ast.Expr, DeclaredColumn, Any]]:
    """The constants of a row with their columns, one for each, and as those hold them."""
    if len(row) != len(columns):
        at = row[-1].span if row else span
        named = ", ".join(c.name for c in columns)
        raise SqlError(f"{len(row)} values for {len(columns)} columns", at, f"the columns are {named}")
    for e, c in zip(row, columns, strict=True):
        yield e, c, inserted_value(e, c, rules)


def inserted_value(e: ast.Expr, column: DeclaredColumn, rules: Rules | None = None) -> Any:
    """The constant in its Python form, as its column holds it."""
    expr = bind_expr(e, rules or Rules("VALUES", no_column))
    with with_span(e.span):
        made = _coerced(expr, column)
    value = compile.value_of(made)
    if value is None and expr.type is not Scalar.NULL and compile.value_of(expr) is not None:
        message = f"{compile.value_of(expr)} does not fit {column.name} {column.type}"
        raise SqlError(message, e.span, f"{column.name} takes {column.type}{_SUCH_AS.get(column.type, '')}")
    if isinstance(column.type, Decimal) and is_numeric(expr.type) and value != compile.value_of(expr):
        hint = f"ROUND it to {column.type.scale} digits"
        raise SqlError(f"{compile.value_of(expr)} does not fit {column.name} {column.type}", e.span, hint)
    return value


def _coerced(e: Expr, column: DeclaredColumn) -> Expr:
    """The value as its column holds it; what would lose something is refused."""
    t = column.type
    if fits(e.type, t) or (e.type is Scalar.VARCHAR and t in TIMES):
        return typing.cast(e, t)
    if isinstance(t, Decimal) and is_numeric(e.type) and e.type is not Scalar.DOUBLE:
        return typing.cast(e, t)
    hint = f"{column.name} takes {t}"
    if t is Scalar.VARCHAR:
        hint = "put it in single quotes, or CAST it"
    elif t is Scalar.BYTES:
        hint = "write TO_BYTES('…', 'base64')"
    raise SqlError(f"{column.name} is {t}; the value is {e.type}", hint=hint)


def fits(source: Type, target: Type) -> bool:
    """Does every value of `source` have its own form in `target`, at any depth?"""
    if widens(source, target):
        return True
    match source, target:
        case (Array(a), Array(b)):
            return fits(a, b)
        case (Map(k, v), Map(kk, vv)):
            return fits(k, kk) and fits(v, vv)
        case (Struct(), Struct(fields)):
            want = {f.name: f.type for f in fields}
            return all(f.name in want and fits(f.type, want[f.name]) for f in source.fields)
    return False


def no_column(n: ast.Name) -> Never:
    hint = "put texts in single quotes" if len(n.parts) == 1 else "write a constant"
    raise SqlError(f"VALUES takes constants; {n} is a name", hint=hint)


# --------------------------------------------------------- INSERT INTO … SELECT


@dataclass(frozen=True, slots=True)
class Fitted:
    """Outputs as the target declares them, and the record key where no column is the key."""

    key: tuple[Output, ...]
    values: tuple[Output, ...]
    record_key: tuple[Expr, ...]


def matched(
    target: Declared, key: Sequence[Output], record_key: Sequence[Expr], values: Sequence[Output], span: Span
) -> Fitted:
    """The outputs as the target declares them."""
    if target.message_key is not None:  # the record key is what column c holds: any key of the result is one more value
        key, values = (), _in_order_of(target, (*key, *values))
        record_key = tuple(o.expr for o in values if o.name == target.message_key)
    want_key = [Column(c.name, c.type) for c in target.columns if c.place == "key" and not c.hidden]
    want_values = [Column(c.name, c.type) for c in target.columns if c.place == "value"]
    # A target without key columns may have a record key all the same: that of KEY='c', or a hidden one.
    same_record_key = [e.type for e in record_key] == [c.type for c in target.key]
    fits = _fit(want_key, key) and _fit(want_values, values)
    if not fits or (not want_key and target.key and not same_record_key):
        shown = _schema(want_key, want_values)
        given = _schema([Column(o.name, o.expr.type) for o in key], [Column(o.name, o.expr.type) for o in values])
        hint = f"{target.name} is ({shown}); the SELECT gives ({given}): names, order and KEY must agree"
        hint += ", and types, or CAST" if _named_alike(want_key, key) and _named_alike(want_values, values) else ""
        raise SqlError(f"the SELECT does not fit {target.name}", span, hint)
    return Fitted(_widened(want_key, key), _widened(want_values, values), () if key else tuple(record_key))


def _in_order_of(target: Declared, outputs: Sequence[Output]) -> tuple[Output, ...]:
    """The outputs in the target's order; what it does not have stays, to be refused."""
    order = [c.name for c in target.columns]
    return tuple(sorted(outputs, key=lambda o: order.index(o.name) if o.name in order else len(order)))


def _fit(want: Sequence[Column], have: Sequence[Output]) -> bool:
    return _named_alike(want, have) and all(
        widens(o.expr.type, c.type) or _has_digits(o.expr, c.type) for o, c in zip(have, want, strict=True)
    )


def _named_alike(want: Sequence[Column], have: Sequence[Output]) -> bool:
    return [c.name for c in want] == [o.name for o in have]


def _has_digits(e: Expr, target: Type) -> bool:
    """Is it a number that a DECIMAL has, to the last digit? A constant is cast into its column."""
    if not (isinstance(e, Lit) and isinstance(target, Decimal) and isinstance(e.value, int | float | PyDecimal)):
        return False
    if isinstance(e.value, bool) or not math.isfinite(e.value):
        return False
    digits = PyDecimal(repr(e.value) if isinstance(e.value, float) else e.value).as_tuple()
    scale = max(-int(digits.exponent), 0)
    whole = len(digits.digits) + max(int(digits.exponent), 0) - scale
    return scale <= target.scale and whole <= target.precision - target.scale


def widens(source: Type, target: Type) -> bool:
    """Does every value of `source` have its own form in `target`?"""
    if source == target or source is Scalar.NULL:
        return True
    if not (is_numeric(source) and is_numeric(target)):
        return False
    match source, target:
        case (Scalar.INT, Scalar.BIGINT) | (_, Scalar.DOUBLE):
            return True
        case (Decimal(p, s), Decimal(pp, ss)):
            return ss >= s and pp - ss >= p - s
        case (Scalar.INT, Decimal(p, s)):
            return p - s >= 10
        case (Scalar.BIGINT, Decimal(p, s)):
            return p - s >= 19
    return False


def _widened(want: Sequence[Column], have: Sequence[Output]) -> tuple[Output, ...]:
    return tuple(Output(o.name, typing.cast(o.expr, c.type)) for o, c in zip(have, want, strict=True))


def _schema(key: Sequence[Column], values: Sequence[Column]) -> str:
    return ", ".join([f"{c.name} {c.type} KEY" for c in key] + [f"{c.name} {c.type}" for c in values])
