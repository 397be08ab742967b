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

from braid.errors import BraidError, all_of

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


Problems = list[BraidError]
WHAT = "the DataFrame cannot be read"


def names_of(names: Iterable[str]) -> Problems:
    """What is wrong with the names of columns."""
    counts = Counter(names)
    found = [
        BraidError(f"{'two' if n == 2 else n} columns of the DataFrame are called {name}", "rename one of them")
        for name, n in counts.items()
        if n > 1
    ]
    alike = dict[str, list[str]]()
    for name in counts:
        alike.setdefault(name.lower(), []).append(name)
    for some in alike.values():
        if len(some) > 1:  # Spark would refuse to read it
            what = f"columns of the DataFrame differ only by case: {' and '.join(some)}"
            found.append(BraidError(what, "rename one of them"))
    return found


def of_arrow(table: pa.Table) -> Problems:
    """What Polars cannot take."""
    return [e for field in table.schema if (e := _of_arrow(field.name, field.type)) is not None]


def _of_arrow(column: str, t: pa.DataType) -> BraidError | None:
    odd = (pa.types.is_decimal256, pa.types.is_interval, pa.types.is_union, pa.types.is_run_end_encoded)
    if any(is_it(t) for is_it in odd) or isinstance(t, pa.BaseExtensionType):
        return refused(column, str(t), "cast it to decimal128" if pa.types.is_decimal256(t) else None)
    below = (_of_arrow(column, t.field(n).type) for n in range(t.num_fields))
    return next((e for e in below if e is not None), None)


def readable(rows: pl.DataFrame) -> pl.DataFrame:
    """The same values in types that can be read; all columns that have none are refused."""
    rows, found = as_readable(rows)
    if found:
        raise all_of(WHAT, found)
    return rows


def as_readable(rows: pl.DataFrame) -> tuple[pl.DataFrame, Problems]:
    """The same; and what is wrong with columns, which are left out then."""
    found, target = names_of(rows.columns), dict[str, pl.DataType]()
    for name, t in rows.schema.items():
        try:
            target[name] = _readable(name, t)
        except BraidError as e:
            found.append(e)
    rows = rows.select(list(target))
    for name, t in target.items():
        if t != rows.schema[name]:
            try:
                rows = rows.with_columns(pl.col(name).cast(t))
            except pl.exceptions.PolarsError:
                hint = "its values are longer than 38 digits: cast it to text"
                found.append(refused(name, str(rows.schema[name]), hint))
    return rows, found


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
