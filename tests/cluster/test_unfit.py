"""Workers that lack something: they are named before a query starts, or before a batch is seen at which they worked."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]
pytest.importorskip("pyspark")

from braid.store import opened  # noqa: E402
from braid.topics import TopicStore  # noqa: E402
from cli_help import Said, ended, launch  # noqa: E402
from cluster.conftest import UNFIT  # noqa: E402
from cluster.nodes import CONF, Cluster, address  # noqa: E402
from crash import processes, world  # noqa: E402
from crash.harness import environment  # noqa: E402
from crash.places import InStore  # noqa: E402

PATIENCE = 300.0  # s: a busy machine


def run(three: Cluster, folder: Path, store: Path, *words: object) -> Said:
    """The run of a query over two topics."""
    InStore(store).write(world.history(1, 10))
    (folder / "q.sql").write_text(world.sql(["WINDOWED"]), encoding="utf-8")
    options = ("--store", store, "--until-idle", "--master", three.url, *CONF)
    return ended(launch("run", "q.sql", *options, *words, cwd=folder, env=environment(folder)))


def untouched(store: Path) -> bool:
    """Whether nothing of the query was written."""
    names = [n for _, _, files in os.walk(store / "checkpoints") for n in files]
    return not names and "WINDOWED" not in TopicStore(opened(store)).names()


def test_a_worker_that_does_not_share_the_store_is_named(three: Cluster, at: Path, apart: Path) -> None:
    store = apart / "s"
    said = run(three, at, store)
    assert said.code == 1 and untouched(store)
    assert f"error: the worker {address(UNFIT)} does not see the folder {store}" in said.err.replace("\n", " "), (
        said.err
    )
    assert "done after" not in said.err


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_worker_that_does_not_see_files_is_named(three: Cluster, at: Path, apart: Path, what: str) -> None:
    """Those of a source, and the folder of a sink, wherever the store lies."""
    source, sink = (apart if what == x else at for x in ("file", "folder"))
    (source / "in.csv").write_text("k,v\n1,2\n", encoding="utf-8")
    sql = """CREATE STREAM f (k INT KEY, v INT) WITH (kafka_topic='f', value_format='JSON', partitions=1);
    CREATE STREAM g AS SELECT * FROM f;"""
    words = ("--source", f"f={source / 'in.csv'}", "--sink", f"g={sink / 'out' / 'g.csv'}")
    store = at / f"store of a {what}"
    options = ("--store", store, "--until-idle", "--master", three.url, *CONF, *words)
    said = ended(launch("run", "-e", sql, *options, cwd=at, env=environment(at)))
    unseen = source / "in.csv" if what == "file" else sink / "out"
    assert said.code == 1, said.err
    assert f"the worker {address(UNFIT)} does not see the {what} {unseen}" in " ".join(said.err.split()), said.err
    assert not (store / "checkpoints" / "G").exists() and not (sink / "out" / "g.csv").exists()


def test_a_worker_that_lacks_the_python_that_was_named(three: Cluster, at: Path, apart: Path) -> None:
    python = apart / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    said = run(three, at, at / "s", "--conf", f"spark.pyspark.python={python}")
    assert said.code == 1 and untouched(at / "s")
    assert f"error: the worker {address(UNFIT)} has no Python {python}" in " ".join(said.err.split()), said.err


def test_a_worker_that_comes_later_and_does_not_share_the_store_is_named(three: Cluster, at: Path, apart: Path) -> None:
    """The query ends before a batch is seen at which it has worked; without that worker it goes on, and is whole."""
    place, history = apart / "later", world.history(2, 40)
    place.mkdir(parents=True)
    store, some = InStore(place / "s"), {t: [p[:20] for p in ps] for t, ps in history.topics.items()}
    store.write(replace(history, topics=some))
    (at / "q.sql").write_text(world.sql(["WINDOWED"]), encoding="utf-8")
    room = [w.replace("spark.cores.max=3", "spark.cores.max=6") for w in CONF]  # for executors on who comes
    words = ("run", "q.sql", "--store", place / "s", "--master", three.url, *room)
    three.kill_worker(UNFIT)
    process = launch(*words, cwd=at, env=environment(at))
    try:
        until(lambda: any(store.written(["WINDOWED"])["WINDOWED"]) or process.poll() is not None)
    except BaseException:
        processes.end(process)
        raise
    finally:
        three.start_worker(UNFIT)
        three.wait_for(UNFIT)
    deadline, rest = time.monotonic() + PATIENCE, {t: [p[20:] for p in ps] for t, ps in history.topics.items()}
    store.write(replace(history, topics=rest))
    while process.poll() is None and time.monotonic() < deadline:
        TopicStore(opened(place / "s")).append_lines("l", [world.line("none", None, 0)], 0)
        time.sleep(0.5)
    said = ended(process, 10)
    assert said.code == 2, said.err
    told, before = " ".join(said.err.split()), store.written(["WINDOWED"])["WINDOWED"]
    assert f"the worker {address(UNFIT)} does not see the folder {place / 's'}" in told, said.err
    assert "this batch is not written" in told, said.err
    for side in "lr":
        TopicStore(opened(place / "s")).append_lines(side, [world.line(1, {"V": "last", "N": 1}, 2_000_000)], 0)
    again = ended(launch(*words, "--until-idle", cwd=at, env=environment(at)))
    assert again.code == 1 and "nothing was written" in " ".join(again.err.split()), again.err
    three.kill_worker(UNFIT)
    try:
        again = ended(launch(*words, "--until-idle", cwd=at, env=environment(at)), 2 * PATIENCE)
    finally:
        three.start_worker(UNFIT)
        three.wait_for(UNFIT)
    assert again.code == 0, again.err
    after = store.written(["WINDOWED"])["WINDOWED"]
    for old, new in zip(before, after, strict=True):
        assert new[: len(old)] == old and len(set(new)) == len(new)
    assert world.line(1, {"LV": "last", "RV": "last"}, 2_000_000) in [row for rows in after for row in rows]


def until(what: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)
