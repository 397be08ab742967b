"""The condition of a query: what its checkpoint, its `metrics.ring` and the ends of its topics say together.

In: a store, the name of a query that has run there; it may run now. Out: `Condition`, for those who judge it.
Rule: nothing is changed, and no Spark is started. What cannot be known is left out, and the notes say so; a ring that
is spoilt costs no more than what it does not say.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from braid.errors import BraidError
from braid.explain.documents import explain_query
from braid.expr.user import Functions
from braid.face.options import STORE
from braid.face.plans import File, Found, plan_of
from braid.face.reset import named, queries
from braid.face.show import open_store
from braid.lower.physical import Plan
from braid.stage import batches, checkpoint, ring, state_file
from braid.stage.call_order import Ranks
from braid.stage.checkpoint import Document
from braid.stage.checkpoint_runs import CheckpointRuns
from braid.stage.event_times import Come, SourceTimes, event_times
from braid.stage.readers import read_again
from braid.stage.reset_marker import Known
from braid.stage.waiting import Waiting, waiting
from braid.store import ObjectStore
from braid.store import opened as named_store
from braid.topics.drops import each_drop
from braid.topics.interface import open_topics
from braid.topics.lock import holder
from braid.topics.store import TopicStore
from braid.topics.store_value import Store

_LOOKED = 100_000  # drops among which the first of a reason is looked for
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """`held_by`: the process of this machine that runs queries on the store; `records`: of the ring, batches and ends;
    `spoilt`: what of it could not be read; `sources`: as they stand now, with what is not read; `waits`: None where it
    is not known what waits; `state`: rows of each bucket, by stage; `nodes`: of EXPLAIN; `notes`: what is not known."""

    query: str
    place: str
    held_by: int | None
    records: Sequence[Record]
    spoilt: Sequence[str]
    sources: Sequence[SourceTimes]
    waits: Sequence[Waiting] | None
    state: Mapping[int, Mapping[int, int]]
    nodes: Sequence[Record]
    first_drop: Callable[[str], Record | None]
    notes: Sequence[str]

    @property
    def batches(self) -> list[Record]:
        return [x for x in self.records if "batch" in x]

    @property
    def of_last_start(self) -> list[Record]:
        """The batches since the query was started last: those before may be of another plan."""
        found = self.batches
        return [x for x in found if x.get("started") == found[-1].get("started")]

    @property
    def running(self) -> bool:
        """Whether it runs, as far as can be seen: a run that has ended has said so, one that was killed has not."""
        return self.held_by is not None and bool(self.records) and "ended" not in self.records[-1]

    def asks(self, command: str) -> str:
        """A command that shows more."""
        return f"{command} {self.place}".rstrip()

    @property
    def history(self) -> str:
        """The command that shows its batches."""
        return self.asks(f"braid doctor --query {self.query} --history")


def condition(
    store: Store, query: str, functions: Functions, parent: ObjectStore | None, file: File | None = None
) -> Condition:
    """`parent`: the folder of its checkpoint; `file`: as of `plan_of`."""
    opened = open_store(store.objects)
    found = _found(store, opened, query, parent)
    known = checkpoint.load(found.folder)
    assert known is not None
    notes = list[str]()
    records, spoilt = _records(found)
    plan = _plan(partial(plan_of, store, found.name, known, functions, file), notes)
    state, reads = _behind_last(found.folder)
    ends = _ends(store, known, plan, reads, notes)
    nodes, sources, waits = list[Record](), list[SourceTimes](), None
    if plan is not None:
        ranks = Ranks.recorded(known.sources, plan, grows=False)
        nodes = explain_query(plan.query, lambda _: None)["nodes"]
        try:
            sources = event_times(plan, ranks, state.values(), Come(reads["next"], ends, {}))
            waits = _waits(found.folder, plan, ranks, notes)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):  # no stage has written this
            what = f"{found.folder} is damaged: the state behind the last batch is not as a stage writes it"
            raise BraidError(what, "braid verify checks it; put it back from a copy") from None
    return Condition(
        query=found.name,
        place="" if store.objects == named_store(STORE) else f"--store {shlex.quote(store.objects.given)}",
        held_by=_holder(opened.root),
        records=records,
        spoilt=spoilt,
        sources=sources or _as_told(records, reads["next"], ends),
        waits=waits,
        state=_by_bucket(state),
        nodes=nodes,
        first_drop=lambda reason: _first_drop(opened.root, found.name, reason),
        notes=notes,
    )


def _found(store: Store, opened: TopicStore, query: str, parent: ObjectStore | None) -> Known:
    """The query of this name; what others have that cannot be read is no matter here."""
    known = queries(opened, parent)
    found = named(query, [q for q in known if q.torn is None or q.name.lower() == query.lower()], store.objects, parent)
    if found.torn is not None:
        raise found.torn
    return found


def _plan(known: Callable[[], Found], notes: list[str]) -> Plan | None:
    try:
        return known()[0]
    except BraidError as e:
        hint = f" ({e.hint})" if e.hint else ""
        notes.append(f"its plan is not known, so which rows wait is not checked: {e.message}{hint}")
        return None


def _behind_last(folder: ObjectStore) -> tuple[state_file.Documents, Record]:
    """The state behind the last batch, and where that ends."""

    def read() -> tuple[state_file.Documents, Record]:
        last, state = state_file.latest(folder)
        return state, batches.document_of(folder, last) if last >= 0 else {"next": {}}

    return read_again(read)


def _waits(folder: ObjectStore, plan: Plan, ranks: Ranks, notes: list[str]) -> Sequence[Waiting] | None:
    try:
        return read_again(
            lambda: waiting(plan, state_file.latest(folder)[1], lambda at: CheckpointRuns(folder, at), ranks)
        )
    except (BraidError, OSError) as e:
        notes.append(f"which rows wait cannot be read: {e.message if isinstance(e, BraidError) else e.strerror}")
        return None


def _ends(store: Store, known: Document, plan: Plan | None, reads: Record, notes: list[str]) -> dict[str, int]:
    """Where the partitions end that are topics, by leaf/partition."""
    if "topics" in known.settings and not store.in_kafka:
        notes.append("its topics are in Kafka: name the broker (--kafka) to compare what is there with what is read")
        return {}
    found = dict[str, int]()
    try:
        topics = open_topics(store)
    except BraidError as e:
        notes.append(f"where its topics end is not known: {e.message}")
        return found
    files = {leaf.source.topic for leaf in plan.leaves if leaf.source.name in known.files} if plan else {*known.files}
    for number, topic in enumerate(known.leaves()):
        mine = [place for place in reads["next"] if place.startswith(f"{number}/")]
        if not mine or topic in files:
            continue
        with contextlib.suppress(BraidError):  # gone, or away
            if topics.exists(topic):
                ends = topics.end_offsets(topic)
                found |= {place: ends[p] for place in mine if (p := int(place.partition("/")[2])) < len(ends)}
    return found


def _as_told(records: Sequence[Record], read: Mapping[str, int], ends: Mapping[str, int]) -> list[SourceTimes]:
    """The sources as the last batch of the ring has them, with what is not read now."""
    last = next((x for x in reversed(records) if "batch" in x), None)
    return [] if last is None else [SourceTimes.of(x, read, ends) for x in last.get("sources", [])]


def _by_bucket(state: state_file.Documents) -> dict[int, dict[int, int]]:
    made = dict[int, dict[int, int]]()
    for place, document in state.items():
        stage, bucket = map(int, place.split("/"))
        rows = sum(rows for _, rows, _ in state_file.runs_in(document))
        made.setdefault(stage, {})[bucket] = rows
    return made


def _holder(root: ObjectStore) -> int | None:
    with contextlib.suppress(OSError, BraidError):
        return holder(root)
    return None


def _first_drop(root: ObjectStore, query: str, reason: str) -> Record | None:
    with contextlib.suppress(OSError, BraidError):
        return next((x for x in islice(each_drop(root, query), _LOOKED) if x["reason"] == reason), None)
    return None


def histories(store: Store, query: str, parent: ObjectStore | None) -> tuple[Iterator[Record], Sequence[str]]:
    """The records of a query's ring, and what of it could not be read."""
    found = _found(store, open_store(store.objects), query, parent)
    records, spoilt = _records(found)
    return iter(records), spoilt


