"""Lenses SQL: streaming queries over topics whose keys and values are two facets of a record.

In: the shared grammar of expressions. Out: the dialect `LENSES`.
Rule: names keep their case, keywords have none. Both quotes make strings, the back-tick makes names; a hyphen without
blanks around it is part of a name.
"""

from __future__ import annotations

from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.declare import Declaring, declaration, paths, quoted, typed
from braid.sql.dialects.base import RESERVED, TYPE_ADVICE, Words
from braid.sql.dialects.lenses_query import condition, join, query, source
from braid.sql.expressions import comma_list, dotted, in_parentheses, plain_name, row, sql_type
from braid.sql.statements import create, describe, drop, explain, insert_into, show
from braid.sql.tokens import TokenKind
from braid.types import Array, Column, Scalar, Type

FORMATS = ("INT", "LONG", "STRING", "BYTES", "JSON", "AVRO")
OTHER_FORMATS = ("XML", "CSV", "PROTOBUF", "CUSTOM")  # Lenses reads them; Braid does not


def _select(c: Cursor) -> ast.Statement:
    start = c.index
    inner = query(c)
    return ast.Ask(inner, c.span(start))


def _with(c: Cursor) -> ast.Statement:
    """`WITH name AS (SELECT …);`, a statement of its own."""
    start = c.index
    c.expect("WITH")
    name_start = c.index
    name = c.name("a name for the query")
    name_span = c.span(name_start)
    c.expect("AS")
    opened = c.expect_symbol("(", "'(' and SELECT")
    inner = query(c, nested=True)
    c.close(opened, ")")
    if c.at_symbol(","):
        raise c.error("a WITH names one query", c.now, "end it with ; and write the next as WITH name AS (SELECT …);")
    return ast.WithQuery(name, inner, c.span(start), name_span)


def _insert(c: Cursor) -> ast.Statement:
    start = c.index
    insert_into(c)
    name = plain_name(c, "the name of a topic")
    if c.at_symbol("(") or c.at("VALUES"):
        columns = in_parentheses(c, _path) if c.at_symbol("(") else ()
        c.expect("VALUES")
        rows = comma_list(c, row)
        return ast.InsertValues(name, columns, rows, c.span(start))
    key = value = None
    if c.accept("STORE"):
        key, value = _stored(c, "KEY"), _stored(c, "VALUE")
        if key is None and value is None:
            raise c.unexpected("KEY AS or VALUE AS after STORE", "KEY", "VALUE", hint="write STORE VALUE AS JSON")
        if c.at("KEY", "AS"):
            raise c.error("KEY AS must stand before VALUE AS", c.now, "write STORE KEY AS STRING VALUE AS JSON")
    if not c.at("SELECT"):
        raise c.unexpected("SELECT, STORE or VALUES", "SELECT", "STORE", "VALUES")
    inner = query(c)
    return ast.InsertSelect(name, inner, c.span(start), (), key, value)


def _stored(c: Cursor, facet: str) -> ast.StoreAs | None:
    if not c.at(facet):
        return None
    c.advance()
    c.expect("AS")
    return _format(c)


def _format(c: Cursor) -> ast.StoreAs:
    start = c.index
    known = ", ".join(FORMATS)
    if c.word() in OTHER_FORMATS:
        raise c.error(f"format {c.word()} is not supported yet", c.now, f"formats are {known}")
    if c.word() not in FORMATS:
        raise c.unexpected("a format", *FORMATS, hint=f"formats are {known}")
    return ast.StoreAs(c.advance().value, c.span(start))


def _path(c: Cursor) -> ast.Name:
    return dotted(c, "the name of a field")


# --------------------------------------------------------------------- topics


