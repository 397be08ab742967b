"""`braid reset` and `braid rm`: a query that begins anew, a topic that goes.

In: a store that no run uses, a name. Out: what is removed: checkpoints, what they wrote, drops; lines that tell it.
Rule: nothing goes that another query reads or writes, unless that query begins anew too (`cascade`). All is looked at
before anything is removed; a topic goes before the checkpoint that wrote it, so that nothing is ever written twice.
A topic on a broker may have other readers: it goes only where that is said, and what the query left there with it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from braid.bind.program import first_match
from braid.dialects import DIALECTS
from braid.errors import BraidError
from braid.face.catalogue import Catalogue
from braid.face.show import folders, open_store
from braid.files import results as result_files
from braid.stage import checkpoint
from braid.topics import traces
from braid.topics.broker import Broker
from braid.topics.interface import open_topics
from braid.topics.kafka import KafkaTopics
from braid.topics.lock import StoreLock
from braid.topics.store import TopicStore


@dataclass(frozen=True, slots=True)
class Known:
    """A query that has run: `run` names this life of its checkpoint; `files`: the folder of its results, where they are
    no topic; `tasks`: how many wrote."""

    name: str
    folder: str
    run: str
    reads: frozenset[str]
    writes: str | None
    files: str | None
    tasks: int = 0
    on_broker: bool = False


def reset(
    store: str,
    query: str,
    parent: str | None = None,
    cascade: bool = False,
    broker: Broker | None = None,
    delete_topic: bool = False,
) -> Iterator[str]:
    """A query begins anew: its checkpoint, its output and its drops go. `parent`: the folder of checkpoints. `cascade`:
    so do those that read what it wrote, or write there too. `broker`: where its topics lie, if not in the store;
    `delete_topic`: that of its output goes there, too."""
    opened = open_store(store)
    if delete_topic and broker is None:
        raise BraidError("--delete-topic has no meaning without --kafka", "in the store the topic goes anyway")
    with StoreLock(opened.root):
        known = queries(opened, parent)
        found = first_match(query, known)
        if found is None:
            raise BraidError(f"no query {query} has run in {store}", f"queries: {', '.join(known) or 'none'}")
        with_it = _bound_to(found, known)
        if with_it and not cascade:
            told = "; ".join(f"{n} {_how(known[n], known[found])}" for n in with_it)
            hint = f"braid reset {found} --cascade resets {'it' if len(with_it) == 1 else 'them'} too"
            raise BraidError(f"{found} does not stand alone: {told}", hint)
        going = [known[n] for n in (found, *with_it)]
        for q in going:
            _check_alone(opened, q, {x.run for x in going})
            if broker is not None and not q.on_broker:
                raise BraidError(f"{q.name} has run without --kafka: its topics are those of the store", "leave it out")
        for q in going:
            if q.on_broker:
                yield from _leave_broker(q, broker, delete_topic)
            yield from _begin_anew(opened, q)


def remove_topic(store: str, topic: str, parent: str | None = None, broker: Broker | None = None) -> Iterator[str]:
    """A topic goes, and what is declared over it."""
    opened = open_store(store)
    topics = opened if broker is None else open_topics(store, broker)
    where = store if broker is None else broker.address
    with StoreLock(opened.root):
        found = first_match(topic, topics.names())
        if found is None:
            raise BraidError(f"no topic {topic} in {where}", f"topics: {', '.join(topics.names()) or 'none'}")
        known = queries(opened, parent)
        users = {n: q for n, q in known.items() if _uses(q, found) and q.on_broker == (broker is not None)}
        if users:
            told = (f"{n} {'writes' if q.writes == found else 'reads'} it" for n, q in users.items())
            hint = f"braid reset {next(iter(users))}" + (" --cascade" if len(users) > 1 else "")
            raise BraidError(f"{found} is in use: {', '.join(told)}", hint)
        topics.delete(found)
        yield f"removed topic {found}"
        for dialect in DIALECTS:
            catalogue = Catalogue(topics, dialect)
            sources = catalogue.program("once").catalog.sources
            gone = [d.name for d in sources.values() if d.topic == found]
            if gone:
                catalogue.gone(gone)
                yield f"removed {', '.join(gone)} from the catalogue ({dialect})"


def queries(store: TopicStore, parent: str | None = None) -> Mapping[str, Known]:
    """The queries that have checkpoints."""
    above = os.path.join(store.root, "checkpoints") if parent is None else os.path.abspath(parent)
    made: dict[str, Known] = {}
    for name in sorted(folders(above)):
        folder = os.path.join(above, name)
        document = checkpoint.load(folder)
        if document is not None:
            topic, files = document.writes()
            reads = frozenset(t for t, _ in document.sources)
            run, on_broker = str(document.settings.get("run")), "topics" in document.settings
            made[name] = Known(name, folder, run, reads, topic, files, document.shuffle, on_broker)
    return made


def _bound_to(name: str, known: Mapping[str, Known]) -> list[str]:
    """The queries that cannot stay as they are when this one begins anew."""
    found, todo = [name], [name]
    while todo:
        at = known[todo.pop()].writes
        more = [n for n, q in known.items() if at is not None and n not in found and _uses(q, at)]
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
    others = [run for run in store.topic(q.writes).view().queries if run not in runs]
    if others:
        said = all(o.startswith(("insert-", "insert.")) for o in others)
        what = "INSERT statements" if said else ", ".join(sorted(others))
        hint = f"its records would be lost; to have it so: braid rm {q.writes} after removing {q.folder}"
        raise BraidError(f"{q.writes} holds more than {q.name} wrote: {what}", hint)


def _leave_broker(q: Known, broker: Broker | None, delete_topic: bool) -> Iterator[str]:
    """What a query left at its broker, as far as it is named."""
    stays = f"{q.name}: its topic {q.writes} in Kafka stays as it is, and gets all results once more"
    if broker is None:
        yield f"{q.name}: its groups in Kafka stay, and what its tasks had begun; --kafka HOST:PORT ends both"
    else:
        for group in traces.remove(broker, q.name, q.run, q.tasks):
            yield f"{q.name}: removed the group {group} in Kafka"
        topics = KafkaTopics(os.curdir, broker)
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
    if q.files is not None and result_files.remove(q.files, q.run):
        yield f"{q.name}: removed the results in {q.files}"
    drops = os.path.join(store.root, "drops", q.name)
    for path in (drops, f"{q.folder}.files", q.folder):
        shutil.rmtree(path, ignore_errors=True)
    yield f"{q.name}: removed its checkpoint and drops; it begins anew"
