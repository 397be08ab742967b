"""A source declared over a topic whose schema is known, or a query that writes one which is declared.

In: the new declaration, and those that are over the topic. Out: a refusal where a column could never be read.
Rule: a column is readable if every JSON value of its known type is one of the declared type: some of the columns, wider
numbers, texts of anything, times as their numbers. Who declares another column of a topic that no query writes may
write it too; a query writes all there is. What nobody declared has no types: misfits are malformed, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from braid.bind.bound import Declared, DeclaredColumn
from braid.bind.catalog import Catalog
from braid.bind.insert_schema import widens
from braid.errors import Span, SqlError
from braid.types import Array, Decimal, Map, Scalar, Struct, Type

S = Scalar
NUMBERS = {  # other types whose JSON values are numbers, or are read from some
    (S.TIMESTAMP, S.BIGINT), (S.BIGINT, S.TIMESTAMP), (S.INT, S.TIMESTAMP),
    (S.DATE, S.INT), (S.INT, S.DATE), (S.DATE, S.BIGINT),
    (S.TIME, S.INT), (S.INT, S.TIME), (S.TIME, S.BIGINT),
}  # fmt: skip
KEY_WORDS = {"stream": "KEY", "table": "PRIMARY KEY"}


def check_topic_types(declared: Declared, catalog: Catalog, spans: Mapping[str, Span], at: Span) -> None:
    """Refuses what can never be read. `spans`: of columns; `at`: of the name."""
    known = catalog.by_topic(declared.topic)
    if known is None or known.name == declared.name:
        return
    shape, has = _shape(declared), _shape(known)
    if shape != has:
        hint = f"declare it as {known.name} is"
        raise SqlError(f"topic {known.topic} holds {has}; {declared.name} reads {shape}", at, hint)
    keys = [", ".join(c.name for c in d.key) for d in (known, declared)]
    if all(keys) and (len(known.key) == 1) != (len(declared.key) == 1):
        hint = "declare all columns of the key, or none of them"
        raise SqlError(f"the key of topic {known.topic} is {keys[0]}; {declared.name} reads {keys[1]}", at, hint)
    for column, there in _pairs(declared, known):
        span = spans.get(column.name, at)
        if there is None:
            columns = ", ".join(c.name for c in known.visible)
            message = f"topic {known.topic} has no column {column.name}: {known.created_by} writes {columns}"
            raise SqlError(message, span, "leave it out, or correct its name")
        where = f"column {there.name} of topic {known.topic}"
        in_key = there in known.key if column.place == "key" else there.place == "key"
        if in_key != (column.place == "key"):
            hint = f"write {column.name} {column.type}" + f" {KEY_WORDS[declared.kind]}" * in_key
            raise SqlError(f"{where} is in the {there.place}, not in the {column.place}", span, hint)
        if not readable(there.type, column.type):
            hint = f"write {column.name} {there.type}"
            raise SqlError(f"{where} is {there.type}; it cannot be read as {column.type}", span, hint)


def check_written(made: Declared, catalog: Catalog, spans: Mapping[str, Span], at: Span) -> None:
    """Refuses a query whose rows what is declared over their topic could never read. `spans`: of columns of the SELECT;
    `at`: of the name."""
    for reader in catalog.sources.values():
        if reader.topic != made.topic or reader.name == made.name:
            continue
        hint = "write another topic, or DROP " + reader.name
        shapes = _shape(made), _shape(reader)
        if shapes[0] != shapes[1]:
            message = f"{made.name} writes {shapes[0]} into topic {made.topic}; {reader.name} reads {shapes[1]}"
            raise SqlError(message, at, hint)
        if made.key and reader.key and (len(made.key) == 1) != (len(reader.key) == 1):
            keys = [", ".join(c.name for c in d.key) for d in (made, reader)]
            message = f"{made.name} writes topic {made.topic} by {keys[0]}; {reader.name} reads the key {keys[1]}"
            raise SqlError(message, at, hint)
        for column, there in _pairs(reader, made):
            if there is not None and not readable(there.type, column.type):
                message = (
                    f"{made.name} writes {there.name} as {there.type} into topic {made.topic}; {reader.name} reads"
                )
                message += f" {column.name} as {column.type}"
                raise SqlError(message, spans.get(there.name, at), f"CAST it to {column.type}, or {hint}")


def _shape(d: Declared) -> str:
    """What a value is, where not an object of columns."""
    if d.encoding.value == "DELIMITED":
        return f"values delimited by {d.encoding.delimiter!r}"
    return "objects" if d.encoding.wrapped and d.encoding.value != "KAFKA" else "single values"


def _pairs(declared: Declared, known: Declared) -> list[tuple[DeclaredColumn, DeclaredColumn | None]]:
    """Columns with those that hold their values: bare keys and values and delimited ones by position, else by name.
    With None: a query writes the topic, and no such column. Where nothing is known of a column it is left out."""
    pairs: list[tuple[DeclaredColumn, DeclaredColumn | None]] = []
    for place in ("key", "value"):
        wanted = [c for c in declared.visible if c.place == place]
        have = list(known.key) if place == "key" else [c for c in known.columns if c.place == place]
        other = {c.name.lower(): c for c in known.columns if c.place in ("key", "value")}
        bare = len(wanted) == len(have) == 1 if place == "key" else _shape(declared) != "objects"
        if bare:
            pairs += zip(wanted, have, strict=False)
            continue
        named = {c.name.lower(): c for c in have}
        for c in wanted:
            found = named.get(c.name.lower()) or other.get(c.name.lower())
            if found is not None or known.created_by is not None:
                pairs.append((c, found))
    return pairs


def readable(source: Type, target: Type) -> bool:
    """Whether each JSON value of `source` is one of `target`."""
    if source == target or S.NULL in (source, target) or target is S.VARCHAR:
        return True
    match source, target:
        case (Decimal(), S.DOUBLE):  # written as text
            return False
        case (Array(a), Array(b)):
            return readable(a, b)
        case (Map(k, v), Map(kk, vv)):
            return readable(k, kk) and readable(v, vv)
        case (Struct(fields), Map(S.VARCHAR, v)):
            return all(readable(f.type, v) for f in fields)
        case (Struct(fields), Struct(wanted)):
            types = {f.name.lower(): f.type for f in fields}
            return all(readable(types[f.name.lower()], f.type) for f in wanted if f.name.lower() in types)
    return (source, target) in NUMBERS or widens(source, target)
