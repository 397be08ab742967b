"""CAST as PostgreSQL has it: which types convert into which, and how.

In: a typed call of `pg.cast`, whose type is the target, and the Polars expression of its argument. Out: `CASTS`, rows
of `ROWS`.
Rule: numbers round half away from zero, floats to whole numbers half to even; what does not fit, or does not read as a
value of the target, fails. Texts are read as PostgreSQL's input functions read them.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal as py
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from braid.expr import jsonb_text
from braid.expr.casts import fit, where
from braid.expr.nodes import Call, Expr
from braid.expr.postgres import binary, moments, times_text
from braid.expr.postgres.base import parts
from braid.expr.postgres.operators import OUT_OF_RANGE, TOO_MANY
from braid.expr.rows import distinct, rows
from braid.expr.signatures import Function, Refused, Signature, or_null
from braid.types import FLOATS, WHOLE_NUMBERS, Array, Decimal, Scalar, Type, is_numeric, polars_type

S = Scalar
BLANKS = " \t\n\r\v\f"
FREE = Decimal(38, 16)  # a text or a float as NUMERIC without digits
_MOMENTS = (S.DATE, S.TIME, S.TIMESTAMP, S.TIMESTAMPTZ, S.INTERVAL)
_WHOLE_TEXT = r"^[+-]?[0-9]+$"
_FLOAT_TEXT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE)
_NUMERIC_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,4})?", re.IGNORECASE)
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_BETWEEN: dict[Type, tuple[Type, ...]] = {
    S.DATE: (S.TIMESTAMP, S.TIMESTAMPTZ),
    S.TIMESTAMP: (S.DATE, S.TIME, S.TIMESTAMPTZ),
    S.TIMESTAMPTZ: (S.DATE, S.TIME, S.TIMESTAMP),
    S.BOOLEAN: (S.INT,),
    S.INT: (S.BOOLEAN,),
}


def can_cast(source: Type, target: Type) -> bool:
    """Whether `source::target` exists."""
    if source in (target, S.NULL) or S.VARCHAR in (source, target):
        return not isinstance(target, Array) or source is not S.VARCHAR or not isinstance(target.element, Array)
    if isinstance(source, Array) and isinstance(target, Array):
        return can_cast(source.element, target.element)
    if source is S.JSONB:
        return is_numeric(target) or target is S.BOOLEAN
    return (is_numeric(source) and is_numeric(target)) or target in _BETWEEN.get(source, ())


def never_fails(source: Type, target: Type) -> bool:
    """Whether the cast of all dialects gives the same, and every value has a form in the target."""
    if source == target:
        return True
    if source in WHOLE_NUMBERS and target in WHOLE_NUMBERS:
        return WHOLE_NUMBERS.index(source) < WHOLE_NUMBERS.index(target)
    if target is S.VARCHAR:
        exact = isinstance(source, Decimal) and source.precision < FREE.precision
        return exact or source in (*WHOLE_NUMBERS, S.BOOLEAN)
    if target in FLOATS:
        return target is S.DOUBLE and (source in WHOLE_NUMBERS or source is S.REAL or isinstance(source, Decimal))
    if isinstance(target, Decimal):
        whole = target.precision - target.scale
        if isinstance(source, Decimal):
            return source.scale <= target.scale and source.precision - source.scale <= whole
        return source in WHOLE_NUMBERS and {S.SMALLINT: 5, S.INT: 10, S.BIGINT: 19}[source] <= whole
    return (source, target) in ((S.DATE, S.TIMESTAMP), (S.DATE, S.TIMESTAMPTZ), (S.TIMESTAMP, S.TIMESTAMPTZ),
                                (S.TIMESTAMPTZ, S.TIMESTAMP), (S.TIMESTAMP, S.DATE), (S.TIMESTAMPTZ, S.DATE),
                                (S.TIMESTAMP, S.TIME), (S.TIMESTAMPTZ, S.TIME))  # fmt: skip


def _resolve(args: Sequence[Expr]) -> Signature | Refused:
    return Refused("a cast has a type", "write x::type")


def _run(call: Call, args: Sequence[pl.Series]) -> tuple[pl.Series, pl.Series]:
    """The values, and where one has no form in the target."""
    held = pl.DataFrame([args[0].alias("x")])
    made = held.select(cast(pl.col("x"), call.args[0].type, call.type).alias("x")).to_series()
    return made, made.is_null() & args[0].is_not_null()


def cast(x: pl.Expr, source: Type, target: Type) -> pl.Expr:
    """`x`, of type `source`, as `target`; null where that cannot be."""
    dtype = polars_type(target)
    if source == target:
        return x
    if source is S.NULL:
        return x.cast(dtype)
    if isinstance(source, Array) and isinstance(target, Array):
        return _elements(x, source.element, target.element).cast(dtype)
    if source is S.JSONB and target is not S.VARCHAR:
        if target is S.BOOLEAN:
            return pl.when(x.is_in(["true", "false"])).then(x == "true")
        return cast(x.cast(pl.Float64, strict=False), S.DOUBLE, target)
    match target:
        case S.SMALLINT | S.INT | S.BIGINT:
            return _to_whole(x, source, dtype)
        case S.REAL | S.DOUBLE:
            return _to_float(x, source, target)
        case Decimal():
            return _to_numeric(x, source, target)
        case S.VARCHAR:
            return to_text(x, source)
        case S.BOOLEAN:
            return x != 0 if source is S.INT else distinct(or_null(boolean_of_text), [x], pl.Boolean())
        case S.BYTES:
            return distinct(or_null(binary.bytea_of_text), [x], pl.Binary())
        case S.JSONB:
            return distinct(or_null(jsonb_text.document), [x], pl.String())
        case Array():
            return rows(or_null(lambda v: array_of_text(v, target.element)), [x], dtype)
        case S.TIMESTAMP | S.TIMESTAMPTZ if source is not S.VARCHAR:
            return x.cast(dtype)
        case S.DATE if source is not S.VARCHAR:
            return x.dt.date()
        case S.TIME if source is not S.VARCHAR:
            return x.dt.time()
    return times_text.to_moment(x, target)  # type: ignore[arg-type]


def _elements(x: pl.Expr, source: Type, target: Type) -> pl.Expr:
    """An array whose elements are cast; null where one of them fails."""
    made = cast(pl.element(), source, target)
    bad = x.list.eval(pl.element().is_not_null() & made.is_null()).list.any()
    return pl.when(~bad.fill_null(False)).then(x.list.eval(made))


# ------------------------------------------------------------------- numbers


def _to_whole(x: pl.Expr, source: Type, dtype: pl.DataType) -> pl.Expr:
    if source is S.VARCHAR:
        text = x.str.strip_chars(BLANKS)
        return pl.when(text.str.contains(_WHOLE_TEXT)).then(text).cast(dtype, strict=False)
    if source in FLOATS:
        return x.cast(pl.Float64).map_batches(lambda s: _nearest(s, dtype), return_dtype=dtype, is_elementwise=True)
    if isinstance(source, Decimal):
        whole = x.round(0, mode="half_away_from_zero") if source.scale else x
        return whole.cast(pl.Int128).cast(dtype, strict=False)
    return x.cast(dtype, strict=False)


def _nearest(s: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Half to even; null outside of the type."""
    bits = 15 if dtype == pl.Int16() else 31 if dtype == pl.Int32() else 63
    whole = np.rint(s.fill_null(0.0).to_numpy())
    inside = (whole >= -(2.0**bits)) & (whole < 2.0**bits)
    made = pl.Series(s.name, np.where(inside, whole, 0.0).astype(np.int64)).cast(dtype)
    return made.set(s.is_null() | ~pl.Series(inside), None)


