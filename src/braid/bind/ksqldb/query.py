"""A query: FROM, WHERE, GROUP BY, HAVING, SELECT, PARTITION BY, and the key of its result.

In: a query as written and what it is for. Out: a logical `Query`, and what CREATE … AS declares.
Rule: the key of a result is one thing, decided here: the group's, PARTITION BY's, the join's, or the source's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from braid.bind import properties, schemas
from braid.bind.bound import Declared, DeclaredColumn, Nothing, QueryBound, Windowing
from braid.bind.env import PUSH, Env, check_cycle
from braid.bind.expressions import Rules, bind_expr, bind_predicate, children, names, with_span
from braid.bind.insert import check_insertable, matched
from braid.bind.ksqldb.exploding import exploded
from braid.bind.ksqldb.from_ import From, bind_chain
from braid.bind.ksqldb.items import Grouping, bind_grouping, bind_items, is_copy
from braid.bind.ksqldb.scope import Entry, Namer
from braid.bind.ksqldb.windows import bind_window
from braid.bind.moments import moments
from braid.bind.names import RESERVED, free_name
from braid.bind.select.items import Item, Result
from braid.bind.sources import KIND, check_key_type, check_topic_name, existing, miswritten
from braid.errors import Span, SqlError
from braid.expr.nodes import Col, Expr
from braid.guess import meant
from braid.plan.joins import StreamStreamJoin
from braid.plan.logical import BOUNDS, Filter, Kind, Node, Output, Query, Sink, sources
from braid.plan.names import level_of
from braid.records.encoding import Encoding
from braid.sql import ast
from braid.types import Scalar

EAGER = (
    "the outer join has no GRACE PERIOD: a row is null-extended as soon as it finds no match, so IS NULL also passes "
    "rows whose match comes later; write GRACE PERIOD 0 SECONDS (or more) to wait for the window's end"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed(Result):
    """A result, and which of its columns are the key.

    `windowed`, `bounds`: of the window that is part of each row's key; `retention` (ms): of those grouped here.
    `key` empty: `record_key` (which may be empty too) is written without being a column; `message_key` names the value
    column that always equals it, if there is one.
    """

    first: Declared
    key: tuple[Output, ...] = ()
    record_key: tuple[Expr, ...] = ()
    message_key: str | None = None
    windowed: Windowing | None = None
    bounds: tuple[Col, Col] | None = None
    retention: int | None = None

    @property
    def whole_key(self) -> bool:
        """Several columns that are not the rows' own key: they make an object even where all are null."""
        return len(self.key) > 1 and tuple(o.expr for o in self.key) != self.node.row_key

    @property
    def values(self) -> tuple[Output, ...]:
        keys = {o.name for o in self.key}
        return tuple(Output(i.name, i.expr) for i in self.items if i.name not in keys)

    def declared(self) -> tuple[DeclaredColumn, ...]:
        """The columns of what this result is written to, a hidden key too."""
        found = [DeclaredColumn(o.name, o.expr.type, "key") for o in self.key]
        if not self.key and self.message_key is None:
            name = free_name("ROWKEY", {i.name for i in self.items})
            found += [DeclaredColumn(name, e.type, "key", hidden=True) for e in self.record_key[:1]]
        found += [DeclaredColumn(o.name, o.expr.type, "value") for o in self.values]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and what it is for. `sink` None: a push query, whose key need not be selected."""

    query: ast.Select
    env: Env
    sink: str | None

    @property
    def items_span(self) -> Span:
        """Where the SELECT's items begin."""
        return self.query.items[0].span


# ----------------------------------------------------------------- statements


