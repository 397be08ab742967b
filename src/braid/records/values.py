"""Single values: JSON values into the physical values of a type, and the test driver's Python values.

In: what `json_text.loads` gives, types. Out: values Polars builds a series of (`types.physical_type`); Python values.
Rule: docs/files-and-topics.md, "Values", strictly: a numeric string is no number, 1.0 is no INTEGER, no digit is lost
or rounded.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime as dt
import decimal
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from braid.expr import dates
from braid.expr.json_text import RawNumber, compact, dumps, loads, map_key, plain_double
from braid.types import MAX_DAY, MAX_TIME, Array, Decimal, Map, Scalar, Struct, Type

S = Scalar
Reader = Callable[[Any], Any]
_RANGES = {S.INT: (-(2**31), 2**31), S.BIGINT: (-(2**63), 2**63), S.DATE: (-MAX_DAY, MAX_DAY), S.TIME: (0, 86_400_000)}
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_EXACT = decimal.Context(prec=2000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_EXACT.traps[decimal.Inexact] = True
_EPOCH = dt.datetime(1970, 1, 1)
_UNITS = {S.DATE: 1, S.TIME: 1_000_000, S.TIMESTAMP: 1000}  # physical units in a number of JSON
_FIRST_DAY, _LAST_DAY = ((d - _EPOCH.date()).days for d in (dt.date.min, dt.date.max))
_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_SHOWN = 60


class Malformed(ValueError):
    """A JSON value that is not one of the declared type; the text says which and why."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.path = path

    def inside(self, step: str) -> Malformed:
        """The same error, one level further out."""
        joined = step if not self.path else step + self.path if self.path.startswith("[") else f"{step}.{self.path}"
        return Malformed(self.why, joined)

    def __str__(self) -> str:
        return f"field {self.path}: {self.why}" if self.path else self.why


def _shown(value: Any) -> str:
    text = repr(str(value)) if type(value) is str else _text(compact(value))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _a(t: Type) -> str:
    return f"{'an' if str(t)[0] in 'AEIOU' else 'a'} {t}"


def _not(value: Any, t: Type) -> Malformed:
    return Malformed(f"{_shown(value)} is not {_a(t)}")


def find(fields: Mapping[str, Any], name: str, folded: dict[str, str]) -> Any:
    """The field `name`: an exact match first, then one without case (the first that was written)."""
    if name in fields:
        return fields[name]
    if not folded:
        for k in fields:
            folded.setdefault(k.lower(), k)
    match = folded.get(name.lower())
    return None if match is None else fields[match]


# ------------------------------------------------------------------- reading


def reader(t: Type, iso: bool = False) -> Reader:
    """A function from a JSON value to the physical value of `t`; it raises `Malformed`. Null stays null.

    `iso`: dates and times may be ISO text, besides numbers.
    """
    match t:
        case S.BOOLEAN:
            return _boolean
        case S.DATE | S.TIME | S.TIMESTAMP if iso:
            return _dated(t, _integer(t))
        case S.INT | S.BIGINT | S.DATE | S.TIME | S.TIMESTAMP:
            return _integer(t)
        case S.DOUBLE:
            return _double
        case S.VARCHAR:
            return _text
        case S.BYTES:
            return _bytes
        case S.NULL:
            return lambda value: None
        case Decimal():
            return _decimal(t)
        case Array(element):
            return _array(t, reader(element, iso))
        case Map(k, v):
            return _map(t, k, reader(k, iso), reader(v, iso))
        case Struct(fields):
            return _struct(t, [(f.name, reader(f.type, iso)) for f in fields])


def _boolean(value: Any) -> Any:
    if value is None or type(value) is bool:
        return value
    raise _not(value, S.BOOLEAN)


def _integer(t: Scalar) -> Reader:
    low, high = _RANGES.get(t, (-MAX_TIME, MAX_TIME))
    factor = _UNITS.get(t, 1)

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not int:
            raise _not(value, t)
        if not low <= value < high:
            raise Malformed(f"{_shown(value)} is out of range for {t}")
        return value * factor

    return read


def _dated(t: Scalar, number: Reader) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not str:
            return number(value)
        found = iso_value(value, t)
        if found is None:
            raise _not(value, t)
        return found

    return read


