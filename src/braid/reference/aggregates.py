"""Aggregates of the reference: by the definition, from all values of a group.

In: the values that stand, in order of arrival; those that came and went. Out: the value of the aggregate.
Rule: computed anew each time; what ksqlDB makes of the order of changes (COLLECT_LIST, HISTOGRAM) from their history.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context
from decimal import Decimal as Number
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from braid.errors import BraidError
from braid.expr import user
from braid.plan.groups import PRESENT, Aggregation
from braid.records.python import python_values
from braid.records.values import single
from braid.types import FLOATS, Decimal, Scalar, Struct, Type, polars_type

Changes = Sequence[tuple[int, Any]]  # +1 and a value that came, -1 and one that went


@dataclass(frozen=True, slots=True)
class Spread:
    """Of numbers: how many, their sum, and the squares of their differences from the mean, as they are added up: one
    after the other (as Youngs and Cramer have it), or those of two sessions (Chan and others)."""

    count: int = 0
    total: Any = 0
    squares: float = 0.0

    def after(self, sign: int, value: Any) -> Spread:
        """With the value (1), or without it (-1): its share is that among the numbers of which it is one."""
        count, total = self.count + sign, self.total + sign * value
        n, of = (count, total) if sign > 0 else (self.count, self.total)
        delta = float(value * n - of)
        share = delta * delta / (n * (n - 1.0)) if n > 1 else 0.0
        return Spread(count, total, self.squares + sign * share)

    def joined(self, other: Spread) -> Spread:
        n, m = float(self.count), float(other.count)
        delta = float(self.total) * m - float(other.total) * n
        between = delta * delta / (n * m * (n + m)) if n and m else 0.0
        return Spread(self.count + other.count, self.total + other.total, self.squares + other.squares + between)

    @property
    def variance(self) -> float:
        return max(self.squares, 0.0) / (self.count - 1.0) if self.count > 1 else 0.0


def number(a: Aggregation, value: Any) -> Any:
    """A value as the aggregate adds it up."""
    if a.function == "SUM" and a.output.type is Scalar.REAL:
        return np.float32(value)
    return value if a.function.startswith("STDDEV") else float(value)


def is_spread(a: Aggregation) -> bool:
    """Whether it adds up numbers whose order matters."""
    if a.function == "SUM":
        return a.output.type in FLOATS
    return a.function in ("AVG", "STDDEV_SAMP", "STDDEV_SAMPLE") and not isinstance(a.output.type, Decimal)


def is_unfit(a: Aggregation, value: object, arguments: Sequence[object]) -> bool:
    """Whether a sum or a mean of a group is NULL because its type is too small for it."""
    exact = a.function in ("SUM", "AVG") and isinstance(a.output.type, Decimal)
    return exact and value is None and any(x is not None for x in arguments)


def aggregated(a: Aggregation, arguments: Sequence[Any], changes: Changes, spread: Spread | None = None) -> object:
    """An aggregate of a group. `spread`: as it was added up, where that was not one value after the other."""
    values, result = [x for x in arguments if x is not None], a.output.type
    if is_spread(a):
        known = [(sign, number(a, v)) for sign, v in changes if v is not None]
        spread = spread or reduce(lambda found, change: found.after(*change), known, Spread())
        found = _of_spread(a.function, spread)
        return single(found) if result is Scalar.REAL else found
    match a.function:
        case "COUNT":
            return len(values)
        case "SUM":
            return _sum(values, result)
        case "AVG":
            return _fitting(sum(map(Fraction, values), Fraction(0)) / len(values), result) if values else None
        case "MIN" | "MAX":
            return (min if a.function == "MIN" else max)(values, key=in_order, default=None)
        case "LATEST":
            return arguments[-1] if arguments else None
        case "EARLIEST_BY_OFFSET" | "LATEST_BY_OFFSET":
            n, nulls = a.options or (None, False)
            return _by_offset(arguments if nulls else values, n, a.function == "EARLIEST_BY_OFFSET")
        case "COLLECT_LIST":
            return _collected(changes, int(a.options[0] or 0))
        case "COLLECT_SET":
            return _different(arguments)[: a.options[0]]
        case "GATHER":
            return [v for v in values if v[PRESENT]]
        case "COUNT_DISTINCT":
            return len(_different(values))
        case "TOPK":
            return sorted(filter(_has_size, values), key=_size, reverse=True)[: a.options[0]]
        case "TOPKDISTINCT":
            return sorted(_different(values), key=_size, reverse=True)[: a.options[0]]
        case "LOWESTK":
            return sorted(values, key=in_order)[: a.options[0]]
        case "LOWESTKDISTINCT":
            return sorted(_different(values), key=in_order)[: a.options[0]]
        case "MOST_OFTEN" | "LEAST_OFTEN":
            return _by_count(changes, a.function == "MOST_OFTEN")[: a.options[0]]
        case "HISTOGRAM":
            return _histogram(changes)
        case "ATTR":
            different = _different(arguments)
            return different[0] if len(different) == 1 else None
        case "CORRELATION":
            return _correlation([(v["X"], v["Y"]) for v in values if v["X"] is not None and v["Y"] is not None])
    raise BraidError(f"the reference does not know the aggregate {a.function}")


def folded(a: Aggregation, changes: Changes) -> tuple[object, str]:
    """What a user's aggregate gives, and the error with which it failed at the last change. One that fails is as if it
    were not."""
    assert a.code is not None and a.arg is not None and isinstance(a.arg.type, Struct)
    made = user.definition_of(a.code).python()
    for f in user.state_of(a.code):
        setattr(made, f.name, user.beginning(f, 1))
    failed, value = "", pl.Series([None])
    for sign, given in changes:
        before = dict(vars(made))
        args = [pl.Series([given[f.name]], dtype=polars_type(f.type)) for f in a.arg.type.fields]
        try:
            (made.accumulate if sign > 0 else made.retract)(*args)
            failed = ""
        except Exception as e:
            vars(made).update(before)
            failed = user.said(e)
    try:
        value = made.result()
    except Exception as e:
        failed = user.said(e)
    return python_values(value.cast(polars_type(a.output.type)))[0], failed


def _of_spread(function: str, spread: Spread) -> float:
    match function:
        case "SUM":
            return float(spread.total)
        case "AVG":
            return float(spread.total) / spread.count if spread.count else 0.0
        case "STDDEV_SAMP":
            return spread.variance
    return math.sqrt(spread.variance)


def _sum(values: Sequence[Any], result: Type) -> Any:
    """Integers wrap as Java's do, a DECIMAL that does not fit is null; nothing adds up to zero."""
    if isinstance(result, Decimal):
        return _fitting(sum(map(Fraction, values), Fraction(0)), result)
    total = sum(values)
    bits = 32 if result == Scalar.INT else 64 if result == Scalar.BIGINT else 0
    return (total + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) if bits else total


