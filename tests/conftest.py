"""Settings of all tests: `--law` runs the long ones; histories come from `tests/`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))


import effort

if TYPE_CHECKING:
    import psycopg
    from pyiceberg.catalog import Catalog

HANGS, HANGS_FAST, HANGS_LAW = 300, 120, 3600  # s a test may take: in `make test`, without a JVM; and with --law

# A busy machine makes a generator of inputs slow, and a slow one is no fault of what is tested.
settings.register_profile("braid", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("braid")


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Copies of stores that lie elsewhere are the tests' own."""
    os.environ["BRAID_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection]:
    """A PostgreSQL, one a module."""
    from postgres import server

    try:
        with server.running() as made:
            yield made
    except server.Missing as e:
        pytest.skip(f"no PostgreSQL: {e}")


@pytest.fixture
def db(connection: psycopg.Connection) -> psycopg.Connection:
    """The same, empty."""
    connection.execute("SET client_min_messages = error; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return connection


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog of Iceberg, called `lake`, which Braid finds, too."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    known = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/lake"}
    for name, value in known.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it has read the environment long ago
    return load_catalog("lake", **known)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--law", action="store_true", help="run thousands of random histories")
    parser.addoption("--fuzz", type=int, default=effort.FUZZ, help="with --law: how many inputs of each kind")


def pytest_configure(config: pytest.Config) -> None:
    effort.LAW = bool(config.getoption("--law"))
    if not config.getoption("--timeout"):  # a test that hangs fails, with the stacks of all threads
        config.option.timeout = HANGS_LAW if effort.LAW else HANGS
    effort.FUZZ = int(config.getoption("--fuzz"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected lives to the end: no garbage collection looks at it again, nor often at all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


def pytest_unconfigure(config: pytest.Config) -> None:
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--law"):
        return
    skip, soon = pytest.mark.skip(reason="long; make law"), pytest.mark.timeout(HANGS_FAST)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "law" in marks:
            item.add_marker(skip)
        elif config.option.timeout == HANGS and marks.isdisjoint({"spark", "kafka", "kafka_short", "timeout"}):
            item.add_marker(soon)
