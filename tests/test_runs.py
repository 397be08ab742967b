"""What is worked out once for equal rows that follow each other is what each row gives by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import groupby

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.expr import compile
from braid.expr.nodes import Col, Lit
from braid.expr.postgres import typing
from braid.expr.postgres.to_char import TO_CHAR
from braid.expr.rows import runs
from braid.operators.rekey import with_key
from braid.records.key import canonical_key
from braid.types import Column, Scalar, Type, polars_type
from effort import examples

S = Scalar
BEGIN = datetime(2024, 2, 28, 23, 59)
VALUES: dict[Type, st.SearchStrategy[object]] = {
    S.VARCHAR: st.sampled_from(["", "a", 'q"\\', "\n", "é", None]),
    S.BIGINT: st.sampled_from([0, -1, 1 << 62, None]),
    S.BOOLEAN: st.sampled_from([True, False, None]),
    S.DOUBLE: st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]),
    S.TIMESTAMP: st.sampled_from([BEGIN, BEGIN + timedelta(minutes=1), datetime(9999, 12, 31), None]),
}


def series(name: str, values: list[object], t: Type) -> pl.Series:
    return pl.Series(name, values, dtype=polars_type(t))


@pytest.mark.parametrize("t", VALUES)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_keys(t: Type, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(VALUES[t], VALUES[S.VARCHAR]), max_size=12))
    times = np.array(data.draw(st.lists(st.integers(1, 40), min_size=len(pairs), max_size=len(pairs))), dtype=np.int64)
    few = pl.DataFrame([series("a", [a for a, _ in pairs], t), series("b", [b for _, b in pairs], S.VARCHAR)])
    at = np.repeat(np.arange(len(pairs)), times)
    many = few[at]
    columns = [Column("a", t), Column("b", S.VARCHAR)]
    one_by_one = [canonical_key(few[i], columns) for i in range(len(pairs))]
    alone = pl.concat(one_by_one) if pairs else pl.Series("key", [], dtype=pl.String)
    assert canonical_key(many, columns).equals(alone.gather(at), null_equal=True)
    rows = [f.with_columns(pl.lit(1, pl.Int8).alias("_diff")) for f in (few, many)]
    keyed = [with_key(f, [Col("a", t), Col("b", S.VARCHAR)], whole=True)[0] for f in rows]
    assert keyed[1].equals(keyed[0][at], null_equal=True)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 1), st.integers(1, 60)), max_size=8))
def test_runs(parts: list[tuple[str | None, int, int]]) -> None:
    rows = [(a, b) for a, b, n in parts for _ in range(n)]
    columns = [series("a", [a for a, _ in rows], S.VARCHAR), series("b", [b for _, b in rows], S.INT)]
    starts = [i for i, r in enumerate(rows) if i == 0 or rows[i - 1] != r]
    found = runs(columns)
    if found is None:
        assert len(starts) * 8 > len(rows) or len(rows) < 8
        return
    first, run = found
    assert first.tolist() == starts
    assert run.tolist() == [n for n, (_, g) in enumerate(groupby(rows)) for _ in g]


def test_calls() -> None:
    times = [BEGIN, None, BEGIN + timedelta(days=1)]
    rows = pl.DataFrame([series("t", [t for t in times for _ in range(20)], S.TIMESTAMP)])
    text = typing.row(TO_CHAR.name, [Col("t", S.TIMESTAMP), Lit("YYYY-MM-DD", S.VARCHAR)])
    values, failed = compile.evaluate(rows, [("v", text)])
    assert values["v"].to_list() == ["2024-02-28"] * 20 + [None] * 20 + ["2024-02-29"] * 20
    assert not failed.any()


def test_calls_that_fail() -> None:
    texts = ["2024-02-28", "soon", None, "2024-02-30"]
    rows = pl.DataFrame([series("t", [t for t in texts for _ in range(20)], S.VARCHAR)])
    time = typing.row("pg.to_date", [Col("t", S.VARCHAR), Lit("YYYY-MM-DD", S.VARCHAR)])
    values, failed = compile.evaluate(rows, [("v", time)])
    assert values["v"].to_list() == [BEGIN.date()] * 20 + [None] * 60
    assert failed.to_list() == [False] * 20 + [True] * 20 + [False] * 20 + [True] * 20
