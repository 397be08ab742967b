"""Tables and times on a terminal and in a pipe.

In: a header and rows; milliseconds since 1970, or a text. Out: aligned columns, as wide as the screen, or as the rows
where nobody looks; ISO 8601 in UTC, or milliseconds.
Rule: one look for all commands; whoever reads them with a program asks for JSON lines or CSV. No text of a store, a
record or a statement makes a terminal do anything but show it. A time without a zone is UTC; whole numbers are
milliseconds; a time beyond the calendar stays a number.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import IO, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table

from braid.errors import BraidError, escaped, printable, printable_lines

WIDE = 4000  # of a cell
AT_ONCE = 1000  # rows of a table


_INNER = re.compile(r"(.*\.)?_row_id|.*\.group_[0-9]+(_is_null)?")  # how Braid calls what a view's rows are known by
IS_NULL = "_is_null"  # ends the name of a part that says whether the next one is NULL


def shown_key(key: Any) -> Any:
    """A key as people see it: of one whose parts all have names of Braid's own, the values in a line."""
    if isinstance(key, dict) and is_inner(key):
        return ", ".join(cell(v) for n, v in key.items() if not n.endswith(IS_NULL))
    return key


def is_inner(names: Iterable[str]) -> bool:
    """Whether the parts of a key, which there are, all have names of Braid's own."""
    found = [_INNER.fullmatch(n) is not None for n in names]
    return bool(found) and all(found)


def cell(value: Any) -> str:
    """A value as text: objects, lists and booleans as JSON, all others plainly."""
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float, list, dict)):
        return json.dumps(value, ensure_ascii=False, default=plain)
    return plain(value)


def plain(value: Any) -> str:
    """A value that JSON does not have, as text; a number without an exponent."""
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def json_line(value: Any) -> str:
    """A value as a line of JSON."""
    return escaped(json.dumps(value, ensure_ascii=False, default=plain))


def seen(text: str, file: IO[str] | None = None) -> str:
    """A text for whoever reads it: a program as it is, a person without what a terminal would carry out."""
    file = sys.stdout if file is None else file
    return printable_lines(text) if file.isatty() else text


class Terminal(Console):
    """A console that shows texts and does not obey them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, soft_wrap=True, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable_lines(x) if isinstance(x, str) else x for x in objects), **options)


def _short(text: str) -> str:
    """A text no longer than that: laying one out over many lines takes long, and nobody reads it."""
    return text if len(text) <= WIDE else f"{text[: WIDE - 1]}…"


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]], file: IO[str] | None = None) -> None:
    """Prints a table to a file, stdout by default: some rows at once, each column at least as wide as in those before,
    so that many rows need no more memory than few, and the first are seen at once."""
    file = sys.stdout if file is None else file
    names, texts = list(map(printable, header)), ([_short(printable(cell(x))) for x in row] for row in rows)
    widths = [cell_len(name) for name in names]
    some, first = list(islice(texts, AT_ONCE)), True
    while some or first:
        wider = [max(w, *(cell_len(row[i]) for row in some), 0) for i, w in enumerate(widths)]
        if file.isatty():
            Console(file=file, highlight=False, markup=False, emoji=False).print(_table(names, some, widths, first))
        else:
            lines = ([names] if first else []) + some
            file.writelines(f"{_line(line, wider)}\n" for line in lines)
        widths, some, first = wider, list(islice(texts, AT_ONCE)), False


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int], first: bool) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=first)
    for name, width in zip(names, widths, strict=True):
        table.add_column(name, min_width=None if first else width)
    for row in rows:
        table.add_row(*row)
    return table


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    """A row for a program or a file, however wide: what a terminal's table is without its width."""
    return "  ".join(set_cell_size(text, width) for text, width in zip(texts, widths, strict=True)).rstrip()


# ----------------------------------------------------------------------- times


DAY = 86_400_000  # ms
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
A_TIME = "2024-03-01T08:00:00Z"


def time_text(ms: int) -> str:
    """`2024-03-01T08:00:00.000Z`."""
    try:
        return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ms)


def milliseconds(given: str) -> int:
    """Milliseconds since 1970 of a text; ValueError where it is no time."""
    given = given.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,18}", given, re.ASCII):
        return int(given)
    at = datetime.fromisoformat(given)
    return ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - EPOCH) // MILLISECOND


def time_option(name: str, given: str) -> int:
    """The same of a command's option."""
    try:
        return milliseconds(given)
    except (ValueError, OverflowError):
        raise BraidError(f"{name} {given}: it is not a time", f"{name} {A_TIME}, or milliseconds since 1970") from None
