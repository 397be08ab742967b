"""What people are told of a node: what it keeps and until when, whose clock its rows have, what else there is to know.

In: a node's fields. Out: `Told`, of which EXPLAIN makes its texts, documents and pictures.
Rule: each kind of node says it of itself, from its fields only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from braid.expr.show import duration

SIDES = ("left", "right")
LAST = "last row of a key"
MEETS_TABLE = "each stream row meets the table's current rows when it is processed"
EAGER = "eager: an unmatched row goes out null-extended at once; its match goes out too"


class Kept(NamedTuple):
    """What is kept of an input; `bounded`: by time, whatever comes."""

    side: str
    keeps: str
    until: str = "replaced or deleted"
    bounded: bool = False


class Told(NamedTuple):
    kept: Sequence[Kept]
    clock: str | None = None
    notes: Sequence[str] = ()


def window(before: int, after: int) -> str:
    return f"right time within {duration(before)} before and {duration(after)} after left time"


def held(hold: int) -> str:
    return f", output held back by {duration(hold)}" if hold else ""
