"""Regular expressions as RisingWave has them: Rust's crate `fancy-regex`.

In: a pattern and the flags of a function. Out: what of a text matches first, and what all matches are replaced with.
Rule: Polars has the crate `regex`, by which `fancy-regex` matches all but look-around, back references, what never
gives back (`a*+`, `(?>a)`) and the escapes `\\h \\e \\Z`: both prefer the alternative that is written first. For those
there is the package `regex`, which goes back over what it tried: it is given so much time, beyond which a row fails.
What one of the two reads otherwise than `fancy-regex` is translated, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import polars as pl

from braid.expr.postgres.text import TOO_LONG
from braid.expr.rows import LARGEST

TIME = 5  # seconds of processor that a search may take that goes back
HINT = "patterns are those of Rust's crate fancy-regex, which RisingWave has"

# A class, an escape, a beginning of a group, anything else.
_TOKEN = re.compile(
    r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
    r"|\\(?:[xuUpP]\{[^}]*\}|x[0-9a-fA-F]{2}|k<\w+>|.)"
    r"|\(\?(?:<?[=!]|P?[<=>]|\(|[\w-]*)|.",
    re.DOTALL,
)
_ONLY_FANCY = re.compile(r"\(\?(?:<?[=!]|P=|>|\()|\\[1-9keHhZ].*", re.DOTALL)
_QUANTIFIER = r"(?:[*+?]|\{\d+(?:,\d*)?\})"
_TWICE = re.compile(rf"{_QUANTIFIER}(?>\??)(?>\+?){_QUANTIFIER}")
_KEPT = re.compile(rf"{_QUANTIFIER}\??\+")
_LOOKS_BACK = ("^", r"\A", r"\b", r"\B", r"\<", r"\>")
_TRANSLATED = {
    "$": r"\Z", r"\z": r"\Z", r"\Z": r"(?=\n*\Z)", r"\h": "[0-9A-Fa-f]", r"\H": "[^0-9A-Fa-f]", r"\e": r"\x1b",
    r"\<": r"\m", r"\>": r"\M",
}  # fmt: skip
_SAME_GROUPS = re.compile(r"\(\?(?:(?:<?[=!]|P?<|P=|>|\().*|[imsxu-]*[:)])", re.DOTALL)
_SAME_ESCAPES = re.compile(r"\\(?:[1-9dDwWsSbBAafnrtv]|x[0-9a-fA-F]{2}|[pP]\{\w+\}|[^\w<>])")


Pieces = tuple[str | int, ...]  # what takes the place of a match: texts, and numbers of groups


class BadPattern(ValueError):
    """Not a pattern, or one that is not taken here."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is before a match, the match and its groups, and what is behind."""

    before: str
    groups: tuple[str | None, ...]
    after: str

    @property
    def whole(self) -> str:
        return self.groups[0] or ""

    def put(self, pieces: Pieces) -> Iterator[str]:
        """What takes the place of the match."""
        return (p if isinstance(p, str) else self.groups[p] or "" for p in pieces)


def joined(parts: Iterable[str]) -> str:
    """One text, of no more than a record holds."""
    size, out = 0, list[str]()
    for part in parts:
        size += len(part)
        if size > LARGEST:
            raise ValueError(TOO_LONG)
        out.append(part)
    return "".join(out)


@lru_cache(maxsize=300)
def compiled(pattern: str, flags: str = "") -> Regex:
    """The pattern; of the flags `i` and `c` the last one counts, `g` is another's. `BadPattern` where it is none."""
    for c in flags:
        if c not in "cig":
            raise BadPattern(f'invalid regular expression option: "{c}"')
    cases = flags.replace("g", "")[-1:] == "i"
    return _read(f"(?i:{pattern})" if cases else pattern)


