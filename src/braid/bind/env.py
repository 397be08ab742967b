"""What every statement is bound in, whatever its dialect.

In: the catalog, the settings, the script. Out: `Env`.
Rule: nothing here knows a dialect's words.
"""

from __future__ import annotations

from dataclasses import dataclass

from braid.bind.catalog import Catalog
from braid.bind.settings import Settings
from braid.errors import Span, SqlError
from braid.plan.logical import Node, Sink, sources
from braid.sql import ast

PUSH = "query"  # the name under which the rows of a push query are read


@dataclass(frozen=True, slots=True)
class Env:
    """What binding a statement needs to know. `text` is the whole script: hints quote it. `prefix` begins the plan
    names of what is bound in the place of a name."""

    catalog: Catalog
    settings: Settings
    text: str
    prefix: str = ""

    def written_at(self, span: Span) -> str:
        return self.text[span.start : span.end]

    def quote(self, e: ast.Expr) -> str:
        return " ".join(self.written_at(e.span).split())


def check_cycle(node: Node, sink: Sink, catalog: Catalog, span: Span) -> None:
    """A query that reads, directly or through others, what it writes would never end."""
    for source in sources(node):
        path = catalog.path(sink.topic, source.topic)
        if path is not None:
            way = " -> ".join((*path, sink.topic))
            raise SqlError(f"the query would read what it writes: topic {way}", span, "write to another topic")
