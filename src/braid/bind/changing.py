"""A statement with other parts in it.

In: any part of a statement as written; what takes the place of a part. Out: the same with that.
Rule: what is not changed is the same object; where a part is in the text is none of its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from braid.errors import Span

T = TypeVar("T")
NOWHERE = Span(0, 0, 1, 1)  # of parts that are the same wherever they are


def placed(x: T, span: Span) -> T:
    """A part of a statement as if all of it had been written there."""
    return span if isinstance(x, Span) else changed(x, lambda part: placed(part, span))  # type: ignore[return-value]


def changed(x: T, of: Callable[[Any], Any]) -> T:
    """A part of a statement with what `of` makes of each part of it; itself where that changes none."""
    made: Any = x
    if isinstance(x, tuple) and not isinstance(x, Span):
        found = tuple(map(of, x))
        made = found if any(a is not b for a, b in zip(found, x, strict=True)) else x
    elif is_dataclass(x) and not isinstance(x, type):
        others = {f.name: v for f in fields(x) if (v := of(old := getattr(x, f.name))) is not old}
        made = replace(x, **others) if others else x
    return made  # type: ignore[no-any-return]
