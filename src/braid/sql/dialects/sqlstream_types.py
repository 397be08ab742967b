"""SQLstream's names of types that others have not.

In: a cursor at a type. Out: the type, with the cursor behind it; None: it is one that dialects have in common.
Rule: DECIMAL without digits has 18, none of them behind the point; lengths of texts and bytes limit nothing here.
"""

from __future__ import annotations

from braid.sql.cursor import Cursor
from braid.sql.types import decimal_type, length
from braid.types import Decimal, Scalar, Type

_PLAIN = Decimal(18, 0)
WORDS = ("DECIMAL", "DEC", "NUMERIC", "DOUBLE", "CHAR", "CHARACTER", "BINARY", "VARBINARY")


def own_type(c: Cursor) -> Type | None:
    """DEC and NUMERIC, DOUBLE PRECISION, CHARACTER [VARYING], BINARY [VARYING], VARBINARY (n)."""
    word = c.word()
    if word not in WORDS:
        return None
    if word in ("DECIMAL", "DEC", "NUMERIC"):
        return decimal_type(c, _PLAIN)
    c.advance()
    if word == "DOUBLE":
        c.accept("PRECISION")
        return Scalar.DOUBLE
    if word != "VARBINARY":
        c.accept("VARYING")
    length(c)
    return Scalar.VARCHAR if word.startswith("CHAR") else Scalar.BYTES
