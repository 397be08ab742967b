"""Functions that give rows, in views: `unnest`, `generate_series` and `range` of columns of what is before them.

In: a call in FROM, or as an item of SELECT. Out: a relation of the elements of an array; an item's call in FROM.
Rule: RW-74: each row is there once for each element, and knows which one it is; an item is a function in FROM behind
all others, whose column `*` does not show. Structures in FROM are their fields, and whole by the name of the relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from braid.bind.expressions import children, with_span
from braid.bind.risingwave.expressions import ROW_SETS, ROWS_OF_ARRAYS, array_of_rows, bound, unnested, usual_name
from braid.bind.risingwave.placing import Relation, elements
from braid.bind.risingwave.scope import QUOTE, Context, default_name
from braid.bind.select.scope import Column, Scope, Table, of_table, renamed
from braid.errors import SqlError
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.expr.postgres import typing
from braid.sql import ast
from braid.types import Array, Scalar, Struct

_ITEM = "item of SELECT"  # no table of a user is called so


def relation(f: ast.TableFunction, before: Scope, context: Context) -> Relation:
    """The elements beside each row of what is to the left."""
    name = f.call.name.lower()
    with with_span(f.call.span):
        array = _array(f.call, before)
    assert isinstance(array.type, Array)
    alias = f.alias or name
    level = context.level(alias)
    shown = name if alias == _ITEM else alias
    element, index = Col(f"{level}.{shown}", array.type.element), Col(f"{level}~.index", Scalar.INT)
    whole = Column(shown, element, usual_name(element.type))
    given = [whole]
    if isinstance(element.type, Struct) and alias != _ITEM:  # a structure is its fields
        fields = [(f.name, typing.field(element, f.name)) for f in element.type.fields]
        given = [Column(n, e, usual_name(e.type)) for n, e in fields]
    if f.ordinality:  # of a row that LEFT JOIN keeps without an element there is none
        number = typing.coerced(typing.operator("+", [index, Lit(1, Scalar.INT)]), Scalar.BIGINT)
        some = typing.compare(">", typing.function("CARDINALITY", [array]), Lit(0, Scalar.INT))
        given.append(Column("ordinality", typing.case([(some, number)], None), usual_name(Scalar.BIGINT)))
    seen = renamed(tuple(given), f.columns, f.span)
    table = Table(alias, (), seen) if alias == _ITEM else Table(alias, seen, () if whole in given else (whole,))
    return Relation(elements(array, element, index), of_table(table, QUOTE), f.span)


def _array(call: ast.Call, before: Scope) -> Expr:
    name = call.name.lower()
    if call.distinct or any(isinstance(x, ast.Star) for x in call.args):
        raise SqlError(f"{name} takes values", hint="write it without * and DISTINCT")
    if call.name == "UNNEST":
        found = unnested(call, lambda x: bound(x, "FROM", before.expr))
        if found is None:
            raise SqlError("unnest takes one array", hint="write unnest(t.a)")
        while isinstance(found.type, Array) and isinstance(found.type.element, Array):
            found = Call("pg.array_flatten", (found,), found.type.element)
        return found
    args = [bound(x, "FROM", before.expr) for x in call.args]
    if call.name in ROWS_OF_ARRAYS:
        return array_of_rows(call.name, args)
    one = Lit(1, Scalar.INT)
    if call.name == "RANGE" or len(args) not in (2, 3):
        what = name if call.name == "RANGE" else f"{name} of {len(args)} arguments"
        raise SqlError(f"{what} in a view is not supported yet", hint="write generate_series(first, last)")
    return typing.row("pg.series", [*args, *([one] if len(args) == 2 else [])])


def in_from(s: ast.Select) -> ast.Select:
    """A SELECT of which an item is a function that gives rows, with that in FROM."""
    found = [(n, c) for n, i in enumerate(s.items) for c in _calls(i.expr)]
    if not found or s.source is None:
        return s
    n, call = found[0]
    item = s.items[n]
    if len(found) > 1 or item.expr is not call or s.group_by or s.having is not None:
        hint = "write it in FROM: FROM t, unnest(t.a) AS u(x)"
        raise SqlError(f"{call.name.lower()} is an item of its own in a view, once and without groups", call.span, hint)
    column = ast.Name((_ITEM, call.name.lower()), call.span)
    shown = replace(item, expr=column, alias=item.alias or default_name(call))
    right = ast.TableFunction(call, _ITEM, call.span)
    source = ast.Join(s.source, right, "cross", s.source.span, call.span, comma=True)
    return replace(s, items=(*s.items[:n], shown, *s.items[n + 1 :]), source=source)


def _calls(e: ast.Expr) -> Iterator[ast.Call]:
    if isinstance(e, ast.Call) and e.name in ROW_SETS:
        yield e
    elif not isinstance(e, ast.Star):
        for x in children(e):
            yield from _calls(x)