def _fitting(exact: Fraction, t: Type) -> Number | None:
    """A number rounded to the digits of a DECIMAL, half away from zero; null where it has more before the point."""
    assert isinstance(t, Decimal)
    units, half = divmod(abs(exact) * 10**t.scale, 1)
    units += half >= Fraction(1, 2)
    if units >= 10**t.precision:
        return None
    return Number(int(units if exact > 0 else -units)).scaleb(-t.scale, Context(prec=100))


def in_order(value: Any) -> tuple[bool, Any]:
    """What a value is sorted by: NaN is above all numbers; a date or time that Python has none for is its number."""
    match value:
        case float():
            return (math.isnan(value), 0.0 if math.isnan(value) else value)
        case datetime():
            return (False, (value - datetime(1970, 1, 1)) // timedelta(microseconds=1))
        case date():
            return (False, (value - date(1970, 1, 1)).days)
    return (False, value)


def _by_offset(values: Sequence[Any], n: int | None, earliest: bool) -> object:
    if n is not None:
        return list(values[:n] if earliest else values[-n:])
    return (values[0] if earliest else values[-1]) if values else None


def _different(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for v in values:
        if v not in found:
            found.append(v)
    return found


def _collected(changes: Changes, most: int) -> list[Any]:
    """A value that goes takes the last one like it along."""
    found: list[Any] = []
    for sign, value in changes:
        if sign > 0 and len(found) < most:
            found.append(value)
        elif sign < 0 and value in found:
            del found[len(found) - 1 - found[::-1].index(value)]
    return found


def _by_count(changes: Changes, most: bool) -> list[Any]:
    """Of at most 1000 different values at a time, in the order in which they came; one that has gone comes again."""
    found: list[tuple[Any, int]] = []
    for sign, value in changes:
        at = next((i for i, (v, _) in enumerate(found) if v == value), None)
        if at is not None:
            found[at] = (value, found[at][1] + sign)
            found = [x for x in found if x[1]]
        elif value is not None and sign > 0 and len(found) < 1000:
            found.append((value, 1))
    return [v for v, _ in sorted(found, key=lambda x: x[1], reverse=most)]


def _histogram(changes: Changes) -> list[dict[str, Any]]:
    """Of at most 1000 different texts at a time, as entries of a map."""
    found: dict[str, int] = {}
    for sign, value in changes:
        if value in found or (value is not None and sign > 0 and len(found) < 1000):
            found[value] = found.get(value, 0) + sign
            if not found[value]:
                del found[value]
    return [{"key": text, "value": n} for text, n in found.items()]


def _size(value: Any) -> Any:
    return next(iter(value.values())) if isinstance(value, dict) else value


def _has_size(value: Any) -> bool:
    return _size(value) is not None


def _correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """From sums of what is left when the first pair is taken off."""
    n, sums = float(len(pairs)), [0.0] * 5
    for a, b in pairs:
        x, y = a - pairs[0][0], b - pairs[0][1]
        sums = [s + part for s, part in zip(sums, (x, y, x * x, y * y, x * y), strict=True)]
    sx, sy, sxx, syy, sxy = sums
    below = (n * sxx - sx * sx) * (n * syy - sy * sy)
    found = (n * sxy - sx * sy) / math.sqrt(below) if below > 0 else math.nan
    if math.isnan(found):
        return math.nan
    return max(-1.0, min(1.0, found)) if n != 2 or not found else math.copysign(1.0, found)
