"""Tables of what a real PostgreSQL gives: lines of `f('1'::int, null::text) => 5`, or `… !! the reason of its error`.

In: lines as PostgreSQL 15 gave them (tests/postgres_tables, by `written`; `array_contains` and the like stand there for
operators). Out: the value of each row, of constants and of columns, compared with it.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import polars as pl

from braid.expr import typing as t
from braid.expr.compile import evaluate
from braid.expr.functions import FUNCTIONS
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.types import Array, Decimal, Scalar, Type, polars_type

S = Scalar
_TYPES: dict[str, Type] = {
    "smallint": S.SMALLINT, "int": S.INT, "bigint": S.BIGINT, "real": S.REAL, "float8": S.DOUBLE, "text": S.VARCHAR,
    "bool": S.BOOLEAN, "bytea": S.BYTES, "date": S.DATE, "time": S.TIME, "timestamp": S.TIMESTAMP,
}  # fmt: skip
_ARGUMENT = re.compile(r"(?:'([^']*)'|null)::([a-z0-9]+(?:\(\d+,\d+\))?(?:\[\])*)(?:, |\)$)")


def table(name: str) -> list[str]:
    return (Path(__file__).parent / "postgres_tables" / f"{name}.txt").read_text().splitlines()


def type_of(name: str) -> Type:
    if name.endswith("[]"):
        return Array(type_of(name[:-2]))
    numeric = re.fullmatch(r"numeric\((\d+),(\d+)\)", name)
    return Decimal(int(numeric[1]), int(numeric[2])) if numeric else _TYPES[name]


def value(text: str, type_: Type) -> Any:
    """A value as PostgreSQL writes it."""
    match type_:
        case Array(element):
            return _array(text, element)
        case Decimal():
            return D(text)
        case S.SMALLINT | S.INT | S.BIGINT:
            return int(text)
        case S.REAL:
            return pl.Series([float(text)], dtype=pl.Float32)[0]
        case S.DOUBLE:
            return float(text)
        case S.BOOLEAN:
            return text in ("t", "true")
        case S.BYTES:
            return bytes.fromhex(text[2:])
        case S.DATE | S.TIME | S.TIMESTAMP:
            return {S.DATE: dt.date, S.TIME: dt.time, S.TIMESTAMP: dt.datetime}[type_].fromisoformat(text)
    return text


def _array(text: str, element: Type) -> list[Any]:
    """Elements have neither commas nor quotes inside."""
    if isinstance(element, Array):
        return [_array(x, element.element) for x in re.findall(r"\{[^{}]*\}", text[1:-1])]
    parts = text[1:-1].split(",") if len(text) > 2 else []
    return [None if x == "NULL" else value(x.strip('"'), element) for x in parts]


def parsed(call: str) -> tuple[str, list[Lit]]:
    name, rest = call.split("(", 1)
    found = list(_ARGUMENT.finditer(rest))
    assert sum(m.end() - m.start() for m in found) == len(rest) - (rest == ")"), call
    types = [type_of(m[2]) for m in found]
    return name, [Lit(None if m[1] is None else value(m[1], x), x) for m, x in zip(found, types, strict=True)]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def check(line: str) -> None:
    """The value, or the reason; of constants, and of columns that have other rows too. (Polars takes constants 0.0 and
    -0.0 for the same.)"""
    call, mark, expected = re.fullmatch(r"(.*?) (=>|!!) ?(.*)", line).groups()  # type: ignore[union-attr]
    name, literals = parsed(call)
    data = [pl.Series(f"c{i}", [x.value, None], dtype=polars_type(x.type)) for i, x in enumerate(literals)]
    frame = pl.DataFrame(data or [pl.Series("z", [0, 0])])
    columns = [Col(f"c{i}", x.type) for i, x in enumerate(literals)]
    forms: list[Sequence[Expr]] = [columns] if all(x.value == 0.0 for x in literals) else [literals, columns]
    for args in forms:
        e = t.call(f"pg.{name}", args)
        out, failed = evaluate(frame, [("v", e)])
        got = out["v"].to_list()[0]
        if mark == "!!":
            assert (got, failed[0]) == (None, True), (line, got)
            assert _reason(e, frame) == expected, line
        else:
            wanted = None if expected == "NULL" else value(expected, e.type)
            assert same(got, wanted) and not failed[0], (line, got)


def why_of(name: str) -> Callable[..., str] | str:
    fallible = FUNCTIONS[name].fallible
    return "" if fallible is None else fallible.why


def _reason(e: Expr, frame: pl.DataFrame) -> str:
    assert isinstance(e, Call)
    args, _ = evaluate(frame, [(f"{i}", a) for i, a in enumerate(e.args)])
    why = why_of(e.function)
    return why if isinstance(why, str) else why(*args.row(0))


def written(expressions: Sequence[str], connection: Any) -> str:
    """The lines of these expressions, as a server gives them."""
    made = []
    for x in expressions:
        try:
            (got,) = connection.execute(f"SELECT ({x})::text").fetchone()
            made.append(f"{x} => {'NULL' if got is None else got}")
        except Exception as e:
            made.append(f"{x} !! {str(e).splitlines()[0]}")
    return "\n".join(made)
