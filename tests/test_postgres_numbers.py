"""PostgreSQL's functions of numbers, and of nulls among values of one type: as a real one gave them."""

from __future__ import annotations

import math
from decimal import Decimal as D
from typing import Any

import polars as pl
import pytest

from braid.errors import SqlError
from braid.expr import typing as t
from braid.expr.compile import evaluate
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.expr.postgres.base import NUMERIC, TOO_LONG, common
from braid.types import Array, Decimal, Scalar, Type, polars_type
from postgres_values import check, table, why_of

S = Scalar
NULL = Lit(None, S.NULL)


@pytest.mark.parametrize("name", ["numbers", "nulls"])
def test_what_postgresql_gives(name: str) -> None:
    for line in table(name):
        check(line)


def call(name: str, *types: Type | Expr) -> Expr:
    return t.call(f"pg.{name}", [Col(f"c{i}", x) if not isinstance(x, Lit) else x for i, x in enumerate(types)])  # type: ignore[arg-type]


def run(e: Expr, *values: Any) -> tuple[Any, bool]:
    types = {c.name: c.type for c in _columns(e)}
    frame = pl.DataFrame([pl.Series(f"c{i}", [v], dtype=polars_type(types[f"c{i}"])) for i, v in enumerate(values)])
    out, failed = evaluate(frame, [("v", e)])
    return out["v"][0], failed[0]


def _columns(e: Expr) -> list[Col]:
    if isinstance(e, Col):
        return [e]
    return [c for x in getattr(e, "args", ()) or [getattr(e, "arg", None)] if x is not None for c in _columns(x)]


# --------------------------------------------------------------------- the table of digits


@pytest.mark.parametrize(
    ("name", "types", "result"),
    [
        ("abs", [Decimal(4, 2)], Decimal(4, 2)),
        ("abs", [S.REAL], S.REAL),
        ("abs", [S.NULL], S.DOUBLE),
        ("ceil", [Decimal(4, 2)], Decimal(3, 0)),
        ("ceil", [NUMERIC], Decimal(29, 0)),
        ("floor", [Decimal(38, 0)], Decimal(38, 0)),
        ("ceil", [S.INT], S.DOUBLE),
        ("round", [Decimal(5, 5)], Decimal(1, 0)),
        ("trunc", [Decimal(4, 2)], Decimal(2, 0)),
        ("trunc", [Decimal(5, 5)], Decimal(1, 0)),
        ("round", [Decimal(4, 2), Lit(1, S.INT)], Decimal(4, 1)),
        ("round", [Decimal(4, 2), Lit(3, S.INT)], Decimal(5, 3)),
        ("round", [Decimal(4, 2), Lit(-1, S.INT)], Decimal(3, 0)),
        ("round", [NUMERIC, Lit(20, S.INT)], Decimal(38, 10)),
        ("round", [Decimal(4, 2), S.INT], Decimal(5, 2)),
        ("trunc", [Decimal(4, 2), S.INT], Decimal(4, 2)),
        ("round", [S.INT, Lit(1, S.INT)], Decimal(11, 1)),
        ("sign", [Decimal(4, 2)], Decimal(1, 0)),
        ("sign", [S.SMALLINT], S.DOUBLE),
        ("sqrt", [Decimal(4, 2)], Decimal(19, 17)),
        ("sqrt", [NUMERIC], Decimal(36, 21)),
        ("ln", [Decimal(4, 2)], Decimal(20, 18)),
        ("log", [NUMERIC], Decimal(28, 26)),
        ("log", [S.INT, S.INT], Decimal(38, 20)),
        ("exp", [Decimal(4, 2)], Decimal(38, 20)),
        ("exp", [S.INT], S.DOUBLE),
        ("power", [Decimal(4, 2), Lit(2, S.INT)], Decimal(38, 16)),
        ("power", [Decimal(4, 2), Decimal(4, 2)], Decimal(38, 20)),
        ("power", [S.INT, S.BIGINT], S.DOUBLE),
        ("power", [S.REAL, Decimal(4, 2)], S.DOUBLE),
        ("mod", [S.SMALLINT, S.SMALLINT], S.SMALLINT),
        ("mod", [S.SMALLINT, S.BIGINT], S.BIGINT),
        ("mod", [S.NULL, S.INT], S.INT),
        ("mod", [Decimal(4, 2), S.INT], Decimal(4, 2)),
        ("div", [Decimal(4, 2), Decimal(4, 2)], Decimal(4, 0)),
        ("gcd", [S.INT, S.BIGINT], S.BIGINT),
        ("factorial", [S.INT], Decimal(38, 0)),
        ("scale", [Decimal(4, 2)], S.INT),
    ],
)  # fmt: skip
def test_types_of_results(name: str, types: list[Any], result: Type) -> None:
    assert call(name, *types).type == result


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("round", [S.DOUBLE, S.INT]),
        ("round", [Decimal(4, 2), S.BIGINT]),
        ("mod", [S.REAL, S.INT]),
        ("mod", [S.NULL, S.NULL]),
        ("gcd", [S.SMALLINT, S.SMALLINT]),
        ("div", [S.DOUBLE, S.INT]),
        ("log", [S.DOUBLE, S.INT]),
        ("scale", [S.REAL]),
        ("abs", [S.VARCHAR]),
        ("sin", [S.BOOLEAN]),
        ("power", [S.INT]),
        ("pi", [S.INT]),
        ("greatest", [S.INT, S.BOOLEAN]),
        ("coalesce", [S.TIME, S.INTERVAL]),
        ("nullif", [S.INT, S.VARCHAR]),
        ("greatest", []),
    ],
)
def test_refused(name: str, types: list[Any]) -> None:
    with pytest.raises(SqlError):
        call(name, *types)


