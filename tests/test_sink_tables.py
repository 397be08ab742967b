"""A table that is not what was written is refused by name before a row is written, whatever system it is of."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog

from braid.errors import BraidError
from braid.operators.changes import DIFF, HASH, TIME
from braid.plan.logical import Sink as Columns
from braid.sinks.interface import Batch, Part, Sink
from braid.sinks.named import sink_of
from braid.sinks.postgres_marker import MARKERS
from braid.store import opened as store_in
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from braid.topics.view import UNTOLD, Written
from braid.types import Array, Scalar
from postgres.server import Missing, programs, running
from sink_help import KEYED, changes, table_of

S = Scalar
ROWS = table_of(("K", S.BIGINT), ("V", S.VARCHAR), kind="stream")


def at(db: psycopg.Connection, table: str = "out", user: str = "judge") -> str:
    return f"postgres:host={db.info.host} user={user} dbname=postgres#{table}"


def opened(words: str, folder: Path, columns: Columns = KEYED, run: str = "r", overwrite: bool = False) -> Sink:
    sink = sink_of(words)
    sink.check(columns, None, False, overwrite)
    made = sink.opened(TopicStore(store_in(folder / "store")), columns, {}, run)
    made.claim(columns, run)
    return made


def published(
    sink: Sink, number: int, *rows: tuple[Any, ...], after: int | None = -1, run: str = "r", columns: Columns = KEYED
) -> list[dict[str, Any]]:
    """A batch as a task and the driver write it; `after`: the last that wrote, -1 where nobody says it."""
    before = UNTOLD if after == -1 else None if after is None else Written(after, f"d{after}")
    batch = Batch("Q", run, number, lambda: f"d{number}", before)
    outputs = sink.task(Part(batch, 0, columns))
    lost = outputs.write(changes(*rows), None, 0).lost
    sink.publish(batch, columns, list(outputs.close(pl.DataFrame())))
    return [] if lost is None else lost.to_dicts()


def keys(db: psycopg.Connection, table: str = "out") -> list[Any]:
    return [k for (k,) in db.execute(f"SELECT k FROM {table} ORDER BY k").fetchall()]  # type: ignore[call-overload]


# ------------------------------------------------------- what is there is compared


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("DROP TABLE out", 'relation "out" does not exist'),
        ("DROP TABLE out; CREATE TABLE out (k bigint UNIQUE NULLS NOT DISTINCT, v text)", "and was server"),
        (f"DROP TABLE {MARKERS}", "does not exist"),
        (f"DELETE FROM {MARKERS}", "its marker is gone"),
        (
            f"UPDATE {MARKERS} SET batch = 0, digest = 'd0'; DELETE FROM out WHERE k = 1",
            "it holds batch 0, and batch 1",
        ),
        (f"UPDATE {MARKERS} SET batch = -1, digest = ''", "it holds none of its batches"),
        (f"UPDATE {MARKERS} SET digest = 'other'", "of another history"),
        (f"UPDATE {MARKERS} SET run = 'x'", "another run writes into the table"),
        ("VACUUM FULL out", None),
        ("DELETE FROM out", None),
        ("TRUNCATE out", None),
        ("ALTER TABLE out ADD COLUMN more text DEFAULT 'x'", None),
        ("CLUSTER out USING out_k_key", None),
    ],
)
def test_a_table_of_postgres_that_is_not_what_was_written(
    db: psycopg.Connection, tmp_path: Path, harm: str, told: str | None
) -> None:
    sink = opened(at(db), tmp_path)
    published(sink, 0, ("+", 0, "a"), after=None)
    published(sink, 1, ("+", 1, "a"), after=0)
    for one in harm.split("; "):
        db.execute(one)  # type: ignore[call-overload]
    if told is None:
        published(sink, 3, ("+", 3, "a"), after=1)  # behind a batch without rows
        assert 3 in keys(db)
        return
    with pytest.raises(BraidError, match=told) as e:
        published(sink, 3, ("+", 3, "a"), after=1)
    assert e.value.hint and "\n" not in e.value.message
    if "out" not in harm.partition(";")[0].split():
        assert 3 not in keys(db)


def test_a_table_that_is_gone_is_not_made_again(db: psycopg.Connection, tmp_path: Path) -> None:
    sink = opened(at(db), tmp_path)
    db.execute("DROP TABLE out")  # nothing was written yet: it may be made again
    sink.check(KEYED, "r", False, False)
    sink = sink.opened(TopicStore(store_in(tmp_path / "store")), KEYED, {}, "r")
    published(sink, 0, ("+", 0, "a"), after=None)
    db.execute("DROP TABLE out")
    for goes_on in (True, False):  # killed before the checkpoint said so, too
        with pytest.raises(BraidError, match="the table out is gone, and batch 0 was written there"):
            sink.check(KEYED, "r", goes_on, False)


def test_of_two_at_one_moment_one_has_the_table(db: psycopg.Connection, catalog: Catalog, tmp_path: Path) -> None:
    """Both have looked before either opens."""
    words = [at(db), f"delta:{tmp_path / 'd'}", "iceberg:lake.n.t", str(tmp_path / "f.jsonl")]
    for there in (False, True):
        for overwrite in (False, True) if there else (False,):
            for text in words:
                begins(text, tmp_path, there, overwrite)


def begins(text: str, folder: Path, there: bool, overwrite: bool) -> None:
    old = sink_of(text)
    if there:  # the last owner of the turn before
        old.check(ROWS, None, False, True)
    one, two = sink_of(text), sink_of(text)
    for sink in (one, two):
        if there and not overwrite:
            with pytest.raises(BraidError, match="holds the results of another run"):
                sink.check(ROWS, None, False, overwrite)
        else:
            sink.check(ROWS, None, False, overwrite)
    if there and not overwrite:
        return
    store, turn = TopicStore(store_in(folder / "store")), f"{there}{overwrite}"
    first = one.opened(store, ROWS, {}, f"first{turn}")
    first.claim(ROWS, f"first{turn}")
    published(first, 0, ("+", 1, "a"), after=None, run=f"first{turn}", columns=ROWS)
    with pytest.raises(BraidError, match="at the same moment") as e:
        two.opened(store, ROWS, {}, f"second{turn}").claim(ROWS, f"second{turn}")
    assert "--overwrite" in (e.value.hint or "")
    published(first, 1, ("+", 2, "a"), after=0, run=f"first{turn}", columns=ROWS)


# ------------------------------------------------------------------------ Delta


def restored(table: Path, sink: Sink) -> None:
    DeltaTable(str(table)).restore(1)


def restored_and_others(table: Path, sink: Sink) -> None:
    restored(table, sink)
    for n in range(25):
        write_deltalake(str(table), pa.table({"K": pa.array([n], pa.int64()), "V": ["mine"]}), mode="append")


def yesterdays(table: Path, sink: Sink) -> None:
    shutil.rmtree(table)
    shutil.copytree(table.parent / "yesterday", table)


def gone(table: Path, sink: Sink) -> None:
    shutil.rmtree(table)


def made_again(table: Path, sink: Sink) -> None:
    shutil.rmtree(table)
    opened(f"delta:{table}", table.parent, ROWS)


def restored_to_now(table: Path, sink: Sink) -> None:
    DeltaTable(str(table)).delete("K = 0")
    DeltaTable(str(table)).restore(2)


def of_the_user(table: Path, sink: Sink) -> None:
    there = DeltaTable(str(table))
    there.delete()
    there.optimize.compact()
    there.vacuum(0, dry_run=False, enforce_retention_duration=False)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (restored, "was restored \\(RESTORE\\) to before batch 1"),
        (restored_and_others, "was restored \\(RESTORE\\) to before batch 1"),
        (yesterdays, "it holds batch 0, and batch 1 was written last"),
        (gone, "it is gone"),
        (made_again, "and was table"),
        (restored_to_now, None),
        (of_the_user, None),
    ],
)
def test_a_delta_table_that_is_not_what_was_written(
    tmp_path: Path, harm: Callable[[Path, Sink], None], told: str | None
) -> None:
    table = tmp_path / "t"
    sink = opened(f"delta:{table}", tmp_path, ROWS)
    published(sink, 0, ("+", 0, "a"), after=None, columns=ROWS)
    shutil.copytree(table, tmp_path / "yesterday")
    published(sink, 1, ("+", 1, "a"), after=0, columns=ROWS)
    harm(table, sink)
    if told is None:
        published(sink, 3, ("+", 3, "a"), after=1, columns=ROWS)
        assert sink.last(TopicStore(store_in(tmp_path / "store")), ROWS, "r") == (3, "d3")
        return
    with pytest.raises(BraidError, match=told):
        published(sink, 3, ("+", 3, "a"), after=1, columns=ROWS)
    if harm in (restored, restored_and_others):
        with pytest.raises(BraidError, match=told):
            sink.last(TopicStore(store_in(tmp_path / "store")), ROWS, "r")


# ---------------------------------------------------------------------- Iceberg


@pytest.mark.parametrize("expires", [False, True])
def test_an_iceberg_table_that_was_rolled_back(catalog: Catalog, tmp_path: Path, expires: bool) -> None:
    sink, store = opened("iceberg:lake.n.t", tmp_path, ROWS), TopicStore(store_in(tmp_path / "store"))
    published(sink, 0, ("+", 0, "a"), after=None, columns=ROWS)
    published(sink, 1, ("+", 1, "a"), after=0, columns=ROWS)
    table = catalog.load_table("n.t")
    ours = table.current_snapshot()
    first = table.snapshots()[0].snapshot_id
    assert ours is not None
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    if expires:
        table = catalog.load_table("n.t")
        table.maintenance.expire_snapshots().by_id(ours.snapshot_id).commit()
    for _ in range(2):
        with pytest.raises(BraidError, match="was rolled back to before batch 1"):
            published(sink, 3, ("+", 3, "a"), after=1, columns=ROWS)
        with pytest.raises(BraidError, match="was rolled back to before batch 1"):
            sink.last(store, ROWS, "r")
        mine = pa.table({"K": pa.array([9], pa.int64()), "V": ["mine"]})
        catalog.load_table("n.t").append(mine)  # a row of the user's changes nothing
    if not expires:
        catalog.load_table("n.t").manage_snapshots().set_current_snapshot(ours.snapshot_id).commit()
        published(sink, 3, ("+", 3, "a"), after=1, columns=ROWS)


def test_an_iceberg_table_whose_old_snapshots_have_expired(catalog: Catalog, tmp_path: Path) -> None:
    sink, store = opened("iceberg:lake.n.t", tmp_path, ROWS), TopicStore(store_in(tmp_path / "store"))
    published(sink, 0, ("+", 0, "a"), after=None, columns=ROWS)
    for n in range(3):
        catalog.load_table("n.t").append(pa.table({"K": pa.array([n], pa.int64()), "V": ["mine"]}))
    table = catalog.load_table("n.t")
    for old in table.snapshots()[:-1]:
        catalog.load_table("n.t").maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
    assert sink.last(store, ROWS, "r") == (0, "d0")
    published(sink, 1, ("+", 1, "a"), after=0, columns=ROWS)
    catalog.drop_table("n.t")
    with pytest.raises(BraidError, match="it is gone"):
        published(sink, 2, ("+", 1, "a"), after=1, columns=ROWS)
    opened("iceberg:lake.n.t", tmp_path, ROWS)
    with pytest.raises(BraidError, match="and was table"):
        published(sink, 2, ("+", 1, "a"), after=1, columns=ROWS)


# ---------------------------------------------------------------------- folders


def test_a_folder_that_is_not_what_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "o.jsonl"
    sink = opened(str(folder), tmp_path, ROWS)
    published(sink, 0, ("+", 0, "a"), after=None, columns=ROWS)
    shutil.copytree(folder, tmp_path / "yesterday")
    published(sink, 2, ("+", 1, "a"), after=0, columns=ROWS)
    for harm, told in (
        (lambda: shutil.rmtree(folder), "it is gone, or has no owner"),
        (
            lambda: shutil.copytree(tmp_path / "yesterday", folder),
            "the commit of batch 2, which was written last, is gone",
        ),
        (lambda: (folder / ".owner.json").write_text('{"run": "x"}'), r"another run \(x\) writes there now"),
    ):
        harm()
        with pytest.raises(BraidError, match=told):
            published(sink, 3, ("+", 3, "a"), after=2, columns=ROWS)
        shutil.rmtree(folder / ".staging", ignore_errors=True)
        if folder.exists() and not (folder / ".owner.json").exists():
            shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_part_that_was_changed_is_told(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / f"o.{kind}"
    sink = opened(str(folder), tmp_path, ROWS)
    for n in range(2):
        published(sink, n, ("+", n, "text"), columns=ROWS)
    (part, _) = sorted(folder.glob("part-*"))
    data = part.read_bytes()
    for spoilt, told in (
        (data[:-3], "bytes, and was written with"),
        (data.replace(b"text", b"tExt"), "not what its checksum says"),
        (None, "is missing"),
    ):
        part.write_bytes(spoilt) if spoilt is not None else part.unlink()
        with pytest.raises(BraidError, match=told):
            sink.check(ROWS, "r", True, False)
    part.write_bytes(data)
    sink.check(ROWS, "r", True, False)


# ------------------------------------------------- faults of the user's own table


@pytest.mark.parametrize(
    ("made", "told", "hint"),
    [
        ("k bigint, v text, UNIQUE (k) DEFERRABLE", "is DEFERRABLE", "UNIQUE INDEX"),
        ("k bigint, v text, UNIQUE (k) DEFERRABLE INITIALLY DEFERRED, UNIQUE (k)", "is DEFERRABLE", "drop it"),
        ("k bigint UNIQUE, v text GENERATED ALWAYS AS ('x') STORED", "out.v is GENERATED ALWAYS", "plain column"),
        ("k bigint GENERATED ALWAYS AS IDENTITY UNIQUE, v text", "out.k is GENERATED ALWAYS", "plain column"),
        ("k bigint, v text, UNIQUE (v) INCLUDE (k)", "has no unique index on its key", "UNIQUE INDEX"),
        ("k bigint UNIQUE, v text, w int NOT NULL", "needs a value", "default"),
    ],
)
def test_a_table_that_takes_no_rows_is_told_before(
    db: psycopg.Connection, tmp_path: Path, made: str, told: str, hint: str
) -> None:
    db.execute(f"CREATE TABLE out ({made})")  # type: ignore[call-overload]
    with pytest.raises(BraidError, match=told) as e:
        opened(at(db), tmp_path)
    assert hint in (e.value.hint or "")


@pytest.mark.parametrize(
    "made",
    [
        "k bigint, v text, UNIQUE (k) INCLUDE (v)",
        "k bigint, v text, w int GENERATED ALWAYS AS (1) STORED NOT NULL, UNIQUE (k)",
        "k bigint GENERATED BY DEFAULT AS IDENTITY UNIQUE, v text",
        "k bigint PRIMARY KEY, v text, n int GENERATED ALWAYS AS IDENTITY",
    ],
)
def test_a_table_that_takes_them(db: psycopg.Connection, tmp_path: Path, made: str) -> None:
    db.execute(f"CREATE TABLE out ({made})")  # type: ignore[call-overload]
    sink = opened(at(db), tmp_path)
    published(sink, 0, ("+", 1, "a"), ("+", 2, "a"))
    published(sink, 1, ("+", 1, "b"), ("-", 2, "a"))
    assert db.execute("SELECT k, v FROM out").fetchall() == [(1, "b")]


def test_other_things_than_tables(db: psycopg.Connection, tmp_path: Path) -> None:
    db.execute("CREATE TABLE t (k bigint UNIQUE, v text)")
    db.execute("CREATE VIEW seen AS SELECT * FROM t")
    db.execute("CREATE UNLOGGED TABLE light (k bigint UNIQUE, v text)")
    for table, told in (
        ("seen", "is no table, but a view"),
        ("light", "it is UNLOGGED"),
        ("x" * 64, "cuts names at 63"),
    ):
        with pytest.raises(BraidError, match=told):
            opened(at(db, table), tmp_path)
    long = table_of(("K", S.BIGINT), ("é" * 32, S.VARCHAR))
    with pytest.raises(BraidError, match="cuts names at 63"):
        opened(at(db), tmp_path, long)
    fits = table_of(("K", S.BIGINT), ("é" * 31 + "e", S.VARCHAR))
    published(opened(at(db), tmp_path, fits), 0, ("+", 1, "a"), columns=fits)
    assert keys(db) == [1]


def test_who_has_few_rights(db: psycopg.Connection, tmp_path: Path) -> None:
    """No right to create in `public`: the marker stands in the table's schema."""
    db.execute("DROP ROLE IF EXISTS clerk")
    db.execute("REVOKE CREATE ON SCHEMA public FROM public")
    db.execute("GRANT USAGE ON SCHEMA public TO public")
    db.execute("CREATE ROLE clerk LOGIN")
    try:
        with pytest.raises(BraidError, match="clerk may not create the table out in the schema public") as e:
            opened(at(db, user="clerk"), tmp_path)
        assert "GRANT CREATE" in (e.value.hint or "")
        db.execute("CREATE TABLE out (k bigint UNIQUE, v text)")
        with pytest.raises(BraidError, match="may not SELECT, INSERT, UPDATE, DELETE in the table out"):
            opened(at(db, user="clerk"), tmp_path)
        db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON out TO clerk")
        with pytest.raises(BraidError, match="may not create the table braid_batches"):
            opened(at(db, user="clerk"), tmp_path)
        db.execute(f"CREATE TABLE public.{MARKERS} (target text)")
        with pytest.raises(BraidError, match=r"clerk may not write the table public\.braid_batches"):
            opened(at(db, user="clerk"), tmp_path)
        db.execute(f"DROP TABLE public.{MARKERS}")
        db.execute("CREATE SCHEMA desk AUTHORIZATION clerk")
        published(opened(at(db, "desk.t", "clerk"), tmp_path), 0, ("+", 1, "a"), after=None)
        assert db.execute(f"SELECT target FROM desk.{MARKERS}").fetchall() == [("desk.t",)] and keys(db, "desk.t") == [
            1
        ]
        with pytest.raises(BraidError, match="holds the results of another run"):  # who might mark elsewhere sees it
            opened(at(db, "desk.t"), tmp_path, run="other")
        db.execute(f"CREATE TABLE public.{MARKERS} (LIKE desk.{MARKERS} INCLUDING ALL)")
        sink = sink_of(at(db, "desk.t", "clerk"))
        sink.check(KEYED, "r", True, False)
        assert sink.last(TopicStore(store_in(tmp_path / "store")), KEYED, "r") == (0, "d0")
    finally:
        db.execute("DROP SCHEMA IF EXISTS desk CASCADE; DROP OWNED BY clerk; DROP ROLE clerk")


