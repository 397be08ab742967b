"""A run that ends by itself: its queries run at once, and one that reads what others write sees all of it.

In: queries that know nothing of each other, chains, a query that fails. Out: all that there is to see, in its order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from braid.store import opened

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from cli_help import QUICK, on_shared_spark, records  # noqa: E402

STREAM = "CREATE STREAM {0} (k INT KEY, v INT) WITH (kafka_topic='{0}', value_format='JSON', partitions=1);"
WORDS = ("run", "q.sql", "--store", "s", "--until-idle", *QUICK)


def written(folder: Path, topics: Sequence[str], many: int, text: str) -> None:
    from braid.topics.store import TopicStore

    store = TopicStore(opened(folder / "s"))
    for topic in topics:
        store.create(topic, 1)
        lines = [json.dumps({"key": n % 7, "value": {"V": n}, "timestamp": n}) for n in range(many)]
        store.append_lines(topic, lines)
    (folder / "q.sql").write_text(" ".join(map(STREAM.format, topics)) + text)


def batches(folder: Path) -> list[str]:
    """The queries of all batches, as they came."""
    lines = (folder / "m.jsonl").read_text().splitlines()
    return [json.loads(line)["query"] for line in lines]


def test_queries_that_know_nothing_of_each_other_run_at_once(tmp_path: Path) -> None:
    written(tmp_path, "l", 60, "CREATE STREAM a AS SELECT * FROM l; CREATE STREAM b AS SELECT * FROM l;")
    said = on_shared_spark(*WORDS, "--batch-rows", "2", "--metrics", "m.jsonl", cwd=tmp_path)
    assert said.code == 0, said.err
    found = batches(tmp_path)
    ends = {name: len(found) - found[::-1].index(name) for name in "AB"}
    assert all(found.index(name) < min(ends.values()) - 1 for name in "AB"), found
    for name in "AB":
        assert [r["value"]["V"] for r in records(name, tmp_path / "s")] == [*range(60)]


CHAIN = """CREATE TABLE last AS SELECT k, LATEST_BY_OFFSET(v) AS v FROM r GROUP BY k;
CREATE STREAM named AS SELECT l.k AS k, l.v AS v, last.v AS w FROM l JOIN last ON l.k = last.k;
CREATE TABLE counted AS SELECT k, COUNT(*) AS n, SUM(w) AS s FROM named GROUP BY k;"""


def test_a_chain_sees_all_that_is_written_before(tmp_path: Path) -> None:
    """Over three queries, the second of which looks up what the first says of each key."""
    written(tmp_path, "lr", 60, CHAIN)
    said = on_shared_spark(*WORDS, "--batch-rows", "9", "--metrics", "m.jsonl", cwd=tmp_path)
    assert said.code == 0, said.err
    found = batches(tmp_path)
    assert found == sorted(found, key=("LAST", "NAMED", "COUNTED").index), found
    together = records("COUNTED", tmp_path / "s")
    other = tmp_path / "other"  # each query by a run of its own
    other.mkdir()
    written(other, "lr", 60, "")
    for n in range(1, 4):
        text = " ".join(map(STREAM.format, "lr")) + ";".join(CHAIN.split(";")[:n]) + ";"
        (other / "q.sql").write_text(text)
        assert on_shared_spark(*WORDS, "--batch-rows", "9", cwd=other).code == 0
    want = records("COUNTED", other / "s")
    last = {r["key"]: r["value"] for r in together}
    assert last == {r["key"]: r["value"] for r in want} and sum(v["N"] for v in last.values()) > 0
    assert [r["value"] for r in records("NAMED", tmp_path / "s")] == [r["value"] for r in records("NAMED", other / "s")]


def test_two_that_write_one_topic_keep_their_order(tmp_path: Path) -> None:
    text = "CREATE STREAM a AS SELECT * FROM l; INSERT INTO a SELECT k, v + 100 AS v FROM l;"
    written(tmp_path, "l", 40, text)
    said = on_shared_spark(*WORDS, "--batch-rows", "7", cwd=tmp_path)
    assert said.code == 0, said.err
    found = [r["value"]["V"] for r in records("A", tmp_path / "s")]
    assert found == [*range(40), *range(100, 140)]


def test_one_that_fails_does_not_keep_the_others(tmp_path: Path) -> None:
    """Neither those beside it nor those that read it; the run says so at its end."""
    text = """CREATE STREAM bad AS SELECT k, v FROM l; CREATE STREAM after AS SELECT * FROM bad;
    CREATE STREAM good AS SELECT * FROM r;"""
    written(tmp_path, "lr", 30, text)
    segment = next((tmp_path / "s/topics/l").rglob("*.jsonl"))
    segment.write_bytes(segment.read_bytes().replace(b'"V":', b'"W":', 1))
    said = on_shared_spark(*WORDS, "--quiet", cwd=tmp_path)
    assert said.code == 2 and "error: BAD failed, for the reason above" in said.err, said.err
    assert [r["value"]["V"] for r in records("GOOD", tmp_path / "s")] == [*range(30)]
    assert "error: query BAD failed" in said.err and "AFTER failed" not in said.err
