"""LIKE, SIMILAR TO and regular expressions, as RisingWave has them.

In: typed calls and the Polars expressions of their arguments. Out: rows, by their plan names.
Rule: LIKE is PostgreSQL's; regular expressions are Rust's (rust.py), and what is made of their matches is what
RisingWave's source makes of them (src/expr/impl/src/scalar/regexp.rs), also where that is not PostgreSQL's. A search
goes on in what is behind the last match, so `^` matches there. Where that source never ends or reads behind a text, a
row fails. A constant that is no pattern is refused. (docs/decisions/0072-regular-expressions-are-rusts.md)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import polars as pl

from braid.expr.nodes import Call, Expr
from braid.expr.postgres.base import parts, plain, takes
from braid.expr.postgres.rust import HINT, BadPattern, Found, Linear, Pieces, Regex, compiled, joined
from braid.expr.postgres.text import TOO_LONG, lower_of, lowered
from braid.expr.rows import LARGEST, once
from braid.expr.signatures import Fallible, Function, Refused, Resolver, Signature, constant, refusal, tried
from braid.types import Array, Scalar, Type, polars_type

S = Scalar
_TEXT = S.VARCHAR
_TEXTS = Array(_TEXT)
MEANING = 3  # since when patterns are Rust's (`expr.meanings`)
_ENDLESS = "the pattern matches an empty text, behind which RisingWave's search does not go on"


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
            return Refused(f"{values[0]!r} is no pattern here: {e}", HINT if isinstance(e, BadPattern) else None)
        return found

    return resolve


def _predicate(name: str, resolve: Resolver, slow: Callable[..., bool], fast: Callable[..., pl.Expr | None],
               check: Callable[..., object]) -> Function:  # fmt: skip
    """A row that says yes or no. `fast`: of the text and of the constants behind it, columnar; None: ask `slow`."""
    by_rows = tried(slow, S.BOOLEAN)
    called = by_rows.once
    assert called is not None

    def columnar(call: Call, text: pl.Expr) -> pl.Expr | None:
        values = [constant(a) for a in call.args[1:]]
        return None if any(v is None for v in values) else fast(text, *values)

    def made(call: Call, args: list[pl.Expr]) -> pl.Expr:
        found = columnar(call, args[0])
        return by_rows(call, args) if found is None else found

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        return (pl.lit(False) if columnar(call, args[0]) is not None else by_rows.failed(call, args)) | _bad_escape(
            args
        )

    def at_once(call: Call, args: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        columns = [pl.col(c) for c in args.columns]
        found = columnar(call, columns[0])
        value, bad = called(call, args) if found is None else (args.select(found.alias("v")).to_series(), None)
        more = args.select(pl.lit(False, pl.Boolean()) | _bad_escape(columns)).to_series()
        more = more.new_from_index(0, args.height) if more.len() != args.height else more
        return value, more if bad is None else bad | more

    why = refusal(lambda text, *more: slow(text or "", *more))
    return Function(f"pg.{name}", _checked(resolve, check), Fallible(made, failed, why, at_once))


def _bad_escape(args: list[pl.Expr]) -> pl.Expr:
    """An escape of more characters is an error, though there may be no text."""
    return (args[1].is_not_null() & (args[2].str.len_chars() > 1)).fill_null(False) if len(args) == 3 else pl.lit(False)


def _operator(name: str, flags: str, wanted: bool) -> Function:
    def slow(text: str, pattern: str) -> bool:
        return (compiled(pattern, flags).search(text) is not None) is wanted

    def fast(text: pl.Expr, pattern: str) -> pl.Expr | None:
        return _contains(text, compiled(pattern, flags), wanted)

    resolve = takes("a text and a pattern", ((_TEXT, _TEXT), S.BOOLEAN))
    return replace(_predicate(name, resolve, slow, fast, lambda p: compiled(p, flags)), meaning=MEANING)


def _contains(text: pl.Expr, regex: Regex, wanted: bool = True) -> pl.Expr | None:
    """Whether there is a match, if Polars can say it."""
    if not isinstance(regex, Linear):
        return None
    found = text.str.contains(regex.pattern)
    return found if wanted else ~found


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


# ----------------------------------------------------------------- SIMILAR TO


def similar_pattern(pattern: str, escape: str = "\\") -> str:
    """The regular expression of a pattern of SQL. (src/expr/impl/src/scalar/similar_to_escape.rs)"""
    if len(escape) > 1:
        raise ValueError("invalid escape string")
    parts = iter(("){1,1}?(", "){1,1}(?:"))  # what escaped quotes divide a pattern into
    out: list[str] = []
    escaped = inside = False
    for c in pattern:
        if escaped:
            made = next(parts, None) if c == '"' and not inside else f"\\{c}"
            if made is None:
                raise ValueError("SQL regular expression may not contain more than two escape-double-quote separators")
            out.append(made)
            escaped = False
        elif c == escape:
            escaped = True
        elif inside:
            out.append("\\\\" if c == "\\" else c)
            inside = c != "]"
        else:
            out.append({"%": ".*", "_": ".", "(": "(?:"}.get(c) or (f"\\{c}" if c in "\\.^$" else c))
            inside = c == "["
    return f"^(?:{''.join(out)})$"


def _similar(text: str, pattern: str, escape: str = "\\") -> bool:
    return compiled(similar_pattern(pattern, escape)).search(text) is not None


def _similar_fast(text: pl.Expr, pattern: str, escape: str = "\\") -> pl.Expr | None:
    return _contains(text, compiled(similar_pattern(pattern, escape)))


# ------------------------------------------------------------------ functions

MOST = 10_000  # searches in one text


class _Search:
    """Searches one behind the other, each in what the one before has left."""

    def __init__(self, regex: Regex, text: str) -> None:
        self.rest = text
        self._regex, self._left = regex, MOST

    def next(self) -> Found | None:
        """The next match. Of what is left nothing is taken."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"the pattern matches more than {MOST} times")
        return self._regex.search(self.rest)


