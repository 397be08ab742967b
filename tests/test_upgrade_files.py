"""`braid upgrade` of queries that read files, and of those that fill folders."""

from __future__ import annotations

import functools
import json
import random
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.store import opened
from braid.topics import TopicStore
from cli_help import Said, on_shared_spark
from test_upgrade import killed_at
from test_upgrade_tables import stands

pytestmark = [pytest.mark.spark, pytest.mark.operations]

SOURCES = """
CREATE STREAM l (k INT, v STRING, n INT, ts BIGINT)
    WITH (kafka_topic='l', value_format='JSON', partitions=2, timestamp='ts');
CREATE STREAM m (k INT, x STRING, ts BIGINT) WITH (kafka_topic='m', value_format='JSON', partitions=2, timestamp='ts');
CREATE TABLE r (k INT PRIMARY KEY, w STRING, z INT) WITH (kafka_topic='r', value_format='JSON', partitions=2);
"""
OLD = """
CREATE STREAM j AS SELECT l.k AS k, v, x FROM l LEFT JOIN m WITHIN 5 SECONDS GRACE PERIOD 2 SECONDS ON l.k = m.k;
CREATE STREAM u AS SELECT l.k AS k, v, w FROM l JOIN r ON l.k = r.k;
CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l WINDOW TUMBLING (SIZE 5 SECONDS) GROUP BY k;
"""
NEW = """
CREATE STREAM j AS SELECT l.k AS k, v, x, n FROM l LEFT JOIN m WITHIN 8 SECONDS GRACE PERIOD 3 SECONDS ON l.k = m.k;
CREATE STREAM u AS SELECT l.k AS k, v, w, z FROM l JOIN r ON l.k = r.k WHERE n < 5;
CREATE TABLE t AS SELECT k, COUNT(*) AS c, MAX(n) AS m FROM l WINDOW TUMBLING (SIZE 4 SECONDS) GROUP BY k;
"""
FILES = ("--source", "l=in/l*.csv", "--source", "m=in/m*.jsonl", "--source", "r=in/r*.csv")


