"""Debezium's changes in JSON: of an envelope what a row is after the change, or nothing where it was deleted.

In: texts of records, with or without their schema; columns. Out: see `Format`.
Rule: a value is `{"before", "after", "op", …}`, perhaps as the `payload` beside a `schema`, as keys may be, too. A
number of a time is in seconds, milliseconds, microseconds or nanoseconds by its size, as RisingWave has it (cast.rs).
Numbers lose nothing: what is inside is taken as it is written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]

import polars as pl

from braid.records.codec import Decoded, decode_values
from braid.records.facet import Manner
from braid.records.formats.interface import Facet, Format, Single
from braid.types import TIMESTAMPS, Column

Part = tuple[int, int]  # where a value begins and ends in a text
_ROWS = ("c", "r", "u")  # what gives a row: created, read by a snapshot, updated
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_BLANKS = " \t\n\r"
_LARGEST = 1 << 63


class Debezium(Format):
    foreign = True

    @property
    def single(self) -> Single:
        return "record"

    def decode(self, texts: pl.Series, columns: Sequence[Column], facet: Facet, manner: Manner) -> Decoded:
        times = {c.name for c in columns if c.type in TIMESTAMPS}
        inner: list[str | None] = []
        errors: list[str | None] = []
        for text in texts:
            try:
                row, error = (None if text is None else _row(text, facet.name == "value", times)), None
            except (ValueError, RecursionError) as e:
                row, error = None, f"it is no change of Debezium: {e if isinstance(e, _OddError) else 'not JSON'}"
            inner.append(row)
            errors.append(error)
        frame, null, why = decode_values(pl.Series(texts.name, inner, dtype=pl.String), columns, manner=manner)
        odd = pl.Series("e", errors, dtype=pl.String)
        if odd.null_count() == len(odd):
            return frame, null, why
        return frame, null & odd.is_null(), odd.zip_with(odd.is_not_null(), why.cast(pl.String))


class _OddError(ValueError):
    """What is wrong with an envelope."""


def _row(text: str, is_value: bool, times: Collection[str]) -> str | None:
    """The object of a row; None: it is gone."""
    parts, row = members(text, 0), (0, len(text))
    if "payload" in parts and "schema" in parts:
        row = parts["payload"]
        if text.startswith("null", row[0]):
            return None
        parts = members(text, row[0])
    if not is_value:
        return _timed(text, row, times)
    op = json.loads(text[slice(*parts["op"])]) if "op" in parts else None
    if op == "d":
        return None
    if op not in _ROWS:
        raise _OddError(f"op is {json.dumps(op)}")
    if "after" not in parts or text.startswith("null", parts["after"][0]):
        raise _OddError("after is missing")
    return _timed(text, parts["after"], times)


def _timed(text: str, row: Part, times: Collection[str]) -> str:
    """An object as it is, but with times in milliseconds."""
    if not times:
        return text[slice(*row)]
    made = []
    for name, (start, end) in members(text, row[0]).items():
        value = text[start:end]
        if name in times and value.lstrip("-").isdigit():
            value = str(_ms(int(value[:30])))
        made.append(f"{json.dumps(name)}:{value}")
    return f"{{{','.join(made)}}}"


def _ms(number: int) -> int:
    """A time in milliseconds."""
    if not -_LARGEST <= number < _LARGEST:
        raise _OddError("a time has too many digits")
    for limit, up, down in ((10**11, 1000, 1), (10**14, 1, 1), (10**17, 1, 1000)):
        if -limit <= number < limit:
            return number * up // down
    return number // 1_000_000


def members(text: str, at: int) -> dict[str, Part]:
    """Where the values of an object are that begins at `at`. Of a name that is there twice the last one counts."""
    found: dict[str, Part] = {}
    at = _next(text, at)
    if not text.startswith("{", at):
        raise _OddError("it is no object")
    at = _next(text, at + 1)
    while not text.startswith("}", at):
        if not text.startswith('"', at):
            raise ValueError("a name is missing")
        name, at = scanstring(text, at + 1)
        at = _next(text, at)
        if not text.startswith(":", at):
            raise ValueError("a ':' is missing")
        at = _next(text, at + 1)
        _, end = _VALUES.raw_decode(text, at)
        found[name] = (at, end)
        at = _next(text, end)
        if text.startswith(",", at):
            at = _next(text, at + 1)
        elif not text.startswith("}", at):
            raise ValueError("a ',' is missing")
    return found


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at
