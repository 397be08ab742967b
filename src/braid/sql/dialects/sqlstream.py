"""SQLstream (s-Server).

In: the shared grammar. Out: the dialect `SQLSTREAM`.
Rule: unquoted names fold to upper case; only "…" quotes a name. SELECT STREAM runs on, SELECT alone is over tables.
OVER stands between a source and its alias, or behind a call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from braid.errors import Span, SqlError
from braid.sql import ast
from braid.sql.cursor import Cursor, closest
from braid.sql.declare import Declaring, plainly, text
from braid.sql.dialects import sqlstream_admin as admin
from braid.sql.dialects.base import RESERVED, STARTERS, Condition, Words
from braid.sql.dialects.sqlstream_calls import PREDICATES, PRIMARIES, call, suffix
from braid.sql.dialects.sqlstream_functions import table_function
from braid.sql.dialects.sqlstream_types import own_type
from braid.sql.dialects.sqlstream_windows import over, staggered, window
from braid.sql.expressions import comma_list, expression, in_parentheses, plain_name, row
from braid.sql.queries import grouping, kind_of_join, order_item, relation, select_item
from braid.sql.statements import (
    asking,
    create,
    describing,
    explain,
    if_not_exists,
    insert_into,
    quoted_set,
    quoted_unset,
    show,
)
from braid.sql.tokens import TokenKind
from braid.sql.types import sql_type
from braid.types import Scalar

_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_CLAUSES = ("WHERE", "GROUP BY", "HAVING", "WINDOW", "UNION ALL", "ORDER BY")
_NOT_YET = ("LIMIT", "FETCH", "OFFSET", "QUALIFY", "INTERSECT", "EXCEPT")


def query(c: Cursor, nested: bool = False) -> ast.Select:
    """One SELECT, or several with UNION ALL between. `nested`: a sub-query, which ends at a closing bracket."""
    start = c.index
    first, written = _select(c)
    others: list[ast.Select] = []
    while c.at("UNION"):
        at = c.now
        c.advance()
        if not c.accept("ALL"):
            hint = "write UNION ALL; SELECT STREAM DISTINCT … around it, with a period of ROWTIME, gives each row once"
            raise c.error("UNION, which removes duplicates, needs all rows of streams without an end", at, hint)
        opened = c.advance() if c.at_symbol("(") else None
        other, written = _select(c)
        if opened is not None:
            c.close(opened, ")")
        others.append(other)
    order_by = comma_list(c, _order_item) if c.accept("ORDER", "BY") else ()
    _ends(c, written, bool(order_by), nested)
    if not others and not order_by:
        return first
    return replace(first, union=tuple(others), order_by=order_by, span=c.span(start))


def _subquery(c: Cursor) -> ast.Query:
    """A query where a value stands."""
    inner = query(c, nested=True)
    return ast.Query((), inner, (), None, None, None, inner.span)


def _order_item(c: Cursor) -> ast.OrderItem:
    """An item of ORDER BY, and WITHIN an interval."""
    item = order_item(c)
    if not c.at("WITHIN"):
        return item
    c.advance()
    at = c.now
    within = expression(c)
    if not isinstance(within, ast.Interval) or within.months or within.ms < 0:
        hint = "write WITHIN INTERVAL '5' SECOND"
        raise c.error("WITHIN takes an interval of days, hours, minutes or seconds", at, hint)
    return replace(item, within=within)


def _select(c: Cursor) -> tuple[ast.Select, list[str]]:
    """SELECT up to its last clause, and the clauses that it has."""
    start = c.index
    c.expect("SELECT")
    stream = _is_stream(c)
    if stream:
        c.advance()
    distinct = () if c.accept("DISTINCT") else None
    if distinct is None:
        c.accept("ALL")
    items = comma_list(c, select_item)
    if not c.accept("FROM"):
        raise c.unexpected("',' or FROM", "FROM", "AS")
    source = relation(c)
    where = expression(c) if c.accept("WHERE") else None
    group_by, stagger = staggered(c) if c.at("WINDOWED") else ((), None)
    if stagger is None and c.accept("GROUP", "BY"):
        group_by = grouping(c)
    having = expression(c) if c.accept("HAVING") else None
    windows = _windows(c) if c.accept("WINDOW") else ()
    made = ast.Select(
        items, source, c.span(start), "STREAM" if stream else None, distinct=distinct, where=where, group_by=group_by,
        having=having, windows=windows, stagger=stagger,
    )  # fmt: skip
    there = (where is not None, bool(group_by), having is not None, bool(windows))
    return made, [name for name, is_there in zip(_CLAUSES, there, strict=False) if is_there]


def _ends(c: Cursor, written: list[str], ordered: bool, nested: bool) -> None:
    """Nothing more stands behind a query."""
    if c.word() in _NOT_YET:
        raise c.error(f"{c.word()} is not supported yet", c.now, "leave it out; WHERE filters rows")
    clause = next((x for x in _CLAUSES if c.word() == x.split()[0]), None)
    if clause is not None and (ordered or clause != "ORDER BY"):
        twice = f"{clause} is written twice" if clause in written else f"{clause} is in the wrong place"
        raise c.error(twice, c.now, f"the order is SELECT, FROM, {', '.join(_CLAUSES)}")
    if not c.at_end() and not c.starts_statement() and not (nested and c.at_symbol(")")):
        raise _left_over(c, written)


def _is_stream(c: Cursor) -> bool:
    """`SELECT STREAM …`, and not a column of that name: `SELECT stream, …`, `SELECT stream FROM`, `SELECT stream.a`."""
    after = c.ahead(1)
    if not c.at("STREAM"):
        return False
    if after.kind is TokenKind.SYMBOL:
        next_but_one = c.ahead(2)
        ends = next_but_one.kind is TokenKind.SYMBOL and next_but_one.text == ","
        starts = next_but_one.value == "FROM" or _misspelled_from(c)
        return after.text in ("(", "-", "+") or (after.text == "*" and (ends or starts))
    return after.kind is not TokenKind.END and after.value not in ("FROM", "AS")


def _misspelled_from(c: Cursor) -> bool:
    """`STREAM * FORM orders`, and not `stream * form FROM …`."""
    word, behind = c.ahead(2), c.ahead(3)
    found = word.kind is TokenKind.WORD and closest(word.value, ("FROM",)) is not None
    return found and behind.kind is TokenKind.WORD and behind.value not in ("FROM", "AS")


def _windows(c: Cursor) -> tuple[tuple[str, ast.RangeWindow | ast.RowsWindow], ...]:
    """`w AS (…), …`."""
    found: dict[str, ast.RangeWindow | ast.RowsWindow] = {}
    while not found or c.accept_symbol(","):
        at = c.now
        name = c.name("the name of a window")
        if name in found:
            raise c.error(f"window {name} is declared twice", at, "give one of them another name")
        c.expect("AS")
        found[name] = window(c)
    return tuple(found.items())


def _left_over(c: Cursor, written: list[str]) -> SqlError:
    if c.at("OVER"):
        return c.error("OVER comes before the alias", c.now, "write source OVER (…) AS alias")
    if c.at("ON") or c.at("USING"):
        return c.error(f"{c.word()} is allowed only behind JOIN", c.now, "write a JOIN b ON a.x = b.x")
    if c.word() in _JOIN_WORDS:
        return c.error(f"{c.word()} must be in FROM, before WHERE", c.now)
    later = [x for x in _CLAUSES if not written or _CLAUSES.index(x) > _CLAUSES.index(written[-1])]
    words = ("AND", "OR") if written else ("AS", "OVER", *_JOIN_WORDS, "ON", "USING")
    return c.unexpected("a clause or ';'", *words, *later)


# ----------------------------------------------------------------------- FROM


def join(c: Cursor) -> tuple[ast.How, str] | None:
    """The words up to JOIN."""
    if c.word() not in (*_JOIN_WORDS, "OUTER"):
        return None
    natural = c.accept("NATURAL")
    if natural and c.at("CROSS"):
        raise c.error("NATURAL CROSS JOIN is not possible", c.now, "write CROSS JOIN, or NATURAL JOIN")
    if c.at("OUTER"):
        raise c.error("OUTER JOIN needs a side", c.now, "write LEFT, RIGHT or FULL OUTER JOIN")
    words = kind_of_join(c)
    if words is None:
        raise c.unexpected("JOIN", *_JOIN_WORDS)
    return words[0], "NATURAL" if natural else ""


def condition(c: Cursor, how: ast.How, mark: str, how_span: Span) -> Condition:
    """ON, USING or nothing, as the kind allows."""
    if c.at("ON") or c.at("USING"):
        word = c.word()
        if how == "cross":
            hint = f"write JOIN … {word} …, or put the condition into WHERE"
            raise c.error(f"CROSS JOIN takes no {word}", c.now, hint)
        if mark:
            hint = f"leave {word} out (NATURAL compares all columns of the same name), or leave NATURAL out"
            raise c.error(f"NATURAL JOIN takes no {word}", c.now, hint)
    on: ast.Expr | None = None
    using: tuple[ast.Name, ...] = ()
    if c.accept("ON"):
        on = expression(c)
    elif c.accept("USING"):
        using = in_parentheses(c, column_name)
    if c.at("ON") or c.at("USING"):
        raise c.error("a join has one condition", c.now, "keep ON or USING; further conditions go into ON with AND")
    return on, using, None


def source(c: Cursor) -> ast.Relation:
    """A source with its window and alias, or a join in parentheses."""
    start = c.index
    found: ast.Name | ast.Select
    if c.at_symbol("("):
        opened = c.advance()
        if not c.at("SELECT"):
            c.enter()
            inner = relation(c)
            c.leave()
            c.close(opened, ")")
            if c.at("OVER"):
                hint = "write OVER behind each source of the join"
                raise c.error("a join in parentheses has no window of its own", c.now, hint)
            if c.at("AS"):
                raise c.error("a join in parentheses has no alias", c.now, "its sources keep their own names")
            return inner
        c.enter()
        found = query(c, nested=True)
        c.leave()
        c.close(opened, ")")
    else:
        made = table_function(c, lambda c: query(c, nested=True))
        found = made or object_name(c, "the name of a stream or table")
    over_ = over(c) if c.accept("OVER") else None
    alias = c.alias("an alias after AS")
    if c.at("OVER"):
        what = alias or "its window"
        raise c.error("OVER comes before the alias", c.now, f"write source OVER (…) AS {what}")
    if isinstance(found, ast.Name):
        return ast.Table(found, alias, c.span(start), over=over_)
    return ast.Derived(found, alias or "sub-query", c.span(start), over=over_)


def object_name(c: Cursor, expected: str) -> ast.Name:
    """`name` or `schema.name`."""
    start = c.index
    name = c.name(expected)
    if not c.accept_symbol("."):
        return ast.Name((name,), c.span(start))
    second = c.name(f"{expected} after '.'")
    if c.at_symbol("."):
        raise c.error("a name has at most a schema and a name", c.now, "leave the catalog out")
    return ast.Name((name, second), c.span(start))


def column_name(c: Cursor) -> ast.Name:
    name = plain_name(c, "the name of a column")
    if c.at_symbol("."):
        raise c.error("a plain column name is expected here", c.now, "write the column without its source")
    return name


# ------------------------------------------------------------------ definitions


def _create_relation(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE STREAM | TABLE name (column TYPE [NOT NULL] [PRIMARY KEY], … [, PRIMARY KEY (…)]) [OPTIONS (…)]."""
    return _relation(c, start, or_replace, foreign=False)


