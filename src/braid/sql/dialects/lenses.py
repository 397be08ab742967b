"""Lenses SQL: streaming queries over topics whose keys and values are two facets of a record.

In: the shared grammar. Out: the dialect `LENSES`.
Rule: names keep their case, keywords have none. Both quotes make strings, the back-tick makes names; a hyphen without
blanks around it is part of a name. What is accepted though it is not clean (a comma before FROM, WITHIN twice, `;`
before `)`) is told as a notice; what does not belong in a query is refused with what to write.
"""

from __future__ import annotations

from braid.errors import Span, SqlError
from braid.records.formats.named import CSV, named_in, records_in
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.declare import Declaring, declaration, paths, quoted, typed
from braid.sql.dialects.base import RESERVED, TYPE_ADVICE, Condition, Words
from braid.sql.expressions import comma_list, dotted, expression, in_parentheses, row
from braid.sql.queries import HOWS, amount, relation, star
from braid.sql.statements import asking, create, describing, drop, explain, if_not_exists, insert_into, new_name, show
from braid.sql.tokens import TokenKind
from braid.sql.types import sql_type
from braid.sql.windows import BY
from braid.types import Array, Column, Scalar, Type

FORMATS = ("INT", "LONG", "STRING", "BYTES", *named_in("lenses"))
RECORDS = records_in("lenses")  # whose keys and single values would stand in a record of their own
NO_KEYS = (*RECORDS, CSV)
OTHER_FORMATS = ("XML", "CUSTOM", "TW", "SW")  # Lenses reads them; Braid does not


JOIN_WORDS = ("JOIN", "LEFT", "RIGHT", "INNER", "OUTER", "LATERAL", "EVENTTIME", "WHERE", "WINDOW", "GROUP")


def query(c: Cursor, nested: bool = False) -> ast.Select:
    """A query up to its `;` or, `nested`, up to the `)` of WITH."""
    start = c.index
    c.expect("SELECT")
    kind = _kind(c)
    c.notices = []
    items = _projections(c)
    c.expect("FROM")
    source = relation(c)
    event_time = _event_time(c, source) if c.at("EVENTTIME", "BY") else None
    laterals: list[ast.Lateral] = []
    while c.at("LATERAL"):
        if isinstance(source, ast.Join):
            hint = "join first, in a WITH; then write FROM its name LATERAL ..."
            raise c.error("LATERAL over a join is not possible", c.now, hint)
        laterals.append(_lateral(c))
    where: ast.Expr | None = None
    window: ast.Window | None = None
    group_by: tuple[ast.Expr, ...] = ()
    written: list[str] = []
    while (clause := next((x for x in c.dialect.clauses if c.at(*x.split())), None)) is not None:
        if clause in written:
            raise c.error(f"{clause} is written twice", c.now)
        if clause == "WHERE" and written:
            hint = f"the order is FROM, {', '.join(c.dialect.clauses)}"
            raise c.error(f"WHERE must come before {written[0]}", c.now, hint)
        if clause == "WINDOW BY" and "GROUP BY" in written:
            c.notices.append("WINDOW BY is written behind GROUP BY; Lenses has it before")
        at = c.index
        c.expect(*clause.split())
        written.append(clause)
        match clause:
            case "WHERE":
                where = expression(c)
            case "WINDOW BY":
                window = _window(c, at)
            case _:
                group_by = comma_list(c, expression)
    if nested and c.accept_symbol(";"):
        c.notices.append("the ; before ) is ignored")
    _ended(c, nested, written)
    return ast.Select(
        items, source, c.span(start), kind, event_time=event_time, laterals=tuple(laterals), window=window,
        where=where, group_by=group_by, notices=tuple(c.notices),
    )  # fmt: skip


def _kind(c: Cursor) -> ast.Kind:
    if c.accept("STREAM"):
        return "STREAM"
    if c.accept("TABLE"):
        return "TABLE"
    hint = "SELECT STREAM reads a topic as events, SELECT TABLE as the latest value of each key"
    raise c.unexpected("STREAM or TABLE after SELECT", "STREAM", "TABLE", hint=hint)


