"""Which columns of a DataFrame can be read: of each a type of ours, or a refusal that names the column and its type.

In: the types of a table of Arrow, the rows of a DataFrame as Polars has them. Out: the rows in types that Spark reads
from Parquet as what they are.
Rule: no value changes. What another type holds as well (whole numbers of 128 bits, floats of 16) is cast, and all else
is refused: a duration would come as a number whose unit depends on the library that it came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import polars as pl
import pyarrow as pa

from braid.errors import BraidError

_PLAIN: tuple[type[pl.DataType], ...] = (
    *(pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    *(pl.Float32, pl.Float64, pl.Decimal, pl.String, pl.Binary, pl.Date, pl.Datetime, pl.Categorical, pl.Enum, pl.Null),
)
_HINTS = {
    "Duration": "cast it to a number of milliseconds, or to text",
    "Time": "cast it to text, or to milliseconds of the day",
    "Object": "cast it to a type of Polars' that can be written",
}
_WIDEST = pl.Decimal(38, 0)


def refused(column: str, kind: str, hint: str | None = None) -> BraidError:
    what = f"column {column} has the type {kind}, which no column of a query has"
    return BraidError(what, hint or _HINTS.get(kind.partition("(")[0], "cast it, or leave it out"))


def check_names(names: Iterable[str]) -> None:
    names = list(names)
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise BraidError(f"two columns of the DataFrame are called {twice[0]}", "rename one of them")
    if len({name.lower() for name in names}) < len(names):  # Spark would refuse to read it
        raise BraidError("columns of the DataFrame differ only by case", "rename one of them")


def check_arrow(table: pa.Table) -> None:
    """Refuses what Polars cannot take."""
    check_names(table.column_names)
    for field in table.schema:
        _check_arrow(field.name, field.type)


def _check_arrow(column: str, t: pa.DataType) -> None:
    odd = (pa.types.is_decimal256, pa.types.is_interval, pa.types.is_union, pa.types.is_run_end_encoded)
    if any(is_it(t) for is_it in odd) or isinstance(t, pa.BaseExtensionType):
        raise refused(column, str(t), "cast it to decimal128" if pa.types.is_decimal256(t) else None)
    for n in range(t.num_fields):
        _check_arrow(column, t.field(n).type)


def readable(rows: pl.DataFrame) -> pl.DataFrame:
    """The same values in types that can be read."""
    check_names(rows.columns)
    target = {name: _readable(name, t) for name, t in rows.schema.items()}
    other = {name: t for name, t in target.items() if t != rows.schema[name]}
    for name, t in other.items():
        try:
            rows = rows.with_columns(pl.col(name).cast(t))
        except pl.exceptions.PolarsError:
            raise refused(
                name, str(rows.schema[name]), "its values are longer than 38 digits: cast it to text"
            ) from None
    return rows


def _readable(column: str, t: pl.DataType) -> pl.DataType:
    match t:
        case pl.Int128() | pl.UInt128():
            return _WIDEST
        case pl.Float16():
            return pl.Float32()
        case pl.Datetime():
            return pl.Datetime("us", t.time_zone)
        case pl.List():
            return pl.List(_readable(column, _inner(t.inner)))
        case pl.Array():
            return pl.List(_readable(column, _inner(t.inner)))
        case pl.Struct():
            names = [f.name for f in t.fields]
            if len({name.lower() for name in names}) < len(names):
                raise BraidError(f"fields of column {column} differ only by case", "rename one of them")
            return pl.Struct({f.name: _readable(column, _inner(f.dtype)) for f in t.fields})
        case _ if isinstance(t, _PLAIN):
            return t
    raise refused(column, str(t))


def _inner(t: Any) -> pl.DataType:
    """Types stand in others as they are, or as their classes."""
    made = t if isinstance(t, pl.DataType) else t()
    assert isinstance(made, pl.DataType)
    return made
