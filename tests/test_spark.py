"""Queries on real Spark give, record for record and in order, what the definitions say: any cut, buckets, tasks and
restarts. Kills: `crash/`."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from braid.errors import BraidError  # noqa: E402
from braid.files.watch import Files  # noqa: E402
from braid.lower.lower import lower  # noqa: E402
from braid.operators.changes import POS, SUB, in_order  # noqa: E402
from braid.plan.logical import sources  # noqa: E402
from braid.sinks.files import FileSink  # noqa: E402
from braid.sinks.nothing import NoSink  # noqa: E402
from braid.sinks.topic import TopicSink  # noqa: E402
from braid.spark import columns, conf, failures, jvm, runs, stage  # noqa: E402
from braid.spark import query as queries  # noqa: E402
from braid.spark.columns import bucket_ids, spark_partition  # noqa: E402
from braid.spark.limit import Limit  # noqa: E402
from braid.spark.private import own_folder  # noqa: E402
from braid.spark.query_options import QueryOptions  # noqa: E402
from braid.stage import run_files, state_file  # noqa: E402
from braid.stage.call_order import Moment, Placed  # noqa: E402
from braid.stage.checkpoint_runs import CheckpointRuns, RunObjects  # noqa: E402
from braid.stage.emit import merged  # noqa: E402
from braid.stage.epoch import claim  # noqa: E402
from braid.store import opened  # noqa: E402
from braid.testing.driver import Driver  # noqa: E402
from braid.testing.on_spark import SparkBackend, shared_session  # noqa: E402
from braid.topics import TopicStore  # noqa: E402
from braid.topics.store_value import Store  # noqa: E402
from histories import Raw, explicit_events, query, random_history, random_query, source  # noqa: E402
from law import reference_lines  # noqa: E402
from spark_help import case, in_one_batch, output, run, write_topics  # noqa: E402

HELP = Path(__file__).with_name("spark_help.py")


@pytest.fixture(scope="module")
def spark() -> Any:
    return shared_session()


# ---------------------------------------------------------------- the law


@pytest.mark.parametrize(
    ("shape", "seed", "limit", "buckets", "outputs", "tasks"),
    [
        ("filter", 0, 20, 2, 2, 2),
        ("ss", 1, 5, 1, 1, 1),
        ("ss", 9, 25, 8, 2, 2),
        ("ss-ss-other", 16, 30, 4, 1, 2),  # two stages, and buckets of one output in two tasks
        ("st-ss", 22, 15, 4, 1, 1),
        ("tt-aggregate", 0, 30, 4, 4, 2),
        ("ss-windows", 1, 15, 4, 2, 2),
    ],
)
def test_any_cut_gives_the_same(
    spark: Any, tmp_path: Path, shape: str, seed: int, limit: int, buckets: int, outputs: int, tasks: int
) -> None:
    asked, history = case(shape, seed)
    store = TopicStore(opened(tmp_path))
    write_topics(store, asked, history)
    running = run(str(tmp_path), asked, spark, limit=limit, buckets=buckets, partitions=outputs, tasks=tasks)
    got = output(store)
    assert got == in_one_batch(asked, history, outputs, buckets)
    if outputs == 1:
        assert got[0] == reference_lines(asked, history)
    assert any(got)
    progress = running.progress()
    assert progress.batch >= 1 and progress.lag == 0
    reads = [s.topic for s in sources(asked.root)]
    assert progress.rows_in == sum(1 for topic, *_ in history.records() for t in reads if t == topic)
    assert progress.rows_out == sum(map(len, got))
    assert sum(progress.drops.values()) == len(running.drops())


@pytest.mark.parametrize(
    ("shape", "seed", "batch"),
    [("ss-ss", 9, None), ("ss-st", 13, 1), ("aggregate", 3, 7), ("windows-final", 2, 5), ("sessions", 4, 5)],
)
def test_an_order_given_from_outside(spark: Any, shape: str, seed: int, batch: int | None) -> None:
    """Records one by one, marks between them, read in between, restarted once."""
    rng = random.Random(f"spark order {shape} {seed}")
    asked = random_query(rng, shape)
    history = random_history(rng, asked, explicit=True, length=24)
    backend = SparkBackend(batch, rng.choice([1, 2, 4]))
    try:
        for s in sources(asked.root):
            backend.create_topic(s.topic, len(history.topics[s.topic]))
        backend.create_topic("out", 1)
        backend.start(asked, 0)
        steps: list[tuple[int, str, Any]] = [(r.seq, topic, (p, r)) for topic, p, _, r in history.records()]
        moments = [m for m in history.moments if len(m.partitions) == len(history.topics[m.topic])]
        steps += [(m.seq, m.topic, Moment(m.seq, m.kind, m.time)) for m in moments]
        pumps = {len(steps) // 3, 2 * len(steps) // 3}
        for i, (_, topic, step) in enumerate(sorted(steps, key=lambda x: x[0])):
            if isinstance(step, Moment):
                backend.mark(topic, step)
            else:
                backend.append(topic, [_placed(*step)])
            if i in pumps:
                backend.pump()
        backend.restart()
        backend.pump()
        got = [(r.key, r.value, r.timestamp, r.headers, r.window) for r in backend.records("out", 0)]
    finally:
        backend.close()
    whole = type(history)(history.topics, True, tuple(moments))
    assert explicit_events(asked, whole)
    assert got == reference_lines(asked, whole)


def _placed(partition: int, r: Raw) -> Placed:
    key = None if r.key is None else json.dumps(r.key)
    value = None if r.value is None else json.dumps(r.value)
    return Placed(r.seq, 0, 0, partition, 0, key, value, r.time, r.headers, r.window)


SQL = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM r (k INT KEY, v STRING) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, l.v AS lv, r.v AS rv FROM l LEFT JOIN r
  WITHIN 10 SECONDS GRACE PERIOD 0 SECONDS ON l.k = r.k;
CREATE STREAM late AS SELECT k, lv FROM o WHERE rv IS NULL;
"""


