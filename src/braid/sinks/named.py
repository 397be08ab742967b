"""The sinks that `--sink NAME=…` names: the one list.

In: what stands behind the `=`. Out: a `Sink`.
Rule: `KIND:WHAT` or `KIND` for those of the list; anything else is a folder of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braid.errors import BraidError
from braid.sinks.console import ConsoleSink
from braid.sinks.delta import DeltaSink
from braid.sinks.files import FileSink
from braid.sinks.iceberg import IcebergSink
from braid.sinks.interface import Sink
from braid.sinks.postgres import PostgresSink


def _console(what: str) -> Sink:
    if what:
        raise BraidError(f"console:{what}: the console takes no name", "write console; or ./console:… for a folder")
    return ConsoleSink()


NAMED: Mapping[str, Callable[[str], Sink]] = {
    "console": _console,
    "delta": DeltaSink.of,
    "iceberg": IcebergSink.of,
    "postgres": PostgresSink.of,
}


def sink_of(text: str) -> Sink:
    kind, _, what = text.partition(":")
    return NAMED[kind](what) if kind in NAMED else FileSink.of(text)
