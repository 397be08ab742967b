"""`braid reset` and `braid rm`: a query that starts again from its beginning, a topic that is removed.

In: a store that no run uses, a name. Out: what is removed: checkpoints, what they wrote, drops; lines that report it.
Rule: nothing is removed that another query reads or writes, unless that query starts again too (`cascade`). All is
checked before anything is removed. Then all that start again are marked, and each is removed by itself: its topic
before its checkpoint, so that nothing is ever written twice. A command that is stopped in between leaves marks, and the
same command does the rest (`stage/reset_marker.py`). A topic on a broker may have other readers: it is removed only on
request, and what the query left there with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from braid.bind.dialects import DIALECTS
from braid.bind.program import first_match
from braid.errors import BraidError
from braid.face.catalogue import Catalogue
from braid.face.show import folders, open_store
from braid.files import results as result_files
from braid.stage import reset_marker
from braid.stage.reset_marker import Known
from braid.store import ObjectStore
from braid.topics import broker_leftovers, checkpoint_paths, registered, retention
from braid.topics.drops import forget_drops
from braid.topics.files import reach
from braid.topics.interface import Topics, open_topics
from braid.topics.lock import StoreLock
from braid.topics.retention import Retention
from braid.topics.store import TopicStore
from braid.topics.store_value import Store


def reset(
    store: Store,
    query: str,
    parent: ObjectStore | None = None,
    cascade: bool = False,
    delete_topic: bool = False,
) -> Iterator[str]:
    """A query begins anew: its checkpoint, its output and its drops go. `parent`: the folder of its checkpoint.
    `cascade`: so do those that read what it wrote, or write there too; `delete_topic`: the topic of its output goes on
    the broker, too."""
    opened = open_store(store.objects)
    if delete_topic and not store.in_kafka:
        raise BraidError("--delete-topic has no meaning without --kafka", "in the store the topic goes anyway")
    with StoreLock(opened.root):
        going = to_begin_anew(opened, query, store.objects, parent, cascade, store)
        yield from begin_anew(opened, going, store, delete_topic)


def to_begin_anew(
    opened: TopicStore,
    query: str,
    where: object,
    parent: ObjectStore | None = None,
    cascade: bool = False,
    store: Store | None = None,
    command: str = "reset",
) -> list[Known]:
    """The query, and with `cascade` those that cannot stay as they are; refused where they may not go. Nothing is
    changed. Its caller has the store's lock. `where`: the store, as people name it; `store`: that of its topics."""
    for place in parents_of(opened, parent):
        place.sweep()
    known = queries(opened, parent)
    found = named(query, known, where, parent)
    with_it = _bound_to(found, known)
    if with_it and not cascade:
        told = "; ".join(f"{q.name} {_how(q, found)}" for q in with_it)
        hint = f"braid {command} {found.name} --cascade {command}s {'it' if len(with_it) == 1 else 'them'} too"
        raise BraidError(f"{found.name} is bound to other queries: {told}", hint)
    going = [found, *with_it]
    for q in going:
        _check_alone(opened, q, {x.run for x in going})
        if store is not None and store.in_kafka and not q.on_broker:
            raise BraidError(f"{q.name} has run without --kafka: its topics are those of the store", "leave it out")
    return going


def begin_anew(opened: TopicStore, going: Sequence[Known], store: Store, delete_topic: bool = False) -> Iterator[str]:
    """All of them begin anew (`to_begin_anew`); none of them runs."""
    for q in going:
        reset_marker.mark(q)
    for q in going:
        if q.on_broker:
            yield from _leave_broker(q, store, delete_topic)
        for dialect in DIALECTS:
            Catalogue(opened, dialect).begin_anew(q.name)
        yield from _begin_anew(opened, q)


def named(query: str, known: Sequence[Known], store: object, parent: ObjectStore | None) -> Known:
    """The query of this name. Of others none may be unreadable: it might lean on this one."""
    here = [q for q in known if parent is None or q.folder.parent == parent]
    name = first_match(query, dict.fromkeys(q.name for q in here))
    found = [q for q in here if q.name == name]
    if not found:
        shown = ", ".join(q.name for q in here) or "none"
        raise BraidError(f"no query {query} has run in {store}", f"queries: {shown}")
    if len(found) > 1:
        places = " and ".join(str(q.folder.parent) for q in found)
        raise BraidError(f"{name} has checkpoints in {places}", "name one of the folders: --checkpoint DIR")
    refuse_torn(q for q in known if q is not found[0])
    return found[0]


