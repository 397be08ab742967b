"""What a schema registry says of a declaration, and what a declaration gives the registry.

In: WITH properties, declared columns, the catalog's registry. Out: columns of facets that declare none; the schemas of
an encoding; a refusal where a registry has no such schema, or would not take the new one.
Rule: a facet whose format has schemas and that declares no column has those of its subject, or of the schema that
`…_SCHEMA_ID` chooses. A key that stands alone is ROWKEY, a value ROWVAL. Names become upper case, but for a chosen id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from braid.bind.bound import Bound, Declared, DeclaredColumn, QueryBound, SourceDeclared
from braid.bind.catalog import Catalog
from braid.bind.names import RESERVED
from braid.bind.properties import Properties, written_format
from braid.errors import BraidError, Span, SqlError
from braid.plan.logical import Kind, Query, Sink
from braid.records import framed
from braid.records.encoding import Encoding
from braid.records.facet import RecordSchema
from braid.records.formats.interface import Facet
from braid.records.formats.named import FORMATS, registered
from braid.records.registry import Incompatible, Registry, Schema, UnknownSchema, subject_of
from braid.records.schemas.interface import Others
from braid.types import Column, Type

FACETS = ("key", "value")
ALONE = {"key": "ROWKEY", "value": "ROWVAL"}


def completed(
    p: Properties, declared: tuple[DeclaredColumn, ...], topic: str, kind: Kind, catalog: Catalog
) -> tuple[DeclaredColumn, ...]:
    """The columns, those of the registry too."""
    found: list[DeclaredColumn] = []
    for facet in FACETS:
        mine = [c for c in declared if c.place == facet]
        chosen = p.count(f"{facet}_SCHEMA_ID".upper())
        format = written_format(p, facet)
        if chosen is not None and mine:
            hint = f"leave the columns of the {facet} out, or the id"
            span = p.span(f"{facet}_SCHEMA_ID".upper())
            raise SqlError(f"the {facet} has columns and the id of a schema", span, hint)
        if chosen is None and (mine or not _registered(format)):
            continue
        found += _inferred(p, facet, format, topic, catalog.registry)
    keys, values = ([c for c in found if c.place == f] for f in FACETS)
    return (*keys, *declared, *values)


def _inferred(
    p: Properties, facet: str, format: str | None, topic: str, registry: Registry | None
) -> list[DeclaredColumn]:
    schema, others, chosen = _schema(p, facet, format, topic, registry)
    span = _span(p, facet)
    try:
        kind = framed.kind_of(schema)
        found, is_record = kind.type_of(schema, others, fold=not chosen, name=_full_name(p, facet) or "")
    except BraidError as e:
        raise SqlError(f"the schema of the {facet}: {e.message}", span, e.hint) from None
    if found is None:
        hint = f"declare the columns of the {facet}"
        raise SqlError(f"the schema of the {facet} has no column of a type that there is here", span, hint)
    alone = _alone(p, facet, format)
    if facet == "value" and not (is_record or alone):
        hint = "write WRAP_SINGLE_VALUE = false"
        raise SqlError(f"the schema of the value is {found}, no record of columns", span, hint)
    columns = _columns(facet, found, is_record and not alone, span)
    for c in columns:
        if c.name in RESERVED:
            raise SqlError(f"{c.name} is a reserved column name", span, "declare the columns that you need")
    return columns


def _registered(format: str | None) -> bool:
    """Whether the schemas of a format stand in a registry."""
    return format is not None and FORMATS[format].registered


def _needs_schemas(p: Properties, name: str, format: str) -> SqlError:
    hint = f"write {registered()}, or leave it out"
    return SqlError(f"{name} needs a format with schemas, not {format}", p.span(name), hint)


def _alone(p: Properties, facet: str, format: str | None) -> bool:
    """Whether the facet is one value, whatever its schema is."""
    single = "either" if format is None else FORMATS[format].single
    return single != "record" and (facet == "key" or p.flag("WRAP_SINGLE_VALUE") is False)


def _columns(facet: str, t: Type, is_record: bool, span: Span) -> list[DeclaredColumn]:
    fields = getattr(t, "fields", None)
    place = "key" if facet == "key" else "value"
    if is_record and fields is not None:
        return [DeclaredColumn(c.name, c.type, place) for c in fields]  # type: ignore[arg-type]
    return [DeclaredColumn(ALONE[facet], t, place)]  # type: ignore[arg-type]


def _span(p: Properties, facet: str) -> Span:
    names = (f"{facet}_SCHEMA_ID", f"{facet}_FORMAT", "FORMAT")
    return next((p.span(n.upper()) for n in names if n.upper() in p.items), p.at)


def _schema(
    p: Properties, facet: str, format: str | None, topic: str, registry: Registry | None
) -> tuple[Schema, Others, bool]:
    """The schema that a facet has from the registry, what it refers to, and whether its id was chosen."""
    name = f"{facet}_SCHEMA_ID".upper()
    id = p.count(name)
    kind = None if format is None or not _registered(format) else FORMATS[format].schemas
    if kind is None:
        raise _needs_schemas(p, name, format or "JSON")
    if registry is None:
        raise SqlError(f"{format} needs a schema registry", _span(p, facet), framed.NAME_IT)
    try:
        schema = registry.by_id(id) if id is not None else None
        if schema is None:
            latest = registry.latest(subject_of(topic, facet))
            schema = latest[1] if latest is not None else None
    except UnknownSchema as e:
        raise SqlError(e.message, p.span(name), e.hint) from None
    if schema is None:
        hint = f"declare the columns of the {facet}, or register their schema"
        raise SqlError(f"the registry has no schema for subject {subject_of(topic, facet)}", _span(p, facet), hint)
    if schema.kind != kind.name:
        raise SqlError(
            f"the schema of the {facet} is {schema.kind}, not {format}", _span(p, facet), "correct the format"
        )
    return schema, framed.others_of(registry, schema), id is not None


# ------------------------------------------------------------------ encodings


def with_schemas(e: Encoding, p: Properties, name: str, topic: str, registry: Registry | None) -> Encoding:
    """The encoding of what `name` declares, with the schemas of its facets."""
    return replace(
        e,
        key_schema=_record_schema(p, "key", e.key, name, topic, registry),
        value_schema=_record_schema(p, "value", e.value, name, topic, registry),
    )


def _record_schema(
    p: Properties, facet: str, format: str, name: str, topic: str, registry: Registry | None
) -> RecordSchema | None:
    nulls = _nulls(p, facet, format)
    names, kind = _names(p, facet), FORMATS[format].schemas
    if kind is not None and not _registered(format):
        return RecordSchema("", nulls=nulls)
    if kind is None:
        for n in (*names, *(n for n in (f"{facet}_SCHEMA_ID".upper(),) if n in p.items)):
            raise _needs_schemas(p, n, format)
        return None
    written = _full_name(p, facet)
    full = kind.record_name(facet, name) if written is None else written
    if (written is not None or full) and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", full):
        hint = "write letters, digits and _, with dots between the parts of a namespace"
        raise SqlError(f"{full!r} is no name of a schema", p.span(names[0]), hint)
    id = p.count(f"{facet}_SCHEMA_ID".upper())
    if id is None:
        return RecordSchema(full, nulls=nulls)
    schema, others, _ = _schema(p, facet, format, topic, registry)
    return RecordSchema(full, id, schema.text, others, nulls)


def _names(p: Properties, facet: str) -> list[str]:
    """The properties that name a facet's record."""
    return [n for n in (f"{facet}_AVRO_SCHEMA_FULL_NAME".upper(), f"{facet}_SCHEMA_FULL_NAME".upper()) if n in p.items]


