"""Derived: why a row of the result is there.

In: a store, a topic that one of its queries writes, a row of it by offset or by key. Out: an answer: each row, which
record completed it, which let it go, and the tree down to the records.
Rule: the slice of the row is judged as in `asking.py`. It is found by the record that completed the row, where the run
has left that (`recorded.py`); else by the columns of the row that have the values of columns of its sources; a row that
has none is looked for in all that was read. Nothing is written.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import polars as pl

from braid.bind.program import first_match
from braid.errors import BraidError
from braid.expr.nodes import Col, Expr
from braid.expr.user import Functions
from braid.face.plans import File
from braid.face.reset import queries
from braid.face.show import open_store
from braid.face.tabular import time_text
from braid.operators.changes import POS, POS_TYPE, TIME
from braid.operators.clocks import FOREVER
from braid.plan.epochs import in_epochs
from braid.reference import Bound, Clocked, Event, Idle, Record
from braid.reference.rows import BEFORE, Place
from braid.stage.cause_log import Cause
from braid.store import ObjectStore
from braid.topics.store_value import Store
from braid.types import Decimal, Scalar, is_time, polars_type
from braid.why.asking import MOST, WHOLE, Asked, asked
from braid.why.causes import Causes, Derived
from braid.why.output import Output, There
from braid.why.pages import Flags
from braid.why.reading import BATCH, OFFSET, PARTITION, Events, events
from braid.why.reasons import At
from braid.why.recorded import Recorded
from braid.why.slices import given_by, key_texts
from braid.why.tree import Leaf, Telling, Tree
from braid.why.tree_words import Derivation, Row

DEEPEST = 5  # queries one behind the other
FOLLOWED = 3  # records of a source that are followed into the query that has written them


class Writing(Protocol):
    """Queries by the topics that they write."""

    @property
    def by_topic(self) -> Mapping[str, Sequence[str]]: ...

    def named(self, topic: str) -> str:
        """The topic as it is written."""
        ...

    def asked(self, query: str) -> Asked: ...


@dataclass(slots=True)
class Writers:
    """The queries of a store, by the topics that they write."""

    store: Store
    functions: Functions
    parent: ObjectStore | None
    values: bool
    file: File | None
    by_topic: dict[str, list[str]] = field(init=False)
    _known: dict[str, Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_topic = {}
        for q in queries(open_store(self.store.objects), self.parent):
            if q.torn is None and q.writes is not None:
                self.by_topic.setdefault(q.writes, []).append(q.name)

    def named(self, topic: str) -> str:
        found = first_match(topic, self.by_topic)
        if found is None:
            raise BraidError(
                f"no query of {self.store} writes {topic}",
                f"their topics: {', '.join(sorted(self.by_topic)) or 'none'}",
            )
        return found

    def asked(self, query: str) -> Asked:
        if query not in self._known:
            self._known[query] = asked(self.store, query, self.functions, self.parent, self.values, self.file)
        return self._known[query]


def why(
    writers: Writing, topic: str, offset: int | None, partition: int | None, key: str | None, depth: int = 1
) -> Derivation:
    """Why rows of a topic are there: the one at an offset, or the last of a key."""
    topic = writers.named(topic)
    failed: BraidError | None = None
    for query in writers.by_topic[topic]:
        try:
            made = Deriving(writers, writers.asked(query), depth)
            return made.at(partition, offset) if offset is not None else made.of_key(key or "")
        except NotGiven as e:
            failed = e
    assert failed is not None
    raise failed


_OTHERS = "it may be of another query, of an earlier life of this one, or of a batch that is not done yet"

_FIRST = "one group, which has its row before any record has come"


@dataclass(frozen=True, slots=True)
class _Equal:
    """The records of a source of which an expression has a value (its text). `alone`: no other source gives it."""

    leaf: int
    of: Expr
    text: str
    alone: bool


class NotGiven(BraidError):
    """A query does not give a row."""


class Deriving:
    """The rows of a query."""

    def __init__(self, writers: Writing, mine: Asked, depth: int) -> None:
        self._writers, self._asked, self._depth = writers, mine, depth
        self._query, self._heard = mine.plan.query, mine.heard
        self._output = Output(mine.plan.query, mine.topics)
        self._recorded = Recorded(mine, self._output)

    def at(self, partition: int | None, offset: int) -> Derivation:
        return self._derived([self._output.at(partition, offset)])

    def of_key(self, key: str) -> Derivation:
        found, count = self._output.with_key(key)
        if not found:
            raise BraidError(
                f"{self._query.sink.topic} has no record with the key {key}",
                f"why it has none: braid why-not {shlex.quote(self._query.name)} --key {shlex.quote(key)}",
            )
        return self._derived(found, count - len(found))

    # ------------------------------------------------------------------- judging

    def _derived(self, wanted: Sequence[There], left: int = 0) -> Derivation:
        """By the causes that the run has left, where it has left those of all these rows and they give them; else by
        columns; else by all that was read, where that is not too much."""
        recorded = [self._recorded.of(x) for x in wanted]
        start = self._recorded.start(recorded)
        if start is not None:
            with contextlib.suppress(BraidError):  # it is none of these, or they have to do with too many
                return self._judged(wanted, self._asked.taken(start, MOST), left, recorded)
        try:
            return self._judged(wanted, self._asked.taken(self._start(wanted), MOST), left)
        except NotGiven:
            if self._heard.count > WHOLE:
                raise
            return self._judged(wanted, self._asked.every(), left)

    def _judged(
        self,
        wanted: Sequence[There],
        taken: Mapping[int, Flags],
        left: int,
        recorded: Sequence[Sequence[Cause]] | None = None,
    ) -> Derivation:
        """Rows by the slice `taken`; none of them may be missing where it is `recorded` what they came of, and else one
        must be there."""
        placed = events(self._heard, self._asked.plan, taken)
        causes = Causes(self._query, placed)
        by_text = _by_text(self._output.says(x) for x in causes.rows)
        if not all(x.says in by_text for x in wanted) and causes.rows and self._query.sink.values:
            by_text = _by_text(self._output.say_as_read(causes.rows)) | by_text
        seen = _Seen(self._asked, placed)
        rows, lost = list[Row](), list[str]()
        for n, x in enumerate(wanted):
            equal = by_text.get(x.says, ())
            try:
                number = (
                    self._number(x, equal) if recorded is None else self._came(x, recorded[n], causes, equal, placed)
                )
                rows.append(self._row(x, causes, number, seen))
            except NotGiven as e:  # of a key others may be
                lost.append(e.message)
                if recorded is not None or len(lost) == len(wanted):
                    raise
        return Derivation(
            self._query.sink.topic,
            self._query.name,
            rows,
            sum(int(x.sum()) for x in taken.values()),
            self._heard.count,
            self._heard.batches,
            self._asked.how.whole,
            left,
            [*self._asked.notes, *self._recorded.told.spoilt, *lost],
        )

    def _row(self, there: There, causes: Causes, number: int, seen: _Seen) -> Row:
        made = causes.of(number)
        topic, values = self._query.sink.topic, self._asked.values
        completed, released = seen.of(made)
        telling = Telling(self._query, made, seen.records, seen.at, lambda p: self._leaf(seen, p), time_text, values)
        tree = telling.tree() if made.row.place != BEFORE else Tree(_FIRST)
        self._follow(tree)
        return Row(
            At(topic, there.partition, there.offset, there.time),
            self._output.shown(there) if values else None,
            there.values if values else None,
            there.values is None,
            seen.batch_of(made.row.place),
            completed,
            released,
            tree,
            made.sure,
            [f"{topic}:{p}:{o}" for p, o in there.equal if (p, o) != (there.partition, there.offset)],
            there.before,
        )

    def _came(self, there: There, told: Sequence[Cause], causes: Causes, numbers: Sequence[int], placed: Events) -> int:
        """Which row of the slice it is, by where it came: of equal ones there the first in the topic is the first."""
        here = [n for n in numbers if self._recorded.came_there(causes.rows[n].place, told, placed)]
        before = [offset for p, offset in there.equal if (p, offset < there.offset) == (there.partition, True)]
        same = sum(self._recorded.of(replace(there, offset=n)) == told for n in (before if len(here) > 1 else ()))
        if same >= len(here):
            raise NotGiven(f"{self._query.sink.topic}:{there.partition}:{there.offset} came from elsewhere", _OTHERS)
        return here[same]

    def _number(self, there: There, numbers: Sequence[int]) -> int:
        """Which row of the slice it is: of equal ones the first in the topic is the first that was given."""
        place = f"{self._query.sink.topic}:{there.partition}:{there.offset}"
        if not numbers:
            raise NotGiven(
                f"{place} is not among the rows that {self._query.name} gives of what it has read",
                _OTHERS,
            )
        start = self._asked.topics.start_offsets(self._query.sink.topic)[there.partition]
        index = [*there.equal].index((there.partition, there.offset))
        index += len(numbers) - len(there.equal) if start else 0  # the first ones may be gone
        if not 0 <= index < len(numbers):
            raise NotGiven(
                f"{place}: such a row is there {len(there.equal)} times, and {self._query.name} gives "
                f"{len(numbers)} of what it has read",
                _OTHERS,
            )
        return numbers[index]

    # ---------------------------------------------------------------- where to begin

    def _start(self, wanted: Sequence[There]) -> Mapping[int, Flags]:
        """The records that may have to do with some rows."""
        asked = [self._asked_of(x) for x in wanted]
        flags = self._equal([x for some in asked for x in some])
        found = {n: x.all(False) for n, x in self._heard.rows.items()}
        for some in asked:
            for n, mine in self._start_of(some, flags).items():
                found[n] = found[n] | mine
        return found

    def _asked_of(self, there: There) -> Sequence[_Equal]:
        """What the columns of a row say of its records."""
        given = [*(there.key or ()), *(() if there.values is None else there.values.values())]
        parts = {id(e): part for e, part in given_by(self._query)}
        exprs = [*self._query.sink.written_key, *(o.expr for o in self._query.sink.values)]
        exprs = exprs if there.key is not None else exprs[len(self._query.sink.written_key) :]
        made = list[_Equal]()
        for e, value in zip(exprs, given, strict=False):
            part = parts.get(id(e))
            if part is not None and value is not None and isinstance(e.type, Scalar | Decimal):
                one = pl.DataFrame([pl.Series("x", [value], dtype=polars_type(e.type))])
                text = key_texts(one, [Col("x", e.type)])[0]
                made += [_Equal(leaf, x, text, len(part) == 1) for leaf, x in part.items()]
        return made

    def _start_of(self, asked: Sequence[_Equal], flags: Mapping[_Equal, Flags]) -> Mapping[int, Flags]:
        alone, either = dict[int, Flags](), dict[int, Flags]()
        for x in asked:
            into, mine = alone if x.alone else either, flags[x]
            into[x.leaf] = into[x.leaf] & mine if x.leaf in into else mine
        few = [(int(x.sum()), n) for n, x in alone.items() if x.any()]
        if few:
            _, leaf = min(few)
            return {leaf: alone[leaf]}
        if either:
            return either
        if self._heard.count > WHOLE:
            raise BraidError(
                f"no column of {self._query.sink.topic} says which records a row is made of, "
                f"and {self._query.name} has read {self._heard.count:,}",
                f"as it is, it works for up to {WHOLE:,} records",
            )
        return self._asked.every()

    def _equal(self, asked: Sequence[_Equal]) -> Mapping[_Equal, Flags]:
        """Which records of a source have a value."""
        found = dict[_Equal, Flags]()
        for leaf, rows in self._heard.rows.items():
            mine = [x for x in dict.fromkeys(asked) if x.leaf == leaf]
            exprs = [*dict.fromkeys(x.of for x in mine)]

            def equal(page: pl.DataFrame, mine: Sequence[_Equal] = mine, exprs: Sequence[Expr] = exprs) -> list[Flags]:
                texts = {e: key_texts(page, [e]) for e in exprs}
                return [texts[x.of] == x.text for x in mine]

            found |= zip(mine, rows.where_all(equal) if mine else (), strict=True)
        return found

    # -------------------------------------------------------------------- records

    def _leaf(self, seen: _Seen, place: Place) -> Leaf:
        key, value = self._asked.shown(seen.records[place])
        topic = seen.at[place].topic
        written = next(iter(self._writers.by_topic.get(topic, ())), None)
        return Leaf(seen.at[place], key, value, seen.records[place].null, written)

    def _follow(self, tree: Tree) -> None:
        """Goes on where records were written by a query of this store."""
        for x in tree.inputs:
            self._follow(x)
        for n, leaf in enumerate(tree.leaves[:FOLLOWED] if self._depth > 1 else ()):
            if leaf.written is not None:
                try:
                    at = leaf.at
                    tree.deeper[n] = why(self._writers, at.topic, at.offset, at.partition, None, self._depth - 1)
                except BraidError as e:
                    tree.deeper[n] = e


def _by_text(said: Iterable[str]) -> dict[str, list[int]]:
    """The numbers of rows by what they say."""
    found = dict[str, list[int]]()
    for n, text in enumerate(said):
        found.setdefault(text, []).append(n)
    return found


class _Seen:
    """The events of a slice: which records they are, and what lets rows go."""

    def __init__(self, mine: Asked, placed: Events) -> None:
        self._asked, self._placed, self.records = mine, placed, placed.records
        leaves = mine.plan.leaves
        self.at = {p: At(leaves[e.leaf].source.topic, e.partition, e.offset, e.time) for p, e in self.records.items()}
        self._in_epochs = in_epochs(mine.plan.query.root)

    def batch_of(self, place: Place) -> int:
        if place == BEFORE:
            return 0
        first, _ = self._placed.epoch(place[0])
        return self._placed.position((place[0], first))[0]

    def of(self, made: Derived) -> tuple[At | None, str | None]:
        """The record that a row was complete with, and what let it go, if that was another."""
        named = sorted(made.named, key=lambda p: p[1])
        place = made.row.place
        completed = self.at[named[-1]] if named else None
        if place == BEFORE:
            return None, None
        if not self._in_epochs:
            return completed, None if place in made.named else self._released(self._placed[place[1]])
        if any(p[0] == place[0] for p in named):
            return completed, None
        return completed, self._released(self._placed[self._placed.epoch(place[0])[1]])

    def _released(self, e: Event) -> str:
        match e:
            case Record():
                return _moved(self.at[e.place])
            case Clocked():
                found = self._record_of(e)
                return _moved(found) if found is not None else "a step of the clock"
            case Idle():
                which = ", ".join(f"{self._asked.plan.leaves[n].source.topic}:{p}" for n, p in e.partitions)
                return f"{which}, which fell idle"
            case Bound():
                which = ", ".join(f"{self._asked.plan.leaves[n].source.topic}:{p}" for n, p in e.partitions)
                return f"the end of {which}" if e.time == FOREVER else f"the clock of {which}, set to {_told(e.time)}"
        return "the end of its input"

    def _record_of(self, e: Clocked) -> At | None:
        batch, position = self._placed.position(e.place)
        here = (pl.col(BATCH) == batch) & (pl.col(POS) == pl.lit(position, POS_TYPE))
        found = self._asked.heard.rows[e.leaf].first(here, [PARTITION, OFFSET, TIME])
        return At(self._asked.plan.leaves[e.leaf].source.topic, *found.row(0)) if found.height else None


def _told(time: int) -> str:
    """A time, or the number at which a clock that counts is."""
    return time_text(time) if is_time(time) else str(time)


def _moved(at: At) -> str:
    return f"{at} of {time_text(at.time)}, which moved the clock"
