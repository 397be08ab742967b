"""What a tree of processes costs: CPU seconds and memory, read from /proc.

In: the number of a process (by default this one). Out: sums over it and all that descend from it.
Rule: a live process counts with its own time and that of the children it has waited for. A child is in one of the two
places and never in both, so a worker that has ended still counts, once. Here the tree is this Python, the JVM that it
started, PySpark's daemons, and their workers (in `local-cluster` also the executors' JVMs).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    name: str
    cpu: float  # s, with its ended children


def parse_stat(text: str) -> Process:
    """A line of /proc/PID/stat; the name stands in brackets and may hold anything."""
    pid, rest = text.split(" (", 1)
    name, rest = rest.rsplit(") ", 1)
    values = rest.split()
    return Process(int(pid), int(values[1]), name, sum(int(x) for x in values[11:15]) / TICKS)


def tree(root: int | None = None) -> list[Process]:
    """A process and all that descend from it."""
    found = {p.pid: p for p in _all()}
    children: dict[int, list[int]] = {}
    for p in found.values():
        children.setdefault(p.parent, []).append(p.pid)
    made, left = [], [root or os.getpid()]
    while left:
        pid = left.pop()
        if pid in found:
            made.append(found[pid])
            left += children.get(pid, [])
    return made


def _all() -> Iterator[Process]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                yield parse_stat(Path(f"/proc/{entry}/stat").read_text())
            except (OSError, ValueError):  # it has just ended
                continue


def cpu_seconds(root: int | None = None) -> float:
    """Of the whole tree since it began."""
    return sum(p.cpu for p in tree(root))


def memory(pid: int) -> tuple[int, int]:
    """(resident bytes, those of them that no file stands behind)."""
    found = {"VmRSS:": 0, "RssAnon:": 0}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, *rest = line.split()
            if name in found:
                found[name] = int(rest[0]) * 1024
    except (OSError, ValueError):
        pass
    return found["VmRSS:"], found["RssAnon:"]


def command(pid: int) -> list[str]:
    """The words that a process was started with; those of its parent until it is another program."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def is_worker(words: list[str], own: list[str]) -> bool:
    """Another Python. A fork of the JVM, or of this process, has for a moment all memory of its parent."""
    return words != own and words[:1] != [] and Path(words[0]).name.startswith("python")


@dataclass(slots=True)
class Peak:
    """The highest memory of each kind of process while the block runs, looked at every 50 ms.

    `jvm`: resident, of all JVMs. `worker`: anonymous, of the largest Python process below a JVM. `all`: resident, of
    the tree (pages shared by several processes count in each).
    """

    jvm: int = 0
    worker: int = 0
    all: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Peak:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.look()

    def look(self) -> None:
        sizes = {p.pid: (p.name, *memory(p.pid)) for p in tree()}
        own = command(os.getpid())
        workers = [anonymous for pid, (_, _, anonymous) in sizes.items() if is_worker(command(pid), own)]
        self.jvm = max(self.jvm, sum(resident for name, resident, _ in sizes.values() if name == "java"))
        self.worker = max(self.worker, max(workers, default=0))
        self.all = max(self.all, sum(resident for _, resident, _ in sizes.values()))