def _regexp_match(text: str, pattern: str, flags: str = "") -> list[str | None] | None:
    found = compiled(pattern, flags).search(text)
    return None if found is None else list(found.groups[1:] or found.groups)


def _regexp_matches(text: str, pattern: str, flags: str = "") -> list[list[str | None]]:
    """All matches, also without `g`. (src/expr/impl/src/table_function/regexp_matches.rs)"""
    return [list(groups[1:] or groups) for groups in compiled(pattern, flags).all(text)]


def _begin(text: str, start: int) -> int | None:
    """Where to begin; None behind the text."""
    if start <= 0:
        raise ValueError(f'invalid value for parameter "start": {start}')
    return start - 1 if start <= len(text) else None


def _regexp_count(text: str, pattern: str, start: int = 1, flags: str = "") -> int:
    if "g" in flags:
        raise BadPattern("regexp_count() does not support the global option")
    regex = compiled(pattern, flags)
    at = _begin(text, start)
    if at is None:
        return 0
    search, count = _Search(regex, text[at:]), 0
    while (found := search.next()) is not None:
        if found.after == search.rest:
            raise ValueError(_ENDLESS)
        search.rest = found.after
        count += 1
    return count


def _regexp_split(text: str, pattern: str, flags: str = "") -> list[str]:
    """An empty match divides behind the character that follows it."""
    regex = compiled(pattern, flags)
    if regex.plain and "\0" not in text:
        return regex.replaced(text, ("\0",), once=False).split("\0")
    search = _Search(regex, text)
    out: list[str] = []
    empty = False
    while search.rest and (found := search.next()) is not None:
        if not found.whole:
            empty = True
            if not found.after:
                return out
            out.append(found.before + found.after[0])
            search.rest = found.after[1:]
            continue
        if found.before or not empty:
            out.append(found.before)
        search.rest = found.after
    return [*out, search.rest] if search.rest or not empty else out


def _regexp_replace(text: str, pattern: str, new: str, *more: int | str) -> str:
    """`more`: flags; or a position, which match, and flags. The first match, or all of them: with `g` or number 0."""
    start, which, everywhere = _asked(*more)
    regex = compiled(pattern, "".join(m for m in more if isinstance(m, str)))
    at = _begin(text, start)
    if at is None:
        return text
    before, rest, template = text[:at], text[at:], _template(new)
    pieces = _pieces(template, regex)
    if everywhere:
        made = before + (regex.replaced(rest, pieces, False) if _at_once(regex) else _all(regex, rest, pieces))
    elif which is not None:
        made = _nth(regex, before, rest, template, which)
    elif regex.groups:
        made = before + regex.replaced(rest, pieces, True)
    else:  # RisingWave leaves out a first character of one byte
        made = (before if len(before.encode()) > 1 else "") + regex.replaced(rest, pieces, True)
    if len(made.encode()) > LARGEST:
        raise ValueError(TOO_LONG)
    return made


