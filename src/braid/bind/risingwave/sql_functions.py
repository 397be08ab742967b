"""CREATE FUNCTION … LANGUAGE sql: a call has the function's expression in its place.

In: a statement as read, the functions that were made. Out: the statement without calls of them, and which it called.
Rule: RW-75: an argument becomes the type of its parameter, the value that of RETURNS, by a cast; what is put in stands
where the call is, so that messages point there. Functions are known by name and number of arguments. One that is called
is not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

from braid.bind.bound import Bound, Dropped, FunctionMade, Nothing, QueryBound, View, function_key
from braid.bind.changing import changed
from braid.bind.names import repeated
from braid.bind.risingwave.expressions import bound
from braid.bind.risingwave.scope import Context, default_name
from braid.errors import Span, SqlError, UnknownColumn
from braid.expr import user
from braid.expr.nodes import Col, Expr
from braid.expr.postgres import typing
from braid.guess import meant
from braid.sql import ast

T = TypeVar("T")
MOST = 20_000  # nodes that calls become in a statement


def create(s: ast.CreateFunction, context: Context) -> Bound:
    name = f"{s.name}/{len(s.parameters)}"
    if name in context.catalog.written_functions:
        if s.if_not_exists:
            return Nothing((f"function {s.name.lower()} exists already: nothing to do",))
        raise SqlError(f"function {s.name.lower()} exists already", s.name_span, "DROP FUNCTION it first")
    if s.name in typing.known() or user.overloads(s.name):
        raise SqlError(f"there is a function {s.name.lower()} already", s.name_span, "take another name")
    names = [p.name for p in s.parameters]
    if (twice := repeated(names)) is not None:
        raise SqlError(f"two parameters are called {twice}", s.name_span, "give one of them another name")
    known = _by_name([Col(p.name, p.type) for p in s.parameters], s)

    def parameter(n: ast.Name) -> Expr:
        found = known.get(n.parts[-1])
        if found is None:
            hint = f"parameters are {', '.join(names)}" if names else "it has no parameters"
            raise UnknownColumn(f"unknown parameter {n}", s.name_span, hint)
        return found

    made = _at(s.body, s.name_span)
    bound(ast.Cast(made, s.returns.type, s.name_span, s.returns.written), "a function", parameter)
    return FunctionMade(name, s)


def drop(s: ast.Drop, context: Context) -> Bound:
    known, going, notices = context.catalog.written_functions, list[str](), list[str]()
    for n in s.names:
        name = n.parts[0]
        alike = [f for f in known if name in (f, f.rpartition("/")[0])]
        if not alike:
            shown = name.rpartition("/")[0] or name
            if not s.if_exists:
                others = [f.rpartition("/")[0].lower() for f in known]
                raise SqlError(f"there is no function {shown.lower()}", n.span, meant(shown.lower(), others, ""))
            notices.append(f"function {shown.lower()} does not exist: nothing to do")
        if len(alike) > 1:
            raise SqlError(f"there are several functions {name.lower()}", n.span, "write the types of its parameters")
        for f in alike:
            users = [q.sink for q in context.catalog.queries.values() if function_key(f) in q.reads]
            users += [v.name for v in context.catalog.views.values() if function_key(f) in v.over]
            users += [x.written.name.lower() for x in known.values() if function_key(f) in x.over]
            if users:
                raise SqlError(f"function {name.lower()} is called by {', '.join(users)}", n.span, "DROP these first")
            going.append(function_key(f))
    return Dropped(tuple(going), (), (), tuple(notices)) if going else Nothing(tuple(notices))


def noted(made: Bound | None, used: frozenset[str]) -> Bound | None:
    """What a statement makes, and the functions that it called."""
    keys = tuple(sorted(function_key(n) for n in used))
    match made:
        case QueryBound() | View() | FunctionMade() if keys:
            return replace(made, over=(*made.over, *keys))
    return made


@dataclass(slots=True)
class Inlining:
    """Calls of these functions are put out of a statement. `used`: which were."""

    known: Mapping[str, FunctionMade]
    used: set[str] = field(default_factory=set)
    size: int = 0

    def of(self, x: T) -> T:
        """The same with what is called in its place."""
        if not self.known:
            return x
        made: Any = changed(x, self.of)
        if isinstance(made, ast.Call) and f"{made.name}/{len(made.args)}" in self.known:
            made = self._body(made, f"{made.name}/{len(made.args)}")
        if isinstance(x, ast.SelectItem) and made.expr is not x.expr and x.alias is None:
            made = replace(made, alias=default_name(x.expr))
        return made  # type: ignore[no-any-return]

    def _body(self, call: ast.Call, name: str) -> ast.Expr:
        self.used.add(name)
        s = self.known[name].written
        pairs = zip(s.parameters, call.args, strict=True)
        given = [ast.Cast(arg, p.type, call.span, p.written) for p, arg in pairs]
        made = _with(_at(s.body, call.span), _by_name(given, s))
        self.size += _size(made, MOST)
        if self.size > MOST:
            raise SqlError(
                f"calls of {s.name.lower()} make the statement too large", call.span, "make a view of a part"
            )
        return ast.Cast(made, s.returns.type, call.span, s.returns.written)


def _by_name(values: Sequence[T], s: ast.CreateFunction) -> dict[str, T]:
    """A value for each parameter, by its name and by its place."""
    found = {f"${n}": v for n, v in enumerate(values, 1)}
    return found | {p.name: v for p, v in zip(s.parameters, values, strict=True)}


def _at(x: T, span: Span) -> T:
    """The same, where a call is."""
    made: Any = span if isinstance(x, Span) else changed(x, lambda y: _at(y, span))
    return made  # type: ignore[no-any-return]


def _with(x: T, given: Mapping[str, ast.Expr]) -> T:
    """The same with arguments in place of parameters."""
    if isinstance(x, ast.Name) and len(x.parts) == 1 and x.parts[0] in given:
        made: Any = given[x.parts[0]]
        return made  # type: ignore[no-any-return]
    return changed(x, lambda y: _with(y, given))


def _size(x: object, most: int) -> int:
    """How many nodes it has, as far as they are not more than so many."""
    count, todo = 0, [x]
    while todo and count <= most:
        at = todo.pop()
        if isinstance(at, tuple):
            todo += at
        elif is_dataclass(at) and not isinstance(at, type | Span):
            count += 1
            todo += [getattr(at, f.name) for f in fields(at)]
    return count
