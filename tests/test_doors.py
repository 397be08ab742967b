"""Rows come in by every door: files of each kind, topics of other queries, `braid put`, INSERT. Each gives what DuckDB
says of the same rows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from braid.bind.program import Program
from braid.errors import BraidError, SqlError
from braid.face.request import Request, prepare
from braid.face.show import put_records
from braid.store import opened
from braid.topics.drops import read_drops
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from cli_help import braid
from door_matrix import DIALECTS, LOCAL, REFUSED, Matrix, build, found, frame_of, oracle, wanted
from doors import records, run

pytestmark = pytest.mark.heavy

# ------------------------------------------------------------ rows without a key (risingwave)

ALARMS = ["id,sensor,level", "1,s0,crit", "2,s1,crit", "2,s1,crit", "4,s0,", "5,,low"]
SENSORS = """SELECT count(*) FROM a; SELECT id, sensor, level FROM a ORDER BY id, sensor, level;
CREATE MATERIALIZED VIEW v AS SELECT id, sensor, level FROM a;
CREATE MATERIALIZED VIEW n AS SELECT sensor, count(*) AS n FROM v GROUP BY sensor;
SELECT count(*) FROM v; SELECT sensor, n FROM n ORDER BY sensor NULLS LAST;"""
WANTED = [
    [(5,)],
    [(1, "s0", "crit"), (2, "s1", "crit"), (2, "s1", "crit"), (4, "s0", None), (5, None, "low")],
    [(5,)],
    [("s0", 2), ("s1", 2), (None, 1)],
]
KINDS = {"source": "CREATE SOURCE a ({});", "table": "CREATE TABLE a ({});", "log": "CREATE TABLE a ({}) APPEND ONLY;"}


@pytest.fixture(params=KINDS)
def declared(request: pytest.FixtureRequest) -> str:
    return KINDS[request.param].format("id INT, sensor VARCHAR, level VARCHAR") + SENSORS


def write(folder: Path, name: str) -> str:
    """The alarms as a file."""
    path = folder / name
    path.write_text("\n".join(ALARMS) + "\n")
    frame = pl.read_csv(path)
    if name.endswith(".jsonl"):
        frame.write_ndjson(path)
    elif name.endswith(".parquet"):
        frame.write_parquet(path)
    return str(path)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("limit", [1, 1000])
def test_every_row_of_a_file_is_a_row(tmp_path: Path, declared: str, name: str, limit: int) -> None:
    store = TopicStore(opened(tmp_path / "store"))
    assert run(declared, "risingwave", store, {"a": write(tmp_path, name)}, limit)[0] == WANTED


def put(store: TopicStore, topic: str, keys: list[str], partitions: int = 1) -> None:
    """The alarms as records of a topic, at times that do not rise."""
    rows = pl.read_csv("\n".join(ALARMS).encode()).select(pl.struct(pl.all()).struct.json_encode()).to_series()
    lines = [
        f'{{"key": {k}, "value": {v}, "timestamp": {i % 2}}}' for i, (k, v) in enumerate(zip(keys, rows, strict=True))
    ]
    put_records(Store(store.root), topic, lines, partitions)


@pytest.mark.parametrize("keys", [["null"] * 5, ["7"] * 5, ['"a"', '"a"', "1", "null", "[2]"]])
@pytest.mark.parametrize("partitions", [1, 3])
def test_every_record_that_is_put_is_a_row(tmp_path: Path, declared: str, keys: list[str], partitions: int) -> None:
    store = TopicStore(opened(tmp_path))
    put(store, "a", keys, partitions)
    found, lost = run(declared, "risingwave", store, {})
    assert (found, lost) == (WANTED, {"v": [], "n": []})


def test_numbers_of_rows_follow_from_partition_and_offset(tmp_path: Path) -> None:
    """Also where rows of statements stand beside them, and where the same records are read once more."""
    table = "CREATE TABLE a (id INT, sensor VARCHAR, level VARCHAR);"
    sql = f"{table} CREATE MATERIALIZED VIEW v AS SELECT id FROM a;"
    seen = []
    for limit in (1, 1000):
        store = TopicStore(opened(tmp_path / str(limit)))
        put(store, "a", ["null"] * 5, 2)
        run(f"{table} INSERT INTO a VALUES (9, 'x', 'y'), (9, 'x', 'y');", "risingwave", store, {})
        run(sql, "risingwave", store, {}, limit)
        keys = [key for key, _, _ in records(store, "v")]
        assert len(keys) == len({str(k) for k in keys}) == 7
        seen.append(sorted(k for k in keys if k < 2**60))
    assert seen[0] == seen[1]


def test_rows_that_were_put_can_be_changed(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path))
    put(store, "a", ["null", "1", "1", "null", "1"], 2)
    table = "CREATE TABLE a (id INT, sensor VARCHAR, level VARCHAR);"
    run(
        f"{table} DELETE FROM a WHERE id = 2; UPDATE a SET level = 'none' WHERE level IS NULL;", "risingwave", store, {}
    )
    view = "CREATE MATERIALIZED VIEW v AS SELECT * FROM a;"
    sql = f"{table} {view} SELECT * FROM a ORDER BY 1; SELECT * FROM v ORDER BY 1;"
    rows = [(1, "s0", "crit"), (4, "s0", "none"), (5, None, "low")]
    assert run(sql, "risingwave", store, {})[0] == [rows, rows]


def test_iso_text_in_a_topic(tmp_path: Path) -> None:
    """Beside numbers; what is neither is left out of all that reads the topic."""
    store = TopicStore(opened(tmp_path))
    rows = [
        {"id": 1, "day": "2024-03-01", "at": "2024-03-01T10:00:00+02:00"},
        {"id": 2, "day": 19783, "at": 1709280000000},
        {"id": 3, "day": "soon", "at": "1709280000000"},
        {"id": 4, "day": None, "at": "2024-03-01 08:00:00"},
    ]
    put_records(Store(store.root), "a", [json.dumps({"key": None, "value": r, "timestamp": 1}) for r in rows], 1)
    sql = "CREATE TABLE a (id INT, day DATE, at TIMESTAMP); CREATE MATERIALIZED VIEW v AS SELECT * FROM a;"
    found, lost = run(f"{sql} SELECT * FROM a ORDER BY 1; SELECT * FROM v ORDER BY 1;", "risingwave", store, {})
    day, at = date(2024, 3, 1), datetime(2024, 3, 1, 8)
    assert found == [[(1, day, at), (2, day, at), (4, None, at)]] * 2
    assert lost == {"v": ["malformed"]}


def test_a_record_that_cannot_be_read_replaces_nothing(tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path))
    records = [(1, {"n": 1}), (2, {"n": 2}), (1, {"n": "x"}), ("y", {"n": 3}), (2, None), (3, {"n": 3})]
    put_records(Store(store.root), "a", [json.dumps({"key": k, "value": v, "timestamp": 1}) for k, v in records], 1)
    store.append_lines("a", ["no record"], 0)
    sql = "CREATE TABLE a (id INT PRIMARY KEY, n INT); CREATE MATERIALIZED VIEW v AS SELECT * FROM a;"
    found, lost = run(f"{sql} SELECT * FROM a ORDER BY 1; SELECT * FROM v ORDER BY 1;", "risingwave", store, {})
    assert found == [[(1, 1), (3, 3)]] * 2
    assert lost == {"v": ["malformed"] * 3}


@pytest.mark.parametrize("door", ["file", "topic"])
def test_a_query_tells_what_it_could_not_read(tmp_path: Path, door: str) -> None:
    rows = [{"id": 1}, {"id": "x"}, {"id": None}]
    words: list[str] = []
    if door == "file":
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
        words = ["--source", f"a={tmp_path / 'a.jsonl'}"]
    else:
        lines = [json.dumps({"key": None, "value": r, "timestamp": 1}) for r in rows]
        put_records(Store(opened(str(tmp_path / "s"))), "a", lines, 1)
        TopicStore(opened(tmp_path / "s")).append_lines("a", ["no record"], 0)
    (tmp_path / "q.sql").write_text("CREATE SOURCE a (id INT); SELECT count(*) AS n FROM a;")
    said = braid("run", tmp_path / "q.sql", "--dialect", "risingwave", "--store", tmp_path / "s", *words)
    assert said.code == 0 and said.out.split() == ["n", "2"], said
    told = "1 record" if door == "file" else "2 records"
    assert f"note: {told} of a cannot be read as it is declared: left out" in said.err


STREAM = """CREATE STREAM a (id INT, at BIGINT)
  WITH (kafka_topic='a', value_format='JSON', timestamp='at', partitions=1);
