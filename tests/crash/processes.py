"""Processes of our own: who descends from whom, and how each is ended.

In: a process that a test started as the first of a group. Out: its JVM, its Python workers; they are gone.
Rule: only what descends from a process that we started is ever signalled, and only by its number. (Never by the command
`kill -9 -PID`: procps reads that as "every process".)
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, as they are now."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                below.setdefault(parent, []).append(int(entry.name))
    found, at = [], [pid]
    while at:
        mine = below.get(at.pop(), [])
        found += mine
        at += mine
    return found


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def jvms(pid: int) -> list[int]:
    """Spark's; `java -version`, which a start asks first, is not one."""
    commands = {p: command(p).split() for p in descendants(pid)}
    return [p for p, words in commands.items() if words and "java" in words[0] and "-version" not in words]


def python_workers(pid: int) -> list[int]:
    """Python below a driver: workers, daemons, what forks them, what plans batches."""
    return [p for p in descendants(pid) if "python" in command(p).split(" ")[0]]


def executors(pid: int) -> list[int]:
    return [p for p in jvms(pid) if "CoarseGrainedExecutorBackend" in command(p)]


def kill_one(pids: list[int], rng: random.Random) -> int | None:
    """`kill -9` of one of them; None where there is none."""
    for pid in rng.sample(sorted(pids), len(pids)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return pid
    return None


def signal_group(process: subprocess.Popen[str], number: int) -> None:
    """To all of a group that this test made."""
    group = os.getpgid(process.pid)
    assert group == process.pid and group not in (0, 1, os.getpgrp())
    os.killpg(group, number)


def end(process: subprocess.Popen[str]) -> None:
    """Whatever is left of a process and all below it."""
    below = descendants(process.pid)
    if process.poll() is None:
        signal_group(process, signal.SIGKILL)
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(30)


def wait_gone(pids: list[int], seconds: float) -> None:
    """Until none of them lives."""
    deadline = time.monotonic() + seconds
    while any(command(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