def test_a_key_that_is_longer_than_an_index_takes(db: psycopg.Connection, tmp_path: Path) -> None:
    texts = table_of(("K", S.VARCHAR), ("V", S.VARCHAR))
    sink = opened(at(db), tmp_path, texts)
    long = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(3000))
    schema = {HASH: pl.UInt64, DIFF: pl.Int8, "_k0": pl.String, "v0": pl.String, TIME: pl.Int64}
    rows = [(0, 1, "a", "x", 0), (0, 1, long, "y", 0), (0, -1, long, "y", 0), (0, 1, long[:860], "z", 0)]
    outputs = sink.task(Part(Batch("Q", "r", 0, lambda: "d"), 0, texts))
    lost = outputs.write(pl.DataFrame(rows, schema=schema, orient="row"), None, 0).lost
    sink.publish(Batch("Q", "r", 0, lambda: "d"), texts, list(outputs.close(pl.DataFrame())))
    assert keys(db) == ["a", long[:860]]
    assert lost is not None and lost["reason"].to_list() == ["value"]
    assert "K is longer than a key of PostgreSQL" in lost["message"][0]


def test_an_index_of_ones_own_that_is_too_small_is_told_at_once(db: psycopg.Connection, tmp_path: Path) -> None:
    db.execute("CREATE TABLE out (k bigint, v text)")
    db.execute("CREATE INDEX ON out (v)")
    sink = opened(at(db), tmp_path, ROWS)
    long = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(3000))
    with pytest.raises(BraidError, match="PostgreSQL refuses: index row"):
        published(sink, 0, ("+", 1, long), columns=ROWS)


