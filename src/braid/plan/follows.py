"""Which columns of a result follow from which, and so by which columns its rows can be told apart.

In: nodes; what is known of the tables that they read. Out: rules, and columns that suffice.
Rule: a rule holds within each row (`always`: its parts are equal, or made of each other), or only among the rows that
stand at one moment: there each left row of a join meets one right row, or a key has one row. What goes out for good
stands beside what went out before, so of its input it keeps only what holds within a row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from braid.expr.nodes import Call, Case, Col, Expr, Lit, columns
from braid.plan import epochs
from braid.plan.analytic import Analytic
from braid.plan.epochs import RegularJoin
from braid.plan.groups import Aggregate, Closed, Final, TimeWindows
from braid.plan.joins import OnKeys
from braid.plan.logical import Filter, Lateral, Materialize, Node, Project, Source
from braid.plan.over import Over
from braid.plan.sliding import SlidingJoin
from braid.types import FLOATS

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Follows:
    """Rows that are equal in `by` are equal in `gives`."""

    by: Names
    gives: Names
    always: bool = False


Known = Callable[[Source], Iterable[Follows]]  # of a table that is read, beside its key


class Rules:
    """Rules, to be asked what follows."""

    def __init__(self, rules: Iterable[Follows]) -> None:
        self.all = tuple(dict.fromkeys(rules))
        self._free = [r for r in self.all if not r.by]
        self._of: dict[str, list[Follows]] = {}
        for rule in self.all:
            for name in rule.by:
                self._of.setdefault(name, []).append(rule)

    def closure(self, by: Iterable[str]) -> set[str]:
        """All that follows from `by`."""
        found = set(by).union(*(r.gives for r in self._free))
        todo = list(found)
        while todo:
            for rule in self._of.get(todo.pop(), ()):
                if rule.by <= found and not rule.gives <= found:
                    todo += rule.gives - found
                    found |= rule.gives
        return found

    def suffices(self, by: Iterable[str], wanted: Collection[str]) -> bool:
        """Whether all that is wanted follows from `by`."""
        return self.closure(by).issuperset(wanted)

    def least(self, columns: Iterable[str], wanted: Collection[str]) -> tuple[str, ...] | None:
        """Of these columns the first ones from which all that is wanted follows, none of which can be spared."""
        left, needed = list(dict.fromkeys(columns)), list[str]()
        if not self.suffices(left, wanted):
            return None
        while not self.suffices(needed, wanted):
            enough = bisect_left(range(len(left)), True, key=lambda n: self.suffices([*left[:n], *needed], wanted))
            needed.insert(0, left[enough - 1])
            left = left[: enough - 1]
        return tuple(needed)

    def among(self, names: Sequence[str]) -> Iterator[Follows]:
        """What follows among these columns only from each by itself."""
        wanted = {*names}
        for always in (True, False):
            held = Rules(r for r in self.all if r.always) if always else self
            for name in names:
                found = held.closure((name,)) & wanted
                if len(found) > 1:
                    yield Follows(frozenset((name,)), frozenset(found), always)


def follows(node: Node, known: Known) -> list[Follows]:
    """The rules of a node's rows."""
    own = Follows(_names(node.row_key), _names(node.schema))
    match node:
        case Source():
            return [own, *known(node)]
        case Filter(input=x) | epochs.Changes(input=x) | epochs.OnTime(input=x) | epochs.Clocked(input=x):
            return follows(x, known)
        case epochs.Coalesce(input=x):
            return [own, *follows(x, known)]
        case Over(input=x):
            return [own, *follows(x, known)]
        case epochs.TemporalFilter(input=x):
            return [own, *follows(x, known)]
        case epochs.EmitOnClose(input=x):
            return [own, *(r for r in follows(x, known) if r.always)]
        case epochs.Windows(input=x, start=start, end=end):
            both = [Follows(frozenset((a.name,)), frozenset((b.name,)), True) for a, b in ((start, end), (end, start))]
            return [own, *follows(x, known), *(both if node.windows.sized else ())]
        case Project(input=x, outputs=outputs):
            return [*follows(x, known), *_projected(x, outputs)]
        case epochs.RegularJoin():
            return [own, *_joined(node, known)]
        case epochs.AsOfJoin(left=left, right=right):
            return [own, *follows(left, known), _meets_one(left, right)]
        case epochs.TemporalJoin(left=left, right=right, on=on):
            one = [_meets_one(left, right)] if _found(on.right, right, known) else []
            return [own, *follows(left, known), *one]
        case Aggregate(keys=keys):
            return [own, *(Follows(frozenset(), _names((c,)), True) for c, e in keys if isinstance(e, Lit))]
        case (
            epochs.Union() | OnKeys() | Lateral() | Materialize() | TimeWindows() | Final() | Closed() | SlidingJoin()
            | Analytic()
        ):  # fmt: skip
            return [own]
    assert_never(node)


def _joined(node: RegularJoin, known: Known) -> Iterator[Follows]:
    """A padded row is NULL in all of a side, which says nothing of what is NULL in a row of that side."""
    left, right, on, how = node.left, node.right, node.on, node.how
    if node.gives != "pairs":
        yield from follows(left, known)
        return
    if how in ("inner", "left"):
        yield from follows(left, known)
    if how in ("inner", "right"):
        yield from follows(right, known)
    if how == "inner":
        for pair in zip(on.left, on.right, strict=True):
            yield from (Follows(_names((a,)), _names((b,)), True) for a, b in (pair, pair[::-1]) if _exact(b))
    if how == "left" and _found(on.right, right, known):
        yield _meets_one(left, right)
    if how == "right" and _found(on.left, left, known):
        yield _meets_one(right, left)


def _meets_one(one: Node, other: Node) -> Follows:
    """Each row of the one meets at most one of the other."""
    return Follows(_names(one.row_key), _names(other.schema))


def _found(by: Sequence[Expr], node: Node, known: Known) -> bool:
    """Whether at most one row that stands has these values."""
    return Rules(follows(node, known)).suffices(_names(e for e in by if _exact(e)), _names(node.row_key))


def _exact(e: Expr) -> bool:
    """Whether it is a column whose equal values are the same: 0.0 equals -0.0."""
    return isinstance(e, Col) and e.type not in FLOATS


def _projected(node: Node, outputs: Sequence[tuple[Col, Expr]]) -> Iterator[Follows]:
    groups = {c.name: e for x in node.walk() if isinstance(x, Aggregate) for c, e in x.keys}
    for c, e in outputs:
        yield Follows(_names((e,)), _names((c,)), True)
        if isinstance(e, Col) or (_exact(c) and _is_grouped(e, groups)):
            yield Follows(_names((c,)), _names((e,)), True)


def _is_grouped(e: Expr, groups: Mapping[str, Expr]) -> bool:
    """Whether it shows what groups have two keys of: that it is NULL, and its value."""
    match e:
        case Case(whens=((Col(name=missing), Lit(value=None)),), default=Col(name=value)):
            match groups.get(missing), groups.get(value):
                case Call(function="is_null", args=(a,)), Call(function="COALESCE", args=(b, Lit())):
                    return a == b
    return False


def _names(exprs: Iterable[Expr]) -> Names:
    return frozenset(name for e in exprs for name in columns(e))
