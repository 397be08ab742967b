"""Where queries begin: words of `--from`, offsets that they mean, what a checkpoint keeps of them.

In: topics of the store. Out: offsets; what `braid run --from` writes.
Rule: a query that has begun goes on, whatever its first batch came to.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braid.errors import BraidError
from braid.face.begin import begins_of
from braid.store import opened
from braid.topics.begin import Begins, Where, offsets_of
from braid.topics.store import TopicStore
from cli_help import braid, on_shared_spark

SQL = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE t (k INT PRIMARY KEY, w INT) WITH (kafka_topic='t', value_format='JSON', partitions=2);
CREATE STREAM j AS SELECT s.k AS k, v, w FROM s JOIN t ON s.k = t.k;
CREATE STREAM again AS SELECT * FROM j;
"""


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("latest", Begins("latest")),
        (["earliest", "a:latest"], Begins("earliest", {"a": "latest"})),
        ("1700000000000", Begins(1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Begins(1_700_000_000_000)),
        ("orders:2023-11-14T22:13:20Z", Begins(None, {"orders": 1_700_000_000_000})),
        ("x.y:0=15, 3=0", Begins(None, {"x.y": ((0, 15), (3, 0))})),
    ],
)
def test_words(given: str | list[str], made: Begins) -> None:
    assert begins_of(given) == made


@pytest.mark.parametrize("given", ["sometime", "0=1", "a:sometime", ":latest", "a:0=1,0=2", "a:0=-1"])
def test_no_words(given: str) -> None:
    with pytest.raises(BraidError, match="is no place to begin at"):
        begins_of(given)


def test_said_twice() -> None:
    for given in (["latest", "earliest"], ["a:latest", "a:0=1"]):
        with pytest.raises(BraidError, match="was said before"):
            begins_of(given)


@pytest.mark.parametrize(
    ("where", "offsets"),
    [("earliest", [0, 0]), ("latest", [4, 1]), (30, [1, 1]), (0, [0, 0]), (41, [4, 1]), (((0, 2),), [2, 0])],
)
def test_offsets(tmp_path: Path, where: Where, offsets: list[int]) -> None:
    store = TopicStore(opened(tmp_path))
    store.create("s", 2)
    for p, time in [(0, 10), (0, 40), (0, 30), (0, 5), (1, 20)]:
        store.append("s", [{"partition": p, "key": 1, "value": {}, "timestamp": time}])
    assert offsets_of(store, "s", where) == offsets


@pytest.mark.parametrize(
    ("where", "said"), [(((2, 0),), "none with number 2"), (((0, 2),), "no offset 2 in partition 0")]
)
def test_offsets_that_are_not_there(tmp_path: Path, where: Where, said: str) -> None:
    store = TopicStore(opened(tmp_path))
    store.create("s", 2)
    store.append("s", [{"partition": 0, "key": 1, "value": {}, "timestamp": 1}])
    with pytest.raises(BraidError, match=said):
        offsets_of(store, "s", where)


def write(store: TopicStore, topic: str, v: int, time: int) -> None:
    store.append(topic, [{"partition": 1, "key": 1, "value": {"W" if topic == "t" else "V": v}, "timestamp": time}])


@pytest.mark.spark
def test_a_run_from_latest_goes_on(tmp_path: Path) -> None:
    """Before any batch, too: what comes after the first start is read by the second. A table is read whole, and so is
    what a query of the file writes."""
    pytest.importorskip("pyspark")
    (tmp_path / "q.sql").write_text(SQL)
    store = TopicStore(opened(tmp_path / "d"))
    for topic in "st":
        store.create(topic, 2)
        write(store, topic, 1, 1_000)
    words = ("run", "q.sql", "--store", "d", "--until-idle", "--quiet")
    unknown = on_shared_spark(*words, "--from", "x:latest", cwd=tmp_path)
    assert (unknown.code, unknown.err.splitlines()[0]) == (1, "error: --from x:…: no query reads that topic")
    assert on_shared_spark(*words, "--from", "latest", cwd=tmp_path).code == 0
    write(store, "s", 2, 2_000)
    assert on_shared_spark(*words, "--from", "latest", cwd=tmp_path).code == 0
    read = json.loads((tmp_path / "d" / "checkpoints" / "J" / "braid.json").read_text())["settings"]
    assert (read["from"], read["begin"]) == ({"0": "latest"}, {"0/0": 0, "0/1": 1, "1/0": 0, "1/1": 0})
    other = on_shared_spark(*words, "--from", "s:1=1", cwd=tmp_path)
    assert (other.code, "the query J has begun elsewhere" in other.err) == (1, True)
    assert on_shared_spark(*words, cwd=tmp_path).code == 0
    shown = braid("cat", "AGAIN", "--store", tmp_path / "d", "--format", "jsonl").out.splitlines()
    assert [json.loads(x)["value"] for x in shown] == [{"V": 2, "W": 1}]