@pytest.mark.parametrize(
    "unique", ["UNIQUE (k)", "UNIQUE NULLS NOT DISTINCT (k)", "UNIQUE (k), note text DEFAULT 'kept'"]
)
def test_a_key_with_null_stands_once(db: psycopg.Connection, tmp_path: Path, unique: str) -> None:
    db.execute(f"CREATE TABLE out (k bigint, v text, {unique})")  # type: ignore[call-overload]
    sink = opened(at(db), tmp_path)
    published(sink, 0, ("+", None, "a"), ("+", 1, "a"))
    if "note" in unique:
        db.execute("UPDATE out SET note = 'mine'")
    published(sink, 1, ("+", None, "b"), ("+", 2, "b"))
    assert db.execute("SELECT k, v FROM out ORDER BY k").fetchall() == [(1, "a"), (2, "b"), (None, "b")]
    if "note" in unique:
        assert db.execute("SELECT note FROM out WHERE k IS NULL").fetchall() == [("mine",)]
    published(sink, 2, ("-", None, "b"))
    assert keys(db) == [1, 2]


def test_what_takes_no_null(db: psycopg.Connection, tmp_path: Path) -> None:
    """A value that is NULL is a drop; the key has no row then, where it had an older one."""
    db.execute("CREATE TABLE out (k bigint PRIMARY KEY, v text NOT NULL)")
    sink = opened(at(db), tmp_path)
    assert published(sink, 0, ("+", 1, "a"), ("+", 2, "a")) == []
    lost = published(sink, 1, ("+", 1, None), ("+", None, "b"), ("-", 2, None), ("+", 3, "c"))
    assert [x["message"] for x in lost] == [f"{n} is NULL, and the table takes none there" for n in ("K", "V")]
    assert keys(db) == [3]
    padded = replace(KEYED, padded=("K",))
    with pytest.raises(BraidError, match="takes no NULL in K, and OUT has some") as e:
        sink_of(at(db)).check(padded, "r", False, False)
    assert "NULLS NOT DISTINCT" in (e.value.hint or "")


