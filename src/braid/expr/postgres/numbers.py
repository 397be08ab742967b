"""PostgreSQL's functions of numbers.

In: typed calls and the Polars expressions of their arguments. Out: `NUMBERS`, rows by their plan names.
Rule: PostgreSQL 15's values: those of DOUBLE to the last bit (the C library's, by way of Python's `math`: NumPy's
differ in one of thirty), those of NUMERIC with as many digits as PostgreSQL gives them, in a type that the arguments'
types decide. What PostgreSQL refuses fails, and so does what has more digits than its type.
"""

from __future__ import annotations

import decimal as py
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from braid.expr.casts import as_decimal
from braid.expr.nodes import Call, Cast, Expr, Lit
from braid.expr.postgres import degrees, numerics
from braid.expr.postgres.base import NUMERIC, digits, fallible, in_rows, row, takes
from braid.expr.signatures import Fallible, Function, Refused, Resolver, Signature
from braid.types import WHOLE_NUMBERS, Decimal, Scalar, Type, is_numeric, polars_type

S = Scalar
_D = S.DOUBLE
_SMALL = (S.SMALLINT, S.INT)  # what an INTEGER parameter takes
_NAMES: dict[Type, str] = {S.SMALLINT: "smallint", S.INT: "integer", S.BIGINT: "bigint"}
_LEAST: dict[Type, int] = {S.SMALLINT: -(2**15), S.INT: -(2**31), S.BIGINT: -(2**63)}

# ------------------------------------------------------------------------- types


def _one(numeric: Callable[[Decimal], Decimal], keeps: Sequence[Type] = ()) -> Resolver:
    """One number: NUMERIC gives what `numeric` says, the types that it `keeps` themselves, all others DOUBLE."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        if len(args) != 1 or not (args[0].type is S.NULL or is_numeric(args[0].type)):
            return Refused("it takes a number")
        t = args[0].type
        if isinstance(t, Decimal):
            return Signature((t,), numeric(t))
        return Signature((t,), t) if t in keeps else Signature((_D,), _D)

    return resolve


def _exact(t: Type) -> Decimal | None:
    """As which NUMERIC a parameter of that type takes an argument; None where it does not."""
    if t is S.NULL:
        return NUMERIC
    return as_decimal(t) if t in WHOLE_NUMBERS or isinstance(t, Decimal) else None


def _numerics(count: int, result: Callable[..., Type]) -> Resolver:
    """So many NUMERICs, or what becomes one."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        types = [t for a in args if (t := _exact(a.type)) is not None]
        if len(args) != count or len(types) != count:
            return Refused("it takes a NUMERIC" if count == 1 else f"it takes {count} NUMERICs", "CAST a DOUBLE")
        return Signature(tuple(types), result(*types))

    return resolve


def _exact_two(smallest: bool, result: Callable[[Decimal, Decimal], Decimal]) -> Resolver:
    """Two whole numbers of one type, or two NUMERICs. Only with a form of the `smallest` whole numbers PostgreSQL knows
    what two of them are."""
    forms: tuple[Type, ...] = WHOLE_NUMBERS if smallest else WHOLE_NUMBERS[1:]

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        types = {a.type for a in args}
        known = types - {S.NULL}
        whole = max((t for t in known if t in WHOLE_NUMBERS), key=WHOLE_NUMBERS.index, default=None)
        if len(args) == 2 and known and all(t in WHOLE_NUMBERS for t in known):
            if whole in forms:
                return Signature((whole, whole), whole)
            return Refused("PostgreSQL does not know which function this is", "CAST one to INTEGER")
        if known:
            return _numerics(2, result)(args)
        return Refused("it takes two whole numbers, or NUMERICs", "CAST one of them")

    return resolve


def _remaining(a: Decimal, b: Decimal) -> Decimal:
    return digits(min(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale))


def _dividing(a: Decimal, b: Decimal) -> Decimal:
    """Of a greatest common divisor: no more than the larger one."""
    return digits(max(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale))


def rounded(t: Decimal) -> Decimal:
    """A NUMERIC as a whole number: 9.5 becomes 10."""
    return digits(t.precision - t.scale + 1, 0)


# ------------------------------------------------------------------ columns of Polars


def _abs(call: Call, args: list[pl.Expr]) -> pl.Expr:
    least = _LEAST.get(call.type)
    x = args[0]
    return x.abs() if least is None else pl.when(x != least).then(x).abs()


