"""The batches of a query: which is the last that is done, whether one was begun behind it, and what each reads.

In: the folder of a checkpoint, looked at before anything is started, or while a batch is under way. Out: numbers; the
documents that our source wrote for a batch, and their digests; or an error.
Rule: all that a start needs is ours; Spark's own checkpoint is laid out from it, in a folder that goes with the process
(`spark/scratch.py`). What a batch reads is kept with its state (`state_file.py`), which is there before the batch is
published; so one that nobody can have seen may be planned anew, and any other reads the same again. Where results are
written before that, or lie outside of the store, what the batch reads is forced to disk before it begins.

  state/BATCH.json      of a batch that has run: what it read, and the state behind it
  state/published       the last batch that is visible. Where it is lost, the newest is done again, and found done
  planned.json          what a batch reads that may be written before its state is there

A file that a kill left behind beyond the last batch belongs to one that is done again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from braid.errors import BraidError, anew
from braid.stage import state_file
from braid.stage.checkpoint import NAME, RESCALE, Document
from braid.store import ObjectStore
from braid.topics.files import is_name, items, members, parsed, text, whole, why

PLANNED = "planned.json"
SPARK = "spark"  # Spark's own checkpoint in that of a query over DataFrames
NOTHING = "-"  # a line of a source that reads nothing
_PLACE, _NUMBER = re.compile("[0-9]{1,9}/[0-9]{1,9}"), re.compile("[0-9]{1,9}")
_BEGINNING: Mapping[str, Any] = {"next": {}, "ended": []}


def last_batch(folder: ObjectStore, known: Document) -> int | None:
    """The last batch that is done; None where none is. A torn or missing file is refused."""
    try:
        last = _last(folder)
        done, behind = _reads_around(folder, last)
        for number, lines in ((last, done), (_next(last), behind)):
            if number is not None and lines is not None:
                _check(_path(folder, number), lines, known.fingerprint)
        if last is not None:
            state_file.check(folder, last)
            _check_spread(folder, last, known)
    except BraidError as e:
        raise BraidError(e.message, f"put it back from a copy; or {anew(folder.name)}") from e
    return last


def _last(folder: ObjectStore) -> int | None:
    states, planned, said = state_file.batches(folder), _planned(folder), state_file.published(folder)
    newest = states[-1] if states else -1
    last = newest if newest == said else newest - 1
    if newest < said or (last >= 0 and last not in states):
        missing = state_file.path_of(folder, max(said, last))
        raise _damaged(missing, f"it is missing; batch {max(newest, said)} has run")
    if planned is not None and planned[0] > newest + 1:
        missing = state_file.path_of(folder, planned[0] - 1)
        raise _damaged(missing, f"it is missing; batch {planned[0]} was begun")
    return last if last >= 0 else None


def _next(last: int | None) -> int:
    return 0 if last is None else last + 1


def seen(folder: ObjectStore) -> object:
    """What a start goes by; another value where another driver has gone on meanwhile."""
    try:
        document: bytes | None = folder.get(NAME)
    except FileNotFoundError:
        document = None
    return document, state_file.batches(folder), state_file.published(folder)


def begun(folder: ObjectStore) -> bool:
    """Whether a batch was begun behind the last that is done, and may have been written."""
    return _reads_or_none(folder, _next(_last(folder))) is not None


def _reads_around(folder: ObjectStore, last: int | None) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """What the last batch reads, and one that was begun behind it."""
    return None if last is None else _reads(folder, last), _reads_or_none(folder, _next(last))


def plan(folder: ObjectStore, batch: int, reads: Sequence[str]) -> None:
    """What a batch reads that is about to be written; on the disk afterwards."""
    line = json.dumps({"batch": batch, "reads": reads}, separators=(",", ":")).encode()
    folder.write(PLANNED, state_file.sealed(line), fsync=True)


def _planned(folder: ObjectStore) -> tuple[int, Sequence[str]] | None:
    path = folder.called(PLANNED)
    try:
        x = members(parsed(state_file.unsealed(folder, PLANNED)))
        return whole(x["batch"], "batch"), [text(line, "what is read") for line in items(x["reads"], "reads")]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as e:
        raise _damaged(path, why(e)) from e


def _reads(folder: ObjectStore, batch: int) -> Sequence[str]:
    """What a batch reads, a line a source of Spark's."""
    found = _reads_or_none(folder, batch)
    if found is None:
        raise _damaged(_path(folder, batch), "it does not say what the batch reads")
    return found


def _reads_or_none(folder: ObjectStore, batch: int) -> Sequence[str] | None:
    """The same; None where nobody has recorded it, or the file of a batch that is done again was torn."""
    planned = _planned(folder)
    if planned is not None and planned[0] == batch:
        return planned[1]
    found = state_file.reads(folder, batch)
    return of_spark(folder, batch) if found is None else found


def of_spark(folder: ObjectStore, batch: int) -> Sequence[str] | None:
    """What a batch of a query over DataFrames reads, as Spark has written it; None where it was not begun."""
    try:
        version, _, *lines = folder.get(spark_offsets(batch), state_file.MOST).decode().split("\n")
    except FileNotFoundError:
        return None
    except ValueError as e:
        raise _damaged(folder.called(spark_offsets(batch)), f"it is not as Spark writes it ({why(e)})") from e
    if not re.fullmatch("v[0-9]+", version) or not lines:
        raise _damaged(folder.called(spark_offsets(batch)), "it does not begin as Spark begins it")
    return lines


def spark_offsets(batch: int) -> str:
    return f"{SPARK}/offsets/{batch}"


def keep_begun(folder: ObjectStore, last: int | None) -> None:
    """What the batch behind the last reads stays known where its state goes."""
    reads = _reads_or_none(folder, _next(last))
    if reads is not None:
        plan(folder, _next(last), reads)


