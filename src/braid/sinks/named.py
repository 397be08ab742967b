"""The sinks that `--sink NAME=…` names, and the tables of statements: the one list.

In: what stands behind the `=`; or the table of a statement. Out: a `Sink`.
Rule: `console`, `none`, or `KIND:WHAT` with a kind of the list; anything else is a folder of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braid.plan.logical import Elsewhere
from braid.sinks.console import ConsoleSink
from braid.sinks.delta import DeltaSink
from braid.sinks.files import FileSink
from braid.sinks.iceberg import IcebergSink
from braid.sinks.interface import Sink
from braid.sinks.nothing import NoSink
from braid.sinks.postgres import PostgresSink

NAMED: Mapping[str, Callable[[str], Sink]] = {
    "console": lambda what: ConsoleSink(),
    "none": lambda what: NoSink(),
    "delta:": DeltaSink.of,
    "iceberg:": IcebergSink.of,
    "postgres:": PostgresSink.of,
}
OF_TABLES: Mapping[str, Callable[[Elsewhere], Sink]] = {
    "delta": lambda table: DeltaSink.of(table.name),
    "iceberg": lambda table: IcebergSink.of(table.name),
    "none": lambda table: NoSink(),
    "postgres": lambda table: PostgresSink.at(table.at or "", table.name),
}


def sink_of(text: str) -> Sink:
    kind, colon, what = text.partition(":")
    made = NAMED.get(kind + colon)
    return FileSink.of(text) if made is None else made(what)


def sink_at(table: Elsewhere) -> Sink:
    return OF_TABLES[table.kind](table)
