"""Operators and functions of JSONB as RisingWave has them.

In: typed calls and the Polars expressions of their arguments. Out: `JSONB`, rows of `ROWS`; what casts need.
Rule: RisingWave's values (src/expr/impl/src/scalar/jsonb_*.rs), which are PostgreSQL's but for the texts of numbers and
the order of keys (`expr/jsonb_text.py`). An access that finds nothing is NULL; a function of another kind of document
fails. A document is a text here: equal documents are equal texts, and their order is that of texts, as RisingWave's is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import polars as pl

from braid.expr import jsonb_text
from braid.expr.json_text import RawNumber
from braid.expr.nodes import Call, Expr
from braid.expr.postgres import times_text
from braid.expr.postgres.base import in_rows, parts, plain, row, takes
from braid.expr.signatures import Function, Refused, Resolver, Signature, tried
from braid.types import Array, Decimal, Scalar, Type

S = Scalar
Options = list[tuple[tuple[Type, ...], Type]]
_TEXTS = Array(S.VARCHAR)
_SCALAR = "cannot delete from scalar"

# -------------------------------------------------------------------- documents

_cached = lru_cache(maxsize=1024)(jsonb_text.value_of)  # nobody changes one
_SHORT = 10_000  # characters of a document that is kept parsed for a while: several fields of it are taken


def _value(doc: str) -> Any:
    return _cached(doc) if len(doc) <= _SHORT else jsonb_text.value_of(doc)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case RawNumber() | int():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _text(value: object) -> str | None:
    """A text that is no number."""
    return value if _kind(value) == "string" else None  # type: ignore[return-value]


def _at(items: list[Any], index: int) -> int | None:
    """The place of an element, from the end where it is negative."""
    place = index + len(items) if index < 0 else index
    return place if 0 <= place < len(items) else None


def _member(value: Any, step: str | int) -> list[Any]:
    """What an access finds: one value or none."""
    if isinstance(value, dict):
        return [value[step]] if isinstance(step, str) and step in value else []
    if isinstance(value, list) and isinstance(step, int):
        place = _at(value, step)
        return [] if place is None else [value[place]]
    return []


def _got(doc: str, step: str | int) -> str | None:
    return next(map(jsonb_text.written, _member(_value(doc), step)), None)


def _got_text(doc: str, step: str | int) -> str | None:
    found = _got(doc, step)
    return None if found is None else jsonb_text.plain(found)


def _followed(doc: str, path: Sequence[str | None]) -> str | None:
    value = _value(doc)
    for step in path:
        if step is None:
            return None
        key: str | int = step
        if isinstance(value, list):
            if not _is_whole(step):
                return None
            key = int(step)
        found = _member(value, key)
        if not found:
            return None
        value = found[0]
    return jsonb_text.written(value)


def _is_whole(text: str) -> bool:
    """What Rust reads as a number of 32 bits."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= 10 and abs(int(text)) < 2**31


def _followed_text(doc: str, path: Sequence[str | None]) -> str | None:
    found = _followed(doc, path)
    return None if found is None else jsonb_text.plain(found)


def _extracted(doc: str, *path: str) -> str | None:
    return _followed(doc, path)


def _extracted_text(doc: str, *path: str) -> str | None:
    return _followed_text(doc, path)


# ------------------------------------------------------------------- questions


def _contains(a: str, b: str) -> bool:
    return _holds(_value(a), _value(b), root=True)


def _holds(a: Any, b: Any, *, root: bool = False) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return all(k in a and _holds(a[k], v) for k, v in b.items())
    if isinstance(a, list) and isinstance(b, list):
        return all(any(_holds(x, y) for x in a) for y in b)
    if isinstance(a, list) and root and not isinstance(b, dict):
        return any(_same(x, b) for x in a)
    return _same(a, b)


def _same(a: object, b: object) -> bool:
    return jsonb_text.written(a) == jsonb_text.written(b)


def _exists(doc: str, key: str) -> bool:
    return _has(_value(doc), key)


def _has(value: object, key: str) -> bool:
    match value:
        case dict():
            return key in value
        case list():
            return any(_text(x) == key for x in value)
    return _text(value) == key


def _exists_any(doc: str, keys: Sequence[str | None]) -> bool:
    return any(_has(_value(doc), k) for k in keys if k is not None)


def _exists_all(doc: str, keys: Sequence[str | None]) -> bool:
    value = _value(doc)
    if _kind(value) not in ("object", "array", "string"):
        return False
    return all(_has(value, k) for k in keys if k is not None)


