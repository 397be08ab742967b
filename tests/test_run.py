"""`braid run` on files: twice the same command, first as a process, and what must be refused on the way.

Rule: few runs, many looks; a run takes seconds.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Hashable
from pathlib import Path

import polars as pl
import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from braid.files import early  # noqa: E402
from braid.store.files import UNFINISHED  # noqa: E402
from cli_help import QUICK, Said, braid, ended, launch, on_shared_spark, records, spawned  # noqa: E402

SQL = """-- dialect: ksqldb
CREATE STREAM clicks (k INT KEY, page STRING, t BIGINT)
  WITH (kafka_topic='clicks', value_format='JSON', timestamp='t');
CREATE STREAM views (k INT KEY, v STRING, t BIGINT) WITH (kafka_topic='views', value_format='JSON', timestamp='t');
CREATE STREAM more (k INT KEY, v STRING) WITH (kafka_topic='more', value_format='JSON', partitions=1);
CREATE TABLE users (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='users', value_format='JSON', partitions=2);
INSERT INTO users (rowtime, id, name) VALUES (0, 1, 'ann');
INSERT INTO users (rowtime, id, name) VALUES (0, 2, 'bob');
INSERT INTO users (rowtime, id, name) VALUES (0, 2, 'bob');
CREATE STREAM seen AS SELECT c.k AS k, c.page AS page, v.v AS v
  FROM clicks c JOIN views v WITHIN 10 SECONDS GRACE PERIOD 0 SECONDS ON c.k = v.k;
CREATE STREAM named_too AS SELECT k, v FROM more;
CREATE STREAM named AS SELECT c.k AS k, c.page AS page, u.name AS name FROM clicks c LEFT JOIN users u ON c.k = u.id;
SELECT page, name FROM named EMIT CHANGES LIMIT 2;
"""
SOURCES = (
    "--source",
    "clicks=in/clicks*.csv",
    "--source",
    "views=in/views.jsonl.gz",
    "--source",
    "more=in/more.parquet",
)
WORDS = ("run", "q.sql", "--store", "s", "--until-idle", *SOURCES, "--sink", "seen=seen.csv", *QUICK)
HEAD = "K,PAGE,V,_rowtime\n"
CHANGED = SQL.replace("SELECT c.k AS k, c.page AS page, u.name", "SELECT c.k AS k, c.page || '!' AS page, u.name")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said, Said]:
    """Two runs of one command; before the second there is one more file."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "in").mkdir()
    (folder / "q.sql").write_text(SQL)
    clicks = "K,PAGE,T\n1,/a,1000\n2,/b,2000\n,/nokey,2500\n3,/c,x\n1,/late,100000\n1,/too,3000\n"
    (folder / "in" / "clicks1.csv").write_text(clicks)
    views = [{"k": 1, "v": "x", "t": 1500}, {"k": 2, "v": "y", "t": 100500}, {"k": 1, "v": "z", "t": 2600}]
    with gzip.open(folder / "in" / "views.jsonl.gz", "wt") as f:
        f.write("".join(json.dumps(v) + "\n" for v in views))
    pl.DataFrame({"K": [7, 8], "V": ["p", "q"]}, schema={"K": pl.Int32, "V": pl.String}).write_parquet(
        folder / "in" / "more.parquet"
    )
    first = spawned(*WORDS, cwd=folder)
    shutil.copytree(folder / "s", folder / "before")
    shutil.copytree(folder / "seen.csv", folder / "seen before")
    (folder / "in" / "clicks2.csv").write_text("K,PAGE,T\n2,/new,100001\n")
    return folder, first, on_shared_spark(*WORDS, cwd=folder)


