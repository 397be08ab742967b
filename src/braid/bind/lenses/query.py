"""A query: FROM, LATERAL, WHERE, GROUP BY and the projections.

In: a query as written, the topics and WITH names it may read. Out: a `Faceted`: plan node, kind, both facets.
Rule: a topic is read as SELECT says (STREAM or TABLE), a WITH name as what it is. A WITH name is a part of the plan of
who reads it, bound anew each time under names of its own. A field that is neither grouped nor aggregated means its
latest value by position, and is told; with `braid.lenses.bare = reject` it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from braid.bind.bound import Declared, Named
from braid.bind.env import Env
from braid.bind.expressions import Aggregations, bind_expr, bind_predicate, with_span
from braid.bind.lenses.facets import Facet, format_of, type_name, written_as
from braid.bind.lenses.joins import bind_join
from braid.bind.lenses.projections import REKEYED, bind_projections
from braid.bind.lenses.scope import (
    META,
    Given,
    InKeys,
    Relation,
    Sources,
    default_name,
    fields_of,
    is_nullable,
    rules,
)
from braid.bind.lenses.windows import bind_window
from braid.bind.select.grouping import Groups
from braid.bind.select.items import Item, Result
from braid.bind.select.scope import Column
from braid.bind.select.tree import Joined, Policy, bind_from, leaves
from braid.bind.select.windows import Windowed
from braid.bind.sources import KIND
from braid.errors import Span, SqlError
from braid.expr import typing, user
from braid.expr.aggregates import of_lenses
from braid.expr.nodes import Col, Expr, columns
from braid.guess import meant
from braid.plan.logical import (
    BOUNDS,
    PSEUDO,
    Filter,
    Kind,
    Lateral,
    Materialize,
    Node,
    Project,
    Source,
    SourceColumn,
    Timestamp,
)
from braid.plan.names import level
from braid.sql import ast
from braid.types import Array, Scalar, Type
from braid.types import Column as TypedColumn

Stored = tuple[ast.StoreAs | None, ast.StoreAs | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faceted(Result):
    """A result, whose items are the columns of its value. `missing`: the plan columns that may be null; `windows`: of
    its keys."""

    key: Facet
    value: Facet
    missing: frozenset[str]
    partitions: int | None
    windows: InKeys | None


def bind_query(q: ast.Select, env: Env, stored: Stored = (None, None)) -> Faceted:
    notices = list(q.notices)
    assert q.source is not None
    meta = "_meta" in env.text[q.span.start : q.span.end]
    tree = bind_from(q.source, Policy(lambda r, _: _relation(r, _kind(q), env, notices, meta)))
    given = _join(q, tree, env, notices) if isinstance(tree, Joined) else _source(q, tree, env, notices)
    if q.where is not None:
        predicate = bind_predicate(q.where, rules("WHERE", given.sources.barring(None)))
        given = replace(given, node=Filter(given.node, predicate))
    groups = _groups(q, given)
    given = given if groups is None else groups.given
    key, body = bind_projections(q.items, given, stored)
    node, windows = given.node, given.windows
    if groups is not None:
        node = groups.in_windows(node)
        notices += groups.notices
    elif key.expr != given.key:
        notices.append(REKEYED)
        node, windows = _rekeyed(node, key.expr), None
    items = tuple(Item(n, e, q.span) for n, e in body.columns)
    return Faceted(node, items, given.kind, notices=tuple(notices), key=key, value=body, missing=given.missing(),
                   partitions=given.partitions, windows=windows)  # fmt: skip


def _groups(q: ast.Select, given: Given) -> Grouping | None:
    if q.window is not None and not q.group_by:
        raise SqlError("WINDOW BY needs GROUP BY", q.window.span, "add GROUP BY behind it, such as GROUP BY _key")
    window = None if q.window is None else bind_window(q.window, given.kind, given.env.prefix)
    return bind_grouping(q.group_by, given, window) if q.group_by else None


def _rekeyed(node: Node, key: Expr | None) -> Node:
    """The rows under a new key. A tombstone of a table has its own key only, from which no other can be made: its rows
    are kept, to go under the key that they came with."""
    known = {name for e in node.row_key for name in columns(e)}
    if node.mode != "upsert" or key is None or set(columns(key)) <= known:
        return node
    return Materialize(node)


# ----------------------------------------------------------------------- FROM


def _source(q: ast.Select, r: Relation, env: Env, notices: list[str]) -> Given:
    """One source with its LATERALs."""
    if r.is_query and r.kind != _kind(q):
        notices.append(f"{r.alias} is a {r.kind}; SELECT {q.kind} does not change that")
    if q.event_time is not None:
        r = replace(r, node=_timed(r, q.event_time))
    sources, node = Sources((r,)), r.node
    for i, lateral in enumerate(q.laterals):
        array, element_type = _array(lateral, sources)
        element = Col(f"{env.prefix}.LATERAL{i + 1}.{lateral.alias}", element_type)
        index = None
        if node.mode != "append":  # a row that changes takes its old elements back
            index = Col(f"{env.prefix}.LATERAL{i + 1}#", Scalar.INT)
            node = Materialize(node) if node.mode == "upsert" else node
        node = Lateral(node, array, element, index)
        sources = replace(sources, elements=(*sources.elements, Column(lateral.alias, element)))
    return Given(env, node, r.kind, sources, rules("SELECT", sources), r.key, r.key_format, r.partitions,
                 lambda: r.nullable, windows=r.windows)  # fmt: skip


def _array(lateral: ast.Lateral, sources: Sources) -> tuple[Expr, Type]:
    """The array of a LATERAL, whose alias must be new, and the type of its elements."""
    written, own = lateral.array, rules("LATERAL", sources)
    if isinstance(written, ast.Call) and user.overloads(written.name, "table"):
        with with_span(written.span):
            array = typing.rows(written.name, [bind_expr(a, own) for a in written.args])
    else:
        array = bind_expr(written, own)
    if not isinstance(array.type, Array):
        hint = "name an array field, or write [a, b]"
        raise SqlError(f"LATERAL takes an array, not {type_name(array.type)}", lateral.array.span, hint)
    (r,) = sources.relations
    taken = {r.alias, *(n for n, _ in r.fields), *(c.name for c in sources.elements)}
    if lateral.alias in taken:
        message = f"{lateral.alias} is the name of something else already"
        raise SqlError(message, lateral.span, "choose another name after AS")
    return array, array.type.element


def _timed(r: Relation, name: ast.Name) -> Node:
    """The topic read with the times that a field of its value holds."""
    if name.parts == ("_meta", "timestamp") and not r.is_query:
        return r.node  # that is the time of a record
    if r.is_query or not isinstance(r.node, Source):
        hint = "write EVENTTIME BY where the topic is read"
        raise SqlError(f"EVENTTIME BY is for topics; {r.alias} is a query", name.span, hint)
    field = r.field(name.parts[-1]) if len(name.parts) == 1 or name.parts[:-1] == ("_value",) else None
    if field is None or field.type not in (Scalar.BIGINT, Scalar.TIMESTAMP):
        hint = "name a field of the value that is LONG (ms since 1970) or TIMESTAMP"
        raise SqlError(f"{name} holds no times", name.span, hint)
    return replace(r.node, timestamp=Timestamp(name.parts[-1]))


def _join(q: ast.Select, tree: Joined[Relation], env: Env, notices: list[str]) -> Given:
    given = bind_join(tree.written, Sources(leaves(tree)), env, notices)
    if _kind(q) != given.kind:
        notices.append(f"the join gives a {given.kind}: SELECT {q.kind} only says how topics are read")
    return given


def _kind(q: ast.Select) -> Kind:
    """How topics are read."""
    assert q.kind is not None
    return KIND[q.kind]


def _relation(ref: ast.Relation, kind: Kind, env: Env, notices: list[str], meta: bool) -> Relation:
    """What a name in FROM stands for: a WITH query, or a topic. `meta`: the query may ask for `_meta`."""
    assert isinstance(ref, ast.Table)
    name = str(ref.name)
    alias = ref.alias or name
    named = env.catalog.named.get(name)
    if named is not None:
        return _of_named(named, alias, ref.span, env, notices)
    declared = env.catalog.get(name)
    if declared is None:
        known = [*env.catalog.named, *env.catalog.sources]
        listed = f"known are {', '.join(known)}" if known else "CREATE TABLE declares a topic"
        raise SqlError(f"unknown topic {name}", ref.span, meant(name, known, listed))
    return _of_topic(declared, alias, kind, ref.span, env, meta)


def _of_topic(d: Declared, alias: str, kind: Kind, span: Span, env: Env, meta: bool) -> Relation:
    name, begin = f"{env.prefix}{level(alias)}", env.settings.lenses.begin
    read = tuple(SourceColumn(f"{name}.{c.name}", c.name, TypedColumn(c.name, c.type), c.place) for c in d.columns)
    windows, size = None, None
    if d.windowed is not None:
        bounds = [SourceColumn(f"{name}/.{n}", n, TypedColumn(n, t), place) for n, (place, t) in BOUNDS.items()]
        windows, size = InKeys(d.windowed, (bounds[0].col, bounds[1].col)), d.windowed.size
        read += tuple(bounds)
    of_record: dict[str, Expr] = {}
    for part, n in META.items() if meta else ():
        place, t = PSEUDO[n]
        read += (SourceColumn(f"{name}/.{n}", n, TypedColumn(n, t), place),)
        of_record[part] = read[-1].col
    source = Source(name, d.name, d.topic, kind, read, d.encoding, d.timestamp, None, d.partitions, end="lift",
                    begin=begin, window_size=size)  # fmt: skip
    key = next((s.col for s in read if s.place == "key"), None)
    values = {s.field: s.col for s in read if s.place == "value"}
    formats = d.formats or ("JSON" if key is None else format_of(key.type, "JSON"), "JSON")  # a registered DataFrame
    missing = frozenset(s.name for c, s in zip(d.columns, read, strict=False) if c.nullable)
    whole = values.pop("_value", None)
    return Relation(source, fields_of(alias, values.items(), whole), span, kind, key, formats[0], whole,
                    written_as(formats[1]), missing, d.partitions, is_query=False, windows=windows,
                    meta=of_record)  # fmt: skip


def _of_named(named: Named, alias: str, span: Span, env: Env, notices: list[str]) -> Relation:
    """The query of a WITH name, bound under plan names of its own."""
    settings = replace(env.settings, lenses=named.settings)
    inner = Env(env.catalog, settings, named.text, f"{env.prefix}{level(alias)}/")
    try:
        made = bind_query(named.query, inner)
    except SqlError as error:  # a topic that it reads was dropped
        raise error.with_text(named.text) from None
    notices += [n for n in made.notices if n not in notices]
    return _renamed(made, alias, span, env.prefix)


def _renamed(made: Faceted, alias: str, span: Span, prefix: str) -> Relation:
    """A result as a source. Where something is computed a `Project` gives it a plan name, and passes on all columns as
    they are."""
    key, fields, whole = made.key.expr, made.value.fields, made.value.whole
    node, missing = made.node, made.missing
    if not all(isinstance(e, Col) for e in (key, whole, *(e for _, e in fields)) if e is not None):
        name = f"{prefix}{level(alias)}"
        outputs: list[tuple[Col, Expr]] = [(c, c) for c in node.schema]

        def named(n: str, e: Expr) -> Expr:
            if isinstance(e, Col):
                return e
            outputs.append((Col(n, e.type), e))
            return outputs[-1][0]

        key = None if key is None else named(f"{name}/._key", key)  # fields may be called _key and _value
        fields = tuple((n, named(f"{name}.{n}", e)) for n, e in fields)
        whole = None if whole is None else named(f"{name}/._value", whole)
        missing |= _missing(made, name)
        node = Project(node, tuple(outputs))
    return Relation(node, fields_of(alias, fields, whole), span, made.kind, key, made.key.format, whole,
                    made.value.format, missing, made.partitions, is_query=True, windows=made.windows)  # fmt: skip


def _missing(made: Faceted, name: str) -> frozenset[str]:
    found = {f"{name}.{n}" if n else f"{name}/._value" for n in made.value.nullable}
    return frozenset(found | ({f"{name}/._key"} if made.key.nullable else set()))


# --------------------------------------------------------------------- GROUP BY


BARRED = "in a query with GROUP BY"


@dataclass(slots=True, kw_only=True)
class Grouping(Groups):
    """`names`: of the keys, in a structure of several; `latest`: fields that mean their latest value."""

    over: Given
    window: Windowed | None = None
    names: list[str] = field(default_factory=list)
    latest: list[str] = field(default_factory=list)

    @property
    def given(self) -> Given:
        """What projections stand over."""
        sources = self.over.sources.barring(BARRED)
        own = rules("SELECT", sources, self._aggregate, self.known, self.column)
        key = self.keys[0][0] if len(self.keys) == 1 else typing.struct(self._named())
        key_format = format_of(key.type, self.over.first.key_family)
        w = self.window
        windows = None if w is None else InKeys(w.windowing, w.bounds)
        return replace(self.over, kind="table", sources=sources, rules=own, key=key, key_format=key_format,
                       missing=self._missing, lifted=self.lifted, windows=windows)  # fmt: skip

    def in_windows(self, rows: Node) -> Node:
        """The groups, each in its windows where there are any."""
        groups = self.grouped(rows)
        return groups if self.window is None else self.window.groups(groups)

    def _named(self) -> list[tuple[str, Expr]]:
        return [(name, c) for name, (c, _) in zip(self.names, self.keys, strict=True)]

    def _missing(self) -> frozenset[str]:
        """The columns of the result that may be null."""
        below = self.over.sources.nullable
        keys = {c.name for c, e in self.keys if is_nullable(e, below)}
        made = {a.output.name for a in self.aggregations.made
                if a.function != "COUNT" and a.arg is not None and is_nullable(a.arg, below)}  # fmt: skip
        return frozenset(keys | made)

    @property
    def notices(self) -> list[str]:
        kept = "a row for each group is kept: state grows with the groups"
        told = [kept] if self.window is None else list(self.window.notices)
        if self.latest:
            named = ", ".join(dict.fromkeys(self.latest))
            told.append(f"neither grouped nor aggregated, so the latest value is taken: {named}")
        return told

    def instead(self, name: str) -> str:
        return f"add it to GROUP BY, or write LAST({name})"

    def bare(self, e: Expr, name: str) -> Expr:
        if self.over.env.settings.lenses.bare == "reject":
            return Groups.bare(self, e, name)
        self.latest.append(name)
        return self.aggregations.column("LATEST", e, e.type)

    def _aggregate(self, call: ast.Call) -> Expr:
        args = self.arguments(call)
        over_table = self.over.node.mode != "append"
        name, shape = of_lenses(call.name, args or [], args is None, call.distinct, over_table)
        return self.aggregations.column(name, shape.arg, shape.type, shape.options, shape.code)


def bind_grouping(group_by: tuple[ast.Expr, ...], given: Given, window: Windowed | None) -> Grouping:
    env, sources = given.env, given.sources

    def below(e: ast.Expr, clause: str) -> Expr:
        return bind_expr(e, rules(clause, sources.barring(None if clause == "GROUP BY" else BARRED)))

    g = Grouping(below, Aggregations(f"{env.prefix}.AGG"), over=given, window=window)
    for n, e in enumerate(group_by, 1):
        g.group_by(e, f"{env.prefix}.GROUP{n}")
        name = default_name(e, env.text)
        while name in g.names:
            name += "_2"
        g.names.append(name)
    return g
