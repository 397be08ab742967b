"""The executors of a cluster before a query starts: that they have come, and can do what its tasks will do.

In: a session, what tasks need of a machine. Out: how many tasks run at once; or one error that names the worker, what
it lacks, and what to do.
Rule: nothing of the query has been written before. Executors are looked at once a session; one that comes later, behind
the first batch that it may have worked at, which is not made visible where it is unfit. A worker is unfit where Python
failed on it, even if another has done the task then. Braid, its libraries and the path of Python are seen to where they
are what is lacking (`equipment`): the workers have the driver's Braid, or get it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from braid.errors import BraidError
from braid.spark.worker_env import OTHER, Lacking, equipped, same_braid
from braid.store.probing import probe

TASKS = "spark.braid.tasks"  # a setting: how many tasks a stage of a query that starts has
PATIENCE = 300.0  # s for the first executor to come
QUIET, LONG = 3.0, 15.0  # s in which no other has come, where nothing says how many there will be, and where it does
SHARED = 10.0  # s until what one machine has written is seen by another
EACH = 2  # probes for each task that runs at once
TRIES = 3
HEAD = 64  # bytes of a file by which it is known
BRAID = ""  # stands for the driver's Braid, among folders and files
USABLE = "each worker needs credentials of its own for it, in its environment or by its machine: docs/cluster.md"

Probes = Mapping[str, tuple[str, bytes]]  # by folder, file or URL: what is to be found there, and its bytes
Missing = Sequence[tuple[str, str]]  # what a task does not see, and why where that is known


@dataclass(frozen=True, slots=True)
class Needs:
    """What tasks must see as the driver does: folders that they share with it, files that they read; and the places in
    object stores that they must be able to use."""

    folders: Sequence[str]
    files: Sequence[str] = ()
    urls: Sequence[str] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """The driver's Braid first, which is always needed."""
        return BRAID, *self.folders, *self.files, *self.urls


@dataclass(slots=True)
class _Seen:
    """What is known of a session's executors. `fine`: (executor, `BRAID` or a folder or a file)."""

    settled: bool = False
    fine: set[tuple[str, str]] = field(default_factory=set)


_seen: dict[str, _Seen] = {}  # by application
_settling = threading.Lock()


def ready(spark: SparkSession, needs: Needs, note: Callable[[str], None]) -> int:
    """How many tasks run at once, when all executors are there and see what they must."""
    context = spark.sparkContext
    seen = _seen.setdefault(context.applicationId, _Seen())
    with _settling:  # two queries may start at once
        if not seen.settled:
            await_all(context, note)
            seen.settled = True
        while not (found := there(context)) or _unseen(seen, found, needs):
            try:
                seen.fine |= _probed(context, needs, begun=False)
                break
            except Lacking as lacking:
                equipped(context, lacking, note)
        return int(context.defaultParallelism)


def look(spark: SparkSession, needs: Needs) -> None:
    """Refuses executors that have come since and are unfit. What only fails, as machines go, is looked at again."""
    context = spark.sparkContext
    seen = _seen.setdefault(context.applicationId, _Seen())
    if _unseen(seen, there(context), needs):
        seen.fine |= _probed(context, needs, begun=True)


def asked(spark: SparkSession) -> int | None:
    """The tasks of a stage that the session's settings ask for."""
    text = spark.conf.get(TASKS, None)
    if text is None:
        return None
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise BraidError(f"{TASKS}={text} is no number of tasks", "--tasks takes a whole number from 1 on")
    return int(text)


# ------------------------------------------------------------------ who is there


def there(context: Any) -> dict[str, int]:
    """Cores by executor."""
    found = context._jsc.sc().statusStore().executorList(True)
    all_of_them = [found.apply(i) for i in range(found.size())]
    return {x.id(): x.totalCores() for x in all_of_them if x.id() != "driver"}


def _unseen(seen: _Seen, there: Collection[str], needs: Needs) -> bool:
    return any((executor, path) not in seen.fine for executor in there for path in needs.all)


