"""Lineage: what ties a checkpoint to the records that it has read, its state, and what it has written.

In: a checkpoint that has been looked through (`batches.last_batch`), the topics it reads, the last batch that its
output holds. Out: nothing, or an error that names what does not belong together.
Rule: all are of one history, or the query does not start; nothing has been written by then. What a batch reads is
known by the digest of its offsets, and these hold the checksum of all records before them (`topics/prefix.py`): two
batches of one digest come from the same records, so their states and all that was written up to them are the same.
The state of a batch stands beside its offsets, and each commit of an output names their digest. Older versions
recorded none of it; then numbers alone are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from braid.errors import BraidError, anew
from braid.stage import batches, state_file
from braid.stage.reset_marker import is_life
from braid.store import ObjectStore
from braid.topics import drops, registered
from braid.topics.interface import Topics
from braid.topics.view import Written


@dataclass(frozen=True, slots=True)
class Held:
    """An output, as people call it, and the last batch that it holds. `identity`: which table it is, in words, empty
    where nothing tells; `adopted`: one that moved is taken as it stands."""

    target: str
    last: Written | None
    identity: str = ""
    adopted: bool = False


def check(
    folder: ObjectStore,
    query: str,
    last: int | None,
    topics: Topics,
    held: Held | None,
    would_read: Callable[[], str | None] | None = None,
) -> bool:
    """All of it. `last`: the last batch that was committed; `held`: None where the output cannot tell;
    `would_read`: the digest of the batch behind the last, if it was not begun and were planned now; where nobody
    asks, it is the right one. False where a batch was begun over records that are not there, and nobody has seen
    it."""
    if held is not None:
        check_output(folder, last, held, would_read)
        if not held.adopted and (known := moved(folder, last, held)):
            what = f"{held.target} is not the table that was written: it is {held.identity}, and was {known}"
            hint = "it was dropped and made again, or put back: put it back from a copy of the checkpoint's moment, and"
            hint = f"{hint} --adopt-table takes it, as it does one that has moved; or {anew(folder.name)}"
            raise BraidError(what, hint)
    return check_inputs(folder, query, topics, held is None or behind(last, held))


def moved(folder: ObjectStore, last: int | None, held: Held) -> str:
    """Which table it was that was written; empty where it is the same, or nothing tells, or nothing was written."""
    tie = None if last is None else state_file.tie(folder, last)
    if tie is None or tie.written is None or not held.identity or tie.identity == held.identity:
        return ""
    return tie.identity


def adopt(folder: ObjectStore, last: int, held: Held, buckets: int) -> None:
    """From now on the checkpoint knows the table that is there as its own."""
    tie = state_file.tie(folder, last)
    if tie is not None:
        state, reads = state_file.load(folder, last), state_file.reads(folder, last)
        state_file.replace(folder, last, state, replace(tie, identity=held.identity), reads, buckets)


def behind(last: int | None, held: Held) -> bool:
    """Whether the output holds the batch behind the last that was committed."""
    return held.last is not None and held.last.batch == _next(last)


def _next(last: int | None) -> int:
    return 0 if last is None else last + 1


def check_new(folder: ObjectStore, query: str, topic: str, topics: Topics) -> None:
    """A query without a checkpoint has not written yet: its rows would come once more."""
    if any(is_life(run, query) for run in topics.once(topic)):
        what = f"the topic {topic} holds what {query} wrote, and its checkpoint {folder} is gone"
        raise BraidError(what, f"put it back from a copy; or braid rm {topic} lets {query} begin again")


def check_inputs(folder: ObjectStore, query: str, topics: Topics, seen: bool) -> bool:
    """The topics hold the records that were read, and in their places. False where that is only not so of the batch
    behind the last. `seen`: that one may have been written."""
    reached, hint = batches.reached(folder), _together(folder)
    check_seen(reached.committed.get("seen", {}), query, topics, hint)
    try:
        check_seen(reached.planned.get("seen", {}), query, topics, hint)
    except BraidError:
        if seen:
            raise
        return False
    return True


def check_drops(folder: ObjectStore, query: str, run: str, last: int | None, root: ObjectStore) -> None:
    """The files are there of all batches that have dropped something. A start does not ask: nothing it writes needs
    them, and who deletes old ones may do so."""
    tie = None if last is None else state_file.tie(folder, last)
    if last is None or tie is None or tie.dropped is None:
        return
    there = {batch for batch in drops.batches(root, query, run) if batch <= last}
    if len(there) < tie.dropped:
        where = f"{root}/drops/{query} has files of {len(there)}"
        what = f"{tie.dropped} batches of {query} have dropped rows, and {where}"
        raise BraidError(what, "put the others back from a copy; a run goes on without them")


def check_seen(seen: Mapping[str, Sequence[int]], query: str, topics: Topics, hint: str) -> None:
    """The same of what an offset document tells."""
    names = {*topics.names()} if seen else set[str]()
    for place, (end, crc) in sorted(seen.items()):
        name, _, number = place.rpartition("/")
        partition, there = int(number), name in names
        if registered.is_registered(name):
            _check_frame(topics.root, name, partition, (end, crc), query)
            continue
        if there and topics.checksum(name, partition, end) == crc:
            continue
        at = f"partition {partition} of the topic {name}"
        ends = topics.end_offsets(name) if there else []
        starts = topics.start_offsets(name) if there else []
        if partition >= len(ends):
            what = f"{at} is not there, and {query} has read up to {end}"
        elif ends[partition] < end:
            what = f"{at} ends at {ends[partition]}, and {query} has read up to {end}"
        elif starts[partition] > end:
            what = f"{at} begins at {starts[partition]}, and {query} has read up to {end}: those between are gone"
        elif topics.checksum(name, partition, end) is None:
            what = f"{at} was compacted, and {query} has read up to {end}: those behind that are not what they were"
        else:
            what = f"{at} holds other records than those that {query} has read: the first {end} were changed"
        raise BraidError(f"{what}; it was created again, or put back from another copy", hint)


def _check_frame(root: ObjectStore, topic: str, partition: int, seen: tuple[int, int], query: str) -> None:
    """A registered DataFrame has the pieces that were read."""
    found, name = registered.read(root, registered.name_of(topic)), registered.name_of(topic)
    if found is None:
        what = f"the DataFrame {name} is not there, and {query} has read it"
        raise BraidError(what, f"put it back from a copy; or {anew(query)}")
    if registered.checksum(found, partition, seen[0]) != seen[1]:
        what = f"the DataFrame {name} has other rows than those that {query} has read: the first {seen[0]} were changed"
        raise BraidError(what, f"put it back from a copy; or {anew(query)}")


def check_output(
    folder: ObjectStore, last: int | None, output: Held, would_read: Callable[[], str | None] | None = None
) -> None:
    """The output holds what was written by the last batch that wrote, and no later one; the batch behind the last may
    be there."""
    target, held, begun = output.target, output.last, _next(last)
    tie = None if last is None else state_file.tie(folder, last)
    if held is not None and held.batch == begun:
        digest = _digest(folder, begun)
        if digest is not None and held.digest not in ("", digest):
            raise _other(folder, begun, target)
        if digest is not None or would_read is None or held.digest == would_read():
            return
    if tie is None and last is not None:  # of a version that did not record what was written
        if held is not None and held.batch > last:
            raise _older(folder, last, target, held)
        return
    wrote = None if tie is None else tie.written
    if held == wrote or (held is not None and wrote is not None and held == (wrote.batch, "")):
        return
    if held is not None and (wrote is None or held.batch > wrote.batch):
        raise _older(folder, last, target, held)
    assert wrote is not None
    if held is not None and held.batch == wrote.batch:
        raise _other(folder, held.batch, target)
    there = "nothing of this query" if held is None else f"no batch behind {held.batch}"
    what = f"{target} is older than the checkpoint {folder}: it holds {there}, and batch {wrote.batch} was written"
    raise BraidError(f"{what}; it was removed, or is of another copy", _together(folder))


def _digest(folder: ObjectStore, batch: int) -> str | None:
    """Of what a batch reads; None where it was not begun, or is not kept any more."""
    return batches.digest(folder, batch)


def _older(folder: ObjectStore, last: int | None, target: str, held: Written) -> BraidError:
    ends = "before its first batch" if last is None else f"with batch {last}"
    what = f"the checkpoint {folder} is older than {target}: it ends {ends}, and batch {held.batch} is there"
    return BraidError(what, _together(folder))


def _other(folder: ObjectStore, batch: int, target: str) -> BraidError:
    what = f"batch {batch} in {target} was made of other records than in the checkpoint {folder}"
    return BraidError(what, _together(folder))


def _together(folder: ObjectStore) -> str:
    return f"put store, checkpoint and output back from one copy; or {anew(folder.name)}"
