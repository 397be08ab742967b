"""The Python face: DataFrames of every kind in every dialect, cells that run twice, and what is refused.

Rule: the Spark session of the tests is somebody else's, in another time zone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

import braid  # noqa: E402
from braid.errors import BraidError, SqlError  # noqa: E402
from braid.functions import Column as ColumnOf  # noqa: E402
from braid.functions import deterministic  # noqa: E402
from braid.testing.on_spark import shared_session  # noqa: E402

ZONE = "spark.sql.session.timeZone"
BEGAN = datetime(2024, 3, 1, 8, tzinfo=UTC)
MS = 1709280000000


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    spark = shared_session()
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "Asia/Tokyo")
    yield spark
    spark.conf.set(ZONE, before)


@pytest.fixture
def session(spark: Any, tmp_path: Path) -> Iterator[braid.Session]:
    with braid.connect(store=str(tmp_path / "store"), spark=spark) as s:
        yield s


def rows_of(frame: Any, name: str) -> list[Any]:
    """What a streaming DataFrame gives, once."""
    frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start().awaitTermination()
    return sorted(tuple(r) for r in frame.sparkSession.table(name).collect())


ROWS = pl.DataFrame(
    {
        "userId": [1, 2, 3, 4],
        "Text": ["a", "b, c", "", None],
        "at": [BEGAN + timedelta(seconds=n) for n in range(4)],
        "paid": [Decimal("1.10"), None, Decimal("-2.00"), Decimal("0.01")],
    },
    schema_overrides={"paid": pl.Decimal(10, 2)},
)
SELECTS = {
    "ksqldb": ("SELECT userid, text, paid FROM t WHERE userid <> 2", ["USERID", "TEXT", "PAID"]),
    "risingwave": ("SELECT userid, text, paid FROM t WHERE userid <> 2", ["userid", "text", "paid"]),
    "sqlstream": ("SELECT STREAM userid, text, paid FROM t WHERE userid <> 2", ["USERID", "TEXT", "PAID"]),
    "lenses": ("SELECT STREAM userId, Text, paid FROM t WHERE userId <> 2", ["userId", "Text", "paid"]),
}


@pytest.mark.parametrize("dialect", SELECTS)
def test_a_dataframe_in_every_dialect(dialect: str, spark: Any, tmp_path: Path) -> None:
    sql, names = SELECTS[dialect]
    with braid.connect(dialect, str(tmp_path / "s"), spark) as s:
        s.register("t", ROWS, key="userId", time="at")
        frame = s.sql(sql)
        shown = [c for c in frame.columns if c not in ("_rowtime", "_op", "_key")]
        assert shown == names
        found = rows_of(frame.select(*names, "_rowtime"), f"every_{dialect}")
    times = [0, 0, 0] if dialect == "risingwave" else [MS, MS + 2000, MS + 3000]  # views have no times
    texts, paid = ["a", "", None], [Decimal("1.10"), Decimal("-2.00"), Decimal("0.01")]
    assert found == list(zip([1, 3, 4], texts, paid, times, strict=True))


def kinds(spark: Any) -> dict[str, Any]:
    instants = ROWS.select("userId", "at")
    return {
        "polars": instants,
        "pandas": instants.to_pandas(),
        "arrow": instants.to_arrow(),
        "naive": pd.DataFrame({"userId": range(1, 5), "at": [t.replace(tzinfo=None) for t in instants["at"]]}),
        "spark": spark.createDataFrame(
            [(n + 1, BEGAN + timedelta(seconds=n)) for n in range(4)], "userId long, at timestamp"
        ),
    }


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow", "naive", "spark"])
def test_every_kind_of_dataframe(kind: str, spark: Any, session: braid.Session) -> None:
    session.register("t", kinds(spark)[kind], key="userId", time="at")
    (handle,) = session.execute("CREATE STREAM o AS SELECT userid, UNIX_TIMESTAMP(at) AS ms FROM t;")
    handle.await_idle()
    assert "4 records in, 4 out" in repr(handle)
    back = braid.connect(store=session.store, spark=spark)
    back.execute("CREATE STREAM o (userid BIGINT KEY, ms BIGINT) WITH (kafka_topic='O', value_format='JSON');")
    assert rows_of(back.sql("SELECT userid, ms FROM o"), f"kind_{kind}") == [
        (n + 1, MS + 1000 * n, MS + 1000 * n) for n in range(4)
    ]


@pytest.mark.parametrize(("dialect", "narrow"), [("risingwave", True), ("ksqldb", False)])
def test_types_narrower_than_those_of_other_dialects(dialect: str, narrow: bool, spark: Any, tmp_path: Path) -> None:
    """A short is a SMALLINT, a float a REAL where the dialect has them."""
    schema = "k int, v smallint, f float, d double"
    frame = spark.createDataFrame([(1, -32768, 1.5, 1.5), (2, None, None, 0.1)], schema)
    with braid.connect(dialect, store=str(tmp_path / "s"), spark=spark) as s:
        s.register("t", frame)
        made = s.sql("SELECT K, V, F, D FROM T EMIT CHANGES" if dialect == "ksqldb" else "SELECT k, v, f, d FROM t")
        types = made.schema.simpleString().lower()
        assert ("v:smallint,f:float,d:double" if narrow else "v:int,f:double,d:double") in types
        found = rows_of(made, f"narrow_{dialect}")
        assert [r[:4] for r in found] == [(1, -32768, 1.5, 1.5), (2, None, None, 0.1)]


def test_a_timestamptz_is_a_moment_for_spark(spark: Any, tmp_path: Path) -> None:
    with braid.connect("risingwave", store=str(tmp_path / "s"), spark=spark) as s:
        s.register("t", spark.createDataFrame([(1, BEGAN)], "k int, at timestamp"))
        made = s.sql("SELECT k, at::timestamptz AS z, at AS a FROM t")
        assert "z:timestamp,a:timestamp" in made.schema.simpleString()
        ((_, z, a, *_),) = rows_of(made.selectExpr("k", "unix_millis(z)", "unix_millis(a)"), "moments")
        assert z == a == MS


def test_rows_that_were_read_are_not_read_again(spark: Any, session: braid.Session) -> None:
    sql = "CREATE STREAM o AS SELECT userid, text FROM t;"
    for count in (4, 4, 5):
        session.register("t", ROWS if count == 4 else ROWS.head(1), key="userId")
        with warnings.catch_warnings(action="ignore"):
            (handle,) = session.execute(sql)
        handle.await_idle()
        handle.stop()
        assert session._store.end_offsets("O") == [count]


def test_a_cell_runs_twice(spark: Any, session: braid.Session) -> None:
    declared = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
    made = "CREATE STREAM o AS -- all of it\n SELECT * FROM s;"
    (first,) = session.execute(declared + made)
    (again,) = session.execute(declared + "create".upper() + " STREAM  o AS SELECT * FROM s;")
    assert again is first and session.execute(declared) == session.execute(declared)
    first.stop()
    (anew,) = session.execute(made)
    assert anew is not first and anew.status() == "running"
    with pytest.raises(SqlError, match="O exists already"):
        session.execute("CREATE STREAM o AS SELECT k, v + 1 AS v FROM s;")
    shown = session.execute("SHOW STREAMS;")
    assert not shown and shown.columns[0] == "name" and {r[0] for r in shown.rows} == {"S", "O"}
    session.execute("DROP STREAM o DELETE TOPIC;")
    (last,) = session.execute(made)
    assert last.status() == "running"


def test_two_sessions_on_one_store(spark: Any, session: braid.Session) -> None:
    text = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
    made = text + "CREATE STREAM o AS SELECT * FROM s;"
    session.execute(made)
    with braid.connect(store=session.store, spark=spark) as other:
        with pytest.raises(BraidError, match="O runs in another session of this process"):
            other.execute(made)
        assert other.execute(text + "CREATE STREAM p AS SELECT * FROM s;")[0].status() == "running"
    session.stop()
    with braid.connect(store=session.store, spark=spark) as later:
        assert later.execute(made)[0].status() == "running"


def test_what_is_refused(spark: Any, session: braid.Session, tmp_path: Path) -> None:
    def refused(message: str, *args: Any, **more: Any) -> None:
        with pytest.raises(BraidError, match=message):
            session.register(*args, **more)

    refused("kind='tabel' is neither", "t", ROWS, kind="tabel")
    refused("column of VARCHAR", "t", ROWS, time="Text")
    refused("no column when", "t", ROWS, time="when")
    refused("needs a key", "t", ROWS, kind="table")
    refused("list is no DataFrame", "t", [1])
    refused("differ only by case", "t", ROWS.rename({"paid": "text"}))
    refused("path parts", "../t", ROWS)
    refused("name=5: it takes a text", 5, ROWS)
    refused(r"key=\['userId'\]: it takes the name of one column", "t", ROWS, key=["userId"])
    refused("column b has values of several types: int, str", "t", pd.DataFrame({"a": [1, 2], "b": [1, "x"]}))
    refused("column a has values of a type that no column has: object", "t", pd.DataFrame({"a": [object()]}))
    refused(
        "column a has the type Object, which no column of a query has",
        "t",
        pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}),
    )
    refused("column 0 is called by no text", "t", pd.DataFrame([[1, "x"], ["y", 2]]))
    with pytest.raises(BraidError, match="unknown dialect 'flink'"):
        braid.connect("flink", spark=spark)
    (tmp_path / "file").write_text("")
    with pytest.raises(BraidError, match="is a file"):
        braid.connect(store=str(tmp_path / "file"), spark=spark)
    with pytest.raises(BraidError, match="does not run over Spark Connect"):
        braid.connect(spark=type("S", (), {"__module__": "pyspark.sql.connect.session"})())
    with pytest.raises(BraidError, match="no query unknown has run"):
        session.drops("unknown")
    assert session.drops() == []
    with pytest.raises(BraidError, match="t is not registered"):
        session.unregister("t")
    session.register("t", ROWS)
    session.unregister("t")
    with pytest.raises(SqlError, match="T"):
        session.sql("SELECT userid FROM t")
    with braid.connect("risingwave", spark=spark) as rising, pytest.raises(SqlError) as e:
        rising.execute("CREATE TABLE s (a INT PRIMARY KEY);")
        rising.sql("SELECT\n  nope FROM s")
    assert e.value.line == 2 and "    nope FROM s\n      ^^^^" in e.value.render().replace("  nope", "nope", 0)


def test_what_a_person_sees(session: braid.Session, capsys: pytest.CaptureFixture[str]) -> None:
    assert dir(braid) == ["BraidError", "Session", "SqlError", "connect"]
    assert all(not n.startswith("_") for n in dir(session)) and {"execute", "sql", "register"} <= set(dir(session))
    assert repr(session) == f"<braid session: ksqldb, {session.store}, no queries>"
    session.execute("CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
    (handle,) = session.execute("CREATE STREAM o AS SELECT * FROM s;")
    assert "O (running)" in repr(session) and set(dir(handle)) == {
        *("await_idle", "await_termination", "drops", "name", "status", "stop", "waiting"),
    }


OWN = """
import polars as pl
import braid  # noqa: E402
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with braid.connect(spark=spark) as s:
    s.register("t", pl.DataFrame({"k": [1, 2], "v": ["a", "b"]}), key="k")
    frame = s.sql("SELECT k, v FROM t")
    frame.writeStream.format("memory").queryName("o").trigger(availableNow=True).start().awaitTermination()
