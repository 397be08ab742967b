"""Functions of dates and times: that write and read them, move them, and make numbers of them.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: ksqlDB's meaning. Null in, null out. A pattern or time zone that is wrong is refused where it is a constant, else
the row fails. A unit is a word (`DAYS`, `HOUR` …), which `bind` hands over as a text. What leaves the range of its type
is a failure; a TIME goes round the clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from braid.errors import SqlError
from braid.expr import dates, simple_dates
from braid.expr.nodes import Call, Expr, Lit
from braid.expr.signatures import (
    NO_TIME,
    Builder,
    Fallible,
    Function,
    Refused,
    Resolver,
    Signature,
    common_type,
    constant,
    forms,
    in_sql,
    null_fails,
)
from braid.types import DAY_MS, UNITS, Scalar, Type

S = Scalar
NO_PATTERN = "there is no such time, pattern or zone"
OF_UNITS = ("DATEADD", "DATESUB", "TIMEADD", "TIMESUB", "TIMESTAMPADD", "TIMESTAMPSUB")


# ------------------------------------------------------------------- patterns

_TEXT = S.VARCHAR


def _pattern(
    usage: str, source: Type, result: Type, *, reads: bool, check: Callable[[str, Type, bool], None] | None = None
) -> Resolver:
    """A value, a pattern, and maybe a time zone. `check`: of a constant pattern."""
    checked = _check if check is None else check

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        texts = all(a.type in (_TEXT, S.NULL) for a in args[1:])
        if len(args) not in (2, 3) or common_type(args[0].type, source) != source or not texts:
            return Refused(f"it takes {usage}", "a pattern is a text such as 'yyyy-MM-dd HH:mm:ss.SSS'")
        pattern = constant(args[1])
        zone = constant(args[2]) if len(args) == 3 else None
        try:
            if isinstance(zone, str):
                dates.zone(zone)
            if isinstance(pattern, str):
                checked(pattern, _shown(result if reads else source), reads)
        except SqlError as e:
            return Refused(e.message, e.hint)
        return Signature((source, *(_TEXT,) * (len(args) - 1)), result)

    return resolve


def _shown(t: Type) -> Type:
    """The type that a pattern shows; an INTEGER counts days."""
    return S.DATE if t is S.INT else t


def _check(pattern: str, t: Type, reads: bool) -> None:
    (dates.check_parse if reads else dates.check_format)(pattern)
    dates.check_fields(pattern, t, reads=reads)
    if not reads:  # some letters are known but not in every count
        dates.format_pattern(pl.lit(None, dates.DATETIME), pattern, dates.zone("UTC"))


def _check_simple(pattern: str, t: Type, reads: bool) -> None:
    if reads:
        simple_dates.check_parse(pattern)
        _check(pattern, t, reads)
    else:
        simple_dates.check_format(pattern, t)


def _each(call: Call, args: list[pl.Expr], f: Callable[..., pl.Expr], dtype: pl.DataType) -> pl.Expr:
    """`f` of the first argument and of the texts behind it; where these are columns, once for equal texts."""
    texts = [constant(a) for a in call.args[1:]]
    if all(isinstance(t, str) for t in texts):
        return f(args[0], *texts)

    def by_text(s: pl.Series) -> pl.Series:
        frame = s.struct.unnest()
        names = frame.columns[1:]
        made = pl.Series(s.name, [None] * frame.height, dtype=dtype)
        for some in frame.with_row_index("at").drop_nulls(names).partition_by(names, maintain_order=True):
            given = [some[n][0] for n in names]
            with contextlib.suppress(SqlError):  # no such pattern, no such zone: null
                value = some.select(f(pl.col(frame.columns[0]), *given).cast(dtype).alias("v"))["v"]
                made = made.scatter(some["at"], value)
        return made

    packed = pl.struct([a.alias(str(i)) for i, a in enumerate(args)])
    return packed.map_batches(by_text, return_dtype=dtype, is_elementwise=True)


def _from_unixtime(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return dates.instant(args[0])


def _midnights(s: pl.Series) -> pl.Series:
    """The days of times that begin them; null for other times."""
    days = s.dt.date()
    return days.set((s != days.cast(dates.DATETIME)).fill_null(False), None)


def by_template(name: str, usage: str, source: Scalar, result: Scalar, *, null: str | None = None) -> Function:
    """SQLstream's way of asking: the pattern comes first. `null`: what NULL becomes. A text is read as far as the
    pattern goes, fields that it has not are those of 1970-01-01 00:00:00."""
    reads = source is _TEXT
    resolve_turned = _pattern(usage, source, result, reads=reads, check=_check_simple)

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        found = resolve_turned(args[::-1]) if len(args) == 2 else Refused(f"it takes {usage}")
        return found if isinstance(found, Refused) else replace(found, args=found.args[::-1])

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        turned = replace(call, args=call.args[::-1])
        if reads:
            return _parse(turned, args[::-1], whole=False)
        made = _format(turned, args[::-1], simple=True)
        return made if null is None else pl.when(args[1].is_null()).then(pl.lit(null)).otherwise(made)

    of = null_fails(build, NO_PATTERN)
    return Function(f"sql.{name.lower()}", resolve, of, names=in_sql(sqlstream=name))


def _format(call: Call, args: list[pl.Expr], *, simple: bool = False) -> pl.Expr:
    """`simple`: by a pattern of SimpleDateFormat."""
    x = args[0]
    match call.args[0].type:
        case S.BIGINT:
            x = dates.instant(x)
        case S.DATE:
            x = x.cast(dates.DATETIME)
        case S.TIME:
            x = x.cast(pl.Int64).floordiv(1000).cast(dates.DATETIME)
        case S.INT:
            x = dates.day(x.cast(pl.Int64)).cast(dates.DATETIME)

    def written(x: pl.Expr, pattern: str, zone: str = "UTC") -> pl.Expr:
        if simple:
            return simple_dates.format_pattern(x, pattern, _shown(call.args[0].type))
        dates.check_fields(pattern, _shown(call.args[0].type), reads=False)
        return dates.format_pattern(x, pattern, dates.zone(zone))

    return _each(call, [x, *args[1:]], written, pl.String())


def _parse(call: Call, args: list[pl.Expr], *, whole: bool | None = None) -> pl.Expr:
    """`whole`: whether the pattern is of all of the text."""
    # ksqlDB reads a date by SimpleDateFormat, which passes over what follows it
    to_end = call.function != "PARSE_DATE" if whole is None else whole

    def read(x: pl.Expr, pattern: str, zone: str = "UTC") -> pl.Expr:
        if whole is False:
            simple_dates.check_parse(pattern)
        dates.check_parse(pattern)
        dates.check_fields(pattern, call.type, reads=True)
        return dates.parse_pattern(x, pattern, dates.zone(zone), whole=to_end, loose=whole is False)

    out = _each(call, args, read, pl.Datetime("us"))
    match call.type:
        case S.BIGINT:
            return out.dt.epoch("ms")
        case S.DATE:
            return out.map_batches(_midnights, return_dtype=pl.Date, is_elementwise=True)
        case S.TIME:
            return out.dt.time()
        case S.INT:
            return out.dt.date().cast(pl.Int32)
    return out


def _format_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """By a constant pattern only a number can fail that is no time."""
    if not all(isinstance(constant(a), str) for a in call.args[1:]) or call.args[0].type is S.INT:
        return null_fails(_format).failed(call, args)
    return null_fails(_from_unixtime).failed(call, args[:1]) if call.args[0].type is S.BIGINT else pl.lit(False)


def _written(name: str, usage: str, source: Scalar) -> Function:
    return Function(name, _pattern(usage, source, _TEXT, reads=False), Fallible(_format, _format_failed, NO_PATTERN))


def _read(name: str, usage: str, result: Scalar) -> Function:
    return Function(name, _pattern(usage, _TEXT, result, reads=True), null_fails(_parse, NO_PATTERN))


_TO_MILLISECONDS: dict[Type, str] = {
    _TEXT: "STRINGTOTIMESTAMP(text, 'yyyy-MM-dd HH:mm:ss') gives the milliseconds of a text",
    S.DATE: "write UNIX_TIMESTAMP(CAST(x AS TIMESTAMP)); UNIX_DATE gives days",
    **dict.fromkeys((S.INT, S.BIGINT), "a number of milliseconds is what it gives: leave it out"),
}


def _unix_timestamp(args: Sequence[Expr]) -> Signature | Refused:
    if not args:
        return Refused(
            "without an argument it is the processing time: a batch that is run again would give other rows",
            "use ROWTIME, the time of the record",
        )
    type_ = args[0].type
    made = forms("a TIMESTAMP", ((S.TIMESTAMP,), S.BIGINT))(args)
    return replace(made, hint=_TO_MILLISECONDS.get(type_)) if isinstance(made, Refused) and len(args) == 1 else made


# ---------------------------------------------------------------------- moving


def _resolve_moved(t: Scalar) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        unit = constant(args[0]) if len(args) == 3 else None
        if unit not in UNITS:
            return Refused(f"it takes a unit, an INTEGER and a {t}", f"units are {', '.join(UNITS)}")
        return forms(f"a unit, an INTEGER and a {t}", ((S.VARCHAR, S.INT, t), t))(args)

    return resolve


def _moved(sign: int, t: Scalar) -> Function:
    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        unit = constant(call.args[0])
        assert isinstance(unit, str)
        by = args[1].cast(pl.Int64) * (UNITS[unit] * sign)
        match t:
            case S.DATE:  # part of a day is cut off, towards 1970
                ms = args[2].cast(pl.Int32).cast(pl.Int64) * DAY_MS + by
                return dates.day(ms.sign() * ms.abs().floordiv(DAY_MS))
            case S.TIME:
                ms = args[2].cast(pl.Int64).floordiv(1_000_000) + by
                return dates.time_of_day(ms % DAY_MS)
        ms = args[2].dt.epoch("ms") + by
        return dates.instant(ms)

    name = f"{t.value}{'ADD' if sign > 0 else 'SUB'}"
    return Function(name, _resolve_moved(t), null_fails(build, NO_TIME))


def _resolve_zones(args: Sequence[Expr]) -> Signature | Refused:
    try:
        for a in args[1:]:
            if isinstance(zone := constant(a), str):
                dates.zone(zone)
    except SqlError as e:
        return Refused(e.message, e.hint)
    return forms("a TIMESTAMP and two time zones", ((S.TIMESTAMP, S.VARCHAR, S.VARCHAR), S.TIMESTAMP))(args)


def _convert(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Moved by the difference of the zones' clocks at that instant."""

    def moved(x: pl.Expr, source: str, target: str) -> pl.Expr:
        by = dates.to_local(x, dates.zone(target)) - dates.to_local(x, dates.zone(source))
        return dates.instant(x.dt.epoch("ms") + by.dt.total_milliseconds())

    return _each(call, args, moved, pl.Datetime("us"))


