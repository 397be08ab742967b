"""Fixtures of the real servers: started once, shared, skipped with the reason where they cannot be had.

In: a test that names `broker`, `registry`. Out: servers that answer; the same ones for all tests of a run.
Rule: who stops or kills one takes `fresh_broker` or `fresh_registry`, which is the test's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

from kafka.broker import Broker, kept_broker, own_broker
from kafka.fetch import Unavailable
from kafka.registry import Registry, kept_registry, own_registry

T = TypeVar("T")


@contextlib.contextmanager
def had(server: AbstractContextManager[T]) -> Iterator[T]:
    """The server; where it cannot be had the test is skipped, with the reason."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(server)
        except Unavailable as reason:
            pytest.skip(f"no server: {reason}")
        yield made


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The shared broker. Topics of other tests lie on it: take names of `clients.fresh`."""
    with had(kept_broker()) as server:
        yield server


@pytest.fixture
def fresh_broker() -> Iterator[Broker]:
    """A broker of the test's own: it may be stopped, killed, started again."""
    with had(own_broker()) as server:
        yield server


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """The shared registry. Subjects of other tests are in it: take names of `clients.fresh`."""
    with had(kept_registry()) as server:
        yield server


@pytest.fixture
def fresh_registry() -> Iterator[Registry]:
    """An empty registry of the test's own: it may be stopped and killed."""
    with had(own_registry()) as server:
        yield server
