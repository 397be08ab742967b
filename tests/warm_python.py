"""Quick starts for the Python processes that Spark starts anew for every query.

In: `start()`. Out: a program to be named as Spark's Python (`braid.spark.conf.PYTHON`).
Rule: what runs is the same, module for module; only the second that each process would import for is spent once. A
process that has imported all forks the others. (A query has two of them, and tests start some hundred queries.) Python
daemons, which live as long as the session, are started as ever.

    warm_python.py SOCKET      the process that forks; it ends when its standard input does
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

FORKED = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
# A program that asks for a fork, hands over its standard streams and waits; or is Python itself.
LAUNCHER = """\
#!{python} -ISs
import os, sys
words = sys.argv[1:]
if words[:1] == ["-m"] and words[1:] in {forked}:
    import json, socket
    with socket.socket(socket.AF_UNIX) as s:
        s.connect({path!r})
        text = json.dumps([words[1], dict(os.environ), os.getcwd()]).encode()
        socket.send_fds(s, [len(text).to_bytes(4, "big")], [0, 1, 2])
        s.sendall(text)
        done = s.recv(1)
    sys.exit(done[0] if done else 1)
os.execv({python!r}, [{python!r}, *words])
"""


@contextlib.contextmanager
def start() -> Iterator[str]:
    """The path of the program, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="braid-warm-") as folder:
        path = os.path.join(folder, "socket")
        launcher = Path(folder) / "python"
        forked = [[module] for module in FORKED]
        launcher.write_text(LAUNCHER.format(python=sys.executable, path=path, forked=forked))
        launcher.chmod(0o700)
        env = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        words = [sys.executable, __file__, path]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdout.readline()  # it listens
            yield str(launcher)
            process.stdin.close()


def serve(path: str) -> None:
    """Forks until standard input ends."""
    import pandas  # noqa: F401
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.streaming.transform_with_state_driver_worker  # noqa: F401

    import braid.spark.source  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            caller, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _run(caller)
            caller.close()


def _run(caller: socket.socket) -> None:
    """In the fork: the module that was asked for, as if it had been started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        size, streams, _, _ = socket.recv_fds(caller, 4, 3)
        module, environment, folder = json.loads(_read(caller, int.from_bytes(size, "big")))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [module]
        warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
        runpy.run_module(module, run_name="__main__", alter_sys=True)
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
    serve(sys.argv[1])
