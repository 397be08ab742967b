"""Asked: what became of the records of a key, or of one record, or of all of a time.

In: a store, the name of a query, what is asked. Out: an answer: each record with its verdict and its steps.
Rule: whatever was read is read again, and nothing is written; a query that runs goes on. A slice of more than `MOST`
records is not judged, and neither are those of a time, or all of a query that falls into no slices, where there are
more than `WHOLE`: then that is said, and what to ask instead.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import process_time

import polars as pl

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.expr.user import Functions
from braid.face.plans import File, plan_of
from braid.face.reset import named, queries
from braid.face.show import open_store
from braid.face.tabular import time_text
from braid.files.input import FileInput, reading
from braid.files.log import FileLog
from braid.files.watch import log_path
from braid.guess import guesses, suggested
from braid.lower.physical import Plan
from braid.operators.changes import TIME
from braid.plan import epochs, logical
from braid.plan.drop_reasons import Reason
from braid.plan.logical import Source
from braid.reference import Fact, Record
from braid.stage import checkpoint, offset_search
from braid.stage.checkpoint import Document
from braid.stage.inputs import Readable
from braid.stage.registered import input_of
from braid.store import ObjectStore
from braid.topics.drops import each_drop
from braid.topics.files import members
from braid.topics.interface import Topics, open_topics
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from braid.why.key_text import shown_text, texts_of
from braid.why.notes import Notes
from braid.why.pages import Flags, Folder
from braid.why.reading import BATCH, KEY, OFFSET, PARTITION, Events, Heard, Keyed, Place, events, heard
from braid.why.reasons import At, Case, Verdict
from braid.why.slices import Sliced, Slices, keyed, part_names, sliced, text_of
from braid.why.what_if import sought
from braid.why.words import EXAMPLES, Answer, Answered, Step

MOST = 5_000  # records of a slice
WHOLE = 10_000  # those of a time, and of a query that falls into no slices
SHOWN = 20  # records of one key
TOLD_APART = 5_000  # keys that one is compared with
UNREAD = 200_000  # records behind the last batch among which a key is looked for


@dataclass(frozen=True, slots=True)
class Input:
    """A record by its place: TOPIC:PARTITION:OFFSET."""

    topic: str
    partition: int
    offset: int

    @staticmethod
    def of(text: str) -> Input:
        topic, _, rest = text.partition(":") if text.count(":") == 2 else ("", "", "")
        partition, _, offset = rest.partition(":")
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            raise BraidError(
                f"--input {text}: it is no place of a record", "write TOPIC:PARTITION:OFFSET, as orders:0:42"
            )
        return Input(topic, int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class Left:
    """A checkpoint."""

    known: Document
    folder: ObjectStore
    root: ObjectStore


@dataclass(slots=True)
class Asked:
    """A query, and all that it has read. `inputs`: where that lies; `read`: what reads it again; `left`: what its run
    has left, which a test's has not; `cache`: a folder for what files are parsed into, which goes with this;
    `seconds`: for so long changes are looked for that would have made a row."""

    query: str
    plan: Plan
    inputs: Mapping[int, Readable]
    topics: Topics
    read: Callable[[Keyed, Folder], Heard]
    left: Left | None
    values: bool = True
    cache: object = None
    seconds: float = 0
    heard: Heard = field(init=False)
    how: Sliced = field(init=False)
    slices: Slices = field(init=False)

    def __post_init__(self) -> None:
        self.how = sliced(self.plan.query)
        keys = partial(keyed, self.how.mets)
        self.heard = self.read(keys, Folder())
        self.slices = Slices(self.how.mets, self.heard.rows)

    # -------------------------------------------------------------------- what is asked

    def of_input(self, place: Input) -> Answer:
        """What became of one record, in each source that reads its topic."""
        leaves = self._reading(place.topic)
        found = {
            n: self._flags(n, (pl.col(PARTITION) == place.partition) & (pl.col(OFFSET) == place.offset)) for n in leaves
        }
        if any(flags.any() for flags in found.values()):
            return self._answer(found, ())
        return self._answer({}, [self._not_heard(n, place) for n in leaves[:1]])

    def of_key(self, key: str) -> Answer:
        """What became of the records of a key, be it theirs or one that they are joined or grouped by."""
        found = {n: self._with_key(n, key) for n in self.heard.rows if n not in self._clocks}
        unread = [*self._unread(key)]
        if not any(flags.any() for flags in found.values()) and not unread:
            raise self._no_key(key)
        return self._answer(found, unread)

    def of_time(self, since: int, until: int | None, event_time: bool = False) -> Answer:
        """What became of all records of streams of a time: that of the batches that have read them, or their own."""
        within = self._of_event_time(since, until) if event_time else self._arrived(since, until)
        mine = [leaf for leaf in self.plan.leaves if leaf.number not in self._clocks]
        streams = [leaf.number for leaf in mine if leaf.source.kind == "stream"]
        found = {n: self._flags(n, within) for n in streams or [leaf.number for leaf in mine]}
        made = self._answer(found, (), most=None)
        to = "on" if until is None else f"to {time_text(until)}"
        span = f"{'with event times' if event_time else 'read'} from {time_text(since)} {to} (UTC)"
        return replace(made, span=span, notes=[*made.notes, *self._lag()])

    def _of_event_time(self, since: int, until: int | None) -> pl.Expr:
        within = pl.col(TIME) >= since
        return within if until is None else within & (pl.col(TIME) < until)

    def _arrived(self, since: int, until: int | None) -> pl.Expr:
        """Records of the batches that ended then."""
        if self.left is None:
            raise BraidError(f"{self.query} has no times at which its batches ended", "ask for event times")
        folder = self.left.folder
        timed = offset_search.first_timed(folder)
        if timed is None or (timed.batch > 0 and since < (timed.at or 0)):
            which = "" if timed is None else f" before {timed.batch}"
            raise BraidError(
                f"when the batches of {self.query}{which} ended is not known: an earlier version wrote no times",
                "--event-time asks for records by their own times",
            )
        first = offset_search.first_at(folder, since)
        last = None if until is None else offset_search.first_at(folder, until)
        if first is None:
            return pl.lit(False)
        within = pl.col(BATCH) >= first.batch
        return within if last is None else within & (pl.col(BATCH) < last.batch)

    def _lag(self) -> Iterator[str]:
        """What is not read yet."""
        read = self.heard.next
        left = sum(
            max(end - read.get(f"{n}/{p}", 0), 0) for n, x in self.inputs.items() for p, end in enumerate(x.ends())
        )
        if left:
            yield f"{left:,} records are not read yet"

    def _reading(self, topic: str) -> list[int]:
        """The sources that read a topic."""
        named = [(x.number, x.source.topic, x.source.name) for x in self.plan.leaves if x.number not in self._clocks]
        exact = [n for n, t, _ in named if t == topic]
        found = exact or [n for n, t, name in named if topic.lower() in (t.lower(), name.lower())]
        if not found:
            raise BraidError(
                f"{self.query} does not read {topic}", f"it reads {', '.join(dict.fromkeys(t for _, t, _ in named))}"
            )
        return found

    # -------------------------------------------------------------------- finding records

    @property
    def _clocks(self) -> set[int]:
        """The sources of which nothing but the clock is read: they have no rows."""
        root = self.plan.query.root
        clocks = {x.alias for node in root.walk() if isinstance(node, epochs.Clocked) for x in node.clocks}
        return {n for n, x in enumerate(logical.sources(root)) if x.alias in clocks}

    def _flags(self, leaf: int, which: pl.Expr) -> Flags:
        return self.heard.rows[leaf].where(which)

    def _with_key(self, leaf: int, key: str) -> Flags:
        """The records whose own key this is, or one that they are joined or grouped by."""
        mine = ((text_of(i), part_names(met.keys[leaf])) for i, met in enumerate(self.how.mets) if leaf in met.keys)
        texts = {KEY: self._texts(leaf, key)} | {c: texts_of(key, names) for c, names in mine}
        return self._flags(leaf, pl.any_horizontal(pl.col(c).is_in(t).fill_null(False) for c, t in texts.items()))

    def _texts(self, leaf: int, key: str) -> list[str]:
        """The texts that the own key of a record of a source may have."""
        return texts_of(key, [c.field for c in self.plan.leaves[leaf].source.columns if c.place == "key"])

    def _no_key(self, key: str) -> BraidError:
        known = dict[str, None]()
        for texts in (t for i, m in enumerate(self.how.mets) for n in m.keys for t in self.slices.texts(i, n)):
            if len(known) < TOLD_APART:
                known |= dict.fromkeys(texts.drop_nulls().unique(maintain_order=True).to_list())
        near = guesses(key, map(shown_text, [*known][:TOLD_APART]), 3)
        hint = suggested(near, "keys are written as in JSON, or plainly: --key 42")
        return BraidError(f"no record that {self.query} has read has the key {key}", hint)

    def _unread(self, key: str) -> Iterator[Answered]:
        """The records of a key behind the last batch."""
        left = UNREAD
        for leaf in self.plan.leaves:
            source = self.inputs[leaf.number]
            for partition, end in enumerate(source.ends()):
                first = self.heard.next.get(f"{leaf.number}/{partition}", 0)
                upto = min(end, first + left)
                if upto > first:
                    left -= upto - first
                    rows = source.read(partition, first, upto).rows
                    mine = (
                        rows.filter(pl.col(KEY).is_in(self._texts(leaf.number, key)))
                        if KEY in rows.columns
                        else rows.clear()
                    )
                    for offset, time in mine.select(OFFSET, TIME).head(SHOWN).iter_rows():
                        at = At(leaf.source.topic, partition, offset, time)
                        yield Answered(at, leaf.source.name, None, None, None, _UNREAD)

    def _not_heard(self, leaf: int, place: Input) -> Answered:
        """A record that no batch has read."""
        source, where = self.plan.leaves[leaf].source, f"{leaf}/{place.partition}"
        ends = self.inputs[leaf].ends()
        if place.partition >= len(ends) or place.offset >= ends[place.partition]:
            there = f"it has {len(ends)} partition{'s' * (len(ends) != 1)}"
            if place.partition < len(ends):
                there = f"its last offset is {ends[place.partition] - 1}"
            raise BraidError(f"{source.topic} has no record {place.partition}:{place.offset}", there)
        start = self.topics.start_offsets(source.topic)[place.partition] if self.topics.exists(source.topic) else 0
        begin = self.heard.begin.get(where, 0)
        verdict = _UNREAD
        if place.offset < begin:
            text = f"the query began to read at offset {begin} of this partition (--from), and has not read it"
            verdict = Verdict(
                "missing", "before the start", text, "braid reset lets the query begin again, from earlier"
            )
        elif place.offset < start:
            text = f"it was removed: partition {place.partition} begins at {start} now"
            verdict = Verdict("missing", "gone", text, "braid retain shows what a topic keeps")
        elif place.offset < self.heard.next.get(where, 0):
            verdict = Verdict("missing", "gone", "it is not in its topic any more: of its key a later record is kept")
        at = At(source.topic, place.partition, place.offset, 0)
        return Answered(at, source.name, None, None, None, verdict)

    # -------------------------------------------------------------------- judging

    def every(self) -> Mapping[int, Flags]:
        """All that was read."""
        return {n: x.all() for n, x in self.heard.rows.items()}

    def taken(self, asked: Mapping[int, Flags], limit: int) -> Mapping[int, Flags]:
        """The records that are judged, at most `limit` of a query that falls into slices."""
        every = self.every()
        start = {n: asked.get(n, x.all(False)) for n, x in self.heard.rows.items()}
        if self.heard.count <= MOST // 10:
            return every
        if self.how.whole is not None:
            if self.heard.count > WHOLE:
                what = (
                    f"{self.query} cannot be asked: {self.how.whole}, so all of its {self.heard.count:,} records count"
                )
                raise BraidError(what, f"as it is, it works for up to {WHOLE:,} records")
            return every
        found = self.slices.closed(start, limit)
        if found is None:
            what = f"more than {limit:,} records have to do with what is asked"
            raise BraidError(what, "ask for one record: --input TOPIC:PARTITION:OFFSET; or for a shorter time")
        return found

    def _answer(self, asked: Mapping[int, Flags], more: Sequence[Answered], most: int | None = SHOWN) -> Answer:
        taken = self.taken(asked, MOST if most is not None else WHOLE) if any(x.any() for x in asked.values()) else {}
        placed = events(self.heard, self.plan, taken)
        records = placed.records
        at = {p: At(self.plan.leaves[e.leaf].source.topic, e.partition, e.offset, e.time) for p, e in records.items()}
        wanted = {
            (n, *key)
            for n, flags in asked.items()
            for key in self.heard.rows[n].heads(flags, [PARTITION, OFFSET]).iter_rows()
        }
        mine = [p for p, e in records.items() if (e.leaf, e.partition, e.offset) in wanted]
        shown = mine if most is None else mine[-most:]
        notes = Notes(self.plan.query, placed, shown)
        positions = {p: (records[p].leaf, *placed.position(p)) for p in shown}
        parts = (self.plan.query, notes, self.heard, self.slices, self.how, at, positions, time_text, self.values)
        case = Case(*parts, taken, hints=most is not None, lost=self._too_large())
        made = [self._answered(case, p, records[p], at[p]) for p in shown]
        if most is None:
            made = self._with_hints(replace(case, hints=True), dict(zip(shown, made, strict=True)))
        elif self.seconds > 0:
            made = self._with_changes(case, placed, dict(zip(shown, made, strict=True)))
        judged = sum(int(x.sum()) for x in taken.values())
        return Answer(
            self.query,
            [*made, *more],
            judged,
            self.heard.count,
            self.heard.batches,
            self.how.whole,
            len(mine) - len(shown),
            most is None,
            self.notes,
        )

    def _too_large(self) -> Mapping[str, str]:
        """What a topic in Kafka has not taken of the result, by the record that completed it."""
        if self.left is None or isinstance(self.topics, TopicStore):
            return {}
        lost = (x for x in each_drop(self.left.root, self.query) if x["reason"] == Reason.TOO_LARGE)
        return {f"{x['topic']}:{x['partition']}:{x['offset']}": x["message"] for x in lost}

    def _answered(self, case: Case, place: Place, record: Record, at: At) -> Answered:
        steps = [*_steps(case, place)]
        name, batch = self.plan.leaves[record.leaf].source.name, case.positions[place][1]
        return Answered(at, name, *self.shown(record), batch, case.verdict(place), steps)

    def _with_hints(self, case: Case, made: Mapping[Place, Answered]) -> list[Answered]:
        """The records, the first ones of each reason, which are shown, with hints."""
        count = Counter[str]()
        found = list[Answered]()
        for place, x in made.items():
            count[x.verdict.reason] += 1
            if count[x.verdict.reason] <= EXAMPLES and x.verdict.outcome != "given":
                found.append(replace(x, verdict=case.verdict(place)))
            else:
                found.append(x)
        return found

    def _with_changes(self, case: Case, placed: Events, made: Mapping[Place, Answered]) -> list[Answered]:
        """The records, those that gave no row with what would have made one."""
        until = process_time() + self.seconds
        found = sought(case, placed, {p: x.verdict for p, x in made.items()}, self._beside_key, until)
        return [replace(x, what_if=found.get(p)) for p, x in made.items()]

    def _beside_key(self, records: Sequence[Record], met: int, leaf: int, text: str) -> Events | None:
        """The events of records and of those that have another key."""
        start = {leaf: self.slices.with_key(met, leaf, [text])}
        for x in records:
            own = self._flags(x.leaf, (pl.col(PARTITION) == x.partition) & (pl.col(OFFSET) == x.offset))
            start[x.leaf] = start[x.leaf] | own if x.leaf in start else own
        try:
            return events(self.heard, self.plan, self.taken(start, MOST))
        except BraidError:  # too many
            return None

    def shown(self, record: Record) -> tuple[str | None, Mapping[str, object] | None]:
        """Key and value of a record, where they may be seen."""
        if not self.values:
            return None, None
        source = self.plan.leaves[record.leaf].source
        parts = [record.values[c.name] for c in source.columns if c.place == "key"]
        key = ", ".join("NULL" if v is None else str(v) for v in parts) or None
        value = {c.field: record.values[c.name] for c in source.columns if c.place == "value"}
        return key, None if record.null or record.error is not None else value

    @property
    def notes(self) -> Sequence[str]:
        """What an answer lacks."""
        return _notes(self.plan, self.topics)


_UNREAD = Verdict(
    "unread", "not read yet", "no batch that can be seen has read it yet", "is the query running, and does it keep up?"
)


def _steps(case: Case, place: Place) -> Iterator[Step]:
    """The steps of a record, each once."""
    seen = set[str]()
    for f in case.notes.said[place]:
        text = _said(case, place, f)
        if text is not None and text not in seen:
            seen.add(text)
            yield Step(f.what, text)


def _said(case: Case, place: Place, f: Fact) -> str | None:
    called = case.called(f.step)
    match f.what:
        case "read":
            return f"read in batch {case.positions[place][1]}"
        case "met":
            other = f.detail.get("other")
            return f"{called}: it met {case.where(other)}" if other is not None else None
        case "missed":
            return f"{called}: {case.where(f.detail['other'])} has its key, and gives no pair"
        case "waits":
            return f"{called}: it began to wait"
        case "padded":
            return f"{called}: it went on without a partner"
        case "alone":
            return f"{called}: it met nothing when it came"
        case "filtered":
            return f"{called}: it did not pass"
        case "failed":
            return f"{called}: the condition is not true with {case.where(f.detail['other'])}"
        case "grouped":
            return f"{called}: it changed its group"
        case "dropped":
            return f"{called}: dropped ({f.detail['reason']})"
    return None


def asked(
    store: Store,
    query: str,
    functions: Functions,
    parent: ObjectStore | None = None,
    values: bool = True,
    file: File | None = None,
    seconds: float = 0,
) -> Asked:
    """A query of a store by its name. `file`: as of `plan_of`; `seconds`: for so long changes are looked for that would
    have made a row."""
    opened = open_store(store.objects)
    found = named(query, queries(opened, parent), store.objects, parent)
    if found.torn is not None:
        raise found.torn
    known = checkpoint.load(found.folder)
    assert known is not None
    plan, declared = plan_of(store, found.name, known, functions, file)
    if "topics" in known.settings and not store.in_kafka:
        raise BraidError(f"{found.name} reads topics in Kafka", "name the broker, as its run did: --kafka HOST:PORT")
    ids = {name: str(x) for name, x in members(known.settings.get("topics", {})).items()}
    topics: Topics = open_topics(store, ids) if store.in_kafka else opened
    _check_kept(found.name, plan, known, topics)
    cache = tempfile.TemporaryDirectory(prefix="braid-files-")
    inputs = {x.number: _input(x.source, known, topics, found.folder, declared, cache.name) for x in plan.leaves}
    read = partial(heard, found.folder, known, plan, inputs)
    return Asked(found.name, plan, inputs, topics, read, Left(known, found.folder, opened.root), values, cache, seconds)


def _notes(plan: Plan, topics: Topics) -> list[str]:
    """What the answer lacks."""
    if not isinstance(topics, TopicStore):
        return []
    read = dict.fromkeys(leaf.source.topic for leaf in plan.leaves)
    compacted = [t for t in read if topics.exists(t) and topics.topic(t).view().marks]
    return [
        f"{t} was compacted: its records that a later one of their key has replaced are not judged" for t in compacted
    ]


def _check_kept(query: str, plan: Plan, known: Document, topics: Topics) -> None:
    """What a query has read is still in its topics: else nobody can say what became of the rest."""
    begin = members(known.settings.get("begin", {}))
    for leaf in plan.leaves:
        topic = leaf.source.topic
        if leaf.source.name in known.files or not topics.exists(topic):
            continue
        for partition, start in enumerate(topics.start_offsets(topic)):
            first = begin.get(f"{leaf.number}/{partition}", 0)
            if start > first:
                gone = (
                    f"partition {partition} of {topic} begins at {start} now, and {query} has read it from {first} on"
                )
                hint = "records behind those that are gone may have met them; braid retain keeps records for longer"
                raise BraidError(f"{gone}: what was before is gone", hint)


def _input(
    source: Source,
    known: Document,
    topics: Topics,
    folder: ObjectStore,
    declared: Mapping[str, Declared],
    cache: str,
) -> Readable:
    """What a source has read, where it lies."""
    if source.name in known.files:
        options = declared[source.name].in_files if source.name in declared else {}
        says = members(known.settings.get("deleted", {})).get(source.name)
        options |= {} if says is None else {"deleted": str(says)}
        return FileInput(source, FileLog.open(log_path(folder, source.name), ""), reading(options), cache)
    if source.topic not in {topic for topic, _ in known.sources}:
        raise BraidError(f"{source.name} was read by Spark", "why-not reads topics of the store, of Kafka, and files")
    return input_of(topics, source)