def _drive(runtime: Any) -> Iterator[object]:
    """A chain of two statements, a bad record, a restart, the end."""
    with Driver(runtime=runtime) as d:
        d.execute(SQL)
        for i in range(12):
            d.write("l", key=i % 3, value={"V": f"a{i}"}, timestamp=i * 1500)
            d.write("r", key=i % 4, value={"V": f"b{i}"} if i != 5 else 17, timestamp=i * 1400)
            if i in (3, 7):
                yield d.read("o")
                yield d.read("late")
        d.restart()
        d.write("r", key=0, value={"V": "far"}, timestamp=60_000)
        d.finish()
        yield d.read("late")
        yield d.read("o")
        yield d.drops("o")
        yield [s["bucket"] >= 0 for s in d.explain("o", state=True).get("state", [])]


def test_the_driver_is_the_same_in_both_runtimes(spark: Any) -> None:
    local, real = list(_drive("local")), list(_drive("spark"))
    assert real[:-1] == local[:-1]
    assert any(local[0]) and local[-2]


# ------------------------------------------------------- stops and kills


def test_a_stopped_query_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    asked, history = case("ss", 9)
    store = TopicStore(opened(tmp_path))
    write_topics(store, asked, history)
    plan = lower(asked)
    first = queries.start(spark, plan, Store(opened(str(tmp_path))), QueryOptions(limit=15, buckets=2, partitions=1))
    deadline = time.monotonic() + 120
    while first.progress().batch < 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    first.stop()
    assert first.status() == "stopped"
    second = queries.start(spark, plan, Store(opened(str(tmp_path))), QueryOptions(limit=20))
    assert second.job.run == first.job.run and second.job.buckets == 2
    assert second.progress().state_rows > 0, "what is kept is known before the first batch"
    second.await_idle()
    assert output(store) == [reference_lines(asked, history)]
    assert second.status() == "running"
    assert len([p for p in second.state() if p["steps"]]) == 2
    second.stop()
    kept = list((tmp_path / "checkpoints" / "OUT" / "runs").rglob("*.arrow"))
    named = json.dumps(second.state())
    assert len([f for f in kept if f'"{f.stem}"' in named]) > 2
    with pytest.raises(BraidError, match="buckets"):
        queries.start(spark, plan, Store(opened(str(tmp_path))), QueryOptions(buckets=4))
    other = lower(query(next(iter(sources(asked.root)))))
    with pytest.raises(BraidError, match="was made by another query"):
        queries.start(spark, other, Store(opened(str(tmp_path))))


