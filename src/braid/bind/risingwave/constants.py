"""Rows that are computed once, by the engine of batch queries: CREATE TABLE … AS, and constant relations in views.

In: a query over what is there; VALUES, SELECT without FROM, a function that gives rows of constants. Out: a table and
its rows.
Rule: RW-96: a view reads a constant relation as a table that holds its rows. It is made before the view, and called by
what is written: where the same is written twice there is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from braid.bind.bound import Declared, DeclaredColumn, Relation, RowsChanged
from braid.bind.expressions import with_span
from braid.bind.names import repeated
from braid.bind.risingwave.batch import batch_query
from braid.bind.risingwave.expressions import ROW_SETS, bound, usual_name
from braid.bind.risingwave.scope import Context
from braid.errors import Span, SqlError
from braid.expr.nodes import Expr
from braid.records.encoding import Encoding
from braid.sql import ast
from braid.sql.dialects.base import Words
from braid.sql.dialects.risingwave import RISINGWAVE
from braid.sql.dialects.risingwave_values import SqlType
from braid.sql.parser import parse, plain
from braid.types import Scalar

ROW_ID = "_row_id"
ONE_ROW = "VALUES (1)"


def declare(
    what: str, name: str, columns: list[tuple[str, SqlType]], keys: tuple[str, ...], append_only: bool, sql: str
) -> Declared:
    """A table or source of these columns."""
    made = [DeclaredColumn(n, t.type, "key" if n in keys else "value") for n, t in columns]
    if not keys:
        made.append(DeclaredColumn(ROW_ID, Scalar.BIGINT, "key", hidden=True))
    relation = Relation(
        "table" if what == "table" else "source",
        (*((n, t.name) for n, t in columns), *(() if keys else ((ROW_ID, "bigint"),))),
        append_only,
        not keys,
        key=keys or (ROW_ID,),
    )
    encoding = Encoding(key="JSON" if keys else "ROW_ID", key_in_value=bool(keys), iso=True)
    return Declared(name, "stream" if append_only else "table", name, tuple(made), encoding, sql=sql,
                    relation=relation)  # fmt: skip


def filled(name: str, rows: ast.Query, context: Context, sql: str, append_only: bool = False) -> RowsChanged:
    """A table of the rows that a query gives now."""
    query = batch_query(rows, context)
    columns: list[tuple[str, SqlType]] = []
    for (column, _), t in zip(query.columns, query.types, strict=True):
        with with_span(rows.span):
            columns.append((column, SqlType(t, usual_name(t))))
    if (twice := repeated(n for n, _ in columns)) is not None:
        raise SqlError(f"two columns are called {twice}", rows.span, "give one of them another name with AS")
    declared = declare("table", name, columns, (), append_only, sql)
    return RowsChanged("insert", declared, query, tuple(n for n, _ in columns), creates=True)


def column_names(count: int) -> list[str]:
    return [f"column{n}" for n in range(1, count + 1)]


def one_row(span: Span) -> ast.Values:
    """`VALUES (1)` where nobody wrote it: of no length."""
    nowhere = span._replace(end=span.start)
    return ast.Values(((ast.Literal(1, Scalar.INT, nowhere),),), nowhere)


def table_of(body: ast.Values | ast.Select | ast.TableFunction, count: int, context: Context) -> Declared:
    """The table that a view reads in the place of a constant relation of so many columns."""
    _check(body)
    span = body.call.span if isinstance(body, ast.TableFunction) else body.span
    written, names = context.written_at(span) or ONE_ROW, ", ".join(column_names(count))
    written += " WITH ORDINALITY" if isinstance(body, ast.TableFunction) and body.ordinality else ""
    rows = f"SELECT * FROM {written if isinstance(body, ast.TableFunction) else f'({written})'} AS given({names})"
    known: Words = RISINGWAVE
    name = f"values_{hashlib.sha256((plain(rows, known) or rows).encode()).hexdigest()[:12]}"
    sql = f"CREATE TABLE {name} AS {rows}"
    (statement,) = parse(sql, known).statements
    assert isinstance(statement, ast.CreateTable) and statement.rows is not None
    try:
        made = filled(name, statement.rows, replace(context, text=sql, ctes={}), sql)
    except SqlError as e:
        raise SqlError(e.message, span, e.hint) from None
    if context.found(name) is None and name not in context.constants:
        context.constants[name] = sql
        context.notices.append(f"the rows of {' '.join(written.split())[:60]} are the table {name}")
    return made.target


def _check(body: ast.Values | ast.Select | ast.TableFunction) -> None:
    """Refuses what is no constant."""
    match body:
        case ast.Values(rows=rows):
            exprs: Sequence[ast.Expr] = [e for row in rows for e in row]
            clause = "VALUES"
        case ast.Select(items=items, where=where):
            exprs = [i.expr for i in items] + ([] if where is None else [where])
            clause = "SELECT without FROM"
        case ast.TableFunction(call=call):
            exprs, clause = call.args, "FROM"
    for e in exprs:
        given = e.args if isinstance(e, ast.Call) and e.name in ROW_SETS else (e,)
        for x in given:
            bound(x, clause, lambda name: _no_column(name, clause))


def _no_column(name: ast.Name, clause: str) -> Expr:
    raise SqlError(f"there is no column {name} for {clause}", name.span, "write constants, or name its table in FROM")