def _relation(c: Cursor, start: int, or_replace: bool, foreign: bool) -> ast.CreateRelation:
    kind: Literal["STREAM", "TABLE"] = "STREAM" if c.at("STREAM") else "TABLE"
    c.advance()
    name = object_name(c, f"the name of the {kind.lower()}")
    if c.at("AS"):
        hint = f"write CREATE VIEW {name} AS SELECT STREAM …, or CREATE PUMP p AS INSERT INTO {name} SELECT STREAM …"
        raise c.error(f"CREATE {kind} … AS is not SQLstream's", c.now, hint)
    opened = c.expect_symbol("(", "'(' and columns")
    columns: list[ast.ColumnDef] = []
    not_null: list[str] = []
    keys: tuple[ast.Name, ...] = ()
    while True:
        if c.at("PRIMARY") and columns:
            c.expect("PRIMARY", "KEY")
            keys = in_parentheses(c, column_name)
        else:
            columns.append(_column(c, kind, not_null))
        if not c.accept_symbol(","):
            break
    c.close(opened, ")", "',' or ')'")
    for key in keys:
        if kind == "STREAM":
            raise c.error("a stream has no PRIMARY KEY", key.span, "leave it out")
        if all(d.name != str(key) for d in columns):
            raise c.error(f"no column {key} for the PRIMARY KEY", key.span, "name a column of the table")
        not_null.append(str(key))
    server = _server(c) if foreign else None
    options = in_parentheses(c, _option) if c.accept("OPTIONS") else ()
    _description(c)
    return ast.CreateRelation(kind, name, tuple(columns), tuple(not_null), options, or_replace, c.span(start), server)


