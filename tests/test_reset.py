"""`braid reset` and `braid rm`: what goes, what is refused, and that the query then begins anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from braid.stage import checkpoint
from braid.topics import TopicStore
from braid.topics.drops import read_drops
from braid.topics.lock import StoreLock
from cli_help import QUICK, braid, on_shared_spark

SQL = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT k, v / (v - 1) AS w FROM s;
CREATE STREAM p AS SELECT k, w FROM o;
CREATE STREAM q AS SELECT k, v FROM s;
"""
ROWS = "".join(json.dumps({"key": k, "value": {"V": k}, "timestamp": k}) + "\n" for k in range(3))


@pytest.mark.spark
def test_a_query_begins_anew(folder: Path) -> None:
    (folder / "q.sql").write_text(SQL)
    words = ("run", "q.sql", "--store", "s", "--until-idle", "--sink", "q=q.csv", *QUICK)
    assert braid("put", "s", "--store", "s", stdin=ROWS).code == 0
    assert on_shared_spark(*words, cwd=folder).code == 0
    store = TopicStore(folder / "s")
    assert store.end_offsets("O") == [3] == store.end_offsets("P") and len(read_drops(store.root, "O")) == 1

    said = braid("reset", "o", "--store", "s")
    assert said.code == 1 and "O does not stand alone: P reads O" in said.err and "--cascade" in said.err
    assert "O is in use: O writes it, P reads it" in braid("rm", "O", "--store", "s").err
    with StoreLock(folder / "s"):
        assert f"in use by process {os.getpid()}" in braid("reset", "p", "--store", "s").err
    said = braid("reset", "o", "--cascade", "--store", "s")
    assert said.code == 0, said.err
    assert sorted(store.names()) == ["s"] and not read_drops(store.root, "O")
    assert os.listdir(folder / "s" / "checkpoints") == ["Q"]
    said = braid("reset", "Q", "--store", "s")
    assert said.code == 0 and f"removed the results in {folder}/q.csv" in said.out and not (folder / "q.csv").exists()

    again = on_shared_spark(*words, cwd=folder)  # nothing is doubled, and the other query did not begin anew
    assert again.code == 0 and "goes on" not in again.err
    assert store.end_offsets("O") == [3] == store.end_offsets("P") and len(read_drops(store.root, "O")) == 1
    assert sum(len(p.read_text().splitlines()) - 1 for p in (folder / "q.csv").glob("*.csv")) == 3


@pytest.mark.spark
def test_what_others_wrote_is_not_lost(folder: Path) -> None:
    text = SQL + "INSERT INTO q (k, v) VALUES (7, 7);"
    assert braid("put", "s", "--store", "s", stdin=ROWS).code == 0
    assert on_shared_spark("run", "-e", text, "--store", "s", "--until-idle", *QUICK, cwd=folder).code == 0
    said = braid("reset", "q", "--store", "s")
    assert said.code == 1 and "Q holds more than Q wrote: INSERT statements" in said.err
    assert checkpoint.load(folder / "s" / "checkpoints" / "Q") is not None


def test_rm(folder: Path) -> None:
    assert braid("run", "-e", SQL.split("CREATE STREAM o", maxsplit=1)[0], "--store", "s").code == 0
    TopicStore("s").create("other", 1)
    assert "no topic x" in braid("rm", "x", "--store", "s").err
    assert braid("rm", "S", "--store", "s").out.splitlines() == [
        "removed topic s",
        "removed S from the catalogue (ksqldb)",
    ]
    assert braid("rm", "other", "--store", "s").out.splitlines() == ["removed topic other"]
    assert TopicStore("s").names() == [] and "no query o has run" in braid("reset", "o", "--store", "s").err
    assert "there is no store" in braid("reset", "o", "--store", "none").err
