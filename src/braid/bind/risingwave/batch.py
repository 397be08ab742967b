"""Batch queries, from what is written to a text that DuckDB answers; and INSERT, UPDATE, DELETE, which one decides.

In: a query or a statement as read. Out: `BatchQuery`; `RowsChanged`, one epoch.
Rule: every name is bound here, and the text is made anew from what is bound: DuckDB sees names that `duck_text.token`
makes, functions and types of our lists, and constants that it quotes; nothing else. What a statement writes is decided
from the snapshot before it; which rows are late is decided where they enter the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from braid.batch_sql.duck_text import name, token
from braid.bind.bound import BatchQuery, Bound, Declared, Index, Read, Returning, RowsChanged, View
from braid.bind.names import repeated
from braid.bind.risingwave.scope import Column, Context, Scope, Table, check_not_sink, of_table
from braid.errors import Span, SqlError
from braid.sql import ast


@dataclass(slots=True)
class Made:
    """What one statement reads so far; `count` makes its names differ."""

    context: Context
    reads: dict[str, Read] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def token(self, kind: str, of: str) -> str:
        """A name, quoted, that nothing else in the statement has."""
        self.count += 1
        return name(token(f"{kind}{self.count}", of))

    def read(self, declared: Declared, as_of: ast.AsOf | None = None) -> str:
        """The name of a table, as it stands or stood."""
        back = as_of.back if as_of is not None and as_of.kind == "now" else None
        at = as_of.at if as_of is not None and as_of.kind == "at" else None
        when = "" if as_of is None else f"@{at or back}"
        made = token("r", declared.name + when)
        self.reads[made] = Read(made, declared, back, at)
        return name(made)

    def relation(self, table: ast.Table) -> tuple[str, tuple[tuple[str, str], ...]]:
        """A relation of the catalog: its name, and its columns with theirs."""
        found = self.context.relation(table.name)
        if table.as_of is not None:
            _check_as_of(table.as_of, found)
        match found:
            case Declared():
                check_not_sink(found, table.name.span)
                return self.read(found, table.as_of), tuple((c.name, column_token(c.name)) for c in found.visible)
            case Index():
                base = self.context.catalog.sources[found.table]
                made = token("v", found.name)
                columns = tuple((n, column_token(n)) for n in found.all_columns)
                self.views[made] = f"SELECT {', '.join(t for _, t in columns)} FROM {self.read(base)}"
                return name(made), columns
            case View():
                self.reads.update({r.name: r for r in found.query.reads})
                self.views.update(found.query.views)
                made = token("v", found.name)
                self.views[made] = found.query.sql
                names = [t for _, t in found.query.columns]
                return name(made), tuple(zip(found.columns, names, strict=True))
        assert_never(found)

    def query(self, sql: str, columns: tuple[tuple[str, str], ...], span: Span) -> BatchQuery:
        reads, views = tuple(self.reads.values()), tuple(self.views.items())
        return BatchQuery(sql, columns, reads, views, span, self.context.text)


@dataclass(frozen=True, slots=True)
class Env:
    """What names may mean besides those of FROM: WITH queries as (name, columns), and the scopes around."""

    made: Made
    ctes: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=dict)
    outer: tuple[Scope[str], ...] = ()

    def under(self, scope: Scope[str]) -> Env:
        """For a query within this scope."""
        return replace(self, outer=(scope, *self.outer))


@dataclass(frozen=True, slots=True)
class Rows:
    """A query as text, and its columns as (name, name in the text)."""

    sql: str
    columns: tuple[tuple[str, str], ...]


def column_token(column: str) -> str:
    """A column of a table."""
    return name(token("c", column))


def batch_query(query: ast.Query, context: Context) -> BatchQuery:
    """A query as DuckDB reads it, with all it reads."""
    from braid.bind.risingwave.batch_queries import rows_of

    made = Made(context)
    rows = rows_of(query, Env(made))
    return made.query(rows.sql, rows.columns, query.span)


# ------------------------------------------------------------ over the rows of one table


def changed_rows(
    target: Declared, sets: Sequence[ast.Expr], where: ast.Expr | None, span: Span, context: Context
) -> BatchQuery:
    """The rows of a table that meet a condition, hidden columns too, and behind them new values."""
    from braid.bind.risingwave.batch_values import Values

    made = Made(context)
    alias = made.token("t", target.name)
    values = Values(Env(made), _scope(target, alias), "WHERE")
    items = [f"{alias}.{column_token(c.name)}" for c in target.columns]
    news = [made.token("n", "new") for _ in sets]
    items += [f"{values.sql(e)} AS {n}" for e, n in zip(sets, news, strict=True)]
    sql = f"SELECT {', '.join(items)} FROM {made.read(target)} AS {alias}"
    if where is not None:
        sql += f" WHERE {values.sql(where)}"
    columns = [(c.name, column_token(c.name)) for c in target.columns] + [("new", n) for n in news]
    return made.query(sql, tuple(columns), span)


def returning(items: tuple[ast.SelectItem, ...], target: Declared, context: Context) -> Returning | None:
    """RETURNING, over the rows that were written."""
    from braid.bind.risingwave.batch_queries import outputs

    if not items:
        return None
    made = Made(context)
    alias = made.token("t", target.name)
    written = Read(token("w", target.name), target)
    made_items = outputs(items, _scope(target, alias), Env(made))
    shown = ", ".join(f"{sql} AS {t}" for _, t, sql in made_items)
    if made.reads:
        hint = "leave the query out, and read the table afterwards"
        raise SqlError("RETURNING reads the rows that were written, no others", items[0].span, hint)
    return Returning(
        f"SELECT {shown} FROM {name(written.name)} AS {alias}", tuple(n for n, _, _ in made_items), written
    )


def _scope(target: Declared, alias: str) -> Scope[str]:
    columns = tuple(Column(c.name, f"{alias}.{column_token(c.name)}", "") for c in target.visible)
    return of_table(Table(target.name, columns))


def _check_as_of(as_of: ast.AsOf, found: Declared | View | Index) -> None:
    if as_of.kind == "proctime":
        hint = "write CREATE MATERIALIZED VIEW v AS SELECT …, or leave FOR SYSTEM_TIME AS OF PROCTIME() out"
        raise SqlError("a temporal join needs a view: a batch query has no processing time", as_of.span, hint)
    if not isinstance(found, Declared):
        raise SqlError("time travel reads tables and materialized views", as_of.span, "leave the clause out")


# ------------------------------------------------------- INSERT, UPDATE, DELETE


def insert(s: ast.Insert, context: Context) -> Bound:
    target = context.table(s.target, "insert into")
    columns = tuple(_column(n, target) for n in s.columns) or tuple(c.name for c in target.visible)
    if (twice := repeated(s.columns)) is not None:
        raise SqlError(f"column {twice} is named twice", twice.span, "name it once")
    missing = [k for k in _key(target) if k not in columns]
    if missing:
        hint = f"name it: INSERT INTO {target.name} ({', '.join((*missing, *columns))})"
        raise SqlError(f"the primary key {', '.join(missing)} gets no value", s.target.span, hint)
    query = batch_query(s.rows, context)
    if isinstance(s.rows.body, ast.Values):
        columns = _check_values(s.rows.body, columns, bool(s.columns))
    elif len(query.columns) != len(columns):
        hint = f"the columns are {', '.join(columns)}"
        raise SqlError(f"{len(query.columns)} values for {len(columns)} columns", s.rows.span, hint)
    return RowsChanged("insert", target, query, columns, returning(s.returning, target, context))


def _check_values(values: ast.Values, columns: tuple[str, ...], named: bool) -> tuple[str, ...]:
    """Rows of VALUES have a value for each column; without a list of columns the last may be missing."""
    width = len(values.rows[0])
    if width > len(columns) or (named and width < len(columns)):
        at = values.rows[0][min(width, len(columns)) - 1].span
        hint = f"the columns are {', '.join(columns)}"
        raise SqlError(f"{width} values for {len(columns)} columns", at, hint)
    return columns[:width]


def update(s: ast.Update, context: Context) -> Bound:
    target = context.table(s.target, "update")
    _changeable(target, "UPDATE", s.target.span)
    columns = tuple(_column(n, target) for n, _ in s.sets)
    if (twice := repeated(n for n, _ in s.sets)) is not None:
        raise SqlError(f"column {twice} is set twice", twice.span, "set it once")
    query = changed_rows(target, [e for _, e in s.sets], s.where, s.span, context)
    return RowsChanged("update", target, query, columns, returning(s.returning, target, context))


def delete(s: ast.Delete, context: Context) -> Bound:
    target = context.table(s.target, "delete from")
    _changeable(target, "DELETE", s.target.span)
    query = changed_rows(target, (), s.where, s.span, context)
    return RowsChanged("delete", target, query, (), returning(s.returning, target, context))


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