def test_what_a_killed_driver_leaves_before_the_first_batch_is_no_hindrance(spark: Any, tmp_path: Path) -> None:
    """The state of batch 0 is written to a file beside, and renamed."""
    asked, history = case("ss", 9)
    store, plan = TopicStore(opened(tmp_path)), lower(asked)
    for name, partitions in history.topics.items():
        store.create(name, len(partitions))
    queries.start(spark, plan, Store(opened(str(tmp_path))), QueryOptions(partitions=1)).stop()
    left = tmp_path / "checkpoints" / "OUT" / "state" / "0.json~0a1b2c3d"
    left.parent.mkdir(exist_ok=True)
    left.write_text("half")
    topics = TopicStore(opened(tmp_path))
    for name in history.topics:
        topics.delete(name)
    write_topics(topics, asked, history)
    run(str(tmp_path), asked, spark)
    assert output(topics) == [reference_lines(asked, history)]


def _launch(store: Path, log: Any, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(HELP), "ss-ss", "3", str(store), "limit=8", "length=120", *options]
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def output_ends(store: TopicStore) -> list[int]:
    return store.end_offsets("out") if store.exists("out") else []


@pytest.mark.cluster
def test_one_core_then_a_cluster_of_two(tmp_path: Path) -> None:
    """A query goes on where there is more to run it: one core, then two executors in processes of their own."""
    asked, history = case("ss-ss", 3, 120)
    store = TopicStore(opened(tmp_path))
    write_topics(store, asked, history)
    spread = ("partitions=2", "buckets=4", "tasks=2")
    with open(tmp_path / "log", "wb") as log:
        process = _launch(tmp_path, log, *spread, "master=local[1]")
        deadline = time.monotonic() + 300
        while process.poll() is None and not any(output_ends(store)) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        early = sum(output_ends(store))
        process = _launch(tmp_path, log, *spread, "master=local-cluster[2,1,1024]", "limit=60")
        assert process.wait(300) == 0, (tmp_path / "log").read_text()[-3000:]
    assert 0 < early < sum(output_ends(store)), "the first run was to do a part"
    assert output(store) == in_one_batch(asked, history, 2, 4)


# ---------------------------------------------------------------- the rest


def test_files_in_place_of_topics(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("K,V,N\n" + "".join(f"{i},x{i},{i % 3}\n" for i in range(50)) + "seven,x,1\n")
    asked = query(source("A", "a"))
    done = run(str(tmp_path), asked, spark, files={"A": Files(str(tmp_path / "a.csv"))}, limit=20)
    assert [line[1] for line in output(TopicStore(opened(tmp_path)))[0]][:2] == [
        '{"A.V":"x0","A.N":0}',
        '{"A.V":"x1","A.N":1}',
    ]
    assert done.progress().rows_out == 50
    assert [d["reason"] for d in done.drops()] == ["malformed"]


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_folders_of_files_as_output(spark: Any, tmp_path: Path, kind: str) -> None:
    import polars as pl

    store = TopicStore(opened(tmp_path))
    store.create("a", 1)
    store.append("a", [{"key": i, "value": {"V": "x", "N": i}, "timestamp": i} for i in range(5)])
    folder = tmp_path / "result"
    run(str(tmp_path), query(source("A", "a")), spark, output=FileSink(str(folder), 1, kind))
    files = list(folder.glob("part-*"))
    read = {"json": pl.read_ndjson, "csv": pl.read_csv, "parquet": pl.read_parquet}[kind]
    (file,) = files
    assert read(file).sort("_rowtime")["A.N"].to_list() == [0, 1, 2, 3, 4]


def test_no_output_counts_its_rows(spark: Any, tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path))
    store.create("a", 1)
    store.append("a", [{"key": i, "value": {"V": "x", "N": i}, "timestamp": i} for i in range(5)])
    done = run(str(tmp_path), query(source("A", "a")), spark, output=NoSink())
    assert done.progress().rows_out == 5
    assert store.names() == ["a"]


