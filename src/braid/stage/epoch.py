"""The writer epoch of a checkpoint: of two drivers only the later one writes.

In: a checkpoint. Out: the epoch that a driver has claimed; while it runs, whether it still holds it, and else who does.
Rule: a start *creates* the next epoch and removes all before it, so one GET says whether an epoch is the newest. A
driver asks before it saves the state of a batch, and before it removes anything. What slips through between is
harmless: the state of a batch is created once, whoever does it, and objects go by what states say that do not change
any more (`room_runs.py`). Whoever loses ends in one line that names the run that has taken over. No clock and no lock
is asked (SlateDB fences its writers in the same way).

  epochs/N.json     a line of JSON: which process of which machine claimed it, when
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from braid.errors import BraidError, TakenOver, printable
from braid.store import ObjectStore
from braid.topics.files import members, parsed, reach, text, whole

FOLDER = "epochs"
_MOST = 1 << 12  # bytes of a document
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Epoch:
    """`data`: the document, which is no other's: a checkpoint that begins again counts from 1."""

    checkpoint: ObjectStore
    number: int
    data: bytes

    def check(self) -> None:
        """Refused where another driver has claimed a later one, or the query began again."""
        with contextlib.suppress(FileNotFoundError):
            if self.checkpoint.get(_name(self.number), _MOST) == self.data:
                return
        raise self._lost()

    def lost(self) -> TakenOver | None:
        """Why this driver has to end; None where it holds the epoch, or nobody can say."""
        try:
            self.check()
        except TakenOver as e:
            return e
        except (BraidError, OSError):
            return None
        return None

    def _lost(self) -> TakenOver:
        query, numbers = self.checkpoint.name, _numbers(self.checkpoint)
        by = _told(self.checkpoint, numbers[-1]) if numbers else None
        if by is None:
            what = f"the query {query} was reset or removed while this run was at work, so this run ends"
            return TakenOver(what, "start it again: what is there now decides how it goes on")
        what = f"the query {query} was taken over by {by}: this run ends, nothing is lost"
        return TakenOver(what, "the other run goes on; to have the query here, end that one and start this again")


def claim(checkpoint: ObjectStore) -> Epoch:
    """The next epoch. Whoever had the one before is told at its next batch."""
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "at": _now(), "mark": uuid4().hex}
    for _ in range(_TRIES):
        numbers = _numbers(checkpoint)
        number = numbers[-1] + 1 if numbers else 1
        data = json.dumps({"epoch": number, **mine}, separators=(",", ":")).encode()
        if not checkpoint.create(_name(number), data):
            continue
        reach("epoch created")
        checkpoint.delete(*map(_name, numbers))
        reach("epoch claimed")
        return Epoch(checkpoint, number, data)
    raise BraidError(f"{checkpoint}: others claim the query all the time", "end the other runs of it")


def fence(checkpoint: ObjectStore) -> None:
    """Ends the driver that holds the epoch, if there is one, before a command changes what it works with."""
    if _numbers(checkpoint):
        claim(checkpoint)


def _numbers(checkpoint: ObjectStore) -> list[int]:
    """Those that are there, in order: one, but in the midst of a claim."""
    names = (name.removesuffix(".json") for name in checkpoint.names(FOLDER))
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())


def _told(checkpoint: ObjectStore, number: int) -> str | None:
    """Who has claimed an epoch, for people; None where it is gone."""
    try:
        x = members(parsed(checkpoint.get(_name(number), _MOST)))
        host, pid = printable(text(x["host"], "host"))[:100], whole(x["pid"], "pid")
        return f"process {pid} on {host}, which began at {printable(text(x['at'], 'at'))[:30]}"
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):  # torn, by a version that did not write it whole
        return "another run"


def _name(number: int) -> str:
    return f"{FOLDER}/{number}.json"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
