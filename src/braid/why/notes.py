"""Notes: what the definitions say of each record that is asked for, while they judge a slice.

In: a query, its events, the places of the records that are asked for. Out: by place what was said, and what was given.
Rule: nothing is explained here. A row that many records made is noted as given, by their number alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from braid.plan import logical
from braid.reference import Event, Fact, OutRecord, Reference
from braid.why.causes import AT_ONCE, in_turn
from braid.why.reading import Place

MADE_OF = 64  # records of one row, of which each has a note of its own
KEPT = 20  # rows of one record


class Notes:
    """`said`: by place of a record; `tables`: what was said of rows of tables, by step; `given`: rows of a record, the
    first ones; `counts`: how many there are."""

    def __init__(self, query: logical.Query, events: Sequence[Event], asked: Collection[Place]) -> None:
        self.said: dict[Place, list[Fact]] = defaultdict(list)
        self.tables: dict[int, list[Fact]] = defaultdict(list)
        self.given: dict[Place, list[OutRecord]] = defaultdict(list)
        self.counts = Counter[Place]()
        self.reference = Reference(query)
        self._asked = frozenset(asked)
        self.reference.listen(self._note, asked)
        for _ in in_turn(self.reference, events, AT_ONCE):
            pass

    def _note(self, fact: Fact) -> None:
        if fact.what in ("stands", "gone"):
            self.tables[fact.step].append(fact)
        if fact.what == "gave":
            self.counts.update(fact.origin)
        if len(fact.origin) > MADE_OF:
            return
        for place in fact.origin:
            if fact.what != "gave":
                self.said[place].append(fact)
            elif len(self.given[place]) < KEPT:
                self.given[place].append(fact.detail["written"])
