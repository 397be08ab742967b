"""What CREATE makes: a TABLE, a SOURCE, an INDEX, a VIEW, a MATERIALIZED VIEW, a SINK.

In: the statement. Out: what is declared: a table, a view by name, or a query that runs.
Rule: a table is a topic whose key is the primary key, or else `_row_id`, made for each row; its value holds the other
columns. Rows of an append-only table are never changed, and need no primary key. A view is its text. A materialized
view is a table by its stream key: its columns, and hidden ones where the key is not among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from braid.bind.bound import (
    Bound,
    Bounded,
    Declared,
    DeclaredColumn,
    Index,
    Nothing,
    QueryBound,
    Relation,
    SourceDeclared,
    View,
)
from braid.bind.names import free_name, repeated
from braid.bind.risingwave import connections, constants, encodings, generated, sinks, temporal
from braid.bind.risingwave.batch import batch_query, with_defaults
from braid.bind.risingwave.expressions import bound
from braid.bind.risingwave.queries import bind_query
from braid.bind.risingwave.scope import Context
from braid.bind.schemas import check_sink
from braid.bind.select.items import Result
from braid.errors import SqlError
from braid.expr.nodes import Col, Expr
from braid.plan.epochs import Coalesce
from braid.plan.first_row import first_row
from braid.plan.follows import Follows
from braid.plan.logical import Kind, Node, Output, Query, Sink
from braid.plan.shown import padded, shown_key
from braid.plan.watermarks import inherited
from braid.records.encoding import Encoding
from braid.records.formats.named import BYTES, RAW
from braid.sql import ast
from braid.sql.dialects.risingwave_values import SqlType
from braid.types import TIMESTAMPS, WHOLE_NUMBERS, Scalar, has_documents, has_structures

_NO_GENERATOR = "connector 'datagen' generates nothing yet: write rows into the topic, or bind a file with --source"
_LOG = "let Debezium write the changes into a topic, or give the tables with --source NAME=postgres:…"
_UNCHECKED = "the PRIMARY KEY of a source is not checked: every row is kept; CREATE TABLE keeps the last of each key"


def _there(s: ast.CreateTable | ast.CreateView | ast.CreateIndex, context: Context) -> Nothing | None:
    """What has the name already: refused without IF NOT EXISTS."""
    if context.found(s.name) is None:
        return None
    if s.if_not_exists:
        return Nothing((f"{s.name} exists already: nothing to do",))
    raise SqlError(f"{s.name} exists already", s.name_span, f"write IF NOT EXISTS, or DROP {s.name} first")


def create_table(s: ast.CreateTable, context: Context) -> Bound:
    """CREATE TABLE | SOURCE, with columns or AS a query."""
    if (there := _there(s, context)) is not None:
        return there
    if s.is_log:
        return Nothing((f"{s.name} is not read: {_LOG}",))
    refers = connections.used(s, context)
    s = connections.connected(s, context)
    columns = generated.stored(s)
    if s.rows is not None:
        return _table_of_rows(s, s.rows, context)
    encode = s.encode if s.encode is not None and encodings.has_schema(s.encode) else None
    if encode is not None and (doc := next((d for d in columns if has_documents(d.type)), None)) is not None:
        raise SqlError(f"{encode.word} has no JSONB: {doc.name}", doc.span, "declare it as varchar, and cast that")
    if encode is not None and not columns:
        columns = encodings.columns_of(encode, encodings.topic_of(s.properties) or s.name, context)
    twice = repeated([*s.columns, *(d for d in columns if d not in s.columns)], lambda d: d.name)
    if twice is not None:
        raise SqlError(f"column {twice.name} is written twice", twice.span, "give one of them another name")
    key = generated.upsert_key(s)
    keys = tuple(_key_column(k, columns) for k in s.primary_key) if key is None else (key.name,)
    append_only = s.append_only is not None or s.what == "source"
    if s.append_only is not None and s.what == "source":
        raise SqlError("a source takes no APPEND ONLY", s.append_only, "it is append-only by nature: leave it out")
    notices: list[str] = []
    if s.what == "source" and keys:
        notices.append(_UNCHECKED)
        keys = ()
    if append_only and keys:
        hint = "leave PRIMARY KEY out, or make it a table without APPEND ONLY"
        raise SqlError("an append-only table takes no PRIMARY KEY", s.primary_key[0].span, hint)
    typed = [(d.name, SqlType(d.type, d.written)) for d in columns]
    if key is not None:
        typed.append((key.name, SqlType(Scalar.BYTES, "bytea")))
    declared = constants.declare(s.what, s.name, typed, keys, append_only, context.written_at(s.span))
    if key is not None:
        declared = replace(declared, encoding=replace(declared.encoding, key=RAW, key_in_value=False))
    declared = generated.with_generated(s, declared)
    watermark = _watermark(s, declared, append_only)
    if watermark is not None:
        assert declared.relation is not None
        declared = _with(declared, watermark)
    if encode is not None:
        declared = replace(declared, encoding=encodings.of_values(encode, s.name, declared.encoding))
        notices += encodings.notices(encode)
    if s.encode is not None and s.encode.word == BYTES:
        declared = replace(declared, encoding=encodings.of_bytes(s, s.encode, columns, declared.encoding))
    if s.encode is not None and s.encode.kind == "DEBEZIUM":
        declared = replace(declared, encoding=encodings.of_changes(s.encode, s.what, keys, declared.encoding))
    declared = with_defaults(declared, columns, context)
    if any(p.name == "connector" and p.value.value == "datagen" for p in s.properties):
        notices.append(_NO_GENERATOR)
    if s.log_of is not None:
        notices.append(f"{s.name} has the rows of its topic, not those of {s.log_of}: {_LOG}")
    declared = _of_kafka(s, declared)
    if refers:
        assert declared.relation is not None
        declared = replace(declared, relation=replace(declared.relation, connections=refers))
    return SourceDeclared(declared, notices=tuple(notices))


def _of_kafka(s: ast.CreateTable, declared: Declared) -> Declared:
    """With the topic, and the place to begin at, that the properties of connector 'kafka' name."""
    said = encodings.of_kafka(s.properties)
    if "connector" not in said or said["connector"].value.value != "kafka":
        return declared
    topic, mode, at = (said.get(n) for n in ("topic", "scan.startup.mode", "scan.startup.timestamp.millis"))
    if topic is not None:
        declared = replace(declared, topic=str(topic.value.value))
    if s.what == "table" and (at is not None or (mode is not None and mode.value.value != "earliest")):
        hint = "write CREATE SOURCE; a table is all of its topic"
        raise SqlError("a table that begins later is not supported yet", (at or mode or s).span, hint)
    if at is not None:  # goes before the mode
        text = str(at.value.value)
        if not re.fullmatch("[0-9]{1,18}", text, re.ASCII):
            raise SqlError(f"{at.name} cannot be {text}", at.span, "write milliseconds since 1970: '1700000000000'")
        return replace(declared, begin=int(text))
    if mode is not None:
        where = str(mode.value.value).lower()
        if where not in ("earliest", "latest"):
            raise SqlError(f"{mode.name} cannot be {where}", mode.span, "write 'earliest' or 'latest'")
        return replace(declared, begin="latest" if where == "latest" else "earliest")
    return declared


def _with(declared: Declared, watermark: Bounded) -> Declared:
    assert declared.relation is not None
    return replace(declared, relation=replace(declared.relation, watermark=watermark))


def _key_column(name: ast.Name, columns: list[ast.ColumnDef]) -> str:
    found = next((d for d in columns if d.name == name.parts[0]), None)
    if found is None:
        hint = f"columns are {', '.join(d.name for d in columns)}"
        raise SqlError(f"there is no column {name}", name.span, hint)
    if found.type is Scalar.JSONB or has_structures(found.type):
        what = "a JSONB" if found.type is Scalar.JSONB else found.type
        raise SqlError(f"{what} in a PRIMARY KEY is not supported", name.span, "declare it as varchar")
    return name.parts[0]


def _watermark(s: ast.CreateTable, declared: Declared, append_only: bool) -> Bounded | None:
    if not s.watermarks:
        return None
    w = s.watermarks[0]
    if len(s.watermarks) > 1:
        raise SqlError("a table has one WATERMARK", s.watermarks[1].span, "keep that of the time to clean by")
    if w.ttl:
        hint = "leave WITH TTL out, and write APPEND ONLY"
        raise SqlError("WATERMARK … WITH TTL is not supported yet", w.span, hint)
    if not append_only:
        hint = "write APPEND ONLY behind the columns, or CREATE SOURCE"
        raise SqlError("WATERMARK needs an append-only table", w.span, hint)
    columns = {name: value for name, value, _ in declared.seen}
    column = columns.get(w.column.parts[0])
    if column is None:
        raise SqlError(f"there is no column {w.column}", w.column.span, f"columns are {', '.join(columns)}")
    if column.type not in (Scalar.DATE, *TIMESTAMPS, *WHOLE_NUMBERS):
        raise SqlError(f"{w.column} is {column.type}, not a time", w.column.span, "take a timestamp column")
    expr = bound(w.expr, "WATERMARK", lambda n: _own(n, columns))
    if expr.type != column.type:
        hint = f"write WATERMARK FOR {w.column} AS {w.column} - INTERVAL '5' SECOND"
        message = f"the watermark is {expr.type}, its column {w.column} is {column.type}"
        raise SqlError(message, w.expr.span, hint)
    return Bounded(w.column.parts[0], expr)


def _own(n: ast.Name, columns: Mapping[str, Expr]) -> Expr:
    found = columns.get(n.parts[-1])
    if found is None:
        raise SqlError(f"there is no column {n}", n.span, f"columns are {', '.join(columns)}")
    return found


def _table_of_rows(s: ast.CreateTable, rows: ast.Query, context: Context) -> Bound:
    """CREATE TABLE … AS: names and types are those of the query."""
    if s.what == "source":
        raise SqlError("CREATE SOURCE takes columns, not a query", s.span, "write CREATE TABLE or a VIEW")
    if s.columns:
        hint = "the query gives names and types: rename with AS, convert with ::"
        raise SqlError("CREATE TABLE … AS takes no columns", s.columns[0].span, hint)
    return constants.filled(s.name, rows, context, context.written_at(s.span), s.append_only is not None)


def create_index(s: ast.CreateIndex, context: Context) -> Bound:
    if (there := _there(s, context)) is not None:
        return there
    table = context.relation(s.table)
    if isinstance(table, View | Index) or table.relation is None:
        raise SqlError(f"{s.table} cannot be indexed", s.table.span, "index a table or a materialized view")
    known = [c.name for c in table.visible]
    for name in (*s.columns, *s.include, *s.distributed_by):
        if name.parts[0] not in known:
            raise SqlError(f"{s.table} has no column {name}", name.span, f"columns are {', '.join(known)}")
    columns = tuple(dict.fromkeys(n.parts[0] for n in s.columns))
    include = tuple(n.parts[0] for n in s.include) if s.include else tuple(n for n in known if n not in columns)
    distributed = tuple(n.parts[0] for n in s.distributed_by)
    if distributed != columns[: len(distributed)]:
        hint = f"write DISTRIBUTED BY ({', '.join(columns[:1])})"
        raise SqlError("an index is distributed by the first of its columns", s.distributed_by[0].span, hint)
    return Index(s.name, table.name, columns, include, distributed or columns[:1])


# ------------------------------------------------------------------------ views


def create_view(s: ast.CreateView, context: Context) -> Bound:
    if (there := _there(s, context)) is not None:
        return there
    if s.what == "view":
        return _view(s, context)
    refers = connections.used(s, context)
    s = connections.connected(s, context)
    result = bind_query(s.query, context, s.columns)
    return materialized(s, result, context, refers)


def _view(s: ast.CreateView, context: Context) -> View:
    query = batch_query(s.query, context)
    columns = s.columns or tuple(n for n, _ in query.columns)
    if len(columns) != len(query.columns):
        message = f"{len(columns)} names for {len(query.columns)} columns"
        raise SqlError(message, s.query.span, "name each column, or none")
    if len(set(columns)) < len(columns):
        raise SqlError("a view has each name once", s.query.span, "give the columns names with AS")
    return View(s.name, columns, query, s.query, context.text, context.settings.risingwave.search_path)


def materialized(s: ast.CreateView, result: Result, context: Context, refers: tuple[str, ...] = ()) -> QueryBound:
    """The running query of a view, and the table it makes."""
    if (item := repeated(result.items, lambda i: i.name)) is not None:
        raise SqlError(f"the view has two columns {item.name}", item.span, "give one of them another name with AS")
    sql = context.written_at(s.span)
    what: Literal["sink", "materialized view"] = "sink" if s.what == "sink" else "materialized view"
    if not result.node.row_key:
        raise SqlError("the rows of this view have no key", s.query.span, "select from tables or views")
    wish = sinks.wish(s, result, context)
    root: Node = Coalesce(result.node, wish.keys, wish.forced)
    names: dict[Expr, str] = {item.col: item.name for item in reversed(result.items)}
    key = () if wish.added else _key(wish.keys, names, context)
    texts = s.what == "sink" and not wish.into and not encodings.keeps_documents(s.encode)
    values = tuple(
        Output(i.name, encodings.in_text(i.col) if texts else i.col)
        for i in result.items
        if i.name not in {o.name for o in key}
    )
    key_names = tuple(o.name for o in key)
    written = {o.name: o.expr.type for o in values}
    columns = [
        DeclaredColumn(i.name, written.get(i.name, i.col.type), "key" if i.name in key_names else "value")
        for i in result.items
    ]
    columns += [DeclaredColumn(o.name, o.expr.type, "key", hidden=True) for o in key if o.name not in names.values()]
    append = root.mode == "append"
    types = (*((i.name, i.type) for i in result.items),
             *((o.name, result.types[o.expr]) for o in key if o.name not in names.values()))  # fmt: skip
    passed = inherited(root, (*key, *values))
    follows = _follows(root, (*key, *values), context) if s.what != "sink" else ()
    alone = first_row(result.node)
    outputs = [] if alone is None else [*key, *values]
    row = tuple((o.name, alone[o.expr.name]) for o in outputs if alone is not None and isinstance(o.expr, Col))
    relation = Relation(what, types, append, False, None, key_names, passed, follows, wish.into, row, refers,
                        temporal.origins(root, context))  # fmt: skip
    encoding = Encoding() if s.encode is None else encodings.of_sink(s.encode, s.name, columns)
    kind: Kind = "stream" if append and (wish.added or not wish.into) else "table"
    topic = (encodings.topic_of(s.properties) if s.what == "sink" else None) or s.name
    declared = Declared(s.name, kind, topic, tuple(columns), encoding, partitions=1, created_by=s.name, sql=sql,
                        relation=relation)  # fmt: skip
    sink = Sink(s.name, topic, kind, key, values, encoding, wish.keys if wish.added else (), 1, None, None,
                tuple(i.name for i in result.items), True, into=wish.into,
                shown_key=shown_key(root, key, values, [c.name for c in columns if c.hidden]),
                padded=padded(root, (*key, *values)))  # fmt: skip
    check_sink(sink, context.catalog.registry, s.name_span)
    of_format = () if s.encode is None else encodings.notices(s.encode)
    notices = tuple(dict.fromkeys([*context.notices, *wish.notices, *of_format]))
    query = Query(s.name, "risingwave", sql, root, sink, notices, True)
    return QueryBound(query, declared, over=tuple(sorted(context.over)), constants=tuple(context.constants.values()))


def _follows(root: Node, outputs: Sequence[Output], context: Context) -> tuple[Follows, ...]:
    """What follows from what among the columns of a view."""
    names = {o.expr.name: o.name for o in outputs if isinstance(o.expr, Col)}
    rules = sinks.rules_of(root, context)
    enough = rules.least(names, [c.name for c in root.row_key if isinstance(c, Col)])

    def called(part: Iterable[str]) -> frozenset[str]:
        return frozenset(names[n] for n in part)

    found = list(rules.among([*names]))
    if enough is not None:
        found.append(Follows(frozenset(enough), frozenset(names)))
    return tuple(replace(r, by=called(r.by), gives=called(r.gives)) for r in found)


def _key(keys: Sequence[Expr], names: Mapping[Expr, str], context: Context) -> tuple[Output, ...]:
    """The columns of the key; those that are not selected have names that no other column has."""
    made: list[Output] = []
    taken = set(names.values())
    for k in keys:
        assert isinstance(k, Col)
        name = names.get(k) or free_name(context.written(k.name), taken, 2)
        taken.add(name)
        made.append(Output(name, k))
    return tuple(made)
