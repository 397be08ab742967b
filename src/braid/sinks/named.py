"""The sinks that `--sink NAME=…` names, and statements in the same words: the one list.

In: what stands behind the `=`. Out: a `Sink`.
Rule: `console`, or `KIND:WHAT` with a kind of the list; anything else is a folder of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braid.sinks.console import ConsoleSink
from braid.sinks.delta import DeltaSink
from braid.sinks.files import FileSink
from braid.sinks.iceberg import IcebergSink
from braid.sinks.interface import Sink
from braid.sinks.postgres import PostgresSink

NAMED: Mapping[str, Callable[[str], Sink]] = {
    "console": lambda what: ConsoleSink(),
    "delta:": DeltaSink.of,
    "iceberg:": IcebergSink.of,
    "postgres:": PostgresSink.of,
}


def sink_of(text: str) -> Sink:
    kind, colon, what = text.partition(":")
    made = NAMED.get(kind + colon)
    return FileSink.of(text) if made is None else made(what)
