"""The functions and operators of PostgreSQL, which RisingWave has: one row each.

In: the rows of each file. Out: `ROWS`, by the names that plans give them, which begin with `pg.`.
Rule: the value is PostgreSQL's, down to its type, or the row fails where PostgreSQL gives an error. Where RisingWave's
public pages say otherwise they hold, and docs/dialects/risingwave.md names them. A real PostgreSQL judges every row
(tests/postgres).
"""

from __future__ import annotations

from braid.expr.postgres.binary import BINARY
from braid.expr.postgres.quoting import QUOTING
from braid.expr.postgres.regex import REGEX
from braid.expr.postgres.text import TEXT
from braid.expr.signatures import Function

ROWS: dict[str, Function] = {**TEXT, **QUOTING, **REGEX, **BINARY}
