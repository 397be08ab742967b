"""Values between JSON text and columns: strictness, the proof behind the fast path, round trips."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal as D
from fractions import Fraction
from typing import get_args

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import SqlError
from braid.files.values import from_text
from braid.records import codec
from braid.records.codec import decode_values, encode_values
from braid.records.facet import Manner
from braid.records.formats.delimited import decode_delimited, encode_delimited
from braid.records.json_blocks import read_block
from braid.records.python import json_value, python_values
from braid.records.values import python_value
from braid.types import MAX_DAY, Array, Column, Decimal, Map, Scalar, Struct, Type, polars_type
from effort import examples

S = Scalar
EIGHT = dt.datetime(2024, 3, 1, 8)
QUICK = settings(max_examples=examples(70))


def one(text: str | None, t: Type) -> tuple[object, bool, str | None]:
    frame, nulls, errors = decode_values(pl.Series([text], dtype=pl.String), [Column("V", t)])
    assert frame.schema == {"V": polars_type(t)}
    return frame["V"][0], nulls[0], errors[0]


def good(json_text: str, t: Type) -> object:
    value, null, error = one('{"V":' + json_text + "}", t)
    assert error is None and not null
    return value.to_list() if isinstance(value, pl.Series) else value


def bad(json_text: str, t: Type) -> str:
    value, null, error = one('{"V":' + json_text + "}", t)
    assert error is not None and value is None and not null
    return error


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("true", S.BOOLEAN, True),
        ("32767", S.SMALLINT, 2**15 - 1),
        ("-32768", S.SMALLINT, -(2**15)),
        ("2147483647", S.INT, 2**31 - 1),
        ("-9223372036854775808", S.BIGINT, -(2**63)),
        ("1", S.DOUBLE, 1.0),
        ("1e2", S.DOUBLE, 100.0),
        ("1.1", S.REAL, 1.100000023841858),
        ("1.00000005960464484", S.REAL, 1.0000001192092896),
        ("16777217", S.REAL, 16777216.0),
        ("3.4028235677973366e38", S.REAL, 3.4028234663852886e38),
        ("1e-50", S.REAL, 0.0),
        ('"-Infinity"', S.REAL, -math.inf),
        ('"Infinity"', S.DOUBLE, math.inf),
        ('"-Infinity"', S.DOUBLE, -math.inf),
        ("1.10", S.VARCHAR, "1.10"),
        ("1e3", S.VARCHAR, "1e3"),
        ("true", S.VARCHAR, "true"),
        ('{"b": [1, 2.50, null]}', S.VARCHAR, '{"b":[1,2.50,null]}'),
        ('"é\\n\\u00e9"', S.VARCHAR, "é\né"),
        ('"\\ud83d\\ude00"', S.VARCHAR, "😀"),
        ('"\\ud83d"', S.VARCHAR, "?"),
        ("1" * 5000, S.VARCHAR, "1" * 5000),
        ('"1.50"', Decimal(5, 2), D("1.50")),
        ("1.5", Decimal(5, 2), D("1.50")),
        ("0.1234567890123456789012345678", Decimal(38, 28), D("0.1234567890123456789012345678")),
        ("99999999999999999999999999999999999999", Decimal(38, 0), D("9" * 38)),
        ("1e2", Decimal(5, 2), D("100.00")),
        ('"AQI="', S.BYTES, b"\x01\x02"),
        ("-1", S.DATE, dt.date(1969, 12, 31)),
        ("86399999", S.TIME, dt.time(23, 59, 59, 999000)),
        ("1500", S.TIMESTAMP, dt.datetime(1970, 1, 1, 0, 0, 1, 500000)),
        ("1500", S.TIMESTAMPTZ, dt.datetime(1970, 1, 1, 0, 0, 1, 500000)),
        ("[1,null]", Array(S.INT), [1, None]),
        ('{"a":1,"b":null}', Map(S.VARCHAR, S.INT), [{"key": "a", "value": 1}, {"key": "b", "value": None}]),
        ('{"1":true}', Map(S.INT, S.BOOLEAN), [{"key": 1, "value": True}]),
        ('{"x":1500,"Q":1}', Struct((Column("X", S.TIMESTAMP), Column("Y", S.INT))),
         {"X": dt.datetime(1970, 1, 1, 0, 0, 1, 500000), "Y": None}),
        ('[{"X":"1.50"}]', Array(Struct((Column("X", Decimal(5, 2)),))), [{"X": D("1.50")}]),
        ("null", S.INT, None),
    ],
)  # fmt: skip
def test_reads(text: str, type_: Type, value: object) -> None:
    assert good(text, type_) == value


@pytest.mark.parametrize(
    ("text", "type_", "why"),
    [
        ('"1"', S.INT, "field V: '1' is not an INTEGER"),
        ("1.0", S.INT, "field V: 1.0 is not an INTEGER"),
        ("true", S.INT, "field V: true is not an INTEGER"),
        ("2147483648", S.INT, "out of range"),
        ("40000", S.SMALLINT, "field V: 40000 is out of range for SMALLINT"),
        ("-32769", S.SMALLINT, "out of range for SMALLINT"),
        ("3.40282356779733670e38", S.REAL, "out of range for REAL"),
        ("1e39", S.REAL, "out of range for REAL"),
        ('"1.5"', S.REAL, "is not a REAL"),
        ("9223372036854775808", S.BIGINT, "out of range"),
        ("1" * 5000, S.BIGINT, "is not a BIGINT"),
        ('"abc"', S.DOUBLE, "field V: 'abc' is not a DOUBLE"),
        ('"1.5"', S.DOUBLE, "is not a DOUBLE"),
        ("1e400", S.DOUBLE, "out of range"),
        ("NaN", S.DOUBLE, "not JSON"),
        ("1", S.BOOLEAN, "is not a BOOLEAN"),
        ("1.555", Decimal(5, 2), "too many digits"),
        ("1000", Decimal(5, 2), "too many digits"),
        ("1e999999999", Decimal(5, 2), "too many digits"),
        ('"NaN"', Decimal(5, 2), "is not a DECIMAL(5, 2)"),
        ('" 1"', Decimal(5, 2), "is not"),
        ('"?"', S.BYTES, "is not base64"),
        ("86400000", S.TIME, "out of range"),
        ("[1,[2]]", Array(S.INT), "field V[2]: [2] is not an INTEGER"),
        ('{"x":{"y":"a"}}', Struct((Column("X", Struct((Column("Y", S.INT),))),)), "field V.X.Y: 'a' is not"),
        ('{"k":"a"}', Map(S.VARCHAR, S.INT), "field V['k']: 'a' is not"),
        ("[" * 100_000, S.INT, "not JSON"),
        ("[" * 300 + "]" * 300, S.VARCHAR, "nested too deeply"),
    ],
)
def test_malformed(text: str, type_: Type, why: str) -> None:
    assert why in bad(text, type_)


def test_records() -> None:
    columns = [Column("A", S.INT), Column("B", S.VARCHAR)]
    texts = [None, "null", "5", "nope", '{"a":1,"extra":[1]}', '{"a":1,"A":2}', "{}", '{"A":1,"A":3}', ' {"A":1}\n']
    frame, nulls, errors = decode_values(pl.Series(texts, dtype=pl.String), columns)
    assert frame["A"].to_list() == [None, None, None, None, 1, 2, None, 3, 1]
    assert nulls.to_list() == [True, True] + [False] * 7
    assert [e is not None for e in errors] == [False, False, True, True] + [False] * 5
    assert "not a JSON object" in errors[2]
    empty = decode_values(pl.Series([], dtype=pl.String), columns)
    assert empty[0].schema == {"A": pl.Int32, "B": pl.String} and empty[0].height == 0


def test_unwrapped() -> None:
    frame, nulls, errors = decode_values(
        pl.Series(["1", "null", None, "x", '"1"']), [Column("K", S.INT)], unwrapped=True
    )
    assert frame["K"].to_list() == [1, None, None, None, None]
    assert nulls.to_list() == [False, True, True, False, False]
    assert [e is not None for e in errors] == [False, False, False, True, True]
    assert encode_values(frame.head(2), [("K", Column("K", S.INT))], unwrapped=True).to_list() == ["1", "null"]


BARE = st.one_of(
    st.none(),
    st.sampled_from(["null", "true", "", '"', '""', '"a', 'a"', '"a"b"', " 1", "01", "-0", "+1", "1.0", "1e2", "NaN"]),
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-9, 9).map(str),
    st.text(max_size=4).map(json.dumps),
    st.text(max_size=4).map(lambda t: json.dumps(t, ensure_ascii=False)),
    st.text(alphabet='"\\\n\x00\x1fé9- n', max_size=5),
    st.text(alphabet='"\\\n\x00\x1fé9- n', max_size=5).map(lambda t: f'"{t}"'),
)


@pytest.mark.parametrize("type_", [S.SMALLINT, S.INT, S.BIGINT, S.VARCHAR, S.DOUBLE, S.REAL])
@QUICK
@given(texts=st.lists(BARE, max_size=30))
def test_bare_values_in_columns_are_those_line_by_line(type_: Scalar, texts: list[str | None]) -> None:
    columns, good = [Column("K", type_)], ["1", '"a"', None]
    series = pl.Series([*texts, *good * 30], dtype=pl.String)
    fast, slow = decode_values(series, columns, unwrapped=True), codec._decode_slow(series, columns, True)
    assert fast[0].equals(slow[0]) and fast[0].schema == slow[0].schema
    assert fast[1].to_list() == slow[1].to_list() and fast[2].to_list() == slow[2].to_list()


ISO = [
    ("2024-03-01", S.DATE, dt.date(2024, 3, 1)),
    ("08:00:00.250", S.TIME, dt.time(8, 0, 0, 250000)),
    ("2024-03-01T08:00:00", S.TIMESTAMP, EIGHT),
    ("2024-03-01 08:00:00.5", S.TIMESTAMP, dt.datetime(2024, 3, 1, 8, 0, 0, 500000)),
    ("2024-03-01T08:00:00Z", S.TIMESTAMP, EIGHT),
    ("2024-03-01 08:00:00+02:00", S.TIMESTAMP, dt.datetime(2024, 3, 1, 6)),
    ("2024-03-01T08:00:00.123456789", S.TIMESTAMP, dt.datetime(2024, 3, 1, 8, 0, 0, 123000)),
    ("2024-13-01", S.DATE, None),
    ("2024-03-01 08:00:00+02:00", S.TIMESTAMPTZ, dt.datetime(2024, 3, 1, 6)),
    ("24:00", S.TIME, None),
    ("24:00:00", S.TIME, None),
    ("soon", S.TIMESTAMP, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "type_", "value"), ISO)
@pytest.mark.parametrize("rows", [1, 200])
def test_iso_text(text: str, type_: Scalar, value: object, rows: int) -> None:
    """Where a source may have it: alone, in a column, within a structure; and as a file's texts are read."""
    lines = pl.Series([json.dumps({"V": text})] * rows)
    frame, _, errors = decode_values(lines, [Column("V", type_)], manner="iso")
    assert frame["V"].to_list() == [value] * rows
    assert errors.is_null().all() == (value is not None)
    nested, _, _ = decode_values(pl.Series([json.dumps({"V": [text]})]), [Column("V", Array(type_))], manner="iso")
    assert nested["V"].to_list() == [None if value is None else [value]]
    assert from_text(pl.Series([text]), type_)[0].to_list() == [value]
    assert bad(json.dumps(text), type_)  # elsewhere it is malformed


