"""`braid retain`: what topics of a store keep, set and carried out; and the thread of a run that carries it out.

In: a store, also while queries run on it. Out: what is kept from now on; what went; who holds records back.
Rule: nothing goes that a query with a checkpoint may still ask for. Where nothing is set nothing is done, but for one
look at that now and then.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from braid.bind.program import first_match
from braid.errors import BraidError
from braid.expr.show import duration
from braid.face.reset import queries, unknown
from braid.face.show import open_store
from braid.face.verify import amount
from braid.stage.readers import Reader, first_needed, holding, readers
from braid.stage.reset_marker import Known
from braid.store import ObjectStore
from braid.topics import documents, housekeeping, registered, retention
from braid.topics.removal import Gone
from braid.topics.retention import Retention
from braid.topics.store import TopicStore

MOST = 0.5  # of a topic's records: where more would go, it is asked
EVERY = 60.0  # s between two times that a run looks what need not be kept
_SPANS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | {
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40
}  # fmt: skip
_DURATION, _SIZE = re.compile(r"(\d{1,12})\s*(ms|s|m|h|d)"), re.compile(r"(\d{1,15})\s*([kmgt]?i?b)?")


def milliseconds_of(option: str, text: str) -> int:
    """`7d`, `12h`, `30m`, `10s`, `500ms`."""
    if (m := _DURATION.fullmatch(text.strip().lower())) is None:
        raise BraidError(f"{option} {text}: it is not a time span", f"write {option} 7d; units are ms, s, m, h, d")
    return int(m[1]) * _SPANS[m[2]]


def bytes_of(option: str, text: str) -> int:
    """`10GB`, `500 MiB`, `1000`."""
    if (m := _SIZE.fullmatch(text.strip().lower())) is None or (m[2] or "b") not in _SIZES:
        hint = f"write {option} 10GB; units are KB to TB, KiB to TiB"
        raise BraidError(f"{option} {text}: it is not a number of bytes", hint)
    return int(m[1]) * _SIZES[m[2] or "b"]


def retain(
    store: ObjectStore,
    topic: str | None,
    change: Callable[[Retention], Retention] | None,
    parent: ObjectStore | None = None,
    sure: Callable[[str], None] = lambda what: None,
    dry: bool = False,
) -> Iterator[str]:
    """What a topic keeps is changed, and carried out; of all topics only carried out. `parent`: one more folder of
    checkpoints than the store knows. `sure` is asked where most records of the topic would go, now or when its readers
    are done with them; it raises where the answer is no. `dry`: it is only told what would go."""
    opened = open_store(store)
    found = None
    if topic is not None:
        found = first_match(topic, opened.names())
        if found is None and (frame := first_match(topic, registered.names(opened.root))) is not None:
            raise BraidError(f"{frame} is a registered DataFrame: it keeps its rows", f"braid rm {frame} removes it")
        if found is None:
            raise BraidError(f"no topic {topic} in {store}", f"topics: {', '.join(opened.names()) or 'none'}")
    wanted = retention.all_of(opened.root)
    if found is not None and change is not None:
        made = change(wanted.get(found, Retention()))
        _check(opened, found, made)
        if not dry:
            _refuse_unknown(opened, found, queries(opened, parent), parent)
            _ask(opened, found, made, sure)
            retention.want(opened.root, found, made)
        wanted[found] = made
    if found is None and not wanted:
        yield f"all topics of {store} keep all their records"
    names = [found] if found is not None else sorted(wanted.keys() & {*opened.names()})
    for name in names:
        yield f"{name} {'would keep' if dry else 'keeps'} {kept(wanted.get(name, Retention()))}"
    chosen = {name: wanted[name] for name in names if name in wanted}
    yield from carried_out(opened, chosen, parent, at_once=True, dry=dry)


def _refuse_unknown(store: TopicStore, name: str, known: Sequence[Known], parent: ObjectStore | None) -> None:
    """Nothing goes where it is not known who reads it."""
    for e in unknown(store, known, parent):
        raise BraidError(f"nothing of {name} goes: {e.message}", e.hint)


def _ask(store: TopicStore, topic: str, made: Retention, sure: Callable[[str], None]) -> None:
    if not made:
        return
    count = store.count(topic)
    going = housekeeping.foreseen(store.topic(topic), made, lambda partition, end: end, _now()).records
    if going > MOST * count:
        sure(f"{going:,} of {count:,} records of {topic} go")


def _now() -> int:
    return time.time_ns() // 1_000_000


def _check(store: TopicStore, topic: str, made: Retention) -> None:
    if made.limited and documents.document(store.root, f"tables/{topic}") is not None:
        what = f"{topic} mirrors a table: each of its rows stays as long as the table has it"
        raise BraidError(what, "leave --for and --bytes out; --compact keeps the last record of each")


def kept(x: Retention) -> str:
    """For people."""
    parts = [] if x.ms is None else [f"records for {duration(x.ms)}"]
    parts += [] if x.bytes is None else [f"{amount(x.bytes)} a partition"]
    parts += [f"the last of each key (tombstones for {duration(x.tombstones)})"] if x.compact else []
    return " and ".join(parts) or "all its records"


def carried_out(
    store: TopicStore,
    wanted: dict[str, Retention],
    parent: ObjectStore | None = None,
    at_once: bool = False,
    dry: bool = False,
) -> Iterator[str]:
    """What went of each topic, or (`dry`) would go, and who holds back more."""
    for name, x in sorted(wanted.items()):
        if not x:
            continue
        known = queries(store, parent)
        _refuse_unknown(store, name, known, parent)
        found = readers(known)  # they only go on meanwhile
        needed = partial(first_needed, found, name)
        if dry:
            count = store.count(name)
            gone = housekeeping.foreseen(store.topic(name), x, needed, _now())
            yield f"{name}: {gone.records:,} of {count:,} records would go, {amount(gone.size)}"
        else:
            gone = housekeeping.apply(store.topic(name), x, needed, _now(), at_once)
            if gone.records:
                yield f"{name}: {gone.records:,} record{'s' * (gone.records != 1)} went, {amount(gone.size)}"
        yield from _held(name, gone, found)


def _held(name: str, gone: Gone, found: Iterable[Reader]) -> Iterator[str]:
    for r in holding(found, name):
        back = {p: r.needs(name, p) for p, first in sorted(gone.held.items()) if r.needs(name, p) <= first}
        if back:
            at = ", ".join(f"{first} of partition {p}" for p, first in back.items())
            yield f"{name}: {r.query} may still read from record {at}"


class Keeper:
    """Carries it out beside the queries of a run, and once more when it ends. `note`: tells what fails."""

    def __init__(self, store: TopicStore, parent: ObjectStore | None, note: Callable[[str], None]) -> None:
        self._store, self._parent, self._note = store, parent, note
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, name="keeper", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._once()

    def _go(self) -> None:
        while not self._over.wait(EVERY):
            self._once()

    def _once(self) -> None:
        try:
            there = {*self._store.names()} if (wanted := retention.all_of(self._store.root)) else set()
            for _ in carried_out(self._store, {n: x for n, x in wanted.items() if n in there}, self._parent):
                pass
        except (BraidError, OSError) as e:
            said = e.message if isinstance(e, BraidError) else f"{e.filename}: {e.strerror}"
            self._note(f"records that need not be kept stay: {said}")


def changed(
    before: Retention, ms: int | None, size: int | None, compact: bool | None, tombstones: int | None, all_: bool
) -> Retention:
    """What is asked for in place of what was."""
    made = Retention() if all_ else before
    made = made if ms is None else replace(made, ms=ms)
    made = made if size is None else replace(made, bytes=size)
    made = made if compact is None else replace(made, compact=compact)
    return made if tombstones is None else replace(made, tombstones=tombstones)