def _to_float(x: pl.Expr, source: Type, target: Type) -> pl.Expr:
    dtype = polars_type(target)
    if source is S.VARCHAR:
        return distinct(or_null(lambda v: float_of_text(v, target)), [x], dtype)
    if isinstance(source, Decimal):
        # through text: one rounding only
        made = x.cast(pl.String).cast(pl.Float64)
        return made if target is S.DOUBLE else x.map_batches(_singles, return_dtype=dtype, is_elementwise=True)
    if target is S.REAL and source is S.DOUBLE:
        return x.map_batches(_narrowed, return_dtype=dtype, is_elementwise=True)
    return x.cast(dtype)


def _singles(s: pl.Series) -> pl.Series:
    return pl.Series(s.name, [None if v is None else float(np.float32(str(v))) for v in s.to_list()], dtype=pl.Float32)


def _narrowed(s: pl.Series) -> pl.Series:
    """Doubles as singles; null where that is too large, or nothing is left."""
    made = s.cast(pl.Float32)
    bad = (made.is_infinite() & s.is_finite()) | ((made == 0) & (s != 0))
    return made.set(bad.fill_null(False), None)


def float_of_text(text: str, t: Type) -> float:
    value = text.strip(BLANKS)
    if not _FLOAT_TEXT.fullmatch(value):
        raise ValueError(f"invalid input syntax for type {'real' if t is S.REAL else 'double precision'}: {text!r}")
    made = float(value)
    with np.errstate(all="ignore"):
        made = float(np.float32(value)) if t is S.REAL else made
    spelled = value.lstrip("+-")[:1].lower() in "in"
    if not spelled and (math.isinf(made) or (made == 0 and re.search("[1-9]", re.split("[eE]", value)[0]) is not None)):
        raise ValueError(OUT_OF_RANGE)
    return made


