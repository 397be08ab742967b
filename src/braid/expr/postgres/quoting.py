"""PostgreSQL's functions that quote: literals, names, FORMAT.

In: texts. Out: rows, by their plan names.
Rule: PostgreSQL's; a name is quoted where PostgreSQL 15 would not read it as one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from braid.expr.postgres.base import plain, takes
from braid.expr.postgres.text import TOO_LONG, fitting, null_taking, texts
from braid.expr.rows import LARGEST
from braid.expr.signatures import Function
from braid.types import Scalar

_TEXT = Scalar.VARCHAR

# words that are no names without quotes: of PostgreSQL 15, all but the unreserved ones
_WORDS = frozenset((
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization", "between",
    "bigint", "binary", "bit", "boolean", "both", "case", "cast", "char", "character", "check", "coalesce",
    "collate", "collation", "column", "concurrently", "constraint", "create", "cross", "current_catalog",
    "current_date", "current_role", "current_schema", "current_time", "current_timestamp", "current_user", "dec",
    "decimal", "default", "deferrable", "desc", "distinct", "do", "else", "end", "except", "exists", "extract",
    "false", "fetch", "float", "for", "foreign", "freeze", "from", "full", "grant", "greatest", "group", "grouping",
    "having", "ilike", "in", "initially", "inner", "inout", "int", "integer", "intersect", "interval", "into", "is",
    "isnull", "join", "lateral", "leading", "least", "left", "like", "limit", "localtime", "localtimestamp",
    "national", "natural", "nchar", "none", "normalize", "not", "notnull", "null", "nullif", "numeric", "offset",
    "on", "only", "or", "order", "out", "outer", "overlaps", "overlay", "placing", "position", "precision",
    "primary", "real", "references", "returning", "right", "row", "select", "session_user", "setof", "similar",
    "smallint", "some", "substring", "symmetric", "table", "tablesample", "then", "time", "timestamp", "to",
    "trailing", "treat", "trim", "true", "union", "unique", "user", "using", "values", "varchar", "variadic",
    "verbose", "when", "where", "window", "with", "xmlattributes", "xmlconcat", "xmlelement", "xmlexists",
    "xmlforest", "xmlnamespaces", "xmlparse", "xmlpi", "xmlroot", "xmlserialize", "xmltable",
))  # fmt: skip


def _quote_ident(text: str) -> str:
    if re.fullmatch("[a-z_][a-z0-9_]*", text) and text not in _WORDS:
        return text
    return '"' + text.replace('"', '""') + '"'


def _quote_literal(text: str) -> str:
    """With an E in front where it has a backslash."""
    escaped = text.replace("'", "''").replace("\\", "\\\\")
    return fitting(("E'" if "\\" in text else "'") + escaped + "'")


def _quote_nullable(text: str | None) -> str:
    return "NULL" if text is None else _quote_literal(text)


_SPEC = re.compile(r"%(?:([0-9]+)\$)?(-*)(?:([0-9]+)|\*(?:([0-9]+)\$)?)?(.?)", re.DOTALL)


class _Formatted:
    """The arguments of FORMAT, taken one by one or by number."""

    def __init__(self, values: Sequence[str | None]) -> None:
        self._values = values
        self._at = 0

    def next(self, number: str | None) -> str | None:
        if number is not None:
            if not 0 < int(number) < 2**31:
                raise ValueError("format specifies argument 0, but arguments are numbered from 1")
            self._at = int(number) - 1
        self._at += 1
        if self._at > len(self._values):
            raise ValueError("too few arguments for format()")
        return self._values[self._at - 1]


def _format(text: str | None, *values: str | None) -> str | None:
    """As RisingWave's page has it %s and %I; besides, what PostgreSQL has: %L, numbers, widths."""
    if text is None:
        return None
    given = _Formatted(values)
    return fitting(_SPEC.sub(lambda m: "%" if m[0] == "%%" else _formatted(m, given), text))


def _width(text: str | None) -> int:
    if text is not None and not re.fullmatch(r"[ \t-\r]*[+-]?[0-9]+[ \t-\r]*", text):
        raise ValueError(f'invalid input syntax for type integer: "{text}"')
    return int(text or 0)


def _formatted(m: re.Match[str], given: _Formatted) -> str:
    number, minus, digits, width_number, kind = m.groups()
    if not kind:
        raise ValueError("unterminated format() type specifier")
    width = int(digits or 0)
    if "*" in m[0][:-1]:
        width = _width(given.next(width_number))
    if abs(width) > LARGEST:
        raise ValueError("number is out of range" if abs(width) >= 2**31 else TOO_LONG)
    if kind not in "sIL":
        raise ValueError(f'unrecognized format() type specifier "{kind}"')
    value = given.next(number)
    if kind == "I" and value is None:
        raise ValueError("null values cannot be formatted as an SQL identifier")
    quoted = _quote_nullable(value) if kind == "L" else _quote_ident(value or "") if kind == "I" else value or ""
    return quoted.ljust(abs(width)) if minus or width < 0 else quoted.rjust(width)


QUOTING: dict[str, Function] = {
    f.name: f
    for f in (
        plain("QUOTE_LITERAL", "a text", [((_TEXT,), _TEXT)], _quote_literal),
        null_taking("QUOTE_NULLABLE", takes("a text", ((_TEXT,), _TEXT)), _quote_nullable, _TEXT),
        null_taking("FORMAT", texts("a format and texts", 1), _format, _TEXT),
    )
}
