"""From SQL text to a `Script`: the first stage.

In: the text and the words of its dialect. Out: the statements as written, or `SqlError` with the place.
Rule: whatever the text, only a `SqlError` comes out of it; nothing that is written is ever ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from posixpath import normpath

from braid.errors import BraidError, SqlError
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.dialects.base import Words
from braid.sql.secrets import hidden
from braid.sql.statements import left_over, statement
from braid.sql.tokens import SourceText, TokenKind
from braid.types import Type

_DIALECT_LINE = re.compile(r"\ufeff?[ \t]*--[ \t]*dialect[ \t]*:[ \t]*([^\s;]*)[ \t]*(?:\r|\n|$)", re.IGNORECASE)


Scripts = Callable[[str], str]  # the text of a file that RUN SCRIPT names
DEEPEST = 10  # scripts that run scripts


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading a text goes by and writes to: `variables` of DEFINE, `types` of CREATE TYPE."""

    words: Words
    variables: dict[str, str]
    types: dict[str, Type]
    scripts: Scripts | None = None


def parse(
    text: str,
    words: Words,
    variables: dict[str, str] | None = None,
    types: Mapping[str, Type] | None = None,
    scripts: Scripts | None = None,
) -> ast.Script:
    """All statements; raises the first problem. `variables` (DEFINE) are read and written, to go on over many calls.
    `types`: those that CREATE TYPE has given names to before. `scripts`: reads the files of RUN SCRIPT."""
    script, problems = _script(text, words, variables, types, scripts, True)
    if problems:
        raise problems[0]
    return script


def parse_all(
    text: str,
    words: Words,
    variables: dict[str, str] | None = None,
    types: Mapping[str, Type] | None = None,
    scripts: Scripts | None = None,
) -> tuple[ast.Script, list[SqlError]]:
    """The statements that can be read, and every problem: after one, reading goes on behind the next `;`."""
    return _script(text, words, variables, types, scripts, False)


def _script(
    text: str,
    words: Words,
    variables: dict[str, str] | None,
    types: Mapping[str, Type] | None,
    scripts: Scripts | None,
    first: bool,
) -> tuple[ast.Script, list[SqlError]]:
    statements: list[ast.Statement] = []
    defined: list[dict[str, str]] = []
    places: list[tuple[str, str]] = []
    errors: list[SqlError] = []
    known = Reading(words, variables if variables is not None else {}, dict(types or {}), scripts)
    for found, place in _each(text, known, ""):
        if isinstance(found, SqlError):
            errors.append(hidden(found.within(place[1]), words))
            if first:
                break
        else:
            statements.append(found)
            defined.append(dict(known.variables))
            places.append(place)
    return ast.Script(text, tuple(statements), tuple(defined), tuple(places)), errors


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
    tokens = words.lexer(text, None).statement()
    return " ".join(words.fold(t.text) if t.kind is TokenKind.WORD else t.text for t in tokens or ())


def _each(
    text: str, known: Reading, file: str, within: tuple[str, ...] = ()
) -> Iterator[tuple[ast.Statement | SqlError, tuple[str, str]]]:
    """What can be read and what cannot, with its text and file. `within`: the scripts that are being read."""
    source, words, place = SourceText(text), known.words, (text, file)
    lexer = words.lexer(text, known.variables if words.has_variables else None)
    while (tokens := lexer.statement()) is not None:
        c = Cursor(source, tokens, words, known.variables, known.types)
        while not c.at_end():
            found = _one(c)
            if isinstance(found, SqlError):
                yield found, place
                break
            if c.at_end() or c.starts_statement():
                if isinstance(found, ast.RunScript):
                    yield from _run(found, c, known, place, within)
                elif found is not None:
                    yield found, place
                if not c.at_end():  # a ';' is missing: tell it, and go on with what follows
                    yield left_over(c), place
            else:
                yield left_over(c), place
                break


def _run(
    s: ast.RunScript, c: Cursor, known: Reading, place: tuple[str, str], within: tuple[str, ...]
) -> Iterator[tuple[ast.Statement | SqlError, tuple[str, str]]]:
    """The statements of a file, in the place of RUN SCRIPT."""
    if known.scripts is None:
        yield c.error("RUN SCRIPT is for braid run and the prompt", s.path_span, "execute the text of the file"), place
        return
    name = normpath(s.path)
    if name in within:
        yield c.error(f"{s.path} runs itself", s.path_span, f"it is run by {' -> '.join((*within, name))}"), place
        return
    if len(within) == DEEPEST:
        yield c.error(f"scripts run scripts, {DEEPEST} deep", s.path_span, "run them one after the other"), place
        return
    try:
        text = known.scripts(s.path)
    except BraidError as e:
        yield c.error(e.message, s.path_span, e.hint), place
        return
    yield from _each(text, known, s.path, (*within, name))


def _one(c: Cursor) -> ast.Statement | SqlError | None:
    try:
        return statement(c)
    except SqlError as problem:
        return problem
    except RecursionError:  # MAX_DEPTH keeps us from it, unless the caller has used up most of the stack
        return c.error("the statement is nested too deeply", c.now, "use several statements")
