"""What a query gives: its columns, and the rows below them.

In: the items of SELECT, the scope of FROM, what an expression means. Out: named and typed columns.
Rule: `*` stands for the columns of the scope, in its order; what has no name is called as the dialect calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from braid.bind.select.scope import Scope
from braid.errors import Span, SqlError
from braid.expr.nodes import Col, Expr
from braid.plan.logical import Kind, Node
from braid.sql import ast


@dataclass(frozen=True, slots=True)
class Item:
    """A column of a result. `written`: what the user wrote, None where a wildcard brought it in; `type`: the SQL name
    of its type, where a dialect has several for one of ours; `is_time`: it is the time of the result's rows."""

    name: str
    expr: Expr
    span: Span
    written: ast.Expr | None = None
    type: str = ""
    is_time: bool = False

    @property
    def col(self) -> Col:
        """Of a result whose items are plan columns."""
        assert isinstance(self.expr, Col)
        return self.expr

    @property
    def is_column(self) -> bool:
        """Is it a column, and not an expression that happens to have its value?"""
        return self.written is None or isinstance(self.written, ast.Name)


@dataclass(frozen=True, slots=True)
class Result:
    """A bound query before its sink: rows of `node`, the columns `items`. `rowtime`: when the rows are, where that is
    known apart; `over`: the views that were put in their places; `types`: the SQL types of plan columns, hidden ones
    too."""

    node: Node
    items: tuple[Item, ...]
    kind: Kind = "table"
    rowtime: Col | None = None
    over: frozenset[str] = frozenset()
    types: Mapping[Expr, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Item, ...]:
        """Without the rowtime: what a stream of these rows has."""
        return tuple(i for i in self.items if not i.is_time)


def listed(items: tuple[ast.SelectItem, ...], scope: Scope, value: Callable[[ast.SelectItem], Item]) -> list[Item]:
    """All columns of a result, in order. `value`: of an item that is not a wildcard."""
    found: list[Item] = []
    for item in items:
        if not isinstance(item.expr, ast.Star):
            found.append(value(item))
            continue
        if not scope.tables:
            raise SqlError("* needs FROM", item.span, "name what to select")
        without = {scope.expr(n) for n in item.expr.without}
        columns = tuple(c for c in scope.star(item.expr.qualifier, item.span) if c.expr not in without)
        found += [Item(c.name, c.expr, item.span, None, c.type) for c in columns]
    return found


def places_of(e: ast.Expr, names: Sequence[str | None]) -> list[int]:
    """The columns of a result that an item of ORDER BY or GROUP BY means, by its place or its name; none: it is an
    expression. `names`: of the columns; None where one is not meant by its name."""
    match e:
        case ast.Literal(value=int(place)) if not isinstance(place, bool):
            if not 1 <= place <= len(names):
                raise SqlError(f"there is no column number {place}", e.span, f"it is from 1 to {len(names)}")
            return [place - 1]
        case ast.Name(parts=(name,)):
            return [n for n, other in enumerate(names) if other == name]
    return []


def place_of(e: ast.Expr, names: Sequence[str | None]) -> int | None:
    """The same, where a name may mean one column only."""
    found = places_of(e, names)
    if len(found) > 1:
        raise SqlError(f"{e} is ambiguous", e.span, "name the table before it, or write its place")
    return found[0] if found else None


def unique_names(names: list[str]) -> list[str]:
    """The second and later column of a name get 0, 1, … behind it."""
    given = set(names)
    found: list[str] = []
    seen: dict[str, int] = {}
    for name in names:
        if name not in seen:
            seen[name] = 0
            found.append(name)
            continue
        while f"{name}{seen[name]}" in given:
            seen[name] += 1
        made = f"{name}{seen[name]}"
        given.add(made)
        found.append(made)
    return found
