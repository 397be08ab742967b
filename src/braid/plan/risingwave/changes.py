"""INSERT, UPDATE, DELETE: the query over a snapshot that gives the rows that change.

In: the statement. Out: `RowsChanged`, one epoch.
Rule: what is written is decided from the snapshot before the statement; which rows are late is decided where they enter
the table.
"""

from __future__ import annotations

from braid.errors import Span, SqlError
from braid.plan.bound import Bound, Declared, RowsChanged
from braid.plan.risingwave import batch
from braid.plan.risingwave.context import Context
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
    if s.rows.query is not None and isinstance(s.rows.query.body, rw.Values):
        columns = _check_values(s.rows.query.body, columns, bool(s.columns))
    returning, _ = batch.tokens_text(s.returning, context)
    return RowsChanged("insert", target, query, columns, returning or None)


def _check_values(values: rw.Values, columns: tuple[str, ...], named: bool) -> tuple[str, ...]:
    """Rows of VALUES have a value for each column; without a list of columns the last may be missing."""
    width = len(values.rows[0])
    for row in values.rows:
        if len(row) != width:
            hint = "give each row of VALUES the same number of values"
            raise SqlError(f"{len(row)} values, but {width} in the first row", row[-1].span, hint)
    if width > len(columns) or (named and width < len(columns)):
        at = values.rows[0][min(width, len(columns)) - 1].span
        hint = f"the columns are {', '.join(columns)}"
        raise SqlError(f"{width} values for {len(columns)} columns", at, hint)
    return columns[:width]


def update(s: rw.Update, context: Context) -> Bound:
    target = context.table(s.target, s.target_span, "update")
    _changeable(target, "UPDATE", s.target_span)
    columns = tuple(_column(n, target) for n, _ in s.sets)
    where, piece = batch.tokens_text(s.where, context)
    texts = [batch.tokens_text(tokens, context) for _, tokens in s.sets]
    news = ", ".join(f'({text}) AS "_new {c}"' for (text, _), c in zip(texts, columns, strict=True))
    sql = f'SELECT "{target.name}".*, {news} FROM {_rows_of(target)}' + (f" WHERE {where}" if where else "")
    returning, _ = batch.tokens_text(s.returning, context)
    query = batch.over(target, sql, [piece, *(p for _, p in texts)], s.span, context)
    return RowsChanged("update", target, query, columns, returning or None)


def delete(s: rw.Delete, context: Context) -> Bound:
    target = context.table(s.target, s.target_span, "delete from")
    _changeable(target, "DELETE", s.target_span)
    where, piece = batch.tokens_text(s.where, context)
    sql = f'SELECT "{target.name}".* FROM {_rows_of(target)}' + (f" WHERE {where}" if where else "")
    returning, _ = batch.tokens_text(s.returning, context)
    return RowsChanged("delete", target, batch.over(target, sql, [piece], s.span, context), (), returning or None)


def _rows_of(target: Declared) -> str:
    """The rows with their hidden key."""
    return f'"_whole {target.name}" AS "{target.name}"'


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
