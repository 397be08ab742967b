"""One `braid run` per store.

In: a store. Out: the lock, held until released or until this process dies.
Rule: nobody opens a store's queries while a process of an earlier run still lives. The kernel frees the lock of a dead
driver, but a JVM can outlive it: its number and start time stand in the lock file, and the next run waits for its end.
Of a store that lies elsewhere only the runs of this machine are told apart so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from braid.errors import BraidError
from braid.store import ObjectStore
from braid.store.cache import local_folder
from braid.store.files import naming, open_lock, private_folder, refuse_other
from braid.topics.files import items, members, parsed, text, whole

RUN = ".run.lock"
SESSION = "a session of Python"  # what holds the lock for as long as a notebook's queries are up


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from a later one with its number by its start."""

    pid: int
    what: str
    started: str

    @staticmethod
    def of(pid: int, what: str) -> Process:
        return Process(pid, what, _started(pid))

    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it is someone else's, so it is there
        return _started(self.pid) == self.started != ""


def _started(pid: int) -> str:
    """When the process started, as the system tells it; "" where there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return "" if fields[0] in ("Z", "X") else f"{boot} {fields[19]}"
    except (OSError, IndexError):
        if os.path.isdir("/proc/self"):
            return ""
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


_ours: set[int] = set()  # processes that this one has started: no run after this one in here has to wait for them


class InUse(BraidError):
    """Another process has the store's lock."""


class StoreLock:
    """`with StoreLock(root) as lock:`, then `lock.add_pid` for each process that writes for this run.

    `wait`: seconds given to processes of a dead run to end. `note` is called once when there is something to wait for.
    `name`: of the lock, where it is another one than that of runs; `what`: who holds it.
    """

    def __init__(
        self,
        root: ObjectStore,
        wait: float = 30.0,
        note: Callable[[str], None] | None = None,
        name: str = RUN,
        what: str = "braid",
    ) -> None:
        self._root = root
        self._file = os.path.join(local_folder(self._root), name)
        self._wait, self._note, self._what = wait, note, what
        self._fd: int | None = None
        self._processes: list[Process] = []

    def acquire(self) -> None:
        private_folder(local_folder(self._root))
        fd = open_lock(self._file)
        try:
            self._take(fd)
            self._wait_for_orphans(fd)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        self._processes = [Process.of(os.getpid(), self._what)]
        self._write()

    def _take(self, fd: int) -> None:
        try:
            with naming(self._file):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holders = _read(fd)
            who = f"process {holders[0].pid}" if holders else "another process"
            hint = "stop that run first, or give this one another --store"
            if holders and holders[0].what == SESSION:
                who += f", {SESSION}"
                hint = "do it there, by session.upgrade, session.reset or session.drop; or end it: session.stop()"
            raise InUse(f"the store {self._root} is in use by {who}", hint) from None

    def _wait_for_orphans(self, fd: int) -> None:
        """The last run is dead, and its children may not be: they still write under its name."""
        orphans = [p for p in _read(fd) if p.pid != os.getpid() and p.pid not in _ours]
        deadline = time.monotonic() + self._wait
        noted = False
        while alive := [p for p in orphans if p.alive()]:
            first = alive[0]
            if time.monotonic() >= deadline:
                raise BraidError(
                    f"process {first.pid} ({first.what}) of an earlier run still uses the store {self._root}",
                    f"wait for it to end, or end it: kill {first.pid}",
                )
            if self._note is not None and not noted:
                self._note(f"waiting for process {first.pid} ({first.what}) of an earlier run to end")
                noted = True
            time.sleep(0.05)

    def add_pid(self, pid: int, what: str = "jvm") -> None:
        """A process that may outlive this one and write to the store."""
        _ours.add(pid)
        self._processes.append(Process.of(pid, what))
        self._write()

    def release(self) -> None:
        if self._fd is None:
            return
        # Children that still live stay written down: a run that comes next waits for them.
        self._processes = [p for p in self._processes if p.pid != os.getpid() and p.alive()]
        self._write()
        os.close(self._fd)  # frees the lock; the file stays, as another may be waiting with it open
        self._fd = None

    def _write(self) -> None:
        if self._fd is None:
            return
        x = {"host": socket.gethostname(), "processes": [asdict(p) for p in self._processes]}
        data = json.dumps(x).encode()
        os.pwrite(self._fd, data.ljust(os.fstat(self._fd).st_size), 0)  # blanks over the rest of a longer text
        os.ftruncate(self._fd, len(data))

    def __enter__(self) -> StoreLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _read(fd: int) -> list[Process]:
    """Who is written down; nobody where another host wrote it, whose processes cannot be seen from here."""
    with contextlib.suppress(ValueError, KeyError, OSError):
        x = members(parsed(os.pread(fd, 1 << 20, 0)))
        if x["host"] == socket.gethostname():
            return [_process(members(p, "a process")) for p in items(x["processes"], "processes")]
    return []


def _process(x: dict[str, Any]) -> Process:
    return Process(whole(x["pid"], "pid", 1, 1 << 31), text(x["what"], "what")[:40], text(x["started"], "started"))


_shared: dict[ObjectStore, tuple[StoreLock, int]] = {}  # of this process, by store: the lock, and how many hold it
_sharing = threading.Lock()


@contextlib.contextmanager
def shared_lock(root: ObjectStore) -> Iterator[None]:
    """The store's lock, which several users in this process may hold together."""
    with _sharing:
        lock, holders = _shared.get(root, (None, 0))
        if lock is None:
            lock = StoreLock(root, what=SESSION)
            lock.acquire()
        _shared[root] = (lock, holders + 1)
    try:
        yield
    finally:
        with _sharing:
            lock, holders = _shared.pop(root)
            if holders > 1:
                _shared[root] = (lock, holders - 1)
            else:
                lock.release()


def holder(root: ObjectStore) -> int | None:
    """The process that runs queries on the store now."""
    file = os.path.join(local_folder(root), RUN)
    refuse_other(file)
    try:
        fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        with naming(file):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found = _read(fd)
        return found[0].pid if found else None
    finally:
        os.close(fd)
    return None
