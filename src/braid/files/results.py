"""A folder of result files (`--sink`): whose it is, and which files of it are published.

In: a folder, the run (one life of a checkpoint) that writes it, staged files of a batch. Out: `part-BATCH-PART.*`.
Rule: a folder belongs to one run for ever; another is refused, or replaces all of it knowingly. A batch's files are
listed in one commit, with size and CRC-32 of each, and get their names after it, or when the next start finds them. A
batch is written behind the commit of the one before it that the checkpoint knows.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from braid.errors import BraidError, anew
from braid.store.files import force, write_atomic
from braid.topics.files import items, members, parsed, reach, read_small, text, whole, why
from braid.topics.view import UNTOLD, Written

NO_SUMS: Mapping[str, Sequence[int]] = {}
KINDS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}  # by the end of the folder's name
OWNER, COMMITS, STAGING = ".owner.json", ".commits", ".staging"
LOOKED_AT = 1 << 28  # bytes of parts, the newest, that a start compares; `braid verify` compares all
_PART = re.compile(r"part-\d{10}-[-\d]\d{4}\.(csv|jsonl|parquet)")


def kind_of(target: str) -> str:
    """The files' format; JSON lines where the folder's name has no ending."""
    ending = os.path.splitext(os.path.basename(os.path.normpath(target)))[1].lower()
    if ending and ending not in KINDS:
        raise BraidError(
            f"{target}: {ending} cannot be written", f"end the folder's name in {', '.join(KINDS)}; or write console"
        )
    return KINDS.get(ending, "json")


def part_name(batch: int, part: int, kind: str) -> str:
    """The name of a file: of a batch's rows that came out of one part of the query."""
    return f"part-{batch:010d}-{part:05d}.{'jsonl' if kind == 'json' else kind}"


def described(kind: str, target: str) -> str:
    """Where results go, as a checkpoint records it."""
    return f"{kind} files in {target}" if kind in KINDS.values() else kind


def check(folder: str, run: str | None, goes_on: bool, overwrite: bool) -> str | None:
    """Refuses a folder that is not this run's (None: one that begins now), or not what it has written. `goes_on`: it
    has written before. Gives the owner."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise BraidError(f"{folder} is a file", "a sink is a folder that braid fills with files")
    owner = _owner(folder)
    if owner is None:
        there = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        if there:
            hint = "name a folder that is empty or not there yet"
            raise BraidError(f"{folder} holds {there[0]}, which is no result of braid", hint)
    elif owner != run and (goes_on or not overwrite):
        hint = "name another folder, or write --overwrite to replace what is in it"
        if goes_on:
            hint = f"this query goes on from its checkpoint; {anew()}, and writes all its rows"
        raise BraidError(f"{folder} holds the results of another run ({owner})", hint)
    elif run is not None and (wrong := spoilt(folder, run, LOOKED_AT)) is not None:
        raise BraidError(wrong, f"put it back from a copy; or {anew()}, and writes all its rows")
    return owner


def claim(folder: str, run: str, *seen: str | None) -> None:
    """Makes the folder this run's: what another run has left in it goes; what a dead driver did not name gets its
    name. `seen`: the owner that was looked at; of another one nothing goes."""
    os.makedirs(folder, exist_ok=True)
    with alone(folder):
        owner = _owner(folder)
        if owner == run:
            _finish_last(folder)
            return
        if seen and owner != seen[0]:
            what = f"another run ({owner}) has begun to write into {folder} at the same moment"
            raise BraidError(what, "name another folder, or write --overwrite to replace what is in it")
        if owner is not None:
            _clear(folder)
        write_atomic(os.path.join(folder, OWNER), json.dumps({"run": run}).encode(), folder)


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """Nobody else claims the folder meanwhile."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def remove(folder: str, run: str) -> bool:
    """Takes away what this run has written into a folder, and the folder, if it holds nothing else."""
    if not os.path.isdir(folder) or _owner(folder) != run:
        return False
    _clear(folder)
    os.unlink(os.path.join(folder, OWNER))
    if not os.listdir(folder):
        os.rmdir(folder)
    return True


