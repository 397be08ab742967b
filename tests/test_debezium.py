"""Debezium's envelopes: whatever comes, a record is a row, gone, or malformed with a reason; numbers lose nothing."""

from __future__ import annotations

import json
import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.records.codec import decode_values
from braid.records.formats.debezium import members
from braid.records.formats.interface import Facet
from braid.records.formats.named import DEBEZIUM, FORMATS
from braid.types import Column, Decimal, Scalar
from effort import examples

S = Scalar
COLUMNS = [Column("k", S.INT), Column("n", S.BIGINT), Column("d", Decimal(38, 10)), Column("t", S.VARCHAR)]
FORMAT = FORMATS[DEBEZIUM]
VALUE, KEY = Facet("value", FORMAT, False), Facet("key", FORMAT, False)
LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=6) | st.floats(allow_nan=False)
THINGS = st.recursive(
    LEAVES,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from([*"kndt", "op", "after", "payload"]), x),
    max_leaves=8,
)


def spread(text: str, rng: random.Random) -> str:
    """The same JSON with other blanks."""
    return "".join(c + rng.choice(["", "", " ", "\n"]) if c in "{[,:" and rng.random() < 0.5 else c for c in text)


@settings(max_examples=examples(400))
@given(st.dictionaries(st.sampled_from([*"kndt", "more"]), LEAVES), st.sampled_from("cru"), st.randoms())
def test_a_row_is_read_as_without_its_envelope(row: dict[str, object], op: str, rng: random.Random) -> None:
    wide = rng.random() < 0.5
    parts = [("before", None), ("after", row), ("op", op), ("source", {"after": 1, "op": "d"})]
    rng.shuffle(parts)
    envelope = {"schema": {"type": "struct"}, "payload": dict(parts)} if wide else dict(parts)
    plain = json.dumps(row)
    got = FORMAT.decode(pl.Series([json.dumps(envelope)]), COLUMNS, VALUE, "iso")
    want = decode_values(pl.Series([plain]), COLUMNS, manner="iso")
    assert got[0].equals(want[0])
    assert got[1].to_list() == want[1].to_list() == [False]
    assert got[2].to_list() == want[2].to_list()


@settings(max_examples=examples(400))
@given(THINGS, st.booleans(), st.integers(0, 40), st.randoms())
def test_anything_is_a_row_gone_or_malformed(thing: object, cut: bool, at: int, rng: random.Random) -> None:
    text = json.dumps(thing)
    text = text[:at] + rng.choice('{}[],:x\\"') + text[at:] if cut else text
    for facet in (VALUE, KEY):
        frame, null, error = FORMAT.decode(pl.Series([text, None, "{" * 100_000]), COLUMNS, facet, "iso")
        assert frame.height == 3
        assert null[1] and error[1] is None
        assert error[2] is not None and not null[2]
        if error[0] is not None:
            assert frame.row(0) == (None,) * len(COLUMNS)


@settings(max_examples=examples(300))
@given(st.dictionaries(st.text(max_size=4), THINGS, max_size=5), st.randoms())
def test_members_are_where_they_are(thing: dict[str, object], rng: random.Random) -> None:
    text = spread(json.dumps(thing), rng) if not any(c in json.dumps(thing) for c in "\\") else json.dumps(thing)
    try:
        json.loads(text)
    except ValueError:
        return  # blanks came into a text
    assert {name: json.loads(text[a:b]) for name, (a, b) in members(text, 0).items()} == json.loads(text)


@pytest.mark.parametrize(
    ("number", "ms"),
    [
        (1700000000, 1700000000000),
        (1700000000123, 1700000000123),
        (1700000000123456, 1700000000123),
        (1700000000123456789, 1700000000123),
        (-5, -5000),
        (10**11, 10**11),
        (0, 0),
    ],
)
def test_times_by_their_size(number: int, ms: int) -> None:
    text = json.dumps({"op": "c", "after": {"at": number}})
    frame, _, error = FORMAT.decode(pl.Series([text]), [Column("at", S.TIMESTAMP)], VALUE, "iso")
    assert error.to_list() == [None]
    assert frame["at"].cast(pl.Datetime("ms")).dt.timestamp("ms").to_list() == [ms]
