"""A query whose SQL has changed goes on, with a state that was made as if it had always been so: `braid upgrade`,
`session.upgrade`, CREATE OR REPLACE.

In: queries of a program, a store, which a run may use. Out: lines; checkpoints of changed queries, replaced.
Rule: a changed query is worked out beside the one that stands: it reads what that has read, batch by batch as that did
(`stage/offset_log.py`), and its output stays as it is meanwhile. Nothing of the old one is touched, so it may run; the
new one follows it until the run ends. Then, under the lock of the store, it takes the other's place
(`stage/swap.py`): what a stream has written stands, and from the next record on the new one writes; what stands in
a table is put right.
Queries are started by the engine alone. Before the old one is gone the catalogue has the new statement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from braid.bind.bound import QueryBound
from braid.errors import BraidError
from braid.face.catalogue import Catalogue
from braid.face.changed import Changed, changed
from braid.face.request import Prepared, Request, checkpoint_of, prepare, source_files
from braid.face.show import open_folder
from braid.files.log import MOST
from braid.files.watch import log_name
from braid.plan.canonical import canonical
from braid.plan.logical import Query
from braid.spark.query_options import QueryOptions
from braid.stage import batches, checkpoint, reset_marker, state_file, swap
from braid.stage.checkpoint import Document
from braid.store import ObjectStore
from braid.topics.interface import Topics, open_topics
from braid.topics.lock import InUse, StoreLock

if TYPE_CHECKING:
    from braid.face.engine import Engine

LOCK = ".upgrade.lock"  # of a store: one upgrade at a time
PAUSE = 1.0  # s between two looks at a run


def upgrade(request: Request, made: Callable[[Topics, StoreLock], Engine]) -> Iterator[str]:
    """What goes on, what begins, what was worked out anew. All is looked at before anything is done. `made`: what
    starts queries; a process that may outlive this one is written into the lock."""
    prepared = prepare(request, reworks=True)
    if not prepared.queries:
        yield "the file has no query"
        return
    open_folder(request.store.objects)
    store = open_topics(request.store)
    own = StoreLock(store.root, name=LOCK)
    with own:
        yield from Upgrade(request, prepared, made(store, own)).go()


class Upgrade:
    """`keep`: is told of each query that has changed, before the old one is gone."""

    def __init__(
        self, request: Request, prepared: Prepared, engine: Engine, keep: Callable[[Query], None] | None = None
    ) -> None:
        self._request, self._prepared, self._engine = request, prepared, engine
        self._store: Topics = engine.store
        self._keep = self._into_catalogue if keep is None else keep

    def go(self) -> Iterator[str]:
        """All queries, also beside a run."""
        lock = StoreLock(self._store.root)
        if (used := _taken(lock)) is not None:
            yield from self._follow(lock, used)
        try:
            yield from self.take_over(self._prepared.queries)
        finally:
            lock.release()

    def _follow(self, lock: StoreLock, used: InUse) -> Iterator[str]:
        """Works out what has changed beside a run, batch after batch as that makes them, until the run has ended."""
        found = [(query, known) for query, known in self._known() if known is not None]
        if not any(known.plan != canonical(query) for query, known in found):
            raise used
        yield f"{used.message}, and goes on: what has changed is computed beside it"
        reached, told = dict[str, int](), False
        while _taken(lock) is not None:
            moved = False
            for query, known in found:
                if known.plan == canonical(query):
                    continue
                folder = self._folder(query)
                if query.name in reached and state_file.published(folder) == reached[query.name]:
                    continue
                x = self._changed(query, known, runs=True)
                self._work_out(x)
                moved, reached[query.name] = True, x.replay.last_batch
            if not moved and not told:
                came = ", ".join(f"{name} with batch {batch}" for name, batch in reached.items())
                yield f"caught up: {came}. Stop the run, and the rest is done; or stop this, and ask again"
                told = True
            time.sleep(PAUSE)

    def _folder(self, query: Query) -> ObjectStore:
        return checkpoint_of(query, self._request, self._store)

    def _known(self) -> Iterator[tuple[Query, Document | None]]:
        """The queries, with what their checkpoints have recorded."""
        for query in self._prepared.queries:
            yield query, checkpoint.load(self._folder(query))

    def _changed(self, query: Query, known: Document, runs: bool) -> Changed:
        return changed(query, known, self._prepared, self._request, self._store, runs)

    def take_over(self, queries: Sequence[Query]) -> Iterator[str]:
        """Under the store's lock. A query that runs here is stopped meanwhile; refused ones are, before one is."""
        found = list[tuple[Query, Document]]()
        for query in queries:
            folder = self._folder(query)
            if swap.ends(folder, self._store):
                yield f"{query.name}: its upgrade was begun, and is ended now"
            known = checkpoint.load(folder)
            if known is None:
                yield f"{query.name} is new: it begins when it is run"
            elif known.plan == canonical(query):
                yield f"{query.name} goes on"
            else:
                self._changed(query, known, runs=self._engine.runs(query.name))
                found.append((query, known))
        for query, known in found:
            with self._engine.stopped(query.name):
                yield from self._replace(self._changed(query, known, runs=False))

    def _replace(self, x: Changed) -> Iterator[str]:
        yield f"{x.query.name} has changed: computed again over {_count(x.replay.last_batch + 1, 'batch', 'es')}"
        self._work_out(x)
        self._keep(x.query)
        written = swap.swap_in(x.folder, self._store)
        yield f"{x.query.name} has taken the place of what it was; it goes on behind batch {x.replay.last_batch}"
        if x.query.sink.kind == "table":
            yield f"  the rows of {x.query.sink.topic} are corrected: {_count(written, 'record')}"

    def _into_catalogue(self, query: Query) -> None:
        """The statement is the one that the store knows."""
        catalogue = Catalogue(self._store, self._request.dialect, self._request.functions)
        program = catalogue.program("file")
        for effect in self._prepared.effects:
            program.keeper = catalogue if isinstance(effect.bound, QueryBound) and effect.query is query else None
            program.apply(effect)

    def _work_out(self, x: Changed) -> None:
        """Its checkpoint stands beside the other's afterwards, spread as that is; one that was stopped goes on."""
        beside, files = checkpoint.shadow(x.folder), source_files(self._prepared, self._request).of(x.query)
        if not _is_of(x, beside):
            reset_marker.abandon(x.folder)
        for name in files:
            beside.write(log_name(name), x.folder.get(log_name(name), MOST))
        options = QueryOptions.of(
            replace(self._request.asked, tasks=x.known.shuffle),
            buckets=x.known.buckets,
            checkpoint=beside,
            files=files,
            output=self._request.sink_for(x.query),
            trigger={"availableNow": True},
            replay=x.replay,
            note=lambda _: None,
        )
        self._engine.work_out(x.query, options)
        known = checkpoint.load(beside)
        if known is None or batches.last_batch(beside, known) != x.replay.last_batch:
            raise BraidError(
                f"{x.query.name} did not come to batch {x.replay.last_batch}", "run the same command again"
            )
        _check_read(x, beside)


