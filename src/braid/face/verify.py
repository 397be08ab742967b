"""`braid verify`: whether a store is whole, and all parts of it are of one history.

In: a store that no run uses, or a copy of one. Out: a line for each topic and query; what is wrong, all of it.
Rule: nothing is changed, and one fault does not hide the next. Checked is what a run checks before it starts
(`stage/lineage.py`), for every query, and besides every byte that has a checksum, which all have but for
`state/published` and locks: records and commits of topics, documents, drops, checkpoints. A folder among them that is
no checkpoint is named. Topics in Kafka and tables of other systems are not checked, which is reported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from braid.errors import BraidError
from braid.face.reset import folders_of_checkpoints, parents_away, parents_of, queries, unknown
from braid.face.show import open_store
from braid.files import results
from braid.files.log import FileLog, Names
from braid.files.watch import log_path
from braid.stage import batches, cause_log, checkpoint, epoch, lineage, offset_log, rescale, reset_marker, state_file
from braid.stage.checkpoint import Document
from braid.stage.checkpoint_runs import CheckpointRuns
from braid.stage.lineage import Held
from braid.store import NOWHERE, ObjectStore
from braid.store.files import UNFINISHED
from braid.store.folder import FolderStore
from braid.topics import checkpoint_paths, documents, drops, registered, registries
from braid.topics.files import parsed, why
from braid.topics.integrity import look
from braid.topics.lock import holder
from braid.topics.object_topic_store import lost
from braid.topics.store import TopicStore

Told = Iterator[str | BraidError]


def verify(store: ObjectStore, parent: ObjectStore | None = None) -> Told:
    """What is there, as lines, and what is wrong with it. `parent`: one more folder of checkpoints."""
    opened = open_store(store)
    if (process := holder(opened.root)) is not None:
        hint = "stop it first, or check a copy of it"
        raise BraidError(f"process {process} runs queries on the store {store}", hint)
    looks = [partial(_topic, opened, name) for name in opened.names()]
    looks += [partial(_document, opened.root, name) for name in documents.all_of(opened.root)]
    looks += [partial(_frame, opened.root, name) for name in registered.names(opened.root)]
    looks += [partial(_registry, opened.root), partial(_lost, opened, parent)]
    looks += [partial(_drops, opened.root, query) for query in drops.with_drops(opened.root)]
    looks += [partial(_query, opened, folder) for folder in folders_of_checkpoints(opened, parent)]
    looks += [partial(_folders, place) for place in parents_of(opened, parent)]
    said = set[str]()
    for x in (x for told in looks for x in _caught(told)):
        if isinstance(x, BraidError):
            if x.message in said:  # two looks came upon it
                continue
            said.add(x.message)
        yield x


def whole(made: str, target: object) -> Told:
    """A look at a copy that is to be `target`; an error where it is not whole."""
    wrong = False
    for x in verify(FolderStore(made)):
        if isinstance(x, BraidError):
            wrong = True
            yield BraidError(x.message.replace(made, str(target)), x.hint)
        else:
            yield x.replace(made, str(target))
    if wrong:
        hint = "what is wrong in it was so where it came from, or came since: take another"
        raise BraidError(f"nothing is left in {target}: it would not be whole", hint)


def _caught(told: Callable[[], Told]) -> Told:
    try:
        yield from told()
    except BraidError as e:
        yield e
    except OSError as e:
        yield BraidError(f"{e.filename} cannot be read: {e.strerror}")


def _topic(store: TopicStore, name: str) -> Told:
    found = look(store.topic(name))
    many = f"{_count(found.records, 'record')} in {_count(found.segments, 'segment')}"
    yield f"topic {name}: {many}, {amount(found.size)}"
    yield from found.wrong


def _document(root: ObjectStore, name: str) -> Told:
    try:
        parsed(b"{}" if (data := documents.document(root, name)) is None else data)
    except ValueError as e:
        raise BraidError(f"{documents.called(root, name)} cannot be read: {why(e)}", "put it back from a copy") from e
    yield from ()


def _frame(root: ObjectStore, name: str) -> Told:
    """All pieces of a registered DataFrame; what an older version has left has no checksums."""
    if (found := registered.read(root, name)) is not None:
        for piece in found.pieces:
            registered.path_of(root, name, piece)
        size = amount(sum(piece.bytes for piece in found.pieces))
        yield f"DataFrame {name}: {_count(found.rows, 'row')} in {_count(len(found.pieces), 'piece')}, {size}"


def _registry(root: ObjectStore) -> Told:
    registries.check(root)
    yield from ()


def _drops(root: ObjectStore, query: str) -> Told:
    drops.check(root, query)
    yield from ()


def _lost(store: TopicStore, parent: ObjectStore | None) -> Told:
    """What others tell of, and is not there."""
    if away := parents_away(store, parent):
        yield f"the checkpoints in {', '.join(map(str, away))} are not there, and are not checked"
    else:
        known = queries(store, parent)
        yield from (e for e in unknown(store, known, parent) if all(e is not q.torn for q in known))
    if store.root.path is None:
        names = [name for name, _ in store.root.list("topics")]
        yield from (lost_topic(store.root, *x) for x in lost(store.root, names))


def lost_topic(root: ObjectStore, name: str, identity: str) -> BraidError:
    what = f"{root}/names/{name} is missing, or is another one, and topics/{name}/{identity} has records"
    return BraidError(what, "put it back from a copy; it holds the topic's id and the number of partitions")


def _folders(place: ObjectStore) -> Told:
    """What lies among checkpoints of a folder and is none."""
    path = place.path or ""
    for entry in sorted(os.scandir(path), key=lambda e: e.name) if os.path.isdir(path) else ():
        name, path = entry.name, entry.path
        if UNFINISHED.search(name) or (name.startswith(".") and entry.is_file(follow_symlinks=False)):
            continue  # braid sweep; locks, and the names of files
        of = path.removesuffix(_NEXT).removesuffix(_FILES)
        if of != path and os.path.isdir(of):
            if name.endswith(_NEXT):
                yield f"query {os.path.basename(of)}: an upgrade of it did not come to its end; braid upgrade goes on"
        elif of != path or not entry.is_dir(follow_symlinks=False):
            hint = (
                f"put {os.path.basename(of)} back from a copy, or take it away; braid upgrade ends one that was begun"
            )
            yield BraidError(f"{path} is no checkpoint, and belongs to none that is there", hint)


_NEXT, _FILES = checkpoint.shadow(NOWHERE).url, reset_marker.FILES


def _query(store: TopicStore, folder: ObjectStore) -> Told:
    known = checkpoint.load(folder)
    there = {name.partition("/")[0] for name in folder.names("")} - {epoch.FOLDER}
    if known is None and there:  # else it was to begin
        what = f"{folder} is no checkpoint: it has {min(there)}, and no {checkpoint.NAME}"
        raise BraidError(what, "put it back from a copy, or take it away")
    if known is None or not checkpoint_paths.belongs(store.root, folder, known.store):
        return
    last = batches.last_batch(folder, known)
    yield f"query {folder.name}: {_reached(folder, last)}"
    yield from _torn(folder, last)
    yield from _logs(store.root, folder, known, last)
    if "topics" in known.settings:
        yield "  its topics in Kafka are not checked"
        return
    if known.writes() == (None, None):
        yield f"  {known.settings['sink']} is not checked"
    for check in (_inputs, _output):
        try:
            check(store, folder, known, last)
        except BraidError as e:
            yield e


def _runs(folder: ObjectStore, last: int | None) -> Iterator[tuple[str, str, int]]:
    """The runs of the state after a batch: their places and names, and how many rows each has."""
    for place, text in state_file.texts(folder, -1 if last is None else last).items():
        for run, rows, _ in state_file.runs_in(json.loads(text)):
            yield place, run, rows


def _reached(folder: ObjectStore, last: int | None) -> str:
    if last is None:
        return "no batch is finished"
    return f"finished batch {last}, keeps {_count(sum(rows for *_, rows in _runs(folder, last)), 'row')}"


def _torn(folder: ObjectStore, last: int | None) -> Iterator[BraidError]:
    for place, run, _ in _runs(folder, last):
        try:
            CheckpointRuns(folder, place).check(run)
        except BraidError as e:
            yield e


def _logs(root: ObjectStore, folder: ObjectStore, known: Document, last: int | None) -> Told:
    """What is only added to, and what is asked for."""
    checks: list[Callable[[], object]] = [
        partial(rescale.asked, folder, known.query),
        partial(_read_files, folder, known),
    ]
    checks += [partial(lineage.check_drops, folder, known.query, str(known.settings.get("run")), last, root)]
    for check in checks:
        try:
            check()
        except BraidError as e:
            yield e
    for spoilt in cause_log.read(folder, str(known.settings.get("run"))).spoilt:
        yield BraidError(spoilt, "nothing else needs it, and braid why does without: it may be removed")
    if last is not None and not offset_log.check(folder, last):
        why = "by an older version, or lines of the offset log are gone"
        yield f"  where its first batches ended is not kept ({why}): no upgrade"


def _read_files(folder: ObjectStore, known: Document) -> None:
    logs = [FileLog.open(log_path(folder, name), "") for name in known.files]
    Names(folder).check()
    reached, leaves = batches.reached(folder).planned, known.leaves()
    places = {place: n for place, n in reached["next"].items() if "topics" not in known.settings}
    rows = [n for place, n in places.items() if _topic_of(leaves, place) not in reached.get("seen", {})]
    if logs and rows:
        max(logs, key=lambda log: log.end).check(max(rows))


def _topic_of(leaves: Sequence[str], place: str) -> str:
    leaf, _, partition = place.partition("/")
    return f"{leaves[int(leaf)]}/{partition}"


def held_of(store: TopicStore, known: Document) -> Held | None:
    """What the output of a checkpoint holds, where it is a topic of the store or a folder."""
    topic, files = known.writes()
    run = str(known.settings.get("run"))
    if topic is not None:
        return Held(f"the topic {topic}", store.last_of(topic, run))
    return None if files is None else Held(files, results.last(files, run))


def _inputs(store: TopicStore, folder: ObjectStore, known: Document, last: int | None) -> None:
    held = held_of(store, known)
    lineage.check_inputs(folder, known.query, store, held is None or lineage.behind(last, held))


def _output(store: TopicStore, folder: ObjectStore, known: Document, last: int | None) -> None:
    _, files = known.writes()
    if files is not None and (wrong := results.spoilt(files, str(known.settings.get("run")))) is not None:
        raise BraidError(wrong, "put it back from a copy")
    if (held := held_of(store, known)) is not None:
        lineage.check_output(folder, last, held, lambda: None)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def amount(n: int) -> str:
    if n >= 1e10:
        return f"{n / 1e9:,.1f} GB"
    return f"{n / 1e6:,.1f} MB" if n >= 1e5 else _count(n, "byte")