def test_an_iceberg_table_of_ones_own(catalog: Catalog, tmp_path: Path) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import LongType, NestedField, StringType

    catalog.create_namespace("n")
    fields = NestedField(1, "K", LongType(), required=True), NestedField(2, "V", StringType())
    catalog.create_table("n.t", Schema(*fields))
    sink = opened("iceberg:lake.n.t", tmp_path, ROWS)
    lost = published(sink, 0, ("+", 1, None), ("+", None, "a"), columns=ROWS)
    assert [x["message"] for x in lost] == ["K is NULL, and the table takes none there"]
    assert catalog.load_table("n.t").scan().to_arrow().to_pylist() == [{"K": 1, "V": None}]
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))
    catalog.create_table("n.u", Schema(*fields), partition_spec=spec)
    with pytest.raises(BraidError, match=r"is partitioned by bucket\[4\]"):
        sink_of("iceberg:lake.n.u").check(ROWS, None, False, False)


# ------------------------------------------------------------------------- names


@pytest.mark.parametrize("names", [("_op", "_rowtime"), ("_OP", "_seq"), ("__op", "_op"), ("_seq", "_SEQ_")])
def test_names_that_are_ours(db: psycopg.Connection, tmp_path: Path, names: tuple[str, str]) -> None:
    for kind in ("table", "stream"):
        columns = table_of((names[0], S.BIGINT), (names[1], S.VARCHAR), key=names[:1], kind=kind)
        published(opened(at(db, f"t_{kind}"), tmp_path, columns), 0, ("+", 1, "a"), columns=columns)
        assert db.execute(f"SELECT * FROM t_{kind}").fetchall() == [(1, "a")]  # type: ignore[call-overload]
        published(opened(f"delta:{tmp_path / kind}", tmp_path, columns), 0, ("+", 1, "a"), columns=columns)
        found = DeltaTable(str(tmp_path / kind)).to_pyarrow_table().to_pylist()
        assert found == [{names[0]: 1, names[1]: "a"}]
        for end in ("jsonl", "csv", "parquet"):
            folder = tmp_path / f"{kind}.{end}"
            published(opened(str(folder), tmp_path, columns), 0, ("+", 1, "a"), columns=columns)
            (part,) = folder.glob("part-*")
            read = {"jsonl": pl.read_ndjson, "csv": pl.read_csv, "parquet": pl.read_parquet}[end](part)
            (row,) = read.rows(named=True)
            ours = {n: x for n, x in row.items() if n not in names}
            assert (row[names[0]], row[names[1]]) == (1, "a") and 0 in ours.values()
            assert ("+" in ours.values()) is (kind == "table")


