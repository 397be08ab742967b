"""An archive of the classes that a JVM loads for Braid, read and checked once for all later starts.

In: this Python environment and its Java. Out: a file in it (150 MB), with which Spark starts a third faster.
Rule: it saves time and does nothing else. It is made once for what it is made of (`jvm.archive`), by one process at a
time, from a JVM that runs two small queries: by `make java`, or behind a first run, at the lowest priority. Where it
cannot be made, that is noted beside it, and no run tries again. A JVM that it does not fit reports that in its log and
starts as before.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import subprocess
import sys
import tempfile

from braid.errors import BraidError
from braid.store import opened

PATIENCE = 300.0  # s for a JVM to write its classes
OTHERS = 1  # archive that stays besides: of another Java, say
STATEMENTS = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM m (k INT KEY, v STRING) WITH (kafka_topic='m', value_format='JSON', partitions=2);
CREATE TABLE r (k INT PRIMARY KEY, v STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE STREAM pairs AS SELECT a.k AS k, a.v AS v, b.v AS w FROM l a LEFT JOIN m b
  WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON a.k = b.k;
CREATE TABLE counts AS SELECT r.v AS v, COUNT(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY r.v;
"""  # what a JVM does while it learns: both kinds of exchange, state, a sink
_FAILED = ".failed"  # beside where it would be: it could not be made


def described() -> str:
    """A line for `braid doctor`."""
    from braid.spark.jvm import archive, archived

    if path := archived():
        return f"ok    Spark starts quickly: {path}"
    how = "braid doctor --quick-start"
    if os.path.exists(archive() + _FAILED):
        return f"ok    Spark could start a third faster, but its classes could not be archived; to try again: {how}"
    return f"ok    Spark will start a third faster after a first run, or now: {how}"


def make() -> str:
    """Makes the archive where it is missing; its path. Waits where another process makes it."""
    from braid.spark.holding import alone, clear
    from braid.spark.jvm import archive, archived, java_version

    java_version()
    if path := archived():
        return path
    failed = archive() + _FAILED
    folder = os.path.dirname(failed)
    try:
        os.makedirs(folder, exist_ok=True)
        with alone(folder):
            path = archived() or _made_alone(folder, failed)
        clear(folder, "spark-", [os.path.basename(path), os.path.basename(failed)], OTHERS)
    except PermissionError:
        raise BraidError(f"{folder} cannot be written", "install braid in an environment of your own") from None
    for old in glob.glob(os.path.join(glob.escape(sys.prefix), "braid-spark-*.jsa")):
        os.unlink(old)  # where a development version had it
    return path


def _made_alone(folder: str, failed: str) -> str:
    from braid.spark.holding import NEW
    from braid.spark.jvm import archive_of

    new = os.path.join(folder, f"{NEW}{os.getpid()}.jsa")
    try:
        code = _learn(new)
        if code != 0 or not os.path.exists(new):
            raise BraidError("this Java writes no archive of its classes", "nothing else is affected")
    except Exception:
        with open(failed, "wb"):
            pass
        raise
    path = archive_of(os.stat(new).st_size)
    os.replace(new, path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(failed)
    return path


def _learn(new: str) -> int | None:
    """Two queries in a JVM that writes its classes when it ends; how it ended."""
    from pyspark import SparkContext

    from braid.bind.program import Program
    from braid.lower.lower import lower
    from braid.spark import conf, jvm
    from braid.spark.query import start
    from braid.spark.query_options import QueryOptions
    from braid.topics import TopicStore

    options = f"{jvm.defaults().get(jvm.JAVA_OPTIONS, '')} {jvm.quoted(f'-XX:ArchiveClassesAtExit={new}')}".strip()
    spark = conf.session("local[2]", jvm.CARRIER | {jvm.JAVA_OPTIONS: options})
    process = SparkContext._gateway.proc
    try:
        with tempfile.TemporaryDirectory() as folder:
            store, program = TopicStore(opened(folder)), Program("ksqldb")
            queries = [e.query for e in program.statements(STATEMENTS) if e.query is not None]
            for topic in "lmr":
                store.create(topic, 2)
                lines = [json.dumps({"key": k, "value": {"V": "x"}, "timestamp": k}) for k in range(4)]
                store.append_lines(topic, lines)
            running = [
                start(spark, lower(q), store.store, QueryOptions(trigger={"availableNow": True})) for q in queries
            ]
            for query in running:
                query.await_termination()
    finally:
        conf.end(spark, PATIENCE)
    return process.poll()  # type: ignore[no-any-return]


def make_behind(master: str) -> None:
    """Behind a run whose JVM has ended: a process of its own makes the archive, where there is none, it could be made,
    and nobody is at it. A run never fails by it, and does not wait for it."""
    with contextlib.suppress(OSError, BraidError):
        if _wanted(master):
            from braid.spark.private import own_folder

            paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            env = os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in paths if p)}
            log = os.path.join(own_folder("log"), "quick-start.log")
            with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as target:
                subprocess.Popen(
                    [sys.executable, "-m", "braid", "doctor", "--quick-start"],
                    cwd=sys.prefix,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=target,
                    start_new_session=True,
                    preexec_fn=_behind_all,  # noqa: PLW1509 (one call of the system)
                )


def _behind_all() -> None:
    os.nice(19)


def _wanted(master: str) -> bool:
    from braid.spark.conf import on_one_node
    from braid.spark.holding import made_now
    from braid.spark.jvm import archive, archived

    folder = os.path.dirname(archive())
    if not on_one_node(master) or archived() or os.path.exists(archive() + _FAILED):
        return False
    return os.access(folder if os.path.isdir(folder) else sys.prefix, os.W_OK) and not made_now(folder)