def refuse_torn(known: Iterable[Known]) -> None:
    """What cannot be read may need anything."""
    for q in known:
        if q.torn is not None:
            raise q.torn


def remove_topic(store: Store, topic: str, parent: ObjectStore | None = None) -> Iterator[str]:
    """A topic goes, and what is declared over it."""
    opened = open_store(store.objects)
    topics = open_topics(store) if store.in_kafka else opened
    with StoreLock(opened.root):
        yield from topic_gone(opened, topics, topic, store, parent)


def topic_gone(
    opened: TopicStore, topics: Topics, topic: str, where: object, parent: ObjectStore | None = None
) -> Iterator[str]:
    """The same, or a registered DataFrame; its caller has the store's lock."""
    frames = registered.names(opened.root)
    found = first_match(topic, topics.names())
    if found is None and (frame := first_match(registered.name_of(topic), frames)) is not None:
        yield from _frame_gone(opened, frame, parent)
        return
    if found is None:
        known_by = f"; DataFrames: {', '.join(frames)}" if frames else ""
        raise BraidError(f"no topic {topic} in {where}", f"topics: {', '.join(topics.names()) or 'none'}{known_by}")
    known = queries(opened, parent)
    refuse_torn(known)
    here = topics is opened or isinstance(topics, TopicStore)
    _refuse_used(found, [q for q in known if _uses(q, found) and q.on_broker != here])
    for dialect in DIALECTS:  # first, since who is stopped asks again for a topic that is there
        catalogue = Catalogue(topics, dialect)
        sources = catalogue.program("once").catalog.sources
        gone = [d.name for d in sources.values() if d.topic == found]
        if gone:
            catalogue.gone(gone)
            yield f"removed {', '.join(gone)} from the catalogue ({dialect})"
    if here:
        retention.want(opened.root, found, Retention())
    topics.delete(found)
    yield f"removed topic {found}"


def _refuse_used(found: str, users: Sequence[Known]) -> None:
    if users:
        told = (f"{q.name} {'writes' if q.writes == found else 'reads'} it" for q in users)
        hint = f"braid reset {users[0].name}" + (" --cascade" if len(users) > 1 else "")
        raise BraidError(f"{found} is in use: {', '.join(told)}", hint)


def _frame_gone(opened: TopicStore, name: str, parent: ObjectStore | None) -> Iterator[str]:
    known = queries(opened, parent)
    refuse_torn(known)
    _refuse_used(name, readers_of(opened, name, known))
    registered.remove(opened.root, name)
    yield f"removed the DataFrame {name}"


def readers_of(opened: TopicStore, name: str, known: Sequence[Known] | None = None) -> list[Known]:
    """The queries that have read a registered DataFrame."""
    return [q for q in (queries(opened) if known is None else known) if f"{registered.PREFIX}{name}" in q.reads]


def queries(store: TopicStore, parent: ObjectStore | None = None) -> list[Known]:
    """The queries that have checkpoints: in the store, where it knows of others, and in `parent`."""
    found = (reset_marker.of(folder, store.root) for folder in folders_of_checkpoints(store, parent))
    return [_guessed(store, q) if q.torn is not None else q for q in found if q is not None]


def unknown(store: TopicStore, known: Sequence[Known], parent: ObjectStore | None = None) -> Iterator[BraidError]:
    """Why it cannot be told what is read: checkpoints that cannot be read, or are not there."""
    yield from (q.torn for q in known if q.torn is not None)
    away = parents_away(store, parent)
    for place in away:
        hint = "mount it, or put it back; where its queries are gone for good, an empty folder says so"
        yield BraidError(f"the checkpoints in {place} are not there", hint)
    names = {folder.name for folder in folders_of_checkpoints(store, parent)}
    for topic in () if away else store.names():
        try:
            lives = [_LIFE.fullmatch(run) for run in store.topic(topic).view().queries]
        except BraidError:  # whoever reads it is told
            continue
        for query in sorted({m["query"] for m in lives if m is not None} - names):
            names.add(query)
            hint = "put it back from a copy, or store.json, which knows where others lie; or name it: --checkpoint DIR"
            yield BraidError(f"{topic} holds what {query} wrote, and no checkpoint of {query} is known", hint)


