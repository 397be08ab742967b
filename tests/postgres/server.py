"""A PostgreSQL of the tests' own, which judges expressions.

In: Debian's package `postgresql`. Out: a connection; or why there is none.
Rule: it runs as another user than root, listens on a socket in a folder of its own, keeps nothing, and goes with the
tests. Times are UTC, texts are compared by their bytes.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

# The code of an error, not its words: these may hold half a character.
TRY = """
CREATE FUNCTION tried(asked text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE found text;
BEGIN
  EXECUTE asked INTO found;
  RETURN found;
EXCEPTION WHEN others THEN
  RETURN E'\\x01' || SQLSTATE;
END $$"""
SETTINGS = ("listen_addresses=''", "fsync=off", "timezone=UTC", "datestyle=ISO", "intervalstyle=postgres")


class Missing(Exception):
    """There is no server, and why."""


def programs() -> Path:
    """The folder of `initdb` and `pg_ctl`."""
    on_path = shutil.which("pg_ctl")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda p: int(p.parts[-3]))
    if on_path is None and not found:
        raise Missing("no PostgreSQL is installed: apt-get install postgresql")
    return found[-1].parent if found else Path(str(on_path)).parent


def _user() -> str | None:
    """Whom the server runs as: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise Missing("PostgreSQL does not run as root, and there is no user postgres") from None


@contextmanager
def running() -> Iterator[psycopg.Connection]:
    """A server, and a connection to it."""
    where, user = programs(), _user()
    with tempfile.TemporaryDirectory(prefix="braid-pg-") as folder:
        root = Path(folder)
        if user is not None:
            shutil.chown(root, user)

        def run(*command: str) -> None:
            env = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
            done = subprocess.run([str(where / command[0]), *command[1:]], user=user, cwd=root, capture_output=True,
                                  text=True, timeout=120, check=False, env=env)  # fmt: skip
            if done.returncode:
                raise Missing(f"{command[0]} fails: {(done.stderr or done.stdout).strip()[-300:]}")

        run("initdb", "-D", "data", "-A", "trust", "-E", "UTF8", "--locale", "C.UTF-8", "-U", "judge", "-N")
        options = " ".join(f"-c {s}" for s in (*SETTINGS, f"unix_socket_directories={root}"))
        run("pg_ctl", "-D", "data", "-l", "log", "-w", "-o", options, "start")
        try:
            with psycopg.connect(f"host={root} user=judge dbname=postgres", autocommit=True) as connection:
                connection.execute(TRY)
                yield connection
        finally:
            run("pg_ctl", "-D", "data", "-m", "immediate", "stop")
