"""Quick starts for the Python processes of a local session: a process that has imported all forks the others.

In: `start()`, `begin()`. Out: a program that Spark takes for its Python.
Rule: what runs is the same, module for module; only the seconds that each process would import for are spent once,
while the JVM starts. A query has eight such processes, one after the other. Where nobody answers, the program is Python
itself. No thread may be at work before a fork: allocators are told to have none, no pool has started (`daemon.py`,
whose imports these are). What is left is a thread of Polars that waits for frames on disk, of which there are none.

    python -m braid.spark.warm NUMBER      the process that forks for who comes to this listening socket; it ends when
                                           its standard input does
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from braid import allocator
from braid.spark.private import socket_folder

DAEMONS = ("pyspark.daemon", "braid.spark.daemon")
PLANNERS = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
WORKERS = ("pyspark.worker", "pyspark.sql.worker.lookup_data_sources", "pyspark.sql.worker.create_data_source")
WAITING = "polars-ooc"  # a thread of Polars' from its import on
# A program that asks for a fork, hands over its standard streams and waits; or is Python itself.
LAUNCHER = """\
#!{python} -ISs
import os, sys
words = sys.argv[1:]
if words[:1] == ["-m"] and words[1] in {forked}:
    import json, socket
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect({path!r})
            text = json.dumps([words[1:], dict(os.environ), os.getcwd()]).encode()
            socket.send_fds(s, [len(text).to_bytes(4, "big")], [0, 1, 2])
            s.sendall(text)
            done = s.recv(1)
        sys.exit(done[0] if done else 1)
    except (FileNotFoundError, ConnectionRefusedError):
        pass
os.execv({python!r}, [{python!r}, *words])
"""


class Forks:
    """`program`: what Spark takes for its Python. Who runs it before `begin` waits."""

    def __init__(self, folder: str) -> None:
        path, program = os.path.join(folder, "socket"), Path(folder) / "python"
        program.write_text(LAUNCHER.format(python=sys.executable, path=path, forked=DAEMONS + PLANNERS))
        program.chmod(0o700)
        self.program = str(program)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen(64)  # who asks now is served after the imports
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Starts the process that forks."""
        number = self._listening.fileno()
        env = os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
        env |= allocator.still(os.environ)
        words = [sys.executable, "-m", __name__, str(number)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env, pass_fds=[number]
        )
        self._listening.close()

    def end(self) -> None:
        self._listening.close()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


@contextlib.contextmanager
def start() -> Iterator[Forks]:
    """For as long as the block lasts."""
    with socket_folder() as folder:
        forks = Forks(folder)
        try:
            yield forks
        finally:
            forks.end()


def serve(number: int) -> None:
    """Forks until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    with socket.socket(fileno=number) as listening:
        from braid.spark import daemon

        for module in (*daemon.NEEDED, *WORKERS, *PLANNERS):
            importlib.import_module(module)
        gc.freeze()
        _check_still()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            caller, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _run(caller)
            caller.close()


def _check_still() -> None:
    """Python warns of a fork beside threads. The one of Polars' holds nothing; with any other we do not fork."""
    with contextlib.suppress(FileNotFoundError):
        threads = [Path(f"/proc/self/task/{n}/comm").read_text().strip() for n in os.listdir("/proc/self/task")]
        others = [name for name in threads if not name.startswith(WAITING)]
        if len(others) > 1:
            sys.exit(f"threads run beside the one that forks: {', '.join(others[1:])}")
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)


def _run(caller: socket.socket) -> None:
    """In the fork: the module that was asked for, as if it had been started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        size, streams, _, _ = socket.recv_fds(caller, 4, 3)
        words, environment, folder = json.loads(_read(caller, int.from_bytes(size, "big")))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.path += [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and p not in sys.path]
        sys.argv = words
        warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            caller.sendall(bytes([code & 255]))
        os._exit(code)


def _read(caller: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = caller.recv(size - len(data))
        assert piece, "the caller has gone"
        data += piece
    return data


if __name__ == "__main__":
    serve(int(sys.argv[1]))
