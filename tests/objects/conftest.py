"""Fixtures of object stores.

In: a test that names one. Out: a place in an object store that is the test's own; the environment says where it is.
Rule: a place of the real server is skipped, with the reason, where that cannot be had.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pytest

from kafka.conftest import had
from objects.faulty import Faulty, faulty
from objects.gateway import BUCKET, Gateway, kept_gateway, own_gateway


@pytest.fixture(scope="session")
def gateway() -> Iterator[Gateway]:
    """The shared S3 server."""
    with had(kept_gateway()) as server:
        yield server


@pytest.fixture
def fresh_gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """An S3 server of the test's own, with nothing in it but the bucket."""
    with had(own_gateway()) as server:
        known(monkeypatch, server.environment)
        yield server


@pytest.fixture
def place(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL under which nothing is, on the real server."""
    known(monkeypatch, gateway.environment)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """A server that does what the test tells it; `s3://memory/…`."""
    with faulty() as server:
        known(monkeypatch, server.environment)
        yield server


def known(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
