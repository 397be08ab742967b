"""How much a test with random inputs does: a share of its examples in `make test`, all of them with `--law`.

In: the options `--law` and `--fuzz`, told by `conftest.py` before any test is read. Out: numbers.
Rule: only how many inputs are tried differs, never what must hold for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

LAW = False
FUZZ = 10_000
T = TypeVar("T")


def examples(whole: int, least: int = 8) -> int:
    """How many of `whole` examples to try; some are dear."""
    return whole if LAW else max(whole // 12, least)


def some(all_of: Iterable[T], each: int = 2) -> list[T]:
    """One of each so many of these, or all with `--law`."""
    return [*all_of][:: 1 if LAW else each]


def fuzzed(share: int, each: int = 1) -> int:
    """How many random examples of one kind to try: `share`, or with `--law` enough for `--fuzz` inputs, `each` of which
    make an example."""
    return -(-FUZZ // each) if LAW else share
