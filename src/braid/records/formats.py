"""The formats of records: a module each, an arm in both functions here. How a value looks is told in `values`.

In: keys or values as JSON texts, as topics hold them, and the declared columns; typed columns. Out: a frame with the
columns, which rows have a null value, why a row is malformed (`codec.decode_values`); JSON texts.
Rule: a line that is no JSON stands in its topic as a JSON string. `bare`: the text is the value of the only column.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.records.codec import Decoded, decode_values, encode_values
from braid.records.delimited import decode_delimited, encode_delimited
from braid.types import Column, Scalar

_LINE = [Column("line", Scalar.VARCHAR)]


def decode(
    texts: pl.Series, columns: Sequence[Column], format: str, *, bare: bool, delimiter: str, iso: bool
) -> Decoded:
    if format == "DELIMITED":
        return decode_delimited(_lines(texts), columns, delimiter)
    return decode_values(texts, columns, unwrapped=bare, iso=iso)


def encode(
    frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], format: str, *, bare: bool, delimiter: str
) -> pl.Series:
    if format == "DELIMITED" and columns:
        lines = encode_delimited(frame, columns, delimiter)
        return encode_values(lines.alias("line").to_frame(), [("line", _LINE[0])], unwrapped=True)
    return encode_values(frame, columns, unwrapped=bare)


_PLAIN_STRING = r'^"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"$'  # JSON that every reader reads alike


def _lines(texts: pl.Series) -> pl.Series:
    """The lines that JSON strings hold; what is none stays as it is."""
    quoted = (texts.str.starts_with('"') & texts.str.ends_with('"')).fill_null(False)
    if not quoted.any():
        return texts
    plain = texts.str.contains(_PLAIN_STRING).fill_null(False)
    lines = texts.set(~plain, None).str.json_decode(pl.String)
    odd = (quoted & ~plain).arg_true()
    if len(odd):
        lines = lines.scatter(odd, decode_values(texts.gather(odd), _LINE, unwrapped=True)[0]["line"])
    return pl.DataFrame({"a": lines, "b": texts}).select(pl.coalesce("a", "b"))["a"]
