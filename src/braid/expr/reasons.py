"""Why an expression failed, in a few words.

In: a node that failed, and the values of its operands. Out: a text for people.
Rule: a row of functions says it itself (`Fallible.why`), else the type of what it gives; here are casts and what users
wrote.
Values stand in it as in a message about a malformed record, cut where they are long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import polars as pl

from braid.expr import user
from braid.expr.compile import python_value
from braid.expr.functions import FUNCTIONS
from braid.expr.lambdas import LAMBDAS
from braid.expr.nodes import Call, Cast, Code, Expr
from braid.expr.signatures import NO_TIME
from braid.types import Array, Decimal, Map, Scalar, Struct, Type, is_numeric, physical_type

S = Scalar
Given = Sequence[tuple[pl.Series, Type]]  # one value each
_LONGEST = 40  # characters of a value
_MOMENTS = (S.DATE, S.TIME, S.TIMESTAMP, S.TIMESTAMPTZ)
_YEARS = {pl.Date: (-719_162, 2_932_896), pl.Datetime: (-62_135_596_800_000_000, 253_402_300_799_999_999)}
_RAISED = "the function raised an error"
_NO_RESULT = "it has no result"


def of(e: Expr, given: Given) -> str:
    """Why `e` failed of these operands."""
    match e:
        case Call(code=Code() as code):
            return user.raised_by(code, pl.DataFrame([s.alias(str(i)) for i, (s, _) in enumerate(given)])) or _RAISED
        case Call(function=name) if name in LAMBDAS:
            return "it has no result for an element (arithmetic with NULL has none)"
        case Call(function=name, type=t):
            fallible = FUNCTIONS[name].fallible if name in FUNCTIONS else None
            return ("" if fallible is None else _told(fallible.why, given)) or _by_type(t)
        case Cast(type=t):
            (value, source), *_ = given
            return _no_cast(plain(value, source), source, t)
    return _NO_RESULT


def raised(aggregate: str, error: str = "") -> str:
    """Of a row at which a user's aggregate failed, with this error."""
    return f"{aggregate}: {error or _RAISED}"


def unfit(aggregate: str, t: Type) -> str:
    """Of a sum or a mean that its type does not hold."""
    return f"{aggregate}: {_by_type(t)}"


def _by_type(t: Type) -> str:
    if isinstance(t, Decimal):
        return f"too many digits for {t}"
    return f"it is out of range for {t}" if is_numeric(t) else NO_TIME if t in _MOMENTS else _NO_RESULT


def _told(why: Callable[..., str] | str, given: Given) -> str:
    """Some rows take times as Python's, some as numbers; a reason that cannot be told is none."""
    if isinstance(why, str):
        return why
    for values in (_plain_values, _physical_values):
        with contextlib.suppress(Exception):
            told = why(*values(given))
            if told:
                return told
    return ""


def _plain_values(given: Given) -> list[object]:
    return [plain(s, t) for s, t in given]


def _physical_values(given: Given) -> list[object]:
    return [s.cast(physical_type(t)).to_list()[0] for s, t in given]


def plain(s: pl.Series, t: Type) -> object:
    """The one value of a column; a date or time that Python has none for is its number."""
    low, high = _YEARS.get(type(s.dtype), (0, 0))
    if low < high and not s.to_physical().is_between(low, high).fill_null(True).item():
        return s.to_physical().item()
    return python_value(s.to_list()[0], t)


def _no_cast(value: object, source: Type, target: Type) -> str:
    if isinstance(source, Array | Map | Struct):
        return f"something in it has no form in {target}"
    if source is S.VARCHAR:
        return f"{shown(value)} is no {target}"
    if isinstance(target, Decimal):
        return f"{shown(value)} has too many digits for {target}"
    return f"{shown(value)} is out of range for {target}"


def shown(value: object) -> str:
    """A value in a message."""
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
