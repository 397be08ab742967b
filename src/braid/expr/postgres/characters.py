"""Characters as PostgreSQL knows them in its locale C.UTF-8: cases one to one, and which are parts of words.

In: code points. Out: other code points; whether they are.
Rule: Unicode's, as the C library has them: a case is one character for one, so 'ß' is its own upper case; digits of
other scripts are letters. tests/test_postgres_text.py compares each character with what a server said.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import polars as pl


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

# marks that Unicode has called alphabetic since version 14, which the C library has
_LATER = ((0x363, 0x370), (0xC04, 0xC05), (0xF82, 0xF84), (0x1DD3, 0x1DE7), (0x11080, 0x11082))


@lru_cache(maxsize=1)
def letters_and_digits() -> frozenset[int]:
    """Those of Unicode 14, whatever Python knows."""
    codes = pl.Series([c for c in range(0x110000) if not 0xD800 <= c < 0xE000])
    found = pl.Series(map(chr, codes)).str.contains(r"^[[\p{Alphabetic}\p{Nd}]&&\p{age:14.0}]$")
    return frozenset(codes.filter(found)) - {c for start, end in _LATER for c in range(start, end)}


def is_word_part(c: str) -> bool:
    """Whether it is a letter or a digit."""
    return c.isalnum() if c.isascii() else ord(c) in letters_and_digits()
