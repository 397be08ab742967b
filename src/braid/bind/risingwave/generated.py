"""Columns that no record has: `name TYPE AS expression`, and INCLUDE of what a message has besides its value.

In: the columns of CREATE TABLE | SOURCE as written. Out: each such column as an expression over the others.
Rule: RW-108: they are computed where the table is read, from the row alone; nothing writes them. PROCTIME() is the time
at which the topic got the record: the same whenever it is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from braid.bind.bound import Bounded, Declared, DeclaredColumn, Generated
from braid.bind.expressions import with_span
from braid.bind.names import free_name
from braid.bind.risingwave.expressions import bound, usual_name
from braid.bind.select.scope import Column
from braid.errors import SqlError
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.postgres import typing
from braid.plan.epochs import Bound, OnTime
from braid.plan.logical import PSEUDO, Node, Place, Project, Source
from braid.sql import ast
from braid.types import Scalar


def upsert_key(s: ast.CreateTable) -> ast.Include | None:
    """INCLUDE KEY that is the primary key of the table."""
    found = next((x for x in s.includes if x.pseudo == "ROWKEY"), None)
    if found is None or s.what == "source" or s.encode is None or s.encode.kind != "UPSERT":
        return None
    return found if not s.primary_key or [k.parts[0] for k in s.primary_key] == [found.name] else None


def stored(s: ast.CreateTable) -> list[ast.ColumnDef]:
    """The columns that records have."""
    made = {d.name for d in s.columns if d.generated is not None}
    if (key := next((k for k in s.primary_key if k.parts[0] in made), None)) is not None:
        hint = "make a column of the record the key"
        raise SqlError(f"a generated column cannot be the key: {key}", key.span, hint)
    return [d for d in s.columns if d.generated is None]


def with_generated(s: ast.CreateTable, declared: Declared) -> Declared:
    """With the columns that are computed, and what of its messages they read."""
    relation = declared.relation
    assert relation is not None
    named = [*(c.name for c in declared.visible), *(d.name for d in s.columns if d.generated is not None)]
    of_messages = _OfMessages({*named, *(x.name for x in s.includes)})
    of_schema = len(named) - len(s.columns)  # columns that are not written: `*`
    found = [Generated(d.name, _expression(d, declared, of_messages), d.written, place)
             for place, d in enumerate(s.columns, of_schema) if d.generated is not None]  # fmt: skip
    key = upsert_key(s)
    first = len(named) - (key is not None)
    for place, x in enumerate(s.includes, first):
        if named.count(x.name) > (x is key):
            raise SqlError(f"column {x.name} is written twice", x.span, "give one of them another name")
        if x is not key:
            named.append(x.name)
            found.append(Generated(x.name, e := of_messages.value(x.pseudo), usual_name(e.type), place))
    if "ROWKEY" in of_messages.made and relation.row_id:
        declared = replace(declared, encoding=replace(declared.encoding, keeps_keys=True))
    columns = (*declared.columns, *of_messages.made.values())
    types = (*relation.types, *((c.name, usual_name(c.type)) for c in of_messages.made.values()))
    return replace(declared, columns=columns, relation=replace(relation, types=types, generated=tuple(found)))


_PLACES: dict[str, tuple[Place, Scalar]] = {**PSEUDO, "ROWKEY": ("rowkey", Scalar.BYTES)}


class _OfMessages:
    """The hidden columns in which messages tell of themselves, as far as they are asked for."""

    def __init__(self, taken: set[str]) -> None:
        self._taken, self.made = taken, dict[str, DeclaredColumn]()

    def column(self, pseudo: str) -> Col:
        if pseudo not in self.made:
            place, t = _PLACES[pseudo]
            name = free_name(f"_{place}", self._taken, 2)
            self.made[pseudo] = DeclaredColumn(name, t, place, hidden=True)
        made = self.made[pseudo]
        return Col(made.name, made.type)

    def value(self, pseudo: str) -> Expr:
        """What INCLUDE of it is."""
        if pseudo == "ROWTIME":
            return self.time()
        return self.column(pseudo) if pseudo == "ROWKEY" else typing.cast(self.column(pseudo), Scalar.VARCHAR)

    def time(self) -> Expr:
        """The time of a message."""
        seconds = typing.operator("/", [typing.cast(self.column("ROWTIME"), Scalar.DOUBLE), Lit(1000.0, Scalar.DOUBLE)])
        return typing.function("TO_TIMESTAMP", [seconds])


def _expression(d: ast.ColumnDef, declared: Declared, of_messages: _OfMessages) -> Expr:
    assert d.generated is not None
    known: Sequence[DeclaredColumn] = declared.visible

    def column(n: ast.Name) -> Expr:
        found = next((c for c in known if c.name == n.parts[-1]), None)
        if found is None:
            hint = f"a generated column reads columns of the record: {', '.join(c.name for c in known)}"
            raise SqlError(f"there is no column {n} for {d.name}", n.span, hint)
        return Col(found.name, found.type)

    present = isinstance(d.generated, ast.Call) and d.generated.name == "PROCTIME" and not d.generated.args
    value = of_messages.time() if present else bound(d.generated, "a generated column", column)
    with with_span(d.generated.span):
        return typing.finished(typing.assigned(value, d.type, d.name))


def as_columns(node: Node, seen: tuple[Column, ...], name: str) -> tuple[Node, tuple[Column, ...]]:
    """The same rows, in which what is computed is a column."""
    made = [(Col(f"{name}.{c.name}", c.expr.type), c.expr) for c in seen if not isinstance(c.expr, Col)]
    there = [(c, c) for c in node.schema]
    as_column: dict[Expr, Expr] = {e: c for c, e in made}
    return Project(node, (*there, *made)), tuple(replace(c, expr=as_column.get(c.expr, c.expr)) for c in seen)


def on_time(source: Source, seen: Sequence[Column], watermark: Bounded | None) -> Node:
    """The rows of a source that are not late; `seen`: its columns."""
    if watermark is None:
        return source
    value = next(c.expr for c in seen if c.name == watermark.column)
    column = Col(f"{source.alias}.{watermark.column}", value.type)
    judged = next((c.col for c in source.columns if c.place == "statement"), None)
    return OnTime(source, value, Bound(source.alias, column, column), judged)
