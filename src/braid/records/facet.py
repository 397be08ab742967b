"""What is said of a facet of a record, its key or its value, besides its format.

In: what a declaration says. Out: how JSON is read; windows behind keys; the schema of a facet.
Rule: in a format with schemas a facet is written by the schema that its columns get, or by the one that was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How JSON is read. plain: dates and times are numbers; iso: or ISO text; texts: a number may be a text; lenient: and a
# whole one loses what is behind its point; lenient iso: both.
Manner = Literal["plain", "iso", "texts", "lenient", "lenient iso"]
ISO, TEXTS, LENIENT = ("iso", "lenient iso"), ("texts", "lenient", "lenient iso"), ("lenient", "lenient iso")
KeyWindow = Literal["time", "session"]  # what stands behind keys that windows are parts of


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The schema of a facet: made of the columns, its record called `name`; or the one that was chosen by its `id`: its
    text, and names and texts of those (`others`) that it uses. `nulls`: how Protobuf tells null from 0."""

    name: str
    id: int | None = None
    text: str = ""
    others: tuple[tuple[str, str], ...] = ()
    nulls: Literal["", "OPTIONAL", "WRAPPER"] = ""