def test_a_number_in_quotes_is_no_time() -> None:
    _, _, errors = decode_values(pl.Series(['{"V":"1709280000000"}'] * 200), [Column("V", S.TIMESTAMP)], manner="iso")
    assert set(errors) == {"field V: '1709280000000' is not a TIMESTAMP"}


@pytest.mark.parametrize(
    ("text", "type_", "written"),
    [
        ("2024-03-01T08:00:00Z", S.TIMESTAMP, "a TIMESTAMP: write milliseconds since 1970, as 1709280000000"),
        ("2024-03-01", S.DATE, "a DATE: write days since 1970, as 19783"),
        ("08:00", S.TIME, "a TIME: write milliseconds of the day, as 28800000"),
    ],
)
def test_a_text_that_is_no_time_here_says_what_is(text: str, type_: S, written: str) -> None:
    for manner in ("plain", "lenient"):
        _, _, errors = decode_values(pl.Series([json.dumps({"V": text})]), [Column("V", type_)], manner=manner)
        assert errors[0] == f"field V: {text!r} is not {written}"


def test_iso_text_is_shown_as_the_time_it_is() -> None:
    assert python_value("2024-03-01 08:00:00", S.TIMESTAMP, False) == EIGHT
    assert python_value("2024-03-01", S.DATE, True) == 19783
    assert python_value("soon", S.TIMESTAMP, False) == "soon"


