"""The statements that only Lenses SQL has, as written.

In: nothing. Out: frozen nodes, each with the span of the text it came from.
Rule: as in `ast`: what the user wrote, nothing resolved. `_key` and `_value` are parts of names like any other; which
facet is meant is found out when bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Literal as OneOf

from braid.errors import Span
from braid.types import Type

if TYPE_CHECKING:
    from braid.sql import ast


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`*`, `a.*`, `_key.*`, `a._value.*`: the parts before the star."""

    parts: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Target:
    """Behind AS: `alias`, `x.a`, `_key.a`, `_value`."""

    parts: tuple[str, ...]
    span: Span

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Projection:
    """`<expression> [AS target]`, or a wildcard; `span`: without the target."""

    source: ast.Expr | Wildcard
    target: Target | None
    span: Span


@dataclass(frozen=True, slots=True)
class Lateral:
    """`LATERAL <array> AS alias`."""

    array: ast.Expr
    alias: str
    span: Span


@dataclass(frozen=True, slots=True)
class LensesJoin:
    """`left how JOIN right`; `within` as written before and behind ON (both are the same where both are written)."""

    left: ast.TableRef
    right: ast.TableRef
    how: OneOf["inner", "left", "right", "full"]
    on: ast.Expr | None
    within: ast.Duration | None
    span: Span
    how_span: Span


@dataclass(frozen=True, slots=True)
class LensesQuery:
    """SELECT STREAM | TABLE …; `notices`: what was accepted though it is not clean."""

    kind: ast.Kind
    items: tuple[Projection, ...]
    source: ast.TableRef | LensesJoin
    event_time: ast.Name | None  # EVENTTIME BY
    laterals: tuple[Lateral, ...]
    where: ast.Expr | None
    group_by: tuple[ast.Expr, ...]
    span: Span
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreAs:
    """`KEY AS format` or `VALUE AS format` of STORE; the format in upper case."""

    format: str
    span: Span


@dataclass(frozen=True, slots=True)
class WithQuery:
    """`WITH name AS (query);`"""

    name: str
    query: LensesQuery
    span: Span
    name_span: Span


@dataclass(frozen=True, slots=True)
class InsertQuery:
    """`INSERT INTO target [STORE [KEY AS f] [VALUE AS f]] query`."""

    target: str
    key_format: StoreAs | None
    value_format: StoreAs | None
    query: LensesQuery
    span: Span
    target_span: Span


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """A query on its own: its rows are shown, not stored."""

    query: LensesQuery
    span: Span


@dataclass(frozen=True, slots=True)
class FieldDef:
    """`_key.pid INT`, `address.country STRING`, `_value INT`."""

    path: tuple[str, ...]
    type: Type
    span: Span


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """`CREATE TABLE | STREAM name (fields) FORMAT (key, value) [PROPERTIES (…)]`."""

    kind: ast.Kind
    name: str
    fields: tuple[FieldDef, ...]
    key_format: StoreAs
    value_format: StoreAs
    properties: tuple[ast.Property, ...]
    if_not_exists: bool
    span: Span
    name_span: Span


LensesStatement = WithQuery | InsertQuery | SelectQuery | CreateTopic
