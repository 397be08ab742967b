"""The functions and operators of PostgreSQL, which RisingWave has: one row each.

In: the rows of each file. Out: `ROWS`, by the names that plans give them, which begin with `pg.`.
Rule: the value is PostgreSQL's, down to its type, or the row fails where PostgreSQL gives an error. Where RisingWave's
public pages say otherwise they hold, and docs/dialects/risingwave.md names them. A real PostgreSQL judges every row
(tests/postgres).
"""

from __future__ import annotations

from braid.expr.postgres.intervals import INTERVALS
from braid.expr.postgres.times import TIMES
from braid.expr.postgres.to_char import TO_CHAR
from braid.expr.postgres.to_timestamp import READERS
from braid.expr.signatures import Function

ROWS: dict[str, Function] = {**INTERVALS, **TIMES, TO_CHAR.name: TO_CHAR, **READERS}
