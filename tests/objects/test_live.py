"""Backups in an object store, taken while batches come through: each, restored, goes on to what its own inputs give."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("pyspark")

from braid.face import backups
from braid.store import opened
from braid.topics import TopicStore
from cli_help import braid
from moments import QUERY, place, put, rows_of, run

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("server", ["memory", pytest.param("gateway", marks=pytest.mark.objects)])
def test_backups_of_a_store_in_use(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    from braid.lower.lower import lower
    from braid.spark import query as queries
    from braid.testing.on_spark import shared_session

    request.getfixturevalue(server)
    url = "s3://memory/live" if server == "memory" else str(request.getfixturevalue("place"))
    root = tmp_path / "live"
    store = TopicStore(root / "s")
    for name in ("l", "r"):
        store.create(name, 1)
    put(store, 0)
    running = queries.start(shared_session(), lower(QUERY), str(root / "s"))
    over = threading.Event()

    def feed() -> None:
        n = 1
        while not over.wait(0.05):
            put(store, n)
            n += 1

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        for least in (1, 3, 5):
            while running.progress().batch < least:
                over.wait(0.1)
            said = braid("backup", url, "--store", root / "s")
            assert said.code == 0 and f"{url} is whole" in said.out, said
    finally:
        over.set()
        feeding.join()
        running.stop()
    names = backups.names(opened(url))
    assert len(names) == 3
    for name in names:
        copy = tmp_path / name
        said = braid("restore", url, copy / "s", "--at", name)
        assert said.code == 0 and "finished batch" in said.out and "is whole" in said.out, said
        run(copy, False)
        fresh = copy / "fresh"
        for part in ("l", "r"):
            shutil.copytree(place(copy, part), place(fresh, part))
        run(fresh, False)
        assert rows_of(copy, False) == rows_of(fresh, False) and rows_of(copy, False)
        assert braid("verify", "--store", copy / "s").code == 0
