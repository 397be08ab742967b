"""Where projections go: a tree of fields for the key and one for the value.

In: projections with their targets, in written order. Out: the facets of the result.
Rule: a path that holds a value or fields already is refused; a new field under a structure that was projected is added
to it. A facet is either one whole projection or a tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.types import Struct


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
