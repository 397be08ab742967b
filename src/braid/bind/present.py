"""The present: what UNIX_TIMESTAMP(), UNIX_DATE(), UUID() and RANDOM() are while a statement runs.

In: an expression as written. Out: the value of such a call; whether any is asked for.
Rule: INSERT … VALUES and a pull query run once and may ask. A query that goes on may not: a batch that is run again
would give other rows.
"""

from __future__ import annotations

import random
import time
import uuid
from typing import TypeGuard

from braid.bind.expressions import children
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.sql import ast
from braid.types import Scalar

DAY = 24 * 60 * 60
_PRESENT = {
    "UNIX_TIMESTAMP": lambda: typing.literal(time.time_ns() // 1_000_000, Scalar.BIGINT),
    "UNIX_DATE": lambda: typing.literal(int(time.time() // DAY), Scalar.INT),
    "UUID": lambda: typing.literal(str(uuid.uuid4()), Scalar.VARCHAR),
    "RANDOM": lambda: typing.literal(random.random(), Scalar.DOUBLE),
}


def present(e: ast.Expr) -> Expr | None:
    """The value of such a call."""
    return _PRESENT[e.name]() if _asks(e) else None


def asks_for_present(e: ast.Expr) -> bool:
    return _asks(e) or any(asks_for_present(x) for x in children(e))


def _asks(e: ast.Expr) -> TypeGuard[ast.Call]:
    return isinstance(e, ast.Call) and not e.args and e.name in _PRESENT
