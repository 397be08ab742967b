"""What a file holds, as a declaration: `braid infer`.

In: a CSV, JSON lines or Parquet file, also packed by gzip. Out: a CREATE statement of a dialect.
Rule: types are guessed from the first rows, so what is printed is to be looked at. A column that is empty is text.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Mapping
from typing import Any

import polars as pl

from braid.declare import declaration, quoted
from braid.errors import BraidError
from braid.plan.logical import Kind
from braid.runtime.file_parquet import schema_of
from braid.sql.dialects import dialect_named
from braid.topics.documents import too_long
from braid.topics.segments import is_packed
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

ROWS = 10_000  # that are looked at
MOST = 16 << 20  # bytes
ENDINGS = (".csv", ".jsonl", ".ndjson", ".json", ".parquet")

_SCALARS: Mapping[Any, Scalar] = {
    pl.Boolean: Scalar.BOOLEAN,
    pl.Int8: Scalar.INT, pl.Int16: Scalar.INT, pl.Int32: Scalar.INT, pl.UInt8: Scalar.INT, pl.UInt16: Scalar.INT,
    pl.Int64: Scalar.BIGINT, pl.UInt32: Scalar.BIGINT,
    pl.Float32: Scalar.DOUBLE, pl.Float64: Scalar.DOUBLE,
    pl.String: Scalar.VARCHAR, pl.Null: Scalar.VARCHAR, pl.Binary: Scalar.BYTES,
    pl.Date: Scalar.DATE, pl.Time: Scalar.TIME, pl.Datetime: Scalar.TIMESTAMP,
}  # fmt: skip


def statement(path: str, dialect: str, name: str | None = None, key: str | None = None, kind: Kind = "stream") -> str:
    """The declaration of a file's rows. `name`: by default the file's, `key`: a column. In Lenses a file may
    have no column `_key`: then a second statement makes the key."""
    spoken = dialect_named(dialect)
    found = name or re.sub(r"\W+", "_", os.path.basename(path).split(".")[0]).strip("_") or "rows"
    columns = [Column(spoken.fold(c.name), c.type) for c in columns_of(path)]
    names = [c.name for c in columns]
    if len(set(names)) < len(names):
        raise BraidError(f"{path} has columns that differ only by case", "rename one of them")
    options: dict[str, str] = {}
    times = [c.name for c in columns if c.type is Scalar.TIMESTAMP]
    if spoken.name == "ksqldb":
        options = {"kafka_topic": found, "value_format": "JSON"}
        options |= {"timestamp": times[0]} if len(times) == 1 else {}
    if spoken.name == "sqlstream" and len(times) == 1 and kind == "stream":
        options = {"ROWTIME": times[0]}
    folded = None if key is None else next((n for n in names if n.lower() == key.lower()), spoken.fold(key))
    if spoken.name == "lenses" and "_key" not in names:
        return _keyed(found, kind, columns, folded, times)
    return declaration(dialect, spoken.fold(found), kind, columns, folded, options)


def _keyed(name: str, kind: Kind, columns: list[Column], key: str | None, times: list[str]) -> str:
    """A topic of Lenses without keys, and what gives it some."""
    if key is None and kind == "table":
        raise BraidError(f"table {name} needs a key", "name the column that tells its rows apart: --key COLUMN")
    made = declaration("lenses", name, "stream", columns)
    if key is None:
        return made
    if key not in (c.name for c in columns):
        raise BraidError(f"{name} has no column {key}", f"it has {', '.join(c.name for c in columns)}")
    keyed, key, name = (quoted("lenses", x) for x in (f"{name}_by_{key}", key, name))
    if kind == "table":
        query = f"SELECT STREAM {key} AS _key, _value.* FROM {name};"
        return f"{made}\nSET defaults.topic.autocreate = true;\nINSERT INTO {keyed} {query}"
    at = f" EVENTTIME BY {quoted('lenses', times[0])}" if len(times) == 1 else ""
    return f"{made}\nWITH {keyed} AS (SELECT STREAM {key} AS _key, _value.* FROM {name}{at});"


def columns_of(path: str) -> list[Column]:
    """The columns of a file, from its first rows."""
    ending = next((e for e in ENDINGS if path.lower().removesuffix(".gz").endswith(e)), None)
    if ending is None:
        raise BraidError(f"{path}: its ending is not known", f"files end in {', '.join(ENDINGS)}, and .gz behind them")
    if not os.path.isfile(path):
        raise BraidError(f"there is no file {path}", "name one file; braid run takes globs")
    try:
        if ending == ".parquet":
            return [Column(n, _ours(t, n)) for n, t in schema_of(path)[0].items()]
        head = io.BytesIO(_head(path))
        if ending == ".csv":
            frame = pl.read_csv(head, n_rows=ROWS, try_parse_dates=True, infer_schema_length=ROWS)
        else:
            frame = pl.read_ndjson(head, infer_schema_length=ROWS).head(ROWS)
            frame = frame.with_columns(_times(s) for s in frame if s.dtype == pl.String)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, EOFError, zlib.error) as e:
        raise BraidError(f"{path} cannot be read: {' '.join(str(e).split())[:200]}") from None
    return [Column(n, _ours(t, n)) for n, t in frame.schema.items()]


def _head(path: str) -> bytes:
    """The whole lines at the beginning of a text file."""
    opened = gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb")  # noqa: SIM115
    with opened as f:
        data: bytes = f.read(MOST)
    if is_packed(data):
        raise BraidError(f"{path} is packed, and not as its name says", "a file is packed once, by gzip: .gz")
    if len(data) == MOST and not (data := data[: data.rfind(b"\n") + 1]):
        raise too_long(path)
    return data


def _times(texts: pl.Series) -> pl.Series:
    """ISO dates and times as such, if all are."""
    for dtype in (pl.Date, pl.Datetime):
        try:
            made: pl.Series = texts.str.strptime(dtype, strict=True)
        except pl.exceptions.PolarsError:
            continue
        if made.null_count() < len(made):
            return made
    return texts


def _ours(t: pl.DataType, name: str) -> Type:
    match t:
        case pl.Decimal():
            return Decimal(t.precision or 38, t.scale or 0)
        case pl.List(inner=pl.Struct(fields=[pl.Field(name="key", dtype=key), pl.Field(name="value", dtype=value)])):
            return Map(_ours(key, name), _ours(value, name))  # type: ignore[arg-type]
        case pl.List(inner=inner):
            return Array(_ours(inner, name))  # type: ignore[arg-type]
        case pl.Struct(fields=fields):
            return Struct(tuple(Column(f.name, _ours(f.dtype, name)) for f in fields))  # type: ignore[arg-type]
    found = _SCALARS.get(t.base_type())
    if found is None:
        raise BraidError(f"column {name} is of a type that Braid does not know: {t}", "leave it out of the file")
    return found
