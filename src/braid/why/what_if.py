"""What if: of a record that gave no row, the smallest change that would have made one.

In: what is known of the record (`reasons.Case`), the slice in which it was judged. Out: changes, at most one of each
kind: a window, a grace period, the time of one record, its key, one constant of a condition; or none of these alone.
Rule: a change is named only if it was tried: the definitions give a row of the record with it, and none with a unit
less. All else is as it was, the order of the records, too. A record that was given alone is sought a partner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from braid.expr.nodes import Col, Expr, columns
from braid.plan import epochs, groups, joins, logical
from braid.plan.over import Over
from braid.reference import Event, Fact, Record
from braid.types import TIMESTAMPS
from braid.why.constants import others
from braid.why.knobs import Changed, Kind, Knob, conditions, knobs, with_change
from braid.why.lengths import spoken
from braid.why.reading import Place
from braid.why.reasons import Case, Verdict, shown
from braid.why.trials import OutOfTimeError, Trial, Trials, boundary, smallest

ALONE = "given alone"
NO_ROW = ("deletes", "only decides")  # reasons of records that no row is made of
_FIRST = {  # by the reason why there is no row, what is looked for first
    "condition": "constant", "ranked out": "constant", "partner missing": "constant", "row came later": "order",
    "no partner": "key", "no row": "key",
}  # fmt: skip
PARTNERS = 3  # records whose time is changed
NEAR = 6  # times that one is moved to
REACH = 100 * 365 * 86_400_000  # ms; no length is looked for beyond


@dataclass(frozen=True, slots=True)
class Found:
    """A change that would have made a row. `text`: what would have; `made`: the trial that gave it; `less`: the one
    that did not, where there is a unit less; `events`: the slice, where that is another one."""

    kind: Kind
    text: str
    made: Trial
    less: Trial | None = None
    events: Sequence[Event] | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`changes`: what would have made a row, in the order of `Kind`; `cut`: not all was tried."""

    changes: Sequence[Found] = ()
    cut: bool = False


WithKey = Callable[[Sequence[Record], int, int, str], Sequence[Event] | None]


def sought(
    case: Case, events: Sequence[Event], verdicts: Mapping[Place, Verdict], with_key: WithKey, until: float
) -> Mapping[Place, WhatIf]:
    """What would have made a row of those that gave none, or a partner of those that went out alone. `until`: of
    `process_time`."""
    mine = [p for p, v in verdicts.items() if v.reason == ALONE or (v.outcome == "missing" and v.reason not in NO_ROW)]
    if not mine:
        return {}
    try:
        trials = Trials(case.query, events, mine, any(verdicts[p].reason == ALONE for p in mine), until)
        search = Search(case, trials, with_key)
    except OutOfTimeError:
        return dict.fromkeys(mine, WhatIf(cut=True))
    return {p: search.of(p) for p in mine}


