"""Sub-queries over groups, in HAVING and in SELECT: the groups in a sub-query of FROM, and the others over them.

In: a SELECT with groups, and what stands around it. Out: the same as a SELECT without groups, as it is written.
Rule: RW-107: `SELECT k, sum(n) … GROUP BY k HAVING sum(n) > (SELECT …)` is `SELECT k, s FROM (SELECT k, sum(n) AS s …
GROUP BY k) WHERE s > (SELECT …)`. The groups are called as their table is, so a sub-query reads their columns by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from braid.bind.changing import NOWHERE, changed, placed
from braid.bind.expressions import children
from braid.bind.risingwave import grouping
from braid.bind.risingwave.scope import default_name
from braid.bind.risingwave.values import has_groups
from braid.errors import Span, SqlError
from braid.sql import ast

_GROUPS = "groups"


def apart(s: ast.Select, query: ast.Query) -> tuple[ast.Select, ast.Query]:
    """Where a sub-query is over groups: the SELECT over these, and what stands around it."""
    having = () if s.having is None else (s.having,)
    asked = any(_asks(e) for e in (*having, *(i.expr for i in s.items)))
    sets = any(isinstance(e, ast.GroupingSets) for e in s.group_by)
    if s.source is None or not asked or not has_groups(s) or sets or any(isinstance(i.expr, ast.Star) for i in s.items):
        return s, query
    made = _Inner(s)
    items = tuple(made.item(i) for i in s.items)
    where = None if s.having is None else made.over(s.having)
    order_by = tuple(replace(o, expr=made.over(o.expr)) for o in query.order_by)
    inner = replace(s, items=tuple(made.found), distinct=None, having=None, windows=())
    below = ast.Derived(ast.Query((), inner, (), None, None, None, s.span), made.alias, s.span)
    over = replace(s, items=items, source=below, where=where, group_by=(), having=None)
    return over, replace(query, order_by=order_by)


def _asks(e: ast.Expr) -> bool:
    """Whether it has a sub-query, which is not of an aggregate."""
    if isinstance(e, ast.Subquery):
        return True
    return grouping.aggregate_of(e) is None and any(map(_asks, children(e)))


@dataclass(slots=True)
class _Inner:
    """The SELECT of the groups, as far as what is over them asks for it."""

    s: ast.Select
    alias: str = _GROUPS
    found: list[ast.SelectItem] = field(default_factory=list)
    _named: dict[Any, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        match self.s.source:
            case ast.Table(name=name, alias=alias):
                self.alias = alias or name.parts[-1]
            case ast.Derived(alias=str(alias)):
                self.alias = alias
        for e in self.s.group_by:
            place = e.value if isinstance(e, ast.Literal) else None
            of = self.s.items[place - 1].expr if isinstance(place, int) and 0 < place <= len(self.s.items) else e
            known = next((i for i in self.s.items if isinstance(of, ast.Name) and (i.alias,) == of.parts), None)
            self._key(of, of if known is None else known.expr)

    def _key(self, written: ast.Expr, of: ast.Expr) -> None:
        """A grouping expression is found by itself, and by the alias by which it is written."""
        if _asks(of):
            hint = "compute it below: FROM (SELECT *, (SELECT …) AS x FROM t) t GROUP BY x"
            raise SqlError("a sub-query in GROUP BY of a view is not supported yet", of.span, hint)
        bare = written.parts[-1] if isinstance(written, ast.Name) else f"key {len(self.found) + 1}"
        name = bare if bare not in {i.alias for i in self.found} else f"key {len(self.found) + 1}"
        self.found.append(ast.SelectItem(of, name, of.span))
        for e in (written, of):
            if not isinstance(e, ast.Literal):
                self._named.setdefault(placed(e, NOWHERE), name)

    def item(self, i: ast.SelectItem) -> ast.SelectItem:
        return replace(i, expr=self.over(i.expr), alias=i.alias or default_name(i.expr))

    def over(self, x: Any) -> Any:
        """A part of an expression, over the columns of the groups."""
        if isinstance(x, ast.Subquery):
            made = x if x.arg is None else replace(x, arg=self.over(x.arg))
            return replace(made, query=self._within(x.query, {*_relations(x.query)}))
        name = self._named.get(placed(x, NOWHERE))
        if name is None and grouping.aggregate_of(x) is not None:
            name = self._named[placed(x, NOWHERE)] = f"aggregate {len(self.found) + 1}"
            self.found.append(ast.SelectItem(x, name, x.span))
        return changed(x, self.over) if name is None else ast.Name((self.alias, name), x.span)

    def _within(self, x: Any, own: set[str]) -> Any:
        """A part of a sub-query, in which grouping columns of others than its own relations are those of the groups."""
        if isinstance(x, ast.Name) and len(x.parts) > 1:
            name = None if x.parts[0] in own else self._named.get(placed(x, NOWHERE))
            return x if name is None else ast.Name((self.alias, name), x.span)
        return changed(x, lambda part: self._within(part, own))


def _relations(x: Any) -> Iterator[str]:
    """What relations are called in a query, at any depth."""
    match x:
        case ast.Table(name=name, alias=alias):
            yield alias or name.parts[-1]
        case ast.Derived(alias=str(alias)) | ast.TableFunction(alias=str(alias)):
            yield alias
    if isinstance(x, tuple) and not isinstance(x, Span):
        for part in x:
            yield from _relations(part)
    elif is_dataclass(x) and not isinstance(x, type):
        for f in fields(x):
            yield from _relations(getattr(x, f.name))
