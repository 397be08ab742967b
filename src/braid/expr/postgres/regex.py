"""PostgreSQL's patterns: LIKE, SIMILAR TO, regular expressions.

In: typed calls and the Polars expressions of their arguments. Out: rows, by their plan names.
Rule: PostgreSQL's (are.py, are_match.py). A constant that is no pattern is refused; whether a text has a match is
asked of Polars where the pattern has a form of Rust's, which is linear too. What a search may take is limited: the row
fails then, as in RisingWave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import polars as pl

from braid.expr.nodes import Call, Expr
from braid.expr.postgres.are import Alternatives, BadPattern, Chars, Edge, Group, Item, Repeat
from braid.expr.postgres.are_match import Regex, Spans, compiled
from braid.expr.postgres.base import plain, takes
from braid.expr.postgres.characters import Ranges
from braid.expr.postgres.text import TOO_LONG, lower_of, lowered
from braid.expr.rows import LARGEST
from braid.expr.signatures import Function, Refused, Resolver, Signature, constant, refusal, tried
from braid.types import Array, Scalar, Type

S = Scalar
_TEXT = S.VARCHAR
_TEXTS = Array(_TEXT)

# ------------------------------------------------------- the form of Rust's


def _rust_class(of: Ranges) -> str:
    parts = [(a, b) for low, high in of for a, b in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)) if a <= b]
    inside = "".join(f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in parts if b <= 0x10FFFF)
    return f"[{inside}]" if inside else r"[^\s\S]"


def _rust_item(item: Item) -> str | None:
    match item:
        case Chars(of):
            return _rust_class(of)
        case Edge("^" | "$" as kind, lines):
            return f"(?m:{kind})" if lines else r"\A" if kind == "^" else r"\z"
        case Group(_, inside):
            return _rust_alternatives(inside)
        case Repeat(atom, least, most, _):
            inner = _rust_item(atom)
            return None if inner is None else f"(?:{inner}){{{least},{'' if most is None else most}}}"
    return None  # look-around, back references, edges of words, which Unicode has others of


def _rust_alternatives(inside: Alternatives) -> str | None:
    branches: list[str] = []
    for items in inside:
        made = [_rust_item(i) for i in items]
        if any(m is None for m in made):
            return None
        branches.append("".join(m or "" for m in made))
    return f"(?:{'|'.join(branches)})"


@lru_cache(maxsize=300)
def _rust(pattern: str, letters: str) -> str | None:
    """The same for Polars, if it has that: whether a text has a match does not depend on which is preferred."""
    found = _rust_alternatives(compiled(pattern, letters).read.alternatives)
    try:
        return found if found is None or pl.Series([""]).str.contains(found).len() else None
    except pl.exceptions.ComputeError:  # it grows too large
        return None


# ------------------------------------------------------------------- matching


def has_match(text: str, pattern: str, letters: str = "") -> bool:
    regex = compiled(pattern, letters)
    return regex.found(regex.reading(text))


def _checked(inner: Resolver, check: Callable[..., object]) -> Resolver:
    """Refuses constants that `check`, which takes what stands behind the text, does not take."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        found = inner(args)
        values = [constant(a) for a in args[1:]]
        if isinstance(found, Refused) or any(v is None for v in values):
            return found
        try:
            check(*values)
        except ValueError as e:
            return Refused(f"{values[0]!r} is no pattern here: {e}")
        return found

    return resolve