def bind_create_as(s: ast.CreateAs, env: Env, dialect: str, sql: str) -> QueryBound | Nothing:
    exists = existing(s, env.catalog)
    if isinstance(exists, Nothing):
        return exists
    p = properties.read(s.properties, properties.OF_SINKS, s.name_span)
    _persistent(s.query)
    result = _result(Asked(s.query, env, s.name))
    if result.kind != KIND[s.kind]:
        raise _wrong_kind(s, result)
    columns = result.declared()
    keys = [c for c in columns if c.place == "key"]
    values = [c for c in columns if c.place == "value"]
    topic = p.topic(s.name)
    from_first = result.first.encoding
    if not keys and any(c.place == "key" for c in result.first.columns):
        from_first = replace(from_first, key="NONE")
    encoding = properties.encoding(p, keys, values, from_first, env.settings)
    encoding = schemas.with_schemas(encoding, p, s.name, topic, env.catalog.registry)
    schemas.check_names(encoding, columns, s.name_span)
    schemas.check_chosen(encoding, columns, p)
    encoding = replace(encoding, window=None if result.windowed is None else result.windowed.written)
    check_topic_name(topic, p.span("KAFKA_TOPIC"))
    partitions = p.count("PARTITIONS") or result.first.partitions
    timestamp = properties.timestamp(p, [c for c in columns if not c.hidden])
    declared = Declared(s.name, result.kind, topic, columns, encoding, timestamp, result.message_key, partitions,
                        s.name, sql, windowed=result.windowed)  # fmt: skip
    misfits = (e.message for e in miswritten(declared, env.catalog, {}, s.name_span))
    sink = Sink(s.name, topic, result.kind, result.key, result.values, encoding, result.record_key, partitions,
                timestamp, None, tuple(i.name for i in result.items), result.whole_key, result.bounds,
                result.kind == "table", result.retention)  # fmt: skip
    check_cycle(result.node, sink, env.catalog, s.name_span)
    schemas.check_sink(sink, env.catalog.registry, s.name_span)
    notices = (*result.notices, *p.notices(), *misfits)
    keeps = p.count("RETENTION_MS")
    return QueryBound(Query(s.name, dialect, sql, result.node, sink, notices), declared, keeps=keeps)


def bind_insert_select(s: ast.InsertSelect, env: Env, dialect: str, sql: str) -> QueryBound:
    target = declared_named(s.target, env)
    if target.kind == "table":
        hint = "INSERT INTO takes streams; make the table with CREATE TABLE … AS SELECT"
        raise SqlError(f"{target.name} is a table", s.target.span, hint)
    check_insertable(target, s.target.span)
    _persistent(s.query)
    result = _result(Asked(s.query, env, target.name))
    if result.kind == "table":
        hint = f"{target.name} is a stream; write CREATE TABLE … AS SELECT …"
        raise SqlError("the SELECT gives a table", s.query.span, hint)
    fitted = matched(target, result.key, result.record_key, result.values, s.query.span)
    sink = Sink(
        target.name,
        target.topic,
        "stream",
        fitted.key,
        fitted.values,
        target.encoding,
        fitted.record_key,
        target.partitions,
        columns=tuple(i.name for i in result.items),
        whole_key=result.whole_key,
    )
    check_cycle(result.node, sink, env.catalog, s.target.span)
    schemas.check_sink(sink, env.catalog.registry, s.target.span)
    name = _insert_name(s, env) or env.catalog.next_insert(target.name)
    return QueryBound(Query(name, dialect, sql, result.node, sink, result.notices))


def _insert_name(s: ast.InsertSelect, env: Env) -> str | None:
    """The name that QUERY_ID gives the query."""
    p = properties.read(s.properties, properties.OF_INSERTS, s.target.span)
    text = p.text("QUERY_ID")
    if text is None:
        return None
    name, span = text.strip().upper(), p.span("QUERY_ID")
    if not re.fullmatch("[A-Z0-9_]+", name):
        raise SqlError(f"{text!r} is no name of a query", span, "write letters, digits and _")
    if name in env.catalog.queries or name in env.catalog.sources:
        raise SqlError(f"{name} exists already", span, "take another name")
    return name


