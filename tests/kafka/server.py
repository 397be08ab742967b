"""A server as a process of its own: started, awaited, stopped, killed, found again by another process.

In: a folder, and what a kind of server says (command, when it is ready). Out: the process on free ports of loopback.
Rule: a server holds the lock `alive` of its folder as long as it lives. So who asks whether it lives asks the lock, and
a number of a process is only signalled while that lock is held: it cannot be another process's by then.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kafka.fetch import try_lock

START_SECONDS = 90  # the machine may be busy
STOP_SECONDS = 30


class Server:
    """One server in one folder. What a kind adds: `ports`, `prepare`, `command`, `ready`."""

    name = "server"
    ports = 2

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers: list[int] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.pid: int | None = None
        self.shared = False  # another process may use it: only tests of their own server may stop or kill it
        self._guard: subprocess.Popen[bytes] | None = None

    # What a kind of server says.

    def prepare(self) -> None:
        """Writes what the command reads; called before the first start."""
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    # What all do.

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def running(self) -> bool:
        path = self.folder / "alive"
        if not path.exists():
            return False
        handle = os.open(path, os.O_RDWR)
        try:
            return not try_lock(handle)
        finally:
            os.close(handle)

    def start(self) -> None:
        """Starts it and waits until it answers. The second start uses the same ports and data."""
        self._forbid()
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.numbers:
            return self._start()
        for attempt in range(3):  # another process may take a free port before the server does
            self.numbers = free_ports(self.ports)
            self.prepare()
            try:
                return self._start()
            except RuntimeError:
                if attempt == 2 or "already in use" not in self.tail(200):
                    raise
                self.wipe()
        return None

    def stop(self) -> None:
        """Asks it to end, and waits for that; what does not end is killed."""
        self._forbid()
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._forbid()
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Up again on the same ports and the same data, whether it was stopped, killed or runs."""
        self.stop()
        self.start()

    def tail(self, lines: int = 20) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def memory(self) -> int:
        """Resident bytes; 0 where the operating system does not say."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def wipe(self) -> None:
        """Its folder is empty; locks of others in it stay."""
        for entry in self.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name not in ("alive", "users", "starting"):
                entry.unlink()

    # Found again by another process.

    def save(self) -> None:
        new = self.folder / "server.json.new"
        new.write_text(json.dumps({"pid": self.pid, "ports": self.numbers}))
        new.replace(self.folder / "server.json")

    def attach(self) -> bool:
        """True if the server of this folder lives; then this object speaks of it."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = json.loads((self.folder / "server.json").read_text())
            self.pid, self.numbers = found["pid"], found["ports"]
            return self.running
        return False

    # Inside.

    def _forbid(self) -> None:
        if self.shared:
            raise RuntimeError(f"this {self.name} is shared with other processes; take one of your own to stop or kill")

    def _start(self) -> None:
        handle = os.open(self.folder / "alive", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not try_lock(handle):
                raise RuntimeError(f"a {self.name} runs already in this folder")
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command(),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=[handle],  # the child's copy keeps the lock
                )
        finally:
            os.close(handle)
        self.pid = self.process.pid
        self._guard = keeper("own", self.folder, self.pid)
        process = self.process
        if not until(lambda: process.poll() is not None or self.ready(), START_SECONDS) or process.poll() is not None:
            code = process.poll()
            self._end(signal.SIGKILL)
            raise RuntimeError(f"the {self.name} did not start (exit code {code}):\n{self.tail()}")

    def _end(self, how: signal.Signals) -> None:
        if self.running and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, how)
            if not until(lambda: not self.running, STOP_SECONDS):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                if not until(lambda: not self.running, STOP_SECONDS):
                    raise RuntimeError(f"the {self.name} does not end")
        if self.process:
            self.process.wait(STOP_SECONDS)
        if self._guard and self._guard.stdin:
            self._guard.stdin.close()
            self._guard.wait(STOP_SECONDS)
        self.process = self.pid = self._guard = None

    def hand_over(self) -> None:
        """It outlives this process: from now on its end is the shared keeper's, who waits for idleness."""
        assert self.pid
        self.save()
        keeper("shared", self.folder, self.pid)
        if self._guard and self._guard.stdin:
            self._guard.stdin.write(b"released")
            self._guard.stdin.close()
            self._guard.wait(STOP_SECONDS)
        self._guard, self.shared = None, True


def keeper(mode: str, folder: Path, pid: int) -> subprocess.Popen[bytes]:
    """The process that ends a server nobody ends: see `keeper.py`."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("keeper.py")), mode, str(folder), str(pid)],
        stdin=subprocess.PIPE if mode == "own" else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def until(true: Callable[[], bool], seconds: float, pause: float = 0.03) -> bool:
    """Waits until it is true; False when that takes longer."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
