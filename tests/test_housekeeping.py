"""`braid usage`, `retain`, `sweep`, and queries on Spark whose topics are shortened and compacted while they go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.store import opened
from braid.topics import TopicStore, log, object_topics
from braid.topics.interface import store_at
from cli_help import Said, braid, on_shared_spark, records
from test_upgrade import SOURCES, put

pytestmark = [pytest.mark.spark, pytest.mark.operations]

QUERIES = """
CREATE STREAM lookup AS SELECT l.k AS k, v, w FROM l LEFT JOIN r ON l.k = r.k;
CREATE STREAM windowed AS SELECT l.k AS k, v, x FROM l LEFT JOIN m
    WITHIN 5 SECONDS GRACE PERIOD 2 SECONDS ON l.k = m.k;
CREATE TABLE counted AS SELECT k, COUNT(*) AS c, SUM(n) AS s FROM l GROUP BY k;
CREATE TABLE both AS SELECT r.k AS k, w, c FROM r LEFT JOIN counted ON r.k = counted.k;
"""
OUTPUTS = ("LOOKUP", "WINDOWED", "COUNTED", "BOTH")


@pytest.fixture(autouse=True)
def _folded_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD", 3)


def run(root: Path, sql: str = QUERIES) -> Said:
    (root / "q.sql").write_text(SOURCES + sql)
    said = on_shared_spark("run", "q.sql", "--store", "s", "--until-idle", "--quiet", "--batch-rows", "7", cwd=root)
    assert said.code == 0, said.err
    return said


def begun(root: Path, steps: int) -> TopicStore:
    store = TopicStore(opened(root / "s"))
    for name in "lmr":
        store.create(name, 2)
    for step in range(steps):
        put(store, step)
        run(root)
    return store


def rows(root: Path, topic: str) -> list[list[str]]:
    store = TopicStore(opened(root / "s"))
    return [store.read(topic, p, 0, end)["_line"].to_list() for p, end in enumerate(store.end_offsets(topic))]


def usage(root: Path) -> dict[str, dict[str, dict[str, object]]]:
    said = braid("usage", "--json", "--store", root / "s")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    return {
        "topics": {t["topic"]: t for t in found["topics"]},
        "queries": {q["query"]: q for q in found["queries"]},
        "spare": {s["what"]: s for s in found["spare"]},
    }


def retain(root: Path, *words: str) -> str:
    said = braid("retain", *words, "--yes", "--store", root / "s")
    assert said.code == 0, said.err
    return said.out


def latest(root: Path, topic: str) -> dict[str, object]:
    """The table as it stands."""
    said = braid("cat", topic, "--latest", "--format", "jsonl", "--store", root / "s")
    return {json.dumps(r["key"]): (r["value"], r["timestamp"]) for r in map(json.loads, said.out.splitlines())}


def whole(root: Path) -> None:
    said = braid("verify", "--store", root / "s")
    assert said.code == 0, said.err + said.out


def test_queries_go_on_over_what_is_kept(tmp_path: Path) -> None:
    """What they give is what they give where all is kept; who begins later begins with what is there."""
    kept, other = tmp_path / "kept", tmp_path / "other"
    for root in (kept, other):
        root.mkdir()
        begun(root, 2)
    retain(kept, "l", "--for", "1d"), retain(kept, "m", "--bytes", "1"), retain(kept, "r", "--compact")
    retain(kept, "COUNTED", "--compact", "--tombstones", "1ms")
    for step in (2, 3):
        for root in (kept, other):
            put(TopicStore(opened(root / "s")), step)
            run(root)  # which carries it out when it ends
        retain(kept)
        whole(kept)
        for topic in ("LOOKUP", "WINDOWED", "BOTH"):
            assert rows(kept, topic) == rows(other, topic)
    store, all_ = TopicStore(opened(kept / "s")), TopicStore(opened(other / "s"))
    assert all(n > 0 for n in store.start_offsets("l")) and all(n > 0 for n in store.start_offsets("m"))
    assert store.count("r") < all_.count("r") and store.count("COUNTED") < all_.count("COUNTED")
    assert [store.end_offsets(t) for t in "lmr"] == [all_.end_offsets(t) for t in "lmr"]
    for topic in ("r", "COUNTED"):
        assert latest(kept, topic) == latest(other, topic)
        assert not any("error" in r for r in records(topic, kept / "s"))

    new = "CREATE STREAM later AS SELECT k, v FROM l; CREATE TABLE copied AS SELECT k, w FROM r;"
    for root in (kept, other):
        run(root, new)
    assert latest(kept, "COPIED") == latest(other, "COPIED")
    there = [json.loads(x)["value"]["V"] for part in rows(kept, "LATER") for x in part]
    assert there and sorted(there) == sorted(
        json.loads(x)["value"]["V"] for p in range(2) for x in store.read("l", p, 0, store.end_offsets("l")[p])["_line"]
    )
    for root in (kept, other):
        put(TopicStore(opened(root / "s")), 4)
        run(root, new)  # the new one goes on from its own beginning
    assert rows(kept, "LATER") == [x[-len(y) :] for x, y in zip(rows(other, "LATER"), rows(kept, "LATER"), strict=True)]
    whole(kept)


def test_what_a_query_has_not_read_stays(tmp_path: Path) -> None:
    store = begun(tmp_path, 2)
    ends = store.end_offsets("l")
    for step in range(2, 6):
        put(store, step)
    said = retain(tmp_path, "l", "--for", "1ms")
    assert "LOOKUP may still read from record" in said and "COUNTED" in said
    assert all(n <= end for n, end in zip(TopicStore(opened(tmp_path / "s")).start_offsets("l"), ends, strict=True))
    run(tmp_path)
    assert [n for n in TopicStore(opened(tmp_path / "s")).start_offsets("l") if n > 0]


def test_a_copy_of_before_is_refused_by_name(tmp_path: Path) -> None:
    """A checkpoint of yesterday, with its outputs, beside inputs whose records are gone."""
    begun(tmp_path, 1)
    shutil.copytree(tmp_path / "s", tmp_path / "old")
    store = TopicStore(opened(tmp_path / "s"))
    for step in range(1, 5):
        put(store, step)
        run(tmp_path)
    retain(tmp_path, "l", "--for", "1ms")
    for part in ("checkpoints", *(f"topics/{name}" for name in OUTPUTS)):
        shutil.rmtree(tmp_path / "s" / part)
        shutil.copytree(tmp_path / "old" / part, tmp_path / "s" / part)
    (tmp_path / "q.sql").write_text(SOURCES + QUERIES)
    said = on_shared_spark("run", "q.sql", "--store", "s", "--until-idle", "--quiet", cwd=tmp_path)
    assert said.code == 1 and "of the topic l begins at" in said.err and "those between are gone" in said.err
    said = braid("verify", "--store", tmp_path / "s")
    assert said.code == 1 and "of the topic l begins at" in said.err


def test_an_upgrade_needs_all_that_was_read(tmp_path: Path) -> None:
    store = begun(tmp_path, 1)
    retain(tmp_path, "l", "--for", "1ms")
    for step in (1, 2):
        put(store, step)
        run(tmp_path)
    (tmp_path / "q.sql").write_text(SOURCES + QUERIES.replace("v, w FROM", "v, w, n FROM"))
    said = on_shared_spark("upgrade", "q.sql", "--store", "s", cwd=tmp_path)
    assert said.code == 1 and "of l begins at" in said.err and "what is between is not kept" in said.err


def test_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same over a URL: a query goes on, a new one begins later, one that was stopped holds all back."""
    monkeypatch.setattr(object_topics, "BESIDE", False)
    urls = {name: f"file://{tmp_path}/{name}" for name in ("kept", "other")}
    sql = "\n".join(QUERIES.strip().splitlines()[i] for i in (0, 3))
    (tmp_path / "q.sql").write_text(SOURCES + sql)

    def step(n: int) -> None:
        for url in urls.values():
            for name in "lmr" if n == 0 else "":
                store_at(opened(url)).create(name, 2)
            put(store_at(opened(url)), n)
            said = on_shared_spark("run", "q.sql", "--store", url, "--until-idle", "--quiet", cwd=tmp_path)
            assert said.code == 0, said.err

    def lines(name: str, topic: str) -> list[list[str]]:
        store = store_at(opened(urls[name]))
        return [store.read(topic, p, 0, end)["_line"].to_list() for p, end in enumerate(store.end_offsets(topic))]

    for n in range(4):
        step(n)
    said = braid("retain", "l", "--for", "1ms", "--yes", "--store", urls["kept"])
    assert said.code == 0 and "went" in said.out, said
    assert "went" in braid("retain", "r", "--compact", "--yes", "--store", urls["kept"]).out
    assert any(store_at(opened(urls["kept"])).start_offsets("l"))
    for n in range(4, 6):
        step(n)
    for topic in ("LOOKUP", "COUNTED"):
        assert lines("kept", topic) == lines("other", topic)
    assert store_at(opened(urls["kept"])).count("r") < store_at(opened(urls["other"])).count("r")
    assert braid("verify", "--store", urls["kept"]).code == 0
    usage = json.loads(braid("usage", "--json", "--store", urls["kept"]).out)
    assert {t["topic"]: t["keeps"] for t in usage["topics"]}["l"]["ms"] == 1
    copied = braid("copy", urls["kept"], tmp_path / "folder")
    assert copied.code == 0, copied.err
    store = TopicStore(opened(tmp_path / "folder"))
    assert store.start_offsets("l") == store_at(opened(urls["kept"])).start_offsets("l") and store.count("r")
    urls = {"kept": str(tmp_path / "folder"), "other": urls["other"]}
    step(6)
    for topic in ("LOOKUP", "COUNTED"):
        assert lines("kept", topic) == lines("other", topic)