def _clear(folder: str) -> None:
    for name in os.listdir(folder):
        if _PART.fullmatch(name):
            os.unlink(os.path.join(folder, name))
    for name in (COMMITS, STAGING):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _owner(folder: str) -> str | None:
    """The run that writes into a folder; None where it is nobody's."""
    path = os.path.join(folder, OWNER)
    try:
        with open(path, encoding="utf-8") as f:
            return str(json.load(f)["run"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise BraidError(f"{path} cannot be read: {e}", "name another folder") from None


def publish(
    folder: str,
    run: str,
    batch: int,
    names: Sequence[str],
    digest: str,
    fsync: bool = False,
    after: Written | None = UNTOLD,
    sums: Mapping[str, Sequence[int]] = NO_SUMS,
) -> None:
    """Makes a batch's staged files visible; publishing it again changes nothing. `digest`: of what the batch reads;
    another batch of its number is refused, and one that another came behind. `after`: the last that wrote before it;
    where its commit is gone, nothing is written. `sums`: size and CRC-32 of the files."""
    if names and after is not UNTOLD:
        _check_before(folder, run, batch, after)
    os.makedirs(os.path.join(folder, COMMITS), exist_ok=True)
    commit, behind = _commit(folder, run, batch), _commit(folder, run, batch + 1)
    newest = next((path for path in (behind, commit) if os.path.exists(path)), None)
    there = newest is not None and _read(newest).written.is_there(batch, digest, run, folder)
    reach("results staged")
    if names and not there:
        said = {"query": run, "batch": batch, "digest": digest, "files": sorted(names)}
        said |= {"sums": {name: [*sums[name]] for name in sorted(names)}} if sums else {}
        if fsync:
            force(os.path.join(folder, STAGING))
        write_atomic(commit, json.dumps(said).encode(), os.path.dirname(commit), fsync)
        reach("results committed")
    _finish(folder, names)
    if fsync:
        force(folder)


def _check_before(folder: str, run: str, batch: int, after: Written | None) -> None:
    """The folder is as the last batch left it: whose it is, and that one's commit."""
    owner, hint = _owner(folder), f"put store, checkpoint and folder back from one copy; or {anew()}, with --overwrite"
    if owner != run:
        why = "it is gone, or has no owner" if owner is None else f"another run ({owner}) writes there now"
        raise BraidError(f"{folder} is not as this query left it: {why}", hint)
    if after is None or os.path.exists(_commit(folder, run, batch)):
        return
    commit = _commit(folder, run, after.batch)
    if not os.path.exists(commit):
        why = f"the commit of batch {after.batch}, which was written last, is gone"
        raise BraidError(f"{folder} is not as this query left it: {why}", hint)
    if (there := _read(commit).written) != after and there != (after.batch, ""):
        raise BraidError(f"{folder} is not as this query left it: batch {after.batch} is of another history", hint)


def last(folder: str, run: str) -> Written | None:
    """The last batch of a run that has a commit here."""
    names = _commits(folder, run)
    return _read(os.path.join(folder, COMMITS, names[-1])).written if names else None


def spoilt(folder: str, run: str, most: int | None = None) -> str | None:
    """A part that a commit of a run names and that is not there, or not what it was; None: all are. `most`: so many
    bytes are read, of the newest; of the others only the size is looked at."""
    left = most
    for name in reversed(_commits(folder, run)):
        found = _read(os.path.join(folder, COMMITS, name))
        for staged in found.files:
            made = os.path.join(folder, staged.partition("~")[0])
            path = made if os.path.exists(made) else os.path.join(folder, STAGING, staged)
            if not os.path.exists(path):
                return f"{made} is missing, and a commit beside it names it"
            if staged not in found.sums:  # of an older version
                continue
            size, crc = found.sums[staged]
            if (there := os.path.getsize(path)) != size:
                return f"{made} has {there:,} bytes, and was written with {size:,}"
            if (left is None or size <= left) and sum_of(path)[1] != crc:
                return f"{made} is not what was written: it is not what its checksum says"
            left = None if left is None else left - size
    return None


def sum_of(path: str) -> tuple[int, int]:
    """The size and the CRC-32 of a file."""
    size = crc = 0
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def _commits(folder: str, run: str) -> list[str]:
    """The names of a run's commits, in order."""
    commits, mine = os.path.join(folder, COMMITS), re.compile(re.escape(run) + r"-\d{20}\.json")
    return sorted(filter(mine.fullmatch, os.listdir(commits) if os.path.isdir(commits) else []))


def _commit(folder: str, run: str, batch: int) -> str:
    return os.path.join(folder, COMMITS, f"{run}-{batch:020d}.json")


class _Commit(NamedTuple):
    """`files`: under the names by which they were staged; `sums`: size and CRC-32 of each, of those that have them."""

    written: Written
    files: list[str]
    sums: Mapping[str, tuple[int, int]]


def _read(commit: str) -> _Commit:
    try:
        x = members(parsed(read_small(commit)))
        written = Written(whole(x["batch"], "batch"), text(x.get("digest", ""), "digest"))
        files = [text(name, "a file") for name in items(x["files"], "files")]
        sums = {name: _sum(said) for name, said in members(x.get("sums", {}), "sums").items()}
        return _Commit(written, files, sums)
    except (ValueError, KeyError) as e:
        raise BraidError(f"{commit} cannot be read: {why(e)}", "put it back from a copy") from None


def _sum(said: Any) -> tuple[int, int]:
    size, crc = items(said, "a size and a checksum")
    return whole(size, "a size"), whole(crc, "a checksum", 0, (1 << 32) - 1)


def _finish(folder: str, names: Sequence[str]) -> None:
    """Staged files get their names, which are the same for each attempt."""
    for name in names:
        staged = os.path.join(folder, STAGING, name)
        if os.path.exists(staged):
            os.replace(staged, os.path.join(folder, name.partition("~")[0]))


def _finish_last(folder: str) -> None:
    """Names that a dead driver did not give after its last commit."""
    commits = os.path.join(folder, COMMITS)
    if not os.path.isdir(commits):
        return
    for name in sorted(n for n in os.listdir(commits) if n.endswith(".json"))[-1:]:
        _finish(folder, _read(os.path.join(commits, name)).files)
