"""Canonical key bytes and their hash never change: these values are pinned."""

from __future__ import annotations

import json
import math
import time
from decimal import Decimal as D

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.expr.nodes import Col
from braid.operators.ranges import MANY, alike_rows
from braid.operators.rekey import hash_of_key
from braid.records.key import canonical_key, key_hash
from braid.types import Array, Column, Decimal, Scalar, Struct, Type, polars_type
from effort import examples

S = Scalar

GOLDEN: list[tuple[str, int]] = [
    ("1", 7335560060985733464),
    ("-9223372036854775808", 17115503357333685393),
    ('"abc"', 2552065897475565192),
    ('""', 11601966329819847988),
    ('"é😀"', 11970341396986698016),
    ('"a\\"b\\n"', 8193618980795451302),
    ("1.0", 17115040892246371278),
    ('"NaN"', 12298464076808863126),
    ('{"A":1,"B":"x"}', 15932479225964988948),
]


def keys(values: list[object], t: Type) -> list[str | None]:
    return canonical_key(pl.DataFrame({"K": pl.Series(values, dtype=polars_type(t))}), [Column("K", t)]).to_list()


@pytest.mark.parametrize(("text", "expected"), GOLDEN)
def test_golden_hashes(text: str, expected: int) -> None:
    assert key_hash(pl.Series([text]))[0] == expected


def test_forms() -> None:
    assert keys([1, -5, None], S.INT) == ["1", "-5", None]
    assert keys(["abc", "", "é", 'a"b\n\x01', None], S.VARCHAR) == ['"abc"', '""', '"é"', '"a\\"b\\n\\u0001"', None]
    assert keys([0.0, -0.0, math.nan, -math.nan, 1e16, 1e-7, math.inf], S.DOUBLE) == [
        "0.0", "0.0", '"NaN"', '"NaN"', "1e+16", "1e-07", '"Infinity"',
    ]  # fmt: skip
    assert keys([-0.0, math.nan, 1.100000023841858, 1e10, math.inf], S.REAL) == [
        "0.0", '"NaN"', "1.1", "10000000000.0", '"Infinity"',
    ]  # fmt: skip
    assert keys([5, -1], S.SMALLINT) == ["5", "-1"]
    assert keys([True, None], S.BOOLEAN) == ["true", None]
    assert keys([D("1.5")], Decimal(5, 2)) == ['"1.50"']
    assert keys([[-0.0, 1.0]], Array(S.DOUBLE)) == ["[0.0,1.0]"]
    inner = Struct((Column("X", S.DOUBLE),))
    assert keys([{"X": -0.0}], inner) == ['{"X":0.0}']


def test_several_columns() -> None:
    frame = pl.DataFrame({"A": [1, None, None], "B": ["x", "y", None]}, schema={"A": pl.Int32, "B": pl.String})
    columns = [Column("A", S.INT), Column("B", S.VARCHAR)]
    assert canonical_key(frame, columns).to_list() == ['{"A":1,"B":"x"}', '{"A":null,"B":"y"}', None]
    hashes = key_hash(canonical_key(frame, columns))
    assert hashes.dtype == pl.UInt64 and hashes[2] is None
    assert canonical_key(frame.clear(), columns).to_list() == []


@settings(max_examples=examples(60))
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.lists(st.floats(allow_nan=False, allow_infinity=False)),
)
def test_json_dumps_is_the_truth(texts: list[str], numbers: list[float]) -> None:
    assert keys(list(texts), S.VARCHAR) == [json.dumps(t, ensure_ascii=False) for t in texts]
    assert keys(list(numbers), S.DOUBLE) == [json.dumps(x + 0.0) for x in numbers]


def test_speed() -> None:
    frame = pl.DataFrame({"K": pl.Series(range(1_000_000), dtype=pl.Int64)})
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        key_hash(canonical_key(frame, [Column("K", S.BIGINT)]))
        best = min(best, time.process_time() - start)
    assert best < 0.2  # seconds of CPU; measured 0.04


def test_few_keys_of_many_rows() -> None:
    """The hash is made once for equal rows, wherever they lie: it is that of each row by itself."""
    n = 4 * MANY
    exprs = [Col("_k0", S.BIGINT), Col("_k1", S.VARCHAR), Col("_k2", S.BOOLEAN)]
    made = pl.DataFrame({"_k0": [i * i % 7 or None for i in range(n)], "_k1": [f'"{i % 3}' for i in range(n)]})
    made = made.with_columns(_k2=pl.Series([[True, False, None][i % 3] for i in range(n)]))
    found = alike_rows(made)
    assert found is not None and len(found[0]) == made.unique().height
    assert made[found[0][found[1]].tolist()].equals(made)
    for whole in (False, True):
        one_by_one = pl.concat(hash_of_key(made.slice(i, MANY - 1), exprs, whole) for i in range(0, n, MANY - 1))
        assert hash_of_key(made, exprs, whole).equals(one_by_one)
    assert alike_rows(made.with_columns(_k0=pl.int_range(n))) is None
