"""A real schema registry with Confluent's interface: Apicurio, in memory, on loopback.

In: a folder. Out: a registry that answers at `url`; a kill empties it.
Rule: its default compatibility is NONE, where Confluent's is BACKWARD; a test that means one sets it for its subject.

    python -m kafka.registry [stop]      the kept registry's address; with `stop` it ends (run in tests/)
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kafka import kept
from kafka.fetch import APICURIO, apicurio, cache, java
from kafka.server import Server

SMALL = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]


class Registry(Server):
    """A registry of one's own, or (by `kept_registry`) the one that is shared."""

    name = "registry"
    ports = 2

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.numbers[0]}/apis/ccompat/v7"

    def prepare(self) -> None:
        """Nothing to write: it keeps all in memory."""

    def command(self) -> list[str]:
        port, management = self.numbers
        own = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": port,
            "quarkus.management.host": "127.0.0.1",  # else it listens on all interfaces
            "quarkus.management.port": management,
            "quarkus.http.access-log.enabled": "false",
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
        }
        options = [f"-D{name}={value}" for name, value in own.items()]
        return [java(21), *SMALL, *options, "-jar", str(apicurio() / "quarkus-run.jar")]

    def ready(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return isinstance(self.call("GET", "/subjects"), list)
        return False

    # What tests ask of it, without any client's cache.

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request; `urllib.error.HTTPError` has the code and the text of a refusal."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=20) as answer:
            return json.loads(answer.read())

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """Registers a schema (AVRO, JSON or PROTOBUF); gives its id."""
        body: dict[str, Any] = {"schema": schema, "schemaType": kind}
        if references:
            body["references"] = references
        return int(self.call("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    def latest(self, subject: str) -> dict[str, Any]:
        """What a subject has now: id, version, schema; and schemaType where it is not Avro."""
        return dict(self.call("GET", f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def schema(self, id: int) -> dict[str, Any]:
        return dict(self.call("GET", f"/schemas/ids/{id}"))

    def compatibility(self, subject: str, level: str) -> None:
        self.call("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": level})


def fetch() -> None:
    """Before any lock is taken that others wait for."""
    apicurio()
    java(21)


def _folder() -> Path:
    return cache() / f"apicurio-{APICURIO}" / "registry"


def kept_registry() -> AbstractContextManager[Registry]:
    """The shared registry, started if it does not run; `Unavailable` where it cannot be had."""
    fetch()
    return kept.kept(Registry, _folder())


def own_registry() -> AbstractContextManager[Registry]:
    """An empty registry for one test alone, to be stopped and killed."""
    fetch()
    return kept.own(Registry)


if __name__ == "__main__":
    kept.command("registry", Registry, _folder(), kept_registry, lambda found: found.url)
