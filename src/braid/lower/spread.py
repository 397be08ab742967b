"""How rows are spread over buckets: those of a sliding join, and which may stay where they are.

In: nodes, keys. Out: by operand the key expressions to spread by, or why the whole join runs in one bucket; whether
rows that are wanted by one key lie together in the buckets of another.
Rule: rows that can meet must share a bucket: the key is one that every operand has an equal part of.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import assert_never

from braid.expr.nodes import Call, Case, Col, Expr, Lit, columns
from braid.lower.physical import OF_JOINS, OF_TOPS, InPlace
from braid.operators.changes import key_column
from braid.operators.folding import Folding
from braid.plan.epochs import AsOfJoin, Changes, Clocked, OnTime, RegularJoin, TemporalJoin, Windows, in_epochs
from braid.plan.groups import GATHER, Aggregate, Sessions
from braid.plan.logical import Filter, Node, Project, Source
from braid.plan.over import Over
from braid.plan.sliding import Merged, Operand, RowsFrame, SlidingJoin, meetings, preserved_table
from braid.types import FLOATS, Scalar

Keys = tuple[Expr, ...]

_EPOCH = {Scalar.TIMESTAMP: datetime(1970, 1, 1), Scalar.TIMESTAMPTZ: datetime(1970, 1, 1, tzinfo=UTC)}
_ANY_ORDER = ("COUNT", "MIN", "MAX", "SUM", "AVG", GATHER)  # but for sums of what is rounded


def common_keys(node: SlidingJoin) -> tuple[Keys, ...]:
    """By operand: expressions that are equal in all rows that can meet; empty where no key spans the tree."""
    classes: list[set[Expr]] = []
    written = [e for meeting in meetings(node.tree) for pair in meeting.keys for e in pair]
    for pair in (pair for meeting in meetings(node.tree) for pair in meeting.keys):
        mine = [c for c in classes if c.intersection(pair)]
        classes = [c for c in classes if c not in mine] + [set(pair).union(*mine)]
    if any(meeting.how != "inner" for meeting in meetings(node.tree)):  # then every single meeting must ask for it
        classes = [c for c in classes if all(any(c.issuperset(p) for p in m.keys) for m in meetings(node.tree))]
    names = [frozenset(c.name for c in x.input.schema) for x in node.operands]
    spanning = [c for c in (_by_operand([e for e in written if e in c], names) for c in classes) if c is not None]
    return tuple(zip(*spanning, strict=True)) if spanning else tuple(() for _ in names)


def _by_operand(equal: list[Expr], names: list[frozenset[str]]) -> Keys | None:
    """The first of the equal expressions for each operand; None where one has none."""
    found = [next((e for e in equal if len(set(columns(e))) > 0 and own.issuperset(columns(e))), None) for own in names]
    return None if None in found else tuple(e for e in found if e is not None)


def one_bucket(node: SlidingJoin) -> str | None:
    """Why the whole join runs in one bucket, if it does."""
    if any(isinstance(x.frame, RowsFrame) for x in node.operands):
        return "ROWS windows count the rows of all keys"
    if not isinstance(node.tree, Operand | Merged) and not all(common_keys(node)):
        return "no equality spans all operands"
    if preserved_table(node) is not None and not node.empty_buckets:
        return "which hops held rows is known only over all keys"
    return None


def known_by(e: Expr, keys: Collection[Expr]) -> bool:
    """Whether rows that are equal in all `keys` are equal in `e`."""
    return made_of(e, tuple(keys)) is not None


def made_of(e: Expr, keys: Keys) -> Expr | None:
    """`e`, of the columns of an exchange by `keys`, where it is known by them: it is one of them, or made of such by
    what looks at nothing but NULL, as the keys of groups are."""
    match e:
        case Lit():
            return e
        case _ if e in keys:
            return Col(key_column(keys.index(e)), e.type)
        case _ if (stood_for := _stands_for(e, keys)) is not None:
            return stood_for
        case Call(function="is_null" | "COALESCE", args=args):
            made = [x for arg in args if (x := made_of(arg, keys)) is not None]
            return replace(e, args=tuple(made)) if len(made) == len(args) else None
        case Case(whens=whens, default=default):
            pairs = [(made_of(when, keys), made_of(then, keys)) for when, then in whens]
            known = [(when, then) for when, then in pairs if when is not None and then is not None]
            other = made_of(default, keys)
            return replace(e, whens=tuple(known), default=other) if len(known) == len(pairs) and other else None
        case _:
            return None


def never_null(e: Expr) -> bool:
    """Whether every row has it, as `e` shows by itself."""
    match e:
        case Call(function="is_null"):
            return True
        case Call(function="COALESCE", args=args):
            return any(isinstance(x, Lit) and x.value is not None for x in args)
        case _:
            return False


def _stands_for(e: Expr, keys: Keys) -> Expr | None:
    """What two of them tell that are the parts of a group's key made of `e`: that it is NULL, and a value for NULL."""
    calls = [(key_column(n), k) for n, k in enumerate(keys) if isinstance(k, Call)]
    null = next((Col(name, k.type) for name, k in calls if k.function == "is_null" and k.args == (e,)), None)
    value = next((Col(name, e.type) for name, k in calls if k.function == "COALESCE" and k.args[0] == e), None)
    return None if null is None or value is None else Case(((null, Lit(None, e.type)),), value, e.type)