"""
PULLED = f"""{STREAM}CREATE SOURCE TABLE t (id INT PRIMARY KEY, at BIGINT)
  WITH (kafka_topic='t', value_format='JSON', partitions=1);
SELECT id FROM a;
SELECT id FROM t;
"""


@pytest.mark.parametrize("command", ["run", "sql"])
@pytest.mark.parametrize("door", ["csv", "jsonl", "topic"])
def test_a_pull_query_tells_what_it_leaves_out(tmp_path: Path, door: str, command: str) -> None:
    """A malformed row, one without a time, one before 1970; a table's without a key. Each once, also asked again."""
    rows: list[dict[str, Any]] = [{"id": 1, "at": 5}, {"id": "x", "at": 6}, {"id": 2, "at": None}, {"id": 3, "at": -1}]
    keyed = [{"id": 1, "at": 5}, {"id": "x", "at": 6}, {"id": None, "at": 7}]
    words: list[str] = []
    if door == "topic":
        lines = [json.dumps({"key": None, "value": r, "timestamp": 1}) for r in rows]
        put_records(
            Store(opened(str(tmp_path / "s"))), "a", [*lines, '{"key": null, "value": null, "timestamp": 1}'], 1
        )
        lines = [json.dumps({"key": r["id"], "value": {"at": r["at"]}, "timestamp": 1}) for r in keyed]
        put_records(Store(opened(str(tmp_path / "s"))), "t", lines, 1)
    else:
        for name, some in (("a", rows), ("t", keyed)):
            texts = {
                "csv": ["id,at", *(",".join("" if v is None else str(v) for v in r.values()) for r in some)],
                "jsonl": list(map(json.dumps, some)),
            }
            (tmp_path / f"{name}.{door}").write_text("\n".join(texts[door]) + "\n")
            words += ["--source", f"{name}={tmp_path / name}.{door}"]
    (tmp_path / "q.sql").write_text(PULLED + "SELECT id FROM t;")
    said = braid(command, tmp_path / "q.sql", "--store", tmp_path / "s", *words)
    assert said.code == 0 and said.out.split() == ["ID", "1"] * 3, said
    told = " ".join(said.err.split())
    first = "column ID" if door == "csv" else "field ID"
    assert f"note: 3 records of A cannot be read as it is declared: left out; the first: {first}: 'x' is not" in told
    assert ("note: 1 record of A has no value: left out" in told) == (door == "topic")
    assert told.count("note: 1 record of T cannot be read as it is declared: left out; the first:") == 2
    assert told.count("note: 1 record of T has no key: left out") == 2


