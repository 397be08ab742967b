"""`braid` from tests: in this process where no Spark is needed, else as a process of its own.

In: the words of a command line. Out: exit code, what came on stdout and stderr.
Rule: no trace of Python or of the JVM may ever be on a user's terminal; every call checks that.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUICK = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")
NOISE = ("Traceback", "java.lang", "\tat ", "WARN", "ERROR ", "py4j", "internal error", "NoneType")


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str


def checked(code: int, out: str, err: str) -> Said:
    for noise in NOISE:
        assert noise not in err and noise not in out, f"{out}\n{err}"
    return Said(code, out, err)


def braid(*words: object, stdin: str = "") -> Said:
    """A command in this process."""
    out, err = io.StringIO(), io.StringIO()
    code = _main(words, stdin, out, err)
    return checked(code, out.getvalue(), err.getvalue())


def records(topic: str, store: Path | str = "s") -> list[dict[str, Any]]:
    """What `braid cat` tells of a topic."""
    return [json.loads(x) for x in braid("cat", topic, "--store", store, "--format", "jsonl").out.splitlines()]


def on_shared_spark(*words: object, cwd: Path) -> Said:
    """A command in this process and a folder, on the Spark session that tests share."""
    from braid.testing.on_spark import shared_session

    shared_session()
    with contextlib.chdir(cwd):
        return braid(*words)


def rows_after(text: str, asking: str, *where: object, dialect: str, cwd: Path) -> list[str]:
    """What a question is answered, without its head, once the queries of a text are done with what is there."""
    words = (*where, "--dialect", dialect)
    said = on_shared_spark("run", "-e", text, *words, "--until-idle", cwd=cwd)
    assert said.code == 0, said.err
    return [" ".join(line.split()) for line in braid("sql", *words, stdin=asking).out.splitlines()[1:]]


def shown(*words: object) -> list[str]:
    """The lines that a command shows on a terminal, in this process: what it says on stdout and stderr together."""
    screen = io.StringIO()
    code = _main(words, "", screen, screen)
    checked(code, screen.getvalue(), "")
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def _main(words: Sequence[object], stdin: str, out: io.StringIO, err: io.StringIO) -> int:
    from braid.face.cli import main

    before = sys.stdin
    code: object = 0
    sys.stdin = io.StringIO(stdin)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(w) for w in words])
        except SystemExit as e:
            code = e.code
        finally:
            sys.stdin = before
    assert isinstance(code, int)
    return code


def launch(*words: object, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A command as a process, the first of a group of its own."""
    return started([sys.executable, "-m", "braid", *map(str, words)], cwd, env or {})


def started(words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """A program, the first of a group of its own; `env`: what its environment has besides."""
    return subprocess.Popen(
        words,
        cwd=cwd,
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], seconds: float = 200) -> Said:
    """How a process came to its end. One that does not, tells where it stands."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # see PYTHONFAULTHANDLER
        time.sleep(2)
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"it does not end within {seconds} s\n{out}\n{err}") from None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return checked(process.returncode, out, err)


def spawned(*words: object, cwd: Path, env: Mapping[str, str] | None = None) -> Said:
    return ended(launch(*words, cwd=cwd, env=env))
