"""DELIMITED: one line of separated values, as ksqlDB has it.

In: lines; columns. Out: see `Format`.
Rule: values are quoted where needed; there are as many fields as columns, an empty field is null, numbers are read
strictly; STRUCT, ARRAY and MAP have no form here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import polars as pl

from braid.errors import SqlError
from braid.records.codec import Decoded
from braid.records.formats.interface import Facet, Named
from braid.records.formats.lines import Lines, field_text, read_fields
from braid.types import Column, Scalar, Type


class Delimited(Lines):
    delimited = True

    def read(self, lines: pl.Series, columns: Sequence[Column], facet: Facet) -> Decoded:
        return decode_delimited(lines, columns, facet.delimiter)

    def written(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series:
        return encode_delimited(frame, columns, facet.delimiter)

    def shape(self, wrapped: bool, delimiter: str) -> str:
        return f"values delimited by {delimiter!r}"


S = Scalar
# Which texts ksqlDB quotes (by Commons CSV 1.4, "minimal"): the first field of a line unless it begins with a letter or
# digit of ASCII, an empty one too; others where a reader might trim them, or take them for a comment.
_FIRST, _BLANK_EDGE = r"\A(?:[^0-9A-Za-z]|\z)|[\x00- ]\z", r"\A[\x00-#]|[\x00- ]\z"
_APART = ",;|\t "  # delimiters that no number or time has in it
_NAMED = {"SPACE": " ", "TAB": "\t"}


def delimiter_of(text: str) -> str:
    """The delimiter that a `value_delimiter` property names: one character, SPACE or TAB."""
    found = _NAMED.get(text.upper(), text)
    if len(found) != 1 or found in '"\n\r':
        raise SqlError(f"{text!r} is not a delimiter", hint="write one character, 'SPACE' or 'TAB'")
    return found


def decode_delimited(texts: pl.Series, columns: Sequence[Column], delimiter: str = ",") -> Decoded:
    """Columns, `is_null_value`, and `error` (null where the line is well formed)."""
    by = delimiter_of(delimiter)
    parts = texts.str.split(by)
    quoted = texts.str.contains('"', literal=True).fill_null(False)
    if quoted.any():  # slow path: the csv module, for lines with quotes
        rows = pl.Series([_fields(t, by) for t in texts.filter(quoted).to_list()], dtype=pl.List(pl.String))
        order = pl.concat([(~quoted).arg_true(), quoted.arg_true()]).arg_sort()
        parts = pl.concat([parts.filter(~quoted), rows]).gather(order)
    return read_fields(texts, parts, columns)


def _fields(line: str, by: str) -> list[str] | None:
    try:
        found = list(csv.reader(io.StringIO(line), delimiter=by, strict=True))
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else None


def encode_delimited(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], delimiter: str = ",") -> pl.Series:
    """One line per row; a null is an empty field."""
    by = delimiter_of(delimiter)
    texts = [_write(frame.get_column(name), c.type, by, i == 0).alias(str(i)) for i, (name, c) in enumerate(columns)]
    if not texts:
        return pl.Series("value", [""] * frame.height, dtype=pl.String)
    joined = pl.concat_str([pl.col(t.name).fill_null("") for t in texts], separator=by)
    return pl.DataFrame(texts).select(joined.alias("value")).to_series()


def _write(s: pl.Series, t: Type, by: str, first: bool) -> pl.Series:
    texts = field_text(s, t)
    odd = _odd(texts, t, by, first)
    if odd is None or not odd.any():
        return texts
    quoted = pl.concat_str([pl.lit('"'), pl.col("s").str.replace_all('"', '""', literal=True), pl.lit('"')])
    both = pl.DataFrame({"s": texts, "odd": odd})
    return both.select(pl.when(pl.col("odd")).then(quoted).otherwise(pl.col("s"))).to_series()


def _odd(texts: pl.Series, t: Type, by: str, first: bool) -> pl.Series | None:
    """Which fields are quoted; None where none can be."""
    if t is S.VARCHAR:
        edge = texts.str.contains(_FIRST if first else _BLANK_EDGE)
        return (edge | texts.str.contains_any([by, '"', "\n", "\r"])).fill_null(False)
    return None if by in _APART else texts.str.contains(by, literal=True).fill_null(False)
