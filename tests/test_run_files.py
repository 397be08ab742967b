"""`braid run` on files that come, grow, are touched and go, with kills between; and the end of the input.

Rule: each row is found exactly once, whatever happened to the run and to the files that were read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from braid.stage import batches  # noqa: E402
from braid.store import opened  # noqa: E402
from cli_help import QUICK, braid, ended, launch, on_shared_spark  # noqa: E402

SQL = """CREATE STREAM s (k INT KEY, v STRING) WITH (kafka_topic='s', value_format='JSON');
CREATE TABLE t (k INT PRIMARY KEY, w STRING) WITH (kafka_topic='t', value_format='JSON');
CREATE STREAM o AS SELECT s.k AS k, v, w, s.rowoffset AS n FROM s LEFT JOIN t ON s.k = t.k;"""
WORDS = ("run", "-e", SQL, "--store", "s", "--source", "s=in/**/*", "--source", "t=t/*.csv", *QUICK)


def records(folder: Path, topic: str, store: str = "s") -> list[dict[str, Any]]:
    said = braid("cat", topic, "--store", folder / store, "--format", "jsonl")
    return [json.loads(line) for line in said.out.splitlines()]


def until(what: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.2)


@pytest.mark.operations
def test_files_come_grow_are_touched_and_go_between_kills(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "1.csv").write_text("k,w\n1,one\n2,two\n")

    def values() -> list[str]:
        return [r["value"]["V"] for r in records(tmp_path, "O")]

    def shows(*wanted: str) -> Callable[[], bool]:
        return lambda: set(wanted) <= set(values())

    process = launch(*WORDS, cwd=tmp_path)
    try:
        until((tmp_path / "s" / "checkpoints" / "O" / "files" / "S.jsonl").exists, process)
        (inside / "m.csv").write_text("k,v\n1,m1\n")
        until(shows("m1"), process)
        with (inside / "m.csv").open("a") as f:
            f.write("2,m2\n3,m")  # the last line is not whole
        (inside / "b.csv.tmp").write_text("k,v\n1,b1\n")
        until(shows("m2"), process)
        os.rename(inside / "b.csv.tmp", inside / "b.csv")
        pl.DataFrame({"k": [2], "v": ["p1"]}).write_parquet(inside / "p.parquet")
        os.utime(inside / "m.csv")
        until(shows("b1", "p1"), process)
        (tmp_path / "t" / "2.csv").write_text("k,w\n3,three\n1,uno\n")  # a change like any other
        until(lambda: _read(tmp_path), process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before = values()
        (inside / "b.csv").unlink()  # its row has gone out
        with (inside / "m.csv").open("a") as f:
            f.write("3\n")
        (inside / "deep").mkdir()
        (inside / "deep" / "j.jsonl").write_text('{"k": 1, "v": "j1"}\n')
        process = launch(*WORDS, cwd=tmp_path)
        until(shows("m3", "j1"), process)
        for n in range(8):  # a kill at any moment
            with (inside / "deep" / "j.jsonl").open("a") as f:
                f.writelines(f'{{"k": 1, "v": "{n}.{i}"}}\n' for i in range(50))
            (inside / f"z{n}.csv").write_text("k,v\n" + "".join(f"2,z{n}.{i}\n" for i in range(50)))
            time.sleep(0.7)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = launch(*WORDS, cwd=tmp_path)
        until(shows("7.49", "z7.49"), process)
        (inside / "last.csv").write_text("k,v\n2,last\n")  # a batch is told to be over when the next one begins
        until(shows("last"), process)
    finally:
        os.killpg(process.pid, signal.SIGINT)
    said = ended(process)
    assert said.code == 0, said.err
    pieces = [line for line in (tmp_path / "s/checkpoints/O/files/S.jsonl").open() if '"rows":0,' not in line]
    copies = list((tmp_path / "s/checkpoints/O.files").glob("*.rows"))
    assert len(copies) < len(pieces) - 4, "copies of what was committed are left"
    found = records(tmp_path, "O")
    assert values()[: len(before)] == before
    assert sorted(r["value"]["V"] for r in found) == sorted(
        [
            "m1",
            "m2",
            "m3",
            "b1",
            "p1",
            "j1",
            "last",
            *(f"{a}{n}.{i}" for a in ("", "z") for n in range(8) for i in range(50)),
        ]
    )
    assert [r["value"]["N"] for r in found] == list(range(len(found)))
    names = {r["value"]["V"]: r["value"]["W"] for r in found}
    assert (names["m1"], names["b1"], names["j1"], names["m3"]) == ("one", "one", "uno", "three")


def _read(folder: Path) -> bool:
    """Whether a batch has been given the rows of the table's second file."""
    return batches.reached(opened(str(folder / "s/checkpoints/O"))).planned["next"].get("1/0") == 4


