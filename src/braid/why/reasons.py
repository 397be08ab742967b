"""Reasons: why a record gave no row, or which rows it gave, in plain sentences.

In: the notes of a record; what the query has read. Out: an outcome, a reason with numbers, places and times, a hint.
Rule: the reason is that of the last step which the record has reached: a row that met its partner and was filtered
behind that was filtered. Values are shown where they decide, and not at all where nobody may see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import compress
from typing import Any, Literal

import polars as pl

from braid.expr.compile import evaluate
from braid.expr.nodes import Col, Expr, columns
from braid.expr.show import duration, show
from braid.expr.typing import conjuncts
from braid.face.tabular import IS_NULL, is_inner
from braid.guess import guesses
from braid.operators.changes import DIFF, POS, POS_TYPE, TIME
from braid.plan import epochs, groups, joins, logical, sliding
from braid.plan.drop_reasons import Reason
from braid.plan.over import Over
from braid.records.python import python_values
from braid.reference import Fact, Record
from braid.reference.rows import Row, evaluated
from braid.types import WHOLE_NUMBERS, polars_type
from braid.why.key_text import bare, bares, has_numbers_of, shown_text
from braid.why.knobs import compared, is_temporal
from braid.why.notes import Notes
from braid.why.pages import Flags
from braid.why.reading import BATCH, KEY, OFFSET, PARTITION, SHOWN, Heard, Place
from braid.why.slices import Sliced, Slices, key_texts, text_of

Outcome = Literal["given", "waiting", "missing", "unread"]
ALIKE = 2000  # keys that are compared letter by letter


@dataclass(frozen=True, slots=True)
class At:
    """A record: where it lies, and when it is of."""

    topic: str
    partition: int
    offset: int
    time: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset, "timestamp": self.time}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason`: a word by which records are counted; `text`: one sentence; `hint`: what to look at, or to do."""

    outcome: Outcome
    reason: str
    text: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """What reasons are found by. `at`: which record is at a place; `time_text`: how times are shown; `values`: whether
    values may be; `taken`: the slice (None: all records); `hints`: whether keys are looked for that are alike;
    `lost`: why the topic of the result did not take rows, by the record that completed them."""

    query: logical.Query
    notes: Notes
    heard: Heard
    slices: Slices
    sliced: Sliced
    at: Mapping[Place, At]
    positions: Mapping[Place, tuple[int, int, int]]  # of a record: its source, batch and position
    time_text: Callable[[int], str]
    values: bool = True
    taken: Mapping[int, Flags] | None = None
    hints: bool = True
    lost: Mapping[str, str] = field(default_factory=dict)
    _by_key: dict[tuple[int, int], Mapping[str, Sequence[tuple[At, bool]]]] = field(default_factory=dict)

    # ---------------------------------------------------------------- verdicts

    def verdict(self, place: Place) -> Verdict:
        said = self.notes.said[place]
        if not said:
            return Verdict("missing", "nothing said", "it was read, and no step says what became of it")
        last = max(f.step for f in said)
        here = [f for f in said if f.step == last]
        if isinstance(self.notes.reference.nodes[last], epochs.RegularJoin | epochs.AsOfJoin):  # what holds in the end
            here = [f for f in here if f.place == here[-1].place]
        count = self.notes.counts[place]
        waits = self._waiting(said)
        if count:
            return self._given(place, count, here)
        if waits is not None:
            return waits
        late = [f for f in said if f.what == "dropped" and f.detail["reason"] == Reason.LATE]
        for what in _ORDER:
            found = [f for f in here if f.what == what]
            if found:
                made = _SAYS[what](self, place, found)
                if late and made.reason != "late":  # it looked for a partner all the same
                    told = self._late(place, late[-1])
                    return Verdict("missing", "late", f"{told.text}; besides, {made.text}", told.hint)
                return made
        return Verdict(
            "missing", "no row", f"it was read and gave no row; the last step it came to is {self.called(last)}"
        )

    def _given(self, place: Place, count: int, here: Sequence[Fact]) -> Verdict:
        rows = self.notes.given[place]
        topic, named = self.query.sink.name, [o.name for o in self.query.sink.key]
        whose = [not (is_inner(named) and n.endswith(IS_NULL)) for n in named]
        parts = (tuple(compress(r.key, whose)) if whose else r.key for r in rows if r.key is not None)
        keys = dict.fromkeys(shown(x[0] if len(x) == 1 else x) for x in parts)
        under = f" under {', '.join(list(keys)[:3])}{' …' * (len(keys) > 3)}" if self.values and keys else ""
        lost = [why for r in rows if (why := self.lost.get(str(self.at.get(r.place)))) is not None]
        if lost and len(lost) == count:
            text = f"it gave {_many(count, 'row')} of {topic}{under}, which the topic did not take: {lost[0]}"
            hint = "raise max.message.bytes of the topic; braid drops shows the row"
            return Verdict("missing", "too large", text, hint)
        gone = " The last one deletes it." if rows and rows[-1].values is None and count <= len(rows) else ""
        alone = any(f.what == "padded" for f in here) and not any(f.what == "met" for f in here)
        more = "; its partner is missing, so the columns of the other side are NULL" if alone else ""
        return Verdict(
            "given",
            "given alone" if alone else "given",
            f"it gave {_many(count, 'row')} of {topic}{under}{more}.{gone}"
            + (f" The topic did not take {_many(len(lost), 'row')} of these: {lost[0]}" if lost else ""),
        )

    def _waiting(self, said: Sequence[Fact]) -> Verdict | None:
        """Whether it still waits, by the clock as it is after the last batch."""
        for f in reversed(said):
            if f.what != "waits":
                continue
            now, until = f.detail["now"](), f.detail["until"]
            ends = until is not None and now > until
            if until is None or ends or any(x.what in ("met", "padded") and x.step == f.step for x in said):
                return None
            at = "has not begun" if now < -(2**60) else f"is at {self._tick(f, now)}"
            text = f"it waits in the {self.called(f.step)} until a clock passes {self._tick(f, until)}; that clock {at}"
            hint = "records with later times let it go; or braid run --end, where none will come"
            return Verdict("waiting", "waiting", text, hint)
        return None

    def _tick(self, f: Fact, value: float) -> str:
        ticks = f.detail.get("ticks")
        if "ticks" in f.detail and ticks not in WHOLE_NUMBERS:
            return self.time_text(int(value) // 1000)
        return str(int(value)) if "ticks" in f.detail else self.time_text(int(value))

    # ------------------------------------------------------------------- drops

    def dropped(self, place: Place, found: Sequence[Fact]) -> Verdict:
        f = found[-1]
        reason: Reason = f.detail["reason"]
        if reason == Reason.LATE:
            return self._late(place, f)
        why = f.detail["message"]
        if reason == Reason.NULL_KEY:
            keys = [show(e) for e in self._keys_over(f.step)]
            named = f" ({', '.join(keys)})" if keys else ""
            return Verdict("missing", "null key", f"its key{named} is NULL, which meets nothing")
        if reason == Reason.MALFORMED:
            return Verdict("missing", "malformed", f"it is malformed: {why or reason.sentence}", _BY_DROPS)
        told = f"{reason.sentence}{f': {why}' if why else ''}"
        return Verdict("missing", str(reason), f"it was dropped by the {self.called(f.step)}: {told}", _BY_DROPS)

    def _late(self, place: Place, f: Fact) -> Verdict:
        clock, limit, closed = f.detail.get("clock"), f.detail.get("limit"), f.detail.get("closed")
        if clock is None or clock < -(2**60):
            return Verdict("missing", "late", "it came late")
        ticks = self._counts_ticks(self.positions[place][0])
        mover = self._mover(place, int(clock))
        by = f", moved there by {mover}" if mover is not None else ""
        at = f"{self._clock_text(clock, ticks)}{by}"
        hint = "more grace takes such rows: GRACE PERIOD, WATERMARK, or what the dialect has"
        if closed is not None:
            text = f"it came late: its window had closed at {self.time_text(closed)}; the clock was at {at}"
        elif ticks:
            text = f"it came late: the watermark was at {at}, above its time"
        else:
            short, own = duration(int(limit or 0) - f.row.time), self.time_text(f.row.time)
            text = f"it came late by {short}: its time is {own}, and the clock was at {at}"
            if limit is not None and limit != clock:
                text += f"; rows below {self.time_text(int(limit))} are not kept any more"
        return Verdict("missing", "late", text, hint)

    def _clock_text(self, clock: float, ticks: bool) -> str:
        return self.time_text(int(clock) // (1000 if ticks else 1))

    def _counts_ticks(self, leaf: int) -> bool:
        source = self._source(leaf)
        return source.watermark is not None and source.watermark.type not in WHOLE_NUMBERS

    def _mover(self, place: Place, clock: int) -> At | None:
        """The first record that showed the clock's time, before a place."""
        leaf, batch, pos = self.positions[place]
        numbers = [leaf, *(n for n in self.heard.rows if n != leaf)]
        for n in numbers:
            before = (pl.col(BATCH) < batch) | ((pl.col(BATCH) == batch) & (pl.col(POS) < pl.lit(pos, POS_TYPE)))
            source = self._source(n)
            if source.watermark is None:
                shows = pl.col(TIME) == clock
            else:
                shows = pl.col(SHOWN) == clock
            found = self.heard.rows[n].first(before & shows, [PARTITION, OFFSET, TIME])
            if found.height:
                return At(source.topic, *found.row(0))
        return None

    # ------------------------------------------------------------------- others

    def filtered(self, place: Place, found: Sequence[Fact]) -> Verdict:
        f = found[-1]
        node = self.notes.reference.nodes[f.step]
        if isinstance(node, Over):
            assert node.top is not None
            rank = f.row.values.get(node.top.rank.name)
            return Verdict(
                "missing", "ranked out", f"it is at place {rank} of its partition, and {node.top.most} are kept"
            )
        if isinstance(node, epochs.TemporalFilter):
            return Verdict("missing", "condition", f"when it came it did not satisfy {_bared(node.shown)}")
        assert isinstance(node, logical.Filter)
        parts = [p for p in conjuncts(node.predicate)]
        values, _ = evaluated([(str(i), p) for i, p in enumerate(parts)], [f.row.values])
        false = [(p, values[str(i)][0]) for i, p in enumerate(parts) if values[str(i)][0] is not True]
        said = []
        for p, value in false:
            read = self._read(f.row.values, columns(p))
            is_null = " (it is NULL, which is not true)" if value is None else ""
            said.append(f"{self.condition(p)}{is_null}{f': {read}' if self.values and read else ''}")
        if f.row.gone:
            return Verdict("missing", "deleted", "it deletes a row that the condition had not let pass")
        return Verdict("missing", "condition", f"it does not satisfy {' and '.join(said)}")

    def missed(self, place: Place, found: Sequence[Fact]) -> Verdict:
        """There are partners of its key, and it met none: the nearest."""
        near = min(found, key=lambda f: f.detail["apart"])
        other: Row = near.detail["other"]
        there = self.where(other)
        apart = near.detail["apart"]
        count = f"; {_many(len(found), 'row')} of its key came, this is the nearest" if len(found) > 1 else ""
        if apart:
            ahead = other.time - near.row.time
            when = f"{duration(abs(ahead))} {'after' if ahead > 0 else 'before'} it"
            of = f"its partner {there} is of {self.time_text(other.time)}, {when}{count}"
            text = f"outside the window by {duration(apart)}: {of}"
            return Verdict("missing", "outside the window", text, f"a window larger by {duration(apart)} takes it in")
        if near.detail["came"]:
            text = f"expired before its partner came: {there}, of {self.time_text(other.time)}, found it no longer kept"
        else:
            text = f"its partner {there}, of {self.time_text(other.time)}, was no longer kept when it came"
        return Verdict("missing", "expired", f"{text}{count}", "a longer GRACE PERIOD keeps rows longer")

    def alone(self, place: Place, found: Sequence[Fact]) -> Verdict:
        f = found[-1]
        key, side, node = f.detail.get("key"), f.detail["side"], self.notes.reference.nodes[f.step]
        at = self.meeting(f)
        other = self._other_side(at, side)
        names = " or ".join(self._source(n).name for n in other) or "the other side"
        if key is None:
            return Verdict(
                "missing",
                "null key",
                f"its key in the {node.called} is NULL, or its own condition is not true: it meets nothing",
            )
        text = shown(key.values[0] if len(key.values) == 1 else key.values)
        of = f" {text}" if self.values else ""
        table = not isinstance(node, joins.StreamStreamJoin | sliding.SlidingJoin)
        if table:
            stood = [x for x in self.notes.tables[f.step] if x.detail["key"] == key and x.detail["side"] != side]
            before = [x for x in stood if x.place < f.place]
            later = [x for x in stood if x.place > f.place and x.what == "stands"]
            if before and before[-1].what == "gone":
                by = self.where(before[-1].row, before[-1].place)
                text = f"the row of {names} under its key{of} was deleted before it came, by {by}"
                return Verdict("missing", "deleted", text)
            if later:
                then = self.where(later[0].row, later[0].place)
                text = f"{names} had no row under its key{of} when it came; one came later: {then}"
                return Verdict("missing", "row came later", text, "a stream row meets a table once, when it comes")
        said = self.notes.said[place]
        met = [x for x in said if x.what == "met" and self.meeting(x) is at and x.detail.get("other")]
        if met:
            gone = f"its partner {self.where(met[-1].detail['other'])} was deleted or changed, and it has no other"
            return Verdict("missing", "partner gone", gone)
        written = self._text(at, key)
        there = self._others_of(at, other, written)
        if there and there[-1][1]:
            text = f"the row of {names} under its key{of} was deleted, by {there[-1][0]}"
            return Verdict("missing", "deleted", text + self._since(place))
        if there:
            count = _many(len(there), "record")
            text = f"{names} has {count} of its key, such as {there[0][0]}, and none met it here"
            return Verdict("missing", "partner missing", text + self._since(place), f"ask why: --input {there[0][0]}")
        until, now = f.detail.get("until"), f.detail.get("now")
        if until is not None and now is not None and -(2**60) < now() <= until:
            kept = f"it is kept until a clock passes {self.time_text(int(until))}, and that clock is at "
            text = f"no partner in {names} under its key{of} so far; {kept}{self.time_text(int(now()))}"
            return Verdict("waiting", "no partner yet", text, self._alike(at, other, written))
        kind = "row" if table else "partner"
        text = f"no {kind} in {names} under its key{of}, in all that was read"
        return Verdict("missing", f"no {kind}", text, self._alike(at, other, written))

    def failed(self, place: Place, found: Sequence[Fact]) -> Verdict:
        f = found[-1]
        node = self.notes.reference.nodes[f.step]
        other: Row = f.detail["other"]
        residual = getattr(node, "residual", None)
        parts = list(conjuncts(residual)) if isinstance(residual, Expr) else []
        row = {**f.row.values, **other.values}
        values, _ = evaluated([(str(i), p) for i, p in enumerate(parts)], [row]) if parts else ({}, [])
        false = [p for i, p in enumerate(parts) if values[str(i)][0] is not True]
        read = self._read(row, (n for p in false for n in columns(p)))
        said = " and ".join(self.condition(p) for p in false) or "the condition of the join"
        more = f": {read}" if read and self.values else ""
        return Verdict(
            "missing", "condition", f"with {_many(len(found), 'row')} of its key it does not satisfy {said}{more}"
        )

    def padded(self, place: Place, found: Sequence[Fact]) -> Verdict:
        return Verdict("missing", "no row", "it went on without a partner, and gave no row behind that")

    def met(self, place: Place, found: Sequence[Fact]) -> Verdict:
        there = ", ".join(self.where(f.detail["other"]) for f in found[:3] if f.detail.get("other") is not None)
        node = self.notes.reference.nodes[found[-1].step]
        gives = getattr(node, "gives", "pairs")
        if gives != "pairs":
            own = self.positions[place][0] in self.sources_below(node, "left")
            if own:
                return Verdict("missing", "excluded", f"{there} meets it, and rows that something meets are left out")
            does = "lets" if gives == "matched" else "keeps out"
            text = f"it {does} {there}{' pass' if gives == 'matched' else ''}; rows of its side are not in the result"
            return Verdict("missing", "only decides", text)
        return Verdict("missing", "no row", f"it met {there or 'a partner'}, and the pair gave no row behind that")

    def empty(self, place: Place, found: Sequence[Fact]) -> Verdict:
        return Verdict("missing", "no elements", "its array has no elements, or it is in no window: it gives no row")

    def grouped(self, place: Place, found: Sequence[Fact]) -> Verdict:
        return Verdict("missing", "counted", "it counts in a group, which gave no row behind that")

    def stands(self, place: Place, found: Sequence[Fact]) -> Verdict:
        f = found[-1]
        names = " or ".join(self._source(n).name for n in self._other_side(self.meeting(f), f.detail["side"]))
        since = self._since(place)
        if not names:
            return Verdict("missing", "in a table", f"it is a row of a table, which gave no row behind that{since}")
        text = f"it is a row of a table: no row of {names} has met it since it came{since}"
        return Verdict("missing", "in a table", text)

    def gone(self, place: Place, found: Sequence[Fact]) -> Verdict:
        return Verdict("missing", "deletes", "it deletes a row of a table; no row of the result was made of that")

    def read(self, place: Place, found: Sequence[Fact]) -> Verdict:
        if found[-1].row.gone:
            return Verdict("missing", "deletes", "it deletes the row of its key; no row of the result was made of that")
        time, clock = self.at[place].time, self.notes.reference.clock_of(self.positions[place][0])
        if not -(2**60) < clock <= time:
            return Verdict("missing", "no row", "it was read, and gave no row")
        text = f"it waits until the clock of its source passes its time; that clock is at {self.time_text(int(clock))}"
        return Verdict("waiting", "waiting", text, "records with later times, in all partitions, let it go")

    # -------------------------------------------------------------------- facts

    def condition(self, e: Expr) -> str:
        """A condition in words: groups by what they count, lengths as the dialect writes them."""
        return compared(e, self.query.dialect) if is_temporal(e) else _bared(show(e, groups.names(self.query.root)))

    def _read(self, row: Mapping[str, object], names: Iterable[str]) -> str:
        """The values of columns, each once."""
        called = groups.names(self.query.root)
        return ", ".join(f"{called.get(n, _column(n))} is {shown(row[n])}" for n in dict.fromkeys(names))

    def _source(self, leaf: int) -> logical.Source:
        return list(logical.sources(self.query.root))[leaf]

    def sources_below(self, node: logical.Node, side: str) -> Sequence[int]:
        """The sources of a side of a join."""
        if isinstance(node, sliding.SlidingJoin):
            own = [x.input for x in sliding.operands(getattr(node.tree, side))]
        else:
            own = [getattr(node, side)]
        below = [y for x in own for y in logical.sources(x)]
        every = list(logical.sources(self.query.root))
        return [n for n, x in enumerate(every) if any(x is y for y in below)]

    def called(self, step: int) -> str:
        return self.notes.reference.nodes[step].called

    def where(self, row: Row, place: Place | None = None) -> str:
        """Where a row came from, as far as that is one record."""
        cause = row.cause if row.cause is not None else place
        if cause is None and len(row.origin) == 1:
            (cause,) = row.origin
        found = self.at.get(cause) if cause is not None else None
        return str(found) if found is not None else "(a row of several records)"

    def _keys_over(self, step: int) -> Sequence[Expr]:
        """The keys that the reader of a step matches its rows by."""
        mine = self.notes.reference.nodes[step]
        for node in self.notes.reference.nodes.values():
            if isinstance(node, joins.OnKeys) and mine in node.inputs:
                return node.spread_by[[x is mine for x in node.inputs].index(True)]
            if isinstance(node, groups.Aggregate) and mine in node.inputs:
                return [e for _, e in node.keys]
        return mine.row_key if isinstance(mine, logical.Source) else ()

    def meeting(self, f: Fact) -> object:
        """At which a fact is told: a node, or one of the meetings in it."""
        return f.detail.get("at") or self.notes.reference.nodes[f.step]

    def _other_side(self, at: object, side: str) -> Sequence[int]:
        """The sources that give the key of the other side."""
        for met in self.sliced.mets:
            if met.of is at and side in met.sides:
                return [n for n in met.keys if n not in met.sides[side]]
        return []

    def _text(self, at: object, key: Any) -> str:
        """A key as the heads of records have it."""
        met = next((m for m in self.sliced.mets if m.of is at), None)
        if met is None or not isinstance(at, sliding.Meeting):
            return str(key.text)
        named = [Col(f"k{i}", e.type) for i, e in enumerate(next(iter(met.keys.values())))]
        pairs = zip(named, key.values, strict=True)
        one = pl.DataFrame([pl.Series(c.name, [v], dtype=polars_type(c.type)) for c, v in pairs])
        return str(key_texts(one, named)[0])

    def _since(self, place: Place) -> str:
        """What became of a row of a table later."""
        leaf, batch, pos = self.positions[place]
        if self._source(leaf).kind != "table":
            return ""
        own = self.heard.rows[leaf].first((pl.col(BATCH) == batch) & (pl.col(POS) == pl.lit(pos, POS_TYPE)), [KEY])
        later = (pl.col(BATCH) > batch) | ((pl.col(BATCH) == batch) & (pl.col(POS) > pl.lit(pos, POS_TYPE)))
        same = pl.col(KEY) == pl.lit(own.item() if own.height else None, pl.String)
        found = self.heard.rows[leaf].first(same & later, [PARTITION, OFFSET, TIME, DIFF])
        if not found.height:
            return ""
        *at, diff = found.row(0)
        return f"; it was {'deleted' if diff == -1 else 'replaced'} by {At(self._source(leaf).topic, *at)}"

    def _others_of(self, at: object, leaves: Sequence[int], text: str) -> Sequence[tuple[At, bool]]:
        """The records of the other side that have a key, whatever became of them; and whether they delete it."""
        found = list[tuple[At, bool]]()
        for i, met in enumerate(self.sliced.mets):
            for leaf in (n for n in leaves if met.of is at and n in met.keys):
                found += self._records_by_key(i, leaf).get(text, ())
        return found

    def _records_by_key(self, met: int, leaf: int) -> Mapping[str, Sequence[tuple[At, bool]]]:
        """Those of the slice, which has all of the keys of whom it is asked about."""
        if (met, leaf) not in self._by_key:
            rows, made = self.heard.rows[leaf], dict[str, list[tuple[At, bool]]]()
            flags = rows.all() if self.taken is None else self.taken[leaf]
            for text, *at, diff in rows.heads(flags, [text_of(met), PARTITION, OFFSET, TIME, DIFF]).iter_rows():
                made.setdefault(text, []).append((At(self._source(leaf).topic, *at), diff == -1))
            self._by_key[met, leaf] = made
        return self._by_key[met, leaf]

    def _alike(self, at: object, leaves: Sequence[int], text: str) -> str | None:
        """The nearest key that there is."""
        if not (self.values and self.hints):
            return None
        for i, met in enumerate(self.sliced.mets):
            for leaf in (n for n in leaves if met.of is at and n in met.keys):
                if not any(t.null_count() < t.len() for t in self.slices.texts(i, leaf)):
                    return f"{self._source(leaf).name} has no record at all"
                found = self._nearest(i, leaf, text)
                if found is not None:
                    return f"{self._source(leaf).name} has {_quoted(shown_text(found))}: is it spelled otherwise?"
        return None

    def key_of(self, met: int, record: Record) -> str | None:
        """The key of a record where records meet."""
        own = (pl.col(PARTITION) == record.partition) & (pl.col(OFFSET) == record.offset)
        found = self.heard.rows[record.leaf].first(own, [text_of(met)])
        return found.item() if found.height else None

    def nearest(self, met: int, leaf: int, text: str | None) -> tuple[int, str] | None:
        """Of the other sides of a meeting the source that has a key which is nearly this one, and that."""
        sides = self.sliced.mets[met].sides.values()
        others = [n for side in sides if leaf not in side for n in side]
        found = ((n, self._nearest(met, n, text)) for n in others if text is not None)
        return next(((n, t) for n, t in found if t is not None), None)

    def _nearest(self, met: int, leaf: int, text: str) -> str | None:
        """The nearest of the keys of a source to one that it has not."""
        asked, letters = shown_text(text), bare(text)
        some, alike, every = set[str](), set[str](), True
        same: str | None = None
        for page in self.slices.texts(met, leaf):
            known = page.drop_nulls().unique(maintain_order=True)
            if known.is_in([text]).any():
                return None
            if same is None:
                same = next(iter(known.filter(bares(known) == letters).to_list()), None)
            alike |= set(_begin_alike(known, asked)[: ALIKE - len(alike)])
            if every:
                some |= set(known.to_list())
                every = len(some) <= ALIKE
        if same is not None:
            return same
        texts = {shown_text(t): t for t in sorted(some if every else alike)}
        texts = {x: t for x, t in texts.items() if has_numbers_of(asked, x)}
        found = guesses(asked, texts, 1)
        return texts[found[0]] if found else None

    def values_of(self, met: int, leaf: int, text: str) -> tuple[object, ...] | None:
        """The values of a key of a source, as a record there has them."""
        rows = self.heard.rows[leaf].chosen(self.slices.with_key(met, leaf, [text])).head(1)
        exprs = self.sliced.mets[met].keys[leaf]
        values = evaluate(rows, [(str(i), e) for i, e in enumerate(exprs)])[0]
        return tuple(python_values(values[str(i)])[0] for i in range(len(exprs)))


_BY_DROPS = "braid drops shows the record"
_ORDER = (
    "dropped",
    "filtered",
    "missed",
    "failed",
    "alone",
    "empty",
    "met",
    "padded",
    "grouped",
    "stands",
    "gone",
    "read",
)
_SAYS: Mapping[str, Callable[[Case, Place, Sequence[Fact]], Verdict]] = {w: getattr(Case, w) for w in _ORDER}


def _many(n: int, word: str) -> str:
    return f"{n:,} {word}{'s' * (n != 1)}"


def _bared(text: str) -> str:
    """An expression without the parentheses around all of it."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if not depth and i < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") else text


def _column(name: str) -> str:
    return name.lstrip(".")


def shown(value: object) -> str:
    """A value as SQL writes it."""
    match value:
        case None:
            return "NULL"
        case str():
            return f"'{value}'"
        case datetime():
            return str(value)
        case tuple():
            return ", ".join(map(shown, value))
    return str(value)


def _quoted(text: str) -> str:
    return f"'{text}'"


def _begin_alike(known: pl.Series, asked: str) -> list[str]:
    size = len(asked)
    near = known.filter(
        known.str.len_chars().is_between(size - 1, size + 4) & known.str.contains(asked[:2], literal=True)
    )
    return near.head(ALIKE).to_list()
