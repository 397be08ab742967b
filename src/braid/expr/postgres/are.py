"""PostgreSQL's advanced regular expressions, read.

In: a pattern and the letters of its flags. Out: what it is made of: alternatives of items.
Rule: PostgreSQL's grammar (Henry Spencer's): a quantifier stands behind an atom, never behind another one or `^`;
`\\m \\M \\y \\Y \\A \\Z` are edges; classes are C.UTF-8's (characters.py); flags, `***:` and `(?i)` begin a pattern.
What is no pattern is refused with PostgreSQL's reason. Basic and extended expressions (flags b, e) are refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from braid.expr.postgres.characters import LAST, LOWER, UPPER, Ranges, in_all_cases, members, others, ranges

LONGEST = 10_000  # characters of a pattern
DEEPEST = 100  # parentheses in parentheses
MOST = 255  # of a repetition
LONGER, SHORTER = 1, 2  # what a quantifier prefers

_NEWLINE: Ranges = ((10, 10),)


class BadPattern(ValueError):
    """Not a pattern, or one that is not taken here."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these."""

    of: Ranges


@dataclass(frozen=True, slots=True)
class Edge:
    """A place: `^` and `$`, of the text or, with `lines`, of each line; `m`, `M`, `y`, `Y` of words."""

    kind: str
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    ahead: bool
    negated: bool
    inside: Alternatives


@dataclass(frozen=True, slots=True)
class Group:
    """`number`: from 1; 0 if it captures nothing."""

    number: int
    inside: Alternatives


@dataclass(frozen=True, slots=True)
class Back:
    """What a group has captured."""

    number: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """`most`: None without an end. `prefers`: LONGER, SHORTER, or 0 for what the atom prefers."""

    atom: Chars | Group | Back
    least: int
    most: int | None
    prefers: int


Atom = Chars | Group | Back
Item = Atom | Edge | Look | Repeat
Alternatives = tuple[tuple[Item, ...], ...]


@dataclass(frozen=True, slots=True)
class Flags:
    ignore_case: bool = False
    dot_stops: bool = False  # `.` and `[^…]` are no newline
    lines: bool = False  # `^` and `$` stand at newlines too
    expanded: bool = False  # blanks and comments are passed over
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    alternatives: Alternatives
    groups: int
    ignore_case: bool


_CHANGES: dict[str, dict[str, bool]] = {
    "c": {"ignore_case": False}, "i": {"ignore_case": True}, "m": {"dot_stops": True, "lines": True},
    "n": {"dot_stops": True, "lines": True}, "p": {"dot_stops": True, "lines": False},
    "q": {"literal": True}, "s": {"dot_stops": False, "lines": False}, "t": {"expanded": False},
    "w": {"dot_stops": False, "lines": True}, "x": {"expanded": True},
}  # fmt: skip


def flagged(flags: Flags, letters: str) -> Flags:
    for letter in letters:
        if letter in "be":
            raise BadPattern(f'the option "{letter}" is not possible here: patterns are advanced ones')
        if letter not in _CHANGES:
            raise BadPattern(f'invalid regular expression option: "{letter}"')
        flags = replace(flags, **_CHANGES[letter])
    return flags


def parsed(pattern: str, letters: str) -> Pattern:
    """The pattern; `BadPattern` where there is none."""
    if len(pattern) > LONGEST:
        raise BadPattern(f"a pattern has at most {LONGEST} characters")
    flags = flagged(Flags(), letters)
    at = 0
    if flags.literal and (flags.expanded or flags.dot_stops or flags.lines):
        raise BadPattern("invalid argument to regex function")
    if not flags.literal:
        if pattern.startswith("***="):
            flags, at = replace(flags, literal=True, expanded=False, dot_stops=False, lines=False), 4
        elif pattern.startswith("***:"):
            at = 4
        elif pattern.startswith("***"):
            raise BadPattern("quantifier operand invalid")
    options = re.match(r"\(\?([A-Za-z]+)", pattern[at:])
    if options is not None and not flags.literal:
        at += options.end() + 1
        if not pattern.startswith(")", at - 1) or any(o not in _CHANGES and o not in "be" for o in options[1]):
            raise BadPattern("invalid embedded option")
        flags = flagged(flags, options[1])
        if flags.literal:
            flags = replace(flags, expanded=False, dot_stops=False, lines=False)
    reader = _Reader(pattern, at, flags)
    if flags.literal:
        return Pattern((tuple(reader.one(ord(c)) for c in pattern[at:]),), 0, flags.ignore_case)
    return Pattern(reader.alternatives(0), reader.groups, flags.ignore_case)


@dataclass(frozen=True, slots=True)
class _Class:
    """A class in brackets that is written by an escape."""

    of: Ranges


