"""Functions that move dates and times, and make numbers of days of them.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: ksqlDB's meaning. Null in, null out. A unit is a word (`DAYS`, `HOUR` …), which `bind` hands over as a text. What
leaves the range of its type is a failure; a TIME goes round the clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.errors import SqlError
from braid.expr import dates
from braid.expr.nodes import Call, Expr
from braid.expr.signatures import Function, Refused, Resolver, Signature, constant, forms, null_failed
from braid.types import DAY_MS, UNITS, Scalar

S = Scalar
OF_UNITS = ("DATEADD", "DATESUB", "TIMEADD", "TIMESUB", "TIMESTAMPADD", "TIMESTAMPSUB")


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
    return Function(name, _resolve_moved(t), build, null_failed(build))


def _resolve_zones(args: Sequence[Expr]) -> Signature | Refused:
    zones = [constant(a) for a in args[1:]]
    if len(args) != 3 or not all(isinstance(z, str) for z in zones):
        return Refused("it takes a TIMESTAMP and two time zones", "the zones are constants: 'UTC', 'Europe/London'")
    try:
        for z in zones:
            dates.zone(str(z))
    except SqlError as e:
        return Refused(e.message, e.hint)
    return forms("a TIMESTAMP and two time zones", ((S.TIMESTAMP, S.VARCHAR, S.VARCHAR), S.TIMESTAMP))(args)


def _convert(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Moved by the difference of the zones' clocks at that instant."""
    source, target = (dates.zone(str(constant(a))) for a in call.args[1:])
    x = args[0]
    by = dates.to_local(x, target) - dates.to_local(x, source)
    return dates.instant(x.dt.epoch("ms") + by.dt.total_milliseconds())


def _from_days(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return dates.day(args[0].cast(pl.Int64))


def _unix_date(args: Sequence[Expr]) -> Signature | Refused:
    if not args:
        return Refused(
            "without an argument it is the present day: a batch that is run again would give other rows",
            "use ROWTIME, the time of the record",
        )
    return forms("a DATE", ((S.DATE,), S.INT))(args)


TIME_FUNCTIONS = {
    f.name: f
    for f in (
        *(_moved(sign, t) for t in (S.DATE, S.TIME, S.TIMESTAMP) for sign in (1, -1)),
        Function("CONVERT_TZ", _resolve_zones, _convert, null_failed(_convert)),
        Function("FROM_DAYS", forms("an INTEGER of days", ((S.INT,), S.DATE)), _from_days, null_failed(_from_days)),
        Function("UNIX_DATE", _unix_date, lambda call, args: args[0].cast(pl.Int32)),
    )
}
