"""A store, as a value that doors make and all others are given.

In: where things are kept; the broker of its topics, if there is one. Out: the same, and what follows from it.
Rule: a URL, a path, an address are read once, at a door. What asks only for documents, checkpoints or drops is given
`objects` alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from braid.store import ObjectStore
from braid.topics import broker as brokers
from braid.topics.broker import Broker


@dataclass(frozen=True, slots=True)
class Store:
    """`objects`: checkpoints, drops, the catalogue, and the topics, if they are not those of a `broker`."""

    objects: ObjectStore
    broker: Broker | None = None

    @property
    def in_kafka(self) -> bool:
        """Whether its topics are those of a broker: their settings, rights and offsets are Kafka's."""
        return self.broker is not None

    @property
    def transactional(self) -> bool:
        """Whether tasks write topics by Kafka's transactions."""
        return bool(self.broker and self.broker.exactly_once)

    @property
    def delivery(self) -> str | None:
        """How often a record is written, for people; None where nobody has to know."""
        return None if self.broker is None else brokers.delivery(self.broker)

    def __str__(self) -> str:
        """Where its topics are, for people."""
        return self.broker.address if self.broker else str(self.objects)
