"""Queries that have run, as far as their checkpoints say; how one of them starts again, step by step, behind a marker.

In: the folder of a checkpoint. Out: what the query reads, wrote and was called; a mark that it is to begin anew; the
folder, gone.
Rule: the mark comes before the first thing that is taken away, and goes with the checkpoint, at once, after the last.
So a query that is half taken away neither goes on nor begins: `load` refuses it until the rest is done, by what the
mark says. A checkpoint that cannot be read tells nothing but its name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from braid.errors import BraidError
from braid.stage import checkpoint, epoch, state_file
from braid.store import ObjectStore
from braid.topics import checkpoint_paths
from braid.topics.files import items, members, parsed, reach, text, whole, why
from braid.topics.sealed import sealed, unsealed

FILES = ".files"  # beside a checkpoint: copies of files that its query reads


@dataclass(frozen=True, slots=True)
class Known:
    """`run` names this life of its checkpoint; `files`: the folder of its results, where they are no topic; `tasks`:
    how many wrote; `torn`: why its checkpoint cannot be read; `marked`: it is to begin anew, and that did not end."""

    name: str
    folder: ObjectStore
    run: str
    reads: frozenset[str] = frozenset()
    writes: str | None = None
    files: str | None = None
    tasks: int = 0
    on_broker: bool = False
    torn: BraidError | None = None
    marked: bool = False


def of(folder: ObjectStore, root: ObjectStore) -> Known | None:
    """The query of a checkpoint of this store; None where there is none, or of another store."""
    name = folder.name
    try:
        return _marked(folder) or _recorded(folder, root)
    except (ValueError, KeyError) as e:
        what = f"{folder}/{checkpoint.RESET} cannot be read: {why(e)}"
        return Known(name, folder, "", torn=BraidError(what, "put it back from a copy"), marked=True)
    except BraidError as e:
        return Known(name, folder, "", torn=e)


def _recorded(folder: ObjectStore, root: ObjectStore) -> Known | None:
    document = checkpoint.load(folder)
    if document is None or not checkpoint_paths.belongs(root, folder, document.store):
        return None
    topic, files = document.writes()
    reads = frozenset((*(t for t, _ in document.sources), *document.leaves()))
    run, on_broker = str(document.settings.get("run")), "topics" in document.settings
    return Known(folder.name, folder, run, reads, topic, files, document.shuffle, on_broker)


def _marked(folder: ObjectStore) -> Known | None:
    try:
        x = members(parsed(unsealed(folder.get(checkpoint.RESET))))
    except FileNotFoundError:
        return None
    name = folder.name
    if x.get("query", name) != name:
        raise ValueError(f"it is of the query {x['query']!r:.100}")
    return Known(
        name=name,
        folder=folder,
        run=text(x["run"], "run"),
        reads=frozenset(text(t, "a topic") for t in items(x["reads"], "reads")),
        writes=_text_or_none(x["writes"]),
        files=_text_or_none(x["files"]),
        tasks=whole(x["tasks"], "tasks"),
        on_broker=x["on_broker"] is True,
        marked=True,
    )


def _text_or_none(x: Any) -> str | None:
    return None if x is None else text(x, "a name")


def is_life(run: str, query: str) -> bool:
    """Whether a run is one life of a query: it, or one that it has taken the place of."""
    return re.fullmatch(re.escape(query) + "-[0-9a-f]{14}", run) is not None


def mark(q: Known) -> None:
    """From here on the query does not go on."""
    epoch.fence(q.folder)
    if not q.marked:
        said = {"query": q.name, "run": q.run, "reads": sorted(q.reads), "writes": q.writes, "files": q.files}
        data = json.dumps(said | {"tasks": q.tasks, "on_broker": q.on_broker}, indent=1).encode()
        q.folder.write(checkpoint.RESET, sealed(data))
    reach("query marked")


def abandon(folder: ObjectStore) -> None:
    """What was worked out beside a checkpoint goes."""
    new = checkpoint.shadow(folder)
    new.beside(FILES).clear()
    new.clear(checkpoint.READY)


def remove(folder: ObjectStore) -> None:
    """A checkpoint is gone, with all that lies beside it; its mark goes last."""
    folder.beside(FILES).clear()
    reach("copies removed")
    folder.clear(checkpoint.RESET)
    reach("checkpoint removed")
    state_file.forgotten()
    folder.parent.sweep()
