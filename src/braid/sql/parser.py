"""From SQL text to a `Script`: the first stage.

In: the text and the words of its dialect. Out: the statements as written, or `SqlError` with the place.
Rule: whatever the text, only a `SqlError` comes out of it; nothing that is written is ever ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from braid.errors import SqlError
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.dialects.base import Words
from braid.sql.statements import left_over, statement
from braid.sql.tokens import Lexer, SourceText, TokenKind
from braid.types import Type

_DIALECT_LINE = re.compile(r"\ufeff?[ \t]*--[ \t]*dialect[ \t]*:[ \t]*([^\s;]*)[ \t]*(?:\r|\n|$)", re.IGNORECASE)


def parse(
    text: str, words: Words, variables: dict[str, str] | None = None, types: Mapping[str, Type] | None = None
) -> ast.Script:
    """All statements; raises the first problem. `variables` (DEFINE) are read and written, to go on over many calls.
    `types`: those that CREATE TYPE has given names to before."""
    statements: list[ast.Statement] = []
    defined: list[dict[str, str]] = []
    known = variables if variables is not None else {}
    for found in _each(text, words, known, types):
        if isinstance(found, SqlError):
            raise found
        statements.append(found)
        defined.append(dict(known))
    return ast.Script(text, tuple(statements), tuple(defined))


def parse_all(
    text: str, words: Words, variables: dict[str, str] | None = None, types: Mapping[str, Type] | None = None
) -> tuple[ast.Script, list[SqlError]]:
    """The statements that can be read, and every problem: after one, reading goes on behind the next `;`."""
    statements: list[ast.Statement] = []
    errors: list[SqlError] = []
    defined: list[dict[str, str]] = []
    known = variables if variables is not None else {}
    for found in _each(text, words, known, types):
        if isinstance(found, SqlError):
            errors.append(found)
        else:
            statements.append(found)
            defined.append(dict(known))
    return ast.Script(text, tuple(statements), tuple(defined)), errors


def dialect_of(text: str) -> str | None:
    """The dialect that a first line `-- dialect: NAME` names."""
    m = _DIALECT_LINE.match(text)
    return m[1].lower() if m else None


@lru_cache(maxsize=1 << 16)  # a statement is compared with all that stand
def plain(text: str, words: Words) -> str | None:
    """A statement's words with one blank between them and without comments; None where it names a variable, which may
    hold something else next time."""
    if "${" in text:
        return None
    tokens = _lexer(text, words, None).statement()
    return " ".join(words.fold(t.text) if t.kind is TokenKind.WORD else t.text for t in tokens or ())


def _lexer(text: str, words: Words, variables: dict[str, str] | None) -> Lexer:
    glued = words.units if words.glued_units else ()
    names, inside = words.name_quotes, words.ends_inside
    return Lexer(text, names, variables, words.hyphens, glued, inside, words.symbols, words.postgres)


def _each(
    text: str, words: Words, variables: dict[str, str], types: Mapping[str, Type] | None
) -> Iterator[ast.Statement | SqlError]:
    made = dict(types or {})
    source = SourceText(text)
    lexer = _lexer(text, words, variables if words.has_variables else None)
    while (tokens := lexer.statement()) is not None:
        c = Cursor(source, tokens, words, variables, made)
        while not c.at_end():
            found = _one(c)
            if isinstance(found, SqlError):
                yield found
                break
            if c.at_end() or c.starts_statement():
                if found is not None:
                    yield found
                if not c.at_end():  # a ';' is missing: tell it, and go on with what follows
                    yield left_over(c)
            else:
                yield left_over(c)
                break


def _one(c: Cursor) -> ast.Statement | SqlError | None:
    try:
        return statement(c)
    except SqlError as problem:
        return problem
    except RecursionError:  # MAX_DEPTH keeps us from it, unless the caller has used up most of the stack
        return c.error("the statement is nested too deeply", c.now, "use several statements")
