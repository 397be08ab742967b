"""`braid upgrade`: a query whose SQL has changed goes on, with a state that was made as if it had always been so.

In: a file of statements, a store that no run uses. Out: a line for each query; checkpoints of changed ones, replaced.
Rule: a changed query is worked out beside the one that stands: it reads what that has read, batch by batch as that did
(`stage/cuts.py`), and writes nothing. Then it takes the other's place, in one step: what the other has written stands,
and from the next record on the new one writes, so no row is missing and none is there twice. A mark in the new
checkpoint says that it is whole; who is stopped behind it does the rest when he is asked again (`stage/begun.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from braid.errors import BraidError
from braid.face.request import Request, checkpoint_of, prepare
from braid.face.show import open_folder
from braid.face.verify import held_of
from braid.lower.lower import lower
from braid.plan.canonical import canonical
from braid.plan.logical import Query, sources
from braid.stage import batches, begun, checkpoint, cuts, ties
from braid.stage.checkpoint import Document
from braid.stage.cuts import Replay
from braid.topics.lock import StoreLock
from braid.topics.store import TopicStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LATER = ("early", "captured", "seq")  # in the documents of queries that cannot be read again in this way


@dataclass(frozen=True, slots=True)
class _Changed:
    query: Query
    folder: str
    known: Document
    replay: Replay


def upgrade(request: Request, spark: Callable[[], SparkSession]) -> Iterator[str]:
    """What goes on, what begins, what was worked out anew. All is looked at before anything is done. `spark`: what
    begins Spark."""
    prepared = prepare(request)
    if request.asked.broker is not None:
        raise BraidError("braid upgrade reads topics of the store", "leave --kafka out; on a broker use another name")
    if not prepared.queries:
        yield "the file has no query"
        return
    store = open_folder(request.store)
    with StoreLock(store.root):
        changed = list[_Changed]()
        for query in prepared.queries:
            folder = checkpoint_of(query, request, store)
            if begun.ends_upgrade(folder):
                yield f"{query.name}: its upgrade was begun, and is ended now"
            known = checkpoint.load(folder)
            if known is None:
                yield f"{query.name} is new: it begins when it is run"
            elif known.plan == canonical(query):
                yield f"{query.name} goes on"
            else:
                changed.append(_of(query, folder, known, request, store))
        for x in changed:
            yield f"{x.query.name} has changed: worked out anew over {_batches(x.replay.upto + 1)}"
            _worked_out(x, request, store, spark())
            begun.take_over(x.folder)
            yield f"{x.query.name} has taken the place of what it was; it goes on behind batch {x.replay.upto}"


def _of(query: Query, folder: str, known: Document, request: Request, store: TopicStore) -> _Changed:
    """How a changed query is worked out anew; refused where it cannot be."""

    def refused(why: str) -> BraidError:
        hint = f"give it another name; or braid reset {query.name} lets it begin anew"
        return BraidError(f"{query.name} has changed, and cannot be upgraded: {why}", hint)

    last = batches.last_batch(folder, known)
    _, old = json.loads(known.plan)
    if request.target(query) or known.writes()[0] != query.sink.topic:
        raise refused("its results go elsewhere than to its topic")
    if query.sink.kind != "stream" or old["sink"][1].get("kind", "stream") != "stream":
        raise refused("what stands in a table would have to be written anew")
    if known.files or request.files or "begin" in known.settings:
        raise refused("it reads files, or has not begun at the beginning")
    if last is None:
        raise refused("it has not finished a batch")
    held = held_of(store, known)
    ties.check(folder, query.name, last, store, held, lambda: None)
    upto = last + (held is not None and ties.behind(last, held))  # it was published, and Spark does not know it
    if any(name in x or x["ended"] for x in cuts.read(folder, upto) for name in _LATER):
        raise refused("a source of it was closed, or is read before the others")
    gone = [t for t in sorted(set(known.leaves())) if store.exists(t) and any(store.start_offsets(t))]
    if gone:
        raise refused(f"the first records of {', '.join(gone)} are not kept any more")
    there = known.leaves()
    leaves = dict[int, int]()
    for leaf, source in enumerate(sources(query.root)):
        same = [n for n, topic in enumerate(there) if topic == source.topic]
        if not same:
            raise refused(f"it has not read {source.name} before")
        leaves[leaf] = same[min(list(leaves.values()).count(same[0]), len(same) - 1)]
    return _Changed(query, folder, known, Replay(folder, upto, leaves))


def _batches(n: int) -> str:
    return f"{n:,} batch{'es' * (n != 1)}"


def _worked_out(x: _Changed, request: Request, store: TopicStore, spark: SparkSession) -> None:
    """Its checkpoint stands beside the other's afterwards, spread as that is; one that was stopped goes on."""
    from braid.spark.query import start
    from braid.spark.wishes import Wishes

    beside = checkpoint.beside(x.folder)
    wishes = Wishes.of(
        replace(request.asked, tasks=x.known.shuffle),
        buckets=x.known.buckets,
        checkpoint=beside,
        trigger={"availableNow": True},
        replay=x.replay,
        note=lambda _: None,
    )
    running = start(spark, lower(x.query), store.root, wishes)
    running.await_termination()
    known = checkpoint.load(beside)
    if known is None or batches.last_batch(beside, known) != x.replay.upto:
        raise BraidError(f"{x.query.name} did not come to batch {x.replay.upto}", "run the same command again")
