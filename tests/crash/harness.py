"""Kills `braid run` by a plan, starts it again, and compares what its topics hold with the oracle's.

In: a seed, a plan. Out: what happened, or an `AssertionError` with the seed and the plan.
Rule: every line of every output partition is compared, byte for byte and offset by offset; nothing is lost, nothing is
there twice. Whatever was killed, the same command goes on, and says nothing of Python's or the JVM's to the user.

On a cluster, whose machines share nothing, all that is durable lies in an object store.

    python -m crash.harness N [SEED] [--kafka | --cluster]     N kills, in rounds of some; `make crash N=200`
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from braid.stage import state_file
from braid.store import is_url, opened
from cli_help import QUICK, Said, checked, started
from cluster.nodes import CONF, WORKERS, Cluster, cluster
from crash import processes, world
from crash.places import InObjects, InStore, OnBroker, Place, place
from crash.plan import KINDS, ON_BROKER, ON_CLUSTER, Kill, plan
from kafka.broker import Broker, own_broker
from objects.gateway import BUCKET, kept_gateway

ROWS = 60  # records a partition
BATCH_ROWS = 20
TOLD = (1, 2)  # of a run that was taken over: while it started, or later
PATIENCE = 300.0  # s without a batch: a machine may be busy
SLOW = 400.0  # s for a run to end
BEGINS = 5.0  # s in which a batch begins to write
AGAIN = " is started again: "
TINY = "64k"  # of a disk that is soon full
CHOICES = (*((name,) for name in world.QUERIES), ("CHAINED", "TABLES"))  # queries of a round, by its seed


@dataclass
class Report:
    """What a round was."""

    kills: Counter[str] = field(default_factory=Counter)
    inside: int = 0  # kills that fell into a batch
    begun: int = 0  # of these, while a task had written some of it
    runs: int = 0
    died: int = 0  # runs that ended with a reason, as a process of theirs was killed
    again: int = 0  # queries that were started again within a run
    told: int = 0  # runs that another machine has taken over from
    records: int = 0

    def add(self, other: Report) -> None:
        self.kills.update(other.kills)
        self.inside += other.inside
        self.begun += other.begun
        self.runs += other.runs
        self.died += other.died
        self.again += other.again
        self.told += other.told
        self.records += other.records


def round_of(
    seed: int,
    kills: Sequence[Kill],
    folder: Path,
    on: Cluster | None = None,
    names: Sequence[str] | None = None,
    at: Place | None = None,
) -> Report:
    """One input, read to its end in spite of all kills of the plan. `at`: where its topics lie, if not in the store."""
    names = CHOICES[seed % len(CHOICES)] if names is None else names
    at = InStore(folder / "s") if at is None else at
    made = world.history(seed, ROWS)
    want = world.expected(made, names, at.partitions)
    (folder / "q.sql").write_text(world.sql(names, at.prefix), encoding="utf-8")
    at.write(made)
    round = _Round(seed, folder, on, at, names, [sum(map(len, want[name])) for name in names])
    try:
        for kill in kills:
            round.carry_out(kill)
        round.finish()
        found = world.difference(at.written(names), want)
        assert found is None, found
        assert (left := at.left_over(names)) is None, f"{left} left over"
        round.report.records = sum(round.want)
    except BaseException as e:
        lines = [f"make crash N=1 SEED={seed} ({', '.join(names)})", *map(str, kills), *round.told, str(folder)]
        e.add_note("\n  ".join(lines))
        raise
    finally:
        round.close()
        round.whole()
    return round.report


class _Round:
    def __init__(
        self, seed: int, folder: Path, on: Cluster | None, at: Place, names: Sequence[str], want: list[int]
    ) -> None:
        self.folder, self.store, self.on, self.at = folder, str(folder / "s"), on, at
        if is_url(at.store):
            self.store = at.store
        self.names, self.want = names, want
        self.rng = random.Random(f"moments {seed}")
        self.report = Report()
        self.told: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._in_turn = False
        self._before: dict[str, int] = {}

    # ---------------------------------------------------------------- runs

    def _run(self, kill: Kill) -> subprocess.Popen[str]:
        """The run that is there, or a new one."""
        if self._process is None:
            self._process = self._launch(kill.in_turn, kill.tiny and self.on is None, kill.retries)
        return self._process

    def _words(self, master: str) -> list[str]:
        return [
            *(sys.executable, "-m", "braid", "run", "q.sql", "--store", self.at.store),
            *("--batch-rows", str(BATCH_ROWS), *self.at.options, "--master", master, *QUICK[2:]),
        ]

    def _launch(self, in_turn: bool, tiny: bool, retries: bool) -> subprocess.Popen[str]:
        temporary = self.folder / "tmp"
        wire = temporary / f"braid-{os.getuid()}" / "wire"
        wire.mkdir(parents=True, exist_ok=True)
        wire.parent.chmod(0o700)
        master = self.on.url if self.on is not None else "local[2,8]" if retries else "local[2]"
        words = self._words(master)
        words += [*CONF] if self.on is not None else []
        words += ["--until-idle"] * in_turn
        if tiny:
            # A kill of files just after the start may have taken the folder before the shell is there.
            mount = f'mkdir -p "$0" && mount -t tmpfs -o size={TINY} none "$0" && exec "$@"'
            words = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(wire), *words]
        self.report.runs += 1
        self._in_turn = in_turn
        self._before = {name: _published(self.store, name) for name in self.names}
        return started(words, self.folder, environment(self.folder))

    def _ended(self) -> Said:
        """The run is over: what it said is fit for users."""
        assert self._process is not None
        process, self._process = self._process, None
        out, err = process.communicate(timeout=120)
        self.told.append(f"exit {process.returncode}: {err.strip()}")
        self.report.again += err.count(AGAIN)
        for name, last in self._before.items():
            if last >= 0 and "starting Spark" in err:
                assert f"{name} goes on after batch {last}" in err, err
        return checked(process.returncode, out, err)

    # --------------------------------------------------------------- kills

    def carry_out(self, kill: Kill) -> None:
        process = self._run(kill)
        begun = self._wait(process, kill)
        if process.poll() is not None:  # nothing was left to do, or a worker's death has come through late
            self._died_or_done()
            process = self._run(kill)
            begun = self._wait(process, kill)
        self.report.kills[kill.kind] += 1
        self.report.inside += self._inside()
        self.report.begun += begun
        self.told.append(f"{kill.kind} at {self._committed()} batches")
        match kill.kind:
            case "driver" | "start":
                below = processes.descendants(process.pid)
                processes.signal_group(process, signal.SIGKILL)
                said = self._ended()
                assert said.code == -signal.SIGKILL
                processes.wait_gone(below, 0 if self.rng.random() < 0.5 else 2)  # orphans may still write
            case "jvm":
                self._kill_one(process, lambda: processes.jvms(process.pid)[:1])
                self._dies(process)
            case "interrupt":
                finished = self._finished()
                processes.signal_group(process, signal.SIGINT)
                process.wait(SLOW)
                said = self._ended()
                if finished and "stopped after" not in said.err:  # before its query had started
                    # CPython ends itself by the signal where it came inside an exec(), as of a dataclass
                    assert said.code in (130, -signal.SIGINT) and said.err.rstrip().endswith("interrupted"), said
                else:
                    assert said.code == (130 if self._in_turn else 0), said
                    assert "stopped after" in said.err and "goes on from here" in said.err
            case "files":
                self._delete_files()
                self._goes_on_or_dies(process)
            case "worker":
                on = self.on
                self._kill_one(process, on.python_workers if on else lambda: processes.python_workers(process.pid))
                self._goes_on_or_dies(
                    process, at_start=True
                )  # what is to become the JVM is a Python, too, for a moment
            case "executor":
                assert self.on is not None
                self._kill_one(process, self.on.executors)
                self._goes_on(process)
            case "node" | "gone" | "come" | "stall":
                assert self.on is not None
                self._disturb(self.on, process, kill.kind)
            case "second":
                self._second(process)
            case "broker":
                assert isinstance(self.at, OnBroker) and self.at.own
                self.at.broker.kill()
                time.sleep(self.rng.uniform(0, 5))
                self.at.broker.start()
                self._goes_on_or_dies(process)
            case _:
                raise AssertionError(kill.kind)

    def _disturb(self, on: Cluster, process: subprocess.Popen[str], kind: str) -> None:
        """A cluster that is another one for a while: the query goes on."""
        away = sorted(set(range(WORKERS)) - on.up)
        if kind in ("node", "gone") and len(on.up) > 1:
            number = self.rng.choice(sorted(on.up))
            on.kill_worker(number)
            away = [number] if kind == "node" else []
            time.sleep(self.rng.uniform(0, 3))
        if kind in ("node", "come"):
            for number in away:
                on.start_worker(number)
                on.wait_for(number)
        if kind == "stall":
            with on.stalled(self.rng.choice(sorted(on.up))):
                if self.at.speculates:
                    self._goes_on(process)
                else:
                    time.sleep(self.rng.uniform(0, 5))
        self._goes_on(process)

    def _second(self, first: subprocess.Popen[str]) -> None:
        """Another machine begins: it takes over, and the first is told whose it is, also where it was asleep then."""
        asleep = self.rng.random() < 0.6
        if asleep:
            processes.signal_group(first, signal.SIGSTOP)
        folder = self.folder / f"machine-{self.report.runs}"
        folder.mkdir()
        self.report.runs += 1
        env = environment(folder) | {"BRAID_CACHE": str(folder / "cache")}  # where locks lie, too
        second = started(self._words("local[2]"), self.folder, env)
        try:
            goal, deadline = self._committed() + self.rng.choice([0, 1, 2]), time.monotonic() + PATIENCE
            while asleep and second.poll() is None and not self._finished() and self._committed() < goal + 1:
                assert time.monotonic() < deadline, "the second does not go on"
                time.sleep(0.02)
            processes.signal_group(first, signal.SIGCONT)
            while first.poll() is None and second.poll() is None:
                assert time.monotonic() < deadline + SLOW, "the first is not told"
                time.sleep(0.05)
            if first.poll() is None:  # it began a moment later, and has taken over
                out, err = second.communicate()
                assert second.returncode in TOLD and "was taken over by process" in err, checked(
                    second.returncode, out, err
                )
                self.report.told += 1
                return
            said = self._ended()
            told = [name for name in self.names if f"the query {name} was taken over by process" in said.err]
            assert said.code in (TOLD if told else (0,)), said  # or it has done all there was
            self.report.told += bool(told)
            time.sleep(self.rng.uniform(0, 3))
            processes.signal_group(second, signal.SIGKILL if self.rng.random() < 0.5 else signal.SIGINT)
            out, err = second.communicate(timeout=SLOW)
            checked(second.returncode, out, err)
        finally:
            processes.end(second)

    def _kill_one(self, process: subprocess.Popen[str], found: Callable[[], list[int]]) -> None:
        """Kills one of those that are found: on a busy machine they may not have started yet."""
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and processes.kill_one(found(), self.rng) is None:
            assert time.monotonic() < deadline, "there was nothing to kill"
            time.sleep(0.05)

    def _wait(self, process: subprocess.Popen[str], kill: Kill) -> bool:
        """Until the moment of the kill; whether a task is writing."""
        goal = self._committed() + kill.batches
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and self._committed() < goal and time.monotonic() < deadline:
            if self._finished():
                return False
            time.sleep(0.01)
        time.sleep(kill.delay)
        deadline = time.monotonic() + BEGINS
        while kill.begun and process.poll() is None and time.monotonic() < deadline:
            if self.at.begun(self.names):  # for some ms
                return True
        return False

    def _goes_on_or_dies(self, process: subprocess.Popen[str], at_start: bool = False) -> None:
        """A task that lost its process is done again; where the query dies of it, it says so."""
        goal = self._committed() + 1
        deadline = time.monotonic() + 30
        while process.poll() is None and self._committed() < goal and time.monotonic() < deadline:
            time.sleep(0.02)
        if process.poll() is not None:
            self._died_or_done(at_start)

    def _goes_on(self, process: subprocess.Popen[str]) -> None:
        """A task that lost its machine is done again: the query does not die of it."""
        goal = self._committed() + 1
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and self._committed() < goal:
            assert time.monotonic() < deadline or self._finished(), "nothing goes on"
            if self._finished():
                return
            time.sleep(0.02)
        if process.poll() is not None:
            assert self._died_or_done(), self.told[-1]

    def _dies(self, process: subprocess.Popen[str]) -> None:
        process.wait(SLOW)
        self._died_or_done(at_start=True)

    def _died_or_done(self, at_start: bool = False) -> bool:
        """Whether it has done all there was. `at_start`: its JVM may have gone before it was up."""
        said = self._ended()
        unstarted = at_start and said.code == 1 and "error: Spark does not start" in said.err
        assert said.code in (0, 2) or unstarted, said
        if said.code:
            self.report.died += 1
            assert "error: " in said.err, said
        return said.code == 0

    def _delete_files(self) -> None:
        """Frames on their way, with their folders or without."""
        wire = self.folder / "tmp" / f"braid-{os.getuid()}" / "wire"
        if self.rng.random() < 0.5:
            shutil.rmtree(wire, ignore_errors=True)
        else:
            for path in wire.glob("*/*"):
                path.unlink(missing_ok=True)

    def finish(self) -> None:
        """What runs is stopped; then all that is left is done."""
        if self._process is not None and self._in_turn:
            self._process.wait(SLOW)
            if self._died_or_done():
                return
        elif self._process is not None:
            processes.signal_group(self._process, signal.SIGINT)
            self._process.wait(SLOW)
            self._ended()
        self._process = self._launch(True, False, True)
        self._process.wait(SLOW)
        said = self._ended()
        assert said.code == 0, said

    def close(self) -> None:
        if self._process is not None:
            processes.end(self._process)
            self._process.communicate()

    def whole(self) -> None:
        """The cluster has all its workers again."""
        if self.on is not None:
            for number in sorted(set(range(WORKERS)) - self.on.up):
                self.on.start_worker(number)
                self.on.wait_for(number)

    # ------------------------------------------------------------- looking

    def _finished(self) -> bool:
        return self.at.counts(self.names) == self.want

    def _committed(self) -> int:
        return sum(1 + _published(self.store, name) for name in self.names)

    def _inside(self) -> bool:
        """Whether some query has begun a batch and not published it."""
        return any(_begun(self.folder, name) > _published(self.store, name) for name in self.names)


def _published(store: str, query: str) -> int:
    if is_url(store):
        time.sleep(0.05)  # others are served too
    return state_file.published(opened(f"{store}/checkpoints/{query}"))


def _begun(folder: Path, query: str) -> int:
    """The last batch that Spark has begun, by what its driver leaves when it is killed; -1 where there is none."""
    left = list((folder / "tmp").glob(f"braid-*/spark/{query}-*/offsets"))
    newest = max(left, key=lambda p: p.stat().st_mtime, default=None)
    return max((int(p.name) for p in newest.iterdir() if p.name.isdecimal()), default=-1) if newest else -1


def environment(folder: Path) -> dict[str, str]:
    """Of all processes of a round: Python's path, places of their own for temporary files and for copies of what lies
    in an object store, and every frame is one."""
    (folder / "tmp").mkdir(exist_ok=True)
    path = os.pathsep.join(p for p in sys.path if p)
    places = {"TMPDIR": str(folder / "tmp"), "XDG_CACHE_HOME": str(folder / "cache")}
    return {**places, "PYTHONPATH": path, "BRAID_LARGE_FRAME": "1"}


@contextlib.contextmanager
def _place(on_cluster: bool, seed: int, broker: Broker | None) -> Iterator[tuple[Path, Cluster | None, Place]]:
    with tempfile.TemporaryDirectory(prefix=f"braid-crash-{seed}-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if not on_cluster:
            yield folder, None, stack.enter_context(place(folder / "s", broker, own=True))
            return
        server = stack.enter_context(kept_gateway()).environment
        os.environ.update(server)
        on = stack.enter_context(cluster(folder / "cluster", env=server))
        url = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        if broker is None:
            yield folder, on, InObjects(url)
        else:
            yield folder, on, stack.enter_context(contextlib.closing(OnBroker(broker, own=True, store=url)))


def main(count: int, seed: int, broker: Broker | None = None, each: int = 6, clusters: bool = False) -> None:
    """Rounds of up to `each` kills, every fourth on a cluster, or all. A seed is one round: `make crash N=1 SEED=…`."""
    total, began = Report(), time.monotonic()
    done = 0
    seed += -(seed + 1) % 4 if clusters else 0
    while done < count:
        on_cluster = seed % 4 == 3
        kills = plan(seed, each, ON_CLUSTER if on_cluster else ON_BROKER if broker is not None else KINDS)
        with _place(on_cluster, seed, broker) as (folder, on, at):
            made = round_of(seed, kills, folder, on, at=at)
        total.add(made)
        done = sum(total.kills.values())
        shown = ", ".join(f"{n} {kind}" for kind, n in sorted(total.kills.items()))
        print(
            f"seed {seed}: {done} kills of at least {count} ({shown}), {total.inside} inside a batch,"
            f" {total.begun} while it was written,"
            f" {total.runs} runs of which {total.died} died and {total.told} were taken over from,"
            f" {total.again} starts anew in a run,"
            f" {total.records} records equal,"
            f" {time.monotonic() - began:.0f} s",
            flush=True,
        )
        seed += 4 if clusters else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the processes end with us
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    asked = int(words[0]), int(words[1]) if len(words) > 1 else int(time.time()) % 1_000_000
    if "--kafka" in sys.argv:
        with own_broker({"log.cleaner.enable": "false"}) as server:  # all that was written can be seen
            main(*asked, server)
    else:
        main(*asked, clusters="--cluster" in sys.argv)
