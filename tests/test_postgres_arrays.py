"""PostgreSQL's functions of arrays: as a real one gave them; and RisingWave's own."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal as D
from typing import Any

import polars as pl
import pytest

from braid.errors import SqlError
from braid.expr import typing as t
from braid.expr.compile import evaluate
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.postgres.arrays import quantified
from braid.types import Array, Decimal, Scalar, Type, polars_type
from postgres_values import check, same, table

S = Scalar
INTS, TEXTS, DOUBLES = Array(S.INT), Array(S.VARCHAR), Array(S.DOUBLE)
NAN = math.nan


def test_what_postgresql_gives() -> None:
    for line in table("arrays"):
        check(line)


def run(name: str, *args: tuple[Any, Type]) -> tuple[Any, bool]:
    """Of columns, which have a null row besides."""
    frame = pl.DataFrame([pl.Series(f"c{i}", [v, None], dtype=polars_type(x)) for i, (v, x) in enumerate(args)])
    e = t.call(f"pg.{name}", [Col(f"c{i}", x) for i, (_, x) in enumerate(args)])
    out, failed = evaluate(frame, [("v", e)])
    return out["v"].to_list()[0], failed[0]


# ---------------------------------------------------------------------- RisingWave's own

OWN: list[tuple[str, Any, Type, Any]] = [
    ("array_length", [1, 2, 3], INTS, 3),
    ("array_length", [], INTS, 0),
    ("array_length", [[1, 2], [3]], Array(INTS), 2),
    ("array_distinct", [1, 2, None, 1, None], INTS, [1, 2, None]),
    ("array_distinct", [NAN, 1.0, NAN], DOUBLES, [NAN, 1.0]),
    ("array_sort", [3, 2, None, 1, None], INTS, [1, 2, 3, None, None]),
    ("array_sort", ["b", "é", "B", "z"], TEXTS, ["B", "b", "z", "é"]),
    ("array_sort", [NAN, math.inf, -1.0], DOUBLES, [-1.0, math.inf, NAN]),
    ("array_reverse", [1, None, 3], INTS, [3, None, 1]),
    ("array_min", [NAN, 1.0, None], DOUBLES, 1.0),
    ("array_max", [NAN, 1.0, None], DOUBLES, NAN),
    ("array_max", ["a", "b", None, "c"], TEXTS, "c"),
    ("array_min", ["", ""], TEXTS, ""),
    ("array_max", [None, None], INTS, None),
    ("array_max", [], INTS, None),
    ("array_min", [dt.date(2023, 9, 6), dt.date(2002, 10, 30)], Array(S.DATE), dt.date(2002, 10, 30)),
    ("array_sum", [3, 2, None], INTS, 5),
    ("array_sum", [2**31 - 1, 2**31 - 1], INTS, 2**32 - 2),
    ("array_sum", [2**63 - 1, 2**63 - 1], Array(S.BIGINT), D(2**64 - 2)),
    ("array_sum", [D("99.99"), D("0.01")], Array(Decimal(4, 2)), D("100.00")),
    ("array_sum", [0.5, 0.25], Array(S.REAL), 0.75),
    ("array_sum", [None], INTS, None),
    ("array_sum", [], INTS, None),
    ("array_sum", [{"months": 0, "days": 0, "us": 5}, {"months": 0, "days": 3, "us": 0}], Array(S.INTERVAL),
     {"months": 0, "days": 3, "us": 5}),
    ("array_flatten", [[1, 2], [], None, [3]], Array(INTS), [1, 2, 3]),
    ("array_flatten", [[[1], [2]], [None]], Array(Array(INTS)), [[1], [2], None]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "type_", "expected"), OWN)
def test_what_only_risingwave_has(name: str, value: Any, type_: Type, expected: Any) -> None:
    got, failed = run(name, (value, type_))
    assert same(got, expected) and not failed, got


def test_sums_that_are_too_large_fail() -> None:
    assert run("array_sum", ([1e308, 1e308], DOUBLES)) == (None, True)
    assert run("array_sum", ([3e38, 3e38], Array(S.REAL))) == (None, True)
    assert run("array_sum", ([D("9" * 38), D(1)], Array(Decimal(38, 0)))) == (None, True)
    assert run("array_sum", ([{"months": 2**31 - 1, "days": 0, "us": 0}] * 2, Array(S.INTERVAL))) == (None, True)
    assert run("array_sum", ([math.inf, 1.0], DOUBLES)) == (math.inf, False)


def test_elements_of_arrays_of_arrays() -> None:
    """docs.risingwave.com/sql/functions/array: an element of one is an array, of any length."""
    nested = Array(INTS)
    value = [[1], [2], [3, 4], [2]]
    assert run("array_remove", (value, nested), ([2], INTS)) == ([[1], [3, 4]], False)
    assert run("array_position", (value, nested), ([2], INTS)) == (2, False)
    assert run("array_positions", (value, nested), ([2], INTS)) == ([2, 4], False)
    assert run("array_replace", (value, nested), ([2], INTS), (None, INTS)) == ([[1], None, [3, 4], None], False)
    assert run("subscript", (value, nested), (3, S.INT)) == ([3, 4], False)
    assert run("array_length", (value, nested), (1, S.INT)) == (4, False)
    assert run("array_length", (value, nested), (2, S.INT)) == (None, True)  # they differ
    assert run("cardinality", (value, nested)) == (5, False)


def test_dates_that_python_does_not_have() -> None:
    days = pl.Series([[90_000_000, -90_000_000, None]], dtype=pl.List(pl.Int32)).cast(pl.List(pl.Date))
    e = t.call("pg.array_sort", [Col("x", Array(S.DATE))])
    out, _ = evaluate(pl.DataFrame([days.alias("x")]), [("v", e)])
    assert out["v"].cast(pl.List(pl.Int32)).to_list() == [[-90_000_000, 90_000_000, None]]


# -------------------------------------------------------------------------- a[1], ANY, ALL


@pytest.mark.parametrize(
    ("at", "expected"), [(1, 5), (2, None), (3, 6), (4, None), (0, None), (-1, None), (None, None)]
)
def test_subscript(at: Any, expected: Any) -> None:
    assert run("subscript", ([5, None, 6], INTS), (at, S.BIGINT)) == (expected, False)


def test_a_subscript_is_an_integer() -> None:
    assert run("subscript", ([5], INTS), (2**31, S.BIGINT)) == (None, True)
    with pytest.raises(SqlError):
        run("subscript", ([5], INTS), (1.0, S.DOUBLE))


T, F, N = True, False, None
QUANTIFIED = [
    ("any", "eq", 1, [1, None], T), ("any", "eq", 2, [1, None], N), ("any", "eq", 2, [1], F), ("any", "eq", 2, [], F),
    ("any", "eq", None, [], F), ("any", "eq", None, [1], N), ("any", "eq", 1, None, N), ("any", "lt", 1, [0, 2], T),
    ("all", "ne", 1, [1, None], F), ("all", "ne", 2, [1, None], N), ("all", "ne", 2, [1], T), ("all", "ne", 2, [], T),
    ("all", "ne", None, [], T), ("all", "ne", None, [1], N), ("all", "ne", 1, None, N), ("all", "lt", 1, [0, 2], F),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operator", "left", "array", "expected"), QUANTIFIED)
def test_quantified(name: str, operator: str, left: Any, array: Any, expected: Any) -> None:
    frame = pl.DataFrame([pl.Series("a", [array, [7]], dtype=pl.List(pl.Int32)), pl.Series("x", [left, 7], pl.Int32)])
    forms: list[tuple[Expr, Expr]] = [(Col("x", S.INT), Col("a", INTS)), (Lit(left, S.INT), Lit(array, INTS))]
    for one, many in forms:
        e = quantified(name == "all", many, lambda element, one=one: t.call(operator, [one, element]))  # type: ignore[misc]
        out, failed = evaluate(frame, [("v", e)])
        assert (out["v"][0], failed[0]) == (expected, False)


def test_quantified_arrays_of_arrays() -> None:
    frame = pl.DataFrame({"a": [[[1, 2], [3, 4]], [[1, 2], [3, None]], None]}, schema={"a": pl.List(pl.List(pl.Int32))})
    e = quantified(False, Col("a", Array(INTS)), lambda element: t.call("eq", [Lit(4, S.BIGINT), element]))
    assert evaluate(frame, [("v", e)])[0]["v"].to_list() == [True, None, None]


def test_a_comparison_that_fails() -> None:
    e = quantified(
        False, Col("a", INTS), lambda element: t.call("eq", [Lit(1, S.INT), t.call("div", [Lit(1, S.INT), element])])
    )
    out, failed = evaluate(pl.DataFrame({"a": [[0], [1], []]}, schema={"a": pl.List(pl.Int32)}), [("v", e)])
    assert (out["v"].to_list(), failed.to_list()) == ([None, True, False], [True, False, False])


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("array_append", [INTS, S.VARCHAR]),
        ("array_cat", [INTS, TEXTS]),
        ("array_cat", [INTS, Array(Array(INTS))]),
        ("array_contains", [INTS, Array(S.BIGINT)]),
        ("array_length", [S.INT]),
        ("array_length", [INTS, S.BIGINT]),
        ("cardinality", [S.NULL]),
        ("trim_array", [INTS, S.BIGINT]),
        ("array_sum", [TEXTS]),
        ("array_flatten", [INTS]),
        ("array_position", [INTS, S.INT, S.BIGINT]),
    ],
)
def test_refused(name: str, types: list[Type]) -> None:
    args: list[Expr] = [Col(f"c{i}", x) for i, x in enumerate(types)]
    with pytest.raises(SqlError):
        t.call(f"pg.{name}", args)
