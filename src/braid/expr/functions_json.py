"""Functions of JSON in texts.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: ksqlDB's meaning. Null in, null out, unless the row says otherwise; a text that is no JSON makes the row fail. All
but TO_JSON_STRING run on Python rows, once for equal texts: JSON has any shape. Numbers stay as they were written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import polars as pl

from braid.expr.casts import to_text, where
from braid.expr.json_text import RawNumber, compact, dumps, loads
from braid.expr.nodes import Call, Expr
from braid.expr.rows import LARGEST, distinct
from braid.expr.signatures import Function, Refused, Signature, constant, forms, tried
from braid.types import Array, Decimal, Map, Scalar, Struct, Type

S = Scalar
NO_JSON = "it is not JSON, or not of that kind"
_TEXT = S.VARCHAR

# ------------------------------------------------------------------------ paths


@lru_cache(maxsize=1000)
def json_path(path: str) -> tuple[str, ...] | None:
    """The steps of `$.a.b[0]['c']`; None if it is not such a path."""
    if not path.startswith("$"):
        return None
    steps: list[str] = []
    i = 1
    while i < len(path):
        if path[i] == ".":
            end = i + 1
            while end < len(path) and path[end] not in ".[":
                end += 1
            step, i = path[i + 1 : end], end
        elif path[i] == "[":
            quote = path[i + 1 : i + 2]
            close = path.find(f"{quote}]" if quote in ("'", '"') else "]", i + 2)
            if close < 0:
                return None
            quoted = quote in ("'", '"')
            step, i = (path[i + 2 : close], close + 2) if quoted else (path[i + 1 : close].strip(), close + 1)
        else:
            return None
        if step in ("", "*"):
            return None
        steps.append(step)
    return tuple(steps)


def _resolve_extract(args: Sequence[Expr]) -> Signature | Refused:
    path = constant(args[1]) if len(args) == 2 else None
    if isinstance(path, str) and json_path(path) is None:
        return Refused(f"{path!r} is not a path to one value", "write it as '$.log.cloud' or '$.items[0].name'")
    return forms("a VARCHAR of JSON and a VARCHAR path", ((S.VARCHAR, S.VARCHAR), S.VARCHAR))(args)


def _extract(text: str, path: str) -> str | None:
    """Slow path (Python rows): JSON of any shape."""
    if _is_nothing(text):
        return None
    value, steps = loads(text, to_end=False), json_path(path)
    if steps is None:
        raise ValueError("not a path to one value")
    for step in steps:
        if isinstance(value, dict):
            if step not in value:
                return None
            value = value[step]
        elif isinstance(value, list):
            if not step.isdecimal() or int(step) >= len(value):
                return None
            value = value[int(step)]
        else:
            return None
    return value if type(value) is str else compact(value)


# ------------------------------------------------------------------------ parts


def _is_nothing(text: str) -> bool:
    """A text of blanks holds no value, which is no error: what is asked of it is null."""
    return not text.strip(" \t\r\n")


def _value_of(text: str) -> Any:
    return None if _is_nothing(text) else loads(text)


def _is_json(text: str | None) -> bool:
    try:
        loads(text or "")
    except ValueError:
        return False
    return True


def _length(text: str) -> int | None:
    value = _value_of(text)
    return len(value) if isinstance(value, list) else None


def _keys(text: str) -> list[str] | None:
    value = _value_of(text)
    return list(value) if isinstance(value, dict) else None


def _records(text: str) -> list[dict[str, str]] | None:
    value = _value_of(text)
    return [{"key": k, "value": compact(v)} for k, v in value.items()] if isinstance(value, dict) else None


def _items(text: str) -> list[str] | None:
    """Of an array of objects."""
    value = loads(text)
    if not isinstance(value, list):
        raise ValueError("not an array")
    return [compact(v) for v in value] if all(isinstance(v, dict) for v in value) else None


def _concatenated(*texts: str) -> str | None:
    """Objects make one object, others are elements of one array; null for a text that is no JSON."""
    if any(t is None or _is_nothing(t) for t in texts):
        return None
    values = [loads(t) for t in texts]
    if sum(map(len, texts)) > LARGEST:
        raise ValueError("the text is too long")
    if all(isinstance(v, dict) for v in values):
        return compact({k: v for value in values for k, v in value.items()})
    return compact([v for value in values for v in (value if isinstance(value, list) else [value])])


def _resolve_concat(args: Sequence[Expr]) -> Signature | Refused:
    if not args or any(a.type not in (_TEXT, S.NULL) for a in args):
        return Refused("it takes VARCHARs of JSON")
    return Signature((_TEXT,) * len(args), _TEXT)


def _resolve_contains(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) == 2 and args[0].type in (_TEXT, S.NULL):
        t = args[1].type
        if t in (S.BOOLEAN, S.INT, S.BIGINT, S.DOUBLE, _TEXT, S.NULL):
            return Signature((_TEXT, t), S.BOOLEAN)
    return Refused("it takes a VARCHAR of JSON, and a number, VARCHAR or BOOLEAN", "CAST a DECIMAL to DOUBLE")


def _contains(text: str | None, value: Any) -> bool | None:
    """A whole number is found among those written without a point, a DOUBLE among the others. False for no array."""
    try:
        array = None if text is None else loads(text, to_end=False)
    except ValueError:
        return False
    if text is None or not isinstance(array, list):
        return None if text is None else False
    if isinstance(value, float):
        return any(isinstance(v, RawNumber) and float(v) == value for v in array)
    return any(type(v) is type(value) and v == value for v in array)


# ------------------------------------------------------------------------- text


def _to_json(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return json_of(args[0], call.args[0].type).fill_null("null")


def json_of(x: pl.Expr, t: Type) -> pl.Expr:
    """Null for a null. Fields and keys stand in the order of their names, as ksqlDB has them."""
    match t:
        case S.BOOLEAN | S.INT | S.BIGINT | S.NULL | Decimal():
            return x.cast(pl.String)
        case S.DOUBLE:
            text = to_text(x, t)
            return pl.when(x.is_finite()).then(text).otherwise('"' + text + '"')
        case S.VARCHAR:
            return x.map_batches(_quoted, return_dtype=pl.String(), is_elementwise=True)
        case S.BYTES:
            return '"' + x.bin.encode("base64") + '"'
        case Array(element):
            return "[" + x.list.eval(json_of(pl.element(), element).fill_null("null")).list.join(",") + "]"
        case Map(key, item):
            k, v = pl.element().struct.field("key"), pl.element().struct.field("value")
            name = json_of(k, key) if key is _TEXT else '"' + json_of(k, key).str.strip_chars('"') + '"'
            last = k.is_last_distinct()
            pairs = (name + ":" + json_of(v, item).fill_null("null")).filter(last).sort_by(k.filter(last))
            return "{" + x.list.eval(pairs).list.join(",") + "}"
        case Struct(fields):
            ordered = sorted(fields, key=lambda f: f.name)
            parts = [dumps(f.name) + ":" + json_of(x.struct.field(f.name), f.type).fill_null("null") for f in ordered]
            return pl.when(x.is_not_null()).then("{" + pl.concat_str(parts, separator=",") + "}")
    return '"' + to_text(x, t) + '"'


def _quoted(s: pl.Series) -> pl.Series:
    """Python rows only where something is escaped."""
    odd = s.str.contains(r'[\x00-\x1f"\\]').fill_null(False)
    return where(odd, dumps, s, '"' + s + '"')


_RECORDS = Map(_TEXT, _TEXT)

JSON_FUNCTIONS = {
    f.name: f
    for f in (
        Function("EXTRACTJSONFIELD", _resolve_extract, tried(_extract, _TEXT, NO_JSON)),
        Function(
            "IS_JSON_STRING",
            forms("a VARCHAR", ((_TEXT,), S.BOOLEAN)),
            lambda call, args: distinct(_is_json, args, pl.Boolean(), nulls=True),
        ),
        Function("JSON_ARRAY_LENGTH", forms("a VARCHAR of JSON", ((_TEXT,), S.INT)), tried(_length, S.INT, NO_JSON)),
        Function(
            "JSON_ARRAY_CONTAINS",
            _resolve_contains,
            lambda call, args: distinct(_contains, args, pl.Boolean(), nulls=True),
        ),
        Function(
            "JSON_KEYS", forms("a VARCHAR of JSON", ((_TEXT,), Array(_TEXT))), tried(_keys, Array(_TEXT), NO_JSON)
        ),
        Function("JSON_RECORDS", forms("a VARCHAR of JSON", ((_TEXT,), _RECORDS)), tried(_records, _RECORDS, NO_JSON)),
        Function(
            "JSON_ITEMS",
            forms("a VARCHAR of JSON", ((_TEXT,), Array(_TEXT))),
            tried(_items, Array(_TEXT), NO_JSON),
        ),
        Function("JSON_CONCAT", _resolve_concat, tried(_concatenated, _TEXT, NO_JSON)),
        Function(
            "TO_JSON_STRING",
            lambda args: Signature((args[0].type,), _TEXT) if len(args) == 1 else Refused("it takes one value"),
            _to_json,
        ),
    )
}
