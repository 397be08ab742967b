"""Drivers of one query, killed at moments drawn at random: another goes on, rows and drops stay, each once. In a bucket
two are at work at once: one goes on, the other is told.

In: drivers as `spark/query.py` has them, without Spark: the same claim, state writer, runs, commits of a topic, drops.
Each thinks it is alone. Out: the state, the output and the drops behind the last batch.
Rule: between any two calls of the store, and before the answer of each is seen, another driver may go on, for as long
as it likes; any may be killed there and never come back. A machine has no copies of what others wrote. In a folder,
where a run holds the store's lock, the next begins when the one before it is gone.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pytest

pytest.importorskip("obstore")

from braid.errors import BraidError, TakenOver
from braid.operators.changes import LEAF_BITS, POS, POS_TYPE, SUB
from braid.stage import batches, cause_log, run_files, state_file
from braid.stage.checkpoint_runs import CheckpointRuns, packing_of, renamed
from braid.stage.epoch import Epoch, claim
from braid.stage.state_writer import Outcome, StateWriter
from braid.store import ObjectStore, opened
from braid.store.cache import cache_of
from braid.store.folder import FolderStore
from braid.store.objects import BucketStore
from braid.topics.commit import publish
from braid.topics.drops import clean_drops, publish_drops, read_drops, stage_drops
from braid.topics.interface import open_topics
from braid.topics.store_value import Store

pytestmark = pytest.mark.timeout(3000)

T = TypeVar("T")
BUCKETS, BATCHES, LAST = 2, 5, 8
RUN = "J-00000000000000"
AHEAD = 5  # rows of a batch, at most


class Killed(BaseException):
    """The process is gone."""


class Turns:
    """One driver goes on at a time, from one call of the store to the next."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self._moves = rng, threading.Condition()
        self.waiting: list[Driver] = []
        self._next: Driver | None = None

    def call(self, do: Callable[[], T]) -> T:
        driver = threading.current_thread()
        if not isinstance(driver, Driver):
            return do()
        self._wait(driver)
        try:
            return do()
        finally:
            self._wait(driver)

    def _wait(self, driver: Driver) -> None:
        with self._moves:
            self.waiting.append(driver)
            self._moves.notify_all()
            self._moves.wait_for(lambda: self._next is driver)
            self._next = None
            if driver.killed:
                raise Killed

    def move(self, driver: Driver) -> None:
        """It goes on until it stands before, or behind, its next call, or has ended."""
        with self._moves:
            self._moves.wait_for(lambda: driver in self.waiting or not driver.is_alive(), timeout=60)
            if driver not in self.waiting:
                return
            self.waiting.remove(driver)
            self._next = driver
            self._moves.notify_all()
            self._moves.wait_for(lambda: driver in self.waiting or driver.over, timeout=60)

    def ended(self, driver: Driver) -> None:
        with self._moves:
            driver.over = True
            self._moves.notify_all()


