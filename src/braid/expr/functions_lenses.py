"""Functions of texts with the meaning of Lenses, which runs on Java: those of Apache Commons Lang and of Scala.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`, and the words that stay out.
Rule: lengths and places count UTF-16 units, places from 0; half a pair that is cut off is U+FFFD; null in, null out.
What only reads a text is columnar; what cuts one is a Python function that is called once for equal arguments.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import unicodedata
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import polars as pl

from braid.expr.json_text import compact, loads
from braid.expr.nodes import Expr
from braid.expr.rows import LONGEST, distinct
from braid.expr.signatures import GROWS, Function, Refused, Resolver, Signature, constant, forms, in_sql, tried
from braid.types import Array, Scalar, Type, polars_type

S = Scalar
_TEXT = S.VARCHAR
_UNITS = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_BLANKS = r"[\x09-\x0d\x1c-\x20\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}]"
_NO_DIGIT = r"[^\p{Nd}]|[\x{10000}-\x{10FFFF}]"  # a pair of units is no digit to Java
_ACCENTS = re.compile("[\u0300-\u036f]+")
_SHORT = "the length is below 4"
_LONG = "the length is negative"
_STARS = "*****"

# ----------------------------------------------------------------------- units


def _units(text: str) -> str:
    """The text with each UTF-16 unit as a character of its own."""
    if text.isascii() or max(text) < "\U00010000":
        return text
    return "".join(map(chr, array("H", text.encode(_UNITS))))


def _text(units: str) -> str:
    if units.isascii() or not any("\ud800" <= c <= "\udfff" for c in units):
        return units
    return units.encode(_UNITS, "surrogatepass").decode(_UNITS, "replace")


def _cut(f: Callable[..., str]) -> Callable[..., str]:
    """`f`, which takes units first, of texts."""
    return lambda text, *rest: _text(f(_units(text), *rest))


def _abbreviated(text: str, width: int) -> str:
    if not text:
        return text
    if width < 4:
        raise ValueError(_SHORT)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _chopped(text: str) -> str:
    return text[:-2] if text.endswith("\r\n") else text[:-1]


def _truncated(text: str, width: int) -> str:
    if width < 0:
        raise ValueError(_LONG)
    return text[:width]


def _between(text: str, start: int, end: int) -> str:
    if start < 0 or end < start:
        raise ValueError("the position is negative" if start < 0 else "the end is before the start")
    return text[start:end]


def _left(text: str, length: int) -> str:
    return text[: max(length, 0)]


def _right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def _without_left(text: str, length: int) -> str:
    return text[max(length, 0) :]


def _without_right(text: str, length: int) -> str:
    return text[:-length] if length > 0 else text


def _filled(size: int, pad: str) -> str:
    if size > LONGEST:
        raise ValueError(GROWS)
    return (pad * (size // len(pad) + 1))[:size]


def _padded_left(text: str, size: int, pad: str) -> str:
    return _filled(max(size - len(text), 0), _units(pad) or " ") + text


def _padded_right(text: str, size: int, pad: str) -> str:
    return text + _filled(max(size - len(text), 0), _units(pad) or " ")


def _centered(text: str, size: int, pad: str) -> str:
    return _padded_right(_padded_left(text, len(text) + max(size - len(text), 0) // 2, pad), size, pad)


def _place(text: str, part: str) -> int:
    return _units(text).find(_units(part))


between = _cut(_between)

# ----------------------------------------------------------------------- letters


def _upper(c: str) -> str:
    """One for one: ß stays."""
    return next((u for u in (c.upper(), c.title()) if len(u) == 1), c)


def _title(c: str) -> str:
    return t if len(t := c.title()) == 1 else c


def _lower(c: str) -> str:
    return c.lower()[0]


def _swapped(c: str) -> str:
    if c.isupper() or c.istitle():
        return _lower(c)
    return _upper(c) if c.islower() else c


def _without_accents(text: str) -> str:
    """Parts of letters stay apart, as Commons Lang leaves them."""
    apart = unicodedata.normalize("NFD", text).replace("Ł", "L").replace("ł", "l")
    return _ACCENTS.sub("", apart)


# ----------------------------------------------------------------------- what hides


def _first(count: int) -> Callable[[str], str]:
    return lambda text: text[:count] + _STARS


def _last(count: int) -> Callable[[str], str]:
    return lambda text: _STARS + text[-count:]


def _email(text: str) -> str:
    name, at, domain = text.rpartition("@")
    if not at:
        raise ValueError("it is no email address")
    return _text(_units(name)[:1]) + _STARS + at + domain


def _initials(text: str) -> str:
    return "".join(word[0] for word in re.split(_JAVA_BLANKS, text) if word)


_JAVA_BLANKS = re.compile(re.sub(r"\\x\{(\w+)\}", r"\\u\1", _BLANKS))

# ----------------------------------------------------------------------- encodings


def _decoded(text: str) -> str:
    """As java.util.Base64 reads it: the padding may be left out, and nothing else."""
    body = text.rstrip("=") if len(text) % 4 == 0 and not text.endswith("===") else text
    try:
        if not re.fullmatch(r"[A-Za-z0-9+/]*", body) or len(body) % 4 == 1:
            raise ValueError
        return base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        raise ValueError("it is not base64") from None


# ----------------------------------------------------------------------- JSON

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]*()?@$'"\s]+)|\[\s*(?:'(?P<one>[^'\\]*)'|"(?P<two>[^"\\]*)"|(?P<at>-?\d+)|(?P<all>\*))\s*\]|(?P<any>\.\*)"""
)
_NO_PATH = "write it as '$.a.b', '$[0].a' or '$.a[*]'; filters (?) and .. are not read"


