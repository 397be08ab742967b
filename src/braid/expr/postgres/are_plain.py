"""Regular expressions of which Python's engine makes the same, without ever going back far.

In: patterns (are.py). Out: the same for Python's `re`, or nothing.
Rule: all quantifiers are greedy and the next character always tells which part of the pattern reads it, so there is one
way to match and the longest one is found first; what repeats is never empty, and no group keeps what an earlier
repetition captured. Everything else is left to the automata. From one place the engine then reads each character once;
as it may begin at each of them, texts are short.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from braid.expr.postgres.are import SHORTER, Alternatives, Chars, Edge, Group, Item, Pattern, Repeat
from braid.expr.postgres.characters import Ranges

SHORT = 1000  # characters of a text
_MOST = 100  # places where a pattern reads characters


class _NotPlain(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Piece:
    """Which places of the pattern read its first and its last character."""

    empty: bool
    first: tuple[int, ...]
    last: tuple[int, ...]
    captures: bool = False


_EMPTY = _Piece(True, (), ())


class _Places:
    """Every place where a pattern reads a character, and which ones may read the next one."""

    def __init__(self) -> None:
        self._of: list[Ranges] = []
        self._next: list[list[int]] = []

    def alternatives(self, inside: Alternatives) -> _Piece:
        pieces = [self.items(b) for b in inside]
        if len(pieces) > 1 and any(x.empty for x in pieces):
            raise _NotPlain  # Python takes the first one though another one is longer
        first = tuple(p for x in pieces for p in x.first)
        last = tuple(p for x in pieces for p in x.last)
        return _Piece(any(x.empty for x in pieces), first, last, any(x.captures for x in pieces))

    def items(self, items: tuple[Item, ...]) -> _Piece:
        found = _EMPTY
        for item in items:
            found = self._behind(found, self._item(item))
        return found

    def _behind(self, a: _Piece, b: _Piece) -> _Piece:
        for p in a.last:
            self._next[p] += b.first
        first = a.first + b.first if a.empty else a.first
        last = a.last + b.last if b.empty else b.last
        return _Piece(a.empty and b.empty, first, last, a.captures or b.captures)

    def _item(self, item: Item) -> _Piece:
        match item:
            case Chars(of):
                if len(self._of) >= _MOST:
                    raise _NotPlain
                self._of.append(of)
                self._next.append([])
                return _Piece(False, (len(self._of) - 1,), (len(self._of) - 1,))
            case Group(number, inside):
                found = self.alternatives(inside)
                return _Piece(found.empty, found.first, found.last, found.captures or number > 0)
            case Repeat():
                return self._repeat(item)
        raise _NotPlain

    def _repeat(self, item: Repeat) -> _Piece:
        if item.prefers == SHORTER or item.most == 0:
            raise _NotPlain
        once = item.most == 1
        found = _EMPTY
        for _ in range(item.least):
            found = self._behind(found, self._repeated(item, once))
        if item.most is None:
            piece = self._repeated(item, once)
            for p in piece.last:
                self._next[p] += piece.first
            return self._behind(found, _Piece(True, piece.first, piece.last, piece.captures))
        more = _EMPTY
        for _ in range(item.most - item.least):  # each only behind the one before it
            piece = self._repeated(item, once)
            for p in piece.last:
                self._next[p] += more.first
            more = _Piece(True, piece.first, piece.last + more.last, piece.captures)
        return self._behind(found, more)

    def _repeated(self, item: Repeat, once: bool) -> _Piece:
        piece = self._item(item.atom)
        inner = isinstance(item.atom, Group) and any(_captures(b) for b in item.atom.inside)
        if piece.empty or (inner and not once):
            raise _NotPlain
        return piece

    def certain(self, first: tuple[int, ...]) -> bool:
        """Whether no two places that may read the next character read the same one."""
        return all(self._apart(places) for places in (first, *self._next))

    def _apart(self, places: Sequence[int]) -> bool:
        parts = sorted(r for p in places for r in self._of[p])
        return all(a[1] < b[0] for a, b in pairwise(parts))


def _captures(items: tuple[Item, ...]) -> bool:
    for item in items:
        atom = item.atom if isinstance(item, Repeat) else item
        if isinstance(atom, Group) and (atom.number or any(_captures(b) for b in atom.inside)):
            return True
    return False


def _written(item: Item) -> str:
    match item:
        case Chars(of):
            return "[" + "".join(f"\\U{a:08x}-\\U{min(b, 0x10FFFF):08x}" for a, b in of) + "]"
        case Group(number, inside):
            return f"({'' if number else '?:'}{'|'.join(''.join(map(_written, b)) for b in inside)})"
        case Repeat(atom, least, most, _):
            return f"(?:{_written(atom)}){{{least},{'' if most is None else most}}}"
    raise _NotPlain


def plain(pattern: Pattern) -> re.Pattern[str] | None:
    """The same for Python; None where it has another meaning there, or might take long."""
    inside = pattern.alternatives
    start = end = ""
    if len(inside) == 1:
        items = inside[0]
        if items[:1] == (Edge("^"),):
            start, items = r"\A", items[1:]
        if items[-1:] == (Edge("$"),):
            end, items = r"\Z", items[:-1]
        inside = (items,)
    try:
        places = _Places()
        if not places.certain(places.alternatives(inside).first):
            return None
        return re.compile(f"{start}(?:{'|'.join(''.join(map(_written, b)) for b in inside)}){end}")
    except (_NotPlain, re.error, OverflowError):
        return None
