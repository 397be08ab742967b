"""A derivation as a tree: the step that gave a row, what it says, below it those that gave it that, down to records.

In: a query; of one of its rows the named records, and what the definitions say of them. Out: the tree.
Rule: a step that only passes rows on is left out. Numbers are those of these records. Of a group, or of anything that
many records are in, the first and the last are shown, and how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from braid.explain.words import of_node
from braid.expr.nodes import columns
from braid.expr.show import duration, show
from braid.plan import epochs, groups, joins, logical, sliding
from braid.plan.analytic import Analytic, Analyzed
from braid.plan.over import Over
from braid.reference import Fact, Record
from braid.reference.rows import Place
from braid.why.causes import Derived
from braid.why.reasons import At, shown
from braid.why.slices import below_of

ENDS = 10  # records shown of many, at either end


@dataclass(frozen=True, slots=True)
class Leaf:
    """A record. `values`: None where nobody may see them; `written`: by which query, where a query of the store has."""

    at: At
    key: str | None
    values: Mapping[str, object] | None
    gone: bool = False
    written: str | None = None


@dataclass(slots=True)
class Tree:
    """`step`: what it is; `says`: with which numbers; `leaves`: records, of `count`, of a source."""

    step: str
    says: Sequence[str] = ()
    inputs: Sequence[Tree] = ()
    leaves: Sequence[Leaf] = ()
    count: int = 0
    deeper: dict[int, object] = field(default_factory=dict)  # by the number of a leaf: why that is there


@dataclass(frozen=True, slots=True)
class Telling:
    """What a tree is made by. `leaf`: a record by its place; `values`: whether values may be seen."""

    query: logical.Query
    derived: Derived
    records: Mapping[Place, Record]
    at: Mapping[Place, At]
    leaf: Callable[[Place], Leaf]
    time_text: Callable[[int], str]
    values: bool

    def tree(self) -> Tree:
        facts = dict[int, list[Fact]]()
        for f in self.derived.facts:
            facts.setdefault(f.step, []).append(f)
        steps = {id(n): number for number, n in self.derived.reference.nodes.items()}
        by_leaf = dict[int, list[Place]]()
        for place in sorted(self.derived.named, key=lambda p: p[1]):
            by_leaf.setdefault(self.records[place].leaf, []).append(place)
        numbers = iter(range(len(list(logical.sources(self.query.root)))))
        made = self._of(self.query.root, numbers, by_leaf, lambda n: facts.get(steps.get(id(n), -1), []))
        return made or Tree("no record")

    def _of(
        self,
        node: logical.Node,
        numbers: Iterator[int],
        by_leaf: Mapping[int, Sequence[Place]],
        facts: Callable[[logical.Node], Sequence[Fact]],
    ) -> Tree | None:
        """The tree of a node; None where none of the records is below it."""
        if isinstance(node, logical.Source):
            return self._source(node, by_leaf.get(next(numbers), ()))
        made = [self._of(x, numbers, by_leaf, facts) for x in below_of(node)]
        inputs = [x for x in made if x is not None]
        if not inputs:
            return None
        if isinstance(node, _PASSING) or (isinstance(node, epochs.Union) and len(inputs) == 1):
            return inputs[0] if len(inputs) == 1 else Tree(node.called, (), inputs)
        words = of_node(node)
        keys = f" on {', '.join(words.keys)}" if words.keys else ""
        return Tree(f"{node.called}{keys}", [*self._says(node, facts(node), by_leaf)], inputs)

    def _source(self, node: logical.Source, places: Sequence[Place]) -> Tree | None:
        if not places:
            return None
        some = places if len(places) <= 2 * ENDS else [*places[:ENDS], *places[-ENDS:]]
        return Tree(node.called, (), (), [self.leaf(p) for p in some], len(places))

    # ------------------------------------------------------------------- numbers

    def _says(self, node: logical.Node, facts: Sequence[Fact], by_leaf: Mapping[int, Sequence[Place]]) -> Iterator[str]:
        match node:
            case logical.Filter():
                yield self._condition(node, by_leaf)
            case sliding.SlidingJoin() if not node.meets:
                yield from self._waited(facts)
            case joins.StreamStreamJoin() | sliding.SlidingJoin():
                yield from self._in_time(node, facts)
            case joins.OnKeys() | epochs.RegularJoin() | epochs.AsOfJoin() | epochs.TemporalJoin():
                yield from self._met(node, facts)
            case groups.Aggregate():
                yield from self._group(node, facts)
            case groups.TimeWindows() | epochs.Windows():
                yield of_node(node).notes[0]
            case groups.Final() | groups.Closed() | epochs.EmitOnClose():
                yield from self._waited(facts)
            case Over() | Analytic():
                yield from (c.shown if isinstance(c, Analyzed) else c.aggregation.shown for c in node.calls)

    def _condition(self, node: logical.Filter, by_leaf: Mapping[int, Sequence[Place]]) -> str:
        """The predicate, with the values of the columns that it reads of single records."""
        known = dict[str, object]()
        for places in by_leaf.values():
            if len(places) == 1:
                known |= self.records[places[0]].values
        read = [n for n in dict.fromkeys(columns(node.predicate)) if n in known]
        said = ", ".join(f"{n.lstrip('.')} is {shown(known[n])}" for n in read) if self.values else ""
        text = show(node.predicate, groups.names(node.input))
        if self.derived.row.values is None:
            return f"{text} is not true any more, or the row is gone"
        return f"{text} is true{f': {said}' if said else ''}"

    def _in_time(self, node: logical.Node, facts: Sequence[Fact]) -> Iterator[str]:
        """Of a pair how far its times are apart; else why there is none."""
        met = [f for f in facts if f.what == "met" and f.detail.get("came")]
        for f in met[:ENDS]:
            other = f.detail["other"]
            apart, later = abs(other.time - f.row.time), other.time > f.row.time
            by = f"{duration(apart)} {'after' if later else 'before'} it" if apart else "at the same time"
            yield f"{self._where(f.row)} met {self._where(other)}, {by}"
        if not met:
            yield "no partner met it"
            yield from self._waited(facts)
        if isinstance(node, joins.StreamStreamJoin):
            yield of_node(node).notes[0]

    def _met(self, node: logical.Node, facts: Sequence[Fact]) -> Iterator[str]:
        pairs = dict[str, None]()
        for f in facts:
            if f.what == "met" and f.detail.get("other") is not None:
                pairs[f"{self._where(f.row)} met {self._where(f.detail['other'])}"] = None
        padded = [f for f in facts if f.what == "padded"]
        gone = [f for f in facts if f.what == "gone"]
        yield from self._without_mirrors([*pairs])[:ENDS]
        if padded and (not pairs or self.derived.row.values is None):
            yield f"{self._where(padded[-1].row)} had no partner"
        if gone:
            yield f"{self._where(gone[-1].row)} deleted its row"

    def _without_mirrors(self, pairs: Sequence[str]) -> list[str]:
        seen, made = set[frozenset[str]](), list[str]()
        for text in pairs:
            both = frozenset(text.split(" met "))
            if both not in seen:
                seen.add(both)
                made.append(text)
        return made

    def _group(self, node: groups.Aggregate, facts: Sequence[Fact]) -> Iterator[str]:
        counted = [f for f in facts if f.what == "grouped"]
        if not counted:
            return
        yield f"{len(counted):,} change{'s' * (len(counted) != 1)} of the group"
        values = counted[-1].detail["values"]
        if self.values:
            yield ", ".join(f"{a.shown} = {shown(values[a.output.name])}" for a in node.aggregations)

    def _waited(self, facts: Sequence[Fact]) -> Iterator[str]:
        for f in [f for f in facts if f.what == "waits"][-1:]:
            until = f.detail["until"]
            if until is not None and abs(until) < 2**60:
                ticks = "ticks" in f.detail
                yield f"it waited until a clock passed {self.time_text(int(until) // 1000 if ticks else int(until))}"

    def _where(self, row: object) -> str:
        """Where a row came from: the record that completed it, or one that it is of."""
        origin = sorted(getattr(row, "origin", ()), key=lambda p: p[1])
        cause = getattr(row, "cause", None)
        place = cause if cause in self.at and (not origin or cause in origin) else origin[-1] if origin else cause
        return str(self.at[place]) if place in self.at else "another row"


_PASSING = (
    logical.Project, logical.Materialize, epochs.Changes, epochs.Clocked, epochs.Coalesce, epochs.OnTime,
)  # fmt: skip
