"""EXISTS and IN (SELECT …) in WHERE, as they are written.

In: conditions as written, the scopes of both queries. Out: which parts of WHERE they
are; what a sub-query asks of the query around it.
Rule: a name is first one of the sub-query's own FROM, then of the query around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from braid.bind.expressions import conjuncts, names
from braid.bind.select.scope import Scope
from braid.sql import ast


@dataclass(frozen=True, slots=True)
class Asked:
    """A sub-query that rows must have a partner in, or (`negated`) none."""

    of: ast.Subquery
    negated: bool

    @property
    def shown(self) -> str:
        return f"{'NOT ' * self.negated}{self.of.kind.upper()}"


def parted(where: ast.Expr | None) -> tuple[list[ast.Expr], list[Asked]]:
    """The parts of WHERE: conditions over a row, and sub-queries that it asks."""
    plain: list[ast.Expr] = []
    asked: list[Asked] = []
    for part in () if where is None else conjuncts(where):
        match part:
            case ast.Subquery(kind="exists" | "in", negated=negated):
                asked.append(Asked(part, negated))
            case ast.Unary(op="NOT", arg=ast.Subquery(kind="exists" | "in", negated=negated) as of):
                asked.append(Asked(of, not negated))
            case _:
                plain.append(part)
    return plain, asked


def shared_with(
    where: ast.Expr | None, own: Scope, outer: Scope
) -> tuple[list[ast.Expr], list[ast.Expr], Callable[[ast.Name], Scope]]:
    """The parts of a sub-query's WHERE that stay in it, those that read the query around it, and whose a name is."""

    def is_outer(name: ast.Name) -> bool:
        return outer.knows(name) and not own.knows(name)

    stays, asks = list[ast.Expr](), list[ast.Expr]()
    for e in () if where is None else conjuncts(where):
        (asks if any(map(is_outer, names(e))) else stays).append(e)
    return stays, asks, lambda name: outer if is_outer(name) else own
