"""JSONB: one text for a document, whatever it was written like."""

from __future__ import annotations

import json
import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.errors import BraidError
from braid.expr import jsonb_text
from braid.expr.json_text import loads
from braid.files.values import fits, from_column
from braid.records.malformed import Malformed
from braid.records.values import reader
from braid.testing import Driver
from braid.types import Array, Scalar

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | _TEXTS
_VALUES = st.recursive(
    _LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(_TEXTS, v, max_size=3), max_leaves=9
)


def _finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case list():
            return all(map(_finite, value))
        case dict():
            return all(map(_finite, value.values()))
    return True


@given(_VALUES.filter(_finite), st.booleans(), st.sampled_from([None, 2]))
def test_a_document_has_one_text(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = jsonb_text.document(json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    assert json.loads(text) == value and jsonb_text.document(text) == text
    assert jsonb_text.document(json.dumps(value, sort_keys=True)) == text
    assert jsonb_text.written(jsonb_text.value_of(text)) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_the_same_double(value: float) -> None:
    text = jsonb_text.double(value)
    assert float(text) == value and math.copysign(1, float(text)) == math.copysign(1, value)
    assert ("e" in text) == (value != 0 and not 1e-5 <= abs(value) < 1e16) and "e+" not in text


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('{"b":1,"a":2,"b":3}', '{"a": 2, "b": 3}'),
        ("18446744073709551616", "1.8446744073709552e19"),
        ("1.0", "1.0"),
        ("1E5", "100000.0"),
        ('"\\u00e9\\u0001\\/"', '"é\\u0001/"'),
        (' [ ] ', "[]"),
    ],
)  # fmt: skip
def test_texts(text: str, document: str) -> None:
    assert jsonb_text.document(text) == document


@pytest.mark.parametrize(
    "text", ["", "{", "nul", "NaN", "1e400", '"\\ud800"', "[" * 128 + "]" * 128, "1 2", "'a'", "9" * 5000]
)
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(ValueError):
        jsonb_text.document(text)


@pytest.mark.parametrize("text", ['"\\ud83d"', "1e999", '{"a": [1, {"b": 1e999}]}'])
def test_a_value_that_is_none(text: str) -> None:
    with pytest.raises(Malformed):
        reader(Scalar.JSONB)(loads(text))


def test_texts_in_a_column_of_a_file_are_read_as_json() -> None:
    """A column of texts has the form of documents already, and may be none."""
    texts = pl.Series(['{"b": 1.50,"a":"é"}', "nope", None, "", "1e400", "null"])
    values, beyond = from_column(texts, Scalar.JSONB)
    assert values.to_list() == ['{"a": "é", "b": 1.5}', None, None, None, None, "null"]
    assert beyond.to_list() == [False, True, False, True, True, False]
    lists, bad = from_column(pl.Series("v", ['[{"b":1},null]', "[1e400]"]), Array(Scalar.JSONB))
    assert lists.to_list() == [['{"b": 1}', None], None] and bad.to_list() == [False, True]
    assert fits(pl.String(), Scalar.JSONB) and fits(pl.String(), Array(Scalar.JSONB))
    for dtype in (pl.Int64(), pl.Struct({"a": pl.Int64}), pl.List(pl.String)):
        assert not fits(dtype, Scalar.JSONB) and not fits(dtype, Array(Scalar.JSONB))


_DOCUMENTS = ["1", "0", "-3.5", "9007199254740993", "1e300", "true", "false", "null", '"1"', '"true"', "[1]", "{}"]


@pytest.mark.parametrize("name", ["boolean", "smallint", "bigint", "real", "double precision", "numeric", "varchar"])
def test_a_constant_is_cast_as_a_column_is(name: str) -> None:
    with Driver("risingwave") as d:
        d.execute("CREATE TABLE t (doc JSONB);")
        for doc in _DOCUMENTS:
            d.execute(f"DELETE FROM t; INSERT INTO t VALUES ('{doc}');")
            if doc != "null":  # in a topic it is NULL
                assert _answer(d, f"SELECT doc::{name} FROM t") == _answer(d, f"SELECT '{doc}'::jsonb::{name}"), doc


def _answer(d: Driver, query: str) -> object:
    try:
        return d.query(query)
    except BraidError:
        return "it fails"


def test_what_nests_too_deeply_for_a_reader_is_not_made() -> None:
    deep = "[" * 127 + "]" * 127
    with Driver("risingwave") as d:
        for made in (f"to_jsonb(ARRAY['{deep}'::jsonb])", f"jsonb_build_array('{deep}'::jsonb)"):
            with pytest.raises(BraidError):
                d.query(f"SELECT {made}")
        d.execute("CREATE TABLE t (doc JSONB);")
        d.execute("CREATE MATERIALIZED VIEW v AS SELECT to_jsonb(ARRAY[doc]) AS d, jsonb_build_array(doc) AS b FROM t;")
        d.execute(f"INSERT INTO t VALUES ('{deep}');")
        assert d.query("SELECT * FROM v") == [(None, None)]
        assert [x["reason"] for x in d.drops("v")] == ["expression"] * len(d.drops("v")) and d.drops("v")
