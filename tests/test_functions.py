"""Functions of ksqlDB beyond those of test_expr.py: the examples of its documentation, nulls and bad input."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import random
from decimal import Decimal as D
from typing import Any

import polars as pl
import pytest

from braid.bind.dialects import DIALECTS
from braid.errors import SqlError
from braid.expr import functions_arrays
from braid.expr import typing as t
from braid.expr.aggregates import AGGREGATES
from braid.expr.casts import java_text
from braid.expr.compile import evaluate
from braid.expr.functions import FUNCTIONS, by_name
from braid.expr.lambdas import LAMBDAS
from braid.expr.listing import listed
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type, polars_type

S = Scalar
NAN, INF = math.nan, math.inf
FAILS = object()
URL = "http://user@test.com:8080/path/to?a%20b=c%20d&b=bar&c#frag%20x"


def typed(v: Any) -> Expr:
    if isinstance(v, Lit):
        return v
    if isinstance(v, D):
        _, digits, exponent = v.as_tuple()
        return Lit(v, Decimal(max(len(digits), 1 - int(exponent)), -int(exponent)))
    return Lit(v, type_of(v))


def type_of(v: Any) -> Type:
    match v:
        case list():
            return Array(next((type_of(x) for x in v if x is not None), S.INT))
        case dict():
            return Map(S.VARCHAR, next((type_of(x) for x in v.values() if x is not None), S.INT))
    types: dict[type, Type] = {
        bool: S.BOOLEAN, int: S.INT, float: S.DOUBLE, str: S.VARCHAR, bytes: S.BYTES, type(None): S.NULL,
        dt.datetime: S.TIMESTAMP, dt.date: S.DATE, dt.time: S.TIME,
    }  # fmt: skip
    return types[type(v)]


def big(v: int) -> Lit:
    return Lit(v, S.BIGINT)


def double(v: float | None) -> Lit:
    return Lit(v, S.DOUBLE)


def text(v: str | None) -> Lit:
    return Lit(v, S.VARCHAR)


def b64(v: str) -> bytes:
    return base64.b64decode(v)


def entries(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
    """A MAP as Polars has it."""
    return [{"key": k, "value": v} for k, v in pairs]


PERSON = Struct((Column("NAME", S.VARCHAR), Column("ID", S.INT)))
AB = {"a": 1, "b": None}
CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    # words
    ("INITCAP", ("the Quick  bROWN fox",), "The Quick  Brown Fox"), ("INITCAP", ("  a b ",), "A B "),
    ("INITCAP", ("",), ""), ("INITCAP", (None,), None),
    ("FIELD", ("hello", "world", "hello"), 2), ("FIELD", ("x", "a"), 0), ("FIELD", (None, "a", None), 0),
    ("ELT", (2, "a", "b"), "b"), ("ELT", (0, "a"), None), ("ELT", (3, "a", "b"), None), ("ELT", (1, None, "b"), None),
    ("SPLIT_TO_MAP", ("apple:=green/cherry:=red", "/", ":="), entries(("apple", "green"), ("cherry", "red"))),
    ("SPLIT_TO_MAP", ("a=1&&b&a=2=3&=x", "&", "="), entries(("a", "2"), ("", "x"))),
    ("SPLIT_TO_MAP", ("a=1", "", "="), None), ("SPLIT_TO_MAP", ("a=1", "=", "="), None),
    ("SPLIT_TO_MAP", ("", "&", "="), []), ("SPLIT_TO_MAP", (None, "&", "="), None),
    ("CHR", (75,), "K"), ("CHR", ("\\u004b",), "K"), ("CHR", (22909,), "好"), ("CHR", ("\\u597d",), "好"),
    ("CHR", (128512,), "😀"), ("CHR", ("\\ud83d\\ude00",), "😀"), ("CHR", (-1,), None), ("CHR", (1114112,), None),
    ("CHR", ("75",), None), ("CHR", ("\\u00",), None), ("CHR", ("\\u00zz",), FAILS), ("CHR", (9,), "\t"),
    # masks
    ("MASK", ("My Test $123",), "Xx-Xxxx--nnn"), ("MASK", ("My Test $123", "*", None, "1", None), "*y *est $111"),
    ("MASK", ("Aé9😀ǅ",), "Xxn--"), ("MASK", ("aB1", "a", "B", "7", "7"), "Ba7"),
    ("MASK", ("aB-", "$", "$", "$", "$"), "$$$"), ("MASK", (None,), None), ("MASK", ("",), ""),
    ("MASK_KEEP_LEFT", ("My Test $123", 4), "My Txxx--nnn"), ("MASK_KEEP_RIGHT", ("My Test $123", 4), "Xx-Xxxx-$123"),
    ("MASK_LEFT", ("My Test $123", 4), "Xx-Xest $123"), ("MASK_RIGHT", ("My Test $123", 4), "My Test -nnn"),
    ("MASK_LEFT", ("abc", 9), "xxx"), ("MASK_RIGHT", ("abc", 9), "xxx"), ("MASK_KEEP_LEFT", ("abc", 9), "abc"),
    ("MASK_KEEP_RIGHT", ("abc", 0, "*", "*", "*", "*"), "***"), ("MASK_LEFT", ("abc", -1), FAILS),
    ("MASK_RIGHT", (None, -1), None), ("MASK_RIGHT", ("abc", None), None),
    # regular expressions
    ("REGEXP_EXTRACT", ("(.*) (.*)", "hello there", 2), "there"), ("REGEXP_EXTRACT", ("h.*o", "hello there"), "hello"),
    ("REGEXP_EXTRACT", ("x", "hello"), None), ("REGEXP_EXTRACT", ("(h)", "hello", 3), None),
    ("REGEXP_EXTRACT", ("(a)|b", "b", 1), None), ("REGEXP_EXTRACT", ("(h)", "hello", -1), FAILS),
    ("REGEXP_EXTRACT", (r"\w+", "é1"), "1"), ("REGEXP_EXTRACT", (r"\p{Lu}+", "aÉB"), "ÉB"),
    ("REGEXP_EXTRACT", (r"\p{Alpha}+", "éab"), "ab"), ("REGEXP_EXTRACT", (r"\Qa.b\E.", "axb a.bc"), "a.bc"),
    ("REGEXP_EXTRACT", ("(?<n>b+)", "abbc", 1), "bb"), ("REGEXP_EXTRACT", ("a.c", "a\rc"), None),
    ("REGEXP_EXTRACT", (r"(?<=a)b(?!c)", "abc ab"), "b"), ("REGEXP_EXTRACT", ("[a-c[x-z]]+", "qbzx"), "bzx"),
    ("REGEXP_EXTRACT_ALL", (r"(\w+) (\w+)", "hello there nice day", 2), ["there", "day"]),
    ("REGEXP_EXTRACT_ALL", ("x", "hello"), []), ("REGEXP_EXTRACT_ALL", ("(h)", "hello", 2), None),
    ("REGEXP_EXTRACT_ALL", ("(a)|b", "ab", 1), ["a", None]), ("REGEXP_EXTRACT_ALL", (r"\bfoo", "foo xfoo foo"),
                                                              ["foo", "foo"]),
    ("REGEXP_REPLACE", ("aabb", "a+|b+", "-"), "--"), ("REGEXP_REPLACE", ("john smith", r"(\w+) (\w+)", "$2 $1"),
                                                       "smith john"),
    ("REGEXP_REPLACE", ("axb", "x*", "-"), "-a--b-"), ("REGEXP_REPLACE", ("ab", "a", r"\$1"), "$1b"),
    ("REGEXP_REPLACE", ("ab", "(?<x>a)", "${x}${x}"), "aab"), ("REGEXP_REPLACE", ("ab", "a", "$1"), FAILS),
    ("REGEXP_REPLACE", ("ab", "(a)", "$12"), "a2b"), ("REGEXP_REPLACE", (None, "a", "b"), None),
    ("REGEXP_SPLIT_TO_ARRAY", ("a,b;;c", "[,;]"), ["a", "b", "", "c"]), ("REGEXP_SPLIT_TO_ARRAY", ("abc", ""),
                                                                         ["a", "b", "c"]),
    ("REGEXP_SPLIT_TO_ARRAY", (",a,", ","), ["", "a", ""]), ("REGEXP_SPLIT_TO_ARRAY", ("abc", "x"), ["abc"]),
    ("REGEXP_SPLIT_TO_ARRAY", ("a1b", "[0-9]*"), ["a", "", "b"]), ("REGEXP_SPLIT_TO_ARRAY", (None, "x"), None),
    # encodings and bytes
    ("ENCODE", ("48656c6c6f", "hex", "utf8"), "Hello"), ("ENCODE", ("0x48656c6c6f", "hex", "ascii"), "Hello"),
    ("ENCODE", ("X'4869'", "hex", "base64"), "SGk="), ("ENCODE", ("0x1", "hex", "utf8"), "\x01"),
    ("ENCODE", ("xyz", "hex", "utf8"), FAILS), ("ENCODE", ("Ж", "utf8", "hex"), "d096"),
    ("ENCODE", ("Ж", "ascii", "hex"), "3f"), ("ENCODE", ("Ж", "utf8", "ascii"), "��"),
    ("ENCODE", ("SGk", "base64", "utf8"), "Hi"), ("ENCODE", ("S G*k=", "base64", "hex"), "4869"),
    ("ENCODE", (None, "utf8", "hex"), None), ("ENCODE", ("a", "utf8", "latin1"), FAILS),
    ("TO_BYTES", ("Hi", "utf8"), b"Hi"), ("TO_BYTES", ("4869", "hex"), b"Hi"), ("TO_BYTES", ("SGk=", "base64"), b"Hi"),
    ("TO_BYTES", ("é", "ascii"), b"?"), ("TO_BYTES", ("486", "hex"), FAILS), ("TO_BYTES", ("S", "base64"), FAILS),
    ("FROM_BYTES", (b"\xabc", "hex"), "AB63"), ("FROM_BYTES", (b"Hi", "utf8"), "Hi"),
    ("FROM_BYTES", (b"\xff", "ascii"), "�"), ("FROM_BYTES", (bytes(58), "base64"), "A" * 76 + "\r\nAA=="),
    ("INT_FROM_BYTES", (b64("AAAH5Q=="),), 2021), ("INT_FROM_BYTES", (b64("5QcAAA=="), "LITTLE_ENDIAN"), 2021),
    ("INT_FROM_BYTES", (b"abc",), FAILS), ("INT_FROM_BYTES", (b"abcd", "MIDDLE"), FAILS),
    ("BIGINT_FROM_BYTES", (b64("AAAAASoF8gA="), "BIG_ENDIAN"), 5000000000), ("BIGINT_FROM_BYTES", (b"abcd",), FAILS),
    ("DOUBLE_FROM_BYTES", (b64("QICm/ZvJ9YI="),), 532.8738323), ("DOUBLE_FROM_BYTES", (None,), None),
    # URLs
    ("URL_DECODE_PARAM", ("url%20encoded",), "url encoded"), ("URL_DECODE_PARAM", ("a+b%C3%A9",), "a bé"),
    ("MD5", ("braid",), "7566120cc98f85dba933e2538acd9885"), ("MD5", (None,), None),
    ("URL_DECODE_PARAM", ("100%",), FAILS), ("URL_ENCODE_PARAM", ("?foo $bar~é*-._",), "%3Ffoo+%24bar%7E%C3%A9*-._"),
    ("URL_EXTRACT_PROTOCOL", (URL,), "http"), ("URL_EXTRACT_HOST", (URL,), "test.com"),
    ("URL_EXTRACT_PORT", (URL,), 8080), ("URL_EXTRACT_PATH", (URL,), "/path/to"),
    ("URL_EXTRACT_QUERY", (URL,), "a b=c d&b=bar&c"), ("URL_EXTRACT_FRAGMENT", (URL,), "frag x"),
    ("URL_EXTRACT_PARAMETER", (URL, "a b"), "c d"), ("URL_EXTRACT_PARAMETER", (URL, "c"), ""),
    ("URL_EXTRACT_PARAMETER", (URL, "d"), None), ("URL_EXTRACT_PORT", ("http://test.com",), None),
    ("URL_EXTRACT_PATH", ("http://test.com",), ""), ("URL_EXTRACT_PATH", ("mailto:a@b.c",), None),
    ("URL_EXTRACT_HOST", ("http://a_b/x",), None), ("URL_EXTRACT_HOST", ("http://[::1]:9/x",), "[::1]"),
    ("URL_EXTRACT_HOST", ("a b",), FAILS), ("URL_EXTRACT_QUERY", ("http://x?%zz",), FAILS),
    ("URL_EXTRACT_PROTOCOL", ("/relative",), None), ("URL_EXTRACT_PROTOCOL", ("1a:b",), FAILS),
    ("URL_EXTRACT_FRAGMENT", ("http://",), FAILS),
    # numbers
    ("PI", (), math.pi), ("EXP", (1,), math.e), ("EXP", (710,), INF), ("LN", (0,), -INF), ("LN", (-1.0,), NAN),
    ("UUID", (bytes(range(16)),), "00010203-0405-0607-0809-0a0b0c0d0e0f"), ("UUID", (b"x",), None),
    ("LN", (math.e,), 1.0), ("LOG", (1000,), 3.0), ("LOG", (-1,), NAN), ("LOG", (None,), None),
    ("LOG", (2, 8), 3.0), ("LOG", (1, 8), NAN), ("LOG", (-2, 8), NAN),
    ("LOG", (2, None), None), ("CBRT", (27,), 3.0), ("POWER", (2, 10), 1024.0), ("POWER", (-8, 0.5), NAN),
    ("POWER", (1, double(NAN)), NAN), ("POWER", (2, None), None), ("SIN", (0,), 0.0), ("COS", (0,), 1.0),
    ("TAN", (0,), 0.0), ("COT", (1,), 1 / math.tan(1)), ("COT", (0,), INF), ("ASIN", (1,), math.pi / 2),
    ("ASIN", (2,), NAN), ("ACOS", (1,), 0.0), ("ATAN", (1,), math.pi / 4), ("ATAN2", (1, -1), 3 * math.pi / 4),
    ("SINH", (1,), math.sinh(1)), ("COSH", (0,), 1.0), ("TANH", (0,), 0.0), ("DEGREES", (math.pi,), 180.0),
    ("RADIANS", (D("180"),), math.pi),
    ("TRUNC", (2.9,), 2), ("TRUNC", (-2.9,), -2), ("TRUNC", (7,), 7), ("TRUNC", (1.2345, 2), 1.23),
    ("TRUNC", (-1.29, 1), -1.2), ("TRUNC", (1234.5, -2), 1200.0), ("TRUNC", (D("-12.98"),), D("-12")),
    ("TRUNC", (D("12.987"), 1), D("12.900")), ("TRUNC", (D("12.98"), -1), D("10.00")), ("TRUNC", (D("0.5"),), D("0")),
    ("TRUNC", (1e300,), 2**63 - 1), ("TRUNC", (double(NAN), 1), FAILS), ("TRUNC", (None, 1), None),
    ("GEO_DISTANCE", (0.0, 0.0, 0.0, 0.0), 0.0), ("GEO_DISTANCE", (91.0, 0.0, 0.0, 0.0), FAILS),
    ("GEO_DISTANCE", (0.0, 0.0, 0.0, -181.0, "MI"), FAILS), ("GEO_DISTANCE", (0.0, None, 0.0, 0.0), None),
    # dates and times
    ("DATEADD", ("DAYS", 5, dt.date(2021, 11, 28)), dt.date(2021, 12, 3)),
    ("DATEADD", ("HOUR", 49, dt.date(2020, 1, 1)), dt.date(2020, 1, 3)),
    ("DATEADD", ("HOUR", -1, dt.date(2020, 1, 2)), dt.date(2020, 1, 1)),
    ("DATEADD", ("HOUR", -1, dt.date(1970, 1, 1)), dt.date(1970, 1, 1)),
    ("DATESUB", ("DAY", 366, dt.date(2021, 1, 1)), dt.date(2020, 1, 1)),
    ("DATESUB", ("DAY", None, dt.date(2021, 1, 1)), None), ("DATEADD", ("DAYS", 2**31 - 1, dt.date(2020, 1, 1)), FAILS),
    ("TIMEADD", ("MINUTES", 30, dt.time(23, 45)), dt.time(0, 15)),
    ("TIMESUB", ("HOURS", 25, dt.time(0, 15)), dt.time(23, 15)),
    ("TIMESTAMPADD", ("MILLISECOND", 5, dt.datetime(2020, 1, 1)), dt.datetime(2020, 1, 1, 0, 0, 0, 5000)),
    ("TIMESTAMPSUB", ("SECONDS", 1, dt.datetime(2020, 1, 1)), dt.datetime(2019, 12, 31, 23, 59, 59)),
    ("TIMESTAMPADD", ("DAYS", 2**31 - 1, dt.datetime(2020, 1, 1)), FAILS),
    ("CONVERT_TZ", (dt.datetime(2020, 7, 1, 12), "UTC", "America/Los_Angeles"), dt.datetime(2020, 7, 1, 5)),
    ("CONVERT_TZ", (dt.datetime(2020, 1, 1), "Europe/London", "+05:30"), dt.datetime(2020, 1, 1, 5, 30)),
    ("FROM_DAYS", (50,), dt.date(1970, 2, 20)), ("FROM_DAYS", (2**31 - 1,), FAILS), ("FROM_DAYS", (None,), None),
    ("UNIX_DATE", (dt.date(1970, 2, 20),), 50), ("UNIX_DATE", (dt.date(1969, 12, 31),), -1),
    ("DATETOSTRING", (18765, "yyyy-MM-dd"), "2021-05-18"), ("DATETOSTRING", (2**31 - 1, "yyyy"), FAILS),
    ("STRINGTODATE", ("2021-05-18", "yyyy-MM-dd"), 18765), ("STRINGTODATE", ("x", "yyyy-MM-dd"), FAILS),
    # arrays
    ("ARRAY_LENGTH", ([1, None],), 2), ("ARRAY_CONTAINS", ([1, None], None), True),
    ("SLICE", ([1, 2, 3], 2, 3), [2, 3]),
    ("ARRAY_DISTINCT", ([1, 1, 2, 3, 1, 2],), [1, 2, 3]),
    ("ARRAY_DISTINCT", (["apple", "apple", None, "cherry"],), ["apple", None, "cherry"]),
    ("ARRAY_EXCEPT", ([1, 2, 3, 1, 2], [2, 3]), [1]),
    ("ARRAY_EXCEPT", (["apple", "apple", None, "cherry"], ["cherry"]), ["apple", None]),
    ("ARRAY_INTERSECT", ([1, 2, 3, 1, 2], [2, 1]), [1, 2]), ("ARRAY_INTERSECT", ([1], None), None),
    ("ARRAY_UNION", ([1, 2, 3, 1, 2], [4, 1]), [1, 2, 3, 4]),
    ("ARRAY_UNION", (["apple", "apple", None, "cherry"], ["cherry"]), ["apple", None, "cherry"]),
    ("ARRAY_UNION", ([[1], [1]], [[1, 2]]), [[1], [1, 2]]),
    ("ARRAY_CONCAT", ([1, 2, 3, 1, 2], [4, 1]), [1, 2, 3, 1, 2, 4, 1]), ("ARRAY_CONCAT", (None, [4]), [4]),
    ("ARRAY_CONCAT", ([None], None), [None]),
    ("ARRAY_JOIN", (["a", None, "b"],), "a,null,b"), ("ARRAY_JOIN", ([True, False], "; "), "true; false"),
    ("ARRAY_JOIN", ([1.0, 2.5], None), "1.02.5"), ("ARRAY_JOIN", ([],), ""),
    ("ARRAY_MAX", ([-1, 2, None, 0],), 2), ("ARRAY_MAX", ([False, None, True],), True),
    ("ARRAY_MAX", (["Foo", "Bar", None, "baz"],), "baz"), ("ARRAY_MAX", ([1.0, NAN],), NAN),
    ("ARRAY_MIN", ([-1, 2, None, 0],), -1), ("ARRAY_MIN", ([False, None, True],), False),
    ("ARRAY_MIN", (["Foo", "Bar", None, "baz"],), "Bar"), ("ARRAY_MIN", ([None],), None), ("ARRAY_MAX", ([],), None),
    ("ARRAY_REMOVE", ([1, 2, 3, 2, 1], 2), [1, 3, 1]), ("ARRAY_REMOVE", ([False, None, True, True], False),
                                                        [None, True, True]),
    ("ARRAY_REMOVE", (["Foo", "Bar", None, "baz"], None), ["Foo", "Bar", "baz"]),
    ("ARRAY_SORT", ([-1, 2, None, 0],), [-1, 0, 2, None]), ("ARRAY_SORT", ([False, None, True],), [False, True, None]),
    ("ARRAY_SORT", (["Foo", "Bar", None, "baz"], "desc"), ["baz", "Foo", "Bar", None]),
    ("ARRAY_SORT", ([1], "sideways"), None),
    ("GENERATE_SERIES", (1, 4), [1, 2, 3, 4]), ("GENERATE_SERIES", (3, 1), [3, 2, 1]),
    ("GENERATE_SERIES", (1, 6, 2), [1, 3, 5]), ("GENERATE_SERIES", (5, 5), [5]), ("GENERATE_SERIES", (5, 5, -3), [5]),
    ("GENERATE_SERIES", (5, 1, -3), [5, 2]), ("GENERATE_SERIES", (1, 2, 0), FAILS),
    ("GENERATE_SERIES", (1, 2, -1), FAILS), ("GENERATE_SERIES", (0, 2**31 - 1), FAILS),
    ("GENERATE_SERIES", (big(2**63 - 2), big(2**63 - 1)), [2**63 - 2, 2**63 - 1]),
    ("GENERATE_SERIES", (1, None), None),
    # maps
    ("MAP_KEYS", (AB,), ["a", "b"]), ("MAP_VALUES", (AB,), [1, None]),
    ("AS_MAP", (["a", "b", "a"], [1, 2]), entries(("a", None), ("b", 2))),
    ("AS_MAP", (["a"], Lit(None, Array(S.INT))), None),
    ("MAP_UNION", ({"apple": 10, "banana": 20}, {"cherry": 99}),
     entries(("apple", 10), ("banana", 20), ("cherry", 99))),
    ("MAP_UNION", ({"apple": 10, "banana": 20}, {"apple": 50}), entries(("apple", 50), ("banana", 20))),
    ("MAP_UNION", (AB, None), entries(("a", 1), ("b", None))),
    ("ENTRIES", ({"b": 1, "a": 2}, True), [{"K": "a", "V": 2}, {"K": "b", "V": 1}]),
    ("ENTRIES", ({"b": 1, "a": 2}, False), [{"K": "b", "V": 1}, {"K": "a", "V": 2}]),
    ("zip", ([1, 2], ["a"]), [{"E0": 1, "E1": "a"}, {"E0": 2, "E1": None}]),
    ("zip", ([1], []), [{"E0": 1, "E1": None}]),
    ("cube", ([1, 2],), [[None, None], [None, 2], [1, None], [1, 2]]),
    ("cube", ([1, None],), [[None, None], [1, None]]),
    ("cube", ([],), [[]]), ("cube", ([1] * 17,), FAILS),
    # JSON
    ("EXTRACTJSONFIELD", ('{"a":1}', "$.a"), "1"),
    *(("IS_JSON_STRING", (x,), True) for x in ("[1, 2, 3]", "{}", "1", '"abc"', "null", " 1 ")),
    *(("IS_JSON_STRING", (x,), False) for x in ("", "abc", None, "1 2", "NaN")),
    ("JSON_ARRAY_LENGTH", ("[1, 2, 3]",), 3), ("JSON_ARRAY_LENGTH", ("[1, [1, [2]], 3]",), 3),
    ("JSON_ARRAY_LENGTH", ("[]",), 0), ("JSON_ARRAY_LENGTH", ("{}",), None), ("JSON_ARRAY_LENGTH", ("123",), None),
    ("JSON_ARRAY_LENGTH", (None,), None), ("JSON_ARRAY_LENGTH", ("abc",), FAILS),
    ("JSON_ARRAY_CONTAINS", ("[1, 2, 3]", 3), True), ("JSON_ARRAY_CONTAINS", ("[1, 2, 3]", big(4)), False),
    ("JSON_ARRAY_CONTAINS", ("[1.0]", 1), False), ("JSON_ARRAY_CONTAINS", ("[1.0, 2.50]", 2.5), True),
    ("JSON_ARRAY_CONTAINS", ('["a", null]', None), True), ("JSON_ARRAY_CONTAINS", ('["a"]', "a"), True),
    ("JSON_ARRAY_CONTAINS", ("[true]", True), True), ("JSON_ARRAY_CONTAINS", ("[true]", 1), False),
    ("JSON_ARRAY_CONTAINS", ("[[3]]", 3), False), ("JSON_ARRAY_CONTAINS", ('{"a":3}', 3), False),
    ("JSON_ARRAY_CONTAINS", ("abc", 3), False),
    ("JSON_CONCAT", ('{"a": 1}', '{"b": 2}'), '{"a":1,"b":2}'),
    ("JSON_CONCAT", ('{"a": {"5": 6}}', '{"a": {"3": 4}}'), '{"a":{"3":4}}'), ("JSON_CONCAT", ("{}", "{}"), "{}"),
    ("JSON_CONCAT", ("[1, 2]", "[3, 4]"), "[1,2,3,4]"), ("JSON_CONCAT", ("[1, [2]]", "[[[3]]]"), "[1,[2],[[3]]]"),
    ("JSON_CONCAT", ("null", "null"), "[null,null]"), ("JSON_CONCAT", ("[1, 2]", '{"a": 1}'), '[1,2,{"a":1}]'),
    ("JSON_CONCAT", ("[1, 2]", "3"), "[1,2,3]"), ("JSON_CONCAT", ("1", "2.50"), "[1,2.50]"),
    ("JSON_CONCAT", ("abc", "[1]"), FAILS), ("JSON_CONCAT", (None, "[1]"), None),
    ("JSON_KEYS", ('{"a": "abc", "b": {"c": "a"}, "d": 1}',), ["a", "b", "d"]), ("JSON_KEYS", ("{}",), []),
    ("JSON_KEYS", ("[]",), None), ("JSON_KEYS", ("123",), None), ("JSON_KEYS", (None,), None),
    ("JSON_RECORDS", ('{"a": "abc", "b": { "c": "a" }, "d": 1}',),
     entries(("a", '"abc"'), ("b", '{"c":"a"}'), ("d", "1"))),
    ("JSON_RECORDS", ("{}",), []), ("JSON_RECORDS", ("[]",), None), ("JSON_RECORDS", ("abc",), FAILS),
    ("JSON_ITEMS", ('[{"type": "A", "ts": 1.50}, {}]',), ['{"type":"A","ts":1.50}', "{}"]),
    ("JSON_ITEMS", ("[]",), []), ("JSON_ITEMS", ("[1]",), None), ("JSON_ITEMS", ("{}",), FAILS),
    ("TO_JSON_STRING", (1,), "1"), ("TO_JSON_STRING", (15.3,), "15.3"), ("TO_JSON_STRING", ('a"c',), '"a\\"c"'),
    ("TO_JSON_STRING", (True,), "true"), ("TO_JSON_STRING", (None,), "null"), ("TO_JSON_STRING", (D("1.50"),), "1.50"),
    ("TO_JSON_STRING", (dt.date(2021, 10, 11),), '"2021-10-11"'), ("TO_JSON_STRING", (dt.time(13, 25),), '"13:25"'),
    ("TO_JSON_STRING", (dt.datetime(2021, 6, 30, 12, 18, 39, 446000),), '"2021-06-30T12:18:39.446"'),
    ("TO_JSON_STRING", (b"abc",), '"YWJj"'), ("TO_JSON_STRING", ([1, None, 3],), "[1,null,3]"),
    ("TO_JSON_STRING", ({"d": 4, "c": 2},), '{"c":2,"d":4}'), ("TO_JSON_STRING", (double(NAN),), '"NaN"'),
    ("TO_JSON_STRING", (Lit([{"NAME": "A", "ID": 1}], Array(PERSON)),),
     '[{"ID":1,"NAME":"A"}]'),
]  # fmt: skip


CONSTANTS = {"MASK": 1, "REGEXP": 9, "CONVERT_TZ": 1, "DATETOSTRING": 1, "STRINGTODATE": 1, "EXTRACTJSONFIELD": 1}


def over_columns(e: Call) -> tuple[Expr, pl.DataFrame]:
    """The same call with its constants in columns, before a row of nulls; masks, units and zones stay."""
    args: list[Expr] = []
    data = [pl.Series("z", [0, 0])]
    fixed = next((n for name, n in CONSTANTS.items() if e.function.startswith(name)), 9)
    for i, a in enumerate(e.args):
        unit = e.function.endswith(("ADD", "SUB")) and i == 0
        mask = e.function.startswith("MASK_") and i == 1
        if isinstance(a, Lit) and not unit and (i < fixed or mask):
            column, _ = evaluate(pl.DataFrame({"z": [0]}), [(f"L.C{i}", a)])
            data.append(column.to_series().extend_constant(None, 1))
            args.append(Col(f"L.C{i}", a.type))
        else:
            args.append(a)
    return Call(e.function, tuple(args), e.type), pl.DataFrame(data)


def same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-15, abs_tol=1e-300)
    return a == b and type(a) is type(b)


@pytest.mark.parametrize(("name", "args", "expected"), CASES)
def test_function(name: str, args: tuple[Any, ...], expected: Any) -> None:
    e = t.call(name, [typed(a) for a in args])
    assert isinstance(e, Call)
    for form, frame in ((e, pl.DataFrame({"z": [0]})), over_columns(e)):
        out, failed = evaluate(frame, [("v", form)])
        assert out.schema == {"v": polars_type(e.type)} and failed.null_count() == 0
        value = out["v"].to_list()[0]
        assert same(value, None if expected is FAILS else expected), (form, value)
        assert failed[0] is (expected is FAILS)


@pytest.mark.parametrize(
    ("unit", "size"), [((), 8634.6), (("km",), 8634.6), (("Miles",), 5365.7), ((None,), 8634.6), ((" ",), 8634.6)]
)
def test_distance(unit: tuple[str | None, ...], size: float) -> None:
    """From Palo Alto to London."""
    e = t.call("GEO_DISTANCE", [typed(x) for x in (37.4439, -122.1663, 51.5257, -0.1122)] + [text(u) for u in unit])
    value = evaluate(pl.DataFrame({"z": [0]}), [("v", e)])[0]["v"][0]
    assert abs(value - size) < 0.5


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("MASK", ("a", "ab", None, None, None), "a mask is one character"),
        ("MASK_LEFT", ("a",), "maybe four masks"),
        ("REGEXP_EXTRACT", ("(", "a"), "is not a pattern here"),
        ("REGEXP_EXTRACT", ("[a&&b]", "a"), "&& in a class"),
        ("REGEXP_EXTRACT", (r"\p{Foo}", "a"), "is not known"),
        ("TO_BYTES", ("a", "utf16"), "no such encoding"),
        ("GEO_DISTANCE", (0.0, 0.0, 0.0, 0.0, "leagues"), "no unit of distance"),
        ("DATEADD", ("WEEKS", 1, dt.date(2020, 1, 1)), "units are MILLISECOND"),
        ("CONVERT_TZ", (dt.datetime(2020, 1, 1), "UTC", "Mars/X"), "unknown time zone"),
        ("UNIX_DATE", (), "use ROWTIME"),
        ("ARRAY_MAX", ([[1]],), "plain values"),
        ("ARRAY_JOIN", ([[1]],), "ARRAY of numbers"),
        ("ARRAY_UNION", ([1], ["a"]), "two ARRAYs of one type"),
        ("PI", (1,), "it takes nothing"),
    ],
)
def test_refused(name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SqlError) as e:
        t.call(name, [typed(a) for a in args])
    assert message in str(e.value)


def test_patterns_in_columns() -> None:
    """A pattern that is none makes its own row fail."""
    frame = pl.DataFrame({"p": ["a+", "(", "b", None], "t": ["caab", "x", "abc", "x"]})
    e = t.call("REGEXP_EXTRACT", [Col("p", S.VARCHAR), Col("t", S.VARCHAR)])
    out, failed = evaluate(frame, [("v", e)])
    assert out["v"].to_list() == ["aa", None, "b", None] and failed.to_list() == [False, True, False, False]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_name_in_a_dialect_is_one_function(dialect: str) -> None:
    given = [name for f in (*FUNCTIONS.values(), *LAMBDAS.values()) for name in f.names.get(dialect, ())]
    assert sorted(given) == sorted(by_name(dialect)) and all(name == name.upper() for name in given)
    assert not any(f.names.keys() - DIALECTS.keys() for f in FUNCTIONS.values())


def test_every_function_says_what_it_takes() -> None:
    rows = {name: (kind, takes) for name, kind, takes in listed()}
    assert by_name("ksqldb").keys() | AGGREGATES.keys() == rows.keys()
    assert all(takes for _, takes in rows.values())
    assert rows["PI"] == ("scalar", "nothing") and rows["SUM"] == ("aggregate", "a number")
    assert rows["UNIX_DATE"] == ("scalar", "a DATE")


# ------------------------------------------------------- columns against the plain definition

NESTED: tuple[Type, ...] = (
    Array(S.DOUBLE), Array(S.VARCHAR), Array(Array(S.INT)), Map(S.VARCHAR, S.DOUBLE), Array(Map(S.VARCHAR, S.INT)),
    Struct((Column("B", S.VARCHAR), Column("A", Array(S.TIMESTAMP)), Column("C", Decimal(6, 2)))),
    Map(S.INT, Struct((Column("X", S.BOOLEAN), Column("Y", S.DATE)))),
)  # fmt: skip
POOL: dict[Any, list[Any]] = {
    S.INT: [1, 2, 3, None], S.DOUBLE: [0.0, -0.0, 1.5, 1e20, NAN, INF, None], S.BOOLEAN: [True, False, None],
    S.VARCHAR: ["a", "b", "", 'quo"te', "back\\slash", "new\nline", "ü😀", None], S.DATE: [dt.date(2020, 1, 2), None],
    S.TIMESTAMP: [dt.datetime(2020, 1, 2, 3, 4, 5, 678000), None], Decimal(6, 2): [D("1.50"), D("-2.00"), None],
}  # fmt: skip


def random_value(t: Type, r: random.Random, null: bool = True) -> Any:
    if null and r.random() < 0.1:
        return None
    match t:
        case Array(element):
            return [random_value(element, r) for _ in range(r.randrange(5))]
        case Map(key, item):
            keys = {random_value(key, r, null=False) for _ in range(r.randrange(4))} - {None}
            return [{"key": k, "value": random_value(item, r)} for k in sorted(keys)]
        case Struct(fields):
            return {f.name: random_value(f.type, r) for f in fields}
    return r.choice(POOL[t])


def of_columns(name: str, types: list[Type], rows: list[tuple[Any, ...]]) -> list[Any]:
    frame = pl.DataFrame(
        [pl.Series(f"c{i}", [row[i] for row in rows], dtype=polars_type(x)) for i, x in enumerate(types)]
    )
    out, failed = evaluate(frame, [("v", t.call(name, [Col(f"c{i}", x) for i, x in enumerate(types)]))])
    assert not failed.any()
    return out["v"].to_list()


@pytest.mark.parametrize("element", [S.INT, S.DOUBLE, S.VARCHAR, S.BOOLEAN, S.TIMESTAMP, Decimal(6, 2)], ids=str)
def test_sets_of_random_arrays(element: Type) -> None:
    r = random.Random(str(element))
    pairs = [(random_value(Array(element), r), random_value(Array(element), r)) for _ in range(500)]
    plain = {"ARRAY_UNION": functions_arrays._union, "ARRAY_EXCEPT": functions_arrays._except,
             "ARRAY_INTERSECT": functions_arrays._intersect}  # fmt: skip
    for name, f in plain.items():
        want = [None if a is None or b is None else f(a, b) for a, b in pairs]
        assert repr(of_columns(name, [Array(element)] * 2, pairs)) == repr(want), name
    values = [(a, random_value(element, r)) for a, _ in pairs]
    alike = functions_arrays.same
    want = [None if a is None else [x for x in a if alike(x) != alike(v)] for a, v in values]
    assert repr(of_columns("ARRAY_REMOVE", [Array(element), element], values)) == repr(want)


def test_maps_of_random_arrays() -> None:
    r = random.Random(3)
    keys, numbers = Array(S.VARCHAR), Array(S.INT)
    pairs = [(random_value(keys, r), random_value(numbers, r)) for _ in range(500)]
    made = [
        None if a is None or b is None else {k: b[i] if i < len(b) else None for i, k in enumerate(a) if k is not None}
        for a, b in pairs
    ]
    listed_ = [None if m is None else [{"key": k, "value": v} for k, v in m.items()] for m in made]
    assert of_columns("AS_MAP", [keys, numbers], pairs) == listed_
    both = [(m, n) for m, n in zip(listed_, reversed(listed_), strict=True)]
    want = [
        None if m is None and n is None else {e["key"]: e["value"] for e in [*(m or []), *(n or [])]} for m, n in both
    ]
    got = of_columns("MAP_UNION", [Map(S.VARCHAR, S.INT)] * 2, both)
    assert [None if g is None else [(e["key"], e["value"]) for e in g] for g in got] == [
        None if w is None else list(w.items()) for w in want
    ]


@pytest.mark.parametrize("type_", NESTED, ids=str)
def test_texts_of_random_values(type_: Type) -> None:
    r = random.Random(str(type_))
    rows = [(random_value(type_, r),) for _ in range(300)]
    frame = pl.DataFrame([pl.Series("c0", [v for (v,) in rows], dtype=polars_type(type_))])
    out, _ = evaluate(frame, [("v", t.cast(Col("c0", type_), S.VARCHAR))])
    assert out["v"].to_list() == [None if v is None else java_text(v, type_) for (v,) in rows]
    for text, (v,) in zip(of_columns("TO_JSON_STRING", [type_], rows), rows, strict=True):
        assert json.loads(text) == as_json(v, type_), text


def as_json(v: Any, x: Type) -> Any:
    match x:
        case _ if v is None:
            return None
        case Array(element):
            return [as_json(i, element) for i in v]
        case Map(_, item):
            return {str(e["key"]): as_json(e["value"], item) for e in v}
        case Struct(fields):
            return {f.name: as_json(v[f.name], f.type) for f in fields}
        case Decimal():
            return float(v)
        case S.TIMESTAMP:
            return v.isoformat(timespec="milliseconds")
        case S.DATE:
            return v.isoformat()
        case S.DOUBLE if not math.isfinite(v):
            return "NaN" if math.isnan(v) else "Infinity"
    return v
