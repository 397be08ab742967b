"""UNION, INTERSECT and EXCEPT in views.

In: the sides as bound. Out: their rows as those of one query.
Rule: columns meet by their place, or (CORRESPONDING) by their names; they are called as the first side calls them, and
have the type that all sides become. Which side a row is from is a part of its key: two sides may have equal keys.
Without ALL the different rows are a group each; for INTERSECT and EXCEPT it counts the rows of both sides.
(docs/rules/risingwave.md, "Several queries as one")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from braid.bind.expressions import with_span
from braid.bind.names import free_name, repeated
from braid.bind.risingwave import grouping
from braid.bind.risingwave.expressions import usual_name
from braid.bind.risingwave.scope import QUOTE, Context
from braid.bind.select.items import Item, Result
from braid.bind.select.scope import Column, Table, of_table
from braid.errors import Span, SqlError
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.postgres import typing
from braid.plan.epochs import Union
from braid.plan.logical import Project
from braid.plan.names import own
from braid.sql import ast
from braid.types import Scalar, Type

Bind = Callable[[ast.Body, str], Result]  # a side, and the level of its columns


def bind_sides(body: ast.SetOperation, context: Context, alias: str, bind: Bind) -> Result:
    """What a set operation gives."""
    if body.op != "UNION" and body.all:
        hint = f"write {body.op} without ALL; a batch query may have it"
        raise SqlError(f"{body.op} ALL in a view is not supported yet", body.span, hint)
    sides = list(_sides(body, body))
    found = [bind(x, context.level(f"side{n}")) for n, x in enumerate(sides)]
    spans = [x.span for x in sides]
    if body.corresponding is not None:
        found = _corresponding(found, body)
    for side, span in zip(found[1:], spans[1:], strict=True):
        if len(side.items) != len(found[0].items):
            message = f"{len(found[0].items)} columns before {body.op}, {len(side.items)} behind it"
            raise SqlError(message, span, "select the same number of columns on both sides")
    if body.op == "UNION" and body.all:
        return _together(found, spans, body.op, alias)
    made = _together(found, spans, body.op, context.level("sides"))
    assert isinstance(made.node, Union)
    which = Column(_SIDE, made.node.key[0], "integer")
    return different(made, alias, body.span, which, having=_having(body.op, body.span))


def _sides(body: ast.Body, of: ast.SetOperation) -> Iterator[ast.Body]:
    """Of a chain of UNION all sides: one without ALL leaves nothing of those below it."""
    same = isinstance(body, ast.SetOperation) and body.op == "UNION" == of.op and (body.all or not of.all)
    if isinstance(body, ast.SetOperation) and (body is of or (same and body.corresponding is of.corresponding is None)):
        yield from (*_sides(body.left, of), *_sides(body.right, of))
    else:
        yield body


def _corresponding(sides: Sequence[Result], body: ast.SetOperation) -> list[Result]:
    """The sides with the columns that CORRESPONDING names, or those of one name."""
    listed = [[i.name for i in side.items] for side in sides]
    twice = next((name for names in listed if (name := repeated(names)) is not None), None)
    if twice is not None:
        raise SqlError(f"two columns are called {twice}", body.span, "give one of them another name with AS")
    wanted = corresponding(body, listed[0], listed[1])
    return [replace(s, items=tuple(next(i for i in s.items if i.name == n) for n in wanted)) for s in sides]


def corresponding(body: ast.SetOperation, left: Sequence[str], right: Sequence[str]) -> list[str]:
    """The names by which columns of both sides meet."""
    assert body.corresponding is not None
    for name in body.corresponding:
        for which, names in (("left", left), ("right", right)):
            if name.parts[0] not in names:
                hint = f"the {which} side has {', '.join(names)}"
                raise SqlError(f"the {which} side has no column {name}", name.span, hint)
    wanted = [n.parts[0] for n in body.corresponding] or [n for n in left if n in right]
    if not wanted:
        hint = f"the left side has {', '.join(left)}; the right side has {', '.join(right)}"
        raise SqlError("both sides have no name in common", body.span, hint)
    return wanted


def _together(sides: Sequence[Result], spans: Sequence[Span], op: str, alias: str) -> Result:
    """The rows of all sides. Columns that tell rows apart in each of them do so in the result; the others of a side's
    key stand beside the columns, of one type in one place."""
    wide = [_wide(column, spans, op) for column in zip(*(s.items for s in sides), strict=True)]
    taken: set[str] = set()
    items: list[Item] = []
    for i, t in zip(sides[0].items, wide, strict=True):
        unique = free_name(f"{alias}.{i.name}", taken, 2)
        taken.add(unique)
        items.append(Item(i.name, Col(unique, t), i.span, i.written, i.type if t == i.expr.type else usual_name(t)))
    keyed = [n for n, t in enumerate(wide) if all(_is_key(s, n, t) for s in sides)]
    hidden = own(alias)
    part = Col(f"{hidden}.part", Scalar.INT)
    types: dict[Expr, str] = {**{i.col: i.type for i in items}, part: "integer"}
    places: list[Col] = []
    filled: list[dict[Col, Expr]] = []
    for s in sides:
        rest = [k for k in s.node.row_key if k not in {s.items[n].expr for n in keyed}]
        mine: dict[Col, Expr] = {}
        for k in dict.fromkeys(rest):
            place = next((p for p in places if p.type == k.type and p not in mine), None)
            if place is None:
                place = Col(f"{hidden}.key_{len(places)}", k.type)
                places.append(place)
                types[place] = s.types.get(k) or usual_name(k.type)
            mine[place] = k
        filled.append(mine)
    parts = []
    for n, (s, mine) in enumerate(zip(sides, filled, strict=True)):
        shown = [(i.col, typing.coerced(x.expr, i.col.type)) for i, x in zip(items, s.items, strict=True)]
        keys: list[tuple[Col, Expr]] = [(p, mine.get(p, Lit(None, p.type))) for p in places]
        parts.append(Project(s.node, (*shown, (part, Lit(n, Scalar.INT)), *keys)))
    return Result(Union(tuple(parts), (part, *(items[n].col for n in keyed), *places)), tuple(items), types=types)


def _wide(column: Sequence[Item], spans: Sequence[Span], op: str) -> Type:
    """The type that the columns in one place become."""
    found = column[0].expr
    for item, span in zip(column[1:], spans[1:], strict=True):
        with with_span(span):
            found = Col("", typing.alike(f"the columns of {op}", [found, item.expr])[0])
    return found.type


def _is_key(side: Result, n: int, wide: Type) -> bool:
    """Whether a column, as it is, is a part of a side's key."""
    e = side.items[n].expr
    return e in side.node.row_key and e.type == wide and next(i.expr for i in side.items if i.expr == e) is e


