"""Functions of text: masks, regular expressions, lists of texts, codes of characters.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: ksqlDB's meaning; characters are Unicode's. Null in, null out, unless the row says otherwise. A pattern, mask or
encoding that is wrong is refused where it is a constant, else the row fails.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations

import polars as pl

from braid.expr import patterns
from braid.expr.nodes import Call, Expr
from braid.expr.rows import distinct
from braid.expr.signatures import (
    NEGATIVE,
    Builder,
    Fallible,
    Function,
    Refused,
    Resolver,
    Signature,
    constant,
    forms,
    tried,
)
from braid.types import Array, Map, Scalar, Type, polars_type

S = Scalar
NO_GROUP = "there is no such pattern or group, or the result would be too long"
_TEXT = S.VARCHAR
_TEXTS = Array(_TEXT)
_TEXT_MAP = Map(_TEXT, _TEXT)

# ---------------------------------------------------------------------- words


def _initcap(text: str) -> str:
    """Blanks in front are lost, as in ksqlDB."""
    words = re.findall(r"[^ \t\n\x0b\f\r]+[ \t\n\x0b\f\r]*", text.lower())
    return "".join(w[0].upper() + w[1:] for w in words)


def _field(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Where a text stands among others, from 1; 0 where it does not, and for null."""
    found = (pl.when(args[0] == x).then(pl.lit(i, pl.Int32)) for i, x in enumerate(args[1:], 1))
    return pl.min_horizontal(*found).fill_null(0)