def _column(c: Cursor, kind: str, not_null: list[str]) -> ast.ColumnDef:
    start = c.index
    name = c.name("the name of a column")
    column_type = sql_type(c)
    role: Literal["VALUE", "PRIMARY KEY"] = "VALUE"
    while True:
        if c.accept("NOT"):
            c.expect("NULL")
            not_null.append(name)
        elif c.at("PRIMARY"):
            if kind == "STREAM":
                raise c.error("a stream has no PRIMARY KEY", c.now, "leave it out")
            c.expect("PRIMARY", "KEY")
            role = "PRIMARY KEY"
            not_null.append(name)
        elif not c.accept("NULL"):
            break
    if not c.at_symbol(",") and not c.at_symbol(")"):
        raise c.unexpected("',' or ')'", "NOT", "PRIMARY")
    return ast.ColumnDef(name, column_type, role, c.span(start))


def _option(c: Cursor) -> ast.Property:
    """`NAME 'value'`, also `NAME = 'value'`."""
    start = c.index
    if c.now.kind not in (TokenKind.WORD, TokenKind.NAME):
        raise c.unexpected("the name of an option")
    name = c.advance().value.upper()
    c.accept_symbol("=")
    at = c.index
    value = c.string("the value of the option in single quotes", f"write {name} 'value'")
    return ast.Property(name, ast.Literal(value, Scalar.VARCHAR, c.span(at)), c.span(start))