_BLANKS = " \t\n\v\f\r"
_CONTROLS = {"a": 7, "b": 8, "B": 92, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_WORDS = {"d": "digit", "s": "space", "w": "word"}
_EDGES = {"A": "^", "Z": "$", "m": "m", "M": "M", "y": "y", "Y": "Y"}
_LOOKS = {"?=": (True, False), "?!": (True, True), "?<=": (False, False), "?<!": (False, True)}


class _Reader:
    def __init__(self, text: str, at: int, flags: Flags) -> None:
        self._text = text
        self._at = at
        self._flags = flags
        self._looking = 0  # within how many looks: parentheses capture nothing there
        self._closed: set[int] = set()
        self.groups = 0

    # ------------------------------------------------------------- characters

    def _peek(self) -> str:
        """The next character that means something; empty at the end."""
        while True:
            if self._flags.expanded:
                self._blanks()
            if not self._text.startswith("(?#", self._at):
                return self._text[self._at : self._at + 1]
            end = self._text.find(")", self._at)
            self._at = end + 1 if end >= 0 else len(self._text)

    def _blanks(self) -> None:
        blank = re.compile(r"[ \t-\r]+|#[^\n]*").match(self._text, self._at)
        while blank is not None:
            self._at = blank.end()
            blank = re.compile(r"[ \t-\r]+|#[^\n]*").match(self._text, self._at)

    def _take(self, what: str) -> bool:
        found = self._text.startswith(what, self._at)
        self._at += len(what) * found
        return found

    def one(self, code: int) -> Chars:
        if self._flags.ignore_case:
            return Chars(ranges((c, c) for c in (LOWER[code], UPPER[code])))
        return Chars(((code, code),))

    # ----------------------------------------------------------- alternatives

    def alternatives(self, depth: int) -> Alternatives:
        if depth > DEEPEST:
            raise BadPattern("regular expression is too complex")
        found = [self._branch(depth)]
        while self._peek() == "|":
            self._at += 1
            found.append(self._branch(depth))
        return tuple(found)

    def _branch(self, depth: int) -> tuple[Item, ...]:
        items: list[Item] = []
        while True:
            c = self._peek()
            if c in ("", "|") or (c == ")" and depth):
                return tuple(items)
            items.append(self._item(c, depth))

    def _item(self, c: str, depth: int) -> Item:
        if c == ")":
            raise BadPattern("parentheses () not balanced")
        if c in "*+?" or self._at_bound():
            raise BadPattern("quantifier operand invalid")
        self._at += 1
        found: Atom | Edge | Look
        match c:
            case "(":
                found = self._parenthesis(depth)
            case "[" if self._text.startswith(("[:<:]]", "[:>:]]"), self._at):
                self._at += 6
                return Edge("m" if self._text[self._at - 4] == "<" else "M")
            case "[":
                found = self._bracket()
            case ".":
                found = Chars(others(_NEWLINE if self._flags.dot_stops else ()))
            case "^" | "$":
                return Edge(c, self._flags.lines)
            case "\\":
                found = self._escaped()
            case _:
                found = self.one(ord(c))
        return found if isinstance(found, Edge | Look) else self._quantified(found)

    def _escaped(self) -> Atom | Edge:
        found = self._escape()
        if isinstance(found, int):
            return self.one(found)
        if isinstance(found, _Class):
            return Chars(found.of)
        if isinstance(found, Back) and (self._looking or found.number not in self._closed):
            raise BadPattern("invalid backreference number")
        return found

    def _parenthesis(self, depth: int) -> Group | Look:
        look = next((k for k in _LOOKS if self._take(k)), None)
        if look is not None:
            self._looking += 1
            ahead, negated = _LOOKS[look]
            inside = self.alternatives(depth + 1)
            self._looking -= 1
            self._close()
            return Look(ahead, negated, inside)
        plain = self._take("?:")
        if not plain and self._text.startswith("?", self._at):
            raise BadPattern("quantifier operand invalid")
        number = 0
        if not plain and not self._looking:
            self.groups += 1
            number = self.groups
        inside = self.alternatives(depth + 1)
        self._close()
        self._closed.add(number)
        return Group(number, inside)

    def _close(self) -> None:
        if self._peek() != ")":
            raise BadPattern("parentheses () not balanced")
        self._at += 1

    # ------------------------------------------------------------ quantifiers

    def _at_bound(self) -> bool:
        """Whether a `{` here begins a quantifier."""
        if not self._text.startswith("{", self._at):
            return False
        behind = self._text[self._at + 1 :]
        if self._flags.expanded:
            behind = re.sub(r"^(?:[ \t-\r]+|#[^\n]*)*", "", behind)
        return behind[:1] in tuple("0123456789")

    def _quantified(self, atom: Atom) -> Item:
        c = self._peek()
        if not c or c not in "*+?{" or (c == "{" and not self._at_bound()):
            return atom
        self._at += 1
        if c != "{":
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
            return Repeat(atom, least, most, SHORTER if self._take("?") else LONGER)
        least = self._count()
        exact = self._bound_next() != ","
        most = least
        if not exact:
            self._at += 1
            most = self._count() if self._bound_next().isdigit() else None
            if most is not None and least > most:
                raise BadPattern("invalid repetition count(s)")
        if self._bound_next() != "}":
            raise BadPattern("invalid repetition count(s)")
        self._at += 1
        lazy = self._take("?")
        return Repeat(atom, least, most, 0 if exact else SHORTER if lazy else LONGER)

    def _bound_next(self) -> str:
        if self._flags.expanded:
            self._blanks()
        found = self._text[self._at : self._at + 1]
        if not found:
            raise BadPattern("braces {} not balanced")
        return found if found.isascii() else "x"

    def _count(self) -> int:
        count = 0
        while self._bound_next().isdigit() and count <= MOST:
            count = 10 * count + int(self._text[self._at])
            self._at += 1
        if count > MOST:
            raise BadPattern("invalid repetition count(s)")
        return count

    # ---------------------------------------------------------------- escapes

    def _escape(self) -> int | _Class | Edge | Back:
        c = self._text[self._at : self._at + 1]
        self._at += 1
        if not c:
            raise BadPattern("invalid escape \\ sequence")
        if not (c.isascii() and c.isalnum()):
            return ord(c)
        if c in _CONTROLS:
            return _CONTROLS[c]
        if c.lower() in _WORDS:
            of = members(_WORDS[c.lower()])
            return _Class(of if c.islower() else others(of))
        if c in _EDGES:
            return Edge(_EDGES[c])
        if c == "c" and self._at < len(self._text):
            self._at += 1
            return ord(self._text[self._at - 1]) & 31
        if c in "uUx":
            return self._digits(16, {"u": 4, "U": 8, "x": 1}[c], {"u": 4, "U": 8, "x": 255}[c])
        if c.isdigit():
            return self._number()
        raise BadPattern("invalid escape \\ sequence")

    def _digits(self, base: int, least: int, most: int) -> int:
        start = self._at
        allowed = "0123456789abcdefABCDEF" if base == 16 else "0123456789"[:base]
        while self._at < len(self._text) and self._at - start < most and self._text[self._at] in allowed:
            self._at += 1
        if self._at - start < least:
            raise BadPattern("invalid escape \\ sequence")
        code = int(self._text[start : self._at], base)
        if base == 16 and code > 0x7FFFFFFE:
            raise BadPattern("invalid escape \\ sequence")
        return min(code, LAST + 1)  # there is no such character

    def _number(self) -> int | Back:
        """A group of before, or a character by octal digits."""
        self._at -= 1
        start = self._at
        if self._text[start] != "0":
            number = self._digits(10, 1, 255)
            if self._at == start + 1 or 0 < number <= self.groups:
                return Back(number)
            self._at = start
            if self._text[start] in "89":
                raise BadPattern("invalid escape \\ sequence")
        code = self._digits(8, 1, 3)
        if code > 255:
            self._at -= 1
            code >>= 3
        return code

    # --------------------------------------------------------------- brackets

    def _bracket(self) -> Chars:
        negated = self._take("^")
        first = True
        found: list[tuple[int, int]] = []
        while first or not self._text.startswith("]", self._at):
            if self._at >= len(self._text):
                raise BadPattern("brackets [] not balanced")
            found += self._part(first)
            first = False
        self._at += 1
        of = ranges(found)
        if not negated:
            return Chars(of)
        return Chars(others(ranges((*of, *_NEWLINE)) if self._flags.dot_stops else of))

    def _part(self, first: bool) -> Ranges:
        """A character, a range or a class."""
        if self._is_range() and not first:
            raise BadPattern("invalid character range")
        start, alone = self._element()
        if not isinstance(start, int):
            return start
        if not self._is_range():
            return self.one(start).of if alone else self._range(start, start)
        self._at += 1
        if self._text.startswith("-", self._at):
            self._at += 1
            return self._range(start, 45)
        end, _ = self._element() if not self._text.startswith(("]", "[=", "[:"), self._at) else ((), False)
        if not isinstance(end, int):
            raise BadPattern("invalid character range")
        return self._range(start, end)

    def _is_range(self) -> bool:
        return self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at)

    def _range(self, low: int, high: int) -> Ranges:
        if low > high:
            raise BadPattern("invalid character range")
        return in_all_cases(((low, high),)) if self._flags.ignore_case else ((low, high),)

    def _element(self) -> tuple[int | Ranges, bool]:
        """A character and whether it is written as itself, or the ranges of a class."""
        c = self._text[self._at : self._at + 1]
        if not c:
            raise BadPattern("brackets [] not balanced")
        self._at += 1
        if c == "\\":
            found = self._escape()
            if isinstance(found, Edge | Back):
                raise BadPattern("invalid escape \\ sequence")
            return (found, True) if isinstance(found, int) else (found.of, False)
        kind = self._text[self._at : self._at + 1]
        if c != "[" or kind not in (".", "=", ":"):
            return ord(c), True
        end = self._text.find(f"{kind}]", self._at + 1)
        if end < 0:
            raise BadPattern("brackets [] not balanced")
        name, self._at = self._text[self._at + 1 : end], end + 2
        if kind == ":":
            return self._named(name), False
        if len(name) != 1:
            raise BadPattern("invalid collating element")
        return (ord(name), False) if kind == "." else (self.one(ord(name)).of, False)

    def _named(self, name: str) -> Ranges:
        if self._flags.ignore_case and name in ("lower", "upper"):
            name = "alpha"
        try:
            return members(name)
        except ValueError:
            raise BadPattern("invalid character class") from None