@lru_cache(maxsize=1000)
def _steps(path: str) -> tuple[str | int | None, ...]:
    """The steps of a JsonPath: names, places, None for all."""
    steps: list[str | int | None] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            break
        name = next((found[g] for g in ("name", "one", "two") if found[g] is not None), None)
        steps.append(int(found["at"]) if found["at"] is not None else name)
        at = found.end()
    if not path.startswith("$") or at < len(path):
        raise ValueError(f"{path!r} is not a path that can be read")
    return tuple(steps)


def _matches(text: str, path: str) -> list[str]:
    """Every match as JSON."""
    steps = _steps(path)
    try:
        found = [loads(text)]
    except ValueError:
        raise ValueError("it is not JSON") from None
    for step in steps:
        found = [x for value in found for x in _within(value, step)]
    return [compact(x) for x in found]


def _within(value: Any, step: str | int | None) -> list[Any]:
    match value, step:
        case dict(), None:
            return list(value.values())
        case list(), None:
            return value
        case dict(), str() if step in value:
            return [value[step]]
        case list(), int() if -len(value) <= step < len(value):
            return [value[step]]
    return []


def _resolve_path(result: Type) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        path = constant(args[1]) if len(args) == 2 else None
        if isinstance(path, str):
            try:
                _steps(path)
            except ValueError as e:
                return Refused(str(e), _NO_PATH)
        return forms("a text of JSON and a path such as '$.a'", ((_TEXT, _TEXT), result))(args)

    return resolve


# ----------------------------------------------------------------------- table


def _named(lenses: str) -> str:
    """What plans call a row: its first word."""
    return lenses.split(maxsplit=1)[0].lower()


def _of_text(f: Callable[[str], object], lenses: str, result: Type = _TEXT) -> Function:
    """Of a text alone, which cannot fail."""
    return Function(
        _named(lenses),
        forms("a text", ((_TEXT,), result)),
        lambda call, args: distinct(f, args, polars_type(result)),
        names=in_sql(lenses=lenses),
    )


def _columnar(f: Callable[[pl.Expr], pl.Expr], lenses: str) -> Function:
    return Function(
        _named(lenses), forms("a text", ((_TEXT,), _TEXT)), lambda call, args: f(args[0]), names=in_sql(lenses=lenses)
    )


