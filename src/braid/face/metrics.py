"""What a run tells of its batches: JSON lines, one a batch, and an endpoint for Prometheus.

In: running queries, where lines go, which port. Out: lines (`Measured.document`), and figures (`prometheus.py`).
Rule: who reads them changes nothing, and a run does not die of a disk that has no room for its metrics. Every field and
name stands in `docs/metrics.md`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Protocol, TextIO

from braid.errors import BraidError
from braid.stage.measured import Measured

if TYPE_CHECKING:
    from braid.spark.query import Progress

LOOPBACK = "127.0.0.1"


class Watched(Protocol):
    """What is used of a running query."""

    def progress(self) -> Progress: ...

    def take_batches(self, over: bool = False) -> list[Measured]: ...


class Metrics:
    """The telling of one run. `lines`: a file, `-` for stdout; `port`: `[HOST:]PORT`; what is None is not told."""

    def __init__(self, lines: str | None, port: str | None) -> None:
        self._target, self._asked = lines, port
        self._lines: TextIO | None = None
        self._open = ExitStack()
        self._one = threading.Lock()
        self.queries: Mapping[str, Watched] = {}
        self.address: str | None = None  # of the endpoint
        self.fault: str | None = None  # why lines are no longer written

    def __enter__(self) -> Metrics:
        if self._target == "-":
            self._lines = sys.stdout
        elif self._target is not None:
            try:
                self._lines = self._open.enter_context(open(self._target, "a", encoding="utf-8"))
            except OSError as e:
                raise BraidError(f"--metrics {self._target}: {e.strerror}", "name a file that can be written") from None
        try:
            if self._asked is not None:
                self._serve(*_host_and_port(self._asked))
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a full disk was told of before
            self._open.close()

    def _serve(self, host: str, port: int) -> None:
        from braid.face.prometheus import serve

        try:
            server, thread = serve(host, port, lambda: self.queries)
        except OSError as e:
            raise BraidError(f"--metrics-port {self._asked}: {e.strerror}", "take another one; 0 finds one") from None
        self.address = f"http://{host}:{server.server_port}/metrics"
        self._open.callback(thread.join, 5)
        self._open.callback(server.server_close)
        self._open.callback(server.shutdown)

    def tell(self, over: bool = False) -> None:
        """Writes the lines of the batches that are new. `over`: there will be no more."""
        if self._lines is None or self.fault is not None:
            return
        with self._one:
            made = [batch.document() for query in list(self.queries.values()) for batch in query.take_batches(over)]
            try:
                self._lines.writelines(json.dumps(document, separators=(",", ":")) + "\n" for document in made)
                self._lines.flush()
            except OSError as e:
                self.fault = f"--metrics {self._target}: {e.strerror}; no more lines are written"


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise BraidError(f"--metrics-port {text}: it takes [HOST:]PORT", "--metrics-port 9464; 0 finds a free one")
    return host or LOOPBACK, int(port)