# ------------------------------------------------------- fast path == meaning

COLUMNS = [
    Column("A", S.INT), Column("b", S.VARCHAR), Column("C.c", S.DOUBLE), Column("D", S.BOOLEAN), Column("É", S.BIGINT),
    Column("T", S.TIMESTAMP), Column("Y", S.DATE), Column("N", Decimal(4, 2)), Column("L", Array(S.VARCHAR)),
    Column("P", Struct((Column("X", S.INT), Column("A", Array(S.DOUBLE)), Column("é", S.VARCHAR)))),
    Column("Q", Array(Struct((Column("X", S.BIGINT), Column("y", S.BOOLEAN))))),
    Column("I", S.SMALLINT), Column("R", S.REAL), Column("Z", S.TIMESTAMPTZ),
]  # fmt: skip
NESTED = {
    "L": ['["a","b"]', '["\\""]', '["a, b", null]', "[]", "[1]", '["p: q"]', "{}", '["A"]', '"[]"'],
    "P": ['{"X":1,"A":[1.5],"é":"x"}', '{"x": 1, "a": [1.5], "É": "x"}', '{"X":1}', '{"x":1,"X":2,"A":null,"é":""}',
          '{"X":1,"A":[1],"é":"L"}', '{"X":1,"A":[],"é":null,"Z":1}', '{"A":[1.5],"X":1,"é":"x"}', "{}", "null"],
    "Q": ['[{"X":1,"y":true}]', '[{"x":1,"Y":true},null]', '[{"y":true,"X":1}]', "[{}]", "[]",
          '[{"X":1,"X":1,"y":true}]', '[{"X":9223372036854775808,"y":null}]'],
}  # fmt: skip
NAMES = [*"AabBDÉéTYZNlPpQ", "C.c", "c.C", 'x"A', 'x"P', "\\u0041"]
DATED = st.sampled_from(
    ["2024-03-01", "2024-02-30", "2024-03", "2024-03-01T08:00:00Z", "2024-03-01 08:00:00.5", "2024", "8:00", "", " ",
     "2024-03-01T10:00:00.123456+02:00", "2024-03-01T24:00:00", "0000-01-01T00:00:00", "1709280000000",
     "9999-12-31T23:59:59.999-18:00", "٢024-03-01T08:00:00"]
).map(json.dumps)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**64), 2**64), st.integers(-5, 5), st.floats(), st.text(max_size=6),
    st.sampled_from(['"A":', '"A"', "\\", '\\"A', "null", "1", "{", "[", "é"]),
).map(json.dumps)  # fmt: skip
RAW = st.one_of(
    SCALARS,
    DATED,
    st.text("0123456789-+.eE", min_size=1, max_size=25),
    st.sampled_from(["-0", "-0.0", "1.10", "01", "1e400", '"\t"', '"\\/"',
                      '"\\ud83d"', '"\\u0041"', "nul", '{"A":1}', '["A"]',
                     '{"A":null}', "12345678901234567890123", '{"a":{"b":[]}}', "[" * 250 + "]" * 250,
                     "9223372036854775807", "1.5", "12.345", "100.5", "99.99", '"1.50"', '"-.5"', "-0.0",
                     *(x for values in NESTED.values() for x in values)]),
)  # fmt: skip
SINGLES = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1.1", "1.0000000596046448", "1.00000005960464484", "1.00000005960464477539062501", "1e39",
                     "1e-45", "3.4028235677973366e38", "3.4028235677973367e38", "7.006492321624085e-46", "1e-46",
                     "16777217"]),
)  # fmt: skip


