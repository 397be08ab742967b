"""Fixtures of the real servers: started once, shared, skipped with the reason where they cannot be had.

In: a test that names `broker`, `registry`. Out: servers that answer; the same ones for all tests of a run.
Rule: who stops or kills one takes `fresh_broker` or `fresh_registry`, which is the test's own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka.broker import Broker, kept_broker, own_broker
from kafka.fetch import Unavailable
from kafka.registry import Registry, kept_registry, own_registry


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


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """The shared registry. Subjects of other tests are in it: take names of `clients.fresh`."""
    try:
        with kept_registry() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(f"no schema registry: {reason}")


@pytest.fixture
def fresh_registry() -> Iterator[Registry]:
    """An empty registry of the test's own: it may be stopped and killed."""
    try:
        with own_registry() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(f"no schema registry: {reason}")
