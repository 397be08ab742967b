"""Formats whose records are lines of fields.

In: lines; columns. Out: see `Format`.
Rule: a line is no JSON, so it stands in its topic as a JSON string. Columns are told by their places. A format of this
kind says how lines are `read` and `written`, and what a field holds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import polars as pl

from braid.errors import SqlError
from braid.records.codec import Decoded, decode_values, encode_values
from braid.records.facet import Manner
from braid.records.formats.interface import Facet, Format, Named, Single, nested
from braid.records.malformed import a
from braid.records.octets import quoted, unquoted
from braid.records.registry import Registry
from braid.records.values import form
from braid.types import Column, Scalar, Type, polars_type

_LINE = [Column("line", Scalar.VARCHAR)]
_PLAIN_STRING = r'^"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"$'  # JSON that every reader reads alike


class Lines(Format):
    rewritten = True

    @property
    def single(self) -> Single:
        return "line"

    @abstractmethod
    def read(self, lines: pl.Series, columns: Sequence[Column], facet: Facet) -> Decoded:
        """The columns of lines."""

    @abstractmethod
    def written(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series:
        """The line of each row."""

    def holds(self, t: Type) -> bool:
        return not nested(t)

    def shape(self, wrapped: bool, delimiter: str) -> str:
        return f"{self.name} lines"

    def decode(self, texts: pl.Series, columns: Sequence[Column], facet: Facet, manner: Manner) -> Decoded:
        return self.read(_lines(texts), columns, facet)

    def encode(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series:
        if not columns:
            return super().encode(frame, columns, facet)
        lines = self.written(frame, columns, facet)
        return encode_values(lines.alias("line").to_frame(), [("line", _LINE[0])], unwrapped=True)

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        return quoted(data)

    def to_bytes(
        self, texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        return unquoted(texts)


def _lines(texts: pl.Series) -> pl.Series:
    """The lines that JSON strings hold; what is none stays as it is."""
    strings = (texts.str.starts_with('"') & texts.str.ends_with('"')).fill_null(False)
    if not strings.any():
        return texts
    plain = texts.str.contains(_PLAIN_STRING).fill_null(False)
    lines = texts.set(~plain, None).str.json_decode(pl.String)
    odd = (strings & ~plain).arg_true()
    if len(odd):
        lines = lines.scatter(odd, decode_values(texts.gather(odd), _LINE, unwrapped=True)[0]["line"])
    return pl.DataFrame({"a": lines, "b": texts}).select(pl.coalesce("a", "b"))["a"]


# -------------------------------------------------------------------- fields


F = TypeVar("F")


def read_fields(lines: pl.Series, fields: pl.Series, columns: Sequence[Column]) -> Decoded:
    """The columns of the fields of each line: lists of texts, null where a line could not be split. An empty field is
    null."""
    frame = pl.DataFrame({"_p": fields})
    count = pl.col("_p").list.len()
    wrong = (
        pl.when(pl.col("_p").is_null() & lines.is_not_null())
        .then(pl.lit("the quotes of the line do not match"))
        .when(count != len(columns))
        .then(pl.concat_str([pl.lit(f"{len(columns)} fields expected, "), count.cast(pl.String), pl.lit(" found")]))
    )
    values: list[pl.Expr] = []
    for i, c in enumerate(columns):
        raw = pl.col("_p").list.get(i, null_on_oob=True)
        raw = pl.when(raw != "").then(raw)
        value = _known(form(c.type).from_text, c.type)(raw, c.type, False)
        why = pl.concat_str([pl.lit(f"field {c.name}: '"), raw, pl.lit(f"' is not {a(c.type)}")])
        wrong = wrong.when(raw.is_not_null() & value.is_null()).then(why)
        values.append(value.cast(polars_type(c.type)).alias(c.name))
    out = frame.select(*values, wrong.cast(pl.String).alias("_error"))
    errors = out.get_column("_error").rename("error")
    out = out.drop("_error")
    bad = errors.is_not_null()
    if bad.any():
        out = out.select(pl.when(~bad).then(pl.col(c.name)).alias(c.name) for c in columns)
    return out, lines.is_null().rename("is_null_value"), errors


def field_text(s: pl.Series, t: Type) -> pl.Series:
    """The text of each value, null for null."""
    return _known(form(t).to_text, t)(s, t)


def _known(cell: F | None, t: Type) -> F:
    if cell is None:
        raise SqlError(f"no field of a line holds {t}", hint="use format='JSON'")
    return cell
