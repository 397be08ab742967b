"""Projections: wildcards expanded, targets given, both facets of the result made.

In: SELECT items as written, what FROM gives. Out: key and value facet.
Rule: targets are inserted in written order (`Tree`); a facet without projections is that of the input. The
format of a facet follows from what it holds, unless STORE says another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from braid.bind.expressions import bind_expr, with_span
from braid.bind.lenses.facets import Facet, Placed, Tree, check_holds, check_names, converted, format_of
from braid.bind.lenses.joins import merged
from braid.bind.lenses.scope import FACETS, Given, Relation, Sources, is_nullable
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.sql import ast
from braid.types import Struct

REKEYED = "the key is projected: the result is partitioned by the new key"


def bind_projections(
    items: Sequence[ast.SelectItem], given: Given, stored: tuple[ast.StoreAs | None, ast.StoreAs | None] = (None, None)
) -> tuple[Facet, Facet]:
    """Key and value of the result."""
    trees = {"_key": Tree(), "_value": Tree()}
    for item in items:
        for placed in _placed(item, given):
            if placed.facet == "_key" and given.grouped:
                hint = "the key of a grouped result is what GROUP BY names"
                raise SqlError("nothing can be projected on the key of GROUP BY", placed.span, hint)
            trees[placed.facet].add(placed)
    return _key(trees["_key"], given, stored[0], items), _value(trees["_value"], given, stored[1], items)


# --------------------------------------------------------------------- facets


def _key(tree: Tree, given: Given, stored: ast.StoreAs | None, items: Sequence[ast.SelectItem]) -> Facet:
    family = given.first.key_family
    if tree.is_empty or _is_copy(tree, given.key):
        made = Facet(given.key_format, (), given.key)
    elif tree.whole is not None:
        made = Facet(format_of(tree.whole.type, family), (), tree.whole)
    else:
        made = Facet(family, tree.fields)
    return _stored(made, "the key", stored, given, items)


def _value(tree: Tree, given: Given, stored: ast.StoreAs | None, items: Sequence[ast.SelectItem]) -> Facet:
    first = given.first
    if tree.is_empty and (given.sources.is_join or given.grouped):
        raise SqlError("nothing is projected on the value", items[0].span, "add a field, such as a.x AS x")
    is_copy = (tree.fields, tree.whole) == (first.fields, first.whole) and not given.sources.is_join
    if tree.is_empty or is_copy:
        made = Facet(first.value_format, first.fields, first.whole)
    elif tree.whole is not None:
        made = Facet(format_of(tree.whole.type, first.family), (), tree.whole)
    else:
        made = Facet(first.family, tree.fields)
    return _stored(made, "the value", stored, given, items)


def _is_copy(tree: Tree, key: Expr | None) -> bool:
    """Is the tree the input's own key, field by field or whole?"""
    if key is None or tree.whole is not None:
        return tree.whole == key
    return isinstance(key.type, Struct) and tree.fields == tuple(
        (f.name, typing.field(key, f.name)) for f in key.type.fields
    )


def _stored(
    facet: Facet, name: str, stored: ast.StoreAs | None, given: Given, items: Sequence[ast.SelectItem]
) -> Facet:
    """The facet in the format that STORE asks for, if it does."""
    format, span = (stored.format, stored.span) if stored is not None else (facet.format, items[0].span)
    facet = converted(facet, format)
    check_holds(format, facet, name, span)
    fields = facet.fields
    if facet.whole is not None and isinstance(facet.whole.type, Struct):
        fields = tuple((f.name, typing.field(facet.whole, f.name)) for f in facet.whole.type.fields)
    check_names(format, fields, name, span)
    missing = given.missing()
    nullable = {n for n, e in facet.fields if is_nullable(e, missing)}
    if facet.whole is not None and is_nullable(facet.whole, missing):
        nullable.add("")
    return Facet(format, facet.fields, facet.whole, frozenset(nullable))


# -------------------------------------------------------------------- targets


def _placed(item: ast.SelectItem, given: Given) -> Iterator[Placed]:
    if isinstance(item.expr, ast.Star):
        with with_span(item.span):
            for p in _expanded(item.expr, given):
                yield p if given.lifted is None else replace(p, expr=given.lifted(p.expr, p.path[-1]))
        return
    expr = bind_expr(item.expr, given.rules)
    written = given.written(item.span)
    if item.target is None:
        yield Placed("_value", (_default(item, given),), expr, written, item.span)
        return
    parts = item.target.parts
    facet, path = (parts[0], parts[1:]) if parts[0] in FACETS else ("_value", parts)
    yield Placed(facet, path, expr, written, item.span)


def _default(item: ast.SelectItem, given: Given) -> str:
    if given.env.settings.lenses.names == "last" and isinstance(item.expr, ast.Name):
        return item.expr.parts[-1]
    return given.written(item.span)


def _expanded(w: ast.Star, given: Given) -> Iterator[Placed]:
    """The projections that a wildcard stands for."""
    sources, shown = given.sources, ".".join((*w.parts, "*"))
    relations, facets = _meant(w, sources)
    if "_key" in w.parts and sources.barred is not None:
        hint = "the result has a key of its own; project the whole _key AS a name"
        raise SqlError(f"{shown} gives fields of the key, which cannot be projected {sources.barred}", hint=hint)
    if "_key" in facets and sources.barred is None:
        for r in relations:
            yield from _key_fields(r, shown, w.span)
    if "_value" not in facets:
        return
    fields = [(r, name, e) for r in relations for name, e in r.fields]
    for r, name, e in merged(fields, given.equated if not w.parts else ()):
        of = f"{r.alias}.{name}" if sources.is_join else name
        yield Placed("_value", (name,), e, f"{of} in {shown}", w.span)
    for r in relations:
        if r.whole is not None:
            yield Placed("_value", (), r.whole, f"the value of {r.alias} in {shown}", w.span)
    if not w.parts:
        for c in sources.elements:
            yield Placed("_value", (c.name,), c.expr, f"{c.name} in {shown}", w.span)


def _meant(w: ast.Star, sources: Sources) -> tuple[tuple[Relation, ...], tuple[str, ...]]:
    """The sources and facets that a wildcard names."""
    parts = sources.one_alias(w.parts)
    source = sources.relation(parts[0]) if parts else None
    relations = sources.relations
    if source is not None:
        relations, parts = (source,), parts[1:]
    elif sources.is_join and parts:
        known = ", ".join(r.alias for r in sources.relations)
        hint = f"sources are {known}: write {sources.relations[0].alias}.*"
        raise SqlError(f"{'.'.join(w.parts)}.* names no source", hint=hint)
    if not parts:
        return relations, FACETS
    if len(parts) == 1 and parts[0] in FACETS:
        return relations, parts
    hint = "write *, source.*, source._key.* or source._value.*; a structure is projected by its name"
    raise SqlError(f"{'.'.join(w.parts)}.* is no wildcard", hint=hint)


def _key_fields(r: Relation, shown: str, span: Span) -> Iterator[Placed]:
    if r.key is None:
        return
    if not isinstance(r.key.type, Struct):
        yield Placed("_key", (), r.key, f"the key in {shown}", span)
        return
    for f in r.key.type.fields:
        yield Placed("_key", (f.name,), typing.field(r.key, f.name), f"_key.{f.name} in {shown}", span)