def _create_topic(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE TABLE | STREAM name (fields) FORMAT (key, value) [PROPERTIES (…)]: a topic, whichever word is used."""
    if or_replace:
        raise c.error("there is no OR REPLACE in Lenses SQL", c.now, "DROP TABLE it first")
    kind: ast.Kind = "STREAM" if c.advance().value == "STREAM" else "TABLE"
    if_not_exists = c.at("IF", "NOT")
    if if_not_exists:
        c.expect("IF", "NOT", "EXISTS")
    name_start = c.index
    name = c.name("the name of a topic")
    name_span = c.span(name_start)
    fields = _fields(c) if c.at_symbol("(") else ()
    if not c.at("FORMAT"):
        hint = "write FORMAT (STRING, JSON): the formats of key and value"
        raise c.unexpected("FORMAT" if fields else "'(' and fields, or FORMAT", "FORMAT", hint=hint)
    c.expect("FORMAT")
    opened = c.expect_symbol("(")
    key = _format(c)
    c.expect_symbol(",", "',' and the format of the value")
    value = _format(c)
    c.close(opened, ")")
    properties = in_parentheses(c, _property) if c.accept("PROPERTIES") else ()
    return ast.CreateTopic(kind, name, fields, key, value, properties, if_not_exists, c.span(start), name_span)


def _fields(c: Cursor) -> tuple[ast.FieldDef, ...]:
    """`(a INT, b.c STRING)`; a comma before `)` is let pass."""
    opened = c.advance()
    found = [_field(c)]
    while c.accept_symbol(","):
        if c.at_symbol(")"):
            break
        found.append(_field(c))
    c.close(opened, ")", "',' or ')'")
    return tuple(found)


def _field(c: Cursor) -> ast.FieldDef:
    start = c.index
    path = _path(c).parts
    return ast.FieldDef(path, _type(c), c.span(start))


def _type(c: Cursor) -> Type:
    """A type; `INT[]` is an array of INT."""
    found = sql_type(c)
    while c.accept_symbol("["):
        c.expect_symbol("]")
        found = Array(found)
    return found


def _property(c: Cursor) -> ast.Property:
    start = c.index
    name = c.name("the name of a property").upper()
    c.expect_symbol("=")
    value_start = c.index
    text = _setting_value(c)
    return ast.Property(name, ast.Literal(text, Scalar.VARCHAR, c.span(value_start)), c.span(start))


# ------------------------------------------------------------------- settings


def _set(c: Cursor) -> ast.Statement:
    """SET name.with.dots = value."""
    start = c.index
    c.expect("SET")
    if c.now.kind is TokenKind.STRING:
        raise c.unexpected("the name of a setting", hint="without quotes: SET defaults.topic.autocreate=true;")
    name = _setting_word(c)
    while c.accept_symbol("."):
        name += "." + _setting_word(c)
    if not c.at_symbol("="):
        raise c.unexpected("'='", hint=f"write SET {name}=value;")
    c.advance()
    value = _setting_value(c)
    return ast.Set(name, value, c.span(start))


def _setting_word(c: Cursor) -> str:
    """A part of a setting's name; it may be a reserved word."""
    if c.now.kind not in (TokenKind.WORD, TokenKind.NAME):
        raise c.unexpected("the name of a setting")
    return c.advance().text.strip("`")


def _setting_value(c: Cursor) -> str:
    """A word, a number, a duration (`5s`) or a string, as text."""
    token = c.now
    if token.kind is TokenKind.STRING:
        return c.advance().value
    if token.kind in (TokenKind.WORD, TokenKind.NAME):
        return c.advance().text.strip("`")
    if token.kind is TokenKind.NUMBER:
        number = c.advance().text
        glued = c.now.kind is TokenKind.WORD and c.now.start == token.end
        return number + (c.advance().text if glued else "")
    raise c.unexpected("a value: a word, a number or a string")


_PLAIN_KEYS = (Scalar.INT, Scalar.BIGINT, Scalar.VARCHAR, Scalar.DOUBLE)  # formats of keys


def _declares(words: Words, d: Declaring) -> str:
    """The key column is `_key`, and stays a field of the value, too. Where a file has no field `_key`, more statements
    make the key."""
    if d.of == "file" and all(c.name != "_key" for c in d.columns):
        return _keyed(words, d)
    key = next((c for c in d.columns if c.name == (d.key or "_key")), Column("_key", Scalar.VARCHAR))
    fields = [f"_key {typed(words, key)}", *paths(words, [c for c in d.columns if c.name != "_key"])]
    format = typed(words, key) if key.type in _PLAIN_KEYS else "JSON"
    return f"CREATE {d.kind.upper()} {quoted(words, d.name)} ({', '.join(fields)}) FORMAT ({format}, JSON);"


def _keyed(words: Words, d: Declaring) -> str:
    """A topic without keys, and what gives it some."""
    made = declaration(words, Declaring(d.name, "stream", d.columns))
    if d.key is None:
        return made
    keyed, key, name = (quoted(words, x) for x in (f"{d.name}_by_{d.key}", d.key, d.name))
    if d.kind == "table":
        query = f"SELECT STREAM {key} AS _key, _value.* FROM {name};"
        return f"{made}\nSET defaults.topic.autocreate = true;\nINSERT INTO {keyed} {query}"
    at = "" if d.time is None else f" EVENTTIME BY {quoted(words, d.time)}"
    return f"{made}\nWITH {keyed} AS (SELECT STREAM {key} AS _key, _value.* FROM {name}{at});"


_NO_CHANGE = "a topic gets records by INSERT INTO ... VALUES; the last one of a key stands"

LENSES = Words(
    name="lenses",
    title="Lenses SQL",
    fold=str,
    statements={
        "SELECT": _select,
        "WITH": _with,
        "INSERT": _insert,
        "SET": _set,
        "CREATE": create,
        "DROP": drop,
        "SHOW": show,
        "DESCRIBE": describe,
        "EXPLAIN": explain,
    },
    creates={"TABLE": _create_topic, "STREAM": _create_topic},
    types={
        "BOOLEAN": Scalar.BOOLEAN,
        "INT": Scalar.INT,
        "LONG": Scalar.BIGINT,
        "DOUBLE": Scalar.DOUBLE,
        "STRING": Scalar.VARCHAR,
        "BYTES": Scalar.BYTES,
        "DATE": Scalar.DATE,
        "TIMESTAMP": Scalar.TIMESTAMP,
    },
    kinds=("TABLE", "STREAM"),
    source=source,
    join=join,
    condition=condition,
    chains=False,
    clauses=("WHERE", "GROUP BY"),
    shows=("TABLES", "QUERIES", "PROPERTIES"),
    shows_unsupported=("ALL",),
    foreign={
        ("ORDER", "BY"): "Lenses SQL has no ORDER BY in streaming queries: a topic has no end at which to sort",
        ("CROSS", "JOIN"): "Lenses SQL has no CROSS JOIN: write JOIN … ON a.x = b.x",
        ("NATURAL", "JOIN"): "Lenses SQL has no NATURAL JOIN: write JOIN … ON a.x = b.x",
        ("USING", "("): "Lenses SQL has no USING: write ON a.x = b.x, or leave ON out to join on _key",
        ("EMIT", "CHANGES"): "a query of Lenses SQL always runs on: leave EMIT CHANGES out",
        ("SHOW", "TOPICS"): "write SHOW TABLES",
        ("SHOW", "STREAMS"): "write SHOW TABLES: a topic is read as SELECT says",
        ("EXTRACT", "("): "times are LONG: milliseconds since 1970",
        ("OVER", "("): "Lenses SQL has no OVER: GROUP BY gives a row for each group",
        ("UNION", "ALL"): "write two INSERT INTO the same topic",
    },
    foreign_starts={
        "UPDATE": _NO_CHANGE,
        "DELETE": _NO_CHANGE,
        "VIEW": "WITH name AS (SELECT ...); gives a query a name",
    },
    type_advice={
        **{k: {"BIGINT": "LONG", "VARCHAR": "STRING"}.get(v, v) for k, v in TYPE_ADVICE.items() if k != "LONG"},
        "BIGINT": "LONG",
        "INTEGER": "INT",
        "VARCHAR": "STRING",
    },
    units={"MS": 1, "S": 1000, "M": 60_000, "H": 3_600_000, "D": 86_400_000},
    name_quotes="`",
    hyphens=True,
    glued_units=True,
    ends_inside=True,
    paths=True,
    never_alias=RESERVED | {"LATERAL", "EVENTTIME", "WINDOW", "LIMIT", "ORDER", "UNION", "EMIT"},
    spelled={Scalar.INT: "INT", Scalar.BIGINT: "LONG", Scalar.VARCHAR: "STRING", Scalar.TIME: None},
    array="{}[]",
    keyed_tables=True,
    declares=_declares,
    key_field="_key",
)
