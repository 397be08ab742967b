"""What the test driver asks of a runtime.

In: topics, records and marks with their place in the order of calls, queries. Out: what the queries wrote, with places.
Rule: every runtime gives the same records in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from braid.plan.logical import Query
from braid.stage.call_order import Moment, Placed


class Backend(Protocol):
    """A runtime under the test driver."""

    def create_topic(self, name: str, partitions: int) -> None: ...

    def partitions(self, topic: str) -> int | None:
        """The number of partitions of a topic, None if there is none."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def append(self, topic: str, records: Sequence[Placed]) -> None:
        """Adds records (their offsets are given here; the field `offset` is not read)."""
        ...

    def mark(self, topic: str, moment: Moment) -> None: ...

    def start(self, query: Query, number: int) -> None:
        """Starts a query; `number`: of the call that does, the last one so far."""
        ...

    def stop(self, query: str) -> None: ...

    def pump(self) -> None:
        """Processes all that has been appended and marked."""
        ...

    def records(self, topic: str, start: int) -> list[Placed]:
        """The topic's records from the `start`-th on, in the order in which they came (see `Placed`)."""
        ...

    def drops(self, query: str) -> list[dict[str, Any]]: ...

    def state(self, query: str) -> list[dict[str, Any]]:
        """Manifests of the query's state, for EXPLAIN --state."""
        ...

    def restart(self) -> None: ...

    def close(self) -> None: ...
