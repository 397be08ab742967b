"""JSON with a schema in a registry (JSON_SR): bodies into columns and back; JSON Schema to types and back.

In: bodies (JSON in UTF-8) or typed columns; the text of a schema. Out: `codec.Decoded`; bodies; types; schemas.
Rule: as Kafka Connect has it: a DECIMAL is a number, dates and times are whole numbers, a MAP an array of entries (an
object is read too). An integer is BIGINT, with `connect.type` int32 INT. What has no type here is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import polars as pl

from braid.errors import BraidError
from braid.expr.json_text import compact, dumps, loads
from braid.records.codec import Decoded, decode_values, utf8
from braid.records.values import elements, json_object, json_text, lists
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

S = Scalar
DRAFT = "http://json-schema.org/draft-07/schema#"  # some registries know by it what a schema is
MOST_TYPES = 20_000
CONNECT = "org.apache.kafka.connect.data."


# ------------------------------------------------------------------- bodies


def decode_bodies(bodies: pl.Series, columns: Sequence[Column], *, bare: bool) -> Decoded:
    """The columns of bodies, none of which is null."""
    texts = utf8(bodies)
    torn = texts.is_null()
    if any(_has_map(c.type) for c in columns):
        top: Type = columns[0].type if bare else Struct(tuple(columns))
        texts = pl.Series([None if t is None else _with_objects(t, top) for t in texts.to_list()], dtype=pl.String)
    frame, null, error = decode_values(texts, columns, unwrapped=bare)
    if torn.any():
        null = null & ~torn
        error = pl.select(pl.when(torn).then(pl.lit("it is not UTF-8")).otherwise(error).alias("error"))["error"]
    return frame, null, error


def _has_map(t: Type) -> bool:
    match t:
        case Map():
            return True
        case Array(element):
            return _has_map(element)
        case Struct(fields):
            return any(_has_map(f.type) for f in fields)
    return False


def _with_objects(text: str, t: Type) -> str:
    """The text with objects where maps are arrays of entries."""
    try:
        return compact(_objects(loads(text), t))
    except (ValueError, RecursionError):
        return text


def _objects(doc: Any, t: Type) -> Any:
    match t, doc:
        case Map(_, value), list() if all(isinstance(e, dict) and set(e) <= {"key", "value"} for e in doc):
            named = [(e.get("key"), _objects(e.get("value"), value)) for e in doc]
            return {k if isinstance(k, str) else dumps(k): v for k, v in named}
        case Map(_, value), dict():
            return {k: _objects(v, value) for k, v in doc.items()}
        case Array(element), list():
            return [_objects(x, element) for x in doc]
        case Struct(fields), dict():
            types = {f.name.lower(): f.type for f in fields}
            return {k: _objects(v, types.get(k.lower(), S.NULL)) for k, v in doc.items()}
    return doc


def encode_bodies(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], *, bare: bool) -> pl.Series:
    """A body for each row. Each pair is a column of `frame` and the field it becomes."""
    texts = [_text(frame[name], c.type) for name, c in columns]
    made = texts[0].fill_null("null") if bare else json_object([c.name for _, c in columns], texts, frame.height)
    return made.cast(pl.Binary).alias("value")


def _text(s: pl.Series, t: Type) -> pl.Series:
    """Each value as JSON, null as null."""
    match t:
        case Decimal():
            return s.cast(pl.String)
        case Array(element):
            at, inside = elements(s)
            return lists(s, "[]", at, _text(inside, element).fill_null("null"))
        case Map(key, value):
            return _text(s, Array(Struct((Column("key", key), Column("value", value)))))
        case Struct(fields) if fields:
            below = s.struct.unnest()
            made = json_object([f.name for f in fields], [_text(below[f.name], f.type) for f in fields], len(s))
            return made.set(s.is_null(), None) if s.null_count() else made
    return json_text(s, t)


# -------------------------------------------------------------------- types


@lru_cache(maxsize=256)
def type_of(text: str, others: tuple[tuple[str, str], ...], fold: bool) -> tuple[Type | None, bool]:
    """The type of what a schema describes, and whether that is an object with named fields. `others`: name and text of
    what it refers to."""
    doc = _parsed(text)
    known = {name: _parsed(other) for name, other in others}
    top = _resolved(doc, doc, known)
    found = _type(doc, doc, known, fold, 0)
    return found, isinstance(found, Struct) and isinstance(top, dict) and "properties" in top


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise BraidError(f"the schema is not JSON: {e}", "a JSON Schema is JSON") from None


def _resolved(doc: Any, root: Any, known: dict[str, Any]) -> Any:
    """What a `$ref` names, in this document or in another one."""
    for _ in range(20):
        if not isinstance(doc, dict) or not isinstance(doc.get("$ref"), str):
            return doc
        name, _, path = doc["$ref"].partition("#")
        doc = root if not name else known.get(name)
        if doc is None:
            raise BraidError(f"the schema refers to {name}, which is not there", "register it with its references")
        for part in path.strip("/").split("/"):
            if part:
                doc = doc.get(part) if isinstance(doc, dict) else None
    return None


def _branches(doc: dict[str, Any]) -> list[Any] | None:
    for word in ("oneOf", "anyOf"):
        if isinstance(doc.get(word), list):
            return list(doc[word])
    kinds = doc.get("type")
    if isinstance(kinds, list):
        return [doc | {"type": k} for k in kinds]
    return None


def _type(doc: Any, root: Any, known: dict[str, Any], fold: bool, depth: int) -> Type | None:
    doc = _resolved(doc, root, known)
    known[""] = known.get("", 0) + 1  # of all types so far
    if known[""] > MOST_TYPES:
        raise BraidError(
            f"the schema has more than {MOST_TYPES} types", "do not refer within what is referred to so often"
        )
    if not isinstance(doc, dict) or depth > 30:
        return None
    branches = _branches(doc)
    if branches is not None:
        some = [b for b in branches if not (isinstance(b, dict) and b.get("type") == "null")]
        return _type(some[0], root, known, fold, depth + 1) if len(some) == 1 else None
    title, connect = str(doc.get("title", "")), doc.get("connect.type")
    match doc.get("type"):
        case "boolean":
            return S.BOOLEAN
        case "integer":
            moments = {"Date": S.DATE, "Time": S.TIME, "Timestamp": S.TIMESTAMP}
            if title.startswith(CONNECT) and title.removeprefix(CONNECT) in moments:
                return moments[title.removeprefix(CONNECT)]
            return S.INT if connect in ("int8", "int16", "int32") else S.BIGINT
        case "number":
            return _decimal(doc) if title == f"{CONNECT}Decimal" else S.DOUBLE
        case "string":
            return S.BYTES if connect == "bytes" else S.VARCHAR
        case "array":
            return _array(doc, root, known, fold, depth)
        case "object":
            return _object(doc, root, known, fold, depth)
    return S.VARCHAR if isinstance(doc.get("enum"), list) else _object(doc, root, known, fold, depth)


def _decimal(doc: dict[str, Any]) -> Type:
    parameters = doc.get("connect.parameters") or {}
    try:
        return Decimal(int(parameters.get("connect.decimal.precision", 38)), int(parameters.get("scale", 0)))
    except (TypeError, ValueError):
        return S.DOUBLE


def _array(doc: dict[str, Any], root: Any, known: dict[str, Any], fold: bool, depth: int) -> Type | None:
    item = _type(doc.get("items"), root, known, fold, depth + 1)
    if doc.get("connect.type") == "map" and isinstance(item, Struct):
        parts = {f.name.lower(): f.type for f in item.fields}
        return Map(S.VARCHAR, parts["value"]) if "value" in parts else None
    return None if item is None else Array(item)


def _object(doc: dict[str, Any], root: Any, known: dict[str, Any], fold: bool, depth: int) -> Type | None:
    properties, more = doc.get("properties"), doc.get("additionalProperties")
    if not properties and isinstance(more, dict):
        value = _type(more, root, known, fold, depth + 1)
        return None if value is None else Map(S.VARCHAR, value)
    if not isinstance(properties, dict):
        return None
    order = sorted(properties.items(), key=lambda p: p[1].get("connect.index", 0) if isinstance(p[1], dict) else 0)
    fields: dict[str, Type] = {}
    for name, inner in order:
        shown = name.upper() if fold else name
        if shown in fields:
            raise BraidError(f"two fields are called {shown}", "declare the columns")
        if (t := _type(inner, root, known, fold, depth + 1)) is not None:
            fields[shown] = t
    return Struct(tuple(Column(n, t) for n, t in fields.items())) if fields else None


# ------------------------------------------------------------------ schemas


def schema_of(columns: Sequence[Column], *, bare: bool) -> str:
    """The schema that columns are written by."""
    return json.dumps({"$schema": DRAFT} | (_word(columns[0].type) if bare else _words(columns)))


def _words(columns: Sequence[Column]) -> dict[str, Any]:
    nullable = {c.name: {"connect.index": i} | _optional(c.type) for i, c in enumerate(columns)}
    return {"type": "object", "properties": nullable}


def _optional(t: Type) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _word(t)]}


def _moment(name: str, kind: str) -> dict[str, Any]:
    return {"type": "integer", "title": CONNECT + name, "connect.version": 1, "connect.type": kind}


_SCALARS: dict[Scalar, dict[str, Any]] = {
    S.NULL: {"type": "string"},
    S.BOOLEAN: {"type": "boolean"},
    S.SMALLINT: {"type": "integer", "connect.type": "int16"},
    S.INT: {"type": "integer", "connect.type": "int32"},
    S.BIGINT: {"type": "integer", "connect.type": "int64"},
    S.REAL: {"type": "number", "connect.type": "float32"},
    S.DOUBLE: {"type": "number", "connect.type": "float64"},
    S.VARCHAR: {"type": "string"},
    S.BYTES: {"type": "string", "connect.type": "bytes"},
    S.DATE: _moment("Date", "int32"),
    S.TIME: _moment("Time", "int32"),
    S.TIMESTAMP: _moment("Timestamp", "int64"),
    S.TIMESTAMPTZ: _moment("Timestamp", "int64"),
}


def _word(t: Type) -> dict[str, Any]:
    match t:
        case Scalar():
            return _SCALARS[t]
        case Decimal(precision, scale):
            parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
            of = {"title": f"{CONNECT}Decimal", "connect.version": 1, "connect.type": "bytes"}
            return {"type": "number"} | of | {"connect.parameters": parameters}
        case Array(element):
            return {"type": "array", "items": _optional(element)}
        case Map(key, value):
            entry = _words([Column("key", key), Column("value", value)])
            return {"type": "array", "items": entry, "connect.type": "map"}
        case Struct(fields):
            return _words(fields)


def unreadable(new: Type | None, old: Type | None, path: str = "") -> str | None:
    """Why values of an old type are none of a new one. Fields may come and go: all may be missing."""
    if (
        new is None
        or old is None
        or new == old
        or (old, new) in ((S.INT, S.BIGINT), (S.INT, S.DOUBLE), (S.BIGINT, S.DOUBLE))
    ):
        return None
    match new, old:
        case Array(a), Array(b):
            return unreadable(a, b, f"{path}[]")
        case Map(_, a), Map(_, b):
            return unreadable(a, b, f"{path}[]")
        case Struct(fields), Struct(before):
            types = {f.name: f.type for f in before}
            pairs = [(f, types[f.name]) for f in fields if f.name in types]
            found = (unreadable(f.type, t, f"{path}.{f.name}" if path else f.name) for f, t in pairs)
            return next((why for why in found if why is not None), None)
    return f"{f'field {path}: ' if path else ''}{old} has become {new}"