def _ended(c: Cursor, nested: bool, written: list[str]) -> None:
    if c.at_end() or c.starts_statement() or (nested and c.at_symbol(")")):
        return
    if c.at("WINDOW"):
        raise c.error("expected BY after WINDOW", c.now, "write WINDOW BY TUMBLE 5m, HOP 5m,1m or SESSION 5m")
    if c.at("GRACE", "BY"):
        hint = "write WINDOW BY TUMBLE 5m GRACE BY 1m GROUP BY …"
        raise c.error("GRACE BY must be behind the window of WINDOW BY", c.now, hint)
    if c.at("HAVING"):
        raise c.error("there is no HAVING in Lenses SQL", c.now, "group in a WITH, then filter its result with WHERE")
    if c.at("WITHIN") or c.at("ON"):
        where = f"before {written[0]}" if written else "behind JOIN"
        raise c.error(f"{c.word()} must be in the join, {where}", c.now)
    if c.word() in JOIN_WORDS[:5]:
        hint = "join two sources in a WITH, then join its name with the third"
        raise c.error("a query joins two sources at most", c.now, hint)
    if c.at_symbol(","):
        raise c.error("a list of sources in FROM is not supported", c.now, "write a JOIN b ON a.x = b.x")
    if c.at("LIMIT"):
        raise c.error("there is no LIMIT in Lenses SQL", c.now, "leave it out: a topic has no end; WHERE filters rows")
    place = f"after {written[-1]}" if written else "after FROM"
    words = (*c.dialect.clauses, "AND", "OR") if written else (*JOIN_WORDS, "AS", "ON", "WITHIN")
    raise c.unexpected(f"a clause or ';' {place}", *words)


# ---------------------------------------------------------------- projections


def _projections(c: Cursor) -> tuple[ast.SelectItem, ...]:
    items = [_projection(c)]
    while c.accept_symbol(","):
        if c.at("FROM"):
            c.notices.append("the comma before FROM is ignored")
            break
        items.append(_projection(c))
    if not c.at("FROM"):
        hint = None
        if c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.word() not in c.dialect.reserved:
            hint = f"a name for the field needs AS: AS {c.now.text}"
        raise c.unexpected("',' or FROM", "FROM", "AS", hint=hint)
    return tuple(items)


def _projection(c: Cursor) -> ast.SelectItem:
    start = c.index
    wildcard = star(c, "the name of a source")
    if wildcard is not None:
        if c.at("AS"):
            hint = "project whole facets with _value AS name and _key AS name"
            raise c.error("a wildcard takes no name", c.now, hint)
        return ast.SelectItem(wildcard, None, c.span(start))
    found = expression(c)
    span = c.span(start)
    return ast.SelectItem(found, None, span, _target(c) if c.accept("AS") else None)


def _target(c: Cursor) -> ast.Name:
    start = c.index
    parts = [c.name("a name, _key or _value after AS")]
    while c.accept_symbol("."):
        if c.at_symbol("*"):
            raise c.error(
                "a target is a field or a facet, not a wildcard", c.now, "write AS name, AS _key or AS _value"
            )
        parts.append(c.name("a field name after '.'"))
        c.check_height(len(parts))
    return ast.Name(tuple(parts), c.span(start))


# ----------------------------------------------------------------------- FROM


def source(c: Cursor) -> ast.Table:
    """`name [AS alias]`."""
    start = c.index
    if c.at_symbol("("):
        hint = "WITH name AS (SELECT ...); first, then write its name"
        raise c.error("a query in FROM is not supported", c.now, hint)
    name = _topic(c, "the name of a topic or of a WITH query")
    alias = c.name("an alias after AS") if c.accept("AS") else None
    bare = alias is None and c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.word() not in c.dialect.never_alias
    if bare and not c.starts_statement():
        raise c.unexpected("JOIN, WHERE or ';'", *JOIN_WORDS, hint=f"an alias needs AS: {name} AS {c.now.text}")
    return ast.Table(name, alias, c.span(start))


def _topic(c: Cursor, expected: str) -> ast.Name:
    """The name of a topic, which may have dots: one name."""
    found = dotted(c, expected)
    return ast.Name((str(found),), found.span)