def _expected(context: Any) -> int:
    """Cores that were asked for; 0 where nothing says it."""
    conf = context.getConf()
    each = int(conf.get("spark.executor.cores", "1"))
    return int(conf.get("spark.cores.max", "0")) // each * each or int(conf.get("spark.executor.instances", "0")) * each


def await_all(context: Any, note: Callable[[str], None], patience: float = PATIENCE) -> None:
    """Until all have come that were asked for, or for a while no other. `patience`: s for the first."""
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return  # they come with the work
    began = changed = time.monotonic()
    cores, expected, told = 0, _expected(context), False
    while (now := time.monotonic()) - began < patience or cores:
        found = sum(there(context).values())
        if found != cores:
            cores, changed = found, now
        if cores and (cores >= expected > 0 or now - changed >= (LONG if expected else QUIET)):
            return
        if not told and now - began > QUIET:
            told = True
            note(f"waits for executors of {context.master}")
        time.sleep(0.1)
    hint = "are there workers with free cores and memory? The cluster's web page shows them"
    raise BraidError(f"no executor of {context.master} has come within {patience:.0f} s", hint)


# ------------------------------------------------------------------- probes


def _probed(context: Any, needs: Needs, begun: bool) -> set[tuple[str, str]]:
    """(executor, one of the needs) that were found fine; refuses the first that was not. `begun`: the query runs, so
    there is another time to look."""
    why, files = "", [path for path in needs.files if os.path.isfile(path)]
    for _ in range(1 if begun else TRIES):
        with written(needs.folders) as made, probed(needs.urls) as probes:
            seeing = _seeing({**made, **{path: (path, _head(path)) for path in files}}, probes, same_braid())
            missing, why, tasks = everywhere(context, seeing)
        for task in tasks:
            if task.error is not None and (found := unfit(task.host, task.error)) is not None:
                raise found
        if missing is not None:
            return _fine([task for task in tasks if task.error is None], missing, needs, begun)
    if begun:
        return set()
    raise BraidError(f"the workers of {context.master} do not work: {why.splitlines()[0]}", "Spark's log has more")


def _fine(tasks: Sequence[Task], missing: Sequence[Missing], needs: Needs, begun: bool) -> set[tuple[str, str]]:
    for task in tasks:
        for path, why in missing[task.index]:
            if why:
                raise BraidError(f"the worker {task.host} cannot use {path}: {why}", f"{USABLE}; {_nothing(begun)}")
            what = "folder" if os.path.isdir(path) else "file"
            raise BraidError(
                f"the worker {task.host} does not see the {what} {path} of this machine",
                "the store, checkpoints, and what --source and --sink name must lie where the driver and all workers"
                f" see them under one path (NFS, a volume); {_nothing(begun)}",
            )
    return {(task.executor, path) for task in tasks for path in needs.all}


def _nothing(begun: bool) -> str:
    return "this batch is not written" if begun else "nothing was written"


def _head(path: str) -> bytes:
    with open(path, "rb") as f:
        return f.read(HEAD)


def everywhere(context: Any, says: Callable[[Any], Iterator[Any]]) -> tuple[list[Any] | None, str, list[Task]]:
    """What tasks on all executors say, by their number, or None and why; and how each attempt ended."""
    found, why = None, ""
    with _grouped(context) as group:
        try:
            count = EACH * max(2, context.defaultParallelism)
            found = context.parallelize(range(count), count).mapPartitions(says).collect()
        except Exception as e:
            why = str(e)
        return found, why, list(_tasks(context, group))


@contextlib.contextmanager
def _grouped(context: Any) -> Iterator[str]:
    """A name for the jobs of this thread."""
    group, key = f"braid-probe-{uuid4().hex}", "spark.jobGroup.id"
    before = context.getLocalProperty(key)
    context.setLocalProperty(key, group)
    try:
        yield group
    finally:
        context.setLocalProperty(key, before)


