"""Trigonometric functions of degrees, exact at the angles that have exact values.

In: doubles. Out: doubles. Rule: PostgreSQL's: the C library's function of the first quadrant, scaled so that 30, 45 and
60 degrees give what they should to the last bit.
"""

from __future__ import annotations

import math

_RADIAN = 0.0174532925199432957692
_SIN_30 = math.sin(30.0 * _RADIAN)
_ONE_MINUS_COS_60 = 1.0 - math.cos(60.0 * _RADIAN)
_ASIN_HALF, _ACOS_HALF, _ATAN_ONE = math.asin(0.5), math.acos(0.5), math.atan(1.0)


def divided(a: float, b: float) -> float:
    """As IEEE 754 has it: infinite for a divisor of zero."""
    if b == 0 and not math.isnan(a) and a != 0:
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b if b != 0 else math.nan


def _sin_to_30(x: float) -> float:
    return (math.sin(x * _RADIAN) / _SIN_30) / 2.0


def _cos_to_60(x: float) -> float:
    return 1.0 - ((1.0 - math.cos(x * _RADIAN)) / _ONE_MINUS_COS_60) / 2.0


def _sin(x: float) -> float:
    return _sin_to_30(x) if x <= 30.0 else _cos_to_60(90.0 - x)


def _cos(x: float) -> float:
    return _cos_to_60(x) if x <= 60.0 else _sin_to_30(90.0 - x)


_TAN_45, _COT_45 = _sin(45.0) / _cos(45.0), _cos(45.0) / _sin(45.0)


def _folded(x: float) -> tuple[float, float, float]:
    """The angle in the first quadrant, the sign of its sine, and that of its cosine."""
    x = math.fmod(x, 360.0)
    sine = cosine = 1.0
    if x < 0:
        x, sine = -x, -sine
    if x > 180:
        x, sine = 360.0 - x, -sine
    if x > 90:
        x, cosine = 180.0 - x, -cosine
    return x, sine, cosine


def sin(x: float) -> float:
    at, sign, _ = _folded(x)
    return sign * _sin(at)


def cos(x: float) -> float:
    at, _, sign = _folded(x)
    return sign * _cos(at)


def tan(x: float) -> float:
    at, a, b = _folded(x)
    return a * b * (divided(_sin(at), _cos(at)) / _TAN_45) + 0.0  # no negative zero


def cot(x: float) -> float:
    at, a, b = _folded(x)
    return a * b * (divided(_cos(at), _sin(at)) / _COT_45) + 0.0


def _asin(x: float) -> float:
    if x <= 0.5:
        return (math.asin(x) / _ASIN_HALF) * 30.0
    return 90.0 - (math.acos(x) / _ACOS_HALF) * 60.0


def _acos(x: float) -> float:
    if x <= 0.5:
        return 90.0 - (math.asin(x) / _ASIN_HALF) * 30.0
    return (math.acos(x) / _ACOS_HALF) * 60.0


def asin(x: float) -> float:
    return _asin(x) if x >= 0 else -_asin(-x)


def acos(x: float) -> float:
    return _acos(x) if x >= 0 else 90.0 + _asin(-x)


def atan(x: float) -> float:
    return (math.atan(x) / _ATAN_ONE) * 45.0


def atan2(y: float, x: float) -> float:
    return (math.atan2(y, x) / _ATAN_ONE) * 45.0