class Driver(threading.Thread):
    """As `RunningQuery`, which it follows step by step. A batch reads some rows, by a number of its own choice, and
    each bucket keeps its rows; `upto`: the batch behind which it ends."""

    def __init__(self, turns: Turns, root: str, seed: int, upto: int) -> None:
        super().__init__(daemon=True)
        self._limit, self._root, self._upto = turns, root, upto
        self._folder, self._rng = opened(f"{root}/checkpoints/J"), random.Random(seed)
        self.killed = self.over = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._query()
        except Killed:
            pass
        except BaseException as e:
            self.error = e
        finally:
            self._limit.ended(self)

    def _query(self) -> None:
        epoch = claim(self._folder)
        writer = StateWriter(epoch, BUCKETS, run=RUN)
        for left in reversed(range(4)):
            try:
                writer.begin()
                clean_drops(opened(self._root), "J", state_file.published(self._folder))
                self._batches(epoch, writer)
                return
            except (BraidError, OSError) as e:
                if (lost := writer.lost()) is not None:
                    raise lost from e
                if not left or not writer.overtaken():
                    raise

    def _batches(self, epoch: Epoch, writer: StateWriter) -> None:
        last, done, begun = batches.laid_out(self._folder)
        number = 0 if last is None else last + 1
        at = 0 if done is None else end_of(done)
        while number <= self._upto:
            reads = begun if begun is not None else [self._planned(number, at)]
            begun, digest = None, batches.digest_of(reads)
            said = [self._task(epoch, number, bucket, at, end_of(reads)) for bucket in range(BUCKETS)]
            lost = pl.DataFrame({"offset": [v for v in range(at, end_of(reads)) if v % 3 == 0]}, {"offset": pl.Int64})
            staged = stage_drops(opened(self._root), "J", number, 0, lost.with_columns(reason=pl.lit("late")), run=RUN)
            causes = self._causes(at, end_of(reads))
            writer.keep(reads, said, Outcome(True, staged is not None, causes), number)
            publish(self._topic(), RUN, number, [], empty=True, digest=digest)
            publish_drops(opened(self._root), "J", number, [] if staged is None else [staged], run=RUN)
            writer.shown(number)
            number, at = number + 1, end_of(reads)

    def _causes(self, start: int, end: int) -> list[cause_log.Piece]:
        """Each record gives a row."""
        gathered = cause_log.Gathered(None, 0)  # type: ignore[arg-type]
        positions = [v << LEAF_BITS for v in range(start, end)]
        gathered.add(pl.DataFrame({POS: positions, SUB: None}, schema={POS: POS_TYPE, SUB: pl.Binary()}), None, 0)
        return gathered.pieces

    def _planned(self, number: int, at: int) -> str:
        end = at + self._rng.randint(1, AHEAD)
        return json.dumps({"plan": "p", "batch": number, "next": {"0/0": end}, "ended": [], "idle": []})

    def _task(self, epoch: Epoch, batch: int, bucket: int, start: int, end: int) -> dict[str, Any]:
        """The rows of a bucket become a run; sometimes all runs that are there become one."""
        packing, place = packing_of(self._folder, epoch.number, batch), state_file.place(0, bucket)
        runs, before = CheckpointRuns(self._folder, place, packing=packing), state_file.texts(self._folder, batch - 1)
        held = [x[0] for x in state_file.runs_in(json.loads(before.get(place, "{}")))]
        made = [[*range(start, end)]]
        if self._rng.random() < 0.4:
            made = [[v for run in held for v in runs.get(run)["v"]] + made[0]]
            held = []
        names = [[run, 1, 1] for run in held]
        for rows in made:
            name = f"q-{batch}-{self._rng.randrange(1 << 60):x}-{bucket}"
            names.append([name, len(rows), runs.put(name, pl.DataFrame({"v": rows}, {"v": pl.Int64}))])
        document = {"clocks": {}, "steps": {"1": {"runs": names}}}
        return renamed(state_file.said_of({place: document}, ()), {} if packing is None else packing.send())

    def _topic(self) -> Any:
        return open_topics(Store(opened(self._root))).topic("J")  # type: ignore[attr-defined]


def end_of(reads: Any) -> int:
    return int(batches.document_in(reads)["next"]["0/0"])


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Turns]]:
    """The turns of the round that is under way."""
    now: list[Turns] = []

    def in_turn(call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **more: Any) -> Any:
            return now[-1].call(lambda: call(*args, **more)) if now else call(*args, **more)

        return asked

    monkeypatch.setattr(BucketStore, "_patiently", in_turn(BucketStore._patiently))
    for name in ("create", "write", "put", "take", "append", "delete", "get", "range", "size", "version", "names"):
        monkeypatch.setattr(FolderStore, name, in_turn(getattr(FolderStore, name)))
    yield now


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.objects)])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BRAID_CACHE", str(tmp_path / "cache"))
    return str(tmp_path / "s") if request.param == "folder" else str(request.getfixturevalue("place"))


def forgotten(folder: ObjectStore) -> None:
    """Another machine, which has no copies; what drivers are writing stays theirs."""
    if folder.path is None:
        shutil.rmtree(f"{cache_of(folder).folder}/{state_file.RUNS}", ignore_errors=True)
    run_files._frames.clear()
    state_file.forgotten()


