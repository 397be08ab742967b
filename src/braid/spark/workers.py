"""What the workers of a cluster have, for `braid doctor --master`.

In: a master's address, Spark's settings, the folder of a store. Out: lines for a terminal, and whether each is well.
Rule: a worker is asked what it has by a task that needs nothing of ours there; one line a worker, with what to do.
Nothing is sent to the workers: a run does that, so a worker without Braid is no problem.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyspark

from braid.errors import BraidError
from braid.spark import conf, executors, packing
from braid.spark.executors import Task
from braid.spark.jvm import CARRIER
from braid.spark.worker_env import Lacking, equipped
from braid.store import ObjectStore

ANSWER = 5.0  # s in which a master answers
COMES = 60.0  # s in which a first executor does
CLOCKS = 1.0  # s by which a worker's may be wrong
PLAIN = {"spark.python.daemon.module": "pyspark.daemon"}  # ours is part of what a worker may lack

Line = tuple[str, bool]


def examined(
    master: str, given: Mapping[str, str], store: ObjectStore | None, note: Callable[[str], None]
) -> Iterator[Line]:
    """A line a worker, behind one of the master. `store`: None where this machine cannot use it itself."""
    if (why := unreachable(master)) is not None:
        yield f"miss  {master} does not answer ({why}): is the master up, is this its host and port?", False
        return
    urls = [store.url] if store is not None and store.path is None else []
    seen = [store.path] if store is not None and store.path is not None and os.path.isdir(store.path) else []
    try:
        spark = conf.session(master, CARRIER | dict(given) | PLAIN)
    except BraidError as e:
        yield f"miss  {master}: {e}", False
        return
    try:
        executors.await_all(spark.sparkContext, note, COMES)
        yield from _looked_at(spark.sparkContext, seen, urls, note)
    except BraidError as e:
        yield f"miss  {e}; {e.hint}" if e.hint else f"miss  {e}", False
    finally:
        conf.end(spark)
    if store is not None and not seen and not urls:
        yield f"ok    the store {store} is not there yet: whether workers see it was not checked (--store)", True


def unreachable(master: str) -> str | None:
    """Why no master of a standalone cluster answers; of others it is not known."""
    why = None
    for place in re.findall(r"([\w.-]+|\[[^]]+\]):(\d+)", master) if master.startswith("spark://") else ():
        try:
            socket.create_connection((place[0].strip("[]"), int(place[1])), ANSWER).close()
            return None
        except (OSError, OverflowError) as e:
            why = getattr(e, "strerror", None) or str(e)
    return why


def _looked_at(
    context: Any, folders: Sequence[str], urls: Sequence[str], note: Callable[[str], None]
) -> Iterator[Line]:
    while True:
        began = time.time()
        with executors.written(folders) as made, executors.probed(urls) as probes:
            facts, _, tasks = executors.everywhere(context, _asking(made, probes, packing.versions()))
        ended = time.time()
        failed = [(t, e) for t in tasks if t.error is not None and (e := executors.unfit(t.host, t.error)) is not None]
        lacking = next((e for _, e in failed if isinstance(e, Lacking)), None)
        try:
            if lacking is None:
                break
            equipped(context, lacking, note)
        except Lacking:
            break
    there = executors.there(context)
    many = "s" * (len(there) != 1)
    yield f"ok    {context.master}: {len(there)} executor{many}, {sum(there.values())} tasks at once", True
    told: dict[str, Line] = {}
    for task, e in failed:
        told[task.executor] = f"miss  {e}; {e.hint}", False
    for task in tasks:
        if facts is not None and task.error is None:
            told.setdefault(task.executor, _told(task, facts[task.index], began, ended))
    yield from sorted(set(told.values()), key=lambda line: line[0][6:])
    if (silent := len(there.keys() - told.keys())) > 0:
        yield f"miss  {silent} of them did nothing in this time: look again, or at Spark's web page", False


def _told(task: Task, fact: Mapping[str, Any], began: float, ended: float) -> Line:
    """The line of one worker."""
    has, wrong = [f"Python {fact['python']}"], []
    if fact["pyspark"] != pyspark.__version__:
        wrong.append(f"has PySpark {fact['pyspark']}, and this machine {pyspark.__version__}: install the same")
    has.append(f"PySpark {fact['pyspark']}")
    if fact["braid"] == packing.digest() and not fact["others"]:
        has.append(f"Braid {packing.version()} as here")
    elif fact["braid"] == packing.digest():
        has.append(f"Braid as here, other libraries ({', '.join(fact['others'][:3])})")
    else:
        has.append("no Braid" if fact["braid"] is None else f"another Braid ({fact['version']})")
        has[-1] += ", so a run sends it"
    for folder in fact["unseen"]:
        wrong.append(f"does not see the store {folder}: put it where all machines see it under one path")
    for url, why in fact["unusable"]:
        wrong.append(f"cannot use the store {url}: {why}; {executors.USABLE}")
    late = max(began - fact["time"], fact["time"] - ended, 0.0)
    if late > CLOCKS:
        wrong.append(f"has a clock that is wrong by {late:.0f} s: let both keep time (NTP)")
    has.append(f"{fact['cores']} cores, {fact['memory'] / 2**30:.0f} GiB")
    who = f"the worker {task.host}"
    if wrong:
        return f"miss  {who} {'; it '.join(wrong)} ({', '.join(has)})", False
    store = ", sees the store" if fact["seen"] else ", can use the store" if fact["used"] else ""
    return f"ok    {who}: {', '.join(has)}{store}", True


def _asking(
    made: executors.Probes, probes: executors.Probes, versions: Mapping[str, str]
) -> Callable[[Any], Iterator[Any]]:
    """For a task, which has nothing but Python and Spark there: whether it can use an object store is tried where Braid
    is. `made`: files and what they hold, by folder; `probes`: the same by URL; `versions`: of libraries here."""

    def asks(_: Any) -> Iterator[dict[str, Any]]:
        import contextlib
        import importlib.metadata
        import os
        import platform
        import time

        import pyspark

        def version(name: str) -> str | None:
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                return None

        def sees(path: str, token: bytes) -> bool:
            try:
                with open(path, "rb") as f:
                    return f.read() == token
            except OSError:
                return False

        try:
            from braid.spark.packing import digest

            own = digest()
        except ImportError:
            own = None
        tried: dict[str, str] = {}
        with contextlib.suppress(ImportError):
            from braid.store.probing import unusable

            tried = {url: unusable(url, *probe) for url, probe in probes.items()}
        unseen = [folder for folder, (path, token) in made.items() if not sees(path, token)]
        others = [name for name, known in versions.items() if version(name) != known]
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        time.sleep(0.1)  # so that no executor does them all
        yield {
            "python": platform.python_version(),
            "pyspark": pyspark.__version__,
            "braid": own,
            "version": version("braid-sql"),
            "others": others,
            "unseen": unseen,
            "unusable": [(url, why) for url, why in tried.items() if why],
            "used": [*tried],
            "seen": [folder for folder in made if folder not in unseen],
            "time": time.time(),
            "cores": os.cpu_count(),
            "memory": memory,
        }

    return asks