def _full_name(p: Properties, facet: str) -> str | None:
    names = _names(p, facet)
    return (p.text(names[0]) or "").strip() if names else None


def _nulls(p: Properties, facet: str, format: str) -> Literal["", "OPTIONAL", "WRAPPER"]:
    """How null is told from 0."""
    name = f"{facet}_PROTOBUF_NULLABLE_REPRESENTATION".upper()
    text = p.text(name)
    if text is None:
        return ""
    if FORMATS[format].single != "record":
        raise SqlError(f"{name} is for PROTOBUF, not {format}", p.span(name), "leave it out")
    match text.strip().upper():
        case "OPTIONAL":
            return "OPTIONAL"
        case "WRAPPER":
            return "WRAPPER"
    raise SqlError(f"{name} cannot be {text!r}", p.span(name), "write OPTIONAL or WRAPPER")


def check_chosen(e: Encoding, columns: Sequence[DeclaredColumn], p: Properties) -> None:
    """A result's columns must begin the schema that was chosen for it, in its order and of its types."""
    for facet, chosen in (("key", e.key_schema), ("value", e.value_schema)):
        if chosen is None or not chosen.text:
            continue
        kind = (e.key_format if facet == "key" else e.value_format).schemas
        assert kind is not None
        message = chosen.name if kind.messages else ""
        t, is_record = kind.type_of(Schema(kind.name, chosen.text), chosen.others, fold=False, name=message)
        assert t is not None
        whole = kind.messages or (facet == "value" and e.wrapped)
        has = _columns(facet, t, is_record and whole, p.at)
        mine = [c for c in columns if c.place == facet]
        for i, c in enumerate(mine):
            if i >= len(has) or (whole and has[i].name != c.name) or has[i].type != c.type:
                there = f"{has[i].name} {has[i].type}" if i < len(has) else "nothing"
                message = f"column {i + 1} of the {facet} is {c.name} {c.type}; schema {chosen.id} has {there} there"
                raise SqlError(
                    message, p.span(f"{facet}_SCHEMA_ID".upper()), "select the columns in the schema's order"
                )


