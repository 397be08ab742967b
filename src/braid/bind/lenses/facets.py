"""A facet of a record: key or value, whole or a tree of fields, in one of Lenses' formats.

In: types and formats; projections with their targets, in written order. Out: which format a facet gets, whether a
format holds a type, names of types; the facets of a result.
Rule: in the topic store every facet is a JSON value; the format stands in the catalog and says what is accepted. What
has a schema has it in the registry. A facet is either one whole projection or a tree. A path that holds a value or
fields already is refused; a new field under a structure that was projected is added to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.records.encoding import Encoding
from braid.records.facet import KeyWindow, RecordSchema
from braid.records.formats.named import CSV, FORMATS, named_in
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

PRIMITIVES = {"INT": Scalar.INT, "LONG": Scalar.BIGINT, "STRING": Scalar.VARCHAR, "BYTES": Scalar.BYTES}
CONVERTS = {  # what STORE … AS converts, by format: nothing is lost
    "LONG": (Scalar.INT,),
    "STRING": (Scalar.INT, Scalar.BIGINT, Scalar.BOOLEAN, Scalar.DOUBLE),
}

READ_ONLY = (CSV,)  # what is made of them is JSON

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Facet:
    """`fields` of a structure, or else the `whole` of it; neither: the records have none. `nullable`: which fields, or
    the whole (named ''), may be missing."""

    format: str
    fields: tuple[tuple[str, Expr], ...] = ()
    whole: Expr | None = None
    nullable: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not self.fields and self.whole is None

    @property
    def columns(self) -> tuple[tuple[str, Expr], ...]:
        """What a value is written as."""
        return self.fields if self.whole is None else (("_value", self.whole),)

    @property
    def expr(self) -> Expr | None:
        """The facet as one value."""
        return typing.struct(self.fields) if self.fields else self.whole


def format_of(t: Type, family: str) -> str:
    """The format of a facet that is one value of this type; `family`: that of structures and of what has none."""
    own = "JSON" if FORMATS[family].single == "record" else family
    return next((f for f, p in PRIMITIVES.items() if p == t), own)


def written_as(format: str) -> str:
    """The format of what is made of records in a format."""
    return "JSON" if format in READ_ONLY else format


def check_written(format: str, span: Span) -> None:
    if format in READ_ONLY:
        raise SqlError(f"format {format} is read, and not written", span, "write STORE VALUE AS JSON, or leave it out")


def check_holds(format: str, facet: Facet, name: str, span: Span) -> None:
    """A written format must be able to hold the facet."""
    expr = facet.expr
    if facet.whole is not None and format not in PRIMITIVES and FORMATS[format].single == "record":
        hint = "name its fields, or write another format, such as JSON"
        raise SqlError(f"format {format} holds fields; {name} is one value", span, hint)
    if expr is None or format not in PRIMITIVES:
        return
    t = expr.type
    if facet.fields:
        hint = f"write {' or '.join(named_in('lenses'))}, or project one value: AS {name}"
        raise SqlError(f"format {format} holds one value; {name} is a structure", span, hint)
    if t != PRIMITIVES[format] and (t, format) != (Scalar.INT, "LONG"):
        fits = format_of(t, "JSON")
        raise SqlError(f"format {format} cannot hold {name}, which is {type_name(t)}", span, f"write {fits}")


def converted(facet: Facet, format: str) -> Facet:
    """The facet as STORE's format has it."""
    if facet.whole is None or facet.whole.type not in CONVERTS.get(format, ()):
        return facet
    return replace(facet, format=format, whole=typing.cast(facet.whole, PRIMITIVES[format]))


def check_names(format: str, fields: tuple[tuple[str, Expr], ...], name: str, span: Span) -> None:
    """A format with schemas has rules for names, at every depth."""
    kind = None if format in PRIMITIVES else FORMATS[format].schemas
    bad = None if kind is None else kind.unnameable([Column(n, e.type) for n, e in fields])
    if bad is not None:
        hint = "give it a name of letters, digits and _: AS name, or STORE VALUE AS JSON"
        raise SqlError(f"{format} cannot hold the name {bad!r} in {name}", span, hint)


def encoding_of(topic: str, formats: tuple[str, str], *, wrapped: bool, window: KeyWindow | None = None) -> Encoding:
    """How a topic's facets are written: structures in their format, a primitive as JSON; but on a broker that stands in
    the bytes of its serializer. `window`: behind its keys."""
    name = "".join(c if c.isalnum() else "_" for c in topic)
    name = name if NAME.fullmatch(name) else f"_{name}"
    key, value = ("JSON" if f in PRIMITIVES else f for f in formats)
    key_schema, value_schema = (
        None if FORMATS[f].schemas is None else RecordSchema(f"lenses.{name}{end}")
        for f, end in ((key, "Key"), (value, ""))
    )
    return Encoding(
        key,
        value,
        wrapped=wrapped,
        key_schema=key_schema,
        value_schema=value_schema,
        binary=tuple(n for n, f in zip(("key", "value"), formats, strict=True) if f in PRIMITIVES),
        window=window,
    )


