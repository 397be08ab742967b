"""Commands over a store in an object store, as users type them."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from braid.store import cache, opened
from braid.topics import StoreLock
from braid.topics.interface import open_topics
from braid.topics.store_value import Store
from cli_help import braid, launch, records
from objects.faulty import KEY, SECRET, Faulty

SEEN = "CREATE SOURCE TABLE s (k INT PRIMARY KEY, v VARCHAR) WITH (kafka_topic='t', value_format='JSON', partitions=2);"
DECLARED = "CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR) WITH (kafka_topic='t', value_format='JSON', partitions=2);"


@pytest.fixture
def inner(memory: Faulty) -> str:
    return f"s3://memory/{uuid.uuid4().hex}"


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.objects)])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("inner" if request.param == "memory" else "place"))


def line(key: int, value: str) -> str:
    return json.dumps({"key": key, "value": {"V": value}, "timestamp": key})


def test_topics_put_and_cat(url: str, folder: Path) -> None:
    assert braid("topics", "--store", url).err == f"{url} has no topics\n"
    said = braid("put", "t", "--partitions", 2, "--store", url, stdin=f"{line(1, 'a')}\n{line(2, 'b')}\n")
    assert (said.code, said.err) == (0, "2 records into t\n")
    assert braid("put", "t", "--store", url + "/", stdin=line(3, "c")).code == 0
    assert braid("topics", "--store", url).out.split() == ["topic", "partitions", "records", "t", "2", "3"]
    assert sorted(r["value"]["V"] for r in records("t", url)) == ["a", "b", "c"]
    assert [r["key"] for r in records("t", url) if r["key"] > 1] == [2, 3]
    assert "b" in braid("cat", "t", "--key", "2", "--store", url).out
    wrong = braid("put", "t", "--store", url, stdin="nonsense")
    assert wrong.code == 1 and "line 1 is not JSON" in wrong.err
    assert braid("cat", "u", "--store", url).err.startswith(f"error: no topic u in {url}\n")
    assert not list(folder.iterdir())


def test_sql(url: str, folder: Path) -> None:
    said = braid(
        "sql", "--store", url, "-e", f"{DECLARED} INSERT INTO t (k, v) VALUES (1, 'a'); {SEEN} SELECT * FROM s;"
    )
    assert said.code == 0 and said.out.split()[-4:] == ["K", "V", "1", "a"], said
    program = f"{DECLARED} INSERT INTO t (k, v) VALUES (7, 'z');"
    for told in ("", "was done before"):
        ran = braid("run", "-e", program, "--store", url)
        assert ran.code == 0 and told in ran.err, ran
    assert sorted(r["key"] for r in records("t", url)) == [1, 7]
    answer = braid("sql", "--store", url, "-e", "SELECT v FROM s WHERE k = 7;")  # declared before
    assert answer.out.split() == ["V", "z"], answer
    assert braid("explain", "-e", f"{DECLARED} CREATE TABLE u AS SELECT k, v FROM t;", "--store", url).code == 0
    assert braid("check", "-e", f"{DECLARED} CREATE TABLE u AS SELECT k, v FROM t;", "--store", url).code == 0
    assert not list(folder.iterdir())


def test_what_is_for_folders_is_refused(url: str, folder: Path) -> None:
    braid("put", "t", "--store", url, stdin=line(1, "a"))
    query = f"{DECLARED} CREATE TABLE u AS SELECT k, v FROM t;"
    (folder / "q.sql").write_text(query)
    for words in (("backup", "copy"), ("upgrade", "q.sql")):
        said = braid(*words, "--store", url)
        assert said.code == 1 and said.err.startswith(f"error: {url} is not a folder"), said
    (folder / "q.sql").unlink()
    (folder / "f.csv").write_text("k,v\n1,2\n")
    declared = "CREATE STREAM f (k INT, v INT) WITH (kafka_topic='f', value_format='JSON', partitions=1);"
    sql = f"{declared} CREATE STREAM g AS SELECT * FROM f; INSERT INTO h (k) VALUES (1);"
    sql = sql.replace(
        "CREATE STREAM g", "CREATE STREAM h (k INT) WITH (kafka_topic='h', format='JSON'); CREATE STREAM g"
    )
    for words in (("check",), ("run", "--until-idle")):
        said = braid(words[0], "-e", sql, *words[1:], "--source", "f=f.csv", "--store", url)
        assert said.code == 1 and "error: G reads files, and its checkpoint is" in said.err, said
        assert "starting Spark" not in said.err and "h" not in braid("topics", "--store", url).out.split(), said
    (folder / "f.csv").unlink()
    said = braid("verify", "--store", url)
    assert said.code == 0 and said.out.endswith(f"{url} is whole\n"), said
    assert braid("rm", "t", "--store", url).out == "removed topic t\n"
    said = braid("reset", "Q", "--store", url)
    assert said.code == 1 and said.err.startswith(f"error: no query Q has run in {url}"), said
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://user:pw@bucket/x", "that is not the URL of an object store"),
        ("s3://memory/../x", "that is not the URL of an object store"),
        ("s3a://memory/x", "braid keeps nothing at s3a://"),
        ("ftp://memory/x", "braid keeps nothing at ftp://"),
    ],
)
def test_other_urls(url: str, why: str, folder: Path) -> None:
    for words in (("topics",), ("put", "t"), ("cat", "t"), ("drops", "Q"), ("sql", "-e", "SHOW TABLES;")):
        said = braid(*words, "--store", url)
        assert said.code == 1 and why in said.err and "pw" not in said.err, said
    assert not list(folder.iterdir())


def test_a_folder_by_its_url(folder: Path) -> None:
    assert braid("put", "t", "--store", f"file://{folder}/s", stdin=line(1, "a")).code == 0
    assert [r["key"] for r in records("t", folder / "s")] == [1]


def test_cat_follows(url: str, folder: Path) -> None:
    braid("put", "t", "--store", url, stdin=line(1, "a"))
    following = launch("cat", "t", "--follow", "--format", "jsonl", "--store", url, cwd=folder)
    assert following.stdout is not None
    try:
        assert json.loads(following.stdout.readline())["key"] == 1
        for n in range(2, 6):
            braid("put", "t", "--store", url, stdin=line(n, "b"))
            before = time.monotonic()
            assert json.loads(following.stdout.readline())["key"] == n
            assert time.monotonic() - before < 20
    finally:
        os.killpg(following.pid, signal.SIGINT)
        following.communicate(timeout=60)


def test_no_secret_is_kept_anywhere(inner: str, memory: Faulty, folder: Path) -> None:
    """Neither in objects nor in copies."""
    braid("sql", "--store", inner, "-e", f"{DECLARED} INSERT INTO t (k, v) VALUES (1, 'a'); {SEEN} SELECT * FROM s;")
    records("t", inner)
    files = [p for p in Path(cache.root()).rglob("*") if p.is_file()]
    held = [data for data, _ in memory.held.values()] + [p.read_bytes() for p in files]
    assert files and not [x for x in held if SECRET.encode() in x or KEY.encode() in x]
    assert SECRET not in repr(open_topics(Store(opened(inner)))) + str(open_topics(Store(opened(inner))).__reduce__())


def test_one_run_at_a_time_on_a_machine(inner: str, folder: Path) -> None:
    with StoreLock(opened(inner)):
        said = braid("run", "-e", f"{DECLARED} INSERT INTO t (k, v) VALUES (1, 'a');", "--store", inner)
        assert said.code == 1 and f"the store {inner} is in use by process {os.getpid()}" in said.err
    assert not list(folder.iterdir())
