"""PostgreSQL's functions of text.

In: typed calls and the Polars expressions of their arguments. Out: rows, by their plan names.
Rule: characters are code points, and cases are one to one as in the locale C.UTF-8. A text of more bytes than a record
can hold is a failure, and is not even made. As RisingWave's pages have it ("String functions and operators", `trim`),
what is trimmed without being named is white space of all kinds; PostgreSQL trims blanks only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from braid.expr.nodes import Call, Expr
from braid.expr.postgres.base import plain, row, takes
from braid.expr.postgres.characters import LOWER, UPPER, is_word_part
from braid.expr.rows import LARGEST, distinct, once, rows
from braid.expr.signatures import (
    Builder,
    Fallible,
    Function,
    Refused,
    Resolver,
    Signature,
    constant,
    fails,
    or_null,
    refusal,
    tried,
)
from braid.types import Array, Scalar, Type, polars_type

S = Scalar
_TEXT = S.VARCHAR
_TEXTS = Array(_TEXT)
_INT = pl.Int32()
TOO_LONG = "the text is too long"


def fitting(text: str) -> str:
    """The text, if a record can hold it."""
    if 4 * len(text) > LARGEST and len(text.encode()) > LARGEST:
        raise ValueError(TOO_LONG)
    return text


def _bytes(x: pl.Expr) -> pl.Expr:
    return x.str.len_bytes().cast(pl.Int64)


def _characters(x: pl.Expr) -> pl.Expr:
    return x.str.len_chars().cast(pl.Int64)


def null_taking(name: str, resolve: Resolver, f: Callable[..., object], result: Type) -> Function:
    """A row of a Python function that is called for nulls too: slow path."""
    return row(
        name,
        resolve,
        Fallible(
            lambda call, args: distinct(or_null(f), args, polars_type(result), nulls=True),
            lambda call, args: distinct(fails(f), args, pl.Boolean(), nulls=True),
            refusal(f),
        ),
    )


def texts(usage: str, least: int) -> Resolver:
    """As many texts as there are; `least` at least."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        if len(args) < least or any(a.type not in (_TEXT, S.NULL) for a in args):
            return Refused(f"it takes {usage}")
        return Signature((_TEXT,) * len(args), _TEXT)

    return resolve


def _sized(bytes_of: Builder, build: Builder) -> Fallible:
    """What `build` makes, where that has not too many bytes."""

    def made(call: Call, args: list[pl.Expr]) -> pl.Expr:
        fits = (bytes_of(call, args) <= LARGEST).fill_null(True)
        return build(call, [pl.when(fits).then(args[0]), *args[1:]])

    return Fallible(made, lambda call, args: bytes_of(call, args) > LARGEST, TOO_LONG)


# ---------------------------------------------------------------------- cases

# where Polars gives more than one character, looks at the neighbours, or knows letters of later versions of Unicode
_NEWER = r"\x{A7C0}-\x{A7FF}\x{10D40}-\x{10D9F}\x{16EA0}-\x{16EDF}"
_NOT_LOWER = rf"[\x{{130}}\x{{3A3}}\x{{1C80}}-\x{{1C8F}}{_NEWER}]"
_NOT_UPPER = (
    r"[\x{DF}\x{149}\x{19B}\x{1F0}\x{264}\x{390}\x{3B0}\x{587}\x{1C80}-\x{1C8F}\x{1E96}-\x{1E9F}\x{1F50}-\x{1FFF}"
    rf"\x{{FB00}}-\x{{FB17}}{_NEWER}]"
)


def lower_of(text: str) -> str:
    return text.translate(LOWER)


def _cased(lower: bool) -> Callable[[pl.Series], pl.Series]:
    def of(s: pl.Series) -> pl.Series:
        made = s.str.to_lowercase() if lower else s.str.to_uppercase()
        other = s.str.contains(_NOT_LOWER if lower else _NOT_UPPER).fill_null(False)
        if other.any():  # slow path, for these only
            cases = LOWER if lower else UPPER
            made = made.scatter(other.arg_true(), [t.translate(cases) for t in s.filter(other).to_list()])
        return made.rename(s.name)

    return of


