"""What an expression gives at each of its nodes, and what a drop tells of it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from braid.bind.program import Program
from braid.expr import compile, reasons, trace
from braid.expr.functions import FUNCTIONS
from braid.expr.nodes import Call, Cast, Col, Expr, Lit
from braid.types import Scalar, polars_type

S = Scalar
SQL = """
CREATE STREAM s (k INT KEY, a INT, b INT, p DECIMAL(38, 2), t STRING, m MAP<STRING, INT>, xs ARRAY<STRING>, d DATE)
  WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT k, {} AS x FROM s;
"""
ROW: dict[str, Any] = {
    "S.A": 6, "S.B": 0, "S.P": Decimal(10) ** 35, "S.T": "zz", "S.M": {"a": 1}, "S.XS": ["1", "y"],
    "S.D": dt.date(2024, 1, 2),
}  # fmt: skip


def expr(sql: str) -> Expr:
    (query,) = (e.query for e in Program("ksqldb").statements(SQL.format(sql)) if e.query is not None)
    return query.sink.values[0].expr


def found(node: trace.Node) -> dict[str, tuple[object, str]]:
    """Value and reason of each node that is reached, by its text."""
    own = {node.text: (node.value, node.why)} if node.reached else {}
    return {text: x for part in node.parts for text, x in found(part).items()} | own


def failures(sql: str, **row: object) -> dict[str, str]:
    made = found(trace.of_row(expr(sql), ROW | {f"S.{n.upper()}": v for n, v in row.items()}))
    return {text: why for text, (_, why) in made.items() if why}


def test_each_node_has_its_value() -> None:
    made = found(trace.of_row(expr("(a + 1) * LEN(t)"), ROW))
    assert made == {
        "(S.A + 1) * LEN(S.T)": (14, ""),
        "S.A + 1": (7, ""),
        "S.A": (6, ""),
        "1": (1, ""),
        "LEN(S.T)": (2, ""),
        "S.T": ("zz", ""),
    }
    nested = found(trace.of_row(expr("m['a'] + ARRAY_LENGTH(xs)"), ROW))
    assert nested["S.M"] == ({"a": 1}, "") and nested["S.XS"] == (["1", "y"], "")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("a / b", {"S.A / S.B": "division by zero"}),
        ("1 + a / b * 2", {"S.A / S.B": "division by zero"}),
        ("COALESCE(a % b, -1)", {"S.A % S.B": "division by zero"}),
        ("p / b", {"S.P / CAST(S.B AS DECIMAL(10, 0))": "division by zero"}),
        ("p * p", {"S.P * S.P": "too many digits for DECIMAL(38, 4)"}),
        ("CAST(t AS INT)", {"CAST(S.T AS INTEGER)": "'zz' is no INTEGER"}),
        ("CAST(t AS DATE)", {"CAST(S.T AS DATE)": "'zz' is no DATE"}),
        ("CAST(p AS DECIMAL(4, 2))",
         {"CAST(S.P AS DECIMAL(4, 2))": f"1{'0' * 35}.00 has too many digits for DECIMAL(4, 2)"}),
        ("CAST(xs AS ARRAY<INT>)", {"CAST(S.XS AS ARRAY<INTEGER>)": "something in it has no form in ARRAY<INTEGER>"}),
        ("TRANSFORM(xs, x => CAST(x AS INT))",
         {"TRANSFORM(S.XS, X => CAST(X AS INTEGER))": "it has no result for an element (arithmetic with NULL has none)"}),  # noqa: E501
        ("LPAD(t, 2000000, 'x')", {"LPAD(S.T, 2000000, 'x')": "the result would be too long"}),
        ("PARSE_DATE(t, 'yyyy')", {"PARSE_DATE(S.T, 'yyyy')": "there is no such time, pattern or zone"}),
        ("JSON_ARRAY_LENGTH(t)", {"JSON_ARRAY_LENGTH(S.T)": "it is not JSON, or not of that kind"}),
        ("1 / 0", {"1 / 0": "division by zero"}),
        ("a + 1 / 0", {"1 / 0": "division by zero"}),
        ("CAST(CAST(t AS INT) AS STRING)", {"CAST(S.T AS INTEGER)": "'zz' is no INTEGER"}),
        ("a + b", {}),
    ],
)  # fmt: skip
def test_the_innermost_one_says_why(sql: str, told: dict[str, str]) -> None:
    assert failures(sql) == told


@pytest.mark.parametrize(
    ("sql", "row", "told"),
    [
        ("CASE WHEN b = 0 THEN 7 ELSE a / b END", {}, []),
        ("CASE WHEN b = 1 THEN 7 ELSE a / b END", {}, ["S.A / S.B"]),
        ("CASE WHEN a / b > 1 THEN 7 WHEN CAST(t AS INT) = 1 THEN 8 END", {}, ["S.A / S.B", "CAST(S.T AS INTEGER)"]),
        ("b = 0 OR a / b > 1", {}, []),
        ("b <> 0 AND a / b > 1", {}, []),
        ("b = 0 AND a / b > 1", {}, ["S.A / S.B"]),
        ("b <> 0 OR a / b > 1", {}, ["S.A / S.B"]),
        ("COALESCE(a, 1 / b)", {}, []),
        ("COALESCE(a, 1 / b)", {"a": None}, ["1 / S.B"]),
        ("IFNULL(a / b, CAST(t AS INT))", {}, ["S.A / S.B", "CAST(S.T AS INTEGER)"]),
    ],
)
def test_a_branch_that_is_not_taken_does_not_fail(sql: str, row: dict[str, object], told: list[str]) -> None:
    assert list(failures(sql, **row)) == told
    frame = pl.DataFrame([pl.Series("=row", [0]), pl.Series("S.K", [1], dtype=pl.Int32)]).with_columns(
        [pl.select(compile.to_polars(Lit((ROW | {"S.A": row.get("a", 6)})[c.name], c.type)).alias(c.name)).to_series()
         for c in columns_of(expr(sql))]
    )  # fmt: skip
    assert compile.evaluate(frame, [("v", expr(sql))])[1].to_list() == [bool(told)]


def columns_of(e: Expr) -> list[Col]:
    from braid.expr.nodes import parts

    return list(dict.fromkeys(x for x in parts(e) if isinstance(x, Col)))


def frame_of(*values: int | None) -> pl.DataFrame:
    return pl.DataFrame({"A": values, "T": ["x"] * len(values)}, schema={"A": pl.Int32, "T": pl.String})


DIVIDED = Call("div", (Lit(1, S.INT), Col("A", S.INT)), S.INT)
CASTED = Cast(Col("T", S.VARCHAR), S.INT)


def test_a_row_has_the_first_reason() -> None:
    told = trace.messages(frame_of(0, 1, None), [DIVIDED, CASTED])
    assert told.to_list() == ["1 / A: division by zero", *["CAST(T AS INTEGER): 'x' is no INTEGER"] * 2]
    assert trace.messages(frame_of(0), [DIVIDED], {"A": "SUM(x)"}).to_list() == ["1 / SUM(x): division by zero"]
    assert trace.messages(frame_of(1), [DIVIDED]).to_list() == [None]


def test_so_many_rows_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST", 2)
    assert [m is None for m in trace.messages(frame_of(0, 0, 0), [DIVIDED])] == [False, False, True]


def test_a_reason_is_cut() -> None:
    long = frame_of(1).with_columns(pl.lit("x" * 1000).alias("T"))
    (told,) = trace.messages(long, [CASTED])
    assert told.startswith("CAST(T AS INTEGER): 'xxx") and told.endswith("… is no INTEGER") and len(told) < 100


def test_times_that_python_has_none_for() -> None:
    days = pl.Series("D", [10_000_000], dtype=pl.Int32).cast(pl.Date)
    assert reasons.plain(days, S.DATE) == 10_000_000
    assert reasons.plain(pl.Series("D", [1], dtype=polars_type(S.TIMESTAMP)), S.TIMESTAMP) == dt.datetime(
        1970, 1, 1, 0, 0, 0, 1
    )


def test_a_row_of_functions_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text, or a function of the arguments; of one that fails itself nothing is told."""

    def refuses(*_: object) -> str:
        raise TypeError

    build = FUNCTIONS["div"].fallible
    assert build is not None
    for why, told in (
        ("oh", "oh"),
        (lambda a, b: f"{a} by {b}", "1 by 0"),
        (refuses, "it is out of range for INTEGER"),
    ):
        monkeypatch.setitem(FUNCTIONS, "div", replace(FUNCTIONS["div"], build=replace(build, why=why)))
        assert trace.messages(frame_of(0), [DIVIDED]).to_list() == [f"1 / A: {told}"]


def test_every_function_that_can_fail_has_a_reason() -> None:
    able = {f.name: f.fallible for f in FUNCTIONS.values() if f.fallible is not None and f.name != "called"}
    by_type = {"add", "sub", "mul", "neg", "abs", "int", "bigint", "ceil", "floor", "round", "extract"}  # out of range
    told = ("pg.sub_", "pg.time_", "pg.interval_add_")  # times, by their type
    named = {name for name, build in able.items() if not build.why and not name.startswith(told)}
    assert {n.split(".")[-1].lower() for n in named} <= by_type