def _taken(lock: StoreLock) -> InUse | None:
    """Why the lock is not ours; None where it is now."""
    try:
        lock.acquire()
    except InUse as e:
        return e
    return None


def _is_of(x: Changed, beside: ObjectStore) -> bool:
    """Whether what was begun beside is of this query, and of what it reads; or nothing was."""
    if not beside.has(checkpoint.NAME):
        return not beside.names("")
    known = checkpoint.recorded(beside)
    assert known is not None
    if (known.plan, known.buckets, known.shuffle) != (canonical(x.query), x.known.buckets, x.known.shuffle):
        return False
    last = batches.last_batch(beside, known)
    if last is None:
        return True
    made, at = [{"next": {}}, *x.replay.documents()], batches.document_of(beside, last)
    number = at.get("batch", -1) + 1
    return (
        number == last + (not x.replay.empty)
        and number < len(made)
        and (not number or at["next"] == made[number]["next"])
    )


def _check_read(x: Changed, beside: ObjectStore) -> None:
    """What was worked out anew has read what the other had: up to the same offsets, and the same records."""
    last = x.replay.last_batch
    then, now = batches.document_of(x.folder, last), batches.document_of(beside, last)
    if now["next"] != x.replay.own(then)["next"]:
        raise _differs(x, "up to other offsets")
    was, seen = then.get("seen", {}), now.get("seen", {})
    for place in sorted(was.keys() & seen.keys()):
        if was[place][0] == seen[place][0] and was[place] != seen[place]:
            raise _differs(x, f"other records of {place}")


def _differs(x: Changed, how: str) -> BraidError:
    what = f"{x.query.name} was computed again from {how} than its state in {x.folder} says"
    return BraidError(what, "put store and checkpoint back from one copy; or give the query another name")


def _count(n: int, what: str, more: str = "s") -> str:
    return f"{n:,} {what}{more * (n != 1)}"