def _asked(*more: int | str) -> tuple[int, int | None, bool]:
    """Where to begin, the number of the match if it is one, and whether all are meant."""
    start, which = (*(m for m in more if isinstance(m, int)), None, None)[:2]
    everywhere = which is None and any("g" in m for m in more if isinstance(m, str))
    return 1 if start is None else start, which or None, everywhere or which == 0


def _at_once(regex: Regex) -> bool:
    """Whether all matches are those that one search finds."""
    return not regex.groups or regex.plain


def _all(regex: Regex, text: str, pieces: Pieces) -> str:
    """Of a pattern with groups. Before an empty match a character is left out."""

    def parts() -> Iterator[str]:
        search = _Search(regex, text)
        while (found := search.next()) is not None:
            if found.whole:
                yield found.before
                yield from found.put(pieces)
                search.rest = found.after
            elif search.rest:
                search.rest = search.rest[1:]
            else:
                raise ValueError(_ENDLESS)
        yield search.rest

    return joined(parts())


def _nth(regex: Regex, before: str, text: str, template: str, which: int) -> str:
    """The match of this number alone; what takes its place is taken as it is written. Where there is none the text from
    the position on is left out."""
    search = _Search(regex, text)
    passed, count = before, 0
    while (found := search.next()) is not None:
        count += 1
        if regex.groups or (which < 0 and found.after == search.rest):
            raise ValueError("RisingWave does not come to an end here")
        if count == which or found.after == search.rest:  # an empty match is found as often as is asked
            return passed + found.before + template + found.after
        passed += found.before + found.whole
        search.rest = found.after
    return before + text if regex.groups else before if len(before.encode()) > 1 else ""


def _template(new: str) -> str:
    """As Rust has it: `\\1` to `\\9` are groups, `\\&` is the match; any other backslash stays."""
    return re.sub(r"\\(.)", lambda m: "${0}" if m[1] == "&" else f"${{{m[1]}}}" if m[1] in "123456789" else m[0], new,
                  flags=re.DOTALL)  # fmt: skip


def _pieces(template: str, regex: Regex) -> Pieces:
    """Texts and the numbers of groups. `$1`, `${name}`: a group; nothing where there is none."""
    out: list[str | int] = []
    for i, part in enumerate(re.split(r"\$(\$|\{\w+\}|\w+)", template)):
        name = part.strip("{}")
        if i % 2 == 0 or part == "$":
            out.append(part)
        elif name in regex.names:
            out.append(regex.names[name])
        elif name.isdecimal() and name.isascii() and int(name) <= regex.groups:
            out.append(int(name))
    return tuple(p for p in out if p != "")


# ------------------------------------------------------------ many at a time
# The same of texts with one pattern, where Polars has it; None: text by text.


def _match_many(texts: pl.Series, regex: Regex, *_: object) -> pl.Series | None:
    if not isinstance(regex, Linear):
        return None
    found = regex.apart(texts)
    groups = found.columns[2:-1] or found.columns[1:2]
    there = pl.col(found.columns[1]).is_not_null()
    return found.select(pl.when(there).then(pl.concat_list(groups))).to_series()


def _matches_many(texts: pl.Series, regex: Regex, *_: object) -> pl.Series | None:
    if not isinstance(regex, Linear) or regex.groups:
        return None
    return texts.str.extract_all(regex.pattern).list.eval(pl.concat_list(pl.element()))


def _count_many(texts: pl.Series, regex: Regex, start: int = 1, flags: str = "") -> pl.Series | None:
    if not isinstance(regex, Linear) or not regex.plain or start <= 0 or "g" in flags:
        return None
    return texts.str.slice(start - 1).str.count_matches(regex.pattern)


def _split_many(texts: pl.Series, regex: Regex, *_: object) -> pl.Series | None:
    if not isinstance(regex, Linear) or not regex.plain or texts.str.contains("\0", literal=True).any():
        return None
    divided = regex.replaced_in(texts, ("\0",), once=False)
    return None if divided is None else divided.str.split("\0")


