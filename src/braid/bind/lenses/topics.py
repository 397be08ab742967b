"""Topics: CREATE TABLE, and INSERT INTO … VALUES.

In: fields with paths and the formats of both facets. Out: `SourceDeclared`, `Inserted`.
Rule: a key is one plan column `_key`, a structure where it has fields; a value has its fields as columns, or is the one
column `_value`. In the topic store every facet is a JSON value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from braid.bind.bound import Declared, DeclaredColumn, Inserted, InsertedRow, Nothing, SourceDeclared
from braid.bind.catalog import Catalog
from braid.bind.insert import inserted_value
from braid.bind.lenses.facets import PRIMITIVES, Facet, check_holds, check_names, encoding_of, type_name
from braid.bind.lenses.scope import FACETS
from braid.bind.sources import KIND, check_topic_name
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.records.formats.named import FORMATS, named_in
from braid.sql import ast
from braid.types import Array, Column, Struct, Type

NO_EFFECT = ("REPLICATION", "COMPACTED")


def bind_create(s: ast.CreateTopic, catalog: Catalog, sql: str) -> SourceDeclared | Nothing:
    if s.name in catalog.sources or s.name in catalog.named:
        if s.if_not_exists:
            return Nothing((f"{s.name} exists: nothing to do",))
        raise SqlError(f"{s.name} exists already", s.name_span, f"DROP TABLE {s.name} first, or choose another name")
    check_topic(s.name, catalog, s.name_span)
    columns = [_key(s), *_value(s)]
    notices = []
    partitions = None
    for p in s.properties:
        if p.name == "PARTITIONS":
            partitions = _count(p)
        elif p.name in NO_EFFECT:
            notices.append(f"{p.name.lower()} has no effect here")
        else:
            hint = "properties are partitions, replication and compacted"
            raise SqlError(f"unknown property {p.name.lower()}", p.span, hint)
    formats = s.key_format.format, s.value_format.format
    encoding = encoding_of(s.name, formats, wrapped=columns[-1].name != "_value")
    declared = Declared(s.name, KIND[s.kind], s.name, tuple(columns), encoding, partitions=partitions, sql=sql,
                        formats=formats)  # fmt: skip
    return SourceDeclared(declared, notices=tuple(notices))


def check_topic(name: str, catalog: Catalog, span: Span) -> None:
    for other in catalog.sources:
        if other != name and other.lower() == name.lower():
            hint = f"choose another name, such as {name}_2"
            raise SqlError(f"topics {other} and {name} differ only by case", span, hint)
    check_topic_name(name, span, "")


def _count(p: ast.Property) -> int:
    text = str(p.value.value)
    if not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise SqlError("partitions takes a whole number from 1 to 10000", p.value.span, "write partitions=1")
    return int(text)


def _key(s: ast.CreateTopic) -> DeclaredColumn:
    fields = [f for f in s.fields if f.path[0] == "_key"]
    t = _facet("_key", fields, s.key_format, s.name_span)
    return DeclaredColumn("_key", t, "key")


def _value(s: ast.CreateTopic) -> list[DeclaredColumn]:
    fields = [f for f in s.fields if f.path[0] != "_key"]
    whole = [f for f in fields if f.path == ("_value",)]
    if whole or s.value_format.format in PRIMITIVES:
        return [DeclaredColumn("_value", _facet("_value", fields, s.value_format, s.name_span), "value")]
    t = _facet("_value", fields, s.value_format, s.name_span)
    assert isinstance(t, Struct)
    return [DeclaredColumn(f.name, f.type, "value") for f in t.fields]


def _facet(facet: str, fields: Sequence[ast.FieldDef], format: ast.StoreAs, at: Span) -> Type:
    """The type of a facet: of its one value, else of its fields."""
    what = "key" if facet == "_key" else "value"
    whole = [f for f in fields if f.path == (facet,)]
    if whole:
        if len(fields) > 1:
            hint = f"declare {facet}, or fields of it"
            raise SqlError(f"the {what} is declared whole and by fields", fields[1].span, hint)
        _check_type(format, whole[0].type, f"the {what}", whole[0].span)
        return whole[0].type
    primitive = PRIMITIVES.get(format.format)
    if primitive is not None:
        if fields:
            message = f"format {format.format} holds one value; the {what} has fields"
            hint = f"declare {facet} {format.format}, or write the format {' or '.join(named_in('lenses'))}"
            raise SqlError(message, fields[0].span, hint)
        return primitive
    if not fields:
        example = f"{facet}.id INT or {facet} INT" if facet == "_key" else "id INT"
        raise SqlError(f"the {what} has no fields", at, f"declare them: {example}")
    made = _struct([((f.path[1:] if f.path[0] in FACETS else f.path), f) for f in fields])
    from_fields = tuple((f.name, _as_expr(f.type)) for f in made.fields)
    check_names(format.format, from_fields, f"the {what}", format.span)
    odd = next((f for f in made.fields if not FORMATS[format.format].holds(f.type)), None)
    if odd is not None:
        hint = "declare fields of one value each"
        raise SqlError(f"format {format.format} cannot hold {odd.name}, which is {type_name(odd.type)}", at, hint)
    return made


def _check_type(format: ast.StoreAs, t: Type, name: str, span: Span) -> None:
    check_holds(format.format, Facet(format.format, (), _as_expr(t)), name, span)


def _as_expr(t: Type) -> Expr:
    return typing.literal(None, t)


Paths = Sequence[tuple[tuple[str | None, ...], ast.FieldDef]]


def _struct(fields: Paths) -> Struct:
    """A structure of fields by path."""
    names = list(dict.fromkeys(path[0] for path, _ in fields if path[0] is not None))
    return Struct(tuple(Column(n, _type(n, [(p[1:], f) for p, f in fields if p[0] == n])) for n in names))


def _type(name: str, below: Paths) -> Type:
    """The type of a field, or of its elements. `below`: what is declared of it."""
    leaves = [f for path, f in below if not path]
    if leaves and len(below) > 1:
        raise SqlError(f"field {name} is declared twice", below[1][1].span, "rename one of them")
    if leaves:
        return leaves[0].type
    elements = [(path[1:], f) for path, f in below if path[0] is None]
    if elements and len(elements) < len(below):
        hint = f"write {name}[].field for each field of its elements"
        raise SqlError(f"{name} is declared as an array and as a structure", below[1][1].span, hint)
    return Array(_type(f"{name}[]", elements)) if elements else _struct(below)


# --------------------------------------------------------------------- values


def bind_values(s: ast.InsertValues, target: Declared) -> Inserted:
    """Records of constants; a field that is not named is null."""
    if target.windowed is not None:
        hint = "write into the topic that was grouped"
        raise SqlError(
            f"the keys of {target.name} have windows, which INSERT INTO … VALUES cannot give", s.target.span, hint
        )
    paths = [(n.parts if n.parts[0] in FACETS else ("_value", *n.parts), n.span) for n in s.columns]
    if not s.columns:
        paths = [(p, s.target.span) for p, _ in _leaves(target)]
    types = dict(_leaves(target))
    for path, span in paths:
        if path not in types:
            known = ", ".join(".".join(p).removeprefix("_value.") for p in types)
            raise SqlError(
                f"{target.name} has no field {'.'.join(path).removeprefix('_value.')}", span, f"fields are {known}"
            )
    rows = []
    for row in s.rows:
        if len(row) != len(paths):
            named = ", ".join(".".join(p).removeprefix("_value.") for p, _ in paths)
            raise SqlError(f"{len(row)} values for {len(paths)} fields", row[-1].span, f"the fields are {named}")
        facets: dict[str, Any] = {}
        for (path, _), e in zip(paths, row, strict=True):
            _put(facets, path, inserted_value(e, DeclaredColumn(".".join(path), types[path], "value")))
        value = facets.get("_value", {})
        names = [c.name for c in target.columns if c.place == "value"]
        body = {"_value": value} if names == ["_value"] else {n: value.get(n) for n in names}
        key = {"_key": facets["_key"]} if facets.get("_key") is not None else None
        rows.append(InsertedRow(key, body, None))
    return Inserted(target.topic, target, tuple(rows))


def _leaves(d: Declared) -> list[tuple[tuple[str, ...], Type]]:
    """Every field that holds a value, by path with its facet."""
    found: list[tuple[tuple[str, ...], Type]] = []
    for c in d.columns:
        found += _below((c.name,) if c.name in FACETS else ("_value", c.name), c.type)
    return found


def _below(path: tuple[str, ...], t: Type) -> list[tuple[tuple[str, ...], Type]]:
    if isinstance(t, Struct):
        return [leaf for f in t.fields for leaf in _below((*path, f.name), f.type)]
    return [(path, t)]


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def described(d: Declared) -> tuple[tuple[str, str, str], ...]:
    """Field, type and facet, a row each; what may be missing is a union with null."""
    rows = []
    for c in d.columns:
        shown = type_name(c.type)
        rows.append((c.name, f"union(null, {shown})" if c.nullable else shown, "key" if c.place == "key" else "value"))
    return tuple(rows)
