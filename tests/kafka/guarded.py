"""A door in front of the registry that asks for a name and a password.

In: a registry. Out: the same at another address, for who knows the password. `asked`: the requests that came through;
while it is `shut` none does.
Rule: what is behind the door is the real registry; nothing of an answer is changed.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from kafka.registry import Registry

USER = "ann:very-secret"


class Door(ThreadingHTTPServer):
    def __init__(self, registry: Registry) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        parts = urlsplit(registry.url)
        self.behind, self.path = f"{parts.scheme}://{parts.netloc}", parts.path
        self.asked: list[str] = []
        self.shut, self.turned_away = False, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{self.path}"


class _Handler(BaseHTTPRequestHandler):
    server: Door

    def log_message(self, *_: object) -> None:
        pass

    def _pass(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else None
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(USER.encode()).decode():
            self._answer(401, b'{"error_code": 401, "message": "no"}')
            return
        if self.server.shut:
            self.server.turned_away += 1
            self._answer(503, b'{"error_code": 503, "message": "later"}')
            return
        self.server.asked.append(f"{self.command} {self.path.removeprefix(self.server.path)}")
        kind = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
        request = urllib.request.Request(self.server.behind + self.path, body, kind, method=self.command)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=20) as found:
                self._answer(found.status, found.read())
        except urllib.error.HTTPError as e:
            self._answer(e.code, e.read())

    do_GET = do_POST = do_PUT = do_DELETE = _pass

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def guarded(registry: Registry) -> Iterator[Door]:
    door = Door(registry)
    threading.Thread(target=door.serve_forever, daemon=True).start()
    try:
        yield door
    finally:
        door.shutdown()
        door.server_close()