@st.composite
def a_line(draw: st.DrawFn) -> str | None:
    kind = draw(st.integers(0, 12))
    if kind == 0:
        return draw(
            st.sampled_from(
                [None, "null", "", " ", "{}", "[1]", "nope", '{"A":1}\n{"A":2}', " null", '"x"', '{"A":1}x']
            )
        )
    colon = draw(st.sampled_from([":", ":", ": ", " :"]))
    if kind < 6:  # well-formed, all columns
        values = ["1", '"t"', "1.5", "true", "7", draw(st.sampled_from(["1000", '"2024-03-01 08:00"'])), "3", "2.5"]
        values[6] = draw(st.one_of(st.just("3"), DATED))
        values += [draw(st.one_of(st.just(some[0]), st.sampled_from(some))) for some in NESTED.values()]
        values += [draw(st.sampled_from(["7", "32767", "32768", "40000", "-32769"])), draw(SINGLES), "1000"]
        pairs = list(zip([c.name for c in COLUMNS], values, strict=True))
        for _ in range(draw(st.integers(0, 2))):
            i = draw(st.integers(0, len(pairs) - 1))
            pairs[i] = (draw(st.sampled_from([pairs[i][0], *NAMES])), draw(RAW))
    else:
        pairs = draw(st.lists(st.tuples(st.sampled_from(NAMES), RAW), max_size=6))
    if draw(st.booleans()):
        pairs = [(n if n == "\\u0041" else n.lower(), v) for n, v in pairs]
    names = [n if n == "\\u0041" else json.dumps(n, ensure_ascii=draw(st.booleans()))[1:-1] for n, _ in pairs]
    comma = draw(st.sampled_from([",", ", "]))
    return "{" + comma.join(f'"{n}"{colon}{v}' for n, (_, v) in zip(names, pairs, strict=True)) + "}"