def test_a_setting_of_the_session_asks_for_tasks(spark: Any, tmp_path: Path) -> None:
    store, asked = TopicStore(opened(tmp_path)), query(source("A", "a"))
    store.create("a", 2)
    with conf.changed(spark, {"spark.braid.tasks": "some"}), pytest.raises(BraidError, match="no number of tasks"):
        run(str(tmp_path), asked, spark)
    with conf.changed(spark, {"spark.braid.tasks": "1"}):
        assert run(str(tmp_path), asked, spark).job.tasks == 1


def test_why_a_query_died(spark: Any, tmp_path: Path) -> None:
    store = TopicStore(opened(tmp_path))
    store.create("a", 1)
    store.append("a", [{"key": 1, "value": {"V": "x", "N": 1}, "timestamp": 1}])
    running = queries.start(spark, lower(query(source("A", "a"))), Store(opened(str(tmp_path))))
    running.await_idle()
    segment = next((tmp_path / "topics" / "a" / "0").glob("*.jsonl"))
    store.append("a", [{"key": 2, "value": {"V": "x", "N": 1}, "timestamp": 2}])
    for path in (tmp_path / "topics" / "a" / "0").glob("*.jsonl"):
        if path != segment:
            path.write_text("torn\n")
    with pytest.raises(BraidError, match="is not the segment that was committed"):
        running.await_idle()
        running.await_termination(60)
    assert running.status() == "failed"


