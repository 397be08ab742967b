"""Kinds of windows: which windows there are, and what follows from it, in whatever SQL and unit of time.

In: lengths. Out: a kind with its lengths, such as `Hopping`.
Rule: what is so of one kind of windows only is told here and asked of it. Which windows hold a time is told in columns
by `operators/windows.py`, and by definition by `reference/windows.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar


class WindowKind(ABC):
    """`sized`: the begin of a window tells its end."""

    sized: ClassVar[bool]

    @property
    @abstractmethod
    def called(self) -> str:
        """What people call its windows."""

    @abstractmethod
    def told(self, length: Callable[[int], str]) -> str:
        """Its lengths, as people are told of them."""


class FixedKind(WindowKind):
    """Windows that are there before any row: a row is in all that hold its time, begin included, end not."""

    offset: int

    @property
    @abstractmethod
    def alone(self) -> bool:
        """No time is in two of them."""

    @property
    @abstractmethod
    def lowest(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the windows of all times from some time on the lowest begin, and the lowest end: (step, ahead): the time,
        down to `offset` and a multiple of `step`, and `ahead` of that."""


@dataclass(frozen=True, slots=True)
class Hopping(FixedKind):
    """Windows of one size, that begin at `offset` and every multiple of `advance`: tumbling where that is the size."""

    sized: ClassVar[bool] = True
    size: int
    advance: int
    offset: int = 0

    @property
    def called(self) -> str:
        return "tumbling windows" if self.alone else "hopping windows"

    def told(self, length: Callable[[int], str]) -> str:
        every = "" if self.alone else f", every {length(self.advance)}"
        return f"size {length(self.size)}{every}"

    @property
    def alone(self) -> bool:
        return self.size == self.advance

    @property
    def lowest(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.advance, self.advance - self.size), (self.advance, self.advance)


Fixed = Hopping
