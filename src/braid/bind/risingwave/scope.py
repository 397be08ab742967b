"""Names: which relation of the catalog and which column of a query they mean, and what `*` stands for.

In: the catalog, the settings, the text; the relations of FROM. Out: tables, views, indexes and columns by name; scopes
of joins.
Rule: RW-19 to RW-22: columns merged by USING or NATURAL come first, those of the outermost join before the others, and
have one unqualified meaning; qualified names keep theirs. Several of one join stand in reverse alphabetical order, or
(merged_columns = postgres) as written. A name that is not there is told with the nearest that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from braid.bind.bound import Declared, Index, View
from braid.bind.catalog import Catalog
from braid.bind.names import free_name, repeated
from braid.bind.settings import SCHEMA, RisingwaveSettings, Settings
from braid.errors import Span, SqlError, UnknownColumn
from braid.guess import meant
from braid.plan.names import column_of, level, level_of
from braid.sql import ast


@dataclass(slots=True)
class Context:
    """`aliases`: under which plan names sources are read so far; `levels`: those of sub-queries. `called`: what each of
    these is called in names that are written down. `over`: the views and indexes that are read.
    `notices`: what is told at the end."""

    catalog: Catalog
    settings: Settings
    text: str
    aliases: set[str] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)
    called: dict[str, str] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    notices: list[str] = field(default_factory=list)

    def relation(self, name: ast.Name) -> Declared | View | Index:
        """A table, source, view or index of this name."""
        self.check_schema(name, "look in")
        found = self.found(name.parts[-1])
        if found is None:
            raise SqlError(f"there is no table, source or view {name}", name.span, self._hint(name.parts[-1]))
        return found

    def check_schema(self, name: ast.Name, doing: str) -> None:
        """There is one schema. A name with another one before it, or without any where search_path does not have it,
        means nothing."""
        *schema, bare = name.parts
        path = self.settings.risingwave.search_path
        if schema and schema != [SCHEMA]:
            hint = f"the only one is {SCHEMA}: write {SCHEMA}.{bare}"
            raise SqlError(f"there is no schema {schema[0]}", name.span, hint)
        if not schema and SCHEMA not in path:
            hint = f"write {SCHEMA}.{bare}, or SET search_path TO {SCHEMA}"
            raise SqlError(f"search_path has no schema to {doing}: {', '.join(path)}", name.span, hint)

    def found(self, name: str) -> Declared | View | Index | None:
        catalog = self.catalog
        return catalog.get(name) or catalog.views.get(name) or catalog.indexes.get(name)

    def table(self, name: ast.Name, doing: str) -> Declared:
        """A table whose rows a statement changes."""
        found = self.relation(name)
        if not isinstance(found, Declared) or found.relation is None or found.relation.what != "table":
            what = "an index" if isinstance(found, Index) else "a view" if isinstance(found, View) else _what(found)
            raise SqlError(f"{name} is {what}", name.span, f"{doing} a table: CREATE TABLE {name}_rows (…)")
        return found

    def alias(self, wanted: str) -> str:
        """A plan name for a source: no two are the same."""
        name = free_name(level(wanted), self.aliases, 2)
        self.aliases.add(name)
        self.called[name] = wanted + name.removeprefix(level(wanted))
        return name

    def level(self, alias: str) -> str:
        """A plan name for what a sub-query gives, which is none of a source."""
        name = free_name(level(alias), self.levels, 2)
        self.levels.add(name)
        self.called[f"{name}/"] = alias
        return f"{name}/"

    def inner(self, text: str) -> Context:
        """For the text of a view that is put into this query; its names mean what they meant when it was made."""
        own = replace(self.settings.risingwave, search_path=RisingwaveSettings().search_path)
        return replace(self, text=text, settings=replace(self.settings, risingwave=own))

    def written(self, column: str) -> str:
        """What a plan column is called that is written without having been selected. Checkpoints and topics hold it."""
        return f"{self.called[level_of(column).removesuffix('~')]}.{column_of(column)}"

    def quote(self, span: Span) -> str:
        return self.text[span.start : span.end]

    def _hint(self, name: str) -> str:
        known = [*self.catalog.sources, *self.catalog.views, *self.catalog.indexes]
        return meant(name, known, f"there are {', '.join(known)}" if known else "CREATE TABLE it first")


def _what(d: Declared) -> str:
    return "a table" if d.relation is None else f"a {d.relation.what}"


def check_not_sink(d: Declared, span: Span) -> None:
    """What a sink writes is for others: no query reads it."""
    if d.relation is not None and d.relation.what == "sink":
        topic = "" if d.relation.into else f", or look into its topic: braid cat {d.name}"
        hint = f"make it a materialized view to read it{topic}"
        raise SqlError(f"{d.name} is a sink", span, hint)


# ---------------------------------------------------------------------- columns


E = TypeVar("E")  # what a column is: an expression of a plan, or a piece of DuckDB's SQL


@dataclass(frozen=True, slots=True)
class Column(Generic[E]):
    """A column that a query sees: its name, what it is, the SQL name of its type ('' where only DuckDB knows it)."""

    name: str
    expr: E
    type: str


@dataclass(frozen=True, slots=True)
class Table(Generic[E]):
    """A relation under the name by which it is called."""

    alias: str
    columns: tuple[Column[E], ...]


@dataclass(frozen=True, slots=True)
class Scope(Generic[E]):
    """`columns`: what `*` gives, and what unqualified names mean."""

    tables: tuple[Table[E], ...]
    columns: tuple[Column[E], ...]

    def knows(self, name: ast.Name) -> bool:
        """Whether the name is one of this scope, or more than one."""
        if len(name.parts) == 2:
            return any(t.alias == name.parts[0] for t in self.tables)
        return any(c.name == name.parts[0] for c in self.columns)

    def column(self, name: ast.Name) -> Column[E]:
        """The one column that a name means."""
        if len(name.parts) == 2:
            return self._qualified(name)
        found = [c for c in self.columns if c.name == name.parts[0]]
        if len(found) == 1:
            return found[0]
        if found:
            ways = [f"{t.alias}.{name}" for t in self.tables if any(c.name == name.parts[0] for c in t.columns)]
            raise SqlError(f"{name} is ambiguous", name.span, f"write {' or '.join(ways)}")
        raise UnknownColumn(f"there is no column {name}", name.span, self._hint(name.parts[0]))

    def expr(self, name: ast.Name) -> E:
        return self.column(name).expr

    def type(self, name: ast.Name) -> str:
        return self.column(name).type

    def table(self, alias: str, span: Span) -> Table[E]:
        found = next((t for t in self.tables if t.alias == alias), None)
        if found is None:
            hint = f"this query reads {', '.join(t.alias for t in self.tables) or 'nothing'}"
            raise SqlError(f"there is no {alias} in FROM", span, hint)
        return found

    def star(self, qualifier: str | None, span: Span) -> tuple[Column[E], ...]:
        """What `*` or `alias.*` stands for."""
        return self.columns if qualifier is None else self.table(qualifier, span).columns

    def _qualified(self, name: ast.Name) -> Column[E]:
        table = self.table(name.parts[0], name.span)
        found = [c for c in table.columns if c.name == name.parts[1]]
        if not found:
            wanted = name.parts[1]
            near = [f"{t.alias}.{wanted}" for t in self.tables if wanted in {c.name for c in t.columns}]
            listed = f"its columns are {', '.join(c.name for c in table.columns)}"
            hint = f"did you mean {near[0]}?" if near else meant(wanted, [c.name for c in table.columns], listed)
            raise SqlError(f"{table.alias} has no column {name.parts[1]}", name.span, hint)
        if len(found) > 1:
            raise SqlError(f"{name} is ambiguous", name.span, "give the columns names of their own")
        return found[0]

    def _hint(self, name: str) -> str:
        names = list(dict.fromkeys(c.name for c in self.columns))
        listed = f"columns are {', '.join(names)}" if names else f"no column is known here; a text is '{name}'"
        return meant(name, names, listed)


def of_table(table: Table[E]) -> Scope[E]:
    return Scope((table,), table.columns)


def both(left: Scope[E], right: Scope[E], span: Span) -> Scope[E]:
    """The scope of two sides without merged columns."""
    twice = next((t.alias for t in right.tables if any(x.alias == t.alias for x in left.tables)), None)
    if twice is not None:
        raise SqlError(f"{twice} is read twice", span, f"give one of them another name: {twice} AS {twice}2")
    return Scope((*left.tables, *right.tables), (*left.columns, *right.columns))


@dataclass(frozen=True, slots=True)
class Merged(Generic[E]):
    """USING or NATURAL: the scope of the join, and the columns that it takes to be equal."""

    scope: Scope[E]
    equal: tuple[tuple[E, E], ...]


def merged(join: ast.Join, left: Scope[E], right: Scope[E], context: Context, either: Callable[[E, E], E]) -> Merged[E]:
    """The scope of a join with USING or NATURAL. `either`: the first of two that is not null."""
    plain = both(left, right, join.span)
    if join.natural:
        theirs = {c.name for c in right.columns}
        names = [(n, join.how_span) for n in dict.fromkeys(c.name for c in left.columns if c.name in theirs)]
    else:
        names = [(str(n), n.span) for n in join.using]
        if (twice := repeated(join.using)) is not None:
            raise SqlError(f"{twice} is named twice in USING", twice.span, "name it once")
    equal: list[tuple[E, E]] = []
    found: dict[str, Column[E]] = {}
    for name, span in names:
        a, b = _side(name, span, left, "left"), _side(name, span, right, "right")
        equal.append((a.expr, b.expr))
        found[name] = _merged_column(join.how, a, b, either)
    in_order = context.settings.risingwave.postgres_order
    order = list(found) if in_order else sorted(found, reverse=True)
    rest = [c for c in (*left.columns, *right.columns) if c.name not in found]
    return Merged(Scope(plain.tables, (*(found[n] for n in order), *rest)), tuple(equal))


def _side(name: str, span: Span, scope: Scope[E], which: str) -> Column[E]:
    found = [c for c in scope.columns if c.name == name]
    if not found:
        hint = f"the {which} side has {', '.join(dict.fromkeys(c.name for c in scope.columns))}"
        raise SqlError(f"the {which} side has no column {name}", span, f"{hint}; or write ON a.x = b.y")
    if len(found) > 1:
        raise SqlError(f"{name} is ambiguous on the {which} side", span, "write ON with the table's name")
    return found[0]


def _merged_column(how: ast.How, a: Column[E], b: Column[E], either: Callable[[E, E], E]) -> Column[E]:
    match how:
        case "right":
            return b
        case "full":
            return Column(a.name, either(a.expr, b.expr), a.type)
        case _:
            return a


def renamed(columns: Sequence[Column[E]], names: tuple[str, ...], span: Span) -> tuple[Column[E], ...]:
    """Columns under the names of an alias list, the rest under their own."""
    if len(names) > len(columns):
        hint = f"the columns are {', '.join(c.name for c in columns)}"
        raise SqlError(f"{len(names)} names for {len(columns)} columns", span, hint)
    return tuple(Column(names[i] if i < len(names) else c.name, c.expr, c.type) for i, c in enumerate(columns))


def default_name(e: ast.Expr) -> str:
    """What PostgreSQL calls a column that has no name."""
    match e:
        case ast.Name(parts=parts):
            return parts[-1]
        case ast.Call(name=name) | ast.LongCall(call=ast.Call(name=name)):
            return name.lower()
        case ast.Cast(arg=arg):
            return default_name(arg)
        case ast.Case():
            return "case"
        case ast.ArrayLiteral() | ast.Subquery(kind="array"):
            return "array"
        case ast.Subquery(kind="exists"):
            return "exists"
        case ast.Subquery(kind="scalar", query=ast.Query(body=ast.Select(items=(only,)))):
            return only.alias or default_name(only.expr)
    return "?column?"
