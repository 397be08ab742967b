"""The checkpoint that was computed beside another takes its place (`face/upgrade.py`).

In: the folder of the one that stands, the store of its output. Out: the other under its name.
Rule: a mark in the new one says that it is whole; from there on the old one does not go on (`checkpoint.load`), and all
that follows is done, or done again, until it is finished. What stands in the topic of a table is put right; the new one
takes over the old one's name as a writer, with the last batch that it wrote: so to every output it is the same writer,
whose next batch comes. Then the old one goes, and the new one gets its name by a rename.
"""

from __future__ import annotations

import contextlib
import os

from braid.errors import BraidError
from braid.stage import checkpoint, reset_marker, ring, state_file, table_diff
from braid.stage.state_file import Tie
from braid.store import ObjectStore
from braid.topics.files import reach
from braid.topics.interface import Topics
from braid.topics.store import TopicStore


def swap_in(folder: ObjectStore, store: Topics) -> int:
    """The checkpoint beside this one takes its place; how many records that took."""
    new = checkpoint.shadow(folder)
    new.write(checkpoint.READY, b"")
    reach("upgrade is ready")
    return _carry_out(folder, store)


def ends(folder: ObjectStore, store: Topics) -> bool:
    """Does the rest of what was begun; False where nothing was."""
    _tidy(folder)
    if not checkpoint.shadow(folder).has(checkpoint.READY):
        return False
    _carry_out(folder, store)
    return True


def _carry_out(folder: ObjectStore, store: Topics) -> int:
    new, count = checkpoint.shadow(folder), 0
    if folder.names(""):
        count = _succeeded(folder, new, store)
        reach("writer taken over")
        with contextlib.suppress(OSError):  # there is none, or it went before a kill: no upgrade fails by it
            os.rename(folder.at(ring.FOLDER).url, new.at(ring.FOLDER).url)
        reset_marker.remove(folder)
    with contextlib.suppress(FileNotFoundError):
        os.rename(new.beside(reset_marker.FILES).url, folder.beside(reset_marker.FILES).url)
    os.rename(new.url, folder.url)
    reach("upgraded")
    folder.parent.sweep()
    _tidy(folder)
    return count


def _succeeded(folder: ObjectStore, new: ObjectStore, store: Topics) -> int:
    """The new one is the old one to all that it has written."""
    old, known = checkpoint.recorded(folder), checkpoint.recorded(new)
    if old is None or known is None:
        raise BraidError(f"{new if known is None else folder} has no {checkpoint.NAME}", "put it back from a copy")
    run, own = (str(x.settings["run"]) for x in (old, known))
    if run == own:
        return 0
    topic, count = known.writes()[0], 0
    if topic is not None and isinstance(store, TopicStore) and new.names(table_diff.RESULT):
        count = table_diff.apply_diff(store, table_diff.shadow_topics(new), topic, own)
    last, state = state_file.latest(new)
    tie, before = state_file.tie(new, last), state_file.tie(folder, last)
    if tie is not None and before is not None:
        tie = Tie(tie.digest, before.written, before.identity, before.dropped)
    state_file.replace(new, last, state, tie, state_file.reads(new, last), known.buckets)
    reach("last batch taken over")
    checkpoint.as_run(new, known, run)
    return count


def _tidy(folder: ObjectStore) -> None:
    """What is left of an upgrade that is done."""
    if folder.has(checkpoint.READY):
        folder.at(table_diff.RESULT).clear()
        folder.delete(checkpoint.READY)
