"""What a query whose SQL has changed can take over of the current one (`face/upgrade.py`).

In: a query, what its checkpoint has recorded. Out: how it reads again what was read; or why that cannot be, by name.
Rule: the new one reads only what the old one has read, and writes where that has written, in the same shape where it
matters: files of one folder have the same columns, rows of a table the same key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from braid.errors import BraidError
from braid.face.request import Prepared, Request, checkpoint_of, held_by, source_files
from braid.plan.canonical import canonical
from braid.plan.logical import Query, sources
from braid.stage import batches, checkpoint, lineage, offset_log, reset_marker, state_file
from braid.stage.checkpoint import Document
from braid.stage.offset_log import Replay
from braid.store import ObjectStore
from braid.topics import registered
from braid.topics.files import members
from braid.topics.interface import Topics
from braid.topics.store import TopicStore


@dataclass(frozen=True, slots=True)
class Changed:
    """`folder`: the checkpoint that stands, `known`: what it has recorded; `replay`: how its input is read again."""

    query: Query
    folder: ObjectStore
    known: Document
    replay: Replay


def changed(query: Query, known: Document, prepared: Prepared, request: Request, store: Topics, runs: bool) -> Changed:
    """How a changed query is worked out anew; refused where it cannot be. `runs`: the old one does, and writes."""
    folder = checkpoint_of(query, request, store)
    if folder.path is None:
        raise _refused(
            query, f"its checkpoint is {folder}", "upgrade takes checkpoints in folders; give it another name"
        )
    _, old = json.loads(known.plan)
    _check_frames(query, known, store)
    _check_output(query, old["sink"][1], known, request, store)
    _check_inputs(query, known, frozenset(source_files(prepared, request).of(query)))
    leaves = _leaves(query, old)
    if request.store.in_kafka or "topics" in known.settings:
        _check_broker(query, known, store)
        if not runs and known.writes()[0] is not None and batches.begun(folder):
            why = "it has begun a batch and not finished it, of which tasks may have written parts to Kafka"
            raise _refused(query, why, "run it once more with --until-idle, then upgrade it")
    _check_kept(query, known, store)
    if folder.has(checkpoint.RESCALE):
        raise _refused(query, "a rescale of it is pending", "run it once more before its SQL changes")
    upto = state_file.published(folder) if runs else _reached(query, folder, known, request, store)
    if upto < 0:
        raise _refused(query, "it has not finished a batch")
    cut = batches.document_of(folder, upto).get("batch", -1)  # one less where there was nothing to read at first
    offset_log.check(folder, upto)
    if any("seq" in x for x in offset_log.read(folder, cut)):
        raise _refused(query, "its batches follow the calls of a test")
    began = {name: known.settings[name] for name in ("begin", "from") if name in known.settings}
    return Changed(query, folder, known, Replay(folder, cut, leaves, known.sources, began, cut < upto))


def _reached(query: Query, folder: ObjectStore, known: Document, request: Request, store: Topics) -> int:
    """The last batch that can be seen; below all where there is none. All that it belongs to is there."""
    last, held = batches.last_batch(folder, known), held_by(query, request.sink_for(query), known, store)
    lineage.check(folder, query.name, last, store, held, lambda: None)
    behind = held is not None and lineage.behind(last, held)  # it was published, and the checkpoint does not say it
    return (-1 if last is None else last) + behind


def _refused(query: Query, why: str, hint: str | None = None) -> BraidError:
    other = f"give it another name; or braid reset {query.name} lets it begin again"
    return BraidError(f"{query.name} has changed, and cannot be upgraded: {why}", hint or other)


def _check_output(query: Query, old: Mapping[str, Any], known: Document, request: Request, store: Topics) -> None:
    """Its results go on where they are: `old` is the sink that it had."""
    to, sink = request.sink_for(query), query.sink
    described = "topic" if to is None else to.described()
    if known.settings.get("sink") != described or (to is None and known.writes()[0] != sink.topic):
        raise _refused(query, "its results go elsewhere than before")
    if old["kind"] != sink.kind:
        raise _refused(query, f"its result was a {old['kind']}, and is a {sink.kind}")
    if to is not None:
        if sink.kind == "table":
            raise _refused(query, f"the rows of {to.called(sink)} would have to be written again")
        if to.uniform and _columns(old) != _columns(_form(query)):
            raise _refused(query, f"the {to.called(sink)} have other columns")
        to.check(sink, str(known.settings["run"]), True, False)
    elif sink.kind == "table":
        if _key(old) != _key(_form(query)):
            raise _refused(query, "its rows have another key")
        if not isinstance(store, TopicStore):
            raise _refused(query, f"the rows of {sink.topic} in Kafka would have to be written again")
        lives = store.topic(sink.topic).view().queries if store.exists(sink.topic) else ()
        if others := [run for run in lives if not reset_marker.is_life(run, query.name)]:
            raise _refused(query, f"{sink.topic} holds more than it wrote: {', '.join(sorted(others))}")


def _check_frames(query: Query, known: Document, store: Topics) -> None:
    """Registered DataFrames that were read have their rows in the store, and their batches are ours."""
    read, ours = {s.topic: s.name for s in sources(query.root)}, {topic for topic, _ in known.sources}
    for topic in known.leaves():
        if not registered.is_registered(topic):
            continue
        name = read.get(topic, registered.name_of(topic))
        if topic not in ours:
            found = registered.read(store.root, registered.name_of(topic))
            streams = found is not None and found.shape.streams
            by = "as it streams" if streams else "as by the version before this one"
            raise _refused(query, f"{name} is read by Spark, {by}, and its batches are not kept")
        registered.needed(store.root, topic)


def _check_broker(query: Query, known: Document, topics: Topics) -> None:
    """The broker still has what was read."""
    if not topics.store.in_kafka or "topics" not in known.settings:
        raise _refused(query, f"it has run {'without' if topics.store.in_kafka else 'with'} --kafka", "so must this")
    if ("delivery" in known.settings) == topics.store.transactional:
        way = "with" if topics.store.transactional else "without"
        raise _refused(query, f"it has run {way} --at-least-once", "so must this")
    read = members(known.settings["topics"])
    gone = [name for name, then in read.items() if not topics.exists(name) or topics.identity(name) != then]
    if gone:
        raise _refused(query, f"the topic {gone[0]} was deleted, or created again, since it was read")


def _check_kept(query: Query, known: Document, topics: Topics) -> None:
    """All that was read is still there, and as it was."""
    _, old = json.loads(known.plan)
    begin = members(known.settings.get("begin", {}))
    for leaf, (topic, *_) in enumerate(checkpoint.sources_in(old)):
        if not topics.exists(topic):  # it reads files
            continue
        for partition, there in enumerate(topics.start_offsets(topic)):
            first = begin.get(f"{leaf}/{partition}", 0)
            if there > first:
                why = f"partition {partition} of {topic} begins at {there} now, and was read from {first} on"
                raise _refused(query, f"{why}: what is between is not kept")
        if isinstance(topics, TopicStore) and topics.topic(topic).view().marks:
            raise _refused(query, f"{topic} was compacted: of what it has read not all is kept")


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
    there, found = list(checkpoint.sources_in(old)), dict[int, int]()
    for leaf, source in enumerate(sources(query.root)):
        same = [n for n, was in enumerate(there) if was == (source.topic, source.kind, source.captured)]
        if not same:
            other = next((kind for topic, kind, _ in there if topic == source.topic), None)
            was = "before" if other in (None, source.kind) else f"as a {source.kind}, but as a {other}"
            raise _refused(query, f"it has not read {source.name} {was}")
        found[leaf] = same[min(list(found.values()).count(same[0]), len(same) - 1)]
    return found
