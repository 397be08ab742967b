"""What names and expressions mean: sources with their two facets, the elements of LATERAL, Lenses' functions.

In: the sources of a query, names as paths; an expression as written. Out: expressions over plan columns.
Rule: a name without facet means the value; `_key.field` stands only where the key is one source's own (P-20). A name
means one thing or is refused, with what to write instead. Positions count from 0, 1.5 is a DOUBLE; everything else is
as in every dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from braid.bind import expressions
from braid.bind.expressions import Rules, bind_expr, unknown_function
from braid.bind.lenses.facets import type_name
from braid.errors import SqlError
from braid.expr import typing, user
from braid.expr.functions import by_name
from braid.expr.functions_dialects import WITHOUT
from braid.expr.nodes import Call, Case, Col, Expr, Lit, columns
from braid.guess import guesses, meant
from braid.plan.logical import Kind, Node
from braid.records.formats.named import named_in
from braid.sql import ast
from braid.types import Array, Decimal, Scalar, Struct

FACETS = ("_key", "_value")
STRUCTURED = named_in("lenses")  # formats of structures


@dataclass(frozen=True, slots=True)
class Relation:
    """A source as a query sees it. `key` None: its records have none. `fields`: of a structured value; else `whole` is
    the value. `nullable`: the plan columns that may be missing; `partitions` None: nobody declared a count."""

    alias: str
    node: Node
    kind: Kind
    key: Expr | None
    key_format: str
    fields: tuple[tuple[str, Expr], ...]
    whole: Expr | None
    value_format: str
    nullable: frozenset[str] = frozenset()
    partitions: int | None = None
    is_query: bool = False  # a WITH name, not a topic

    @property
    def value(self) -> Expr:
        """The whole value facet."""
        if self.whole is not None:
            return self.whole
        made = typing.struct(self.fields)
        if not all(is_nullable(e, self.nullable) for _, e in self.fields):
            return made
        missing = typing.call("is_null", [self.fields[0][1]])
        for _, e in self.fields[1:]:
            missing = typing.call("and", [missing, typing.call("is_null", [e])])
        return typing.case([(missing, Lit(None, Scalar.NULL))], made)

    @property
    def family(self) -> str:
        """The format of structures that are made from its fields."""
        return next((f for f in (self.value_format, self.key_format) if f in STRUCTURED), "JSON")

    @property
    def key_family(self) -> str:
        """The same for structures in the key."""
        return self.key_format if self.key_format in STRUCTURED else self.family

    def field(self, name: str) -> Expr | None:
        return next((e for n, e in self.fields if n == name), None)


@dataclass(frozen=True, slots=True)
class Scope:
    """The sources of a query, left to right, and the LATERAL elements so far. `key_fields`: may `_key.field` stand
    here; else why not."""

    relations: tuple[Relation, ...]
    elements: tuple[tuple[str, Col], ...] = ()
    barred: str | None = None

    @property
    def is_join(self) -> bool:
        return len(self.relations) > 1

    @property
    def nullable(self) -> frozenset[str]:
        return frozenset().union(*(r.nullable for r in self.relations))

    def barring(self, why: str | None) -> Scope:
        """The same scope where fields of keys may not stand."""
        return replace(self, barred=why)

    def relation(self, alias: str) -> Relation | None:
        return next((r for r in self.relations if r.alias == alias), None)

    def resolve(self, parts: tuple[str, ...]) -> Expr:
        """The expression that a path means."""
        element = next((c for n, c in self.elements if n == parts[0]), None)
        if element is not None:
            return _within(element, parts[1:])
        source = self.relation(parts[0])
        if source is not None:
            if len(parts) > 1:
                return self._of(source, parts[1:])
            if not any(r.field(parts[0]) for r in self.relations):
                hint = f"write {parts[0]}._value for its whole value, {parts[0]}._key for its key"
                raise SqlError(f"{parts[0]} is a source, not a field", hint=hint)
        if parts[0] in FACETS:
            if self.is_join:
                ways = " or ".join(f"{r.alias}.{'.'.join(parts)}" for r in self.relations)
                raise SqlError(f"{parts[0]} is ambiguous in a join", hint=f"write {ways}")
            return self._of(self.relations[0], parts)
        found = [r for r in self.relations if r.field(parts[0]) is not None]
        if len(found) == 1:
            return self._of(found[0], parts)
        if found:
            ways = " or ".join(f"{r.alias}.{'.'.join(parts)}" for r in found)
            raise SqlError(f"{parts[0]} is ambiguous", hint=f"write {ways}")
        raise self._unknown(parts)

    def _of(self, r: Relation, parts: tuple[str, ...]) -> Expr:
        """A path within one source."""
        if parts[0] == "_key":
            if r.key is None:
                hint = "its ON compares nothing: add an equality" if r.is_query else None
                raise SqlError(f"the records of {r.alias} have no key", hint=hint)
            if len(parts) > 1 and self.barred is not None:
                hint = "project the whole _key, or copy the field to the value in a WITH first"
                raise SqlError(f"fields of _key cannot be projected {self.barred}", hint=hint)
            return _within(r.key, parts[1:], f"the key of {r.alias}")
        if parts[0] == "_value":
            return r.value if len(parts) == 1 else self._in_value(r, parts[1:])
        return self._in_value(r, parts)

    def _in_value(self, r: Relation, parts: tuple[str, ...]) -> Expr:
        """A path within its value: a field there may be called `_key`."""
        field = r.field(parts[0])
        if field is None and r.whole is not None and isinstance(r.whole.type, Struct):
            return _within(r.whole, parts)
        if field is None:
            near = [f"{x.alias}.{parts[0]}" for x in self.relations if x.field(parts[0]) is not None]
            near = near or guesses(parts[0], [n for n, _ in r.fields], 1)
            raise SqlError(f"{r.alias} has no field {parts[0]}", hint=_fields_hint(r, near))
        return _within(field, parts[1:])

    def _unknown(self, parts: tuple[str, ...]) -> SqlError:
        listed = ", ".join(r.alias for r in self.relations)
        if len(parts) > 1:
            near = guesses(parts[0], [r.alias for r in self.relations], 1)
            hint = f"did you mean {near[0]}? " if near else ""
            return SqlError(f"unknown source or field {parts[0]}", hint=f"{hint}this query reads {listed}")
        names = {n: r for r in self.relations for n, _ in r.fields}
        hint = meant(parts[0], names, "; ".join(_fields_hint(r, []) for r in self.relations))
        return SqlError(f"unknown field {parts[0]}", hint=hint)


def _within(e: Expr, path: tuple[str, ...], what: str | None = None) -> Expr:
    for name in path:
        if not isinstance(e.type, Struct):
            whole = f"{what} is {e.type}: it" if what is not None else f"{e.type}"
            raise SqlError(f"{whole} has no field {name}", hint="write it without the field")
        e = typing.field(e, name)
    return e


def _fields_hint(r: Relation, near: list[str]) -> str:
    if near:
        return f"did you mean {near[0]}?"
    if r.whole is not None:
        return f"the value of {r.alias} is {r.whole.type}: write _value"
    return f"{r.alias} has {', '.join(n for n, _ in r.fields)}"


def is_nullable(e: Expr, nullable: frozenset[str]) -> bool:
    """May `e` be null because a column it reads is missing?"""
    match e:
        case Call(function="as_non_nullable" | "is_null" | "is_not_null" | "is_distinct_from"):
            return False
        case Call(function="as_nullable"):
            return True
        case Call(function="COALESCE", args=args):
            return all(is_nullable(a, nullable) for a in args)
        case Lit(value=None):
            return True
        case Case(whens=whens, default=default):
            return is_nullable(default, nullable) or any(is_nullable(v, nullable) for _, v in whens)
    return any(name in nullable for name in columns(e))


def aliases_read(e: Expr, scope: Scope) -> Iterator[str]:
    """The aliases of the sources whose columns `e` reads, each once."""
    seen: set[str] = set()
    for name in columns(e):
        for r in scope.relations:
            if r.alias not in seen and name in _columns_of(r):
                seen.add(r.alias)
                yield r.alias


def _columns_of(r: Relation) -> set[str]:
    exprs = [e for _, e in r.fields] + [x for x in (r.key, r.whole) if x is not None]
    return {name for e in exprs for name in columns(e)}


# ------------------------------------------------------------------ expressions


OPERATORS = {**expressions.OPERATORS, "||": "sql.concat"}
LISTED = "docs/dialects/lenses.md lists the functions"
TURNED = ("IN_ARRAY",)  # its arguments stand the other way round
AGGREGATES = {"COUNT": "COUNT", "SUM": "SUM", "AVG": "AVG", "LAST": "LATEST"}
LATER = ("BOTTOMK", "COLLECT", "COLLECT_UNIQUE", "FIRST", "MAXK", "MAXK_UNIQUE", "MINK", "MINK_UNIQUE", "TOPK")


def rules(
    clause: str,
    scope: Scope,
    aggregate: Callable[[ast.Call], Expr] | None = None,
    known: Callable[[ast.Expr], Expr | None] | None = None,
    column: Callable[[ast.Name], Expr] | None = None,
) -> Rules:
    """What expressions of a clause mean. `aggregate` None: aggregates may not stand there; `known`: asked first about
    every part, so that a grouped query finds its keys."""

    def whole(e: ast.Expr) -> Expr | None:
        return (None if known is None else known(e)) or _own(e, made)

    column = column or (lambda n: scope.resolve(n.parts))
    named = by_name("lenses"), tuple(AGGREGATES), OPERATORS
    made = Rules(clause, column, aggregate, whole, *named, widens=True, unknown=True)
    return made


def _own(e: ast.Expr, r: Rules) -> Expr | None:
    """What means something else in Lenses than in other dialects."""
    match e:
        case ast.Literal(type=Decimal(), value=value):
            return typing.literal(float(str(value)), Scalar.DOUBLE)
        case ast.Subscript(base=base, index=index):
            of, at = bind_expr(base, r), bind_expr(index, r)
            return typing.call("subscript", [of, _from_one(at) if isinstance(of.type, Array) else at])
        case ast.ArrayLiteral(items=()):
            raise SqlError("an empty array has no type", hint="write one element or more")
        case ast.Call() if not user.overloads(e.name, "scalar", "table"):
            return _call(e, r)
    return None


def _from_one(at: Expr) -> Expr:
    """A place that counts from 0 as one that counts from 1; below 0 there is none."""
    if at.type not in (Scalar.INT, Scalar.BIGINT, Scalar.NULL):
        raise SqlError(f"an array is indexed by an INT from 0, not by {type_name(at.type)}")
    made = typing.call("add", [at, typing.literal(1, Scalar.INT)])
    if isinstance(at, Lit) and isinstance(at.value, int) and at.value >= 0:
        return made
    return typing.case([(typing.call("ge", [at, typing.literal(0, Scalar.INT)]), made)])


def _call(e: ast.Call, r: Rules) -> Expr:
    if e.name in AGGREGATES or user.overloads(e.name, "aggregate"):
        if r.aggregate is None:
            hint = "add GROUP BY" if r.clause == "SELECT" else "group in a WITH first, then use its field"
            where = "without GROUP BY" if r.clause == "SELECT" else f"in {r.clause}"
            raise SqlError(f"{e.name} is an aggregate; it is not allowed {where}", hint=hint)
        return r.aggregate(e)
    if e.distinct or any(isinstance(a, ast.Star) for a in e.args):
        raise SqlError(f"{e.name} takes values", hint="only COUNT takes *")
    function = r.functions.get(e.name)
    if function is None and e.name in LATER:
        raise SqlError(f"{e.name} is not supported yet", hint=f"aggregates are {', '.join(AGGREGATES)}")
    if function is None and e.name in WITHOUT:
        why, hint = WITHOUT[e.name]
        raise SqlError(f"{e.name} cannot be used: {why}", hint=hint)
    if function is None:
        raise unknown_function(e.name, [*r.functions, *AGGREGATES, *user.names()], LISTED)
    args = [bind_expr(a, r) for a in e.args]
    if e.name not in TURNED:
        return typing.call(function.name, args, e.name)
    try:
        return typing.call(function.name, args[::-1], e.name)
    except SqlError as error:
        given = ", ".join(str(a.type) for a in args)
        raise SqlError(f"{e.name}({given}): it takes a value and an ARRAY of such", hint=error.hint) from None
