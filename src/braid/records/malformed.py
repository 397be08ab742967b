"""What is said of a value that is not one of its declared type.

In: a value of JSON, a type. Out: an error that says which, where and why.
Rule: a value is shown as JSON has it, cut where it is long.
"""

from __future__ import annotations

from typing import Any

from braid.expr.json_text import compact
from braid.types import Type


class Malformed(ValueError):
    """A JSON value that is not one of the declared type; the text says which and why."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.path = path

    def inside(self, step: str) -> Malformed:
        """The same error, one level further out."""
        joined = step if not self.path else step + self.path if self.path.startswith("[") else f"{step}.{self.path}"
        return Malformed(self.why, joined)

    def __str__(self) -> str:
        return f"field {self.path}: {self.why}" if self.path else self.why


def a(t: Type) -> str:
    """The type with its article."""
    return f"{'an' if str(t)[0] in 'AEIOU' else 'a'} {t}"


def shown(value: Any) -> str:
    """A value for a message; half a pair of surrogates (an escape like \\ud83d), which has no UTF-8, as '?'."""
    text = repr(str(value)) if type(value) is str else compact(value)
    return cut(text.encode("utf-8", "replace").decode())


def cut(text: str) -> str:
    """The beginning of a text, for a message."""
    return text if len(text) <= 60 else text[:59] + "…"


def not_one(value: Any, t: Type) -> Malformed:
    return Malformed(f"{shown(value)} is not {a(t)}")
