"""GROUP BY: its keys, and the aggregations that the projections ask for.

In: the grouping expressions, the scope of FROM. Out: an `Aggregate` and what fields mean above it.
Rule: a field that is neither grouped nor aggregated means its latest value by position, and is told; with
`braid.lenses.bare = reject` it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from braid.bind.expressions import bind_expr
from braid.bind.lenses.expressions import AGGREGATES, Clause, value
from braid.bind.lenses.joins import default_name
from braid.bind.lenses.scope import Scope, is_nullable
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.aggregates import result_type
from braid.expr.nodes import Col, Expr
from braid.plan.logical import Aggregate, Aggregation, Node
from braid.sql import ast

BARRED = "in a query with GROUP BY"


@dataclass(slots=True)
class Grouping:
    """`keys`: name, column and grouping expression. Aggregations are collected as projections are bound."""

    scope: Scope
    input: Node
    bare: str
    prefix: str
    keys: list[tuple[str, Col, Expr]] = field(default_factory=list)
    aggregations: list[Aggregation] = field(default_factory=list)
    latest: list[str] = field(default_factory=list)  # fields that mean their latest value

    @property
    def clause(self) -> Clause:
        """Where projections stand."""
        return Clause("SELECT", self.scope, self._aggregate, self._known, self._column)

    @property
    def node(self) -> Aggregate:
        return Aggregate(self.input, tuple((c, e) for _, c, e in self.keys), tuple(self.aggregations))

    @property
    def key(self) -> Expr:
        """The key of the result: the value that is grouped by, or a structure of several."""
        if len(self.keys) == 1:
            return self.keys[0][1]
        return typing.struct([(name, c) for name, c, _ in self.keys])

    @property
    def missing(self) -> frozenset[str]:
        """The columns of the result that may be null."""
        below = self.scope.nullable
        keys = {c.name for _, c, e in self.keys if is_nullable(e, below)}
        made = {a.output.name for a in self.aggregations
                if a.function != "COUNT" and a.arg is not None and is_nullable(a.arg, below)}  # fmt: skip
        return frozenset(keys | made)

    @property
    def notices(self) -> list[str]:
        told = ["a row for each group is kept: state grows with the groups"]
        if self.latest:
            named = ", ".join(dict.fromkeys(self.latest))
            told.append(f"neither grouped nor aggregated, so the latest value is taken: {named}")
        return told

    def lifted(self, e: Expr, name: str) -> Expr:
        """What an expression of FROM is above the groups: a key, or its latest value."""
        for _, c, key in self.keys:
            if key == e:
                return c
        if self.bare == "reject":
            hint = f"add it to GROUP BY, or write LAST({name})"
            raise SqlError(f"{name} is neither grouped nor aggregated", hint=hint)
        self.latest.append(name)
        return self._made("LATEST", e, e)

    def _column(self, n: ast.Name) -> Expr:
        return self.lifted(self.scope.resolve(n.parts), str(n))

    def _known(self, e: ast.Expr) -> Expr | None:
        """The key that `e` is, if it is a grouping expression."""
        try:
            bound = bind_expr(e, Clause("SELECT", self.scope).rules)
        except SqlError:
            return None  # the same error comes again, with its place, when `e` is bound part by part
        return next((c for _, c, key in self.keys if key == bound), None)

    def _aggregate(self, call: ast.Call) -> Expr:
        star = len(call.args) == 1 and isinstance(call.args[0], ast.Star)
        inner = Clause(f"the aggregate {call.name}", self.scope)
        args = [] if star else [bind_expr(x, inner.rules) for x in call.args]
        name = AGGREGATES[call.name]
        if name == "LATEST":
            if len(args) != 1:
                raise SqlError("LAST takes one value", hint="write LAST(field)")
            return self._made(name, args[0], args[0])
        made = result_type(name, args, star, call.distinct, self.input.mode != "append")
        return self._made(name, args[0] if args else None, typing.literal(None, made))

    def _made(self, function: str, arg: Expr | None, like: Expr) -> Expr:
        """The column of an aggregation; each stands once."""
        for a in self.aggregations:
            if (a.function, a.arg) == (function, arg):
                return a.output
        made = Aggregation(Col(f"{self.prefix}.AGG{len(self.aggregations)}", like.type), function, arg)
        self.aggregations.append(made)
        return made.output


def bind_grouping(
    group_by: tuple[ast.Expr, ...], scope: Scope, node: Node, bare: str, prefix: str, text: str
) -> Grouping:
    g = Grouping(scope.barring(BARRED), node, bare, prefix)
    clause = Clause("GROUP BY", scope)
    for e in group_by:
        bound = value(e, clause)
        if any(x == bound for _, _, x in g.keys):
            raise SqlError("GROUP BY has this expression twice", e.span, "keep one of them")
        name = default_name(e, text)
        while any(n == name for n, _, _ in g.keys):
            name += "_2"
        g.keys.append((name, Col(f"{prefix}.GROUP{len(g.keys) + 1}", bound.type), bound))
    return g
