"""Values of a type: one table (`FORMS`), a row a type, by which every format and every file reads and writes them.

In: JSON values (as `json_text.loads` gives them), texts of fields, Python values, typed columns; their types. Out: the
same values as physical ones (`types.physical_type`), columns, JSON texts, texts of fields, Python values.
Rule: docs/files-and-topics.md, "Values", strictly: a numeric string is no number, 1.0 is no INTEGER, no digit is lost
or rounded. What a format adds (names, delimiters, quotes) stands in `codec` for JSON, else in `formats`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime as dt
import decimal
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import polars as pl

from braid.expr import casts, dates, jsonb_text
from braid.expr.json_text import RawNumber, compact, dumps, loads
from braid.expr.rows import distinct, runs
from braid.expr.signatures import or_null
from braid.records.facet import ISO, LENIENT, TEXTS, Manner
from braid.records.malformed import Malformed, a, not_one, shown
from braid.types import DAY_MS, MAX_DAY, MAX_TIME, TIMESTAMPS, Array, Decimal, Map, Scalar, Struct, Type, polars_type

S = Scalar
Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Form:
    """The forms of one type's values. `Any` is the type itself: of those with parameters there are many.

    `from_json`: a reader of JSON values that are not null; it raises `Malformed`. `to_json`, `to_text`: a column as
    texts, null as null. `from_text`: a column of texts, null where one does not fit. `to_python`: what the test driver
    shows of a JSON value. (What it is given tells its own type: `json_value`.)
    """

    from_json: Callable[[Any, Manner], Reader]
    to_json: Callable[[pl.Series, Any, bool], pl.Series]
    from_text: Callable[[pl.Expr, Any, bool], pl.Expr] | None
    to_text: Callable[[pl.Series, Any], pl.Series] | None
    to_python: Callable[[Any, Any, bool], object]


@dataclass(frozen=True, slots=True)
class Whole:
    """Values that JSON has as whole numbers, from `low` to before `high`; `unit`: physical units in one."""

    low: int
    high: int
    unit: int = 1


WHOLE = {
    S.SMALLINT: Whole(-(2**15), 2**15),
    S.INT: Whole(-(2**31), 2**31),
    S.BIGINT: Whole(-(2**63), 2**63),
    S.DATE: Whole(-MAX_DAY, MAX_DAY),
    S.TIME: Whole(0, DAY_MS, 1_000_000),
    S.TIMESTAMP: Whole(-MAX_TIME, MAX_TIME, 1000),
    S.TIMESTAMPTZ: Whole(-MAX_TIME, MAX_TIME, 1000),
}
MOMENTS = (S.DATE, S.TIME, *TIMESTAMPS)
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
EXACT = decimal.Context(prec=2000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
EXACT.traps[decimal.Inexact] = True
_DIGITS = re.compile(r"[-+]?[0-9]{1,20}")
_FLOAT = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")
MAX_DIGITS = 20  # of whole numbers
EPOCH = dt.datetime(1970, 1, 1)
FIRST_DAY, LAST_DAY = ((d - EPOCH.date()).days for d in (dt.date.min, dt.date.max))


def form(t: Type) -> Form:
    return FORMS[t if isinstance(t, Scalar) else type(t)]


# ---------------------------------------------------------------- JSON values


_WRITTEN = {
    S.DATE: "days since 1970, as 19783",
    S.TIME: "milliseconds of the day, as 28800000",
    **dict.fromkeys(TIMESTAMPS, "milliseconds since 1970, as 1709280000000"),
}


def _no_moment(value: Any, t: Scalar) -> Malformed:
    """Says what a date or a time is written as, where texts are none."""
    return Malformed(f"{shown(value)} is not {a(t)}: write {_WRITTEN[t]}")


def find(fields: Mapping[str, Any], name: str, folded: dict[str, str]) -> Any:
    """The field `name`: an exact match first, then one without case (the first that was written)."""
    if name in fields:
        return fields[name]
    if not folded:
        for k in fields:
            folded.setdefault(k.lower(), k)
    match = folded.get(name.lower())
    return None if match is None else fields[match]


def reader(t: Type, manner: Manner = "plain") -> Reader:
    """A function from a JSON value that is not null to the physical value of `t`; it raises `Malformed`."""
    return form(t).from_json(t, manner)


def read_at(step: str, read: Reader, value: Any) -> Any:
    """The value of a field, null or not; what is wrong with it tells the `step` to it."""
    if value is None:
        return None
    try:
        return read(value)
    except Malformed as e:
        raise e.inside(step) from None


def _boolean(value: Any) -> Any:
    if type(value) is bool:
        return value
    raise not_one(value, S.BOOLEAN)


def _whole(t: Scalar, manner: Manner) -> Reader:
    low, high, unit = WHOLE[t].low, WHOLE[t].high, WHOLE[t].unit
    iso, texts, lenient = manner in ISO and t in MOMENTS, manner in TEXTS, manner in LENIENT

    def read(value: Any) -> Any:
        if type(value) is not int:
            found = iso_value(value, t) if iso and type(value) is str else None
            if found is not None:
                return found
            number = _whole_part(value, lenient) if texts else None
            if number is None:
                raise not_one(value, t) if iso or t not in _WRITTEN else _no_moment(value, t)
            value = number
        if not low <= value < high:
            raise Malformed(f"{shown(value)} is out of range for {t}")
        return value * unit

    return read


def _whole_part(value: Any, fractions: bool) -> int | None:
    """Of a number in a text; with `fractions` of one that has some."""
    if type(value) is str:
        return int(value) if _DIGITS.fullmatch(value) else None
    if type(value) is not RawNumber or not fractions:
        return None
    number = decimal.Decimal(value)
    return int(number) if number.adjusted() < MAX_DIGITS else 10**MAX_DIGITS


def iso_value(text: str, t: Scalar) -> int | None:
    """The physical value of one text as `dates.parse_iso` reads it."""
    common = dates.plain_timestamp(text.removesuffix("Z").replace(" ", "T", 1)) if t in TIMESTAMPS else None
    return _iso_value(text, t) if common is None else (common - EPOCH) // dt.timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def _iso_value(text: str, t: Scalar) -> int | None:
    found = pl.DataFrame({"x": [text]}).select(dates.parse_iso(pl.col("x"), t)).to_series().to_physical()[0]
    return None if found is None else int(found)


def _float(t: Type, manner: Manner) -> Reader:
    number = _double if t is S.DOUBLE else _single

    def read(value: Any) -> Any:
        kind = type(value)
        if kind is int or kind is RawNumber:
            found = number(value)
            if math.isinf(found):
                raise Malformed(f"{shown(value)} is out of range for {t}")
            return found
        if kind is str and value in _SPECIAL:
            return _SPECIAL[value]
        raise not_one(value, t)

    def in_text(value: Any) -> Any:
        return read(RawNumber(value.strip()) if type(value) is str and _FLOAT.fullmatch(value) else value)

    return in_text if manner in TEXTS else read


def _double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _single(value: Any) -> float:
    """The single that is nearest to a number as it is written. From a double on the way, two roundings would be one too
    many: an odd last bit keeps the second one from a tie."""
    number = _double(value)
    if len(str(value)) > 15 and math.isfinite(number) and (rest := decimal.Decimal(value) - decimal.Decimal(number)):
        (bits,) = struct.unpack("<q", struct.pack("<d", number))
        if bits % 2 == 0:
            number = math.nextafter(number, math.copysign(math.inf, rest))
    return single(number)


def single(number: float) -> float:
    """A double as a single; infinite where it is too large for one."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _text(value: Any) -> Any:
    text = value if type(value) is str else compact(value)
    # half a surrogate pair (an escape like \ud83d) has no UTF-8
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _document(value: Any) -> Any:
    try:
        return jsonb_text.written(value)
    except ValueError as e:
        raise Malformed(f"{shown(value)}: {e}") from None


