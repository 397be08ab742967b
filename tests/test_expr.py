"""Scalars: what each function gives, what it refuses, where it fails; constants and columns alike."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal as D
from typing import Any

import polars as pl
import pytest

from braid.errors import SqlError
from braid.expr import typing as t
from braid.expr.compile import evaluate, failed, value_of
from braid.expr.functions import FUNCTIONS, by_name
from braid.expr.functions_dialects import LENSES
from braid.expr.functions_sqlstream import SQLSTREAM
from braid.expr.functions_standard import STANDARD
from braid.expr.nodes import Call, Cast, Col, Expr, Lit
from braid.expr.postgres import ROWS
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type, polars_type
from test_functions import CASES as MORE

S = Scalar
MAX, MIN = 2**31 - 1, -(2**31)
NAN = math.nan


def lit(v: Any) -> Expr:
    if isinstance(v, Lit | Col | Call):
        return v
    if isinstance(v, D):
        _, digits, exponent = v.as_tuple()
        return Lit(v, Decimal(max(len(digits), 1 - int(exponent)), -int(exponent)))
    types: dict[type, Type] = {
        bool: S.BOOLEAN, int: S.INT, float: S.DOUBLE, str: S.VARCHAR, bytes: S.BYTES, type(None): S.NULL,
        dt.datetime: S.TIMESTAMP, dt.date: S.DATE, dt.time: S.TIME,
    }  # fmt: skip
    return Lit(v, types[type(v)])


def big(v: int) -> Lit:
    return Lit(v, S.BIGINT)


def run(e: Expr, frame: pl.DataFrame | None = None) -> tuple[Any, bool]:
    out, marks = evaluate(pl.DataFrame({"z": [0]}) if frame is None else frame, [("v", e)])
    assert out.schema == {"v": polars_type(e.type)}
    assert (marks.dtype, marks.null_count()) == (pl.Boolean, 0)
    return out["v"].to_list()[0], marks[0]


def over_columns(e: Expr) -> tuple[Expr, pl.DataFrame]:
    """The same call with its constants in columns (patterns and the like stay constants)."""
    assert isinstance(e, Call)
    fixed = e.function in ("EXTRACTJSONFIELD", "like") or "TIME" in e.function or "DATE" in e.function
    args: list[Expr] = []
    data = [pl.Series("z", [0, 0])]
    for i, a in enumerate(e.args):
        if isinstance(a, Lit) and a.value is not None and not (fixed and i > 0):
            data.append(pl.Series(f"L.C{i}", [a.value, None], dtype=polars_type(a.type)))
            args.append(Col(f"L.C{i}", a.type))
        else:
            args.append(a)
    return Call(e.function, tuple(args), e.type), pl.DataFrame(data)


def same(a: object, b: object) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


FAILS = object()

CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    # arithmetic
    ("add", (MAX, 1), MIN), ("sub", (MIN, 1), MAX), ("mul", (MAX, 2), -2), ("neg", (MIN,), MIN),
    ("add", (big(2**63 - 1), 1), -(2**63)), ("add", (1, 1.5), 2.5), ("add", ("a", "b"), "ab"),
    ("div", (-7, 2), -3), ("div", (7, -2), -3), ("mod", (-7, 2), -1), ("mod", (7, -2), 1),
    ("div", (MIN, -1), MIN), ("mod", (MIN, -1), 0), ("div", (1, 0), FAILS), ("mod", (1, 0), FAILS),
    ("div", (1.0, 0.0), FAILS), ("mod", (1.0, 0.0), FAILS), ("div", (NAN, 0.0), FAILS), ("div", (1.0, None), None),
    ("mod", (-7.5, 2.0), -1.5), ("add", (1, None), None),
    ("add", (1, D("1.50")), D("2.50")), ("mul", (D("1.25"), D("3.125")), D("3.90625")),
    ("div", (D("2"), D("3")), D("0.666667")), ("div", (D("1"), D("0")), FAILS), ("mod", (D("-7.5"), D("2")), D("-1.5")),
    ("mul", (Lit(D("9" * 30), Decimal(30, 0)), Lit(D("9" * 30), Decimal(30, 0))), FAILS),
    # comparison and logic
    ("eq", (1, 1.0), True), ("eq", (NAN, NAN), False), ("ne", (NAN, NAN), True), ("gt", (NAN, 1.0), False),
    ("lt", (1.0, NAN), False), ("eq", (None, 1), None), ("eq", (D("1.50"), D("1.5")), True), ("le", ("a", "b"), True),
    ("eq", (0.0, -0.0), True), ("gt", (big(2**62), 1.5), True),
    ("lt", (dt.datetime(2020, 1, 1), "2020-01-02"), True), ("eq", (dt.date(2020, 1, 1), "2020-01-01"), True),
    ("ge", (dt.datetime(2020, 1, 1), dt.date(2020, 1, 1)), True), ("gt", (dt.time(12), "11:59"), True),
    ("and", (True, None), None), ("and", (False, None), False), ("or", (True, None), True), ("not", (None,), None),
    ("is_null", (None,), True), ("is_not_null", (1,), True), ("is_distinct_from", (None, 1), True),
    ("in", (1, 1, 2, None), True), ("in", (3, 1, 2, None), None), ("in", (3, 1, 2), False),
    ("in", ("a", "b", "a"), True),
    ("like", ("abc", "a%"), True), ("like", ("abc", "%c"), True), ("like", ("abc", "%b%"), True),
    ("like", ("abc", "_b_"), True), ("like", ("abc", "b%"), False), ("like", ("a_c", "a!_c", "!"), True),
    ("like", ("abc", "a!_c", "!"), False), ("like", ("a\nb", "a%b"), True), ("like", ("a.c", "a.c"), True),
    # text
    ("UCASE", ("aé",), "AÉ"), ("LCASE", ("AB",), "ab"), ("TRIM", (" \t a ",), "a"), ("LEN", ("aé😀",), 3),
    ("LEN", (b"abc",), 3), ("CONCAT", ("a", None, "b"), "ab"), ("CONCAT", (b"a", b"b"), b"ab"),
    ("concat", ("a", None), "a"),
    ("CONCAT_WS", (",", "a", None, "b"), "a,b"), ("CONCAT_WS", (None, "a"), None),
    ("SUBSTRING", ("stream", 1, 4), "stre"), ("SUBSTRING", ("stream", -3), "eam"),
    ("SUBSTRING", ("stream", -3, 2), "ea"),
    ("SUBSTRING", ("stream", 0), "stream"), ("SUBSTRING", ("stream", 10), ""), ("SUBSTRING", ("stream", -10, 2), "st"),
    ("SUBSTRING", ("stream", 2, -1), ""), ("SUBSTRING", (b"stream", 2, 3), b"tre"),
    ("SUBSTRING", ("stream", None), None),
    ("REPLACE", ("foobar", "o", "$1"), "f$1$1bar"), ("REPLACE", ("a", "", "x"), "xax"),
    ("replace_found", ("a", "", "x"), "a"), ("replace_found", ("aba", "a", "x"), "xbx"),
    ("replace_found", ("a", "", None), None),
    ("SPLIT", ("a,b,,c", ","), ["a", "b", "", "c"]), ("SPLIT", ("", ""), [""]), ("SPLIT", ("abc", ""), ["a", "b", "c"]),
    ("INSTR", ("CORPORATE FLOOR", "OR"), 2), ("INSTR", ("CORPORATE FLOOR", "OR", 3), 5),
    ("INSTR", ("CORPORATE FLOOR", "OR", 3, 2), 14), ("INSTR", ("CORPORATE FLOOR", "OR", -3), 5),
    ("INSTR", ("CORPORATE FLOOR", "OR", -3, 2), 2), ("INSTR", ("CORPORATE FLOOR", "X"), 0),
    ("INSTR", ("éé😀x", "x"), 4),
    ("INSTR", ("CORPORATE FLOOR", "R", -1, 2), 6), ("INSTR", (None, "x"), 0),
    ("LPAD", ("Foo", 7, "Bar"), "BarBFoo"), ("LPAD", ("Foo", 2, "Bar"), "Fo"), ("LPAD", ("123", 5, "0"), "00123"),
    ("LPAD", ("a", -1, "x"), None), ("LPAD", ("a", 3, ""), None), ("RPAD", ("Foo", 7, "Bar"), "FooBarB"),
    # numbers
    ("ABS", (-1.5,), 1.5), ("ABS", (D("-1.5"),), D("1.5")), ("CEIL", (1.2,), 2.0), ("FLOOR", (D("-1.20"),), D("-2.00")),
    ("ROUND", (1.5,), 2), ("ROUND", (-1.5,), -1), ("ROUND", (0.49999999999999994,), 0), ("ROUND", (7,), 7),
    ("ROUND", (2.675, 2), 2.68), ("ROUND", (-2.675, 2), -2.67), ("ROUND", (15.0, -1), 20.0),
    ("ROUND", (1e300, 2), 1e300),
    ("ROUND", (D("9.5"),), D("10")), ("ROUND", (D("-1.25"), 1), D("-1.20")), ("ROUND", (D("1.25"), 1), D("1.30")),
    ("SIGN", (-5,), -1), ("SIGN", (D("2.5"),), 1), ("SIGN", (NAN,), 0), ("SQRT", (4,), 2.0), ("SQRT", (-1.0,), NAN),
    ("GREATEST", (1, None, 2.5), 2.5), ("LEAST", (1, None, 2.5), 1.0),
    # nulls
    ("COALESCE", (None, 1, 2.5), 1.0), ("IFNULL", (None, 3), 3), ("NULLIF", (1, 1), None), ("NULLIF", (1, 2), 1),
    ("AS_VALUE", (1,), 1),
    # dates
    ("FROM_UNIXTIME", (big(1500),), dt.datetime(1970, 1, 1, 0, 0, 1, 500000)),
    ("UNIX_TIMESTAMP", (dt.datetime(2020, 1, 1),), 1577836800000),
    ("TIMESTAMPTOSTRING", (big(1588888888123), "yyyy-MM-dd'T'HH:mm:ss.SSSX"), "2020-05-07T22:01:28.123Z"),
    ("TIMESTAMPTOSTRING", (big(1588888888123), "EEE, d MMM yyyy hh:mm a z", "America/New_York"),
     "Thu, 7 May 2020 06:01 PM EDT"),
    ("TIMESTAMPTOSTRING", (big(1588888888123), "yyyy HH:mmZ 'o''clock' %", "+05:30"), "2020 03:31+0530 o'clock %"),
    ("TIMESTAMPTOSTRING", (big(1588888888123), "yy/M/d H:m:s.SS XXX k K DDD", "Europe/London"),
     "20/5/7 23:1:28.12 +01:00 23 11 128"),
    ("FORMAT_TIMESTAMP", (dt.datetime(1969, 12, 31, 23), "EEEE MMMM HH"), "Wednesday December 23"),
    ("FORMAT_DATE", (dt.date(2020, 1, 2), "dd.MM.yyyy"), "02.01.2020"),
    ("FORMAT_TIME", (dt.time(1, 2), "HHmm"), "0102"),
    ("STRINGTOTIMESTAMP", ("2021-06-31 12:18:39.446", "yyyy-MM-dd HH:mm:ss.SSS"), 1625055519446),
    ("PARSE_TIMESTAMP", ("7 jan 2020 1:05 PM", "d MMM yyyy h:mm a"), dt.datetime(2020, 1, 7, 13, 5)),
    ("PARSE_TIMESTAMP", ("2020-01-01T00:00:00+02:00", "yyyy-MM-dd'T'HH:mm:ssXXX"), dt.datetime(2019, 12, 31, 22)),
    ("PARSE_TIMESTAMP", ("20200102", "yyyyMMdd"), dt.datetime(2020, 1, 2)),
    ("PARSE_TIMESTAMP", ("2021-03-14T02:30", "yyyy-MM-dd'T'HH:mm", "America/New_York"),
     dt.datetime(2021, 3, 14, 7, 30)),
    ("PARSE_TIMESTAMP", ("2021-11-07T01:30", "yyyy-MM-dd'T'HH:mm", "America/New_York"),
     dt.datetime(2021, 11, 7, 5, 30)),
    ("PARSE_TIMESTAMP", ("2020-13-01", "yyyy-MM-dd"), FAILS), ("PARSE_TIMESTAMP", ("2020-01-01x", "yyyy-MM-dd"), FAILS),
    ("PARSE_DATE", ("2020-02-03", "yyyy-MM-dd"), dt.date(2020, 2, 3)),
    ("PARSE_TIME", ("13:25", "HH:mm"), dt.time(13, 25)),
    # JSON
    ("EXTRACTJSONFIELD", ('{"a":{"b":[1,2.50,{"c":"x"}]}}', "$.a.b[2].c"), "x"),
    ("EXTRACTJSONFIELD", ('{"a":{"b":[1,2.50]}}', "$.a.b[1]"), "2.50"),
    ("EXTRACTJSONFIELD", ('{"a":{"b":[1, {"c": "é"}]}}', "$.a"), '{"b":[1,{"c":"é"}]}'),
    ("EXTRACTJSONFIELD", ('{"a b":true}', "$['a b']"), "true"), ("EXTRACTJSONFIELD", ('{"a":1}', "$.b"), None),
    ("EXTRACTJSONFIELD", ("nope", "$.b"), FAILS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "expected"), CASES)
def test_function(name: str, args: tuple[Any, ...], expected: Any) -> None:
    e = t.call(name, [lit(a) for a in args])
    want = (None, True) if expected is FAILS else (expected, False)
    for form, frame in ((e, None), over_columns(e)):
        value, bad = run(form, frame)
        assert same(value, want[0]) and bad == want[1]


def test_every_function_has_a_case() -> None:
    tested = {name for name, _, _ in CASES}
    elsewhere = {
        "subscript",
        "make_array",
        "make_map",
        "shift",  # test_watermarks.py
        "called",  # test_user_functions.py
        "EXPLODE",  # cases/ksqldb/table_functions
        "sql.round",  # cases/sqlstream/functions
    }
    own = {*LENSES, *STANDARD, *SQLSTREAM, *ROWS}  # test_lenses, test_sqlstream, tests/postgres
    tested |= {name for name, _, _ in MORE}
    own |= {f.name for f in by_name("lenses").values()} - by_name("ksqldb").keys() - tested  # test_function_pages.py
    assert set(FUNCTIONS) - own == tested | elsewhere
    assert all(f.name == name for name, f in FUNCTIONS.items())


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("add", ("a", 1), "VARCHAR + INTEGER has no meaning"),
        ("eq", ("a", 1), "VARCHAR = INTEGER: the types differ"),
        ("lt", (True, False), "BOOLEAN values have no order"),
        ("and", (1, True), "AND takes BOOLEAN, not INTEGER and BOOLEAN"),
        ("neg", ("a",), "-VARCHAR has no meaning"),
        ("lt", (dt.datetime(2020, 1, 1), "foo"), "'foo' is not a TIMESTAMP"),
        ("like", ("a", "a!", "!"), "ends with its escape character"),
        ("make_array", (1, "a"), "elements of one array have one type"),
        ("SUBSTRING", (1, 2), "SUBSTRING(INTEGER, INTEGER): it takes a VARCHAR"),
        ("CONCAT", ("a", 1), "CAST the INTEGER to VARCHAR"),
        ("COALESCE", (1, "a"), "CAST them to one type"),
        ("UNIX_TIMESTAMP", (), "use ROWTIME"),
        ("UUID", (), "not deterministic"),
        ("TIMESTAMPTOSTRING", (big(1), "b"), "the letter 'b'"),
        ("TIMESTAMPTOSTRING", (big(1), "yyyy 'x"), "a quote that does not end"),
        ("TIMESTAMPTOSTRING", (big(1), "yyyy", "Mars/X"), "unknown time zone"),
        ("PARSE_TIMESTAMP", ("x", Col("L.P", S.INT)), "a pattern is a text"),
        ("EXTRACTJSONFIELD", ("{}", "a.b"), "is not a path"),
        ("ARRAY_LENGTH", ("a",), "the length of text is LEN"),
    ],
)
def test_refused(name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SqlError) as e:
        t.call(name, [lit(a) for a in args])
    assert message in str(e.value)


def cast(values: list[Any], source: Type, target: Type) -> tuple[list[Any], list[bool]]:
    frame = pl.DataFrame({"L.A": pl.Series(values, dtype=polars_type(source))})
    out, marks = evaluate(frame, [("v", t.cast(Col("L.A", source), target))])
    assert out.schema == {"v": polars_type(target)}
    return out["v"].to_list(), marks.to_list()


XY = Struct((Column("A", S.INT), Column("B", S.VARCHAR)))


@pytest.mark.parametrize(
    ("source", "target", "values"),
    [
        (S.VARCHAR, S.INT, {"1": 1, " 2 ": 2, "+3": 3, "x": FAILS, "1.0": FAILS, "9999999999": FAILS, "": FAILS}),
        (S.VARCHAR, S.DOUBLE, {"1.5": 1.5, "-Infinity": -math.inf, "1e5": 1e5, ".5": 0.5, "1d": FAILS, "inf": FAILS}),
        (S.VARCHAR, Decimal(6, 2), {"1.245": D("1.25"), "-1.255": D("-1.26"), "1e3": D("1000.00"), " 1": D("1.00"),
                               "9999.999": FAILS, "1.2.3": FAILS, "1e999999999": FAILS, "+.5": D("0.50")}),
        (S.VARCHAR, S.BOOLEAN, {"true": True, " TRUE": True, "yes": False}),
        (S.VARCHAR, S.DATE, {"2020-01-02": dt.date(2020, 1, 2), "2020-02-30": FAILS, "2020": dt.date(2020, 1, 1)}),
        (S.VARCHAR, S.TIME, {"12:34": dt.time(12, 34), "12:34:56.789": dt.time(12, 34, 56, 789000), "25:00": FAILS}),
        (S.VARCHAR, S.TIMESTAMP, {"2020-01-02": dt.datetime(2020, 1, 2), "2020-01-02T03": dt.datetime(2020, 1, 2, 3),
                               "2020-01-02T03:04:05.678+0200": dt.datetime(2020, 1, 2, 1, 4, 5, 678000),
                               "1969-12-31T23:59:59.999": dt.datetime(1969, 12, 31, 23, 59, 59, 999000),
                               "x": FAILS}),
        (S.DOUBLE, S.INT, {1.9: 1, -1.9: -1, 1e20: MAX, -1e20: MIN, 2147483647.9: MAX}),
        (S.DOUBLE, S.BIGINT, {1e20: 2**63 - 1, 1.5: 1}),
        (S.DOUBLE, Decimal(6, 2), {1.005: D("1.01"), 1e10: FAILS, -0.5: D("-0.50")}),
        (S.BIGINT, S.INT, {2**40 + 5: 5}),
        (S.INT, Decimal(6, 2), {1234: D("1234.00"), 12345: FAILS}),
        (Decimal(8, 3), Decimal(6, 2), {D("9.995"): D("10.00"), D("-1.235"): D("-1.24"), D("99999.999"): FAILS}),
        (Decimal(12, 1), S.INT, {D("3000000000.9"): -1294967296, D("-1.9"): -1}),
        (Decimal(38, 9), S.DOUBLE, {D("0.1"): 0.1, D("12345678901234567890.123456789"): 1.2345678901234567e19}),
        (S.DOUBLE, S.VARCHAR, {1.0: "1.0", 1e10: "1.0E10", 1e-5: "1.0E-5",
                               123456.789: "123456.789", math.inf: "Infinity",
                               12345678.9: "1.23456789E7", -0.001: "-0.001"}),
        (Decimal(5, 2), S.VARCHAR, {D("1.50"): "1.50"}),
        (S.TIMESTAMP, S.VARCHAR, {dt.datetime(2020, 1, 2, 3, 4, 5, 678000): "2020-01-02T03:04:05.678"}),
        (S.TIME, S.VARCHAR, {dt.time(1, 2): "01:02", dt.time(1, 2, 3): "01:02:03",
         dt.time(1, 2, 3, 400000): "01:02:03.400"}),
        (S.DATE, S.TIMESTAMP, {dt.date(2020, 1, 2): dt.datetime(2020, 1, 2)}),
        (S.TIMESTAMP, S.DATE, {dt.datetime(2020, 1, 2, 3): dt.date(2020, 1, 2)}),
    ],
)  # fmt: skip
def test_cast(source: Type, target: Type, values: dict[Any, Any]) -> None:
    out, marks = cast([*values, None], source, target)
    assert out == [None if v is FAILS else v for v in values.values()] + [None]
    assert marks == [v is FAILS for v in values.values()] + [False]


def test_nested_casts() -> None:
    assert cast([["1", "x"], None, []], Array(S.VARCHAR), Array(S.INT)) == ([[1, None], None, []], [True, False, False])
    other = Struct((Column("B", S.INT), Column("C", S.INT)))
    rows = [{"A": 1, "B": "2"}, None, {"A": 1, "B": "z"}]
    assert cast(rows, XY, other) == ([{"B": 2, "C": None}, None, {"B": None, "C": None}], [False, False, True])
    entry = [{"key": "a", "value": 1}]
    assert cast([entry], Map(S.VARCHAR, S.INT), Map(S.VARCHAR, S.DOUBLE))[0] == [entry]
    assert cast([[1, None]], Array(S.INT), S.VARCHAR)[0] == ["[1, null]"]
    assert cast([{"A": 1, "B": None}], XY, S.VARCHAR)[0] == ["Struct{A=1}"]
    for source, target in ((S.BIGINT, S.TIMESTAMP), (S.BOOLEAN, S.INT), (S.BYTES, S.VARCHAR), (XY, S.INT)):
        with pytest.raises(SqlError, match="cannot be cast"):
            t.cast(Col("L.A", source), target)


FRAME = pl.DataFrame(
    {
        "L.A": pl.Series([1, 0, None], dtype=pl.Int32),
        "L.B": ["x", "2", "3"],
        "L.S": pl.Series([{"A": 1, "B": "p"}, {"A": 2, "B": None}, None], dtype=polars_type(XY)),
        "L.M": pl.Series([[{"key": "a", "value": 1}], [], None], dtype=polars_type(Map(S.VARCHAR, S.INT))),
        "L.R": pl.Series([[1, 2], [], None], dtype=pl.List(pl.Int32)),
    }
)
A, B = Col("L.A", S.INT), Col("L.B", S.VARCHAR)
ST, M, R = Col("L.S", XY), Col("L.M", Map(S.VARCHAR, S.INT)), Col("L.R", Array(S.INT))
TEN_BY_A = t.call("div", [lit(10), A])


@pytest.mark.parametrize(
    ("e", "expected", "marks"),
    [
        (TEN_BY_A, [10, None, None], [False, True, False]),
        (t.case([(t.call("eq", [A, lit(0)]), lit(None))], TEN_BY_A), [10, None, None], [False] * 3),
        (t.case([(t.call("eq", [A, lit(1)]), lit(5))], TEN_BY_A), [5, None, None], [False, True, False]),
        (t.case([(t.call("gt", [TEN_BY_A, lit(1)]), lit(1.5))]), [1.5, None, None], [False, True, False]),
        (
            t.call("and", [t.call("ne", [A, lit(0)]), t.call("gt", [TEN_BY_A, lit(1)])]),
            [True, False, None],
            [False] * 3,
        ),
        (t.call("or", [t.call("eq", [A, lit(0)]), t.call("gt", [TEN_BY_A, lit(1)])]), [True, True, None], [False] * 3),
        (t.call("IFNULL", [t.cast(B, S.INT), lit(7)]), [7, 2, 3], [True, False, False]),
        (t.field(ST, "a"), [1, 2, None], [False] * 3),
        (t.call("subscript", [M, lit("a")]), [1, None, None], [False] * 3),
        (t.call("subscript", [M, B]), [None, None, None], [False] * 3),
        (t.call("subscript", [R, lit(-1)]), [2, None, None], [False] * 3),
        (t.call("subscript", [R, lit(1)]), [1, None, None], [False] * 3),
        (t.call("subscript", [R, lit(0)]), [None] * 3, [False] * 3),
        (t.call("subscript", [R, lit(9)]), [None] * 3, [False] * 3),
        (t.call("make_array", [A, lit(2.5)]), [[1.0, 2.5], [0.0, 2.5], [None, 2.5]], [False] * 3),
        (t.call("make_array", [R, R]), [[[1, 2], [1, 2]], [[], []], [None, None]], [False] * 3),
        (t.call("make_map", [lit("k"), A]), [[{"key": "k", "value": v}] for v in (1, 0, None)], [False] * 3),
        (t.struct([("P", A), ("Q", B)]), [{"P": 1, "Q": "x"}, {"P": 0, "Q": "2"}, {"P": None, "Q": "3"}], [False] * 3),
        (t.call("ARRAY_LENGTH", [R]), [2, 0, None], [False] * 3),
        (t.call("ARRAY_CONTAINS", [R, lit(2)]), [True, False, False], [False] * 3),
        (t.call("SLICE", [R, lit(1), lit(2)]), [[1, 2], None, None], [False] * 3),
        (t.call("MAP_KEYS", [M]), [["a"], [], None], [False] * 3),
        (t.call("MAP_VALUES", [M]), [[1], [], None], [False] * 3),
        (t.call("eq", [ST, ST]), [True, True, None], [False] * 3),
        (t.call("ne", [M, M]), [False, False, None], [False] * 3),
        (t.call("is_null", [ST]), [False, False, True], [False] * 3),
        (lit(1), [1, 1, 1], [False] * 3),
        (lit(None), [None] * 3, [False] * 3),
        (Lit([1, None], Array(S.INT)), [[1, None]] * 3, [False] * 3),
        (Lit({"k": 1}, Map(S.VARCHAR, S.INT)), [[{"key": "k", "value": 1}]] * 3, [False] * 3),
    ],
)
def test_rows(e: Expr, expected: list[Any], marks: list[bool]) -> None:
    out, bad = evaluate(FRAME, [("v", e), ("w", e)])
    assert out["v"].to_list() == expected and out["v"].equals(out["w"].rename("v")) and bad.to_list() == marks
    assert out.dtypes == [polars_type(e.type)] * 2
    empty, bad = evaluate(FRAME.clear(), [("v", e)])
    assert empty.schema == {"v": polars_type(e.type)} and empty.height == len(bad) == 0


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "is_distinct_from"])
def test_a_constant_beside_a_column_of_one_value(name: str) -> None:
    """Polars holds such columns as one value, here that of pieces of one row."""
    frame = pl.concat([pl.DataFrame({"n": [1]}).select(pl.col("n").fill_null(0)) for _ in range(3)])
    out, _ = evaluate(frame, [("v", t.call(name, [Lit(5, Scalar.BIGINT), Col("n", Scalar.BIGINT)]))])
    assert out["v"].to_list() == [name in ("ne", "gt", "ge", "is_distinct_from")] * 3


def test_evaluate_nothing() -> None:
    out, marks = evaluate(FRAME, [])
    assert out.shape == (3, 0) and marks.to_list() == [False] * 3


def test_types() -> None:
    assert t.call("mul", [Col("L.P", Decimal(10, 2)), lit(2)]).type == Decimal(21, 2)
    assert t.call("div", [Col("L.P", Decimal(10, 2)), Col("L.Q", Decimal(5, 1))]).type == Decimal(17, 8)
    assert t.call("add", [Col("L.P", Decimal(10, 2)), Col("L.D", S.DOUBLE)]).type is S.DOUBLE
    assert t.common_type(S.INT, Decimal(5, 2)) == Decimal(12, 2)
    assert t.common_type(Array(S.INT), Array(S.BIGINT)) == Array(S.BIGINT)
    assert t.common_type(S.INT, S.VARCHAR) is None and t.common_type(S.NULL, XY) == XY
    assert t.call("add", [Col("L.D", S.DOUBLE), lit(1)]) == Call(
        "add", (Col("L.D", S.DOUBLE), Lit(1.0, S.DOUBLE)), S.DOUBLE
    )
    rowtime = t.call("ge", [Col("L.ROWTIME", S.BIGINT), lit("2020-01-01")])
    assert isinstance(rowtime, Call) and rowtime.args[1] == Lit(1577836800000, S.BIGINT)
    assert failed(t.call("add", [A, A])) is None or not evaluate(FRAME, [("v", t.call("add", [A, A]))])[1].any()
    assert isinstance(t.cast(lit("x"), S.INT), Cast)  # fails where it runs, and is counted there
    assert value_of(t.call("make_map", [lit("k"), t.struct([("A", lit(1))])])) == {"k": {"A": 1}}
    with pytest.raises(SqlError, match="no field"):
        t.field(ST, "zz")
    with pytest.raises(SqlError, match="no common type"):
        t.case([(lit(True), lit(1))], lit("a"))
