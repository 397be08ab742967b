"""The grammar of statements around queries: definitions, rows, commands.

In: a cursor at the first word of a statement. Out: the statement, with the cursor behind it.
Rule: one function per statement, listed by its first word in the dialects that have it. The caller checks that nothing
is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from braid.errors import Span, SqlError
from braid.sql import ast
from braid.sql.constants import literal
from braid.sql.cursor import Cursor
from braid.sql.dialects.base import StatementRule
from braid.sql.expressions import column_name, comma_list, in_parentheses, plain_name, row
from braid.sql.queries import query
from braid.sql.tokens import TokenKind
from braid.sql.types import sql_type
from braid.types import Scalar


def statement(c: Cursor) -> ast.Statement | None:
    """One statement; None where it leaves nothing to run (DEFINE)."""
    rules = c.dialect.statements
    begins_query = c.dialect.postgres and c.at_symbol("(")
    rule = rules.get("SELECT" if begins_query else c.word())
    if rule is None:
        hint = c.dialect.foreign_starts.get(c.word()) or f"statements start with {', '.join(rules)}"
        raise c.unexpected("a statement", *rules, hint=hint)
    return rule(c)


def unsupported(c: Cursor, what: str, start: int) -> ast.Unsupported:
    """A statement that is known but not run: taken to its end, refused by name when bound."""
    while not c.at_end():
        c.advance()
    return ast.Unsupported(what, c.span(start))


def never(c: Cursor, what: str, start: int) -> ast.Unsupported:
    """A statement that is known and could not be right here."""
    return replace(unsupported(c, what, start), never=True)


# -------------------------------------------------------------- CREATE, DROP


def create(c: Cursor) -> ast.Statement:
    start, creates = c.index, c.dialect.creates
    c.expect("CREATE")
    or_replace = c.accept("OR", "REPLACE")
    if c.at("OR"):
        c.advance()
        raise c.unexpected("REPLACE", "REPLACE", hint="write CREATE OR REPLACE, or CREATE")
    rule = creates.get(c.word())
    if rule is None:
        raise c.unexpected(one_of(c.dialect.kinds), *creates, hint=_kind_hint(c, "CREATE"))
    return rule(c, start, or_replace)


def create_source(c: Cursor, start: int, or_replace: bool) -> ast.Statement:
    """CREATE STREAM | TABLE, with columns or AS SELECT."""
    kind = kind_of_source(c)
    exists = if_not_exists(c)
    name, name_span = new_name(c, f"the name of the {kind.lower()}")
    columns: tuple[ast.ColumnDef, ...] = ()
    columns_start = c.index
    if c.at_symbol("("):
        if c.ahead(1).text == ")":
            raise c.error("the list of columns is empty", c.ahead(1), "leave the parentheses out, or write name TYPE")
        columns = in_parentheses(c, _column)
        columns_span = c.span(columns_start)
    properties = with_properties(c)
    if c.accept("AS"):
        if columns:
            message = f"CREATE {kind} ... AS SELECT takes no columns"
            raise c.error(message, columns_span, "the SELECT gives names and types: rename with AS, convert with CAST")
        if not c.at("SELECT"):
            raise c.unexpected("SELECT after AS", "SELECT")
        inner = query(c)
        return ast.CreateAs(kind, name, properties, inner, or_replace, exists, c.span(start), name_span)
    if c.at("SELECT"):
        raise c.error("AS is missing before SELECT", c.now, f"write CREATE {kind} {name} AS SELECT ...")
    if not c.at_end() and not c.starts_statement():
        if properties:
            raise c.unexpected("AS or ';'", "AS")
        raise c.unexpected("WITH or ';'" if columns else "'(' and columns, WITH, AS or ';'", "WITH", "AS")
    return ast.CreateSource(kind, name, columns, properties, or_replace, exists, c.span(start), name_span)


def kind_of_source(c: Cursor) -> ast.Kind:
    if c.accept("STREAM"):
        return "STREAM"
    if c.accept("TABLE"):
        return "TABLE"
    raise c.unexpected("STREAM or TABLE", "STREAM", "TABLE", hint=_kind_hint(c, "DROP"))


def if_not_exists(c: Cursor) -> bool:
    """IF NOT EXISTS, if it is there."""
    found = c.at("IF", "NOT")
    if found:
        c.expect("IF", "NOT", "EXISTS")
    return found


def if_exists(c: Cursor) -> bool:
    """IF EXISTS, if it is there."""
    found = c.at("IF") and c.ahead(1).kind in (TokenKind.WORD, TokenKind.NAME)
    if found:
        c.expect("IF", "EXISTS")
    return found


def new_name(c: Cursor, expected: str) -> tuple[str, Span]:
    start = c.index
    name = c.name(expected)
    return name, c.span(start)


def one_of(words: Sequence[str]) -> str:
    """`A, B or C`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _kind_hint(c: Cursor, verb: str) -> str | None:
    """Advice where the kind of thing is missing: the name stands in its place."""
    after = c.ahead(1)
    named = after.kind is TokenKind.END or after.text in ("(", ";") or after.value in ("AS", "WITH", "DELETE")
    if c.now.kind in (TokenKind.WORD, TokenKind.NAME) and named:
        return f"write {verb} {c.dialect.kinds[0]} {c.now.text}"
    return c.dialect.foreign_starts.get(c.word())