def bind_select(s: ast.Ask, env: Env, dialect: str, sql: str) -> QueryBound:
    q = s.query
    _supported(q)
    result = _result(Asked(q, env, None))
    sink = Sink(PUSH, PUSH, result.kind, result.key, result.values, Encoding("JSON", "JSON"), result.record_key,
                1 if q.limit is not None else result.first.partitions, None, q.limit,
                tuple(i.name for i in result.items), result.whole_key, result.bounds)  # fmt: skip
    return QueryBound(Query(PUSH, dialect, sql, result.node, sink, result.notices), None, transient=True)


def declared_named(written: ast.Name, env: Env) -> Declared:
    name = str(written)
    found = env.catalog.get(name)
    if found is None:
        known = env.catalog.sources
        hint = meant(name, known, f"declared: {', '.join(known) or 'nothing yet'}")
        raise env.catalog.unknown(name, written.span, hint)
    return found


# --------------------------------------------------------------------- checks


def clause(q: ast.Select, name: str) -> Span:
    return next((span for n, span in q.clauses if n == name), q.span)


def _supported(q: ast.Select) -> None:
    if q.window is not None and not q.group_by:
        raise SqlError("WINDOW needs GROUP BY", q.window.span, "add GROUP BY and an aggregate")
    if q.emit == "FINAL" and q.window is None:
        hint = "write EMIT CHANGES, or add WINDOW"
        raise SqlError("EMIT FINAL waits for windows to close; here are none", clause(q, "EMIT"), hint)
    if q.having is not None and not q.group_by:
        raise SqlError("HAVING needs GROUP BY", clause(q, "HAVING"), "write WHERE")
    if q.partition_by and q.group_by:
        hint = "leave PARTITION BY out: the groups are the key"
        raise SqlError("PARTITION BY and GROUP BY exclude each other", clause(q, "PARTITION BY"), hint)


def _persistent(q: ast.Select) -> None:
    _supported(q)
    if q.limit is not None:
        hint = "leave it out; LIMIT is for SELECT … EMIT CHANGES LIMIT n"
        raise SqlError("a query that writes a topic has no LIMIT", clause(q, "LIMIT"), hint)


def _wrong_kind(s: ast.CreateAs, result: Keyed) -> SqlError:
    if s.kind == "TABLE":
        hint = f"write CREATE STREAM {s.name} AS SELECT …, or add GROUP BY"
        return SqlError("the SELECT gives a stream; a table needs GROUP BY", s.name_span, hint)
    what = "GROUP BY" if s.query.group_by else f"a SELECT over table {result.first.name}"
    return SqlError(f"{what} gives a table", s.name_span, f"write CREATE TABLE {s.name} AS SELECT …")


# --------------------------------------------------------------------- result


def _result(a: Asked) -> Keyed:
    """The bound query, before its sink."""
    q = a.query
    assert q.source is not None
    source = bind_chain(q.source, a.env)
    _check_kept(a, source)
    node, scope = source.node, source.scope
    notices = list(source.notices)
    if q.where is not None:
        predicate = bind_predicate(moments(q.where), Rules("WHERE", scope.column))
        notices += _eager_notice(q.where, source)
        node = Filter(node, predicate)
    grouping: Grouping | None = None
    if q.group_by:
        _check_groups(scope.entries, a.env, clause(q, "GROUP BY"))
        window = None
        if q.window is not None:
            binary = scope.entries[0].declared.encoding.key_format.binary
            window = bind_window(q.window, source.kind == "table", q.emit == "FINAL", binary)
            notices += window.notices
        grouping = bind_grouping(q.group_by, scope, source.steps, source.kind == "table", a.env.settings, window)
        if window is None:
            notices.append("a row for each group is kept: state grows with the groups")
    node, whole = exploded(q.items, scope, node, over_table=source.kind == "table", grouped=grouping is not None)
    items = tuple(bind_items(q.items, scope, grouping, bool(q.partition_by), bounds=a.sink is None, whole=whole))
    if grouping is not None:
        node = _grouped(q, node, grouping)
    kind: Kind = "table" if grouping is not None else source.kind
    bare = Keyed(node, items, kind, notices=tuple(notices), first=scope.entries[0].declared)
    result = _with_key(a, bare, source, grouping)
    _check_outputs(result, a)
    return result


