"""SQL types and schemas, the same for every dialect.

In: nothing. Out: frozen type values, their Polars forms and columns of a source.
Rule: a type says what a value is (docs/files-and-topics.md, "Values"), never how a dialect spells it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import assert_never

import polars as pl


class Scalar(Enum):
    """Types without parameters. The value is the name shown to users."""

    BOOLEAN = "BOOLEAN"
    SMALLINT = "SMALLINT"
    INT = "INTEGER"
    BIGINT = "BIGINT"
    REAL = "REAL"
    DOUBLE = "DOUBLE"
    VARCHAR = "VARCHAR"
    BYTES = "BYTES"
    JSONB = "JSONB"  # a document, as its text (`expr/jsonb_text.py`)
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMPTZ = "TIMESTAMPTZ"  # the same moment in UTC; it is written with its zone
    INTERVAL = "INTERVAL"  # months, days and microseconds; of expressions only: no column has it
    NULL = "NULL"  # the type of a bare NULL literal; fits every other type

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    element: Type

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class Map:
    key: Type
    value: Type

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Column, ...]

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(f'{f.name} {f.type}' for f in self.fields)}>"


Type = Scalar | Decimal | Array | Map | Struct

DAY_MS = 86_400_000
UNITS = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": DAY_MS}
UNITS |= {f"{unit}S": ms for unit, ms in UNITS.items()}  # of durations, in ms

# A DATE is before MAX_DAY and not before its negative, a time before MAX_TIME (ms): 260,000 years, as calendars
# have them. As microseconds such a time has 64 bits. Those before 1970 are times like any other, at every door.
MAX_DAY = 95_000_000
MAX_TIME = MAX_DAY * DAY_MS

MILLISECONDS = "milliseconds"
A_SECOND = {"seconds": 1, MILLISECONDS: 1000, "microseconds": 10**6, "nanoseconds": 10**9}
_LIKELY = range(631_152_000, 4_102_444_800)  # s of 1990 to 2100; as milliseconds they are of January and February 1970


def unit_of(time: int) -> str | None:
    """The unit in which a number is a time of 1990 to 2100; None where it is in none."""
    return next((unit for unit, n in A_SECOND.items() if time // n in _LIKELY), None)


def is_time(ms: int) -> bool:
    """Whether it can be the time of a record."""
    return -MAX_TIME <= ms < MAX_TIME


def are_times(ms: pl.Series) -> pl.Series:
    """The same of many; null of null."""
    return ms.is_between(-MAX_TIME, MAX_TIME - 1)


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column (or STRUCT field)."""

    name: str
    type: Type


WHOLE_NUMBERS: tuple[Scalar, ...] = (Scalar.SMALLINT, Scalar.INT, Scalar.BIGINT)
FLOATS: tuple[Scalar, ...] = (Scalar.REAL, Scalar.DOUBLE)
TIMESTAMPS: tuple[Scalar, ...] = (Scalar.TIMESTAMP, Scalar.TIMESTAMPTZ)


def is_numeric(t: Type) -> bool:
    return t in WHOLE_NUMBERS or t in FLOATS or isinstance(t, Decimal)


def has_documents(t: Type) -> bool:
    """Whether there is a JSONB in it. Not every text of its Polars dtype is a value of such a type."""
    match t:
        case Array(element):
            return has_documents(element)
        case Map(_, value):
            return has_documents(value)
        case Struct(fields):
            return any(has_documents(f.type) for f in fields)
    return t is Scalar.JSONB


def has_structures(t: Type) -> bool:
    """Whether it is a STRUCT, or an array of them."""
    return has_structures(t.element) if isinstance(t, Array) else isinstance(t, Struct)


@lru_cache(maxsize=4096)
def polars_type(t: Type) -> pl.DataType:
    """The Polars dtype that holds values of `t`."""
    return _dtype(t, _SCALAR_DTYPES)


@lru_cache(maxsize=4096)
def physical_type(t: Type) -> pl.DataType:
    """The same with dates and times as numbers, which Python and JSON always have. It casts to `polars_type`."""
    return _dtype(t, _PHYSICAL_DTYPES)


def _dtype(t: Type, scalars: Mapping[Scalar, Callable[[], pl.DataType]]) -> pl.DataType:
    match t:
        case Scalar():
            return scalars[t]()
        case Decimal(precision, scale):
            return pl.Decimal(precision, scale)
        case Array(element):
            return pl.List(_dtype(element, scalars))
        case Map(key, value):
            return pl.List(pl.Struct({"key": _dtype(key, scalars), "value": _dtype(value, scalars)}))
        case Struct(fields):
            return pl.Struct({f.name: _dtype(f.type, scalars) for f in fields})
    assert_never(t)


_SCALAR_DTYPES: dict[Scalar, Callable[[], pl.DataType]] = {
    Scalar.BOOLEAN: pl.Boolean,
    Scalar.SMALLINT: pl.Int16,
    Scalar.INT: pl.Int32,
    Scalar.BIGINT: pl.Int64,
    Scalar.REAL: pl.Float32,
    Scalar.DOUBLE: pl.Float64,
    Scalar.VARCHAR: pl.String,
    Scalar.BYTES: pl.Binary,
    Scalar.JSONB: pl.String,
    Scalar.DATE: pl.Date,
    Scalar.TIME: pl.Time,
    Scalar.TIMESTAMP: lambda: pl.Datetime("us"),
    Scalar.TIMESTAMPTZ: lambda: pl.Datetime("us"),
    Scalar.INTERVAL: lambda: pl.Struct({"months": pl.Int32, "days": pl.Int32, "us": pl.Int64}),
    Scalar.NULL: pl.Null,
}
_PHYSICAL_DTYPES = _SCALAR_DTYPES | {
    Scalar.DATE: pl.Int32,
    Scalar.TIME: pl.Int64,
    Scalar.TIMESTAMP: pl.Int64,
    Scalar.TIMESTAMPTZ: pl.Int64,
}
