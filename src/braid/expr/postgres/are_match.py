"""What PostgreSQL's regular expressions match, with the texts of their groups.

In: patterns (are.py) and texts. Out: spans; lists of parts.
Rule: the match that begins first; of those the longest one, or the shortest one where the first quantifier of the
pattern is not greedy; within it each part takes, from left to right, as much or as little as it prefers. So says
PostgreSQL's documentation (9.7.3.5), with how preferences are joined. RisingWave's engine is another one, of which its
pages say no more than that it reads POSIX patterns with look-around and back references.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from braid.expr.postgres.are import (
    LONGER,
    SHORTER,
    Alternatives,
    Back,
    BadPattern,
    Chars,
    Edge,
    Group,
    Item,
    Look,
    Repeat,
    parsed,
)
from braid.expr.postgres.automata import TOO_COMPLEX, Automaton, Groups, Looks, Reading
from braid.expr.postgres.characters import LOWER

Span = tuple[int, int]
Spans = list[Span | None]  # of the whole match, and of each group

_MIXED, _CAPTURES, _NAMES_BACK = 4, 8, 16
_DETAILED = _MIXED | _CAPTURES | _NAMES_BACK
_PREFERENCE = LONGER | SHORTER


def _above(traits: int) -> int:
    """The traits of what stands around a part: preferences of both kinds are mixed ones."""
    return traits & ~_PREFERENCE | (_MIXED if traits & _PREFERENCE == _PREFERENCE else 0)


def _joined(a: int, b: int) -> int:
    """The traits of two parts: the first preference counts."""
    return _above(a | b) | (a & _PREFERENCE or b & _PREFERENCE)


@dataclass(slots=True, eq=False)
class _Part:
    """A part of a pattern. `kind`: '=' is nothing but what an automaton matches, '.' one part behind another, '|' one
    of them, '*' a part again and again, 'b' what group `number` has captured."""

    kind: str
    traits: int
    items: tuple[Item, ...]
    parts: tuple[_Part, ...] = ()
    captures: int = 0
    number: int = 0
    least: int = 1
    most: int | None = 1
    made: Automaton | None = None


def _alternatives(inside: Alternatives) -> _Part:
    branches = [_branch(b) for b in inside]
    if len(branches) == 1:
        return branches[0]
    traits = LONGER
    for b in branches:
        traits |= _above(traits | b.traits)
    return _Part("|" if traits & _DETAILED else "=", traits, (Group(0, inside),), tuple(branches))


def _branch(items: tuple[Item, ...]) -> _Part:
    """Items up to the first one that asks for details are one automaton."""
    traits = 0
    for i, item in enumerate(items):
        if isinstance(item, Edge | Look) or (isinstance(item, Repeat) and item.most == 0):
            continue
        repeat = item if isinstance(item, Repeat) else Repeat(item, 1, 1, 0)
        if not isinstance(repeat.atom, Chars) or _above(traits | repeat.prefers) & _DETAILED:
            return _detailed(items[:i], traits, repeat, items[i + 1 :])
        traits |= repeat.prefers
    return _Part("=", traits, items)


def _detailed(before: tuple[Item, ...], traits: int, repeat: Repeat, behind: tuple[Item, ...]) -> _Part:
    atom = _atom(repeat)
    joined = _joined(repeat.prefers, atom.traits)
    part = _repeated(repeat, atom)
    if not behind:
        if not before:
            return part
        prefix = _Part("=", traits, before)
        return _Part(".", traits | _joined(traits, part.traits), (*before, repeat), (prefix, part))
    rest = _branch(behind)
    joined |= _joined(joined, rest.traits)
    whole = traits | _joined(traits, joined)
    prefix = _Part("=", traits, before)
    if not before:
        return _Part(".", whole, (repeat, *behind), (part, rest))
    if part.kind == rest.kind == "=" and not _above(part.traits | rest.traits) & _DETAILED:
        tail = _Part("=", _joined(part.traits, rest.traits), (repeat, *behind))
    else:
        tail = _Part(".", joined, (repeat, *behind), (part, rest))
    return _Part(".", whole, (*before, repeat, *behind), (prefix, tail))


def _atom(repeat: Repeat) -> _Part:
    atom = repeat.atom
    if isinstance(atom, Back):
        traits = _joined(repeat.prefers, _NAMES_BACK) | _NAMES_BACK
        return _Part("b", traits, (repeat,), number=atom.number, least=repeat.least, most=repeat.most)
    if isinstance(atom, Chars):
        return _Part("=", 0, (atom,))
    inner = _alternatives(atom.inside)
    if atom.number and inner.captures:
        inner = _Part("(", inner.traits, (atom,), (inner,))
    if atom.number:
        inner.traits |= _CAPTURES
        inner.captures = atom.number
    return inner


def _repeated(repeat: Repeat, atom: _Part) -> _Part:
    least, most, prefers = repeat.least, repeat.most, repeat.prefers
    own = atom.traits & (_PREFERENCE | _MIXED)
    if isinstance(repeat.atom, Back) or (least == most == 1 and (not prefers or not own or prefers == own)):
        return atom
    traits = _joined(prefers, atom.traits)
    if not atom.traits & (_CAPTURES | _NAMES_BACK):
        return _Part("=", traits, (repeat,))
    if least and not atom.traits & _NAMES_BACK:  # only the last one is looked at closely
        before = Repeat(repeat.atom, least - 1, None if most is None else most - 1, prefers)
        first = _Part("=", traits & _PREFERENCE, (before,))
        return _Part(".", traits, (before, repeat.atom), (first, atom))
    return _Part("*", traits, (repeat,), (atom,), least=least, most=most)


def _groups(inside: Alternatives, found: Groups) -> Groups:
    for item in (x for branch in inside for x in branch):
        atom = item.atom if isinstance(item, Repeat) else item
        if isinstance(atom, Group):
            found[atom.number] = atom.inside
            _groups(atom.inside, found)
    return found


class Regex:
    """A pattern that is ready."""

    def __init__(self, pattern: str, letters: str) -> None:
        self.read = parsed(pattern, letters)
        self.groups = self.read.groups
        self.named = _groups(self.read.alternatives, {})
        self.tree = _alternatives(self.read.alternatives)
        items: tuple[Item, ...] = (Group(0, self.read.alternatives),)
        self.whole = Automaton(items, self.named)
        self._looks = Looks(self.named)
        self._anywhere = Automaton(items, self.named, anywhere=True)
        self.compares_back = bool(self.tree.traits & _NAMES_BACK)

    def reading(self, text: str) -> Reading:
        return Reading(text, self._looks)

    def found(self, reading: Reading, start: int = 0) -> bool:
        """Whether there is a match from this place on."""
        if self.compares_back:
            return self.search(reading, start) is not None
        return reading.shortest(self._anywhere, start, start, len(reading.text))[0] >= 0

    def search(self, reading: Reading, start: int, details: bool = True) -> Spans | None:
        """The first match from this place on; without `details` maybe only where it is."""
        try:
            return self._search(reading, start, details)
        except RecursionError:
            raise BadPattern(TOO_COMPLEX) from None

    def _search(self, reading: Reading, start: int, details: bool) -> Spans | None:
        size = len(reading.text)
        close = start
        while close <= size:
            close, begin = reading.shortest(self._anywhere, close, close, size)
            if close < 0:
                return None
            for at in range(begin, close + 1):
                found = self._from(reading, at, details)
                if found is not None:
                    return found
            close += 1
            if close >= size:  # PostgreSQL does not look again at the end of the text
                break
        return None

    def _from(self, reading: Reading, begin: int, details: bool) -> Spans | None:
        """The match that begins here."""
        lazy = bool(self.tree.traits & SHORTER)
        least, most = begin, len(reading.text)
        while least <= most:
            if lazy:
                end, _ = reading.shortest(self.whole, begin, least, most)
            else:
                end = reading.longest(self.whole, begin, most)
            if end < 0:
                return None
            if not details and not self.compares_back:
                return [(begin, end)]
            inside = _Inside(self, reading)
            if inside.fits(self.tree, begin, end):
                inside.spans[0] = (begin, end)
                return inside.spans
            least, most = (end + 1, most) if lazy else (least, end - 1)
        return None


class _Inside:
    """How the parts of a pattern divide a match."""

    def __init__(self, regex: Regex, reading: Reading) -> None:
        self._regex = regex
        self._reading = reading
        self.spans: Spans = [None] * (regex.groups + 1)

    def _automaton(self, part: _Part) -> Automaton:
        if part.made is None:
            part.made = Automaton(part.items, self._regex.named)
        return part.made

    def _last(self, part: _Part, begin: int, limit: int) -> int:
        return self._reading.longest(self._automaton(part), begin, limit)

    def _first(self, part: _Part, begin: int, least: int, limit: int) -> int:
        return self._reading.shortest(self._automaton(part), begin, least, limit)[0]

    def _forget(self, part: _Part) -> None:
        if part.captures:
            self.spans[part.captures] = None
        for p in part.parts:
            self._forget(p)

    def fits(self, part: _Part, begin: int, end: int) -> bool:
        """Whether the part matches exactly this, which its automaton does."""
        match part.kind:
            case "=":
                fits = True
            case ".":
                fits = self._concatenated(part, begin, end)
            case "|":
                fits = any(self._chosen(p, begin, end) for p in part.parts)
            case "*":
                fits = self._iterated(part, begin, end)
            case "b":
                fits = self._again(part, begin, end)
            case _:
                fits = self.fits(part.parts[0], begin, end)
        if fits and part.captures:
            self.spans[part.captures] = (begin, end)
        return fits

    def _chosen(self, part: _Part, begin: int, end: int) -> bool:
        fits = self._last(part, begin, end) == end and self.fits(part, begin, end)
        if not fits:
            self._forget(part)
        return fits

    def _concatenated(self, part: _Part, begin: int, end: int) -> bool:
        left, right = part.parts
        lazy = bool(left.traits & SHORTER)
        middle = self._first(left, begin, begin, end) if lazy else self._last(left, begin, end)
        while middle >= 0:
            if (
                self._last(right, middle, end) == end
                and self.fits(left, begin, middle)
                and self.fits(right, middle, end)
            ):
                return True
            if middle == (end if lazy else begin):
                return False
            self._forget(left)
            self._forget(right)
            middle = self._first(left, begin, middle + 1, end) if lazy else self._last(left, begin, middle - 1)
        return False

    def _again(self, part: _Part, begin: int, end: int) -> bool:
        span = self.spans[part.number]
        if span is None:
            return False
        text = self._reading.text
        captured, here = text[slice(*span)], text[begin:end]
        if not captured or not here:
            return not here and (not captured or part.least == 0)
        times, rest = divmod(len(here), len(captured))
        if rest or times < part.least or (part.most is not None and times > part.most):
            return False
        self._reading.pay(len(here))
        if self._regex.read.ignore_case:
            captured, here = captured.translate(LOWER), here.translate(LOWER)
        return here == captured * times

    def _iterated(self, part: _Part, begin: int, end: int) -> bool:
        """A part again and again, each time as long or as short as it prefers; none of them is empty that need not."""
        child, least = part.parts[0], max(part.least, 1)
        most = max(min(end - begin, end if part.most is None else part.most), least)
        lazy = bool(child.traits & SHORTER)
        if part.least == 0 and begin == end:
            if lazy or self._last(child, begin, end) < 0 or not self.fits(child, begin, end):
                self._forget(child)
            return True
        ends = [begin]  # of the iterations so far
        limit: int | None = begin if lazy else end  # where the next one ends at least, or at most
        sure = 0  # how many of them were looked at closely
        while limit is not None:
            k = len(ends)
            if lazy:
                if limit == ends[-1] != end and (k >= least or least - k < end - limit):
                    limit += 1
                at = self._first(child, ends[-1], end if k >= most else limit, end)
            else:
                at = self._last(child, ends[-1], limit)
            if at >= 0:
                sure = min(sure, k - 1)
            if at == end and k >= least:
                ends.append(at)
                wrong = self._verified(child, ends, sure)
                if wrong is None:
                    return True
                sure = wrong - 1
                del ends[wrong + 1 :]
            elif at == end or 0 <= at == ends[-1]:
                ends.append(at)
                if at != end and (lazy or not (k >= least or least - k < end - at)) and k < most:
                    limit = at if lazy else end
                    continue
            elif at >= 0 and k < most:
                ends.append(at)
                limit = at if lazy else end
                continue
            limit = self._moved(ends, end, lazy, least)
        return False

    def _verified(self, child: _Part, ends: list[int], sure: int) -> int | None:
        """Looks at each iteration closely; the first that does not fit, if one does not."""
        for i in range(sure + 1, len(ends)):
            self._forget(child)
            if not self.fits(child, ends[i - 1], ends[i]):
                return i
        return None

    def _moved(self, ends: list[int], end: int, lazy: bool, least: int) -> int | None:
        """Takes back the last iteration that could end elsewhere; the limit of its next try."""
        while len(ends) > 1:
            k, at = len(ends) - 1, ends.pop()
            self._reading.pay(1)
            start = ends[-1]
            if lazy and at < end:
                return at + 1
            if not lazy and at > start and (at - 1 > start or (k < least and least - k >= end - start)):
                return at - 1
        return None


@lru_cache(maxsize=300)
def compiled(pattern: str, letters: str = "") -> Regex:
    """The pattern; `BadPattern` where there is none."""
    try:
        return Regex(pattern, letters)
    except RecursionError:
        raise BadPattern(TOO_COMPLEX) from None
