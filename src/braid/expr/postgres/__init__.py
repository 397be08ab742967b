"""The functions and operators of PostgreSQL, which RisingWave has: one row each.

In: the rows of each file. Out: `ROWS`, by the names that plans give them, which begin with `pg.`.
Rule: the value is PostgreSQL's, down to its type, or the row fails where PostgreSQL gives an error. Where RisingWave's
public pages say otherwise they hold, and docs/dialects/risingwave.md names them. A real PostgreSQL judges every row
(tests/postgres).
"""

from __future__ import annotations

from braid.expr.postgres.casts import CASTS
from braid.expr.postgres.intervals import INTERVALS
from braid.expr.postgres.nulls import NULLS
from braid.expr.postgres.numbers import NUMBERS
from braid.expr.postgres.operators import OPERATORS
from braid.expr.signatures import Function

_TABLES = (OPERATORS, CASTS, INTERVALS, NULLS, NUMBERS)
ROWS: dict[str, Function] = {name: f for table in _TABLES for name, f in table.items()}
assert len(ROWS) == sum(map(len, _TABLES)), "two rows have one name"
