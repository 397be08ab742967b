"""CAST: which types convert into which, and how.

In: types and Polars expressions. Out: Polars expressions that hold exactly the target type.
Rule: a value that cannot be converted is null, and `failed` is true on its row. Meanings are Java's (ksqlDB): integers
wrap, DOUBLE to integer truncates and saturates, DECIMAL rounds half up, text is trimmed and then read strictly.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable
from typing import Any

import polars as pl

from braid.expr import dates
from braid.expr.rows import rows
from braid.types import FLOATS, TIMESTAMPS, Array, Decimal, Map, Scalar, Struct, Type, is_numeric, polars_type

S = Scalar
JAVA_BLANKS = "".join(map(chr, range(33)))  # what Java's String.trim removes
_DOUBLE = r"^[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)$"
_DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?$"
_WHOLE: dict[Type, Decimal] = {S.SMALLINT: Decimal(5, 0), S.INT: Decimal(10, 0)}
_EXACT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def can_cast(source: Type, target: Type) -> bool:
    """Whether CAST(source AS target) exists."""
    if source in (target, S.NULL):
        return True
    match source, target:
        case (_, S.VARCHAR):
            return source is not S.BYTES
        case (S.VARCHAR, _):
            return is_numeric(target) or target in (S.BOOLEAN, S.DATE, S.TIME, *TIMESTAMPS)
        case (S.TIMESTAMP | S.TIMESTAMPTZ, S.DATE | S.TIME | S.TIMESTAMP | S.TIMESTAMPTZ):
            return True
        case (S.DATE, S.TIMESTAMP | S.TIMESTAMPTZ):
            return True
    parts = _parts(pl.element(), source, target)
    return is_numeric(source) and is_numeric(target) if parts is None else all(can_cast(f, t) for _, f, t in parts)


def _parts(x: pl.Expr, source: Type, target: Type) -> list[tuple[pl.Expr, Type, Type]] | None:
    """What is converted within `x`, from which type into which; of a list, in each of its elements."""
    match source, target:
        case (Array(a), Array(b)):
            return [(pl.element(), a, b)]
        case (Map(k, v), Map(kk, vv)):
            return [(pl.element().struct.field("key"), k, kk), (pl.element().struct.field("value"), v, vv)]
        case (Struct(), Struct(fields)):
            have = {f.name: f.type for f in source.fields}
            return [(x.struct.field(f.name), have[f.name], f.type) for f in fields if f.name in have]
    return None


def may_fail(source: Type, target: Type) -> bool:
    """Whether some value of `source` has no form in `target`."""
    if source in (target, S.NULL):
        return False
    match source, target:
        case (S.VARCHAR, _):
            return target is not S.BOOLEAN
        case (_, S.SMALLINT):
            return True
        case (S.DOUBLE, S.REAL):
            return True
        case (S.SMALLINT | S.INT | S.BIGINT | Decimal(), Decimal(p, s)):
            wide = as_decimal(source)
            return wide.precision - wide.scale > p - s or (wide.scale > s and p < wide.precision)
        case (S.DOUBLE | S.REAL, Decimal()):
            return True
    return any(may_fail(f, t) for _, f, t in _parts(pl.element(), source, target) or ())


def as_decimal(t: Type) -> Decimal:
    """The DECIMAL that holds every value of an exact numeric type."""
    if isinstance(t, Decimal):
        return t
    return _WHOLE.get(t, Decimal(19, 0))


def cast(x: pl.Expr, source: Type, target: Type) -> pl.Expr:
    """`x`, of type `source`, as `target`."""
    dtype = polars_type(target)
    if source == target:
        return x
    if source is S.NULL:
        return x.cast(dtype)
    match target:
        case S.INT | S.BIGINT:
            return _to_integer(x, source, dtype)
        case S.SMALLINT:
            wide = x.cast(pl.Int64, strict=False) if is_numeric(source) else x.str.strip_chars(JAVA_BLANKS)
            return wide.cast(dtype, strict=False)
        case S.DOUBLE:
            return _to_double(x, source)
        case S.REAL:
            return _to_single(x, source)
        case Decimal():
            return _to_decimal(x, source, target)
        case S.VARCHAR:
            return to_text(x, source)
        case S.BOOLEAN:
            return x.str.strip_chars(JAVA_BLANKS).str.to_lowercase() == "true"
        case S.DATE | S.TIME | S.TIMESTAMP | S.TIMESTAMPTZ if source is S.VARCHAR:
            return dates.PARSE[target](x)
        case S.DATE:
            return x.dt.date()
        case S.TIME:
            return x.dt.time()
        case S.TIMESTAMP | S.TIMESTAMPTZ:
            return x.cast(dtype)
    parts = _parts(x, source, target)
    assert parts is not None, f"no cast from {source} to {target}"
    made = [cast(*p) for p in parts]
    if isinstance(source, Struct) and isinstance(target, Struct):
        have, found = {f.name for f in source.fields}, iter(made)
        fields = [next(found) if f.name in have else pl.lit(None, polars_type(f.type)) for f in target.fields]
        named = [made.alias(f.name) for made, f in zip(fields, target.fields, strict=True)]
        return pl.when(x.is_not_null()).then(pl.struct(named)).cast(dtype)
    element = made[0] if len(made) == 1 else pl.struct(made[0].alias("key"), made[1].alias("value"))
    return x.list.eval(element).cast(dtype)


def failed(x: pl.Expr, source: Type, target: Type) -> pl.Expr | None:
    """True on rows where the cast made a null out of a value (or of a value inside it)."""
    if not may_fail(source, target):
        return None
    parts = _parts(x, source, target)
    if parts is not None:
        inner = any_of(*(failed(*p) for p in parts))
        return inner if inner is None or isinstance(target, Struct) else x.list.eval(inner).list.any().fill_null(False)
    return x.is_not_null() & cast(x, source, target).is_null()


def any_of(*parts: pl.Expr | None) -> pl.Expr | None:
    """The OR of what is there."""
    found: pl.Expr | None = None
    for p in parts:
        if p is not None:
            found = p if found is None else found | p
    return found


def _to_integer(x: pl.Expr, source: Type, dtype: pl.DataType) -> pl.Expr:
    if source is S.VARCHAR:
        return x.str.strip_chars(JAVA_BLANKS).cast(dtype, strict=False)  # Polars takes signs and digits only
    if source in FLOATS:
        top = 2.0 ** (31 if dtype == pl.Int32() else 63)
        whole = x.cast(pl.Float64).fill_nan(0.0)
        low = pl.lit(-int(top), dtype)
        inside = pl.when((whole > -top) & (whole < top)).then(whole).cast(dtype, strict=False)
        return pl.when(whole >= top).then(pl.lit(int(top) - 1, dtype)).when(whole <= -top).then(low).otherwise(inside)
    if isinstance(source, Decimal):
        x = x.cast(pl.Int128).cast(pl.Int64, wrap_numerical=True)
    return x.cast(dtype, wrap_numerical=True)


def _to_double(x: pl.Expr, source: Type) -> pl.Expr:
    if source is S.VARCHAR:
        text = x.str.strip_chars(JAVA_BLANKS)
        return pl.when(text.str.contains(_DOUBLE)).then(text).cast(pl.Float64, strict=False)
    if isinstance(source, Decimal) and source.precision > 15:
        return x.cast(pl.String).cast(pl.Float64)  # through text: one rounding only
    return x.cast(pl.Float64)


def _to_single(x: pl.Expr, source: Type) -> pl.Expr:
    """Rounded once; a finite number that is too large for a single is null."""
    if source is S.VARCHAR or isinstance(source, Decimal):
        text = x.cast(pl.String).str.strip_chars(JAVA_BLANKS)
        made = pl.when(text.str.contains(_DOUBLE)).then(text).cast(pl.Float32, strict=False)
        return pl.when(made.is_finite() | text.str.contains("N|I")).then(made)
    made = x.cast(pl.Float32)
    return pl.when(made.is_finite() | ~x.cast(pl.Float64).is_finite()).then(made)


def _to_decimal(x: pl.Expr, source: Type, target: Decimal) -> pl.Expr:
    """Slow path (Python rows) for DOUBLE and for text with an exponent or more digits than the scale holds."""
    dtype = polars_type(target)
    if isinstance(source, Decimal):
        if source.scale > target.scale:
            x = x.round(target.scale, mode="half_away_from_zero")
        return x.cast(dtype, strict=False)
    if source is S.REAL:
        x, source = x.cast(pl.String).cast(pl.Float64), S.DOUBLE  # its own digits, not those of the double it equals
    if source is S.DOUBLE:
        return rows(lambda v: _decimal_of_double(v, target), [x], dtype)
    if source is S.VARCHAR:
        return x.map_batches(lambda s: _decimals_of_text(s, target), return_dtype=dtype, is_elementwise=True)
    return x.cast(dtype, strict=False)


def fit(value: decimal.Decimal, target: Decimal) -> decimal.Decimal | None:
    """`value` rounded half up to the scale of `target`; None where it has too many digits."""
    if not value.is_finite() or value.adjusted() >= 60:
        return None
    rounded = _EXACT.quantize(value, decimal.Decimal(1).scaleb(-target.scale))
    return rounded if rounded.copy_abs() < decimal.Decimal(10) ** (target.precision - target.scale) else None


def _decimal_of_double(value: float, target: Decimal) -> decimal.Decimal | None:
    if not math.isfinite(value):
        return None
    # as BigDecimal(double, MathContext(precision)): the exact binary value, first cut to the precision
    cut = decimal.Context(prec=target.precision, rounding=decimal.ROUND_HALF_UP).create_decimal(value)
    return fit(cut, target)


def _decimals_of_text(s: pl.Series, target: Decimal) -> pl.Series:
    dtype = polars_type(target)
    text = s.str.strip_chars(JAVA_BLANKS)
    plain = text.str.contains(rf"^[+-]?[0-9]+(?:\.[0-9]{{1,{max(target.scale, 1)}}})?$")
    if target.scale == 0:
        plain = text.str.contains(r"^[+-]?[0-9]+$")
    fast = text.set(~plain, None).str.replace("^[+]", "").cast(dtype, strict=False)
    odd = ~plain & text.str.contains(_DECIMAL)
    if not odd.any():
        return fast
    values: list[Any] = fast.to_list()
    for i in odd.arg_true():
        values[i] = fit(_EXACT.create_decimal(text[i]), target)
    return pl.Series(s.name, values, dtype=dtype)


# ------------------------------------------------------------------- to text


def to_text(x: pl.Expr, source: Type) -> pl.Expr:
    """The text of a value, as Java prints it."""
    match source:
        case S.REAL:
            return to_text(x.cast(pl.String).cast(pl.Float64), S.DOUBLE)
        case S.DOUBLE:
            return x.map_batches(java_doubles, return_dtype=pl.String, is_elementwise=True)
        case S.TIMESTAMP | S.TIMESTAMPTZ:
            return x.dt.strftime("%Y-%m-%dT%H:%M:%S%.3f")
        case S.DATE:
            return x.dt.strftime("%Y-%m-%d")
        case S.TIME:
            return dates.format_time(x)
        case Array(element) if not _holds_bytes(source):
            return "[" + x.list.eval(to_text(pl.element(), element).fill_null("null")).list.join(", ") + "]"
        case Map(key, item) if not _holds_bytes(source):
            k, v = (pl.element().struct.field(part) for part in ("key", "value"))
            pairs = to_text(k, key).fill_null("null") + "=" + to_text(v, item).fill_null("null")
            return "{" + x.list.eval(pairs).list.join(", ") + "}"
        case Struct(fields) if not _holds_bytes(source):  # what is null is left out
            parts = [f"{f.name}=" + to_text(x.struct.field(f.name), f.type) for f in fields]
            text = pl.concat_str(parts, separator=",", ignore_nulls=True)
            return pl.when(x.is_not_null()).then("Struct{" + text + "}")
        case Array() | Map() | Struct():  # slow path (Python rows)
            return rows(lambda v: java_text(v, source), [x], pl.String())
        case _:
            return x.cast(pl.String)


def _holds_bytes(t: Type) -> bool:
    match t:
        case Array(element):
            return _holds_bytes(element)
        case Map(key, item):
            return _holds_bytes(key) or _holds_bytes(item)
        case Struct(fields):
            return any(_holds_bytes(f.type) for f in fields)
    return t is S.BYTES


def java_doubles(s: pl.Series) -> pl.Series:
    """As Double.toString: `1.0`, `1.0E10`, `NaN`, `Infinity`. Python rows only where an exponent is needed."""
    size = s.abs()
    odd = (((size < 1e-3) & (size > 0)) | (size >= 1e7)) & s.is_finite()
    return where(odd, java_double, s, s.cast(pl.String).replace({"inf": "Infinity", "-inf": "-Infinity"}))


def where(odd: pl.Series, f: Callable[[Any], str], s: pl.Series, texts: pl.Series) -> pl.Series:
    """The `texts` of `s`; those that are `odd` by Python rows."""
    at = odd.arg_true()
    return texts.scatter(at, [f(v) for v in s.gather(at).to_list()]) if len(at) else texts


def java_double(value: float) -> str:
    """One double as Java prints it."""
    if math.isnan(value):
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()
    if len(digits) == 1:  # of two digits: those that are nearest
        sign, digits, exponent = decimal.Context(prec=2).create_decimal_from_float(value).as_tuple()
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{int(exponent) + len(digits) - 1}"


def java_text(value: Any, t: Type) -> str:
    """A nested value in the form of Java's toString: `[1, null]`, `{a=1}`, `Struct{A=1}`."""
    if value is None:
        return "null"
    match t:
        case Array(element):
            return "[" + ", ".join(java_text(v, element) for v in value) + "]"
        case Map(key, item):
            pairs = value.items() if isinstance(value, dict) else ((e["key"], e["value"]) for e in value)
            return "{" + ", ".join(f"{java_text(k, key)}={java_text(v, item)}" for k, v in pairs) + "}"
        case Struct(fields):
            have = [f for f in fields if value[f.name] is not None]
            return "Struct{" + ",".join(f"{f.name}={java_text(value[f.name], f.type)}" for f in have) + "}"
        case S.BOOLEAN:
            return "true" if value else "false"
        case S.DOUBLE:
            return java_double(value)
        case Decimal():
            return format(value, "f")
        case S.TIMESTAMP | S.TIMESTAMPTZ:
            assert isinstance(value, dt.datetime)
            return value.isoformat(timespec="milliseconds")
        case _:
            return str(value)
