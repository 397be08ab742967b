"""CREATE VIEW, CREATE MATERIALIZED VIEW, CREATE SINK.

In: the statement. Out: a view by name, or a query that runs.
Rule: a view is its text. A materialized view is a table by its stream key: its columns, and hidden ones where the key
is not among them.
"""

from __future__ import annotations

from typing import Literal

from braid.bind.bound import Bound, Declared, DeclaredColumn, Nothing, QueryBound, Relation, View, ViewDefined
from braid.bind.risingwave import batch
from braid.bind.risingwave.context import Context
from braid.bind.risingwave.queries import Result, bind_query
from braid.errors import SqlError
from braid.expr.nodes import Col, Expr
from braid.plan.epochs import Coalesce
from braid.plan.logical import Encoding, Kind, Node, Output, Query, Sink
from braid.plan.watermarks import inherited
from braid.sql import ast_risingwave as rw


def create_view(s: rw.CreateView, context: Context) -> Bound:
    if context.found(s.name) is not None:
        if s.if_not_exists:
            return Nothing((f"{s.name} exists already: nothing to do",))
        context.free(s.name, s.name_span)
    if s.what == "view":
        return _view(s, context)
    result = bind_query(s.query, context, s.columns)
    return materialized(s, result, context)


def _view(s: rw.CreateView, context: Context) -> ViewDefined:
    query = batch.batch_query(s.query, context)
    columns = s.columns or tuple(n for n, _ in query.columns)
    if len(columns) != len(query.columns):
        message = f"{len(columns)} names for {len(query.columns)} columns"
        raise SqlError(message, s.query.span, "name each column, or none")
    if len(set(columns)) < len(columns):
        raise SqlError("a view has each name once", s.query.span, "give the columns names with AS")
    return ViewDefined(View(s.name, columns, query, s.query, context.text))


def materialized(s: rw.CreateView, result: Result, context: Context) -> QueryBound:
    """The running query of a view, and the table it makes."""
    seen: set[str] = set()
    for item in result.items:
        if item.name in seen:
            hint = "give one of them another name with AS"
            raise SqlError(f"the view has two columns {item.name}", item.span, hint)
        seen.add(item.name)
    sql = context.quote(s.span)
    what: Literal["sink", "materialized view"] = "sink" if s.what == "sink" else "materialized view"
    keys = result.node.row_key
    if not keys:
        raise SqlError("the rows of this view have no key", s.query.span, "select from tables or views")
    root: Node = Coalesce(result.node, keys)
    names: dict[Expr, str] = {item.col: item.name for item in reversed(result.items)}
    key = tuple(Output(names.get(k, _hidden(k)), k) for k in keys)
    values = tuple(Output(i.name, i.col) for i in result.items if i.name not in {o.name for o in key})
    key_names = tuple(o.name for o in key)
    columns = [DeclaredColumn(i.name, i.col.type, "key" if i.name in key_names else "value") for i in result.items]
    columns += [DeclaredColumn(o.name, o.expr.type, "key", hidden=True) for o in key if o.name not in names.values()]
    append = root.mode == "append"
    types = (*((i.name, i.type) for i in result.items),
             *((o.name, result.types[o.expr]) for o in key if o.name not in names.values()))  # fmt: skip
    passed = inherited(root, (*key, *values))
    relation = Relation(what, types, append, False, None, key_names, passed)
    encoding = Encoding()
    kind: Kind = "stream" if append else "table"
    declared = Declared(s.name, kind, s.name, tuple(columns), encoding, partitions=1, created_by=s.name, sql=sql,
                        relation=relation)  # fmt: skip
    sink = Sink(s.name, s.name, kind, key, values, encoding, (), 1, None, None,
                tuple(i.name for i in result.items), True)  # fmt: skip
    notices = tuple(dict.fromkeys(context.notices))
    return QueryBound(Query(s.name, "risingwave", sql, root, sink, notices, True), declared)


def _hidden(key: Expr) -> str:
    """The name of a key column that is not selected: its plan name, which no column can have."""
    assert isinstance(key, Col)
    return key.name