@pytest.mark.parametrize(
    ("name", "type_", "value"),
    [
        ("exp", Decimal(4, 2), D("50.00")),
        ("factorial", S.BIGINT, 34),
        ("round", Decimal(38, 0), D("9" * 38)),
    ],
)
def test_what_is_too_long_fails(name: str, type_: Type, value: Any) -> None:
    e = call(name, type_, Lit(-1, S.INT)) if name == "round" else call(name, type_)
    assert run(e, value) == (None, True)
    assert isinstance(e, Call)
    why = why_of(e.function)
    assert callable(why) and why(value, -1) == TOO_LONG if name == "round" else why(value) == TOO_LONG  # type: ignore[operator]


def test_places_of_a_constant() -> None:
    """A constant tells how many digits there are; with places of its own in each row the scale stays."""
    long = D("9999999999999999999999999999.9999999999")
    assert run(call("round", NUMERIC, Lit(2, S.INT)), long) == (D("1" + "0" * 28), False)
    assert run(call("round", NUMERIC, S.INT), long, 2) == (None, True)


def test_small_results_have_so_many_places() -> None:
    assert run(call("exp", Decimal(4, 2)), D("-20.00")) == (D("0.00000000206115362244"), False)


# ---------------------------------------------------------------------- RisingWave's own


def test_coth() -> None:
    """docs.risingwave.com/sql/functions/mathematical: coth(2) → 1.0373147207275481."""
    assert run(call("coth", S.DOUBLE), 2.0) == (1.0373147207275481, False)
    assert run(call("coth", S.DOUBLE), -math.inf) == (-1.0, False)
    assert math.isnan(run(call("coth", S.DOUBLE), 0.0)[0])


# ------------------------------------------------------------------------------- one type


@pytest.mark.parametrize(
    ("types", "result"),
    [
        ([], S.VARCHAR),
        ([S.NULL, S.NULL], S.VARCHAR),
        ([S.NULL, S.DATE], S.DATE),
        ([S.SMALLINT, S.INT], S.INT),
        ([S.BIGINT, Decimal(4, 2)], Decimal(21, 2)),
        ([Decimal(4, 2), S.REAL], S.REAL),
        ([S.REAL, S.INT, S.DOUBLE], S.DOUBLE),
        ([Decimal(38, 10), Decimal(20, 18)], Decimal(38, 18)),
        ([S.DATE, S.TIMESTAMPTZ, S.TIMESTAMP], S.TIMESTAMPTZ),
        ([Array(S.INT), Array(S.BIGINT)], Array(S.BIGINT)),
        ([S.INT, S.VARCHAR], None),
        ([S.TIME, S.INTERVAL], None),
        ([Array(S.INT), S.INT], None),
    ],
)
def test_common(types: list[Type], result: Type | None) -> None:
    assert common(types) == result


def test_a_value_without_room_fails_and_no_other_takes_its_place() -> None:
    long, short = D("99999999999999999999999999.5"), D("1.5")
    types = NUMERIC, Decimal(20, 18)
    assert run(call("coalesce", *types), long, short) == (None, True)
    assert run(call("greatest", *types), long, short) == (None, True)
    assert run(call("least", *types), long, short) == (short, False)
    assert run(call("greatest", *types), long.copy_negate(), short) == (short, False)
    assert run(call("greatest", *types), long, None) == (None, True)
    assert run(call("nullif", *types), long, short) == (long, False)


def test_plans_name_the_rows_of_all_dialects_where_the_value_is_theirs() -> None:
    """Plans of before stay the same."""

    def named(e: Expr) -> str:
        assert isinstance(e, Call)
        return e.function

    assert named(call("coalesce", S.INT, S.BIGINT)) == "COALESCE"
    assert named(call("greatest", S.VARCHAR, S.VARCHAR)) == "GREATEST"
    assert named(call("least", S.DOUBLE, S.INT)) == "pg.least"
    assert named(call("nullif", S.DOUBLE, S.DOUBLE)) == "NULLIF"
    assert named(call("greatest", S.INTERVAL, S.INTERVAL)) == "pg.greatest"


def test_intervals_of_one_length_are_equal() -> None:
    month, days = {"months": 1, "days": 0, "us": 0}, {"months": 0, "days": 30, "us": 0}
    two = S.INTERVAL, S.INTERVAL
    assert run(call("nullif", *two), month, days) == (None, False)
    assert run(call("greatest", *two), month, days) == (month, False)
    assert run(call("greatest", *two), days, {"months": 1, "days": 0, "us": 1}) == ({**month, "us": 1}, False)


def test_what_coalesce_does_not_reach_does_not_fail() -> None:
    root = call("sqrt", S.DOUBLE)
    for name in ("pg.coalesce", "COALESCE"):
        assert run(t.call(name, [root, Lit(-1.0, S.DOUBLE)]), -1.0) == (-1.0, True)
        assert run(t.call(name, [Lit(-1.0, S.DOUBLE), root]), -1.0) == (-1.0, False)
        assert run(t.call(name, [Lit(None, S.DOUBLE), root]), -1.0) == (None, True)