def _from_days(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return dates.day(args[0].cast(pl.Int64))


def _unix_date(args: Sequence[Expr]) -> Signature | Refused:
    if not args:
        return Refused(
            "without an argument it is the present day: a batch that is run again would give other rows",
            "use ROWTIME, the time of the record",
        )
    return forms("a DATE", ((S.DATE,), S.INT))(args)


# ---------------------------------------------------------------------- Lenses


def _alone(resolve: Resolver) -> Resolver:
    """Lenses' patterns have no time zone of their own: all times are UTC."""
    return lambda args: resolve(args) if len(args) == 2 else Refused("it takes a value and a pattern")


_moment_read = _alone(_pattern("a text and a pattern", _TEXT, S.TIMESTAMP, reads=True))
_moment_written = _alone(_pattern("a TIMESTAMP and a pattern", S.TIMESTAMP, _TEXT, reads=False))
_day_written = _alone(_pattern("a DATE and a pattern", S.DATE, _TEXT, reads=False))


def _resolve_written(args: Sequence[Expr]) -> Signature | Refused:
    return _day_written(args) if args and args[0].type is S.DATE else _moment_written(args)


def _resolve_moment(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) == 1:
        found = forms("a LONG of milliseconds, or a text and a pattern", ((S.BIGINT,), S.TIMESTAMP))(args)
        return replace(found, name="FROM_UNIXTIME") if isinstance(found, Signature) else found
    return _moment_read(args)


def _resolve_day(args: Sequence[Expr]) -> Signature | Refused:
    found = _moment_read(args)
    return replace(found, result=S.DATE) if isinstance(found, Signature) else found


def _read_day(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The day of a text whose pattern may hold a time, too."""
    return _parse(replace(call, type=S.TIMESTAMP), args).dt.date()


def _resolve_converted(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) != 3:
        return Refused("it takes a text, its pattern and the pattern to write")
    read = _moment_read(args[:2])
    if isinstance(read, Refused):
        return read
    written = _moment_written((Lit(None, S.TIMESTAMP), args[2]))
    return written if isinstance(written, Refused) else Signature((_TEXT,) * 3, _TEXT)


def _converted(call: Call, args: list[pl.Expr]) -> pl.Expr:
    def moved(x: pl.Expr, source: str, target: str) -> pl.Expr:
        dates.check_parse(source)
        dates.check_format(target)
        utc = dates.zone("UTC")
        return dates.format_pattern(dates.parse_pattern(x, source, utc), target, utc)

    return _each(call, args, moved, pl.String())


def _part(name: str, f: Callable[[pl.Expr], pl.Expr]) -> Function:
    """A field of a time in UTC; a DATE is its midnight."""
    return Function(
        name.lower(),
        forms("a TIMESTAMP", ((S.TIMESTAMP,), S.INT), ((S.DATE,), S.INT)),
        lambda call, args: f(args[0].cast(dates.DATETIME)).cast(pl.Int32),
        names=in_sql(ksqldb="", lenses=name),
    )


def _read_by(name: str, resolve: Resolver, build: Builder, lenses: str) -> Function:
    """What reads a text by a pattern, which it may not fit."""
    return Function(name, resolve, null_fails(build, NO_PATTERN), names=in_sql(ksqldb="", lenses=lenses))


_LENSES = (
    _part("YEAR", lambda x: x.dt.year()),
    _part("MONTH", lambda x: x.dt.month()),
    _part("DAY", lambda x: x.dt.day()),
    _part("HOUR", lambda x: x.dt.hour()),
    _part("MINUTE", lambda x: x.dt.minute()),
    _part("SECOND", lambda x: x.dt.second()),
    Function(
        "month_text",
        forms("a TIMESTAMP", ((S.TIMESTAMP,), _TEXT), ((S.DATE,), _TEXT)),
        lambda call, args: dates.format_pattern(args[0].cast(dates.DATETIME), "MMMM", dates.zone("UTC")),
        names=in_sql(ksqldb="", lenses="MONTH_TEXT"),
    ),
    Function(
        "format_timestamp",
        _resolve_written,
        Fallible(_format, _format_failed, NO_PATTERN),
        names=in_sql(ksqldb="", lenses="FORMAT_DATE FORMAT_TIME FORMAT_TIMESTAMP"),
    ),
    _read_by("to_datetime", _moment_read, _parse, "TO_DATETIME PARSE_TIMESTAMP_MILLIS"),
    _read_by("to_timestamp", _resolve_moment, _parse, "TO_TIMESTAMP"),
    _read_by("to_date", _resolve_day, _read_day, "TO_DATE PARSE_DATE"),
    _read_by("convert_datetime", _resolve_converted, _converted, "CONVERT_DATETIME"),
)

# ----------------------------------------------------------------------- table

_ZONED = "and a pattern, and maybe a time zone"

TIME_FUNCTIONS = {
    f.name: f
    for f in (
        Function("UNIX_TIMESTAMP", _unix_timestamp, lambda call, args: args[0].dt.epoch("ms")),
        Function(
            "FROM_UNIXTIME",
            forms("a BIGINT of milliseconds", ((S.BIGINT,), S.TIMESTAMP)),
            null_fails(_from_unixtime, NO_TIME),
            names=in_sql(lenses="TIMESTAMP_MILLIS"),
        ),
        _written("TIMESTAMPTOSTRING", f"a BIGINT of milliseconds, {_ZONED}", S.BIGINT),
        _written("FORMAT_TIMESTAMP", f"a TIMESTAMP, {_ZONED}", S.TIMESTAMP),
        _written("FORMAT_DATE", "a DATE and a pattern", S.DATE),
        _written("FORMAT_TIME", "a TIME and a pattern", S.TIME),
        _written("DATETOSTRING", "an INTEGER of days and a pattern", S.INT),
        _read("STRINGTODATE", "a VARCHAR and a pattern", S.INT),
        _read("STRINGTOTIMESTAMP", f"a VARCHAR, {_ZONED}", S.BIGINT),
        _read("PARSE_TIMESTAMP", f"a VARCHAR, {_ZONED}", S.TIMESTAMP),
        _read("PARSE_DATE", "a VARCHAR and a pattern", S.DATE),
        _read("PARSE_TIME", "a VARCHAR and a pattern", S.TIME),
        *(_moved(sign, t) for t in (S.DATE, S.TIME, S.TIMESTAMP) for sign in (1, -1)),
        Function("CONVERT_TZ", _resolve_zones, null_fails(_convert, NO_PATTERN)),
        Function(
            "FROM_DAYS",
            forms("an INTEGER of days", ((S.INT,), S.DATE)),
            null_fails(_from_days, NO_TIME),
        ),
        Function("UNIX_DATE", _unix_date, lambda call, args: args[0].cast(pl.Int32)),
        *_LENSES,
    )
}