def one_round(root: str, turns: Turns) -> tuple[int, int]:
    """Drivers begin, go on, are held and killed, until one has come to the end; how many were told, and killed."""
    rng, folder, drivers = turns.rng, opened(f"{root}/checkpoints/J"), list[Driver]()
    open_topics(Store(opened(root))).create("J", 1)  # type: ignore[attr-defined]
    upto, killed, most = BATCHES, 0, 2 if folder.path is None else 1
    while True:
        live = [x for x in drivers if not x.over]
        finished = any(x.over and not x.killed and x.error is None for x in drivers)
        if finished and (not live or rng.random() < 0.5):
            break
        if not live or (len(live) < most and rng.random() < 0.15):
            forgotten(folder)
            driver = Driver(turns, root, rng.randrange(1 << 30), upto)
            drivers.append(driver)
            driver.start()
            live.append(driver)
        moving = rng.choice(live)
        for _ in range(rng.choice((1, 2, 5, 20, 60))):
            if not moving.over:
                turns.move(moving)
        if len(drivers) < 8 and not moving.over and rng.random() < 0.06:
            moving.killed, killed = True, killed + 1
            turns.move(moving)
    for driver in (x for x in drivers if not x.over):  # they wake when all is done, or never
        while not driver.over and rng.random() < 0.999:
            turns.move(driver)
        driver.killed = True
        while not driver.over:
            turns.move(driver)
    errors = [x.error for x in drivers if x.error is not None]
    for error in errors:
        if not isinstance(error, TakenOver) or "taken over by process" not in error.message:
            raise error
    return len(errors), killed


def check(root: str, turns: Turns) -> None:
    """One more driver goes on, on a machine of its own; then each row is there once, and nothing that is not needed."""
    folder = opened(f"{root}/checkpoints/J")
    forgotten(folder)
    last = Driver(turns, root, 1, LAST)
    last.start()
    while not last.over:
        turns.move(last)
    assert last.error is None, last.error
    forgotten(folder)
    assert state_file.published(folder) == LAST
    reads = state_file.reads(folder, LAST)
    written = open_topics(Store(opened(root))).last_of("J", RUN)  # type: ignore[attr-defined]
    assert written is not None and written.batch == LAST and written.digest == batches.digest_of(reads or ())
    for bucket in range(BUCKETS):
        place = state_file.place(0, bucket)
        text, runs = state_file.texts(folder, LAST)[place], CheckpointRuns(folder, place)
        rows = [v for run, *_ in state_file.runs_in(json.loads(text)) for v in runs.check(run)["v"]]
        assert sorted(rows) == [*range(end_of(reads))]
    claim(folder)
    StateWriter(claim(folder), BUCKETS).begin()
    states = [state_file.load(folder, n) for n in state_file.batches(folder)[-2:]]
    named = set[str]().union(*(state_file.objects_in(x) for x in states))
    assert {name for name, _ in folder.list(state_file.RUNS)} == named
    assert sorted(x["offset"] for x in read_drops(opened(root), "J")) == [*range(0, end_of(reads), 3)]
    told = cause_log.read(folder, RUN)
    causes = [told.cause(0, behind, LAST) for behind in range(end_of(reads))]
    assert [x and x.completed.offset for x in causes] == [*reversed(range(end_of(reads)))] and not told.spoilt


def rounds(place: str, turns: list[Turns], seeds: Iterable[int]) -> tuple[int, int]:
    told = killed = 0
    for seed in seeds:
        turns.append(Turns(random.Random(seed)))
        try:
            one, other = one_round(f"{place}/{seed}", turns[-1])
            check(f"{place}/{seed}", turns[-1])
        except BaseException as e:
            e.add_note(f"seed {seed}")
            raise
        told, killed = told + one, killed + other
    turns.clear()
    return told, killed


def test_some_rounds(where: str, turns: list[Turns]) -> None:
    told, killed = rounds(where, turns, [*range(7), 208])  # 208: one is held between its look and its state
    assert killed and (told or opened(where).path)


@pytest.mark.law
def test_many_rounds(where: str, turns: list[Turns]) -> None:
    told, killed = rounds(where, turns, range(100, 300))
    assert killed > 50 and (told > 50 or opened(where).path)
