"""Tables that lie elsewhere: what a look finds stands in a topic afterwards; what is no table is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import time
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog as Lake

from braid.bind.bound import Declared
from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.errors import BraidError
from braid.store import opened as store_in
from braid.tables.files import SnapshotTable
from braid.tables.interface import Read, Table, Unready, of_columns
from braid.tables.mirror import SINCE, Mirror, Poll
from braid.tables.named import is_table, table_of
from braid.topics.store import TopicStore
from cli_help import QUICK, braid, ended, launch, on_shared_spark, records
from delta_logs import Mapped

WORDS = {
    "ksqldb": "CREATE TABLE c (k INT PRIMARY KEY, v STRING, n DOUBLE) WITH (kafka_topic='c', {}partitions=2);",
    "risingwave": "CREATE TABLE c (k INT PRIMARY KEY, v VARCHAR, n DOUBLE PRECISION);",
    "lenses": "CREATE TABLE c (_key INT, v STRING, n DOUBLE) FORMAT (INT, JSON) PROPERTIES (partitions=2);",
}
FORMATS = {
    "ksqldb": [
        "value_format='JSON', ",
        "key_format='KAFKA', value_format='DELIMITED', ",
        "format='AVRO', ",
        "format='JSON_SR', ",
        "format='PROTOBUF', value_protobuf_nullable_representation='OPTIONAL', ",
    ],
    "risingwave": [""],
    "lenses": [""],
}


def declared(sql: str, dialect: str = "ksqldb", store: TopicStore | None = None) -> Declared:
    program = Program(dialect, Catalog(registry=None if store is None else store.registry))
    list(program.statements(sql))
    return next(iter(program.catalog.sources.values()))


@dataclass
class Given(Table):
    """A table that is what a test says."""

    rows: pl.DataFrame = field(default_factory=pl.DataFrame)

    def described(self) -> str:
        return "given"

    def version(self) -> str | None:
        return None

    def read(self, declared: Declared) -> Read:
        return of_columns(declared, self.rows, "given")


def frame(key: str, rows: dict[int, tuple[str | None, float | None]]) -> pl.DataFrame:
    schema = {key: pl.Int64, "v": pl.String, "n": pl.Float64}
    return pl.DataFrame([(k, *v) for k, v in rows.items()], schema=schema, orient="row")


VALUES = st.tuples(st.none() | st.text(max_size=3).filter(lambda x: "\0" not in x), st.none() | st.floats(width=32))
STATES = st.lists(st.dictionaries(st.integers(-3, 3), VALUES, max_size=6), min_size=1, max_size=4)


@pytest.mark.parametrize(("dialect", "how"), [(d, f) for d, found in FORMATS.items() for f in found])
@given(states=STATES, again=st.lists(st.booleans(), min_size=4, max_size=4))
@settings(max_examples=25, deadline=None)
def test_the_topic_holds_what_the_table_holds(
    dialect: str, how: str, states: list[dict[int, Any]], again: list[bool], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = TopicStore(store_in(tmp_path_factory.mktemp("s")))
    made, table = declared(WORDS[dialect].format(how), dialect, store), Given()
    mirror = Mirror(made, table, store, losing=True)
    before: set[int] = set()
    for rows, anew in zip(states, again, strict=False):
        table.rows = frame("_key" if dialect == "lenses" else "k", rows)
        if anew:
            mirror = Mirror(made, table, store, losing=True)  # as after a crash
        mirror.check()
        mirror.begin()
        commits = sum(store.end_offsets("c"))
        poll = mirror.poll()
        assert poll is not None and poll.rows == len(rows)
        assert (poll.new, poll.gone) == (len(rows.keys() - before), len(before - rows.keys()))
        written = sum(store.end_offsets("c")) - commits
        assert written == poll.new + poll.changed + poll.gone
        fresh = Mirror(made, table, store)
        found, there = fresh._of_topic(), fresh._rows(table.read(made))[0]
        texts = ("_key", "_value")
        assert found.select(texts).sort("_key").equals(there.select(texts).sort("_key"))
        again_poll = fresh.poll()
        assert again_poll is not None and not again_poll.wrote  # the topic says it all
        before = set(rows)


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    store, table = TopicStore(store_in(tmp_path / "s")), Given()
    mirror = Mirror(declared(WORDS["ksqldb"].format(FORMATS["ksqldb"][0])), table, store)
    mirror.begin()
    table.rows = frame("k", {1: ("a", 1.0), 2: ("b", None), 3: (None, None)})
    assert mirror.poll() == Poll(3, 0, 0, 0, 3)
    table.rows = frame("k", {3: (None, None), 2: ("c", None), 4: ("d", 0.5)})
    assert mirror.poll() == Poll(1, 1, 1, 0, 3)
    every = records("c", tmp_path / "s")
    assert sorted((r["key"], r["value"] and r["value"]["V"]) for r in every[-3:]) == [(1, None), (2, "c"), (4, "d")]
    assert {r["timestamp"] for r in every} == {SINCE}


# ------------------------------------------------------------------ snapshots


def written(path: Path, text: str, ago: float = 60) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, (time.time() - ago, time.time() - ago))


@pytest.fixture
def customers() -> Declared:
    return declared("CREATE TABLE c (k INT PRIMARY KEY, v STRING) WITH (kafka_topic='c', value_format='JSON');")


def test_a_file_that_is_being_written_is_not_looked_at(tmp_path: Path, customers: Declared) -> None:
    path = tmp_path / "c.csv"
    table = SnapshotTable(str(path))
    written(path, "k,v\n1,a\n", ago=0)
    with pytest.raises(Unready, match="is being written"):
        table.read(customers)
    written(path, "k,v\n1,a\n")
    assert table.read(customers).rows.rows() == [(1, "a")]
    with path.open("a") as held:
        os.utime(path, (time.time() - 60, time.time() - 60))
        with pytest.raises(Unready, match="is being written"):
            table.read(customers)
        held.write("2,b\n")
    written(path, "k,v\n1,a\n2,", ago=5)
    with pytest.raises(Unready, match="in the middle of a line"):
        table.read(customers)
    written(path, "")
    with pytest.raises(Unready, match="is empty"):
        table.read(customers)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(("dialect", "sql", "key", "value"), [
    ("lenses", "CREATE TABLE c (_key INT, name STRING) FORMAT (INT, JSON);", "_key", "name"),
    ("lenses", "CREATE TABLE c (_key INT, _value STRING) FORMAT (INT, STRING);", "_key", "_value"),
    ("risingwave", "CREATE TABLE c (_key INT PRIMARY KEY, _diff VARCHAR);", "_key", "_diff"),
    ("risingwave", "CREATE TABLE c (_offset INT PRIMARY KEY, _t VARCHAR);", "_offset", "_t"),
])  # fmt: skip
def test_columns_called_as_facets_are(tmp_path: Path, kind: str, dialect: str, sql: str, key: str, value: str) -> None:
    rows = pl.DataFrame({key: [1, 2], value: ["a", None]})
    path = tmp_path / f"c.{kind}"
    {"csv": rows.write_csv, "jsonl": rows.write_ndjson, "parquet": rows.write_parquet}[kind](path)
    os.utime(path, (time.time() - 60, time.time() - 60))
    made, table, store = declared(sql, dialect), SnapshotTable(str(path)), TopicStore(store_in(tmp_path / "s"))
    read = table.read(made)
    assert read.rows.rows() == [(1, "a"), (2, None)] and read.error.null_count() == 2
    rows_that_stand = 1 if value == "_value" else 2  # a record without a value deletes its key
    for expected in (Poll(rows_that_stand, rows=rows_that_stand), Poll(rows=rows_that_stand)):
        mirror = Mirror(made, table, store)
        mirror.begin()
        assert mirror.poll() == expected


def test_a_row_that_is_malformed_refuses_the_look(tmp_path: Path, customers: Declared) -> None:
    path, store = tmp_path / "c.csv", TopicStore(store_in(tmp_path / "s"))
    written(path, "k,v\n1,a\nx,b\ny,c\n")
    mirror = Mirror(customers, SnapshotTable(str(path)), store)
    with pytest.raises(BraidError, match=r"row 2 is malformed: column K: 'x' is not .*, and 1 more"):
        mirror.check()


def test_keys_that_stand_twice_and_keys_that_are_missing(tmp_path: Path, customers: Declared) -> None:
    path, store = tmp_path / "c.csv", TopicStore(store_in(tmp_path / "s"))
    written(path, "K,V\n1,a\n1,b\n,c\n")
    mirror = Mirror(customers, SnapshotTable(str(path)), store)
    mirror.begin()
    assert mirror.poll() == Poll(1, 0, 0, 1, 1)
    assert mirror.poll() is None  # the file is as it was
    assert [(r["key"], r["value"]) for r in records("c", tmp_path / "s")] == [(1, {"V": "b"})]


def test_most_rows_gone_is_refused_unless_told(tmp_path: Path, customers: Declared) -> None:
    path, store = tmp_path / "c.csv", TopicStore(store_in(tmp_path / "s"))

    def rows(keys: range) -> str:
        return "k,v\n" + "".join(f"{k},a\n" for k in keys)

    written(path, rows(range(20)))
    mirror = Mirror(customers, SnapshotTable(str(path)), store)
    mirror.begin()
    mirror.poll()
    written(path, rows(range(9)), ago=50)
    with pytest.raises(BraidError, match="has lost 11 of the 20 rows of C") as refused:
        mirror.poll()
    assert "--accept-deletes" in str(refused.value.hint)
    written(path, "k,v\n", ago=40)
    with pytest.raises(BraidError, match="has lost 20 of the 20 rows"):
        mirror.poll()
    written(path, rows(range(10)), ago=30)
    assert mirror.poll() == Poll(0, 0, 10, 0, 10)
    written(path, rows(range(1)), ago=20)
    told = Mirror(customers, SnapshotTable(str(path)), store, losing=True)
    told.begin()
    assert told.poll() == Poll(0, 0, 9, 0, 1)
    written(path, "k,v\n", ago=10)
    with pytest.raises(BraidError, match="has lost 1 of the 1 rows"):  # few rows may go, all may not
        Mirror(customers, SnapshotTable(str(path)), store).poll()


def test_what_no_look_can_fill(tmp_path: Path, customers: Declared) -> None:
    store = TopicStore(store_in(tmp_path / "s"))
    for sql, told in (
        ("CREATE STREAM c (k INT KEY, v STRING) WITH (kafka_topic='c', value_format='JSON');", "C is a stream"),
        ("CREATE TABLE c (k INT, v VARCHAR);", "has no primary key"),
    ):
        made = declared(sql, "ksqldb" if "STREAM" in sql else "risingwave")
        with pytest.raises(BraidError, match=told):
            Mirror(made, Given(), store).check()
    store.create("c", 1)
    store.append("c", [{"key": 1, "value": {"V": "by hand"}, "timestamp": 5}])
    with pytest.raises(BraidError, match="the topic c has records that did not come from given"):
        Mirror(customers, Given(), store).begin()
    assert sum(store.end_offsets("c")) == 1


def test_what_names_a_table() -> None:
    assert [is_table(x) for x in ("snapshot:a.csv", "delta:x", "a.csv", "snapshots/a.csv", "c:/a.csv")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    for text, told in (
        ("snapshot:", "names no file"),
        ("delta:s3://b/t", "is no folder"),
        ("iceberg:t", "names no table"),
        ("postgres:host=h", "names no table"),
        ("postgres:host=h password=x#t", "a password on a command line"),
    ):
        with pytest.raises(BraidError, match=told):
            table_of(text)


def test_commands_refuse_what_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    written(path, "k,v\n1,a\n")
    store = ("--store", tmp_path / "s", "--until-idle", f"--source=C=snapshot:{path}")
    table = "CREATE TABLE c (k INT PRIMARY KEY, v STRING) WITH (kafka_topic='c', value_format='JSON');"
    stream = table.replace("TABLE", "STREAM").replace("PRIMARY KEY", "KEY")
    said = braid("run", *store, "-e", f"{stream} CREATE STREAM o AS SELECT * FROM c;")
    assert said.code == 1 and "O reads C as a stream, and what is polled is a table" in said.err
    said = braid("run", *store, "-e", f"{table} INSERT INTO c (k, v) VALUES (2, 'b');")
    assert said.code == 1 and "C is read from elsewhere, and cannot be written" in said.err and "^" in said.err
    said = braid("run", *store[:3], "--source=C=snapshot:none.csv", "-e", table)
    assert said.code == 1 and "none.csv" in said.err and not (tmp_path / "s" / "topics").exists()
    said = braid("check", "--store", tmp_path / "t", f"--source=C=snapshot:{path}", "-e", table)
    assert said.code == 0 and not (tmp_path / "t").exists(), said.err
    written(path, "k,v\nx,a\n")
    said = braid("check", "--store", tmp_path / "t", f"--source=C=snapshot:{path}", "-e", table)
    assert said.code == 1 and "row 1 is malformed" in said.err


def test_a_statement_reads_what_was_looked_at(tmp_path: Path) -> None:
    path, words = tmp_path / "c.jsonl", ("run", "--store", tmp_path / "s", "--dialect", "risingwave")
    sql = "CREATE TABLE c (k INT PRIMARY KEY, v VARCHAR); SELECT k, v FROM c ORDER BY k;"
    written(path, '{"k": 2, "v": "b"}\n{"k": 1, "v": "a"}\n')
    said = braid(*words, f"--source=c=snapshot:{path}", "-e", sql)
    assert said.code == 0 and said.out.split()[-4:] == ["1", "a", "2", "b"], said
    assert f"note: c, from snapshot:{path}: 2 rows: 2 new" in said.err
    written(path, '{"k": 2, "v": "c"}\n', ago=30)
    said = braid(*words, f"--source=c=snapshot:{path}", "-e", sql)
    assert said.code == 0 and said.out.split()[-2:] == ["2", "c"], said


def test_the_prompt_looks_when_a_table_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    written(path, "k,v\n1,a\n2,b\n")
    words = ("sql", "--store", tmp_path / "s", "--dialect", "risingwave", f"--source=c=snapshot:{path}")
    said = braid(*words, stdin="CREATE TABLE c (k INT PRIMARY KEY, v VARCHAR); SELECT count(*) FROM c;")
    assert said.code == 0 and "2" in said.out.split() and "2 rows: 2 new" in said.err, said
    written(path, "k,v\n1,a\n2,b\n3,c\n", ago=30)
    said = braid(*words, stdin="SELECT count(*) FROM c;")
    assert said.code == 0 and "3" in said.out.split() and "3 rows: 1 new" in said.err, said
    written(path, "k,v\nx,a\n", ago=20)
    said = braid(*words, stdin="SELECT count(*) FROM c;")
    assert said.code == 1 and "row 1 is malformed" in said.err


# --------------------------------------------------------------- other systems


TYPES = """CREATE TABLE c (i INT PRIMARY KEY, b BIGINT, d DECIMAL, f DOUBLE PRECISION, r REAL, t VARCHAR, o BOOLEAN,
  y BYTEA, da DATE, ti TIME, ts TIMESTAMP, tz TIMESTAMPTZ, a INT[]);"""
WHEN = dt.datetime(2024, 3, 1, 8, 0, 0, 123000)
ROW = {
    "i": -1, "b": 2**62 + 1, "d": Decimal("12.50"), "f": 0.1, "r": 0.5, "t": 'ß "😀"\n\\', "o": True,
    "y": b"\0\xff" * 60,
    "da": dt.date(2024, 3, 1), "ti": dt.time(1, 2, 3), "ts": WHEN, "tz": WHEN.replace(tzinfo=dt.UTC), "a": [1, None],
}  # fmt: skip


def typed(table: Table) -> list[dict[str, Any]]:
    read = table.read(declared(TYPES, "risingwave"))
    assert read.error.null_count() == len(read.error), read.error
    return read.rows.sort("i").to_dicts()


def same(found: dict[str, Any], leave: tuple[str, ...] = ()) -> bool:
    wanted = {k: v for k, v in ROW.items() if k not in leave}
    got = {k: v.replace(tzinfo=dt.UTC) if k == "tz" else v for k, v in found.items() if k not in leave}
    assert got == wanted
    return True


def test_delta(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    path, nothing = tmp_path / "t", {k: None for k in ROW} | {"i": 5}
    rows = pl.DataFrame([ROW, nothing]).drop("ti").with_columns(pl.col("i").cast(pl.Int32), pl.lit(7).alias("more"))
    write_deltalake(str(path), rows.to_arrow())
    table = table_of(f"delta:{path}")
    made = declared(TYPES.replace("ti TIME, ", ""), "risingwave")
    first = table.version()
    read = table.read(made)
    assert same(read.rows.sort("i").to_dicts()[0], ("ti",)) and read.rows.sort("i").rows()[1][1:] == (None,) * 11
    DeltaTable(str(path)).delete("i = 5")
    assert table.version() != first and table.read(made).rows.height == 1
    with pytest.raises(BraidError, match="has no column ti"):
        table.read(declared(TYPES, "risingwave"))
    with pytest.raises(BraidError, match="is no Delta table"):
        table_of(f"delta:{tmp_path / 'none'}").version()


MAPPED = pa.schema(
    [
        ("k", pa.int32()),
        ("V", pa.string()),
        ("p", pa.string()),
        ("s", pa.struct([("x", pa.int32())])),
        ("a", pa.list_(pa.struct([("y", pa.string())]))),
    ]
)
OF_MAPPED = """CREATE TABLE c (k INT PRIMARY KEY, v STRING, p STRING, s STRUCT<x INT>, a ARRAY<STRUCT<y STRING>>)
  WITH (kafka_topic='c', value_format='JSON');"""
TWO = [{"k": 1, "V": "a", "s": {"x": 5}, "a": [{"y": "q"}]}, {"k": 2, "V": "b", "s": None, "a": None}]


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("mode", ["name", "id", None])
def test_delta_by_physical_names(tmp_path: Path, mode: str | None, vectors: bool) -> None:
    there = Mapped(tmp_path / "t", MAPPED, mode, "p", vectors, agree=True)
    there.add(TWO, [1] if vectors else [], "P")
    there.add([{"k": 3}], [], "Q")
    read = table_of(f"delta:{tmp_path / 't'}").read(declared(OF_MAPPED))
    assert read.error.null_count() == read.rows.height
    want = [
        {"K": 1, "V": "a", "P": "P", "S": {"X": 5}, "A": [{"Y": "q"}]},
        {"K": 2, "V": "b", "P": "P", "S": None, "A": None},
        {"K": 3, "V": None, "P": "Q", "S": None, "A": None},
    ]
    assert read.rows.sort("K").to_dicts() == [x for x in want if not (vectors and x["K"] == 2)]


def test_delta_whose_numbers_are_not_those_of_its_names_is_refused(tmp_path: Path) -> None:
    there = Mapped(tmp_path / "t", MAPPED, "id", "p")
    there.add(TWO, [], "P")
    with pytest.raises(BraidError, match="maps columns by number"):
        table_of(f"delta:{tmp_path / 't'}").read(declared(OF_MAPPED))


@pytest.mark.parametrize(("mode", "vectors"), [("name", False), ("id", False), (None, True)])
def test_delta_that_a_sink_does_not_write_is_refused(tmp_path: Path, mode: str | None, vectors: bool) -> None:
    from braid.sinks.delta import DeltaSink
    from sink_help import KEYED

    Mapped(tmp_path / "t", pa.schema([("K", pa.int64()), ("V", pa.string())]), mode, None, vectors)
    feature = "deletionVectors" if vectors else "columnMapping"
    with pytest.raises(BraidError, match=f"has the feature {feature}, which is not written"):
        DeltaSink.of(str(tmp_path / "t")).check(KEYED, None, False, False)


def test_a_column_that_is_null_throughout_is_refused(tmp_path: Path) -> None:
    store = TopicStore(store_in(tmp_path))
    made = declared(WORDS["ksqldb"].format("value_format='JSON', "))

    def poll(rows: list[tuple[int | None, str | None, float | None]], losing: bool = False) -> Poll | None:
        given = Given(pl.DataFrame(rows, schema={"k": pl.Int32, "v": pl.String, "n": pl.Float64}, orient="row"))
        mirror = Mirror(made, given, store, losing)
        mirror.begin()
        return mirror.poll()

    def refused(told: str, rows: list[tuple[int | None, str | None, float | None]]) -> None:
        before = records("c", tmp_path)
        with pytest.raises(BraidError, match=told) as e:
            poll(rows)
        assert "--accept-deletes" in (e.value.hint or "") and records("c", tmp_path) == before

    assert poll([(1, "a", None), (2, "b", None), (3, None, None)]) == Poll(3, rows=3)
    refused("the column V of C is NULL in all rows", [(1, None, 1.0), (2, None, None), (3, None, None)])
    refused("the column V of C is NULL in all rows", [(1, None, None), (4, None, None)])
    refused("the key of C is NULL in all rows", [(None, "a", None), (None, "b", None)])
    assert poll([(3, None, None), (4, None, 2.0)]) is not None  # those that had one are gone
    assert poll([(3, None, None), (4, None, None)], losing=True) == Poll(0, 1, rows=2)
    assert poll([(3, "c", None), (4, None, None)]) == Poll(0, 1, rows=2)
    assert poll([(3, "d", None), (4, None, None)]) == Poll(0, 1, rows=2)


def test_iceberg(catalog: Lake) -> None:
    rows = pl.DataFrame([ROW]).with_columns(pl.col("i").cast(pl.Int32)).to_arrow()
    at = rows.schema.get_field_index("ti")
    rows = rows.cast(rows.schema.set(at, pa.field("ti", pa.time64("us"))))
    catalog.create_namespace("n")
    there = catalog.create_table("n.t", rows.schema)
    table = table_of("iceberg:lake.n.t")
    empty = table.version()
    there.append(rows)
    assert table.version() != empty and same(typed(table)[0])
    with pytest.raises(BraidError, match=r"there is no Iceberg table lake\.n\.u"):
        table_of("iceberg:lake.n.u").version()


def test_postgres(db: psycopg.Connection) -> None:
    db.execute(
        "CREATE TABLE c (i int, b bigint, d numeric(10, 2), f double precision, r real, t text, o boolean,"
        " y bytea, da date, ti time, ts timestamp, tz timestamptz, a int[], more jsonb)"
    )
    db.execute(f"INSERT INTO c VALUES ({', '.join(['%s'] * len(ROW))})", list(ROW.values()))
    db.execute("INSERT INTO c (i, f) VALUES (5, 'NaN'), (6, '-Infinity')")
    where = f"postgres:host={db.info.host} user=judge dbname=postgres"
    found = typed(table_of(f"{where}#c"))
    assert same(found[0]) and [str(x["f"]) for x in found[1:]] == ["nan", "-inf"]
    assert len(typed(table_of(f"{where}#SELECT *, 1 AS one FROM public.c WHERE i < 5;"))) == 1
    assert found[0] == typed(table_of(f"{where}#public.c"))[0]
    for query in ("select*from c", "-- all\nSELECT * FROM c -- ; of them", "/* a /* b */ */ ((SELECT * FROM c)) ; ;",
                  "table c", "SELECT * FROM c WHERE t <> ';--' OR true;/* */", "(TABLE c)"):  # fmt: skip
        assert typed(table_of(f"{where}#{query}"))[0] == found[0], query
    made = declared("CREATE TABLE c (k INT PRIMARY KEY, braid_row INT, q INT);", "risingwave")
    for query in ("VALUES(1, 2, 3)", "values (1, 2, 3) -- one"):
        read = table_of(f"{where}#SELECT * FROM ({query}\n) AS x (k, braid_row, q)").read(made)
        assert read.rows.row(0) == (1, 2, 3)
    for text, told in (
        ("#none", "PostgreSQL refuses"),
        ("#SELECT 1", "has no column"),
        ("#WITH x AS (DELETE FROM c RETURNING *) SELECT * FROM x", "PostgreSQL refuses"),
    ):
        with pytest.raises(BraidError, match=told):
            typed(table_of(where + text))
    assert len(typed(table_of(f"{where}#c"))) == 3
    db.execute("UPDATE c SET ts = 'infinity' WHERE i = 6")
    assert table_of(f"{where}#c").read(declared(TYPES, "risingwave")).error.drop_nulls().len() == 1


# ------------------------------------------------------------ files of changes


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_of_changes_deletes(tmp_path: Path, kind: str) -> None:
    from braid.files.input import open_files

    made = declared("CREATE TABLE c (k INT PRIMARY KEY, v STRING) WITH (kafka_topic='c', value_format='JSON');")
    path = tmp_path / f"c.{kind}"
    rows = pl.DataFrame({"k": [1, 2, 1, 2], "v": ["a", "b", None, "c"], "op": ["c", None, "D", "u"]})
    {"csv": rows.write_csv, "jsonl": rows.write_ndjson, "parquet": rows.write_parquet}[kind](path)
    opened = open_files(made.read_as("C"), str(path), tmp_path / "cache", made.in_files | {"deleted": "OP"})
    found = opened.read(0, 0, 4)
    assert found.rows["_diff"].to_list() == [1, 1, -1, 1] and found.error.null_count() == 4
    assert found.rows["C.V"].to_list() == ["a", "b", None, "c"]
    assert "OP" not in "".join(found.rows.columns) and found.rows["_value"][2] is None
    if kind == "jsonl":
        return  # a field that is missing is null
    with pytest.raises(BraidError, match="has no column NONE"):
        open_files(made.read_as("C"), str(path), tmp_path / "cache", made.in_files | {"deleted": "NONE"}).read(0, 0, 4)


# ------------------------------------------------------------------- on Spark


VIEW = """
CREATE TABLE c (k INT PRIMARY KEY, v VARCHAR, g INT);
CREATE TABLE g (g INT PRIMARY KEY, w VARCHAR);
CREATE MATERIALIZED VIEW both AS SELECT c.k, c.v, g.w FROM c LEFT JOIN g ON c.g = g.g;
CREATE MATERIALIZED VIEW counted AS SELECT g.g, count(c.k) AS n FROM g LEFT JOIN c ON c.g = g.g GROUP BY g.g;
"""
JOINED = "SELECT c.k, c.v, g.w FROM c LEFT JOIN g ON c.g = g.g ORDER BY ALL"
COUNTED = "SELECT g.g, count(c.k) AS n FROM g LEFT JOIN c ON c.g = g.g GROUP BY g.g ORDER BY ALL"


@pytest.mark.spark
def test_views_over_files_that_are_written_anew(tmp_path: Path) -> None:
    """After each look the views are what DuckDB says of the files as they are."""
    import duckdb

    rng = random.Random(7)
    (tmp_path / "q.sql").write_text(VIEW, encoding="utf-8")
    words = ("run", "q.sql", "--store", "s", "--dialect", "risingwave", "--until-idle", "--accept-deletes")
    named = ("--source=c=snapshot:c.parquet", "--source=g=snapshot:g.csv")
    for n in range(4):
        keys, groups = rng.sample(range(12), 7), rng.sample(range(4), 3)
        c = pl.DataFrame({"k": keys, "v": [rng.choice("abc") for _ in keys], "g": [rng.randrange(4) for _ in keys]})
        g = pl.DataFrame({"g": groups, "w": [f"{n // 2}{x}" for x in groups]})
        c.write_parquet(tmp_path / "c.parquet")
        written(tmp_path / "g.csv", g.write_csv(), ago=30)
        os.utime(tmp_path / "c.parquet", (time.time() - 30, time.time() - 30))
        said = on_shared_spark(*words, *named, cwd=tmp_path)
        assert said.code == 0, said.err
        for view, sql in (("both", JOINED), ("counted", COUNTED)):
            stands: dict[str, Any] = {}
            for r in records(view, tmp_path / "s"):
                stands.pop(json.dumps(r["key"]), None)
                if r["value"] is not None:
                    whole = r["value"] | (r["key"] if isinstance(r["key"], dict) else {})
                    stands[json.dumps(r["key"])] = whole if isinstance(r["key"], dict) else whole | {"g": r["key"]}
            rows = [tuple(x[k] for k in (("k", "v", "w") if view == "both" else ("g", "n"))) for x in stands.values()]
            assert sorted(map(repr, rows)) == sorted(map(repr, duckdb.sql(sql).fetchall())), (n, view)


MIXED = """
CREATE TABLE c (id INT PRIMARY KEY, name VARCHAR);
CREATE TABLE d (k INT PRIMARY KEY, id INT);
CREATE TABLE log (k INT, id INT) APPEND ONLY;
CREATE MATERIALIZED VIEW j AS SELECT d.k, c.name FROM d LEFT JOIN c ON d.id = c.id;
CREATE MATERIALIZED VIEW t AS
  SELECT log.k, c.name FROM log LEFT JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON log.id = c.id;