def _description(c: Cursor) -> None:
    if c.accept("DESCRIPTION"):
        c.string("a description in single quotes")


def _columns(c: Cursor) -> tuple[ast.Name, ...]:
    """`(a, b)`, if it is there."""
    return in_parentheses(c, column_name) if c.at_symbol("(") and c.ahead(1).value != "SELECT" else ()


def _create_view(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    c.expect("VIEW")
    name = object_name(c, "the name of the view")
    columns = _columns(c)
    _description(c)
    c.expect("AS")
    inner = _bracketed(c)
    return ast.CreateStreamView(name, columns, inner, or_replace, c.span(start))


def _create_pump(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    c.expect("PUMP")
    name = object_name(c, "the name of the pump")
    state: Literal["STARTED", "STOPPED"] | None = None
    if c.accept("STARTED"):
        state = "STARTED"
    elif c.accept("STOPPED"):
        state = "STOPPED"
    options = in_parentheses(c, _option) if c.accept("OPTIONS") else ()
    _description(c)
    c.expect("AS")
    if not c.at("INSERT"):
        raise c.unexpected("INSERT", "INSERT", hint=f"write CREATE PUMP {name} AS INSERT INTO stream SELECT STREAM …")
    insert_start = c.index
    insert_into(c)
    made = _insert(c, insert_start)
    if isinstance(made, ast.InsertValues):
        raise c.error("a pump runs a query", made.span, "write INSERT INTO … SELECT STREAM …")
    return ast.CreatePump(name, state, made, or_replace, c.span(start), options)


def _create_schema(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    c.expect("SCHEMA")
    exists = if_not_exists(c)
    name = c.name("the name of the schema")
    _description(c)
    return ast.CreateSchema(name, exists or or_replace, c.span(start))


def _create_foreign(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE FOREIGN STREAM | TABLE name (…) SERVER server [OPTIONS (…)]."""
    c.advance()
    if c.at("DATA"):
        return admin.data_wrapper(c, start)
    if not c.at("STREAM") and not c.at("TABLE"):
        raise c.unexpected("STREAM or TABLE", "STREAM", "TABLE")
    return _relation(c, start, or_replace, foreign=True)


def _server(c: Cursor) -> ast.Name:
    c.expect("SERVER")
    return object_name(c, "the name of a server")


def _create_server(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE SERVER name [TYPE 'type'] FOREIGN DATA WRAPPER wrapper [OPTIONS (…)] [DESCRIPTION '…']."""
    name = _server(c)
    kind: ast.Literal | None = None
    if c.accept("TYPE"):
        at = c.index
        kind = ast.Literal(c.string("the type in single quotes", "write TYPE 'KAFKA10'"), Scalar.VARCHAR, c.span(at))
    c.expect("FOREIGN", "DATA", "WRAPPER")
    object_name(c, "the name of a data wrapper")
    options = in_parentheses(c, _option) if c.accept("OPTIONS") else ()
    _description(c)
    return ast.CreateServer(name, kind, options, c.span(start))


def _drop(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("DROP")
    kinds: tuple[Literal["STREAM", "TABLE", "VIEW", "PUMP"], ...] = ("STREAM", "TABLE", "VIEW", "PUMP")
    kind = next((k for k in kinds if c.at(k)), None)
    if c.at("SCHEMA"):
        return admin.drop_schema(c, start)
    if kind is None:
        raise c.unexpected("STREAM, TABLE, VIEW or PUMP", *kinds)
    c.advance()
    if_exists = c.accept("IF", "EXISTS")
    name = object_name(c, f"the name of the {kind.lower()}")
    if c.at("CASCADE"):
        raise c.error("DROP … CASCADE is not supported", c.now, "drop what reads it first")
    c.accept("RESTRICT")
    return ast.Drop(kind, (name,), if_exists, c.span(start))


# ------------------------------------------------------------- queries and rows


def _bracketed(c: Cursor) -> ast.Select:
    if c.at_symbol("("):
        opened = c.advance()
        inner = query(c, nested=True)
        c.close(opened, ")")
        return inner
    if not c.at("SELECT"):
        raise c.unexpected("SELECT STREAM", "SELECT")
    return query(c)


def _insert_statement(c: Cursor) -> ast.Statement:
    start = c.index
    insert_into(c)
    return _insert(c, start)


def _insert(c: Cursor, start: int) -> ast.InsertSelect | ast.InsertValues:
    """What stands behind INSERT INTO."""
    target = object_name(c, "the name of a stream or table")
    columns = _columns(c)
    if c.at("SELECT") or c.at_symbol("("):
        inner = _bracketed(c)
        return ast.InsertSelect(target, inner, c.span(start), columns)
    if not c.accept("VALUES"):
        raise c.unexpected("VALUES or SELECT STREAM", "VALUES", "SELECT")
    rows = comma_list(c, row)
    return ast.InsertValues(target, columns, rows, c.span(start))


# --------------------------------------------------------------------- commands


def _set(c: Cursor) -> ast.Statement:
    """SET SCHEMA 'name', or SET 'setting' = 'value'."""
    start = c.index
    if c.at("SET", "PATH"):
        return admin.set_path(c, start)
    if not c.at("SET", "SCHEMA"):
        return quoted_set(c)
    c.expect("SET", "SCHEMA")
    if c.now.kind is TokenKind.STRING:
        written = c.advance()
        text = written.value.strip()
        quoted = len(text) > 2 and text[0] == text[-1] == '"'
        name = text[1:-1] if quoted else c.dialect.fold(text)
        if not name:
            raise c.error("the name of the schema is empty", written, "write SET SCHEMA 'name'")
    else:
        name = c.name("the name of a schema in single quotes")
    return ast.SetSchema(name, c.span(start))


def _declares(words: Words, d: Declaring) -> str:
    rowtime = d.time if d.kind == "stream" else None
    return plainly(words, d, tail="" if rowtime is None else f" OPTIONS (ROWTIME {text(rowtime)})")


_RESERVED = (RESERVED - {"WITHIN"}) | {"CROSS", "INTERVAL", "NATURAL", "OVER", "USING"}
_STREAM = "rows come as they are made: SELECT STREAM"

SQLSTREAM = Words(
    name="sqlstream",
    title="SQLstream",
    fold=str.upper,
    statements={
        "CREATE": create,
        "SELECT": asking(query),
        "INSERT": _insert_statement,
        "DROP": _drop,
        "SET": _set,
        "UNSET": quoted_unset,
        "SHOW": show,
        "DESCRIBE": describing("a stream, table or view", object_name),
        "EXPLAIN": explain,
        "ALTER": admin.alter,
    },
    creates={
        "STREAM": _create_relation,
        "TABLE": _create_relation,
        "VIEW": _create_view,
        "PUMP": _create_pump,
        "SCHEMA": _create_schema,
        "FOREIGN": _create_foreign,
        "SERVER": _create_server,
    },
    types={
        "BOOLEAN": Scalar.BOOLEAN,
        "TINYINT": Scalar.INT,
        "SMALLINT": Scalar.INT,
        "INT": Scalar.INT,
        "INTEGER": Scalar.INT,
        "BIGINT": Scalar.BIGINT,
        "REAL": Scalar.DOUBLE,
        "FLOAT": Scalar.DOUBLE,
        "DOUBLE": Scalar.DOUBLE,
        "CHAR": Scalar.VARCHAR,
        "VARCHAR": Scalar.VARCHAR,
        "VARBINARY": Scalar.BYTES,
        "DATE": Scalar.DATE,
        "TIME": Scalar.TIME,
        "TIMESTAMP": Scalar.TIMESTAMP,
    },
    kinds=("STREAM", "TABLE", "VIEW", "PUMP", "SCHEMA"),
    source=source,
    join=join,
    condition=condition,
    lists=True,
    subquery=_subquery,
    clauses=_CLAUSES,
    shows=("STREAMS", "TABLES", "QUERIES", "TOPICS", "PROPERTIES"),
    foreign={
        ("WITHIN", after): "SQLstream has no WITHIN: write a OVER (RANGE INTERVAL '1' MINUTE PRECEDING) JOIN b …"
        for after in ("INTERVAL", "(", *map(str, range(61)))
    }
    | {
        ("SHOW", "VIEWS"): "views are among SHOW STREAMS and SHOW TABLES",
        ("SHOW", "PUMPS"): "pumps are among SHOW QUERIES",
        ("OVER", "("): "OVER comes behind a source of a join, or behind a call in SELECT",
        ("WITH", "("): "write OPTIONS (TOPIC 'x', PARTITIONS '1', ROWTIME 'column')",
        ("EMIT", "CHANGES"): f"SQLstream has no EMIT: {_STREAM}",
        ("FOR", "SYSTEM_TIME"): "SQLstream captures a table when the query starts",
    },
    foreign_starts={
        "UPDATE": "a stream has no UPDATE; run the query again to see a changed table",
        "DELETE": "a stream has no DELETE",
        "MERGE": "MERGE is not supported",
        "WITH": "write a sub-query in FROM, or CREATE VIEW first",
        "MATERIALIZED": "write CREATE VIEW … AS SELECT STREAM …",
    },
    own_type=own_type,
    type_advice={"STRING": "VARCHAR(100)", "BYTES": "VARBINARY", "TEXT": "VARCHAR(100)"},
    name_quotes='"',
    blank=admin.CLIENT_LINES,
    reserved=_RESERVED,
    call=call,
    primaries=PRIMARIES,
    predicates=PREDICATES,
    suffix=suffix,
    never_alias=(RESERVED - {"WITHIN"})
    | STARTERS
    | {"NATURAL", "OVER", "USING", "INTERVAL", "OFFSET", "FETCH", "UNION"}
    | {"HAVING", "GROUP", "ORDER", "WINDOWED"},
    spelled={Scalar.VARCHAR: "VARCHAR(65535)", Scalar.BYTES: "VARBINARY"},
    declares=_declares,
)
