"""A session answers from its DataFrames, refuses what it cannot do, and tells what was lost.

Rule: each thing is told once, as a warning at the caller's line.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

import braid  # noqa: E402
from braid.errors import BraidError  # noqa: E402
from braid.face.cells import Plan, Rows  # noqa: E402
from braid.store import opened  # noqa: E402
from braid.testing.on_spark import shared_session  # noqa: E402
from braid.topics import TopicStore  # noqa: E402

ROWS = pl.DataFrame({"k": [1, 2, 1], "v": ["a", None, "c"], "gone": [False, False, False]})


@pytest.fixture(scope="module")
def spark() -> Any:
    return shared_session()


@pytest.fixture
def session(spark: Any, tmp_path: Path) -> Iterator[braid.Session]:
    with braid.connect(store=str(tmp_path / "store"), spark=spark) as s:
        yield s


# ----------------------------------------------------------- frames are asked


@pytest.mark.parametrize("kind", ["stream", "table"])
@pytest.mark.parametrize("dialect", ["ksqldb", "risingwave"])
def test_a_query_over_a_registered_frame(dialect: str, kind: Any, spark: Any, tmp_path: Path) -> None:
    with braid.connect(dialect, str(tmp_path / "s"), spark) as s:
        s.register("t", ROWS.to_pandas(), kind=kind, key="k")
        stands = [(1, "a"), (2, None), (1, "c")] if kind == "stream" else [(1, "c"), (2, None)]
        found = s.query("SELECT k, v FROM t;")
        assert sorted(found, key=repr) == sorted(stands, key=repr)
        assert [c.lower() for c in found.columns] == ["k", "v"]
        if dialect == "risingwave":
            assert s.query("SELECT count(*) FROM t WHERE k > 0") == [(len(stands),)]


def test_rows_of_a_frame_that_are_left_out_are_told(spark: Any, tmp_path: Path) -> None:
    rows = pl.DataFrame({"k": [1, None, 3], "v": ["a", "b", "c"], "at": [10, 20, None]})
    with braid.connect("ksqldb", str(tmp_path / "s"), spark) as s:
        s.register("f", rows, time="at")
        with pytest.warns(UserWarning, match="1 record of F cannot be read .*: timestamp column AT holds no time"):
            assert s.query("SELECT k FROM f") == [(1,), (None,)]
        s.register("t", rows, kind="table", key="k")
        with pytest.warns(UserWarning, match="1 record of T has no key: left out"):
            assert s.query("SELECT k FROM t") == [(1,), (3,)]


@pytest.mark.parametrize("dialect", ["ksqldb", "risingwave"])
def test_deleted_rows_of_a_frame_do_not_stand(dialect: str, spark: Any, tmp_path: Path) -> None:
    rows = pl.DataFrame({"k": [1, 2, 1, 3], "v": ["a", "b", "c", "d"], "gone": [False, False, True, None]})
    with braid.connect(dialect, str(tmp_path / "s"), spark) as s:
        s.register("t", rows, kind="table", key="k", deleted="gone")
        assert sorted(s.query("SELECT k, v FROM t")) == [(2, "b"), (3, "d")]


def test_partitions_of_a_frame_are_asked_in_the_order_of_their_times(spark: Any, tmp_path: Path) -> None:
    rows = pl.DataFrame({"k": [1, 1, 2], "v": ["old", "new", "x"], "p": [1, 0, 1], "o": [7, 3, 8], "at": [10, 20, 30]})
    with braid.connect("ksqldb", str(tmp_path / "s"), spark) as s:
        s.register("t", rows, kind="table", key="k", time="at", partition="p", offset="o")
        assert sorted(s.query("SELECT k, v FROM t;")) == [(1, "new"), (2, "x")]
        s.register("none", rows.clear(), key="k", partition="p", offset="o")
        assert s.query("SELECT k FROM none;") == []


def test_a_streaming_frame_has_no_rows_that_stand(spark: Any, session: braid.Session) -> None:
    rate = spark.readStream.format("rate").load()
    session.register("r", rate, time="timestamp")
    with pytest.raises(BraidError, match="R is a streaming DataFrame, which has no current rows") as e:
        session.query("SELECT value FROM r;")
    assert "CREATE … AS SELECT" in (e.value.hint or "")


def test_rows_as_frames(session: braid.Session) -> None:
    session.register("t", ROWS, kind="table", key="k")
    found = session.query("SELECT k, v, k AS again FROM t WHERE v IS NULL;")
    assert isinstance(found, Rows) and found == [(2, None, 2)]
    assert found.to_polars().schema == {"K": pl.Int64, "V": pl.String, "AGAIN": pl.Int64}
    assert isinstance(found.to_pandas(), pd.DataFrame) and found.to_arrow().num_rows == 1
    none = session.query("SELECT k, v FROM t WHERE k = 9;").to_polars()
    assert none.schema == {"K": pl.Int64, "V": pl.String} and none.height == 0
    assert Rows(("a", "a"), [(1, "<b>")]).to_polars().columns == ["a", "a_2"]
    shown = Rows(("a",), [("<b>\x1b[31m",)])._repr_html_()
    assert "<b>" not in shown and "\x1b" not in shown and "&lt;b&gt;" in shown


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("ksqldb", "INSERT INTO t (k, v) VALUES (1, 'a');"),
        ("ksqldb", "INSERT INTO t SELECT * FROM t;"),
        ("risingwave", "INSERT INTO t VALUES (1, 'a')"),
        ("risingwave", "DELETE FROM t"),
        ("sqlstream", "INSERT INTO t VALUES (1, 'a')"),
        ("sqlstream", "INSERT INTO t SELECT STREAM * FROM t"),
        ("lenses", "INSERT INTO t SELECT STREAM k, v FROM t"),
    ],
)
def test_a_frame_is_not_written(dialect: str, sql: str, spark: Any, tmp_path: Path) -> None:
    with braid.connect(dialect, str(tmp_path / "s"), spark) as s:
        s.register("t", ROWS.select("k", "v"), kind="table" if dialect == "risingwave" else "stream", key="k")
        with pytest.raises(BraidError, match=r"[tT] is a registered DataFrame|would read what it writes"):
            s.execute(sql)
        assert s._store.names() == []


def test_a_drop_of_a_frame_says_which_row(session: braid.Session) -> None:
    rows = pl.DataFrame({"k": [1, 2, 3], "v": [1, 0, 2], "p": [0, 1, 1], "o": [5, 7, 8]})
    session.register("a", rows.select("k", "v"), key="k")
    session.register("b", rows, key="k", partition="p", offset="o")
    sql = "CREATE STREAM {0}q AS SELECT k, 10 / v AS q FROM {0};"
    with warnings.catch_warnings(action="ignore"):
        for handle in session.execute(sql.format("a") + sql.format("b")):
            handle.await_idle()
    found = {n: [(d["topic"], d["partition"], d["offset"]) for d in session.drops(n)] for n in ("aq", "bq")}
    assert found == {"aq": [("registered.a", 0, 1)], "bq": [("registered.b", 1, 7)]}


# ------------------------------------------------------- a second registration


def test_a_frame_is_not_exchanged_under_a_query_that_runs(spark: Any, session: braid.Session) -> None:
    made = "CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM t GROUP BY k;"
    session.register("t", ROWS, key="k")
    (handle,) = session.execute(made)
    session.register("t", ROWS.to_pandas(), key="k")  # the same rows: a cell runs twice
    with pytest.raises(BraidError, match=r"O reads [tT] as it was") as e:
        session.register("t", ROWS.head(1), key="k")
    assert "handle.stop()" in (e.value.hint or "")
    handle.await_idle()
    assert session.query("SELECT * FROM o WHERE k = 1;") == [(1, 2)]
    handle.stop()
    session.register("t", ROWS.head(1), key="k")
    session.execute(made)[0].await_idle()
    assert session.query("SELECT * FROM o WHERE k = 1;") == [(1, 3)]


def test_a_streaming_frame_is_not_exchanged_either(spark: Any, session: braid.Session, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    spark.createDataFrame([(1,)], "k int").write.parquet(str(tmp_path / "a" / "x"))

    def frame(name: str) -> Any:
        return spark.readStream.schema("k int").parquet(str(tmp_path / name / "*"))

    session.register("t", frame("a"))
    (handle,) = session.execute("CREATE STREAM o AS SELECT * FROM t;")
    with pytest.raises(BraidError, match=r"O reads [tT] as it was"):
        session.register("t", frame("b"))
    handle.stop()
    session.register("t", frame("b"))


@pytest.mark.parametrize("dialect", ["ksqldb", "risingwave", "sqlstream", "lenses"])
def test_a_query_over_streaming_frames_goes_on_batch_after_batch(dialect: str, spark: Any, tmp_path: Path) -> None:
    """Three batches and more, of each kind of source of Spark's, and over a restart."""
    (tmp_path / "in").mkdir()

    def write(n: int) -> None:
        spark.createDataFrame([(n,)], "k int").coalesce(1).write.parquet(str(tmp_path / "in" / str(n)))

    sources = {
        "f": spark.readStream.schema("k int").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in" / "*")),
        "r": spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load().selectExpr("int(value) AS k"),
    }
    sql = {
        "ksqldb": "CREATE STREAM {0}_o AS SELECT * FROM {0};",
        "risingwave": "CREATE SINK {0}_o AS SELECT * FROM {0};",
        "sqlstream": "CREATE STREAM {0}_o (k INT); INSERT INTO {0}_o SELECT STREAM k FROM {0};",
        "lenses": "SET defaults.topic.autocreate=true; INSERT INTO {0}_o SELECT STREAM k FROM {0};",
    }[dialect]
    for n in range(3):
        write(n)
    for more in (False, True):
        with braid.connect(dialect, str(tmp_path / "s"), spark) as s:
            for name, frame in sources.items():
                s.register(name, frame)
            if more:
                write(3)
            handles = [h for name in sources for h in s.execute(sql.format(name))]
            handles[0].await_idle()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and written(tmp_path / "s").get("r_o", 0) < 6 + 6 * more:
                time.sleep(0.1)
            assert [h.status() for h in handles] == ["running"] * 2
    assert written(tmp_path / "s")["f_o"] == 4 and written(tmp_path / "s")["r_o"] >= 12


