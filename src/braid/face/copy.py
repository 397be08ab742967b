"""`braid copy`: a store, somewhere else: from a folder to an object store, or back.

In: a store that no run uses; a folder or a URL under which nothing is. Out: the same topics, offsets, checkpoints,
declarations, schemas and drops there; what `braid verify` says of them.
Rule: what is read, of whatever history, stays known by the same checksums and digests, so queries go on there as if
they had always run there. Until all of it is there no run takes the copy: a folder has another name, in an object store
a mark stands first and goes last. Queries over files stay where their files are: they are refused before anything is
written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from uuid import uuid4

from braid.bind.dialects import DIALECTS
from braid.errors import BraidError
from braid.face.backup import appearing
from braid.face.reset import folders_of_checkpoints
from braid.face.show import open_store
from braid.face.verify import verify, whole
from braid.stage import batches, cause_log, checkpoint, offset_log, state_file
from braid.stage.checkpoint import Document
from braid.stage.checkpoint_runs import CheckpointRuns, packing_of, renamed
from braid.stage.state_file import NONE_HELD, Held
from braid.store import ObjectStore
from braid.store.files import force
from braid.store.folder import FolderStore
from braid.topics import TopicStore, checkpoint_paths, commit, documents, drops, registered, registries, retention
from braid.topics.files import reach
from braid.topics.interface import COPYING, store_at
from braid.topics.lock import StoreLock
from braid.topics.log import Topic
from braid.topics.removal import ready, taken
from braid.topics.segments import Segment, Staged
from braid.topics.view import Keep

Told = Iterator[str | BraidError]

MANY = 64 << 20  # bytes that go into one object
_TOGETHER = 1000  # segments of a commit


def copy(source: ObjectStore, target: ObjectStore) -> Told:
    """What has been copied, and what a look at the copy says."""
    store = open_store(source)
    with StoreLock(store.root):
        queries = list(_queries(store))
        _check_target(source, target)
        if target.path is None:
            yield from _copied(store, target, queries)
            target.delete(COPYING)
        else:
            with appearing(target.path) as made:
                yield from _copied(store, FolderStore(made, durable=True), queries)
                yield from whole(made, target)
            force(os.path.dirname(target.path))
    if target.path is None:
        yield from verify(target)


def _check_target(source: ObjectStore, target: ObjectStore) -> None:
    if target.path is not None:
        if os.path.lexists(target.path):
            raise BraidError(f"{target} is there already", "name a folder that is not")
        return
    there = [name for name, _ in target.list("")]
    if COPYING in there:  # of a copy that was killed
        target.delete(*(name for name in there if name != COPYING))
    elif there:
        raise BraidError(f"there is something under {target} already", "name a path under which nothing is")
    else:
        target.create(COPYING, source.url.encode())


def _queries(store: TopicStore) -> Iterator[tuple[ObjectStore, Document, int | None]]:
    """The checkpoints in the store, as far as their batches came; refused where one cannot be moved."""
    for folder in folders_of_checkpoints(store):
        if folder.parent != checkpoint_paths.own(store.root):
            continue
        known = checkpoint.load(folder)
        if known is None:
            continue
        last = batches.last_batch(folder, known)
        if known.files:
            what = f"{known.query} reads files, whose copies lie beside its checkpoint"
            raise BraidError(what, f"it cannot be copied: braid reset {known.query}, and let it begin again there")
        if frame := next((x for x in known.leaves() if registered.is_registered(x)), None):
            what = f"{known.query} reads the DataFrame {registered.name_of(frame)}, which stays in its folder"
            raise BraidError(what, f"it cannot be copied: braid reset {known.query}, and let it begin again there")
        if folder.has(checkpoint.RESCALE):
            raise BraidError(f"{known.query}: a rescale is pending", "run it once, then copy")
        yield folder, known, last


def _copied(store: TopicStore, target: ObjectStore, queries: list[tuple[ObjectStore, Document, int | None]]) -> Told:
    to = store_at(target)
    for name in store.names():
        to.create(name, store.partitions(name))
        records = _topic(store.topic(name), to.topic(name))
        yield f"copied topic {name}: {records:,} record{'s' * (records != 1)}"
        reach("topic copied")
        note, ids = f"tables/{name}", (store.identity(name).encode(), to.identity(name).encode())
        if (data := documents.document(store.root, note)) is not None:
            _document(to.root, note, data.replace(*ids))
    for dialect in DIALECTS:
        if (data := documents.document(store.root, f"catalogue/{dialect}")) is not None:
            _document(to.root, f"catalogue/{dialect}", data)
    for name, wanted in retention.all_of(store.root).items():
        retention.want(to.root, name, wanted)
    registries.copied(store.root, to.root)
    for query in drops.with_drops(store.root):
        drops.copied(store.root, to.root, query)
    for folder, known, last in queries:
        _checkpoint(folder, checkpoint_paths.own(to.root).at(folder.name), known, last)
        yield f"copied query {known.query}: {'no batch yet' if last is None else f'batch {last}'}"
        reach("query copied")
    for parent in checkpoint_paths.parents(store.root)[1:]:
        yield f"checkpoints in {parent} are not part of it"


def _document(root: ObjectStore, name: str, data: bytes) -> None:
    documents.changed(root, name, lambda _: data)


# ------------------------------------------------------------------------ topics


def _topic(source: Topic, to: Topic) -> int:
    """All records at the same offsets, and who wrote last."""
    view, records, some, size = source.view(), 0, list[Segment](), 0
    if keep := Keep({p: b for p, b in enumerate(view.begins) if b.first}, marks=view.marks):
        with ready(to) as there:
            taken(to, there, keep)
    for segment in (s for part in view.parts for s in part):
        if segment.positions is not None:
            raise BraidError(f"the topic {source.name} was written by the test driver", "it cannot be copied")
        some.append(segment)
        size += segment.extent.size
        records += segment.extent.records
        if size >= MANY or len(some) == _TOGETHER:
            _segments(source, to, some)
            some, size = [], 0
    _segments(source, to, some)
    for query, batch in sorted(view.queries.items()):
        commit.publish(to, query, batch, [], empty=True, digest=view.digests.get(query, ""))
    return records


def _segments(source: Topic, to: Topic, segments: list[Segment]) -> None:
    """In one commit."""
    if not segments:
        return
    os.makedirs(to.staging, exist_ok=True)
    name, staged = f"copy-{uuid4().hex[:12]}", list[Staged]()
    source.prepare(segments)
    for n, segment in enumerate(segments):
        file = os.path.basename(commit.stage_path(to.staging, name, 0, segment.partition, piece=n))
        source.opened(segment, partial(shutil.copyfile, dst=os.path.join(to.staging, file)))
        staged.append(Staged(segment.partition, file, segment.extent, piece=n))
    commit.add(to, to.handed_in(staged, name, 0))


# ------------------------------------------------------------------- checkpoints


def _checkpoint(source: ObjectStore, to: ObjectStore, known: Document, last: int | None) -> None:
    """`braid.json` comes last: before it there is no checkpoint."""
    if last is not None:
        held = Held(_log(source, to, last), cause_log.copied(source, to, str(known.settings.get("run"))))
        for number in state_file.batches(source)[-2:]:
            _state(source, to, number, held if number == last else NONE_HELD)
        state_file.tell_published(to, last, fsync=True)
    if source.has(batches.PLANNED):
        to.write(batches.PLANNED, source.get(batches.PLANNED), fsync=True)
    reach("state copied")
    to.write(checkpoint.NAME, source.get(checkpoint.NAME), fsync=True)


def _log(source: ObjectStore, to: ObjectStore, last: int) -> list[str]:
    """The offset log of all batches; those that have to be saved with the last."""
    made, lines = offset_log.OffsetLog(to, fsync=True), list[str]()
    try:
        found = [*offset_log.timed(source, last)]
    except BraidError:  # of an older version, which kept none
        return []
    for document, at in found:
        lines = [*made.add(document, at)]
        made.send()
    return lines


def _state(source: ObjectStore, to: ObjectStore, number: int, held: Held) -> None:
    """The state of a batch, with its runs."""
    documents_, packing, names = state_file.load(source, number), packing_of(to, 0, number), dict[str, str]()
    for place, document in documents_.items():
        old, new = CheckpointRuns(source, place), CheckpointRuns(to, place, fsync=True, packing=packing)
        for run, *_ in state_file.runs_in(document):
            names[run] = state_file.put_as(run)
            new.put(names[run], old.check(run))
    if packing is not None:
        sent = packing.send()
        names = {run: sent[name] for run, name in names.items()}
    state_file.save(
        to,
        number,
        renamed(documents_, names),
        state_file.tie(source, number),
        state_file.reads(source, number),
        state_file.buckets(source, number),
        fsync=True,
        held=held,
    )
