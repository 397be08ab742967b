"""Backups in an object store, taken while batches come through: each, restored, goes on to what its own inputs give."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("pyspark")

from braid.face import backups
from braid.store import opened
from cli_help import braid
from moments import check_copy, in_use

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("server", ["memory", pytest.param("gateway", marks=[pytest.mark.objects, pytest.mark.law])])
def test_backups_of_a_store_in_use(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    request.getfixturevalue(server)
    url = "s3://memory/live" if server == "memory" else str(request.getfixturevalue("place"))
    root = tmp_path / "live"
    with in_use(root) as running:
        for least in (1, 3, 5):
            while running.progress().batch < least:
                time.sleep(0.1)
            said = braid("backup", url, "--store", root / "s")
            assert said.code == 0 and f"{url} is whole" in said.out, said
    names = backups.names(opened(url))
    assert len(names) == 3
    for name in names:
        copy = tmp_path / name
        said = braid("restore", url, copy / "s", "--at", name)
        assert said.code == 0 and "finished batch" in said.out and "is whole" in said.out, said
        check_copy(copy)
        assert braid("verify", "--store", copy / "s").code == 0
