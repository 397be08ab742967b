"""Stages as they grow, while a plan is lowered.

In: sources, what is known of the query as a whole; frames, and the keys that they are wanted by. Out: leaves, stages of
steps, exchanges.
Rule: a frame is where the rows of a node are: in which stage, spread by which key. It is moved only where it is spread
by another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from braid.errors import BraidError
from braid.expr.nodes import Col, Expr, columns, substituted
from braid.lower.physical import APART, OF_JOINS, Exchange, InPlace, Leaf, NullKey, Step
from braid.lower.shared import Part, Parts
from braid.lower.spread import made_of, never_null
from braid.operators.base import Operator
from braid.operators.changes import MAX_READINGS
from braid.operators.folding import Folding
from braid.operators.project import Project
from braid.operators.rekey import Rekey
from braid.operators.watermarks import Watermark
from braid.plan import epochs, groups, logical
from braid.plan.logical import Node

Keys = tuple[Expr, ...]


@dataclass(slots=True)
class Frame:
    """A lowered node: the number of its frame, the stage it is in, the key it is spread by (None: one that its columns
    cannot tell), its columns; `equal`: what has the same values as that key in all rows; `folded`: rows of a group in
    one epoch are one."""

    number: int
    stage: int
    keys: Keys | None
    columns: tuple[Col, ...]
    equal: Keys = ()
    folded: bool = False


@dataclass(slots=True)
class Growing:
    """A stage while nodes are lowered into it (`physical.Stage`)."""

    keys: Keys
    steps: list[Step] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    single: bool = False


@dataclass(slots=True)
class Builder:
    sources: tuple[logical.Source, ...]
    needed: frozenset[str]
    clocked: frozenset[str]  # aliases of the sources whose clock some join reads
    judged: frozenset[str]  # aliases of the sources whose late rows are dropped
    ahead: frozenset[str]  # aliases of the sources that a temporal join looks into
    in_place: InPlace  # how far it may go
    by_epoch: bool  # nothing above a group asks in which order rows come to it, or when, within an epoch
    unseen: Sequence[tuple[groups.Aggregate, int]]  # groups that nobody sees without rows; the number of COUNT(*)
    numbers: int
    leaves: list[Leaf] = field(default_factory=list)
    placed: InPlace = APART  # how far it has gone
    stages: list[Growing] = field(default_factory=list)
    read: frozenset[str] = frozenset()  # of what is needed, what is not only so in an equal part
    inside: int = 0  # how many parts that have an equal one are being lowered
    parts: Parts = field(default_factory=dict)  # that have an equal one
    made: dict[str, Frame] = field(default_factory=dict)  # of parts that are run, by form
    spared: set[int] = field(default_factory=set)  # the others, by identity
    same: dict[str, str] = field(default_factory=dict)  # sources of the others, and those that are read for them

    def number(self) -> int:
        self.numbers += 1
        return self.numbers - 1

    def stage(self, keys: Keys) -> int:
        self.stages.append(Growing(keys))
        return len(self.stages) - 1

    def leaf(self, source: logical.Source, keys: Keys, stage: int, null_key: NullKey, joins: bool) -> Frame:
        number = self.sources.index(source)
        cols = tuple(c.col for c in source.columns if c.name in self.needed)
        drop_null_value = joins and (source.kind == "stream" or source.captured)
        clocked = source.alias in self.clocked
        awaits, ahead = (source.partitions or 1) if source.alias in self.judged else 0, source.alias in self.ahead
        self.leaves.append(Leaf(number, source, cols, keys, stage, drop_null_value, null_key, clocked, awaits, ahead))
        return Frame(number, stage, keys, cols)

    def unread(self, names: Iterable[str]) -> frozenset[str]:
        """Of the columns of a part those that are read of an equal one alone."""
        return frozenset() if self.inside else self.needed.difference(self.read).intersection(names)

    def place(self, what: InPlace) -> bool:
        """Whether rows that may stay where they are do so in this plan."""
        if what > self.in_place:
            return False
        self.placed = max(self.placed, what)
        return True

    def rows_of(self, node: Node) -> int | None:
        return next((i for made, i in self.unseen if made is node), None)

    def clock(self, source: logical.Source, stage: int) -> None:  # nothing else of the leaf is read
        self.leaves.append(Leaf(self.sources.index(source), source, (), (), stage, False, "route", True, silent=True))

    def watermark(self, bound: epochs.Bound) -> Watermark:
        alias = self.same.get(bound.alias, bound.alias)
        leaf = next(i for i, s in enumerate(self.sources) if s.alias == alias)
        return Watermark(leaf, bound.column, bound.value, bound.slide, bound.offset, bound.ahead)

    def step(
        self, operator: Operator, frames: Iterable[Frame], node: Node, keys: Keys | None, cols: Iterable[Col]
    ) -> Frame:
        frames = list(frames)
        stage, number, payload = frames[0].stage, self.number(), tuple(cols)
        self.stages[stage].steps.append(Step(number, operator, tuple(f.number for f in frames), node, payload))
        return Frame(number, stage, keys, payload)

    def spread(self, frame: Frame, keys: Keys, null_key: NullKey, reason: str, folding: Folding | None = None) -> Frame:
        """The frame spread by `keys`: itself if it is, else through an exchange into a new stage."""
        if frame.keys == keys:
            return frame
        return self.moved(frame, keys, self.stage(keys), null_key, reason, folding)

    def gathered(
        self, frame: Frame, keys: Keys, node: Node, null_key: NullKey, reason: str, folding: Folding | None = None
    ) -> Frame:
        """The frame by `keys`: where every row has one, and those of one lie in one bucket, in its place."""
        known = (tuple(made_of(e, keys) for e in by or ()) for by in (frame.keys, frame.equal))
        by = next((x for x in known if x and None not in x), ())
        if frame.keys == keys or not by or not all(map(never_null, keys)) or not self.place(OF_JOINS):
            return self.spread(frame, keys, null_key, reason, folding)
        rekey = Rekey(node.mode, keys, tuple(e for e in by if e is not None))
        return self.step(rekey, [frame], node, keys, frame.columns)

    def moved(
        self,
        frame: Frame,
        keys: Keys,
        stage: int,
        null_key: NullKey,
        reason: str,
        folding: Folding | None = None,
    ) -> Frame:
        """The frame after an exchange into `stage`."""
        assert frame.stage < stage, "rows go to later stages only"
        self.stages[frame.stage].exchanges.append(Exchange(frame.number, stage, keys, null_key, reason, folding))
        return Frame(frame.number, stage, keys, frame.columns, folded=folding is not None)

    def spared_leaf(self, number: int) -> Leaf:
        """The leaf of a source that is not read: where it would be, were it the one that is."""
        source = self.sources[number]
        other = next(x for x in self.leaves if x.source.alias == self.same[source.alias])
        return Leaf(number, source, (), (), other.stage, False, "route", False, spared=True)

    def again(self, part: Part, first: Part, x: Frame) -> Frame:
        """The rows of a part that is run already, under other names."""
        names = dict(zip(first.columns, part.columns, strict=True))
        self.same |= zip(part.aliases, (self.same.get(x, x) for x in first.aliases), strict=True)
        self.spared.add(id(part.node))
        return self.renamed(first.node, x, {c.name: Col(names[c.name], c.type) for c in x.columns})

    def renamed(self, node: Node, x: Frame, now: Mapping[str, Col]) -> Frame:
        """The rows of a part under these names, with what is read of them here."""
        unread = self.unread(c.name for c in now.values())
        outputs = tuple((now[c.name], c) for c in x.columns if now[c.name].name not in unread)
        project = logical.Project(node, outputs)
        by = None if x.keys is None else _named(x.keys, now)
        made = self.step(Project.of(project), [x], project, by, (c for c, _ in outputs))
        return replace(made, equal=_named(x.equal, now) or ())


def _named(keys: Keys, now: Mapping[str, Col]) -> Keys | None:
    """Keys over the columns of a part, by their other names; None where one is not of its columns."""
    if any(c not in now for k in keys for c in columns(k)):
        return None
    return tuple(substituted(k, now) for k in keys)


def readings_of(read: Sequence[logical.Source]) -> list[int]:
    """A number for each source, to tell it from those that read the same topic; where they are few, its own."""
    if len(read) <= MAX_READINGS:
        return list(range(len(read)))
    before = Counter[str]()
    found = []
    for source in read:
        found.append(before[source.topic])
        before[source.topic] += 1
    topic, most = before.most_common(1)[0]
    if most > MAX_READINGS:
        hint = "make a view of it, and read that; or split it into two statements"
        raise BraidError(f"topic {topic} is read {most} times in one query; at most {MAX_READINGS}", hint)
    return found