def type_name(t: Type) -> str:
    """A type as Lenses spells it."""
    match t:
        case Scalar.VARCHAR:
            return "STRING"
        case Scalar.BIGINT:
            return "LONG"
        case Scalar.INT:
            return "INT"
        case Array(element):
            return f"{type_name(element)}[]"
        case Map(key, value):
            return f"MAP<{type_name(key)}, {type_name(value)}>"
        case Struct(fields):
            return f"{{{', '.join(f'{f.name} {type_name(f.type)}' for f in fields)}}}"
        case Scalar() | Decimal():
            return str(t)


# --------------------------------------------------------- where projections go


@dataclass(frozen=True, slots=True)
class Placed:
    """A projection with its target. `written`: what the user wrote for it, for messages. No `path`: the whole facet."""

    facet: str
    path: tuple[str, ...]
    expr: Expr
    written: str
    span: Span

    @property
    def target(self) -> str:
        return ".".join((self.facet, *self.path)) if self.facet == "_key" or not self.path else ".".join(self.path)


@dataclass(slots=True)
class _Node:
    """A place of a tree: a projected value (`placed`), fields, or both where fields were added to a structure."""

    placed: Placed | None = None
    fields: dict[str, _Node] = field(default_factory=dict)

    def first(self) -> Placed:
        """A projection that stands here or below."""
        return self.placed if self.placed is not None else next(iter(self.fields.values())).first()


@dataclass(slots=True)
class Tree:
    """One facet, growing projection by projection."""

    root: _Node = field(default_factory=_Node)

    def add(self, p: Placed) -> None:
        node = self.root
        for i, name in enumerate(p.path):
            if node.placed is not None:
                _check_struct(node.placed, p, name)
            if i == len(p.path) - 1 and name in node.fields:
                raise _taken(node.fields[name].first(), p)
            node = node.fields.setdefault(name, _Node())
        if not p.path and (node.placed is not None or node.fields):
            raise _second_whole(node.first(), p)
        node.placed = p

    @property
    def is_empty(self) -> bool:
        return self.root.placed is None and not self.root.fields

    @property
    def whole(self) -> Expr | None:
        """The one projection of the whole facet."""
        return self.root.placed.expr if self.root.placed is not None else None

    @property
    def fields(self) -> tuple[tuple[str, Expr], ...]:
        return tuple((name, _made(node)) for name, node in self.root.fields.items())


def _made(node: _Node) -> Expr:
    """The value of a place: a structure of its fields, those of a projected structure first."""
    if not node.fields:
        assert node.placed is not None
        return node.placed.expr
    own: list[tuple[str, Expr]] = []
    if node.placed is not None:
        assert isinstance(node.placed.expr.type, Struct)
        own = [(f.name, typing.field(node.placed.expr, f.name)) for f in node.placed.expr.type.fields]
    return typing.struct([*own, *((name, _made(x)) for name, x in node.fields.items())])


def _check_struct(there: Placed, p: Placed, name: str) -> None:
    """A field may be added below a projected value only if that is a structure without such a field."""
    if not there.path:
        hint = f"project the whole {there.facet}, or fields of it, not both"
        raise SqlError(
            f"{p.written} cannot be added to {there.written}, which is the whole {there.facet}", p.span, hint
        )
    if not isinstance(there.expr.type, Struct):
        hint = f"choose another name than {there.target}.{name}"
        raise SqlError(f"{p.written} is below {there.written}, which is no structure", p.span, hint)
    if any(f.name == name for f in there.expr.type.fields):
        raise _taken(there, p)


def _taken(there: Placed, p: Placed) -> SqlError:
    hint = "give one of them another name with AS; of a wildcard, write the fields: a.x AS a_x"
    return SqlError(f"{p.written} and {there.written} have one target, {p.target}", p.span, hint)


def _second_whole(there: Placed, p: Placed) -> SqlError:
    if not there.path:
        hint = "a facet takes one projection of its whole: name fields instead, such as AS a and AS b"
        return SqlError(f"{p.written} and {there.written} are both the whole {p.facet}", p.span, hint)
    hint = f"project the whole {p.facet}, or fields of it, not both"
    return SqlError(f"{p.written} is the whole {p.facet}, and {there.written} a field of it", p.span, hint)
