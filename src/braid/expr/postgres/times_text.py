"""Casts between text and dates, times and intervals, and among these, of columns.

In: Polars expressions. Out: Polars expressions.
Rule: as `moments` and `interval_text` read and write one value; columnar where a text has the plain ISO form and a time
the years 1 to 9999, else once for equal values. A TIMESTAMPTZ is written with `+00:00`, as RisingWave does
(docs.risingwave.com/sql/functions/datetime; PostgreSQL writes `+00`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from braid.expr.postgres.calendar import DAY, SECOND, civil, clock, column, listed, physical
from braid.expr.postgres.interval_text import interval_of_text, text_of_interval
from braid.expr.postgres.moments import date_of_text, time_of_text, timestamp_of_text, timestamptz_of_text
from braid.expr.signatures import or_null
from braid.types import Scalar, polars_type

S = Scalar
ZONE = "+00:00"
OF_TEXT: Mapping[Scalar, Callable[[str], object]] = {
    S.DATE: date_of_text,
    S.TIME: time_of_text,
    S.TIMESTAMP: timestamp_of_text,
    S.TIMESTAMPTZ: timestamptz_of_text,
    S.INTERVAL: interval_of_text,
}

# ----------------------------------------------------------------------- reading

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,6})?"
_PLAIN = {
    S.DATE: (rf"^{_DAY}$", "%Y-%m-%d"),
    S.TIME: (rf"^{_TIME}$", "%H:%M:%S%.f"),
    S.TIMESTAMP: (rf"^{_DAY}[ T]{_TIME}$", "%Y-%m-%d %H:%M:%S%.f"),
    S.TIMESTAMPTZ: (rf"^{_DAY}[ T]{_TIME}(?:Z|\+00(?::?00)?)?$", "%Y-%m-%d %H:%M:%S%.f"),
}


def to_moment(x: pl.Expr, target: Scalar) -> pl.Expr:
    """The DATE, TIME, TIMESTAMP, TIMESTAMPTZ or INTERVAL of a text; null where it is none."""
    return x.map_batches(lambda s: moments(s, target), return_dtype=polars_type(target), is_elementwise=True)


def moments(s: pl.Series, target: Scalar) -> pl.Series:
    """The same of a column."""
    dtype = polars_type(target)
    made = _plain(s, target) if target in _PLAIN else pl.Series([None], dtype=dtype).new_from_index(0, len(s))
    odd = made.is_null() & s.is_not_null()
    if odd.any():
        at = odd.arg_true()
        texts = s.gather(at).to_list()
        known = {text: or_null(OF_TEXT[target])(text) for text in set(texts)}
        read = column([known[text] for text in texts], target)
        made = read if len(at) == len(s) else _put(made, at, read)
    return made.alias(s.name)


def _put(s: pl.Series, at: pl.Series, values: pl.Series) -> pl.Series:
    """`s` with other values at these places; of numbers, as Polars puts dates by objects of Python."""
    if isinstance(s.dtype, pl.Struct):
        order = pl.Series(np.arange(len(s))).scatter(at, pl.Series(np.arange(len(values)) + len(s)))
        return pl.concat([s, values]).gather(order)
    return s.to_physical().scatter(at, values.to_physical()).cast(s.dtype)


def _plain(s: pl.Series, target: Scalar) -> pl.Series:
    form, pattern = _PLAIN[target]
    texts = s.set(~s.str.contains(form) | s.str.starts_with("0000"), None) if target is not S.TIME else s
    match target:
        case S.DATE:
            return texts.str.to_date(pattern, strict=False)
        case S.TIME:
            return s.set(~s.str.contains(form), None).str.to_time(pattern, strict=False)
    if target is S.TIMESTAMPTZ:
        texts = texts.str.replace(r"(?:Z|\+00(?::?00)?)$", "")
    return texts.str.replace("T", " ", literal=True).str.to_datetime(pattern, time_unit="us", strict=False)


# ------------------------------------------------------------------------ among

CASTS = {
    *((S.DATE, t) for t in (S.TIMESTAMP, S.TIMESTAMPTZ)),
    *((t, S.DATE) for t in (S.TIMESTAMP, S.TIMESTAMPTZ)),
    *((t, S.TIME) for t in (S.TIMESTAMP, S.TIMESTAMPTZ, S.INTERVAL)),
    (S.TIMESTAMP, S.TIMESTAMPTZ),
    (S.TIMESTAMPTZ, S.TIMESTAMP),
    (S.TIME, S.INTERVAL),
}
"""Which of these become others by CAST; none of them fails."""


def converted(x: pl.Expr, source: Scalar, target: Scalar) -> pl.Expr:
    """One of them as another."""
    match source, target:
        case S.DATE, _:
            return (x.to_physical().cast(pl.Int64) * DAY).cast(pl.Datetime("us"))
        case _, S.DATE:
            return x.to_physical().floordiv(DAY).cast(pl.Int32).cast(pl.Date)
        case S.INTERVAL, S.TIME:
            return (x.struct.field("us") % DAY * 1000).cast(pl.Time)
        case _, S.TIME:
            return (x.to_physical() % DAY * 1000).cast(pl.Time)
        case S.TIME, _:
            us = x.to_physical() // 1000
            zero = (us * 0).cast(pl.Int32)
            return pl.when(x.is_not_null()).then(pl.struct(zero.alias("months"), zero.alias("days"), us.alias("us")))
    return x


# ----------------------------------------------------------------------- writing

_WRITTEN = {S.DATE: "%Y-%m-%d", S.TIME: "%H:%M:%S%.6f"}
_MOMENT = "%Y-%m-%d %H:%M:%S%.6f"


def text_of(x: pl.Expr, source: Scalar) -> pl.Expr:
    """The text of a DATE, TIME, TIMESTAMP, TIMESTAMPTZ or INTERVAL."""
    return x.map_batches(lambda s: texts(s, source), return_dtype=pl.String, is_elementwise=True)


def texts(s: pl.Series, source: Scalar) -> pl.Series:
    """The same of a column."""
    if source is S.INTERVAL:
        return pl.Series(s.name, _each(text_of_interval, listed(s, source)), dtype=pl.String)
    plain = s.dt.strftime(_WRITTEN.get(source, _MOMENT))
    if source is not S.DATE:
        plain = plain.str.replace(r"\.?0+$", "")
    if source is S.TIMESTAMPTZ:
        plain = plain + ZONE
    if source is S.TIME:
        return plain
    odd = ~s.dt.year().is_between(1, 9999) & s.is_not_null()
    if odd.any():
        at = odd.arg_true()
        values = physical(s, source).gather(at).to_list()
        plain = plain.scatter(at, pl.Series(_each(_FAR[source], values), dtype=pl.String))
    return plain.alias(s.name)


def _each(f: Callable[[Any], str], values: list[Any]) -> list[str | None]:
    known = {v: f(v) for v in set(values) if v is not None}
    return [None if v is None else known[v] for v in values]


def text_of_date(days: int) -> str:
    year, month, day = civil(days)
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}{'' if year > 0 else ' BC'}"


def text_of_moment(us: int, zone: str = "") -> str:
    date, _, era = text_of_date(us // DAY).partition(" ")
    return f"{date} {text_of_time(us % DAY)}{zone}{' ' + era if era else ''}"


def text_of_time(us: int) -> str:
    hour, minute, second, _ = clock(us)
    micro = us % SECOND
    return f"{hour:02}:{minute:02}:{second:02}{f'.{micro:06}'.rstrip('0') if micro else ''}"


_FAR: Mapping[Scalar, Callable[[int], str]] = {
    S.DATE: text_of_date,
    S.TIMESTAMP: text_of_moment,
    S.TIMESTAMPTZ: lambda us: text_of_moment(us, ZONE),
}