def test_usage_and_sweep(tmp_path: Path) -> None:
    store = begun(tmp_path, 2)
    store.create("alone")
    store.append("alone", [{"key": 1, "value": 2, "timestamp": 3}])
    assert braid("sweep", "--store", tmp_path / "s").code == 0  # what the next batch would take away
    found = usage(tmp_path)
    topics, queries = found["topics"], found["queries"]
    assert topics["l"]["read_by"] == {"COUNTED": 16, "LOOKUP": 16, "WINDOWED": 16} and topics["l"]["records"] == 16
    assert topics["COUNTED"]["written_by"] == ["COUNTED"] and topics["COUNTED"]["read_by"].keys() == {"BOTH"}  # type: ignore[attr-defined]
    assert set(queries) == set(OUTPUTS) and queries["BOTH"]["rows"] and queries["BOTH"]["state"]
    assert queries["LOOKUP"]["cuts"] and queries["LOOKUP"]["files"]
    assert list(found["spare"]) == ["topic alone"]
    assert found["spare"]["topic alone"]["command"] == "braid rm alone"
    shown = braid("usage", "--store", tmp_path / "s").out
    assert "WINDOWED up to 16" in shown and "may be deleted" in shown

    checkpoints = tmp_path / "s" / "checkpoints"
    runs = next(f for f in (checkpoints / "BOTH" / "runs").rglob("*.arrow"))
    for path in (checkpoints / "OLD~0123abcd" / "x", runs.parent / "lost.arrow", tmp_path / "s/topics/l/.staging/q~1"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"12345")
    spare = usage(tmp_path)["spare"]
    assert sum(s["bytes"] == 5 and s["command"] == "braid sweep" for s in spare.values()) == 3
    said = braid("sweep", "--store", tmp_path / "s")
    assert said.code == 0 and said.out.endswith("15 bytes freed\n")
    assert list(usage(tmp_path)["spare"]) == ["topic alone"]
    whole(tmp_path)
    put(TopicStore(opened(tmp_path / "s")), 2)
    run(tmp_path)
