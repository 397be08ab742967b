"""An object store in memory that does what a test tells it: S3's calls as far as Braid makes them, and faults.

In: the faults of the next requests, or one for all. Out: an endpoint on loopback; what it holds; what it was asked.
Rule: it checks no signatures and is no proof of anything but faults: what S3 means is tested on a real server.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from objects.gateway import environment

KEY, SECRET = "the-key-of-memory", "the-secret-of-memory"
HANG = 30  # seconds
PAGE = 100  # names in an answer of a listing
CODES = {403: "AccessDenied", 409: "ConditionalRequestConflict", 429: "TooManyRequests"}
CODES |= {412: "PreconditionFailed", 500: "InternalError", 503: "SlowDown"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed has reset its connection: no news, and nothing for the stderr of a test."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Faulty:
    """`faults`: of the next requests, one each; `always`: of all others. A fault is a status; "cut": the connection
    ends, nothing is done; "hang": the same, and it does not end; "done, cut", "done, 500", "done, hang": it is done,
    and the answer is lost or wrong; "half": half a body comes; None: no fault."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.faults: deque[int | str | None] = deque()
        self.always: int | str | None = None
        self.asked: list[str] = []
        self.echo = ""  # what the text of an error says besides
        self.missing = "NoSuchKey"
        self.signed: list[str] = []
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.endpoint, KEY, SECRET)


@contextmanager
def faulty() -> Iterator[Faulty]:
    made = Faulty()
    serving = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    serving.start()
    try:
        yield made
    finally:
        made.over.set()
        made.server.shutdown()
        serving.join()
        made.server.server_close()


def _handler(faulty: Faulty) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        owner = faulty

    return Handler


class _Handler(BaseHTTPRequestHandler):
    owner: Faulty
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        owner = self.owner
        with owner.lock:
            owner.asked.append(f"{self.command} {self.path}")
            owner.signed.append(self.headers.get("Authorization") or "")
            fault = owner.faults.popleft() if owner.faults else owner.always
        match fault:
            case None | "half":
                self._send(*self._done(body), half=fault == "half")
            case "hang":
                owner.over.wait(HANG)
                self._cut()
            case "done, cut" | "done, 500" | "done, hang":
                self._done(body)
                if fault == "done, 500":
                    self._send(*self._error(500))
                else:
                    owner.over.wait(0 if fault == "done, cut" else HANG)
                    self._cut()
            case "cut":
                self._cut()
            case int():
                self._send(*self._error(fault))
            case _:
                raise AssertionError(fault)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, body: bytes, headers: dict[str, str], half: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if half else body)
        if half:
            self.wfile.flush()
            self._cut()

    def _error(self, status: int) -> tuple[int, bytes, dict[str, str]]:
        code = self.owner.missing if status == 404 else CODES[status]
        text = f"<Error><Code>{code}</Code><Message>no {self.owner.echo}</Message></Error>"
        return status, text.encode(), {"Content-Type": "application/xml"}

    def _done(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        url = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        _, _bucket, *rest = unquote(url.path).split("/", 2)
        key = rest[0] if rest else ""
        with self.owner.lock:
            if not key:
                return self._bucket(query, body)
            if "uploads" in query or "uploadId" in query:
                return self._upload(key, query, body)
            return self._object(key, body)

    def _object(self, key: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        held = self.owner.held
        if self.command == "PUT":
            if self.headers.get("If-None-Match") == "*" and key in held:
                return self._error(412)
            held[key] = body, {k.lower(): v for k, v in self.headers.items() if k.lower().startswith("x-amz-meta-")}
            return 200, b"", {"ETag": '"1"'}
        if self.command == "DELETE":
            held.pop(key, None)
            return 204, b"", {}
        if key not in held:
            return self._error(404)
        data, told = held[key]
        told = {"ETag": '"1"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT", **told}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or ""):
            first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
            if first > last:
                return 416, b"", {}
            told["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return 206, data[first : last + 1], told
        return 200, data, {**told, "Content-Length": str(len(data))}

    def _bucket(self, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        held = self.owner.held
        if "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for key in keys:
                held.pop(key, None)
            done = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            return 200, f"<DeleteResult>{done}</DeleteResult>".encode(), {}
        after = query.get("continuation-token", query.get("start-after", ""))
        found = sorted(k for k in held if k.startswith(query.get("prefix", "")) and k > after)
        shown = "".join(
            f"<Contents><Key>{escape(k)}</Key><Size>{len(held[k][0])}</Size>"
            "<LastModified>2015-10-21T07:28:00.000Z</LastModified></Contents>"
            for k in found[:PAGE]
        )
        more = f"<NextContinuationToken>{escape(found[PAGE - 1])}</NextContinuationToken>" if found[PAGE:] else ""
        return 200, f"<ListBucketResult>{shown}{more}</ListBucketResult>".encode(), {}

    def _upload(self, key: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        parts = self.owner.parts
        if "uploads" in query:
            upload = f"u{time.monotonic_ns()}"
            parts[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return 200, text.encode(), {}
        if query["uploadId"] not in parts:  # it was given up, or has come to its end
            return 404, b"<Error><Code>NoSuchUpload</Code></Error>", {}
        if self.command == "PUT":
            parts[query["uploadId"]][int(query["partNumber"])] = body
            return 200, b"", {"ETag": f'"{query["partNumber"]}"'}
        upload_parts = parts.pop(query["uploadId"])
        if self.command == "DELETE":
            return 204, b"", {}
        self.owner.held[key] = b"".join(upload_parts[n] for n in sorted(upload_parts)), {}
        return 200, b'<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>', {}
