"""RisingWave: PostgreSQL's SQL over tables that change, with views that are kept up to date.

In: the shared grammar, and that of queries, calls and values in `risingwave_*`. Out: the dialect `RISINGWAVE`.
Rule: unquoted names fold to lower case; few words are reserved. What streams and what a snapshot answers have one
grammar.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal as OneOf

from braid.errors import Span
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.declare import Declaring, plainly
from braid.sql.dialects.base import Words
from braid.sql.dialects.risingwave_calls import LEVELS, PREDICATES, PRIMARIES, QUERY_STARTS, SYMBOLS, call
from braid.sql.dialects.risingwave_functions import create_function, function_name, no_replace
from braid.sql.dialects.risingwave_queries import condition, item, join, query, relation_name, source
from braid.sql.dialects.risingwave_settings import format_of, row_format, with_properties
from braid.sql.dialects.risingwave_values import sql_type, suffix
from braid.sql.expressions import column_name, comma_list, expression, in_parentheses
from braid.sql.statements import create, describing, insert_into, one_of
from braid.sql.tokens import TokenKind
from braid.types import Scalar

RESERVED = frozenset(
    {
        *("ALL", "AND", "AS", "CASE", "CREATE", "CROSS", "DISTINCT", "ELSE", "END", "EXCEPT", "FALSE", "FOR", "FROM"),
        *("FULL", "GROUP", "HAVING", "IN", "INNER", "INTERSECT", "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE"),
        *("LIMIT", "NATURAL", "NOT", "NULL", "OFFSET", "ON", "OR", "ORDER", "OUTER", "RETURNING", "RIGHT", "SELECT"),
        *("THEN", "TRUE", "UNION", "USING", "WHEN", "WHERE", "WITH"),
    }
)


def batch(c: Cursor) -> ast.Statement:
    """A query on its own."""
    start = c.index
    rows = _rows(c)
    return ast.Batch(rows, c.span(start))


def _rows(c: Cursor, *stops: str) -> ast.Query:
    """A query up to the end of the statement, or to one of the words `stops`."""
    if c.word() not in QUERY_STARTS and not c.at_symbol("("):
        raise c.unexpected("SELECT, WITH or VALUES", *QUERY_STARTS)
    found = query(c)
    if not c.at_end() and c.word() not in stops and not c.starts_statement():
        raise c.unexpected("the end of the query", "FROM", "WHERE", "JOIN", "ON", "ORDER", "GROUP", "LIMIT", *stops)
    return found


# --------------------------------------------------------------------- CREATE


@dataclass(frozen=True, slots=True)
class _New:
    """The name of what is made, and the schema before it."""

    name: str
    schema: str | None
    span: Span


def _new_name(c: Cursor, what: str) -> _New:
    found = relation_name(c, f"the name of the {what}")
    *schema, name = found.parts
    return _New(name, schema[0] if schema else None, found.span)


def create_table(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE TABLE | SOURCE."""
    no_replace(c, start, or_replace)
    what: OneOf["table", "source"] = "table" if c.advance().value == "TABLE" else "source"
    if_not_exists = c.accept("IF", "NOT", "EXISTS")
    made = _new_name(c, what)
    columns: list[ast.ColumnDef] = []
    keys: tuple[ast.Name, ...] = ()
    watermarks: list[ast.Watermark] = []
    if c.at_symbol("("):
        opened = c.advance()
        while not c.at_symbol(")"):  # a comma may stand before it
            if c.accept_symbol("*"):
                pass  # all that the schema has
            elif c.accept("PRIMARY", "KEY"):
                keys = in_parentheses(c, column_name)
            elif c.at("WATERMARK", "FOR"):
                watermarks.append(_watermark(c))
            else:
                columns.append(_column(c))
            if not c.accept_symbol(","):
                break
        c.close(opened, ")", "',' or ')'")
    append_only: Span | None = None
    properties: tuple[ast.Property, ...] = ()
    rows: ast.Query | None = None
    encode: ast.Encode | None = None
    includes: list[ast.Include] = []
    log_of: ast.Name | None = None
    while not c.at_end():
        first = c.index
        if c.accept("APPEND"):
            c.expect("ONLY")
            append_only = c.span(first)
        elif c.at("ON", "CONFLICT"):
            _on_conflict(c)
        elif c.at("WITH"):
            properties = with_properties(c)
        elif c.at("FORMAT"):
            encode = format_of(c)
        elif c.at("ROW"):
            encode = row_format(c)
        elif c.at("ENGINE"):
            hint = "leave it out, and CREATE SINK … WITH (connector = 'iceberg', …) of the table or view"
            raise c.error("ENGINE is not supported yet", c.now, hint)
        elif c.at("FROM"):
            log_of = _log_of(c)
        elif c.accept("INCLUDE"):
            includes.append(_include(c, first))
        elif c.accept("AS"):
            rows = _rows(c)
        else:
            raise c.unexpected("APPEND ONLY, INCLUDE, WITH, FORMAT or AS", "APPEND", "INCLUDE", "WITH", "FORMAT", "AS")
    inline = tuple(ast.Name((d.name,), d.span) for d in columns if d.role == "PRIMARY KEY")
    if inline and keys:
        raise c.error("PRIMARY KEY is written twice", keys[0].span, "keep one of them")
    found = ast.CreateTable(
        what, made.name, tuple(columns), keys or inline, tuple(watermarks), append_only, properties, if_not_exists,
        rows, c.span(start), made.span, encode, made.schema, tuple(includes), log_of,
    )  # fmt: skip
    if rows is None and not columns and (encode is None or encode.word == "JSON") and not found.is_log:
        how = "write the columns that it has in its database" if log_of is not None else None
        raise c.unexpected("'(' and columns", hint=how)
    return found