def _elt(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The n-th of the texts; null where there is none."""
    out = pl.lit(None, pl.String)
    for i in range(len(args) - 1, 0, -1):
        out = pl.when(args[0] == i).then(args[i]).otherwise(out)
    return out


def _listed(first: Scalar, result: Scalar, usage: str) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        texts = all(a.type in (_TEXT, S.NULL) for a in args[1:])
        if len(args) < 2 or not texts or args[0].type not in (first, S.NULL):
            return Refused(f"it takes {usage}", "CAST the others to VARCHAR")
        return Signature((first, *(_TEXT,) * (len(args) - 1)), result)

    return resolve


def _split_to_map(text: str, entry: str, pair: str) -> list[dict[str, str]] | None:
    """The last value of a key; what has no delimiter is left out."""
    if not entry or not pair or entry == pair:
        return None
    found: dict[str, str] = {}
    for part in text.split(entry):
        if pair in part:
            key, value = part.split(pair)[:2]
            found[key] = value
    return [{"key": k, "value": v} for k, v in found.items()]


# ---------------------------------------------------------------------- codes

_JAVA_ESCAPE = re.compile(r"\\(?:u+([0-9a-fA-F]{4})|([0-3]?[0-7]{1,2})|(.)|$)", re.DOTALL)
_LETTERS = {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}


def _chr(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Of a number; of a text such as '\\u004b'. Null where there is no such character."""
    return distinct(_unescaped if call.args[0].type is _TEXT else _character, args, pl.String())


def _character(code: int) -> str | None:
    return chr(code) if 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else None


def _unescaped(text: str) -> str | None:
    if len(text) < 6 or not text.startswith("\\u") or _is_bad_escape(text):
        return None
    made = _JAVA_ESCAPE.sub(
        lambda m: chr(int(m[1], 16)) if m[1] else chr(int(m[2], 8)) if m[2] else _LETTERS.get(m[3] or "", m[3] or ""),
        text,
    )
    try:  # two halves make one character, half a one makes none
        return made.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def _is_bad_escape(text: str) -> bool:
    return any(m[3] == "u" for m in _JAVA_ESCAPE.finditer(text))


def _chr_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.args[0].type is not _TEXT:
        return pl.lit(False)
    return distinct(lambda t: len(t) >= 6 and t.startswith("\\u") and _is_bad_escape(t), args, pl.Boolean())


# ---------------------------------------------------------------------- masks

_CLASSES = (r"\p{Lu}", r"\p{Ll}", r"\p{Nd}", r"[^\p{Lu}\p{Ll}\p{Nd}]")
_MASKS = ("X", "x", "n", "-")


def _resolve_mask(counted: bool) -> Resolver:
    usage = f"a VARCHAR, {'a number of characters, ' if counted else ''}and maybe four masks of one character"

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        first = 2 if counted else 1
        masks = args[first:]
        if len(args) not in (first, first + 4) or args[0].type not in (_TEXT, S.NULL):
            return Refused(f"it takes {usage}", "of upper-case and lower-case letters, of digits, of the rest")
        if counted and args[1].type not in (S.INT, S.NULL):
            return Refused(f"it takes {usage}")
        for m in masks:
            mask = constant(m)
            if m.type is not S.NULL and (not isinstance(mask, str) or len(mask) != 1):
                return Refused("a mask is one character", "a constant such as '*', or NULL to leave those as they are")
        return Signature((_TEXT, *([S.INT] if counted else []), *(_TEXT,) * len(masks)), _TEXT)

    return resolve


def _masked(text: pl.Expr, masks: Sequence[str | None]) -> pl.Expr:
    """Each class in its turn, in an order in which no mask is masked again."""
    steps = [i for i in range(4) if masks[i] is not None]
    of = {i: _class_of(masks[i] or "") for i in steps}
    for order in permutations(steps):
        if all(of[i] not in order[order.index(i) + 1 :] for i in order):
            for i in order:
                text = text.str.replace_all(_CLASSES[i], (masks[i] or "").replace("$", "$$"))
            return text

    def one(value: str) -> str:  # slow path: the masks of two classes are of each other's class
        return "".join(c if (m := masks[_class_of(c)]) is None else m for c in value)

    return distinct(one, [text], pl.String())


def _class_of(c: str) -> int:
    return {"Lu": 0, "Ll": 1, "Nd": 2}.get(unicodedata.category(c), 3)


def _mask(part: str | None) -> Builder:
    """`part`: what is masked, of the first n characters and the rest: `head` or `tail`; of the last n: `last` or
    `before`."""

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        given = call.args[2 if part else 1 :]
        values = [constant(m) for m in given] if given else list(_MASKS)
        masks = [v if isinstance(v, str) else None for v in values]
        if part is None:
            return _masked(args[0], masks)
        text, n = args[0], args[1].cast(pl.Int64)
        n = pl.when(n >= 0).then(n)
        size = text.str.len_chars().cast(pl.Int64)
        cut = n if part in ("head", "tail") else pl.max_horizontal(size - n, pl.lit(0, pl.Int64))
        at = cut.fill_null(0)
        left, right = text.str.slice(0, at), text.str.slice(at)
        first = part in ("head", "before")
        made = pl.concat_str([_masked(left, masks) if first else left, right if first else _masked(right, masks)])
        return pl.when(n.is_not_null()).then(made)

    return build


def _mask_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return (args[1] < 0) & args[0].is_not_null()


# -------------------------------------------------------- regular expressions


def _resolve_regexp(at: int, counts: tuple[int, ...], result: Scalar | Array, usage: str) -> Resolver:
    """`at`: where the pattern stands. A third argument that is a number is a group."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        types = (_TEXT, _TEXT, _TEXT if counts == (3,) else S.INT)[: len(args)]
        if len(args) not in counts or any(a.type not in (t, S.NULL) for a, t in zip(args, types, strict=True)):
            return Refused(f"it takes {usage}")
        return refused_pattern(args[at]) or Signature(types, result)

    return resolve


def refused_pattern(e: Expr) -> Refused | None:
    """Why a constant is no pattern."""
    pattern = constant(e)
    if isinstance(pattern, str):
        try:
            patterns.compiled(pattern)
        except patterns.BadPattern as bad:
            return Refused(f"{pattern!r} is not a pattern here: {bad}", "write it as for java.util.regex")
    return None


def _regexp(f: Callable[..., object], t: Type, at: int) -> Fallible:
    """What `f` gives, and where it fails. `at`: the place of the pattern."""
    made = tried(f, t, NO_GROUP)

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        certain = len(args) == 2 and isinstance(constant(call.args[at]), str)  # it was looked at when it was bound
        return pl.lit(False) if certain else made.failed(call, args)

    return replace(made, failed=failed)


_group = "a pattern, a VARCHAR, and maybe the number of a group"

TEXT_FUNCTIONS = {
    f.name: f
    for f in (
        Function(
            "INITCAP", forms("a VARCHAR", ((_TEXT,), _TEXT)), lambda call, args: distinct(_initcap, args, pl.String())
        ),
        Function("FIELD", _listed(_TEXT, S.INT, "a VARCHAR to find and one or more VARCHAR"), _field),
        Function("ELT", _listed(S.INT, _TEXT, "an INTEGER from 1 and one or more VARCHAR"), _elt),
        Function(
            "SPLIT_TO_MAP",
            forms(
                "a VARCHAR, a delimiter of entries, and one of key and value",
                ((_TEXT,) * 3, _TEXT_MAP),
            ),
            lambda call, args: distinct(_split_to_map, args, polars_type(_TEXT_MAP)),
        ),
        Function(
            "CHR",
            forms("an INTEGER, or a VARCHAR such as '\\u004b'", ((S.INT,), _TEXT), ((_TEXT,), _TEXT)),
            Fallible(_chr, _chr_failed, "there is no such character"),
        ),
        Function("MASK", _resolve_mask(False), _mask(None)),
        Function("MASK_LEFT", _resolve_mask(True), Fallible(_mask("head"), _mask_failed, NEGATIVE)),
        Function("MASK_KEEP_LEFT", _resolve_mask(True), Fallible(_mask("tail"), _mask_failed, NEGATIVE)),
        Function("MASK_RIGHT", _resolve_mask(True), Fallible(_mask("last"), _mask_failed, NEGATIVE)),
        Function("MASK_KEEP_RIGHT", _resolve_mask(True), Fallible(_mask("before"), _mask_failed, NEGATIVE)),
        Function(
            "REGEXP_EXTRACT",
            _resolve_regexp(0, (2, 3), _TEXT, _group),
            _regexp(patterns.extracted, _TEXT, 0),
        ),
        Function(
            "REGEXP_EXTRACT_ALL",
            _resolve_regexp(0, (2, 3), _TEXTS, _group),
            _regexp(patterns.all_extracted, _TEXTS, 0),
        ),
        Function(
            "REGEXP_REPLACE",
            _resolve_regexp(1, (3,), _TEXT, "a VARCHAR, a pattern, and what to put in its place"),
            _regexp(lambda text, pattern, new: patterns.replaced(pattern, text, new), _TEXT, 1),
        ),
        Function(
            "REGEXP_SPLIT_TO_ARRAY",
            _resolve_regexp(1, (2,), _TEXTS, "a VARCHAR and a pattern"),
            _regexp(lambda text, pattern: patterns.split(pattern, text), _TEXTS, 1),
        ),
    )
}
