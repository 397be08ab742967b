"""Ends a server that nobody ends any more; a program of its own, which outlives the tests.

In: `own` or `shared`, the server's folder, its number. Out: nothing; the server is gone in the end.
Rule: `own` ends a server as soon as the process that started it is gone, however that went. `shared` ends it when
nobody has used it for half an hour; while it does, it holds the lock of users, so no one begins to use what ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

IDLE_SECONDS = 1800
LOOK_SECONDS = 15


def main(mode: str, folder: Path, pid: int) -> None:
    if mode == "own":
        if not sys.stdin.buffer.read():  # the end of the pipe without a word: its holder is gone
            end(folder, pid, signal.SIGKILL)
        return
    users = os.open(folder / "users", os.O_RDWR | os.O_CREAT, 0o600)
    idle = time.monotonic()
    while held(folder / "alive"):
        if not lock(users):
            idle = time.monotonic()
        elif time.monotonic() - idle > IDLE_SECONDS:
            return end(folder, pid, signal.SIGTERM)
        else:
            fcntl.flock(users, fcntl.LOCK_UN)
        time.sleep(LOOK_SECONDS)
    return None


def end(folder: Path, pid: int, how: signal.Signals) -> None:
    until = time.monotonic() + 20
    with contextlib.suppress(ProcessLookupError):
        if held(folder / "alive"):
            os.kill(pid, how)
        while held(folder / "alive"):
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.1)


def held(path: Path) -> bool:
    """Whether the server lives, which is the one that holds this lock."""
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDWR)
        try:
            return not lock(handle)
        finally:
            os.close(handle)
    return False


def lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