def test_the_first_run(runs: tuple[Path, Said, Said]) -> None:
    _, first, _ = runs
    assert first.code == 0, first.err
    assert [json.loads(line) for line in first.out.splitlines()] == [
        {"PAGE": "/a", "NAME": "ann"},
        {"PAGE": "/b", "NAME": "bob"},
    ]
    assert "NAMED: 9 records in, 4 out, state 2 rows; dropped 1 malformed, 1 null key (braid drops NAMED)" in first.err
    assert "NAMED_TOO: 2 records in, 2 out" in first.err
    assert "2 late" in first.err and "note: INSERT" not in first.err and "\x1b" not in first.err


def test_the_second_run_does_what_is_new(runs: tuple[Path, Said, Said]) -> None:
    folder, _, second = runs
    assert second.code == 0, second.err
    assert re.search(r"NAMED goes on after batch \d+ of its checkpoint", second.err)
    assert "NAMED: 1 records in, 1 out" in second.err and "NAMED_TOO: nothing new" in second.err
    assert second.err.count("was done before; skipped") == 3
    assert len(records("users", folder / "s")) == 3
    assert [(r["key"], r["value"]["PAGE"], r["value"]["NAME"]) for r in records("NAMED", folder / "s")] == [
        (1, "/a", "ann"),
        (2, "/b", "bob"),
        (1, "/late", "ann"),
        (1, "/too", "ann"),
        (2, "/new", "bob"),
    ]
    before, after = (sorted((folder / x).glob("*.csv")) for x in ("seen before", "seen.csv"))
    # a batch a file, and how many batches there are depends on how fast the sources are read
    was = [p.read_text() for p in after[: len(before)]]
    assert was == [p.read_text() for p in before]
    assert "".join(x.removeprefix(HEAD) for x in was) == "1,/a,x,1500\n1,/too,x,3000\n"
    assert [p.read_text() for p in after[len(before) :]] == [HEAD + "2,/new,y,100500\n"]


def test_drops(runs: tuple[Path, Said, Said]) -> None:
    folder, _, _ = runs
    found = [
        json.loads(x) for x in braid("drops", "seen", "--store", folder / "s", "--format", "jsonl").out.splitlines()
    ]
    assert sorted((r["reason"], r["topic"], r["offset"]) for r in found) == [
        ("late", "clicks", 5),
        ("late", "views", 2),
        ("malformed", "clicks", 3),
        ("null key", "clicks", 2),
    ]
    assert "'x' is not a BIGINT" in next(r["message"] for r in found if r["reason"] == "malformed")
    assert {r["clock"] for r in found if r["reason"] == "late"} == {100000, 100500}
    counted = [x.split()[:2] for x in braid("drops", "SEEN", "--store", folder / "s").out.splitlines()[1:4]]
    assert sorted(counted) == [["1", "malformed"], ["1", "null"], ["2", "late"]]
    assert "NAMED_TOO dropped nothing" in braid("drops", "named_too", "--store", folder / "s").out


def test_the_summary_is_loud_about_loss(runs: tuple[Path, Said, Said]) -> None:
    _, first, _ = runs
    assert "warning: SEEN: first malformed: clicks partition 0 offset 3: column T: 'x' is not a BIGINT" in first.err
    assert (
        "warning: SEEN: 2 of 9 records were late; before the first of them came, clicks partition 0 offset 4 had moved"
        " the clock to 1970-01-01T00:01:40.000Z; GRACE PERIOD 78 SECONDS of the stream-stream inner join would have"
        " kept them all"
    ) in first.err
    assert "look like" not in first.err


@pytest.mark.parametrize(("most", "code"), [("0", 3), ("10%", 3), ("1", 0), ("50%", 0)])
def test_too_many_drops_end_a_run(most: str, code: int, runs: tuple[Path, Said, Said], tmp_path: Path) -> None:
    folder, _, _ = runs
    sql = SQL[: SQL.index("CREATE STREAM views")] + "CREATE STREAM kept AS SELECT k, page FROM clicks WHERE k > 0;"
    (tmp_path / "q.sql").write_text(sql + "CREATE STREAM keyed AS SELECT page, t FROM clicks PARTITION BY page;")
    words = ("run", "q.sql", "--store", "s", "--until-idle", "--source", f"clicks={folder}/in/clicks1.csv", *QUICK)
    said = on_shared_spark(*words, "--max-drops", most, cwd=tmp_path)
    assert said.code == code, said.err
    assert (f"--max-drops allows {most}" in said.err) == (code == 3)


