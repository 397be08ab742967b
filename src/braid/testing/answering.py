"""`Driver.why` and `Driver.why_not`: why a row of a test is there, or missing.

In: a topic and a row of it; the name of a query, and a key, a record, or a time. Out: an answer, which is as text what
`braid why` or `braid why-not` prints.
Rule: as in these commands, whose functions are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braid.testing.asked import Tested
    from braid.why.tree_words import Derivation
    from braid.why.words import Answer


class Answering:
    """What can be asked about the records of a test."""

    def _tested(self, values: bool, seconds: float) -> Tested:
        """What is answered from."""
        raise NotImplementedError

    def _called(self, name: str, query: bool) -> str:
        """The name of a query, or of a topic, as it is written."""
        raise NotImplementedError

    def why_not(
        self,
        query: str,
        *,
        key: str | int | None = None,
        input: str | None = None,
        since: str | int | None = None,
        until: str | int | None = None,
        values: bool = True,
        what_if: float = 10,
    ) -> Answer:
        """What became of the records of a key, of one record (TOPIC:PARTITION:OFFSET), or of all that have a time from
        `since` on, and why they gave no row: as text what `braid why-not` prints, `document()` as it is with `--json`.
        `what_if`: for so many seconds the smallest change is looked for that would have made one (0: not)."""
        from braid.why.command import Question, answered

        name = self._called(query, query=True)
        asked, first, last = (None if x is None else str(x) for x in (key, since, until))
        what = Question(asked, input, first, last, since is not None, values, what_if=what_if)
        return answered(name, what, lambda: self._tested(values, what_if).asked(name))

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
        that it was made of, step by step, and what let it go; as `braid why` says it."""
        from braid.why.command import Which, explained

        name = self._called(topic, query=False)
        which = Which(offset, partition, None if key is None else str(key), depth, values)
        return explained(name, which, lambda: self._tested(values, 0))