def written(root: Path) -> dict[str, int]:
    """How many rows each topic has."""
    topics = TopicStore(opened(root))
    return {name.lower(): sum(topics.end_offsets(name)) for name in topics.names()}


# ----------------------------------------------------------------- sql shows


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("ksqldb", "CREATE STREAM o AS SELECT * FROM t;"),
        ("risingwave", "CREATE MATERIALIZED VIEW o AS SELECT * FROM t"),
        ("risingwave", "CREATE SINK o AS SELECT * FROM t"),
        ("ksqldb", "INSERT INTO u SELECT k, v FROM t;"),
        ("sqlstream", "INSERT INTO u SELECT STREAM k, v FROM t;"),
        ("lenses", "INSERT INTO o SELECT STREAM k, v FROM t;"),
    ],
)
def test_sql_makes_nothing(dialect: str, sql: str, spark: Any, tmp_path: Path) -> None:
    with braid.connect(dialect, str(tmp_path / "s"), spark) as s:
        s.register("t", ROWS.select("k", "v"), key="k")
        if dialect == "ksqldb":
            s.execute("CREATE STREAM u (k BIGINT KEY, v STRING) WITH (kafka_topic='u', format='JSON', partitions=1);")
        if dialect == "sqlstream":
            s.execute("CREATE STREAM u (k BIGINT, v VARCHAR(9));")
        if dialect == "lenses":
            s.execute("SET defaults.topic.autocreate=true;")
        with pytest.raises(BraidError, match="runs queries only") as e:
            s.sql(sql)
        assert "session.execute" in (e.value.hint or "")
        assert isinstance(s.explain(sql), Plan)