def parents_away(store: TopicStore, parent: ObjectStore | None = None) -> list[ObjectStore]:
    """Folders of checkpoints that the store knows of, and that are not there."""
    return [p for p in parents_of(store, parent)[1:] if p.path is not None and not os.path.isdir(p.path)]


_LIFE = re.compile("(?P<query>.+)-[0-9a-f]{14}")  # of a query; see `begun.is_life`


def folders_of_checkpoints(store: TopicStore, parent: ObjectStore | None = None) -> list[ObjectStore]:
    """One for each query that has run, and those of other stores that lie beside them."""
    return [p.at(name) for p in parents_of(store, parent) for name in sorted(folders(p))]


def parents_of(store: TopicStore, parent: ObjectStore | None) -> list[ObjectStore]:
    """Where checkpoints are: those places that the store knows of, and `parent`."""
    return list(dict.fromkeys([*checkpoint_paths.parents(store.root), *([parent] if parent else [])]))


def _guessed(store: TopicStore, q: Known) -> Known:
    """What a query wrote whose checkpoint cannot be read, as its commits tell it: the last that bear its name."""
    lives = (
        (run, t) for t in store.names() for run in store.topic(t).view().queries if reset_marker.is_life(run, q.name)
    )
    run, topic = max(lives, default=("", None))
    return replace(q, run=run, writes=topic)


def _bound_to(first: Known, known: Sequence[Known]) -> list[Known]:
    """The queries that cannot stay as they are when this one begins anew."""
    found, todo = [first], [first]
    while todo:
        at = todo.pop().writes
        more = [q for q in known if at is not None and q not in found and _uses(q, at)]
        found += more
        todo += more
    return found[1:]


def _uses(q: Known, topic: str) -> bool:
    return topic == q.writes or topic in q.reads


def _how(q: Known, first: Known) -> str:
    if first.writes is not None and first.writes in q.reads:
        return f"reads {first.writes}"
    return f"writes {first.writes} too" if q.writes == first.writes else "reads what comes of it"


def _check_alone(store: TopicStore, q: Known, runs: Collection[str]) -> None:
    """Whether all that the output holds was written by queries that begin anew."""
    if q.writes is None or q.on_broker or not store.exists(q.writes):
        return
    try:
        queries = store.topic(q.writes).view().queries
    except BraidError:
        if not store.exists(q.writes):  # its end was begun, and who looked has done the rest
            return
        raise
    others = [run for run in queries if run not in runs and not reset_marker.is_life(run, q.name)]
    if others:
        said = all(o.startswith(("insert-", "insert.")) for o in others)
        what = "INSERT statements" if said else ", ".join(sorted(others))
        hint = f"its records would be lost; to have it so: braid rm {q.writes} after removing {q.folder}"
        raise BraidError(f"{q.writes} holds more than {q.name} wrote: {what}", hint)


def _leave_broker(q: Known, store: Store, delete_topic: bool) -> Iterator[str]:
    """What a query left at its broker, as far as it is named."""
    stays = f"{q.name}: its topic {q.writes} in Kafka stays as it is, and gets all results once more"
    if (broker := store.broker) is None:
        yield f"{q.name}: its groups in Kafka stay, and what its tasks had begun; --kafka HOST:PORT ends both"
    else:
        topics = open_topics(store)
        for group in broker_leftovers.remove(broker, q.name, q.run, q.tasks):
            yield f"{q.name}: removed the group {group} in Kafka"
        if delete_topic and q.writes is not None:
            if topics.exists(q.writes):
                topics.delete(q.writes)
                yield f"{q.name}: removed the topic {q.writes} in Kafka"
            return
        stays += "; --delete-topic removes it"
    if q.writes is not None:
        yield stays


def _begin_anew(store: TopicStore, q: Known) -> Iterator[str]:
    if q.writes is not None and not q.on_broker and store.exists(q.writes):
        store.delete(q.writes)
        yield f"{q.name}: removed topic {q.writes}"
    reach("output removed")
    if q.files is not None and result_files.remove(q.files, q.run):
        yield f"{q.name}: removed the results in {q.files}"
    reach("results removed")
    forget_drops(store.root, q.name)
    reach("drops removed")
    reset_marker.abandon(q.folder)
    reset_marker.remove(q.folder)
    if q.torn is not None and q.writes is None:
        yield f"{q.name}: where it wrote to is not known any more, and what is there stays"
    yield f"{q.name}: removed its checkpoint and drops; it begins again"
