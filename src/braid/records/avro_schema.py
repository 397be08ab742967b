"""Avro's schemas: read, translated to types and back, rewritten, compared.

In: the text of a schema with the texts it refers to; or columns and a name. Out: an `Avro`, the type it holds, the
schema that columns get; a rewritten schema of the same bytes that pyruhvro can read; why one cannot read another.
Rule: types are ksqlDB's: an enum is VARCHAR, fixed BYTES, a union of several a STRUCT of its branches; what has no type
is left out. Columns become unions with null, null first; a MAP an array of entries, since its key may be null.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from braid.errors import BraidError
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

S = Scalar
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAMESPACE = "io.confluent.ksql.avro_schemas"
VALUE_NAME = f"{NAMESPACE}.KsqlDataSourceSchema"
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MOST_DIGITS = 38
MOST_FIELDS = 20_000
NO_DEFAULT: Any = object()


@dataclass(frozen=True, slots=True)
class Avro:
    """One schema. `kind`: its word, or `ref`, a name used again. `items`: of an array, the values of a map."""

    kind: str
    name: str = ""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    items: Avro | None = None
    fields: tuple[AvroField, ...] = ()
    branches: tuple[Avro, ...] = ()
    default: Any = NO_DEFAULT  # of an enum
    aliases: tuple[str, ...] = ()
    names: Mapping[str, Avro] = field(default_factory=dict, compare=False, repr=False)

    @property
    def real(self) -> Avro:
        return self.names[self.name] if self.kind == "ref" else self

    @property
    def some(self) -> tuple[Avro, ...]:
        """What it may be but null."""
        own = self.real
        return tuple(b.real for b in own.branches if b.kind != "null") if own.kind == "union" else (own,)

    @property
    def only(self) -> Avro | None:
        """The one thing that it is where it is not null; None where there are several, or none."""
        return self.some[0] if len(self.some) == 1 and self.some[0].kind != "null" else None

    @property
    def nullable(self) -> bool:
        own = self.real
        return own.kind == "null" or any(b.kind == "null" for b in own.branches)

    @property
    def called(self) -> str:
        """For messages."""
        own = self.only
        if own is None:
            return "null" if self.real.kind == "null" or not self.some else "a union"
        word = own.logical or own.kind
        return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"

    @property
    def entries(self) -> tuple[AvroField, AvroField] | None:
        """Key and value of an array that stands for a map."""
        if self.kind != "array" or self.items is None or self.items.only is None:
            return None
        fields = self.items.only.fields
        named = tuple(f.name.lower() for f in fields) == ("key", "value")
        return (fields[0], fields[1]) if named else None

    def field(self, name: str) -> AvroField | None:
        """A field of a record: an exact match first, then one without case."""
        exact = next((f for f in self.fields if f.name == name), None)
        return exact or next((f for f in self.fields if f.name.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class AvroField:
    name: str
    type: Avro
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


class BadSchema(BraidError):
    """A text that is no Avro schema."""


# ------------------------------------------------------------------- reading


def parsed(text: str, referred: Sequence[str] = ()) -> Avro:
    """The schema of a text. `referred`: texts of schemas whose names it uses, those that use others behind them."""
    names: dict[str, Avro] = {}
    for other in referred:
        _read(_json(other), "", names, 0)
    found = _read(_json(text), "", names, 0)
    if _size(found, {}) > MOST_FIELDS:
        raise BadSchema(f"the schema has more than {MOST_FIELDS} fields", "do not use names within names so often")
    return found


def _size(a: Avro, known: dict[str, int]) -> int:
    """How many types there are where every name is written out; one within itself counts once."""
    own = a.real
    if own.name and own.name in known:
        return known[own.name]
    if own.name:
        known[own.name] = 1
    inner = [*(f.type for f in own.fields), *own.branches, *([own.items] if own.items is not None else [])]
    size = 1 + sum(_size(x, known) for x in inner)
    if own.name:
        known[own.name] = size
    return size


def _json(text: str) -> Any:
    if text.strip().strip('"') in PRIMITIVES:
        return text.strip().strip('"')
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise BadSchema(f"the schema is not JSON: {e}", "an Avro schema is JSON") from None


def _read(doc: Any, space: str, names: dict[str, Avro], depth: int) -> Avro:
    if depth > 60:
        raise BadSchema("the schema is nested too deeply", "at most 60 levels")
    if isinstance(doc, str):
        if doc in PRIMITIVES:
            return Avro(doc)
        full = _full(doc, space)
        found = full if full in names else doc
        if found not in names:
            raise BadSchema(f"the schema uses {doc!r}, which is not defined", "register it with its references")
        return Avro("ref", found, names=names)
    if isinstance(doc, list):
        return Avro("union", branches=tuple(_read(b, space, names, depth + 1) for b in doc))
    if not isinstance(doc, dict) or "type" not in doc:
        raise BadSchema(f"this is no Avro schema: {str(doc)[:60]}", 'it is a name, a list, or has a "type"')
    kind = doc["type"]
    if isinstance(kind, dict | list):
        return _read(kind, space, names, depth + 1)
    if kind in ("record", "error", "enum", "fixed"):
        return _named(doc, kind, space, names, depth)
    if kind in ("array", "map"):
        part = "items" if kind == "array" else "values"
        return Avro(kind, items=_read(doc.get(part), space, names, depth + 1))
    return _logical(_read(kind, space, names, depth + 1), doc)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _named(doc: Mapping[str, Any], kind: str, space: str, names: dict[str, Avro], depth: int) -> Avro:
    if not isinstance(doc.get("name"), str):
        raise BadSchema(f"a {kind} of the schema has no name", 'write "name"')
    full = _full(doc["name"], str(doc.get("namespace") or space))
    inner, aliases = full.rpartition(".")[0], tuple(map(str, doc.get("aliases") or ()))
    if kind == "enum":
        made = Avro(
            "enum", full, symbols=tuple(doc["symbols"]), default=doc.get("default", NO_DEFAULT), aliases=aliases
        )
    elif kind == "fixed":
        made = _logical(Avro("fixed", full, size=int(doc["size"]), aliases=aliases), doc)
    else:
        names[full] = Avro("ref", full)  # it may be used within
        fields = tuple(
            AvroField(f["name"], _read(f["type"], inner, names, depth + 1), f.get("default", NO_DEFAULT),
                      tuple(f.get("aliases") or ()))
            for f in doc.get("fields") or ()
        )  # fmt: skip
        made = Avro("record", full, fields=fields, aliases=aliases, names=names)
    names[full] = made
    return made


def _logical(a: Avro, doc: Mapping[str, Any]) -> Avro:
    logical = doc.get("logicalType", "")
    if logical != "decimal":
        return replace(a, logical=str(logical)) if logical and a.kind in ("int", "long", "string", "fixed") else a
    precision, scale = doc.get("precision"), doc.get("scale", 0)
    fine = type(precision) is int and type(scale) is int and 0 <= scale <= precision and a.kind in ("bytes", "fixed")
    return replace(a, logical="decimal", precision=precision, scale=scale) if fine else a  # type: ignore[arg-type]


# --------------------------------------------------------------------- types


def type_of(a: Avro, fold: bool, float: Scalar = S.DOUBLE) -> Type | None:
    """The type of its values, None where there is none. `fold`: names of fields become upper case. `float`: the type of
    floats."""
    return _type(a, fold, float, ())


def _type(a: Avro, fold: bool, float: Scalar, above: tuple[str, ...]) -> Type | None:
    branches = [b for b in a.some if b.kind != "null"]
    if len(branches) > 1:
        found = [(branch_name(b), _type(b, fold, float, above)) for b in branches]
        return _struct(found, fold)
    if not branches:
        return None
    own = branches[0]
    if own.name in above:
        return None
    match own.kind:
        case "int":
            return {"date": S.DATE, "time-millis": S.TIME}.get(own.logical, S.INT)
        case "long":
            return S.TIMESTAMP if own.logical == "timestamp-millis" else S.BIGINT
        case "float":
            return float
        case "double":
            return S.DOUBLE
        case "string" | "enum":
            return S.VARCHAR
        case "bytes" | "fixed":
            fits = own.logical == "decimal" and own.precision <= MOST_DIGITS
            return Decimal(own.precision, own.scale) if fits else S.BYTES
        case "array" if own.entries is not None:
            key, value = (_type(f.type, fold, float, above) for f in own.entries)
            return Map(key, value) if key is not None and value is not None else None
        case "array" | "map":
            assert own.items is not None
            item = _type(own.items, fold, float, above)
            return None if item is None else Array(item) if own.kind == "array" else Map(S.VARCHAR, item)
        case "record":
            return _struct([(f.name, _type(f.type, fold, float, (*above, own.name))) for f in own.fields], fold)
    return S.BOOLEAN


def _struct(fields: Sequence[tuple[str, Type | None]], fold: bool) -> Struct | None:
    known: dict[str, Type] = {}
    for n, t in fields:
        name = n.upper() if fold else n
        if name in known:
            raise BadSchema(f"two fields are called {name}", "declare the columns")
        if t is not None:
            known[name] = t
    return Struct(tuple(Column(n, t) for n, t in known.items())) if known else None


PER_MS = {"millis": 1, "micros": 1000, "nanos": 1_000_000}


def per_ms(a: Avro) -> int:
    """How many units of a time are a millisecond: a number without a logical type counts these."""
    return PER_MS.get(a.logical.rpartition("-")[2], 1)


def branch_name(a: Avro) -> str:
    """What a branch of a union is called."""
    return a.name.rpartition(".")[2] or a.kind


def misread(a: Avro, t: Type, path: str = "") -> str | None:
    """Why values of a schema cannot be read as those of a type."""
    some = [b for b in a.some if b.kind != "null"]
    if not some or t is S.NULL:
        return None
    wrong = f"{f'field {path}: ' if path else ''}{a.called} is no {t}"
    if len(some) > 1:
        if not isinstance(t, Struct):
            return wrong
        named = {branch_name(b).lower(): b for b in some}
        pairs = [(named[c.name.lower()], c) for c in t.fields if c.name.lower() in named]
        return _first(misread(b, c.type, _below(path, c.name)) for b, c in pairs)
    own = some[0]
    match t:
        case Array(element):
            return misread(own.items, element, f"{path}[]") if own.kind == "array" and own.items else wrong
        case Map(key, item) if own.kind == "map" and own.items is not None:
            return wrong if key is not S.VARCHAR else misread(own.items, item, f"{path}[]")
        case Map(key, item) if own.entries is not None:
            both = zip(own.entries, (key, item), strict=True)
            return _first(misread(f.type, x, f"{path}[]") for f, x in both)
        case Struct(fields) if own.kind == "record":
            found = [(own.field(c.name), c) for c in fields]
            return _first(misread(f.type, c.type, _below(path, c.name)) for f, c in found if f is not None)
        case Decimal():
            return None if own.logical == "decimal" else wrong
        case Scalar():
            return None if own.kind in _READS[t] and (t is not S.BYTES or own.logical != "decimal") else wrong
    return wrong


_READS: dict[Scalar, tuple[str, ...]] = {
    S.BOOLEAN: ("boolean",),
    S.SMALLINT: ("int",),
    S.INT: ("int",),
    S.BIGINT: ("int", "long"),
    S.REAL: ("float", "double", "int", "long"),
    S.DOUBLE: ("float", "double", "int", "long"),
    S.VARCHAR: ("string", "enum", "int", "long", "float", "double", "boolean"),
    S.BYTES: ("bytes", "fixed"),
    S.DATE: ("int",),
    S.TIME: ("int", "long"),
    S.TIMESTAMP: ("long",),
    S.TIMESTAMPTZ: ("long",),
}


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _first(reasons: Any) -> str | None:
    return next((r for r in reasons if r is not None), None)


def with_defaults(a: Avro, doc: Any) -> Any:
    """A JSON value with the defaults of the fields that it has not, at every depth."""
    own = a.only
    if own is None:
        return doc
    if own.kind == "record" and isinstance(doc, dict):
        there = {k.lower(): k for k in doc}
        made = {k: with_defaults(f.type, v) if (f := own.field(k)) is not None else v for k, v in doc.items()}
        missing = [f for f in own.fields if f.name.lower() not in there and f.default not in (NO_DEFAULT, None)]
        return made | {f.name: _shown(f) for f in missing}
    if own.kind == "array" and isinstance(doc, list) and own.items is not None:
        return [with_defaults(own.items, x) for x in doc]
    if own.kind == "map" and isinstance(doc, dict) and own.items is not None:
        return {k: with_defaults(own.items, v) for k, v in doc.items()}
    return doc


def _shown(f: AvroField) -> Any:
    """A default as JSON here has it: bytes are base64, decimals text."""
    own = f.type.only
    if own is None or own.kind not in ("bytes", "fixed") or not isinstance(f.default, str):
        return f.default
    raw = f.default.encode("latin-1")
    if own.logical == "decimal":
        return f"{int.from_bytes(raw, 'big', signed=True)}e-{own.scale}"
    return base64.b64encode(raw).decode()


# ------------------------------------------------------------------- writing


def schema_of(columns: Sequence[Column], name: str, *, bare: bool) -> str:
    """The schema that columns are written with: a record of this full name, or (`bare`) the type of the only one."""
    space, _, short = name.rpartition(".")
    if bare:
        return json.dumps(_word(columns[0].type, short))
    record: dict[str, Any] = {"type": "record", "name": short} | ({"namespace": space} if space else {})
    return json.dumps(record | {"fields": [_field(c, short) for c in columns]})


def _field(c: Column, above: str) -> dict[str, Any]:
    return {"name": c.name, "type": ["null", _word(c.type, f"{above}_{c.name}")], "default": None}


_WORDS: dict[Scalar, Any] = {
    S.NULL: "string",
    S.BOOLEAN: "boolean",
    S.SMALLINT: "int",
    S.INT: "int",
    S.BIGINT: "long",
    S.REAL: "float",
    S.DOUBLE: "double",
    S.VARCHAR: "string",
    S.BYTES: "bytes",
    S.DATE: {"type": "int", "logicalType": "date"},
    S.TIME: {"type": "int", "logicalType": "time-millis"},
    S.TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
    S.TIMESTAMPTZ: {"type": "long", "logicalType": "timestamp-millis"},
}


def _word(t: Type, name: str) -> Any:
    match t:
        case Scalar():
            return _WORDS[t]
        case Decimal(precision, scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case Array(element):
            return {"type": "array", "items": ["null", _word(element, name)]}
        case Map(key, value):
            both = [Column("key", key), Column("value", value)]
            inner = [_word(key, f"{name}_MapKey"), _word(value, f"{name}_MapValue")]
            fields = [{"name": c.name, "type": ["null", w], "default": None} for c, w in zip(both, inner, strict=True)]
            entry = {"type": "record", "name": name, "fields": fields, "connect.internal.type": "MapEntry"}
            return {"type": "array", "items": entry}
        case Struct(fields):
            return {"type": "record", "name": name, "fields": [_field(f, name) for f in fields]}


def unnameable(columns: Sequence[Column]) -> str | None:
    """The first name, at any depth, that Avro does not take."""
    for c in columns:
        if not NAME.fullmatch(c.name):
            return c.name
        inner = _columns_below(c.type)
        if (bad := unnameable(inner)) is not None:
            return bad
    return None


def _columns_below(t: Type) -> tuple[Column, ...]:
    match t:
        case Struct(fields):
            return fields
        case Array(element):
            return _columns_below(element)
        case Map(key, value):
            return (*_columns_below(key), *_columns_below(value))
    return ()


# ----------------------------------------------------------------- rewriting


class Beyond(Exception):
    """A schema that pyruhvro cannot read, however it is written."""


def rewritten(a: Avro) -> Any:
    """A schema of the same bytes without what pyruhvro lacks or is silent about: no logical types, `long` for `int`,
    `string` for `bytes`, a record of doubles for `fixed`; names of its own."""
    return _plain(a, {}, ())


def _plain(a: Avro, seen: dict[str, str], above: tuple[str, ...]) -> Any:
    own = a.real
    if own.name and own.name in above:
        raise Beyond
    if own.name and own.name in seen:
        return seen[own.name]
    if own.name:
        seen[own.name] = f"N{len(seen)}"
    match own.kind:
        case "int":
            return "long"
        case "bytes":
            return "string"
        case "fixed":
            if own.size % 4 or not own.size:
                raise Beyond
            doubles, floats = divmod(own.size, 8)
            parts = ["double"] * doubles + ["float"] * (floats // 4)
            fields = [{"name": f"f{i}", "type": p} for i, p in enumerate(parts)]
            return {"type": "record", "name": seen[own.name], "fields": fields}
        case "enum":
            return {"type": "enum", "name": seen[own.name], "symbols": list(own.symbols)}
        case "array" | "map":
            assert own.items is not None
            if own.kind == "array" and not _takes_room(own.items, above):
                raise Beyond
            return {"type": own.kind, "items" if own.kind == "array" else "values": _plain(own.items, seen, above)}
        case "union":
            return [_plain(b, seen, above) for b in own.branches]
        case "record":
            if not own.fields:
                raise Beyond
            inner = (*above, own.name)
            fields = [{"name": f"f{i}", "type": _plain(f.type, seen, inner)} for i, f in enumerate(own.fields)]
            return {"type": "record", "name": seen[own.name], "fields": fields}
    return own.kind


def _takes_room(a: Avro, above: tuple[str, ...]) -> bool:
    """Whether a value has at least one byte: else a few bytes could stand for millions of values."""
    own = a.real
    if own.kind == "record" and own.name not in above:
        return any(_takes_room(f.type, (*above, own.name)) for f in own.fields)
    return own.kind not in ("null", "record") and not (own.kind == "fixed" and own.size == 0)


# ---------------------------------------------------------------- comparing

PROMOTED = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
    "string": ("bytes",), "bytes": ("string",),
}  # fmt: skip


def unreadable(
    reader: Avro, writer: Avro, path: str = "", seen: frozenset[tuple[str, str]] = frozenset()
) -> str | None:
    """Why who reads by one schema cannot read what was written by another."""
    r, w = reader.real, writer.real
    if (r.name, w.name) in seen and r.name:
        return None
    if w.kind == "union":
        return _first(unreadable(r, b, path, seen) for b in w.branches)
    if r.kind == "union":
        if any(unreadable(b, w, path, seen) is None for b in r.branches):
            return None
        return f"{_at(path)}{w.called} is not among what it may be now"
    if r.kind != w.kind:
        return None if r.kind in PROMOTED.get(w.kind, ()) else f"{_at(path)}{w.called} has become {r.called}"
    match r.kind:
        case "record":
            return _record_unreadable(r, w, path, seen | {(r.name, w.name)})
        case "array" | "map":
            assert r.items is not None and w.items is not None
            return unreadable(r.items, w.items, f"{path}[]", seen)
        case "enum":
            gone = [s for s in w.symbols if s not in r.symbols]
            return f"{_at(path)}the symbol {gone[0]} is gone" if gone and r.default is NO_DEFAULT else None
        case "fixed" if r.size != w.size:
            return f"{_at(path)}fixed({w.size}) has become fixed({r.size})"
    if "decimal" in (r.logical, w.logical) and (r.logical, r.precision, r.scale) != (w.logical, w.precision, w.scale):
        return f"{_at(path)}the precision or scale of a decimal has changed"
    return None


def _record_unreadable(r: Avro, w: Avro, path: str, seen: frozenset[tuple[str, str]]) -> str | None:
    if branch_name(r) != branch_name(w) and w.name not in r.aliases and branch_name(w) not in r.aliases:
        return f"{_at(path)}the record {w.name} has become {r.name}"
    there = {f.name: f for f in w.fields}
    for f in r.fields:
        before = there.get(f.name) or next((there[x] for x in f.aliases if x in there), None)
        if before is None:
            if f.default is NO_DEFAULT:
                return f"the new field {_below(path, f.name)} has no default"
        elif (why := unreadable(f.type, before.type, _below(path, f.name), seen)) is not None:
            return why
    return None


def _at(path: str) -> str:
    return f"field {path}: " if path else ""
