"""Rows of text: what the compiled core writes is what Polars writes, byte for byte; so are whole records of a topic."""

from __future__ import annotations

import json
import random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid import native
from braid.bind.program import Program
from braid.operators.changes import DIFF, HASH, NEVER, POS, POS_TYPE, SUB, TIME, key_column
from braid.plan.logical import Sink
from braid.records import texts
from braid.records.texts import Column, Piece
from braid.stage.emit import line_pieces, written
from braid.topics.envelope import format_envelope
from braid.types import polars_type
from effort import fuzzed

needs_core = pytest.mark.skipif(native.core() is None, reason=f"no compiled core: {native.loaded()[1]}")

WHOLE = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 9, 10, 99, 100, -(2**63)]))
TEXT = st.one_of(
    st.none(), st.text(), st.sampled_from(["", '"', "\\", "\x00\x1f\x7f", "a\nb\t\r\b\f", "😀ü", "x" * 40])
)


@st.composite
def pieces(draw: Any) -> tuple[list[Piece], int]:
    """Columns that begin somewhere in a longer one, of one chunk or two."""
    rows, made = draw(st.integers(texts.FEW, texts.FEW + 70)), list[Piece]()
    for _ in range(draw(st.integers(1, 5))):
        match draw(st.sampled_from(["literal", "whole", "text", "string"])):
            case "literal":
                made.append(draw(st.text(max_size=40)))
            case "whole":
                made.append(Column(_column(draw, WHOLE, pl.Int64(), rows)))
            case kind:
                made.append(Column(_column(draw, TEXT, pl.String(), rows), quoted=kind == "string"))
    return made, rows


def _column(draw: Any, values: st.SearchStrategy[Any], dtype: pl.DataType, rows: int) -> pl.Series:
    some, skipped = draw(st.lists(values, min_size=1, max_size=12)), draw(st.integers(0, 9))
    some = some if draw(st.booleans()) else [x for x in some if x is not None] or some
    whole = pl.Series((some * (rows + 9))[: rows + 9], dtype=dtype)
    if draw(st.booleans()):
        whole = whole[:5].append(whole[5:])
    return whole[skipped : skipped + rows]


@needs_core
@settings(max_examples=fuzzed(150))
@given(pieces(), st.integers(1, 200))
def test_rows_are_those_of_polars(made: tuple[list[Piece], int], most: int) -> None:
    some, rows = made
    want = texts._by_polars(some, rows)
    assert texts.joined(some, rows).to_list() == want.to_list()
    core = texts.written([*some, "\n"], rows)
    assert core is not None
    found = [(bytes(data), sizes.tolist()) for data, sizes in core.blocks(most)]
    assert b"".join(x for x, _ in found) == "".join(f"{x}\n" for x in want).encode()
    sizes = [n for _, block in found for n in block]
    assert sizes == [len(x.encode()) + 1 for x in want] and max(sizes) <= core.longest


@needs_core
def test_lines_are_those_of_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.Series([f"{i}{'ü' * (i % 3)}" for i in range(1000)])
    own = [(bytes(data), sizes.tolist()) for data, sizes in texts.lines(rows, 300)]
    monkeypatch.setattr(texts, "core", lambda: None)
    assert own == [(bytes(data), sizes.tolist()) for data, sizes in texts.lines(rows, 300)]


def test_few_rows_and_those_without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    some = ["a", Column(pl.Series([1, None])), Column(pl.Series(['"', None]), quoted=True)]
    assert texts.written(some, 2) is None
    assert texts.joined(some, 2).to_list() == ['a1"\\""', "anullnull"]
    monkeypatch.setattr(texts, "core", lambda: None)
    assert texts.written(["a"], 10**6) is None


@needs_core
def test_a_piece_that_the_core_does_not_know_ends_nothing() -> None:
    made = texts.written([Column(pl.Series(range(200)))], 200)
    assert made is not None
    made._asked[0].kind = 9
    with pytest.raises(AssertionError):
        made.part(0, 200)


SOURCES = """
CREATE SOURCE l (k BIGINT, i INT, s SMALLINT, v VARCHAR, d DOUBLE, b BOOLEAN, t TIMESTAMP, n NUMERIC, j JSONB);
"""
KSQLDB = "CREATE STREAM l (k BIGINT KEY, v VARCHAR) WITH (kafka_topic='l', value_format='{0}', partitions=1);"
QUERIES = {
    "by number": ("risingwave", SOURCES + "CREATE MATERIALIZED VIEW o AS SELECT * FROM l;"),
    "group": ("risingwave", SOURCES + "CREATE MATERIALIZED VIEW o AS SELECT k, v, d, sum(i) FROM l GROUP BY 1, 2, 3;"),
    "JSON": ("ksqldb", KSQLDB.format("JSON") + "CREATE STREAM o AS SELECT k, v FROM l;"),
    "no key": ("ksqldb", KSQLDB.replace(" KEY", "").format("JSON") + "CREATE STREAM o AS SELECT k, v FROM l;"),
    "delimited": ("ksqldb", KSQLDB.format("DELIMITED") + "CREATE STREAM o AS SELECT k, v FROM l;"),
    "bare": ("ksqldb", KSQLDB.format("JSON") + "CREATE STREAM o WITH (wrap_single_value=false) AS SELECT k, v FROM l;"),
}  # fmt: skip


def _rows(sink: Sink, nulls: bool, gone: bool) -> pl.DataFrame:
    """Rows of a result as they come to its writer."""
    count, r = 150, random.Random(f"{nulls} {gone}")
    named = [(key_column(i), e.type) for i, e in enumerate(sink.written_key)]
    named += [(f"v{i}", o.expr.type) for i, o in enumerate(sink.values)]
    frame = pl.DataFrame(
        [
            pl.Series(POS, range(count), dtype=POS_TYPE),
            pl.Series(SUB, [None] * count, dtype=pl.Binary),
            pl.Series(TIME, [r.choice([0, -5, 1709280000000, NEVER]) for _ in range(count)], dtype=pl.Int64),
            pl.Series(DIFF, [r.choice([1, -1]) if gone else 1 for _ in range(count)], dtype=pl.Int8),
            pl.Series(HASH, [r.randrange(1 << 64) for _ in range(count)], dtype=pl.UInt64),
        ]
    )
    values = {
        pl.String: ["", "x", 'a"b', "ü\n", "\\"],
        pl.Boolean: [True, False],
        pl.Float64: [0.0, -1.5, 1e300, float("nan")],
    }
    columns = []
    for name, t in named:
        dtype = polars_type(t)
        some: list[Any] = values.get(dtype.base_type(), [0, 1, -7, 32767])
        some = ["[1, 2]", "{}"] if str(t) == "JSONB" else some
        picked = [None if nulls and r.random() < 0.5 else r.choice(some) for _ in range(count)]
        columns.append(pl.Series(name, picked, strict=False).cast(dtype))
    return frame.hstack(columns)


@needs_core
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_records_are_those_of_polars(name: str, gone: bool, nulls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect, sql = QUERIES[name]
    query = next(e.query for e in Program(dialect).statements(sql) if e.query is not None)
    frame = _rows(query.sink, nulls, gone)
    made = line_pieces(query.sink, frame)
    assert made is not None
    found = texts.joined(made, frame.height).to_list()
    with monkeypatch.context() as m:
        m.setattr(texts, "core", lambda: None)
        records = written(query.sink, frame, 3)
        want = format_envelope(*(records[c] for c in ("key", "value", "timestamp", "headers", "window")))
    assert found == want.to_list()
    assert all(json.loads(line)["timestamp"] == t for line, t in zip(found, frame[TIME], strict=True))