def test_dataframes_in_and_out(spark: Any, tmp_path: Path) -> None:
    """Registered DataFrames join with a topic; the result is a DataFrame that the user starts, twice."""
    import braid

    for i in range(2):
        (tmp_path / "in").mkdir(exist_ok=True)
        rows = [{"id": k, "text": f"l{k}", "at": 1000 * k + i} for k in range(5)]
        (tmp_path / "in" / f"{i}.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
    frame = spark.readStream.schema("id int, text string, at long").json(str(tmp_path / "in"))
    session = braid.connect(store=str(tmp_path / "store"), spark=spark)
    session.register("l", frame, key="id", time="at")
    session.execute("CREATE STREAM r (k INT KEY, v STRING) WITH (kafka_topic='r', value_format='JSON', partitions=1);")
    store = TopicStore(opened(tmp_path / "store"))
    store.append("r", [{"key": k, "value": {"V": f"r{k}"}, "timestamp": 1000 * k} for k in range(5)])
    store.append("r", [{"key": None, "value": {"V": "nokey"}, "timestamp": 7}])
    sql = "SELECT l.id AS id, l.text AS lt, r.v AS rv FROM l JOIN r WITHIN 1 SECOND ON l.id = r.k"
    result = session.sql(sql)
    for n in range(2):
        target = tmp_path / f"out{n}"
        stream = result.writeStream.format("json").option("path", str(target)).trigger(availableNow=True)
        stream.option("checkpointLocation", str(tmp_path / f"check{n}")).start().awaitTermination()
        got = sorted((r.ID, r.LT, r.RV, r._rowtime) for r in spark.read.json(str(target)).collect())
        assert got == sorted((k, f"l{k}", f"r{k}", 1000 * k + i) for k in range(5) for i in range(2))
        assert [(d["reason"], d["topic"], d["offset"]) for d in session.drops()] == [("null key", "r", 5)] * (n + 1)
    store.delete("r")
    store.create("r", 1)
    store.append("r", [{"key": k, "value": {"V": f"other{k}"}, "timestamp": 1000 * k} for k in range(9)])
    again = result.writeStream.format("json").option("path", str(tmp_path / "out0")).trigger(availableNow=True)
    with pytest.raises(Exception, match="of the topic r holds other records than those that"):
        again.option("checkpointLocation", str(tmp_path / "check0")).start().awaitTermination()


def test_what_is_dropped_with_its_topic_or_replaced_begins_anew(spark: Any, tmp_path: Path) -> None:
    import braid

    store = TopicStore(opened(tmp_path / "store"))
    session = braid.connect(store=store.root.url, spark=spark)
    session.execute("""
        CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
        INSERT INTO s (rowtime, k, v) VALUES (1, 1, 1); INSERT INTO s (rowtime, k, v) VALUES (2, 2, 2);
    """)
    for _ in range(2):
        (handle,) = session.execute("CREATE STREAM o AS SELECT * FROM s;")
        handle.await_idle()
        assert store.end_offsets("O") == [2]
        session.execute("DROP STREAM o DELETE TOPIC;")
        assert handle.status() == "stopped" and "O" not in store.names()
    views = braid.connect(dialect="sqlstream", store=store.root.url, spark=spark)
    views.execute("CREATE STREAM s (k INT, v INT) OPTIONS (TOPIC 's');")
    for condition, count in (("v > 0", 2), ("v > 1", 1)):
        (handle,) = views.execute(f"CREATE OR REPLACE VIEW w AS SELECT STREAM v FROM s WHERE {condition};")
        handle.await_idle()
        assert store.end_offsets("W") == [count]
    views.stop()


def test_buckets_of_one_output_meet_in_one_task(spark: Any) -> None:
    from pyspark.sql import functions as F

    n = 7
    rows = spark.range(300).select(F.pmod(F.hash(F.col("id").cast("int")), F.lit(n)).alias("p")).collect()
    assert [r.p for r in rows] == [spark_partition(i, n) for i in range(300)]
    assert bucket_ids(8, 2, 2) == (2, 0, 4, 1, 5, 3, 10, 6)
    for buckets, outputs, tasks in [(8, 2, 2), (8, 4, 2), (6, 3, 3), (4, 1, 3)]:
        ids = bucket_ids(buckets, outputs, tasks)
        assert len(set(ids)) == buckets
        for b, key in enumerate(ids):
            assert spark_partition(key, tasks) == b % outputs % tasks
    with pytest.raises(BraidError, match="multiple"):
        bucket_ids(3, 2, 2)


# --------------------------------------------------- parts, without a JVM


class _Handle:
    """Spark's handle of a query that has ended, for a reason or none."""

    isActive = False

    def __init__(self, reason: str | None) -> None:
        self._reason = reason

    def exception(self) -> str | None:
        return self._reason

    def processAllAvailable(self) -> None:
        if self._reason is not None:
            raise RuntimeError(self._reason)

    def awaitTermination(self, timeout: float | None) -> bool:
        return True

    def stop(self) -> None:
        pass


class _Ending(_Handle):
    """One that is seen running so many times, and then has ended."""

    def __init__(self, reason: str | None, times: int) -> None:
        super().__init__(reason)
        self._left = times

    @property
    def isActive(self) -> bool:  # type: ignore[override]
        self._left -= 1
        return self._left >= 0


def _launched(folder: Path, *handles: _Handle, note: Any = print) -> queries.RunningQuery:
    plan, output, left = lower(case("ss", 1)[0]), TopicSink("o"), list(handles)
    known = {"name": "Q", "run": "Q-1", "plan": plan, "buckets": 1, "tasks": 1, "output": output, "to": output}
    epoch = claim(opened(str(folder)))
    job: Any = SimpleNamespace(
        **known, store=Store(opened(folder)), durable=False, frames=frozenset(), epoch=epoch, replay=None
    )
    made = queries.RunningQuery(job, "", opened(str(folder)), lambda _: left.pop(0), lambda: None, Limit(1), note)
    made.launch()
    return made


@pytest.mark.parametrize("times", range(4))
def test_a_query_that_ends_while_it_is_asked_is_not_done(tmp_path: Path, times: int) -> None:
    """It was: a run that was started again ended at once, with nothing done and no error."""
    made = _launched(tmp_path, _Ending(f"SparkException: {failures.TOO_SLOW}", times), _Ending(None, 99))
    assert [made.status() for _ in range(4)] == ["running"] * 4 and made.exception() is None


TASK = (
    "Job aborted due to stage failure: Task 1 in stage 5.0 failed 4 times, most recent failure: Lost task 1.3 in stage "
)
TASK += "5.0 (TID 9) (10.0.0.12 executor 2): "
OF_SPARK = [
    TASK + "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited with 137",
    "Job aborted due to stage failure: ResultStage 5 (call at X.java:1) has failed the maximum allowable number of"
    " times: 4. Most recent failure reason:\norg.apache.spark.shuffle.MetadataFetchFailedException: Missing an output",
    "Job aborted due to stage failure: A shuffle map stage with indeterminate output was failed and retried. However,"
    " Spark cannot rollback the ResultStage 7 to re-process the input data, and has to fail this job. Please eliminate",
]
OF_A_TASK = [
    TASK + "org.apache.spark.api.python.PythonException: Traceback …\nbraid.errors.BraidError: FetchFailed is a topic",
    TASK + "org.apache.spark.api.python.PythonException: Traceback …\nValueError: ExecutorLostFailure",
]


def test_a_query_that_lost_executors_starts_again(tmp_path: Path) -> None:
    """A few times; and not where a task failed of itself."""
    told: list[str] = []
    for why in OF_SPARK:
        made = _launched(tmp_path, _Handle(why), _Handle(None), note=told.append)
        assert made.await_termination() and made.exception() is None
    assert told == ["Q is started again: Spark has lost executors, and gave the batch up"] * len(OF_SPARK)
    for why in OF_A_TASK:
        assert _launched(tmp_path, _Handle(why), _Handle(None)).status() == "failed"
    never = _launched(tmp_path, *[_Handle(OF_SPARK[0])] * queries.STARTS, _Handle(None), note=told.append)
    assert never.status() == "failed" and len(told) == len(OF_SPARK) + queries.STARTS - 1


@pytest.mark.parametrize("wait", ["await_idle", "await_termination", "status"])
def test_a_query_that_started_too_slowly_starts_again(tmp_path: Path, wait: str) -> None:
    late = f"SparkException: {failures.TOO_SLOW}"

    def running(*reasons: str | None) -> queries.RunningQuery:
        return _launched(tmp_path / str(next(number)), *map(_Handle, reasons))

    number = itertools.count()
    good = running(late, None)
    assert getattr(good, wait)() in (None, True, "stopped") and good.exception() is None
    bad = running("ValueError: x", None)
    never = running(*[late] * queries.STARTS, None)
    for dead, why in ((bad, "failed: ValueError: x"), (never, failures.TOO_SLOW)):
        if wait == "status":
            assert [dead.status() for _ in range(queries.STARTS + 1)][-1] == "failed"
        else:
            with pytest.raises(BraidError, match=why):
                getattr(dead, wait)()
    stopped = running(late, None)
    stopped.stop()
    assert stopped.status() == "failed"


class _State(dict[tuple[str], tuple[str]]):
    """A state store in memory."""

    def getValue(self, key: tuple[str]) -> tuple[str] | None:
        return self.get(key)

    def updateValue(self, key: tuple[str], value: tuple[str]) -> None:
        self[key] = value

    def removeKey(self, key: tuple[str]) -> None:
        del self[key]


FRAME = pl.DataFrame({"_h": [1, 2, 3], "S": ["longer than a string view", None, "c"], "L": [[1], [], None]})
DAMAGES = ["gone", "torn", "empty", "garbled"]


def _damaged(file: Path, damage: str) -> None:
    whole = file.read_bytes()
    match damage:
        case "gone":
            file.unlink()
        case "torn":
            file.write_bytes(whole[: len(whole) // 2])
        case "empty":
            file.write_bytes(b"")
        case "garbled":
            file.write_bytes(whole.replace(b"longer than", b"LONGER THAN"))  # Arrow itself would not notice


def test_a_removed_run_stays_until_its_batch_is_over(tmp_path: Path) -> None:
    """The batch may be done again. What an attempt made that was given up goes when the query begins again."""
    store = opened(tmp_path)
    files, folder = CheckpointRuns(store, "0/1"), tmp_path / "runs/0-1"
    kept, gone, lost = (f"{run_files.run_prefix('c', 4, 0, 1, [b'x'])}-1-{n}" for n in (1, 10, 2))
    for name in (kept, gone, lost):
        assert files.put(name, FRAME) == (folder / f"{name}.arrow").stat().st_size

    def saved(batch: int, *runs: str) -> dict[str, dict[str, Any]]:
        """The state behind a batch: it does not name what was lost."""
        state = {"0/1": {"clocks": {}, "steps": {"1": {"runs": [[run, 3, 100] for run in runs]}}}}
        state_file.save(store, batch, state)
        return state

    saved(4, kept, gone)
    assert len(os.listdir(folder)) == 3
    objects = RunObjects(store)
    objects.begin()
    assert sorted(os.listdir(folder)) == sorted(f"{name}.arrow" for name in (kept, gone))
    made = f"{run_files.run_prefix('c', 5, 0, 1, [b'x'])}-1-0"
    files.put(made, FRAME.head(1))
    files.remove(gone)
    run_files._frames.clear()
    objects.keep(5, saved(5, kept, made))  # the batch may be done again
    assert files.get(gone).equals(FRAME) and files.get(made).equals(FRAME.head(1))
    (folder / ".nfs0001").touch()  # what a network file system leaves of a mapped file
    objects.keep(6, saved(6, kept, made))
    (folder / ".nfs0001").unlink()
    assert sorted(os.listdir(folder)) == sorted(f"{name}.arrow" for name in (kept, made))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named(tmp_path: Path, damage: str) -> None:
    files = CheckpointRuns(opened(tmp_path), "0/0")
    files.put("q-0-0-0-0", FRAME)
    run_files._frames.clear()
    assert files.get("q-0-0-0-0").equals(FRAME)
    run_files._frames.clear()
    _damaged(tmp_path / "runs/0-0/q-0-0-0-0.arrow", damage)
    why = "missing" if damage == "gone" else "torn"
    with pytest.raises(BraidError, match=rf"a state file is {why}: .*q-0-0-0-0\.arrow") as e:
        files.get("q-0-0-0-0")
    assert e.value.hint and "braid reset QUERY lets it begin again" in e.value.hint


def test_a_run_without_room_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BraidError, match="cannot be written") as e:
        CheckpointRuns(opened(tmp_path / "file" / "q"), "0/0").put("q-0-0-0-0", FRAME)
    assert e.value.hint and "nothing is lost" in e.value.hint


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_lost_cache_file_is_made_again(tmp_path: Path, damage: str) -> None:
    frame = FRAME
    store = runs.StoreRuns(_State(), str(tmp_path))
    assert store.put("q-0-0-0-0", frame) > 0
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    run_files._frames.clear()
    _damaged(file, damage)
    assert store.get("q-0-0-0-0").equals(frame)
    run_files._frames.clear()
    assert file.read_bytes() == whole and store.get("q-0-0-0-0").equals(frame)
    store.remove("q-0-0-0-0")
    assert not file.exists()
    with pytest.raises(BraidError, match="missing"):
        store.get("q-0-0-0-0")


def test_the_cache_folder_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted under a running query; or never there, on a node without a driver."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Path(own_folder("state/run"))
    store = runs.StoreRuns(_State(), str(folder))
    shutil.rmtree(folder.parent.parent)
    store.put("q-0-0-0-0", pl.DataFrame({"a": [1]}))
    assert [f.name for f in folder.iterdir()] == ["q-0-0-0-0.arrow"]
    assert folder.parent.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "abc", "QQ==", "é"])
