"""FROM: sources and their joins.

In: a relation as written, the catalog, the settings. Out: the plan node below WHERE, with what is known of its key.
Rule: joins are a left-deep chain; each step is checked on its own: `SUPPORTED` says what is possible, and a hint names
only a statement that would be accepted. After INNER, LEFT and RIGHT steps both ON expressions count as the join key for
the next step; after a FULL join of streams none does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeGuard

from braid.bind.env import Env
from braid.bind.expressions import Rules, aggregates, bind_expr, bind_predicate, conjuncts, names, with_span
from braid.bind.ksqldb.joined_windows import check_keeps_key, check_windows, same_window
from braid.bind.ksqldb.scope import Entry, Sources, synthetic_key_name
from braid.bind.select.tree import Joined, Policy, bind_from, leaves
from braid.bind.select.windows import DAY
from braid.bind.sources import check_key_type
from braid.errors import SqlError
from braid.expr import casts, typing
from braid.expr.nodes import Col, Expr
from braid.expr.show import duration
from braid.guess import meant
from braid.plan.joins import ForeignKeyJoin, Pad, StreamStreamJoin, StreamTableJoin, TableTableJoin
from braid.plan.logical import Filter, How, Kind, Node, Project
from braid.plan.names import level
from braid.sql import ast

NAMES: dict[How, str] = {"inner": "INNER JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}

SUPPORTED: dict[tuple[Kind, Kind], tuple[How, ...]] = {
    ("stream", "stream"): ("inner", "left", "right", "full"),
    ("stream", "table"): ("inner", "left"),
    ("table", "table"): ("inner", "left", "right", "full"),
    ("table", "stream"): (),
}
# With the sides swapped INNER stays INNER and RIGHT becomes LEFT.
SWAPPED: dict[How, Literal["INNER JOIN", "LEFT JOIN"]] = {"inner": "INNER JOIN", "right": "LEFT JOIN"}


@dataclass(frozen=True, slots=True)
class From:
    """A bound relation. `synonyms`: expressions that equal the key of its rows. `viable`: the plain columns among
    them, in order of preference for the result's key. `named`: of a FULL join on two plain columns, those columns.
    `key`: the key column of a join, None where the first source's key stays; `steps`: how many joins there are.
    `bounds`: of the window that is part of the key of a join's rows."""

    node: Node
    scope: Sources
    kind: Kind
    steps: int = 0
    key: Col | None = None
    synonyms: tuple[Expr, ...] = ()
    viable: tuple[Col, ...] = ()
    named: tuple[Col, ...] = ()
    notices: tuple[str, ...] = ()
    bounds: tuple[Col, Col] | None = None


