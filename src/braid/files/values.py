"""Values of files: texts of CSV fields and columns of Parquet files as the declared types, and back.

In: a column as the file has it, and a type. Out: the typed column, and where it does not fit; or texts of a typed one.
Rule: nothing is rounded, cut or guessed. A whole number may be written with a point (`517.0`: what a data frame makes
of an integer column with gaps); dates and times are ISO text, or numbers
(docs/files-and-topics.md, "Values").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from braid.expr import casts, dates
from braid.expr.json_text import dumps, loads
from braid.records import codec
from braid.records.malformed import Malformed, a, cut
from braid.records.python import in_days, json_value, python_values
from braid.records.values import form, json_object, json_text
from braid.records.values import reader as json_reader
from braid.types import (
    MAX_DAY,
    TIMESTAMPS,
    WHOLE_NUMBERS,
    Array,
    Column,
    Decimal,
    Map,
    Scalar,
    Struct,
    Type,
    has_documents,
    physical_type,
    polars_type,
)

S = Scalar
HAS_EMPTY = (S.VARCHAR, S.BYTES)  # types of which the empty text is a value
Fitted = tuple[pl.Series, pl.Series]  # values, null where they do not fit; where they do not
Typed = tuple[list[pl.Series], pl.Series]  # columns; why a row is malformed


def from_text(texts: pl.Series, t: Type) -> Fitted:
    """Values of CSV fields; one that is null is null already, and an empty one of a type without it."""
    if t is S.VARCHAR:
        return texts, _none(texts)
    read = form(t).from_text
    if read is None:
        frame, _, error = codec.decode_values(texts, [Column(texts.name, t)], unwrapped=True, manner="iso")
        return frame.get_column(texts.name), error.is_not_null()
    if isinstance(t, Decimal):
        values = _decimals(texts, t)
    else:
        values = texts.to_frame().select(read(pl.col(texts.name), t, True)).to_series()
    return values.rename(texts.name), texts.is_not_null() & values.is_null()


def _decimals(texts: pl.Series, t: Decimal) -> pl.Series:
    """Exactly, or null. Plain forms in columns, others (exponents) as the JSON reader takes them."""
    text = texts.str.strip_chars()
    fraction = rf"(?:\.[0-9]{{0,{t.scale}}}0*)?"
    plain = text.str.contains(rf"^[+-]?[0-9]+{fraction}$")
    values = text.set(~plain, None).to_frame("v").select(casts.cast(pl.col("v"), S.VARCHAR, t)).to_series()
    odd = (~plain).fill_null(False).arg_true()
    if not len(odd):
        return values
    return values.scatter(odd, _by_row(text.gather(odd), t)[0])


# ------------------------------------------------------------------- Parquet


def fits(dtype: pl.DataType, t: Type) -> bool:
    """Whether a column of `dtype` can be declared as `t`: some of its values are values of `t`."""
    if t is S.VARCHAR:
        return not dtype.is_nested()
    if isinstance(dtype, pl.Categorical | pl.Enum):
        dtype = pl.String()
    if has_documents(t):
        return dtype in (pl.String, pl.Null)  # texts of JSON; what a column nests is none
    kind: Any = pl.Int64 if dtype.is_integer() else pl.Float64 if dtype.is_float() else dtype.base_type()
    return kind == pl.Null or kind in _TAKEN[t if isinstance(t, Scalar) else type(t)]


_TAKEN: dict[Scalar | type, tuple[Any, ...]] = {
    S.NULL: (),
    S.BOOLEAN: (pl.String, pl.Boolean),
    S.SMALLINT: (pl.String, pl.Int64, pl.Float64, pl.Decimal),
    S.INT: (pl.String, pl.Int64, pl.Float64, pl.Decimal),
    S.BIGINT: (pl.String, pl.Int64, pl.Float64, pl.Decimal, pl.Datetime),
    S.REAL: (pl.String, pl.Int64, pl.Float64, pl.Decimal),
    S.DOUBLE: (pl.String, pl.Int64, pl.Float64, pl.Decimal),
    Decimal: (pl.String, pl.Int64, pl.Float64, pl.Decimal),
    S.BYTES: (pl.String, pl.Binary),
    S.JSONB: (pl.String,),
    S.DATE: (pl.String, pl.Int64, pl.Date, pl.Datetime),
    **dict.fromkeys(TIMESTAMPS, (pl.String, pl.Int64, pl.Date, pl.Datetime)),
    S.TIME: (pl.String, pl.Int64, pl.Time),
    Array: (pl.String, pl.List, pl.Array),
    Map: (pl.String, pl.List, pl.Struct, pl.Map),
    Struct: (pl.String, pl.Struct),
}  # kinds of columns, Int64 and Float64 for all integers and floats


def from_column(s: pl.Series, t: Type) -> Fitted:
    """Values of a column that `fits`. A NaN where a whole number is declared is null: a gap of a data frame."""
    dtype, wanted, beyond = s.dtype, polars_type(t), _none(s)
    if dtype == pl.Date or isinstance(dtype, pl.Datetime):
        beyond = (~in_days(s, -MAX_DAY, MAX_DAY)).fill_null(False)
        s = s.set(beyond, None) if beyond.any() else s
    if dtype == wanted and not has_documents(t):
        return s, beyond
    if _entries(dtype) == wanted and not has_documents(t):
        return s.cast(wanted), beyond
    if dtype == pl.Null:
        return s.cast(wanted), _none(s)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        s = s.cast(pl.String)
    if s.dtype == pl.String:
        return from_text(s, t)
    if isinstance(t, Array | Map | Struct):
        return _by_row(s, t)
    if dtype == pl.Binary and t is S.VARCHAR:
        return _utf8(s)
    if dtype.is_float() and t in WHOLE_NUMBERS:
        s = s.fill_nan(None)
    values = s.to_frame("v").select(_converted(pl.col("v"), dtype, t)).to_series().rename(s.name)
    return values, beyond | (s.is_not_null() & values.is_null())


def _entries(dtype: pl.DataType) -> pl.DataType:
    """The dtype with lists of entries in place of maps."""
    match dtype:
        case pl.Map(key=key, value=value):
            return pl.List(pl.Struct({"key": _entries(_made(key)), "value": _entries(_made(value))}))
        case pl.List(inner=inner):
            return pl.List(_entries(_made(inner)))
        case pl.Struct(fields=fields):
            return pl.Struct({f.name: _entries(_made(f.dtype)) for f in fields})
    return dtype


def _made(dtype: pl.DataType | pl.datatypes.DataTypeClass) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def _converted(x: pl.Expr, dtype: pl.DataType, t: Scalar | Decimal) -> pl.Expr:
    wanted = polars_type(t)
    if isinstance(dtype, pl.Datetime):
        if dtype.time_zone is not None:
            x = x.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        x = x.cast(pl.Datetime("us"))
    match t:
        case S.INT | S.BIGINT if isinstance(dtype, pl.Datetime):
            return x.dt.epoch("ms")
        case S.SMALLINT | S.INT | S.BIGINT if dtype.is_float() or dtype.is_decimal():
            number = x.cast(wanted, strict=False)
            return pl.when(number.cast(dtype, strict=False) == x).then(number)
        case S.REAL if dtype.is_float() or dtype.is_decimal():
            return casts.cast(x, Decimal(38, 0) if dtype.is_decimal() else S.DOUBLE, t)
        case Decimal() if dtype.is_float():
            number = casts.cast(x.cast(pl.Float64), S.DOUBLE, t)
            return pl.when(number.cast(pl.String).cast(dtype) == x).then(number)
        case Decimal() if dtype.is_decimal():
            number = x.cast(wanted, strict=False)
            return pl.when(number.cast(dtype, strict=False) == x).then(number)
        case S.VARCHAR if isinstance(dtype, pl.Datetime):
            return casts.to_text(x, S.TIMESTAMP)
        case S.DATE if dtype.is_integer():
            return dates.day(x.cast(pl.Int64, strict=False))
        case S.DATE if isinstance(dtype, pl.Datetime):
            return pl.when(x.dt.time() == pl.time(0)).then(x.dt.date())
        case S.TIME if dtype.is_integer():
            return dates.time_of_day(x.cast(pl.Int64, strict=False))
        case S.TIMESTAMP | S.TIMESTAMPTZ if dtype.is_integer():
            return dates.instant(x.cast(pl.Int64, strict=False))
    return x.cast(wanted, strict=False)


def _utf8(s: pl.Series) -> Fitted:
    try:
        return s.cast(pl.String), _none(s)
    except pl.exceptions.ComputeError:
        texts = [None if v is None else v.decode(errors="surrogateescape") for v in s.to_list()]
        bad = [v is not None and not v.isprintable() and any("\ud800" <= c < "\ue000" for c in v) for v in texts]
        fine = [None if wrong else v for v, wrong in zip(texts, bad, strict=True)]
        return pl.Series(s.name, fine, dtype=pl.String), pl.Series("bad", bad, dtype=pl.Boolean)


def _by_row(s: pl.Series, t: Type) -> Fitted:
    """Slow path (Python rows): nested values, read as JSON is."""
    read, out, bad = json_reader(t, manner="iso"), [], []
    entries = isinstance(t, Map) and isinstance(s.dtype, pl.List)
    for value in s.to_list():
        found: Any = None
        wrong = False
        try:
            if value is not None:
                plain = {e["key"]: e["value"] for e in value} if entries else value
                found = read(loads(dumps(json_value(plain, t))))
        except (Malformed, ValueError, TypeError, AttributeError):
            wrong = True
        out.append(found)
        bad.append(wrong)
    values = pl.Series(s.name, out, dtype=physical_type(t)).cast(polars_type(t))
    return values, pl.Series("bad", bad, dtype=pl.Boolean)


def _none(s: pl.Series) -> pl.Series:
    return pl.repeat(False, len(s), dtype=pl.Boolean, eager=True)


# ------------------------------------------------------------------- columns


def typed(columns: Sequence[pl.Series], declared: Sequence[Column], fit: Callable[[pl.Series, Type], Fitted]) -> Typed:
    """The columns as declared, and the first value of each row that does not fit."""
    made: list[pl.Series] = []
    height = len(columns[0]) if columns else 0
    error = pl.repeat(None, height, dtype=pl.String, eager=True)
    for s, column in zip(columns, declared, strict=True):
        values, bad = fit(s, column.type)
        made.append(values)
        if bad.any():
            at = (bad & error.is_null()).arg_true()
            error = error.scatter(at, [_why(column, v) for v in python_values(s.gather(at))])
    return made, error


def _why(column: Column, value: object) -> str:
    text = value if isinstance(value, str) else value.hex() if isinstance(value, bytes) else str(value)
    return f"column {column.name}: {cut(text)!r} is not {a(column.type)}"


# ------------------------------------------------------------------- writing


def csv_field(s: pl.Series, t: Type) -> pl.Series:
    """A column as CSV fields that `from_text` reads: nested values as JSON, bytes in base64."""
    write = form(t).to_text
    if write is None:
        return json_text(*_dated(s, t))
    if t is S.REAL or (t is S.DOUBLE and s.is_infinite().any()):
        return json_text(s, t).str.strip_chars('"')
    return write(s, t) if t is S.BYTES else s


def json_lines(frame: pl.DataFrame, columns: Sequence[Column]) -> pl.Series:
    """Rows as JSON objects that `json_rows` reads: dates and times as ISO text."""
    made = [_dated(frame.get_column(c.name), c.type) for c in columns]
    return json_object([c.name for c in columns], [json_text(s, t) for s, t in made], frame.height)


def _dated(s: pl.Series, t: Type) -> tuple[pl.Series, Type]:
    """The column with dates and times as text; a TIME within a structure stays a number."""
    if t is S.TIME:
        return s.to_frame("t").select(dates.format_time(pl.col("t"))).to_series(), S.VARCHAR
    text = _as_text(t)
    return (s, t) if text == t else (s.cast(polars_type(text)), text)


def _as_text(t: Type) -> Type:
    match t:
        case S.DATE | S.TIMESTAMP | S.TIMESTAMPTZ:
            return S.VARCHAR
        case Array(element):
            return Array(_as_text(element))
        case Map(key, value):
            return Map(_as_text(key), _as_text(value))
        case Struct(fields):
            return Struct(tuple(Column(f.name, _as_text(f.type)) for f in fields))
    return t