def _check_kept(a: Asked, source: From) -> None:
    """`strict`: what reads a windowed table is shown, not kept."""
    for e in source.scope.entries:
        windows = e.declared.kind == "table" and e.declared.windowed is not None
        if windows and a.sink is not None and a.env.settings.mode == "strict":
            hint = "write SELECT … EMIT CHANGES; or leave braid.mode = 'strict'"
            raise SqlError(f"{e.declared.name} is a windowed table, which no query that writes can read",
                           a.items_span, hint)  # fmt: skip


def _check_groups(entries: tuple[Entry, ...], env: Env, span: Span) -> None:
    for e in entries:
        if e.declared.windowed is not None and env.settings.mode != "native":
            hint = "group what it was made of, or SET 'braid.mode'='native' to count each window as a row"
            raise SqlError(f"{e.declared.name} is windowed; GROUP BY takes rows without windows", span, hint)
        e.check_format("grouped", span)


def _grouped(q: ast.Select, node: Node, grouping: Grouping) -> Node:
    having = None if q.having is None else bind_predicate(q.having, grouping.rules("HAVING"))
    if not grouping.aggregations.made:
        hint = "add one, such as COUNT(*)"
        raise SqlError("GROUP BY needs an aggregate in SELECT or HAVING", clause(q, "GROUP BY"), hint)
    window, groups = grouping.window, grouping.grouped(node)
    if window is not None:
        groups = window.of.groups(groups)
    passing = groups if having is None else Filter(groups, having)
    return passing if window is None else window.told(groups, passing)


