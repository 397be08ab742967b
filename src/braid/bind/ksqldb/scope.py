"""Sources of a query: what names mean over them, and what a column of the result is called.

In: what FROM reads. Out: plan columns by name; names of result columns.
Rule: a name before a column is an alias; where it is a source's own name or a STRUCT, the error says what to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from braid.bind.bound import Declared, DeclaredColumn
from braid.bind.names import free_name
from braid.bind.select.scope import Column, Scope, Table, of_table, of_tables
from braid.bind.select.tree import Leaf
from braid.errors import Span, SqlError
from braid.expr.nodes import Col, Expr
from braid.plan.logical import BOUNDS, PSEUDO, Source
from braid.records.formats.named import grouped
from braid.sql import ast
from braid.sql.declare import quoted
from braid.sql.dialects.ksqldb import KSQLDB
from braid.types import Struct

QUOTE = partial(quoted, KSQLDB)


@dataclass(frozen=True, slots=True)
class Entry(Leaf):
    """A source as a query sees it."""

    declared: Declared

    @staticmethod
    def of(alias: str, declared: Declared, source: Source, span: Span) -> Entry:
        pseudo = PSEUDO if declared.windowed is None else PSEUDO | BOUNDS
        columns = tuple(Column(c.name, Col(f"{source.alias}.{c.name}", c.type)) for c in declared.visible)
        others = tuple(Column(name, Col(f"{source.alias}.{name}", t)) for name, (_, t) in pseudo.items())
        return Entry(source, of_table(Table(alias, columns, others), QUOTE), span, declared)

    @property
    def source(self) -> Source:
        assert isinstance(self.node, Source)
        return self.node

    @property
    def time(self) -> Col:
        """When its rows were."""
        return Col(f"{self.source.alias}.ROWTIME", PSEUDO["ROWTIME"][1])

    def col(self, c: DeclaredColumn) -> Col:
        return Col(f"{self.source.alias}.{c.name}", c.type)

    def check_format(self, done: str, span: Span) -> None:
        """Values of some formats can be read one by one only."""
        d = self.declared
        if not d.encoding.value_format.grouped:
            hint = f"declare {d.name} with value_format = {grouped()}"
            raise SqlError(f"{d.name} has {d.encoding.value} values, which cannot be {done}", span, hint)


@dataclass(frozen=True, slots=True)
class Sources:
    """What FROM reads, left to right, and what names mean over it; `synthetic`: a join key that no column shows."""

    entries: tuple[Entry, ...]
    scope: Scope
    synthetic: tuple[str, Col] | None = None

    @staticmethod
    def of(entries: tuple[Entry, ...], synthetic: tuple[str, Col] | None = None) -> Sources:
        tables = tuple(t for e in entries for t in e.scope.tables)
        pseudo = () if synthetic is None else (Column(*synthetic),)
        return Sources(entries, of_tables(tables, QUOTE, pseudo), synthetic)

    @property
    def is_join(self) -> bool:
        return len(self.entries) > 1

    def column(self, name: ast.Name) -> Col:
        """The plan column that `a` or `s.a` means."""
        if len(name.parts) > 1:
            self.check_alias(name.parts[0], name)
        elif name.parts[0] in BOUNDS and not self.scope.knows(name):
            message = f"{name} is known only where rows are grouped by windows"
            raise SqlError(message, name.span, "add WINDOW TUMBLING (SIZE …) and GROUP BY")
        found = self.scope.expr(name)
        assert isinstance(found, Col)
        return found

    def check_alias(self, alias: str, name: ast.Name | None = None) -> None:
        """Refused where nothing is read under this name; `name`: the whole of which it is the beginning."""
        if any(e.alias == alias for e in self.entries):
            return
        rest = () if name is None else name.parts[1:]
        span = None if name is None else name.span
        for e in self.entries:
            if e.declared.name == alias:
                raise SqlError(f"{alias} is read as {e.alias} here", span, f"write {'.'.join((e.alias, *rest))}")
        if rest and any(isinstance(c.expr.type, Struct) and c.name == alias for c in self.scope.columns):
            raise SqlError(f"no source {alias}; it is a STRUCT column", span, f"write {'->'.join((alias, *rest))}")
        self.scope.table(alias, span)

    def visible(self, alias: str | None = None, bounds: bool = False) -> Iterator[tuple[Entry, DeclaredColumn]]:
        """What `*` or `alias.*` stands for, without a synthetic key; with `bounds` those of windows, too."""
        for e in self.entries:
            if alias is None or e.alias == alias:
                columns = list(e.declared.visible)
                if bounds and e.declared.windowed is not None:
                    keys = [c for c in columns if c.place == "key"]
                    made = [DeclaredColumn(name, t, place) for name, (place, t) in BOUNDS.items()]
                    columns = [*keys, *made, *(c for c in columns if c.place != "key")]
                yield from ((e, c) for c in columns)

    def owners(self, name: str) -> list[tuple[Entry, Expr]]:
        """The sources that have such a column, and what it is in each."""
        tables = zip(self.entries, self.scope.tables, strict=True)
        return [(e, c.expr) for e, t in tables for c in t.named(name)]

    def taken(self) -> set[str]:
        """The names of all columns of all sources."""
        return set(self.scope.names())


def synthetic_key_name(entries: tuple[Entry, ...]) -> str:
    """ROWKEY, or ROWKEY_1 … where a source has a column of that name."""
    return free_name("ROWKEY", {c.name for e in entries for c in e.declared.visible})


@dataclass(slots=True)
class Namer:
    """Names for result columns that have none: expressions count KSQL_COL_0, KSQL_COL_1 …; fields keep their name."""

    taken: set[str]
    _expressions: int = 0
    _fields: set[str] = field(default_factory=set)

    def expression(self) -> str:
        while f"KSQL_COL_{self._expressions}" in self.taken:
            self._expressions += 1
        self._expressions += 1
        return f"KSQL_COL_{self._expressions - 1}"

    def field(self, name: str) -> str:
        made = free_name(name, self.taken | self._fields)
        self._fields.add(made)
        return made