INSERT INTO d VALUES (1, 1), (2, 2), (3, 9);
INSERT INTO log VALUES (1, 1), (2, 2), (3, 9);
"""


@pytest.mark.spark
def test_looks_and_statements_in_one_view(tmp_path: Path) -> None:
    """A look counts from then on, though its time is long before that of what statements have written."""
    sql = MIXED
    for names, more, j, t in (
        ("1,Ann 2,Bob", "", ["Ann", "Bob", None], ["Ann", "Bob", None]),
        ("1,Anna 9,Zed", "INSERT INTO log VALUES (4, 1), (5, 2), (6, 9); INSERT INTO d VALUES (4, 9);",
         ["Anna", None, "Zed", "Zed"], ["Ann", "Bob", None, "Anna", None, "Zed"]),
        ("1,Anna 2,Bea 9,Zed", "UPDATE d SET id = 2 WHERE k = 3; INSERT INTO log VALUES (7, 2);",
         ["Anna", "Bea", "Bea", "Zed"], ["Ann", "Bob", None, "Anna", None, "Zed", "Bea"]),
    ):  # fmt: skip
        sql += more
        (tmp_path / "q.sql").write_text(sql, encoding="utf-8")
        written(tmp_path / "c.csv", "id,name\n" + names.replace(" ", "\n") + "\n", ago=100 - len(sql) % 50)
        words = ("run", "q.sql", "--store", "s", "--dialect", "risingwave", "--until-idle", "--source=c=snapshot:c.csv")
        said = on_shared_spark(*words, cwd=tmp_path)
        assert said.code == 0, said.err
        for view, expected in (("j", j), ("t", t)):
            text = f"SELECT coalesce(name, '-') FROM {view} ORDER BY k;"
            shown = braid("sql", "--store", tmp_path / "s", "--dialect", "risingwave", stdin=text).out.split()
            assert [None if x == "-" else x for x in shown[1:]] == expected, (view, shown)


@pytest.mark.spark
def test_a_query_keeps_to_the_column_that_deletes(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("id,name,gone\n1,Ann,false\n2,Bob,\n1,,true\n", encoding="utf-8")
    sql = """CREATE TABLE c (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='c', value_format='JSON');
        CREATE TABLE o AS SELECT id, name FROM c EMIT CHANGES;"""
    words = ("run", "-e", sql, "--store", "s", "--until-idle", "--source=C=c.csv")
    said = on_shared_spark(*words, "--deleted=C=gone", cwd=tmp_path)
    assert said.code == 0, said.err
    assert [(r["key"], r["value"]) for r in records("O", tmp_path / "s")] == [
        (1, {"NAME": "Ann"}), (2, {"NAME": "Bob"}), (1, None),
    ]  # fmt: skip
    said = on_shared_spark(*words, cwd=tmp_path)
    assert said.code == 1 and "deleted" in said.err, said.err
    said = on_shared_spark(*words[:-1], "--deleted=C=gone", cwd=tmp_path)
    assert said.code == 1 and "no table C is read from files" in said.err


@pytest.mark.spark
def test_a_look_stands_before_whatever_times_streams_have(tmp_path: Path) -> None:
    """Rows of files without times stand at 0, others right behind: the first look counts for them."""
    (tmp_path / "c.csv").write_text("id,name\n1,Ann\n2,Bob\n", encoding="utf-8")
    (tmp_path / "o.csv").write_text("id,k\n1,1\n2,2\n", encoding="utf-8")
    (tmp_path / "p.csv").write_text("id,at\n1,1970-01-01T00:00:00.000\n2,1970-01-01T00:00:00.001\n", encoding="utf-8")
    sql = """CREATE TABLE c (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='c', value_format='JSON');
        CREATE STREAM o (id INT KEY, k INT) WITH (kafka_topic='o', value_format='JSON', partitions=1);
        CREATE STREAM p (id INT KEY, at TIMESTAMP)
          WITH (kafka_topic='p', value_format='JSON', partitions=1, timestamp='at');
        CREATE STREAM a AS SELECT o.id, c.name FROM o LEFT JOIN c ON o.id = c.id;
        CREATE STREAM b AS SELECT p.id, c.name FROM p LEFT JOIN c ON p.id = c.id;"""
    sources = ("--source=C=snapshot:c.csv", "--source=O=o.csv", "--source=P=p.csv")
    said = on_shared_spark("run", "-e", sql, "--store", "s", "--until-idle", *sources, cwd=tmp_path)
    assert said.code == 0, said.err
    for result in ("A", "B"):
        assert [r["value"]["NAME"] for r in records(result, tmp_path / "s")] == ["Ann", "Bob"], result


ENRICH = """
CREATE TABLE customers (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='customers', value_format='JSON');
CREATE STREAM orders (id INT KEY, item STRING) WITH (kafka_topic='orders', value_format='JSON', partitions=1);
CREATE STREAM enriched AS SELECT o.id, o.item, c.name FROM orders o LEFT JOIN customers c ON o.id = c.id;
"""


@pytest.mark.spark
@pytest.mark.operations
def test_a_run_that_stays_up_sees_what_changes(tmp_path: Path) -> None:
    path, store = tmp_path / "c.csv", tmp_path / "s"
    (tmp_path / "q.sql").write_text(ENRICH, encoding="utf-8")
    written(path, "id,name\n" + "".join(f"{k},first\n" for k in range(20)))
    TopicStore(store_in(store)).create("orders", 1)
    words = ("run", "q.sql", "--store", "s", *QUICK, "--every", "0.5", "--source=CUSTOMERS=snapshot:c.csv")
    process = launch(*words, cwd=tmp_path)
    try:

        def ordered(item: str) -> str:
            """The name that an order of now is given."""
            line = json.dumps({"key": 1, "value": {"ITEM": item}, "timestamp": int(time.time() * 1000)})
            assert braid("put", "orders", "--store", store, stdin=line + "\n").code == 0
            rows = lambda: [r["value"] for r in records("ENRICHED", store) if r["value"]["ITEM"] == item]  # noqa: E731
            return str(awaited(rows)[0]["NAME"])

        def awaited(look: Any) -> Any:
            deadline = time.monotonic() + 90
            while not (found := look()):
                assert time.monotonic() < deadline and process.poll() is None, process.communicate()
                time.sleep(0.3)
            return found

        assert ordered("pen") == "first"
        written(path, "id,name\n0,lost\n", ago=30)  # most rows gone: refused
        time.sleep(2)
        assert ordered("ink") == "first"
        written(path, "id,name\n" + "".join(f"{k},second\n" for k in range(20)), ago=20)
        awaited(lambda: [r for r in records("customers", store) if r["value"] == {"NAME": "second"}])
        assert ordered("cap") == "second"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        said = ended(process)
    assert said.err.count("stays as it was") == 1 and "20 rows: 20 changed" in said.err, said.err


def test_a_look_that_dies_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever step of the commit a look dies at, the next one leaves the topic as the table is, each row once."""
    from braid.topics import files

    made = declared(WORDS["ksqldb"].format(FORMATS["ksqldb"][0]))
    for n, point in enumerate(("staged", "recovered", "renamed", "published")):
        store, table = TopicStore(store_in(tmp_path / f"s{n}")), Given(frame("k", {k: ("a", None) for k in range(4)}))
        mirror = Mirror(made, table, store)
        mirror.begin()
        mirror.poll()
        table.rows = frame("k", {k: ("b", None) for k in range(1, 5)})

        def die(at: str, point: str = point) -> None:
            if at == point:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(files, "crash_hook", die)
            mirror.poll()
        store = TopicStore(store_in(tmp_path / f"s{n}"))
        mirror = Mirror(made, table, store)
        mirror.begin()
        mirror.poll()
        assert mirror._of_topic().sort("_key").equals(mirror._rows(table.read(made))[0].sort("_key"))
        assert sum(store.end_offsets("c")) == 4 + 5, point


