"""Where the rows of a CSV file end, and what stands in their fields.

In: bytes that begin where a row does; the delimiter. Out: rows with what is wrong with their quotes; fields.
Rule: a quote opens a text only where a field begins, and closes it only where the field ends; two within are one. Of a
row whose quotes are otherwise the first line is malformed, and the next line is a row: a quote that is never closed
costs its own line and no other. Where a row ends follows from what stands between its start and `LONGEST` bytes behind
it, or the end of what is read, so rows are the same however a file is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from braid.store.reading import LONGEST

UNFIT = "a quote is not closed, or one within a quoted text is not written twice"
_QUOTE, _LINE, _RETURN = b'"'[0], b"\n"[0], b"\r"[0]


class Row(NamedTuple):
    """Bytes `start` to `stop - 1`, the end of the line among them; `error`: why it is malformed."""

    start: int
    stop: int
    error: str | None


class _Forms(NamedTuple):
    row: re.Pattern[bytes]
    unclosed: re.Pattern[bytes]
    field: re.Pattern[str]


@lru_cache(maxsize=64)
def _forms(by: str) -> _Forms:
    d = re.escape(by)
    end = r"\r?(?:\n|\Z)"
    inside = r'[^"]*+(?:""[^"]*+)*+'
    field = rf'(?:"{inside}"(?={d}|{end})|[^"{d}\n][^{d}\n]*+|(?={d}|{end}))'
    row, unclosed = rf"{field}(?:{d}{field})*+{end}", rf'(?:{field}{d})*+"{inside}\Z'
    return _Forms(
        re.compile(row.encode()), re.compile(unclosed.encode()), re.compile(rf'(?:"({inside})"|([^{d}]*))(?:{d}|\Z)')
    )


def rows(data: bytes, by: str, last: bool = True) -> Iterator[Row]:
    """The rows, one after the other. `last`: nothing follows; else none is given that what follows may change."""
    forms, at = _forms(by), 0
    while at < len(data):
        found = forms.row.match(data, at)
        if found is None and not last and len(data) - at <= LONGEST and forms.unclosed.match(data, at):
            return
        fits = found is not None and found.end() - at <= LONGEST
        stop = found.end() if found is not None and fits else data.find(b"\n", at) + 1 or len(data)
        if not last and data[stop - 1] != _LINE:
            return
        yield Row(at, stop, None if fits else UNFIT)
        at = stop


def whole_rows(data: bytes, by: str) -> int:
    """So many bytes are rows, whatever follows."""
    if bare(data, by):
        return data.rfind(b"\n") + 1
    if fit(data, by):
        ends = outside(data, _LINE)
        stop = int(ends[-1]) + 1 if len(ends) else 0
        if len(data) - stop <= LONGEST:
            return stop
    stop = 0
    for row in rows(data, by, last=False):
        stop = row.stop
    return stop


def unclosed(data: bytes, by: str) -> int | None:
    """Where the row begins that has a quote open at the end of the data."""
    if bare(data, by) or fit(data, by, last=True):
        return None
    unclosed = _forms(by).unclosed
    return next((row.start for row in rows(data, by) if row.error and unclosed.match(data, row.start)), None)


def bare(data: bytes, by: str) -> bool:
    """Whether no field begins with a quote: then those that are there are bytes as others are."""
    if b'"' not in data:
        return True
    return not (data.startswith(b'"') or b'\n"' in data or by.encode() + b'"' in data)


def fit(data: bytes, by: str, last: bool = False) -> bool:
    """Whether every second quote closes, and all stand where they may: then one that is inside is so by their number.
    `last`: nothing follows, so that none may be open."""
    view = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(view == _QUOTE)
    if not len(quotes):
        return True
    if last and len(quotes) % 2:
        return False
    opens, closes = quotes[0::2], quotes[1::2]
    twice = opens[1:] == closes[: len(opens) - 1] + 1  # one that closes, and the next one: a quote within a text
    apart = np.zeros(256, bool)
    apart[[ord(by), _LINE]] = True
    begins = apart[view[opens - 1]]  # of the first byte the last one: not asked
    begins[0] |= opens[0] == 0
    begins[1:] |= twice
    if not begins.all():
        return False
    end = len(data) - 1
    ends = apart[view[np.minimum(closes + 1, end)]]
    ends[: len(twice)] |= twice
    odd = closes[~ends]
    behind, second = view[np.minimum(odd + 1, end)], view[np.minimum(odd + 2, end)]
    if not ((odd == end) | ((behind == _RETURN) & ((second == _LINE) | (odd + 1 == end)))).all():
        return False
    return len(data) <= LONGEST or int(np.diff(outside(data, _LINE), prepend=-1, append=end).max()) <= LONGEST


def outside(data: bytes, byte: int) -> npt.NDArray[np.int64]:
    """Where `byte` stands outside quotes, where quotes fit."""
    view = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(view == _QUOTE)
    found = np.flatnonzero(view == byte)
    made: npt.NDArray[np.int64] = found[np.searchsorted(quotes, found) % 2 == 0]
    return made


def first_row(data: bytes, by: str) -> Row:
    """The first row; empty where there is none."""
    return next(rows(data, by), Row(0, 0, None))


def fields(line: str, by: str) -> list[str | None]:
    """The fields of a row whose quotes fit, without its end; null: nothing stands there, and no quotes."""
    found = list(_forms(by).field.finditer(line))
    if len(found) > 1 and found[-1].start() == len(line) and not line.endswith(by):
        found.pop()  # the empty match behind the last field
    if not line:
        return []
    return [(m[2] or None) if m[1] is None else m[1].replace('""', '"') for m in found]
