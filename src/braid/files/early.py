"""The first pieces of files are made ready while Spark starts: one core has little to do then.

In: inputs of which nothing has been read yet, each with its first file. Out: pieces, for whoever asks for the same.
Rule: copies alone are made, in their places; nothing is logged. A piece is given only to who asks for the same bytes of
the same file as it lay there, read in the same way: one that nobody asks for is as if it had never been made. Each is
promised before the one before it is given, so none is made twice.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from braid.files.listing import Found

if TYPE_CHECKING:
    from braid.files.input import FileInput
    from braid.files.log import Piece

PIECES = 4  # of a file: by then Spark has started
FILES = 4

_LOCK = threading.Lock()
_PROMISED: dict[Hashable, Future[Piece | None]] = {}


def taken(asked: Hashable) -> Future[Piece | None] | None:
    """What was made, or is being made, of what is asked for: it is given once."""
    with _LOCK:
        return _PROMISED.pop(asked, None)


class Early:
    """`most`: bytes of a first piece; the next ones have twice as many each, as who asks for them wants them."""

    def __init__(self, inputs: Sequence[tuple[FileInput, Found]], most: int) -> None:
        self._over = threading.Event()
        self._asked: list[Hashable] = []
        for input, found in inputs[:FILES]:
            promised = self._promise(input.asked(found, 0, True, most))
            what = (input, found, most, promised)
            threading.Thread(target=self._go, args=what, name="files read early", daemon=True).start()

    def end(self) -> None:
        """Nobody asks any more."""
        self._over.set()
        for asked in self._asked:
            taken(asked)

    def _promise(self, asked: Hashable) -> Future[Piece | None]:
        promised: Future[Piece | None] = Future()
        with _LOCK:
            _PROMISED[asked] = promised
            self._asked.append(asked)
        return promised

    def _go(self, input: FileInput, found: Found, most: int, promised: Future[Piece | None]) -> None:
        start = 0
        for left in reversed(range(PIECES)):
            try:
                made = input.parsed(found, start, True, most)
            except Exception as e:  # it is told where the piece is asked for
                promised.set_exception(e)
                return
            if made is None or not made.rest or not left or self._over.is_set():
                promised.set_result(made)
                return
            input.log.append([made])
            start, most = made.stop, 2 * most
            given, promised = promised, self._promise(input.asked(found, start, True, most))
            given.set_result(made)
