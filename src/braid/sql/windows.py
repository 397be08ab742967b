"""Windows in SQL: the words of each kind, and what its lengths may be.

In: lengths as they are written. Out: tables of kinds; a refusal of lengths, with what to write.
Rule: what SQL says of one kind of windows only is told here. Kinds and lengths are called as in `plan/windows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from braid.errors import SqlError
from braid.sql import ast

Lengths = Mapping[str, ast.Duration | ast.Interval]
Check = Callable[[Lengths], None]


def _any(lengths: Lengths) -> None:
    """Each that is more than nothing."""


def _part_of_size(hint: str) -> Check:
    def check(lengths: Lengths) -> None:
        size, advance = lengths["size"], lengths["advance"]
        if not 0 < advance.ms <= size.ms:
            message = "windows advance by more than nothing, and by no more than their size"
            raise SqlError(message, advance.span, hint)

    return check


def _multiple_of_slide(lengths: Lengths) -> None:
    size, slide = lengths["size"], lengths["advance"]
    if size.ms % slide.ms:
        hint = f"write {CALLS['HOP'].usage}: the slide first, then the size"
        raise SqlError("the size of HOP must be a multiple of its slide", size.span, hint)


@dataclass(frozen=True, slots=True)
class Clause:
    """`WINDOW KIND (words length, …)`: the words before each length, by its name."""

    lengths: Mapping[str, str]
    check: Check = _any


@dataclass(frozen=True, slots=True)
class By:
    """`WINDOW BY KIND length, …`."""

    kind: str
    lengths: tuple[str, ...]
    usage: str
    check: Check = _any


@dataclass(frozen=True, slots=True)
class Call:
    """`NAME(table, time, length, …[, offset])`. `keeps_null`: a row without time gives one without window."""

    kind: str
    lengths: tuple[str, ...]
    usage: str
    check: Check = _any
    keeps_null: bool = False


CLAUSES: Mapping[str, Clause] = {
    "TUMBLING": Clause({"size": "SIZE"}),
    "HOPPING": Clause({"size": "SIZE", "advance": "ADVANCE BY"}, _part_of_size("write ADVANCE BY a part of SIZE")),
    "SESSION": Clause({"gap": ""}),
}
BY: Mapping[str, By] = {
    "TUMBLE": By("TUMBLING", ("size",), "TUMBLE 5m"),
    "HOP": By(
        "HOPPING", ("size", "advance"), "HOP 5m,1m", _part_of_size("write HOP 5m,1m: the size, then a part of it")
    ),
    "SESSION": By("SESSION", ("gap",), "SESSION 5m"),
}
CALLS: Mapping[str, Call] = {
    "TUMBLE": Call("TUMBLING", ("size",), "TUMBLE(t, ts, INTERVAL '1' MINUTE)", keeps_null=True),
    "HOP": Call(
        "HOPPING", ("advance", "size"), "HOP(t, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)", _multiple_of_slide
    ),
}