def _read(pattern: str) -> Regex:
    tokens = [*_literal_braces(pattern)]
    pattern = "".join(tokens)
    plain = "".join("x" if len(t) > 1 and t[0] in "[\\" else "(" if len(t) > 1 else t for t in tokens)
    if _TWICE.search(plain):
        raise BadPattern("a quantifier is behind another one")
    for t in tokens:
        if t.startswith("(?") and "R" in t:
            raise BadPattern(f"{t} is not known")
    if _KEPT.search(plain) or any(_ONLY_FANCY.fullmatch(t) for t in tokens):
        return Backtracking(pattern, _translated(tokens))
    return Linear(pattern, any(t in _LOOKS_BACK for t in tokens))


def _literal_braces(pattern: str) -> Iterator[str]:
    """The parts of a pattern; a brace that repeats nothing is a character, and a repetition may lack a least number."""
    for m in _TOKEN.finditer(pattern):
        if m[0] in (r"\b", r"\B") and pattern.startswith("{", m.end()):
            raise BadPattern(f"{m[0]}{{ is not known")
        if m[0] != "{" or re.compile(r"\{\d+(?:,\d*)?\}").match(pattern, m.start()):
            yield m[0]
        elif re.compile(r"\{,\d*\}").match(pattern, m.start()):
            yield from "{0"
        else:
            yield r"\{"


def _translated(tokens: list[str]) -> str:
    """The same for the package `regex`."""
    lines = any(re.match(r"\(\?\w*m", t) for t in tokens)
    out: list[str] = []
    for i, t in enumerate(tokens):
        if t == "$" and lines:
            made = t
        elif t.startswith("(?") and not _SAME_GROUPS.fullmatch(t + "".join(tokens[i + 1 : i + 2])):
            raise BadPattern(f"{t} is not known")
        elif re.fullmatch(r"\(\?[\w-]+", t) and i and tokens[i + 1] == ")":
            raise BadPattern(f"beside look-around and back references {t}) can only begin a pattern")
        elif t[0] == "[" and re.search(r"\[|&&|--|~~", re.sub(r"\\.", "", t[1:])):
            raise BadPattern(f"beside look-around and back references {t} is not possible: it has a class in a class")
        elif t.startswith(r"\k"):
            made = f"(?P={t[3:-1]})"
        else:
            made = _TRANSLATED.get(t, t)
        for escape in re.findall(r"\\.", t) if made == t else ():
            if not _SAME_ESCAPES.match(t[t.index(escape) :]):
                raise BadPattern(f"beside look-around and back references {escape} is not known")
        out.append(made)
    return "".join(out)


class Regex:
    """`groups`: how many of a pattern capture something; `names`: the numbers of those that have one."""

    groups: int
    names: dict[str, int]
    plain: bool  # none of its matches is empty, or depends on what is before it

    def search(self, text: str) -> Found | None:
        """The first match."""
        raise NotImplementedError

    def all(self, text: str) -> Iterator[tuple[str | None, ...]]:
        """Each match with its groups; an empty one stands not at the end of another."""
        raise NotImplementedError

    def replaced(self, text: str, new: Pieces, once: bool) -> str:
        """With something in the place of all matches, or of the first one."""
        raise NotImplementedError


