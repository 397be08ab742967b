"""The functions and operators of PostgreSQL, which RisingWave has: one row each.

In: the rows of each file. Out: `ROWS`, by the names that plans give them, which begin with `pg.`.
Rule: the value is PostgreSQL's, down to its type, or the row fails where PostgreSQL gives an error. Where RisingWave's
public pages say otherwise they hold, and docs/dialects/risingwave.md names them. A real PostgreSQL judges every row
(tests/postgres).
"""

from __future__ import annotations

from braid.expr.postgres.arrays import ARRAYS
from braid.expr.postgres.binary import BINARY
from braid.expr.postgres.casts import CASTS
from braid.expr.postgres.intervals import INTERVALS
from braid.expr.postgres.jsonb import JSONB
from braid.expr.postgres.nulls import NULLS
from braid.expr.postgres.numbers import NUMBERS
from braid.expr.postgres.operators import OPERATORS
from braid.expr.postgres.quoting import QUOTING
from braid.expr.postgres.regex import REGEX
from braid.expr.postgres.text import TEXT
from braid.expr.postgres.times import TIMES
from braid.expr.postgres.to_char import TO_CHAR
from braid.expr.postgres.to_timestamp import READERS
from braid.expr.signatures import Function

_TABLES = (
    OPERATORS, CASTS, NUMBERS, NULLS, TEXT, QUOTING, REGEX, BINARY, ARRAYS, JSONB, INTERVALS, TIMES,
    {TO_CHAR.name: TO_CHAR}, READERS,
)  # fmt: skip
ROWS: dict[str, Function] = {name: f for table in _TABLES for name, f in table.items()}
assert len(ROWS) == sum(map(len, _TABLES)), "two rows have one name"