def _bytes(value: Any) -> Any:
    if type(value) is not str:
        raise not_one(value, S.BYTES)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"{shown(value)} is not base64") from None


def _decimal(t: Decimal, manner: Manner) -> Reader:
    top = decimal.Decimal(10) ** (t.precision - t.scale)
    unit = decimal.Decimal(1).scaleb(-t.scale)

    def read(value: Any) -> Any:
        if type(value) not in (int, str, RawNumber):
            raise not_one(value, t)
        try:
            number = EXACT.create_decimal(str(value))
            if not number.is_finite() or (type(value) is str and not re.fullmatch(r"[-+.0-9eE]+", value)):
                raise not_one(value, t)
            if number.adjusted() <= t.precision and number.copy_abs() < top:
                return EXACT.quantize(number, unit)
        except decimal.Inexact:
            pass
        except decimal.InvalidOperation:
            raise not_one(value, t) from None
        raise Malformed(f"{shown(value)} has too many digits for {t}")

    return read


def _array(t: Array, manner: Manner) -> Reader:
    element = reader(t.element, manner)

    def read(value: Any) -> Any:
        if type(value) is not list:
            raise not_one(value, t)
        try:
            return [None if v is None else element(v) for v in value]
        except Malformed:
            return [read_at(f"[{i}]", element, v) for i, v in enumerate(value, 1)]

    return read