def _length(doc: str) -> int:
    return len(_items(doc, "cannot get array length of a jsonb {}"))


def _items(doc: str, why: str) -> list[Any]:
    value = _value(doc)
    if not isinstance(value, list):
        raise ValueError(why.format(_kind(value)))
    return value


def _keys(doc: str) -> list[str]:
    value = _value(doc)
    if not isinstance(value, dict):
        raise ValueError(f"cannot call jsonb_object_keys on a jsonb {_kind(value)}")
    return list(value)


# --------------------------------------------------------------------- changes


def _joined(a: str, b: str) -> str:
    x, y = _value(a), _value(b)
    if isinstance(x, dict) and isinstance(y, dict):
        return jsonb_text.written({**x, **y})
    left, right = (v if isinstance(v, list) else [v] for v in (x, y))
    return jsonb_text.written([*left, *right])


def _without(doc: str, keys: Sequence[str | None]) -> str:
    value, gone = _value(doc), {k for k in keys if k is not None}
    match value:
        case dict():
            return jsonb_text.written({k: v for k, v in value.items() if k not in gone})
        case list():
            return jsonb_text.written([v for v in value if _text(v) is None or v not in gone])
    raise ValueError(_SCALAR)


def _without_item(doc: str, index: int) -> str:
    value = _value(doc)
    if isinstance(value, dict):
        raise ValueError("cannot delete from object using integer index")
    if not isinstance(value, list):
        raise ValueError(_SCALAR)
    place = _at(value, index)
    return doc if place is None else jsonb_text.written([*value[:place], *value[place + 1 :]])


def _without_path(doc: str, path: Sequence[str | None]) -> str:
    value = _value(doc)
    if not isinstance(value, dict | list):
        raise ValueError("cannot delete path in scalar")
    return jsonb_text.written(_less_at(value, path, 0)) if path else doc


def _less_at(value: Any, path: Sequence[str | None], n: int) -> Any:
    """A value without what lies at the end of a path, of which `n` steps are done."""
    if not isinstance(value, dict | list) or not value:
        return value
    made: Any = dict(value) if isinstance(value, dict) else list(value)
    _, key = _step(value, path, n)
    if key is None:
        return value
    if n + 1 < len(path):
        made[key] = _less_at(value[key], path, n + 1)
    else:
        del made[key]
    return made


def _set(doc: str, path: Sequence[str | None], value: str, creates: bool = True) -> str:
    target = _value(doc)
    if not isinstance(target, dict | list):
        raise ValueError("cannot set path in scalar")
    if not path:
        raise ValueError("the path is empty")
    return jsonb_text.written(_set_at(target, path, 0, _value(value), creates))


def _set_at(value: Any, path: Sequence[str | None], n: int, new: Any, creates: bool) -> Any:
    """A value with another one at the end of a path, of which `n` steps are done. Each place in an array that is not
    there counts as the last step."""
    if not isinstance(value, dict | list):
        return value
    step, key = _step(value, path, n)
    if key is None:
        if not creates or (isinstance(value, dict) and n + 1 < len(path)):
            return value
        if isinstance(value, dict):
            return {**value, step: new}
        return [new, *value] if step.startswith("-") else [*value, new]
    made: Any = dict(value) if isinstance(value, dict) else list(value)
    made[key] = new if n + 1 == len(path) else _set_at(value[key], path, n + 1, new, creates)
    return made


def _step(value: Any, path: Sequence[str | None], n: int) -> tuple[str, Any]:
    """A step of a path, and the key or the place that it finds; None: it finds nothing."""
    step = path[n]
    if step is None:
        raise ValueError(f"path element at position {n + 1} is null")
    if isinstance(value, dict):
        return step, step if step in value else None
    if not _is_whole(step):
        raise ValueError(f"path element at position {n + 1} is not an integer")
    return step, _at(value, int(step))


def _stripped(doc: str) -> str:
    return jsonb_text.written(_without_nulls(_value(doc)))


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {k: _without_nulls(v) for k, v in value.items() if v is not None}
        case list():
            return [_without_nulls(v) for v in value]
    return value


# ------------------------------------------------------------- values of others


def _of_value(value: Any, t: Type) -> object:
    """A value of another type as one of a document."""
    match t:
        case _ if value is None:
            return None
        case S.JSONB:
            return _value(value)
        case Array(element):
            return [_of_value(v, element) for v in value]
        case Decimal() | S.REAL | S.DOUBLE:
            number = float(value)
            if math.isfinite(number):
                return RawNumber(jsonb_text.double(number))
            return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return value


