"""Protobuf's schemas: .proto texts and base64 descriptors, their types, the schema that columns get.

In: the text of a schema with the texts it imports; or columns. Out: a message's descriptor; the type it holds, or None
where it holds none; a .proto text; why an old message cannot be read as a new one.
Rule: proto3 (proto2 is read too), as Kafka Connect has it: messages are called ConnectDefault1, 2, …; a DECIMAL, a
DATE, a TIME and a TIMESTAMP are well-known messages, a MAP entries of key and value. float is DOUBLE, uint32 and uint64
are BIGINT.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool

from braid.errors import BraidError
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

S = Scalar
F = descriptor_pb2.FieldDescriptorProto
FILE = "braid.proto"
MOST_FIELDS = 20_000
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<word>\.?[A-Za-z_][\w.]*)"""
    r"""|(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|[0-9][0-9.eE+-]*))|(?P<sign>.)""",
    re.DOTALL,
)
_NAMES = ("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
          "sfixed32", "sfixed64", "sint32", "sint64")  # fmt: skip
_SCALARS = {name: getattr(F, f"TYPE_{name.upper()}") for name in _NAMES}
WELL_KNOWN = ("any", "api", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
              "wrappers")  # fmt: skip
OF_OTHERS = {
    "google/type/date.proto": 'syntax = "proto3"; package google.type; message Date '
    "{ int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": 'syntax = "proto3"; package google.type; message TimeOfDay '
    "{ int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; message Decimal '
    "{ bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',
}
DECIMAL, DATE, TIME, TIMESTAMP = (
    "confluent.type.Decimal", "google.type.Date", "google.type.TimeOfDay", "google.protobuf.Timestamp"
)  # fmt: skip
WRAPPERS = {f"google.protobuf.{name}Value": t for name, t in (
    ("Double", S.DOUBLE), ("Float", S.DOUBLE), ("Int64", S.BIGINT), ("UInt64", S.BIGINT), ("Int32", S.INT),
    ("UInt32", S.BIGINT), ("Bool", S.BOOLEAN), ("String", S.VARCHAR), ("Bytes", S.BYTES),
)}  # fmt: skip


# ------------------------------------------------------------------- reading


def _bad(why: str) -> BraidError:
    return BraidError(f"the schema is no .proto text: {why}", "write proto3, or a base64 descriptor")


