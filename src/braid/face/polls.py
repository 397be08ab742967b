"""Tables that lie elsewhere, in a run: when each is polled.

In: what `--source` names, the declarations of a file. Out: topics that hold what the tables hold; what to report.
Rule: the first poll is done, and its rows are in the topic, before a statement or a query reads it. A run that ends by
itself does no other; one that stays up polls every so many seconds. A poll that fails changes nothing and is reported
once; the next one is done all the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from braid.bind.bound import Declared
from braid.bind.program import first_match, named_by
from braid.errors import BraidError, printable
from braid.plan.logical import Query, sources
from braid.tables.interface import Unready
from braid.tables.mirror import Mirror, Poll
from braid.tables.named import table_of
from braid.topics.interface import Topics

PATIENT = 12.0  # s that a first poll waits for a file that is being written
LATEST = 20.0  # s that the end waits for a poll

Tell = Callable[[str], None]


class Polls:
    """`wanted`: what to poll, by name; `how`: see `Mirror`."""

    def __init__(self, wanted: Mapping[str, str], tell: Tell, topics: Topics, *how: Any) -> None:
        self._wanted = {name: table_of(text) for name, text in wanted.items()}
        self._topics, self._how, self._tell = topics, how, tell
        self._mirrors: dict[str, Mirror] = {}  # by topic: those that were checked
        self._begun: dict[str, Mirror] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: dict[str, str] = {}

    def check(self, declared: Mapping[str, Declared]) -> None:
        """Refuses what cannot be polled of these tables; nothing is written."""
        for name, table in self._wanted.items():
            known = first_match(name, declared)
            if known is not None and (topic := declared[known].topic) not in self._mirrors:
                mirror = Mirror(declared[known], table, self._topics, *self._how)
                _patiently(mirror.check)
                self._mirrors[topic] = mirror

    def begin(self, declared: Iterable[Declared]) -> None:
        """The first poll of those of these tables that were checked and not polled yet."""
        topics = [d.topic for d in declared]
        for topic, mirror in self._mirrors.items():
            if topic in topics and topic not in self._begun:
                mirror.begin()
                found = mirror.poll()
                self._begun = self._begun | {topic: mirror}  # a new one: another thread goes through it
                if found is not None:
                    self._told(mirror, found)

    def go_on(self, every: float) -> None:
        """Looks again every so many seconds, until `end`."""
        if self._wanted:
            self._thread = threading.Thread(target=self._go, args=(every,), name="polls", daemon=True)
            self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(LATEST)

    def _go(self, every: float) -> None:
        while not self._over.wait(every):
            for topic, mirror in self._begun.items():
                try:
                    found = mirror.poll()
                except Unready:
                    continue  # the next poll finds it
                except Exception as e:
                    self._report_failed(topic, mirror, e)
                    continue
                self._failed.pop(topic, None)
                if found is not None and found.wrote:
                    self._told(mirror, found)

    def _told(self, mirror: Mirror, found: Poll) -> None:
        self._tell(f"{mirror.declared.name}, from {mirror.table.described()}: {found.told()}")

    def _report_failed(self, topic: str, mirror: Mirror, e: Exception) -> None:
        says = f"{type(e).__name__}: {printable(str(e))}"
        if isinstance(e, BraidError):
            says = e.message + (f"; {e.hint}" if e.hint else "")
        if self._failed.get(topic) != says:
            self._failed[topic] = says
            self._tell(f"{mirror.declared.name} stays as it was: {says}")


def check_read(queries: Iterable[Query], names: Iterable[str]) -> None:
    """What is polled is read as a table."""
    for query in queries:
        for source in sources(query.root):
            if source.kind == "stream" and not source.captured and named_by(source.name, names) is not None:
                what = f"{query.name} reads {source.name} as a stream, and what is polled is a table"
                raise BraidError(what, "join it as a table, or read files: --source NAME=PATH")


def _patiently(check: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENT
    while True:
        try:
            return check()
        except Unready:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