def test_a_damaged_copy_of_state_is_named(tmp_path: Path, text: str) -> None:
    state = _State()
    store = runs.StoreRuns(state, str(tmp_path))
    state[("q-1-2-3-4",)] = (text,)
    with pytest.raises(BraidError, match="run q-1-2-3-4 of the state cannot be read") as e:
        store.get("q-1-2-3-4")
    assert e.value.hint and "braid reset QUERY lets it begin again" in e.value.hint


@pytest.mark.parametrize("spill", [1, 1 << 40])
def test_large_outputs_are_merged_piece_by_piece(monkeypatch: pytest.MonkeyPatch, spill: int) -> None:
    monkeypatch.setattr(stage, "PIECE", 50)
    monkeypatch.setattr(stage, "SPILL", spill)
    rng = random.Random(5)
    parts: list[list[tuple[int, bytes, int]]] = [[] for _ in range(4)]
    for i in range(1000):
        parts[rng.randrange(4)].append((rng.choice([i, 500]), bytes([1, rng.randrange(9)]), i))
    schema = {POS: pl.Int128, SUB: pl.Binary, "x": pl.Int64}
    frames = [pl.DataFrame(sorted(p, key=lambda r: r[:2]), schema=schema, orient="row") for p in parts]
    with stage.Shelf() as held:
        blobs = [
            columns.Blob(1, bucket, 0, columns.ROWS, columns.dumps(frame.slice(start, 40), start // 40))
            for bucket, frame in enumerate(frames)
            for start in range(0, frame.height, 40)
        ]
        rng.shuffle(blobs)  # the exchange promises no order
        for blob in blobs:
            held.put(blob, blob.frame)
        pieces = list(stage.in_pieces(held))
    assert len(pieces) > 5 and max(p.height for p in pieces) <= 50
    got = pl.concat(pieces)
    assert got.equals(in_order(got)) and got.sort("x").equals(merged(frames).sort("x"))


def cleared() -> None:
    """Files go while the next batch begins: waits for it."""
    for thread in threading.enumerate():
        if thread.name == "braid-clear":
            thread.join()


def test_large_frames_travel_in_files(tmp_path: Path) -> None:
    """Small ones never; large ones too where there is no room for a file. A batch's files go with it."""
    rows = 20_000
    frame = pl.DataFrame({POS: pl.Series([i << 70 for i in range(rows)], dtype=pl.Int128), "x": range(rows)})
    frame = frame.with_columns(pl.lit(None, pl.Binary).alias(SUB))
    folder = tmp_path / "wire"
    folder.mkdir()
    assert columns.loads(columns.dumps(frame.head(9), 3, str(folder))).equals(frame.head(9)) and not os.listdir(folder)
    blob = columns.dumps(frame, 3, str(folder))
    assert (columns.height(blob), columns.piece(blob)) == (rows, 3) and len(blob) < 300 < columns.size(blob)
    assert columns.loads(blob, str(folder)).equals(frame)
    columns.clear(str(folder))
    cleared()
    assert not os.listdir(folder)
    with pytest.raises(BraidError, match="a part of the batch is missing"):
        columns.loads(blob, str(folder))
    folder.rmdir()
    folder.touch()  # no place for files
    blob = columns.dumps(frame, 0, str(folder))
    assert columns.size(blob) == len(blob) and columns.loads(blob).equals(frame)


def test_what_was_left_long_ago_is_cleared(tmp_path: Path) -> None:
    for name in ("mine", "killed", "runs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "frame").touch()
    os.utime(tmp_path / "killed", (1, 1))
    columns.clear_abandoned(str(tmp_path / "mine"))
    cleared()
    assert sorted(os.listdir(tmp_path)) == ["mine", "runs"] and not os.listdir(tmp_path / "mine")


def test_the_reason_is_what_the_user_can_act_on() -> None:
    text = """[STREAM_FAILED] Query terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed:
Traceback (most recent call last):
  File "x.py", line 1, in read
    raise BraidError(...)
braid.errors.BraidError: the topic 'a' has no records 3 to 4
  hint: braid reset Q
 SQLSTATE: 38000"""
    assert queries.reason(text) == "the topic 'a' has no records 3 to 4"
    proxy = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
    jsocket_auth_server.getResult()
py4j.protocol.Py4JJavaError: An error occurred while calling o137.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult: 
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 5.0 failed 1 times
Caused by: org.apache.spark.SparkException: {cause}
Caused by: java.io.EOFException
\t... 27 more"""
    died = "Python worker exited unexpectedly (crashed). Consider setting 'spark.sql…'"
    assert queries.reason(proxy.format(cause=died)) == "a Python process of Spark has ended, killed or out of memory"
    full = "no space left"
    assert queries.reason(proxy.format(cause=full)) == f"org.apache.spark.SparkException: {full}"
    assert queries.advice(text) == "braid reset Q" and queries.advice(proxy) == queries.HINT
    assert queries.reason("") == "no reason given" and queries.reason("odd\nmore") == "odd"


def test_java_is_missed_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BraidError, match="there is no Java") as missing:
        jvm.java_version()
    assert "\n" not in missing.value.message and "JDK" in (missing.value.hint or "")
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_372\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(BraidError, match="Java 8 is too old"):
        jvm.java_version()
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="11.0.2"\n')
    with pytest.raises(BraidError, match="Java 11 is too old"):  # a JDK's own file says it
        jvm.java_version()