def lowered(text: pl.Expr) -> pl.Expr:
    return text.map_batches(_cased(True), return_dtype=pl.String(), is_elementwise=True)


def _upper(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].map_batches(_cased(False), return_dtype=pl.String(), is_elementwise=True)


def _initcap(text: str) -> str:
    out: list[str] = []
    inside = False
    for c in text:
        out.append(chr((LOWER if inside else UPPER)[ord(c)]))
        inside = is_word_part(c)
    return "".join(out)


# -------------------------------------------------------------------- lengths


def _octets(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return (args[0].bin.size() if call.args[0].type is S.BYTES else args[0].str.len_bytes()).cast(_INT)


def _length(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return _octets(call, args) if call.args[0].type is S.BYTES else args[0].str.len_chars().cast(_INT)


# ---------------------------------------------------------------------- parts


def _substr(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """From a position on, which may lie before the text: so many characters of it are none."""
    value, start = args[0], args[1].cast(pl.Int64)
    offset = pl.max_horizontal(start, 1) - 1
    there = value.is_not_null() & start.is_not_null()
    if len(args) == 2:
        found = value.bin.slice(offset) if call.type is S.BYTES else value.str.slice(offset)
        return pl.when(there).then(found)
    count = args[2].cast(pl.Int64)
    size = pl.when(count >= 0).then(pl.max_horizontal(start + count - 1 - offset, 0)).otherwise(0)
    found = value.bin.slice(offset, size) if call.type is S.BYTES else value.str.slice(offset, size)
    return pl.when(there & (count >= 0)).then(found)


def _substr_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if len(args) == 2:
        return pl.lit(False)
    return (args[2] < 0) & args[0].is_not_null() & args[1].is_not_null()


def _left(call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, n = args[0], args[1].cast(pl.Int64)
    size = pl.when(n < 0).then(pl.max_horizontal(_characters(text) + n, 0)).otherwise(n)
    return pl.when(n.is_not_null()).then(text.str.slice(0, size.fill_null(0)))


def _right(call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, n = args[0], args[1].cast(pl.Int64)
    # the least INTEGER has no positive one: PostgreSQL takes nothing away
    away = pl.when(n > -(2**31)).then(-n).otherwise(0)
    start = pl.when(n < 0).then(away).otherwise(pl.max_horizontal(_characters(text) - n, 0))
    return pl.when(n.is_not_null() & text.is_not_null()).then(text.str.slice(start.fill_null(0)))


def _strpos(call: Call, args: list[pl.Expr]) -> pl.Expr:
    value, part = args
    if call.args[0].type is S.BYTES:
        return rows(lambda v, p: v.find(p) + 1, args, _INT)
    before = value.str.split(part).list.first().str.len_chars().cast(_INT)
    found = pl.when(value.str.contains(part, literal=True)).then(before + 1).otherwise(0)
    both = value.is_not_null() & part.is_not_null()
    return pl.when(both & (part == "")).then(1).when(both).then(found).cast(_INT)


def _starts_with(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].str.starts_with(args[1])


def _split_part(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Counted from the end where the number is negative. An empty delimiter divides nothing."""
    text, by, n = args[0], args[1], args[2].cast(pl.Int64)
    at = pl.when(n > 0).then(n - 1).otherwise(n)
    part = text.str.split(by).list.get(at.fill_null(0), null_on_oob=True).fill_null("")
    alone = pl.when(n.abs() == 1).then(text).otherwise(pl.lit(""))
    there = text.is_not_null() & by.is_not_null() & (n != 0)
    return pl.when(there & (by == "")).then(alone).when(there).then(part)


def _split_part_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return (args[2] == 0) & args[0].is_not_null() & args[1].is_not_null()


# -------------------------------------------------------------------- changes


def _pad_bytes(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """How many bytes a padded text has at most."""
    text, length = args[0], args[1].cast(pl.Int64)
    fill = args[2] if len(args) == 3 else pl.lit(" ")
    missing = pl.max_horizontal(length - _characters(text), 0)
    each = _characters(fill)
    times = (missing + each - 1).floordiv(pl.when(each > 0).then(each))
    return _bytes(text) + times.fill_null(0) * _bytes(fill)


def _pad(left: bool) -> Builder:
    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        """What is too long is cut at its end. Nothing is padded with nothing."""
        text, length = args[0], pl.max_horizontal(args[1].cast(pl.Int64), 0)
        fill = args[2] if len(args) == 3 else pl.lit(" ")
        there = text.is_not_null() & args[1].is_not_null() & fill.is_not_null()
        length = pl.when(there).then(length).otherwise(0)
        by = " " if len(args) == 2 else constant(call.args[2])
        if isinstance(by, str) and len(by) == 1:
            out = text.str.pad_start(length, by) if left else text.str.pad_end(length, by)
        else:
            missing = pl.max_horizontal(length - _characters(text), 0)
            each = pl.when(_characters(fill) > 0).then(_characters(fill))
            times = pl.when(there).then((missing + each - 1).floordiv(each)).fill_null(0)
            more = fill.repeat_by(times).list.join("").str.slice(0, pl.when(there).then(missing).otherwise(0))
            out = pl.concat_str([more, text] if left else [text, more])
        return pl.when(there).then(out.str.slice(0, length))

    return build


def _trim(side: str) -> Builder:
    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        if call.type is S.BYTES:
            return rows(lambda value, these: getattr(value, f"{side}strip")(these), args, pl.Binary())
        of = args[0].str
        strip = {"l": of.strip_chars_start, "r": of.strip_chars_end, "": of.strip_chars}[side]
        if len(args) == 1:
            return strip()
        return pl.when(args[1].is_not_null()).then(strip(args[1]))

    return build


def _replace_bytes(call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, old, new = args
    text = pl.when(old.is_null() | True).then(text)  # a constant as long as `old`
    count = pl.when(old != "").then(text.str.count_matches(old, literal=True)).otherwise(0).cast(pl.Int64)
    return _bytes(text) + count * (_bytes(new) - _bytes(old))


def _replace(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """An empty text stands nowhere."""
    old, new = constant(call.args[1]), constant(call.args[2])
    if isinstance(old, str) and isinstance(new, str) and old:
        return args[0].str.replace_all(old, new, literal=True)
    # slow path: Polars replaces only constants
    return rows(lambda text, a, b: text.replace(a, b) if a else text, args, pl.String())


def _repeat_bytes(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return _bytes(args[0]) * pl.max_horizontal(args[1].cast(pl.Int64), 0)


def _repeat(call: Call, args: list[pl.Expr]) -> pl.Expr:
    text, n = args[0], pl.max_horizontal(args[1].cast(pl.Int64), 0)
    there = text.is_not_null() & args[1].is_not_null()
    count = pl.when(there & (text != "")).then(n).otherwise(0)
    return pl.when(there).then(text.repeat_by(count).list.join(""))


def _translate(text: str, these: str, others: str) -> str:
    known: dict[int, str] = {}
    for i, c in enumerate(these):
        known.setdefault(ord(c), others[i : i + 1])
    return fitting(text.translate(known))


def overlaid(value: str | bytes, new: str | bytes, start: int, count: int | None = None) -> str | bytes:
    """`new` in the place of `count` characters, or bytes; as many as it has itself."""
    if start <= 0:
        raise ValueError("negative substring length not allowed")
    rest = start + (len(new) if count is None else count)
    if rest >= 2**31 or rest < -(2**31):
        raise ValueError("integer out of range")
    tail = value[max(rest - 1, 0) :]
    if isinstance(value, str) and isinstance(new, str) and isinstance(tail, str):
        return fitting(value[: start - 1] + new + tail)
    assert isinstance(value, bytes) and isinstance(new, bytes) and isinstance(tail, bytes)
    made = value[: start - 1] + new + tail
    if len(made) > LARGEST:
        raise ValueError(TOO_LONG)
    return made


def _overlay(name: str) -> Function:
    """Of texts and of bytes: slow path."""
    forms = [((t, t, S.INT, S.INT)[:n], t) for t in (_TEXT, S.BYTES) for n in (3, 4)]
    resolve = takes("two texts or two BYTEA, a position, and maybe a length", *forms)
    of: dict[Type, Fallible] = {t: tried(overlaid, t) for t in (_TEXT, S.BYTES)}
    build = Fallible(
        lambda call, args: of[call.type](call, args),
        lambda call, args: of[call.type].failed(call, args),
        refusal(overlaid),
        lambda call, args: once(overlaid, args, polars_type(call.type)),
    )
    return row(name, resolve, build)


def _chr(code: int) -> str:
    if code == 0:
        raise ValueError("null character not permitted")
    if code < 0:
        raise ValueError("character number must be positive")
    if code > 0x10FFFF:
        raise ValueError(f"requested character too large for encoding: {code}")
    if 0xD800 <= code < 0xE000:
        raise ValueError(f"requested character not valid for encoding: {code}")
    return chr(code)


# ------------------------------------------------------- concatenation, arrays


def _all_bytes(call: Call, args: list[pl.Expr]) -> pl.Expr:
    size = [(a.bin.size() if call.type is S.BYTES else a.str.len_bytes()).cast(pl.Int64).fill_null(0) for a in args]
    return pl.sum_horizontal(size)


def _concat_ws_bytes(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return _all_bytes(call, args[1:]) + (len(args) - 2) * _bytes(args[0])


def _concat(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.concat_str([a.fill_null("") for a in args])


def _made_of_all(bytes_of: Builder, build: Builder) -> Fallible:
    """The same as `_sized`, where a null argument does not make the whole null."""

    def made(call: Call, args: list[pl.Expr]) -> pl.Expr:
        return pl.when((bytes_of(call, args) <= LARGEST).fill_null(True)).then(build(call, args))

    return Fallible(made, lambda call, args: bytes_of(call, args) > LARGEST, TOO_LONG)


def _concat_ws(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Nulls are left out, without a separator; a null separator gives null."""
    by = constant(call.args[0])
    if isinstance(by, str):
        return pl.concat_str(args[1:], separator=by, ignore_nulls=True)

    def join(by: str | None, *values: str | None) -> str | None:  # slow path: a separator of its own in every row
        return None if by is None else by.join(v for v in values if v is not None)

    return distinct(join, args, pl.String(), nulls=True)


def _together(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0] + args[1] if call.type is S.BYTES else pl.concat_str(args)


def _string_to_array(text: str | None, by: str | None, null: str | None = None) -> list[str | None] | None:
    """Without a delimiter each character is a part; an empty one divides nothing."""
    if text is None:
        return None
    if not text:
        return []
    parts = list(text) if by is None else text.split(by) if by else [text]
    return [None if p == null else p for p in parts]


def _array_to_string(values: list[str | None] | None, by: str | None, null: str | None = None) -> str | None:
    if values is None or by is None:
        return None
    return fitting(by.join(v if v is not None else null or "" for v in values if v is not None or null is not None))


def _array_to_string_row() -> Function:
    resolve = takes("an array of texts, a delimiter, and maybe a text for nulls",
                    ((_TEXTS, _TEXT), _TEXT), ((_TEXTS, _TEXT, _TEXT), _TEXT))  # fmt: skip

    def called(f: Callable[..., object], args: list[pl.Expr], t: pl.DataType) -> pl.Expr:
        return rows(f, args, t, nulls=True)  # lists are no keys of `distinct`

    return row(
        "ARRAY_TO_STRING ARRAY_JOIN",
        resolve,
        Fallible(
            lambda call, args: called(or_null(_array_to_string), args, pl.String()),
            lambda call, args: called(fails(_array_to_string), args, pl.Boolean()),
            refusal(_array_to_string),
        ),
    )


# ----------------------------------------------------------------------- rows

_one = takes("a text", ((_TEXT,), _TEXT))
_of_any = takes("a text or a BYTEA", ((_TEXT,), S.INT), ((S.BYTES,), S.INT))
_counted = takes("a text and a number of characters", ((_TEXT, S.INT), _TEXT))
_part = takes(
    "a text or a BYTEA, a position, and maybe a length",
    *(((t, S.INT, S.INT)[:n], t) for t in (_TEXT, S.BYTES) for n in (2, 3)),
)
_padded = takes("a text, a length, and maybe what to fill with",
                ((_TEXT, S.INT), _TEXT), ((_TEXT, S.INT, _TEXT), _TEXT))  # fmt: skip
_trimmed = takes("a text, and maybe the characters to take away, or two BYTEA",
                 ((_TEXT,), _TEXT), ((_TEXT, _TEXT), _TEXT), ((S.BYTES, S.BYTES), S.BYTES))  # fmt: skip
_three = takes("three texts", ((_TEXT,) * 3, _TEXT))
_zero = "field position must not be zero"
_negative = "negative substring length not allowed"

TEXT: dict[str, Function] = {
    f.name: f
    for f in (
        row("LOWER", _one, lambda call, args: lowered(args[0])),
        row("UPPER", _one, _upper),
        plain("INITCAP", "a text", [((_TEXT,), _TEXT)], _initcap),
        row("LENGTH", _of_any, _length),
        row("CHAR_LENGTH CHARACTER_LENGTH", takes("a text", ((_TEXT,), S.INT)), _length),
        row("OCTET_LENGTH", _of_any, _octets),
        row("BIT_LENGTH", _of_any, lambda call, args: _octets(call, args) * 8),
        row("SUBSTR SUBSTRING", _part, Fallible(_substr, _substr_failed, _negative)),
        row("LEFT", _counted, _left),
        row("RIGHT", _counted, _right),
        row("STRPOS", takes("two texts or two BYTEA", ((_TEXT,) * 2, S.INT), ((S.BYTES,) * 2, S.INT)), _strpos),
        row("STARTS_WITH", takes("two texts", ((_TEXT,) * 2, S.BOOLEAN)), _starts_with),
        row("SPLIT_PART", takes("a text, a delimiter and a number", ((_TEXT, _TEXT, S.INT), _TEXT)), 
            Fallible(_split_part, _split_part_failed, _zero)),
        row("LPAD", _padded, _sized(_pad_bytes, _pad(True))),
        row("RPAD", _padded, _sized(_pad_bytes, _pad(False))),
        row("LTRIM", _trimmed, _trim("l")),
        row("RTRIM", _trimmed, _trim("r")),
        row("BTRIM TRIM", _trimmed, _trim("")),
        row("REPLACE", _three, _sized(_replace_bytes, _replace)),
        row("REPEAT", _counted, _sized(_repeat_bytes, _repeat)),
        plain("REVERSE", "a text", [((_TEXT,), _TEXT)], lambda text: text[::-1]),
        plain("ASCII", "a text", [((_TEXT,), S.INT)], lambda text: ord(text[0]) if text else 0),
        plain("CHR", "an INTEGER", [((S.INT,), _TEXT)], _chr),
        plain("TRANSLATE", "three texts", [((_TEXT,) * 3, _TEXT)], _translate),
        _overlay("OVERLAY"),
        row("CONCAT", texts("one or more texts", 1), _made_of_all(_all_bytes, _concat)),
        row("CONCAT_WS", texts("a separator and one or more texts", 2), _made_of_all(_concat_ws_bytes, _concat_ws)),
        Function("pg.||", takes("two texts or two BYTEA", ((_TEXT,) * 2, _TEXT), ((S.BYTES,) * 2, S.BYTES)),
                 Fallible(_made_of_all(_all_bytes, _together), lambda call, args: pl.all_horizontal(
                     [a.is_not_null() for a in args]) & (_all_bytes(call, args) > LARGEST), TOO_LONG)),
        null_taking("STRING_TO_ARRAY", takes("a text, a delimiter, and maybe a text for nulls",
                    ((_TEXT,) * 2, _TEXTS), ((_TEXT,) * 3, _TEXTS)), _string_to_array, _TEXTS),
        _array_to_string_row(),
    )
}  # fmt: skip