def test_a_server_that_keeps_its_identity_to_itself(
    db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from braid.sinks import postgres_marker

    monkeypatch.setattr(postgres_marker, "SERVER", "(SELECT no_such_function())")
    sink = opened(at(db), tmp_path)
    assert sink.identity.startswith("server -, timeline 1, table ")
    monkeypatch.setattr(postgres_marker, "TIMELINE", "(SELECT 1 FROM none)")
    sink = opened(at(db), tmp_path, overwrite=True, run="s")
    assert sink.identity.startswith("server -, timeline -, table ")
    published(sink, 0, ("+", 1, "a"), after=None, run="s")
    db.execute("CREATE TABLE copy AS TABLE out; DROP TABLE out; ALTER TABLE copy RENAME TO out")
    with pytest.raises(BraidError, match="it is server -, timeline -, table"):
        published(sink, 1, ("+", 2, "a"), after=0, run="s")


def test_rules_of_a_delta_table(tmp_path: Path) -> None:
    k, v = pa.field("K", pa.int64()), pa.field("V", pa.string())
    DeltaTable.create(str(tmp_path / "a"), pa.schema([k, v]), configuration={"delta.appendOnly": "true"})
    with pytest.raises(BraidError, match="only takes rows that are added"):
        sink_of(f"delta:{tmp_path / 'a'}").check(KEYED, None, False, False)
    sink_of(f"delta:{tmp_path / 'a'}").check(ROWS, None, False, False)
    computed = v.with_metadata({"delta.generationExpression": "'x'"})
    DeltaTable.create(str(tmp_path / "b"), pa.schema([k, computed]))
    with pytest.raises(BraidError, match="V is computed there"):
        sink_of(f"delta:{tmp_path / 'b'}").check(ROWS, None, False, False)


def test_a_delta_table_partitioned_by_text(tmp_path: Path) -> None:
    """In a partition '' is NULL: said on the page, and refused in a key."""
    schema = pa.schema([pa.field("K", pa.string()), pa.field("V", pa.string()), pa.field("B", pa.binary())])
    columns = {
        kind: table_of(("K", S.VARCHAR), ("V", S.VARCHAR), ("B", S.BYTES), key=("K",), kind=kind)
        for kind in ("table", "stream")
    }
    for by, why in (("K", "partitioned by K, a text of the key"), ("B", "partitioned by B, and bytes in a partition")):
        DeltaTable.create(str(tmp_path / by), schema, partition_by=[by])
        for sink in columns.values():
            with pytest.raises(BraidError, match=why):
                sink_of(f"delta:{tmp_path / by}").check(sink, None, False, False)
    plain = pa.schema([pa.field("K", pa.int64()), pa.field("V", pa.string())])
    for name, sink in ("keyed", KEYED), ("rows", ROWS):
        DeltaTable.create(str(tmp_path / name), plain, partition_by=["V"])
        made = opened(f"delta:{tmp_path / name}", tmp_path, sink)
        published(made, 0, ("+", 1, ""), ("+", 2, " "), columns=sink)
        found = DeltaTable(str(tmp_path / name)).to_pyarrow_table().sort_by("K").to_pylist()
        assert found == [{"K": 1, "V": None}, {"K": 2, "V": " "}]


def test_an_iceberg_table_partitioned_by_text(catalog: Catalog, tmp_path: Path) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    catalog.create_namespace("n")
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "V"))
    fields = NestedField(1, "K", LongType()), NestedField(2, "V", StringType())
    catalog.create_table("n.t", Schema(*fields), partition_spec=spec)
    texts = ["", None, "__HIVE_DEFAULT_PARTITION__", " ", "a/b", "%41"]
    sink = opened("iceberg:lake.n.t", tmp_path, ROWS)
    published(sink, 0, *(("+", n, x) for n, x in enumerate(texts)), columns=ROWS)
    found = catalog.load_table("n.t").scan().to_arrow().sort_by("K").to_pylist()
    assert [row["V"] for row in found] == texts


