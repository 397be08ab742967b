"""The registry on a server: Confluent's HTTP interface, by the client; what it refuses, and what is told of that."""

from __future__ import annotations

import base64
import json
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from braid.errors import BraidError
from braid.records.registry import Incompatible, Schema, UnknownSchema
from braid.topics.registries import HttpRegistry, address_of, opened

RECORD = '{"type":"record","name":"R","fields":[{"name":"v","type":"int"}]}'
SECRET = "ann:very-secret"


class Server(ThreadingHTTPServer):
    """Schemas by subject. `asked`: the paths of requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.compatible = True


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, doc: Any) -> None:
        body = json.dumps(doc).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _allowed(self) -> bool:
        self.server.asked.append(f"{self.command} {self.path.partition('?')[0]}")
        wanted = "Basic " + base64.b64encode(SECRET.encode()).decode()
        if self.headers.get("Authorization") == wanted:
            return True
        self._answer(401, {"error_code": 401, "message": f"no, {self.headers.get('Authorization')}"})
        return False

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if not self._allowed():
            return
        match parts:
            case ["schemas", "ids", id] if int(id) <= len(self.server.schemas):
                self._answer(200, self.server.schemas[int(id) - 1])
            case ["schemas", "ids", _]:
                self._answer(404, {"error_code": 40403, "message": "Schema not found"})
            case ["subjects", subject, "versions", version] if subject in self.server.subjects:
                ids = self.server.subjects[subject]
                n = len(ids) if version == "latest" else int(version)
                doc = self.server.schemas[ids[n - 1] - 1]
                self._answer(200, {"subject": subject, "version": n, "id": ids[n - 1], **doc})
            case _:
                self._answer(404, {"error_code": 40401, "message": "Subject not found"})

    def do_POST(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        doc = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._allowed():
            return
        if parts[0] == "nowhere":
            self._answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})
        elif parts[0] == "compatibility":
            known = parts[2] in self.server.subjects
            answer = {"is_compatible": self.server.compatible} if known else {"error_code": 40401, "message": "none"}
            self._answer(200 if known else 404, answer)
        elif not self.server.compatible:
            self._answer(409, {"error_code": 409, "message": "Schema being registered is incompatible"})
        else:
            if doc not in self.server.schemas:
                self.server.schemas.append(doc)
            id = self.server.schemas.index(doc) + 1
            self.server.subjects.setdefault(parts[1], []).append(id)
            self._answer(200, {"id": id})


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def given(user: str = SECRET) -> tuple[tuple[str, str], ...]:
    return (("basic.auth.user.info", user),)


def test_register_and_read(server: Server, tmp_path: Path) -> None:
    (tmp_path / "registry.properties").write_text(f"# ours\nbasic.auth.user.info={SECRET}\n")
    address = address_of(url(server), str(tmp_path / "registry.properties"))
    assert address is not None and SECRET.encode() not in pickle.dumps(address)
    registry = opened(pickle.loads(pickle.dumps(address)))
    schema = Schema("AVRO", RECORD)
    assert registry.latest("t-value") is None
    registry.check("t-value", schema)
    id = registry.register("t-value", schema)
    assert registry.latest("t-value") == (id, schema) and registry.version("t-value", 1) == schema
    uses = Schema("PROTOBUF", 'syntax = "proto3";', (("a.proto", "a", 1),))
    other = registry.register("u-value", uses)
    assert registry.by_id(other) == uses
    asked = len(server.asked)
    assert registry.by_id(other) == uses and len(server.asked) == asked, "an id is asked for once"
    assert opened(address) is registry


def test_refusals(server: Server) -> None:
    registry = HttpRegistry(url(server), given())
    with pytest.raises(UnknownSchema, match="no schema has the id 9"):
        registry.by_id(9)
    registry.register("t-value", Schema("AVRO", RECORD))
    server.compatible = False
    other = Schema("AVRO", '"int"')
    with pytest.raises(Incompatible, match="refuses the schema of t-value"):
        registry.check("t-value", other)
    with pytest.raises(Incompatible, match="refuses the schema of t-value"):
        registry.register("t-value", other)


def test_no_access_tells_no_secret(server: Server) -> None:
    registry = HttpRegistry(url(server), given("ann:wrong-secret"))
    with pytest.raises(BraidError) as refused:
        registry.latest("t-value")
    assert "refuses access to subject t-value (401)" in str(refused.value) and "secret" not in str(refused.value)
    with pytest.raises(BraidError) as refused:
        HttpRegistry("http://127.0.0.1:1", (("basic.auth.user.infos", SECRET),))
    assert "secret" not in str(refused.value)


def test_no_server_is_told_in_seconds() -> None:
    begun = time.monotonic()
    with pytest.raises(BraidError, match="no registry answers at http"):
        HttpRegistry("http://127.0.0.1:1").latest("t-value")
    assert time.monotonic() - begun < 8


def test_no_registry_at_the_address(server: Server) -> None:
    registry = HttpRegistry(f"{url(server)}/nowhere", given())
    with pytest.raises(BraidError, match="does not give subject t-value: 404"):
        registry.register("t-value", Schema("AVRO", RECORD))