def _asked(f: Callable[[pl.Expr, pl.Expr], pl.Expr], lenses: str) -> Function:
    two = forms("two texts", ((_TEXT, _TEXT), S.BOOLEAN))
    return Function(_named(lenses), two, lambda call, args: f(*args), names=in_sql(lenses=lenses))


def _can_fail(f: Callable[..., object], lenses: str, resolve: Resolver, result: Type = _TEXT) -> Function:
    """`f` raises a `ValueError` where it has no value."""
    return Function(_named(lenses), resolve, tried(f, result), names=in_sql(lenses=lenses))


def _counted(f: Callable[[str, int], str], lenses: str) -> Function:
    cut = _cut(f)
    return Function(
        _named(lenses),
        forms("a text and a number of characters", ((_TEXT, S.INT), _TEXT)),
        lambda call, args: distinct(cut, args, pl.String()),
        names=in_sql(lenses=lenses),
    )


_WIDTH = forms("a text and a length", ((_TEXT, S.INT), _TEXT))
_PAD = forms("a text, a length and a text to fill with", ((_TEXT, S.INT, _TEXT), _TEXT))
_TEXTS = Array(_TEXT)

LENSES_TEXTS = (
    _can_fail(_cut(_abbreviated), "ABBREVIATE", _WIDTH),
    _can_fail(_cut(_truncated), "TRUNCATE", _WIDTH),
    _can_fail(_cut(_padded_left), "LPAD LEFTPAD", _PAD),
    _can_fail(_cut(_padded_right), "RPAD RIGHTPAD", _PAD),
    _can_fail(_cut(_centered), "CENTER", _PAD),
    _counted(_left, "TAKELEFT"),
    _counted(_right, "TAKERIGHT"),
    _counted(_without_left, "DROPLEFT"),
    _counted(_without_right, "DROPRIGHT"),
    _of_text(_cut(_chopped), "CHOP"),
    _of_text(lambda text: text[::-1], "REVERSE"),
    _of_text(lambda text: text and _title(text[0]) + text[1:], "CAPITALIZE"),
    _of_text(lambda text: text and _lower(text[0]) + text[1:], "UNCAPITALIZE"),
    _of_text(lambda text: "".join(map(_swapped, text)), "SWAPCASE"),
    _of_text(_without_accents, "STRIPACCENTS"),
    _columnar(lambda x: x.str.replace_all(_BLANKS, ""), "DELETEWHITESPACE"),
    _columnar(lambda x: x.str.replace_all(_NO_DIGIT, ""), "DIGITS"),
    _asked(lambda x, y: x.str.contains(y, literal=True), "CONTAINS"),
    _asked(lambda x, y: x.str.starts_with(y), "STARTSWITH"),
    _asked(lambda x, y: x.str.ends_with(y), "ENDSWITH"),
    Function(
        "indexof",
        forms("two texts", ((_TEXT, _TEXT), S.INT)),
        lambda call, args: distinct(_place, args, pl.Int32()),
        names=in_sql(lenses="INDEXOF"),
    ),
    _of_text(lambda text: base64.b64encode(text.encode()).decode(), "BASE64"),
    _can_fail(_decoded, "DECODE64", forms("a text", ((_TEXT,), _TEXT))),
    _of_text(_cut(lambda text: "*" * len(text)), "ANONYMIZE MASK"),
    *(_of_text(_cut(_first(n)), f"FIRST{n}") for n in (1, 2, 3, 4)),
    *(_of_text(_cut(_last(n)), f"LAST{n}") for n in (1, 2, 3, 4)),
    _can_fail(_email, "EMAIL", forms("a text", ((_TEXT,), _TEXT))),
    _of_text(_initials, "INITIALS"),
    _can_fail(_matches, "JSON_EXTRACT_ALL", _resolve_path(_TEXTS), _TEXTS),
    _can_fail(
        lambda text, path: next(iter(_matches(text, path)), None),
        "JSON_EXTRACT_FIRST",
        _resolve_path(_TEXT),
    ),
)
