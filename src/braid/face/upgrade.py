"""`braid upgrade`: a query whose SQL has changed goes on, with a state that was made as if it had always been so.

In: a file of statements, a store that no run uses. Out: a line for each query; checkpoints of changed ones, replaced.
Rule: a changed query is worked out beside the one that stands: it reads what that has read, batch by batch as that did
(`stage/cuts.py`), and its output stays as it is meanwhile. Then it takes the other's place (`stage/takeover.py`): what
a stream has written stands, and from the next record on the new one writes; what stands in a table is put right. So
no row is missing and none is there twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from braid.errors import BraidError
from braid.face.request import Prepared, Request, checkpoint_of, held_by, prepare, source_files
from braid.face.show import open_folder
from braid.files.log import MOST
from braid.files.watch import log_name
from braid.lower.lower import lower
from braid.plan.canonical import canonical
from braid.plan.logical import Query, sources
from braid.sinks.files import FileSink
from braid.stage import batches, begun, checkpoint, cuts, docs, takeover, ties
from braid.stage.checkpoint import Document
from braid.stage.cuts import Replay
from braid.topics.lock import StoreLock
from braid.topics.store import TopicStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
            if takeover.ends(folder, store):
                yield f"{query.name}: its upgrade was begun, and is ended now"
            known = checkpoint.load(folder)
            if known is None:
                yield f"{query.name} is new: it begins when it is run"
            elif known.plan == canonical(query):
                yield f"{query.name} goes on"
            else:
                changed.append(_of(query, folder, known, prepared, request, store))
        for x in changed:
            yield f"{x.query.name} has changed: worked out anew over {_count(x.replay.upto + 1, 'batch', 'es')}"
            _worked_out(x, prepared, request, store, spark())
            written = takeover.take_over(x.folder, store)
            yield f"{x.query.name} has taken the place of what it was; it goes on behind batch {x.replay.upto}"
            if x.query.sink.kind == "table":
                yield f"  what stands in {x.query.sink.topic} is put right: {_count(written, 'record')}"


def _of(
    query: Query, folder: str, known: Document, prepared: Prepared, request: Request, store: TopicStore
) -> _Changed:
    """How a changed query is worked out anew; refused where it cannot be."""
    last = batches.last_batch(folder, known)
    _, old = json.loads(known.plan)
    _check_output(query, old["sink"][1], known, request, store)
    _check_inputs(query, known, frozenset(source_files(prepared, request).of(query)))
    leaves = _leaves(query, old)
    if docs.has(folder, checkpoint.RESCALE):
        raise _refused(query, "it is to be spread anew", "run it once more before its SQL changes")
    if last is None:
        raise _refused(query, "it has not finished a batch")
    held = held_by(query, request.sink_for(query), known, store)
    ties.check(folder, query.name, last, store, held, lambda: None)
    upto = last + (held is not None and ties.behind(last, held))  # it was published, and Spark does not know it
    if any("seq" in x for x in cuts.read(folder, upto)):
        raise _refused(query, "its batches follow the calls of a test")
    began = {name: known.settings[name] for name in ("begin", "from") if name in known.settings}
    return _Changed(query, folder, known, Replay(folder, upto, leaves, known.sources, began))


def _refused(query: Query, why: str, hint: str | None = None) -> BraidError:
    other = f"give it another name; or braid reset {query.name} lets it begin anew"
    return BraidError(f"{query.name} has changed, and cannot be upgraded: {why}", hint or other)


def _check_output(query: Query, old: Mapping[str, Any], known: Document, request: Request, store: TopicStore) -> None:
    """Its results go on where they are: `old` is the sink that it had."""
    to, sink = request.sink_for(query), query.sink
    described = "topic" if to is None else to.described()
    if known.settings.get("sink") != described or (to is None and known.writes()[0] != sink.topic):
        raise _refused(query, "its results go elsewhere than before")
    if old["kind"] != sink.kind:
        raise _refused(query, f"its result was a {old['kind']}, and is a {sink.kind}")
    if to is not None:
        if sink.kind == "table":
            raise _refused(query, f"what stands in {to.called(sink)} would have to be written anew")
        if isinstance(to, FileSink) and to.format != "json" and _columns(old) != _columns(_form(query)):
            raise _refused(query, f"the {to.format} files in {to.target} have other columns")
        to.check(sink, str(known.settings["run"]), True, False)
    elif sink.kind == "table":
        if _key(old) != _key(_form(query)):
            raise _refused(query, "its rows have another key")
        lives = store.topic(sink.topic).view().queries if store.exists(sink.topic) else ()
        if others := [run for run in lives if not begun.is_life(run, query.name)]:
            raise _refused(query, f"{sink.topic} holds more than it wrote: {', '.join(sorted(others))}")


def _form(query: Query) -> Mapping[str, Any]:
    """Its sink, as checkpoints have it."""
    _, made = json.loads(canonical(query))
    found: Mapping[str, Any] = made["sink"][1]
    return found


def _key(sink: Mapping[str, Any]) -> object:
    """What tells the rows of a table apart: names and types of its key, and how it is written."""
    exprs = [e[1].get("type") for e in sink.get("record_key", [])]
    written = sink["encoding"][1]
    return _outputs(sink["key"]), exprs, "window" in sink, {x: written[x] for x in written if x.startswith("key")}


def _columns(sink: Mapping[str, Any]) -> object:
    return _outputs(sink["key"]), _outputs(sink["values"])


def _outputs(forms: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(x["name"], x["expr"][1].get("type")) for _, x in forms]


def _check_inputs(query: Query, known: Document, files: Collection[str]) -> None:
    """What it reads from files are the files that it has read."""
    for name in sorted({*files, *known.files}):
        if name not in known.files:
            raise _refused(query, f"it has read {name} from its topic", f"leave --source {name}=… out")
        if name not in files:
            read = any(s.name == name for s in sources(query.root))
            raise _refused(query, f"it has read {name} from files", f"write --source {name}=PATH" if read else None)


def _leaves(query: Query, old: Mapping[str, Any]) -> dict[int, int]:
    """By the number of each source which one of the old query's reads the same."""
    there, found = list(_sources(old)), dict[int, int]()
    for leaf, source in enumerate(sources(query.root)):
        same = [n for n, was in enumerate(there) if was == (source.topic, source.kind, source.captured)]
        if not same:
            other = next((kind for topic, kind, _ in there if topic == source.topic), None)
            was = "before" if other in (None, source.kind) else f"as a {source.kind}, but as a {other}"
            raise _refused(query, f"it has not read {source.name} {was}")
        found[leaf] = same[min(list(found.values()).count(same[0]), len(same) - 1)]
    return found