def test_an_iceberg_table_with_required_parts(catalog: Catalog, tmp_path: Path) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import ListType, LongType, NestedField

    catalog.create_namespace("n")
    for n, needs in enumerate((False, True)):
        fields = NestedField(1, "K", LongType()), NestedField(2, "V", ListType(3, LongType(), element_required=needs))
        catalog.create_table(f"n.t{n}", Schema(*fields))
        columns = table_of(("K", S.BIGINT), ("V", Array(S.BIGINT)), kind="stream")
        if needs:
            with pytest.raises(BraidError, match="what is inside of V is required"):
                sink_of(f"iceberg:lake.n.t{n}").check(columns, None, False, False)
        else:
            sink_of(f"iceberg:lake.n.t{n}").check(columns, None, False, False)


def test_a_batch_that_changes_nothing_leaves_its_marker(
    db: psycopg.Connection, catalog: Catalog, tmp_path: Path
) -> None:
    """A key that goes and was never there; rows of which none can be written."""
    for text, columns in (
        (at(db), KEYED), (at(db, "s"), ROWS), (f"delta:{tmp_path / 't'}", KEYED), (f"delta:{tmp_path / 's'}", ROWS),
        ("iceberg:lake.n.t", ROWS),
    ):  # fmt: skip
        sink = opened(text, tmp_path, columns)
        needs = replace(sink, required=frozenset({"K"}))  # type: ignore[call-arg]
        none = (("+", None, "a"),)
        batches = (none, none) if columns is ROWS else (none, (("-", 9, "a"),), (("-", None, "a"), ("-", 9, None)))
        for n, rows in enumerate(batches):
            published(needs, n, *rows, after=n - 1 if n else None, columns=columns)
            assert sink.last(TopicStore(store_in(tmp_path / "store")), columns, "r") == (n, f"d{n}"), (text, n)


