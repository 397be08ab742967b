"""Why a row is left out: the one list of reasons.

In: nothing. Out: the reasons, each with its sentence.
Rule: whoever drops a row says one of these: sources, operators, exchanges, the SELECT, sinks, and the oracle. Users see
its text; the page docs/semantics/drops.md has a row for each, which begins with its sentence.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    sentence: str

    def __new__(cls, text: str, sentence: str) -> Self:
        made = str.__new__(cls, text)
        made._value_, made.sentence = text, sentence
        return made

    MALFORMED = "malformed", "key or value is not what was declared"
    NULL_VALUE = "null value", "a stream record with a null value, under a join or a group"
    NULL_KEY = "null key", "the join key, the grouping expression or the key of the result is null"
    LATE = "late", "a row too old to be stored in a stream-stream join"
    UNREACHED = "unreached", "a row of a side that is kept, whose ROWS window had not begun when the input ended"
    EXPRESSION = "expression", "an expression failed"
    SCHEMA = "schema", "the schema that was chosen for the result by its id has no place for the row"
    TIMESTAMP = "timestamp", "the result has no time"
    TOO_LARGE = "too large", "the record is larger than its topic takes"
    UNSTORABLE = "value", "a table of PostgreSQL has no place for the row"