def fixed(node: Node) -> frozenset[Col]:
    """The columns that are the same in all rows that ever are under one key of a node."""
    if node.mode == "append":
        return frozenset(node.schema)
    match node:
        case Source():
            return frozenset(c for c in node.schema if c in node.row_key)
        case Filter(input=x) | OnTime(input=x) | Changes(input=x) | Clocked(input=x):
            return fixed(x)
        case Windows(input=x, start=start, end=end):
            return fixed(x) | {start, end}
        case Project(input=x, outputs=outputs):
            below = fixed(x)
            return frozenset(c for c, e in outputs if known_by(e, below))
        case Aggregate(keys=keys):
            return frozenset(c for c, _ in keys)
        case _:
            return frozenset()


def stays(node: Node) -> InPlace | None:
    """Whether, and as what, all that ever happens under a key of this result happens in one bucket of its join or
    partition: the key of these follows from that of the result."""
    below = node
    while isinstance(below, Project | Filter):
        below = below.input
    match below:
        case Over(input=x, partition=by):
            return OF_TOPS if all(known_by(e, fixed(x)) for e in by) else None
        case _:
            return OF_JOINS if _stays(below, node) else None


def _stays(below: Node, node: Node) -> bool:
    """The same of a join, `below` what is made of its rows."""
    match below:
        case RegularJoin(left=left, right=right, on=on, how=how):
            sides = [all(known_by(e, fixed(x)) for e in by) for x, by in ((left, on.left), (right, on.right))]
            match how:
                case "inner":
                    return any(sides)
                case "left" | "right":
                    return sides[how == "right"]
                case "full":
                    return all(sides)
            assert_never(how)
        case AsOfJoin(left=left) | TemporalJoin(left=left):
            return left.mode == "append"
        case _:
            return node.mode == "append"


def by_epoch(root: Node) -> bool:
    """Whether only what stands after each epoch counts: no step asks in which order rows come to it within one, nor
    since when a row stands."""
    if not in_epochs(root):
        return False
    for x in root.walk():
        if isinstance(x, TemporalJoin) and x.left.mode != "append":
            return False
        if isinstance(x, Aggregate):
            rounded = any(a.arg is not None and a.arg.type in FLOATS for a in x.aggregations)
            if rounded or any(a.function not in _ANY_ORDER or a.options for a in x.aggregations):
                return False
    return True


def folding(node: Aggregate, by_epoch: bool) -> Folding | None:
    """What may become of the rows of groups before they leave for them: where only the end of an epoch counts."""
    plain = not isinstance(node, Sessions) and node.rows is None and node.closed_after is None
    return Folding.of(node.aggregations, node.input.mode) if by_epoch and plain else None


def window_keys(node: Windows, wanted: Keys) -> tuple[Keys, Keys] | None:
    """What to spread the input of windows by where its rows are `wanted` by a key, and what that is of the rows with
    their windows: by their own columns, else by the window that alone holds a row; None: by neither."""
    own = tuple(c for c in node.input.schema if known_by(c, wanted))
    if own:
        return own, own
    bound = next((c for c in (node.start, node.end) if known_by(c, wanted)), None)
    if bound is None or not node.windows.alone or node.time.type not in _EPOCH:
        return None
    (step, _), _ = node.windows.lowest
    origin = _EPOCH[node.time.type] + timedelta(microseconds=node.windows.offset)
    args = (Lit((0, 0, step), Scalar.INTERVAL), node.time, Lit(origin, node.time.type))
    return (Call("pg.date_bin", args, node.time.type),), (bound,)