@pytest.mark.heavy
@pytest.mark.parametrize("lags", [True, False])
def test_a_standby_that_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lags: bool) -> None:
    """With the last batch or without: its timeline is another one."""
    try:
        with running() as own:
            home, user = Path(str(own.info.host)), "postgres" if os.getuid() == 0 else None

            def tool(name: str, *words: str) -> None:
                command = [str(programs() / name), *words]
                subprocess.run(command, user=user, check=True, cwd=home, capture_output=True, timeout=120)

            (home / "two").mkdir()
            if user is not None:
                shutil.chown(home / "two", user)
            monkeypatch.setenv("WHERE_IT_IS", f"host={home} user=judge dbname=postgres")
            sink = opened("postgres:$WHERE_IT_IS#out", tmp_path)
            published(sink, 0, ("+", 0, "a"), after=None)
            if not lags:
                published(sink, 1, ("+", 1, "a"), after=0)
            tool("pg_basebackup", "-h", str(home), "-U", "judge", "-D", "copy", "-X", "stream", "-R", "-c", "fast")
            if lags:
                published(sink, 1, ("+", 1, "a"), after=0)
            tool("pg_ctl", "-D", "data", "-m", "immediate", "stop")
            options = f"-c listen_addresses='' -c unix_socket_directories={home}/two"
            start = ("pg_ctl", "-D", "copy", "-w", "-l", "log2", "-o", options, "start")
            tool(*start)
            try:
                monkeypatch.setenv("WHERE_IT_IS", f"host={home}/two user=judge dbname=postgres")
                with pytest.raises(BraidError, match="PostgreSQL"):  # it can only be read
                    published(sink, 2, ("+", 2, "a"), after=1)
                with pytest.raises(BraidError, match="is a standby, and can only be read"):
                    sink.check(KEYED, "r", True, False)
                tool("pg_ctl", "-D", "copy", "-w", "promote")
                with pytest.raises(BraidError, match=r"timeline 2, table \d+, and was server \d+, timeline 1"):
                    published(sink, 2, ("+", 2, "a"), after=1)
                last = sink.last(TopicStore(store_in(tmp_path / "store")), KEYED, "r")
                assert last == ((0, "d0") if lags else (1, "d1")) and "timeline 2" in sink.identified(KEYED)
            finally:
                tool("pg_ctl", "-D", "copy", "-m", "immediate", "stop")
                again = f"-c listen_addresses='' -c unix_socket_directories={home}"
                tool("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", again, "start")
    except Missing as e:
        pytest.skip(str(e))