def test_state_after_a_run_without_spark(runs: tuple[Path, Said, Said]) -> None:
    """K-19: what is older than retention is gone."""
    folder, _, _ = runs
    said = braid("explain", folder / "q.sql", "--state", "--store", folder / "s", "--format", "json")
    plans = {d["query"]: d for d in json.loads(said.out)}
    (join,) = [n for n in plans["SEEN"]["nodes"] if n["op"] == "stream-stream join"]
    live = {name: kept for name, kept in join["live"].items() if kept["rows"]}
    assert {name: kept["rows"] for name, kept in live.items()} == {"left": 2, "right": 1}
    assert all(kept["bytes"] > 0 for kept in live.values())
    assert "state" in braid("explain", folder / "q.sql", "--state", "--store", folder / "s").out


def _refused(folder: Path, store: str, *parts: str, sql: str | None = None, sink: str = "seen.csv") -> None:
    """Refused without Spark, and nothing in the store is different afterwards."""
    (folder / "other.sql").write_text(sql or (folder / "q.sql").read_text())
    before = _bytes(folder / store)
    with contextlib.chdir(folder):
        words = [f"seen={sink}" if w == "seen=seen.csv" else w for w in WORDS[4:]]
        said = braid("run", "other.sql", "--store", store, *words)
    assert said.code == 1 and not said.out and "starting Spark" not in said.err
    for part in parts:
        assert part in said.err
    assert _bytes(folder / store) == before


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name != ".run.lock"}


def test_a_checkpoint_of_another_query(runs: tuple[Path, Said, Said]) -> None:
    told = ("checkpoints/NAMED was made by another query", "|| '!'", "\n  -", "\n  +", "braid reset NAMED")
    _refused(runs[0], "s", *told, sql=CHANGED)


def test_another_sink_than_before(runs: tuple[Path, Said, Said]) -> None:
    folder = runs[0]
    shown = f"setting sink: csv files in {folder}/seen.csv in the checkpoint, "
    _refused(
        folder, "s", "checkpoints/SEEN", shown + f"parquet files in {folder}/seen.parquet now", sink="seen.parquet"
    )
    _refused(folder, "s", shown + "console now", sink="console")
    _refused(folder, "new", "seen.csv holds the results of another run (SEEN-", "--overwrite")


def test_a_checkpoint_that_cannot_be_read(runs: tuple[Path, Said, Said]) -> None:
    folder = runs[0]
    shutil.copytree(folder / "s", folder / "torn")
    path = folder / "torn" / "checkpoints" / "NAMED" / "braid.json"
    path.write_bytes(path.read_bytes()[:200])
    _refused(folder, "torn", "braid.json cannot be read", "braid reset NAMED lets it begin again")


def test_files_that_changed(runs: tuple[Path, Said, Said]) -> None:
    folder = runs[0]
    path = folder / "in" / "clicks1.csv"
    kept, times = path.read_bytes(), path.stat()
    try:
        path.write_bytes(kept.replace(b"/a", b"/b"))
        _refused(
            folder, "s", "CLICKS: the file clicks1.csv was changed since it was read", "give new content a new name"
        )
        path.write_bytes(kept[:-1])
        _refused(folder, "s", f"{len(kept)} bytes were read, {len(kept) - 1} are left")
    finally:
        path.write_bytes(kept)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("fast", [False, True])