@dataclass(slots=True)
class Search:
    """`with_key`: the events of records and of all that has another key, of a source, where records meet."""

    case: Case
    trials: Trials
    with_key: WithKey
    same: Changed = field(init=False)
    knobs: Sequence[Knob] = field(init=False)
    sources: Sequence[logical.Source] = field(init=False)
    reach: int = field(init=False)
    keeps_alone: bool = field(init=False)  # whether rows without a partner go out

    def __post_init__(self) -> None:
        query = self.case.query
        self.same, self.knobs, self.sources = Changed(query), knobs(query), [*logical.sources(query.root)]
        joined = [(getattr(x, "how", "inner"), getattr(x, "gives", "pairs")) for x in query.root.walk()]
        self.keeps_alone = any(how not in ("inner", None) or gives == "unmatched" for how, gives in joined)
        every = [t for p, e in self.trials.records.items() for w in self._ways(p) if (t := w.time(e)) is not None]
        every += self.trials.shown
        spread = max(every, default=0) - min(every, default=0)
        self.reach = min(max(spread, *self.trials.late, 0) + 2, REACH)  # a time may be computed: no column has it

    def of(self, place: Place) -> WhatIf:
        """Of one record."""
        looks = {"length": self._lengths, "time": self._times, "order": self._orders, "key": self._keys,
                 "constant": self._conditions}  # fmt: skip
        first = _FIRST.get(self.case.verdict(place).reason, "length")
        self.trials.unsure = False
        found, cut = dict[str, list[Found]](), False
        try:
            for name in sorted(looks, key=lambda x: x != first):  # where time is short, what is likely
                found[name] = looks[name](place)
        except OutOfTimeError:
            cut = True
        return WhatIf([x for name in looks for x in found.get(name, ())], cut or self.trials.unsure)

    # ------------------------------------------------------------------- of the query

    def _lengths(self, place: Place) -> list[Found]:
        """A window, a grace period. A longer window keeps rows longer, too: where its length is not what was missing,
        it is named only if no grace period is enough."""
        graces = self._of_knobs(place, "grace")
        apart = any(f.what == "missed" and f.detail["apart"] for f in self.case.notes.said[place])
        late = self.case.verdict(place).reason in ("late", "expired")
        return graces if graces and late and not apart else [*self._of_knobs(place, "window"), *graces]

    def _of_knobs(self, place: Place, kind: Kind) -> list[Found]:
        for knob in (k for k in self.knobs if k.kind == kind):
            found = self._of_knob(place, knob)
            if found is None and knob.shrinks and self.keeps_alone:
                found = self._of_knob(place, knob, shorter=True)
            if found is not None:
                return [found]
        return []

    def _of_knob(self, place: Place, knob: Knob, shorter: bool = False) -> Found | None:
        """Another number, if it gives a row. `shorter`: a smaller one, where rows without a partner go out."""
        falls = knob.falls or shorter
        gives = partial(self.trials.knob, knob, place)
        reach = REACH if shorter else self.reach  # what is longer than it need be may be long
        value = smallest(replace(knob, falls=falls), gives, self._near(place), self._hints(place), reach)
        if value is None:
            return None
        before = value - (knob.step or 1) * (-1 if falls else 1)
        less = Trial(knob.put(before)) if before != knob.value else None
        found = Found(knob.kind, knob.said(value), Trial(knob.put(value)), less)
        return found if self.trials.holds(place, found.made, found.less) else None

    def _near(self, place: Place) -> list[int]:
        """By how much a record has missed what it met not, or came late (ms)."""
        apart = {f.detail["apart"] for f in self.case.notes.said[place] if f.what == "missed"}
        late = [x for x in sorted(self.trials.late) if x > 0]
        return [*dict.fromkeys((*sorted(apart - {0})[:NEAR], *late[:NEAR]))]

    def _hints(self, place: Place) -> list[int]:
        """How far the times of other records are from its own (ms)."""
        mine = [t for w in self._ways(place) if (t := w.time(self.trials.records[place])) is not None]
        found = {abs(t - m) + more for t in self._times_of_others(place) for m in mine for more in (0, 1)}
        return sorted(found - {0})[: 2 * NEAR]

    def _times_of_others(self, place: Place) -> Iterator[int]:
        for p, e in self.trials.records.items():
            if p != place:
                yield from (t for w in self._ways(p) if (t := w.time(e)) is not None)

    # ------------------------------------------------------------------- of a record

    def _ways(self, place: Place) -> Sequence[Way]:
        """Which times a record has: its own, or where rows come in epochs those of its columns."""
        source = self.sources[self.trials.records[place].leaf]
        if not epochs.in_epochs(self.case.query.root):
            made = source.timestamp is not None and source.timestamp.made is not None
            return [Way(None, None if made else source.timed_by)]
        return [Way(c) for c in source.columns if c.column.type in TIMESTAMPS and c.place == "value"]

    def _times(self, place: Place) -> list[Found]:
        """The time of the record, or else that of one that may be its partner."""
        own = self.trials.records[place]
        if own.error is not None:
            return []
        targets = [*dict.fromkeys(self._times_of_others(place))]
        for p in (place, *self._partners(place)):
            record = self.trials.records[p]
            for way in self._ways(p):
                time = way.time(record)
                if time is None:
                    continue
                if p != place:
                    targets = [t for w in self._ways(place) if (t := w.time(own)) is not None]
                by = self._shift(place, p, way, self._shifts(place, time, targets))
                if by is not None:
                    made, less = (self._moved(p, way, x) for x in (by, by - _sign(by)))
                    text = way.text(self.case.at[p], by, self.case.time_text(time + by))
                    found = Found("time", text, made, less if abs(by) > 1 else None)
                    if self.trials.holds(place, found.made, found.less):
                        return [found]
        return []

    def _shifts(self, place: Place, time: int, targets: Sequence[int]) -> list[int]:
        near = self._near(place)
        to = sorted((t - time for t in targets), key=abs)[:NEAR]
        beside = [x + by for x in to for by in (1, -1)]
        return sorted({*near, *(-x for x in near), *to, *beside} - {0}, key=abs)

    def _shift(self, place: Place, p: Place, way: Way, shifts: Sequence[int]) -> int | None:
        """By how much (ms) the time of a record has to move."""
        low = {1: 0, -1: 0}
        for by in shifts:
            sign = _sign(by)

            def gives(n: int, sign: int = sign) -> bool:
                return self.trials.gives(place, self._moved(p, way, sign * n))

            if gives(abs(by)):
                return sign * boundary(low[sign], abs(by), gives)
            low[sign] = abs(by)
        return None

    def _moved(self, p: Place, way: Way, by: int) -> Trial:
        """A record with another time, in all sources that read it."""
        made = dict[Place, Record]()
        for x in self._same_record(self.trials.records, p):
            mine = next((w for w in self._ways(x) if w.field == way.field), None)
            made |= {} if mine is None else {x: mine.moved(self.trials.records[x], by)}
        return Trial(self.same, made)

    def _same_record(self, records: Mapping[Place, Record], p: Place) -> list[Place]:
        """The places of a record: one for each source that reads it."""

        def where(x: Record) -> tuple[str, int, int]:
            return self.sources[x.leaf].topic, x.partition, x.offset

        own = where(records[p])
        return [q for q, x in records.items() if where(x) == own]

    def _partners(self, place: Place) -> list[Place]:
        """Records of other sources, the nearest first."""
        own = self.trials.records[place]
        some = (p for p, e in self.trials.records.items() if e.leaf != own.leaf and e.error is None)
        return sorted(some, key=lambda p: abs(self.trials.records[p].time - own.time))[:PARTNERS]

    def _orders(self, place: Place) -> list[Found]:
        """A row of a table before the row of a stream that looks it up."""
        own = self.trials.records[place].leaf
        for node in self.case.query.root.walk():
            if not isinstance(node, joins.StreamTableJoin | epochs.TemporalJoin):
                continue
            rows, table = (self.case.sources_below(node, side) for side in ("left", "right"))
            if own in rows:
                pairs = [(p, place) for p in self._places(table) if p > place][:PARTNERS]
            elif own in table:
                pairs = [(place, p) for p in reversed(self._places(rows)) if p < place][:PARTNERS]
            else:
                continue
            for first, then in pairs:
                found = Found("order", self._before(first, then), Trial(self.same, first=(first, then)))
                if self.trials.gives(place, found.made) and self.trials.holds(place, found.made, None):
                    return [found]
        return []

    def _places(self, leaves: Sequence[int]) -> list[Place]:
        return sorted(p for p, e in self.trials.records.items() if e.leaf in leaves and e.error is None)

    def _before(self, first: Place, then: Place) -> str:
        return f"{self.case.at[first]} read before {self.case.at[then]}"

    def _keys(self, place: Place) -> list[Found]:
        """The key of the record, or of one that it has met, as the nearest spelling that there is."""
        case = self.case
        said = case.notes.said[place]
        alone = [case.meeting(f) for f in said if f.what in ("alone", "padded")]
        others_ = [f.detail["other"] for f in said if f.what == "met" and f.detail.get("other") is not None]
        met: set[Place] = {p for row in others_ for p in (*row.origin, row.cause)}
        for p in (place, *sorted(x for x in met if x in self.trials.records and x != place)[:PARTNERS]):
            leaf = self.trials.records[p].leaf
            for i, m in enumerate(case.sliced.mets):
                if leaf in m.keys and any(at is m.of for at in alone):
                    found = self._spelling(place, p, i)
                    if found is not None:
                        return [found]
        return []

    def _spelling(self, place: Place, p: Place, met: int) -> Found | None:
        """A row of a record, if another one has another key where records meet."""
        record, own, case = self.trials.records[p], self.trials.records[place], self.case
        exprs = case.sliced.mets[met].keys[record.leaf]
        near = case.nearest(met, record.leaf, case.key_of(met, record))
        values = None if near is None else case.values_of(met, *near)
        if near is None or values is None or record.error is not None or not all(isinstance(e, Col) for e in exprs):
            return None
        new = {e.name: v for e, v in zip(exprs, values, strict=True) if isinstance(e, Col)}
        events = self.with_key([own, record], met, *near)
        if events is None or not new.keys() <= record.values.keys():
            return None
        records = {e.place: e for e in events if isinstance(e, Record)}
        at = {(e.leaf, e.partition, e.offset): e for e in records.values()}
        mine, other = (at[x.leaf, x.partition, x.offset] for x in (own, record))
        fields = {c.field: new[c.name] for c in self.sources[record.leaf].columns if c.name in new}
        made = Trial(
            self.same, {x: self._with_fields(records[x], fields) for x in self._same_record(records, other.place)}
        )
        trials = Trials(case.query, events, [mine.place], self.trials.alone, self.trials.until)
        if trials.gives(mine.place, made) and trials.holds(mine.place, made, None):
            return Found("key", self._spelled(p, record, new), made, events=events)
        return None

    def _with_fields(self, record: Record, fields: Mapping[str, object]) -> Record:
        columns_ = self.sources[record.leaf].columns
        return replace(
            record, values={**record.values, **{c.name: fields[c.field] for c in columns_ if c.field in fields}}
        )

    def _spelled(self, place: Place, record: Record, new: Mapping[str, object]) -> str:
        at = self.case.at[place]
        if not self.case.values:
            return f"{at} with a key that is spelled otherwise"
        said = (
            f"{n.rpartition('.')[2]} = {shown(v)} instead of {shown(record.values[n])}"
            for n, v in new.items() if record.values[n] != v
        )  # fmt: skip
        return f"{at} with {' and '.join(said)}"

    # ------------------------------------------------------------------- of a condition

    def _conditions(self, place: Place) -> list[Found]:
        """One constant of a condition that left a row out: of the record, or else of one that it might have met."""
        query = self.case.query
        said: Sequence[Fact] = self.case.notes.said[place]
        nodes: Mapping[int, logical.Node] = self.case.notes.reference.nodes
        if any(f.what == "filtered" and isinstance(nodes[f.step], Over) for f in said):
            query = with_change(query, lambda x: x)  # without the short cuts of top-N
            said, nodes = self.trials.facts(query, [place])
        found = self._constant(place, query, left_out(said, nodes))
        if not found and (partners := self._partners(place)):
            said, nodes = self.trials.facts(query, partners)
            found = self._constant(place, query, left_out(said, nodes))
        return found

    def _constant(
        self, place: Place, query: logical.Query, rows: Iterable[tuple[logical.Node, Mapping[str, Any]]]
    ) -> list[Found]:
        """The smallest change of a constant that lets one of these rows pass, if that gives the record a row."""
        tried = [
            (other, node, with_e)
            for node, row in rows
            for e, with_e in conditions(node)
            if {*columns(e)} <= row.keys()
            for other in others(e, row)
        ]
        seen, names = set[str](), groups.names(query.root)
        for other, node, with_e in sorted(tried, key=lambda x: x[0].moved):
            key = repr((other.new, id(node)))
            if key in seen or len(seen) >= 2 * NEAR:
                continue
            seen.add(key)
            made = _with_condition(query, node, with_e, other.condition)
            less = None if other.less is None else _with_condition(query, node, with_e, other.less)
            if not self.trials.gives(place, made) or (less is not None and self.trials.gives(place, less)):
                continue
            if self.trials.holds(place, made, less):
                return [Found("condition", other.text(self.case.values, names), made, less)]
        return []


