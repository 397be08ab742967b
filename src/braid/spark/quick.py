"""A quicker start: an archive of the classes that a JVM loads for Braid, read and checked once for all later starts.

In: nothing. Out: a file in this Python environment, and the option with which a JVM takes it.
Rule: it saves time and does nothing else. A JVM that it does not fit (another Java, other jars) says so in its log
and starts as before.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile

import pyspark

from braid.bind.program import Program
from braid.errors import BraidError
from braid.lower.lower import lower
from braid.spark import conf
from braid.spark.query import start
from braid.topics import TopicStore

PATIENCE = 300.0  # s for a JVM to write its classes
WORDS = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM m (k INT KEY, v STRING) WITH (kafka_topic='m', value_format='JSON', partitions=2);
CREATE TABLE r (k INT PRIMARY KEY, v STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE STREAM pairs AS SELECT a.k AS k, a.v AS v, b.v AS w FROM l a LEFT JOIN m b
  WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON a.k = b.k;
CREATE TABLE counts AS SELECT r.v AS v, COUNT(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY r.v;
"""  # what a JVM does while it learns: both kinds of exchange, state, a sink


def make() -> str:
    """Makes the archive, from a JVM that runs two small queries. About a minute."""
    path = conf.archive()
    if not os.access(os.path.dirname(path), os.W_OK):
        raise BraidError(f"{os.path.dirname(path)} cannot be written to", "install braid in an environment of your own")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # a JVM that starts with one cannot write one
    new = f"{path}~{os.getpid()}"
    spark = conf.session("local[2]", conf.CARRIER | {conf.JAVA_OPTIONS: conf.quoted(f"-XX:ArchiveClassesAtExit={new}")})
    try:
        with tempfile.TemporaryDirectory() as folder:
            store, program = TopicStore(folder), Program("ksqldb")
            queries = [e.query for e in program.statements(WORDS) if e.query is not None]
            for topic in "lmr":
                store.create(topic, 2)
                lines = [json.dumps({"key": k, "value": {"V": "x"}, "timestamp": k}) for k in range(4)]
                store.append_lines(topic, lines)
            running = [start(spark, lower(q), folder, trigger={"availableNow": True}) for q in queries]
            for query in running:
                query.await_termination()
    finally:
        conf.end(spark, PATIENCE)
    if not os.path.exists(new):
        raise BraidError("this Java writes no archive of its classes", "nothing else is amiss")
    os.replace(new, path)
    return path


def described() -> str:
    """What `braid doctor` says of it."""
    path = conf.archive()
    if os.path.exists(path):
        return f"ok    Spark starts quickly: {path}"
    return f"ok    Spark {pyspark.__version__} could start in two thirds of the time: braid doctor --quick-start"