def _sources(x: object) -> Iterator[tuple[str, str, bool]]:
    """The sources of a canonical text, from left to right."""
    if isinstance(x, list) and len(x) == 2 and x[0] == "Source" and isinstance(x[1], dict):
        yield str(x[1]["topic"]), str(x[1]["kind"]), x[1].get("captured", False) is True
    elif isinstance(x, list | dict):
        for part in x.values() if isinstance(x, dict) else x:
            yield from _sources(part)


def _worked_out(x: _Changed, prepared: Prepared, request: Request, store: TopicStore, spark: SparkSession) -> None:
    """Its checkpoint stands beside the other's afterwards, spread as that is; one that was stopped goes on."""
    from braid.spark.query import start
    from braid.spark.wishes import Wishes

    beside, files = checkpoint.beside(x.folder), source_files(prepared, request).of(x.query)
    for name in files:
        docs.write(beside, log_name(name), docs.read(x.folder, log_name(name), MOST))
    wishes = Wishes.of(
        replace(request.asked, tasks=x.known.shuffle),
        buckets=x.known.buckets,
        checkpoint=beside,
        files=files,
        output=request.sink_for(x.query),
        trigger={"availableNow": True},
        replay=x.replay,
        note=lambda _: None,
    )
    running = start(spark, lower(x.query), store.root, wishes)
    running.await_termination()
    known = checkpoint.load(beside)
    if known is None or batches.last_batch(beside, known) != x.replay.upto:
        raise BraidError(f"{x.query.name} did not come to batch {x.replay.upto}", "run the same command again")


def _count(n: int, what: str, more: str = "s") -> str:
    return f"{n:,} {what}{more * (n != 1)}"
