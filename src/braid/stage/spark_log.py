"""How far a query had come by Spark's own checkpoint, which versions before 0.2 kept beside theirs.

In: the folder `spark` of such a checkpoint. Out: its last batches, and what each reads; or an error.
Rule: read once, by the first start with this version (`batches.carry_over`). Only what a restart reads is looked at:
the newest offsets and commits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from braid.errors import BraidError
from braid.stage import docs, state_file
from braid.store import is_url
from braid.topics.files import parsed, why

SPARK = "spark"  # folder in the checkpoint
NOTHING = "-"  # a line of a source that reads nothing


def tells(folder: str) -> bool:
    """Whether it is Spark's log that says how far this query has come."""
    if not (_numbers(folder, "offsets") or _numbers(folder, "commits")):
        return False
    states = state_file.batches(folder)[-2:]
    return all(state_file.reads(folder, n) is None for n in states)


def last_batch(folder: str) -> int | None:
    """The last batch that was committed."""
    offsets, commits = _numbers(folder, "offsets"), _numbers(folder, "commits")
    last, newest = commits[-1] if commits else -1, offsets[-1] if offsets else -1
    if newest not in (last, last + 1):
        kind, missing = ("offsets", last) if newest < last else ("commits", last + 1)
        path = os.path.join(folder, SPARK, kind, str(missing))
        raise _damaged(path, f"it is missing; batch {newest} was begun, batch {last} is committed")
    return last if last >= 0 else None


def reads(folder: str, batch: int) -> Sequence[str] | None:
    """What a batch reads, a line a source; None where it was not begun."""
    path = path_of(folder, batch)
    if is_url(folder):
        return None
    try:
        version, metadata, *lines = docs.read(folder, name_of(batch), state_file.MOST).decode().split("\n")
        parsed(metadata.encode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as e:
        raise _damaged(path, f"it is not as Spark writes it ({why(e)})") from e
    if not re.fullmatch("v[0-9]+", version) or not lines:
        raise _damaged(path, "it does not begin as Spark begins it")
    return lines


def name_of(batch: int) -> str:
    return f"{SPARK}/offsets/{batch}"


def path_of(folder: str, batch: int) -> str:
    return os.path.join(folder, name_of(batch))


def _numbers(folder: str, kind: str) -> list[int]:
    """The names in a folder of the log that are numbers, in order."""
    names = () if is_url(folder) else docs.names(folder, f"{SPARK}/{kind}")  # none was ever kept elsewhere
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())


def _damaged(path: str, why: str) -> BraidError:
    return BraidError(f"{path} is damaged: {why}")