def left_out(
    said: Iterable[Fact], nodes: Mapping[int, logical.Node]
) -> Iterator[tuple[logical.Node, Mapping[str, Any]]]:
    """The rows that conditions left out, each with the node that did."""
    for f in said:
        if f.what == "failed":
            other = {n: v for n, v in f.detail["other"].values.items() if v is not None}
            yield nodes[f.step], {**f.row.values, **other}
        elif f.what in ("filtered", "alone", "padded") and not f.row.gone:
            yield nodes[f.step], f.row.values


@dataclass(frozen=True, slots=True)
class Way:
    """A time of a record: of this column, or its own, which `timed_by` holds, if a column does."""

    column: logical.SourceColumn | None
    timed_by: logical.SourceColumn | None = None

    @property
    def field(self) -> str | None:
        return None if self.column is None else self.column.field

    def time(self, record: Record) -> int | None:
        """In ms since 1970."""
        if self.column is None:
            return record.time
        value = record.values.get(self.column.name)
        if not isinstance(value, datetime):
            return None
        return (value - datetime(1970, 1, 1, tzinfo=value.tzinfo)) // timedelta(milliseconds=1)

    def moved(self, record: Record, by: int) -> Record:
        column = self.column or self.timed_by
        values = dict(record.values)
        if column is not None:
            old = values[column.name]
            if isinstance(old, datetime):
                values[column.name] = old + timedelta(milliseconds=by)
            elif isinstance(old, int):
                values[column.name] = old + by
        return replace(record, values=values, time=record.time + (by if self.column is None else 0))

    def text(self, at: object, by: int, time: str) -> str:
        of = "" if self.column is None else f" with {self.column.field}"
        return f"{at}{of} {spoken(abs(by))} {'later' if by > 0 else 'earlier'} ({time})"


def _with_condition(query: logical.Query, node: object, with_e: Callable[[Expr], Any], e: Expr) -> Trial:
    return Trial(Changed(with_change(query, lambda x: with_e(e) if x is node else x)))


def _sign(x: int) -> int:
    return 1 if x > 0 else -1
