"""Fixtures of a cluster: three workers that share nothing, and the one folder that they do share for now.

In: a test that names one. Out: workers that have registered; skipped, with the reason, where name spaces cannot be had.
Rule: whoever kills a worker starts it again.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from cluster.nodes import Cluster, cluster, isolated
from kafka.conftest import had
from kafka.fetch import Unavailable
from objects.gateway import BUCKET, kept_gateway

UNFIT = 1  # the worker that does not see the folder `apart`


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of stores: what is durable lies in a folder that all see."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def apart(shared: Path) -> Path:
    """A folder that all workers see but one."""
    (shared / "apart").mkdir()
    return shared / "apart"


@pytest.fixture(scope="session")
def credentials() -> Iterator[Mapping[str, str]]:
    """Of the object store, in the workers' environment; none where there is none, then tests that need it are
    skipped."""
    with contextlib.ExitStack() as stack:
        server: Mapping[str, str] = {}
        with contextlib.suppress(Unavailable):
            server = stack.enter_context(kept_gateway()).environment
        yield server


@pytest.fixture(scope="session")
def three(
    shared: Path, apart: Path, credentials: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    if not isolated():
        pytest.skip("this system gives no name spaces of mounts (unshare -m)")
    with cluster(tmp_path_factory.mktemp("nodes"), shared=[shared], apart={UNFIT: [apart]}, env=credentials) as made:
        yield made


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place in an object store, under which nothing is; the workers have the same credentials."""
    with had(kept_gateway()) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def at(shared: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own, which all workers see."""
    made = shared / "".join(c if c.isalnum() else "-" for c in request.node.name)
    made.mkdir()
    return made