def check_names(e: Encoding, columns: Sequence[DeclaredColumn], span: Span) -> None:
    """Names that a format does not take are refused."""
    for place, format in (("key", e.key_format), ("value", e.value_format)):
        mine = [Column(c.name, c.type) for c in columns if c.place == place and not c.hidden]
        kind = format.schemas
        if kind is None:
            continue
        held = kind.unholdable(mine)
        if held is not None:
            raise SqlError(
                f"{format.name} cannot hold {held.name}, which is {held.type}", span, "write value_format = 'JSON'"
            )
        if place == "key" and len(mine) == 1 and not kind.messages:
            continue
        bad = kind.unnameable(mine)
        if bad is not None:
            hint = "give it a name of letters, digits and _, or take format JSON"
            raise SqlError(f"{format.name} cannot hold the name {bad!r}", span, hint)


# ------------------------------------------------------------------ registering


def of_sink(sink: Sink) -> list[tuple[Facet, list[Column]]]:
    """The facets of a result that have schemas, with their columns."""
    names = [o.name for o in sink.key] or [f"KEY_{i}" for i in range(len(sink.record_key))]
    keys = [Column(n, e.type) for n, e in zip(names, sink.written_key, strict=True)]
    values = [Column(o.name, o.expr.type) for o in sink.values]
    return _schemed(sink.encoding, keys, values)


def of_source(d: Declared) -> list[tuple[Facet, list[Column]]]:
    keys = [Column(c.name, c.type) for c in d.columns if c.place == "key"]
    values = [Column(c.name, c.type) for c in d.columns if c.place == "value"]
    return _schemed(d.encoding, keys, values)


def _schemed(e: Encoding, keys: list[Column], values: list[Column]) -> list[tuple[Facet, list[Column]]]:
    both = ((e.of_keys(len(keys)), keys), (e.of_values(len(values)), values))
    return [(f, c) for f, c in both if c and f.format.registered]


def _made(facets: list[tuple[Facet, list[Column]]], topic: str) -> list[tuple[str, Schema]]:
    """The schemas that are made of columns, not chosen, by subject."""
    return [
        (subject_of(topic, f.name), schema)
        for f, columns in facets
        if (f.schema is None or f.schema.id is None) and (schema := f.format.written_by(columns, f)) is not None
    ]


def subjects_of(d: Declared) -> tuple[str, ...]:
    return tuple(subject_of(d.topic, facet.name) for facet, _ in of_source(d))


def check_there(bound: Bound, registry: Registry | None, span: Span, text: str) -> None:
    """Refuses what needs a registry where there is none."""
    match bound:
        case SourceDeclared(declared=Declared(encoding=e)) | QueryBound(query=Query(sink=Sink(encoding=e))):
            format = next((f for f in (e.key, e.value) if _registered(f)), None)
            if registry is None and format is not None:
                raise SqlError(f"{format} needs a schema registry", span, framed.NAME_IT, text)
        case _:
            pass


def check_sink(sink: Sink, registry: Registry | None, span: Span) -> None:
    """Refuses a result whose schema the registry would not take."""
    if registry is None:
        return
    for subject, schema in _made(of_sink(sink), sink.topic):
        try:
            registry.check(subject, schema)
        except Incompatible as e:
            raise SqlError(e.message, span, e.hint) from None


def register_sink(sink: Sink, registry: Registry | None) -> None:
    """What a query is about to write."""
    if registry is not None:
        for subject, schema in _made(of_sink(sink), sink.topic):
            registry.register(subject, schema)


def register_source(d: Declared, registry: Registry | None) -> None:
    """What is declared of a topic that nobody has said anything of."""
    if registry is not None:
        for subject, schema in _made(of_source(d), d.topic):
            if registry.latest(subject) is None:
                registry.register(subject, schema)
