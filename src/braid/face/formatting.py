"""How a result is shown at a terminal: dates and times as people read them, how many rows, and after how long.

In: the expression of a column; JSON values; a number of rows. Out: the type that it is shown as; values; a line.
Rule: only tables are for people: JSON lines, CSV and rows in Python keep their values.
"""

from __future__ import annotations

from typing import Any

from braid.expr.nodes import Col, Expr
from braid.face.tabular import DAY, time_text
from braid.plan.logical import BOUNDS
from braid.types import Array, Map, Scalar, Struct, Type


def readable(value: Any, t: Type) -> Any:
    """A JSON value of a type, with its dates and times as people read them."""
    match t, value:
        case ((Scalar.DATE | Scalar.TIME | Scalar.TIMESTAMP | Scalar.TIMESTAMPTZ), int()) if not isinstance(
            value, bool
        ):
            text = time_text(value * DAY if t is Scalar.DATE else value)
            day, _, clock = text.partition("T")
            return text if not clock else day if t is Scalar.DATE else clock.rstrip("Z") if t is Scalar.TIME else text
        case Array(), list():
            return [readable(x, t.element) for x in value]
        case Map(), dict():
            return {k: readable(x, t.value) for k, x in value.items()}
        case Struct(), dict():
            types = {f.name: f.type for f in t.fields}
            return {name: readable(x, types[name]) if name in types else x for name, x in value.items()}
    return value


def shown_as(e: Expr) -> Type:
    """The type that a column of a result is shown as: the time of a record and the bounds of a window are times."""
    named = e.name.rpartition(".")[2] if isinstance(e, Col) and e.type is Scalar.BIGINT else ""
    return Scalar.TIMESTAMP if named in ("ROWTIME", *BOUNDS) else e.type


def counted(rows: int, seconds: float) -> str:
    """What is told below the rows of a SELECT."""
    return f"{rows:,} row{'s' * (rows != 1)}, {seconds:.2f} s"
