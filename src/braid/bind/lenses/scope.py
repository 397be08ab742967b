"""What names and expressions mean: sources with their two facets, the elements of LATERAL, Lenses' functions.

In: the sources of a query, names as paths; an expression as written. Out: expressions over plan columns.
Rule: a name without facet means the value; `_key.field` stands only where the key is one source's own (P-20). A name
means one thing or is refused, with what to write instead. Positions count from 0, 1.5 is a DOUBLE; everything else is
as in every dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from braid.bind import expressions
from braid.bind.bound import Windowing
from braid.bind.env import Env
from braid.bind.expressions import Rules, bind_expr, unknown_function
from braid.bind.lenses.facets import type_name
from braid.bind.select.scope import Column, Scope, Table, of_table, of_tables
from braid.bind.select.tree import Leaf
from braid.errors import Span, SqlError
from braid.expr import typing, user
from braid.expr.aggregates import LENSES
from braid.expr.functions import by_name
from braid.expr.functions_dialects import WITHOUT
from braid.expr.nodes import Call, Case, Col, Expr, Lit, columns
from braid.plan.logical import Kind, Node
from braid.records.formats.named import named_in, records_in
from braid.sql import ast
from braid.types import Array, Decimal, Scalar, Struct

FACETS = ("_key", "_value")
META = {"timestamp": "ROWTIME", "partition": "ROWPARTITION", "offset": "ROWOFFSET"}  # of `_meta`, the record itself
STRUCTURED = named_in("lenses")  # formats of structures
RECORDS = records_in("lenses")  # those of records only


@dataclass(frozen=True, slots=True)
class InKeys:
    """The windows that are parts of the keys of rows, and their bounds."""

    windowing: Windowing
    bounds: tuple[Col, Col]


@dataclass(frozen=True, slots=True)
class Relation(Leaf):
    """A source as a query sees it; its columns are the fields of a structured value. `key` None: its records have none.
    `whole`: the value that is no structure. `nullable`: the plan columns that may be missing; `partitions` None: nobody
    declared a count; `is_query`: a WITH name, not a topic; `windows`: in its keys; `meta`: what `_meta` has, of a topic
    that it is asked of."""

    kind: Kind
    key: Expr | None
    key_format: str
    whole: Expr | None
    value_format: str
    nullable: frozenset[str]
    partitions: int | None
    is_query: bool
    windows: InKeys | None
    meta: Mapping[str, Expr] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[tuple[str, Expr], ...]:
        return tuple((c.name, c.expr) for c in self.scope.columns)

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
        own = self.key_format if self.key_format in STRUCTURED else self.family
        return "JSON" if own in RECORDS else own

    def field(self, name: str) -> Expr | None:
        return next((e for n, e in self.fields if n == name), None)


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a query, left to right, and the LATERAL elements so far. `barred`: why `_key.field` may not stand
    here, if it may not."""

    relations: tuple[Relation, ...]
    elements: tuple[Column, ...] = ()
    barred: str | None = None

    @property
    def is_join(self) -> bool:
        return len(self.relations) > 1

    @property
    def scope(self) -> Scope:
        """What the first names of paths mean."""
        return of_tables(tuple(t for r in self.relations for t in r.scope.tables), pseudo=self.elements, what="field")

    @property
    def nullable(self) -> frozenset[str]:
        return frozenset().union(*(r.nullable for r in self.relations))

    def barring(self, why: str | None) -> Sources:
        """The same sources where fields of keys may not stand."""
        return replace(self, barred=why)

    def relation(self, alias: str) -> Relation | None:
        return next((r for r in self.relations if r.alias == alias), None)

    def one_alias(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """A path in which the name of a source, which may have dots, is one part."""
        for n in range(len(parts), 1, -1):
            alias = ".".join(parts[:n])
            if self.relation(alias) is not None:
                return (alias, *parts[n:])
        return parts

    def expr(self, name: ast.Name) -> Expr:
        """The expression that a path means."""
        name = ast.Name(self.one_alias(name.parts), name.span)
        first, rest, scope = ast.Name(name.parts[:1], name.span), name.parts[1:], self.scope
        source = self.relation(str(first))
        if source is not None and rest:
            return self._of(source, rest, name)
        if source is not None and not scope.knows(first):
            hint = f"write {first}._value for its whole value, {first}._key for its key"
            raise SqlError(f"{first} is a source, not a field", hint=hint)
        if str(first) in FACETS and all(c.name != str(first) for c in self.elements):
            if self.is_join:
                ways = " or ".join(f"{r.alias}.{name}" for r in self.relations)
                raise SqlError(f"{first} is ambiguous in a join", hint=f"write {ways}")
            return self._of(self.relations[0], name.parts, name)
        if str(first) == "_meta" and not scope.knows(first):
            if self.is_join:
                ways = " or ".join(f"{r.alias}.{name}" for r in self.relations)
                raise SqlError("_meta is ambiguous in a join", hint=f"write {ways}")
            return _meta(self.relations[0], name.parts)
        if rest and not scope.knows(first):
            raise SqlError(f"unknown source or field {first}", hint=scope.reads(str(first)))
        return _within(scope.expr(first), rest)

    def _of(self, r: Relation, parts: tuple[str, ...], name: ast.Name) -> Expr:
        """A path within one source. A field of its value may be called `_key`."""
        if parts[0] == "_key":
            if r.key is None:
                hint = "its ON compares nothing: add an equality" if r.is_query else None
                raise SqlError(f"the records of {r.alias} have no key", hint=hint)
            if len(parts) > 1 and self.barred is not None:
                hint = "project the whole _key, or copy the field to the value in a WITH first"
                raise SqlError(f"fields of _key cannot be projected {self.barred}", hint=hint)
            return _within(r.key, parts[1:], f"the key of {r.alias}")
        if parts == ("_value",):
            return r.value
        if parts[0] == "_meta" and r.field("_meta") is None:
            return _meta(r, parts)
        first, *rest = parts[1:] if parts[0] == "_value" else parts
        if r.whole is not None and isinstance(r.whole.type, Struct):
            return _within(r.whole, (first, *rest))
        return _within(self.scope.expr(ast.Name((r.alias, first), name.span)), rest)


def _meta(r: Relation, parts: tuple[str, ...]) -> Expr:
    """`_meta.offset` and the like."""
    if not r.meta:
        hint = f"write it in the query of {r.alias}: _meta.{next(iter(META))} AS a name"
        raise SqlError(f"_meta is of the records of a topic; {r.alias} is a query", hint=hint)
    if len(parts) != 2 or parts[1] not in r.meta:
        raise SqlError(f"_meta has no {'.'.join(parts[1:]) or 'value of its own'}", hint=f"it has {', '.join(r.meta)}")
    return r.meta[parts[1]]


def _within(e: Expr, path: Sequence[str], what: str | None = None) -> Expr:
    for name in path:
        if not isinstance(e.type, Struct):
            whole = f"{what} is {e.type}: it" if what is not None else f"{e.type}"
            raise SqlError(f"{whole} has no field {name}", hint="write it without the field")
        e = typing.field(e, name)
    return e


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


def fields_of(alias: str, fields: Iterable[tuple[str, Expr]], whole: Expr | None) -> Scope:
    """What names mean over one source."""
    instead = "" if whole is None else f"the value of {alias} is {whole.type}: write _value"
    return of_table(Table(alias, tuple(Column(n, e) for n, e in fields), instead=instead))


def aliases_read(e: Expr, sources: Sources) -> list[str]:
    """The aliases of the sources whose columns `e` reads, each once."""
    return list(dict.fromkeys(r.alias for name in columns(e) for r in sources.relations if name in r.names))


@dataclass(frozen=True, slots=True)
class Given:
    """What FROM gives, and what GROUP BY makes of it: rows of `node`. `key`: what the result's key is where nothing is
    projected on it. `missing`: the plan columns that may be null, asked when all is bound. `equated`: pairs of
    expressions that a join makes equal, and the column that holds their value. `lifted`: in a grouped query, what a
    field is there (its key then stands for the group and cannot be projected). `windows`: in the key, as long as it is
    `key`."""

    env: Env
    node: Node
    kind: Kind
    sources: Sources
    rules: Rules
    key: Expr | None
    key_format: str
    partitions: int | None
    missing: Callable[[], frozenset[str]]
    equated: tuple[tuple[Expr, Expr, Expr], ...] = ()
    lifted: Callable[[Expr, str], Expr] | None = None
    windows: InKeys | None = None

    @property
    def grouped(self) -> bool:
        return self.lifted is not None

    @property
    def first(self) -> Relation:
        return self.sources.relations[0]

    def written(self, span: Span) -> str:
        """What the user wrote there."""
        return tidy(self.env.text[span.start : span.end])


def default_name(e: ast.Expr, text: str) -> str:
    """The last part of a path; of anything else its text, with single blanks outside quotes."""
    return e.parts[-1] if isinstance(e, ast.Name) else tidy(text[e.span.start : e.span.end])


def tidy(written: str) -> str:
    """White space outside quotes made one blank."""
    out, quote = "", ""
    for c in written.strip():
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"`":
            quote = c
        elif c.isspace():
            if not out.endswith(" "):
                out += " "
            continue
        out += c
    return out


# ------------------------------------------------------------------ expressions


OPERATORS = {**expressions.OPERATORS, "||": "sql.concat"}
LISTED = "docs/dialects/lenses.md lists the functions"
TURNED = ("IN_ARRAY",)  # its arguments stand the other way round


def rules(
    clause: str,
    sources: Sources,
    aggregate: Callable[[ast.Call], Expr] | None = None,
    known: Callable[[ast.Expr], Expr | None] | None = None,
    column: Callable[[ast.Name], Expr] | None = None,
) -> Rules:
    """What expressions of a clause mean. `aggregate` None: aggregates may not stand there; `known`: asked first about
    every part, so that a grouped query finds its keys."""

    def whole(e: ast.Expr) -> Expr | None:
        return (None if known is None else known(e)) or _own(e, made)

    named = by_name("lenses"), tuple(LENSES), OPERATORS
    made = Rules(clause, column or sources.expr, aggregate, whole, *named, widens=True, unknown=True)
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
    if e.name in LENSES or user.overloads(e.name, "aggregate"):
        if r.aggregate is None:
            hint = "add GROUP BY" if r.clause == "SELECT" else "group in a WITH first, then use its field"
            where = "without GROUP BY" if r.clause == "SELECT" else f"in {r.clause}"
            raise SqlError(f"{e.name} is an aggregate; it is not allowed {where}", hint=hint)
        return r.aggregate(e)
    if e.distinct or any(isinstance(a, ast.Star) for a in e.args):
        raise SqlError(f"{e.name} takes values", hint="only COUNT takes *")
    function = r.functions.get(e.name)
    if function is None and e.name in WITHOUT:
        why, hint = WITHOUT[e.name]
        raise SqlError(f"{e.name} cannot be used: {why}", hint=hint)
    if function is None:
        raise unknown_function(e.name, [*r.functions, *LENSES, *user.names()], LISTED)
    args = [bind_expr(a, r) for a in e.args]
    if e.name not in TURNED:
        return typing.call(function.name, args, e.name)
    try:
        return typing.call(function.name, args[::-1], e.name)
    except SqlError as error:
        given = ", ".join(str(a.type) for a in args)
        raise SqlError(f"{e.name}({given}): it takes a value and an ARRAY of such", hint=error.hint) from None
