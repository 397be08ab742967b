"""Times as people write and read them at a terminal.

In: milliseconds since 1970, or a text. Out: ISO 8601 in UTC, or milliseconds.
Rule: a text without a zone is UTC; whole numbers are milliseconds; a time beyond the calendar stays a number.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from braid.errors import BraidError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
SHOWN = "2024-03-01T08:00:00Z"


def text(ms: int) -> str:
    """`2024-03-01T08:00:00.000Z`."""
    try:
        return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ms)


def milliseconds(given: str) -> int:
    """Milliseconds since 1970 of a text; ValueError where it is no time."""
    given = given.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,18}", given, re.ASCII):
        return int(given)
    at = datetime.fromisoformat(given)
    return ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - EPOCH) // MILLISECOND


def option(name: str, given: str) -> int:
    """The same of a command's option."""
    try:
        return milliseconds(given)
    except (ValueError, OverflowError):
        raise BraidError(f"{name} {given}: it is no time", f"{name} {SHOWN}, or milliseconds since 1970") from None
