"""`braid doctor --query`: each thing that can be wrong with a query, and what is like it and well."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from braid.face import condition as conditions
from braid.face.condition import Condition
from braid.face.findings import CHECKS, Finding, findings
from braid.stage import ring
from braid.stage.event_times import PartitionTimes, SourceTimes
from braid.stage.ring import FOLDER, Ring
from braid.stage.waiting import Source, Waiting
from braid.store import opened
from cli_help import braid, ended, launch, on_shared_spark
from test_old_checkpoints import files, store

ROOT = Path(__file__).parent.parent
NOON, MINUTE = 1_709_294_400_000, 60_000


def stage(rows: int, **more: Any) -> dict[str, Any]:
    state = {"rows": 0, "bytes": 0, "runs": 0, "sides": more.pop("sides", [])}
    made = {"stage": 0, "rows_in": rows, "rows_out": rows, "by": "O.ID", "steps": [], "state": state, "hottest": None}
    return made | more


def batch(n: int, **more: Any) -> dict[str, Any]:
    """Of a query that is well: 10,000 records a second, mostly worked on."""
    made = {
        "query": "Q",
        "batch": n,
        "at": NOON + n * 1000,
        "batch_ms": 400.0,
        "jvm_ms": 100.0,
        "publish_ms": 10.0,
        "rows_in": 10_000,
        "rows_out": 10_000,
        "drops": {},
        "lag": 0,
        "waiting": 0,
        "sources": [],
        "store_again": 0,
        "stages": [stage(10_000)],
        "started": 5,
        "restarts": 0,
        "error": None,
        "run": {"tasks_failed": 0, "executors_lost": 0},
    }
    return made | more


STOPPED = {"query": "Q", "at": NOON, "ended": "stopped", "started": 5, "restarts": 0, "error": None}


def well(records: Sequence[dict[str, Any]] = (*map(batch, range(20)), STOPPED), **more: Any) -> Condition:
    made = Condition("Q", "", None, records, (), (), (), {}, (), lambda _: None, ())
    return replace(made, **more)


def source(
    name: str, times: Sequence[int | None], clock: int | None, lag: int = 0, idle: Sequence[int] = ()
) -> SourceTimes:
    parts = [PartitionTimes(p, t, p in idle, 9, lag if p == 0 else 0) for p, t in enumerate(times)]
    return SourceTimes({"O": 0, "P": 1}[name], name, name.lower(), True, clock, False, parts)


def only(c: Condition, kind: str) -> Finding:
    (found,) = findings(c)
    assert found.kind == kind and found.text and found.more.startswith("braid "), found
    return found


def test_a_query_that_is_well() -> None:
    assert findings(well()) == [] == findings(well(records=()))


def test_the_page_names_each_kind_in_its_order() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    table = page.split("## What it looks for")[1]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == list(CHECKS)
    assert len([x for x in page.splitlines() if x.startswith("## ")]) == 11  # ten questions, and this


# ------------------------------------------------------------------------ failed


def test_one_that_failed_was_killed_or_runs() -> None:
    died = STOPPED | {"ended": "failed", "error": {"at": NOON, "text": "the disk is full"}}
    found = only(well([batch(0), died]), "failed")
    assert found.text == "it failed at 2024-03-01T12:00:00.000Z: the disk is full"
    found = only(well([batch(0)]), "failed")
    assert "was killed, or is on another machine" in found.text and found.measured["error"] is None
    assert findings(well([batch(0)], held_by=7)) == []
    assert findings(well([died, batch(0), STOPPED])) == []


# ------------------------------------------------------------------- stuck clock


def waits(now: int | None, first: int, *sources: Source, slowest: bool = True) -> Waiting:
    return Waiting("a match", 12, True, now, first, first + 5, sources=sources, slowest=slowest)


def test_a_partition_that_holds_the_clock() -> None:
    o = source("O", [NOON, NOON - 60 * MINUTE], NOON - 60 * MINUTE)
    one = waits(NOON - 60 * MINUTE, NOON - 55 * MINUTE, Source("O", NOON - 60 * MINUTE, (1, NOON - 60 * MINUTE)))
    found = only(well(sources=[o], waits=[one]), "stuck clock")
    assert "1 h behind the newest record" in found.text and "partition 1 of o holds it" in found.text
    assert found.measured == {
        "source": "O", "topic": "o", "partition": 1, "event_time": NOON - 60 * MINUTE, "lag": 0,
        "waiting": 12, "clock": NOON - 60 * MINUTE, "newest": NOON,
    }  # fmt: skip
    assert "--idle" in found.hint and found.more == "braid waiting Q"


def test_a_partition_that_is_still_to_be_read() -> None:
    o = source("O", [NOON - 60 * MINUTE, NOON], NOON - 60 * MINUTE, lag=900)
    one = waits(NOON - 60 * MINUTE, NOON - 55 * MINUTE, Source("O", NOON - 60 * MINUTE))
    (found, lag) = findings(well(sources=[o], waits=[one]))
    assert "900 of its records are not read yet" in found.text and "--idle" not in found.hint
    assert lag.kind == "lag" and lag.measured["lag"] == 900


def test_rows_that_wait_as_they_should() -> None:
    """None would go out if the clock were at the newest record."""
    o = source("O", [NOON, NOON - 60 * MINUTE], NOON - 60 * MINUTE)
    one = waits(NOON - 60 * MINUTE, NOON + MINUTE, Source("O", NOON - 60 * MINUTE))
    assert findings(well(sources=[o], waits=[one])) == []
    near = source("O", [NOON, NOON - MINUTE + 1], NOON - MINUTE + 1)
    one = waits(NOON - MINUTE + 1, NOON - MINUTE + 2, Source("O", NOON - MINUTE + 1))
    assert findings(well(sources=[near], waits=[one])) == []
    asleep = source("O", [NOON, NOON - 60 * MINUTE], NOON, idle=[1])
    assert findings(well(sources=[asleep], waits=[waits(NOON, NOON + 1, Source("O", NOON))])) == []


def test_the_clock_of_two_sources() -> None:
    """Of the furthest one a slow side holds nothing; of the slowest it does."""
    both = [source("O", [NOON], NOON), source("P", [NOON - 60 * MINUTE], NOON - 60 * MINUTE)]
    sides = Source("O", NOON), Source("P", NOON - 60 * MINUTE)
    assert findings(well(sources=both, waits=[waits(NOON, NOON + 1, *sides, slowest=False)])) == []
    found = only(well(sources=both, waits=[waits(NOON - 60 * MINUTE, NOON - 1, *sides)]), "stuck clock")
    assert found.measured["source"] == "P" and "it has no newer record" in found.text
    held_back = waits(NOON - 70 * MINUTE, NOON - 5 * MINUTE, *sides)  # the join holds back 10 minutes
    assert findings(well(sources=both, waits=[held_back])) == []


def test_a_table_whose_rows_are_newer_holds_no_clock() -> None:
    both = [source("O", [NOON - 60 * MINUTE], NOON - 60 * MINUTE), source("P", [NOON], None)]
    one = waits(NOON - 60 * MINUTE, NOON - 50 * MINUTE, Source("O", NOON - 60 * MINUTE))
    assert findings(well(sources=both, waits=[one])) == []


def test_a_clock_that_has_not_begun() -> None:
    both = [source("O", [NOON], NOON), source("P", [None, None], None)]
    one = waits(None, NOON + 1, Source("O", NOON), Source("P", None, lacking=2))
    found = only(well(sources=both, waits=[one]), "stuck clock")
    assert "the clock (watermark) of P has not begun: partitions 0 and 1 of p have shown no record" in found.text
    assert findings(well(sources=both, waits=[replace(one, slowest=False, now=NOON)])) == []


def test_a_partition_by_which_state_is_kept() -> None:
    """Nothing waits, but the clock has been where it is while records came."""
    o = source("O", [NOON, NOON - 60 * MINUTE], NOON - 60 * MINUTE)
    told = [batch(n, sources=[o.document()]) for n in range(6)]
    found = only(well([*told, STOPPED], sources=[o]), "stuck clock")
    assert found.measured["batches"] == 5 and "for 5 s in which 50,000 records came" in found.text
    moved = [batch(n, sources=[replace(o, clock=n).document()]) for n in range(6)]
    assert findings(well([*moved, STOPPED], sources=[o])) == []


def test_a_partition_that_holds_the_clock_of_a_query_whose_plan_is_not_known() -> None:
    o = source("O", [NOON, NOON - 2 * MINUTE], NOON - 2 * MINUTE)
    told = [batch(0, waiting=40, sources=[o.document()]), STOPPED]
    found = only(well(told, sources=[o], waits=None), "stuck clock")
    assert "partition 1 of o holds it" in found.text and found.text.endswith("; up to 40 rows may wait for it")
    assert findings(well([batch(0), STOPPED], sources=[o], waits=None)) == []


# ---------------------------------------------------------------- no match, lag


JOIN = {"id": 2, "op": "stream-stream join", "how": "inner", "keys": ["O.ID = P.ID"], "state": []}


def test_an_inner_join_without_a_match() -> None:
    def told(out: int, first: int = 0) -> list[dict[str, Any]]:
        step = {"step": 2, "operator": "x", "ms": 1, "rows_in": 10, "rows_out": out}
        return [*(batch(first + n, stages=[stage(10, steps=[step])]) for n in range(3)), STOPPED]

    found = only(well(told(0), nodes=[JOIN]), "no match")
    assert "no rows have met in the inner join on O.ID = P.ID; 30,000 records were read" in found.text
    assert findings(well(told(1), nodes=[JOIN])) == []
    assert findings(well(told(0, first=4), nodes=[JOIN])) == []  # what was before is not known
    assert findings(well(told(0), nodes=[JOIN | {"how": "left"}])) == []


def test_a_lag_that_grows() -> None:
    found = only(well([batch(n, lag=20_000 * n) for n in range(20)], held_by=7), "lag")
    assert "380,000 records are not read" in found.text and "30,000 come a second, 10,000 are read" in found.text
    assert findings(well([batch(n, lag=500_000 - 20_000 * n) for n in range(20)], held_by=7)) == []
    assert findings(well([batch(n, lag=5_000 * (n % 2)) for n in range(20)], held_by=7)) == []


def test_records_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    found = only(well(sources=[source("O", [NOON], NOON, lag=7)]), "lag")
    assert found.text == "7 records are not read (7 of O), and the query does not run"
    silent = well([batch(n) for n in range(20)], held_by=7, sources=[source("O", [NOON], NOON, lag=7)])
    assert "no batch has come to its end for" in only(silent, "lag").text
    monkeypatch.setattr(time, "time", lambda: NOON / 1000 + 60)
    assert findings(silent) == []


# ------------------------------------------------------------- buckets and state


def test_a_hot_bucket() -> None:
    def told(share: float, hot: bool, batches: int = 6) -> Condition:
        hottest = {"bucket": 3, "share": share, "hot": hot}
        return well([*(batch(n, stages=[stage(10_000, hottest=hottest)]) for n in range(batches)), STOPPED])

    found = only(told(0.9, True), "hot bucket")
    assert found.measured == {"stage": 0, "bucket": 3, "share": 0.9, "by": "O.ID", "rows": 60_000}
    assert findings(told(0.5, False)) == findings(told(0.9, True, batches=4)) == []


def test_state_that_grows_without_bound() -> None:
    def told(keeps: float, bounded: bool = False) -> Condition:
        def one(n: int) -> dict[str, Any]:
            sides = [{"step": 2, "side": "left", "rows": 500 + int(keeps * n * 10_000), "bytes": 1, "runs": 1}]
            step = {"step": 2, "operator": "x", "ms": 1, "rows_in": 10_000, "rows_out": 1}
            return batch(n, stages=[stage(10_000, sides=sides, steps=[step])])

        state = [{"side": "left", "keeps": "rows", "until": "deleted", "bounded": bounded}]
        return well([*map(one, range(20)), STOPPED], nodes=[JOIN | {"state": state}])

    found = only(told(1.0), "unbounded state")
    assert "190,500 rows: 100% of the 90,000 rows that came last have stayed" in found.text
    assert found.more == "braid explain Q --state"
    assert findings(told(0.0)) == findings(told(0.2)) == findings(told(1.0, bounded=True)) == []


def test_what_was_before_the_last_start_is_of_another_plan() -> None:
    hottest = {"bucket": 3, "share": 0.9, "hot": True}
    before = [batch(n, stages=[stage(10_000, hottest=hottest)], started=4) for n in range(9)]
    assert findings(well([*before, *map(batch, range(9, 15)), STOPPED])) == []


# ------------------------------------------------------- retries, drops, batches


def test_retries() -> None:
    fault = {"at": NOON, "text": "a Python process was not up in time"}
    found = only(
        well([batch(0), batch(1, restarts=2, error=fault), STOPPED | {"restarts": 2, "error": fault}]), "retries"
    )
    assert found.text == "2 restarts; the last error: a Python process was not up in time"
    failed = {"tasks_failed": 4, "executors_lost": 1}
    found = only(well([batch(0, run=failed), batch(1, run=failed), STOPPED]), "retries")
    assert found.text == "4 failed tasks, 1 lost executors" and found.measured["tasks_failed"] == 4
    assert findings(well([batch(0, store_again=9), STOPPED])) == []
    assert (
        only(well([batch(0, store_again=9), batch(1, store_again=9), STOPPED]), "retries").measured["store_again"] == 18
    )


def test_drops() -> None:
    first = {"topic": "o", "partition": 0, "offset": 7, "timestamp": NOON - MINUTE, "clock": NOON, "message": None}
    found = only(well([batch(0, drops={"late": 150}), STOPPED], first_drop=lambda _: first), "drops")
    assert found.text.startswith(
        "150 of 10,000 records were dropped: late; the first is o:0:7, 1 min behind the clock "
    )
    assert "grace" in found.hint and found.more == "braid drops Q"
    assert findings(well([batch(0, drops={"late": 50, "malformed": 90}), STOPPED])) == []
    assert only(well([batch(0, rows_in=17, drops={"null key": 2}), STOPPED]), "drops").measured["share"] == 0.1176
    assert findings(well([batch(0, rows_in=170, drops={"null key": 2}), STOPPED])) == []


def test_small_batches() -> None:
    cut = [*(batch(n, rows_in=10, lag=500 - n) for n in range(6)), STOPPED]
    assert "--batch-rows" in only(well(cut), "small batches").hint
    trickle = [*(batch(n, rows_in=10, batch_ms=900.0, jvm_ms=800.0) for n in range(6)), STOPPED]
    assert "6 batches of 10 records: 90% of their time is Spark's own" in only(well(trickle), "small batches").text
    quiet = [*(batch(n, rows_in=10, batch_ms=90.0, jvm_ms=80.0) for n in range(6)), STOPPED]
    assert findings(well(quiet)) == []


def test_in_order_of_harm() -> None:
    c = well([batch(n, rows_in=10, lag=500, drops={"late": 9}, restarts=1) for n in range(6)])
    assert [x.kind for x in findings(c)] == ["failed", "retries", "drops", "small batches"]


# ------------------------------------------------------------------- over a store


def test_a_store_without_a_ring(tmp_path: Path) -> None:
    """As versions before have left it; nothing is written by the question."""
    root = store("format-7", tmp_path)
    before = files(root)
    said = braid("doctor", "--query", "o", "--store", root)
    assert (said.code, said.out) == (0, "O: nothing found; it does not run; 0 batches in its metrics.ring\n")
    told = json.loads(braid("doctor", "--query", "O", "--json", "--store", root).out)
    assert told == {
        "query": "O", "running": False, "batches": 0, "since": None, "until": None, "findings": [], "notes": [],
    }  # fmt: skip
    assert braid("doctor", "--query", "O", "--history", "--store", root).out == ""
    assert files(root) == before


def test_a_store_that_has_more_than_was_read_and_a_ring_that_is_spoilt(tmp_path: Path) -> None:
    from braid.topics.store import TopicStore

    root = store("format-7", tmp_path)
    one = Ring(opened(root / "checkpoints/O"), print)
    for record in [*map(batch, range(4)), STOPPED]:
        one.add(record | {"query": "O"})
    one.rest()
    (segment,) = (root / "checkpoints/O" / FOLDER).iterdir()
    data = bytearray(segment.read_bytes())
    data[-9] ^= 1  # how it ended
    segment.write_bytes(data)
    TopicStore(opened(root)).append_lines("l", ['{"key": 7, "value": {"V": "c"}, "timestamp": 4000}'], 0)
    said = braid("doctor", "--query", "o", "--store", root)
    assert said.code == 1
    assert "✗ failed: its last run was killed" in said.out and "1 record is not read (1 of L)" in said.out
    assert f"more: braid usage --store {root}" in said.out
    assert f"note: {segment}: a stretch of it is not as written, and skipped" in said.out
    history = braid("doctor", "--query", "o", "--history", "--store", root)
    assert [json.loads(x)["batch"] for x in history.out.splitlines()] == [0, 1, 2, 3] and "skipped" in history.err
    told = json.loads(braid("doctor", "--query", "o", "--json", "--store", root).out)
    assert [x["kind"] for x in told["findings"]] == ["failed", "lag"] and len(told["notes"]) == 1


def test_another_query_whose_checkpoint_is_damaged_is_no_matter(tmp_path: Path) -> None:
    root = store("format-7", tmp_path)
    (root / "checkpoints/P").mkdir()
    (root / "checkpoints/P/braid.json").write_text("{")
    assert braid("doctor", "--query", "o", "--store", root).code == 0
    said = braid("doctor", "--query", "p", "--store", root)
    assert said.code == 1 and "checkpoints/P/braid.json" in said.err


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["--query", "nothing"], "no query nothing has run", "queries: O"),
        (["--history"], "--history, --json, --file and --checkpoint need --query", "braid doctor --query QUERY"),
        (["--json"], "--history, --json, --file and --checkpoint need --query", "braid doctor --query QUERY"),
    ],
)
def test_errors(tmp_path: Path, words: list[str], error: str, hint: str) -> None:
    said = braid("doctor", *words, "--store", store("format-7", tmp_path))
    assert said.code == 1 and error in said.err and hint in said.err


# ---------------------------------------------------------------------- real runs

SQL = """-- dialect: ksqldb
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE STREAM o AS SELECT l.k AS k, v, w FROM l LEFT JOIN r WITHIN 5 MINUTES GRACE PERIOD 0 SECONDS ON l.k = r.k;
"""


def records(root: Path, topic: str, times: Sequence[tuple[int, int]]) -> None:
    """(partition, minute) each."""
    field = {"l": "V", "r": "W"}[topic]
    rows = [
        {"key": n, "value": {field: "x"}, "timestamp": NOON + minute * MINUTE, "partition": p}
        for n, (p, minute) in enumerate(times)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert braid("put", topic, "-", "--partitions", 2, "--store", root / "s", stdin=text).code == 0


def told(root: Path) -> dict[str, Any]:
    said = braid("doctor", "--query", "o", "--json", "--store", root / "s")
    found = json.loads(said.out)
    assert said.code == bool(found["findings"])
    return dict(found)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "q.sql").write_text(SQL)
    records(tmp_path, "l", [(0, 0), (1, 1), (0, 30), (0, 90)])
    records(tmp_path, "r", [(0, 0), (1, 1)])
    return tmp_path


RUN = ("run", "q.sql", "--store", "s", "--quiet")


@pytest.mark.spark
def test_a_clock_that_an_idle_partition_holds_and_the_same_when_it_moves(shop: Path) -> None:
    assert on_shared_spark(*RUN, "--until-idle", cwd=shop).code == 0
    (found,) = told(shop)["findings"]
    assert (found["kind"], found["measured"]["source"], found["measured"]["partition"]) == ("stuck clock", "L", 1)
    records(shop, "l", [(1, 90)])
    assert on_shared_spark(*RUN, "--until-idle", cwd=shop).code == 0
    assert told(shop)["findings"] == []
    lines = [
        json.loads(x) for x in braid("doctor", "--query", "o", "--history", "--store", shop / "s").out.splitlines()
    ]
    assert [x.get("ended", "batch") for x in lines] == ["batch", "stopped", "batch", "stopped"]
    assert [x["clock"] for x in lines[2]["sources"]] == [NOON + 90 * MINUTE, NOON]
    assert len({x["started"] for x in lines}) == 2


@pytest.mark.spark
@pytest.mark.operations
def test_a_run_that_is_killed(shop: Path) -> None:
    """Beside it nothing is wrong but the clock; killed, that is what is found first; run again, it is gone."""
    process = launch(*RUN, "--master", "local[2]", "--conf", "spark.driver.memory=1g", cwd=shop)
    try:
        deadline = time.monotonic() + 120
        while not (shop / "s/checkpoints/O" / FOLDER).exists() and time.monotonic() < deadline:
            time.sleep(0.5)
        assert told(shop)["running"] and [x["kind"] for x in told(shop)["findings"]] == ["stuck clock"]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    found = told(shop)
    assert not found["running"] and [x["kind"] for x in found["findings"]] == ["failed", "stuck clock"]
    assert "was killed" in found["findings"][0]["text"]
    assert ended(launch(*RUN, "--until-idle", "--master", "local[2]", cwd=shop)).code == 0
    assert [x["kind"] for x in told(shop)["findings"]] == ["stuck clock"]


@pytest.mark.spark
def test_a_run_whose_ring_cannot_be_written(shop: Path) -> None:
    place = shop / "s/checkpoints/O"
    place.mkdir(parents=True)
    (place / FOLDER).write_text("")
    said = on_shared_spark(*RUN[:-1], "--until-idle", cwd=shop)
    assert said.code == 0 and said.err.count("metrics.ring is not written: ") == 1, said.err
    assert [x["kind"] for x in told(shop)["findings"]] == ["stuck clock"]


@pytest.mark.spark
def test_a_query_that_was_upgraded_keeps_its_last_hour(shop: Path) -> None:
    assert on_shared_spark(*RUN, "--until-idle", cwd=shop).code == 0
    (shop / "q.sql").write_text(SQL.replace("5 MINUTES", "9 MINUTES"))
    said = on_shared_spark("upgrade", "q.sql", "--store", "s", cwd=shop)
    assert said.code == 0, said.err
    records(shop, "l", [(1, 90)])
    assert on_shared_spark(*RUN, "--until-idle", cwd=shop).code == 0
    lines = ring.read(opened(shop / "s/checkpoints/O")).documents
    assert [x.get("ended", "batch") for x in lines] == ["batch", "stopped", "batch", "stopped"]
    assert told(shop)["findings"] == []


@pytest.mark.spark
@pytest.mark.operations
def test_a_query_that_fails(shop: Path) -> None:
    """Its JVM is killed under it."""
    process = launch(*RUN, "--master", "local[2]", "--conf", "spark.driver.memory=1g", cwd=shop)
    try:
        deadline = time.monotonic() + 120
        while not (shop / "s/checkpoints/O" / FOLDER).exists() and time.monotonic() < deadline:
            time.sleep(0.5)
        (jvm,) = (x for x in json.loads((shop / "s/.run.lock").read_text())["processes"] if x["what"] == "jvm")
        os.kill(jvm["pid"], signal.SIGKILL)
        assert ended(process).code == 2
    finally:
        process.kill()
    found = told(shop)["findings"]
    assert [x["kind"] for x in found] == ["failed", "stuck clock"]
    assert "it failed at" in found[0]["text"] and found[0]["measured"]["error"] is not None, found


def test_a_broker_that_is_not_named_is_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = store("format-7", tmp_path)
    load = conditions.checkpoint.load

    def of_kafka(*words: Any) -> Any:
        found = load(*words)
        return replace(found, settings={**found.settings, "topics": {}})

    monkeypatch.setattr(conditions.checkpoint, "load", of_kafka)
    said = braid("doctor", "--query", "o", "--store", root)
    assert "note: its topics are in Kafka: name the broker (--kafka)" in said.out
