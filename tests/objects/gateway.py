"""A real S3 server: versitygw over a folder, on loopback.

In: nothing. Out: a server that is shared by all tests of the machine, and a place in it for each test.
Rule: it is built once, by Go, into the cache folder; where that cannot be, tests are skipped with the reason.

    python -m objects.gateway [stop]      the kept server's address; with `stop` it ends (run in tests/)
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from kafka import kept
from kafka.fetch import Unavailable, cache, fetched, run
from kafka.server import Server, listens

VERSION = "v1.8.0"
BUILD_SECONDS = 1800
KEY, SECRET = "braid-tests-key", "braid-tests-secret"
BUCKET = "braid"


class Gateway(Server):
    """An S3 server of one's own, or (by `kept_gateway`) the one that is shared."""

    name = "S3 server"
    ports = 1

    @property
    def environment(self) -> dict[str, str]:
        """What a client must find."""
        return environment(f"http://127.0.0.1:{self.numbers[0]}", KEY, SECRET)

    def prepare(self) -> None:
        (self.folder / "data" / BUCKET).mkdir(parents=True)

    def command(self) -> list[str]:
        keys = ["env", f"ROOT_ACCESS_KEY={KEY}", f"ROOT_SECRET_KEY={SECRET}"]
        return [*keys, str(program()), "--quiet", "--port", f"127.0.0.1:{self.numbers[0]}", "posix", "data"]

    def ready(self) -> bool:
        return listens(self.numbers[0])


def environment(endpoint: str, key: str, secret: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
    }


def program() -> Path:
    return fetched(cache() / f"versitygw-{VERSION}" / "bin", _build, BUILD_SECONDS) / "versitygw"


def _build(to: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no Go on this machine, which builds versitygw")
    command = [go, "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"]
    run(command, "Go cannot build versitygw", None, BUILD_SECONDS, {"GOBIN": str(to), "GOMAXPROCS": "2"})


def _folder() -> Path:
    return cache() / f"versitygw-{VERSION}" / "server"


def kept_gateway() -> AbstractContextManager[Gateway]:
    """The shared server, started if it does not run; `Unavailable` where it cannot be had."""
    program()
    return kept.kept(Gateway, _folder())


def own_gateway() -> AbstractContextManager[Gateway]:
    """An empty server for one test alone."""
    program()
    return kept.own(Gateway)


def _exports(found: Gateway) -> str:
    return "\n".join(f"export {name}={value}" for name, value in found.environment.items())


if __name__ == "__main__":
    kept.command("S3 server", Gateway, _folder(), kept_gateway, _exports)