@dataclass(frozen=True, slots=True)
class On:
    """A join condition, its sides put right: `left` over the left sources. `others`: what native mode filters by."""

    left: Expr
    right: Expr
    left_ast: ast.Expr
    right_ast: ast.Expr
    equality: ast.Expr
    others: tuple[ast.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One join of the chain, as its checks see it."""

    join: ast.Join
    left: From
    right: From
    how: How
    env: Env

    @property
    def name(self) -> str:
        return NAMES[self.how]

    @property
    def new(self) -> Entry:
        """The source on the right."""
        return self.right.scope.entries[0]

    @property
    def scope(self) -> Sources:
        return Sources.of((*self.left.scope.entries, *self.right.scope.entries))


Tree = Entry | Joined[Entry]


def bind_chain(relation: ast.Relation, env: Env) -> From:
    """FROM, its joins one after the other."""
    return _from(bind_from(relation, Policy(lambda r, _: _source(r, env), _check_sources)), env)


def _from(tree: Tree, env: Env, last: bool = True) -> From:
    """`last`: no further join follows."""
    if isinstance(tree, Entry):
        return From(tree.node, Sources.of((tree,)), tree.declared.kind)
    left, right = _from(tree.left, env, last=False), _from(tree.right, env, last=False)
    return _join(Step(tree.written, left, right, tree.how, env), last)


def _source(ref: ast.Relation, env: Env) -> Entry:
    assert isinstance(ref, ast.Table)
    name = str(ref.name)
    declared = env.catalog.get(name)
    if declared is None:
        known = env.catalog.sources
        listed = f"CREATE STREAM {name} (…) first; declared: {', '.join(known) or 'none'}"
        raise env.catalog.unknown(name, ref.span, meant(name, known, listed))
    alias = ref.alias or name
    return Entry.of(alias, declared, replace(declared.read_as(level(alias)), begin=env.settings.begin), ref.span)


def _join(s: Step, last: bool) -> From:
    left_names = [e.declared.name for e in s.left.scope.entries]
    problem = refusal(s.left.kind, s.right.kind, s.how, left_names, s.new.declared.name)
    if problem is not None:
        raise SqlError(problem[0], s.join.how_span, problem[1])
    _check_within(s)
    if s.left.kind == "table" and s.how == "full" and not last:
        hint = "two statements: CREATE TABLE … AS SELECT the FULL JOIN, then join its result"
        raise SqlError("among tables FULL JOIN must be the last step", s.join.how_span, hint)
    on = _on(s)
    _check_keys(on, s)
    if _is_foreign(on, s):
        return _referring(on, s)
    _check_partitions(s)
    return _joined(on, s)


def _check_sources(join: ast.Join, left: Tree, new: Tree) -> None:
    if join.how == "cross":
        raise SqlError("CROSS JOIN is not possible: every join has a key", join.how_span, "write JOIN … ON a.x = b.y")
    if isinstance(new, Joined):
        raise SqlError("joins run from left to right", join.right.span, "write a JOIN b ON … JOIN c ON …")
    d, before = new.declared, leaves(left)
    for e in before:
        if e.declared.name == d.name:
            hint = (
                f"declare a second {d.kind} over the same topic: "
                f"CREATE {d.kind.upper()} {d.name}_2 (…) WITH (kafka_topic='{d.topic}', …)"
            )
            raise SqlError(f"{d.name} is joined with itself", new.span, hint)
    check_windows(before[0], new, new.span)
    for e, span in ((before[0], join.left.span), (new, new.span)):
        e.check_format("joined", span)


def _check_within(s: Step) -> None:
    streams = s.left.kind == s.right.kind == "stream"
    if streams and s.join.within is None:
        hint = f"write {s.name} {s.new.declared.name} WITHIN 1 HOUR GRACE PERIOD 10 MINUTES ON …"
        raise SqlError("a join of two streams needs WITHIN", s.join.how_span, hint)
    if not streams and s.join.within is not None:
        message = f"a {s.left.kind}-{s.right.kind} join has no WITHIN: it sees the table as it is now"
        raise SqlError(message, s.join.within.span, "leave WITHIN out")


def _check_partitions(s: Step) -> None:
    """Declared counts must agree; native mode shuffles."""
    if s.env.settings.mode == "native":
        return
    new = s.new.declared
    for e in s.left.scope.entries:
        counts = e.declared.partitions, new.partitions
        if None not in counts and counts[0] != counts[1]:
            hint = "declare the same number, or SET 'braid.mode'='native' to have them shuffled"
            message = f"{e.declared.name} has {counts[0]} partitions, {new.name} has {counts[1]}"
            raise SqlError(message, s.join.right.span, hint)


def _on(s: Step) -> On:
    """The one equality of ON; in native mode the first usable of several (INNER joins), keys of both before others."""
    if s.join.on is None:
        raise SqlError(f"{s.name} needs ON", s.join.how_span, "write ON a.x = b.y")
    parts = conjuncts(s.join.on)
    if len(parts) == 1:
        return _equality(parts[0], s)
    if s.env.settings.mode != "native":
        hint = "keep one equality in ON"
        if s.how == "inner":
            hint += " and move the rest to WHERE, or SET 'braid.mode'='native'"
        odd = next((p for p in parts if not _is_equality(p)), parts[1])
        raise SqlError(f"ON has {len(parts)} conditions; one equality is possible", odd.span, hint)
    if s.how != "inner":
        hint = "make one column of them in a statement before, with CONCAT or STRUCT, and join on it"
        raise SqlError(f"several conditions in ON of {s.name} are not supported", s.join.on.span, hint)
    usable, problems = list[On](), list[SqlError]()
    for i, part in enumerate(parts):
        try:
            on = _equality(part, s)
            _check_keys(on, s)
        except SqlError as error:
            problems.append(error)
        else:
            usable.append(replace(on, others=(*parts[:i], *parts[i + 1 :])))
    if not usable:
        raise problems[0]
    return min(usable, key=lambda on: _is_foreign(on, s))


def _is_equality(e: ast.Expr) -> TypeGuard[ast.Binary]:
    return isinstance(e, ast.Binary) and e.op == "="


def _equality(e: ast.Expr, s: Step) -> On:
    if isinstance(e, ast.Binary) and e.op == "OR":
        hint = "join on one equality; filter in WHERE, or write two statements"
        raise SqlError("OR in ON is not possible", e.span, hint)
    if not _is_equality(e):
        raise SqlError("ON must be an equality", e.span, "write ON a.x = b.y, other conditions in WHERE")
    sides = (_side(e.left, s.scope), _side(e.right, s.scope))
    new = s.new.alias
    if (sides[0] == new) == (sides[1] == new):
        if sides[0] == new:
            hint = f"one side must be over {' or '.join(x.alias for x in s.left.scope.entries)}"
            raise SqlError(f"both sides of ON are over {new}", e.span, hint)
        raise SqlError(f"no side of ON is over {new}", e.span, f"compare with a column of {new}")
    first, second = (e.right, e.left) if sides[0] == new else (e.left, e.right)
    rules = _rules(s.scope)
    return On(bind_expr(first, rules), bind_expr(second, rules), first, second, e)


def _side(e: ast.Expr, scope: Sources) -> str:
    """The alias of the one source that a side of ON reads."""
    for call in aggregates(e):
        raise SqlError(
            f"{call.name} is an aggregate; it is not allowed in ON", call.span, "aggregate first, into a table"
        )
    read: dict[str, None] = {}
    for name in names(e):
        column = scope.column(name)
        read[next(x.alias for x, c in scope.owners(name.parts[-1]) if c == column)] = None
    if len(read) == 1:
        return next(iter(read))
    if not read:
        hint = "compare columns: ON a.x = b.y; constants belong into WHERE"
        raise SqlError("a side of ON is a constant", e.span, hint)
    hint = "each side of ON is over one source"
    raise SqlError(f"this side of ON mixes {' and '.join(read)}", e.span, hint)


def _rules(scope: Sources) -> Rules:
    return Rules("ON", scope.column)


def _check_keys(on: On, s: Step) -> None:
    """Tables are joined on their primary keys, as is what has windows; both sides have one type."""
    for side, key, e in ((s.left, on.left, on.left_ast), (s.right, on.right, on.right_ast)):
        check_keeps_key(_is_key(side, key), s.env.quote(e), side.scope.entries[0], e.span)
    if s.right.kind == "table":
        right_key = _table_key(s.right, on.right_ast)
        left_is_key = s.left.kind == "stream" or _is_key(s.left, on.left)
        if on.right != right_key:
            raise _not_the_key(on, s, left_is_key)
        if not left_is_key:
            _check_foreign(on, s)
    for key, e in ((on.left, on.left_ast), (on.right, on.right_ast)):
        with with_span(e.span):
            check_key_type(s.env.quote(e), key.type)
    if on.left.type != on.right.type:
        raise _types_differ(on, s)


def _table_key(side: From, e: ast.Expr) -> Expr:
    """The one primary key column of a table."""
    d = side.scope.entries[0].declared
    shown = [c.name for c in d.key if not c.hidden]
    if not shown:
        hint = f"project the key (or ROWKEY) in the statement that makes {d.name}"
        raise SqlError(f"table {d.name} has no key column to join on", e.span, hint)
    if len(shown) > 1:
        both = ", ".join(shown)
        message = f"table {d.name} has {len(shown)} key columns, {both}; joins need a table with one"
        hint = f"declare the key as one column, such as STRUCT<{', '.join(f'{c.name} {c.type}' for c in d.key)}>"
        raise SqlError(message, e.span, hint)
    return side.node.row_key[0]


def _is_key(side: From, e: Expr) -> bool:
    """Is `e` the key of the side's rows, whatever their windows?"""
    if side.scope.is_join:
        return e in side.synonyms
    return (e,) == side.node.row_key[: len(side.scope.entries[0].declared.key)]


def _key_text(side: From) -> str:
    """The key of a side as a user may write it."""
    if side.scope.is_join:
        return " or ".join(c.name for c in side.viable) or "its join key"
    entry = side.scope.entries[0]
    return ", ".join(f"{entry.alias}.{c.name}" for c in entry.declared.key if not c.hidden) or "none"


def _not_the_key(on: On, s: Step, left_is_key: bool) -> SqlError:
    name, wanted, quote = s.new.alias, _key_text(s.right), s.env.quote
    hint = f"write ON {quote(on.left_ast)} = {wanted}"
    if s.left.kind == "table" and left_is_key and not s.left.scope.is_join:
        hint += f"; or, to find the {name} rows of a key, make {name} the left table"
    message = f"table {name} must be joined on its primary key {wanted}, not on {quote(on.right_ast)}"
    return SqlError(message, on.right_ast.span, hint)


def _is_foreign(on: On, s: Step) -> bool:
    """Does a table refer to another one's primary key by something that is not its own?"""
    return s.left.kind == s.right.kind == "table" and not _is_key(s.left, on.left)


def _check_foreign(on: On, s: Step) -> None:
    written, wanted = s.env.quote(on.left_ast), _key_text(s.left)
    if s.how in ("right", "full"):
        message = f"{s.name} on the foreign key {written} is not possible"
        raise SqlError(message, on.left_ast.span, f"join on the primary key {wanted}, or write LEFT JOIN")
    if s.left.scope.is_join:
        message = f"a foreign-key join on {written} must be the first step"
        raise SqlError(message, on.left_ast.span, f"join on the key so far, {wanted}, or make two statements")


def _types_differ(on: On, s: Step) -> SqlError:
    """A key is compared byte by byte; a stream may CAST, a table is kept by the key it has."""
    a, b = s.env.quote(on.left_ast), s.env.quote(on.right_ast)
    message = f"key types differ: {a} is {on.left.type}, {b} is {on.right.type}"
    if s.left.kind == "table":
        return SqlError(message, on.equality.span, "declare both keys with the same type")
    if s.right.kind == "stream" and typing.common_type(on.left.type, on.right.type) == on.left.type:
        return SqlError(message, on.equality.span, f"write {a} = CAST({b} AS {on.left.type})")
    if not casts.can_cast(on.left.type, on.right.type):
        return SqlError(message, on.equality.span, "compare values of one type")
    return SqlError(message, on.equality.span, f"write CAST({a} AS {on.right.type}) = {b}")


def _joined(on: On, s: Step) -> From:
    """The node of a checked step, and what its key is known as."""
    left, step = s.left, s.left.steps + 1
    key = Col(f".KEY{step}", on.right.type)
    same_key = left.key is not None and on.left in left.synonyms
    left_key: Expr = left.key if same_key and left.key is not None else on.left
    full = s.how == "full"
    viable = () if full else _viable(left.viable if same_key else (), on)
    synonyms = () if full else (*(left.synonyms if same_key else ()), on.left, on.right)
    plain = tuple(_plain(on))
    named = plain if full and len(plain) == 2 else ()
    scope = s.scope if viable else Sources.of(s.scope.entries, (synthetic_key_name(s.scope.entries), key))
    bounds = same_window(left.scope.entries[0], s.new, step, left.bounds)
    node: Node = _node([(left_key, on.right, key), *bounds], s)
    for other in on.others:
        node = Filter(node, bind_predicate(other, _rules(scope)))
    notices = (*left.notices, *_notices(s), *_forgotten(s.left.node, node))
    start_end = (bounds[0][2], bounds[1][2]) if bounds else None
    return From(node, scope, left.kind, step, key, synonyms, viable, named, notices, start_end)


def _referring(on: On, s: Step) -> From:
    """The node of a step on a foreign key: its result keeps the left table's key. A reference that is computed is a
    column of its own, so that it is computed once."""
    left, step = s.left.node, s.left.steps + 1
    refers = on.left
    if not isinstance(refers, Col):
        refers = Col(f".REF{step}", refers.type)
        left = Project(left, (*((c, c) for c in left.schema), (refers, on.left)))
    how: Literal["inner", "left"] = "left" if s.how == "left" else "inner"
    binary = s.left.scope.entries[0].declared.encoding.key_format.binary
    key = Col(f".KEY{step}", on.right.type)
    node: Node = ForeignKeyJoin(left, s.right.node, how, (refers,), (on.right,), (key,), binary)
    for other in on.others:
        node = Filter(node, bind_predicate(other, _rules(s.scope)))
    own = left.row_key[0] if len(left.row_key) == 1 else None
    known = (own,) if isinstance(own, Col) else ()
    return From(node, s.scope, "table", step, None, known, known, notices=(*s.left.notices, *_notices(s)))


def _node(equal: Sequence[tuple[Expr, Expr, Col]], s: Step) -> Node:
    """`equal`: the equality of ON, then those of windows."""
    left, right, set_, windowed = s.left.node, s.right.node, s.env.settings, len(equal) > 1
    left_keys, right_keys, keys = (tuple(x) for x in zip(*equal, strict=True))
    if s.left.kind == "table":
        return TableTableJoin(left, right, s.how, left_keys, right_keys, keys, windowed=windowed)
    if s.right.kind == "table":
        how: Literal["inner", "left"] = "left" if s.how == "left" else "inner"
        return StreamTableJoin(left, right, how, left_keys, right_keys, keys, set_.null_key, windowed)
    within = s.join.within
    assert within is not None
    before, after = within.before.ms, within.after.ms
    grace = None if within.grace is None else within.grace.ms
    pad: Pad = "eager" if grace is None else "deferred"
    kept = retention(before, after, grace)
    return StreamStreamJoin(
        left, right, s.how, left_keys, right_keys, keys, before, after, grace or 0, kept, pad, set_.null_key, set_.late,
        windowed,
    )  # fmt: skip


def _notices(s: Step) -> list[str]:
    found: list[str] = []
    if s.left.kind == "table" and not s.left.scope.is_join:
        found.append(_kept_whole(s.left))
    if s.right.kind == "table":
        found.append(_kept_whole(s.right))
    within = s.join.within
    if within is not None and s.how == "right" and within.before.ms != within.after.ms:
        found.append(
            "RIGHT JOIN WITHIN (before, after): rows of the right match from before to after the left row's time, as "
            "in the other joins"
        )
    return found


def _forgotten(left: Node, node: Node) -> Iterator[str]:
    """Warnings where partners may be forgotten: by an end of a window, or where rows come late from earlier steps."""
    if not isinstance(node, StreamStreamJoin) or node.retention is None:
        return
    if (side := node.cut_short) is not None:
        yield (
            f"WITHIN is open to one side, with no grace: as in Kafka Streams, a row of the {side} misses a match at "
            f"the very end of its window, {duration(node.retention)} later, if a row of the {side} with that time came "
            "before it: GRACE PERIOD 1 MILLISECOND keeps it"
        )
    if (held := held_back(left)) > node.retention - node.before:
        yield (
            f"an earlier step holds rows back for up to {duration(held)}; the next one keeps rows for "
            f"{duration(node.retention)}, so their matches may be forgotten by then: give it a longer GRACE PERIOD"
        )


def _kept_whole(side: From) -> str:
    return f"table {side.scope.entries[0].alias} is kept whole: state grows with its keys"


def _viable(before: tuple[Col, ...], on: On) -> tuple[Col, ...]:
    """Plain columns that hold the join key: of earlier steps, of the left side, of the right."""
    return tuple(dict.fromkeys((*before, *_plain(on))))


def _plain(on: On) -> Iterator[Col]:
    """The sides of ON that are columns; AS_VALUE(column) is none."""
    for e, written in ((on.left, on.left_ast), (on.right, on.right_ast)):
        if isinstance(e, Col) and isinstance(written, ast.Name):
            yield e


# ------------------------------------------------------------------------ rules


def refusal(left: Kind, right: Kind, how: How, left_names: list[str], right_name: str) -> tuple[str, str] | None:
    """Why a stream or table cannot be joined so, and what to write; None if it can. `left_names`: all on the left."""
    left_name = left_names[0]
    if how in SUPPORTED[left, right]:
        return None
    if (left, right) == ("stream", "table"):
        message = f"{NAMES[how]} of stream {left_name} and table {right_name} is not possible"
        return message, "only stream rows emit here: write INNER JOIN or LEFT JOIN"
    message = f"{NAMES[how]} of table {left_name} and stream {right_name} is not possible: a stream must be on the left"
    if how in SWAPPED and len(left_names) == 1:
        return message, f"swap the sides: FROM {right_name} {SWAPPED[how]} {left_name}"
    if how in SWAPPED:
        made = f"CREATE TABLE … AS SELECT the join of {', '.join(left_names)}"
        return message, f"two statements: {made}, then FROM {right_name} {SWAPPED[how]} its result"
    return message, f"make {right_name} a table first (CREATE TABLE … AS SELECT … GROUP BY), then join two tables"


def held_back(node: Node) -> int:
    """How long the joins of a stream may hold a row back (ms of stream time)."""
    own = node.hold if isinstance(node, StreamStreamJoin) else 0
    return own + max(map(held_back, node.inputs), default=0)


def retention(before: int, after: int, grace: int | None) -> int:
    """How long a row of a stream-stream join is seen: the window and its grace; without GRACE at least a day."""
    lateness = max(DAY - 2 * before, 0) if grace is None else grace
    return max(before + after + lateness, 1)
