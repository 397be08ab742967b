"""FROM as a tree: relations and the joins between them, with what names mean over each.

In: a relation as written; what a dialect makes of its leaves and of a condition. Out: a tree. Nothing is placed yet.
Rule: ON sees the two sides of its join and no more. USING and NATURAL are equalities of both sides. A comma and CROSS
JOIN are inner joins without a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from braid.bind.select.scope import Scope, both, merged
from braid.errors import Span
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.plan.logical import How, Node
from braid.sql import ast


class Scoped(Protocol):
    @property
    def scope(self) -> Scope: ...


L_co = TypeVar("L_co", bound=Scoped, covariant=True)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that is rows of a plan. Dialects add what else they know of it."""

    node: Node
    scope: Scope
    span: Span

    @property
    def names(self) -> frozenset[str]:
        """Its plan columns."""
        return frozenset(c.name for c in self.node.schema)

    @property
    def alias(self) -> str:
        return self.scope.tables[0].alias


@dataclass(frozen=True, slots=True)
class Joined(Generic[L_co]):
    """Two sides, and the terms that must all be true where rows of them meet."""

    left: L_co | Joined[L_co]
    right: L_co | Joined[L_co]
    terms: tuple[Expr, ...]
    scope: Scope
    written: ast.Join

    @property
    def how(self) -> How:
        return "inner" if self.written.how == "cross" else self.written.how

    @property
    def span(self) -> Span:
        """Where its condition is, or its word where it has none."""
        return self.written.how_span if self.written.on is None else self.written.on.span


def leaves(tree: L_co | Joined[L_co]) -> tuple[L_co, ...]:
    """From left to right."""
    return (*leaves(tree.left), *leaves(tree.right)) if isinstance(tree, Joined) else (tree,)


@dataclass(frozen=True, slots=True)
class Policy(Generic[L_co]):
    """What a dialect decides. `leaf`: a relation that is written as none; what is to its left may be meant in it.
    `check`: refuses a join of two sides, before its condition is bound. `terms`: the parts of ON; none where a dialect
    binds it when the tree is known. `equal`: of a merged column; `either`: the first of two that is not null; `order`:
    that of several merged columns in `*`; `ties`: what a leaf asks of what is before it (LATERAL), also where it is
    the first one of a join to its right."""

    leaf: Callable[[ast.Relation, Scope | None], L_co | Joined[L_co]]
    check: Callable[[ast.Join, L_co | Joined[L_co], L_co | Joined[L_co]], None] = lambda *_: None
    terms: Callable[[ast.Expr, Scope], Iterable[Expr]] = lambda *_: ()
    equal: Callable[[Expr, Expr], Expr] = lambda a, b: typing.call("eq", [a, b])
    either: Callable[[Expr, Expr], Expr] = lambda a, b: typing.call("COALESCE", [a, b])
    order: Callable[[list[str]], Iterable[str]] = list
    ties: Callable[[L_co], Iterable[Expr]] = lambda *_: ()


def bind_from(relation: ast.Relation, policy: Policy[L_co], before: Scope | None = None) -> L_co | Joined[L_co]:
    """`before`: what is to the left of it, for LATERAL."""
    if not isinstance(relation, ast.Join):
        return policy.leaf(relation, before)
    left = bind_from(relation.left, policy, before)
    seen = left.scope if before is None else before.beside(left.scope)
    right = bind_from(relation.right, policy, seen)
    ties = tuple(policy.ties(leaves(right)[0]))
    policy.check(relation, left, right)
    if relation.using or relation.natural:
        made = merged(relation, left.scope, right.scope, policy.either, policy.order)
        return Joined(left, right, (*(policy.equal(a, b) for a, b in made.equal), *ties), made.scope, relation)
    scope = both(left.scope, right.scope, relation.right)
    terms = () if relation.on is None else policy.terms(relation.on, scope)
    return Joined(left, right, (*terms, *ties), scope, relation)
