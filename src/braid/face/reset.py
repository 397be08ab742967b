"""`braid reset` and `braid rm`: a query that begins anew, a topic that goes.

In: a store that no run uses, a name. Out: what is removed: checkpoints, what they wrote, drops; lines that tell it.
Rule: nothing goes that another query reads or writes, unless that query begins anew too (`cascade`). All is looked at
before anything is removed; a topic goes before the checkpoint that wrote it, so that nothing is ever written twice.
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
from braid.topics.lock import StoreLock
from braid.topics.store import TopicStore


@dataclass(frozen=True, slots=True)
class Known:
    """A query that has run: `run` names this life of its checkpoint; `files`: the folder of its results, where they are
    no topic."""

    name: str
    folder: str
    run: str
    reads: frozenset[str]
    writes: str | None
    files: str | None
    on_broker: bool = False


def reset(store: str, query: str, parent: str | None = None, cascade: bool = False) -> Iterator[str]:
    """A query begins anew: its checkpoint, its output and its drops go. `parent`: the folder of checkpoints. `cascade`:
    so do those that read what it wrote, or write there too."""
    opened = open_store(store)
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
        for q in going:
            yield from _begin_anew(opened, q)


def remove_topic(store: str, topic: str, parent: str | None = None) -> Iterator[str]:
    """A topic goes, and what is declared over it."""
    opened = open_store(store)
    with StoreLock(opened.root):
        found = first_match(topic, opened.names())
        if found is None:
            raise BraidError(f"no topic {topic} in {store}", f"topics: {', '.join(opened.names()) or 'none'}")
        known = queries(opened, parent)
        users = [f"{n} {'writes' if q.writes == found else 'reads'} it" for n, q in known.items() if _uses(q, found)]
        if users:
            names = [n for n, q in known.items() if _uses(q, found)]
            hint = f"braid reset {names[0]}" + (" --cascade" if len(names) > 1 else "")
            raise BraidError(f"{found} is in use: {', '.join(users)}", hint)
        opened.delete(found)
        yield f"removed topic {found}"
        for dialect in DIALECTS:
            catalogue = Catalogue(opened, dialect)
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
            made[name] = Known(name, folder, run, reads, topic, files, on_broker)
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
        what = "INSERT statements" if all(o.startswith("insert-") for o in others) else ", ".join(sorted(others))
        hint = f"its records would be lost; to have it so: braid rm {q.writes} after removing {q.folder}"
        raise BraidError(f"{q.writes} holds more than {q.name} wrote: {what}", hint)


def _begin_anew(store: TopicStore, q: Known) -> Iterator[str]:
    if q.writes is not None and q.on_broker:
        yield f"{q.name}: its topic {q.writes} in Kafka stays as it is, and gets all results once more"
    elif q.writes is not None and store.exists(q.writes):
        store.delete(q.writes)
        yield f"{q.name}: removed topic {q.writes}"
    if q.files is not None and result_files.remove(q.files, q.run):
        yield f"{q.name}: removed the results in {q.files}"
    drops = os.path.join(store.root, "drops", q.name)
    for path in (drops, f"{q.folder}.files", q.folder):
        shutil.rmtree(path, ignore_errors=True)
    yield f"{q.name}: removed its checkpoint and drops; it begins anew"
