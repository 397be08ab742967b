"""A table of PostgreSQL as a sink: on a real server, read by its own client."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

from braid.bind.bound import Declared
from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.errors import BraidError
from braid.operators.changes import DIFF, HASH, POS, TIME
from braid.plan.logical import Sink
from braid.sinks.interface import Batch
from braid.sinks.named import sink_of
from braid.sinks.postgres import PostgresSink, _csv
from braid.sinks.postgres_marker import MARKERS
from braid.sinks.postgres_session import CODECS, encodes
from braid.store import opened as store_in
from braid.tables.named import table_of as table_of_named
from braid.topics.store import TopicStore
from braid.types import Array, Column, Scalar
from braid.types import Decimal as DecimalType
from cli_help import Said, braid, on_shared_spark
from postgres.server import Missing, programs, running
from sink_help import KEYED, TABLE, TYPED, TYPES, changes, keyed, killed, put, table_of

S = Scalar


def where(db: psycopg.Connection) -> str:
    return f"postgres:host={db.info.host} user=judge dbname=postgres"


def rows(db: psycopg.Connection, sql: str) -> list[tuple[Any, ...]]:
    return db.execute(sql).fetchall()


# ---------------------------------------------------------------- what is named


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("postgres://u:secret@h/d", "a password on a command line"),
        ("postgres:host=h password=secret", "a password on a command line"),
        ("postgres:$NO_SUCH_NAME", "the environment has no NO_SUCH_NAME"),
        ("postgres:@/no/such/file", "cannot be read"),
        ("postgres:no words of a connection", "names no database"),
    ],
)
def test_what_names_no_table(text: str, told: str) -> None:
    with pytest.raises(BraidError) as e:
        sink_of(text)
    assert told in e.value.message and "secret" not in e.value.render()


def test_secrets_lie_in_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c").write_text("postgresql://u:hidden@h/d\n", encoding="utf-8")
    monkeypatch.setenv("MINE", "host=h password=hidden")
    for text in (f"postgres:@{tmp_path / 'c'}#a.b", "postgres:$MINE"):
        made = sink_of(text)
        assert isinstance(made, PostgresSink) and made.settings()["password"] == "hidden"
        assert "hidden" not in repr(made) and "hidden" not in made.described()
    for text in ("out/console", "console:x", "delta", "postgres"):  # folders, as ever
        assert sink_of(text).folder == str(Path(text).absolute())


def test_texts_are_quoted_and_null_is_nothing() -> None:
    frame = pl.DataFrame({"A": ["", None, 'x"y', "a,b", "l\nm", "\\.", "NULL"], "B": [1, 2, None, 4, 5, 6, 7]})
    lines = _csv(frame, [Column("A", S.VARCHAR), Column("B", S.BIGINT)])
    assert lines.decode() == '"",1,+\n,2,+\n"x""y",,+\n"a,b",4,+\n"l\nm",5,+\n"\\.",6,+\n"NULL",7,+\n'


@pytest.mark.parametrize("t", [S.TIMESTAMP, S.TIMESTAMPTZ, S.DATE])
def test_years_that_have_no_place(t: Scalar) -> None:
    dtype = pl.Date() if t is S.DATE else pl.Datetime("us")
    most, ad, end = 2**31 - 1, -719_162, 2_932_896
    if t is not S.DATE:
        most, ad, end = 2**63 - 1, -62_135_596_800_000_000, 253_402_300_799_999_999
    numbers = pl.Series([most, -most, ad - 1, ad, None, end, end + 1], dtype=pl.Int64)
    found = PostgresSink().unstorable(numbers.cast(dtype), t)
    assert found is not None and found.to_list() == [True, True, True, False, False, False, True]


# ---------------------------------------------------------------- batch by batch


def published(sink: PostgresSink, columns: Sink, run: str, number: int, frame: pl.DataFrame, digest: str = "d") -> None:
    """A batch as a task and the driver write it."""
    from braid.sinks.interface import Part

    batch = Batch("Q", run, number, lambda: digest)
    outputs = sink.task(Part(batch, 0, columns))
    outputs.write(frame, None, 0)
    sink.publish(batch, columns, list(outputs.close(pl.DataFrame())))


def opened(db: psycopg.Connection, columns: Sink, run: str, folder: Path, overwrite: bool = False) -> PostgresSink:
    sink = sink_of(where(db) + "#out")
    assert isinstance(sink, PostgresSink)
    sink.check(columns, None, False, overwrite)
    made = sink.opened(TopicStore(store_in(folder)), columns, {}, run)
    made.claim(columns, run)
    return made


def test_a_key_stands_as_it_was_last_and_a_batch_is_written_once(db: psycopg.Connection, tmp_path: Path) -> None:
    sink = opened(db, KEYED, "r1", tmp_path)
    published(
        sink, KEYED, "r1", 0, changes(("+", 1, "a"), ("+", 2, "b"), ("-", 1, "a"), ("+", 1, "c"), ("+", None, "n"))
    )
    assert rows(db, "SELECT k, v FROM out ORDER BY k") == [(1, "c"), (2, "b"), (None, "n")]
    second = changes(("-", 2, "b"), ("-", None, "n"), ("+", 3, ""), ("+", None, "m"), ("-", None, "m"))
    published(sink, KEYED, "r1", 1, second)
    for _ in range(2):  # again: nothing changes
        assert rows(db, "SELECT k, v FROM out ORDER BY k") == [(1, "c"), (3, "")]
        published(sink, KEYED, "r1", 1, second)
    assert rows(db, f"SELECT target, query, run, batch, digest FROM {MARKERS}") == [("out", "Q", "r1", 1, "d")]
    assert not [p for p in tmp_path.rglob("*") if p.suffix == ".parquet" or "~" in p.name]


@pytest.mark.parametrize(
    ("run", "number", "digest", "told"),
    [
        ("r1", 0, "d", "written into out by another writer"),
        ("r1", 1, "other", "written into out by another writer"),
        ("r2", 2, "d", "another run writes into the table out"),
    ],
)
def test_an_older_and_a_second_writer_are_refused(
    db: psycopg.Connection, tmp_path: Path, run: str, number: int, digest: str, told: str
) -> None:
    sink = opened(db, KEYED, "r1", tmp_path)
    for n in range(2):
        published(sink, KEYED, "r1", n, changes(("+", n, "x")))
    with pytest.raises(BraidError, match=told):
        published(sink, KEYED, run, number, changes(("+", 9, "y")), digest)
    assert rows(db, "SELECT k FROM out ORDER BY k") == [(0,), (1,)]


def test_a_table_of_another_run(db: psycopg.Connection, tmp_path: Path) -> None:
    published(opened(db, KEYED, "r1", tmp_path), KEYED, "r1", 0, changes(("+", 1, "a")))
    with pytest.raises(BraidError, match="holds the results of another run"):
        opened(db, KEYED, "r2", tmp_path)
    sink = opened(db, KEYED, "r2", tmp_path, overwrite=True)
    published(sink, KEYED, "r2", 0, changes(("+", 2, "b")))
    assert rows(db, "SELECT k, v FROM out") == [(2, "b")]
    with pytest.raises(BraidError, match="another run \\(r2\\) has written into out since"):
        sink.check(KEYED, "r1", True, True)


def test_a_table_is_the_same_by_each_of_its_names(db: psycopg.Connection, tmp_path: Path) -> None:
    before = opened(db, KEYED, "r1", tmp_path)
    published(before, KEYED, "r1", 0, changes(("+", 1, "a")))
    other = sink_of(where(db) + "#public.out")
    with pytest.raises(BraidError, match=r"public\.out holds the results of another run \(r1\)"):
        other.check(KEYED, None, False, False)
    made = other.opened(TopicStore(store_in(tmp_path)), KEYED, {}, "r2")
    assert rows(db, f"SELECT target, run FROM {MARKERS}") == [("public.out", "r2")] and not rows(db, "TABLE out")
    assert isinstance(made, PostgresSink)
    published(made, KEYED, "r2", 0, changes(("+", 2, "b")))
    with pytest.raises(BraidError, match="another run writes into the table out now"):
        published(before, KEYED, "r1", 1, changes(("+", 3, "c")))
    assert rows(db, "SELECT k, v FROM out") == [(2, "b")]


def test_a_schema_that_is_not_there(db: psycopg.Connection) -> None:
    with pytest.raises(BraidError, match=r"the table nowhere\.out: there is no schema nowhere"):
        sink_of(where(db) + "#nowhere.out").check(KEYED, None, False, False)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("k bigint PRIMARY KEY", "has no column v"),
        ("k bigint PRIMARY KEY, v varchar(3)", "out.v is character varying\\(3\\), and cannot hold all of VARCHAR"),
        ("k integer PRIMARY KEY, v text", "out.k is integer"),
        ("k bigint, v text", "has no unique index on its key"),
        ("k bigint PRIMARY KEY, v text, w int NOT NULL", "out.w needs a value"),
    ],
)
def test_a_table_that_cannot_hold_the_rows(db: psycopg.Connection, tmp_path: Path, made: str, told: str) -> None:
    db.execute(f"CREATE TABLE out ({made})")  # type: ignore[call-overload]
    with pytest.raises(BraidError, match=told):
        opened(db, KEYED, "r", tmp_path)
    assert rows(db, f"SELECT to_regclass('{MARKERS}')") == [(None,)]


def test_a_table_of_ones_own_is_filled(db: psycopg.Connection, tmp_path: Path) -> None:
    db.execute('CREATE TABLE out ("V" character varying, since timestamptz DEFAULT now(), k numeric PRIMARY KEY)')
    db.execute("INSERT INTO out VALUES ('mine', now(), 7)")
    published(opened(db, KEYED, "r", tmp_path), KEYED, "r", 0, changes(("+", 1, "a"), ("+", 7, "theirs")))
    assert rows(db, 'SELECT k, "V" FROM out ORDER BY k') == [(1, "a"), (7, "theirs")]


def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    try:
        with running() as own:
            sink, folder = opened(own, KEYED, "r", tmp_path), str(own.info.host)
            ctl = [str(programs() / "pg_ctl"), "-D", f"{folder}/data", "-w"]
            user = "postgres" if os.getuid() == 0 else None

            def start() -> None:
                time.sleep(2)
                options = f"-c unix_socket_directories={folder} -c listen_addresses=''"
                subprocess.run([*ctl, "-l", f"{folder}/log", "-o", options, "start"], user=user, check=True, cwd="/")

            subprocess.run([*ctl, "-m", "immediate", "stop"], user=user, check=True, cwd="/", stdout=subprocess.DEVNULL)
            began, back = time.monotonic(), threading.Thread(target=start)
            back.start()
            published(sink, KEYED, "r", 0, changes(("+", 1, "a")))
            back.join()
            assert time.monotonic() - began > 2
            with psycopg.connect(host=folder, user="judge", dbname="postgres") as again:
                assert rows(again, "SELECT k, v FROM out") == [(1, "a")]
    except Missing as e:
        pytest.skip(str(e))


# ------------------------------------------------ what others have set, and encodings


def declared(sql: str) -> Declared:
    program = Program("risingwave", Catalog())
    list(program.statements(sql))
    return next(iter(program.catalog.sources.values()))


def database(db: psycopg.Connection, encoding: str) -> psycopg.Connection:
    name = f"in_{encoding.lower()}"
    db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    db.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    return psycopg.connect(host=db.info.host, user="judge", dbname=name, autocommit=True, client_encoding="UTF8")


@pytest.mark.parametrize("encoding", sorted(CODECS))
def test_what_a_database_has_characters_for(db: psycopg.Connection, encoding: str) -> None:
    """As the server has it: each character by itself. What it has and we say it has not would be a drop for nothing."""
    shown = [chr(c) for c in range(1, 0x10000 if encoding == "EUC_CN" else 0x2700) if not 0xD800 <= c < 0xE000] + [
        "가",
        "語",
        "中",
        "€",
        "😀",
    ]
    db.execute(
        "CREATE OR REPLACE FUNCTION pg_temp.fits(x text, e name) RETURNS bool LANGUAGE plpgsql AS $$"
        " BEGIN PERFORM convert_to(x, e); RETURN true; EXCEPTION WHEN others THEN RETURN false; END $$"
    )
    found = rows(db, "SELECT 1")
    found = db.execute("SELECT pg_temp.fits(x, %s) FROM unnest(%s::text[]) x", [encoding, shown]).fetchall()
    odd = [hex(ord(c)) for c, (fits,) in zip(shown, found, strict=True) if fits != encodes(c, CODECS[encoding])]
    assert not odd, odd[:20]


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "WIN1252", "EUC_JP"])
@pytest.mark.parametrize("set_by", ["", "role", "database", "environment", "connection"])
def test_texts_arrive_whatever_encoding_is_set(
    db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, set_by: str
) -> None:
    other = "UTF8" if encoding == "EUC_JP" else "LATIN1" if encoding == "WIN1252" else "WIN1252"
    text = "日本語" if encoding == "EUC_JP" else "é ß ü"
    columns = KEYED
    with database(db, encoding) as mine:
        place = mine.info.dbname
        match set_by:
            case "role":
                db.execute(f"ALTER ROLE judge SET client_encoding = '{other}'")
            case "database":
                db.execute(f"ALTER DATABASE {place} SET client_encoding = '{other}'")
            case "environment":
                monkeypatch.setenv("PGCLIENTENCODING", other)
        try:
            words = f"host={db.info.host} user=judge dbname={place}"
            words += f" client_encoding={other}" * (set_by == "connection")
            sink = sink_of(f"postgres:{words}#out")
            assert isinstance(sink, PostgresSink)
            sink.check(columns, None, False, False)
            made = sink.opened(TopicStore(store_in(tmp_path)), columns, {}, "r")
            odd = {"UTF8": text, "EUC_JP": text}.get(encoding, "😀")
            frame = changes(("+", 1, text), ("+", 2, odd)).with_columns(pl.lit(0, pl.Int128).alias(POS))
            published(made, columns, "r", 0, frame)
            want = [(1, text)] + [(2, text)] * (odd == text)
            assert rows(mine, "SELECT k, v FROM out ORDER BY k") == want
            there = table_of_named(f"postgres:{words}#SELECT k, v FROM out").read(
                declared("CREATE TABLE c (k INT PRIMARY KEY, v VARCHAR);")
            )
            assert there.rows.sort("k").rows() == want
        finally:
            db.execute("ALTER ROLE judge RESET client_encoding")
    db.execute(f"DROP DATABASE {place} WITH (FORCE)")


def test_a_database_that_knows_no_characters_is_one_line(db: psycopg.Connection, tmp_path: Path) -> None:
    columns = KEYED
    with database(db, "SQL_ASCII") as mine:
        words = f"postgres:host={db.info.host} user=judge dbname={mine.info.dbname}#out"
        sink, table = sink_of(words), table_of_named(words)
        for asks in (
            lambda: sink.check(columns, None, False, False),
            lambda: sink.opened(TopicStore(store_in(tmp_path)), columns, {}, "r"),
            lambda: table.read(declared("CREATE TABLE c (k INT PRIMARY KEY);")),
        ):
            with pytest.raises(BraidError, match="the database in_sql_ascii is in SQL_ASCII"):
                asks()
    db.execute("DROP DATABASE in_sql_ascii WITH (FORCE)")


SET = {
    "extra_float_digits": "-15",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Asia/Tokyo",
    "bytea_output": "escape",
}


@pytest.mark.parametrize("set_by", ["role", "database", "environment", "connection"])
def test_values_are_exact_whatever_is_set(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, set_by: str) -> None:
    sql = (
        "SELECT 1 AS k, 0.1::float8 + 0.2::float8 AS f, 1.1::float4 AS r, 1e300 / 3 AS big, '2024-03-01'::date AS d,"
        " timestamptz '2024-03-01 08:00:00+00' AS tz, timestamp '2024-03-01 08:00:00' AS ts,"
        " '2024-03-01'::date::text AS t, '01/02/2024'::date AS read, interval '1 day 02:00'::text AS i,"
        " '\\x00ff'::bytea AS y, '\\x00ff'::bytea::text AS yt, array[0.1::float8 + 0.2::float8] AS a,"
        """ '{"b": 1.50, "aa": ["x"]}'::jsonb AS j, '3'::json AS o"""
    )
    made = declared(
        "CREATE TABLE c (k INT PRIMARY KEY, f DOUBLE PRECISION, r REAL, big DOUBLE PRECISION, d DATE, tz TIMESTAMPTZ,"
        " ts TIMESTAMP, t VARCHAR, read DATE, i VARCHAR, y BYTEA, yt VARCHAR, a DOUBLE PRECISION[],"
        " j JSONB, o JSONB);",
    )
    words = f"host={db.info.host} user=judge dbname=postgres"
    options = " ".join(f"-c {n}={v.replace(' ', chr(92) + ' ')}" for n, v in SET.items())
    if set_by == "environment":
        monkeypatch.setenv("PGOPTIONS", options)
    if set_by == "connection":
        words += f" options='{options.replace(chr(92), chr(92) * 2)}'"
    if set_by in ("role", "database"):
        for name, value in SET.items():
            db.execute(f"ALTER {set_by} {'judge' if set_by == 'role' else 'postgres'} SET {name} = '{value}'")
    try:
        read = table_of_named(f"postgres:{words}#{sql}").read(made)
    finally:
        db.execute("ALTER ROLE judge RESET ALL")
        db.execute("ALTER DATABASE postgres RESET ALL")
    assert read.error.null_count() == 1
    (row,) = read.rows.to_dicts()
    noon = dt.datetime(2024, 3, 1, 8)
    assert row == {
        "k": 1, "f": 0.1 + 0.2, "r": pytest.approx(1.1, rel=1e-7), "big": 1e300 / 3, "d": noon.date(), "tz": noon,
        "ts": noon, "t": "2024-03-01", "read": dt.date(2024, 2, 1), "i": "1 day 02:00:00", "y": b"\0\xff",
        "yt": "\\x00ff", "a": [0.1 + 0.2], "j": '{"aa": ["x"], "b": 1.5}', "o": "3",
    }  # fmt: skip


# -------------------------------------------------------------------- on Spark


def run(db: psycopg.Connection, folder: Path, sql: str, *more: str, to: str = "OUT") -> Said:
    (folder / "q.sql").write_text(sql, encoding="utf-8")
    words = ("run", "q.sql", "--store", "s", "--dialect", "ksqldb", "--until-idle", f"--sink={to}={where(db)}", *more)
    return on_shared_spark(*words, cwd=folder)


@pytest.mark.spark
def test_every_type_and_what_has_no_place(db: psycopg.Connection, tmp_path: Path) -> None:
    TopicStore(store_in(tmp_path / "s")).create("s", 1)
    put(tmp_path, "s", TYPED, {}, TYPED | {"T": "a\0b"}, {"T": ""})
    said = run(db, tmp_path, TYPES)
    assert said.code == 0, said.err
    found = rows(db, "SELECT * FROM out")
    names = [x.name for x in db.execute("SELECT * FROM out").description or ()]
    first = dict(zip(names, found[0], strict=True))
    assert (first["i"], first["b"], first["d"], first["f"], first["t"], first["o"]) == (
        -1, 2**62, Decimal("12.50"), -1e300, TYPED["T"], True,
    )  # fmt: skip
    assert first["y"] == b"\x00\xff" and str(first["da"]) == "2022-01-08" and str(first["ti"]) == "01:00:00.001000"
    assert str(first["ts"]) == "2023-11-14 22:13:20.123000" and first["a"] == [1, None] and first["m"] == {"a": 1}
    assert found[1] == (None,) * len(names) and dict(zip(names, found[2], strict=True))["t"] == "" and len(found) == 3
    assert "NUL character" in braid("drops", "OUT", "--store", tmp_path / "s").out


@pytest.mark.spark
def test_a_table_with_deletes_goes_on(db: psycopg.Connection, tmp_path: Path) -> None:
    store = TopicStore(store_in(tmp_path / "s"))
    store.create("a", 1)
    store.create("b", 1)
    keyed(tmp_path, "a", [(1, {"V": "a"}), (2, {"V": "b"}), (3, {"V": "c"})], 0)
    keyed(tmp_path, "b", [(1, {"W": "x"})], 10)
    said = run(db, tmp_path, TABLE)
    assert said.code == 0, said.err
    assert rows(db, "SELECT k, v, w FROM out ORDER BY k") == [(1, "a", "x"), (2, "b", None), (3, "c", None)]
    ((batch, digest),) = rows(db, f"SELECT batch, digest FROM {MARKERS}")
    keyed(tmp_path, "a", [(2, None), (3, {"V": "d"})], 20)
    keyed(tmp_path, "b", [(1, None), (3, {"W": "y"})], 30)
    assert run(db, tmp_path, TABLE).code == 0
    assert rows(db, "SELECT k, v, w FROM out ORDER BY k") == [(1, "a", None), (3, "d", "y")]
    ((later, other),) = rows(db, f"SELECT batch, digest FROM {MARKERS}")
    assert later > batch and other != digest
    for marker, told in (
        ((batch, digest), "is older than the checkpoint"),
        ((later, digest), "was made of other records"),
    ):
        db.execute(f"UPDATE {MARKERS} SET batch = %s, digest = %s", marker)
        said = run(db, tmp_path, TABLE)
        assert said.code == 1 and told in said.err and "the table out of PostgreSQL" in said.err, said
    db.execute(f"UPDATE {MARKERS} SET batch = %s, digest = %s", (later, other))
    said = run(db, tmp_path, TABLE.replace("OUT", "OTHER"), to="OTHER")
    assert said.code == 0 and rows(db, "SELECT count(*) FROM other") == [(2,)]
    db.execute(f"DELETE FROM {MARKERS} WHERE target = 'out'")
    said = run(db, tmp_path, TABLE)
    assert said.code == 1 and "its marker is gone" in said.err


VIEW = """
CREATE TABLE a (id INT, v VARCHAR);
CREATE TABLE b (id INT, w VARCHAR);
CREATE MATERIALIZED VIEW out AS SELECT a.v, b.w FROM a LEFT JOIN b ON a.id = b.id;
INSERT INTO a VALUES (1, 'same'), (1, 'same'), (2, NULL);
INSERT INTO b VALUES (1, 'x');
"""


@pytest.mark.spark
def test_a_view_has_its_hidden_key(db: psycopg.Connection, tmp_path: Path) -> None:
    """Rows of a view may be equal: each is one of the table, known by columns that nobody has selected."""
    (tmp_path / "q.sql").write_text(VIEW, encoding="utf-8")
    words = ("run", "q.sql", "--store", "s", "--dialect", "risingwave", "--until-idle", f"--sink=out={where(db)}")
    said = on_shared_spark(*words, cwd=tmp_path)
    assert said.code == 0, said.err
    assert rows(db, "SELECT v, w FROM out ORDER BY v, w") == [("same", "x"), ("same", "x"), (None, None)]
    assert [x.name for x in db.execute("SELECT * FROM out").description or ()] == ["a__row_id", "b__row_id", "v", "w"]


@pytest.mark.spark
def test_windows_are_columns_of_the_key(db: psycopg.Connection, tmp_path: Path) -> None:
    TopicStore(store_in(tmp_path / "s")).create("e", 1)
    keyed(tmp_path, "e", [(1, {"V": 1}), (1, {"V": 2})], 0)
    keyed(tmp_path, "e", [(1, {"V": 3})], 7_000)
    sql = """CREATE STREAM E (K INT KEY, V INT) WITH (kafka_topic='e', value_format='JSON', partitions=1);
    CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM E WINDOW TUMBLING (SIZE 5 SECONDS) GROUP BY K;"""
    said = run(db, tmp_path, sql)
    assert said.code == 0, said.err
    assert rows(db, "SELECT k, windowstart, n FROM out ORDER BY windowstart") == [(1, 0, 2), (1, 5000, 1)]


def kills(db: psycopg.Connection, folder: Path, count: int, seed: int) -> None:
    def read(name: str) -> list[tuple[Any, ...]]:
        return rows(db, f"SELECT k, v, w FROM {name} ORDER BY k")

    killed(folder, count, seed, lambda name: where(db), read)


@pytest.mark.spark
@pytest.mark.operations
def test_killed_runs_write_each_batch_once(db: psycopg.Connection, tmp_path: Path) -> None:
    kills(db, tmp_path, 2, 1)


@pytest.mark.spark
@pytest.mark.law
@pytest.mark.timeout(1200)
def test_thirty_kills(db: psycopg.Connection, tmp_path: Path) -> None:
    kills(db, tmp_path, 30, 2)


def test_arrays_are_json(db: psycopg.Connection, tmp_path: Path) -> None:
    columns = table_of(("K", S.BIGINT), ("D", DecimalType(4, 1)), ("A", Array(S.VARCHAR)), key=(), kind="stream")
    sink = opened(db, columns, "r", tmp_path)
    values = {"v0": [1, None], "v1": [Decimal("1.5"), None], "v2": [["a", 'b"'], None]}
    frame = pl.DataFrame(
        {HASH: [0, 0], DIFF: [1, 1], TIME: [0, 0], **values},
        schema_overrides={HASH: pl.UInt64, DIFF: pl.Int8, "v1": pl.Decimal(4, 1)},
    )  # fmt: skip
    published(sink, columns, "r", 0, frame)
    published(sink, columns, "r", 1, frame)
    assert rows(db, "SELECT * FROM out") == [(1, Decimal("1.5"), ["a", 'b"']), (None, None, None)] * 2
