"""Names that are made: those that are free, and those that stand twice.

In: names. Out: a free one; the first that is repeated.
Rule: a name that is made never takes the place of one that is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from braid.plan.logical import BOUNDS, PSEUDO

T = TypeVar("T")

RESERVED = (*PSEUDO, *BOUNDS)


def free_name(name: str, taken: Collection[str], n: int = 1) -> str:
    """`name`, or `name_1`, `name_2` … (from `n` on): the first that is free."""
    if name not in taken:
        return name
    while f"{name}_{n}" in taken:
        n += 1
    return f"{name}_{n}"


def repeated(items: Iterable[T], name: Callable[[T], str | None] = str) -> T | None:
    """The first item whose name one before it has."""
    seen: set[str | None] = set()
    for item in items:
        if name(item) in seen:
            return item
        seen.add(name(item))
    return None