def _predicate(name: str, resolve: Resolver, slow: Callable[..., bool], fast: Callable[..., pl.Expr | None],
               check: Callable[..., object]) -> Function:  # fmt: skip
    """A row that says yes or no. `fast`: of the text and of the constants behind it, columnar; None: ask `slow`."""
    build, failing, called = tried(slow, S.BOOLEAN)

    def columnar(call: Call, text: pl.Expr) -> pl.Expr | None:
        values = [constant(a) for a in call.args[1:]]
        return None if any(v is None for v in values) else fast(text, *values)

    def made(call: Call, args: list[pl.Expr]) -> pl.Expr:
        found = columnar(call, args[0])
        return build(call, args) if found is None else found

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        return (pl.lit(False) if columnar(call, args[0]) is not None else failing(call, args)) | _bad_escape(args)

    def at_once(call: Call, args: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        columns = [pl.col(c) for c in args.columns]
        found = columnar(call, columns[0])
        value, bad = called(call, args) if found is None else (args.select(found.alias("v")).to_series(), None)
        more = args.select(pl.lit(False, pl.Boolean()) | _bad_escape(columns)).to_series()
        more = more.new_from_index(0, args.height) if more.len() != args.height else more
        return value, more if bad is None else bad | more

    return Function(f"pg.{name}", _checked(resolve, check), made, failed, at_once, {},
                    refusal(lambda text, *more: slow(text or "", *more)))  # fmt: skip


def _bad_escape(args: list[pl.Expr]) -> pl.Expr:
    """An escape of more characters is an error, though there may be no text."""
    return (args[1].is_not_null() & (args[2].str.len_chars() > 1)).fill_null(False) if len(args) == 3 else pl.lit(False)


def _operator(name: str, letters: str, wanted: bool) -> Function:
    def slow(text: str, pattern: str) -> bool:
        return has_match(text, pattern, letters) is wanted

    def fast(text: pl.Expr, pattern: str) -> pl.Expr | None:
        rust = _rust(pattern, letters)
        if rust is None:
            return None
        found = text.str.contains(rust)
        return found if wanted else ~found

    resolve = takes("a text and a pattern", ((_TEXT, _TEXT), S.BOOLEAN))
    return _predicate(name, resolve, slow, fast, lambda pattern: compiled(pattern, letters))


# ----------------------------------------------------------------------- LIKE

_LONE = "LIKE pattern must not end with escape character"
_Token = tuple[
    str, str
]  # a kind: '%', '_', a character '=', or the end '\\' of a pattern that an escape is; what it is


def _escaped_pattern(pattern: str, escape: str) -> str:
    """The pattern with a backslash as its escape character."""
    if len(escape) > 1:
        raise ValueError("invalid escape string")
    if escape == "\\":
        return pattern
    out: list[str] = []
    behind = False
    for c in pattern:
        if c == escape and not behind:
            out.append("\\")
            behind = True
            continue
        out.append("\\\\" if c == "\\" and not behind else c)
        behind = False
    return "".join(out)


@lru_cache(maxsize=1000)
def _tokens(pattern: str, escape: str = "\\") -> tuple[_Token, ...]:
    out: list[_Token] = []
    characters = iter(_escaped_pattern(pattern, escape))
    for c in characters:
        if c == "\\":
            following = next(characters, "")
            out.append(("=" if following else "\\", following))
        else:
            out.append((c if c in "%_" else "=", c))
    return tuple(out)


def _like(text: str, pattern: str, escape: str = "\\") -> bool:
    """Each part between two `%` stands as far left as it can."""
    tokens = _tokens(pattern, escape)
    at = here = 0
    again: tuple[int, int] | None = None  # the token behind the last %, and where it was tried
    while at < len(text):
        kind, c = tokens[here] if here < len(tokens) else ("", "")
        if kind == "%":
            moved = _behind_any(text, at, tokens, here)
            if moved is None:
                return False
            at, here = moved
            if here == len(tokens):
                return True
            again = (here, at)
        elif kind == "\\":
            raise ValueError(_LONE)
        elif kind == "_" or (kind == "=" and c == text[at]):
            at, here = at + 1, here + 1
        elif again is not None:
            here, at = again[0], again[1] + 1
            again = (here, at)
        else:
            return False
    return all(kind == "%" for kind, _ in tokens[here:])


def _behind_any(text: str, at: int, tokens: Sequence[_Token], here: int) -> tuple[int, int] | None:
    """Behind a `%` and the `%` and `_` that follow it; None if the text is too short."""
    while here < len(tokens) and tokens[here][0] in "%_":
        if tokens[here][0] == "_":
            if at >= len(text):
                return None
            at += 1
        here += 1
    if here < len(tokens) and tokens[here][0] == "\\":
        raise ValueError(_LONE)
    return at, here


def _like_fast(text: pl.Expr, pattern: str, escape: str = "\\") -> pl.Expr | None:
    tokens = _tokens(pattern, escape)
    if any(kind == "\\" for kind, _ in tokens):
        return None  # it depends on the text whether that is an error
    kinds = "".join("=" if kind == "=" else kind for kind, _ in tokens)
    inside = "".join(c for kind, c in tokens if kind == "=")
    if not kinds.strip("="):
        return text == inside
    if not kinds.strip("%"):
        return pl.when(text.is_not_null()).then(True)
    if re.fullmatch("=+%+", kinds):
        return text.str.starts_with(inside)
    if re.fullmatch("%+=+", kinds):
        return text.str.ends_with(inside)
    if re.fullmatch("%+=+%+", kinds):
        return text.str.contains(inside, literal=True)
    parts = [{"%": ".*", "_": "."}.get(kind) or re.escape(c) for kind, c in tokens]
    return text.str.contains(rf"(?s)\A{''.join(parts)}\z")


def _ilike(text: str, pattern: str, escape: str = "\\") -> bool:
    return _like(lower_of(text), lower_of(_escaped_pattern(pattern, escape)))


def _ilike_fast(text: pl.Expr, pattern: str, escape: str = "\\") -> pl.Expr | None:
    return _like_fast(lowered(text), lower_of(_escaped_pattern(pattern, escape)))


# ----------------------------------------------------------------- SIMILAR TO


def similar_pattern(pattern: str, escape: str = "\\") -> str:
    """The regular expression of a pattern of SQL."""
    if len(escape) > 1:
        raise ValueError("invalid escape string")
    return _Similar(pattern, escape).translated()


class _Similar:
    def __init__(self, pattern: str, escape: str) -> None:
        self._pattern = pattern
        self._escape = escape
        self._depth = 0  # of brackets
        self._opened = 0  # how far within brackets: 1 at their beginning, 2 behind a caret there
        self._quotes = 0

    def translated(self) -> str:
        out: list[str] = []
        behind = False
        for c in self._pattern:
            if behind:
                out.append(self._after_escape(c))
                behind = False
            elif c == self._escape:
                behind = True
            else:
                out.append(self._in_brackets(c) if self._depth else self._plain(c))
        return f"^(?:{''.join(out)})$"

    def _after_escape(self, c: str) -> str:
        """An escaped quote divides a pattern for SUBSTRING; here that only tells how much the parts take."""
        if c != '"' or self._depth:
            return f"\\{c}"
        self._quotes += 1
        if self._quotes > 2:
            raise ValueError("SQL regular expression may not contain more than two escape-double-quote separators")
        return "){1,1}?(" if self._quotes == 1 else "){1,1}(?:"

    def _in_brackets(self, c: str) -> str:
        if c == "]" and self._opened > 2:
            self._depth -= 1
        elif c == "[":
            self._depth += 1
        self._opened = self._opened + 1 if c == "^" else 3
        return "\\\\" if c == "\\" else c

    def _plain(self, c: str) -> str:
        if c == "[":
            self._depth, self._opened = 1, 1
        return {"%": ".*", "_": ".", "(": "(?:"}.get(c) or (f"\\{c}" if c in "\\.^$" else c)


def _similar(text: str, pattern: str, escape: str = "\\") -> bool:
    return has_match(text, similar_pattern(pattern, escape))


def _similar_fast(text: pl.Expr, pattern: str, escape: str = "\\") -> pl.Expr | None:
    rust = _rust(similar_pattern(pattern, escape), "")
    return None if rust is None else text.str.contains(rust)


# ------------------------------------------------------------------ functions


def _letters(flags: str, of: str, everywhere: bool = False) -> tuple[str, bool]:
    """The flags without `g`; whether that is among them."""
    if "g" in flags and not everywhere:
        raise BadPattern(f'{of}() does not support the "global" option')
    return flags.replace("g", ""), "g" in flags


def _matches(regex: Regex, text: str, start: int, details: bool) -> list[Spans]:
    """All matches from this place on, one behind the other; behind an empty one a character is passed over."""
    reading = regex.reading(text)
    out: list[Spans] = []
    while start <= len(text):
        found = regex.search(reading, start, details)
        if found is None or found[0] is None:
            break
        out.append(found)
        begin, end = found[0]
        start = end + (begin == end)
    return out


def _regexp_match(text: str, pattern: str, flags: str = "") -> list[str | None] | None:
    regex = compiled(pattern, _letters(flags, "regexp_match")[0])
    found = regex.search(regex.reading(text), 0)
    if found is None:
        return None
    return [None if span is None else text[slice(*span)] for span in (found[1:] if regex.groups else found)]


def _started(start: int) -> int:
    if start <= 0:
        raise ValueError(f'invalid value for parameter "start": {start}')
    return start - 1


def _regexp_count(text: str, pattern: str, start: int = 1, flags: str = "") -> int:
    at = _started(start)
    regex = compiled(pattern, _letters(flags, "regexp_count")[0])
    return len(_matches(regex, text, at, details=False))


def _regexp_split(text: str, pattern: str, flags: str = "") -> list[str]:
    """Empty matches at both ends and behind another match divide nothing."""
    regex = compiled(pattern, _letters(flags, "regexp_split_to_array")[0])
    out: list[str] = []
    at = before = 0
    for spans in _matches(regex, text, 0, details=False):
        begin, end = spans[0] or (0, 0)
        if begin < len(text) and end > before:
            out.append(text[at:begin])
            at = end
        before = end
    return [*out, text[at:]]


def _regexp_replace(text: str, pattern: str, new: str, *more: int | str) -> str:
    """`more`: flags; or a position, which match, and flags. The first match, or all of them: with `g` or number 0."""
    flags = more[0] if len(more) == 1 and isinstance(more[0], str) else more[2] if len(more) == 3 else ""
    assert isinstance(flags, str)
    if len(more) == 1 and flags[:1].isdigit() and flags.isascii():
        raise BadPattern(f'invalid regular expression option: "{flags[0]}"')
    start = _started(more[0]) if more and isinstance(more[0], int) else 0
    letters, everywhere = _letters(flags, "regexp_replace", everywhere=True)
    which = more[1] if len(more) > 1 else 0 if everywhere else 1
    assert isinstance(which, int)
    if which < 0:
        raise ValueError(f'invalid value for parameter "n": {which}')
    return _replaced(compiled(pattern, letters), text, new, start, which)


def _replaced(regex: Regex, text: str, new: str, start: int, which: int) -> str:
    pieces = _pieces(new)
    details = any(p for p in pieces if isinstance(p, int))
    reading = regex.reading(text)
    out: list[str] = []
    at = count = size = 0
    while start <= len(text):
        found = regex.search(reading, start, details)
        if found is None or found[0] is None:
            break
        begin, end = found[0]
        start = end + (begin == end)
        count += 1
        if which and count != which:
            continue
        out += [text[at:begin], *(p if isinstance(p, str) else _piece(found, p, text) for p in pieces)]
        at = end
        size += sum(len(p.encode()) for p in out[-1 - len(pieces) :])
        if size > LARGEST:
            raise ValueError(TOO_LONG)
        if which:
            break
    if size + len(text[at:].encode()) > LARGEST:
        raise ValueError(TOO_LONG)
    return "".join([*out, text[at:]])


@lru_cache(maxsize=100)
def _pieces(new: str) -> tuple[str | int, ...]:
    """`\\1` to `\\9` are groups, `\\&` is the match; any other backslash stands for itself, two for one."""
    found = re.split(r"\\([1-9&\\])", new)
    return tuple(p if i % 2 == 0 or p == "\\" else 0 if p == "&" else int(p) for i, p in enumerate(found) if p or i % 2)


def _piece(found: Spans, number: int, text: str) -> str:
    span = found[number] if number < len(found) else None
    return "" if span is None else text[slice(*span)]


# ----------------------------------------------------------------------- rows

_I = S.INT


def _function(name: str, usage: str, parameters: Sequence[tuple[Type, ...]], result: Type, f: Callable[..., object],
              check: Callable[..., object]) -> Function:  # fmt: skip
    made = plain(name, usage, [(p, result) for p in parameters], f)
    return replace(made, resolve=_checked(made.resolve, check))


def _with_escape(name: str, slow: Callable[..., bool], fast: Callable[..., pl.Expr | None],
                 check: Callable[..., object]) -> Function:  # fmt: skip
    resolve = takes("a text, a pattern, and maybe an escape character",
                    ((_TEXT,) * 2, S.BOOLEAN), ((_TEXT,) * 3, S.BOOLEAN))  # fmt: skip
    return _predicate(name, resolve, slow, fast, check)


REGEX: dict[str, Function] = {
    f.name: f
    for f in (
        _operator("~", "", True),
        _operator("~*", "i", True),
        _operator("!~", "", False),
        _operator("!~*", "i", False),
        _with_escape("like", _like, _like_fast, _tokens),
        _with_escape("ilike", _ilike, _ilike_fast, _tokens),
        _with_escape("similar", _similar, _similar_fast, lambda *more: compiled(similar_pattern(*more))),
        _function("REGEXP_MATCH", "a text, a pattern, and maybe flags", [(_TEXT,) * 2, (_TEXT,) * 3], _TEXTS,
                  _regexp_match, lambda *more: _regexp_match("", *more)),
        _function("REGEXP_COUNT", "a text, a pattern, and maybe a position and flags",
                  [(_TEXT,) * 2, (_TEXT, _TEXT, _I), (_TEXT, _TEXT, _I, _TEXT)], S.INT,
                  _regexp_count, lambda *more: _regexp_count("", *more)),
        _function("REGEXP_REPLACE", "a text, a pattern, what to put in its place, and maybe flags, or a position, "
                  "which match and flags", [(_TEXT,) * 3, (_TEXT,) * 4, (*(_TEXT,) * 3, _I), (*(_TEXT,) * 3, _I, _I),
                                      (*(_TEXT,) * 3, _I, _I, _TEXT)], _TEXT,
                  _regexp_replace, lambda *more: _regexp_replace("", *more)),
        _function("REGEXP_SPLIT_TO_ARRAY", "a text, a pattern, and maybe flags", [(_TEXT,) * 2, (_TEXT,) * 3], _TEXTS,
                  _regexp_split, lambda *more: _regexp_split("", *more)),
    )
}  # fmt: skip
