"""Names in a query: which column they mean, and what `*` stands for.

In: the relations of FROM. Out: columns by name; scopes of joins.
Rule: RW-19 to RW-22: columns merged by USING or NATURAL come first and have one unqualified meaning; qualified names
keep theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.plan.risingwave import shapes
from braid.plan.risingwave.context import Context
from braid.sql import ast
from braid.sql import ast_risingwave as rw


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a query sees: its name, what it is in the plan, the SQL name of its type."""

    name: str
    expr: Expr
    type: str


@dataclass(frozen=True, slots=True)
class Table:
    """A relation under the name by which it is called."""

    alias: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """`columns`: what `*` gives, and what unqualified names mean."""

    tables: tuple[Table, ...]
    columns: tuple[Column, ...]

    def column(self, name: ast.Name) -> Column:
        """The one column that a name means."""
        if len(name.parts) == 2:
            return self._qualified(name)
        found = [c for c in self.columns if c.name == name.parts[0]]
        if len(found) == 1:
            return found[0]
        if found:
            ways = [f"{t.alias}.{name}" for t in self.tables if any(c.name == name.parts[0] for c in t.columns)]
            raise SqlError(f"{name} is ambiguous", name.span, f"write {' or '.join(ways)}")
        raise SqlError(f"there is no column {name}", name.span, self._hint(name.parts[0]))

    def expr(self, name: ast.Name) -> Expr:
        return self.column(name).expr

    def type(self, name: ast.Name) -> str:
        return self.column(name).type

    def table(self, alias: str, span: Span) -> Table:
        found = next((t for t in self.tables if t.alias == alias), None)
        if found is None:
            hint = f"this query reads {', '.join(t.alias for t in self.tables) or 'nothing'}"
            raise SqlError(f"there is no {alias} in FROM", span, hint)
        return found

    def _qualified(self, name: ast.Name) -> Column:
        table = self.table(name.parts[0], name.span)
        found = [c for c in table.columns if c.name == name.parts[1]]
        if not found:
            hint = f"its columns are {', '.join(c.name for c in table.columns)}"
            raise SqlError(f"{table.alias} has no column {name.parts[1]}", name.span, hint)
        return found[0]

    def _hint(self, name: str) -> str:
        names = list(dict.fromkeys(c.name for c in self.columns))
        near = get_close_matches(name, names, n=1, cutoff=0.6)
        return f"did you mean {near[0]}?" if near else f"columns are {', '.join(names) or 'none'}"


EMPTY = Scope((), ())


def of_table(table: Table) -> Scope:
    return Scope((table,), table.columns)


def both(left: Scope, right: Scope, span: Span) -> Scope:
    """The scope of two sides without merged columns."""
    twice = next((t.alias for t in right.tables if any(x.alias == t.alias for x in left.tables)), None)
    if twice is not None:
        raise SqlError(f"{twice} is read twice", span, f"give one of them another name: {twice} AS {twice}2")
    return Scope((*left.tables, *right.tables), (*left.columns, *right.columns))


@dataclass(frozen=True, slots=True)
class Merged:
    """USING or NATURAL: the scope of the join, and the equalities that make it."""

    scope: Scope
    equalities: tuple[Expr, ...]


def merged(join: rw.Join, left: Scope, right: Scope, context: Context) -> Merged:
    """The scope of a join with USING or NATURAL."""
    plain = both(left, right, join.span)
    if join.natural:
        theirs = {c.name for c in right.columns}
        names = [(n, join.how_span) for n in dict.fromkeys(c.name for c in left.columns if c.name in theirs)]
    else:
        names = [(n.parts[0], n.span) for n in join.using]
        twice = next((n for i, n in enumerate(names) if n[0] in {x for x, _ in names[:i]}), None)
        if twice is not None:
            raise SqlError(f"{twice[0]} stands twice in USING", twice[1], "name it once")
    equalities: list[Expr] = []
    found: dict[str, Column] = {}
    for name, span in names:
        a, b = _side(name, span, left, "left"), _side(name, span, right, "right")
        equalities.append(typing.call("eq", [a.expr, b.expr]))
        found[name] = _merged_column(join.how, a, b)
    order = shapes.merged_order(list(found), context.settings.risingwave.postgres_order)
    rest = [c for c in (*left.columns, *right.columns) if c.name not in found]
    return Merged(Scope(plain.tables, (*(found[n] for n in order), *rest)), tuple(equalities))


def _side(name: str, span: Span, scope: Scope, which: str) -> Column:
    found = [c for c in scope.columns if c.name == name]
    if not found:
        hint = f"the {which} side has {', '.join(dict.fromkeys(c.name for c in scope.columns))}"
        raise SqlError(f"the {which} side has no column {name}", span, f"{hint}; or write ON a.x = b.y")
    if len(found) > 1:
        raise SqlError(f"{name} is ambiguous on the {which} side", span, "write ON with the table's name")
    return found[0]


def _merged_column(how: rw.How, a: Column, b: Column) -> Column:
    match how:
        case "right":
            return b
        case "full":
            return Column(a.name, typing.call("COALESCE", [a.expr, b.expr]), a.type)
        case _:
            return a


def renamed(columns: Sequence[Column], names: tuple[str, ...], span: Span) -> tuple[Column, ...]:
    """Columns under the names of an alias list, the rest under their own."""
    if len(names) > len(columns):
        hint = f"the columns are {', '.join(c.name for c in columns)}"
        raise SqlError(f"{len(names)} names for {len(columns)} columns", span, hint)
    return tuple(Column(names[i] if i < len(names) else c.name, c.expr, c.type) for i, c in enumerate(columns))
