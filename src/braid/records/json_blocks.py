"""Blocks of JSON objects as columns, read at once.

In: texts, one a record, without nulls, escapes of code points and line breaks; the declared columns. Out: the columns,
and on which lines they are proven to be what the line-by-line reader gives (`codec`).
Rule: `read_ndjson` is strict about types, as that reader is, but differs: names are matched exactly, of a name that
stands twice the first counts, and VARCHAR takes other values in a form of its own. So each line is looked at again, as
text: a name is one field's if it stands once; what lies in a field that nests is right if it is written as Braid writes
it. Names are spelled as in the first lines that have them. Most lines are what a program wrote from just these columns:
written again they are the same, and nothing else has to be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from braid.expr import dates
from braid.expr.json_text import MAX_DEPTH, dumps, loads
from braid.records.facet import ISO, Manner
from braid.records.values import WHOLE, json_text
from braid.types import TIMESTAMPS, Array, Column, Decimal, Scalar, Struct, Type, physical_type, polars_type

S = Scalar
_INSIDE = (S.BOOLEAN, S.INT, S.BIGINT, S.DOUBLE, S.VARCHAR)
_OUTSIDE = (*_INSIDE, S.SMALLINT, S.REAL, S.DATE, *TIMESTAMPS)  # of a column itself
_WIDER: dict[Type, pl.DataType] = {S.SMALLINT: pl.Int32(), S.REAL: pl.Float64()}  # `read_ndjson` panics otherwise
_LEAST, _OVER = 2.0**-126, 2.0**128 - 2.0**103  # the smallest normal single; from here on there is none
_AS_WRITTEN = (pl.String, pl.Int32, pl.Int64, pl.Boolean)  # what has one form in JSON, if it is not escaped
_SAMPLE = 16  # lines in which spellings are looked for
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$-]+")
_SPACED, _DENSE = [": ", ", "], [":", ","]


@dataclass(frozen=True, slots=True)
class _Field:
    """A column, with the names that it and what it nests have in the texts."""

    column: Column
    name: str
    type: Type

    @property
    def quoted(self) -> str:
        return dumps(self.name)

    @property
    def loose(self) -> bool:
        """Whether it is found only because case does not count: then no other name may be equal without case."""
        return self.name != self.column.name


def readable(t: Type) -> bool:
    """Whether a column of this type may be read at once."""
    return t in _OUTSIDE or isinstance(t, Decimal) or _inside(t)


def _inside(t: Type) -> bool:
    match t:
        case Array(element):
            return _inside(element)
        case Struct(fields):
            names = {f.name.lower() for f in fields}
            return len(names) == len(fields) > 0 and all(_inside(f.type) for f in fields)
    return t in _INSIDE


def read_block(texts: pl.Series, columns: Sequence[Column], manner: Manner) -> tuple[pl.DataFrame, pl.Series] | None:
    """The columns, and which lines are proven; None if the block is not read at once. `iso`: dates and times may be
    ISO text; of a block where one is, all are read as text, and a line is proven if all of its can be read."""
    sample = texts.head(_SAMPLE)
    fields = [*_fields(columns, sample.to_list())]
    data, some = _joined(texts), _joined(sample)
    moments = [f for f in fields if manner in ISO and f.type in (S.DATE, *TIMESTAMPS)]
    dated = {f.name for f in moments if _quoted_in(some, f) or _quoted_in(data, f)}
    schema = {f.name: pl.String() if f.name in dated else _read_as(f.type) for f in fields}
    if len(schema) < len(fields):
        return None
    if data.startswith(b"x"):  # no JSON; `read_ndjson` takes some of it for zlib, and would unfold it
        return None
    try:
        frame = pl.read_ndjson(data, schema=schema)
    except (pl.exceptions.PolarsError, ValueError):
        return None
    if frame.height != len(texts):
        return None
    escaped = b"\\" in data
    if any(not _PLAIN_NAME.fullmatch(f.name) and (escaped or "\\" in f.quoted) for f in fields):
        return None
    proofs: list[pl.Series] = []
    same = not escaped and _is_written_again(texts, fields, frame)
    if data.count(b"{") != len(texts) or b"[" in data:
        proofs.append(texts.str.count_matches(r"[\[{]") <= MAX_DEPTH)
    made: list[pl.Series] = []
    rest = _dense(texts, fields)
    for f in fields:
        if isinstance(f.type, Array | Struct):
            rest, found = _without(rest, f, frame[f.name])
            proofs.append(found)
    lines = _All(data if rest is texts else _joined(rest))
    flat = same or lines.data.count(b"{") == len(texts)
    for f in fields:
        column = frame[f.name]
        if isinstance(f.type, Array | Struct):
            made.append(_declared(column, f.column.type))
            continue
        is_text = f.type is S.VARCHAR or f.name in dated
        if not same and not lines.proves(column, f, is_text):
            proofs.append(_proven(rest, column, f, is_text, flat and not escaped))
        if isinstance(f.type, Decimal):
            column = _decimals(rest, f, f.type)
            proofs.append(column.is_not_null() | frame[f.name].is_null())
        elif f.name in dated and isinstance(f.type, Scalar):
            column = frame.select(dates.parse_iso(pl.col(f.name), f.type)).to_series()
            proofs.append(column.is_not_null() | frame[f.name].is_null())
        elif isinstance(f.type, Scalar) and (f.type is S.DATE or f.type in TIMESTAMPS):
            proofs.append(_in_range(column, f.type))
            column = frame.select(dates.OF_NUMBER[f.type](pl.col(f.name))).to_series()
        elif f.type in _WIDER:
            proofs.append(_in_range(column, S.SMALLINT) if f.type is S.SMALLINT else _one_rounding(column))
            column = column.cast(polars_type(f.type), strict=False)
        made.append(column)
    read = pl.DataFrame([x.alias(f.column.name) for x, f in zip(made, fields, strict=True)])
    all_of = pl.repeat(True, len(texts), dtype=pl.Boolean, eager=True)
    for proof in proofs:
        all_of = all_of & proof
    return read, all_of


# ---------------------------------------------------------------------- names


def _fields(columns: Sequence[Column], lines: Sequence[str]) -> Iterator[_Field]:
    """The columns as the first lines spell them: an exact match first, then one without case."""
    docs: list[dict[str, Any]] = []
    for line in lines:
        try:
            doc = loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(doc, dict):
            docs.append(doc)
    for c in columns:
        folded = c.name.lower()
        spelled = (k for doc in docs for k in (c.name, *doc) if k in doc and k.lower() == folded)
        name = next(spelled, c.name)
        value = next((doc[name] for doc in docs if doc.get(name) is not None), None)
        yield _Field(c, name, _spelled(c.type, value))


def _spelled(t: Type, value: Any) -> Type:
    """The type with the names that a value of it has."""
    match t, value:
        case Struct(fields), dict():
            found = {k.lower(): k for k in reversed(value)}
            names = [f.name if f.name in value else found.get(f.name.lower(), f.name) for f in fields]
            return Struct(tuple(Column(n, _spelled(f.type, value.get(n))) for n, f in zip(names, fields, strict=True)))
        case Array(element), list():
            return Array(_spelled(element, next((x for x in value if x is not None), None)))
    return t


def _declared(s: pl.Series, t: Type) -> pl.Series:
    """The same values with the names of the declared type."""
    dtype = polars_type(t)
    if s.dtype == dtype:
        return s
    named = pl.Series(dtype=dtype).to_arrow(compat_level=pl.CompatLevel.oldest()).type
    return pl.Series(s.name, s.to_arrow(compat_level=pl.CompatLevel.oldest()).view(named))


# ---------------------------------------------------------------------- proofs


def _read_as(t: Type) -> pl.DataType:
    """A DECIMAL is read as text: only whether it is there counts."""
    return pl.String() if isinstance(t, Decimal) else _WIDER.get(t, physical_type(t))


def _in_range(numbers: pl.Series, t: Scalar) -> pl.Series:
    return numbers.is_between(WHOLE[t].low, WHOLE[t].high - 1).fill_null(True)


def _one_rounding(doubles: pl.Series) -> pl.Series:
    """Where the single nearest to a double is the one nearest to what is written: not half way between two of them, of
    those that are normal."""
    size = doubles.abs()
    bits = pl.Series(doubles.fill_null(0.0).to_numpy().view(np.int64))
    half_way = bits & 0x1FFFFFFF == 0x10000000
    return ((size == 0) | (size >= _LEAST) & (size < _OVER) & ~half_way).fill_null(True)


def _joined(texts: pl.Series) -> bytes:
    joined: bytes = texts.str.join("\n").cast(pl.Binary).item()
    return joined


def _quoted_in(data: bytes, f: _Field) -> int:
    """How often a name stands before a text."""
    quoted = f.quoted.encode()
    return data.count(quoted + b':"') + data.count(quoted + b': "')


def _is_written_again(texts: pl.Series, fields: Sequence[_Field], frame: pl.DataFrame) -> bool:
    """Whether each line is its values under their names, in the order of the first line, with nothing else in it but
    the spaces that some write behind colons and commas. Texts have no escapes."""
    if any(frame[f.name].dtype not in _AS_WRITTEN or not _PLAIN_NAME.fullmatch(f.name) for f in fields):
        return False
    at = {f.name: texts[0].find(f.quoted) for f in fields}
    ordered = sorted(fields, key=lambda f: at[f.name])
    for after, between in ((":", ","), (": ", ", ")):
        parts: list[pl.Expr] = []
        for i, f in enumerate(ordered):
            text, value = frame[f.name].dtype == pl.String, pl.col(f.name)
            begin = f"{between if i else '{'}{f.quoted}{after}"
            parts += [pl.lit(begin), _written(value, text, frame[f.name].null_count() > 0)]
        line = pl.concat_str([*parts, pl.lit("}")])
        for height in (_SAMPLE, len(texts)):
            again = frame.head(height).select(line.alias("t"))["t"]
            if not (again == texts.head(height)).all():
                break
        else:
            return True
    return False


def _written(value: pl.Expr, is_text: bool, nulls: bool) -> pl.Expr:
    shown = pl.concat_str([pl.lit('"'), value, pl.lit('"')]) if is_text else value.cast(pl.String)
    return shown.fill_null("null") if nulls else shown


class _All:
    """All lines together; each way to look at them is made once."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def is_ascii(self) -> bool:
        return self.data.isascii()

    @cached_property
    def lower(self) -> bytes:
        return self.data.lower()

    def proves(self, column: pl.Series, f: _Field, is_text: bool) -> bool:
        """Whether all lines are proven by counting in all of them together."""
        quoted, n, nulls = f.quoted.encode(), len(column), column.null_count()
        plain = f.name.isascii() and self.is_ascii
        if nulls:
            return nulls == n and plain and quoted.lower() not in self.lower
        if f.loose and not plain:
            return False
        # With no nulls the name is in each line at least once; so it is there exactly once in each, in no case twice.
        once = (self.lower.count(quoted.lower()) if f.loose else self.data.count(quoted)) == n
        return once and (not is_text or self.data.count(quoted + b':"') == n or _quoted_in(self.data, f) == n)