def join(c: Cursor) -> tuple[ast.How, str] | None:
    """The words up to JOIN."""
    word = c.word()
    if word in ("FULL", "CROSS"):
        hint = "OUTER JOIN keeps the rows of both sides" if word == "FULL" else "every join has a condition: write JOIN"
        raise c.error(f"there is no {word} JOIN in Lenses SQL", c.now, hint)
    if word not in HOWS:
        return None
    if word != "JOIN":
        c.advance()
        if c.at("OUTER", "JOIN"):
            raise c.error(f"unexpected OUTER after {word}", c.now, f"write {word} JOIN")
    c.expect("JOIN")
    return HOWS[word], ""


def condition(c: Cursor, how: ast.How, mark: str, how_span: Span) -> Condition:
    """ON, with WITHIN before or behind it."""
    before = _within(c) if c.at("WITHIN") else None
    on = expression(c) if c.accept("ON") else None
    after = _within(c) if c.at("WITHIN") else None
    if on is None and c.at("ON"):
        raise c.error("WITHIN is written twice", c.now, "write JOIN b ON a.x = b.x WITHIN 5s")
    if c.at("ON"):
        raise c.error("ON is written twice", c.now, "join the conditions with AND")
    if before is not None and after is not None:
        if before.before.ms != after.before.ms:
            raise c.error("WITHIN is written twice, with different durations", after.span, "keep one of them")
        c.notices.append("WITHIN is written twice; once is enough")
    return on, (), before or after


def _within(c: Cursor) -> ast.Within:
    c.expect("WITHIN")
    found = duration(c)
    return ast.Within(found, found, None, found.span)


def duration(c: Cursor) -> ast.Duration:
    """`5s`, `1h`."""
    start, units = c.index, c.dialect.units
    hint = f"write a whole number and a unit ({', '.join(u.lower() for u in units)}), such as 5s or 1h"
    if c.now.kind is not TokenKind.NUMBER:
        raise c.unexpected("a duration, such as 5s or 1h", hint=hint)
    number = c.advance().text
    unit = c.word()
    if unit not in units or not number.isdigit():
        raise _no_duration(c, start, number, hint)
    return amount(c, start, number, unit)


def _no_duration(c: Cursor, start: int, number: str, hint: str) -> SqlError:
    if c.word() and c.word() not in c.dialect.never_alias:
        c.advance()
    return c.error_from(start, f"{number} is not a duration", hint)


def _window(c: Cursor, start: int) -> ast.Window:
    """A kind and its lengths, then GRACE BY."""
    kinds = tuple(BY)
    kind = next((k for k in kinds if c.at(k)), None)
    if kind is None:
        raise c.unexpected(
            f"{', '.join(kinds[:-1])} or {kinds[-1]}", *kinds, hint=f"write WINDOW BY {BY['TUMBLE'].usage}"
        )
    c.advance()
    by = BY[kind]
    lengths: list[tuple[str, ast.Duration]] = []
    for name in by.lengths:
        if lengths:
            c.expect_symbol(",", f"',' and the {name}: {by.usage}")
        lengths.append((name, duration(c)))
    if c.at_symbol(","):
        many = "two lengths" if len(lengths) > 1 else "one length"
        raise c.error(f"{kind} takes {many}", c.now, f"write WINDOW BY {by.usage}")
    grace = None
    if c.at("GRACE", "BY"):
        c.expect("GRACE", "BY")
        grace = duration(c)
    return ast.Window(by.kind, tuple(lengths), None, grace, c.span(start))


def _event_time(c: Cursor, source: ast.Relation) -> ast.Name:
    """`EVENTTIME BY field`."""
    if isinstance(source, ast.Join):
        hint = "WITH name AS (SELECT STREAM * FROM topic EVENTTIME BY field); then join its name"
        raise c.error("EVENTTIME BY over a join is not possible", c.now, hint)
    c.expect("EVENTTIME", "BY")
    return dotted(c, "a field after EVENTTIME BY")


