"""Spark's part of a checkpoint: which batches were begun and committed, where each ends, what a digest makes of it.

In: the folder of a checkpoint, looked at before Spark is started or while a batch is under way. Out: the last
committed batch; the documents that our source wrote into Spark's log of offsets, and their digests; or an error.
Rule: only what a restart reads is looked at: the newest offsets and commits, the state after the last batch. A file
that a kill left behind beyond these belongs to a batch that is done again.

Spark writes a file beside each of its files, `.NAME.crc`: "crc\\0", the size of a block, and the CRC-32 of each block.
Where there is none (on other file systems) only the content is looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from braid.errors import BraidError, anew
from braid.stage import state_file
from braid.stage.checkpoint import NAME, RESCALE, Document
from braid.topics.files import force, is_name, items, members, parsed, read_small, text, whole, why

SPARK = "spark"  # folder in the checkpoint
_PLACE, _NUMBER = re.compile("[0-9]{1,9}/[0-9]{1,9}"), re.compile("[0-9]{1,9}")
_MAGIC = b"crc\0"


def last_batch(folder: str, known: Document) -> int | None:
    """The last batch that was committed; None where none was. A torn or missing file is refused."""
    root = os.path.join(folder, SPARK)
    offsets, commits = _numbers(os.path.join(root, "offsets")), _numbers(os.path.join(root, "commits"))
    states = state_file.batches(folder)
    if not (offsets or commits or states):
        return None
    try:
        if not offsets and not commits:
            raise _torn(os.path.join(root, "offsets"), f"it is missing; there is the state of batch {states[-1]}")
        _json(os.path.join(root, "metadata"), _whole(os.path.join(root, "metadata")))
        last = commits[-1] if commits else -1
        newest = offsets[-1] if offsets else -1
        if newest not in (last, last + 1):
            missing = os.path.join(root, "offsets", str(last)) if newest < last else _next(root, last)
            raise _torn(missing, f"it is missing; batch {newest} was begun, batch {last} is committed")
        for number in offsets[-2:]:
            _check_offsets(os.path.join(root, "offsets", str(number)), known.fingerprint)
        if last >= 0 and not _half_committed(root, last, newest):
            _check_lines(os.path.join(root, "commits", str(last)))
        elif last >= 0:
            last -= 1
        if last >= 0:
            state_file.check(folder, last)
            _check_spread(folder, last, known)
    except BraidError as e:
        raise BraidError(e.message, f"put it back from a copy; or {anew(folder)}") from e
    return last if last >= 0 else None


def _half_committed(root: str, last: int, newest: int) -> bool:
    """Whether a loss of power has torn Spark's word that the last batch is done. No batch was begun behind it, so it is
    done again, and found done."""
    try:
        _check_lines(os.path.join(root, "commits", str(last)))
    except BraidError:
        return last == newest
    return False


def mend(folder: str) -> None:
    """Takes such a word away, before Spark reads it."""
    root = os.path.join(folder, SPARK)
    offsets, commits = _numbers(os.path.join(root, "offsets")), _numbers(os.path.join(root, "commits"))
    if offsets and commits and _half_committed(root, commits[-1], offsets[-1]):
        for name in (str(commits[-1]), f".{commits[-1]}.crc"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(root, "commits", name))


def _check_spread(folder: str, last: int, known: Document) -> None:
    """The state is in as many buckets as the query, but in the midst of a rescale, which is ended when it starts."""
    found = state_file.buckets(folder, last)
    if found == known.buckets or (found is None and not known.rescaled):
        return
    if not os.path.exists(os.path.join(folder, RESCALE)):
        is_in = f"it is in {'other' if found is None else found} buckets"
        raise _torn(state_file.path_of(folder, last), f"{is_in}, and {NAME} beside it says {known.buckets}")


def begun(folder: str) -> bool:
    """Whether a batch was begun behind the last that was committed."""
    root = os.path.join(folder, SPARK)
    return (_numbers(os.path.join(root, "offsets")) or [-1])[-1] > (_numbers(os.path.join(root, "commits")) or [-1])[-1]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a query has come: what its source wrote for the last batch that was committed, and for the last that was
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


def offsets_digest(folder: str, batch: int, fsync: bool = False) -> str:
    """What a batch reads, as Spark has written it down before the batch began. `fsync`: that it stays on the disk."""
    root = os.path.join(folder, SPARK)
    with open(os.path.join(root, "offsets", str(batch)), "rb") as f:
        lines = f.read().split(b"\n")[2:]
    there = (f"offsets/{batch}", f"offsets/.{batch}.crc", "offsets", "metadata", ".metadata.crc", "", os.pardir)
    for name in there if fsync else ():
        with contextlib.suppress(FileNotFoundError):
            force(os.path.join(root, name))
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def digest_of(document: str) -> str:
    """The same of a batch that was not begun, by the text of its document."""
    return hashlib.sha256(document.encode()).hexdigest()


def forget_begun(folder: str, batch: int) -> None:
    """A batch that nobody has seen was not begun."""
    offsets = (os.path.join(folder, SPARK, "offsets", name) for name in (str(batch), f".{batch}.crc"))
    for path in (*offsets, state_file.path_of(folder, batch)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def document_of(folder: str, batch: int) -> dict[str, Any]:
    """What the source wrote for a batch that Spark has begun: where it ends."""
    return _document(os.path.join(folder, SPARK, "offsets"), batch)


def reached(folder: str) -> Reached:
    """How far a query has come, of a checkpoint that `last_batch` has looked through."""
    root = os.path.join(folder, SPARK)
    offsets, commits = _numbers(os.path.join(root, "offsets")), _numbers(os.path.join(root, "commits"))
    last = [_document(os.path.join(root, "offsets"), x[-1] if x else None) for x in (commits, offsets)]
    return Reached(*last)


def _document(root: str, batch: int | None) -> dict[str, Any]:
    """What the source wrote for a batch; of none, the beginning."""
    documents = [] if batch is None else _check_lines(os.path.join(root, str(batch)))[1:]
    return next((d for d in documents if isinstance(d, dict) and "plan" in d), {"next": {}, "ended": []})


def _next(root: str, last: int) -> str:
    return os.path.join(root, "commits", str(last + 1))


def _check_offsets(path: str, fingerprint: str) -> None:
    try:
        for document in _check_lines(path)[1:]:
            if isinstance(document, dict) and "plan" in document:  # others are of DataFrames' sources
                if document["plan"] != fingerprint:
                    raise _torn(path, "it is of another plan")
                _check_document(document)
    except (ValueError, KeyError) as e:
        raise _torn(path, why(e)) from e


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


def _check_lines(path: str) -> list[object]:
    """The documents of a file of Spark's logs: a version, then JSON line by line (`-`: nothing)."""
    version, *lines = _whole(path).split(b"\n")
    if not re.fullmatch(rb"v[0-9]+", version) or not lines:
        raise _torn(path, "it does not begin as Spark begins it")
    return [_json(path, line) for line in lines if line != b"-"]


def _json(path: str, data: bytes) -> object:
    try:
        return parsed(data)
    except ValueError as e:
        raise _torn(path, f"it is not JSON ({why(e)})") from e


def _whole(path: str) -> bytes:
    """The file's bytes, which are those that were written."""
    try:
        data = read_small(path)
    except FileNotFoundError:
        raise _torn(path, "it is missing") from None
    except OSError as e:
        raise _torn(path, str(e.strerror)) from e
    try:
        sums = read_small(os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.crc"))
    except FileNotFoundError:
        sums = b""
    if sums[:4] == _MAGIC and len(sums) >= 8:
        size = int.from_bytes(sums[4:8], "big")
        blocks = [data[i : i + size] for i in range(0, len(data), size)] if size else []
        if b"".join(zlib.crc32(x).to_bytes(4, "big") for x in blocks) != sums[8:]:
            raise _torn(path, "it is not what its checksum says")
    if not data:
        raise _torn(path, "it is empty")
    return data


def _numbers(folder: str) -> list[int]:
    """The names in a folder that are numbers, in order."""
    return sorted(int(name) for name in _listed(folder) if name.isdecimal() and name.isascii())


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _torn(path: str, why: str) -> BraidError:
    return BraidError(f"{path} is damaged: {why}")