def test_a_push_query_tells_what_it_drops(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,at\n1,5\nx,6\n2,\n3,7\n")
    (tmp_path / "q.sql").write_text(f"{STREAM}SELECT id, 1 / (id - 1) AS q FROM a EMIT CHANGES;")
    said = braid("sql", tmp_path / "q.sql", "--store", tmp_path / "s", "--source", f"a={tmp_path / 'a.csv'}")
    assert said.code == 0 and "2 rows" in said.err, said
    told = " ".join(said.err.split())
    assert "note: the query dropped 3 rows (1 expression, 2 malformed); the first: " in told


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_table_with_a_primary_key_in_a_file(tmp_path: Path, name: str) -> None:
    """The last row of a key stands; what is made of it has the file's time, 0."""
    store = TopicStore(opened(tmp_path / "store"))
    sql = """CREATE TABLE a (id INT PRIMARY KEY, sensor VARCHAR, level VARCHAR); SELECT count(*) FROM a;
    CREATE MATERIALIZED VIEW v AS SELECT sensor, count(*) AS n FROM a GROUP BY sensor;
    CREATE MATERIALIZED VIEW w AS SELECT a.id, n FROM a LEFT JOIN v ON a.sensor = v.sensor;
    SELECT sensor, n FROM v ORDER BY 1; SELECT * FROM w ORDER BY 1;"""
    found, _ = run(sql, "risingwave", store, {"a": write(tmp_path, name)})
    assert found == [[(4,)], [("s0", 2), ("s1", 1), (None, 1)], [(1, 2), (2, 1), (4, 2), (5, None)]]
    assert {t for topic in ("v", "w") for _, _, t in records(store, topic)} == {0}


def test_the_primary_key_of_a_source_is_not_checked() -> None:
    *_, last = Program("risingwave").statements("CREATE SOURCE a (id INT PRIMARY KEY, sensor VARCHAR);")
    assert any("not checked" in n for n in last.notices)


def test_what_is_read_from_a_file_is_not_written(tmp_path: Path) -> None:
    sql = "CREATE TABLE a (id INT);\nINSERT INTO a VALUES (1);"
    (tmp_path / "a.csv").write_text("id\n1\n")
    with pytest.raises(BraidError, match="a is read from files, and cannot be written") as e:
        prepare(Request(sql, "risingwave", Store(opened(str(tmp_path))), {"a": str(tmp_path / "a.csv")}))
    assert e.value.hint and "INSERT" in e.value.render()


# ------------------------------------------------------------ files without a column of keys (lenses)

SHOP = """SET defaults.topic.autocreate=true;
CREATE TABLE orders(_key INT, id INT, customer INT, item STRING, at TIMESTAMP) FORMAT (INT, JSON);
CREATE TABLE customers(_key INT, id INT, name STRING, at TIMESTAMP) FORMAT (INT, JSON);
"""
BY_ID = "INSERT INTO customers_by_id SELECT STREAM id AS _key, _value.* FROM customers;"


def shop(folder: Path, kind: str) -> dict[str, str]:
    """Files of orders and customers, without keys."""
    orders = {"id": [1, 2, 3], "customer": [1, 2, 1], "item": ["pen", "ink", None], "at": [0, 1, 2]}
    customers = {"id": [1, 2], "name": ["ann", "bob"], "at": [0, 0]}
    found = {}
    for name, columns in (("orders", orders), ("customers", customers)):
        frame = pl.DataFrame(columns).with_columns(pl.col("at") + 1_709_280_000_000)
        found[name] = str(folder / f"{name}.{kind}")
        match kind:
            case "csv":
                frame.write_csv(found[name])
            case "jsonl":
                frame.write_ndjson(found[name])
            case _:
                frame.with_columns(pl.from_epoch("at", "ms"), pl.col("id").cast(pl.Int32)).write_parquet(found[name])
    return found


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_files_without_keys_are_joined(tmp_path: Path, kind: str) -> None:
    sql = f"""{SHOP}{BY_ID}
    WITH o AS (SELECT STREAM customer AS _key, _value.* FROM orders EVENTTIME BY at);
    WITH os AS (SELECT STREAM * FROM orders EVENTTIME BY at);
    WITH cs AS (SELECT STREAM * FROM customers EVENTTIME BY at);
    WITH c AS (SELECT TABLE * FROM customers_by_id);
    INSERT INTO copied SELECT STREAM item FROM os;
    INSERT INTO by_key SELECT STREAM item, name FROM o LEFT JOIN c;
    INSERT INTO by_value SELECT STREAM item, name FROM os JOIN cs ON os.customer = cs.id WITHIN 1s;"""
    store = TopicStore(opened(tmp_path / "store"))
    _, lost = run(sql, "lenses", store, shop(tmp_path, kind))
    assert not any(lost.values())
    assert [key for key, _, _ in records(store, "copied")] == [None] * 3
    joined = [
        (1, {"item": "pen", "name": "ann"}),
        (2, {"item": "ink", "name": "bob"}),
        (1, {"item": None, "name": "ann"}),
    ]
    for topic in ("by_key", "by_value"):
        assert [(key, value) for key, value, _ in records(store, topic)] == joined


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_has_keys(tmp_path: Path, kind: str) -> None:
    """What the refusal says is what helps."""
    store, files = TopicStore(opened(tmp_path / "store")), shop(tmp_path, kind)
    with pytest.raises(BraidError, match="has no column _key") as e:
        run(f"{SHOP}INSERT INTO o SELECT TABLE name FROM customers;", "lenses", store, files)
    written, _, read = (e.value.hint or "").removeprefix("write its rows under a key: ").partition("; and read that: ")
    assert f"{written};" == BY_ID
    run(f"{SHOP}{written}; INSERT INTO p {read};", "lenses", store, files)
    assert [(key, value["name"]) for key, value, _ in records(store, "p")] == [(1, "ann"), (2, "bob")]


# ------------------------------------------------------------------- every door, every dialect


def checked(m: Matrix, store: TopicStore, lost: dict[str, Counter[str]]) -> None:
    """Every cell holds what DuckDB says, and nothing was lost but what the cell says."""
    wrong = {}
    for (door, shape), cell in m.cells.items():
        want, have = wanted(oracle(m, door), cell), found(store, cell)
        if want != have:
            wrong[door, shape] = [list(x.items())[:3] for x in (want - have, have - want)]
        assert sum(want.values()) > 5 or cell.lost, "the cell would show nothing"
        dropped = next(c for name, c in lost.items() if name.split(".")[0] == cell.topic)
        assert set(dropped) <= {"null key"} and (not cell.lost or dropped[cell.lost]), (door, shape, dropped)
    assert not wrong


def locally(folder: Path, dialect: str, seed: int, count: int, limit: int) -> None:
    """All cells in this process, in batches of `limit` records."""
    store = TopicStore(opened(folder / "store"))
    m = build(dialect, folder, store, seed, count)
    _, lost = run("\n".join(m.sql), dialect, store, m.files, limit)
    checked(m, store, {name: Counter(reasons) for name, reasons in lost.items()})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_door(tmp_path: Path, dialect: str) -> None:
    locally(tmp_path, dialect, seed=1, count=100, limit=41)


@pytest.mark.law
@pytest.mark.parametrize(("seed", "count", "limit"), [(2, 240, 23), (3, 240, 1_000_000), (4, 5000, 3000)])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_door_at_length(tmp_path: Path, dialect: str, seed: int, count: int, limit: int) -> None:
    locally(tmp_path, dialect, seed, count, limit)


def on_spark(folder: Path, dialect: str, doors: Sequence[str], count: int) -> None:
    """The same by `braid run`."""
    pytest.importorskip("pyspark")
    from cli_help import on_shared_spark

    store = TopicStore(opened(folder / "store"))
    m = build(dialect, folder, store, seed=6, count=count, doors=doors)
    (folder / "q.sql").write_text("\n".join(m.sql), encoding="utf-8")
    sources = [word for name, path in m.files.items() for word in ("--source", f"{name}={path}")]
    said = on_shared_spark("run", "q.sql", "--store", store.root, "--until-idle", *sources, cwd=folder)
    assert said.code == 0, said.err
    names = [p.name for p in (folder / "store" / "checkpoints").iterdir() if not p.name.endswith(".files")]
    checked(m, store, {name: Counter(d["reason"] for d in read_drops(store.root, name)) for name in names})


@pytest.mark.spark
@pytest.mark.parametrize(
    ("dialect", "doors"),
    [("ksqldb", ["parquet"]), ("risingwave", ["csv", "bare"]), ("sqlstream", ["jsonl"]), ("lenses", ["topic"])],
)
def test_some_doors_on_spark(tmp_path: Path, dialect: str, doors: list[str]) -> None:
    on_spark(tmp_path, dialect, doors, 200)


@pytest.mark.spark
@pytest.mark.law
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_door_on_spark(tmp_path: Path, dialect: str) -> None:
    on_spark(tmp_path, dialect, LOCAL, 1000)


FRAMES = ("pandas", "polars", "arrow", "spark")


def registered(folder: Path, dialect: str, kinds: Sequence[str], count: int) -> None:
    """The same rows as DataFrames of a session, sources of several kinds in each query."""
    pytest.importorskip("pyspark")
    import braid as product
    from braid.testing.on_spark import shared_session

    spark = shared_session()
    store = TopicStore(opened(folder / "store"))
    m = build(dialect, folder, store, seed=7, count=count, doors=["register"])
    with product.connect(dialect, store.root.url, spark) as session:
        for (name, rows), kind in zip(m.frames.items(), kinds, strict=True):
            table = name[-1] in "tu"
            key = None if table and dialect == "sqlstream" else "id"
            frame = frame_of(kind, rows, spark)
            session.register(name, frame, "table" if table else "stream", key=key, time="ts")
        handles = session.execute("\n".join(m.sql))
        for handle in handles:
            handle.await_idle()
        checked(m, store, {h.name: Counter(d["reason"] for d in h.drops()) for h in handles})
        for (name, rows), kind in zip(m.frames.items(), kinds, strict=True):
            table = name[-1] in "tu"
            key = None if table and dialect == "sqlstream" else "id"
            if dialect in ("ksqldb", "risingwave"):
                asked_now(session, m, name, table)
            how = {"kind": "table" if table else "stream", "key": key, "time": "ts"}
            session.register(name, frame_of(kind, rows, spark), **how)  # the same rows
            other = frame_of(kind, rows[1:], spark)
            if not re.search(rf"(?i)\b{name}\b", " ".join(m.sql)):
                session.register(name, other, **how)  # no query reads it: sqlstream joins one table only
                continue
            with pytest.raises(BraidError, match=f"(?i) reads? {name} as it was"):
                session.register(name, other, **how)


def asked_now(session: Any, m: Matrix, name: str, table: bool) -> None:
    """A query over the DataFrame itself gives what DuckDB gives; a table has the last row of each key."""
    rows = session.query(f"SELECT id, cust, price, ts FROM {name} WHERE qty > 3;").to_polars()
    found = Counter((*r[:3], r[3].replace(tzinfo=None)) for r in rows.rows())
    last = "QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts DESC, n DESC) = 1" if table else ""
    standing = f"SELECT * FROM {'l' if name[-1] in 'lt' else 'r'} {last}"
    sql = f"SELECT id, cust, price, ts FROM ({standing}) AS q WHERE qty > 3"
    assert found == Counter(oracle(m, "register").sql(sql).fetchall()), name


@pytest.mark.spark
@pytest.mark.parametrize(("dialect", "kinds"), [("lenses", FRAMES), ("ksqldb", FRAMES), ("risingwave", FRAMES[::-1])])
def test_dataframes_are_a_door(tmp_path: Path, dialect: str, kinds: Sequence[str]) -> None:
    registered(tmp_path, dialect, kinds, 200)


@pytest.mark.spark
@pytest.mark.law
@pytest.mark.parametrize("kinds", [[k] * 4 for k in FRAMES], ids=FRAMES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_kind_of_dataframe_is_a_door(tmp_path: Path, dialect: str, kinds: Sequence[str]) -> None:
    registered(tmp_path, dialect, kinds, 1000)


@pytest.mark.parametrize(("dialect", "sql", "hint"), REFUSED)
@pytest.mark.parametrize("door", ["csv", "bare"])
def test_what_cannot_be_is_refused_with_a_hint(tmp_path: Path, dialect: str, sql: str, hint: str, door: str) -> None:
    m = build(dialect, tmp_path, TopicStore(opened(tmp_path / "store")), seed=1, count=20)
    with pytest.raises(SqlError) as e:
        list(Program(dialect).statements("\n".join([*m.sql, sql.format(door, door)])))
    assert e.value.hint and hint.lower() in f"{e.value} {e.value.hint}".lower()


@pytest.mark.spark
def test_results_in_files_are_read_again(tmp_path: Path) -> None:
    """Nested values, bytes and times, written as CSV and JSON lines and read under the same declaration."""
    pytest.importorskip("pyspark")
    from cli_help import on_shared_spark

    rows = [
        {"id": 1, "b": "AP8=", "c": "08:00", "a": ['x,"y"', None], "m": {"k": 1}, "s": {"p": "2024-03-01", "q": [1.5]}},
        {"id": 2, "b": None, "c": None, "a": None, "m": None, "s": None},
        {"id": 3, "b": "eA==", "c": "23:59:59.999", "a": [], "m": {}, "s": {"p": None, "q": None}},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = "(id INT, b BYTES, c TIME, a ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<p DATE, q ARRAY<DOUBLE>>) "
    sql = "".join(
        f"CREATE STREAM {x} {made} WITH (kafka_topic='{x}', value_format='JSON', partitions=1);"
        f"CREATE STREAM o_{x} AS SELECT * FROM {x};"
        for x in "abc"
    )
    (tmp_path / "q.sql").write_text(sql)
    first = ["--source", "a=in.jsonl", "--source", "b=in.jsonl", "--sink", "o_a=out.csv", "--sink", "o_b=out.jsonl"]
    second = ["--source", "a=in.jsonl", "--source", "b=out.csv/*.csv", "--source", "c=out.jsonl/*.jsonl"]
    for store, words in (("s1", first), ("s2", second)):
        said = on_shared_spark("run", "q.sql", "--store", store, "--until-idle", *words, cwd=tmp_path)
        assert said.code == 0, said.err
    store = TopicStore(opened(tmp_path / "s2"))
    values = {x: [value for _, value, _ in records(store, f"O_{x.upper()}")] for x in "abc"}
    assert len(values["a"]) == 3 and values["a"] == values["b"] == values["c"]