_COMMON = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,3})?)Z?")


def iso_value(text: str, t: Scalar) -> int | None:
    """The physical value of one text as `dates.parse_iso` reads it."""
    common = _COMMON.fullmatch(text) if t is S.TIMESTAMP else None
    if common is not None:
        with contextlib.suppress(ValueError):
            return (dt.datetime.fromisoformat(f"{common[1]}T{common[2]}") - _EPOCH) // dt.timedelta(microseconds=1)
    return _iso_value(text, t)


@lru_cache(maxsize=4096)
def _iso_value(text: str, t: Scalar) -> int | None:
    found = pl.DataFrame({"x": [text]}).select(dates.parse_iso(pl.col("x"), t)).to_series().to_physical()[0]
    return None if found is None else int(found)


def _double(value: Any) -> Any:
    kind = type(value)
    if value is None:
        return None
    if kind is int or kind is RawNumber:
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        if number in (float("inf"), float("-inf")):
            raise Malformed(f"{_shown(value)} is out of range for DOUBLE")
        return number
    if kind is str and value in _SPECIAL:
        return _SPECIAL[value]
    raise _not(value, S.DOUBLE)


def _text(value: Any) -> Any:
    if value is None:
        return None
    text = value if type(value) is str else compact(value)
    # half a surrogate pair (an escape like \ud83d) has no UTF-8
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _bytes(value: Any) -> Any:
    if value is None:
        return None
    if type(value) is str:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Malformed(f"{_shown(value)} is not base64") from None
    raise _not(value, S.BYTES)


def _decimal(t: Decimal) -> Reader:
    top = decimal.Decimal(10) ** (t.precision - t.scale)
    unit = decimal.Decimal(1).scaleb(-t.scale)

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) not in (int, str, RawNumber):
            raise _not(value, t)
        try:
            number = _EXACT.create_decimal(str(value))
        except decimal.InvalidOperation:
            raise _not(value, t) from None
        except decimal.Inexact:
            raise Malformed(f"{_shown(value)} has too many digits for {t}") from None
        if not number.is_finite() or (type(value) is str and not re.fullmatch(r"[-+.0-9eE]+", value)):
            raise _not(value, t)
        if number.adjusted() > t.precision or number.copy_abs() >= top:
            raise Malformed(f"{_shown(value)} has too many digits for {t}")
        try:
            return _EXACT.quantize(number, unit)
        except decimal.Inexact:
            raise Malformed(f"{_shown(value)} has too many digits for {t}") from None

    return read


def _array(t: Array, element: Reader) -> Reader:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not list:
            raise _not(value, t)
        out = []
        for i, v in enumerate(value):
            try:
                out.append(element(v))
            except Malformed as e:
                raise e.inside(f"[{i + 1}]") from None
        return out

    return read