class Linear(Regex):
    """By Polars."""

    def __init__(self, pattern: str, looks_back: bool) -> None:
        self.pattern = pattern
        try:
            pl.Series([""]).str.contains(pattern)
        except pl.exceptions.ComputeError as e:
            raise BadPattern(_why(str(e))) from None
        self._parts, fields = self._apart()
        self.groups = len(fields) - 3
        self.names = {f.name: i - 1 for i, f in enumerate(fields) if not f.name.isdecimal()}
        self.plain = not looks_back and self.search("") is None

    def _apart(self) -> tuple[str, list[pl.Field]]:
        """The pattern with what is before and behind a match as its first and last group, and all groups."""
        for end in ("", "\n"):  # a comment at its end would take more in
            parts = f"(?s:\\A(.*?))({self.pattern}{end})(?s:(.*)\\z)"
            try:
                made = pl.Series([], dtype=pl.String).str.extract_groups(parts).dtype
            except pl.exceptions.ComputeError:
                continue
            assert isinstance(made, pl.Struct)
            return parts, made.fields
        raise BadPattern("it grows too large")

    def search(self, text: str) -> Found | None:
        found = self.apart(pl.Series([text])).row(0)
        return None if found[1] is None else Found(found[0], found[1:-1], found[-1])

    def all(self, text: str) -> Iterator[tuple[str | None, ...]]:
        if self.plain:
            while (found := self.search(text)) is not None:
                yield found.groups
                text = found.after
            return
        if "\0" in text:
            raise ValueError("the text has a zero in it")
        at = 0
        for i, part in enumerate(self.replaced(text, ("\0", 0, "\0"), once=False).split("\0")):
            if i % 2:
                yield self._at(text, at) if self.groups else (part,)
            at += len(part)

    def _at(self, text: str, at: int) -> tuple[str | None, ...]:
        """The match that begins there."""
        return pl.Series([text]).str.extract_groups(f"\\A{re.escape(text[:at])}({self.pattern})").struct.unnest().row(0)

    def apart(self, texts: pl.Series) -> pl.DataFrame:
        """What is before a match, the match, its groups, what is behind; nulls where there is none."""
        return texts.str.extract_groups(self._parts).struct.unnest()

    def replaced(self, text: str, new: Pieces, once: bool) -> str:
        made = self.replaced_in(pl.Series([text]), new, once)
        if made is None:
            raise ValueError(TOO_LONG)
        return str(made[0])

    def replaced_in(self, texts: pl.Series, new: Pieces, once: bool) -> pl.Series | None:
        """The same of many; None where one of them would be longer than a record holds by far."""
        fixed, groups = sum(len(p) for p in new if isinstance(p, str)), sum(isinstance(p, int) for p in new)
        most = texts.str.len_bytes() * groups + (1 if once else texts.str.count_matches(self.pattern)) * fixed
        if (most.max() or 0) > 9 * LARGEST:  # type: ignore[operator]
            return None
        written = "".join(f"${{{p}}}" if isinstance(p, int) else p.replace("$", "$$") for p in new)
        return texts.str.replace(self.pattern, written) if once else texts.str.replace_all(self.pattern, written)


class Backtracking(Regex):
    """By the package `regex`."""

    def __init__(self, pattern: str, translated: str) -> None:
        self.plain = False
        self._translated = translated
        try:
            self.groups, self.names = self._made.groups, dict(self._made.groupindex)
        except (self._package.error, OverflowError, RecursionError) as e:
            raise BadPattern(str(e)) from None

    @cached_property
    def _package(self) -> Any:
        import regex  # only where it is needed: most patterns do without

        return regex

    @cached_property
    def _made(self) -> Any:
        return self._package.compile(self._translated)

    def _matches(self, text: str) -> Any:
        try:
            yield from self._made.finditer(text, timeout=TIME)
        except TimeoutError:
            raise ValueError("the regular expression takes too long") from None

    def search(self, text: str) -> Found | None:
        for m in self._matches(text):
            return Found(text[: m.start()], (m[0], *m.groups()), text[m.end() :])
        return None

    def _apart(self, text: str) -> Iterator[Any]:
        last = -1
        for m in self._matches(text):
            if not m.start() == m.end() == last:
                yield m
                last = m.end()

    def all(self, text: str) -> Iterator[tuple[str | None, ...]]:
        return ((m[0], *m.groups()) for m in self._apart(text))

    def replaced(self, text: str, new: Pieces, once: bool) -> str:
        def parts() -> Iterator[str]:
            at = 0
            for m in self._apart(text):
                yield text[at : m.start()]
                yield from Found("", (m[0], *m.groups()), "").put(new)
                at = m.end()
                if once:
                    break
            yield text[at:]

        return joined(parts())


def _why(said: str) -> str:
    """Why Polars takes no pattern."""
    found = re.search(r"^error: (.+)$", said, re.MULTILINE)
    return found[1] if found else said.splitlines()[0].removeprefix("regex error: ")
