"""`braid upgrade` of tables: what stands in a topic afterwards is what the new query would have made of all input."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.store import opened
from braid.topics import TopicStore
from cli_help import Said, on_shared_spark
from made_once import after
from test_upgrade import QUIET, killed_at

pytestmark = [pytest.mark.spark, pytest.mark.operations]

KSQLDB = """
CREATE STREAM l (k INT KEY, v STRING, n INT) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE TABLE r (k INT PRIMARY KEY, w STRING, z INT) WITH (kafka_topic='r', value_format='JSON', partitions=2);
"""
QUERIES = {  # name, what it was, what it is
    "grouped": (
        KSQLDB,
        "CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l GROUP BY k HAVING COUNT(*) > 2;",
        "CREATE TABLE t AS SELECT k, COUNT(*) AS c, SUM(n) AS s FROM l WHERE n > 1 GROUP BY k HAVING COUNT(*) > 1;",
    ),
    "windowed": (
        KSQLDB,
        "CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l WINDOW TUMBLING (SIZE 5 SECONDS) GROUP BY k;",
        "CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l WINDOW TUMBLING (SIZE 3 SECONDS) GROUP BY k;",
    ),
    "session": (
        KSQLDB,
        "CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l WINDOW SESSION (2 SECONDS) GROUP BY k;",
        "CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l WINDOW SESSION (3 SECONDS) WHERE n < 4 GROUP BY k;",
    ),
    "final": (
        KSQLDB,
        """CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l WINDOW TUMBLING (SIZE 5 SECONDS, GRACE PERIOD 1 SECOND)
            GROUP BY k EMIT FINAL;""",
        """CREATE TABLE t AS SELECT k, COUNT(*) AS c, MAX(n) AS m FROM l
            WINDOW TUMBLING (SIZE 5 SECONDS, GRACE PERIOD 2 SECONDS) GROUP BY k EMIT FINAL;""",
    ),
    "joined": (
        KSQLDB + "CREATE TABLE g AS SELECT k, COUNT(*) AS c FROM l GROUP BY k;",
        "CREATE TABLE t AS SELECT r.k AS k, w, c FROM r JOIN g ON r.k = g.k;",
        "CREATE TABLE t AS SELECT r.k AS k, w, z, c FROM r LEFT JOIN g ON r.k = g.k WHERE z <> 3;",
    ),
}


def run(root: Path, sql: str, *words: str) -> Said:
    (root / "q.sql").write_text(sql)
    return on_shared_spark(*(words or ("run",)), "q.sql", "--store", "s", *(() if words else QUIET), cwd=root)


def put(root: Path, step: int) -> None:
    """Records of a step, some late, some that delete."""
    rng = random.Random(step)
    store = TopicStore(opened(root / "s"))
    for name, columns in (("r", "w z"), ("l", "v n")):
        store.create(name, 2)
        made = []
        for i in range(12):
            k, (text, number) = rng.randrange(6), columns.upper().split()
            value = {text: f"{name}{step}-{i}", number: rng.randrange(6)}
            gone = name == "r" and rng.random() < 0.3
            at = max(10_000 * step + rng.randrange(-4_000, 9_000), 0)
            made.append({"key": k, "partition": k % 2, "value": None if gone else value, "timestamp": at})
        store.append(name, made)


def stands(root: Path, topic: str = "T") -> dict[str, str]:
    """The last record of each key."""
    store, found = TopicStore(opened(root / "s")), dict[str, str]()
    for p, end in enumerate(store.end_offsets(topic)):
        for line in store.read(topic, p, 0, end)["_line"]:
            x = json.loads(line)
            found[json.dumps([p, x["key"], x.get("window")])] = line
    return {key: line for key, line in found.items() if json.loads(line)["value"] is not None}


def records(root: Path, topic: str = "T") -> int:
    return sum(TopicStore(opened(root / "s")).end_offsets(topic))


def stepped(sql: str, steps: int) -> Path:
    """A store whose queries have read so many steps, one by one."""

    def one(root: Path, step: int) -> None:
        put(root, step)
        assert (said := run(root, sql)).code == 0, said.err

    return after(steps, sql, one)


def sound(sql: str, steps: int) -> dict[str, str]:
    """What stands where it has always been so."""
    return stands(stepped(sql, steps))


def begun(root: Path, sql: str) -> None:
    shutil.copytree(stepped(sql, 3), root, dirs_exist_ok=True)


@pytest.mark.parametrize(
    "name", [x if x in ("grouped", "final", "joined") else pytest.param(x, marks=pytest.mark.law) for x in QUERIES]
)
def test_what_stands_is_put_right(tmp_path: Path, name: str) -> None:
    first, old, new = QUERIES[name]
    begun(tmp_path, first + old)
    before, had = stands(tmp_path), records(tmp_path)
    said = run(tmp_path, first + new, "upgrade")
    assert said.code == 0, said.err
    wanted = sound(first + new, 3)
    assert stands(tmp_path) == wanted != before
    changed = {k for k in {*before, *wanted} if before.get(k) != wanted.get(k)}
    assert records(tmp_path) - had == len(changed), "what stands as it should is not written again"
    assert f"the rows of T are corrected: {len(changed)} records" in said.out
    put(tmp_path, 3)
    assert (said := run(tmp_path, first + new)).code == 0, said.err
    assert stands(tmp_path) == sound(first + new, 4)
    assert on_shared_spark("verify", "--store", "s", cwd=tmp_path).code == 0
    assert "T goes on" in run(tmp_path, first + new, "upgrade").out


@pytest.mark.parametrize(
    "point",
    [
        "difference staged",
        "difference written",
        *(pytest.param(x, marks=pytest.mark.law) for x in ("upgrade is ready", "checkpoint removed")),
    ],
)
def test_an_upgrade_of_a_table_that_was_killed_is_ended(tmp_path: Path, point: str) -> None:
    first, old, new = QUERIES["grouped"]
    begun(tmp_path, first + old)
    before, had = stands(tmp_path), records(tmp_path)
    with killed_at(point):
        run(tmp_path, first + new, "upgrade")
    assert "an upgrade of T was begun" in run(tmp_path, first + old).err
    assert run(tmp_path, first + new, "upgrade").code == 0
    wanted = sound(first + new, 3)
    assert stands(tmp_path) == wanted
    assert records(tmp_path) - had == sum(before.get(k) != wanted.get(k) for k in {*before, *wanted})
    put(tmp_path, 3)
    assert run(tmp_path, first + new).code == 0
    assert stands(tmp_path) == sound(first + new, 4)
