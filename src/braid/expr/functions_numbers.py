"""Functions of numbers.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: ksqlDB's meaning: doubles in and out, as Java's Math has them; what has no value is NaN or infinite, no failure.
TRUNC keeps a DECIMAL exact. Null in, null out.
"""

from __future__ import annotations

import decimal as py
import math
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from braid.expr.arithmetic import of_doubles
from braid.expr.casts import cast, fit
from braid.expr.nodes import Call, Expr
from braid.expr.rows import distinct
from braid.expr.signatures import Fallible, Function, Refused, Signature, common_type, constant, decimal, forms, in_sql
from braid.types import Decimal, Scalar, polars_type

S = Scalar
_D = S.DOUBLE


def _of_one(name: str, f: Callable[[pl.Expr], pl.Expr], **names: str) -> Function:
    return Function(name, forms("a number", ((_D,), _D)), lambda call, args: f(args[0]), names=in_sql(**names))


def _of_two(name: str, usage: str, f: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Function:
    return Function(name, forms(usage, ((_D, _D), _D)), lambda call, args: f(*args))


def _radians(x: pl.Expr) -> pl.Expr:
    return x * (math.pi / 180.0)


def _log(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """To base 10; with two arguments to the base of the first, NaN where it is no base."""
    if len(args) == 1:
        return log10(args[0])
    base, x = args
    made = of_doubles(np.divide, x.log(), base.log())  # null for a base of 1
    return pl.when((base <= 0) | (base == 1)).then(pl.when(x.is_not_null()).then(math.nan)).otherwise(made)


def log10(x: pl.Expr) -> pl.Expr:
    """NumPy's: Polars divides logarithms, and that of 1000 is not 3 then."""
    return x.map_batches(_log10, return_dtype=pl.Float64, is_elementwise=True)


def _log10(s: pl.Series) -> pl.Series:
    with np.errstate(all="ignore"):
        return pl.Series(s.name, np.log10(s.fill_null(1.0).to_numpy())).set(s.is_null(), None)


def power(base: pl.Expr, exponent: pl.Expr) -> pl.Expr:
    """1 to the NaN, and -1 or 1 to an infinite power, are NaN, as Java's."""
    odd = exponent.is_nan() | (exponent.is_infinite() & (base.abs() == 1))
    return pl.when(odd & base.is_not_null()).then(math.nan).otherwise(base.pow(exponent))


# ------------------------------------------------------------------------ TRUNC


def _resolve_trunc(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) in (1, 2):
        t = args[0].type
        places = (S.INT,) * (len(args) - 1)
        if len(args) == 1 or common_type(args[1].type, S.INT) is S.INT:
            if isinstance(t, Decimal):
                return Signature((t, *places), t if places else decimal(t.precision - t.scale, 0))
            if t in (S.INT, S.BIGINT) and not places:
                return Signature((t,), S.BIGINT)
            if t in (S.INT, S.BIGINT, _D, S.NULL):
                return Signature((_D, *places), _D if places else S.BIGINT)
    return Refused("it takes a number, and an INTEGER of decimal places")


def _trunc(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Towards zero."""
    x, t = args[0], call.args[0].type
    if isinstance(t, Decimal):
        result = call.type
        assert isinstance(result, Decimal)
        if len(args) == 1:
            return x.cast(pl.Decimal(38, t.scale)).cast(pl.Int128).cast(polars_type(result), strict=False)
        return distinct(lambda v, n: fit(_cut(v, n), result), args, polars_type(result))
    if len(args) == 1:
        return x.cast(pl.Int64) if t in (S.INT, S.BIGINT) else cast(x, _D, S.BIGINT)
    return distinct(_cut_double, args, pl.Float64())


def _cut(value: py.Decimal, places: int) -> py.Decimal:
    if -places > value.adjusted():
        return py.Decimal(0)
    if places >= 40:
        return value
    with py.localcontext(prec=400):
        return value.quantize(py.Decimal(1).scaleb(-places), rounding=py.ROUND_DOWN)


def _cut_double(value: float, places: int) -> float | None:
    if not math.isfinite(value):
        return None
    number = py.Decimal(repr(value))
    return value if places >= -int(number.as_tuple().exponent) else float(_cut(number, places)) + 0.0


def _trunc_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.args[0].type is _D and len(args) == 2:
        return ~args[0].is_finite() & args[1].is_not_null()
    return pl.lit(False)


# --------------------------------------------------------------------- distances

_RADIUS = {"mi": 3959.0, "mile": 3959.0, "miles": 3959.0}
_RADIUS |= dict.fromkeys(("km", "kilometer", "kilometers", "kilometre", "kilometres", ""), 6371.0)


def _resolve_distance(args: Sequence[Expr]) -> Signature | Refused:
    usage = "two latitudes and longitudes: lat1, lon1, lat2, lon2, and maybe 'KM' or 'MILES'"
    unit = constant(args[4]) if len(args) == 5 else None
    if isinstance(unit, str) and unit.strip().lower() not in _RADIUS:
        return Refused(f"{unit!r} is no unit of distance", "write 'KM' or 'MILES'")
    return forms(usage, ((_D,) * 4, _D), ((*(_D,) * 4, S.VARCHAR), _D))(args)


def _radius(args: list[pl.Expr]) -> pl.Expr:
    if len(args) == 4:
        return pl.lit(6371.0)
    unit = args[4].str.strip_chars().str.to_lowercase().fill_null("")
    return unit.replace_strict(_RADIUS, default=None, return_dtype=pl.Float64)


def _distance(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """On a sphere, by the haversine formula; no unit is kilometres."""
    lat1, lon1, lat2, lon2 = args[:4]
    half_lat, half_lon = (_radians(lat2 - lat1) / 2).sin(), (_radians(lon2 - lon1) / 2).sin()
    part = half_lat * half_lat + half_lon * half_lon * _radians(lat1).cos() * _radians(lat2).cos()
    return pl.when(~_is_nowhere(args)).then(part.sqrt().arcsin() * 2 * _radius(args))


def _is_nowhere(args: list[pl.Expr]) -> pl.Expr:
    lat1, lon1, lat2, lon2 = args[:4]
    return (
        (lat1.abs() > 90) & ~lat1.is_nan()
        | (lat2.abs() > 90) & ~lat2.is_nan()
        | ((lon1.abs() > 180) & ~lon1.is_nan() | (lon2.abs() > 180) & ~lon2.is_nan())
    )


def _distance_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    there = pl.all_horizontal([a.is_not_null() for a in args[:4]])
    return there & (_is_nowhere(args) | _radius(args).is_null())


NUMBER_FUNCTIONS = {
    f.name: f
    for f in (
        Function("PI", lambda args: Refused("it takes nothing") if args else Signature((), _D),
                 lambda call, args: pl.lit(math.pi)),
        _of_one("EXP", lambda x: x.exp()),
        _of_one("LN", lambda x: x.log()),
        Function("LOG", forms("a number, or a base and a number", ((_D,), _D), ((_D, _D), _D)), _log),
        _of_one("CBRT", lambda x: x.cbrt(), lenses="CBRT"),
        _of_two("POWER", "a number and an exponent", power),
        _of_one("SIN", lambda x: x.sin(), lenses="SIN"),
        _of_one("COS", lambda x: x.cos(), lenses="COS"),
        _of_one("TAN", lambda x: x.tan(), lenses="TAN"),
        _of_one("COT", lambda x: 1 / x.tan()),
        _of_one("ASIN", lambda x: x.arcsin(), lenses="ASIN"),
        _of_one("ACOS", lambda x: x.arccos(), lenses="ACOS"),
        _of_one("ATAN", lambda x: x.arctan(), lenses="ATAN"),
        _of_two("ATAN2", "y and x", pl.arctan2),
        _of_one("SINH", lambda x: x.sinh(), lenses="SINH"),
        _of_one("COSH", lambda x: x.cosh(), lenses="COSH"),
        _of_one("TANH", lambda x: x.tanh(), lenses="TANH"),
        _of_one("DEGREES", lambda x: x * (180.0 / math.pi), lenses="DEGREES"),
        _of_one("RADIANS", _radians, lenses="RADIANS"),
        Function("TRUNC", _resolve_trunc, Fallible(_trunc, _trunc_failed, "the number is not finite")),
        Function(
            "GEO_DISTANCE", _resolve_distance, Fallible(_distance, _distance_failed, "there is no such place or unit")
        ),
    )
}  # fmt: skip