def _document_of(value: Any, t: Type) -> str | None:
    """None: it would nest too deeply."""
    try:
        return jsonb_text.written(_of_value(value, t))
    except ValueError:
        return None


def _converted() -> Function:
    """`to_jsonb`: NULL becomes the null of documents."""

    def run(call: Call, columns: Sequence[pl.Series]) -> tuple[pl.Series, pl.Series]:
        t = call.args[0].type
        made = [_document_of(v, t) for v in columns[0].to_list()]
        return pl.Series(made, dtype=pl.String), pl.Series([x is None for x in made], dtype=pl.Boolean)

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        return Signature((args[0].type,), S.JSONB) if len(args) == 1 else Refused("it takes one value")

    return row("to_jsonb TO_JSONB", resolve, parts(run, "it would nest too deeply"))


def _dated(text: str) -> str:
    """A moment as documents have it: PostgreSQL's text with a T; three or six digits of a second's fraction."""
    at, zone = text.removesuffix(times_text.ZONE), times_text.ZONE if text.endswith(times_text.ZONE) else ""
    whole, point, fraction = at.partition(".")
    digits = fraction.ljust(3 if len(fraction) <= 3 else 6, "0") if point else ""
    return jsonb_text.written(f"{whole.replace(' ', 'T', 1)}{point}{digits}{zone}")


def _array_of(*values: str | None) -> str:
    return jsonb_text.written([None if v is None else _value(v) for v in values])


def _object_of(*values: str | None) -> str:
    keys, docs = values[::2], values[1::2]
    for n, key in enumerate(keys):
        if key is None:
            raise ValueError(f"argument {2 * n + 1}: key must not be null")
    return jsonb_text.written({k: None if v is None else _value(v) for k, v in zip(keys, docs, strict=True)})


def _object_of_texts(keys: Sequence[Any], values: Sequence[str | None] | None = None) -> str:
    """Of texts by turns, of pairs of them, or of keys and values side by side."""
    if values is not None:
        if len(keys) != len(values):
            raise ValueError("mismatched array dimensions")
        pairs = list(zip(keys, values, strict=True))
    elif any(isinstance(x, list) for x in keys):
        if any(x is None or len(x) != 2 for x in keys):
            raise ValueError("array must have two columns")
        pairs = [tuple(x) for x in keys]
    else:
        if len(keys) % 2:
            raise ValueError("array must have even number of elements")
        pairs = list(zip(keys[::2], keys[1::2], strict=True))
    if any(k is None for k, _ in pairs):
        raise ValueError("null value not allowed for object key")
    return jsonb_text.written(dict(pairs))


def _list_of(doc: str) -> list[str]:
    return [jsonb_text.written(v) for v in _items(doc, "cannot extract elements from a jsonb {}")]


def _texts_of(doc: str) -> list[str | None]:
    return [jsonb_text.plain(v) for v in _list_of(doc)]


# ------------------------------------------------------------------- the table


def _path_resolver(result: Type) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        if len(args) < 2 or args[0].type not in (S.JSONB, S.NULL):
            return Refused("it takes a JSONB and the steps of a path")
        if any(a.type not in (S.VARCHAR, S.NULL) for a in args[1:]):
            return Refused("the steps of its path are texts", "write the place in an array as a text: '0'")
        return Signature((S.JSONB, *([S.VARCHAR] * (len(args) - 1))), result)

    return resolve


def _resolve_array(args: Sequence[Expr]) -> Signature | Refused:
    return Signature((S.JSONB,) * len(args), S.JSONB)


