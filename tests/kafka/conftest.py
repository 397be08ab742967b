"""Fixtures of the real servers: started once, shared, skipped with the reason where they cannot be had.

In: a test that names `broker`. Out: a broker that answers; the same one for all tests of a run.
Rule: who stops or kills it takes `fresh_broker`, which is the test's own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka.broker import Broker, kept_broker, own_broker
from kafka.fetch import Unavailable


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The shared broker. Topics of other tests lie on it: take names of `clients.fresh`."""
    try:
        with kept_broker() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(f"no Kafka broker: {reason}")


@pytest.fixture
def fresh_broker() -> Iterator[Broker]:
    """A broker of the test's own: it may be stopped, killed, started again."""
    try:
        with own_broker() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(f"no Kafka broker: {reason}")