def _replace_many(texts: pl.Series, regex: Regex, new: str, *more: int | str) -> pl.Series | None:
    start, which, everywhere = _asked(*more)
    if not isinstance(regex, Linear) or start <= 0 or which is not None or (everywhere and not _at_once(regex)):
        return None
    before, rest = texts.str.head(start - 1), texts.str.slice(start - 1)
    made = regex.replaced_in(rest, _pieces(_template(new), regex), once=not everywhere)
    if made is None or (made.str.len_bytes().max() or 0) > LARGEST:  # type: ignore[operator]
        return None
    if not everywhere and not regex.groups:
        before = before.set(before.str.len_bytes() <= 1, "")
    return (made if start == 1 else before + made).zip_with(rest != "", texts)


# ----------------------------------------------------------------------- rows

_I = S.INT
_One = Callable[..., object]
_Many = Callable[..., pl.Series | None]


def _function(name: str, usage: str, parameters: Sequence[tuple[Type, ...]], result: Type, one: _One, many: _Many,
              flags: int) -> Function:  # fmt: skip
    """`flags`: which argument they are, if they are there and a text."""
    dtype = polars_type(result)

    def of(texts: pl.Series, given: Sequence[Any]) -> tuple[pl.Series, pl.Series]:
        said = given[-1] if len(given) >= flags and isinstance(given[-1], str) else ""
        try:
            found = many(texts, compiled(given[0], said), *given[1:])
        except BadPattern:
            found = None
        if found is None:
            return once(lambda text: one(text, *given), texts.to_frame(), dtype)
        return found.cast(dtype), pl.repeat(False, texts.len(), eager=True)

    def run(call: Call, columns: Sequence[pl.Series]) -> tuple[pl.Series, pl.Series]:
        frame = pl.DataFrame([c.alias(str(i)) for i, c in enumerate(columns)]).with_row_index("at")
        found = [pl.DataFrame(schema={"at": pl.UInt32, "value": dtype, "bad": pl.Boolean})]
        for part in frame.drop_nulls().partition_by(frame.columns[2:]):
            value, bad = of(part["0"], part.row(0)[2:])
            found.append(pl.DataFrame({"at": part["at"], "value": value, "bad": bad}))
        made = frame.select("at").join(pl.concat(found), "at", "left", maintain_order="left")
        return made["value"], made["bad"].fill_null(False)

    made = plain(name, usage, [(p, result) for p in parameters], one)
    return replace(made, resolve=_checked(made.resolve, lambda *more: one("x", *more)),
                   build=parts(run, refusal(one)), meaning=MEANING)  # fmt: skip


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
        replace(_with_escape("similar", _similar, _similar_fast, lambda *more: compiled(similar_pattern(*more))),
                meaning=MEANING),
        _function("REGEXP_MATCH", "a text, a pattern, and maybe flags", [(_TEXT,) * 2, (_TEXT,) * 3], _TEXTS,
                  _regexp_match, _match_many, 2),
        _function("regexp_matches", "a text, a pattern, and maybe flags", [(_TEXT,) * 2, (_TEXT,) * 3], Array(_TEXTS),
                  _regexp_matches, _matches_many, 2),
        _function("REGEXP_COUNT", "a text, a pattern, and maybe a position and flags",
                  [(_TEXT,) * 2, (_TEXT, _TEXT, _I), (_TEXT, _TEXT, _I, _TEXT)], S.INT,
                  _regexp_count, _count_many, 3),
        _function("REGEXP_REPLACE", "a text, a pattern, what to put in its place, and maybe flags, or a position, "
                  "which match and flags", [(_TEXT,) * 3, (_TEXT,) * 4, (*(_TEXT,) * 3, _I), (*(_TEXT,) * 3, _I, _I),
                                      (*(_TEXT,) * 3, _I, _I, _TEXT)], _TEXT,
                  _regexp_replace, _replace_many, 3),
        _function("REGEXP_SPLIT_TO_ARRAY", "a text, a pattern, and maybe flags", [(_TEXT,) * 2, (_TEXT,) * 3], _TEXTS,
                  _regexp_split, _split_many, 2),
    )
}  # fmt: skip
