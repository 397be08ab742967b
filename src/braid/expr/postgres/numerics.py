"""Roots, powers and logarithms of NUMERIC, and what else its digits need.

In: Python decimals. Out: decimals, and the types that hold them.
Rule: PostgreSQL gives such a result so many places that it has 16 significant digits or more, and as many as its
arguments have; the value is rounded to these, halves away from zero. The type has the places of the smallest result
that its arguments' types can have where that is known, of `SMALL` ones otherwise.
"""

from __future__ import annotations

import decimal as py
import functools
import math

from braid.expr.postgres.base import digits
from braid.types import Decimal

SIGNIFICANT = 16
SMALL = 20  # places of what may be small: exp(-9) has 16 digits in them
_PLACES = 1000  # PostgreSQL shows no more
_GUARD = 15  # digits more than those that are rounded to
_OVERFLOW = "value overflows numeric format"
_CONTEXT = py.Context(prec=150, rounding=py.ROUND_HALF_UP, Emax=10**9, Emin=-(10**9), traps=[])
_ONE = py.Decimal(1)


def to_places(value: py.Decimal, places: int, mode: str = py.ROUND_HALF_UP) -> py.Decimal:
    """At so many places, before the point where they are negative."""
    if value and places >= -_exponent(value):
        return value
    if places < -value.adjusted() - 1 or not value:
        return py.Decimal(0)
    at = value.quantize(py.Decimal(1).scaleb(-places), rounding=mode, context=_CONTEXT)
    return at.quantize(_ONE, context=_CONTEXT) if places < 0 else at


@functools.cache
def _context(figures: int) -> py.Context:
    """Of so many digits: what a root or a logarithm costs grows with them."""
    return py.Context(prec=max(figures, 1), rounding=py.ROUND_HALF_UP, Emax=10**9, Emin=-(10**9), traps=[])


