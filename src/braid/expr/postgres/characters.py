"""Characters as PostgreSQL knows them in its locale C.UTF-8: cases one to one, and classes.

In: code points, names of classes. Out: other code points; ranges of them.
Rule: Unicode's, as the C library has them: a case is one character for one, so 'ß' is its own upper case; digits of
other scripts are letters. tests/test_postgres_text.py compares each character with what a server said.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache

import polars as pl

Ranges = tuple[tuple[int, int], ...]  # from, to: in order, none touches the next one

LAST = 0x10FFFF
_PAIRS = range(0xD800, 0xE000)  # halves of pairs: no characters


class _Cases(dict[int, int]):
    """Code points to those of the other case, also for `str.translate`."""

    def __init__(self, of: Callable[[str], str], others: dict[int, int]) -> None:
        super().__init__(others)
        self._of = of

    def __missing__(self, code: int) -> int:
        made = self._of(chr(code))
        self[code] = ord(made) if len(made) == 1 else code
        return self[code]


# Greek letters with an iota below have capitals of one character, which Python does not take
_IOTAS = {c: c + 8 for start in (0x1F80, 0x1F90, 0x1FA0) for c in range(start, start + 8)}
LOWER = _Cases(str.lower, {0x130: 0x69})
UPPER = _Cases(str.upper, {**_IOTAS, 0x1FB3: 0x1FBC, 0x1FC3: 0x1FCC, 0x1FF3: 0x1FFC})


# --------------------------------------------------------------------- ranges


def ranges(parts: Iterable[tuple[int, int]]) -> Ranges:
    """The same characters, in order."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(parts):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def others(of: Ranges) -> Ranges:
    """All characters that are not in `of`."""
    out: list[tuple[int, int]] = []
    at = 0
    for low, high in of:
        if at < low:
            out.append((at, low - 1))
        at = high + 1
    return (*out, (at, LAST)) if at <= LAST else tuple(out)


def without(these: Ranges, those: Ranges) -> Ranges:
    return others(ranges((*others(these), *those)))


def holds(these: Ranges, code: int) -> bool:
    at = bisect_right(these, (code, LAST + 1))
    return at > 0 and code <= these[at - 1][1]


@lru_cache(maxsize=1)
def _cased() -> tuple[tuple[int, int, int], ...]:
    """The characters that have another case: which they are, its lower and its upper one."""
    found = ((c, LOWER[c], UPPER[c]) for c in range(LAST + 1) if c not in _PAIRS and c not in range(0x3000, 0xA000))
    return tuple(x for x in found if x[0] != x[1] or x[0] != x[2])


def in_all_cases(these: Ranges) -> Ranges:
    """With their lower and upper cases."""
    if all(high < 0x80 for _, high in these):
        more = [(d, d) for low, high in these for c in range(low, high + 1) for d in (LOWER[c], UPPER[c])]
    else:
        more = [(d, d) for c, lower, upper in _cased() if holds(these, c) for d in (lower, upper)]
    return ranges((*these, *more))


# -------------------------------------------------------------------- classes

_FIXED: dict[str, Ranges] = {
    "ascii": ((0, 0x7F),), "blank": ((9, 9), (32, 32)), "cntrl": ((0, 0x1F), (0x7F, 0x9F)), "digit": ((48, 57),),
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip
# marks that Unicode has called alphabetic since version 14, which the C library has
_LATER = ((0x363, 0x36F), (0xC04, 0xC04), (0xF82, 0xF83), (0x1DD3, 0x1DE6), (0x11080, 0x11081))
_LATER_LOWER = ((0x10FC, 0x10FC), (0xA7F2, 0xA7F4), (0xAB69, 0xAB69))
_TITLES = ((0x1C5, 0x1C5), (0x1C8, 0x1C8), (0x1CB, 0x1CB), (0x1F2, 0x1F2))  # both lower and upper
CLASSES = ("alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
           "xdigit", "word")  # fmt: skip


@lru_cache(maxsize=1)
def _all() -> tuple[pl.Series, pl.Series]:
    """All characters that Unicode has given a meaning, and their code points."""
    codes = [c for c in range(LAST + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    return pl.Series([chr(c) for c in codes]), pl.Series(codes)


def _property(inside: str) -> Ranges:
    """The characters of a class of Rust's regular expressions."""
    texts, codes = _all()
    return ranges((c, c) for c in codes.filter(texts.str.contains(f"^[{inside}]$")).to_list())


@lru_cache(maxsize=20)
def members(name: str) -> Ranges:
    """The characters of a class."""
    if name in _FIXED:
        return _FIXED[name]
    match name:
        case "alpha":
            return without(_property(r"\p{Alphabetic}\p{Nd}"), ranges((*_FIXED["digit"], *_LATER)))
        case "alnum":
            return ranges((*members("alpha"), *_FIXED["digit"]))
        case "word":
            return ranges((*members("alnum"), (95, 95)))
        case "lower":
            return ranges((*without(_property(r"\p{Lowercase}"), _LATER_LOWER), *_TITLES))
        case "upper":
            return _property(r"\p{Uppercase}\p{Lt}")
        case "space":  # those that do not forbid a line to end
            return without(_property(r"\t-\r\p{Z}"), ((0xA0, 0xA0), (0x2007, 0x2007), (0x202F, 0x202F)))
        case "print":
            return without(_property(r"\P{Cc}"), ((0x2028, 0x2029),))
        case "graph":
            return without(members("print"), members("space"))
        case "punct":
            return without(members("graph"), members("alnum"))
    raise ValueError("invalid character class")


def is_word_part(c: str) -> bool:
    """Whether it is a letter or a digit."""
    return c.isalnum() if c.isascii() else holds(members("alnum"), ord(c))