_SIDE = "of side"  # no column of a user is called so where only these are


def different(made: Result, alias: str, span: Span, *more: Column, having: ast.Expr | None = None) -> Result:
    """The different rows, each a group. `having`: which of them, by `more` columns of the rows."""
    names = [f"column{n}" for n in range(len(made.items))]
    columns = [Column(name, i.col, i.type) for name, i in zip(names, made.items, strict=True)]
    scope = of_table(Table("", (*columns, *more)), QUOTE)
    of = [ast.Name((name,), span) for name in names]
    items = tuple(ast.SelectItem(e, i.name, span) for e, i in zip(of, made.items, strict=True))
    grouped = grouping.bind_grouped(
        ast.Select(items, None, span, group_by=tuple(of), having=having), made.node, scope, alias
    )
    node, made_items = grouped.made()
    return Result(node, tuple(made_items), types=grouped.types)


def _having(op: str, span: Span) -> ast.Expr | None:
    """By how many rows of a group are from the second side."""
    if op == "UNION":
        return None
    theirs = ast.Call("SUM", (ast.Name((_SIDE,), span),), span)
    zero = ast.Literal(0, Scalar.INT, span)
    if op == "EXCEPT":
        return ast.Binary("=", theirs, zero, span)
    every = ast.Call("COUNT", (ast.Star((), span),), span)
    return ast.Binary("AND", ast.Binary(">", theirs, zero, span), ast.Binary("<", theirs, every, span), span)
