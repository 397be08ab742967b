"""The first pieces of files are made ready while Spark starts: one core has little to do then.

In: inputs of which nothing has been read yet, each with its first file. Out: pieces, for whoever asks for the same.
Rule: nothing is logged, and the copies lie in a folder of their own, which `braid sweep` removes, until somebody takes
them. A piece is given only to who asks for the same bytes of the same file as it lay there, read in the same way; one
that nobody asks for, or that could not be made, is as if it had never been. Each is promised before the one before it
is given, so none is made twice.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from braid.files.listing import Found
from braid.store.files import scratch_name

if TYPE_CHECKING:
    from braid.files.input import FileInput
    from braid.files.log import Piece

PIECES = 4  # of a file: by then Spark has started
FILES = 4  # at once

First = tuple["FileInput", Found, int]
Made = tuple["Piece | None", str]  # a piece, and the folder of its copies

_LOCK = threading.Lock()
_PROMISED: dict[Hashable, Future[Made]] = {}


def taken(asked: Hashable) -> Made | None:
    """What was made of what is asked for, waited for if it is being made: it is given once. None where it was not."""
    with _LOCK:
        promised = _PROMISED.pop(asked, None)
    return None if promised is None or promised.exception() is not None else promised.result()


class Early:
    """`firsts`: inputs, each with its file and the bytes of a first piece; the next have twice as many each, as who
    asks for them wants them."""

    def __init__(self, firsts: Sequence[First]) -> None:
        self._over = threading.Event()
        self._asked, self._folders = list[Hashable](), list[str]()
        for input, found, most in firsts[:FILES]:
            folder = scratch_name(input.cache)
            self._folders.append(folder)
            what = (input, input.aside(folder), found, most, self._promise(input.asked(found, 0, True, most)))
            threading.Thread(target=self._go, args=what, name="files read early", daemon=True).start()

    def end(self) -> None:
        """Nobody asks any more."""
        self._over.set()
        with _LOCK:
            for asked in self._asked:
                _PROMISED.pop(asked, None)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _promise(self, asked: Hashable) -> Future[Made]:
        promised: Future[Made] = Future()
        with _LOCK:
            _PROMISED[asked] = promised
            self._asked.append(asked)
        return promised

    def _go(self, input: FileInput, reader: FileInput, found: Found, most: int, promised: Future[Made]) -> None:
        start = 0
        for left in reversed(range(PIECES)):
            try:
                made = reader.parsed(found, start, True, most)
            except Exception as e:  # who asks for the piece makes it, and is told
                promised.set_exception(e)
                return
            if made is None or not made.rest or not left or self._over.is_set():
                promised.set_result((made, reader.cache))
                return
            reader.log.append([made])
            start, most = made.stop, 2 * most
            given, promised = promised, self._promise(input.asked(found, start, True, most))
            given.set_result((made, reader.cache))
