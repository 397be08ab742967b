"""What the binding of one statement knows, and how relations are found.

In: the catalog, the settings, the text. Out: declared tables, views and indexes by name.
Rule: a name that is not there is told with the nearest that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from braid.bind.bound import Declared, Index, View
from braid.bind.catalog import Catalog
from braid.bind.settings import Settings
from braid.errors import Span, SqlError
from braid.guess import guesses


@dataclass(slots=True)
class Context:
    """`aliases`: under which plan names sources are read so far. `notices`: what is told at the end."""

    catalog: Catalog
    settings: Settings
    text: str
    aliases: set[str] = field(default_factory=set)
    notices: list[str] = field(default_factory=list)

    def relation(self, name: str, span: Span) -> Declared | View | Index:
        """A table, source, view or index of this name."""
        found = self.found(name)
        if found is None:
            raise SqlError(f"there is no table, source or view {name}", span, self._hint(name))
        return found

    def found(self, name: str) -> Declared | View | Index | None:
        catalog = self.catalog
        return catalog.get(name) or catalog.views.get(name) or catalog.indexes.get(name)

    def table(self, name: str, span: Span, doing: str) -> Declared:
        """A table whose rows a statement changes."""
        found = self.relation(name, span)
        if not isinstance(found, Declared) or found.relation is None or found.relation.what != "table":
            what = "an index" if isinstance(found, Index) else "a view" if isinstance(found, View) else _what(found)
            raise SqlError(f"{name} is {what}", span, f"{doing} a table: CREATE TABLE {name}_rows (…)")
        return found

    def free(self, name: str, span: Span) -> None:
        """Refuses a name that is taken."""
        if self.found(name) is not None:
            raise SqlError(f"{name} exists already", span, f"write IF NOT EXISTS, or DROP {name} first")

    def alias(self, wanted: str) -> str:
        """A plan name for a source: no two are the same."""
        name, n = wanted, 1
        while name in self.aliases:
            n += 1
            name = f"{wanted}_{n}"
        self.aliases.add(name)
        return name

    def quote(self, span: Span) -> str:
        return self.text[span.start : span.end]

    def _hint(self, name: str) -> str:
        known = [*self.catalog.sources, *self.catalog.views, *self.catalog.indexes]
        near = guesses(name, known, 1)
        if near:
            return f"did you mean {near[0]}?"
        return f"there are {', '.join(known)}" if known else "CREATE TABLE it first"


def _what(d: Declared) -> str:
    return "a table" if d.relation is None else f"a {d.relation.what}"


def check_not_sink(d: Declared, span: Span) -> None:
    """What a sink writes is for others: no query reads it."""
    if d.relation is not None and d.relation.what == "sink":
        hint = f"make it a materialized view to read it, or look into its topic: braid cat {d.name}"
        raise SqlError(f"{d.name} is a sink", span, hint)
