"""JSONB: one text for a document, whatever it was written like."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.expr import jsonb_text
from braid.expr.json_text import loads
from braid.records.malformed import Malformed
from braid.records.values import reader
from braid.types import Scalar

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
    "text", ["", "{", "nul", "NaN", "1e400", '"\\ud800"', "[" * 300 + "]" * 300, "1 2", "'a'", "9" * 5000]
)
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(ValueError):
        jsonb_text.document(text)


@pytest.mark.parametrize("text", ['"\\ud83d"', "1e999", '{"a": [1, {"b": 1e999}]}'])
def test_a_value_that_is_none(text: str) -> None:
    with pytest.raises(Malformed):
        reader(Scalar.JSONB)(loads(text))
