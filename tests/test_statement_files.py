"""`--file`: commands that look at a query whose statement the store does not keep.

In: a run of a file of lenses, whose WITH is a statement of its own, on Spark.
Rule: with the file each says what it says of a query that is kept; without it each says what it lacks. The dialect is
that of the run.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.store import opened
from braid.topics import TopicStore
from cli_help import braid, on_shared_spark

pytestmark = pytest.mark.spark

SQL = """SET defaults.topic.autocreate=true;
CREATE TABLE a(_key INT, k INT) FORMAT (INT, JSON);
CREATE TABLE b(_key INT, k INT) FORMAT (INT, JSON);
WITH x AS (SELECT STREAM * FROM a);
INSERT INTO o SELECT STREAM x.k FROM x LEFT JOIN b ON x.k = b.k WITHIN 10s;
"""


def test_what_a_file_says(tmp_path: Path) -> None:
    store, file = TopicStore(opened(tmp_path / "s")), tmp_path / "q.sql"
    for topic, keys in (("a", (1, 2, 3)), ("b", (2, 3, 4))):
        store.create(topic, 1)
        records = [{"key": k, "value": {"k": k}, "timestamp": 1000 * k} for k in keys]
        store.append_lines(topic, map(json.dumps, records), 0)
    file.write_text(SQL, encoding="utf-8")
    where = ("--store", tmp_path / "s")
    run = on_shared_spark("run", file, "--dialect", "lenses", "--until-idle", "--quiet", *where, cwd=tmp_path)
    assert run.code == 0, run.err

    query = "o.1"
    lacking = braid("doctor", "--query", query, *where)
    assert (
        f"rows wait is not checked: the statement of {query} is not known in this store (name the file" in lacking.out
    )
    assert "note" not in braid("doctor", "--query", query, "--file", file, *where).out
    for words in (("waiting", query), ("why-not", query, "--input", "a:0:0")):
        assert f"the statement of {query} is not known" in braid(*words, *where).err
    assert braid("waiting", query, "--file", file, *where).out.startswith(f"{query}: 1 row waits"), "that of k = 1"
    assert "it waits in the" in braid("why-not", query, "--input", "a:0:0", "--file", file, *where).out
