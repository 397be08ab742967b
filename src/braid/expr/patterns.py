"""Java's regular expressions by Python's.

In: a pattern as java.util.regex reads it. Out: a compiled pattern; what Java makes of it with texts.
Rule: both backtrack and prefer the same match. What they write differently is translated: classes are ASCII's, a dot is
no line end, `\\p{…}`, `\\Q…\\E`, `(?<name>…)`, `\\h`, `\\R`, `\\z`. What has no counterpart is refused, never guessed.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

from braid.expr.rows import LARGEST

LONGEST = 10_000  # characters of a pattern

_DOT = r"[^\n\r\u0085\u2028\u2029]"
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F", "Space": r" \t\n\x0b\f\r",
}  # fmt: skip
_ESCAPES = {
    "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000", "v": r"\n\x0b\f\r\x85\u2028\u2029", "e": r"\x1b",
}  # fmt: skip
_OUTSIDE = {"R": r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])", "z": r"\Z", "Z": r"(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z)"}
_KEPT = "dDwWsSbBAtnrfa0123456789"


class BadPattern(ValueError):
    """Not a pattern, or one that Python has no counterpart for."""


@lru_cache(maxsize=1000)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern; `BadPattern` where there is none."""
    if len(pattern) > LONGEST:
        raise BadPattern(f"it has more than {LONGEST} characters")
    try:
        return re.compile(_Reader(pattern).translated(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as e:
        raise BadPattern(str(e)) from None


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._every_dot = re.search(r"\(\?[a-zA-Z]*s", pattern) is not None  # a flag lets dots match line ends

    def _next(self, count: int = 1) -> str:
        found = self._text[self._at : self._at + count]
        self._at += count
        return found

    def translated(self) -> str:
        out: list[str] = []
        while self._at < len(self._text):
            c = self._next()
            if c == "\\":
                out.append(self._escape(in_class=False))
            elif c == "[":
                out.append(self._class())
            elif c == ".":
                out.append(c if self._every_dot else _DOT)
            elif c == "(" and re.match(r"\?<[a-zA-Z]", self._text[self._at : self._at + 3]):
                self._at += 1
                out.append("(?P")
            else:
                out.append(c)
        return "".join(out)

    def _class(self) -> str:
        """`[…]`; those in others are plain where they add up."""
        negated = self._text.startswith("^", self._at)
        self._at += negated
        parts: list[str] = []
        while True:
            if self._at >= len(self._text):
                raise BadPattern("a [ is not closed")
            if self._text.startswith("&&", self._at):
                raise BadPattern("&& in a class is not possible: write (?=…) in front")
            c = self._next()
            if c == "]" and parts:
                return f"[{'^' if negated else ''}{''.join(parts)}]"
            if c == "[":
                inner = self._class()
                if inner.startswith("[^"):
                    raise BadPattern("a negated class in a class is not possible")
                parts.append(inner[1:-1])
            else:
                parts.append(self._escape(in_class=True) if c == "\\" else f"\\{c}" if c in "]|~&" else c)

    def _escape(self, in_class: bool) -> str:
        c = self._next()
        if c == "Q":
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end if end >= 0 else len(self._text)]
            self._at = end + 2 if end >= 0 else len(self._text)
            return re.escape(quoted)
        if c in ("p", "P"):
            inside = _property(self._property_name())
            if c == "p":
                return inside if in_class else f"[{inside}]"
            if in_class:
                raise BadPattern("\\P in a class is not possible")
            return f"[^{inside}]"
        if c in ("u", "x"):
            return re.escape(chr(self._code(c)))
        if c in _ESCAPES:
            return _ESCAPES[c] if in_class else f"[{_ESCAPES[c]}]"
        if c in _OUTSIDE and not in_class:
            return _OUTSIDE[c]
        if c == "k" and self._text.startswith("<", self._at):
            end = self._text.find(">", self._at)
            name, self._at = self._text[self._at + 1 : end], end + 1
            return f"(?P={name})"
        if c == "0":
            digits = re.match(r"[0-3]?[0-7]{1,2}", self._text[self._at : self._at + 3])
            if digits is None:
                raise BadPattern("\\0 needs octal digits")
            self._at += digits.end()
            return re.escape(chr(int(digits[0], 8)))
        if not c or (c.isascii() and c.isalnum() and c not in _KEPT):
            raise BadPattern(f"\\{c} is not known")
        return f"\\{c}"

    def _property_name(self) -> str:
        if not self._text.startswith("{", self._at):
            return self._next()
        end = self._text.find("}", self._at)
        if end < 0:
            raise BadPattern("a { is not closed")
        name, self._at = self._text[self._at + 1 : end], end + 1
        return name

    def _code(self, letter: str) -> int:
        if letter == "x" and self._text.startswith("{", self._at):
            digits = self._property_name()
        else:
            digits = self._next(4 if letter == "u" else 2)
        if not re.fullmatch("[0-9a-fA-F]{1,6}", digits) or int(digits, 16) > sys.maxunicode:
            raise BadPattern(f"\\{letter}{digits} is no character")
        return int(digits, 16)


def _property(name: str) -> str:
    """The inside of a class: POSIX names, categories of Unicode."""
    if name in _POSIX:
        return _POSIX[name]
    short = {"IsAlphabetic": "L", "IsLetter": "L", "IsUppercase": "Lu", "IsLowercase": "Ll", "IsDigit": "Nd",
             "IsPunctuation": "P"}.get(name, name.removeprefix("Is"))  # fmt: skip
    found = _category(short)
    if not found:
        raise BadPattern(f"\\p{{{name}}} is not known")
    return found


@lru_cache(maxsize=100)
def _category(name: str) -> str:
    """The characters of a category (`L`) or of one within it (`Lu`), as ranges."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1 if 1 <= len(name) <= 2 else 0):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)


def extracted(pattern: str, text: str, group: int = 0) -> str | None:
    """The group of the first match; None where there is none."""
    found = _with_group(pattern, group)
    match = None if found is None else found.search(text)
    return None if match is None else match[group]


def all_extracted(pattern: str, text: str, group: int = 0) -> list[str | None] | None:
    """The group of every match; None where there is no such group."""
    found = _with_group(pattern, group)
    return None if found is None else [m[group] for m in found.finditer(text)]


def _with_group(pattern: str, group: int) -> re.Pattern[str] | None:
    """The pattern, if it has the group."""
    found = compiled(pattern)
    if group < 0:
        raise ValueError("a group has a number from 0")
    return found if group <= found.groups else None


def split(pattern: str, text: str) -> list[str]:
    """The parts between matches. A pattern that fits nothing splits between characters; empty parts at the end go."""
    found = compiled(pattern)
    spread = found.fullmatch("") is not None
    parts: list[str] = []
    at = 0
    for match in found.finditer(text):
        if match.end() == match.start() and match.start() in (0, len(text)):
            continue
        parts.append(text[at : match.start()])
        at = match.end()
    parts.append(text[at:])
    while spread and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def replaced(pattern: str, text: str, new: str, only: int = 0) -> str:
    """Each match replaced, or the one with that number alone: `$1`, `${name}` are groups, a backslash takes the next
    character as it is. `ValueError` for what is none, or makes a text that no record can hold."""
    found = compiled(pattern)
    pieces = _pieces(new, found)
    parts: list[str] = []
    at = size = 0
    for n, match in enumerate(found.finditer(text), 1):
        if only not in (0, n):
            continue
        made = "".join(p if isinstance(p, str) else match[p] or "" for p in pieces)
        parts += [text[at : match.start()], made]
        at = match.end()
        size += len(parts[-1]) + len(parts[-2])
        if size > LARGEST:
            raise ValueError("the text is too long")
    return "".join([*parts, text[at:]])


def _pieces(new: str, pattern: re.Pattern[str]) -> list[str | int]:
    pieces: list[str | int] = []
    i = 0
    while i < len(new):
        if new[i] == "\\":
            if i + 1 == len(new):
                raise ValueError("a backslash at the end")
            pieces.append(new[i + 1])
            i += 2
        elif new[i] == "$":
            named = re.match(r"\$\{([a-zA-Z][a-zA-Z0-9]*)\}", new[i:])
            digits = re.match(r"\$([0-9]+)", new[i:])
            if named is not None and named[1] in pattern.groupindex:
                pieces.append(pattern.groupindex[named[1]])
                i += named.end()
            elif digits is not None and int(digits[1][0]) <= pattern.groups:
                # as many digits as name a group
                end = next(n for n in range(len(digits[1][:9]), 0, -1) if int(digits[1][:n]) <= pattern.groups)
                pieces.append(int(digits[1][:end]))
                i += 1 + end
            else:
                raise ValueError("no such group")
        else:
            pieces.append(new[i])
            i += 1
    return pieces
