"""A standalone cluster on loopback, from the installed PySpark: a master, two workers, one executor on each.

In: a folder for what they write. Out: the master's address; the executors' numbers.
Rule: all processes are ours and end with the block.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crash import processes

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}
CONF = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True, slots=True)
class Cluster:
    url: str
    workers: tuple[subprocess.Popen[str], ...]

    def executors(self) -> list[int]:
        return [p for worker in self.workers for p in processes.executors(worker.pid)]

    def python_workers(self) -> list[int]:
        return [p for worker in self.workers for p in processes.python_workers(worker.pid)]


@contextlib.contextmanager
def cluster(folder: Path, env: Mapping[str, str]) -> Iterator[Cluster]:
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        **os.environ,
        **env,
        "SPARK_HOME": home,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *words: object) -> subprocess.Popen[str]:
        with open(folder / f"{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [
                    os.path.join(home, "bin", "spark-class"),
                    *map(str, words),
                    "--host",
                    "127.0.0.1",
                    "--webui-port",
                    "0",
                ],
                cwd=folder,
                env=settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        started.append(process)
        return process

    try:
        port = _free_port()
        start("master", MASTER, "--port", port)
        _wait_for(folder / "master.log", "New state: ALIVE")
        url = f"spark://127.0.0.1:{port}"
        workers = []
        for i in range(2):
            words = ("--cores", 1, "--memory", "1g", "--work-dir", folder / f"work{i}", url)
            workers.append(start(f"worker{i}", WORKER, *words))
        for i in range(2):
            _wait_for(folder / f"worker{i}.log", "Successfully registered with master")
        yield Cluster(url, tuple(workers))
    finally:
        for process in reversed(started):
            processes.end(process)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _wait_for(log: Path, text: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while text not in log.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")[-3000:]
        time.sleep(0.1)
