"""Names: which relation of the catalog they mean, and what this dialect says of columns.

In: the catalog, the settings, the text. Out: tables, views and indexes by name.
Rule: RW-19 to RW-22: several columns that one join merges come in reverse alphabetical order, or (merged_columns =
postgres) as written. A name that is not there is refused with the nearest that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from braid.bind.bound import Declared, Index, View
from braid.bind.env import Env
from braid.bind.in_schemas import PUBLIC, called, looked_in
from braid.bind.names import free_name
from braid.errors import Span, SqlError
from braid.guess import meant
from braid.plan.names import column_of, level, level_of
from braid.records.formats.named import RAW
from braid.sql import ast
from braid.sql.declare import quoted
from braid.sql.dialects.risingwave import RISINGWAVE

QUOTE = partial(quoted, RISINGWAVE)


@dataclass(frozen=True, slots=True)
class Context(Env):
    """`ctes`: what names of WITH mean besides the catalog's. What grows as a statement is bound: `aliases`: under which
    plan names sources are read so far; `levels`: those of sub-queries. `called`: what each of these is called in names
    that are written down. `over`: the views and indexes that are read. `notices`: what is told at the end.
    `constants`: the statements that make tables of constant rows, by the tables' names."""

    ctes: Mapping[str, tuple[ast.With, Context]] = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)
    called: dict[str, str] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    notices: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)

    def relation(self, name: ast.Name) -> Declared | View | Index:
        """A table, source, view or index of this name."""
        found = self.meant(name)
        if found is None:
            raise SqlError(f"there is no table, source or view {name}", name.span, self._hint(str(name)))
        return found

    def meant(self, name: ast.Name) -> Declared | View | Index | None:
        """The same, if there is one."""
        return next((x for n in self.names_of(name) if (x := self.found(n)) is not None), None)

    def names_of(self, name: ast.Name, doing: str = "look in") -> list[str]:
        """What the catalog may call it. A schema that does not exist means nothing."""
        *schema, bare = name.parts
        path, known = self.settings.risingwave.search_path, self.catalog.schemas
        if schema and schema[0] not in (PUBLIC, *known):
            hint = meant(schema[0], (PUBLIC, *known), f"write {PUBLIC}.{bare}, or CREATE SCHEMA {schema[0]} first")
            raise SqlError(f"there is no schema {schema[0]}", name.span, hint)
        there = schema or looked_in(path, known)
        if not there:
            hint = f"write {PUBLIC}.{bare}, or SET search_path TO {PUBLIC}"
            raise SqlError(f"search_path has no schema to {doing}: {', '.join(path)}", name.span, hint)
        return [called(s, bare) for s in there]

    def new_name(self, name: ast.Name) -> str:
        """What the catalog will call that which is made by this name."""
        return self.names_of(name, "create in")[0]

    def found(self, name: str) -> Declared | View | Index | None:
        """What the catalog calls so."""
        catalog = self.catalog
        return catalog.get(name) or catalog.views.get(name) or catalog.indexes.get(name)

    def table(self, name: ast.Name, doing: str) -> Declared:
        """A table whose rows a statement changes."""
        found = self.relation(name)
        if not isinstance(found, Declared) or found.relation is None or found.relation.what != "table":
            what = "an index" if isinstance(found, Index) else "a view" if isinstance(found, View) else _what(found)
            raise SqlError(f"{name} is {what}", name.span, f"{doing} a table: CREATE TABLE {name}_rows (…)")
        if (format := found.encoding.value_format).foreign:
            hint = "change them where they come from"
            raise SqlError(f"{name} has the rows that {format.name} writes, no others", name.span, hint)
        if found.encoding.key == RAW:
            hint = "write its records, or CREATE TABLE … AS SELECT … and change that"
            raise SqlError(f"the rows of {name} have the keys of its topic", name.span, hint)
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

    def inner(self, view: View) -> Context:
        """For the text of a view that is put into this query; its names mean what they meant when it was made."""
        own = replace(self.settings.risingwave, search_path=view.path)
        return replace(self, text=view.text, settings=replace(self.settings, risingwave=own), ctes={})

    def written(self, column: str) -> str:
        """What a plan column is called that is written without having been selected. Checkpoints and topics hold it."""
        return f"{self.called[level_of(column).removesuffix('~')]}.{column_of(column)}"

    def merged_order(self, names: list[str]) -> list[str]:
        """The columns that a join merges, as `*` shows them."""
        return names if self.settings.risingwave.postgres_order else sorted(names, reverse=True)

    def _hint(self, name: str) -> str:
        known = [*self.catalog.sources, *self.catalog.views, *self.catalog.indexes]
        elsewhere = [n for n in known if n.endswith(f".{name}")]
        if elsewhere:
            return f"write {' or '.join(elsewhere)}"
        return meant(name, known, f"there are {', '.join(known)}" if known else "CREATE TABLE it first")


def _what(d: Declared) -> str:
    return "a table" if d.relation is None else f"a {d.relation.what}"


def check_not_sink(d: Declared, span: Span) -> None:
    """What a sink writes is for others: no query reads it."""
    if d.relation is not None and d.relation.what == "sink":
        topic = "" if d.relation.into else f", or look into its topic: braid cat {d.name}"
        hint = f"make it a materialized view to read it{topic}"
        raise SqlError(f"{d.name} is a sink", span, hint)


def default_name(e: ast.Expr) -> str:
    """What PostgreSQL calls a column that has no name."""
    match e:
        case ast.Name(parts=parts):
            return parts[-1]
        case ast.Arrow(field=name):
            return name
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