def _map(t: Map, manner: Manner) -> Reader:
    key, item = reader(t.key, manner), reader(t.value, manner)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise not_one(value, t)
        out = []
        for k, v in value.items():
            try:
                simple = _key_value(k, t.key)
                out.append({"key": None if simple is None else key(simple), "value": None if v is None else item(v)})
            except Malformed as e:
                raise e.inside(f"[{k!r}]") from None
        return out

    return read


def _key_value(text: str, t: Type) -> Any:
    """The JSON value of a map key that is not text."""
    if t in (S.VARCHAR, S.BYTES) or isinstance(t, Decimal):
        return text
    try:
        return loads(text)
    except ValueError:
        return text


def _struct(t: Struct, manner: Manner) -> Reader:
    fields = [(f.name, reader(f.type, manner)) for f in t.fields]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise not_one(value, t)
        folded: dict[str, str] = {}
        return {name: read_at(name, field, find(value, name, folded)) for name, field in fields}

    return read


# ----------------------------------------------------------------- JSON texts

_ESCAPES = {chr(c): json.dumps(chr(c))[1:-1] for c in (*range(32), 34, 92)}
_ODD = r'["\\\x00-\x1f]'


def json_text(s: pl.Series, t: Type, *, key: bool = False) -> pl.Series:
    """Each value as JSON text, as `json_text.dumps` writes it; null as null. With `key`, -0.0 is written as 0.0
    (canonical key bytes)."""
    return form(t).to_json(s, t, key)


def json_object(names: Sequence[str], texts: Sequence[pl.Series | str], height: int) -> pl.Series:
    """One JSON object per row from the JSON texts of its fields; null fields are written. A text: of all rows."""
    fields, parts, plain = dict[str, pl.Series](), list[pl.Expr](), "{"
    for i, (name, text) in enumerate(zip(names, texts, strict=True)):
        plain += f"{',' if i else ''}{dumps(name)}:{text if isinstance(text, str) else ''}"
        if not isinstance(text, str):
            fields[str(i)] = text
            parts += [pl.lit(plain), pl.col(str(i)).fill_null("null") if text.null_count() else pl.col(str(i))]
            plain = ""
    made = pl.DataFrame(fields).select(pl.concat_str([*parts, pl.lit(plain + "}")]).alias("value")).to_series()
    return made if fields else made.new_from_index(0, height)


def _quoted(s: pl.Series) -> pl.Series:
    return s.to_frame("s").select(pl.concat_str([pl.lit('"'), pl.col("s"), pl.lit('"')])).to_series().rename(s.name)


def _json_string(s: pl.Series, t: Type, key: bool) -> pl.Series:
    if (found := runs([s])) is not None:
        first, run = found
        return _written(s.gather(first)).gather(run)
    return _written(s)


def _written(s: pl.Series) -> pl.Series:
    if s.str.contains(_ODD).any():
        s = s.str.replace_many(list(_ESCAPES), list(_ESCAPES.values()))
    return _quoted(s)


def _json_double(s: pl.Series, t: Type, key: bool) -> pl.Series:
    """Python's repr; Python rows only where it needs an exponent."""
    s = s.set(s == 0, 0.0) if key else s
    size = s.abs()
    odd = ((size < 1e-4) & (size > 0)) | (size >= 1e16) | ~s.is_finite()
    return casts.where(odd, lambda v: dumps(plain_double(v)), s, s.cast(pl.String))


def shortest(s: pl.Series) -> pl.Series:
    """Doubles with the fewest digits that give the singles again: 1.1 for what is 1.100000023841858."""
    return s.cast(pl.String).cast(pl.Float64)


def fewest_digits(value: float) -> float:
    """The same of one value; one that no single is stays as it is."""
    return shortest(pl.Series([value], dtype=pl.Float32))[0] if single(value) == value else value


def plain_double(value: float) -> float | str:
    """A double in its JSON form: what JSON has no number for is text."""
    return value if math.isfinite(value) else casts.java_double(value)


def _json_struct(s: pl.Series, t: Struct, key: bool) -> pl.Series:
    frame = s.struct.unnest() if t.fields else pl.DataFrame(height=len(s))
    parts = [json_text(frame.get_column(f.name), f.type, key=key) for f in t.fields]
    text = json_object([f.name for f in t.fields], parts, len(s))
    return text.set(s.is_null(), None) if s.null_count() else text


def _json_array(s: pl.Series, t: Array, key: bool) -> pl.Series:
    at, inside = elements(s)
    return lists(s, "[]", at, json_text(inside, t.element, key=key).fill_null("null"))


