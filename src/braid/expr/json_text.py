"""JSON text: reading it without loss, and writing columns of typed values as it.

In: JSON text; Polars series with their types. Out: Python values; series of JSON text.
Rule: the truth for every text written is `json.dumps(x, ensure_ascii=False, separators=(",", ":"))`, of the value as in
docs/files-and-topics.md, "Values". Numbers with a point or an exponent are read as their text, so nothing is rounded.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

import polars as pl

from braid.types import Array, Decimal, Map, Scalar, Struct, Type, physical_type

S = Scalar


class RawNumber(str):
    """The text of a JSON number that is not an integer."""

    __slots__ = ()


def _constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_float=RawNumber, parse_constant=_constant)
_LONG_DECODER = json.JSONDecoder(parse_float=RawNumber, parse_int=RawNumber, parse_constant=_constant)
MAX_DEPTH = 200


def loads(text: str, *, to_end: bool = True) -> Any:
    """The JSON value of `text`; ValueError for anything that is not JSON, or is nested more than `MAX_DEPTH` deep.
    `to_end` false: what stands behind the value is not looked at."""
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise ValueError("the JSON is nested too deeply")
    try:
        return _DECODER.decode(text) if to_end else _DECODER.raw_decode(text.lstrip(" \t\r\n"))[0]
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than Python converts (or NaN, which fails again)
        return _LONG_DECODER.decode(text)


def _depth(text: str) -> int:
    """How deep brackets nest, outside strings."""
    deepest = depth = 0
    for token in re.findall(r'"(?:[^"\\]|\\.)*"?|[\[{\]}]', text, re.DOTALL):
        if token in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in "]}":
            depth -= 1
    return deepest


def dumps(value: object) -> str:
    """Compact JSON text of plain Python values."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def compact(value: Any) -> str:
    """Compact JSON text of what `loads` gave, numbers as they were written."""
    match value:
        case RawNumber():
            return str(value)
        case dict():
            return "{" + ",".join(f"{dumps(k)}:{compact(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(compact, value)) + "]"
        case _:
            return dumps(value)


# ------------------------------------------------------------------- writing

_ESCAPES = {chr(c): json.dumps(chr(c))[1:-1] for c in (*range(32), 34, 92)}
_ODD = r'["\\\x00-\x1f]'


def json_text(s: pl.Series, t: Type, *, key: bool = False) -> pl.Series:
    """Each value as JSON text, null as null. With `key`, -0.0 is written as 0.0 (canonical key bytes)."""
    match t:
        case S.BOOLEAN | S.INT | S.BIGINT | S.NULL:
            return s.cast(pl.String)
        case S.DOUBLE:
            return _doubles(s.set(s == 0, 0.0) if key else s)
        case S.VARCHAR:
            if s.str.contains(_ODD).any():
                s = s.str.replace_many(list(_ESCAPES), list(_ESCAPES.values()))
            return _quoted(s)
        case Decimal():
            return _quoted(s.cast(pl.String))
        case S.BYTES:
            return _quoted(s.bin.encode("base64"))
        case S.DATE:
            return s.cast(pl.Int32).cast(pl.String)
        case S.TIME:
            return (s.cast(pl.Int64) // 1_000_000).cast(pl.String)
        case S.TIMESTAMP:
            return s.dt.epoch("ms").cast(pl.String)
        case Struct(fields):
            frame = s.struct.unnest() if fields else pl.DataFrame(height=len(s))
            parts = [json_text(frame.get_column(f.name), f.type, key=key) for f in fields]
            text = json_object([f.name for f in fields], parts, len(s))
            return text.set(s.is_null(), None) if s.null_count() else text
        case Array() | Map():  # slow path: Python rows
            values = s.cast(physical_type(t)).to_list()  # Python has no dates after the year 9999
            return pl.Series(s.name, [None if v is None else dumps(plain(v, t, key=key)) for v in values], pl.String)


def json_object(names: list[str], texts: list[pl.Series], height: int) -> pl.Series:
    """One JSON object per row from the JSON texts of its fields; null fields are written."""
    if not names:
        return pl.Series("value", ["{}"] * height, dtype=pl.String)
    parts: list[pl.Expr] = []
    for i, name in enumerate(names):
        parts.append(pl.lit(f"{',' if i else '{'}{dumps(name)}:"))
        parts.append(pl.col(str(i)).fill_null("null") if texts[i].null_count() else pl.col(str(i)))
    parts.append(pl.lit("}"))
    frame = pl.DataFrame([t.alias(str(i)) for i, t in enumerate(texts)])
    return frame.select(pl.concat_str(parts).alias("value")).to_series()


def _quoted(s: pl.Series) -> pl.Series:
    return s.to_frame("s").select(pl.concat_str([pl.lit('"'), pl.col("s"), pl.lit('"')])).to_series().rename(s.name)


def _doubles(s: pl.Series) -> pl.Series:
    """Python's repr; Python rows only where it needs an exponent."""
    size = s.abs()
    text = s.cast(pl.String)
    odd = ((size < 1e-4) & (size > 0)) | (size >= 1e16) | ~s.is_finite()
    if not odd.any():
        return text
    where = odd.arg_true()
    return text.scatter(where, [dumps(plain_double(v)) for v in s.gather(where).to_list()])


def plain_double(value: float) -> float | str:
    """A double in its JSON form: what JSON has no number for is text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def plain(value: Any, t: Type, *, key: bool = False) -> Any:
    """A value as Polars gives it to Python, dates and times as their numbers, in its JSON form."""
    if value is None:
        return None
    match t:
        case S.DOUBLE:
            return plain_double(value + 0.0 if key else value)
        case Decimal():
            return format(value, "f")
        case S.BYTES:
            return base64.b64encode(value).decode()
        case S.DATE:
            return value
        case S.TIME:
            return value // 1_000_000
        case S.TIMESTAMP:
            return value // 1000
        case Array(element):
            return [plain(v, element, key=key) for v in value]
        case Map(k, v):
            return {map_key(plain(e["key"], k)): plain(e["value"], v, key=key) for e in value}
        case Struct(fields):
            return {f.name: plain(value[f.name], f.type, key=key) for f in fields}
        case _:
            return value


def map_key(simple: Any) -> str:
    """The name that a map key, in its JSON form, gets in a JSON object."""
    return simple if isinstance(simple, str) else dumps(simple)