def test_sql_takes_a_select(session: braid.Session) -> None:
    for sql in ("SHOW STREAMS;", "SET 'auto.offset.reset' = 'earliest';"):
        with pytest.raises(BraidError, match="this is not a SELECT"):
            session.sql(sql)


# ------------------------------------------------------------------- told


def told(caught: list[warnings.WarningMessage]) -> list[str]:
    assert {w.filename for w in caught} <= {__file__}
    return [str(w.message) for w in caught]


def test_drops_are_told_once(session: braid.Session) -> None:
    session.execute("CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
    (handle,) = session.execute("CREATE STREAM o AS SELECT k, 10 / v AS q FROM s;")
    session.execute("INSERT INTO s (k, v) VALUES (1, 0); INSERT INTO s (k, v) VALUES (2, 5);")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        handle.await_idle()
        handle.await_idle()
        session.execute("SHOW STREAMS;")
    first, why = told(caught)
    assert first == "O dropped 1 row (1 expression): session.drops('O')"
    assert "O: first expression: s partition 0 offset 0: 10 / S.V: division by zero" in why
    assert "1 dropped" in repr(handle) and "<td>O</td>" in handle._repr_html_()
    assert session._repr_html_().count("<td>running</td>") == 1 and session.store in session._repr_html_()
    assert session.explain("o")._repr_html_().startswith("<pre>")
    assert session.execute("SHOW STREAMS;")._repr_html_().count("<tr>") == 3
    assert len(session.drops("o")) == 1


def test_late_rows_and_those_that_cannot_be_read_are_told(spark: Any, tmp_path: Path) -> None:
    with braid.connect("risingwave", str(tmp_path / "s"), spark) as s:
        s.execute("CREATE TABLE t (a INT, at TIMESTAMP, WATERMARK FOR at AS at) APPEND ONLY;")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            s.execute("INSERT INTO t VALUES (1, '2024-01-01 10:00:00');")
            s.execute("INSERT INTO t VALUES (2, '2024-01-01 09:00:00');")
            s._store.append_lines("t", ["no record"], 0)
            assert s.query("SELECT a FROM t") == [(1,)]
        late, unread = told(caught)
        assert late == "1 row was late for t: session.drops('t')"
        assert unread == "1 record of t cannot be read as it is declared: left out"
        assert [d["reason"] for d in s.drops("t")] == ["late"]


def test_times_in_seconds_are_told_of_queries_without_a_clock_too(session: braid.Session) -> None:
    session.register("t", pl.DataFrame({"k": [1, 2], "at": [1709280000, 1709280001]}), key="k", time="at")
    session.execute("CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
    session._store.append("s", [{"key": 1, "value": {"V": 1}, "timestamp": 1709280000}])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for handle in session.execute("CREATE STREAM a AS SELECT * FROM s; CREATE STREAM b AS SELECT * FROM t;"):
            handle.await_idle()
    said = [t for t in told(caught) if "look like seconds" in t]
    assert [t.partition(":")[0] for t in sorted(said)] == ["A", "B"]
    assert "1,709,280,000 was read as milliseconds, so as 1970-01-20T18:48:00.000Z" in min(said)


def test_a_record_that_no_topic_holds_is_a_drop(session: braid.Session) -> None:
    """Two records of 9 MB, each of which a topic takes, joined; those beside them go out."""
    declared = "CREATE STREAM {0} (k INT KEY, v STRING) WITH (kafka_topic='{0}', value_format='JSON', partitions=1);"
    session.execute(declared.format("a") + declared.format("b"))
    long = "x" * 9_000_000
    for topic in ("a", "b"):
        rows = [{"key": k, "value": {"V": v}, "timestamp": 5} for k, v in ((1, "s"), (2, long), (3, "t"))]
        session._store.append(topic, rows)
    sql = "CREATE STREAM o AS SELECT a.k AS k, a.v AS v, b.v AS w FROM a JOIN b WITHIN 1 SECOND ON a.k = b.k;"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.execute(sql)[0].await_idle()
    assert sorted(session.query("SELECT k, v, w FROM o;")) == [(1, "s", "s"), (3, "t", "t")]
    (drop,) = session.drops("o")
    assert (drop["reason"], drop["key"], drop["value"]) == ("too large", 2, None)
    assert "bytes as a record; a topic of the store takes 16777216" in drop["message"]
    assert "O dropped 1 row (1 too large): session.drops('O')" in told(caught)


def test_a_query_that_died_is_told(session: braid.Session) -> None:
    """Also where nobody waits for it."""
    made = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
    (handle,) = session.execute(made + "CREATE STREAM o AS SELECT * FROM s;")
    session.execute("INSERT INTO s (k, v) VALUES (1, 1);")
    handle.await_idle()
    folder = Path(session.store) / "topics" / "s" / "0"
    before = set(folder.glob("*.jsonl"))
    session.execute("INSERT INTO s (k, v) VALUES (2, 2);")
    for path in set(folder.glob("*.jsonl")) - before:
        path.write_text("torn\n")
    deadline = time.monotonic() + 60
    while handle.status() == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.execute("SHOW STREAMS;")
        session.execute("SHOW STREAMS;")
        with pytest.raises(BraidError, match="query O failed"):
            handle.await_termination(60)
    (said,) = told(caught)
    assert said.startswith("query O failed") and handle.status() == "failed"


def test_the_prompt_tells_the_same(spark: Any, tmp_path: Path) -> None:
    from cli_help import on_shared_spark

    sql = """CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
    CREATE TABLE o AS SELECT k, SUM(10 / v) AS q FROM s GROUP BY k;
    INSERT INTO s (k, v) VALUES (1, 0); INSERT INTO s (k, v) VALUES (1, 5);
    SELECT * FROM o;"""
    said = on_shared_spark("sql", "-e", sql, "--store", "s", cwd=tmp_path)
    assert said.code == 0 and said.out.splitlines()[-1].split() == ["1", "2"], said
    assert said.err.count("warning: O dropped 1 row (1 expression): .drops O") == 1
    assert "warning: O: first expression: s partition 0 offset 0: 10 / S.V: division by zero" in said.err


def test_returning_is_shown_at_every_door(tmp_path: Path) -> None:
    from cli_help import braid as command

    sql = "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (7) RETURNING a + 1 AS b;"
    for words in (("sql", "-e", sql, "--dialect", "risingwave"), ("run", "-e", sql, "--dialect", "risingwave")):
        said = command(*words, "--store", tmp_path / words[0])
        assert said.code == 0 and said.out.split()[-2:] == ["b", "8"], said
    with braid.connect("risingwave", str(tmp_path / "s"), shared_session()) as s:
        assert s.execute(sql).rows.to_polars().rows(named=True) == [{"b": 8}]