def _json_map(s: pl.Series, t: Map, key: bool) -> pl.Series:
    """Of keys that have one text the last value counts, in the place of the first."""
    at, entries = elements(s)
    names = json_text(entries.struct.field("key"), t.key).fill_null("null")
    plain = names.str.starts_with('"')
    if not plain.all():
        names = names.zip_with(plain, _json_string(names, S.VARCHAR, False))
    items = json_text(entries.struct.field("value"), t.value, key=key).fill_null("null")
    pairs = pl.DataFrame([at.alias("n"), names.alias("k"), items.alias("v")])
    pairs = pairs.group_by("n", "k", maintain_order=True).agg(pl.col("v").last())
    return lists(s, "{}", pairs["n"], pairs.select(pl.concat_str("k", pl.lit(":"), "v")).to_series())


def elements(s: pl.Series) -> tuple[pl.Series, pl.Series]:
    """All elements of all lists, behind the row of each."""
    frame = pl.DataFrame([pl.int_range(len(s), eager=True).alias("n"), s.alias("v")])
    frame = frame.filter(pl.col("v").list.len() > 0).explode("v")
    return frame["n"], frame["v"]


def lists(s: pl.Series, brackets: str, at: pl.Series, texts: pl.Series) -> pl.Series:
    """The lists again, of the texts of their elements."""
    frame = pl.DataFrame([at.alias("n"), texts.alias("t")])
    found = frame.group_by("n", maintain_order=True).agg(pl.col("t").str.join(","))
    text = pl.concat_str(pl.lit(brackets[0]), "t", pl.lit(brackets[1]))
    out = pl.repeat(brackets, len(s), dtype=pl.String, eager=True).scatter(found["n"], found.select(text).to_series())
    return out.set(s.is_null(), None).rename(s.name)


# ------------------------------------------------------------ texts of fields

_WHOLE_TEXT = r"^[+-]?[0-9]+(?:\.0*)?$"


def _cast_from(x: pl.Expr, t: Type, lenient: bool) -> pl.Expr:
    return casts.cast(x, S.VARCHAR, t)


def _cast_to(s: pl.Series, t: Type) -> pl.Series:
    return s.cast(pl.String)


def _boolean_from(x: pl.Expr, t: Type, lenient: bool) -> pl.Expr:
    known = {"true": True, "false": False}
    return x.str.strip_chars().str.to_lowercase().replace_strict(known, default=None, return_dtype=pl.Boolean)


def _bytes_from(x: pl.Expr, t: Type, lenient: bool) -> pl.Expr:
    return x.str.strip_chars().str.decode("base64", strict=False)


def _whole_from(x: pl.Expr, t: Type, lenient: bool) -> pl.Expr:
    return (
        _without_point(x.str.strip_chars()).cast(polars_type(t), strict=False) if lenient else _cast_from(x, t, False)
    )


def _without_point(x: pl.Expr) -> pl.Expr:
    """Text of a whole number without its point; else null."""
    return pl.when(x.str.contains(_WHOLE_TEXT)).then(x.str.replace(r"\.0*$", "").str.replace(r"^\+", ""))


def _float_from(x: pl.Expr, t: Type, lenient: bool) -> pl.Expr:
    text = x.str.strip_chars() if lenient else x
    number = _cast_from(text, t, lenient)
    too_large = number.is_infinite() & ~text.str.contains("Infinity", literal=True)
    return pl.when(~too_large).then(number) if lenient else number


def _decimal_from(x: pl.Expr, t: Decimal, lenient: bool) -> pl.Expr:
    lost = x.str.contains(rf"^[^eE]*\.[0-9]{{{t.scale}}}[0-9]*[1-9]")
    exact = x.map_batches(lambda s: _with_exponents(s, t), return_dtype=polars_type(t), is_elementwise=True)
    return pl.when(x.str.contains("[eE]")).then(exact).when(~lost).then(_cast_from(x, t, lenient))


def _with_exponents(s: pl.Series, t: Decimal) -> pl.Series:
    """Slow path (Python rows): those of the texts that have one, null where one does not fit."""
    found: list[Any] = [None] * len(s)
    read = _decimal(t, "plain")
    for i in s.str.contains("[eE]").fill_null(False).arg_true():
        with contextlib.suppress(Malformed):
            found[i] = read(s[i].strip())
    return pl.Series(s.name, found, dtype=polars_type(t))