print([tuple(r)[:2] for r in spark.table("o").collect()])
"""


@pytest.mark.operations
def test_a_script_with_a_session_of_its_own(tmp_path: Path) -> None:
    """Run by the Python of a virtual environment that is not activated: `python3` is another one."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
    env["PATH"] = f"{other.parent}:{env['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", OWN], env=env, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout.strip() == "[(1, 'a'), (2, 'b')]", done.stderr[-3000:]
    assert f"and are {sys.executable}" in done.stderr


KILLED = """
import os, signal
import pyspark
import braid
from braid.spark import conf
session = braid.connect()
import polars
session.register("nums", polars.DataFrame({"k": [1, 2], "v": [1, 2]}), key="k")
(handle,) = session.execute("CREATE STREAM o AS SELECT k, v FROM nums;")
handle.await_idle()
os.kill(pyspark.SparkContext._gateway.proc.pid, signal.SIGKILL)
assert conf.jvm_gone(30)
print(handle._running.progress().rows_in)
os._exit(0)
"""


@pytest.mark.operations
def test_progress_is_told_after_the_jvm_has_gone() -> None:
    """What watches a query may ask before its run has noticed."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.strip() == "2", done.stderr[-3000:]


def test_functions_of_a_session(session: braid.Session) -> None:
    """They travel to the tasks as Spark pickles them; another one of the name is another query."""
    factor = 2

    @session.udf
    @deterministic
    def scaled(n: ColumnOf[int]) -> ColumnOf[int]:
        return n * factor

    session.register("nums", pl.DataFrame({"k": [1, 2], "n": [5, None]}), key="k")
    assert rows_of(session.sql("SELECT k, scaled(n) AS n FROM nums"), "scaled")[0][:2] == (1, 10)
    made = "CREATE TABLE sums AS SELECT k, SUM(scaled(n)) AS n FROM nums GROUP BY k;"
    (handle,) = session.execute(made)
    handle.await_idle()
    handle.stop()

    @session.udf
    @deterministic(name="scaled")
    def other(n: ColumnOf[int]) -> ColumnOf[int]:
        return n * 3

    session.execute("DROP TABLE sums;")
    with pytest.raises(BraidError, match="was made by another query") as e:
        session.execute(made)
    assert "-- other: a function of the session, " in str(e.value)
    with pytest.raises(BraidError, match="is not declared deterministic"):
        session.udf(lambda x: x)