def _on_conflict(c: Cursor) -> None:
    """ON CONFLICT OVERWRITE | DO UPDATE FULL: what is so without it."""
    start = c.index
    c.expect("ON", "CONFLICT")
    if not c.accept("OVERWRITE") and not c.accept("DO", "UPDATE", "FULL"):
        hint = "leave it out: a row replaces that of its primary key, as with ON CONFLICT OVERWRITE"
        raise c.error_from(start, "ON CONFLICT with another action is not supported yet", hint)


def _log_of(c: Cursor) -> ast.Name:
    """FROM source TABLE 'schema.table'."""
    c.expect("FROM")
    name = relation_name(c, "the name of a source")
    c.expect("TABLE")
    c.string("the name of a table in single quotes")
    return name


_INCLUDED = {
    "KEY": "ROWKEY",
    "TIMESTAMP": "ROWTIME",
    "PARTITION": "ROWPARTITION",
    "OFFSET": "ROWOFFSET",
}  # of a message


def _include(c: Cursor, first: int) -> ast.Include:
    """KEY [AS name] behind INCLUDE."""
    if (pseudo := _INCLUDED.get(c.word())) is None:
        raise c.error(f"INCLUDE {c.now.text} is not supported yet", c.now, f"there are {', '.join(_INCLUDED)}")
    usual = f"_rw_kafka_{c.advance().value.lower()}"
    name = c.name("the name of a column") if c.accept("AS") else usual
    return ast.Include(pseudo, name, c.span(first))


def _column(c: Cursor) -> ast.ColumnDef:
    start = c.index
    name = c.name("the name of a column")
    found = sql_type(c)
    role: OneOf["VALUE", "PRIMARY KEY"] = "VALUE"
    generated: ast.Expr | None = None
    default: ast.Expr | None = None
    while True:
        if c.at("PRIMARY"):
            c.expect("PRIMARY", "KEY")
            role = "PRIMARY KEY"
        elif c.accept("NOT", "NULL") or c.accept("NULL"):
            pass
        elif c.accept("AS"):
            generated = expression(c)
        elif c.accept("DEFAULT"):
            default = expression(c)
        else:
            break
    if not (c.at_symbol(",") or c.at_symbol(")")):
        raise c.unexpected("',' or ')'", "PRIMARY KEY", "NOT NULL", "AS")
    return ast.ColumnDef(
        name, found.type, role, c.span(start), written=found.name, generated=generated, default=default
    )