@pytest.mark.spark
@pytest.mark.law
@pytest.mark.timeout(900)
def test_killed_runs_look_again(tmp_path: Path) -> None:
    """Ten kills while a file is written anew: each order is there once, and later ones know no older file."""
    rng, path, store = random.Random(3), tmp_path / "c.csv", tmp_path / "s"
    (tmp_path / "q.sql").write_text(ENRICH, encoding="utf-8")
    TopicStore(store_in(store)).create("orders", 1)
    words = ("run", "q.sql", "--store", "s", *QUICK, "--every", "0.5", "--source=CUSTOMERS=snapshot:c.csv")
    put = 0

    def order() -> None:
        nonlocal put
        line = json.dumps({"key": rng.randrange(5), "value": {"ITEM": str(put)}, "timestamp": int(time.time() * 1000)})
        assert braid("put", "orders", "--store", store, stdin=line + "\n").code == 0
        put += 1

    for n in range(10):
        written(path, "id,name\n" + "".join(f"{k},{n:03}\n" for k in range(5)), ago=100 - n)
        process = launch(*words, cwd=tmp_path)
        until = time.monotonic() + rng.uniform(9, 14)
        while time.monotonic() < until:
            order()
            written(path, "id,name\n" + "".join(f"{k},{n:03}.{put}\n" for k in range(5)), ago=50 - n)
            time.sleep(0.4)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    said = on_shared_spark(*words, "--until-idle", cwd=tmp_path)
    assert said.code == 0, said.err
    found = [r["value"] for r in records("ENRICHED", store)]
    assert [int(v["ITEM"]) for v in found] == list(range(put))
    names = [(v["NAME"].partition(".")[0], int(v["NAME"].partition(".")[2] or 0)) for v in found]
    assert names == sorted(names) and len(set(names)) > 5
