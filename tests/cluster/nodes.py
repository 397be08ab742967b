"""A standalone cluster whose machines share nothing: a master, three workers, from the installed PySpark.

In: a folder for their logs; the folders that all of them see, if any. Out: the master's address; processes by number.
Rule: each worker has a name space of mounts of its own: folders for temporary files and homes are empty there, but for
the software and one folder of its own. Its environment is not the driver's, and it has an address of its own, as
machines have: with one address Spark takes what a neighbour has shuffled for its own. All processes are ours and end
with the block.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pyspark

import braid
from crash import processes
from kafka.server import free_ports

WORKERS = 3
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that starts with little work
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": LIGHT,
    "spark.cores.max": str(WORKERS),
}
CONF = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
HOME = os.path.dirname(pyspark.__file__)

# What a worker has: all that the driver's Python finds; or Python and Spark alone.
INSTALLED = (str(Path(braid.__file__).parent.parent), sys.prefix, sys.base_prefix)
BARE = (HOME, sys.base_prefix)
LIBRARIES = sysconfig.get_path("purelib", vars={"base": sys.base_prefix})  # of a Python without an environment
BIN = os.path.dirname(os.path.realpath(sys.executable))

# Its mounts: $1, $3 folders that are empty, $2 those that are there; /mnt is where these wait meanwhile.
ISOLATED = """
set -e
mount -t tmpfs none /mnt
n=0; for path in $2; do mkdir /mnt/$n; mount --rbind "$path" /mnt/$n; n=$((n + 1)); done
for path in $1; do mkdir -p "$path"; mount -t tmpfs none "$path"; done
n=0; for path in $2; do mkdir -p "$path"; mount --rbind /mnt/$n "$path"; n=$((n + 1)); done
for path in $3; do mount -t tmpfs none "$path"; done
umount -l /mnt
shift 3
exec "$@"
"""


def address(worker: int) -> str:
    return f"127.0.0.{11 + worker}"


def isolated() -> bool:
    """Whether this system gives us name spaces of mounts."""
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@dataclass(slots=True)
class Cluster:
    """`shared`: folders that all workers see, which is to become none; `apart`: of these, folders that a worker has to
    itself. `env`: of all workers, `own`: of one; `software`: what they have of ours; `workers`: how many there are at
    first, of which each gives executors so much `memory`."""

    folder: Path
    shared: Sequence[Path] = ()
    apart: Mapping[int, Sequence[Path]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    software: Sequence[str] = INSTALLED
    workers: int = WORKERS
    memory: str = "1g"
    port: int = 0
    _master: subprocess.Popen[str] | None = None
    _workers: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def machine(self, number: int) -> Path:
        """The folder that a worker has to itself."""
        return self.folder / f"machine{number}"

    @property
    def up(self) -> set[int]:
        """The workers that are there."""
        return set(self._workers)

    def cpu(self, seconds: Callable[[int], float]) -> list[float]:
        """What each worker has spent; `seconds`: of a process and all below it."""
        return [seconds(worker.pid) for worker in self._workers.values()]

    def executors(self) -> list[int]:
        return [p for worker in self._workers.values() for p in processes.executors(worker.pid)]

    def python_workers(self) -> list[int]:
        return [p for worker in self._workers.values() for p in processes.python_workers(worker.pid)]

    @contextlib.contextmanager
    def stalled(self, number: int) -> Iterator[None]:
        """The Python processes of a worker stand still."""
        found = processes.python_workers(self._workers[number].pid)
        _signal(found, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(found, signal.SIGCONT)

    def kill_worker(self, number: int) -> None:
        """kill -9 of a worker and all below it, as when a machine goes; `start_worker` brings an empty one."""
        processes.end(self._workers.pop(number))

    def start_worker(self, number: int) -> None:
        """Begins to start it, or one that was not there before; see `wait_for`."""
        own = self.machine(number)
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        words = [
            "--host",
            address(number),
            "--cores",
            "2",
            "--memory",
            self.memory,
            "--work-dir",
            str(own / "work"),
            self.url,
        ]
        bare = [] if sys.prefix in self.software else [sys.prefix]  # it may lie outside of all these
        places = ("/tmp", tempfile.gettempdir(), "/dev/shm", Path.home(), *bare)
        empty = dict.fromkeys(map(os.path.realpath, places))
        hidden = (*self.apart.get(number, ()), *([LIBRARIES] if bare else []))
        mounts = [" ".join(map(str, x)) for x in (empty, (*self.software, own, *self.shared), hidden)]
        within = ["unshare", "--map-root-user", "--mount", "sh", "-c", ISOLATED, "sh", *mounts]
        self._workers[number] = self._start(f"worker{number}", WORKER, words, own, within, self.own.get(number, {}))

    def wait_for(self, number: int) -> None:
        self._await(f"worker{number}", self._workers[number], "Successfully registered with master")

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self._master = self._start("master", MASTER, ["--host", "127.0.0.1", "--port", str(self.port)], self.folder)
        self._await("master", self._master, "New state: ALIVE")
        for number in range(self.workers):
            self.start_worker(number)
        for number in range(self.workers):
            self.wait_for(number)

    def end(self) -> None:
        for process in (*self._workers.values(), self._master):
            if process is not None:
                processes.end(process)

    def _await(self, name: str, process: subprocess.Popen[str], text: str, seconds: float = 240) -> None:
        log, deadline = self.folder / f"{name}.log", time.monotonic() + seconds
        while text not in log.read_text(encoding="utf-8"):
            ended = process.poll() is not None or time.monotonic() > deadline
            assert not ended, log.read_text(encoding="utf-8")[-3000:]
            time.sleep(0.1)

    def _start(
        self,
        name: str,
        what: str,
        words: Sequence[str],
        own: Path,
        within: Sequence[str] = (),
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen[str]:
        settings = {
            "PATH": os.pathsep.join([BIN, os.defpath, "/usr/local/bin"]),
            "HOME": str(Path.home()),
            "SPARK_HOME": HOME,
            "SPARK_LOCAL_DIRS": str(own / "local"),
            "BRAID_CACHE": str(own / "cache"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": LIGHT,
            **{name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ},
            **self.env,
            **env,
        }
        command = [*within, os.path.join(HOME, "bin", "spark-class"), what, *words, "--webui-port", "0"]
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            return subprocess.Popen(
                command,
                cwd="/",
                env=settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )


@contextlib.contextmanager
def cluster(folder: Path, **more: object) -> Iterator[Cluster]:
    """`more`: the fields of a cluster."""
    made = Cluster(folder, **more)  # type: ignore[arg-type]
    try:
        made.begin()
        yield made
    finally:
        made.end()


def _signal(pids: Sequence[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)
