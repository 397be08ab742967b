"""The PostgreSQL that judges, one a module."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from postgres import server


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection]:
    try:
        with server.running() as made:
            yield made
    except server.Missing as e:
        pytest.skip(f"no PostgreSQL to judge: {e}")