def _to_numeric(x: pl.Expr, source: Type, target: Decimal) -> pl.Expr:
    dtype = polars_type(target)
    if isinstance(source, Decimal):
        if source.scale > target.scale:
            x = x.round(target.scale, mode="half_away_from_zero")
        return x.cast(dtype, strict=False)
    if source in FLOATS:
        digits = 15 if source is S.DOUBLE else 6
        return distinct(lambda v: _numeric_of_float(v, digits, target), [x], dtype)
    if source is S.VARCHAR:
        return distinct(or_null(lambda v: numeric_of_text(v, target)), [x], dtype)
    return x.cast(dtype, strict=False)


def _numeric_of_float(value: float, digits: int, target: Decimal) -> py.Decimal | None:
    """In as many digits as the type always keeps."""
    return fit(py.Decimal(f"{value:.{digits}g}"), target) if math.isfinite(value) else None


def numeric_of_text(text: str, target: Decimal) -> py.Decimal:
    value = text.strip(BLANKS)
    if not _NUMERIC_TEXT.fullmatch(value):
        raise ValueError(f"invalid input syntax for type numeric: {text!r}")
    made = fit(py.Decimal(value), target)
    if made is None:
        raise ValueError(TOO_MANY)
    return made


def boolean_of_text(text: str) -> bool:
    """Any beginning of the words that means one of them."""
    value = text.strip(BLANKS).lower()
    if value and (any(w.startswith(value) for w in _TRUE) and value != "o"):
        return True
    if value and (any(w.startswith(value) for w in _FALSE) and value != "o"):
        return False
    raise ValueError(f"invalid input syntax for type boolean: {text!r}")


# ---------------------------------------------------------------------- text


def to_text(x: pl.Expr, source: Type) -> pl.Expr:
    """As PostgreSQL writes the value."""
    match source:
        case S.VARCHAR:
            return x
        case S.REAL | S.DOUBLE:
            single = source is S.REAL
            return x.map_batches(lambda s: float_texts(s, single), return_dtype=pl.String(), is_elementwise=True)
        case S.BYTES:
            return "\\x" + x.bin.encode("hex")
        case Array(element):
            made = x.list.eval(_element_text(pl.element(), element)).list.join(",")
            return "{" + made + "}"
        case Decimal(FREE.precision, scale) if scale:  # digits that nobody declared
            return x.cast(pl.String).str.replace(r"\.?0+$", "")
        case _ if source in _MOMENTS:
            return times_text.text_of(x, source)
    return x.cast(pl.String)


def float_texts(s: pl.Series, single: bool) -> pl.Series:
    """In as few digits as give the value again; with an exponent below 1e-4 and from 1e15 on (1e6 of REAL). Python rows
    only for these."""
    kind, top = (np.float32, 1e6) if single else (np.float64, 1e15)
    size = s.abs()
    odd = (((size < 1e-4) & (size > 0)) | (size >= top)) & s.is_finite()
    plain = s.cast(pl.String).str.strip_suffix(".0").replace({"inf": "Infinity", "-inf": "-Infinity"})
    return where(odd, lambda v: _with_exponent(kind(v)), s, plain)


def _with_exponent(value: Any) -> str:
    """In the fewest digits that lie nearer to the value than to any other: not just as near."""
    text = np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)
    exact, more = py.Decimal(float(value)), len(text.partition("e")[0].replace("-", "").replace(".", ""))
    with np.errstate(over="ignore"):  # beside the largest one is none
        away = float(np.nextafter(value, type(value)(math.inf if py.Decimal(text) > exact else -math.inf)))
    while math.isfinite(away) and 2 * abs(py.Decimal(text) - exact) >= abs(py.Decimal(away) - exact):
        text = np.format_float_scientific(value, precision=more, unique=False, trim="-", exp_digits=2)
        more += 1
    return text