def _resolve_object(args: Sequence[Expr]) -> Signature | Refused:
    if len(args) % 2:
        return Refused("it takes keys and values by turns")
    return Signature((S.VARCHAR, S.JSONB) * (len(args) // 2), S.JSONB)


_GET: Options = [((S.JSONB, S.VARCHAR), S.JSONB), ((S.JSONB, S.INT), S.JSONB)]
_GET_TEXT: Options = [((S.JSONB, S.VARCHAR), S.VARCHAR), ((S.JSONB, S.INT), S.VARCHAR)]
_KEY = "a JSONB and a text or an integer"
_PATH = "a JSONB and an array of texts"
_ONE = "a JSONB"
_LESS: Options = [((S.JSONB, t), S.JSONB) for t in (S.VARCHAR, S.INT, _TEXTS)]
_SET: Options = [((S.JSONB, _TEXTS, S.JSONB, *rest), S.JSONB) for rest in ((), (S.BOOLEAN,))]
_OF_TEXTS: Options = [((_TEXTS,), S.JSONB), ((Array(_TEXTS),), S.JSONB), ((_TEXTS, _TEXTS), S.JSONB)]
OWN = {  # signs that nothing else has
    "->": "pg.jsonb_get", "->>": "pg.jsonb_get_text", "#>": "pg.jsonb_path", "#>>": "pg.jsonb_path_text",
    "?": "pg.jsonb_exists", "?|": "pg.jsonb_exists_any", "?&": "pg.jsonb_exists_all", "#-": "pg.jsonb_delete_path",
}  # fmt: skip
OPERATORS = {**OWN, "@>": "pg.jsonb_contains", "||": "pg.jsonb_concat", "-": "pg.jsonb_minus"}


def _less(doc: str, what: Any) -> str:
    if isinstance(what, int):
        return _without_item(doc, what)
    return _without(doc, [what] if isinstance(what, str) else what)


def _by_texts(names: str, result: Type, f: Callable[..., object]) -> Function:
    return in_rows(names, takes(_PATH, ((S.JSONB, _TEXTS), result)), f)


JSONB: dict[str, Function] = {
    f.name: f
    for f in (
        plain("jsonb_get", _KEY, _GET, _got),
        plain("jsonb_get_text", _KEY, _GET_TEXT, _got_text),
        _by_texts("jsonb_path", S.JSONB, _followed),
        _by_texts("jsonb_path_text", S.VARCHAR, _followed_text),
        row("jsonb_extract_path JSONB_EXTRACT_PATH", _path_resolver(S.JSONB), tried(_extracted, S.JSONB)),
        row(
            "jsonb_extract_path_text JSONB_EXTRACT_PATH_TEXT",
            _path_resolver(S.VARCHAR),
            tried(_extracted_text, S.VARCHAR),
        ),
        plain("jsonb_contains JSONB_CONTAINS", "two JSONBs", [((S.JSONB, S.JSONB), S.BOOLEAN)], _contains),
        plain("jsonb_exists JSONB_EXISTS", "a JSONB and a text", [((S.JSONB, S.VARCHAR), S.BOOLEAN)], _exists),
        _by_texts("jsonb_exists_any JSONB_EXISTS_ANY", S.BOOLEAN, _exists_any),
        _by_texts("jsonb_exists_all JSONB_EXISTS_ALL", S.BOOLEAN, _exists_all),
        _by_texts("jsonb_delete_path JSONB_DELETE_PATH", S.JSONB, _without_path),
        plain("jsonb_typeof JSONB_TYPEOF", _ONE, [((S.JSONB,), S.VARCHAR)], lambda doc: _kind(_value(doc))),
        plain("jsonb_array_length JSONB_ARRAY_LENGTH", _ONE, [((S.JSONB,), S.INT)], _length),
        plain("jsonb_to_array JSONB_TO_ARRAY", _ONE, [((S.JSONB,), Array(S.JSONB))], _list_of),
        plain("jsonb_array_elements_text", _ONE, [((S.JSONB,), _TEXTS)], _texts_of),
        plain("jsonb_object_keys", _ONE, [((S.JSONB,), _TEXTS)], _keys),
        plain("jsonb_concat JSONB_CONCAT", "two JSONBs", [((S.JSONB, S.JSONB), S.JSONB)], _joined),
        plain("jsonb_strip_nulls JSONB_STRIP_NULLS", _ONE, [((S.JSONB,), S.JSONB)], _stripped),
        plain("jsonb_pretty JSONB_PRETTY", _ONE, [((S.JSONB,), S.VARCHAR)], lambda doc: jsonb_text.pretty(_value(doc))),
        in_rows("jsonb_set JSONB_SET", takes("a JSONB, an array of texts and a JSONB", *_SET), _set),
        in_rows("jsonb_object JSONB_OBJECT", takes("an array of texts, or two", *_OF_TEXTS), _object_of_texts),
        plain("jsonb_dated", "a text", [((S.VARCHAR,), S.JSONB)], _dated),
        in_rows("jsonb_minus", takes(f"{_KEY}, or an array of texts", *_LESS), _less),
        _converted(),
        in_rows("jsonb_build_array JSONB_BUILD_ARRAY", _resolve_array, _array_of, nulls=True),
        in_rows("jsonb_build_object JSONB_BUILD_OBJECT", _resolve_object, _object_of, nulls=True),
    )
}