def _watermark(c: Cursor) -> ast.Watermark:
    start = c.index
    c.expect("WATERMARK", "FOR")
    column = column_name(c)
    c.expect("AS")
    expr = expression(c)
    ttl = c.accept("WITH", "TTL")
    return ast.Watermark(column, expr, ttl, c.span(start))


def create_view(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE [MATERIALIZED] VIEW … AS query, CREATE SINK … AS query | FROM name."""
    no_replace(c, start, or_replace)
    what: OneOf["view", "materialized view", "sink"] = "view"
    if c.accept("MATERIALIZED"):
        what = "materialized view"
        if not c.accept("VIEW"):
            raise c.unexpected("VIEW", "VIEW", hint="write CREATE MATERIALIZED VIEW name AS SELECT …")
    elif c.accept("SINK"):
        what = "sink"
    else:
        c.expect("VIEW")
    if_not_exists = c.accept("IF", "NOT", "EXISTS")
    made = _new_name(c, what)
    columns = in_parentheses(c, lambda c: c.name("the name of a column")) if c.at_symbol("(") else ()
    properties = with_properties(c) if c.at("WITH") else ()
    for p in properties:
        _check_property(c, p, what)
    if what == "sink":
        rows = _of_sink(c)
        properties = with_properties(c) if c.at("WITH") else properties
        encode = format_of(c) if c.at("FORMAT") else None
        span = c.span(start)
        return ast.CreateView(
            what, made.name, columns, rows, properties, if_not_exists, span, made.span, encode, made.schema
        )
    first, emit = c.index, what == "materialized view" and c.accept("EMIT")
    if emit:
        c.expect("ON", "WINDOW", "CLOSE")
    emitted = c.span(first) if emit else None
    if not c.accept("AS"):
        raise c.unexpected("AS and a query", "AS")
    rows = _rows(c)
    if emitted is not None:
        if rows.emit is not None:
            raise c.error("EMIT ON WINDOW CLOSE is written twice", rows.emit, "keep one of them")
        rows = replace(rows, emit=emitted)
    return ast.CreateView(
        what, made.name, columns, rows, properties, if_not_exists, c.span(start), made.span, schema=made.schema
    )


def _of_sink(c: Cursor) -> ast.Query:
    """AS query | FROM name, which is all of it."""
    if c.accept("AS"):
        return _rows(c, "WITH", "FORMAT")
    if c.at("INTO"):
        hint = "CREATE MATERIALIZED VIEW, and read that"
        raise c.error("CREATE SINK … INTO a table is not supported yet", c.now, hint)
    if not c.at("FROM"):
        raise c.unexpected("AS and a query, or FROM", "AS", "FROM")
    start = c.index
    c.advance()
    at = c.index
    name = relation_name(c, "the name of a table or view")
    span = c.span(start)
    body = ast.Select((ast.SelectItem(ast.Star((), span), None, span),), ast.Table(name, None, c.span(at)), span)
    return ast.Query((), body, (), None, None, None, span)


# What a materialized view may say of how it is run; none of it changes a result.
_OF_VIEWS = ("backfill_rate_limit", "source_rate_limit", "resource_group")


def _check_property(c: Cursor, p: ast.Property, what: str) -> None:
    if what == "view":
        raise c.error("a view takes no WITH", p.span, "leave it out, or make it a MATERIALIZED VIEW")
    if what == "materialized view" and p.name.lower() not in _OF_VIEWS:
        raise c.error(f"a materialized view has no property {p.name}", p.span, f"there are {', '.join(_OF_VIEWS)}")


def create_index(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE INDEX i ON t (columns) [INCLUDE (columns)] [DISTRIBUTED BY (columns)]."""
    no_replace(c, start, or_replace)
    c.expect("INDEX")
    if_not_exists = c.accept("IF", "NOT", "EXISTS")
    made = _new_name(c, "index")
    c.expect("ON")
    table = relation_name(c, "the name of a table or view")
    columns = in_parentheses(c, _index_column)
    include: tuple[ast.Name, ...] = ()
    distributed: tuple[ast.Name, ...] = ()
    if c.accept("INCLUDE"):
        include = in_parentheses(c, column_name)
    if c.at("DISTRIBUTED"):
        c.expect("DISTRIBUTED", "BY")
        distributed = in_parentheses(c, column_name)
    return ast.CreateIndex(
        made.name, table, columns, include, distributed, if_not_exists, c.span(start), made.span, made.schema
    )


def _index_column(c: Cursor) -> ast.Name:
    found = column_name(c)
    if c.at_symbol("("):
        raise c.error(
            "an index on an expression is not supported yet", c.now, "put the expression into a view, index that"
        )
    if not c.accept("ASC"):
        c.accept("DESC")
    return found


def create_connection(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE CONNECTION [IF NOT EXISTS] name WITH (…)."""
    no_replace(c, start, or_replace)
    c.expect("CONNECTION")
    if_not_exists = c.accept("IF", "NOT", "EXISTS")
    name = relation_name(c, "the name of the connection")
    if not c.at("WITH"):
        raise c.unexpected("WITH and settings", "WITH")
    return ast.CreateConnection(name, with_properties(c), if_not_exists, c.span(start), name.span)


def create_schema(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE SCHEMA [IF NOT EXISTS] name [AUTHORIZATION role]."""
    no_replace(c, start, or_replace)
    c.expect("SCHEMA")
    if_not_exists = c.accept("IF", "NOT", "EXISTS")
    name = c.name("the name of the schema")
    if c.accept("AUTHORIZATION"):
        c.name("a role")
    return ast.CreateSchema(name, if_not_exists, c.span(start))


# ----------------------------------------------------------------------- rows


def insert(c: Cursor) -> ast.Statement:
    start = c.index
    insert_into(c)
    target = relation_name(c, "the name of a table")
    columns: tuple[ast.Name, ...] = ()
    if c.at_symbol("(") and c.ahead(1).value not in QUERY_STARTS:
        columns = in_parentheses(c, column_name)
    rows = _rows(c, "RETURNING")
    returning = _returning(c)
    return ast.Insert(target, columns, rows, returning, c.span(start))


def update(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("UPDATE")
    target = relation_name(c, "the name of a table")
    c.expect("SET")
    sets = tuple(one for some in comma_list(c, _assignments) for one in some)
    where = expression(c) if c.accept("WHERE") else None
    return ast.Update(target, sets, where, _returning(c), c.span(start))


def _assignments(c: Cursor) -> tuple[tuple[ast.Name, ast.Expr], ...]:
    """`column = expr`, `(column, …) = (expr, …)`."""
    if not c.at_symbol("("):
        name = column_name(c)
        c.expect_symbol("=")
        return ((name, expression(c)),)
    start, names = c.index, in_parentheses(c, column_name)
    c.expect_symbol("=")
    c.accept("ROW")
    hint = f"write SET {names[0]} = …, {names[-1]} = …"
    if c.at_symbol("(") and c.ahead(1).value in QUERY_STARTS:
        raise c.error_from(start, "a sub-query that sets several columns is not supported yet", hint)
    if not c.at_symbol("("):
        raise c.error_from(start, "columns in parentheses are set to as many values", hint)
    values = in_parentheses(c, expression)
    if len(values) != len(names):
        raise c.error_from(start, f"{len(values)} values are set for {len(names)} columns", "write as many of both")
    return tuple(zip(names, values, strict=True))


def delete(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("DELETE", "FROM")
    target = relation_name(c, "the name of a table")
    where = expression(c) if c.accept("WHERE") else None
    return ast.Delete(target, where, _returning(c), c.span(start))


def _returning(c: Cursor) -> tuple[ast.SelectItem, ...]:
    return comma_list(c, item) if c.accept("RETURNING") else ()


# ------------------------------------------------------------------- commands


def flush(c: Cursor) -> ast.Statement:
    start = c.index
    c.advance()
    return ast.Flush(c.span(start))


DROPPED = ("TABLE", "SOURCE", "VIEW", "INDEX", "SINK", "CONNECTION", "SCHEMA", "FUNCTION")


def drop(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("DROP")
    if c.at("MATERIALIZED"):
        c.expect("MATERIALIZED", "VIEW")
        kind = "MATERIALIZED VIEW"
    elif c.word() in DROPPED:
        kind = c.advance().value
    else:
        raise c.unexpected(one_of((*DROPPED, "MATERIALIZED VIEW")), *DROPPED, "MATERIALIZED VIEW")
    if_exists = c.accept("IF", "EXISTS")
    name = function_name if kind == "FUNCTION" else lambda c: relation_name(c, f"the name of a {kind.lower()}")
    names = comma_list(c, name)
    cascade = c.accept("CASCADE")
    if not cascade:
        c.accept("RESTRICT")
    return ast.Drop(kind, names, if_exists, c.span(start), cascade=cascade)


# What ALTER … SET, RESET may say of how something is run; none of it changes a result.
_OF_RUNNING = (
    *("PARALLELISM", "BACKFILL_PARALLELISM", "BACKFILL_RATE_LIMIT", "SOURCE_RATE_LIMIT", "SINK_RATE_LIMIT"),
    *("DML_RATE_LIMIT", "STREAMING_RATE_LIMIT", "RESOURCE_GROUP", "CONFIG"),
)


def alter(c: Cursor) -> ast.Statement:
    """ALTER … SET name = value, of how a view or the system is run; ALTER … OWNER TO."""
    start, changes, words = c.index, -1, list[str]()
    c.expect("ALTER")
    while not c.at_end():
        if changes < 0 and c.word() in ("SET", "RESET", "OWNER"):
            changes = c.index
        words.append(c.advance().text)
    at = changes - start  # of the word behind SET, among `words`
    if changes < 0 or at >= len(words):
        return ast.Unsupported("ALTER", c.span(start))
    of_system, owner = words[0].upper() == "SYSTEM", words[at - 1].upper() == "OWNER"
    if not (of_system or owner or words[at].upper() in _OF_RUNNING):
        hint = f"SET takes {', '.join(_OF_RUNNING)}, which change nothing here; for all else DROP it, and make another"
        raise c.error_from(start, f"ALTER … SET {words[at].upper()} is not supported yet", hint)
    return ast.Alter(" ".join(words), c.span(start))


def set_(c: Cursor) -> ast.Statement:
    """SET name = value, SET name TO value, SET TIME ZONE value."""
    start = c.index
    c.expect("SET")
    if c.accept("TIME", "ZONE"):
        name = "timezone"
    else:
        name = c.name("the name of a setting")
        while c.accept_symbol("."):
            name = f"{name}.{c.name('the name of a setting')}"
        if not c.accept("TO") and not c.accept_symbol("="):
            raise c.unexpected("'=' or TO", "TO")
    if c.at_end():
        raise c.unexpected("a value")
    first = c.index
    while not c.at_end():
        c.advance()
    taken = [c.ahead(n - c.index) for n in range(first, c.index)]
    if [t.value for t in taken if t.kind is TokenKind.WORD] == ["DEFAULT"]:
        return ast.Unset(name, c.span(start))
    value = " ".join(t.value if t.kind is TokenKind.STRING else t.text for t in taken)
    return ast.Set(name, value, c.span(start))


def show(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("SHOW")
    for what in c.dialect.shows:
        if c.accept(*what.split()):
            return ast.Show(what, c.span(start))
    hint = c.dialect.foreign.get(("SHOW", c.word()))
    raise c.unexpected(f"one of {', '.join(c.dialect.shows)}", *c.dialect.shows, hint=hint)


def explain(c: Cursor) -> ast.Statement:
    """EXPLAIN [(options)] statement | name."""
    start = c.index
    c.expect("EXPLAIN")
    if c.at_symbol("("):
        in_parentheses(c, lambda c: (c.name("an option"), c.at_end() or c.at_symbol(",") or c.at_symbol(")") or
                                     c.advance()))  # fmt: skip
    if c.word() in ("CREATE", *QUERY_STARTS):
        rule = c.dialect.statements[c.word()]
        inner = rule(c)
        assert inner is not None
        return ast.Explain(inner, c.span(start))
    name = relation_name(c, "the name of a view, SELECT or CREATE")
    if name.parts[0] == "public":
        name = ast.Name(name.parts[-1:], name.span)
    return ast.Explain(name, c.span(start))


_NO_STREAM = "RisingWave has no streams: write CREATE SOURCE or CREATE TABLE"
_NO_WITHIN = "RisingWave has no WITHIN: write ON a.x = b.x AND b.t BETWEEN a.t AND a.t + INTERVAL '1 hour'"


def _declares(words: Words, d: Declaring) -> str:
    return plainly(words, d, "TABLE" if d.kind == "table" else "SOURCE")


RISINGWAVE = Words(
    name="risingwave",
    title="RisingWave",
    fold=str.lower,
    statements={
        "CREATE": create,
        "SELECT": batch,
        "WITH": batch,
        "VALUES": batch,
        "INSERT": insert,
        "UPDATE": update,
        "DELETE": delete,
        "FLUSH": flush,
        "WAIT": flush,
        "DROP": drop,
        "ALTER": alter,
        "SET": set_,
        "SHOW": show,
        "DESCRIBE": describing("a table, source or view", relation_name),
        "EXPLAIN": explain,
    },
    creates={
        "TABLE": create_table,
        "SOURCE": create_table,
        "MATERIALIZED": create_view,
        "VIEW": create_view,
        "SINK": create_view,
        "INDEX": create_index,
        "CONNECTION": create_connection,
        "SCHEMA": create_schema,
        "FUNCTION": create_function,
    },
    types={},
    source=source,
    join=join,
    condition=condition,
    lists=True,
    shows=(
        *(f"{x}S" for x in ("TABLE", "SOURCE", "MATERIALIZED VIEW", "VIEW")),
        "INDEXES",
        "SINKS",
        "CONNECTIONS",
        "SCHEMAS",
        "FUNCTIONS",
    ),
    kinds=("TABLE", "SOURCE", "MATERIALIZED VIEW", "VIEW", "INDEX"),
    foreign={
        ("SHOW", "STREAMS"): "RisingWave has no streams: SHOW TABLES or SHOW SOURCES",
        ("SHOW", "COLUMNS"): "write DESCRIBE name",
        ("SHOW", "CREATE"): "write DESCRIBE name for its columns, EXPLAIN name for the query of a view",
        ("EMIT", "CHANGES"): "leave it out: a view is always kept up to date",
        ("WITHIN", "INTERVAL"): _NO_WITHIN,
        **{("WITHIN", str(n)): _NO_WITHIN for n in range(61)},
    },
    foreign_starts={
        "STREAM": _NO_STREAM,
        **dict.fromkeys(("GRANT", "REVOKE", "USER", "ROLE"), "leave it out: a store has no users of its own"),
        **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK"), "leave it out: each statement is done as a whole"),
        "DATABASE": "leave it out: a store is one database; CREATE SCHEMA parts it",
        "SECRET": "write '$NAME', of the environment, or '@FILE' in the place of the secret",
        "SUBSCRIPTION": "CREATE SINK of the view, and read that",
    },
    name_quotes='"',
    reserved=RESERVED,
    never_alias=RESERVED | {"ASOF", "EMIT", "WINDOW", "SET", "FETCH"},
    symbols=SYMBOLS,
    levels=LEVELS,
    predicates=PREDICATES,
    primaries=PRIMARIES,
    call=call,
    postgres=True,
    suffix=suffix,
    subquery=query,
    spelled={
        Scalar.DOUBLE: "DOUBLE PRECISION",
        Scalar.BYTES: "BYTEA",
        **{t: t.value for t in (Scalar.SMALLINT, Scalar.REAL, Scalar.TIMESTAMPTZ, Scalar.JSONB)},
    },
    array="{}[]",
    struct="STRUCT<{}>",
    declares=_declares,
    live=("CREATE MATERIALIZED VIEW query AS\n", ""),
)
