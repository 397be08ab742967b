"""SMALLINT, REAL, TIMESTAMPTZ, NUMERIC and TIME of RisingWave at each door: what has no room in a column costs its own
record, which is told, and no other. Afterwards the table can be read."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from braid.errors import BraidError
from braid.face.show import put_records
from braid.plan.canonical import canonical
from braid.store import opened
from braid.testing import Driver
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from doors import run

COLUMNS = "k INT PRIMARY KEY, v SMALLINT, f REAL, d DOUBLE PRECISION, z TIMESTAMPTZ, n NUMERIC(4, 2), t TIME"
GOOD: dict[str, Any] = {"v": -32768, "f": 1.1, "d": 1.1, "z": "2024-01-01T02:00:00+02:00", "n": 99.99, "t": "23:59:59"}
NOTHING: dict[str, Any] = dict.fromkeys(GOOD)
ROWS: list[dict[str, Any]] = [
    GOOD,
    {"v": 40000},
    {"v": -32769},
    {"f": 1e39},
    {"n": 100},
    {"n": 1.255},
    {"t": "24:00:00"},
    {"v": 32767, "f": 16777217},
    {"f": "Infinity", "d": "NaN"},
]
DOORS = ("put", "csv", "jsonl")
WANTED = [
    (0, -32768, 1.1, 1.1, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), D("99.99"), dt.time(23, 59, 59), "1.1"),
    (7, 32767, 16777216.0, None, None, None, None, "1.6777216e+07"),
    (8, None, float("inf"), None, None, None, None, "Infinity"),
]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    if path.suffix == ".csv":
        lines = [",".join("" if v is None else str(v) for v in r.values()) for r in rows]
        path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("door", DOORS)
def test_what_has_no_room_costs_no_other_record(door: str, count: int, tmp_path: Path) -> None:
    """`count`: the same rows so often, with other keys: blocks are read otherwise than a few lines."""
    store, files, name = TopicStore(opened(tmp_path / "store")), {}, "t"
    rows = [{"k": 100 * i + j, **NOTHING, **r} for i in range(count) for j, r in enumerate(ROWS)]
    if door == "put":
        put_records(Store(store.root), name, [json.dumps({"key": r["k"], "value": r, "timestamp": 0}) for r in rows], 1)
    else:
        files[name] = str(tmp_path / f"t.{door}")
        write(Path(files[name]), rows)
    sql = f"""CREATE TABLE t ({COLUMNS});
    CREATE MATERIALIZED VIEW m AS SELECT k, v, f, d, z, n, t, f::varchar AS x FROM t;
    SELECT k, v, f, CASE WHEN d < 2 THEN d END, z, n, t, f::varchar FROM t WHERE k < 100 ORDER BY k;
    SELECT k, v, f, CASE WHEN d < 2 THEN d END, z, n, t, x FROM m WHERE k < 100 ORDER BY k;
    SELECT count(*) FROM m;"""
    (table, view, counted), lost = run(sql, "risingwave", store, files)
    assert table == view == WANTED
    assert counted == [(3 * count,)] and lost["m"] == ["malformed"] * (6 * count)


@pytest.mark.parametrize("row", [r for i, r in enumerate(ROWS) if i not in (0, 7, 8)], ids=str)
@pytest.mark.parametrize("what", ["write", "insert"])
def test_what_has_no_room_is_refused_where_one_can_refuse(what: str, row: dict[str, Any]) -> None:
    with Driver("risingwave") as d:
        d.execute(f"CREATE TABLE t ({COLUMNS}); CREATE MATERIALIZED VIEW m AS SELECT * FROM t;")
        ((column, value),) = row.items()
        if what == "insert" and value == 1.255:  # PostgreSQL rounds a constant
            return
        with pytest.raises(BraidError):
            if what == "write":
                d.write("t", 1, row)
            else:
                d.execute(f"INSERT INTO t (k, {column}) VALUES (1, '{value}');")
        d.write("t", 2, GOOD)
        assert len(d.query("SELECT * FROM t")) == len(d.query("SELECT * FROM m")) == 1


def test_a_parquet_file(tmp_path: Path) -> None:
    """Its numbers are wider or narrower than the columns."""
    whole = pl.DataFrame(
        {"k": [1, 2, 3], "v": [5, 40000, None], "f": [0.1, 1e39, float("nan")], "d": [0.1, 0.5, 1.5]},
        schema={"k": pl.Int16, "v": pl.Int64, "f": pl.Float64, "d": pl.Float32},
    )
    whole.write_parquet(tmp_path / "t.parquet")
    sql = "CREATE TABLE t (k INT PRIMARY KEY, v SMALLINT, f REAL, d DOUBLE); SELECT * FROM t ORDER BY k;"
    (rows,), _ = run(sql, "risingwave", TopicStore(opened(tmp_path / "store")), {"t": str(tmp_path / "t.parquet")})
    assert rows[0] == (1, 5, 0.1, 0.10000000149011612)
    assert rows[1][:2] == (3, None) and str(rows[1][2]) == "nan" and len(rows) == 2


@pytest.mark.parametrize("encode", ["JSON", "AVRO", "PROTOBUF"])
def test_each_encoding_gives_back_what_it_was_given(encode: str) -> None:
    with Driver("risingwave") as d:
        d.execute(f"""CREATE SOURCE s ({COLUMNS.replace(" PRIMARY KEY", "")}) FORMAT PLAIN ENCODE {encode};
            CREATE MATERIALIZED VIEW m AS SELECT * FROM s;""")
        d.write("s", None, {"k": 1, **GOOD})
        d.write("s", None, {"k": 2, "v": 32767, "f": 1e-45, "d": 0.1})
        rows = d.query("SELECT k, v, f, d, z FROM m ORDER BY k")
        assert rows[0] == (1, -32768, 1.1, 1.1, dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
        assert rows[1][:4] == (2, 32767, 1e-45, 0.1)


def test_a_float_of_a_schema_is_a_real() -> None:
    fields = [{"name": "f", "type": "float"}, {"name": "d", "type": "double"}, {"name": "i", "type": "int"}]
    with Driver("risingwave") as d:
        d.schema("s", "value", "AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))
        d.execute("CREATE SOURCE s FORMAT PLAIN ENCODE AVRO;")
        shown = {row[0]: row[1] for row in d.execute("DESCRIBE s;") or []}
        assert (shown["f"], shown["d"], shown["i"]) == ("real", "double precision", "integer")
        d.write("s", None, {"f": 1.1, "d": 1.1, "i": 1})
        assert d.query("SELECT f, d, f = d FROM s") == [(1.1, 1.1, False)]


def test_a_table_of_rows_has_their_types() -> None:
    with Driver("risingwave") as d:
        items = "1::smallint AS v, 0.1::real AS f, '2024-01-01 00:00:00+00'::timestamptz AS z"
        d.execute(f"CREATE TABLE t AS SELECT {items};")
        assert {row[:2] for row in d.execute("DESCRIBE t;") or []} >= {
            ("v", "smallint"), ("f", "real"), ("z", "timestamptz")
        }  # fmt: skip
        assert d.query("SELECT v, f, z FROM t") == [(1, 0.1, dt.datetime(2024, 1, 1, tzinfo=dt.UTC))]


def plan(type_: str, sql: str) -> str:
    with Driver("risingwave") as d:
        d.execute(f"CREATE TABLE t (k INT PRIMARY KEY, x {type_}, a TIMESTAMP);")
        d.execute(f"CREATE MATERIALIZED VIEW m AS {sql};")
        return canonical(d._program.query_of("m"))


def test_a_plan_is_the_same_where_its_values_are() -> None:
    """A checkpoint made when a TIMESTAMPTZ was a TIMESTAMP goes on; one with a SMALLINT or a REAL would not."""
    for sql in (
        "SELECT k, x FROM t WHERE x > x - INTERVAL '1 day'",
        "SELECT x, count(*) AS n, max(x) AS last FROM t GROUP BY x",
        "SELECT k, x FROM t WHERE x > a",
    ):
        assert plan("TIMESTAMPTZ", sql) == plan("TIMESTAMP", sql)
    assert plan("SMALLINT", "SELECT k, x FROM t") != plan("INT", "SELECT k, x FROM t")
    assert plan("REAL", "SELECT k, x FROM t") != plan("DOUBLE", "SELECT k, x FROM t")
