"""What is equal, and which is larger: values of Python in PostgreSQL's order.

In: values as `physical_type` has them. Out: keys to compare and hash.
Rule: NaN is equal to itself and the largest number, -0.0 is 0.0; an interval is as long as its months of 30 days; an
array is compared element by element, a null is the largest.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from braid.types import Array, Decimal, Scalar, Type

_DAY = 86_400_000_000  # microseconds


def ordered(t: Type) -> bool:
    """Whether its values can be compared."""
    if isinstance(t, Array):
        return ordered(t.element)
    return isinstance(t, Scalar | Decimal) and t is not Scalar.NULL


def rank(value: Any) -> Any:
    """A key: equal for equal values, larger for larger ones of the same type."""
    match value:
        case None:
            return (1,)
        case float():
            return (0, 1, 0.0) if math.isnan(value) else (0, 0, value)
        case list():
            return (0, tuple(map(rank, value)))
        case dict():
            return (0, (value["months"] * 30 + value["days"]) * _DAY + value["us"])
    return (0, value)


def key(value: Any) -> Hashable:
    """The same, to look up by."""
    made: Hashable = rank(value)
    return made
