"""`session.why` and `session.why_not`: why a row is there, or missing, from Python.

In: a topic and a row of it; the name of a query, and a key, a record, or a time. Out: an answer, which is as text what
`braid why` or `braid why-not` prints.
Rule: as in these commands, whose functions are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.face.cells import Public

if TYPE_CHECKING:
    from braid.expr.user import Functions
    from braid.topics.store_value import Store
    from braid.why.tree_words import Derivation
    from braid.why.words import Answer


class Answering(Public):
    """What can be asked about the records that queries have read."""

    def _asked_of(self) -> tuple[Store, Functions]:
        """The store, and the functions of the user."""
        raise NotImplementedError

    def why_not(
        self,
        query: str,
        *,
        key: str | int | None = None,
        input: str | None = None,
        since: str | None = None,
        until: str | None = None,
        event_time: bool = False,
        values: bool = True,
        what_if: float = 10,
    ) -> Answer:
        """What became of the records of a key, of one record (TOPIC:PARTITION:OFFSET), or of all that were read in a
        time, or (`event_time`) have one, and why they gave no row. `what_if`: for so many seconds the smallest change
        is looked for that would have made one (0: not)."""
        from braid.why.command import Question, why_not

        store, functions = self._asked_of()
        asked = None if key is None else str(key)
        what = Question(asked, input, since, until, event_time, values, what_if=what_if)
        return why_not(store, query, what, functions)

    def why(
        self,
        topic: str,
        *,
        offset: int | None = None,
        partition: int | None = None,
        key: str | int | None = None,
        depth: int = 1,
        values: bool = True,
    ) -> Derivation:
        """Why a row of a topic that a query writes is there (the one at an offset, or the last of a key): the records
        that it was made of, step by step, and what let it go."""
        from braid.why.command import Which, why

        store, functions = self._asked_of()
        which = Which(offset, partition, None if key is None else str(key), depth, values)
        return why(store, topic, which, functions)
