"""Batch queries: from what is written to a text that DuckDB answers.

In: the tokens of a query, and what Braid reads in them. Out: `BatchQuery`.
Rule: DuckDB speaks PostgreSQL's SQL; what differs is set right here, by replacing pieces of the text: time travel,
the order of merged columns, joins as of a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from braid.errors import Span, SqlError
from braid.plan.bound import BatchQuery, Declared, Index, Read, View
from braid.plan.risingwave import batch_asof, shapes
from braid.plan.risingwave.context import Context
from braid.sql import ast_risingwave as rw
from braid.sql.tokens import Token, TokenKind


@dataclass(slots=True)
class _Text:
    """A piece of the statement's text that is rewritten. `edits`: (start, end, replacement)."""

    context: Context
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    reads: dict[str, Read] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)

    def need(self, name: str) -> None:
        """Makes a relation readable under its name."""
        found = self.context.found(name)
        match found:
            case Declared():
                if found.relation is not None:
                    self.reads[name] = Read(name, found)
            case Index():
                self.need(found.table)
                columns = ", ".join(f'"{c}"' for c in found.all_columns)
                self.views[name] = f'SELECT {columns} FROM "{found.table}"'
            case View(query=query):
                self.reads.update({r.name: r for r in query.reads})
                for inner, sql in query.views:
                    self.views[inner] = sql
                self.views[name] = _named(query.sql, found.columns)
            case None:
                pass

    def travel(self, table: rw.TableName, as_of: rw.AsOf) -> None:
        """`t FOR SYSTEM_TIME AS OF now() - '5' second`: another snapshot, under another name."""
        found = self.context.relation(table.name, table.name_span)
        if not isinstance(found, Declared):
            raise SqlError("time travel reads tables and materialized views", as_of.span, "leave the clause out")
        name = f"{table.name}@{len(self.reads)}"
        at = as_of.at if as_of.kind == "at" else None
        self.reads[name] = Read(name, found, as_of.back if as_of.kind == "now" else None, at)
        alias = f' AS "{table.alias or table.name}"'
        columns = f"({', '.join(table.columns)})" if table.columns else ""
        self.edits.append((table.span.start, table.span.end, f'"{name}"{alias}{columns}'))

    def made(self, start: int, end: int) -> str:
        text, at, pieces = self.context.text, start, []
        for first, last, new in sorted(self.edits):
            if first < at:  # inside a piece that was replaced
                continue
            pieces += [text[at:first], new]
            at = last
        return "".join([*pieces, text[at:end]])


def batch_query(rows: rw.BatchText, context: Context) -> BatchQuery:
    """A query as DuckDB reads it, with all it reads."""
    made = _Text(context)
    _names(rows.tokens, made)
    if rows.query is not None:
        _check(rows.query, made)
        for q in shapes.selects(rows.query):
            for start, end, new in shapes.star_edits(q, context):
                made.edits.append((start, end, new))
        made.edits += batch_asof.edits(rows.query, context)
    sql = made.made(rows.span.start, rows.span.end)
    return BatchQuery(sql, tuple(made.reads.values()), tuple(made.views.items()), rows.span, context.text, rows.problem)


def tokens_text(tokens: Sequence[Token], context: Context) -> tuple[str, _Text]:
    """A condition or an expression as it stands, and what it reads."""
    made = _Text(context)
    _names(tokens, made)
    return (made.made(tokens[0].start, tokens[-1].end) if tokens else ""), made


def over(target: Declared, sql: str, pieces: Sequence[_Text], span: Span, context: Context) -> BatchQuery:
    """A query that was put together over `target` and what `pieces` read."""
    reads = {target.name: Read(target.name, target)}
    views: dict[str, str] = {}
    for piece in pieces:
        reads.update(piece.reads)
        views.update(piece.views)
    return BatchQuery(sql, tuple(reads.values()), tuple(views.items()), span, context.text)


def _names(tokens: Sequence[Token], made: _Text) -> None:
    """Whatever word is the name of a relation is made readable; a name that means something else does no harm."""
    for token in tokens:
        if token.kind is TokenKind.WORD:
            made.need(token.text.lower())
        elif token.kind is TokenKind.NAME:
            made.need(token.value)


def _named(sql: str, columns: tuple[str, ...]) -> str:
    if not columns:
        return sql
    names = ", ".join(f'"{c}"' for c in columns)
    return f"SELECT * FROM ({sql}) AS q({names})"


def _check(query: rw.Query, made: _Text) -> None:
    if query.emit is not None:
        hint = "write it in a view: CREATE MATERIALIZED VIEW v AS … EMIT ON WINDOW CLOSE"
        raise SqlError("EMIT ON WINDOW CLOSE waits for a clock; a batch query has none", query.emit, hint)
    with_names = {cte.name for q in shapes.queries(query) for cte in q.ctes}
    for table in _tables(query):
        if table.name not in with_names:
            made.context.relation(table.name, table.name_span)
        if table.as_of is None:
            continue
        if table.as_of.kind == "proctime":
            hint = "write CREATE MATERIALIZED VIEW v AS SELECT …, or leave FOR SYSTEM_TIME AS OF PROCTIME() out"
            raise SqlError("a temporal join needs a view: a batch query has no processing time", table.as_of.span, hint)
        made.travel(table, table.as_of)


def _tables(query: rw.Query) -> Iterator[rw.TableName]:
    for select in shapes.selects(query):
        if select.source is not None:
            yield from (x for x in shapes.leaves(select.source) if isinstance(x, rw.TableName))