def _proven(texts: pl.Series, column: pl.Series, f: _Field, is_text: bool, flat: bool) -> pl.Series:
    """A line is proven for a column if
    - its quoted name stands once in the line, and the value is not null (then that name is the field's), or
    - the value is null, the name stands once, followed by null, in a line without nested objects and backslashes; or it
      does not stand there in any case, and is missing;
    and for texts if the name is followed by a quote."""
    frame = pl.DataFrame({"t": texts, "v": column.is_null()})
    t, null, name = pl.col("t"), pl.col("v"), f.quoted
    count = t.str.count_matches(name, literal=True)
    nested = pl.lit(False) if flat else t.str.contains(r"\\|\{.*\{")
    valued = once = count == 1
    if f.loose:
        once = once & (t.str.to_lowercase().str.count_matches(name.lower(), literal=True) == 1)
        valued = once
    if is_text:
        valued = valued & (t.str.contains(name + ':"', literal=True) | t.str.contains(name + ': "', literal=True))
    is_null = once & ~nested
    is_null = is_null & (t.str.contains(name + ":null", literal=True) | t.str.contains(name + ": null", literal=True))
    proof = pl.when(null).then(is_null).otherwise(valued)
    out = frame.select(proof.alias("p")).to_series()
    missing = frame.with_columns(p=out).select(pl.col("v") & ~pl.col("p")).to_series()
    if missing.any():
        at = missing.arg_true()
        out = out.scatter(at, _absent(texts.gather(at), f))
    return out


