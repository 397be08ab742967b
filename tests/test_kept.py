"""What the JVM keeps of batches that are done stays small, on real Spark."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from braid.store import opened  # noqa: E402
from braid.testing.on_spark import shared_session  # noqa: E402
from braid.topics import TopicStore  # noqa: E402
from spark_help import case, run, write_topics  # noqa: E402

PLANS = JOBS = 50
STAGES = 100


def test_what_its_web_page_would_show_is_bounded() -> None:
    spark = shared_session()
    for _ in range(70):
        spark.range(1).repartition(1).collect()  # two stages
    until = time.monotonic() + 10
    while over(found := shown(spark)) and time.monotonic() < until:  # a thread of Spark removes them
        time.sleep(0.05)
    assert not over(found), found


def over(found: tuple[int, int, int]) -> bool:
    return any(n > most for n, most in zip(found, (PLANS, JOBS, STAGES), strict=True))


def shown(spark: Any) -> tuple[int, int, int]:
    plans, store = spark._jsparkSession.sharedState().statusStore(), spark.sparkContext._jsc.sc().statusStore()
    stage = spark.sparkContext._jvm.java.lang.Class.forName("org.apache.spark.status.StageDataWrapper")
    return plans.executionsCount(), store.jobsList(None).size(), store.store().count(stage)


def test_no_batch_leaves_a_socket_to_delete_at_the_end(tmp_path: Path) -> None:
    spark = shared_session()
    asked, history = case("ss", 9)
    write_topics(TopicStore(opened(tmp_path)), asked, history)
    before = sockets(spark)
    assert run(str(tmp_path), asked, spark, limit=5).progress().batch >= 3
    assert sockets(spark) <= before + 1  # the source's, once a query


def test_a_query_that_was_stopped_is_let_go(tmp_path: Path) -> None:
    """Python held Spark's query, which held what Python had given it for each batch: half a megabyte of Java's each."""
    asked, history = case("ss", 9)
    write_topics(TopicStore(opened(tmp_path)), asked, history)
    running = run(str(tmp_path), asked, shared_session(), limit=5)
    seen = weakref.ref(running)
    running.stop()
    del running
    gc.collect()
    assert seen() is None


def sockets(spark: Any) -> int:
    """Among the paths of `File.deleteOnExit`, none of which is ever taken back."""
    paths = spark.sparkContext._jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
    paths.setAccessible(True)
    return sum(path.endswith(".sock") for path in paths.get(None))
