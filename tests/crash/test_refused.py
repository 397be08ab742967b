"""Torn files and checkpoints of others: named in one error, and nothing is written.

All through `braid run` as a user meets it, before Spark is started. The checkpoint is written here;
that real ones are read the same is seen by `test_crash.py`, where every new start looks through one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("pyspark")

from braid.bind.program import Program
from braid.errors import BraidError
from braid.lower.lower import lower
from braid.operators.arrangement import MemoryRuns
from braid.plan.canonical import canonical
from braid.spark.preparing import prepared
from braid.spark.query_options import QueryOptions
from braid.stage import batches, state_file
from braid.stage.batches import last_batch
from braid.stage.bucket import BucketState
from braid.stage.checkpoint import FORMAT, Document, load
from braid.stage.state_file import Tie
from braid.store import opened
from braid.topics import TopicStore, publish, stage
from braid.topics.store_value import Store
from cli_help import Said, braid
from crash import world
from crash.places import InStore
from sums import loaded, with_sum

NAMES = ("WINDOWED",)
SQL = world.sql(NAMES)
QUERY = next(e.query for e in Program("ksqldb").statements(SQL) if e.query is not None)
NO_OPTIONS = QueryOptions()
CHECKPOINT = Path("s/checkpoints/WINDOWED")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a query that has committed batches 0 to 4 and begun the next, in the folder that is the current."""
    monkeypatch.chdir(tmp_path)
    InStore(Path("s")).write(world.history(1, 20))
    Path("q.sql").write_text(SQL, encoding="utf-8")
    Path("s/.run.lock").touch()
    _, folder, _ = prepared(lower(QUERY), Store(opened("s")), 2, NO_OPTIONS)
    known = load(folder)
    assert known is not None and Path(folder.url) == tmp_path / CHECKPOINT
    for batch in range(6):
        document = {"batch": batch, "next": {"0/0": 3 * batch}, "ended": [], "idle": [], "plan": known.fingerprint}
        reads = [json.dumps(document)]
        runs = {bucket: f"q-{batch}-0-0-{bucket}-2-0" for bucket in range(2)}
        kept = {f"0/{b}": {"steps": {"2": {"left": {"runs": [[run, 3, 99]]}}}} for b, run in runs.items()}
        state_file.save(folder, batch, kept, reads=reads)
        for bucket, run in runs.items():
            path = tmp_path / CHECKPOINT / "runs" / f"0-{bucket}" / f"{run}.arrow"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"run")
    state_file.tell_published(folder, 4)
    batches.plan(folder, 5, reads)
    return tmp_path


def run(*words: object) -> Said:
    return braid("run", "q.sql", "--store", "s", "--until-idle", *words)