def _absent(texts: pl.Series, f: _Field) -> pl.Series:
    """Where the name does not stand in any case: it would be quoted too; lower() is what the line reader folds with."""
    return f.name.isascii() & ~texts.str.to_lowercase().str.contains(f.quoted.lower(), literal=True)


def _dense(texts: pl.Series, fields: Sequence[_Field]) -> pl.Series:
    """Without the spaces that some write behind colons and commas, if the first line has them and a field nests. Texts
    that have such places themselves change too: they then differ from what was read, and nothing is proven."""
    nests = any(isinstance(f.type, Array | Struct) for f in fields)
    spaced = nests and not any(x in f.name for f in fields for x in _SPACED)
    if spaced and any(f.quoted + ": " in texts[0] for f in fields):
        return texts.str.replace_many(_SPACED, _DENSE)
    return texts


def _without(texts: pl.Series, f: _Field, column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The texts without a field, and where that is proven to be right: it stands there once, written as Braid writes
    what was read of it; or it is null, and missing."""
    written = json_text(column, f.type).fill_null("null")
    frame = pl.DataFrame([texts.alias("t"), (f.quoted + ":" + written).alias("f")])
    halves = frame.select(pl.col("t").str.splitn(pl.col("f"), 2)).unnest("t")
    before, after = halves["field_0"], halves["field_1"].fill_null("")
    rest = before + after
    found = before.str.contains(r"[{,]$") & after.str.contains(r"^[,}]")
    again = rest.str.to_lowercase() if f.loose else rest
    found = found & ~again.str.contains(f.quoted.lower() if f.loose else f.quoted, literal=True)
    if column.null_count():
        found = found | (column.is_null() & _absent(rest, f))
    return rest, found


def _decimals(texts: pl.Series, f: _Field, t: Decimal) -> pl.Series:
    """Numbers of a name that stands once, or their texts, where they have no more digits than the type."""
    whole = rf"-?[0-9]{{1,{t.precision - t.scale}}}" if t.precision > t.scale else "-?0"
    part = rf"(?:\.[0-9]{{1,{t.scale}}})?" if t.scale else ""
    found = texts.str.extract(rf'{re.escape(f.quoted)}: ?"?({whole}{part})"?[,}}]')
    return found.cast(polars_type(t), strict=False)