def _element_text(x: pl.Expr, t: Type) -> pl.Expr:
    text = to_text(x, t)
    if isinstance(t, Array):
        return text.fill_null("NULL")
    if t is S.BOOLEAN:
        return text.str.head(1).fill_null("NULL")
    quoted = '"' + text.str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True) + '"'
    plain = (text != "") & ~text.str.contains(r'[{}",\\\s]') & (text.str.to_lowercase() != "null")
    return pl.when(plain).then(text).otherwise(quoted).fill_null("NULL")


_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^",{}\\]|\\.)+?))\s*(?=[,}])', re.DOTALL)


def array_of_text(text: str, element: Type) -> list[Any]:
    """`{1,NULL,"a b"}`."""
    body = text.strip(BLANKS)
    if not (body.startswith("{") and body.endswith("}")):
        raise ValueError(f"malformed array literal: {text!r}")
    found: list[str | None] = []
    at = 1
    while body[at:].strip(BLANKS) != "}":
        item = _ITEM.match(body, at)
        if item is None:
            raise ValueError(f"malformed array literal: {text!r}")
        bare = item[1] is None and item[2].lower() == "null"
        found.append(None if bare else re.sub(r"\\(.)", r"\1", item[1] if item[1] is not None else item[2]))
        at = item.end()
        if body[at] == "," and body[at + 1 :].strip(BLANKS) != "}":
            at += 1
        elif body[at:].strip(BLANKS) != "}":
            raise ValueError(f"malformed array literal: {text!r}")
    made = pl.select(cast(pl.lit(pl.Series("v", found, dtype=pl.String)), S.VARCHAR, element)).to_series().to_list()
    if any(v is None and t is not None for v, t in zip(made, found, strict=True)):
        raise ValueError(f"malformed array literal: {text!r}")
    return made


# ------------------------------------------------------------------ constants


def of_constant(value: object, source: Type, target: Type) -> object:
    """A constant as a value of a type, for the conversions of which an INSERT may have thousands; None for any other,
    and where it fails."""
    match value, target:
        case bool(), _:
            return None
        case str(), _ if source is S.JSONB and target is not S.VARCHAR:
            return None
        case int(), S.SMALLINT | S.INT | S.BIGINT:
            bits = {S.SMALLINT: 15, S.INT: 31, S.BIGINT: 63}[target]
            return value if -(2**bits) <= value < 2**bits else None
        case int(), S.DOUBLE:
            return float(value)
        case int() | py.Decimal(), Decimal():
            return fit(py.Decimal(value), target)
        case py.Decimal(), S.DOUBLE:
            return float(value)
        case str(), S.VARCHAR:
            return value
        case str(), _ if target in _READ:
            with contextlib.suppress(ValueError, OverflowError):
                return _READ[target](value)
        case str(), S.SMALLINT | S.INT | S.BIGINT:
            return of_constant(int(value), S.BIGINT, target) if re.fullmatch("[+-]?[0-9]{1,20}", value) else None
    return None


_1970 = dt.datetime(1970, 1, 1)
_READ: dict[Type, Callable[[str], object]] = {
    S.BOOLEAN: boolean_of_text,
    S.JSONB: jsonb_text.document,
    S.DOUBLE: lambda text: float_of_text(text, S.DOUBLE),
    S.DATE: lambda text: _1970.date() + dt.timedelta(moments.date_of_text(text)),
    S.TIMESTAMP: lambda text: _1970 + dt.timedelta(microseconds=moments.timestamp_of_text(text)),
    S.TIMESTAMPTZ: lambda text: _1970 + dt.timedelta(microseconds=moments.timestamp_of_text(text, zoned=True)),
}


def digits_of(text: str) -> Decimal | None:
    """The digits of a number in a text; None where 38 do not hold them."""
    if not _NUMERIC_TEXT.fullmatch(text.strip(BLANKS)):
        return None
    _, digits, exponent = py.Decimal(text.strip(BLANKS)).as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale, 1)
    return Decimal(precision, scale) if precision <= 38 else None


def why(value: Any) -> str:
    """What is said of a value that has no form in another type."""
    return f"{value!r} does not convert" if isinstance(value, str) else OUT_OF_RANGE


CASTS: dict[str, Function] = {"pg.cast": Function("pg.cast", _resolve, parts(_run, why))}
