"""What topics keep: records go by age and size, of each key the last stays; offsets, checksums and readers stay right.

In a folder and in a room, killed at every step and gone on from there.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import BraidError
from braid.face import maintenance
from braid.plan.logical import Source
from braid.records.encoding import Encoding
from braid.stage.inputs import TopicInput
from braid.store import opened
from braid.store.folder import FolderStore
from braid.topics import TopicStore, files, housekeeping, integrity, log, object_topics, read_records, retention
from braid.topics.object_topic_store import ObjectTopicStore
from braid.topics.removal import Gone
from braid.topics.retention import Retention
from cli_help import braid
from effort import examples

NAME = "t"


@pytest.fixture(autouse=True)
def _folded_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_topics, "BESIDE", False)
    monkeypatch.setattr(log, "FOLD", 4)


def store_of(kind: str, folder: Path | str) -> TopicStore:
    return TopicStore(opened(folder)) if kind == "folder" else ObjectTopicStore(opened(str(folder)))


@pytest.fixture(params=["folder", "room"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> TopicStore:
    return store_of(request.param, tmp_path)


def again(store: TopicStore) -> TopicStore:
    """The same store, for a process that has seen nothing yet."""
    made: TopicStore = pickle.loads(pickle.dumps(store))
    return made


def put(store: TopicStore, numbers: range, keys: int = 5, partitions: int = 1, dead: int = 0) -> None:
    """A commit for each number: two records of that time. Every `dead`-th has no value."""
    if not store.exists(NAME):
        store.create(NAME, partitions)
    for n in numbers:
        value = None if dead and n % dead == 0 else {"V": n}
        rows = [{"key": n % keys, "value": value}, {"key": -1 - n, "value": {"V": -n}}]
        store.append(NAME, [r | {"timestamp": n, "partition": n % partitions} for r in rows])


def everything(store: TopicStore) -> dict[tuple[int, int], str]:
    """The lines that are there, by partition and offset."""
    found = {}
    for p, (first, end) in enumerate(zip(store.start_offsets(NAME), store.end_offsets(NAME), strict=True)):
        rows = store.read(NAME, p, first, end)
        found |= {(p, n): line for n, line in rows.select("_offset", "_line").iter_rows()}
    return found


def standing(lines: dict[tuple[int, int], str]) -> dict[str, Any]:
    """The table that lines come to."""
    rows: dict[str, Any] = {}
    for _, line in sorted(lines.items()):
        record = json.loads(line)
        rows[json.dumps(record["key"])] = record["value"]
    return {key: value for key, value in rows.items() if value is not None}


def sums(store: TopicStore) -> dict[tuple[int, int], int | None]:
    ends = store.end_offsets(NAME)
    return {(p, n): store.checksum(NAME, p, n) for p, end in enumerate(ends) for n in range(end + 1)}


def all_read(_: int, end: int) -> int:
    return end


def keep(store: TopicStore, needed: Callable[[int, int], int] = all_read, now: int = 1000, **wanted: Any) -> Gone:
    return housekeeping.apply(store.topic(NAME), Retention(**wanted), needed, now, at_once=True)


# ------------------------------------------------------------- by age and size


def test_records_go_that_are_older(anywhere: TopicStore) -> None:
    put(anywhere, range(40), partitions=2)
    before, checked = everything(anywhere), sums(anywhere)
    gone = keep(anywhere, ms=980)  # before 20
    for store in (anywhere, again(anywhere)):
        starts = store.start_offsets(NAME)
        assert all(0 < s <= 20 for s in starts) and store.end_offsets(NAME) == [40, 40]
        assert everything(store) == {at: x for at, x in before.items() if at[1] >= starts[at[0]]}
        assert store.count(NAME) == sum(store.end_offsets(NAME)) - sum(starts)
        assert gone.records == sum(starts)
        for (p, n), crc in checked.items():
            assert store.checksum(NAME, p, n) == (crc if n >= starts[p] else None)
        assert integrity.look(store.topic(NAME)).wrong == []
    put(anywhere, range(40, 60), partitions=2)
    assert again(anywhere).end_offsets(NAME) == [60, 60]
    assert keep(anywhere, ms=980).records == 0


def test_the_oldest_go_above_a_size(anywhere: TopicStore) -> None:
    put(anywhere, range(40))
    most = 600
    keep(anywhere, bytes=most)
    left = sum(s.extent.size for s in again(anywhere).topic(NAME).view().parts[0])
    assert left >= most and left - anywhere.topic(NAME).view().parts[0][0].extent.size < most
    assert anywhere.start_offsets(NAME)[0] > 0


def test_the_last_segment_stays(anywhere: TopicStore) -> None:
    put(anywhere, range(8))
    keep(anywhere, ms=0)
    keep(anywhere, bytes=0)
    assert anywhere.end_offsets(NAME) == [16] and anywhere.count(NAME) > 0


def test_what_a_reader_needs_stays(anywhere: TopicStore) -> None:
    retention.want(anywhere.root, NAME, Retention(ms=50))  # so segments are rolled up to a tenth of that
    put(anywhere, range(40))
    gone = keep(anywhere, lambda p, end: 21, ms=0)
    assert 0 < anywhere.start_offsets(NAME)[0] <= 21 and gone.held == {0: 21}


def test_a_range_that_is_gone_is_refused_by_name(anywhere: TopicStore) -> None:
    put(anywhere, range(40))
    source = Source("X", "S", NAME, "stream", (), Encoding())
    keep(anywhere, ms=980)
    start = anywhere.start_offsets(NAME)[0]
    with pytest.raises(
        BraidError, match=f"partition 0 of the topic {NAME} begins at {start}, and record 3 is to be read"
    ):
        TopicInput(anywhere, source).read(0, 3, 40)


def test_a_time_is_found_behind_what_went(anywhere: TopicStore) -> None:
    put(anywhere, range(40))
    keep(anywhere, ms=980)
    assert anywhere.offsets_at(NAME, 30) == [60]
    assert anywhere.offsets_at(NAME, 0) == anywhere.start_offsets(NAME)


# ------------------------------------------------------------------- compacted


def test_of_each_key_the_last_record_stays(anywhere: TopicStore) -> None:
    put(anywhere, range(40), partitions=2, dead=7)
    before, checked, table = everything(anywhere), sums(anywhere), standing(everything(anywhere))
    gone = keep(anywhere, compact=True)
    for store in (anywhere, again(anywhere)):
        now = everything(store)
        assert now.items() <= before.items() and len(before) - len(now) == gone.records > 10
        assert standing(now) == table and store.count(NAME) == len(now)
        assert store.end_offsets(NAME) == [40, 40] and store.start_offsets(NAME) == [0, 0]
        for at, crc in sums(store).items():
            assert crc in (checked[at], None)
        for p, part in enumerate(store.topic(NAME).view().parts):
            assert all(store.checksum(NAME, p, s.end) == checked[p, s.end] for s in part)
        assert integrity.look(store.topic(NAME)).wrong == []
        shown = read_records(store.topic(NAME))
        assert len(shown) == len(now) and not any("error" in r for r in shown)
    assert keep(anywhere, compact=True).records == 0


def test_tombstones_stay_for_a_while(anywhere: TopicStore) -> None:
    put(anywhere, range(30), keys=3, dead=3)  # key 0 is dead whenever it comes
    day = retention.DAY
    dead = lambda: sum('"value":null' in x for x in everything(anywhere).values())  # noqa: E731
    keep(anywhere, compact=True)
    left = dead()
    assert left >= 1
    keep(anywhere, now=day // 2, compact=True)
    assert dead() == left
    keep(anywhere, now=2 * day, compact=True)
    assert dead() < left or left == 1


def test_lines_that_are_no_records_and_records_without_a_key_stay(anywhere: TopicStore) -> None:
    anywhere.create(NAME)
    for n in range(12):
        odd = ["no record", '{"key":null,"value":1,"timestamp":3}', f'{{"key":1,"value":{n},"timestamp":{n}}}']
        anywhere.append_lines(NAME, odd)
    keep(anywhere, compact=True)
    lines = list(everything(again(anywhere)).values())
    assert lines.count("no record") == 12 and lines.count(odd[1]) == 12 and len(lines) < 36


def test_what_is_not_read_by_all_is_not_compacted(anywhere: TopicStore) -> None:
    put(anywhere, range(40), keys=1)
    before = everything(anywhere)
    keep(anywhere, lambda p, end: 66, compact=True)
    now = everything(anywhere)
    assert {at: x for at, x in before.items() if at[1] >= 66} == {at: x for at, x in now.items() if at[1] >= 66}
    assert len(now) < len(before)


Step = tuple[str, int]
steps = st.lists(
    st.tuples(st.sampled_from(["put", "compact", "shorten", "read"]), st.integers(0, 9)), min_size=5, max_size=30
)


@pytest.mark.parametrize("kind", ["folder", "room"])
@settings(max_examples=examples(25), deadline=None)
@given(steps, st.integers(0, 1 << 30))
def test_a_reader_sees_what_it_would_have_seen(kind: str, drawn: list[Step], seed: int) -> None:
    """Whenever a topic is compacted or shortened, what a reader has read is as if nothing had been; who begins at the
    end has the same table, where only compaction was."""
    rng = random.Random(seed)
    with TemporaryDirectory() as folder:
        store = store_of(kind, folder)
        store.create(NAME, 2)
        written: dict[tuple[int, int], str] = {}
        seen: dict[tuple[int, int], str] = {}
        at, time, shortened = [0, 0], 0, False
        needed = lambda p, end: at[p]  # noqa: E731
        reader = again(store)
        for what, n in drawn:
            if what == "put":
                for _ in range(n):
                    rows = [
                        {"key": k, "value": rng.choice([None, time, time]), "timestamp": time, "partition": k % 2}
                        for k in (rng.randrange(4) for _ in range(rng.randrange(1, 4)))
                    ]  # a key has one partition: else its last record in one would not say what it is in the other
                    time += 1
                    store.append(NAME, rows)
                    written |= {(p, o): x for p in (0, 1) for o, x in _lines(store, p, at_least=_count(written, p))}
            elif what == "compact":
                keep(store, needed, now=time * retention.DAY, compact=True, tombstones=rng.choice([0, retention.DAY]))
            elif what == "shorten" and n > 6:
                shortened |= keep(store, needed, now=time, ms=3).records > 0
            else:
                for p, end in enumerate(reader.end_offsets(NAME)):
                    upto = min(end, at[p] + n)
                    seen |= {(p, o): x for o, x in _lines(reader, p, at[p], upto)}
                    at[p] = upto
        assert seen == {(p, o): x for (p, o), x in written.items() if o < at[p]}
        fresh = everything(again(store))
        assert fresh.items() <= written.items()
        if not shortened:
            assert standing(fresh) == standing(written)


def _count(written: dict[tuple[int, int], str], partition: int) -> int:
    return sum(p == partition for p, _ in written)


def _lines(store: TopicStore, p: int, at_least: int, end: int | None = None) -> list[tuple[int, str]]:
    end = store.end_offsets(NAME)[p] if end is None else end
    return list(store.read(NAME, p, at_least, end).select("_offset", "_line").iter_rows())


# ---------------------------------------------------------------------- killed


class Died(Exception):
    pass


@pytest.mark.parametrize("wanted", [{"ms": 980}, {"compact": True, "tombstones": 0}])
@pytest.mark.parametrize("kind", ["folder", "room"])
def test_killed_at_every_step_it_leaves_the_old_or_the_new(kind: str, wanted: dict[str, Any], tmp_path: Path) -> None:
    at, done = 0, False
    while not done:
        store = store_of(kind, tmp_path / str(at))
        put(store, range(40), partitions=2, dead=7)
        keep(store, ms=995 if kind == "folder" else 990) if at % 2 else None  # some of it went before
        before, table, left = everything(store), standing(everything(store)), at

        def hook(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died

        files.crash_hook = hook
        try:
            keep(again(store), **wanted)
            done = True
        except Died:
            pass
        finally:
            files.crash_hook = None
        for looked in (again(store), store):  # by one that has seen it all before, too
            now = everything(looked)
            assert now.items() <= before.items()
            if "compact" in wanted:
                assert standing(now) == table
        put(again(store), range(40, 45), partitions=2)
        assert again(store).end_offsets(NAME) == [46, 44]
        keep(again(store), **wanted)
        whole = again(store)
        assert integrity.look(whole.topic(NAME)).wrong == []
        assert whole.count(NAME) == len(everything(whole)) < len(before) + 10
        if kind == "folder":
            there = {f.name for p in range(2) for f in (tmp_path / str(at) / "topics" / NAME / str(p)).glob("*.jsonl")}
            named = {log.segment_name(s.first) for part in whole.topic(NAME).view().parts for s in part}
            assert there == named
        at += 1
    assert at >= 3


class Dying:
    """A room at one of whose calls a process dies: before it, or when it is done."""

    def __init__(self, room: Any, left: int) -> None:
        self._room, self.left = room, left

    @property
    def url(self) -> str:
        return str(self._room.url)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._room, name)

        def counted(*args: Any) -> Any:
            self._step()
            found = call(*args)
            self._step()
            return found

        return counted

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Died


@pytest.mark.parametrize("wanted", [{"ms": 994}, {"compact": True, "tombstones": 0}])
def test_killed_at_every_call_of_the_room(wanted: dict[str, Any], tmp_path: Path) -> None:
    first = ObjectTopicStore(FolderStore(str(tmp_path / "first"), durable=False))
    put(first, range(14), keys=2, partitions=2, dead=3)
    before, table, at, done = everything(first), standing(everything(first)), 0, False
    while not done:
        shutil.copytree(tmp_path / "first", tmp_path / str(at))
        room = FolderStore(str(tmp_path / str(at)), durable=False)
        store = ObjectTopicStore(room)
        everything(store)
        try:
            keep(ObjectTopicStore(Dying(room, at)), **wanted)  # type: ignore[arg-type]
            done = True
        except Died:
            pass
        for looked in (again(store), store):
            now = everything(looked)
            assert now.items() <= before.items() and ("ms" in wanted or standing(now) == table)
        put(again(store), range(14, 18), partitions=2)
        keep(again(store), **wanted)
        whole = again(store)
        assert integrity.look(whole.topic(NAME)).wrong == []
        assert whole.end_offsets(NAME) == [18, 18] and whole.count(NAME) == len(everything(whole)) < len(before) + 8
        named = {s.staged for part in whole.topic(NAME).view().parts for s in part}
        objects = {name.partition("/data/")[2] for name, _ in room.list("topics") if "/data/=rolled" in name}
        assert done <= (len(objects - named) <= 1)  # the last commit's, if it was stopped behind it
        at += 1
    assert at > 15


@pytest.mark.parametrize("wanted", [{"ms": 980}, {"compact": True}])
def test_a_reader_beside_it_at_every_step(anywhere: TopicStore, wanted: dict[str, Any]) -> None:
    put(anywhere, range(40))
    before = everything(anywhere)
    readers = [again(anywhere) for _ in range(2)]
    everything(readers[0])  # this one knows all the segments
    needed = lambda p, end: 50  # noqa: E731
    looks = 0

    def look(_: str) -> None:
        nonlocal looks
        files.crash_hook = None
        for reader in (*readers, again(anywhere)):
            found = dict(_lines(reader, 0, 50, 80))
            assert found == {o: x for (_, o), x in before.items() if o >= 50}
        looks += 1
        files.crash_hook = look

    files.crash_hook = look
    try:
        keep(anywhere, needed, **wanted)
    finally:
        files.crash_hook = None
    assert looks > 1


# -------------------------------------------------------------------- settings


def test_retention_ms_is_of_the_topic_that_a_statement_makes(tmp_path: Path) -> None:
    sql = "CREATE STREAM {0} (k INT KEY) WITH (kafka_topic='{0}', partitions=1, retention_ms={1}, format='JSON');"

    def run(name: str, ms: int) -> dict[str, Retention]:
        said = braid("run", "-e", sql.format(name, ms), "--store", tmp_path / "s")
        assert said.code == 0, said.err
        return retention.all_of(opened(str(tmp_path / "s")))

    assert run("a", 5000) == {"a": Retention(ms=5000)}
    braid("retain", "a", "--for", "2h", "--store", tmp_path / "s")
    assert run("a", 5000) == {"a": Retention(ms=7_200_000)}  # what is there stays as it is
    TopicStore(opened(tmp_path / "s")).create("b")
    assert run("b", 5000) == {"a": Retention(ms=7_200_000)}
    assert braid("rm", "a", "--store", tmp_path / "s").code == 0
    assert retention.all_of(opened(str(tmp_path / "s"))) == {}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("t", "--for", "7 weeks"), "--for 7 weeks: it is not a time span"),
        (("t", "--bytes", "many"), "--bytes many: it is not a number of bytes"),
        (("--for", "7d"), "what is to be kept is said of one topic"),
        (("u",), "no topic u in"),
    ],
)
def test_what_retain_refuses(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    put(TopicStore(opened(tmp_path)), range(1))
    said = braid("retain", *words, "--store", tmp_path)
    assert said.code == 1 and why in said.err, said


def test_retain_says_what_it_keeps_and_what_went(tmp_path: Path) -> None:
    put(TopicStore(opened(tmp_path)), range(9))
    retain = lambda *words: braid("retain", *words, "--store", tmp_path).out  # noqa: E731
    assert retain() == f"all topics of {tmp_path} keep all their records\n"
    assert retain("T") == "t keeps all its records\n"
    said = retain("t", "--for", "7d", "--bytes", "15GB", "--tombstones", "2h", "--compact", "--yes")
    kept = "t keeps records for 7 d and 15.0 GB a partition and the last of each key (tombstones for 2 h)\n"
    assert said.startswith(kept) and "records went" in said
    assert retain() == kept
    assert retain("t", "--all") == "t keeps all its records\n"


@pytest.mark.parametrize("limit", [40, 25])
@pytest.mark.parametrize("wanted", [{"ms": 980}, {"bytes": 300}, {"compact": True}, {"ms": 980, "compact": True}])
def test_what_would_go_is_what_goes(wanted: dict[str, Any], limit: int, anywhere: TopicStore) -> None:
    put(anywhere, range(40), partitions=2, dead=7)
    before, needed = everything(anywhere), lambda _, end: min(limit, end)
    would = housekeeping.foreseen(anywhere.topic(NAME), Retention(**wanted), needed, 1000)
    assert everything(anywhere) == before and would.records
    assert would == keep(anywhere, needed, **wanted)


def test_a_dry_run_and_a_question_where_most_records_would_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD", 100)
    store = TopicStore(opened(tmp_path))
    put(store, range(4))
    words = ("retain", NAME, "--for", "7d", "--store", tmp_path)
    said = braid(*words, "--dry-run")
    assert said.out.startswith(f"{NAME} would keep records for 7 d\n{NAME}: 6 of 8 records would go, "), said
    refused = braid(*words)
    assert refused.code == 1 and f"6 of 8 records of {NAME} go" in refused.err and "--yes" in refused.err
    assert braid("retain", NAME, "--for", "100000d", "--store", tmp_path).code == 0  # nothing would go
    assert store.count(NAME) == 8 and retention.all_of(opened(str(tmp_path))) == {
        NAME: Retention(ms=100_000 * 86_400_000)
    }
    for answer, left in (False, 8), (True, 2):
        asked = list[str]()
        monkeypatch.setattr(maintenance, "_sits_there", lambda: True)
        monkeypatch.setattr(click, "confirm", lambda text, abort: asked.append(text) or _answered(answer))  # noqa: B023
        said = braid(*words)
        assert asked == [f"6 of 8 records of {NAME} go. Go on?"] and store.count(NAME) == left, said
    put(store, range(4, 9))
    assert braid("retain", "--store", tmp_path).code == 0 and store.count(NAME) == 2  # what is set needs no question


def _answered(yes: bool) -> bool:
    if not yes:
        raise click.exceptions.Abort
    return yes


def test_what_is_wanted_is_a_document_of_the_store(anywhere: TopicStore) -> None:
    root = anywhere.root
    assert retention.all_of(root) == {}
    retention.want(root, "a", Retention(ms=5, compact=True, tombstones=7))
    retention.want(root, "b", Retention(bytes=9))
    assert retention.all_of(root) == {"a": Retention(5, None, True, 7), "b": Retention(None, 9)}
    retention.want(root, "a", Retention())
    assert retention.all_of(root) == {"b": Retention(None, 9)}