# ------------------------------------------------------------------ what a record is

_NONE = type(None)
_FAULT: Any = {"at": int, "text": str}
_BATCH: Any = {
    "query": str,
    "batch": int,
    "at": int,
    **dict.fromkeys(("batch_ms", "jvm_ms", "publish_ms"), (int, float)),
    "rows_in": int,
    "drops": {None: int},
    "lag": (int, _NONE),
    "waiting": int,
    "sources": [
        {
            **{"leaf": int, "source": str, "topic": str, "moments": bool, "clock": (int, _NONE), "ended": bool},
            "partitions": [
                {"partition": int, "event_time": (int, _NONE), "idle": bool, "next": int, "lag": (int, _NONE)}
            ],
        }
    ],
    "store_again": int,
    "stages": [{"stage": (int, str), "rows_in": int}],
    "started": int,
    "restarts": int,
    "run": {None: int},
}
_STAGE: Any = {
    "by": str,
    "steps": [{"step": int, "rows_in": int, "rows_out": int}],
    "state": {"sides": [{"step": int, "rows": int}]},
}
_END: Any = {"query": str, "at": int, "ended": str, "started": int, "restarts": int}
_HOTTEST: Any = {"bucket": int, "share": (int, float), "hot": bool}
_MOST = 1 << 62


def _records(found: Known) -> tuple[list[Record], list[str]]:
    """Those of a query's ring, and what of it could not be read, or is not what this version writes."""
    told = ring.read(found.folder)
    mine = [x for x in told.documents if x.get("query") == found.name and _is_record(x)]
    if other := len(told.documents) - len(mine):
        told.spoilt.append(f"{found.folder.called(ring.FOLDER)}: {other:,} records of another version are left out")
    return mine, told.spoilt


def _is_record(x: Record) -> bool:
    if x.get("error") is not None and not _fits(x["error"], _FAULT):
        return False
    if "batch" not in x:
        return _fits(x, _END)
    if not _fits(x, _BATCH):
        return False
    inner = [s for s in x["stages"] if isinstance(s["stage"], int)]
    hottest = [s["hottest"] for s in inner if s.get("hottest") is not None]
    return all(_fits(s, _STAGE) for s in inner) and all(_fits(h, _HOTTEST) for h in hottest)


def _fits(x: Any, shape: Any) -> bool:
    """Whether a JSON value is what `shape` says: a type, one of several, a list of, fields, or (None) any fields of."""
    if isinstance(shape, list):
        return isinstance(x, list) and all(_fits(y, shape[0]) for y in x)
    if isinstance(shape, dict) and None in shape:
        return isinstance(x, dict) and all(_fits(y, shape[None]) for y in x.values())
    if isinstance(shape, dict):
        return isinstance(x, dict) and all(name in x and _fits(x[name], s) for name, s in shape.items())
    if isinstance(x, bool):
        return shape is bool
    return isinstance(x, shape) and (not isinstance(x, int | float) or -_MOST < x < _MOST)