def _lateral(c: Cursor) -> ast.Lateral:
    start = c.index
    c.expect("LATERAL")
    array = expression(c)
    if not c.accept("AS"):
        raise c.unexpected("AS and a name for the elements", "AS", hint="write LATERAL readings AS reading")
    alias = c.name("a name for the elements after AS")
    return ast.Lateral(array, alias, c.span(start))


def _with(c: Cursor) -> ast.Statement:
    """`WITH name AS (SELECT …);`, a statement of its own."""
    start = c.index
    c.expect("WITH")
    name, name_span = new_name(c, "a name for the query")
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
    name = _topic(c, "the name of a topic")
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
            raise c.error("KEY AS must come before VALUE AS", c.now, "write STORE KEY AS STRING VALUE AS JSON")
    if not c.at("SELECT"):
        raise c.unexpected("SELECT, STORE or VALUES", "SELECT", "STORE", "VALUES")
    inner = query(c)
    return ast.InsertSelect(name, inner, c.span(start), (), key, value)


def _stored(c: Cursor, facet: str) -> ast.StoreAs | None:
    if not c.at(facet):
        return None
    c.advance()
    c.expect("AS")
    return _format(c, facet)


def _format(c: Cursor, facet: str) -> ast.StoreAs:
    start = c.index
    known = ", ".join(FORMATS)
    if c.word() in OTHER_FORMATS:
        raise c.error(f"format {c.word()} is not supported yet", c.now, f"formats are {known}")
    if facet == "KEY" and c.word() in NO_KEYS:
        hint = f"write {' or '.join(f for f in FORMATS if f not in NO_KEYS)}"
        raise c.error(f"keys in format {c.word()} are not supported", c.now, hint)
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
    exists = if_not_exists(c)
    made = _topic(c, "the name of a topic")
    name, name_span = str(made), made.span
    fields = _fields(c) if c.at_symbol("(") else ()
    if not c.at("FORMAT"):
        hint = "write FORMAT (STRING, JSON): the formats of key and value"
        raise c.unexpected("FORMAT" if fields else "'(' and fields, or FORMAT", "FORMAT", hint=hint)
    c.expect("FORMAT")
    opened = c.expect_symbol("(")
    key = _format(c, "KEY")
    c.expect_symbol(",", "',' and the format of the value")
    value = _format(c, "VALUE")
    c.close(opened, ")")
    properties = in_parentheses(c, _property) if c.accept("PROPERTIES") else ()
    return ast.CreateTopic(kind, name, fields, key, value, properties, exists, c.span(start), name_span)


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
    """`a.b TYPE`; behind `[]` comes a field of an array's elements: `lines[].sku STRING`."""
    start = c.index
    path: list[str | None] = [*_path(c).parts]
    while c.accept_symbol("["):
        c.expect_symbol("]", "']': lines[].sku STRING is a field of each element")
        path.append(None)
        if c.accept_symbol("."):
            path += _path(c).parts
    c.check_height(len(path))
    return ast.FieldDef(tuple(path), _type(c), c.span(start))


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


_NO_CHANGE = "a topic gets records by INSERT INTO ... VALUES; the last one of a key is current"

LENSES = Words(
    name="lenses",
    title="Lenses SQL",
    fold=str,
    statements={
        "SELECT": asking(query),
        "WITH": _with,
        "INSERT": _insert,
        "SET": _set,
        "CREATE": create,
        "DROP": drop,
        "SHOW": show,
        "DESCRIBE": describing("a stream or table", extended=True),
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
    clauses=("WHERE", "WINDOW BY", "GROUP BY"),
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
        ("TUMBLE", "("): "write WINDOW BY TUMBLE 5m before GROUP BY",
        ("HOP", "("): "write WINDOW BY HOP 5m,1m before GROUP BY: the size, then the advance",
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
    never_alias=RESERVED | {"LATERAL", "EVENTTIME", "WINDOW", "GRACE", "LIMIT", "ORDER", "UNION", "EMIT"},
    spelled={Scalar.INT: "INT", Scalar.BIGINT: "LONG", Scalar.VARCHAR: "STRING", Scalar.TIME: None},
    array="{}[]",
    keyed_tables=True,
    declares=_declares,
    key_field="_key",
)
