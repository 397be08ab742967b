"""Parts of a query that are read more than once, so that each is run once.

In: a query, as it is lowered. Out: its equal parts: their form, which is the same for equal ones, and the names of
their columns and sources in one order.
Rule: only where whole epochs count, and only what keeps something: a source that is read twice costs less than an
exchange. Rows of equal parts differ in their names and in the number of their reading, which is a part of a position.
So where the order within an epoch counts, only joins are shared: their rows stand at the end of their epoch.
(docs/decisions/0099-a-part-that-is-read-twice-is-run-once.md)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from braid.plan import epochs, groups, logical, over
from braid.plan.canonical import form_of
from braid.plan.logical import Node, Query
from braid.plan.needed import needed
from braid.plan.rewrite import pruned

_Keeping = epochs.RegularJoin | epochs.AsOfJoin | epochs.TemporalJoin | groups.Aggregate | over.Over
_Passing = logical.Filter | logical.Project


@dataclass(frozen=True, slots=True)
class Part:
    """`columns`: the names of its plan columns; `aliases`: of its sources."""

    node: Node
    form: str
    columns: tuple[str, ...]
    aliases: tuple[str, ...]


Parts = Mapping[int, Part]  # by the identity of its node, as they are written


def parts(
    query: Query,
    ahead: Collection[str] = (),
    in_order: bool = False,
    told: Callable[[Node], object] = lambda node: None,
) -> Parts:
    """The parts that have an equal one. `ahead`: sources whose rows stand one epoch ahead; `in_order`: the order of
    rows within an epoch counts; `told`: what else is known of a node."""
    topics = Counter(s.topic for s in logical.sources(query.root))
    found, counts = dict[int, Part](), Counter[str]()
    if max(topics.values(), default=0) < 2:
        return found
    for node in _parts(query.root, in_order):
        read = tuple(logical.sources(node))
        if any(topics[s.topic] < 2 for s in read) or (made := form_of(query, node)) is None:
            continue
        text, columns = made
        facts = [(s.name, s.alias in ahead) for s in read]
        part = Part(node, f"{text} {facts} {told(node)}", columns, tuple(s.alias for s in read))
        found[id(node)] = part
        counts[part.form] += 1
    return {node: part for node, part in found.items() if counts[part.form] > 1}


def _parts(root: Node, in_order: bool) -> Iterator[Node]:
    for x in root.walk():
        below = x
        while isinstance(below, _Passing if in_order else _Passing | epochs.Changes):
            below = below.input
        if isinstance(below, epochs.EpochJoin if in_order else _Keeping):
            yield x


def _same(rows: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
    """Names that stand for the same. `rows`: a form, and names of a part that has it."""
    by_form: dict[str, list[tuple[str, ...]]] = {}
    for form, row in rows:
        by_form.setdefault(form, []).append(row)
    for equal in by_form.values():
        yield from zip(*equal, strict=True)


def alike(names: frozenset[str], rows: Iterable[tuple[str, tuple[str, ...]]]) -> frozenset[str]:
    """The names, and those that stand for the same in an equal part; `rows` as in `_same`."""
    same = [*_same(rows)]
    while True:
        more = names.union(*(x for x in same if not names.isdisjoint(x)))
        if more == names:
            return names
        names = more


def pruned_alike(query: Query) -> Query:
    """As `pruned`, but that equal parts stay equal: what is read of one of them is in all."""
    rows = [(x.form, x.columns) for x in parts(query).values()]
    made = pruned(query)
    while rows and (read := alike(needed(made), rows)) != needed(made) and (more := pruned(query, read)) != made:
        made = more
    return made


def named_alike(stored: Mapping[str, str], some: Iterable[Part]) -> Mapping[str, str]:
    """The names in kept rows, with those of columns that are read of an equal part alone."""
    made = dict(stored)
    for same in _same((x.form, x.columns) for x in some):
        known = next((stored[name] for name in same if name in stored), None)
        for n, name in enumerate(same):
            if known is not None:
                made.setdefault(name, f"{known}~{n}")
    return made