@pytest.mark.parametrize(
    ("query", "columns", "keys"),
    [
        ("SELECT k, count(*) AS n FROM a GROUP BY k", ["k", "n"], ("k",)),
        ("SELECT count(*) AS n, w, k FROM a GROUP BY k, w", ["n", "w", "k"], ("w", "k")),
        ("SELECT DISTINCT w FROM a", ["w"], ("w",)),
        ("SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM a GROUP BY k) g GROUP BY n", ["n", "m"], ("n",)),
        ("SELECT k AS result_group_0_is_null, sum(id) AS s FROM a GROUP BY k", ["result_group_0_is_null", "s"],
         ("result_group_0_is_null",)),
        ("SELECT k, max(w) AS w FROM a GROUP BY k", ["k", "w"], ("k",)),
        ("SELECT count(*) AS n FROM a GROUP BY k", ["result_group_0_is_null", "result_group_0", "n"],
         ("result_group_0_is_null", "result_group_0")),
        ("SELECT count(*) AS result_group_0 FROM a GROUP BY k",
         ["result_group_0_is_null", "_result_group_0", "result_group_0"],
         ("result_group_0_is_null", "_result_group_0")),
        ("SELECT f, count(*) AS n FROM a GROUP BY f", ["result_group_0_is_null", "result_group_0", "f", "n"],
         ("result_group_0_is_null", "result_group_0")),  # 0.0 and -0.0 are equal, and not the same
        ("SELECT id, w FROM a", ["id", "w"], ("id",)),
    ],
)  # fmt: skip
def test_what_is_grouped_by_is_the_key(tmp_path: Path, query: str, columns: list[str], keys: tuple[str, ...]) -> None:
    from braid.face.catalogue import over
    from braid.sinks.staged import shape_of

    sql = f"CREATE TABLE a (id INT PRIMARY KEY, k INT, w VARCHAR, f DOUBLE); CREATE MATERIALIZED VIEW v AS {query};"
    (made,) = (
        e.query for e in over(Store(store_in(str(tmp_path / "s"))), "risingwave").statements(sql) if e.query is not None
    )
    shape = shape_of(made.sink, False)
    assert [x.name for x in shape.columns] == columns and shape.keys == keys


def test_two_threads_that_claim_one_table(db: psycopg.Connection, catalog: Catalog, tmp_path: Path) -> None:
    """Whatever is there or not: one has it, and the other is told."""
    store = TopicStore(store_in(tmp_path / "store"))
    for n, overwrite in ((n, overwrite) for n in range(3) for overwrite in (False, True)):
        for text in (at(db, f"t{n}"), f"delta:{tmp_path}/d{n}", f"iceberg:lake.n.t{n}", f"{tmp_path}/f{n}.jsonl"):
            ends, begin = list[str](), threading.Barrier(2)

            def claims(sink: Sink, run: str, ends: list[str] = ends, begin: threading.Barrier = begin) -> None:
                begin.wait()
                try:
                    sink.opened(store, ROWS, {}, run).claim(ROWS, run)
                    ends.append("mine")
                except BraidError as e:
                    ends.append(e.message)

            sinks = [sink_of(text), sink_of(text)]
            for sink in sinks:
                sink.check(ROWS, None, False, overwrite)
            threads = [threading.Thread(target=claims, args=(x, f"r{n}{overwrite}{i}")) for i, x in enumerate(sinks)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ends.sort()
            assert "at the same moment" in ends[0] and ends[1] == "mine", (text, overwrite, ends)


@pytest.mark.parametrize("table", ["braid_rows", "braid_last", "t", "l", "stands", "public.braid_rows"])
def test_tables_that_are_called_as_ours(db: psycopg.Connection, tmp_path: Path, table: str) -> None:
    for columns, name in ((KEYED, table), (ROWS, f"{table}_s" if table != "braid_rows" else "braid_last")):
        sink = opened(at(db, name), tmp_path, columns)
        published(sink, 0, ("+", 1, "a"), ("+", None, "a"), columns=columns)
        published(sink, 1, ("+", 2, "a"), ("+", None, "b"), columns=columns)
        assert keys(db, name) == ([1, 2, None] if columns is KEYED else [1, 2, None, None])
