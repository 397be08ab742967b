"""Text for DuckDB: the one place that quotes names and literals.

In: names and values as the user wrote them. Out: pieces of SQL in which no text of the user is anything but a value.
Rule: a relation or column of the user never goes by its own name: `token` makes one of letters, digits and `_` from it,
which no other name makes, whatever its case. So DuckDB finds what Braid has bound, and nothing else.
"""

from __future__ import annotations

import re
from decimal import Decimal

from braid.errors import SqlError

_PLAIN = re.compile(r"[a-z0-9]")
_TOKEN = re.compile(r'"?\b[a-z][0-9]*__((?:[a-z0-9]|_[0-9a-f]+_)*)(?![A-Za-z0-9_])"?')
_ESCAPED = re.compile(r"_([0-9a-f]+)_")


def quoted(text: str, quote: str) -> str:
    """`text` within quotes, each of them inside doubled."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SqlError("a text holds half a character (a surrogate)", hint="write the character itself") from None
    return quote + text.replace(quote, quote * 2) + quote


def name(text: str) -> str:
    """An identifier."""
    return quoted(text, '"')


def literal(value: object) -> str:
    """A constant: a text, a number, TRUE, FALSE or NULL; its type is the one that it has in the dialect."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return quoted(value, "'")
        case int():
            return str(value) if value >= 0 else f"({value})"
        case float():
            shown = repr(value)
            shown = shown if "e" in shown else f"{shown}e0"
            return shown if value >= 0 else f"({shown})"
        case Decimal():
            shown = format(value, "f")
            shown = shown if "." in shown else f"{shown}."
            return shown if value >= 0 else f"({shown})"
    raise AssertionError(f"a literal of {type(value).__name__}")


def token(kind: str, of: str) -> str:
    """A name for what the user calls `of`; `kind`: a letter, and a number where several are called so."""
    return f"{kind}__{''.join(c if _PLAIN.match(c) else f'_{ord(c):x}_' for c in of)}"


def untoken(message: str) -> str:
    """A message of DuckDB with the user's names."""
    return _TOKEN.sub(lambda m: _ESCAPED.sub(lambda e: chr(int(e[1], 16)), m[1]), message)
