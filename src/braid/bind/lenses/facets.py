"""A facet of a record: key or value, whole or made of fields, in one of Lenses' formats.

In: types and formats. Out: which format a facet gets, whether a format holds a type, names of types.
Rule: in the topic store every facet is a JSON value; the format stands in the catalog and says what is accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.types import Array, Decimal, Map, Scalar, Struct, Type

PRIMITIVES = {"INT": Scalar.INT, "LONG": Scalar.BIGINT, "STRING": Scalar.VARCHAR, "BYTES": Scalar.BYTES}
CONVERTS = {  # what STORE … AS converts, by format: nothing is lost
    "LONG": (Scalar.INT,),
    "STRING": (Scalar.INT, Scalar.BIGINT, Scalar.BOOLEAN, Scalar.DOUBLE),
}
AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    def expr(self) -> Expr | None:
        """The facet as one value."""
        return typing.struct(self.fields) if self.fields else self.whole


def format_of(t: Type, family: str) -> str:
    """The format of a facet that is one value of this type; `family`: that of structures and of what has none."""
    return next((f for f, p in PRIMITIVES.items() if p == t), family)


def check_holds(format: str, facet: Facet, name: str, span: Span) -> None:
    """A written format must be able to hold the facet."""
    expr = facet.expr
    if expr is None or format not in PRIMITIVES:
        return
    t = expr.type
    if facet.fields:
        hint = f"write JSON or AVRO, or project one value: AS {name}"
        raise SqlError(f"format {format} holds one value; {name} is a structure", span, hint)
    if t != PRIMITIVES[format] and (t, format) != (Scalar.INT, "LONG"):
        fits = format_of(t, "JSON")
        raise SqlError(f"format {format} cannot hold {name}, which is {type_name(t)}", span, f"write {fits}")


def converted(facet: Facet, format: str) -> Facet:
    """The facet as STORE's format has it."""
    if facet.whole is None or facet.whole.type not in CONVERTS.get(format, ()):
        return facet
    return replace(facet, format=format, whole=typing.cast(facet.whole, PRIMITIVES[format]))


def check_avro(fields: tuple[tuple[str, Expr], ...], name: str, span: Span) -> None:
    """AVRO has rules for names, at every depth."""
    for field, e in fields:
        bad = _not_avro(field, e.type)
        if bad is not None:
            hint = "give it a name of letters, digits and _: AS name, or STORE VALUE AS JSON"
            raise SqlError(f"AVRO cannot hold the name {bad!r} in {name}", span, hint)


def _not_avro(name: str, t: Type) -> str | None:
    if not AVRO_NAME.fullmatch(name):
        return name
    match t:
        case Struct(fields):
            return next((bad for f in fields if (bad := _not_avro(f.name, f.type)) is not None), None)
        case Array(element):
            return _not_avro(name, element)
    return None


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