def test_a_query_that_dies_says_why(fast: bool, runs: tuple[Path, Said, Said], tmp_path: Path) -> None:
    """A file lies where the sink stages its rows: exit 2, one reason. The others go on, unless asked not to."""
    folder = runs[0]
    seen, store = folder / "seen.csv", tmp_path / "store"
    shutil.copytree(folder / "before", store)
    seen.rename(tmp_path / "seen now")
    shutil.copytree(folder / "seen before", seen)
    shutil.rmtree(seen / ".staging", ignore_errors=True)
    (seen / ".staging").write_text("")
    words = ("run", "q.sql", "--store", store, *WORDS[4:], "--quiet", *(["--fail-fast"] if fast else []))
    try:
        said = on_shared_spark(*words, cwd=folder)
    finally:
        shutil.rmtree(seen)
        (tmp_path / "seen now").rename(seen)
    assert said.code == 2, said.err
    assert "error: query SEEN failed: FileExistsError" in said.err and "note: Spark's log is " in said.err
    went_on = [r["value"]["PAGE"] for r in records("NAMED", store)]
    assert fast or "/new" in went_on  # beside it: one that ends it may have come too late
    assert ("error: SEEN failed, for the reason above" in said.err) is not fast
    assert "done after" not in said.err


def test_check_says_what_a_run_would_do(
    runs: tuple[Path, Said, Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the words of the run: its files, its sinks, its checkpoints. Nothing is written."""
    monkeypatch.chdir(runs[0])
    before = {p: p.stat().st_mtime_ns for p in Path("s").rglob("*")}
    said = braid("check", "q.sql", "--store", "s", *SOURCES, "--sink", "seen=seen.csv")
    assert said.code == 0, said.err
    assert "SEEN goes on after batch" in said.out and "NAMED goes on after batch" in said.out
    assert braid("check", "q.sql", "--store", "s").code == 0  # as it was the last time
    other = braid("check", "q.sql", "--store", "s", *SOURCES, "--sink", "seen=elsewhere.csv")
    assert other.code == 1 and "SEEN cannot go on" in other.out and "NAMED goes on" in other.out, other.err
    anew = braid("check", "q.sql", "--store", "s", *SOURCES, "--sink", "seen=seen.csv", "--checkpoint", "none")
    assert anew.code == 1 and "seen.csv holds the results of another run" in anew.err
    assert "the topic NAMED holds what NAMED wrote, and its checkpoint" in anew.err and " is gone" in anew.err
    new = braid("check", "q.sql", "--store", str(tmp_path / "t"), *SOURCES, "--checkpoint", "none")
    assert new.code == 0 and "NAMED is new" in new.out, new.err
    kept = Path("in/clicks1.csv").read_bytes()
    Path("in/clicks1.csv").write_bytes(kept.replace(b"/a", b"/z"))
    changed = braid("check", "q.sql", "--store", "s", *SOURCES, "--sink", "seen=seen.csv")
    Path("in/clicks1.csv").write_bytes(kept)
    assert changed.code == 1 and "clicks1.csv was changed since it was read" in changed.err
    assert before == {p: p.stat().st_mtime_ns for p in Path("s").rglob("*")} and not Path("none").exists()


def test_quiet_hides_no_drops(runs: tuple[Path, Said, Said], tmp_path: Path) -> None:
    sql = SQL[: SQL.index("CREATE STREAM views")]
    sql += "CREATE STREAM a AS SELECT k, page FROM clicks; CREATE STREAM b AS SELECT k, t FROM clicks;"
    (tmp_path / "q.sql").write_text(sql)
    source = ("--source", f"clicks={runs[0]}/in/clicks1.csv")
    said = on_shared_spark("run", "q.sql", "--store", "s", "--until-idle", "--quiet", *source, *QUICK, cwd=tmp_path)
    told = [line.strip() for line in said.err.splitlines()]
    assert said.code == 0 and len(told) == 4, said.err
    assert [t.partition(":")[0] for t in told] == ["A", "warning", "B", "warning"]
    assert "dropped 1 malformed (braid drops A)" in told[0] and "'x' is not a BIGINT" in told[1]


def test_rows_that_wait_are_told(tmp_path: Path) -> None:
    """Of a window that is open, and a padded row whose partner may come; not when they have gone."""
    sql = """CREATE STREAM l (k INT KEY, v INT) WITH (kafka_topic='l', value_format='JSON', partitions=1);
    CREATE STREAM r (k INT KEY, v INT) WITH (kafka_topic='r', value_format='JSON', partitions=1);
    CREATE TABLE w AS SELECT k, COUNT(*) AS n FROM l WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY k EMIT FINAL;
    CREATE STREAM p AS SELECT l.k AS k, l.v AS a, r.v AS b FROM l LEFT JOIN r WITHIN 1 MINUTE GRACE PERIOD 1 SECOND
      ON l.k = r.k;
    CREATE STREAM c AS SELECT * FROM l;
    INSERT INTO l (rowtime, k, v) VALUES (1000, 1, 1);"""
    (tmp_path / "q.sql").write_text(sql)
    words = ("run", "q.sql", "--store", "s", *QUICK)
    said = on_shared_spark(*words, "--until-idle", cwd=tmp_path)
    waits = [line.strip() for line in said.err.splitlines() if " waits for " in line]
    go = "--end says that none will come, and lets all go"
    assert said.code == 0 and waits == [
        "W: 1 row waits for its window to close until the clock of L, now 1970-01-01T00:00:01.000Z, reaches"
        f" 1970-01-01T00:01:00.000Z; {go}",
        "P: 1 row waits for a match until the clock of L and R, now 1970-01-01T00:00:01.000Z, passes"
        f" 1970-01-01T00:01:02.000Z; R has shown no record; {go}",
    ], said.err
    said = on_shared_spark(*words, "--end", cwd=tmp_path)
    assert said.code == 0 and " waits for " not in said.err and "W: 0 records in, 1 out" in said.err, said.err


def test_what_the_end_lets_go_can_be_read(tmp_path: Path) -> None:
    """Of a view that is told on close: its rows have the time of the last epoch, not of the end, which has none."""
    table = "CREATE SOURCE {} (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);"
    sql = "\n".join(map(table.format, "lr"))
    sql += """CREATE MATERIALIZED VIEW o AS SELECT l.k AS a, r.k AS b, l.ts FROM l LEFT JOIN r
      ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '1' SECOND EMIT ON WINDOW CLOSE;"""
    (tmp_path / "q.sql").write_text(sql)
    times = ("1969-12-31 23:59:58", "1970-01-01 00:00:01", "1970-01-01 00:00:02.5")
    for name, keys in (("l", (1, 2, 3)), ("r", (2, 4, 4))):
        rows = (f"{k},{t}\n" for k, t in zip(keys, times, strict=True))
        (tmp_path / f"{name}.csv").write_text("k,ts\n" + "".join(rows))
    words = ("run", "q.sql", "--dialect", "risingwave", "--store", "s", "--source", "l=l.csv", "--source", "r=r.csv")
    said = on_shared_spark(*words, "--until-idle", *QUICK, cwd=tmp_path)
    assert said.code == 0 and "2 rows wait for its watermark" in said.err, said.err
    assert [(r["value"]["a"], r["value"]["b"]) for r in records("o", tmp_path / "s")] == [(1, None)]
    said = on_shared_spark(*words, "--end", *QUICK, cwd=tmp_path)
    assert said.code == 0 and " wait for " not in said.err, said.err
    found = records("o", tmp_path / "s")
    assert [(r["value"]["a"], r["value"]["b"]) for r in found] == [(1, None), (2, None), (3, None)]
    assert [r["timestamp"] for r in found][1:] == [2500, 2500]


@pytest.mark.parametrize("how", ["--until-idle", pytest.param("--end", marks=pytest.mark.law)])
def test_files_are_read_while_they_are_made_ready(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files, in pieces, of two streams and a table that joins both: the rows of files that are read whole."""
    rng = random.Random(how)
    columns = "k INT KEY, v INT, t BIGINT"
    sql = "".join(
        f"CREATE STREAM {n} ({columns}) WITH (kafka_topic='{n}', value_format='JSON', timestamp='t', partitions=1);\n"
        for n in "lr"
    )
    sql += """CREATE TABLE u (k INT PRIMARY KEY, v INT) WITH (kafka_topic='u', value_format='JSON', partitions=1);
    CREATE STREAM p AS SELECT l.k AS k, l.v AS a, r.v AS b, u.v AS c FROM l
      LEFT JOIN r WITHIN 50 MILLISECONDS GRACE PERIOD 20 MILLISECONDS ON l.k = r.k LEFT JOIN u ON l.k = u.k;"""
    (tmp_path / "q.sql").write_text(sql)
    for name in "lr":
        rows = ({"k": rng.randrange(40), "v": n, "t": 3 * n - rng.randrange(30) + 1000} for n in range(3000))
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "u.csv").write_text("k,v\n" + "".join(f"{n % 40},{n}\n" for n in range(2000)))
    files = [x for name in ("l.jsonl", "r.jsonl", "u.csv") for x in ("--source", f"{name[0]}={name}")]
    found, given, taken = [], 0, early.taken

    def counted(asked: Hashable) -> object:
        nonlocal given
        made = taken(asked)
        given += made is not None
        return made

    monkeypatch.setattr(early, "taken", counted)
    for store, piece in (("whole", 1 << 30), ("pieces", 9000), ("early", 9000)):
        at_rest = store == "early"  # then they are read while Spark starts
        for name in ("l.jsonl", "r.jsonl", "u.csv"):
            os.utime(tmp_path / name, (time.time() - 60 if at_rest else time.time() + 600,) * 2)
        monkeypatch.setattr("braid.files.watch.PIECE", piece)
        monkeypatch.setattr("braid.files.text.BLOCK", 4000)
        said = on_shared_spark("run", "q.sql", "--store", store, how, *files, "--batch-rows", "700", cwd=tmp_path)
        assert said.code == 0, said.err
        found.append([(r["key"], r["value"], r["timestamp"]) for r in records("P", tmp_path / store)])
        pieces = next((tmp_path / store).rglob("files/L.jsonl")).read_text().count("\n") - 1
        assert pieces == 1 if store == "whole" else pieces > 3
        assert given > 2 * early.PIECES if at_rest else not given
        assert not [p for p in (tmp_path / store / "checkpoints").iterdir() if UNFINISHED.search(p.name)]
    assert found[0] == found[1] == found[2] and len(found[0]) > 2900


def test_it_stays_up_until_ctrl_c(tmp_path: Path) -> None:
    """Rows that come while it runs go through two queries to the console; Ctrl-C is its end."""
    sql = """CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
             CREATE STREAM a AS SELECT * FROM l WHERE v <> 'no';
             CREATE STREAM b AS SELECT k, v, k * 2 AS n FROM a;"""
    process = launch("run", "-e", sql, "--store", "s", "--sink", "b=console", *QUICK, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 500
        while not (tmp_path / "s" / "topics" / "l").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        for i, v in enumerate(("x", "no", "y")):
            record = json.dumps({"key": i, "value": {"V": v}, "timestamp": i})
            assert braid("put", "l", "--store", tmp_path / "s", stdin=record).code == 0
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline()) for _ in range(2)]
    finally:
        os.killpg(process.pid, signal.SIGINT)
    said = ended(process)
    assert sorted(found, key=lambda r: r["K"]) == [{"K": 0, "V": "x", "N": 0}, {"K": 2, "V": "y", "N": 4}]
    assert said.code == 0 and "stopped after" in said.err and "A: 3 records in, 2 out" in said.err
    assert not _left(process.pid)  # the JVM has gone with it


def _left(group: int) -> str:
    """Who still lives; the dead wait for the first process of the system, which takes its time."""
    words = ["pgrep", "-a", "-r", "R,S,D", "-g", str(group)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout
