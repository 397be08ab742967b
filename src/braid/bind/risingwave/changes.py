"""INSERT, UPDATE, DELETE: the query over a snapshot that gives the rows that change.

In: the statement. Out: `RowsChanged`, one epoch.
Rule: what is written is decided from the snapshot before the statement; which rows are late is decided where they enter
the table.
"""

from __future__ import annotations

from braid.bind.bound import Bound, Declared, RowsChanged
from braid.bind.risingwave import batch
from braid.bind.risingwave.context import Context
from braid.errors import Span, SqlError
from braid.sql import ast
from braid.sql import ast_risingwave as rw


def insert(s: rw.Insert, context: Context) -> Bound:
    target = context.table(s.target, s.target_span, "insert into")
    columns = tuple(_column(n, target) for n in s.columns) or tuple(c.name for c in target.visible)
    twice = next((n for i, n in enumerate(s.columns) if n.parts[0] in columns[:i]), None)
    if twice is not None:
        raise SqlError(f"column {twice} is named twice", twice.span, "name it once")
    missing = [k for k in _key(target) if k not in columns]
    if missing:
        hint = f"name it: INSERT INTO {target.name} ({', '.join((*missing, *columns))})"
        raise SqlError(f"the primary key {', '.join(missing)} gets no value", s.target_span, hint)
    query = batch.batch_query(s.rows, context)
    if isinstance(s.rows.body, rw.Values):
        columns = _check_values(s.rows.body, columns, bool(s.columns))
    elif len(query.columns) != len(columns):
        hint = f"the columns are {', '.join(columns)}"
        raise SqlError(f"{len(query.columns)} values for {len(columns)} columns", s.rows.span, hint)
    return RowsChanged("insert", target, query, columns, batch.returning(s.returning, target, context))


def _check_values(values: rw.Values, columns: tuple[str, ...], named: bool) -> tuple[str, ...]:
    """Rows of VALUES have a value for each column; without a list of columns the last may be missing."""
    width = len(values.rows[0])
    if width > len(columns) or (named and width < len(columns)):
        at = values.rows[0][min(width, len(columns)) - 1].span
        hint = f"the columns are {', '.join(columns)}"
        raise SqlError(f"{width} values for {len(columns)} columns", at, hint)
    return columns[:width]


def update(s: rw.Update, context: Context) -> Bound:
    target = context.table(s.target, s.target_span, "update")
    _changeable(target, "UPDATE", s.target_span)
    columns = tuple(_column(n, target) for n, _ in s.sets)
    twice = next((n for i, (n, _) in enumerate(s.sets) if n.parts[0] in columns[:i]), None)
    if twice is not None:
        raise SqlError(f"column {twice} is set twice", twice.span, "set it once")
    query = batch.changed_rows(target, [e for _, e in s.sets], s.where, s.span, context)
    return RowsChanged("update", target, query, columns, batch.returning(s.returning, target, context))


def delete(s: rw.Delete, context: Context) -> Bound:
    target = context.table(s.target, s.target_span, "delete from")
    _changeable(target, "DELETE", s.target_span)
    query = batch.changed_rows(target, (), s.where, s.span, context)
    return RowsChanged("delete", target, query, (), batch.returning(s.returning, target, context))


def _changeable(target: Declared, what: str, span: Span) -> None:
    assert target.relation is not None
    if target.relation.append_only:
        hint = f"create {target.name} without APPEND ONLY"
        raise SqlError(f"{target.name} is append-only: {what} is not possible", span, hint)


def _key(target: Declared) -> tuple[str, ...]:
    assert target.relation is not None
    return () if target.relation.row_id else target.relation.key


def _column(n: ast.Name, target: Declared) -> str:
    known = [c.name for c in target.visible]
    if n.parts[0] not in known:
        raise SqlError(f"{target.name} has no column {n}", n.span, f"columns are {', '.join(known)}")
    return n.parts[0]