def refused(store: Path, *words: object) -> str:
    """What a run says that ends before it has written anything (but who holds the lock)."""
    before = snapshot(store)
    said = run(*words)
    assert said.code == 1 and not said.out, said
    assert snapshot(store) == before
    return said.err


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its bytes and the time of its last change; folders with theirs. But for who wrote last: a start
    that is not refused claims the checkpoint."""
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"")
        for p in sorted(folder.rglob("*"))
        if p.name != ".run.lock" and "epochs" not in p.parts
    }


# ------------------------------------------------------------ torn files


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


NEEDED = ["planned.json", "state/4.json"]


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("damage", [truncate, garble, empty])
def test_a_torn_file_is_named(store: Path, name: str, damage: Callable[[Path], None]) -> None:
    path = store / CHECKPOINT / name
    damage(path)
    told = refused(store)
    assert f"error: {path} is damaged: it is " in told, told
    assert f"put it back from a copy; or braid reset {CHECKPOINT.name}" in told


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        (["state/4.json"], "state/4.json"),
        (["state/4.json", "state/5.json"], "state/4.json"),
        ([f"state/{n}.json" for n in range(6)], "state/4.json"),
        ([*(f"state/{n}.json" for n in range(6)), "state/published"], "state/4.json"),
        (["runs/0-1/q-4-0-0-1-2-0.arrow"], "runs/0-1/q-4-0-0-1-2-0.arrow"),
    ],
)
def test_a_missing_file_is_named(store: Path, gone: list[str], named: str) -> None:
    checkpoint = store / CHECKPOINT
    for name in gone:
        (checkpoint / name).unlink()
    assert f"error: {checkpoint / named} is damaged: it is missing" in refused(store)


def test_what_no_restart_reads_may_be_torn(store: Path) -> None:
    """Files of the batch that was under way, and of batches long past."""
    for name in ("state/5.json", "state/3.json", "runs/0-0/q-5-0-0-0-2-0.arrow"):
        truncate(store / CHECKPOINT / name)
    known = load(opened(CHECKPOINT))
    assert known is not None and last_batch(opened(str(CHECKPOINT)), known) == 4


@pytest.mark.parametrize("torn", ["", "x", "-1"])
def test_without_a_word_that_it_is_done_the_newest_batch_is_done_again(store: Path, torn: str) -> None:
    (CHECKPOINT / "planned.json").unlink()
    (CHECKPOINT / "state" / "published").write_text(torn)
    known = load(opened(CHECKPOINT))
    assert (
        known is not None and last_batch(opened(str(CHECKPOINT)), known) == 4 and batches.begun(opened(str(CHECKPOINT)))
    )
    (CHECKPOINT / "state" / "5.json").unlink()
    assert last_batch(opened(str(CHECKPOINT)), known) == 3 and batches.begun(opened(str(CHECKPOINT)))


def test_a_batch_of_other_records_is_not_written_over(store: Path) -> None:
    """Somebody else has gone on from this checkpoint, while this driver slept."""
    folder, kept = str(CHECKPOINT), state_file.load(opened(str(CHECKPOINT)), 4)
    state_file.save(opened(folder), 6, kept, Tie("a" * 64, None))
    state_file.save(opened(folder), 6, kept, Tie("a" * 64, None))
    with pytest.raises(BraidError, match=r"batch 6 was computed in .* by another run"):
        state_file.save(opened(folder), 6, kept, Tie("b" * 64, None))


def test_a_torn_record_of_the_checkpoint(store: Path) -> None:
    truncate(store / CHECKPOINT / "braid.json")
    told = refused(store)
    assert "WINDOWED/braid.json cannot be read" in told and "braid reset WINDOWED" in told


@pytest.mark.parametrize("damage", [truncate, garble, empty])
def test_a_torn_commit_of_a_topic(store: Path, damage: Callable[[Path], None]) -> None:
    path = max((store / "s/topics/l/.commits").iterdir())
    damage(path)
    if damage is garble:  # somewhere in JSON: still JSON, perhaps
        path.write_text(path.read_text().replace('"first"', '"frist"'))
    before = snapshot(store / "s/topics")
    with pytest.raises(BraidError, match="damaged") as e:
        TopicStore(opened("s")).end_offsets("l")
    assert e.value.hint or "commit" in e.value.message
    assert snapshot(store / "s/topics") == before


@pytest.mark.parametrize("damage", [truncate, garble, os.unlink])
def test_a_torn_segment(store: Path, damage: Callable[[Path], None]) -> None:
    path = max((store / "s/topics/l/0").glob("*.jsonl"))
    damage(path)
    before = snapshot(store / "s/topics")
    with pytest.raises(BraidError, match="is not the segment that was committed") as e:
        TopicStore(opened("s")).read("l", 0, 0, 99)
    assert path.name in e.value.message and e.value.hint and "put the file back" in e.value.hint
    assert snapshot(store / "s/topics") == before


def test_a_state_that_cannot_be_read() -> None:
    whole = BucketState(MemoryRuns()).dumps()
    assert BucketState.loads(whole, MemoryRuns()).dumps() == whole
    with pytest.raises(BraidError, match="the state of a bucket cannot be read"):
        BucketState.loads(whole[:-3], MemoryRuns())
    with pytest.raises(BraidError, match="the state is of format 1; this version of braid reads 2") as e:
        BucketState.loads(whole.replace('"format":2', '"format":1'), MemoryRuns())
    assert e.value.hint and "the version of braid that wrote it" in e.value.hint


# ---------------------------------------------- what is staged and no more


def test_what_was_staged_and_never_published_goes_without_a_word(store: Path) -> None:
    """A torn file in `.staging` is of an attempt that nobody counts on."""
    topic = TopicStore(opened("s")).topic("WINDOWED")
    lines = pl.Series(['{"key":1,"value":null,"timestamp":1}'] * 4)
    whole = stage(topic, "q", 0, 0, lines)
    torn = stage(topic, "q", 0, 0, lines[:1])  # the same task, done again by a process that was cut off
    truncate(Path(topic.staging) / torn.file)
    assert publish(topic, "q", 0, [whole])
    assert topic.ends() == [4, 0] and TopicStore(opened("s")).read("WINDOWED", 0, 0, 4)["_line"].equals(
        lines, check_names=False
    )
    assert not os.listdir(topic.staging)


# ------------------------------------------------- checkpoints of others


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (SQL.replace("FULL JOIN", "LEFT JOIN").replace("ROWKEY AS", "l.k AS"), "LEFT JOIN"),
        (SQL.replace("3 SECONDS", "4 SECONDS"), "4 SECONDS"),
        ("SET 'braid.late' = 'discard';" + SQL, "discard"),
        (SQL.replace("v VARCHAR, n INT) WITH (kafka_topic = 'l'", "v INT, n INT) WITH (kafka_topic = 'l'"), "VARCHAR"),
    ],
)
def test_another_query(store: Path, sql: str, told: str) -> None:
    Path("q.sql").write_text(sql, encoding="utf-8")
    shown = refused(store)
    assert "was made by another query" in shown and told in shown, shown
    assert "braid reset" in shown


def test_check_tells_what_a_run_would_do(store: Path) -> None:
    """Goes on, is new, or cannot go on, and why; nothing is written."""
    before = snapshot(store)
    said = braid("check", "q.sql", "--store", "s")
    assert said.code == 0 and "  WINDOWED goes on after batch 4" in said.out, said
    assert snapshot(store) == before
    Path("q.sql").write_text(SQL.replace("3 SECONDS", "4 SECONDS"), encoding="utf-8")
    said = braid("check", "q.sql", "--store", "s")
    assert said.code == 1 and "  WINDOWED cannot go on" in said.out, said
    assert "was made by another query" in said.err and "braid reset WINDOWED" in said.err
    Path("q.sql").write_text(SQL, encoding="utf-8")
    truncate(store / CHECKPOINT / "state/4.json")
    said = braid("check", "q.sql", "--store", "s")
    assert said.code == 1 and "state/4.json is damaged" in said.err
    Path("new").mkdir()
    said = braid("check", "q.sql", "--store", "new")
    assert said.code == 0 and "  WINDOWED is new" in said.out
    assert "WINDOWED" not in braid("check", "q.sql", "--store", "none").out


def test_the_same_query_in_other_words(store: Path) -> None:
    sql = "-- again\n" + SQL.replace("SELECT", "select").replace("3 SECONDS", "3000 MILLISECONDS")
    (again,) = (e.query for e in Program("ksqldb").statements(sql) if e.query is not None)
    before = snapshot(store)
    _, folder, _ = prepared(lower(again), Store(opened("s")), 2, NO_OPTIONS)
    assert Path(folder.url) == store / CHECKPOINT and snapshot(store) == before


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("format", FORMAT + 1, f"has format {FORMAT + 1}; this version of braid has format {FORMAT}"),
        ("format", 4, "run the file on a new store (--store)"),
        ("spark", "9.9.9", "Spark: 9.9 in the checkpoint"),
        ("hash", "0" * 64, "its plan and its hash do not agree"),
        ("settings", {"dialect": "lenses", "run": "r", "order": False}, "setting dialect: lenses in the checkpoint"),
    ],
)
def test_other_versions_and_settings(store: Path, field: str, value: object, told: str) -> None:
    path = CHECKPOINT / "braid.json"
    path.write_bytes(with_sum({**loaded(path), field: value}))
    before = snapshot(store)
    if field == "spark":  # compared where Spark's version is known
        with pytest.raises(BraidError) as e:
            prepared(lower(QUERY), Store(opened("s")), 2, NO_OPTIONS)
        shown = str(e.value)
    else:
        shown = refused(store)
    assert told in shown
    assert snapshot(store) == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (replace(NO_OPTIONS, buckets=8), "buckets: 4 in the checkpoint, 8 now"),
        (replace(NO_OPTIONS, tasks=1), "shuffle partitions of Spark: 2 in the checkpoint, 1 now"),
        (replace(NO_OPTIONS, partitions=3), "the topic WINDOWED has 2 partitions, not 3"),
    ],
)
def test_another_spread(store: Path, options: QueryOptions, told: str) -> None:
    before = snapshot(store)
    with pytest.raises(BraidError) as e:
        prepared(lower(QUERY), Store(opened("s")), 2, options)
    assert told in str(e.value)
    assert snapshot(store) == before


def test_no_topic_is_made_for_a_query_that_is_refused(store: Path) -> None:
    other = replace(QUERY, sink=replace(QUERY.sink, topic="elsewhere"))
    assert canonical(other) != canonical(QUERY)
    before = snapshot(store)
    with pytest.raises(BraidError, match="was made by another query"):
        prepared(lower(other), Store(opened("s")), 2, NO_OPTIONS)
    assert snapshot(store) == before


def test_the_numbers_of_the_first_start_stay(store: Path) -> None:
    """More cores, and the topic gone: the recorded numbers hold, and state is where it was."""
    TopicStore(opened("s")).delete("WINDOWED")
    job, _, _ = prepared(lower(QUERY), Store(opened("s")), 16, NO_OPTIONS)
    known = load(opened(CHECKPOINT))
    assert isinstance(known, Document)
    assert (job.buckets, job.tasks, job.output.partitions) == (known.buckets, known.shuffle, known.outputs) == (4, 2, 2)
    assert TopicStore(opened("s")).partitions("WINDOWED") == 2