def _map(t: Map, key_type: Type, key: Reader, item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise _not(value, t)
        out = []
        for k, v in value.items():
            try:
                out.append({"key": key(_key_value(k, key_type)), "value": item(v)})
            except Malformed as e:
                raise e.inside(f"[{k!r}]") from None
        return out

    return read


def _key_value(text: str, t: Type) -> Any:
    """The JSON value of a map key that is not text."""
    if t in (S.VARCHAR, S.BYTES) or isinstance(t, Decimal):
        return text
    try:
        return loads(text)
    except ValueError:
        return text


def _struct(t: Struct, fields: list[tuple[str, Reader]]) -> Reader:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise _not(value, t)
        folded: dict[str, str] = {}
        out = {}
        for name, field in fields:
            try:
                out[name] = field(find(value, name, folded))
            except Malformed as e:
                raise e.inside(name) from None
        return out

    return read


# -------------------------------------------------------- the driver's values


def json_value(value: object, t: Type) -> Any:
    """A logical Python value (date, Decimal, bytes, dict …) in the JSON form of `t`.

    What does not fit the type is passed on as it is, so that a malformed record can be written too.
    """
    match value, t:
        case (None, _):
            return None
        case (float(), S.DOUBLE):
            return plain_double(value)
        case (decimal.Decimal(), Decimal()):
            return _scaled(value, t)
        case (int(), Decimal()) if not isinstance(value, bool):
            return _scaled(decimal.Decimal(value), t)
        case (bytes(), _):
            return base64.b64encode(value).decode()
        case (dt.datetime(), _):
            naive = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
            return (naive - _EPOCH) // dt.timedelta(milliseconds=1)
        case (dt.date(), _):
            return (value - _EPOCH.date()).days
        case (dt.time(), _):
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        case (list() | tuple(), Array(element)):
            return [json_value(v, element) for v in value]
        case (dict(), Map(k, v)):
            return {map_key(json_value(key, k)): json_value(item, v) for key, item in value.items()}
        case (dict(), Struct(fields)):
            types = {f.name.lower(): f.type for f in fields}
            return {name: json_value(item, types.get(str(name).lower(), S.NULL)) for name, item in value.items()}
        case (float(), _):
            return plain_double(value)
        case (decimal.Decimal(), _):
            return format(value, "f")
        case (list() | tuple(), _):
            return [json_value(v, S.NULL) for v in value]
        case (dict(), _):
            return {str(k): json_value(v, S.NULL) for k, v in value.items()}
    return value


def _scaled(value: decimal.Decimal, t: Decimal) -> str:
    """At the scale of the type where that loses nothing."""
    if value.is_finite() and value.adjusted() < 100:
        try:
            return format(_EXACT.quantize(value, decimal.Decimal(1).scaleb(-t.scale)), "f")
        except decimal.Inexact:
            return format(value, "f")
    return format(value, "f") if value.is_finite() else str(value)


def python_value(value: Any, t: Type, time_as_int: bool) -> object:
    """A JSON value in the Python form of `t`; with `time_as_int` DATE, TIME and TIMESTAMP stay numbers, as do
    those that Python has no date for (years before 1 and after 9999)."""
    if value is None:
        return None
    if type(value) is str and t in _UNITS:  # ISO text
        number = iso_value(value, t)
        return value if number is None else python_value(number // _UNITS[t], t, time_as_int)
    match t:
        case S.DOUBLE:
            return float(value)
        case Decimal():
            return decimal.Decimal(str(value))
        case S.BYTES:
            return base64.b64decode(value)
        case S.DATE if not time_as_int:
            return _EPOCH.date() + dt.timedelta(days=value) if _FIRST_DAY <= value <= _LAST_DAY else value
        case S.TIME if not time_as_int:
            return (_EPOCH + dt.timedelta(milliseconds=value)).time()
        case S.TIMESTAMP if not time_as_int:
            dated = _FIRST_DAY <= value // 86_400_000 <= _LAST_DAY
            return _EPOCH + dt.timedelta(milliseconds=value) if dated else value
        case Array(element):
            return [python_value(v, element, time_as_int) for v in value]
        case Map(k, v):
            return {
                python_value(_key_value(key, k), k, time_as_int): python_value(x, v, time_as_int)
                for key, x in value.items()
            }
        case Struct(fields):
            folded: dict[str, str] = {}
            return {f.name: python_value(find(value, f.name, folded), f.type, time_as_int) for f in fields}
        case S.VARCHAR:
            return value if type(value) is str else compact(value)
        case _:
            return value


def python_values(s: pl.Series) -> list[Any]:
    """A column's values; a date or time that Python has none for is its number."""
    if s.dtype != pl.Date and not isinstance(s.dtype, pl.Datetime):
        return s.to_list()
    odd = ~in_days(s, _FIRST_DAY, _LAST_DAY + 1)
    if not odd.any():
        return s.to_list()
    both = zip(s.set(odd, None).to_list(), s.to_physical().to_list(), odd.to_list(), strict=True)
    return [number if no_date else value for value, number, no_date in both]


def in_days(s: pl.Series, first: int, end: int) -> pl.Series:
    """Which dates or times lie on days since 1970 from `first` to before `end`; null for null."""
    per_day = _PER_DAY[s.dtype.time_unit] if isinstance(s.dtype, pl.Datetime) else 1
    return s.to_physical().is_between(max(first * per_day, -(2**63)), min(end * per_day, 2**63) - 1)


__all__ = ["Malformed", "dumps", "find", "in_days", "json_value", "python_value", "python_values", "reader"]
