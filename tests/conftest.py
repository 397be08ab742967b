"""Settings of all tests: `--law` runs the long ones; histories come from `tests/`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("POLARS_MAX_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))


import effort
import warm_python


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--law", action="store_true", help="run thousands of random histories")
    parser.addoption("--fuzz", type=int, default=effort.FUZZ, help="with --law: how many inputs of each kind")


@pytest.fixture(scope="session", autouse=True)
def quick_starts(request: pytest.FixtureRequest) -> Iterator[None]:
    """The session that Spark tests share starts its queries quickly."""
    if not any("spark" in item.keywords for item in request.session.items):
        yield
        return
    from braid.spark import conf

    with warm_python.start() as conf.PYTHON:
        yield


def pytest_configure(config: pytest.Config) -> None:
    effort.LAW = bool(config.getoption("--law"))
    effort.FUZZ = int(config.getoption("--fuzz"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--law"):
        skip = pytest.mark.skip(reason="long; make law")
        for item in items:
            if "law" in item.keywords:
                item.add_marker(skip)
