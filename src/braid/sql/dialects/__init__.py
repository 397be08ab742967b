"""The dialects by name.

In: a name. Out: the `Dialect`.
Rule: a name in the list without a dialect is one that is still to be built.
"""

from __future__ import annotations

import difflib

from braid.errors import BraidError
from braid.sql.dialects.base import Dialect
from braid.sql.dialects.ksqldb import KSQLDB
from braid.sql.dialects.lenses import LENSES
from braid.sql.dialects.risingwave import RISINGWAVE
from braid.sql.dialects.sqlstream import SQLSTREAM

DIALECTS: dict[str, Dialect | None] = {
    "ksqldb": KSQLDB,
    "risingwave": RISINGWAVE,
    "sqlstream": SQLSTREAM,
    "lenses": LENSES,
}


def dialect_named(name: str) -> Dialect:
    """The dialect, or a `BraidError` that lists the known ones."""
    key = name.strip().lower()
    if key not in DIALECTS:
        near = difflib.get_close_matches(key[:30], DIALECTS, n=1)
        known = f"known dialects: {', '.join(DIALECTS)}"
        raise BraidError(f"unknown dialect {name!r}", f"did you mean {near[0]}? {known}" if near else known)
    found = DIALECTS[key]
    if found is None:
        built = ", ".join(n for n, d in DIALECTS.items() if d is not None)
        raise BraidError(f"dialect {key} is not built yet", f"built so far: {built}")
    return found
