"""The present: what UNIX_TIMESTAMP(), UNIX_DATE(), UUID() and RANDOM() are while a statement runs.

In: expressions as written, one by one as they are bound. Out: the value of such a call.
Rule: INSERT … VALUES and a pull query run once and may ask. A query that goes on may not: a batch that is run again
would give other rows.
"""

from __future__ import annotations

import random
import time
import uuid

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
    """What such a call means, for `Rules.whole`."""
    return _PRESENT[e.name]() if isinstance(e, ast.Call) and not e.args and e.name in _PRESENT else None
