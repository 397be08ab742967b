"""INSERT INTO … SELECT: does the result fit the target?

In: the target's columns and the result's. Out: key and value outputs, widened where the target is wider.
Rule: same names in the same order, key with key; a number may be widened, nothing else is converted silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braid.bind.bound import Declared
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.plan.logical import Output
from braid.types import Column, Decimal, Scalar, Type, is_numeric


@dataclass(frozen=True, slots=True)
class Fitted:
    """Outputs as the target declares them, and the record key where no column is the key."""

    key: tuple[Output, ...]
    values: tuple[Output, ...]
    record_key: tuple[Expr, ...]


def matched(
    target: Declared, key: Sequence[Output], record_key: Sequence[Expr], values: Sequence[Output], span: Span
) -> Fitted:
    """The outputs as the target declares them."""
    if target.message_key is not None:  # the record key is what column c holds: any key of the result is one more value
        key, values = (), _in_order_of(target, (*key, *values))
        record_key = tuple(o.expr for o in values if o.name == target.message_key)
    want_key = [Column(c.name, c.type) for c in target.columns if c.place == "key" and not c.hidden]
    want_values = [Column(c.name, c.type) for c in target.columns if c.place == "value"]
    # A target without key columns may have a record key all the same: that of KEY='c', or a hidden one.
    same_record_key = [e.type for e in record_key] == [c.type for c in target.key]
    fits = _fit(want_key, key) and _fit(want_values, values)
    if not fits or (not want_key and target.key and not same_record_key):
        shown = _schema(want_key, want_values)
        given = _schema([Column(o.name, o.expr.type) for o in key], [Column(o.name, o.expr.type) for o in values])
        hint = f"{target.name} is ({shown}); the SELECT gives ({given}): names, order and KEY must agree"
        raise SqlError(f"the SELECT does not fit {target.name}", span, hint)
    return Fitted(_widened(want_key, key), _widened(want_values, values), () if key else tuple(record_key))


def _in_order_of(target: Declared, outputs: Sequence[Output]) -> tuple[Output, ...]:
    """The outputs in the target's order; what it does not have stays, to be refused."""
    order = [c.name for c in target.columns]
    return tuple(sorted(outputs, key=lambda o: order.index(o.name) if o.name in order else len(order)))


def _fit(want: Sequence[Column], have: Sequence[Output]) -> bool:
    return [c.name for c in want] == [o.name for o in have] and all(
        widens(o.expr.type, c.type) for o, c in zip(have, want, strict=True)
    )


def widens(source: Type, target: Type) -> bool:
    """Does every value of `source` have its own form in `target`?"""
    if source == target or source is Scalar.NULL:
        return True
    if not (is_numeric(source) and is_numeric(target)):
        return False
    match source, target:
        case (Scalar.INT, Scalar.BIGINT) | (_, Scalar.DOUBLE):
            return True
        case (Decimal(p, s), Decimal(pp, ss)):
            return ss >= s and pp - ss >= p - s
        case (Scalar.INT, Decimal(p, s)):
            return p - s >= 10
        case (Scalar.BIGINT, Decimal(p, s)):
            return p - s >= 19
    return False


def _widened(want: Sequence[Column], have: Sequence[Output]) -> tuple[Output, ...]:
    return tuple(Output(o.name, typing.cast(o.expr, c.type)) for o, c in zip(have, want, strict=True))


def _schema(key: Sequence[Column], values: Sequence[Column]) -> str:
    return ", ".join([f"{c.name} {c.type} KEY" for c in key] + [f"{c.name} {c.type}" for c in values])