def _exponent(value: py.Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent


def _places(significant: int, *args: py.Decimal) -> int:
    """That many, or those of an argument that has more."""
    return min(max(significant, 0, *(-_exponent(a) for a in args)), _PLACES)


def _base_10000(value: py.Decimal) -> tuple[int, list[int]]:
    """PostgreSQL's form of a number that is not zero: the power of 10,000 of its first digit, and all its digits."""
    _, own, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent % 4
    whole = int("".join(map(str, own))) * 10**shift
    power, found = (exponent - shift) // 4, []
    while whole:
        whole, rest = divmod(whole, 10_000)
        found.append(rest)
    return power + len(found) - 1, found[::-1]


# --------------------------------------------------------------------- whole numbers


def mod(a: py.Decimal, b: py.Decimal) -> py.Decimal:
    if b == 0:
        raise ValueError("division by zero")
    return _CONTEXT.remainder(a, b)


def div(a: py.Decimal, b: py.Decimal) -> py.Decimal:
    """The quotient towards zero."""
    if b == 0:
        raise ValueError("division by zero")
    return _CONTEXT.divide_int(a, b)


def quotient_type(a: Decimal, b: Decimal) -> Decimal:
    return digits(max(a.precision - a.scale + b.scale, 1), 0)


def gcd(a: py.Decimal, b: py.Decimal) -> py.Decimal:
    x, y, places = _units(a, b)
    return py.Decimal(math.gcd(x, y)).scaleb(-places, _CONTEXT)


def lcm(a: py.Decimal, b: py.Decimal) -> py.Decimal:
    x, y, places = _units(a, b)
    return py.Decimal(math.lcm(x, y)).scaleb(-places, _CONTEXT)


def _units(a: py.Decimal, b: py.Decimal) -> tuple[int, int, int]:
    """Both as multiples of their last place."""
    places = max(-_exponent(a), -_exponent(b))
    return int(a.scaleb(places, _CONTEXT)), int(b.scaleb(places, _CONTEXT)), places


def factorial(n: int) -> py.Decimal:
    if n < 0:
        raise ValueError("factorial of a negative number is undefined")
    if n > 32177:
        raise ValueError(_OVERFLOW)
    return py.Decimal(math.factorial(min(n, 100)))  # longer than any type from 34 on


def min_scale(value: py.Decimal) -> int:
    """How many places it needs."""
    return max(0, -_exponent(value.normalize(_CONTEXT)))


# ----------------------------------------------------------------------------- roots


def sqrt(value: py.Decimal) -> py.Decimal:
    if value < 0:
        raise ValueError("cannot take square root of a negative number")
    power = _base_10000(value)[0] if value else 0
    places = _places(SIGNIFICANT - 2 * (power + 1) + 1, value)
    return to_places(_context(places + 40).sqrt(value), places)


def sqrt_type(t: Decimal) -> Decimal:
    """The smallest value that is not zero has the most places."""
    least = -math.ceil(t.scale / 4)
    return digits((t.precision - t.scale) // 2 + 1, max(SIGNIFICANT - 2 * (least + 1) + 1, t.scale))


# ------------------------------------------------------------------------ logarithms


def check_logarithm(value: float | py.Decimal) -> None:
    if value == 0:
        raise ValueError("cannot take logarithm of zero")
    if value < 0:
        raise ValueError("cannot take logarithm of a negative number")


def _size_of_ln(value: py.Decimal) -> int:
    """About which power of ten the logarithm begins with."""
    if value == 1:
        return 0
    if py.Decimal("0.9") <= value <= py.Decimal("1.1"):
        power, found = _base_10000(_CONTEXT.subtract(value, _ONE))
        return power * 4 + int(math.log10(found[0]))
    power, found = _base_10000(value)
    first = found[0] * 10_000 + found[1] if len(found) > 1 else found[0]
    about = math.log(first) + (power - (len(found) > 1)) * 4 * 2.302585092994046
    return int(math.log10(abs(about)))


def ln(value: py.Decimal) -> py.Decimal:
    check_logarithm(value)
    places = _places(SIGNIFICANT - _size_of_ln(value), value)
    return to_places(_context(places + _GUARD).ln(value), places)


def ln_type(t: Decimal) -> Decimal:
    """Next to 1 it is as small as the last place."""
    return digits(2, min(SIGNIFICANT + t.scale, 36))


def log10(value: py.Decimal) -> py.Decimal:
    return log(py.Decimal(10), value)


def log(base: py.Decimal, value: py.Decimal) -> py.Decimal:
    check_logarithm(base)
    check_logarithm(value)
    if base == 1:
        raise ValueError("division by zero")
    places = _places(SIGNIFICANT - (_size_of_ln(value) - _size_of_ln(base)), base, value)
    context = _context(places + 20 + _GUARD)
    return to_places(context.divide(context.ln(value), context.ln(base)), places)


def log_type(a: Decimal, b: Decimal) -> Decimal:
    return Decimal(38, max(SMALL, a.scale, b.scale))


# ---------------------------------------------------------------------------- powers


def _significant(weight: float) -> int:
    """Places of e to the power of that."""
    return SIGNIFICANT - int(weight * 0.434294481903252)


def exp(value: py.Decimal) -> py.Decimal:
    about = float(value)
    if about >= 6000:
        raise ValueError(_OVERFLOW)
    if about <= -6000:
        return py.Decimal(0)
    places = _places(_significant(about), value)
    return to_places(_exp(value, about, places), places)


def _exp(value: py.Decimal, about: float, places: int) -> py.Decimal:
    return _context(places + max(int(about / 2), 0) + _GUARD).exp(value)


def exp_type(t: Decimal) -> Decimal:
    return Decimal(38, max(SMALL, t.scale))


def power(base: py.Decimal, exponent: py.Decimal) -> py.Decimal:
    if base == 0 and exponent < 0:
        raise ValueError("zero raised to a negative power is undefined")
    whole = exponent == exponent.to_integral_value()
    if whole and -(2**31) <= exponent < 2**31:
        return _whole_power(base, int(exponent))
    if base < 0 and not whole:
        raise ValueError("a negative number raised to a non-integer power yields a complex result")
    return _real_power(base, exponent)


def _whole_power(base: py.Decimal, exponent: int) -> py.Decimal:
    made = _CONTEXT.power(base, exponent) if exponent or base else _ONE
    if not made.is_finite() or made.adjusted() >= 131_072:
        raise ValueError(_OVERFLOW)
    return to_places(made, _places(SIGNIFICANT, base))


def _real_power(base: py.Decimal, exponent: py.Decimal) -> py.Decimal:
    if base == 0:
        return py.Decimal(0)
    odd = base < 0 and int(exponent) % 2 == 1
    base = abs(base)
    about = to_places(_context(60).ln(base), max(0, 8 - _size_of_ln(base)))
    weight = float(_CONTEXT.multiply(about, exponent))
    if abs(weight) > 6020:
        if weight > 0:
            raise ValueError(_OVERFLOW)
        return py.Decimal(0)
    places = _places(_significant(weight), base, exponent)
    power = _CONTEXT.multiply(_context(places + max(int(weight), 0) + 40).ln(base), exponent)
    made = _exp(power, weight, places)
    return to_places(_CONTEXT.minus(made) if odd else made, places)
