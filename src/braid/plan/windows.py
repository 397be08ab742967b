"""Kinds of windows: which windows there are, and what follows from it, in whatever SQL and unit of time.

In: lengths by name. Out: a kind with its lengths: `Hopping`, `Session`.
Rule: what is so of one kind of windows only is told here and asked of it. Which windows hold a time is told in columns
by `operators/windows.py`, and by definition by `reference/windows.py`; `sql/windows.py` has the words. Nobody else
names a kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self


class WindowKind(ABC):
    """`sized`: the begin of a window tells its end. Of those that are not, keys have both."""

    sized: ClassVar[bool]

    @classmethod
    def of(cls, lengths: Mapping[str, int]) -> Self:
        """Of its lengths by name."""
        return cls(**lengths)

    @property
    @abstractmethod
    def span(self) -> int:
        """How long a window is; of windows that rows make, how far from one a row may be that becomes part of it."""

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
    def most(self) -> int:
        """How many of them may hold one time."""

    @property
    def alone(self) -> bool:
        """No time is in two of them."""
        return self.most == 1

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

    @classmethod
    def of(cls, lengths: Mapping[str, int]) -> Self:
        return cls(**{"advance": lengths["size"], **lengths})

    @property
    def span(self) -> int:
        return self.size

    @property
    def called(self) -> str:
        return "tumbling windows" if self.alone else "hopping windows"

    def told(self, length: Callable[[int], str]) -> str:
        every = "" if self.alone else f", every {length(self.advance)}"
        return f"size {length(self.size)}{every}"

    @property
    def most(self) -> int:
        return -(-self.size // self.advance)

    @property
    def lowest(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.advance, self.advance - self.size), (self.advance, self.advance)


@dataclass(frozen=True, slots=True)
class Session(WindowKind):
    """Windows that rows make: of rows that are no further apart than `gap`, from the first one's time to the last
    one's, both included."""

    sized: ClassVar[bool] = False
    gap: int

    @property
    def span(self) -> int:
        return self.gap

    @property
    def called(self) -> str:
        return "sessions"

    def told(self, length: Callable[[int], str]) -> str:
        return f"gap {length(self.gap)}"


Fixed = Hopping
Made = Session
KINDS: Mapping[str, type[Fixed | Made]] = {"TUMBLING": Hopping, "HOPPING": Hopping, "SESSION": Session}
