"""A standalone cluster on loopback, from the installed PySpark: a master, three workers, one executor on each.

In: a folder for what they write; what each worker has to itself. Out: the master's address; the processes by number.
Rule: all processes are ours and end with the block. Each worker has an address of its own, as machines have: with one
address Spark takes what a neighbour has shuffled for its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from crash import processes

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


def address(worker: int) -> str:
    return f"127.0.0.{11 + worker}"


@dataclass(slots=True)
class Cluster:
    """`apart`: folders that a worker has to itself, empty at first (`tmpfs` in a name space of its own)."""

    folder: Path
    env: Mapping[str, str]
    apart: Mapping[int, Sequence[Path]] = field(default_factory=dict)
    port: int = 0
    _master: subprocess.Popen[str] | None = None
    _workers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def executors(self) -> list[int]:
        return [p for worker in self._workers for p in processes.executors(worker.pid)]

    def python_workers(self) -> list[int]:
        return [p for worker in self._workers for p in processes.python_workers(worker.pid)]

    def kill_worker(self, number: int) -> None:
        """kill -9 of a worker and all below it, as when a machine goes; `start_worker` brings an empty one."""
        processes.end(self._workers[number])

    def start_worker(self, number: int) -> None:
        """Begins to start it; see `wait_for`."""
        words = ["--host", address(number), "--cores", "1", "--memory", "1g"]
        words += ["--work-dir", str(self.folder / f"work{number}"), self.url]
        process = self._start(f"worker{number}", WORKER, words, self.apart.get(number, ()))
        self._workers[number : number + 1] = [process]

    def wait_for(self, number: int) -> None:
        _wait_for(self.folder / f"worker{number}.log", "Successfully registered with master")

    def begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        self._master = self._start("master", MASTER, ["--host", "127.0.0.1", "--port", str(self.port)])
        _wait_for(self.folder / "master.log", "New state: ALIVE")
        for number in range(WORKERS):
            self.start_worker(number)
        for number in range(WORKERS):
            self.wait_for(number)

    def end(self) -> None:
        for process in (*self._workers, self._master):
            if process is not None:
                processes.end(process)

    def _start(self, name: str, what: str, words: list[str], apart: Sequence[Path] = ()) -> subprocess.Popen[str]:
        settings = {
            **os.environ,
            "SPARK_LOCAL_DIRS": str(self.folder / f"local-{name}"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": LIGHT,
            "PYSPARK_PYTHON": sys.executable,
            **self.env,
            "SPARK_HOME": HOME,
        }
        command = [os.path.join(HOME, "bin", "spark-class"), what, *words, "--webui-port", "0"]
        if apart:
            mounts = "".join(f'mount -t tmpfs none "{path}" && ' for path in apart)
            command = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mounts}exec "$@"', "sh", *command]
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )


@contextlib.contextmanager
def cluster(
    folder: Path, env: Mapping[str, str], apart: Mapping[int, Sequence[Path]] | None = None
) -> Iterator[Cluster]:
    made = Cluster(folder, env, apart or {})
    try:
        made.begin()
        yield made
    finally:
        made.end()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _wait_for(log: Path, text: str, seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while text not in log.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")[-3000:]
        time.sleep(0.1)