def put(root: Path, step: int) -> None:
    """Files of a step; the first of the table holds more than a batch."""
    rng = random.Random(step)
    (root / "in").mkdir(exist_ok=True)
    at = [10_000 * step + rng.randrange(9_000) for _ in range(24)]
    lines = [f"{rng.randrange(6)},l{step}-{i},{rng.randrange(7)},{t}" for i, t in enumerate(at[:12])]
    (root / "in" / f"l{step}.csv").write_text("\n".join(["k,v,n,ts", *lines, ""]))
    made = [{"K": rng.randrange(6), "X": f"m{step}-{i}", "TS": t} for i, t in enumerate(at[12:])]
    (root / "in" / f"m{step}.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in made))
    lines = [f"{rng.randrange(6)},r{step}-{i},{i}" for i in range(16 if not step else 3)]
    (root / "in" / f"r{step}.csv").write_text("\n".join(["k,w,z", *lines, ""]))


def run(root: Path, sql: str, *words: str, command: str = "run") -> Said:
    (root / "q.sql").write_text(SOURCES + sql)
    quiet = ("--until-idle", "--quiet", "--batch-rows", "7") if command == "run" else ()
    return on_shared_spark(command, "q.sql", "--store", "s", *FILES, *quiet, *words, cwd=root)


def records(root: Path, topic: str) -> list[list[str]]:
    store = TopicStore(opened(root / "s"))
    return [store.read(topic, p, 0, end)["_line"].to_list() for p, end in enumerate(store.end_offsets(topic))]


def begun(root: Path, sql: str, steps: int, *words: str) -> Path:
    root.mkdir(exist_ok=True)
    for step in range(steps):
        put(root, step)
        assert (said := run(root, sql, *words)).code == 0, said.err
    return root


def test_queries_over_files_go_on(tmp_path: Path) -> None:
    root = begun(tmp_path / "it", OLD, 2)
    before = {x: records(root, x) for x in "JU"}
    with killed_at("last batch taken over"):
        run(root, NEW, command="upgrade")
    said = run(root, NEW, command="upgrade")
    assert said.code == 0 and "J: its upgrade was begun, and is ended now" in said.out, said
    assert {x: records(root, x) for x in "JU"} == before
    put(root, 2)
    assert (said := run(root, NEW)).code == 0, said.err
    half, whole = begun(tmp_path / "half", NEW, 2), begun(tmp_path / "whole", NEW, 3)
    for topic in "JU":
        parts = zip(before[topic], records(half, topic), records(whole, topic), strict=True)
        assert records(root, topic) == [old + new[len(behind) :] for old, behind, new in parts]
    assert stands(root) == stands(whole)
    assert not (root / "s/checkpoints/J~next.files").exists()
    assert "J goes on" in run(root, NEW, command="upgrade").out


def test_files_that_are_gone_or_changed_are_told(tmp_path: Path) -> None:
    root = begun(tmp_path / "it", OLD, 2)
    (root / "q.sql").write_text(SOURCES + NEW)
    said = on_shared_spark("upgrade", "q.sql", "--store", "s", cwd=root)
    assert said.code == 1 and "J has changed, and cannot be upgraded: it has read L from files" in said.err
    assert "--source L=PATH" in said.err
    text = (root / "in/l0.csv").read_text()
    (root / "in/l0.csv").write_text(text.replace("l0-3", "l0-x"))
    said = run(root, NEW, command="upgrade")
    assert said.code == 1 and "l0.csv was changed since it was read" in said.err
    (root / "in/l0.csv").unlink()
    said = run(root, NEW, command="upgrade")
    assert said.code == 1 and "l0.csv is gone" in said.err
    (root / "in/l0.csv").write_text(text)
    assert (said := run(root, NEW, command="upgrade")).code == 0, said


def filled(root: Path) -> list[str]:
    """The rows of a folder, in order."""
    return [line for path in sorted((root / "out").glob("part-*")) for line in path.read_text().splitlines()]


@functools.cache
def filled_by(sql: str, steps: int) -> list[str]:
    """The rows of a folder that a query alone has filled."""
    with tempfile.TemporaryDirectory() as root:
        return filled(begun(Path(root), sql, steps, "--sink", "j=out"))


@pytest.mark.parametrize(
    "point",
    [
        "writer taken over",
        *(pytest.param(x, marks=pytest.mark.law) for x in ("upgrade is ready", "last batch taken over", "upgraded")),
    ],
)
def test_a_folder_of_results_goes_on(tmp_path: Path, point: str) -> None:
    sink, old, new = ("--sink", "j=out"), OLD.split(";", maxsplit=1)[0] + ";", NEW.split(";", maxsplit=1)[0] + ";"
    root = begun(tmp_path / "it", old, 2, *sink)
    before = filled(root)
    with killed_at(point):
        run(root, new, *sink, command="upgrade")
    assert run(root, new, *sink, command="upgrade").code == 0
    assert filled(root) == before and before
    put(root, 2)
    assert (said := run(root, new, *sink)).code == 0, said.err
    half, whole = filled_by(new, 2), filled_by(new, 3)
    assert sorted(filled(root)) == sorted(before + whole[len(half) :])


def test_what_a_sink_cannot_take_on_is_told(tmp_path: Path) -> None:
    sinks = ("--sink", "j=out.csv", "--sink", "t=out")
    root = begun(tmp_path / "it", OLD, 1, *sinks)
    first, _, table, _ = NEW.split(";")
    said = run(root, f"{first};", *sinks[:2], command="upgrade")
    assert said.code == 1 and "the csv files in" in said.err and "have other columns" in said.err
    said = run(root, f"{table};", *sinks[2:], command="upgrade")
    assert said.code == 1 and "the rows of json files in" in said.err
    said = run(root, f"{first};", command="upgrade")
    assert said.code == 1 and "its results go elsewhere than before" in said.err