def _abs_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    least = _LEAST.get(call.type)
    return pl.lit(False) if least is None else args[0] == least


def _out_of_range(*values: object) -> str:
    return next(f"{_NAMES[t]} out of range" for t, least in _LEAST.items() if values[0] == least)


def _cut(x: pl.Expr, places: int) -> pl.Expr:
    """A NUMERIC towards zero, of the same type: no value can be too long."""
    return x.truncate(places)


def _stepped(call: Call, cut: pl.Expr, up: pl.Expr, down: pl.Expr, places: int = 0) -> pl.Expr:
    """`cut`, one more in its last place where `up`, one less where `down`, as the call's type."""
    assert isinstance(call.type, Decimal)
    wide = pl.Decimal(38, places)
    unit = pl.lit(py.Decimal(1).scaleb(-places), wide)
    step = pl.when(up).then(unit).when(down).then(-unit).otherwise(pl.lit(py.Decimal(0), wide))
    return (cut.cast(wide) + step).cast(polars_type(call.type), strict=False)


def _ceil(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.type is _D:
        return args[0].ceil()
    cut = _cut(args[0], 0)
    return _stepped(call, cut, args[0] > cut, pl.lit(False))


def _floor(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.type is _D:
        return args[0].floor()
    cut = _cut(args[0], 0)
    return _stepped(call, cut, pl.lit(False), args[0] < cut)


def _half_up(call: Call, x: pl.Expr, t: Decimal, places: int) -> pl.Expr:
    """A NUMERIC rounded to fewer places, halves away from zero. Not Polars' own: it ends a query whose numbers are too
    long."""
    cut = _cut(x, places)
    half = pl.lit(py.Decimal(5).scaleb(-places - 1), pl.Decimal(38, t.scale))
    return _stepped(call, cut, x - cut >= half, x - cut <= -half, places)


def _sign(call: Call, args: list[pl.Expr]) -> pl.Expr:
    x = args[0].fill_nan(0.0) if call.type is _D else args[0]
    dtype = polars_type(call.type)
    return (x > 0).cast(pl.Int64).cast(dtype) - (x < 0).cast(pl.Int64).cast(dtype)


def _sqrt(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.type is _D:
        return pl.when(~_negative(call, args)).then(args[0]).sqrt()
    return _SLOW_SQRT(call, args)


def _negative(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0] < 0  # NaN is not


def _sqrt_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return _negative(call, args) if call.type is _D else _SLOW_SQRT.failed(call, args)


def _of_root(value: float) -> float:
    if value < 0:
        raise ValueError("cannot take square root of a negative number")
    return math.sqrt(value)


def _remainder(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Whole numbers: the dividend's sign. Polars' has the divisor's, and is null for a divisor of zero."""
    a, b = args
    if call.type not in WHOLE_NUMBERS:
        return _MOD.build(call, args)
    rest = a % b
    return pl.when((rest != 0) & ((rest < 0) != (a < 0))).then(rest - b).otherwise(rest)


def _by_zero(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].is_not_null() & (args[1] == 0)


# ------------------------------------------------------------------- ROUND and TRUNC


def places_of(e: Expr) -> int | None:
    """The whole number that an argument is, where it is a constant."""
    match e:
        case Lit(value=int() as value) if not isinstance(value, bool):
            return value
        case Cast(arg=arg, type=t) if t in WHOLE_NUMBERS and arg.type in WHOLE_NUMBERS:
            return places_of(arg)
        case Call(function="neg" | "pg.neg", args=(arg,)):
            found = places_of(arg)
            return None if found is None else -found
    return None


def _to_places(result: Callable[[Decimal, int | None], Decimal]) -> Resolver:
    """A number; or a NUMERIC and how many places."""
    alone = _one(lambda t: result(t, 0))

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        if len(args) != 2:
            return alone(args) if len(args) == 1 else Refused("it takes a number, and an INTEGER of places")
        t = _exact(args[0].type)
        if t is None or args[1].type not in (*_SMALL, S.NULL):
            return Refused("it takes a NUMERIC and an INTEGER of places", "CAST a DOUBLE AS NUMERIC")
        return Signature((t, S.INT), result(t, places_of(args[1])))

    return resolve


def _at_places(more: int) -> Callable[[Decimal, int | None], Decimal]:
    """The type at so many places; `more` digits before the point. Where each row has a number of its own, the scale
    stays."""

    def result(t: Decimal, places: int | None) -> Decimal:
        whole = t.precision - t.scale
        if places is None:
            return digits(whole + more, t.scale)
        if places >= t.scale:  # nothing is lost: so many zeros more as there is room for
            return digits(whole, max(t.scale, min(places, 38 - whole)))
        return digits(max(whole + more, 1), max(places, 0))

    return result


def _places_built(
    slow: Function, of_doubles: Callable[[pl.Expr], pl.Expr], fast: Callable[[Call, pl.Expr, Decimal, int], pl.Expr]
) -> Function:
    """Columns where the places are a constant, from zero on; rows otherwise."""
    by_rows = fallible(slow)

    def constant(call: Call) -> int | None:
        places = 0 if len(call.args) == 1 else places_of(call.args[1])
        return None if places is None or places < 0 else places

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        places, t = constant(call), call.args[0].type
        if not isinstance(t, Decimal):
            return of_doubles(args[0])
        if places is None:
            return by_rows(call, args)
        made = args[0] if places >= t.scale else fast(call, args[0], t, places)
        return made.cast(polars_type(call.type))

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        return pl.lit(False) if call.type is _D or constant(call) is not None else by_rows.failed(call, args)

    return replace(slow, build=Fallible(build, failed, by_rows.why))


def _rows_of_places(name: str, result: Callable[[Decimal, int | None], Decimal], mode: str) -> Function:
    def f(value: py.Decimal, places: int) -> py.Decimal:
        return numerics.to_places(value, places, mode)

    return in_rows(name, _to_places(result), f)


# -------------------------------------------------------------------- DOUBLE by Python


_TWO = takes("two numbers", ((_D, _D), _D))


def _double(names: str, f: Callable[[float], float]) -> Function:
    return in_rows(names, takes("a number", ((_D,), _D)), f)


def _both(names: str, of_doubles: Callable[[float], float], of_numerics: Callable[[py.Decimal], py.Decimal],
          numeric: Callable[[Decimal], Decimal]) -> Function:  # fmt: skip
    """A row with a form of DOUBLE, and one of NUMERIC."""

    def f(x: float | py.Decimal) -> object:
        return of_doubles(x) if isinstance(x, float) else of_numerics(x)

    return in_rows(names, _one(numeric), f)


def _in_columns(row: Function, value: Callable[[pl.Expr], pl.Expr], there: Callable[[pl.Expr, pl.Expr], pl.Expr]
                ) -> Function:  # fmt: skip
    """A row whose DOUBLE Polars gives to the same bit, as it asks the C library too. `there`: whether there is a value,
    of the argument and what it gives."""
    slow, slow_once = fallible(row), fallible(row).once
    assert slow_once is not None

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        if call.type is not _D:
            return slow(call, args)
        made = value(args[0])
        return pl.when(there(args[0], made)).then(made)

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        return ~there(args[0], value(args[0])) if call.type is _D else slow.failed(call, args)

    def once(call: Call, args: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        if call.type is not _D:
            return slow_once(call, args)
        columns = [pl.col(name) for name in args.columns]
        made = args.select(v=build(call, columns), failed=failed(call, columns).fill_null(False))
        return made["v"], made["failed"]

    return replace(row, build=Fallible(build, failed, slow.why, once))


def _everywhere(x: pl.Expr, made: pl.Expr) -> pl.Expr:
    return pl.lit(True)


def _but_infinite(x: pl.Expr, made: pl.Expr) -> pl.Expr:
    return ~x.is_infinite()


def _positive(x: pl.Expr, made: pl.Expr) -> pl.Expr:
    return x > 0


def _to_one(x: pl.Expr, made: pl.Expr) -> pl.Expr:
    return (x.abs() <= 1) | x.is_nan()


def _in_reach(x: pl.Expr, made: pl.Expr) -> pl.Expr:
    return ~(x.is_finite() & (made.is_infinite() | (made == 0)))


def _finite(f: Callable[[float], float]) -> Callable[[float], float]:
    """A function that has no value at infinity."""

    def checked(x: float) -> float:
        if math.isinf(x):
            raise ValueError("input is out of range")
        return f(x)

    return checked


def _within(f: Callable[[float], float], low: float, high: float) -> Callable[[float], float]:
    """A function of these numbers only, and of NaN."""

    def checked(x: float) -> float:
        if x < low or x > high:
            raise ValueError("input is out of range")
        return x if math.isnan(x) else f(x)

    return checked


def _ranged(value: float, *args: float, zero: bool = False) -> float:
    """`value`, where no finite arguments make it infinite, or zero unless that is its value."""
    if math.isinf(value) and not any(map(math.isinf, args)):
        raise ValueError("value out of range: overflow")
    if value == 0 and not zero:
        raise ValueError("value out of range: underflow")
    return value


def _exp(x: float) -> float:
    if math.isinf(x) or math.isnan(x):
        return math.exp(x)
    try:
        return _ranged(math.exp(x))
    except OverflowError:
        raise ValueError("value out of range: overflow") from None


def _logarithm(f: Callable[[float], float]) -> Callable[[float], float]:
    def checked(x: float) -> float:
        numerics.check_logarithm(x)
        return f(x)

    return checked


def _power(x: float, y: float) -> float:
    if x == 0 and y < 0:
        raise ValueError("zero raised to a negative power is undefined")
    if x < 0 and math.isfinite(y) and y != math.floor(y):
        raise ValueError("a negative number raised to a non-integer power yields a complex result")
    try:
        value = math.pow(x, y)
    except OverflowError:
        raise ValueError("value out of range: overflow") from None
    return _ranged(value, x, y, zero=x == 0 or math.isinf(x) or math.isinf(y))


def _resolve_log(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) == 1:
        return _one(numerics.ln_type)(args)
    return _numerics(2, numerics.log_type)(args) if len(args) == 2 else Refused("it takes a number, or a base and one")


def _log(*values: float | py.Decimal) -> object:
    """To base 10; to the base of the first of two NUMERICs."""
    if len(values) == 2:
        return numerics.log(*map(py.Decimal, values))
    return _logarithm(math.log10)(values[0]) if isinstance(values[0], float) else numerics.log10(values[0])


def _resolve_power(args: Sequence[Expr]) -> Signature | Refused:
    types = [a.type for a in args]
    if len(types) != 2 or not all(t is S.NULL or is_numeric(t) for t in types):
        return Refused("it takes a number and an exponent")
    exact = [_exact(t) for t in types]
    if not any(isinstance(t, Decimal) for t in types) or any(t is None for t in exact):
        return Signature((_D, _D), _D)
    base, exponent = (t for t in exact if t is not None)
    whole = places_of(args[1]) is not None
    scale = max(numerics.SIGNIFICANT if whole else numerics.SMALL, base.scale, exponent.scale)
    return Signature((base, exponent), digits(38, scale))


def _any_power(x: float | py.Decimal, y: float | py.Decimal) -> object:
    if isinstance(x, float) or isinstance(y, float):
        return _power(float(x), float(y))
    return numerics.power(x, y)


def _cot(x: float) -> float:
    return degrees.divided(1.0, math.tan(x))


def _coth(x: float) -> float:
    """RisingWave's (docs.risingwave.com/sql/functions/mathematical); PostgreSQL has none. It has no value at zero."""
    return math.nan if x == 0 else 1.0 / math.tanh(x)


def _sinh(x: float) -> float:
    try:
        return math.sinh(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def _cosh(x: float) -> float:
    try:
        return math.cosh(x)
    except OverflowError:
        return math.inf


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


_RADIAN = 0.0174532925199432957692  # of a degree


def _degrees(x: float) -> float:
    return _ranged(x / _RADIAN, x, zero=True)


def _radians(x: float) -> float:
    return _ranged(x * _RADIAN, x, zero=x == 0)


# ------------------------------------------------------------------- whole numbers


def _gcd(a: int | py.Decimal, b: int | py.Decimal) -> object:
    return math.gcd(a, b) if isinstance(a, int) and isinstance(b, int) else numerics.gcd(py.Decimal(a), py.Decimal(b))


def _lcm(a: int | py.Decimal, b: int | py.Decimal) -> object:
    return math.lcm(a, b) if isinstance(a, int) and isinstance(b, int) else numerics.lcm(py.Decimal(a), py.Decimal(b))


def _scale(call: Call, args: list[pl.Expr]) -> pl.Expr:
    t = call.args[0].type
    assert isinstance(t, Decimal)
    return pl.when(args[0].is_not_null()).then(pl.lit(t.scale, pl.Int32))


# ---------------------------------------------------------------------------- table


def _same(t: Decimal) -> Decimal:
    return t


_KEPT = (*WHOLE_NUMBERS, S.REAL)
_SQRT = _both("SQRT", _of_root, numerics.sqrt, numerics.sqrt_type)
_SLOW_SQRT = fallible(_SQRT)
_MOD = in_rows("MOD", _exact_two(True, _remaining), numerics.mod)
_UP, _DOWN = _at_places(1), _at_places(0)
_ROUND = _rows_of_places("ROUND", _UP, py.ROUND_HALF_UP)
_TRUNC = _rows_of_places("TRUNC", _DOWN, py.ROUND_DOWN)

NUMBERS: dict[str, Function] = {
    f.name: f
    for f in (
        row("ABS", _one(_same, _KEPT), Fallible(_abs, _abs_failed, _out_of_range)),
        row("CEIL CEILING", _one(rounded), _ceil),
        row("FLOOR", _one(rounded), _floor),
        _places_built(_ROUND, lambda x: x.round(mode="half_to_even"), _half_up),
        _places_built(_TRUNC, lambda x: x.truncate(), lambda call, x, t, places: _cut(x, places)),
        row("SIGN", _one(lambda t: Decimal(1, 0)), _sign),
        row("SQRT", _SQRT.resolve, Fallible(_sqrt, _sqrt_failed, _SLOW_SQRT.why)),
        row("MOD", _MOD.resolve, Fallible(_remainder, _by_zero, "division by zero")),
        in_rows("DIV", _numerics(2, numerics.quotient_type), numerics.div),
        in_rows("GCD", _exact_two(False, _dividing), _gcd),
        in_rows("LCM", _exact_two(False, lambda a, b: Decimal(38, max(a.scale, b.scale))), _lcm),
        in_rows("FACTORIAL", takes("a BIGINT", ((S.BIGINT,), Decimal(38, 0))), numerics.factorial),
        row("SCALE", _numerics(1, lambda t: S.INT), _scale),
        in_rows("MIN_SCALE", _numerics(1, lambda t: S.INT), numerics.min_scale),
        row("PI", lambda args: Refused("it takes nothing") if args else Signature((), _D),
             lambda call, args: pl.lit(math.pi)),
        _in_columns(_both("EXP", _exp, numerics.exp, numerics.exp_type), pl.Expr.exp, _in_reach),
        _in_columns(_both("LN", _logarithm(math.log), numerics.ln, numerics.ln_type), pl.Expr.log, _positive),
        _both("LOG10", _logarithm(math.log10), numerics.log10, numerics.ln_type),
        in_rows("LOG", _resolve_log, _log),
        in_rows("POWER POW", _resolve_power, _any_power),
        _double("CBRT", math.cbrt),
        _double("DEGREES", _degrees),
        _double("RADIANS", _radians),
        _in_columns(_double("SIN", _finite(math.sin)), pl.Expr.sin, _but_infinite),
        _in_columns(_double("COS", _finite(math.cos)), pl.Expr.cos, _but_infinite),
        _in_columns(_double("TAN", _finite(math.tan)), pl.Expr.tan, _but_infinite),
        _double("COT", _finite(_cot)),
        _in_columns(_double("ASIN", _within(math.asin, -1, 1)), pl.Expr.arcsin, _to_one),
        _in_columns(_double("ACOS", _within(math.acos, -1, 1)), pl.Expr.arccos, _to_one),
        _in_columns(_double("ATAN", math.atan), pl.Expr.arctan, _everywhere),
        in_rows("ATAN2", _TWO, math.atan2),
        _in_columns(_double("SINH", _sinh), pl.Expr.sinh, _everywhere),
        _in_columns(_double("COSH", _cosh), pl.Expr.cosh, _everywhere),
        _in_columns(_double("TANH", math.tanh), pl.Expr.tanh, _everywhere),
        _double("COTH", _coth),
        _in_columns(_double("ASINH", math.asinh), pl.Expr.arcsinh, _everywhere),
        _in_columns(_double("ACOSH", _within(math.acosh, 1, math.inf)), pl.Expr.arccosh, lambda x, made: x >= 1),
        _double("ATANH", _within(_atanh, -1, 1)),
        _double("SIND", _finite(degrees.sin)),
        _double("COSD", _finite(degrees.cos)),
        _double("TAND", _finite(degrees.tan)),
        _double("COTD", _finite(degrees.cot)),
        _double("ASIND", _within(degrees.asin, -1, 1)),
        _double("ACOSD", _within(degrees.acos, -1, 1)),
        _double("ATAND", degrees.atan),
        in_rows("ATAN2D", _TWO, degrees.atan2),
    )
}  # fmt: skip