def _with_key(a: Asked, r: Keyed, source: From, grouping: Grouping | None) -> Keyed:
    if grouping is not None:
        if grouping.window is not None:
            window = grouping.window
            r = replace(r, windowed=window.of.windowing, bounds=window.of.bounds, retention=window.retention)
        keys = [Wanted(key, "grouping expression", a.env.quote(e), copy=is_copy(e))
                for (key, _), e in zip(grouping.keys, a.query.group_by, strict=True)]  # fmt: skip
        return _keyed(a, r, keys)
    if a.query.partition_by:
        return _partitioned(a, r, source)
    if source.key is not None:
        return _join_key(a, r, source, source.key)
    return _source_key(a, r, source)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A key that the SELECT must hold: `written` is how to write it. `column_only`: no expression stands for it.
    `copy`: it is an AS_VALUE(…) itself."""

    expr: Expr
    what: str
    written: str
    column_only: bool = False
    copy: bool = False


def _keyed(a: Asked, r: Keyed, keys: list[Wanted]) -> Keyed:
    """The key columns are the items that hold `keys`, in the order of `keys`."""
    found: list[Output] = []
    for key in keys:
        holds = [
            i for i in r.items
            if i.expr == key.expr and is_copy(i.written) == key.copy and (i.is_column or not key.column_only)
        ]  # fmt: skip
        if not holds:
            if a.sink is None:
                return replace(r, record_key=tuple(k.expr for k in keys))
            message = f"{a.sink} needs the {key.what} {key.written} in its SELECT"
            raise SqlError(message, a.items_span, f"add {key.written} to the SELECT")
        if len(holds) > 1 and a.sink is not None:
            raise _twice(f"the {key.what} {key.written}", holds)
        found.append(Output(holds[0].name, key.expr))
    return replace(r, key=tuple(found))


def _twice(what: str, holds: list[Item]) -> SqlError:
    both = " and ".join(i.name for i in holds[:2])
    return SqlError(f"{what} is selected twice, as {both}", holds[1].span, "write AS_VALUE(column) AS name for a copy")


def _partitioned(a: Asked, r: Keyed, source: From) -> Keyed:
    """PARTITION BY: its expressions are the new key; PARTITION BY NULL: no key."""
    q = a.query
    if source.scope.entries[0].declared.windowed is not None:
        hint = "leave PARTITION BY out"
        raise SqlError("the rows of a windowed source keep their keys", clause(q, "PARTITION BY"), hint)
    if r.kind == "table":
        message = "PARTITION BY of a table is not possible: its key says which row is which"
        raise SqlError(message, clause(q, "PARTITION BY"), "write GROUP BY, or declare a stream over the topic")
    nulls = [e for e in q.partition_by if isinstance(e, ast.Literal) and e.value is None]
    if nulls:
        if len(q.partition_by) > 1:
            raise SqlError("PARTITION BY NULL must be alone", nulls[0].span, "leave NULL out, or the others")
        return r
    rules = Rules("PARTITION BY", source.scope.column)
    keys: list[Wanted] = []
    for e in (_item_called(e, a, source) for e in q.partition_by):
        bound = bind_expr(e, rules)
        with with_span(e.span):
            check_key_type("of PARTITION BY", bound.type)
        if any(k.expr == bound for k in keys):
            raise SqlError("PARTITION BY has this expression twice", e.span, "keep one of them")
        keys.append(Wanted(bound, "partitioning expression", a.env.quote(e), copy=is_copy(e)))
    return _keyed(a, _with_computed_keys(q, r, source, keys), keys)


def _item_called(e: ast.Expr, a: Asked, source: From) -> ast.Expr:
    """What an item of SELECT is that PARTITION BY names, as early KSQL had it, where no column is called so."""
    name = e.parts[0] if isinstance(e, ast.Name) and len(e.parts) == 1 else None
    item = next((i for i in a.query.items if name is not None and i.alias == name), None)
    if item is None or name in source.scope.taken() or a.env.settings.mode == "strict":
        return e
    return item.expr


def _with_computed_keys(q: ast.Select, r: Keyed, source: From, keys: list[Wanted]) -> Keyed:
    """`*` brings a computed partitioning key too, in front."""
    stars = [i for i in q.items if isinstance(i.expr, ast.Star) and i.expr.qualifier is None]
    if not stars:
        return r
    namer = Namer(source.scope.taken() | {i.name for i in r.items})
    added = [
        Item(_key_name(e, namer), key.expr, stars[0].span, e)
        for e, key in zip(q.partition_by, keys, strict=True)
        if not any(i.expr == key.expr and is_copy(i.written) == key.copy for i in r.items)
    ]
    return replace(r, items=(*added, *r.items))


def _key_name(e: ast.Expr, namer: Namer) -> str:
    match e:
        case ast.Arrow(field=name):
            return namer.field(name)
        case ast.Name(parts=parts):  # a pseudo column: `*` brings all others
            return parts[-1]
        case _:
            return namer.expression()


def _join_key(a: Asked, r: Keyed, source: From, key: Col) -> Keyed:
    """One join column shows the join key; without such a column the synthetic ROWKEY does."""
    r = replace(r, windowed=source.scope.entries[0].declared.windowed, bounds=source.bounds)
    by_record = replace(r, record_key=(key,))
    for column in source.viable:
        holds = [i for i in r.items if i.expr == column and i.is_column]
        if not holds:
            continue
        if len(holds) > 1 and a.sink is not None:
            raise _twice(f"the key column {column.name}", holds)
        if a.env.settings.key_column == "value":
            return by_record
        return replace(r, key=(Output(holds[0].name, key),))
    if not source.viable:
        return _synthetic_key(a, r, source, key)
    if a.sink is None:
        return by_record
    either = " or ".join(c.name for c in source.viable)
    message = f"{a.sink} needs its key in the SELECT: {either}"
    raise SqlError(message, a.items_span, f"add {source.viable[0].name} to the SELECT")


def _synthetic_key(a: Asked, r: Keyed, source: From, key: Col) -> Keyed:
    """ROWKEY, or for a FULL join on two plain columns one of them by name, as a value."""
    assert source.scope.synthetic is not None
    name = source.scope.synthetic[0]
    holds = [i for i in r.items if i.expr == key and i.is_column]
    if len(holds) > 1 and a.sink is not None:
        raise _twice(f"the key {name}", holds)
    if holds:
        return replace(r, key=(Output(holds[0].name, key),))
    may_name = source.named if a.env.settings.mode != "strict" else ()
    named = any(i.expr in may_name and isinstance(i.written, ast.Name) for i in r.items)
    if a.sink is None or named:
        return replace(r, record_key=(key,))
    hint = f"add {name} to the SELECT"
    if may_name:
        hint += f", or name {' or '.join(c.name for c in may_name)}"
    message = f"{a.sink} needs its key {name} in the SELECT: no column always holds the join key"
    raise SqlError(message, a.items_span, hint)


def _source_key(a: Asked, r: Keyed, source: From) -> Keyed:
    """Without a join, or after one on a foreign key, the key stays what it is."""
    entry = source.scope.entries[0]
    d = entry.declared
    if d.message_key is not None:
        column = Col(f"{entry.source.alias}.{d.message_key}", Scalar.VARCHAR)
        holds = [i for i in r.items if i.expr == column and i.is_column]
        if not holds and r.kind == "table" and a.sink is not None:
            message = f"{a.sink} needs the key column {d.message_key} in its SELECT"
            raise SqlError(message, a.items_span, f"add {d.message_key} to the SELECT")
        return replace(r, record_key=(column,), message_key=holds[0].name if holds else None)
    key = source.node.row_key[: len(d.key)]
    if d.windowed is not None:
        start, end = (c.col for c in entry.source.window)
        r = replace(r, windowed=d.windowed, bounds=(start, end))
    if any(c.hidden for c in d.key):
        return replace(r, record_key=key)
    prefix = f"{entry.alias}." if source.scope.is_join else ""
    return _keyed(a, r, [Wanted(e, "key column", prefix + c.name, True) for e, c in zip(key, d.key, strict=True)])


def _check_outputs(r: Keyed, a: Asked) -> None:
    """Names and types that a result may not have; a written result needs a value."""
    keys = {o.name for o in r.key}
    for i in r.items:  # PARTITION BY ROWTIME makes a key column of that name
        own = i.name in keys and (
            i.written is None or (isinstance(i.written, ast.Name) and i.written.parts[-1] == i.name)
        )
        if (i.name in BOUNDS and r.bounds is None) or (a.sink is not None and i.name in RESERVED and not own):
            raise SqlError(f"{i.name} cannot be the name of a result's column", i.span, f"write … AS {i.name}_1")
        if i.expr.type is Scalar.NULL:
            raise SqlError(f"the type of {i.name} is not known", i.span, "write CAST(NULL AS …)")
    if a.sink is not None and not r.values:
        hint = "add a value, or AS_VALUE(key) AS name for a copy"
        raise SqlError(f"{a.sink} has only key columns", a.query.items[-1].span, hint)


# -------------------------------------------------------------------- notices


def _eager_notice(where: ast.Expr, source: From) -> list[str]:
    """An outer join of streams without GRACE pads at once: IS NULL then finds rows whose match is still to come."""
    padded = set(_padded_at_once(source.node))
    for test in _null_tests(where):
        for name in names(test):
            column = source.scope.column(name)
            if level_of(column.name) in padded:
                return [EAGER]
    return []


def _null_tests(e: ast.Expr) -> list[ast.IsNull]:
    here = [e] if isinstance(e, ast.IsNull) and not e.negated else []
    return here + [x for child in children(e) for x in _null_tests(child)]


def _padded_at_once(node: Node) -> list[str]:
    """Aliases of sources whose columns an eager outer join of streams may fill with nulls."""
    found: list[str] = [a for x in node.inputs for a in _padded_at_once(x)]
    if isinstance(node, StreamStreamJoin) and node.pad == "eager":
        if node.how in ("left", "full"):
            found += [s.alias for s in sources(node.right)]
        if node.how in ("right", "full"):
            found += [s.alias for s in sources(node.left)]
    return found
