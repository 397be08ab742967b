"""Pull queries: SELECT without EMIT, answered at once from a table as it stands, or from all records of a stream.

In: a SELECT as written, the catalog, the settings. Out: a `Pull`.
Rule: one stream or table is read, nothing is joined or grouped; a table must be a SOURCE, or the result of a query. By
what WHERE says of the key it is known which rows may be meant, so that the others need not be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from braid.bind.bound import Declared, Pull
from braid.bind.env import Env
from braid.bind.expressions import Rules, bind_predicate
from braid.bind.ksqldb.from_ import bind_chain
from braid.bind.ksqldb.items import bind_items
from braid.bind.ksqldb.query import clause
from braid.bind.moments import moments
from braid.bind.present import present
from braid.errors import Span, SqlError
from braid.expr.nodes import Call, Cast, Col, Expr, columns
from braid.plan.logical import Output, Source
from braid.sql import ast

MOST = 10_000  # keys that are looked up one by one
NO_PLACE = ("ROWPARTITION", "ROWOFFSET")  # of a table's rows: they come from many records

Wanted = Mapping[str, Expr]  # key column -> the value that it must have


def bind_pull(q: ast.Select, env: Env) -> Pull:
    _check_clauses(q)
    assert q.source is not None
    scope = bind_chain(q.source, env).scope
    (entry,) = scope.entries
    declared = entry.declared
    if declared.kind == "table":
        _check_kept(declared, q.source.span)

    def column(n: ast.Name) -> Col:
        if declared.kind == "table" and n.parts[-1] in NO_PLACE:
            hint = f"leave it out; SELECT … FROM {declared.name} EMIT CHANGES has it"
            raise SqlError(f"a row of a table has no {n.parts[-1]}", n.span, hint)
        return scope.column(n)

    items = bind_items(q.items, scope, None, bounds=True, column=column, whole=present)
    predicate = None if q.where is None else bind_predicate(moments(q.where), Rules("WHERE", column, whole=present))
    keys = None if predicate is None else wanted(predicate, entry.source)
    if keys is None and declared.kind == "table" and not env.settings.scans:
        hint = "write WHERE key = …, or SET 'ksql.query.pull.table.scan.enabled'='true'"
        raise SqlError(f"all rows of {declared.name} would be read", q.span, hint)
    made = tuple(Output(i.name, i.expr) for i in items)
    return Pull(declared, entry.source, made, predicate, keys, q.limit)


def _check_clauses(q: ast.Select) -> None:
    join = q.source if isinstance(q.source, ast.Join) else None
    written = {
        "JOIN": None if join is None else join.span,
        "GROUP BY": clause(q, "GROUP BY") if q.group_by else None,
        "PARTITION BY": clause(q, "PARTITION BY") if q.partition_by else None,
        "WINDOW": None if q.window is None else q.window.span,
        "HAVING": clause(q, "HAVING") if q.having is not None else None,
    }
    for name, span in written.items():
        if span is not None:
            hint = "add EMIT CHANGES; or CREATE TABLE … AS SELECT … and ask that table"
            raise SqlError(f"a pull query has no {name}", span, hint)


def _check_kept(declared: Declared, span: Span) -> None:
    if declared.created_by is None and not declared.read_only:
        name = declared.name
        hint = f"CREATE TABLE queryable_{name} AS SELECT * FROM {name}, and ask that; or declare it as a SOURCE TABLE"
        raise SqlError(f"{name} is only declared: no query keeps its rows", span, hint)


# ------------------------------------------------------------------- of the key


def wanted(predicate: Expr, source: Source) -> tuple[tuple[Expr, ...], ...] | None:
    """The values of the key columns of which a row must have one combination to pass; None: it may have any."""
    names = [c.name for c in source.key]
    found = _wanted(predicate, frozenset(names)) if names else None
    if found is None or any(name not in one for one in found for name in names):
        return None
    return tuple(dict.fromkeys(tuple(one[name] for name in names) for one in found))


def _wanted(e: Expr, keys: frozenset[str]) -> list[Wanted] | None:
    match e:
        case Call(function="eq", args=(a, b)):
            one = _compared(a, b, keys) or _compared(b, a, keys)
            return None if one is None else [one]
        case Call(function="and", args=(a, b)):
            left, right = _wanted(a, keys), _wanted(b, keys)
            if left is None or right is None:
                return right if left is None else left
            if len(left) * len(right) > MOST:
                return left
            return [{**x, **y} for x, y in product(left, right)]
        case Call(function="or", args=(a, b)):
            left, right = _wanted(a, keys), _wanted(b, keys)
            both = None if left is None or right is None else [*left, *right]
            return both if both is not None and len(both) <= MOST else None
    return None


def _compared(a: Expr, b: Expr, keys: frozenset[str]) -> Wanted | None:
    """Where a key column equals a constant; it may be widened for that."""
    column = a.arg if isinstance(a, Cast) else a
    if isinstance(column, Col) and column.name in keys and next(columns(b), None) is None:
        return {column.name: b}
    return None