def forget_begun(folder: ObjectStore, last: int | None) -> None:
    """A batch behind the last, which nobody has seen, was not begun."""
    folder.delete(PLANNED, spark_offsets(_next(last)))
    state_file.forget_later(folder, -1 if last is None else last)


# ------------------------------------------------------------------- what they read


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a query has come: what its source wrote for the last batch that is done, and for the last that was
    planned."""

    committed: Mapping[str, Any]
    planned: Mapping[str, Any]

    def rows(self, leaves: Collection[int]) -> tuple[int, int]:
        """Up to which row all of these leaves over one source of files have been read for good, and up to which any of
        them has been given some to read."""
        places = [f"{leaf}/0" for leaf in leaves]
        return (
            min(int(self.committed["next"].get(p, 0)) for p in places),
            max(int(self.planned["next"].get(p, 0)) for p in places),
        )

    def closed(self, leaves: Collection[int]) -> bool:
        """Whether an end of these was processed."""
        return any(f"{leaf}/0" in self.planned["ended"] for leaf in leaves)


def reached(folder: ObjectStore) -> Reached:
    """How far a query has come, of a checkpoint that `last_batch` has looked through."""
    done, behind = _reads_around(folder, _last(folder))
    committed = _BEGINNING if done is None else document_in(done)
    return Reached(committed, committed if behind is None else document_in(behind))


def document_of(folder: ObjectStore, batch: int) -> dict[str, Any]:
    """What the source wrote for a batch: where it ends."""
    return document_in(_reads(folder, batch))


def document_in(reads: Sequence[str]) -> dict[str, Any]:
    """The document of ours among what a batch reads: others are of DataFrames' sources."""
    found = (parsed(line.encode()) for line in reads if line != NOTHING)
    return next((x for x in found if isinstance(x, dict) and "plan" in x), {**_BEGINNING})


def digest_of(reads: Sequence[str]) -> str:
    """Of what a batch reads, and so of all that was read before it."""
    return hashlib.sha256("\n".join(reads).encode()).hexdigest()


def laid_out(folder: ObjectStore) -> tuple[int | None, Sequence[str] | None, Sequence[str] | None]:
    """The last batch, what it reads, and what one that was begun behind it reads: all that Spark is told."""
    last = _last(folder)
    return last, *_reads_around(folder, last)


def planned_digest(folder: ObjectStore, batch: int) -> str:
    """The same of a batch that is under way and writes before its state is there."""
    planned = _planned(folder)
    if planned is None or planned[0] != batch:
        raise _damaged(folder.called(PLANNED), f"it is not of batch {batch}, which runs")
    return digest_of(planned[1])


def digest(folder: ObjectStore, batch: int) -> str | None:
    """The same of a batch that was begun; None where it was not, or is not kept any more."""
    reads = _reads_or_none(folder, batch)
    return None if reads is None else digest_of(reads)


# ------------------------------------------------------------------------ looking


def _check(path: str, lines: Sequence[str], fingerprint: str) -> None:
    try:
        for document in _documents(path, lines):
            if isinstance(document, dict) and "plan" in document:  # others are of DataFrames' sources
                if document["plan"] != fingerprint:
                    raise _damaged(path, "it is of another plan")
                _check_document(document)
    except (ValueError, KeyError) as e:
        raise _damaged(path, why(e)) from e


def _documents(path: str, lines: Sequence[str]) -> Iterator[object]:
    for line in lines:
        try:
            if line != NOTHING:
                yield parsed(line.encode())
        except ValueError as e:
            raise _damaged(path, f"it is not JSON ({why(e)})") from e


def _check_document(x: dict[str, Any]) -> None:
    """Refuses offsets that no planner wrote (`spark/source.py`)."""
    whole(x["batch"], "batch", -1)
    for place, offset in members(x["next"], "next").items():
        if not _PLACE.fullmatch(place):
            raise ValueError(f"{place!r:.40} is no source and partition")
        whole(offset, "an offset")
    for name in ("ended", "idle", "silent"):
        for place in items(x.get(name, []) if name == "silent" else x[name], name):
            if not _PLACE.fullmatch(text(place, name)):
                raise ValueError(f"{place!r:.40} is no source and partition")
    for leaf, ends in members(x.get("captured", {}), "captured").items():
        if not _PLACE.fullmatch(f"{leaf}/0"):
            raise ValueError(f"{leaf!r:.40} is no source")
        for end in items(ends, "captured"):
            whole(end, "an end")
    for place, seen in members(x.get("seen", {}), "seen").items():
        topic, _, partition = place.rpartition("/")
        if not is_name(topic) or not _NUMBER.fullmatch(partition):
            raise ValueError(f"{place!r:.40} is no topic and partition")
        end, crc = items(seen, "seen")
        whole(end, "an end"), whole(crc, "a checksum", 0, (1 << 32) - 1)


def _check_spread(folder: ObjectStore, last: int, known: Document) -> None:
    """The state is in as many buckets as the query, but in the midst of a rescale, which is ended when it starts."""
    found = state_file.buckets(folder, last)
    if found == known.buckets or (found is None and not known.rescaled):
        return
    if not folder.has(RESCALE):
        is_in = f"it is in {'other' if found is None else found} buckets"
        raise _damaged(state_file.path_of(folder, last), f"{is_in}, and {NAME} beside it says {known.buckets}")


def _path(folder: ObjectStore, batch: int) -> str:
    """Where what a batch reads stands."""
    planned = _planned(folder)
    if planned is not None and planned[0] == batch:
        return folder.called(PLANNED)
    return state_file.path_of(folder, batch)


def _damaged(path: str, why: str) -> BraidError:
    return BraidError(f"{path} is damaged: {why}")
