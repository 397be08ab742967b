"""What stands behind a table or sink in risingwave: WITH (…) and FORMAT … ENCODE ….

In: tokens. Out: properties with constant values; a format.
Rule: the name of a property is any words with dots between them; a connection is referred to by its name.
"""

from __future__ import annotations

from braid.records.formats.named import named_in
from braid.sql import ast
from braid.sql.constants import literal
from braid.sql.cursor import Cursor
from braid.sql.dialects.risingwave_queries import relation_name
from braid.sql.tokens import TokenKind
from braid.types import Scalar


def with_properties(c: Cursor) -> tuple[ast.Property, ...]:
    """WITH (a.b = constant, …)."""
    c.expect("WITH")
    return _properties(c)


def _properties(c: Cursor) -> tuple[ast.Property, ...]:
    """`(a.b = constant, …)`. A comma may stand before the end."""
    opened, found = c.expect_symbol("("), [_property(c)]
    while c.accept_symbol(",") and not c.at_symbol(")"):
        found.append(_property(c))
    c.close(opened, ")", "',' or ')'")
    return tuple(found)


def _property(c: Cursor) -> ast.Property:
    start = c.index
    quoted = c.now.kind is TokenKind.STRING
    name = c.advance().value if quoted else c.label("the name of a property")
    while c.accept_symbol("."):
        name = f"{name}.{c.label('the name of a property')}"
    c.expect_symbol("=")
    if name.lower() == "connection":
        if c.now.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise c.error("connection is a name", c.now, "write connection = name, without quotes")
        at = c.index
        ref = relation_name(c, "the name of a connection")
        return ast.Property("connection", ast.Literal(str(ref), Scalar.VARCHAR, c.span(at)), c.span(start), ref)
    if c.at("SECRET") and c.ahead(1).kind is TokenKind.WORD:
        hint = "write password = '$NAME', of the environment, or '@FILE'; of other settings leave it out"
        raise c.error("SECRET is not supported yet", c.now, hint)
    if c.now.kind is TokenKind.WORD and c.word() not in ("NULL", "TRUE", "FALSE"):
        at = c.index
        value = ast.Literal(c.advance().text, Scalar.VARCHAR, c.span(at))
    else:
        value = literal(c)
    return ast.Property(name, value, c.span(start))


def format_of(c: Cursor) -> ast.Encode:
    """FORMAT PLAIN | UPSERT | DEBEZIUM ENCODE format [(…)]."""
    c.expect("FORMAT")
    if c.word() not in ("PLAIN", "UPSERT", "DEBEZIUM"):
        raise c.error(f"FORMAT {c.now.text} is not supported yet", c.now, "write FORMAT PLAIN ENCODE JSON")
    kind = c.advance().value
    c.expect("ENCODE")
    if c.word() not in (formats := named_in("risingwave")):
        hint = f"write ENCODE {', '.join(formats[:-1])} or {formats[-1]}"
        raise c.error(f"ENCODE {c.now.text} is not supported yet", c.now, hint)
    start, word = c.index, c.word()
    c.advance()
    span = c.span(start)
    return ast.Encode(word, span, _properties(c) if c.at_symbol("(") else (), kind)


_ROW_FORMATS = {"JSON": "PLAIN", "UPSERT_JSON": "UPSERT", "DEBEZIUM_JSON": "DEBEZIUM"}


def row_format(c: Cursor) -> ast.Encode:
    """ROW FORMAT JSON: what FORMAT PLAIN ENCODE JSON was once called."""
    start = c.index
    c.expect("ROW", "FORMAT")
    if (kind := _ROW_FORMATS.get(c.word())) is None:
        c.advance()
        hint = "write FORMAT PLAIN ENCODE, the format and its settings in parentheses"
        raise c.error_from(start, "ROW FORMAT of this format is not supported", hint)
    c.advance()
    return ast.Encode("JSON", c.span(start), (), kind)
