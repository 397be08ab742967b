"""What went wrong, where, and what to write instead.

In: a message, a span of the SQL text and a hint. Out: one text for a terminal, with the line and a caret.
Rule: every error a user can cause is a `BraidError`, but for what ends a run; anything else is a bug of ours.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

# What a terminal would carry out instead of showing it, and what has no UTF-8: control characters (but for tabs), marks
# that turn the direction of text, other line ends, halves of surrogate pairs.
_UNSEEN = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


# What may be a secret in any text of an error: user and password of an address, what is asked of it, and what stands
# behind `password=` and the like. `$NAME` and `@FILE` only refer to one; USER and PASSWORD are words of hints. What is
# looked through again from each place has a bound, or a long text would take hours.
_QUOTED = r"""'(?:[^'\\]|\\.|'')*'?|"[^"]*"?"""
_SECRETS = (
    (re.compile(r"(://)(?!USER(?::PASSWORD)?@|@)(?:(?!://)[^\s'\"<>]){0,1000}(?=@)"), r"\1***"),
    (re.compile(r"(://(?:(?!://)[^\s'\"<>?#]){0,1000}\?)(?!sslmode=\w+(?=[\s'\"#]|$))[^\s'\"<>#]+"), r"\1***"),
    (
        re.compile(
            r"((?:pass(?:w\w{0,30}|phrase)|pas\w?w\w{0,30}|pwd|secret\w{0,30}|token"
            r"|(?:secret|access|api|account)[._-]?key\w{0,30}|credential\w{0,30}|sig|signature|x-amz-\w{1,60})"
            r"(?:\s*=\s*(?=['\"])|=))(?!['\"]?[$@…*])"
            rf"(?:{_QUOTED}|[^\s'\"&,;)]+)",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
)


def without_secrets(text: str) -> str:
    """The text with stars in place of what may be a secret."""
    if "=" not in text and "://" not in text:
        return text
    for secret, instead in _SECRETS:
        text = secret.sub(instead, text)
    return text


def printable(text: str) -> str:
    """A text in one line that a terminal shows and does nothing else with: what cannot be seen as `\\x1b`."""
    return _UNSEEN.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def escaped(text: str) -> str:
    """JSON in one line that means the same and that a terminal only shows."""
    return text if text.isprintable() else _UNSEEN.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def printable_lines(text: str) -> str:
    """The same, of a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def anew(checkpoint: str = "QUERY") -> str:
    """What lets a query begin anew, for hints; by the folder of its checkpoint, which has its name. No hint says to
    take that folder away: all results would come once more into the output."""
    return f"braid reset {os.path.basename(checkpoint)} lets it begin again"


class Span(NamedTuple):
    """A piece of SQL text: `start` and `end` are offsets into it, `line` and `column` (from 1) are those of `start`."""

    start: int
    end: int
    line: int
    column: int


class BraidError(Exception):
    """A user's error outside SQL: a missing file, a checkpoint of another query, a store in use."""

    def __init__(self, message: str, hint: str | None = None, details: Sequence[str] = ()) -> None:
        """`details`: lines of their own behind the message."""
        message, hint = without_secrets(message), hint and without_secrets(hint)
        details = [without_secrets(line) for line in details]
        super().__init__(message, hint, details)
        self.message = message
        self.hint = hint
        self.details = details

    def render(self) -> str:
        """The text for the terminal."""
        hint = [f"  hint: {printable(self.hint)}"] if self.hint else []
        return "\n".join([f"error: {printable(self.message)}", *map(printable, self.details), *hint])

    def __str__(self) -> str:
        return self.render().removeprefix("error: ")


def all_of(what: str, found: Sequence[BraidError]) -> BraidError:
    """One error that tells all that was found, each with its hint. `what`: of what they are the reasons."""
    if len(found) == 1:
        return found[0]
    details = [line for e in found for line in (f"  {e.message}", *([f"    hint: {e.hint}"] if e.hint else []))]
    return BraidError(f"{what}: {len(found)} problems", None, details)


class QueryRefused(BraidError):
    """One query cannot go on; others of the same run can."""


class TakenOver(BraidError):
    """Another driver has taken the query over: this one writes nothing more."""


class Away(BraidError):
    """A server does not answer, or is not ready. Later it may be otherwise: a query that runs waits."""


class SqlError(BraidError):
    """A statement that is refused. `line` and `column` count from 1; None where no place is known."""

    def __init__(
        self, message: str, span: Span | None = None, hint: str | None = None, text: str | None = None
    ) -> None:
        super().__init__(printable(message), hint)
        self.span = span
        self.text = text
        self.shown: str | None = None  # the text as people may see it
        self.file = ""

    @property
    def line(self) -> int | None:
        return self.span.line if self.span else None

    @property
    def column(self) -> int | None:
        return self.span.column if self.span else None

    def with_text(self, text: str) -> SqlError:
        """The same error, able to show its line of `text`."""
        if self.text is None:
            self.text = text
        return self

    def within(self, file: str) -> SqlError:
        """The same error, of a text that stands in a file of its own ("": it does not)."""
        self.file = self.file or file
        return self

    def render(self) -> str:
        if self.span is None:
            return super().render()
        place = f"  at line {self.span.line}, column {self.span.column}"
        lines = [f"error: {self.message}", place + (f" of {printable(self.file)}" if self.file else "")]
        source = self.text.splitlines() if self.shown is None and self.text else (self.shown or "").splitlines()
        shown = source[self.span.line - 1] if self.span.line <= len(source) else ""
        if shown.strip():
            width = max(1, min(self.span.end - self.span.start, len(shown) - self.span.column + 1))
            pad = "".join("\t" if c == "\t" else " " for c in shown[: self.span.column - 1])
            lines += [f"    {_UNSEEN.sub('?', without_secrets(shown))}", f"    {pad}{'^' * width}"]
        if self.hint:
            lines.append(f"  hint: {printable(self.hint)}")
        return "\n".join(lines)


class UnknownColumn(SqlError):
    """A name that no source of the query has."""

    def in_quotes(self, text: str) -> UnknownColumn:
        """Where the name stands in double quotes, a text may be meant."""
        if self.span is not None and text[self.span.start : self.span.start + 1] == '"':
            meant = text[self.span.start + 1 : self.span.end - 1].replace("'", "''")
            said, hint = f"a text is written in single quotes: '{meant}'", self.hint or ""
            if not hint.upper().rstrip('?"`').endswith(meant.upper()):  # only its case is another
                self.hint = f"{hint} {said}" if hint.endswith("?") else said
        return self


class QueryDied(Exception):
    """A query failed while it ran; the message says why. Exit code 2."""


class TooManyDrops(Exception):
    """A run dropped more rows than `--max-drops` allows. Exit code 3."""


def library(name: str, kind: str) -> Any:
    """What a kind of sink, of table or of store needs beside Braid."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise BraidError(f"{kind}: needs {name}", f"pip install 'braid-sql[{kind}]'") from None