class _Reader:
    """A .proto text as a descriptor."""

    def __init__(self, text: str, name: str) -> None:
        self._tokens = [m[0] for m in _TOKEN.finditer(text) if m.lastgroup is not None]
        self._at = 0
        self.file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto2")
        self.options: dict[str, str] = {}  # of fields, by their full names

    def _next(self, wanted: str | None = None) -> str:
        if self._at >= len(self._tokens):
            raise _bad("it ends too soon")
        token = self._tokens[self._at]
        if wanted is not None and token != wanted:
            raise _bad(f"{token!r} where {wanted!r} is expected")
        self._at += 1
        return token

    def _is(self, *words: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at] in words

    def _accept(self, word: str) -> bool:
        found = self._is(word)
        self._at += found
        return found

    def _skip(self, end: str = ";") -> None:
        """Past a statement, with all that its braces hold."""
        depth = 0
        while True:
            token = self._next()
            depth += token in "{[" and len(token) == 1
            depth -= token in "}]" and len(token) == 1
            if depth <= 0 and token in (end, "}"):
                return

    def read(self) -> None:
        while self._at < len(self._tokens):
            word = self._next()
            match word:
                case "syntax" | "edition":
                    self._next("=")
                    self.file.syntax = self._next().strip("\"'")
                    self._next(";")
                case "package":
                    self.file.package = self._next()
                    self._next(";")
                case "import":
                    name = self._next()
                    name = self._next() if name in ("public", "weak") else name
                    self.file.dependency.append(name.strip("\"'"))
                    self._next(";")
                case "message":
                    self._message(self.file.message_type.add(), self.file.package)
                case "enum":
                    self._enum(self.file.enum_type.add())
                case ";":
                    pass
                case "option" | "service" | "extend":
                    self._skip()
                case _:
                    raise _bad(f"{word!r} is no declaration")

    def _message(self, made: Any, above: str, depth: int = 0) -> None:
        if depth > 50:
            raise _bad("it is nested too deeply")
        made.name = self._next()
        full = f"{above}.{made.name}" if above else made.name
        self._next("{")
        while not self._accept("}"):
            if self._accept("message"):
                self._message(made.nested_type.add(), full, depth + 1)
            elif self._accept("enum"):
                self._enum(made.enum_type.add())
            elif self._is("option", "reserved", "extensions", "extend"):
                self._skip()
            elif self._accept("oneof"):
                made.oneof_decl.add(name=self._next())
                self._next("{")
                while not self._accept("}"):
                    if self._is("option"):
                        self._skip()
                    else:
                        self._field(made, full).oneof_index = len(made.oneof_decl) - 1
            elif not self._accept(";"):
                self._field(made, full)
        for field in made.field:  # oneofs of one field stand behind the others
            if field.proto3_optional:
                made.oneof_decl.add(name=f"_{field.name}")
                field.oneof_index = len(made.oneof_decl) - 1

    def _field(self, made: Any, above: str) -> Any:
        label = self._next() if self._is("repeated", "optional", "required") else ""
        kind = self._next()
        field = made.field.add(label=F.LABEL_REPEATED if label == "repeated" else F.LABEL_OPTIONAL)
        if kind == "map" and self._accept("<"):
            key, _, value = self._next(), self._next(","), self._next()
            self._next(">")
            field.label, field.name = F.LABEL_REPEATED, self._next()
            entry = made.nested_type.add(name=f"{_camel(field.name)}Entry")
            entry.options.map_entry = True
            _typed(entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL), key)
            _typed(entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL), value)
            field.type_name, field.type = f".{above}.{entry.name}", F.TYPE_MESSAGE
        else:
            _typed(field, kind)
            field.name = self._next()
        field.proto3_optional = label == "optional" and self.file.syntax == "proto3"
        self._next("=")
        field.number = int(self._next(), 0)
        if self._is("["):
            start = self._at
            self._skip("]")
            self.options[f"{above}.{field.name}"] = " ".join(self._tokens[start : self._at])
        self._next(";")
        return field

    def _enum(self, made: Any) -> None:
        made.name = self._next()
        self._next("{")
        while not self._accept("}"):
            if self._is("option"):
                if "allow_alias" in self._tokens[self._at : self._at + 2]:
                    made.options.allow_alias = True
                self._skip()
            elif self._is("reserved"):
                self._skip()
            elif not self._accept(";"):
                value = made.value.add(name=self._next())
                self._next("=")
                value.number = int(self._next(), 0)
                if self._is("["):
                    self._skip("]")
                self._next(";")


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _typed(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind


def _file_of(text: str, name: str) -> tuple[Any, dict[str, str]]:
    """A descriptor, and the options of its fields."""
    if re.fullmatch(r"[A-Za-z0-9+/=\s]+", text):
        try:
            made = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
            made.name = name
            return made, {}
        except (binascii.Error, ValueError):
            raise _bad("it is no descriptor either") from None
        except Exception:  # protobuf's own DecodeError, which has no public base
            raise _bad("it is no descriptor either") from None
    reader = _Reader(text, name)
    try:
        reader.read()
    except ValueError as e:
        raise _bad(str(e)) from None
    return reader.file, reader.options


class File:
    """A schema: descriptors of its messages, and the options of fields, by their full names."""

    def __init__(self, text: str, others: tuple[tuple[str, str], ...]) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._texts = {**OF_OTHERS, **dict(others)}
        self._added: set[str] = set()
        self.options: dict[str, str] = {}
        try:
            self._add(FILE, *_file_of(text, FILE))
            self.descriptor = self._pool.FindFileByName(FILE)
            self._check_size()
        except (TypeError, KeyError) as e:
            raise _bad(str(e).splitlines()[-1].strip()) from None

    def _add(self, name: str, file: Any, options: dict[str, str]) -> None:
        if name in self._added:
            return
        self._added.add(name)
        self.options |= options
        for other in file.dependency:
            stem = other.removeprefix("google/protobuf/").removesuffix(".proto")
            if other.startswith("google/protobuf/") and stem in WELL_KNOWN:
                known = descriptor_pb2.FileDescriptorProto()
                importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(known)
                self._add(other, known, {})
            elif other in self._texts:
                self._add(other, *_file_of(self._texts[other], other))
            else:
                raise BraidError(f"the schema imports {other}, which is not there", "register it with its references")
        if file.syntax == "proto2":
            file.ClearField("syntax")
        self._pool.Add(file)

    def _check_size(self) -> None:
        known: dict[str, int] = {}
        if any(_size(m, known) > MOST_FIELDS for m in self.messages()):
            raise _bad(f"it has more than {MOST_FIELDS} fields where messages within messages are written out")

    def messages(self) -> list[Any]:
        return list(self.descriptor.message_types_by_name.values())

    def message(self, full_name: str = "") -> Any:
        """The message of that name, or the first one."""
        found = self.messages()
        named = [m for m in found if full_name in (m.full_name, m.name)] if full_name else found[:1]
        if not named:
            listed = ", ".join(m.full_name for m in found) or "none"
            raise BraidError(f"the schema has no message {full_name or 'at all'}", f"messages are {listed}")
        return named[0]


def _size(message: Any, known: dict[str, int]) -> int:
    """How many fields a message has with those of its fields; one within itself counts once."""
    if message.full_name not in known:
        known[message.full_name] = 1
        inner = [f.message_type for f in message.fields if f.message_type is not None]
        known[message.full_name] = len(message.fields) + sum(_size(m, known) for m in inner)
    return known[message.full_name]


@lru_cache(maxsize=256)
def file_of(text: str, others: tuple[tuple[str, str], ...] = ()) -> File:
    return File(text, others)


# -------------------------------------------------------------------- types

_TYPES: dict[int, Scalar] = {
    F.TYPE_DOUBLE: S.DOUBLE, F.TYPE_FLOAT: S.DOUBLE, F.TYPE_BOOL: S.BOOLEAN, F.TYPE_STRING: S.VARCHAR,
    F.TYPE_BYTES: S.BYTES, F.TYPE_ENUM: S.VARCHAR, F.TYPE_INT32: S.INT, F.TYPE_SINT32: S.INT, F.TYPE_SFIXED32: S.INT,
}  # fmt: skip


_How = tuple[bool, Scalar]  # whether names become upper case; the type of floats


def type_of(file: File, message: Any, fold: bool, float: Scalar = S.DOUBLE) -> Struct | None:
    """`fold`: names become upper case. `float`: the type of floats."""
    return _struct(file, message, (fold, float), ())


def _struct(file: File, message: Any, how: _How, above: tuple[str, ...]) -> Struct | None:
    fields: dict[str, Type] = {}
    for f in message.fields:
        name = f.name.upper() if how[0] else f.name
        if name in fields:
            raise BraidError(f"two fields are called {name}", "declare the columns")
        t = _field_type(file, f, how, (*above, message.full_name))
        if t is not None:
            fields[name] = t
    return Struct(tuple(Column(n, t) for n, t in fields.items())) if fields else None


def entry_of(f: Any) -> Any:
    """The entry of a field that is a map, natively or by its looks."""
    m = f.message_type
    if m is None or not f.is_repeated:
        return None
    by_looks = m.name.endswith("Entry") and [(x.name, x.number) for x in m.fields] == [("key", 1), ("value", 2)]
    return m if m.GetOptions().map_entry or by_looks else None


def _field_type(file: File, f: Any, how: _How, above: tuple[str, ...]) -> Type | None:
    entry = entry_of(f)
    if entry is not None:
        value = _one_type(file, entry.fields_by_name["value"], how, above)
        return None if value is None else Map(S.VARCHAR, value)
    one = _one_type(file, f, how, above)
    return Array(one) if one is not None and f.is_repeated else one


def _one_type(file: File, f: Any, how: _How, above: tuple[str, ...]) -> Type | None:
    if f.message_type is None:
        return how[1] if f.type == F.TYPE_FLOAT else _TYPES.get(f.type, S.BIGINT)
    name = f.message_type.full_name
    if name in WRAPPERS:
        return how[1] if name == "google.protobuf.FloatValue" else WRAPPERS[name]
    match name:
        case "confluent.type.Decimal":
            return Decimal(*_digits(file.options.get(f.full_name, "")))
        case "google.type.Date":
            return S.DATE
        case "google.type.TimeOfDay":
            return S.TIME
        case "google.protobuf.Timestamp":
            return S.TIMESTAMP
    return None if name in above else _struct(file, f.message_type, how, above)


def _digits(options: str) -> tuple[int, int]:
    """Precision and scale in the options of a field."""
    found = {"precision": 38, "scale": 0}
    for entry in re.findall(r"\{([^{}]*)\}", options):
        key = re.search(r'key\s*:\s*"(\w+)"', entry)
        value = re.search(r'value\s*:\s*"(\d+)"', entry)
        if key is not None and value is not None and key[1] in found:
            found[key[1]] = int(value[1])
    return min(found["precision"], 38), found["scale"]


# ------------------------------------------------------------------ writing

_WORDS: dict[Scalar, str] = {
    S.NULL: "string", S.BOOLEAN: "bool", S.INT: "int32", S.BIGINT: "int64", S.DOUBLE: "double", S.VARCHAR: "string",
    S.BYTES: "bytes", S.DATE: DATE, S.TIME: TIME, S.TIMESTAMP: TIMESTAMP, S.SMALLINT: "int32", S.REAL: "float",
    S.TIMESTAMPTZ: TIMESTAMP,
}  # fmt: skip
_WRAPPED = {S.BOOLEAN: "BoolValue", S.INT: "Int32Value", S.BIGINT: "Int64Value", S.DOUBLE: "DoubleValue",
            S.VARCHAR: "StringValue", S.BYTES: "BytesValue", S.SMALLINT: "Int32Value",
            S.REAL: "FloatValue"}  # fmt: skip
_IMPORTS = {
    DECIMAL: "confluent/type/decimal.proto", DATE: "google/type/date.proto", TIME: "google/type/timeofday.proto",
    TIMESTAMP: "google/protobuf/timestamp.proto", "google.protobuf.": "google/protobuf/wrappers.proto",
    "confluent.field_meta": "confluent/meta.proto",
}  # fmt: skip


def schema_of(columns: Sequence[Column], name: str = "", nulls: str = "") -> str:
    """The .proto text that columns are written by. `nulls`: how null is told from 0: OPTIONAL, WRAPPER, or not."""
    space, _, short = name.rpartition(".")
    body = "\n".join(_Writer(nulls).message(columns, short or "ConnectDefault1", ""))
    used = [file for word, file in _IMPORTS.items() if re.search(rf"{re.escape(word)}", _without(body, word))]
    head = ['syntax = "proto3";', *([f"package {space};"] if space else []), *(f'import "{f}";' for f in sorted(used))]
    return "\n".join([*head, "", body, ""])


def _without(body: str, word: str) -> str:
    return body.replace(TIMESTAMP, "") if word == "google.protobuf." else body


class _Writer:
    """`_count`: of the messages so far, for the names of the next."""

    def __init__(self, nulls: str) -> None:
        self._nulls, self._count = nulls, 1

    def message(self, columns: Sequence[Column], name: str, pad: str) -> Iterator[str]:
        yield f"{pad}message {name} {{"
        inner: list[str] = []
        for i, c in enumerate(columns, 1):
            label, word, options = self._field(c.type, f"{pad}  ", inner)
            yield f"{pad}  {label}{word} {c.name} = {i}{options};"
        yield from inner
        yield f"{pad}}}"

    def _field(self, t: Type, pad: str, inner: list[str]) -> tuple[str, str, str]:
        match t:
            case Array(element) if not isinstance(element, Array | Map):
                word, options = self._word(element, pad, inner)
                return "repeated ", word, options
            case Map(key, value) if not isinstance(value, Array | Map):
                name = self._named("Entry")
                entry = [Column("key", key), Column("value", value)]
                inner += self.message(entry, name, pad)
                return "repeated ", name, ""
            case Array() | Map():
                raise BraidError(f"PROTOBUF has no form for {t}", "put a STRUCT around the inner one")
        word, options = self._word(t, pad, inner)
        if self._nulls == "WRAPPER" and isinstance(t, Scalar) and t in _WRAPPED:
            return "", f"google.protobuf.{_WRAPPED[t]}", options
        return ("optional " if self._nulls == "OPTIONAL" and isinstance(t, Scalar) else ""), word, options

    def _named(self, end: str = "") -> str:
        self._count += 1
        return f"ConnectDefault{self._count}{end}"

    def _word(self, t: Type, pad: str, inner: list[str]) -> tuple[str, str]:
        match t:
            case Decimal(precision, scale):
                pairs = (("precision", precision), ("scale", scale))
                told = ", ".join(f'{{ key: "{k}", value: "{v}" }}' for k, v in pairs)
                return DECIMAL, f" [(confluent.field_meta) = {{ params: [ {told} ] }}]"
            case Struct(fields):
                name = self._named()
                inner += self.message(fields, name, pad)
                return name, ""
        assert isinstance(t, Scalar)
        return _WORDS[t], ""


def unholdable(t: Type) -> Type | None:
    """The first type, at any depth, that Protobuf has no form for: lists of lists, maps of lists."""
    match t:
        case Array(element):
            return t if isinstance(element, Array | Map) else unholdable(element)
        case Map(key, value):
            return t if isinstance(value, Array | Map) or key is not S.VARCHAR else unholdable(value)
        case Struct(fields):
            return next((bad for f in fields if (bad := unholdable(f.type)) is not None), None)
    return None


# ---------------------------------------------------------------- comparing


def unreadable(new: Any, old: Any, path: str = "", seen: frozenset[tuple[str, str]] = frozenset()) -> str | None:
    """Why messages that were written as `old` cannot be read as `new`: a number of a field has another type."""
    if (new.full_name, old.full_name) in seen:
        return None
    seen = seen | {(new.full_name, old.full_name)}
    for f in new.fields:
        before = old.fields_by_number.get(f.number)
        if before is None:
            continue
        where = f"{path}.{f.name}" if path else f.name
        if f.is_repeated != before.is_repeated or _group(f) != _group(before):
            return f"field {where}: the type of number {f.number} has changed"
        if f.message_type is not None and before.message_type is not None:
            why = unreadable(f.message_type, before.message_type, where, seen)
            if why is not None:
                return why
    return None


_GROUPS = (("int32", "uint32", "int64", "uint64", "bool"), ("sint32", "sint64"), ("string", "bytes"),
           ("fixed32", "sfixed32"), ("fixed64", "sfixed64"))  # fmt: skip


def _group(f: Any) -> object:
    """Types of one group have one form."""
    name = next((n for n, number in _SCALARS.items() if number == f.type), f.type)
    return next((i for i, group in enumerate(_GROUPS) if name in group), name)
