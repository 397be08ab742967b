"""What a file holds, as a declaration: `braid infer`.

In: a CSV, JSON lines or Parquet file, also packed by gzip. Out: a CREATE statement of a dialect.
Rule: types are guessed from the first rows, so what is printed is to be looked at; as what is guessed, these rows can
be read. A column that is empty is text. The one column of times is the time of a row; numbers that are likely times are
one if they count milliseconds, and are told of otherwise.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from braid.bind.dialects import dialect_named
from braid.errors import BraidError, printable
from braid.files.parquet import rows_of, schema_of
from braid.files.text import Options, Text, content, csv_rows, header, shown
from braid.files.values import from_text
from braid.plan.logical import Kind
from braid.sql.declare import Declaring, declaration, nearest
from braid.topics.segments import is_packed
from braid.types import A_SECOND, MILLISECONDS, Array, Column, Decimal, Map, Scalar, Struct, Type, unit_of

ROWS = 10_000  # of JSON lines, that are looked at; of CSV the first block
ENDINGS = (".csv", ".jsonl", ".ndjson", ".json", ".parquet")

_SCALARS: Mapping[Any, Scalar] = {
    pl.Boolean: Scalar.BOOLEAN,
    pl.Int8: Scalar.SMALLINT, pl.Int16: Scalar.SMALLINT, pl.UInt8: Scalar.SMALLINT,
    pl.Int32: Scalar.INT, pl.UInt16: Scalar.INT,
    pl.Int64: Scalar.BIGINT, pl.UInt32: Scalar.BIGINT,
    pl.Categorical: Scalar.VARCHAR, pl.Enum: Scalar.VARCHAR,
    pl.Float32: Scalar.REAL, pl.Float64: Scalar.DOUBLE,
    pl.String: Scalar.VARCHAR, pl.Null: Scalar.VARCHAR, pl.Binary: Scalar.BYTES,
    pl.Date: Scalar.DATE, pl.Time: Scalar.TIME, pl.Datetime: Scalar.TIMESTAMP,
}  # fmt: skip
_LARGE: Mapping[Any, Decimal] = {pl.UInt64: Decimal(20, 0), pl.Int128: Decimal(38, 0), pl.UInt128: Decimal(38, 0)}

# What the fields of a CSV file look like. A number with a zero in front is a code: 01234 is not 1234.
_WHOLE, _DAY = r"^-?(?:0|[1-9][0-9]*)$", r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_FORMS: Sequence[tuple[Type, str]] = (
    (Scalar.BIGINT, _WHOLE),
    (Decimal(38, 0), _WHOLE),
    (Scalar.DOUBLE, r"^(?:-?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity)$"),
    (Scalar.BOOLEAN, r"^(?i:true|false)$"),
    (Scalar.DATE, rf"^{_DAY}$"),
    (Scalar.TIMESTAMP, rf"^{_DAY}(?:[ T][0-9]{{2}}:[0-9]{{2}}.*)?$"),
    (Scalar.TIME, r"^[0-9]{2}:[0-9]{2}"),
)


def statement(path: str, dialect: str, name: str | None = None, key: str | None = None, kind: Kind = "stream") -> str:
    """The declaration of a file's rows. `name`: by default the file's, `key`: a column. In Lenses a file may
    have no column `_key`: then a second statement makes the key."""
    words = dialect_named(dialect).words
    found = name or re.sub(r"\W+", "_", os.path.basename(path).split(".")[0]).strip("_") or "rows"
    there, units = _looked_at(path)
    columns = [Column(words.fold(c.name), nearest(words, c.type)) for c in there]
    names = [c.name for c in columns]
    if len(set(names)) < len(names):
        raise BraidError(f"{path} has columns that differ only by case", "rename one of them")
    times = [c.name for c in columns if c.type is Scalar.TIMESTAMP]
    times = times or [words.fold(n) for n, unit in units.items() if unit == MILLISECONDS]
    folded = None if key is None else next((n for n in names if n.lower() == key.lower()), words.fold(key))
    made = declaration(words, Declaring(words.fold(found), kind, columns, folded, "file", found, times))
    return "".join(f"-- {_told(n, unit)}\n" for n, unit in units.items() if unit != MILLISECONDS) + made


def _told(name: str, unit: str) -> str:
    shown, rate = printable(name), A_SECOND[unit]
    by = f"* {1000 // rate}" if rate < 1000 else f"/ {rate // 1000}"
    return f"{shown} looks like {unit} since 1970: times that are numbers count milliseconds ({shown} {by})"


def columns_of(path: str) -> list[Column]:
    """The columns of a file, from its first rows."""
    return _looked_at(path)[0]


def _looked_at(path: str) -> tuple[list[Column], dict[str, str]]:
    """The same; and in which unit whole numbers look like times, by name."""
    ending = next((e for e in ENDINGS if path.lower().removesuffix(".gz").endswith(e)), None)
    if ending is None:
        raise BraidError(f"{path}: its ending is not known", f"files end in {', '.join(ENDINGS)}, and .gz behind them")
    if not os.path.isfile(path):
        raise BraidError(f"there is no file {path}", "name one file; braid run takes globs")
    if ending == ".parquet":
        columns = [Column(n, ours(t, n)) for n, t in schema_of(path)[0].items()]
        return columns, _units(rows_of(path, [c.name for c in columns if _counts(c)], 0, ROWS))
    beginning = next(content(path), b"")
    if is_packed(beginning):
        raise BraidError(f"{path} is packed, and not as its name says", "a file is packed once, by gzip: .gz")
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in beginning[:4]:
        raise BraidError(f"{path} is not UTF-8 text, but UTF-16 or the like", "iconv -f UTF-16 -t UTF-8 makes it so")
    return _of_csv(path) if ending == ".csv" else _of_json(path)


def _of_csv(path: str) -> tuple[list[Column], dict[str, str]]:
    """Those that the header names, by the fields of the first block. A column without a name is left out."""
    options = shown(path, Options())
    names = header(path, options)
    twice = next((n for i, n in enumerate(names) if n and n in names[:i]), None)
    if twice is not None:
        raise BraidError(f"{path} has 2 columns {twice}", "rename one of them")
    named = [i for i, n in enumerate(names) if n]
    as_text = [Column(names[i], Scalar.VARCHAR) for i in named]
    rows = next(csv_rows(Text(path), names, named, as_text, options), None)
    if rows is None:
        return as_text, {}
    whole = rows.error.is_null()
    if not whole.any():
        hint = "fields are parted by a comma, or throughout by ; | or tab; text is UTF-8"
        raise BraidError(f"{path} cannot be read: {rows.error[0]}", hint)
    columns = [Column(c.name, _of_texts(s.filter(whole), _FORMS)) for c, s in zip(as_text, rows.columns, strict=True)]
    numbers = [
        from_text(s.filter(whole).head(ROWS), c.type)[0].alias(c.name)
        for c, s in zip(columns, rows.columns, strict=True)
        if _counts(c)
    ]
    return columns, _units(pl.DataFrame(numbers))


def _counts(c: Column) -> bool:
    return c.type is Scalar.BIGINT


def _units(numbers: pl.DataFrame) -> dict[str, str]:
    """The unit in which all numbers of a column are likely times; columns of other numbers are left out."""
    found = {s.name: {unit_of(n) for n in (s.min(), s.max()) if isinstance(n, int)} for s in numbers}
    return {name: unit for name, units in found.items() for unit in units if unit is not None and len(units) == 1}


def _of_json(path: str) -> tuple[list[Column], dict[str, str]]:
    lines = next(Text(path).blocks(), b"").split(b"\n", ROWS)[:ROWS]
    try:
        frame = pl.read_ndjson(b"\n".join(lines), infer_schema_length=ROWS)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as e:
        hint = "a line holds one JSON object; of a list, jq -c '.[]' makes lines"
        why = _first_bad(lines) or " ".join(str(e).split())[:200]
        raise BraidError(f"{path} cannot be read: {why}", hint) from None
    dated = [(t, form) for t, form in _FORMS if t in (Scalar.DATE, Scalar.TIMESTAMP)]
    columns = [Column(s.name, _of_texts(s, dated) if s.dtype == pl.String else ours(s.dtype, s.name)) for s in frame]
    return columns, _units(frame.select(c.name for c in columns if _counts(c)))


def _first_bad(lines: Sequence[bytes]) -> str | None:
    """Where the first line is that is no JSON object, and why."""
    for number, line in enumerate(lines, 1):
        try:
            if line.strip() and not isinstance(json.loads(line), dict):
                return f"line {number} is no JSON object"
        except json.JSONDecodeError as e:
            return f"line {number}, column {e.colno}: {e.msg}"
        except (UnicodeDecodeError, RecursionError):
            return f"line {number} is no JSON in UTF-8"
    return None


def _of_texts(texts: pl.Series, forms: Sequence[tuple[Type, str]]) -> Type:
    """The first type as which all texts can be read."""
    some = texts.filter(texts != "")  # without nulls, too
    for t, form in forms if len(some) else ():
        if all(_are(x, t, form) for x in (some.head(ROWS), some)):
            return t
    return Scalar.VARCHAR


def _are(texts: pl.Series, t: Type, form: str) -> bool:
    return bool(texts.str.strip_chars().str.contains(form).all()) and not from_text(texts, t)[1].any()


def ours(t: pl.DataType, name: str) -> Type:
    match t:
        case pl.Decimal():
            return Decimal(t.precision or 38, t.scale or 0)
        case pl.List(inner=pl.Struct(fields=[pl.Field(name="key", dtype=key), pl.Field(name="value", dtype=value)])):
            return Map(ours(key, name), ours(value, name))  # type: ignore[arg-type]
        case pl.Map(key=key, value=value):
            return Map(ours(key, name), ours(value, name))  # type: ignore[arg-type]
        case pl.List(inner=inner):
            return Array(ours(inner, name))  # type: ignore[arg-type]
        case pl.Struct(fields=fields):
            return Struct(tuple(Column(f.name, ours(f.dtype, name)) for f in fields))  # type: ignore[arg-type]
    found = _SCALARS.get(t.base_type()) or _LARGE.get(t.base_type())
    if found is None:
        raise BraidError(f"column {name} is of a type that Braid does not know: {t}", "leave it out of the file")
    return found