def _moment_from(x: pl.Expr, t: Scalar, lenient: bool) -> pl.Expr:
    text = number = x.str.strip_chars()
    if lenient:  # four digits are a year
        number = _without_point(pl.when(text.str.len_bytes() > 4).then(text) if t in TIMESTAMPS else text)
    found = dates.OF_NUMBER[t](number.cast(pl.Int64, strict=False))
    return pl.coalesce(found, dates.parse_iso(text, t)) if lenient else found


def _moment_to(s: pl.Series, t: Scalar) -> pl.Series:
    return (s.to_physical() // WHOLE[t].unit).cast(pl.String)


# ------------------------------------------------- Python values of the driver


def python_value(value: Any, t: Type, time_as_int: bool) -> object:
    """A JSON value in the Python form of `t`; with `time_as_int` DATE, TIME and TIMESTAMP stay numbers, as do
    those that Python has no date for (years before 1 and after 9999)."""
    return None if value is None else form(t).to_python(value, t, time_as_int)


def _itself(value: Any, t: Type, ints: bool) -> object:
    return value


def _python_text(value: Any, t: Type, ints: bool) -> object:
    return value if type(value) is str else compact(value)


def _python_moment(value: Any, t: Scalar, ints: bool) -> object:
    if type(value) is str:
        number = iso_value(value, t)
        if number is None:
            return value
        value = number // WHOLE[t].unit
    unit, per_day = ("days", 1) if t is S.DATE else ("milliseconds", DAY_MS)
    if ints or not FIRST_DAY * per_day <= value < (LAST_DAY + 1) * per_day:
        return value
    at = EPOCH + dt.timedelta(**{unit: value})
    return at.date() if t is S.DATE else at.time() if t is S.TIME else at


def _python_map(value: Any, t: Map, ints: bool) -> object:
    entries = ((_key_value(k, t.key), v) for k, v in value.items())
    return {python_value(k, t.key, ints): python_value(v, t.value, ints) for k, v in entries}


def _python_struct(value: Any, t: Struct, ints: bool) -> object:
    folded: dict[str, str] = {}
    return {f.name: python_value(find(value, f.name, folded), f.type, ints) for f in t.fields}


# ------------------------------------------------------------------ the table


def _bare(s: pl.Series, t: Type, key: bool) -> pl.Series:
    """JSON's text is that of a field."""
    write = form(t).to_text
    assert write is not None
    return write(s, t)


def _in_quotes(s: pl.Series, t: Type, key: bool) -> pl.Series:
    return _quoted(_bare(s, t, key))


def _always(read: Reader) -> Callable[[Any, Manner], Reader]:
    return lambda t, manner: read


_NUMBER = Form(_whole, _bare, _whole_from, _cast_to, _itself)
_MOMENT = Form(_whole, _bare, _moment_from, _moment_to, _python_moment)
FORMS: dict[Scalar | type, Form] = {
    # from JSON, to JSON, from text, to text, to Python
    S.NULL: Form(_always(lambda v: None), _bare, None, _cast_to, _itself),
    S.BOOLEAN: Form(_always(_boolean), _bare, _boolean_from, _cast_to, _itself),
    S.SMALLINT: _NUMBER,
    S.INT: _NUMBER,
    S.BIGINT: _NUMBER,
    S.REAL: Form(
        _float, lambda s, t, key: _json_double(shortest(s), t, key), _float_from,
        lambda s, t: casts.java_doubles(shortest(s)), lambda v, t, ints: float(v),
    ),
    S.DOUBLE: Form(
        _float, _json_double, _float_from, lambda s, t: casts.java_doubles(s), lambda v, t, ints: float(v)
    ),
    S.VARCHAR: Form(_always(_text), _json_string, lambda x, t, lenient: x, lambda s, t: s, _python_text),
    S.JSONB: Form(
        _always(_document), _bare, lambda x, t, lenient: distinct(or_null(jsonb_text.document), [x], pl.String()),
        lambda s, t: s, lambda v, t, ints: jsonb_text.written(v),
    ),
    S.BYTES: Form(
        _always(_bytes), _in_quotes, _bytes_from, lambda s, t: s.bin.encode("base64"),
        lambda v, t, ints: base64.b64decode(v),
    ),
    S.DATE: _MOMENT,
    S.TIME: _MOMENT,
    S.TIMESTAMP: _MOMENT,
    S.TIMESTAMPTZ: _MOMENT,
    Decimal: Form(_decimal, _in_quotes, _decimal_from, _cast_to, lambda v, t, ints: decimal.Decimal(str(v))),
    Array: Form(_array, _json_array, None, None, lambda v, t, ints: [python_value(x, t.element, ints) for x in v]),
    Map: Form(_map, _json_map, None, None, _python_map),
    Struct: Form(_struct, _json_struct, None, None, _python_struct),
}  # fmt: skip