DAYS = """CREATE STREAM l (k INT KEY, v STRING, t BIGINT) WITH (kafka_topic='l', value_format='JSON', timestamp='t');
CREATE STREAM r (k INT KEY, w STRING, t BIGINT) WITH (kafka_topic='r', value_format='JSON', timestamp='t');
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.w AS w
  FROM l LEFT JOIN r WITHIN 1 HOUR GRACE PERIOD 0 SECONDS ON l.k = r.k;
CREATE STREAM p AS SELECT * FROM o;"""
LENSES = """SET defaults.topic.autocreate=true;
CREATE TABLE l(_key INT, k INT, v STRING, t LONG) FORMAT (INT, JSON);
CREATE TABLE r(_key INT, k INT, w STRING, t LONG) FORMAT (INT, JSON);
WITH a AS (SELECT STREAM * FROM l EVENTTIME BY t);
WITH b AS (SELECT STREAM * FROM r EVENTTIME BY t);
INSERT INTO o SELECT STREAM a.v AS v, b.w AS w FROM a LEFT JOIN b WITHIN 1h ON a.k = b.k;"""


@pytest.mark.parametrize("dialect", ["ksqldb", "lenses"])
def test_the_next_days_files_match_until_the_end(tmp_path: Path, dialect: str) -> None:
    """Orders of the evening are paid after midnight; what is never paid goes out at the end, in every dialect."""
    midnight, minute = 1_700_000_000_000, 60_000
    key = "_key," if dialect == "lenses" else ""

    def rows(name: str, *found: tuple[int, str, int]) -> None:
        own = [f"{k}," if key else "" for k, *_ in found]
        lines = [f"{o}{k},{v},{midnight + t * minute}\n" for o, (k, v, t) in zip(own, found, strict=True)]
        (tmp_path / name).write_text(f"{key}k,{'v' if name[0] == 'l' else 'w'},t\n" + "".join(lines))

    sql = {"ksqldb": DAYS, "lenses": LENSES}[dialect]
    words = ("run", "-e", sql, "--dialect", dialect, "--store", "s", "--source", "l=l*.csv", "--source", "r=r*.csv")

    def run(more: str) -> None:
        said = on_shared_spark(*words, more, *QUICK, cwd=tmp_path)
        assert said.code == 0, said.err

    def out() -> list[tuple[str, str | None]]:
        name = {"ksqldb": "P", "lenses": "o"}[dialect]
        return sorted(
            (low["v"], low["w"])
            for r in records(tmp_path, name)
            for low in [{k.lower(): x for k, x in r["value"].items()}]
        )

    rows("l1.csv", (1, "a", -30), (2, "b", -20), (3, "c", -10))
    rows("r1.csv", (1, "A", -5))
    run("--until-idle")
    assert out() == [("a", "A")]
    rows("l2.csv", (4, "d", 10))
    rows("r2.csv", (2, "B", 5))
    run("--until-idle")
    assert out() == [("a", "A"), ("b", "B")]
    run("--end")
    assert out() == [("a", "A"), ("b", "B"), ("c", None), ("d", None)]
    run("--end")
    assert out() == [("a", "A"), ("b", "B"), ("c", None), ("d", None)]
    rows("r3.csv", (4, "D", 20))
    said = on_shared_spark(*words, "--until-idle", *QUICK, cwd=tmp_path)
    assert said.code == 1 and "has more rows, in r3.csv, but it was closed" in said.err, said.err
