"""Where time goes: code says `with spent("decode"):`, whoever wants to know opens a `Watch` around it.

In: names, a piece of code each (`PARTS`), and counts. Out: nanoseconds by name, and counts, of one thread.
Rule: nested pieces are taken off the outer one, so sums of a watch never exceed the time that it was open. A piece
costs about a microsecond and changes nothing else: no result depends on it. Never `yield` inside `with spent`.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

PARTS = {
    "read": "bytes of topics and files become lines or columns",
    "decode": "lines become typed columns",
    "key": "positions, key hashes and clock steps of what was read",
    "split": "rows go to their buckets",
    "pack": "frames become blobs (Arrow IPC, LZ4)",
    "unpack": "blobs become frames",
    "order": "a bucket's rows are put in processing order, its clocks are made",
    "match": "operators; `match/N` is step N of the plan",
    "state_read": "state files and manifests are fetched and opened",
    "state_write": "state files and manifests are stored",
    "merge": "state files become one",
    "project": "rows of the result, or of the next exchange, are computed",
    "keep": "rows of a table's result are kept by key, for pull queries",
    "sort": "rows of several buckets are merged by position",
    "encode": "rows become text",
    "write": "staged files are written",
    "causes": "which record completed each row is packed",
}
MATCH = "match/"  # begins the name of a step


class Watch:
    """What the thread spent while this was open: `ns` by name, `tallies` by name. It can be opened again."""

    __slots__ = ("_began", "_outer", "elapsed", "inner", "ns", "tallies")

    def __init__(self) -> None:
        self.ns: dict[str, int] = {}
        self.tallies: dict[str, int] = {}
        self.elapsed = 0  # ns that it was open
        self.inner = 0  # ns of the pieces inside the one that is open
        self._began = 0
        self._outer: Watch | None = None

    def __enter__(self) -> Watch:
        self._outer, _now.watch = _now.watch, self
        self._began = time.perf_counter_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        took = time.perf_counter_ns() - self._began
        assert self._outer is not None
        self.elapsed += took
        self.inner = 0
        self._outer.inner += took
        _now.watch, self._outer = self._outer, None


class _Now(threading.local):
    """The watch that is open in this thread; at first one that nobody looks at."""

    def __init__(self) -> None:
        self.watch = Watch()


_now = _Now()


class spent:
    """A piece of code whose time counts under a name."""

    __slots__ = ("_began", "_name", "_outer", "_watch")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._watch = watch = _now.watch
        self._outer = watch.inner
        watch.inner = 0
        self._began = time.perf_counter_ns()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        took = time.perf_counter_ns() - self._began
        watch, name = self._watch, self._name
        watch.ns[name] = watch.ns.get(name, 0) + took - watch.inner
        watch.inner = self._outer + took


def tally(name: str, n: int = 1) -> None:
    """Counts something: cache hits, merges."""
    tallies = _now.watch.tallies
    tallies[name] = tallies.get(name, 0) + n
