"""One server for all who test at the same time, kept between runs.

In: how a server of a folder is made. Out: it runs; this process is one of its users until it says otherwise.
Rule: who uses it holds the lock `users` together with the others; it is only started anew by one that uses it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from kafka.fetch import Unavailable, locked, try_lock
from kafka.server import START_SECONDS, STOP_SECONDS, Server, until

S = TypeVar("S", bound=Server)

MOST_BYTES = 2_000_000_000  # more data than this is thrown away, when nobody else uses it


@contextlib.contextmanager
def own(make: Callable[[Path], S]) -> Iterator[S]:
    """A server that belongs to one test alone."""
    with tempfile.TemporaryDirectory(prefix="braid-server-") as scratch:
        server = make(Path(scratch))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def kept(make: Callable[[Path], S], folder: Path) -> Iterator[S]:
    """The server of this folder, shared; started if it does not run. BRAID_TESTS_KEEP=0 makes it one's own."""
    if os.environ.get("BRAID_TESTS_KEEP") == "0":
        with own(make) as server:
            yield server
        return
    with locked(folder / "users", STOP_SECONDS + 30, shared=True) as users:
        with locked(folder / "starting", 2 * START_SECONDS):
            server = make(folder)
            lives = server.attach()
            well = lives and until(server.ready, 30)
            if lives and (not well or _bytes(folder) > MOST_BYTES) and _alone(users):
                server.stop()
                lives = False
            if lives and not well:
                raise RuntimeError(f"the shared {server.name} does not answer, and others use it:\n{server.tail()}")
            if lives:
                server.shared = True
            else:
                server = make(folder)
                server.wipe()
                server.start()
                server.hand_over()
        yield server


def stop(make: Callable[[Path], Server], folder: Path) -> bool:
    """Ends the kept server; False if it does not run, or somebody uses it."""
    with locked(folder / "starting", START_SECONDS), locked(folder / "users", 2, shared=True) as users:
        server = make(folder)
        if not (server.attach() and _alone(users)):
            return False
        server.stop()
        return True


def command(
    what: str,
    make: Callable[[Path], S],
    folder: Path,
    use: Callable[[], AbstractContextManager[S]],
    shown: Callable[[S], str],
) -> None:
    """A server's file as a program: starts the kept one and prints how it is reached, or with `stop` ends it."""
    if sys.argv[1:] == ["stop"]:
        print("stopped" if stop(make, folder) else "does not run, or is in use")
        return
    try:
        with use() as server:
            print(shown(server))
    except Unavailable as reason:
        sys.exit(f"no {what}: {reason}")


def _alone(users: int) -> bool:
    alone = try_lock(users)
    fcntl.flock(users, fcntl.LOCK_SH)  # an attempt that failed has lost the lock; nobody holds it alone for long
    return alone


def _bytes(folder: Path) -> int:
    """Roughly: the broker takes files away meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
    return total