def _column(c: Cursor) -> ast.ColumnDef:
    """`name TYPE [KEY | PRIMARY KEY | HEADERS | HEADER('h')]`."""
    start = c.index
    if c.at("PRIMARY", "KEY") and c.ahead(2).text == "(":
        raise c.error("PRIMARY KEY comes behind a column here", c.now, "write id INT PRIMARY KEY, at each key column")
    name = c.name("the name of a column")
    column_type = sql_type(c)
    if c.accept("KEY"):
        return ast.ColumnDef(name, column_type, "KEY", c.span(start))
    if c.accept("PRIMARY"):
        c.expect("KEY")
        return ast.ColumnDef(name, column_type, "PRIMARY KEY", c.span(start))
    if c.accept("HEADERS"):
        return ast.ColumnDef(name, column_type, "HEADERS", c.span(start))
    if c.accept("HEADER"):
        opened = c.expect_symbol("(")
        header = c.string("the name of the header in single quotes")
        c.close(opened, ")")
        return ast.ColumnDef(name, column_type, "HEADERS", c.span(start), header)
    if c.at("NOT", "NULL"):
        raise c.error("NOT NULL is not supported", c.now, "leave it out; filter with WHERE x IS NOT NULL")
    if not c.at_symbol(",") and not c.at_symbol(")"):
        raise c.unexpected("',' or ')'", "KEY", "PRIMARY KEY", "HEADERS", "HEADER")
    return ast.ColumnDef(name, column_type, "VALUE", c.span(start))


def with_properties(c: Cursor) -> tuple[ast.Property, ...]:
    """WITH (name = constant, …), if it is there."""
    if not c.accept("WITH"):
        return ()
    found = in_parentheses(c, _property)
    seen: set[str] = set()
    for p in found:
        if p.name in seen:
            raise c.error(f"property {p.name} is written twice", p.span)
        seen.add(p.name)
    return found


def _property(c: Cursor) -> ast.Property:
    start = c.index
    if c.now.kind not in (TokenKind.WORD, TokenKind.NAME, TokenKind.STRING):
        raise c.unexpected("the name of a property")
    name = c.advance().value.upper()
    c.expect_symbol("=")
    bare = c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.word() not in ("NULL", "TRUE", "FALSE")
    if bare:
        token = c.now
        if name not in c.dialect.bare_properties:
            meant = token.text.strip('`"')
            raise c.error(f"the value of {name} must be a constant", token, f"write {name} = '{meant}'")
        value_start = c.index
        value = ast.Literal(c.name("a column name"), Scalar.VARCHAR, c.span(value_start))
    else:
        value = literal(c)
    return ast.Property(name, value, c.span(start))