@contextlib.contextmanager
def written(folders: Collection[str]) -> Iterator[dict[str, tuple[str, bytes]]]:
    """A file in each folder, with what it holds."""
    made: dict[str, tuple[str, bytes]] = {}
    try:
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
            path, token = os.path.join(folder, f".probe-{uuid4().hex}"), uuid4().bytes
            with open(path, "xb") as f:
                f.write(token)
            made[folder] = path, token
        yield made
    finally:
        for path, _ in made.values():
            with contextlib.suppress(OSError):
                os.unlink(path)


@contextlib.contextmanager
def probed(urls: Collection[str]) -> Iterator[Probes]:
    """An object at each place, with what it holds."""
    with contextlib.ExitStack() as stack:
        yield {url: stack.enter_context(probe(url)) for url in urls}


def _seeing(files: Probes, objects: Probes, same: Callable[[], None]) -> Callable[[Any], Iterator[Missing]]:
    """For a task: the folders whose file it does not find, and the places that it cannot use. `same`: whether it has
    the driver's Braid."""

    def sees(_: Any) -> Iterator[Missing]:
        same()
        import braid.spark.writer  # noqa: F401  (what its tasks will import)
        from braid.store.probing import unusable

        deadline = time.monotonic() + SHARED
        left = dict(files)
        while left:
            for folder, (path, token) in list(left.items()):
                with contextlib.suppress(OSError), open(path, "rb") as f:
                    if f.read(HEAD) == token:
                        del left[folder]
            if time.monotonic() > deadline:
                break
            if left:
                time.sleep(0.1)
        time.sleep(0.05)  # so that no executor does them all
        tried = {url: unusable(url, *made) for url, made in objects.items()}
        yield [*((path, "") for path in sorted(left)), *((url, why) for url, why in tried.items() if why)]

    return sees


@dataclass(frozen=True, slots=True)
class Task:
    index: int
    executor: str
    host: str
    error: str | None


def _tasks(context: Any, group: str) -> Iterator[Task]:
    """The attempts of the group's one stage, as Spark has noted them."""
    spark = context._jsc.sc()
    spark.listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            found = spark.statusStore().taskList(stage, 0, 1 << 20)
            for i in range(found.size()):
                x = found.apply(i)
                error = x.errorMessage()
                yield Task(x.index(), x.executorId(), x.host(), error.get() if error.isDefined() else None)


def unfit(host: str, error: str) -> BraidError | None:
    """What a worker lacks on which a task failed; None where it may only have been too busy."""
    program = re.search('Cannot run program "([^"]*)"', error)
    if program is not None:
        return Lacking(
            "python",
            f"the worker {host} has no Python {program[1]}",
            "install it there, or name the one that the workers have: --conf spark.pyspark.python=PATH",
        )
    version = re.search(r"different version: ([\d.]+) than that in driver: ([\d.]+)", error)
    if version is not None:
        return BraidError(
            f"the worker {host} has Python {version[1]}, and this machine {version[2]}",
            f"name a Python {version[2]} that the workers have: --conf spark.pyspark.python=PATH",
        )
    module = re.search(r"No module named '?([\w.]+)", error)
    if module is not None or OTHER in error:
        own = module is None or module[1].split(".")[0] == "braid"
        what = f"the module {module[1]}, which Braid needs" if module is not None and not own else "Braid"
        return Lacking(
            "braid",
            f"Python of the worker {host} does not have {what if OTHER not in error else 'the Braid of this machine'}",
            "install there the braid that this machine has, or name a Python that has it: --conf"
            " spark.pyspark.python=PATH",
        )
    if "PythonException" not in error and "Error from python worker" not in error:
        return None
    told = [
        x for line in error.splitlines() if re.match(r"(?!org\.|java\.)[\w.]*(Error|Exception): ", x := line.strip())
    ]
    return BraidError(f"Python of the worker {host} fails: {told[-1] if told else error.splitlines()[0]}")
