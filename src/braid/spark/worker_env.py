"""What tasks need of a worker's Python, and what is done where it is not there.

In: a session, what a worker was found to lack. Out: workers that have it; or what they lack, as the error that it is.
Rule: workers run the driver's Braid, file by file, or are sent it with its libraries (`packing`); where all have it,
nothing is sent. Where they lack the driver's Python, and the user has named none, it is looked for by its name. Each is
done once a session.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from braid.errors import BraidError
from braid.spark.packing import BRAID, LIBRARIES, PATH, PYTHON, Archive, archives, digest
from braid.spark.unpacking import NAMED

OTHER = "another Braid than the driver's"
DAEMON = "braid.spark.daemon"  # what Spark starts Python by on workers


class Lacking(BraidError):
    """A worker lacks what it can be given, or is told otherwise."""

    def __init__(self, what: Literal["python", "braid"], message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.what = what


_done: set[tuple[str, str]] = set()  # (application, what its workers lacked)


def same_braid() -> Callable[[], None]:
    """For a task: ImportError where it has no Braid, or another."""
    own, told = digest(), OTHER

    def same() -> None:
        from braid.spark.packing import digest

        if digest() != own:
            raise ImportError(told)

    return same


def equipped(context: Any, lacking: Lacking, note: Callable[[str], None]) -> None:
    """Sees to what a worker lacks; raises it where nothing can be done, or all has been."""
    if (context.applicationId, lacking.what) in _done:
        raise lacking
    _done.add((context.applicationId, lacking.what))
    if lacking.what == "python":
        if context.pythonExec != sys.executable or not _found_by_name():
            raise lacking
        context.pythonExec = PYTHON
    else:
        note("workers do not have this Braid: it is packed, once, and sent to them")
        made = archives()
        size = sum(os.path.getsize(a.file) for a in made)
        note(f"each gets {size >> 20} MB ({', '.join(os.path.basename(a.file) for a in made)})")
        _send(context, made)


def _send(context: Any, made: Sequence[Archive]) -> None:
    """Spark unpacks an archive once a run and executor; our own daemon the libraries once a machine."""
    once = context.getConf().get("spark.python.daemon.module", None) == DAEMON
    for a in made:
        if once and a.folder == LIBRARIES:
            context.addFile(a.file)
            context.environment[NAMED] = os.path.basename(a.file)
        else:
            context.addArchive(a.words)
    path = BRAID if once else PATH
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (path, context.environment.get("PYTHONPATH"))))


def named_here() -> None:
    """Lets this Python be found by its name, by processes that this one starts from now on."""
    if not _found_by_name():
        os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])


def _found_by_name() -> bool:
    """Whether that name is this Python here: some of a query's Python runs beside the driver."""
    found = shutil.which(PYTHON)
    return found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