def drop(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("DROP")
    kind = kind_of_source(c)
    exists = if_exists(c)
    name = plain_name(c, f"the name of the {kind.lower()}")
    delete_topic = c.accept("DELETE")
    if delete_topic:
        c.expect("TOPIC")
    return ast.Drop(kind, (name,), exists, c.span(start), delete_topic)


# ------------------------------------------------------------- SELECT, INSERT


def asking(query: Callable[[Cursor], ast.Select]) -> StatementRule:
    """A query alone."""

    def rule(c: Cursor) -> ast.Statement:
        start = c.index
        return ast.Ask(query(c), c.span(start))

    return rule


def insert_into(c: Cursor) -> None:
    c.expect("INSERT")
    if not c.accept("INTO"):
        raise c.unexpected("INTO", "INTO", hint="write INSERT INTO name …")


def insert(c: Cursor) -> ast.Statement:
    start = c.index
    insert_into(c)
    name = plain_name(c, "the name of a stream or table")
    properties = with_properties(c)
    if properties and not c.at("SELECT"):
        raise c.unexpected("SELECT", "SELECT", hint="VALUES take no properties")
    if c.at("SELECT"):
        inner = query(c)
        return ast.InsertSelect(name, inner, c.span(start), properties=properties)
    columns: tuple[ast.Name, ...] = ()
    if c.at_symbol("("):
        columns = in_parentheses(c, column_name)
        if c.at("SELECT"):
            hint = "the SELECT gives the columns their names: rename them there with AS"
            raise c.error("INSERT INTO ... SELECT takes no list of columns", c.now, hint)
    if not c.accept("VALUES"):
        raise c.unexpected("VALUES" if columns else "SELECT, VALUES or '('", "SELECT", "VALUES")
    rows = comma_list(c, row)
    return ast.InsertValues(name, columns, rows, c.span(start))


# ------------------------------------------------------------------- commands


def show(c: Cursor) -> ast.Statement:
    """SHOW | LIST …"""
    start = c.index
    c.advance()
    shows, others = c.dialect.shows, c.dialect.shows_unsupported
    what = c.word()
    if what in shows and not c.at(what, "EXTENDED"):
        c.advance()
        return ast.Show(what, c.span(start))
    if what in shows or what in others:
        second = c.ahead(1)
        longer = f"{what} {second.value}" if second.kind is TokenKind.WORD else what
        return unsupported(c, f"SHOW {longer}", start)
    hint = c.dialect.foreign.get(("SHOW", what))
    raise c.unexpected(f"one of {', '.join(shows)}", *shows, *others, hint=hint)


def no_kind(c: Cursor, verb: str) -> None:
    """Refuses `DESCRIBE STREAM x`: the name says what it is."""
    after = c.ahead(1)
    if c.word() in ("STREAM", "TABLE", "VIEW", "SOURCE", "TOPIC") and after.kind in (TokenKind.WORD, TokenKind.NAME):
        raise c.error(f"{verb} takes the name alone", c.now, f"write {verb} {after.text}")


def describing(
    what: str, name: Callable[[Cursor, str], ast.Name] = plain_name, extended: bool = False
) -> StatementRule:
    """DESCRIBE name. `extended`: DESCRIBE [EXTENDED] name, DESCRIBE FUNCTION name."""

    def rule(c: Cursor) -> ast.Statement:
        start = c.index
        c.expect("DESCRIBE")
        more = extended and c.ahead(1).kind in (TokenKind.WORD, TokenKind.NAME)
        if more and c.word() in ("FUNCTION", "CONNECTOR"):
            if c.word() == "CONNECTOR" or "FUNCTIONS" not in c.dialect.shows:
                return (never if c.word() == "CONNECTOR" else unsupported)(c, f"DESCRIBE {c.word()}", start)
            c.advance()
            return ast.DescribeFunction(c.name("the name of a function").upper(), c.span(start))
        before = more and c.accept("EXTENDED")
        no_kind(c, "DESCRIBE")
        found = name(c, f"the name of {what}")
        behind = extended and c.accept("EXTENDED")
        return ast.Describe(found, before or behind, c.span(start))

    return rule


def explain(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("EXPLAIN")
    if c.word() in ("SELECT", "CREATE", "INSERT"):
        inner = statement(c)
        assert inner is not None
        return ast.Explain(inner, c.span(start))
    if c.starts_statement():
        hint = "EXPLAIN takes a query: its name, or SELECT, CREATE ... AS SELECT, INSERT INTO"
        raise c.error(f"EXPLAIN {c.word()} is not possible", c.now, hint)
    name = plain_name(c, "the name of a query, SELECT, CREATE or INSERT")
    return ast.Explain(name, c.span(start))


def quoted_set(c: Cursor) -> ast.Statement:
    """SET 'k' = 'v'."""
    start, hint = c.index, "write SET 'name' = 'value';"
    c.expect("SET")
    name = c.string("the name of a setting in single quotes", hint)
    if not c.at_symbol("="):
        raise c.unexpected("'='", hint=hint)
    c.advance()
    value = c.string("a value in single quotes", hint)
    return ast.Set(name, value, c.span(start))


def quoted_unset(c: Cursor) -> ast.Statement:
    start = c.index
    c.expect("UNSET")
    name = c.string("the name of a setting in single quotes", "write UNSET 'name';")
    return ast.Unset(name, c.span(start))


def left_over(c: Cursor) -> SqlError:
    """Behind a whole statement something other than `;` stands."""
    if c.starts_statement():
        return c.error(f"a ';' is missing before {c.now.text}", c.now, "statements end with ;")
    return c.unexpected("';'")
