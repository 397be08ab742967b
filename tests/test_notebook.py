"""A notebook over a day: a query is defined, looked at, changed, and changed again after a restart, in each dialect."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::UserWarning")]
pytest.importorskip("pyspark")

import braid  # noqa: E402
from braid.errors import BraidError  # noqa: E402
from braid.face.effects import bound_whole  # noqa: E402
from braid.face.frames import asked_of  # noqa: E402
from braid.records.wire import Wires  # noqa: E402
from braid.spark.dataframes import files_of  # noqa: E402
from braid.spark.query_options import QueryOptions  # noqa: E402
from braid.store import opened  # noqa: E402
from braid.testing.on_spark import shared_session  # noqa: E402
from braid.topics import TopicStore, registered  # noqa: E402
from cli_help import braid as command  # noqa: E402
from cli_help import on_shared_spark  # noqa: E402

ORDERS = pd.DataFrame({"id": [1, 2, 3], "customer": [7, 8, 7], "amount": [12.5, 3.0, 8.25]})
MORE = pd.DataFrame({"id": [4], "customer": [8], "amount": [99.0]})


@dataclass(frozen=True)
class Words:
    """What a day says in a dialect: `made` of {columns} and {where}; `replaced`: the same that takes its place."""

    declared: str
    made: str
    replaced: str = ""
    name: str = "large"


DAY = {
    "ksqldb": Words(
        "CREATE TABLE names (k BIGINT PRIMARY KEY, name STRING) WITH (kafka_topic='names', value_format='JSON',"
        " partitions=1); INSERT INTO names (ROWTIME, k, name) VALUES (0, 7, 'Ann');"
        " INSERT INTO names (ROWTIME, k, name) VALUES (0, 8, 'Bob');",
        "CREATE STREAM large AS SELECT o.customer AS customer, {columns} FROM orders o"
        " LEFT JOIN names n ON o.customer = n.k WHERE o.amount > {least};",
        "CREATE OR REPLACE STREAM",
        "LARGE",
    ),
    "risingwave": Words(
        "CREATE TABLE names (k BIGINT PRIMARY KEY, name VARCHAR); INSERT INTO names VALUES (7, 'Ann'), (8, 'Bob');"
        " FLUSH;",
        "CREATE MATERIALIZED VIEW large AS SELECT o.customer, {columns} FROM orders o"
        " LEFT JOIN names n ON o.customer = n.k WHERE o.amount > {least};",
    ),
    "sqlstream": Words(
        "CREATE STREAM large (customer BIGINT, id BIGINT, name VARCHAR(9));",
        "CREATE OR REPLACE PUMP p AS INSERT INTO large (customer{names}) SELECT STREAM customer, {columns}"
        " FROM orders WHERE amount > {least};",
        "CREATE OR REPLACE PUMP",
        "P",
    ),
    "lenses": Words(
        "SET defaults.topic.autocreate=true;",
        "INSERT INTO large SELECT STREAM customer, {columns} FROM orders WHERE amount > {least};",
        name="large.1",
    ),
}


@pytest.fixture(scope="module")
def spark() -> Any:
    return shared_session()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def session(spark: Any, store: str) -> Iterator[braid.Session]:
    with braid.connect(store=store, spark=spark) as s:
        yield s


def statement(dialect: str, name: bool, least: int) -> str:
    words = DAY[dialect]
    joined = dialect in ("ksqldb", "risingwave")
    pairs = {"ksqldb": ("o.id AS id", "n.name AS name"), "risingwave": ("o.id", "n.name")}
    one, two = pairs.get(dialect, ("id", "'x' AS name"))
    columns, names = (f"{one}, {two}", ", id, name") if name else (one, ", id")
    assert joined or words.declared
    return words.made.format(columns=columns, names=names, least=least)


def rows(store: str) -> list[dict[str, Any]]:
    """What the topic of the query holds, of each order the last."""
    topics, found = TopicStore(opened(store)), dict[int, dict[str, Any]]()
    name = next(n for n in topics.names() if n.lower().endswith("large"))
    for p, end in enumerate(topics.end_offsets(name)):
        for value in topics.parsed(name, p, 0, end, Wires())["_value"].to_list():
            row = {k.lower(): v for k, v in json.loads(value or '{"id":0}').items()}
            found[row["id"]] = row
    return [found[n] for n in sorted(found) if n]


@pytest.mark.parametrize(
    "dialect", [x if x in ("ksqldb", "risingwave") else pytest.param(x, marks=pytest.mark.law) for x in DAY]
)
def test_a_day(dialect: str, spark: Any, store: str) -> None:
    words = DAY[dialect]
    first, second, third = (statement(dialect, *x) for x in ((False, 5), (True, 5), (True, 10)))
    with braid.connect(dialect, store, spark) as s:
        s.register("orders", ORDERS, key="id" if dialect != "lenses" else None)
        (handle,) = [h for h in s.execute(words.declared + first) if h.name != "none"]
        handle.await_idle()
        assert [r["id"] for r in rows(store)] == [1, 3] and handle.name == words.name
        done = s.upgrade(second)  # it runs meanwhile
        assert any(f"{words.name} has taken the place" in line for line in done.lines), done
        assert handle.status() == "running" and done[0].status() == "running"
        handle.await_idle()
        named = [r for r in rows(store) if r.get("name")]
        assert len(named) == (2 if dialect == "risingwave" else 0), (
            "what a stream has written stands; a table is put right"
        )
        handle.stop()
        s.register("orders", MORE, key="id" if dialect != "lenses" else None)
        s.execute(second)[0].await_idle()
        assert rows(store)[-1] == rows(store)[-1] | {
            "id": 4,
            "name": "Bob" if dialect in ("ksqldb", "risingwave") else "x",
        }
    with braid.connect(dialect, store, spark) as s:  # another kernel
        if dialect in ("ksqldb", "risingwave"):
            assert sorted(r[0] for r in s.query("SELECT id FROM large;")) == [1, 3, 4]
            assert sorted(r[0] for r in s.query("SELECT id FROM orders;")) == [1, 2, 3, 4]
            s.register("orders", MORE, key="id")
            assert len(s.query("SELECT id FROM large;")) == 3 and len(s.query("SELECT id FROM orders;")) == 4
        else:
            assert s.sql("SELECT STREAM id FROM large").columns[:1] != [] and s.sql("SELECT STREAM id FROM orders")
        if dialect == "lenses":
            s.execute("SET defaults.topic.autocreate=true;")
        done = s.upgrade(third)
        assert any("has taken the place" in line for line in done.lines), done
        assert [line.split()[1:] for line in s.upgrade(third).lines] == [["goes", "on"]]
        assert f"{words.name}: removed its checkpoint and drops; it begins again" in s.reset(words.name)
        s.execute(third)[0].await_idle()
        assert [r["id"] for r in rows(store)] == [1, 4]
        assert any("removed" in line for line in s.drop(words.name))
        assert not [n for n in TopicStore(opened(store)).names() if n.lower().endswith("large")]
        s.drop("orders")
        assert registered.names(opened(store)) == []
    assert command("verify", "--store", store).code == 0


def test_every_hint_leads_out(spark: Any, store: str) -> None:
    """From refusal to refusal as hints say; each of them works, and none names a command that would be refused."""
    first, second, third = (statement("ksqldb", *x) for x in ((False, 5), (True, 5), (True, 10)))
    with braid.connect("ksqldb", store, spark) as s:
        s.register("orders", ORDERS, key="id")
        s.execute(DAY["ksqldb"].declared + first)[0].await_idle()
        with pytest.raises(BraidError, match="LARGE exists already, with another definition") as e:
            s.execute(second)
        assert "CREATE OR REPLACE or session.upgrade('…') changes it" in (e.value.hint or "")
        done = s.execute(second.replace("CREATE", "CREATE OR REPLACE"))
        assert "LARGE has changed" in done.lines[0] and done[0].status() == "running"
        s.execute("DROP STREAM large;")  # its checkpoint stays, as it does in ksqlDB
        with pytest.raises(BraidError, match="was made by another query") as e:
            s.execute(third)
        said = str(e.value)
        assert (
            "session.upgrade('…')" in said
            and "session.reset('LARGE')" in said
            and "braid " not in said.lower().split("hint:")[1]
        )
        assert s.upgrade(third)[0].status() == "running"
        for words in (("reset", "LARGE"), ("upgrade", "LARGE")):
            told = command(*words, "--store", store)
            assert told.code == 1 and "a session of Python" in told.err and "session.upgrade" in told.err, told
        s.execute("CREATE STREAM other AS SELECT * FROM large;")[0].await_idle()
        with pytest.raises(BraidError, match="LARGE is bound to other queries: OTHER reads LARGE") as e:
            s.reset("large")
        assert "session.reset('LARGE', cascade=True) resets it too" in (e.value.hint or "")
        with pytest.raises(BraidError, match="is bound to other queries") as e:
            s.drop("large")
        assert "session.drop('LARGE', cascade=True)" in (e.value.hint or "")
        with pytest.raises(BraidError, match=r"ORDERS is read by LARGE") as e:
            s.drop("orders")
        assert "session.drop('LARGE')" in (e.value.hint or "")
        assert s.upgrade("large").lines == ["LARGE goes on"]
        assert len(s.drop("large", cascade=True)) >= 4 and s.queries() == ["query"]
        s.drop("orders")
        s.register("orders", ORDERS, key="id")
        s.execute(first)[0].await_idle()
        assert [r["id"] for r in rows(store)] == [1, 3]
    assert command("upgrade", "LARGE", "--store", store).out.split() == ["LARGE", "goes", "on"]


def test_what_is_refused_goes_on_as_it_was(spark: Any, store: str) -> None:
    first = statement("ksqldb", False, 5)
    with braid.connect("ksqldb", store, spark) as s:
        s.register("orders", ORDERS, key="id")
        (handle,) = s.execute(DAY["ksqldb"].declared + first)
        handle.await_idle()
        s.execute(
            "CREATE STREAM more (id BIGINT KEY, v INT) WITH (kafka_topic='more', value_format='JSON', partitions=1);"
        )
        other = "CREATE OR REPLACE STREAM large AS SELECT m.id AS id, m.v AS v FROM more m JOIN names n ON m.id = n.k;"
        with pytest.raises(BraidError, match="cannot be upgraded: it has not read MORE before") as e:
            s.execute(other)
        assert "session.reset('LARGE')" in (e.value.hint or "") and handle.status() == "running"
        with pytest.raises(KeyboardInterrupt):
            _interrupted(s, statement("ksqldb", True, 5))
        assert handle.status() == "running", "it goes on as it was"
        assert "has taken the place" in s.upgrade(statement("ksqldb", True, 5)).lines[-1]


def _interrupted(s: braid.Session, sql: str) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    work_out, s._engine.work_out = s._engine.work_out, interrupt  # type: ignore[method-assign]
    try:
        s.upgrade(sql)
    finally:
        s._engine.work_out = work_out  # type: ignore[method-assign]


# --------------------------------------------------------------------- frames


def test_a_name_means_all_pieces(session: braid.Session, store: str) -> None:
    at = pd.to_datetime(["2024-03-01 10:00", "2024-03-01 08:00"])
    session.register("t", pd.DataFrame({"k": [1, 2], "at": at}), key="k", time="at")
    session.register("t", pd.DataFrame({"k": [3], "at": at[:1]}), key="k", time="at")
    assert session.query("SELECT k FROM t;") == [(2,), (1,), (3,)]
    (handle,) = session.execute("CREATE STREAM o AS SELECT k, 1 / (k - 3) AS x FROM t;")
    handle.await_idle()
    assert [r[0] for r in session.query("SELECT k FROM o;")] == [2, 1, 3]
    (drop,) = session.drops("o")
    assert (drop["topic"], drop["partition"], drop["offset"]) == ("registered.t", 1, 0), "the piece, and the row in it"
    said = command("usage", "--store", store)
    assert re.search(r"t +2 +3 .*O up to 3", said.out), said.out
    session.execute("CREATE STREAM s (k INT KEY) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
    session._store.append("s", [{"key": 1, "value": {}, "timestamp": 5}])
    told = command("retain", "s", "--for", "1d", "--store", store)
    assert told.code == 0 and "may still read" not in told.out, (
        "a query over frames does not hold back what it never reads"
    )
    assert "braid rm t" in command("retain", "t", "--store", store).err


def test_rows_of_another_shape(session: braid.Session) -> None:
    session.register("t", pd.DataFrame({"k": [1], "v": ["a"]}))
    session.register("t", pd.DataFrame({"k": [1], "v": [2.5]}))  # nobody has read it: another one
    assert session.query("SELECT v FROM t;") == [(2.5,)]
    session.execute("CREATE STREAM o AS SELECT * FROM t;")[0].stop()
    with pytest.raises(BraidError, match="O has read t as it was registered before") as e:
        session.register("t", pd.DataFrame({"k": ["x"], "w": [1]}))
    said = str(e.value)
    assert "k BIGINT, now VARCHAR" in said and "v DOUBLE, now not there" in said and "session.reset('O')" in said
    session.reset("O")
    session.register("t", pd.DataFrame({"k": ["x"], "w": [1]}))
    assert session.query("SELECT * FROM t;") == [("x", 1)]


def test_rows_that_are_there_are_not_added_in_other_bytes(session: braid.Session) -> None:
    """A cell that runs again with another version of the library, or with columns in another order."""
    first = pl.DataFrame({"k": [1, 2], "v": [0.5, float("nan")], "at": [1000, None]})
    session.register("t", first, key="k", time="at")
    session.register("t", first.select("v", "at", "k"), key="k", time="at")
    (piece,) = registered.needed(opened(session.store), "registered.t").pieces
    other = first.with_columns(v=pl.Series([0.5, 1.5]))
    session.register("t", other, key="k", time="at")
    path = Path(registered.path_of(opened(session.store), "t", piece))
    first.write_parquet(path, compression="uncompressed")
    made = replace(piece, crc=zlib.crc32(path.read_bytes()), file="0" * 24 + ".parquet")
    path.rename(path.with_name(made.file))
    registered.change(
        opened(session.store), "t", lambda x: replace(x, pieces=(made, *x.pieces[1:])) if x else pytest.fail()
    )
    session.register("t", first, key="k", time="at")
    assert registered.needed(opened(session.store), "registered.t").rows == 4


def test_all_that_is_wrong_is_told_at_once(session: braid.Session) -> None:
    frame = pl.DataFrame({"k": [1, 2], "v": ["a", "b"], "p": [0, 0], "o": [1, 1], "f": [0.5, 1.5]})
    odd = frame.with_columns(d=pl.duration(days=1), t=pl.time(8))

    def refused(*said: str, **asked: Any) -> None:
        with pytest.raises(BraidError) as e:
            session.register("t", asked.pop("frame", frame), **asked)
        assert all(x in str(e.value) for x in said), e.value
        assert str(e.value).count("hint:") >= len(said)

    refused("deleted='v' is a column of VARCHAR", kind="table", key="k", deleted="v")
    refused("deleted='b' goes with a table", frame=frame.with_columns(b=True), deleted="b")
    refused("has no column x", "has no column y", "time='v' is a column", "table t needs a key",
            kind="table", time="v", partition="x", offset="y")  # fmt: skip
    refused("column d has the type Duration", "column t has the type Time", "time='v' is", frame=odd, time="v")
    refused("two rows are at partition 0, offset 1", partition="p", offset="o")
    refused("partition= needs offset=", partition="p")
    refused("partition='f' is a column of DOUBLE", partition="f", offset="o")
    twice = pd.DataFrame([[1, 2, 3, 4]], columns=["a", "a", "b", "b"])
    refused("two columns of the DataFrame are called a", "called b", frame=twice)
    mixed = pd.DataFrame({"a": [1, "x"], "b": pd.to_timedelta(["1 day", "2 days"]), "c": [object(), 1]})
    refused(
        "column a has values of several types", "column b has the type Duration", "column c has values", frame=mixed
    )
    assert registered.names(opened(session.store)) == []


def test_drops_hold_the_row_and_its_place(session: braid.Session) -> None:
    at = [3000, None, 1000, 2000]
    rows_ = pd.DataFrame({"k": [1, 2, 3, 4], "v": [1, 2, 0, 4], "at": pd.array(at, dtype="Int64")})
    session.register("t", rows_, key="k", time="at")
    session.execute("CREATE STREAM o AS SELECT k, 10 / v AS q FROM t;")[0].await_idle()
    found = {d["reason"]: (d["offset"], d["key"], d["value"]) for d in session.drops("o")}
    assert found["malformed"] == (1, 2, {"V": 2, "AT": None})
    assert found["expression"][0] == 2, "the row in the user's frame, not in the order of times"
    session.register("u", pd.DataFrame({"k": [None, "b"], "v": [1, 2]}), kind="table", key="k")
    with warnings.catch_warnings(action="ignore"):
        session.execute("CREATE TABLE p AS SELECT k, v FROM u WHERE v > 0;")[0].await_idle()
    (lost,) = session.drops("p")
    assert (lost["offset"], lost["key"], lost["value"]) == (0, None, {"V": 1})


def test_a_spoilt_piece_is_named(spark: Any, store: str) -> None:
    with braid.connect("ksqldb", store, spark) as s:
        s.register("t", ORDERS, key="id")
        s.execute("CREATE STREAM o AS SELECT * FROM t;")[0].await_idle()
    for path in (next(Path(store, "frames", "t").glob("*.parquet")), Path(store, "frames", "t.json")):
        before = path.read_bytes()
        for at in (10, len(before) // 2, len(before) - 30):
            path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
            with (
                pytest.raises(BraidError, match=f"{path.name} (is damaged|cannot be read)"),
                braid.connect("ksqldb", store, spark) as s,
            ):
                s.query("SELECT * FROM t;")
            assert command("verify", "--store", store).code == 1
        path.write_bytes(before)
    with braid.connect("ksqldb", store, spark) as s:
        assert len(s.query("SELECT * FROM t;")) == len(s.query("SELECT * FROM o;")) == 3


# ------------------------------------------------------------------- commands


def test_commands_take_names(spark: Any, store: str) -> None:
    with braid.connect("ksqldb", store, spark) as s:
        s.register("orders", ORDERS, key="id")
        s.execute(DAY["ksqldb"].declared + statement("ksqldb", False, 5))[0].await_idle()
    said = command("explain", "large", "--store", store)
    assert said.code == 0 and "left stream-table join" in said.out, said
    said = command("check", "LARGE", "--store", store)
    assert said.code == 0 and "LARGE goes on after batch" in said.out, said
    said = command("upgrade", "Large", "--store", store)
    assert said.out.split() == ["LARGE", "goes", "on"], said
    said = command("explain", "lrge", "--store", store)
    assert said.code == 1 and "queries of" in said.err and "LARGE" in said.err
    assert "cannot read nosuch.sql" in command("explain", "nosuch.sql", "--store", store).err
    Path("large").write_text("CREATE STREAM x (k INT KEY) WITH (kafka_topic='x', value_format='JSON', partitions=1);")
    assert "no query in it" in command("explain", "large", "--store", store).err, "a file goes before a name"
    Path("large").unlink()
    assert command("usage", "--store", store, "--json").out.count('"frame":') == 1
    assert "orders is in use: LARGE reads it" in command("rm", "orders", "--store", store).err
    assert command("reset", "LARGE", "--store", store).code == 0
    assert "removed the DataFrame orders" in command("rm", "orders", "--store", store).out


def test_a_streaming_frame_is_asked_for_again(spark: Any, store: str, tmp_path: Path) -> None:
    sql = "CREATE STREAM o AS SELECT * FROM r;"
    spark.range(2).selectExpr("id AS value").write.parquet(str(tmp_path / "in" / "x"))
    frame = spark.readStream.schema("value long").parquet(str(tmp_path / "in" / "*"))
    with braid.connect("ksqldb", store, spark) as s:
        s.register("r", frame)
        s.execute(sql)[0].await_idle()
    with braid.connect("ksqldb", store, spark) as s:
        assert s.query("SELECT value FROM o;").columns == ("VALUE",)
        with pytest.raises(
            BraidError, match="R is a streaming DataFrame, which is not registered in this session"
        ) as e:
            s.execute(sql)
        assert "session.register('r', …)" in (e.value.hint or "")
        s.register("r", frame)
        assert s.execute(sql)[0].status() == "running"
        with pytest.raises(BraidError, match="R is read by Spark, as it streams"):
            s.upgrade("CREATE STREAM o AS SELECT value + 1 AS v FROM r;")


# --------------------------------------------------------- kernels that are killed


KERNEL = '''
import os, signal, sys, warnings
import pandas as pd
import braid  # noqa: E402
from braid.topics import files

warnings.simplefilter("ignore")
step, store, point, least, most = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]


def die(at):
    if at == point:
        os.kill(os.getpid(), signal.SIGKILL)


cell = f"""
    CREATE TABLE names (k BIGINT PRIMARY KEY, name STRING)
      WITH (kafka_topic='names', value_format='JSON', partitions=1);
    CREATE OR REPLACE STREAM large AS SELECT customer, id, name FROM orders o LEFT JOIN names n ON o.customer = n.k
      WHERE amount > {least};
    CREATE OR REPLACE TABLE spent AS SELECT customer, SUM(amount) AS total, {most}(id) AS n FROM orders
      WHERE amount > {least} GROUP BY customer;"""
s = braid.connect("ksqldb", store, master="local[2]", conf={"spark.ui.enabled": "false"})
if step:
    s.query("SELECT id FROM large;")
frame = pd.DataFrame({"id": [10 * step + 1, 10 * step + 2], "customer": [7, 8], "amount": [10.0 + step, 2.0 + step]})
files.crash_hook = die
s.register("orders", frame, key="id")
for handle in s.execute(cell):
    handle.await_idle()
files.crash_hook = None
assert len(s.query("SELECT id FROM orders;")) == 2 * (step + 1)
print("LARGE", sorted(r[0] for r in s.query("SELECT id FROM large;")))
print("SPENT", sorted(s.query("SELECT customer, total, n FROM spent;")))
s.stop()
'''


def kernel(folder: Path, step: int, least: int, most: str, point: str = "") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", KERNEL, str(step), str(folder / "store"), point, str(least), most]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, cwd=folder)


def seen(done: subprocess.CompletedProcess[str]) -> tuple[list[int], list[tuple[int, float, int]]]:
    assert done.returncode == 0, done.stderr[-3000:]
    large, spent = (line.partition(" ")[2] for line in done.stdout.splitlines() if line[:5] in ("LARGE", "SPENT"))
    return ast.literal_eval(large), ast.literal_eval(spent)


@pytest.mark.operations
@pytest.mark.parametrize(
    "points",
    [("writer taken over",), pytest.param(("upgrade is ready", "writer taken over"), marks=pytest.mark.law)],
    ids=len,
)
def test_a_day_of_kernels_that_are_killed(tmp_path: Path, points: tuple[str, ...]) -> None:
    """Each brings rows and changes both queries; some are killed amid that, and the next does the same cell."""
    assert seen(kernel(tmp_path, 0, 9, "COUNT")) == ([1], [(7, 10.0, 1)])
    orders, large = [(1, 7, 10.0), (2, 8, 2.0)], [1]
    for step, point in enumerate(points, 1):
        least, most = 9 - 4 * step, ("MAX", "MIN")[step - 1]
        assert kernel(tmp_path, step, least, most, point).returncode == -9, point
        orders += [(10 * step + 1, 7, 10.0 + step), (10 * step + 2, 8, 2.0 + step)]
        large += [n for n, _, amount in orders[-2:] if amount > least]
        spent = [(k, [(n, a) for n, c, a in orders if c == k and a > least]) for k in (7, 8)]
        best = max if most == "MAX" else min
        want = [(k, sum(a for _, a in x), best(n for n, _ in x)) for k, x in spent if x]
        assert seen(kernel(tmp_path, step, least, most)) == (large, want), point
    assert command("verify", "--store", tmp_path / "store").code == 0


# ----------------------------------------------------------------- other doors


def test_a_query_that_an_older_version_began_goes_on(spark: Any, store: str) -> None:
    """Its rows come from Spark's source of files, whose log its checkpoint has."""
    sql = "CREATE STREAM o AS SELECT id, amount FROM orders;"
    with braid.connect("ksqldb", store, spark) as s:
        s.register("orders", ORDERS, key="id")
        (effect,) = bound_whole(s._program, sql)
        found = registered.read(opened(store), "orders")
        assert found is not None and effect.query is not None
        frame = files_of(spark, registered.path_of(opened(store), "orders", found.pieces[0]))
        options = QueryOptions(frames={"ORDERS": s._as_read(asked_of(found), frame)})
        s._engine.start(effect.query, options).await_idle()
    assert (Path(store) / "checkpoints" / "O" / "spark").is_dir()
    with braid.connect("ksqldb", store, spark) as s:
        s.register("orders", ORDERS, key="id")
        (handle,) = s.execute(sql)
        handle.await_idle()
        assert [r[0] for r in s.query("SELECT id FROM o;")] == [1, 2, 3]
        handle.stop()
        s.register("orders", MORE, key="id")
        s.execute(sql)[0].await_idle()
        assert TopicStore(opened(store)).end_offsets("O") == [4]
        with pytest.raises(BraidError, match="ORDERS is read by Spark") as e:
            s.upgrade("CREATE STREAM o AS SELECT id, amount, customer FROM orders WHERE amount > 1;")
        assert "session.reset('O')" in (e.value.hint or "")
        assert "O up to 0" in command("usage", "--store", store).out