@QUICK
@given(st.lists(a_line(), min_size=1, max_size=8), st.integers(1, 5), st.sampled_from(get_args(Manner)))
def test_fast_is_slow(lines: list[str | None], columns: int, manner: Manner) -> None:
    texts = pl.Series(lines * 1, dtype=pl.String)
    chosen = {3: COLUMNS[:7], 4: COLUMNS, 5: COLUMNS[7:]}.get(columns, COLUMNS[:columns])
    few, codec._FEW, smallest, codec._SMALLEST = codec._FEW, 0, codec._SMALLEST, 1
    try:
        fast = decode_values(texts, chosen, manner=manner)
    finally:
        codec._FEW, codec._SMALLEST = few, smallest
    slow = codec._decode_slow(texts, chosen, False, manner)
    assert fast[0].equals(slow[0]) and fast[0].schema == slow[0].schema
    assert fast[1].equals(slow[1]) and fast[2].equals(slow[2])


@QUICK
@given(
    st.lists(
        st.one_of(
            st.text("0123456789.eE-", min_size=1, max_size=30),
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_doubles_are_read_as_python_reads_them(numbers: list[str]) -> None:
    for n in numbers:
        found = read_block(pl.Series(['{"C.c":' + n + "}"]), COLUMNS[2:3], "plain")
        if found is not None:
            assert found[0]["C.c"][0] == float(n)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_well_formed_lines_are_read_at_once(lower: bool, separators: tuple[str, str]) -> None:
    """Whatever the case of names, and with the spaces that many write."""
    doc: dict[str, object] = {"A": 1, "b": "x", "C.c": 0.5, "D": True, "T": 1000, "Y": 3, "N": 2.5, "L": ["a", None]}
    doc |= {"P": {"X": 1, "A": [1.5], "é": "ä"}, "Q": [{"X": 1, "y": None}, None]}
    columns = [c for c in COLUMNS if c.name in doc]
    text = json.dumps(doc, ensure_ascii=False, separators=separators)
    found = read_block(pl.Series([text.lower() if lower else text] * 3), columns, "plain")
    assert found is not None
    assert found[1].all()


def test_blocks_keep_order_around_bad_records() -> None:
    lines = [json.dumps({"A": i, "b": f"x{i}"}) for i in range(5000)]
    lines[17], lines[4000], lines[2500] = "bad", '{"A":"1"}', None
    lines[99] = '{"a":99,"b":"\\u0041"}'
    frame, nulls, errors = decode_values(pl.Series(lines, dtype=pl.String), COLUMNS[:2])
    expected = [None if i in (17, 4000, 2500) else i for i in range(5000)]
    assert frame["A"].to_list() == expected and frame["b"][99] == "A"
    assert nulls.arg_true().to_list() == [2500] and errors.is_not_null().arg_true().to_list() == [17, 4000]


# ---------------------------------------------------------------- round trips

VALUES: dict[Type, st.SearchStrategy[object]] = {
    S.BOOLEAN: st.booleans(),
    S.SMALLINT: st.integers(-(2**15), 2**15 - 1),
    S.REAL: st.floats(width=32, allow_nan=False),
    S.INT: st.integers(-(2**31), 2**31 - 1),
    S.BIGINT: st.integers(-(2**63), 2**63 - 1),
    S.DOUBLE: st.floats(allow_nan=False),
    S.VARCHAR: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    Decimal(12, 3): st.decimals(-999_999_999, 999_999_999, places=3),
    S.BYTES: st.binary(max_size=6),
    S.DATE: st.dates(),
    S.TIME: st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    S.TIMESTAMP: st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    S.TIMESTAMPTZ: st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
}
VALUES[Array(S.VARCHAR)] = st.lists(st.none() | VALUES[S.VARCHAR], max_size=3)
VALUES[Array(S.REAL)] = st.lists(st.none() | VALUES[S.REAL], max_size=3)
VALUES[Array(S.TIMESTAMP)] = st.lists(VALUES[S.TIMESTAMP], max_size=3)
VALUES[Map(S.VARCHAR, S.DOUBLE)] = st.dictionaries(VALUES[S.VARCHAR], VALUES[S.DOUBLE], max_size=3).map(
    lambda d: [{"key": k, "value": v} for k, v in d.items()]
)
_INNER = Struct((Column("X", S.INT), Column("y y", S.VARCHAR), Column("Z", S.DOUBLE)))
VALUES[_INNER] = st.fixed_dictionaries({"X": VALUES[S.INT], "y y": VALUES[S.VARCHAR], "Z": VALUES[S.DOUBLE]})
ALL = [Column(f"c{i}", t) for i, t in enumerate(VALUES)]


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    height = draw(st.integers(0, 4))
    data = []
    for c in ALL:
        rows = draw(st.lists(st.none() | VALUES[c.type], min_size=height, max_size=height))
        data.append(pl.Series(c.name, rows, dtype=polars_type(c.type)))
    return pl.DataFrame(data)


def truth(row: dict[str, object]) -> str:
    """What `json.dumps` makes of a row."""
    out = {}
    for c in ALL:
        value = row[c.name]
        if isinstance(c.type, Map) and value is not None:
            value = {e["key"]: e["value"] for e in value}
        out[c.name] = json_value(value, c.type)
    return json.dumps(out, ensure_ascii=False, separators=(",", ":"))


@QUICK
@given(frames())
def test_round_trip(frame: pl.DataFrame) -> None:
    texts = encode_values(frame, [(c.name, c) for c in ALL])
    assert texts.to_list() == [truth(row) for row in frame.to_dicts()]
    back, nulls, errors = decode_values(texts, ALL)
    assert errors.null_count() == frame.height and not nulls.any()
    assert back.equals(frame) and back.schema == frame.schema


def nearest_single(text: str) -> float:
    """By exact arithmetic: of the neighbours of the double, as singles, the one that is nearest."""
    exact = Fraction(text)
    about = np.float32(float(text))
    near = [np.nextafter(about, np.float32(-np.inf)), about, np.nextafter(about, np.float32(np.inf))]
    odd = lambda x: int(np.float32(x).view(np.uint32)) & 1  # noqa: E731
    return float(min((x for x in near if np.isfinite(x)), key=lambda x: (abs(Fraction(float(x)) - exact), odd(x))))


@QUICK
@given(st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100), st.integers(-3, 3), st.integers(18, 60))
def test_a_single_is_rounded_once(number: float, off: int, places: int) -> None:
    """About half way to the next one, where a double on the way would be rounded twice."""
    after = float(np.nextafter(np.float32(number), np.float32(np.inf)))
    middle = (Fraction(number) + Fraction(after)) / 2
    exponent = len(str(abs(int(middle)))) - places
    text = f"{round(middle / Fraction(10) ** exponent) + off}e{exponent}"
    expected = nearest_single(text)
    line = f'{{"V":{text}}}'
    for rows in (1, 100):
        frame, _, errors = decode_values(pl.Series([line] * rows), [Column("V", S.REAL)])
        assert errors.null_count() == rows
        assert frame["V"].to_list() == [expected] * rows
    assert from_text(pl.Series([text]), S.REAL)[0].to_list() == [expected]


def test_writes() -> None:
    frame = pl.DataFrame({"x": [1.0, 1e16, 1e-7, math.nan, -math.inf, None, -0.0, 0.1]})
    texts = encode_values(frame, [("x", Column("X", S.DOUBLE))])
    values = ["1.0", "1e+16", "1e-07", '"NaN"', '"-Infinity"', "null", "-0.0", "0.1"]
    assert texts.to_list() == [f'{{"X":{v}}}' for v in values]
    singles = pl.DataFrame({"x": pl.Series([1.1, 1e10, 16777216, 1e-5, 3.4028235e38, 1e-45], dtype=pl.Float32)})
    texts = encode_values(singles, [("x", Column("X", S.REAL))])
    values = ["1.1", "10000000000.0", "16777216.0", "1e-05", "3.4028235e+38", "1e-45"]
    assert texts.to_list() == [f'{{"X":{v}}}' for v in values]
    struct = pl.DataFrame({"s": pl.Series([None, {"A": None}], dtype=pl.Struct({"A": pl.Int32}))})
    columns = [("s", Column("S", Struct((Column("A", S.INT),))))]
    assert encode_values(struct, columns).to_list() == ['{"S":null}', '{"S":{"A":null}}']
    assert encode_values(frame, []).to_list() == ["{}"] * 8


# ----------------------------------------------------------- single values


@pytest.mark.parametrize(
    ("value", "type_", "form"),
    [
        (dt.date(1970, 1, 3), S.DATE, 2),
        (dt.time(0, 0, 1), S.TIME, 1000),
        (dt.datetime(1970, 1, 1, 0, 0, 1), S.TIMESTAMP, 1000),
        (1.1, S.REAL, 1.1),
        (D("1.5"), Decimal(5, 2), "1.50"),
        (b"\x01\x02", S.BYTES, "AQI="),
        (math.inf, S.DOUBLE, "Infinity"),
        ({"a": 1}, Map(S.VARCHAR, S.INT), {"a": 1}),
        ({"A": [dt.date(1970, 1, 2)]}, Struct((Column("A", Array(S.DATE)),)), {"A": [1]}),
        (None, S.INT, None),
    ],
)
def test_driver_values(value: object, type_: Type, form: object) -> None:
    assert json_value(value, type_) == form
    assert python_value(form, type_, False) == value


def test_driver_values_of_other_forms() -> None:
    assert json_value(1.100000023841858, S.REAL) == 1.1 and json_value(1e300, S.REAL) == 1e300
    assert json_value("abc", S.INT) == "abc"  # so that a malformed record can be written
    assert json_value(5, S.TIMESTAMP) == 5 and python_value(5, S.TIMESTAMP, True) == 5
    assert json_value({"x": D("1")}, Struct((Column("X", Decimal(3, 1)),))) == {"x": "1.0"}


# ------------------------------------------------------------------ delimited


def test_delimited() -> None:
    columns = [Column("A", S.INT), Column("B", S.VARCHAR), Column("C", Decimal(5, 2)), Column("D", S.BOOLEAN)]
    lines = ["1,x,1.5,true", ',"a,""b""",,', "1,2", "z,x,1,true", None, '"', "1,x,1,maybe"]
    frame, nulls, errors = decode_delimited(pl.Series(lines), columns)
    assert frame.head(2).rows() == [(1, "x", D("1.50"), True), (None, 'a,"b"', None, None)]
    assert nulls.to_list() == [False] * 4 + [True, False, False]
    assert errors[2] == "4 fields expected, 2 found" and errors[3] == "field A: 'z' is not an INTEGER"
    assert errors[4] is None and errors[5] is not None and errors[6] == "field D: 'maybe' is not a BOOLEAN"
    assert frame.row(3) == (None,) * 4
    pairs = [(c.name, c) for c in columns]
    assert encode_delimited(frame.head(2), pairs).to_list() == ["1,x,1.50,true", ',"a,""b""",,']
    assert encode_delimited(frame.head(1), pairs, "TAB").to_list() == ["1\tx\t1.50\ttrue"]
    times = [
        Column("A", S.DATE),
        Column("B", S.TIMESTAMP),
        Column("C", S.TIME),
        Column("D", S.BYTES),
        Column("E", S.DOUBLE),
        Column("F", S.REAL),
        Column("G", S.SMALLINT),
        Column("H", S.TIMESTAMPTZ),
    ]
    lines = ["1|2|3|AQI=|1.5|1.1|-32768|5", "1|2|3|AQI=|1.5|1e39|1|5", "1|2|3|AQI=|1.5|1|40000|5"]
    frame, _, errors = decode_delimited(pl.Series(lines), times, "|")
    assert errors.to_list() == [None, "field F: '1e39' is not a REAL", "field G: '40000' is not a SMALLINT"]
    assert encode_delimited(frame.head(1), [(c.name, c) for c in times], "|").to_list() == lines[:1]
    with pytest.raises(SqlError):
        decode_delimited(pl.Series(["x"]), columns, "ab")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5e0", "1.50"), ("15E-1", "1.50"), ("1e1", "10"), ("1.5e-3", None), ("0.1e-400", None), ("1e2", None),
     ("1.255", None), ("1e", None), ("1e999999999", None)],
)  # fmt: skip
def test_a_delimited_decimal_loses_no_digit(text: str, value: str | None) -> None:
    """It rounded where there is an exponent."""
    frame, _, errors = decode_delimited(pl.Series([text]), [Column("A", Decimal(4, 2))])
    assert frame["A"].to_list() == [None if value is None else D(value)]
    assert errors[0] == (None if value is not None else f"field A: '{text}' is not a DECIMAL(4, 2)")


def test_a_time_that_python_has_none_for_is_its_number_whatever_is_beside_it() -> None:
    days = pl.Series([0, MAX_DAY - 1, None, -MAX_DAY], dtype=pl.Int32).cast(pl.Date)
    assert python_values(days) == [dt.date(1970, 1, 1), MAX_DAY - 1, None, -MAX_DAY]
    for unit in ("ms", "us", "ns"):
        times = pl.Series([0, 2**62, None], dtype=pl.Int64).cast(pl.Datetime(unit))
        assert python_values(times)[::2] == [dt.datetime(1970, 1, 1), None]
        assert python_values(times)[1] == (2**62 if unit != "ns" else times[1])
