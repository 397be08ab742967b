"""Workers that cannot use the object store of a run: they are named before it begins, and by `braid doctor`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]
pytest.importorskip("pyspark")
pytest.importorskip("obstore")

from braid.store import opened  # noqa: E402
from cli_help import ended, launch  # noqa: E402
from cluster.nodes import CONF, Cluster, address, cluster, isolated  # noqa: E402
from crash import world  # noqa: E402
from crash.places import InObjects  # noqa: E402
from objects.gateway import BUCKET  # noqa: E402

WRONG = 1
FEWER = [w.replace("spark.cores.max=3", "spark.cores.max=2") for w in CONF]


@pytest.fixture(scope="module", params=["secret", "server"])
def two(
    request: pytest.FixtureRequest, credentials: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, str]]:
    """Two workers, one of which has another secret, or looks for the store where none is; and what is said of it."""
    if not isolated() or not credentials:
        pytest.skip("no name spaces of mounts (unshare -m), or no S3 server")
    own = (
        {"AWS_SECRET_ACCESS_KEY": "another"}
        if request.param == "secret"
        else {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    )
    said = (
        "access is refused (403 SignatureDoesNotMatch)" if request.param == "secret" else "the server cannot be reached"
    )
    folder = tmp_path_factory.mktemp("access")
    with cluster(folder, workers=2, env=credentials, own={WRONG: own}) as made:
        yield made, said


def test_a_worker_that_cannot_use_the_store_is_named(two: tuple[Cluster, str], url: str, tmp_path: Path) -> None:
    (nodes, why), history = two, world.history(1, 10)
    InObjects(url).write(history)
    (tmp_path / "q.sql").write_text(world.sql(["WINDOWED"]), encoding="utf-8")
    words = ("run", "q.sql", "--store", url, "--until-idle", "--master", nodes.url, *FEWER)
    said = ended(launch(*words, cwd=tmp_path), 300)
    assert said.code == 1, said.err
    assert f"error: the worker {address(WRONG)} cannot use {url}: {why}" in " ".join(said.err.split()), said.err
    assert "nothing was written" in " ".join(said.err.split())
    assert not left(url)
    doctor = ended(launch("doctor", "--store", url, "--master", nodes.url, *FEWER, cwd=tmp_path), 300)
    told = [line for line in doctor.out.splitlines() if "the worker" in line]
    assert doctor.code == 1 and len(told) == 2, doctor.out
    wrong, fine = sorted(told)
    assert wrong.startswith(f"miss  the worker {address(WRONG)} cannot use the store {url}: {why}"), doctor.out
    assert fine.startswith("ok  ") and fine.endswith(", can use the store"), doctor.out
    assert not left(url)


def left(url: str) -> list[str]:
    """What there is of the query, or of the look."""
    names = [name for name, _ in opened(url).list("")]
    return [n for n in names if n.split("/")[0] in ("checkpoints", "probes") or n == "names/WINDOWED"]


def test_a_bucket_that_is_not_there_is_told_before_any_worker_is_asked(
    two: tuple[Cluster, str], url: str, tmp_path: Path
) -> None:
    none = f"s3://{BUCKET}-not/{uuid.uuid4().hex}"
    (tmp_path / "q.sql").write_text(world.sql(["WINDOWED"]), encoding="utf-8")
    said = ended(
        launch("run", "q.sql", "--store", none, "--until-idle", "--master", two[0].url, *FEWER, cwd=tmp_path), 300
    )
    assert said.code == 1 and f"there is no bucket {BUCKET}-not" in said.err, said.err
    doctor = ended(launch("doctor", "--store", none, cwd=tmp_path), 300)
    assert doctor.code == 1 and f"miss  there is no bucket {BUCKET}-not" in doctor.out, doctor.out
