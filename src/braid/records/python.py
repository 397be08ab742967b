"""Values of Python that are given, and columns as values of Python.

In: values (date, Decimal, bytes, dict …) and the types they are meant to have; typed columns. Out: the JSON forms of
the values; the values of the columns.
Rule: what does not fit its type is passed on as it is, so that a malformed record can be written too.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import decimal
from typing import Any

import polars as pl

from braid.expr.json_text import dumps
from braid.records.values import EPOCH, EXACT, FIRST_DAY, LAST_DAY, fewest_digits, plain_double
from braid.types import DAY_MS, Array, Decimal, Map, Scalar, Struct, Type

S = Scalar
_PER_DAY = {"ms": DAY_MS, "us": DAY_MS * 1000, "ns": DAY_MS * 1_000_000}


def json_value(value: object, t: Type) -> Any:
    """A logical Python value (date, Decimal, bytes, dict …) in the JSON form of `t`.

    A REAL is as an array of singles gives it, or as it is written: 1.100000023841858 or 1.1.
    """
    match value, t:
        case (dict(), Map(k, v)):
            return {map_key(json_value(key, k)): json_value(item, v) for key, item in value.items()}
        case (dict(), Struct(fields)):
            types = {f.name.lower(): f.type for f in fields}
            return {name: json_value(item, types.get(str(name).lower(), S.NULL)) for name, item in value.items()}
        case (dict(), _):
            return {str(k): json_value(v, S.NULL) for k, v in value.items()}
        case (list() | tuple(), _):
            element = t.element if isinstance(t, Array) else S.NULL
            return [json_value(v, element) for v in value]
        case (int() | decimal.Decimal(), Decimal()) if not isinstance(value, bool):
            return _scaled(decimal.Decimal(value), t)
        case (decimal.Decimal(), _):
            return format(value, "f")
        case (float(), S.REAL):
            return plain_double(fewest_digits(value))
        case (float(), _):
            return plain_double(value)
        case (bytes(), _):
            return base64.b64encode(value).decode()
        case (dt.datetime(), _):
            naive = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
            return (naive - EPOCH) // dt.timedelta(milliseconds=1)
        case (dt.date(), _):
            return (value - EPOCH.date()).days
        case (dt.time(), _):
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    return value


def _scaled(value: decimal.Decimal, t: Decimal) -> str:
    """At the scale of the type where that loses nothing."""
    if value.is_finite() and value.adjusted() < 100:
        with contextlib.suppress(decimal.Inexact):
            value = EXACT.quantize(value, decimal.Decimal(1).scaleb(-t.scale))
    return format(value, "f")


def map_key(simple: Any) -> str:
    """The name that a map key, in its JSON form, gets in a JSON object."""
    return simple if isinstance(simple, str) else dumps(simple)


def python_values(s: pl.Series) -> list[Any]:
    """A column's values; a date or time that Python has none for is its number."""
    if s.dtype != pl.Date and not isinstance(s.dtype, pl.Datetime):
        return s.to_list()
    odd = ~in_days(s, FIRST_DAY, LAST_DAY + 1)
    if not odd.any():
        return s.to_list()
    both = zip(s.set(odd, None).to_list(), s.to_physical().to_list(), odd.to_list(), strict=True)
    return [number if no_date else value for value, number, no_date in both]


def in_days(s: pl.Series, first: int, end: int) -> pl.Series:
    """Which dates or times lie on days since 1970 from `first` to before `end`; null for null."""
    per_day = _PER_DAY[s.dtype.time_unit] if isinstance(s.dtype, pl.Datetime) else 1
    return s.to_physical().is_between(max(first * per_day, -(2**63)), min(end * per_day, 2**63) - 1)