def test_the_prompt_replaces_a_query(spark: Any, store: str) -> None:
    with braid.connect("ksqldb", store, spark) as s:
        s.register("orders", ORDERS, key="id")
        s.execute(DAY["ksqldb"].declared + statement("ksqldb", False, 5))[0].await_idle()
    said = on_shared_spark(
        "sql", "-e", "SELECT id FROM orders; SELECT id FROM large;", "--store", store, cwd=Path(store)
    )
    assert said.code == 0 and re.findall(r"\d+", said.out) == ["1", "2", "3", "1", "3"], said
    changed = statement("ksqldb", True, 1).replace("CREATE", "CREATE OR REPLACE")
    said = on_shared_spark("sql", "-e", changed + "SELECT id FROM large;", "--store", store, cwd=Path(store))
    assert said.code == 0 and "LARGE has taken the place of what it was" in said.err, said
    here = Path(store).parent
    (here / "day.sql").write_text(
        DAY["ksqldb"].declared.split(" INSERT")[0] + statement("ksqldb", True, 9).replace("CREATE", "CREATE OR REPLACE")
    )
    said = on_shared_spark("run", "day.sql", "--store", store, "--until-idle", cwd=here)
    assert said.code == 1 and "a join cannot be changed" in said.err and "braid upgrade FILE" in said.err, said
    said = on_shared_spark("upgrade", "day.sql", "--store", store, cwd=here)
    assert said.code == 0 and "LARGE has taken the place" in said.out, said
    assert command("upgrade", "large", "--store", store).out.split() == ["LARGE", "goes", "on"], "the catalogue has it"
